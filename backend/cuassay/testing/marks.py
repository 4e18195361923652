"""The decorators with which a test declares its devices, dtypes, ops and requirements.

Names are checked when the decorator runs, so that a misspelt one is a collection error with its file and line. Whether
a device meets a requirement is found out before the test runs (`cuassay.testing.skips`).
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

#: The marks that the decorators set: their form and meaning.
MARKERS: dict[str, str] = {
    "cuassay_devices(*names)": "devices the test may run on; written by cuassay.testing.devices",
    "cuassay_dtypes(*names)": "dtypes the test runs in; written by cuassay.testing.dtypes",
    "cuassay_ops(*names)": "ops the test runs for; written by cuassay.testing.ops",
    "cuassay_requires(*names, when)": "capabilities the device must have; written by cuassay.testing.requires",
    "cuassay_case(test, device, dtype, op)": "the case of an instantiated test; written by cuassay.testing.torchlike",
    "cuassay_racing": "makes unordered accesses on purpose; written by cuassay.testing.racing",
    "cuassay_exclusive": "reads the device's free memory or needs it alone; written by cuassay.testing.exclusive",
}

#: The mark that `exclusive` sets.
EXCLUSIVE = "cuassay_exclusive"

exclusive: pytest.MarkDecorator = pytest.mark.cuassay_exclusive
"""Run the test alone on its device, because it reads the device's free memory or must finish within a time.

``--cuassay-shard I/N`` leaves the test out and ``--cuassay-shard alone`` runs it. Write ``@exclusive`` at a test, or
``pytestmark = exclusive`` for a file.
"""

#: The mark that `racing` sets.
RACING = "cuassay_racing"

racing: pytest.MarkDecorator = pytest.mark.cuassay_racing
"""Let the test make unordered accesses, or free memory too early: ``--cuassay-sanitize`` then accepts them."""


class SpecLike(Protocol):
    """The part of an OpSpec that parametrization uses."""

    @property
    def name(self) -> str:
        """The name shown in the id."""

    @property
    def dtypes(self) -> Sequence[str]:
        """The dtypes to make cases for."""

    def leaves_to_other(self, check: str, kind: str) -> bool:
        """Whether the check is generated for another op instead."""


def devices(*selectors: str) -> pytest.MarkDecorator:
    """Run the test on these devices only: ``@devices("cpu", "cuda:*")``.

    If the user chose devices on the command line, the test runs on the matching ones among them. Otherwise it runs on
    all matching devices that are present.

    Parameters
    ----------
    *selectors : str
        Devices in the form of `cuassay.testing.presence.parse_selector`.

    Raises
    ------
    pytest.UsageError
        If a selector has another form, or its kind does not exist.
    """
    __tracebackhide__ = True
    from cuassay.testing.presence import parse_selector

    _check(selectors, parse_selector, "a device, such as 'cpu' or 'cuda:*'")
    return pytest.mark.cuassay_devices(*selectors)


def dtypes(*names: Any) -> pytest.MarkDecorator:
    """Run the test in these dtypes: ``@dtypes("float32", "bfloat16")``.

    Parameters
    ----------
    *names : str or dtype
        Names of dtypes, or dtype objects.

    Raises
    ------
    pytest.UsageError
        If a name is not that of a supported dtype.
    """
    __tracebackhide__ = True
    words: tuple[str, ...] = tuple(map(dtype_word, names))
    _check(words, _known_dtype, "a dtype, such as 'float32'")
    return pytest.mark.cuassay_dtypes(*words)


def requires(*requirements: str, when: Condition | None = None) -> pytest.MarkDecorator:
    """Skip the test on devices that lack a capability: ``@requires("graphs", "memory>=2GiB", "matmul:bfloat16")``.

    Parameters
    ----------
    *requirements : str
        Names of capabilities.
    when : str, sequence of str, or callable, optional
        The cases that have these requirements; by default all. Words are names of dtypes and devices, such as
        ``when="float16"`` or ``when=("cuda", "float16", "bfloat16")``. The case must match one of the devices, if any
        are named, and one of the dtypes, if any are named. A function takes parameters of the test by their names:
        ``when=lambda size, dtype: size * dtype.itemsize > 1 << 30``.

    Raises
    ------
    pytest.UsageError
        If no capability has that name, or `when` has another form.
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
    """Run the test for each spec, in each of its dtypes.

    Parameters
    ----------
    *specs : OpSpec or str
        Specs, or names of this package's ops. Without arguments, all of this package's ops.

    Raises
    ------
    pytest.UsageError
        If the parentheses are missing, or a spec is a list of specs.
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
