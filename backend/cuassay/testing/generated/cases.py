"""The case that a failure names: check, op, device, dtype, sample and seed, and the command that repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest

from cuassay.arrays.dtypes import dtype_name
from cuassay.core import settings
from cuassay.testing import rerun
from cuassay.testing.compare import describe_case
from cuassay.testing.failures import inputs_there
from cuassay.testing.opspec import OpSpec
from cuassay.testing.samples import Sample

__all__ = ["explained", "name_dtype", "naming_case", "on_sample", "retold", "showing_inputs"]


@dataclass(slots=True)
class _Case:
    """The line of a failure that names op, device and dtype. It is read when something has failed."""

    where: str
    dtype: str

    def __str__(self) -> str:
        return f"op: {self.where}{f' in {self.dtype}' if self.dtype else ''}"


_CASE: ContextVar[_Case | None] = ContextVar("cuassay_case", default=None)


def name_dtype(dtype: Any) -> None:
    """Set the dtype that failures name from now on, for a check that chooses its dtypes itself."""
    if (case := _CASE.get()) is not None:
        case.dtype = dtype_name(dtype)


@contextmanager
def naming_case(check: str, spec: OpSpec, device: Any, dtype: Any = None) -> Iterator[None]:
    """Add the case, and the command that repeats it, to any error raised inside."""
    case = _Case(f"{spec.name} on {device}", "" if dtype is None else dtype_name(dtype))
    lines: list[object] = [check, case, f"seed: {int(settings.get('CUASSAY_SEED'))}"]
    if target := rerun.TARGET.get():
        lines.append(f"reproduce: {rerun.line(target, device)}")
    token = _CASE.set(case)
    try:
        with describe_case(*lines), _with_note(*lines):
            yield
    finally:
        _CASE.reset(token)


@contextmanager
def _with_note(*lines: object) -> Iterator[None]:
    """Add `lines` as a note to any error raised inside, unless it has them, as the message of a comparison does."""
    try:
        yield
    except Exception as error:
        if not any(str(lines[0]) in text for text in (str(error), *getattr(error, "__notes__", ()))):
            error.add_note("\n".join(f"  {line}" for line in lines))
        raise


@contextmanager
def on_sample(sample: Sample) -> Iterator[None]:
    """Name the sample in any error raised inside."""
    line = f"sample: {sample.label}"
    with describe_case(line), _with_note(line):
        yield


def showing_inputs(sample: Sample) -> AbstractContextManager[None]:
    """Add the inputs of a call to any error raised inside."""
    return _with_note(*inputs_there((), (), sample.host()))


def retold(sentence: str, error: AssertionError) -> AssertionError:
    """A failure with `sentence` in front of its message, and with its notes, which may name the sample."""
    told = AssertionError(f"{sentence}\n  {error}")
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told


@contextmanager
def explained(sentence: str, otherwise: Callable[[], None] | None = None, always: str = "") -> Iterator[None]:
    """Put `sentence` in front of a failed comparison's message.

    Parameters
    ----------
    otherwise : callable, optional
        The plain call. If it fails too, `sentence` would mislead: then `always` is used, or no sentence at all.
    """
    __tracebackhide__ = True
    try:
        yield
    except AssertionError as error:
        if otherwise is not None:
            try:
                otherwise()
            except pytest.skip.Exception:  # inputs that the function refuses: a failure must not become a skip
                pass
            except Exception:  # noqa: BLE001  the plain call is wrong too, so the sentence would mislead
                if not always:
                    raise error from None
                sentence = always
        raise retold(sentence, error) from None
