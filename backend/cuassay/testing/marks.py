"""What a test declares: its devices, dtypes, ops, and what it needs.

Names are checked where they are written, so that a typing error is an error of collection, with its file and line.
Whether a device meets a requirement is asked when the test is about to run (`cuassay.testing.skips`).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pytest

from cuassay.core.capability import DTYPE_NAMES, dtype_word, parse_requirement, unknown_dtype
from cuassay.errors import ArgumentError, CapabilityNameError, DeviceError
from cuassay.testing.when import Condition, parse_when

__all__ = ["EXCLUSIVE", "MARKERS", "RACING", "SpecLike", "devices", "dtypes", "exclusive", "ops", "racing", "requires"]

#: The marks behind the decorators: how each is written, to meaning.
MARKERS: dict[str, str] = {
    "cuassay_devices(*names)": "devices the test may run on; written by cuassay.testing.devices",
    "cuassay_dtypes(*names)": "dtypes the test runs in; written by cuassay.testing.dtypes",
    "cuassay_ops(*names)": "ops the test runs for; written by cuassay.testing.ops",
    "cuassay_requires(*names, when)": "capabilities the device must have; written by cuassay.testing.requires",
    "cuassay_case(test, device, dtype, op)": "what a made test runs; written by cuassay.testing.torchlike",
    "cuassay_racing": "makes unordered accesses on purpose; written by cuassay.testing.racing",
    "cuassay_exclusive": "reads the device's free memory or needs it alone; written by cuassay.testing.exclusive",
}

#: The mark of `exclusive`.
EXCLUSIVE = "cuassay_exclusive"

exclusive: pytest.MarkDecorator = pytest.mark.cuassay_exclusive
"""Run the test alone on its device, because it reads the device's free memory or must finish within a time.

``--cuassay-shard I/N`` leaves the test out and ``--cuassay-shard alone`` runs it. Write ``@exclusive`` at a test, or
``pytestmark = exclusive`` for a file.
"""

#: The mark of `racing`.
RACING = "cuassay_racing"

racing: pytest.MarkDecorator = pytest.mark.cuassay_racing
"""The test makes unordered accesses, or frees memory too early, on purpose: ``--cuassay-sanitize`` lets them pass."""


class SpecLike(Protocol):
    """What parametrization needs of an OpSpec."""

    @property
    def name(self) -> str:
        """Shown in the id."""

    @property
    def dtypes(self) -> Sequence[str]:
        """Every dtype to make a case for."""

    def leaves_to_other(self, check: str, kind: str) -> bool:
        """Whether a check is generated for another op instead."""


def devices(*selectors: str) -> pytest.MarkDecorator:
    """Run the test on these devices only: ``@devices("cpu", "cuda:*")``.

    Where the user chose devices on the command line, on those of them that match; else on all of these present.

    Raises
    ------
    pytest.UsageError
        If a selector has no such form, or its kind does not exist.
    """
    __tracebackhide__ = True
    from cuassay.testing.presence import parse_selector

    _check(selectors, parse_selector, "a device, such as 'cpu' or 'cuda:*'")
    return pytest.mark.cuassay_devices(*selectors)


def dtypes(*names: Any) -> pytest.MarkDecorator:
    """Run the test in these dtypes: ``@dtypes("float32", "bfloat16")``; dtype objects are taken as well.

    Raises
    ------
    pytest.UsageError
        If a name is not one of our dtypes.
    """
    __tracebackhide__ = True
    words: tuple[str, ...] = tuple(map(dtype_word, names))
    _check(words, _known_dtype, "a dtype, such as 'float32'")
    return pytest.mark.cuassay_dtypes(*words)


def requires(*requirements: str, when: Condition | None = None) -> pytest.MarkDecorator:
    """Skip the test on devices that lack any of these: ``@requires("graphs", "memory>=2GiB", "matmul:bfloat16")``.

    Parameters
    ----------
    *requirements : str
        Names of capabilities.
    when : str, sequence of str, or callable, optional
        The cases that need them; left out, all. Words name dtypes and devices, ``when="float16"`` or
        ``when=("cuda", "float16", "bfloat16")``: of each sort that is named, one must be the case's. A function takes
        parameters of the test by their names, ``when=lambda size, dtype: size * dtype.itemsize > 1 << 30``.

    Raises
    ------
    pytest.UsageError
        If nobody defines a capability of that name, or `when` is none of these.
    """
    __tracebackhide__ = True
    _check(requirements, parse_requirement, "a requirement, such as 'graphs' or 'memory>=2GiB'")
    if when is None:
        return pytest.mark.cuassay_requires(*requirements)
    try:
        return pytest.mark.cuassay_requires(*requirements, when=parse_when(when))
    except ArgumentError as error:
        raise pytest.UsageError(f"{_caller()}: {error}") from None


def ops(*specs: SpecLike | str) -> pytest.MarkDecorator:
    """Run the test for each spec, in each of its dtypes: `OpSpec` objects or names of our ops; none means all ours.

    Raises
    ------
    pytest.UsageError
        If it decorates a test without its parentheses, or a spec is a list of specs.
    """
    __tracebackhide__ = True
    if len(specs) == 1 and inspect.isroutine(specs[0]):
        raise pytest.UsageError(f"{_caller()}: @ops is written without parentheses; write @ops()")
    listed = next((spec for spec in specs if isinstance(spec, (list, tuple, set))), None)
    if listed is not None:
        raise pytest.UsageError(
            f"{_caller()}: @ops got a {type(listed).__name__}; give the specs one by one, such as @ops(*specs)"
        )
    return pytest.mark.cuassay_ops.with_args(*specs)


def _check(words: Sequence[Any], parse: Callable[[str], object], example: str) -> None:
    __tracebackhide__ = True
    if not words or not all(isinstance(word, str) for word in words):
        raise pytest.UsageError(f"{_caller()}: got {words!r}; give at least one name of {example}")
    for word in words:
        try:
            parse(word)
        except (CapabilityNameError, DeviceError) as error:
            raise pytest.UsageError(f"{_caller()}: {error}") from None


def _known_dtype(name: str) -> None:
    if name not in DTYPE_NAMES:
        raise CapabilityNameError(unknown_dtype(name))


def _caller() -> str:
    """``file:line`` of the first frame outside this module."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return "?" if frame is None else f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
