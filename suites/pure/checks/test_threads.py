"""Where a call is interrupted by another thread, and what is found there."""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, ops
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import threads
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.generated.threads import check_threads

CPU = Device("cpu")
HELD: dict[str, Any] = {}


def spec_of(fn: Any, reference: Any = lambda a: a * 2, **fields: Any) -> OpSpec:
    fields = {"dtypes": ("float32",), "samples": lambda make: [make((3, 5))], **fields}
    return OpSpec(fn=fn, reference=reference, name="f", **fields)


def through_a_global(xp: Any, a: Any) -> Any:
    HELD["a"] = a
    factor = 2
    return HELD["a"] * factor


def through_a_local(xp: Any, a: Any) -> Any:
    held = a
    factor = 2
    return held * factor


def wrong(xp: Any, a: Any) -> Any:
    HELD["a"] = a
    factor = 3
    return HELD["a"] * factor


def test_data_of_a_call_in_a_global_variable_is_found() -> None:
    said = failure(check_threads, spec_of(through_a_global), CPU)

    assert said.startswith(
        "right alone, wrong while another thread calls it: it stores data of a call in a global variable\n"
        "  the other call: 0: shape 3x5, new numbers\n"
    )
    assert failure(check_threads, spec_of(through_a_local), CPU) == ""


def test_function_that_is_wrong_alone_is_told_of_as_such() -> None:
    said = failure(check_threads, spec_of(wrong), CPU)

    assert "another thread" not in said
    assert "out of tolerance" in said


def test_calls_of_two_sets_of_options_interrupt_each_other() -> None:
    def fn(xp: Any, a: Any, k: int) -> Any:
        HELD["k"] = k
        factor = 2
        return a * factor + HELD["k"]

    samples = lambda make: [Sample((make((3, 5)),), {"k": k}) for k in (1, 2, 3)]  # noqa: E731
    said = failure(check_threads, spec_of(fn, lambda a, k: a * 2 + k, samples=samples), CPU)

    assert "the other call: 1: " in said
    assert "sample: 0: " in said


def test_other_call_that_the_reference_rejects_is_not_made() -> None:
    def picky(a: Any) -> Any:
        if abs(a).max() < 2:
            raise ValueError("too small")
        return a * 2

    assert failure(check_threads, spec_of(through_a_global, picky), CPU) == ""


def test_function_that_a_partial_calls_is_interrupted() -> None:
    assert "wrong while another thread calls it" in failure(
        check_threads, spec_of(functools.partial(through_a_global)), CPU
    )


class Callable:
    """Has no code of its own: that of its type's method is not looked for."""

    def __call__(self, xp: Any, a: Any) -> Any:
        return through_a_global(xp, a)


def test_function_without_python_code_is_not_interrupted() -> None:
    assert failure(check_threads, spec_of(Callable()), CPU) == ""


def test_ops_and_random_functions_are_left_out() -> None:
    applies = CHECKS["threads"].applies

    assert applies(spec_of(through_a_local))
    assert not applies(spec_of(through_a_local, deterministic=False))
    assert not applies(OpSpec(op=ops.equal, reference=np.equal))


@pytest.mark.parametrize(("size", "is_found"), [(2**14, True), (2**14 + 1, False)])
def test_calls_have_at_most_16384_elements(size: int, is_found: bool) -> None:
    def fn(xp: Any, a: Any, k: int) -> Any:
        HELD["a"] = k
        factor = 2
        return a * factor + (HELD["a"] - k if a.size >= 2**14 else 0)

    samples = lambda make: [Sample((make(n),), {"k": k}) for n in (4, size) for k in (1, 2)]  # noqa: E731

    assert bool(failure(check_threads, spec_of(fn, lambda a, k: a * 2, samples=samples), CPU)) is is_found


# ------------------------------------------------------------------------------------------------ interruptions


def lines_of(function: Any, filename: str, times: int = 1) -> list[int]:
    """The lines of this function before which it is interrupted, counted from its first."""
    met: list[int] = []

    def interrupt() -> None:
        frame = sys._getframe(2)
        met.append(frame.f_lineno - frame.f_code.co_firstlineno)

    with threads._interrupted(filename, interrupt):
        for _ in range(times):
            function()
    return met


def looping() -> int:
    total = 0
    for _ in range(3):
        total += 1
    return total


LONG = "def long():\n" + "".join(f"    x = {number}\n" for number in range(40))


def test_each_line_is_interrupted_once() -> None:
    assert lines_of(looping, __file__) == [1, 2, 3, 4]
    assert lines_of(looping, __file__, times=2) == [1, 2, 3, 4]
    assert lines_of(looping, "another.py") == []


def test_lines_of_two_functions_are_told_apart() -> None:
    def both() -> None:
        looping()

    assert lines_of(both, __file__) == [1, 1, 2, 3, 4]


def test_at_most_24_lines_are_interrupted() -> None:
    names: dict[str, Any] = {}
    exec(compile(LONG, "long.py", "exec"), names)  # noqa: S102

    assert lines_of(names["long"], "long.py") == list(range(1, 25))


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_another_tracer_is_set_again(error: type[Exception] | None) -> None:
    def tracer(frame: Any, event: str, argument: Any) -> None:
        return None

    def interrupted() -> None:
        with threads._interrupted(__file__, lambda: None):
            inside.append(sys.gettrace())
            if error is not None:
                raise error

    inside: list[Any] = []
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with suppress(ZeroDivisionError):
            interrupted()
        after = sys.gettrace()
    finally:
        sys.settrace(before)

    assert after is tracer
    assert inside not in ([tracer], [None])


def test_error_of_the_other_call_is_left_alone() -> None:
    def failing(xp: Any, a: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("not here")
        return a * 2

    assert failure(check_threads, spec_of(failing), CPU) == ""


def test_blocked_threads_end_after_the_check() -> None:
    """A function with a lock blocks the other call until its own has ended."""
    lock, ended = threading.Lock(), threading.Event()

    def fn(xp: Any, a: Any) -> Any:
        with lock:
            result = a * 2
        if threading.current_thread() is not threading.main_thread():
            ended.set()
        return result

    assert failure(check_threads, spec_of(fn), CPU) == ""
    assert ended.is_set()
