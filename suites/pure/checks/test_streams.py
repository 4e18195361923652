"""What checks of side streams, of captured graphs and of waits find on the simulated device."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from failed_checks import failure

from cuassay import Device, devices, ops
from cuassay.core import syncdebug
from cuassay.errors import RaceError
from cuassay.testing import OpSpec, Sample
from cuassay.testing.generated import streams
from cuassay.testing.generated.checks import CHECKS

CPU, SIM, FLOAT32 = Device("cpu"), Device("sim:0"), np.dtype("float32")


def backend() -> Any:
    return devices.backend("sim")


def twice(xp: Any, a: Any) -> Any:
    return a + a


def spec_of(fn: Any, reference: Any = lambda a: a + a, **fields: Any) -> OpSpec:
    fields = {"dtypes": ("float32",), "samples": lambda make: [make((3, 5))], **fields}
    return OpSpec(fn=fn, reference=reference, name="twice", **fields)


def on_sim(fn: Any) -> Any:
    """The function on the simulated device; on the host it is right."""
    return lambda xp, a: a + a if isinstance(a, np.ndarray) else fn(xp, a)


def side(fn: Any, **fields: Any) -> None:
    CHECKS["side_stream"](spec_of(fn, **fields), SIM, FLOAT32)


# ------------------------------------------------------------------------------------------------ side streams


def test_function_on_the_current_stream_passes() -> None:
    side(twice)


def test_function_on_a_stream_of_its_own_is_found() -> None:
    def fn(xp: Any, a: Any) -> Any:
        with backend().use_stream(backend().new_stream(0)):
            return a + a

    with pytest.raises(RaceError, match="not ordered after the write"):
        side(on_sim(fn))


def test_stream_of_its_own_that_waits_and_is_waited_for_passes() -> None:
    def fn(xp: Any, a: Any) -> Any:
        main, own = backend().current_stream(0), backend().new_stream(0)
        own.wait_stream(main)
        with backend().use_stream(own):
            result = a + a
        main.wait_stream(own)
        return result

    side(on_sim(fn))


@pytest.mark.parametrize("call", [1, 2], ids=["first stream", "second stream"])
def test_wrong_result_on_one_of_two_streams_is_found(call: int) -> None:
    seen: list[Any] = []

    def fn(xp: Any, a: Any) -> Any:
        stream = backend().current_stream(0)
        if stream not in seen:
            seen.append(stream)
        return a + a if seen.index(stream) != call or a.shape != (3, 5) else a + a + a

    with pytest.raises(AssertionError, match="on a stream other than the default one, while the default one is busy"):
        side(on_sim(fn))


def test_function_that_is_wrong_on_the_default_stream_too_is_told_of_as_such() -> None:
    with pytest.raises(AssertionError) as caught:
        side(on_sim(lambda xp, a: a + a + a))

    assert "on a stream other than" not in str(caught.value)


def test_table_that_one_stream_makes_for_another_is_found() -> None:
    """It is made once for each size, on the stream of the first call."""
    made: dict[Any, Any] = {}

    def fn(xp: Any, a: Any) -> Any:
        if a.shape not in made:
            made[a.shape] = ops.add(a, a)
        return a + a + (made[a.shape] - made[a.shape])

    with pytest.raises(RaceError, match="not ordered after the write"):
        side(on_sim(fn))


def test_first_stream_gets_inputs_of_the_default_one_and_the_second_makes_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    on = Sample.on

    def noting(self: Sample, device: Any) -> Any:
        if Device(device) == SIM:
            made.append(backend().current_stream(0))
        return on(self, device)

    monkeypatch.setattr(Sample, "on", noting)
    side(twice)

    main, again, second, *of_new_size = made
    assert main == again == backend().current_stream(0)
    assert second == of_new_size[1] != of_new_size[0]
    assert main not in of_new_size
    assert len(of_new_size) == 2


def new_sizes(fn: Any, sample: Sample, reference: Any = lambda a: a + a) -> list[Any]:
    """The shapes that a function is called with on two streams."""
    spec = spec_of(fn, reference, samples=lambda make: [sample])
    sides = [backend().new_stream(0) for _ in range(2)]
    found = streams._run_new_size(spec, SIM, sample, sides)
    backend().synchronize(0)
    return [(size.args[0].shape, result.shape) for size, result in found]


@pytest.mark.parametrize(
    ("shape", "found"),
    [((3, 5), (3, 12)), ((5, 2), (12, 2)), ((2,), (9,)), ((1, 1), None), ((), None)],
    ids=str,
)
def test_longest_extent_is_longer_by_seven(shape: Any, found: Any) -> None:
    sample = Sample((np.ones(shape, np.float32),))

    assert new_sizes(twice, sample) == ([] if found is None else [(found, found)] * 2)


def test_size_that_the_reference_rejects_is_not_tried() -> None:
    def picky(a: Any) -> Any:
        if a.shape[-1] == 12:
            raise ValueError("not twelve")
        return a + a

    assert new_sizes(twice, Sample((np.ones((3, 5), np.float32),)), picky) == []


def test_ops_are_not_called_with_a_new_size() -> None:
    spec = OpSpec(op=ops.add, reference=np.add)
    sample = Sample((np.ones(5, np.float32),) * 2)

    assert streams._run_new_size(spec, SIM, sample, [backend().new_stream(0)]) == []


@pytest.mark.parametrize(
    ("message", "is_raised"),
    [
        ("write by copy of a, not ordered after the read", False),
        ("write by add of a, not ordered after the read", True),
        ("write by copy of a, not ordered after the write", True),
    ],
)
def test_race_with_the_input_of_a_captured_graph_is_the_callers(message: str, is_raised: bool) -> None:
    calls: list[Any] = []

    def fn(xp: Any, a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            calls.append(a)
            if len(calls) == 2:
                raise RaceError(message)
        return a + a

    sample = Sample((np.ones((3, 5), np.float32),))
    if is_raised:
        with pytest.raises(RaceError, match="write by"):
            new_sizes(fn, sample)
    else:
        assert new_sizes(fn, sample) == []


@pytest.mark.parametrize(
    ("fn", "is_right"),
    [
        (twice, True),
        (lambda xp, a: a + a + a, False),
        (lambda xp, a: a.get() if a.size == 12 else a + a, True),
    ],
    ids=["right", "wrong", "for one library"],
)
def test_new_size_counts_if_it_is_right_on_the_host(fn: Any, is_right: bool) -> None:
    sample = Sample((np.ones(12, np.float32),))

    assert streams._is_right_on_host(spec_of(fn), FLOAT32, [(sample, None)]) is is_right
    assert streams._is_right_on_host(spec_of(fn), FLOAT32, []) is True


def test_new_size_that_is_wrong_on_streams_alone_is_explained() -> None:
    """It is right where the check runs it again, alone."""
    wrong = [True, True]

    def fn(xp: Any, a: Any) -> Any:
        return a + a + a if a.shape == (3, 12) and wrong and wrong.pop() else a + a

    with pytest.raises(AssertionError, match="called first on one stream and then on another, which does not wait"):
        side(on_sim(fn))


def test_numbers_that_were_read_too_early_are_found() -> None:
    streams._check_read(np.ones(3), np.ones(3))
    said = failure(streams._check_read, np.zeros(3), np.ones(3))

    assert said.startswith("the result was not ready on the stream that was current: the function queues work on")


# ------------------------------------------------------------------------------------------------ graphs


def captured(fn: Any, **fields: Any) -> str:
    return failure(CHECKS["captured"], spec_of(fn, **fields), SIM)


def test_replay_computes_with_the_new_numbers() -> None:
    kept: list[Any] = []

    def stale(xp: Any, a: Any) -> Any:
        """Give the result of the first call again, in a new array."""
        if not kept:
            kept.append(a + a)
        return kept[0] + 0

    assert captured(twice) == ""
    assert captured(on_sim(stale)).startswith("captured in a graph, and replayed after its inputs had changed")
    assert "sample: 0: shape 3x5" in captured(on_sim(stale))


def test_function_that_waits_cannot_be_captured() -> None:
    def fn(xp: Any, a: Any) -> Any:
        backend().synchronize(0)
        return a + a

    with pytest.raises(pytest.skip.Exception, match=r"^twice cannot be captured: .*test_streams.py:\d+: "):
        captured(on_sim(fn))
    assert captured(twice) == ""


@pytest.mark.parametrize("error", [AssertionError, RaceError])
def test_failure_while_capturing_is_not_a_skip(error: type[Exception]) -> None:
    calls: list[Any] = []

    def fn(xp: Any, a: Any) -> Any:
        calls.append(a)
        if len(calls) > 1:
            raise error("a fault")
        return a + a

    with pytest.raises(error, match="a fault"):
        CHECKS["captured"](spec_of(on_sim(fn)), SIM)


@pytest.mark.parametrize(("check", "args", "calls"), [("captured", (), 1), ("side_stream", (FLOAT32,), 2)])
def test_failed_call_on_a_side_stream_leaves_no_race_to_the_next_check(
    check: str, args: tuple[Any, ...], calls: int
) -> None:
    met: list[int] = []

    def fn(xp: Any, a: Any) -> Any:
        met.append(a.size)
        doubled = a + a
        if len(met) == calls:
            raise KeyError("a fault")
        return doubled

    with pytest.raises(KeyError, match="a fault"):
        CHECKS[check](spec_of(on_sim(fn)), SIM, *args)
    gc.collect()  # the input, which the traceback kept

    assert captured(twice) == ""


def test_other_numbers_that_the_reference_rejects_are_not_captured() -> None:
    met: list[Any] = []

    def picky(a: Any) -> Any:
        if np.abs(a).max() < 2:
            raise ValueError("too small")
        return a + a

    assert captured(on_sim(lambda xp, a: (met.append(a), a + a)[1]), reference=picky) == ""
    assert met == []


@pytest.mark.parametrize(("extent", "met"), [(4096, 4096), (4097, 15)])
@pytest.mark.parametrize(("name", "dtype"), [("captured", ()), ("waits", (FLOAT32,))], ids=["captured", "waits"])
def test_call_that_is_captured_or_must_not_wait_has_at_most_4096_elements(
    name: str, dtype: Any, extent: int, met: int
) -> None:
    sizes: list[int] = []
    fn = on_sim(lambda xp, a: (sizes.append(a.size), a + a)[1])
    spec = spec_of(fn, waits=name != "waits", samples=lambda make: [make((3, 5)), make(extent)])

    assert failure(CHECKS[name], spec, SIM, *dtype) == ""
    assert set(sizes) == {met}


@pytest.mark.parametrize("fails", [False, True], ids=["passes", "fails"])
def test_capture_is_reset_at_the_end(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made, reset = list[Any](), list[Any]()
    kind, new_capture = type(backend().new_capture(0)), backend().new_capture
    before = kind.reset
    monkeypatch.setattr(backend(), "new_capture", lambda index: made.append(new_capture(index)) or made[-1])
    monkeypatch.setattr(kind, "reset", lambda self: (reset.append(self), before(self))[1])
    calls: list[None] = []

    def fn(xp: Any, a: Any) -> Any:
        calls.append(None)
        assert not fails or len(calls) == 1
        return a + a

    assert bool(captured(on_sim(fn))) is fails
    assert made
    assert reset == made


def test_location_is_the_last_line_in_the_functions_file() -> None:
    def inner() -> None:
        raise ValueError("here")

    spec: Any = SimpleNamespace(fn=twice)
    builtin: Any = SimpleNamespace(fn=np.add)
    foreign: Any = SimpleNamespace(fn=streams.check_captured.__call__)

    with pytest.raises(ValueError, match="here") as caught:
        inner()

    line = inner.__code__.co_firstlineno + 1
    assert streams._location(spec, caught.value) == f"{__file__}:{line}: "
    assert streams._location(builtin, caught.value) == ""
    assert streams._location(foreign, caught.value) == ""


# ------------------------------------------------------------------------------------------------ waits


def waiting_at(call: int) -> Any:
    """A function whose call of this number waits for the device."""
    calls: list[None] = []

    def fn(xp: Any, a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            calls.append(None)
            if len(calls) == call:
                backend().synchronize(0)
        return a + a

    return fn


@pytest.mark.parametrize(
    ("call", "is_found"),
    [(1, False), (2, True), (17, True), (18, False)],
    ids=["the first", "the second", "the last", "one more"],
)
def test_sixteen_calls_after_the_first_must_not_wait(call: int, is_found: bool) -> None:
    before = syncdebug.get_mode()

    said = failure(CHECKS["waits"], spec_of(waiting_at(call), waits=False), SIM, FLOAT32)

    assert bool(said) is is_found
    if is_found:
        assert said.startswith(f"waits=False, but {__file__}:")
        assert "sample: 0: shape 3x5" in said
    assert syncdebug.get_mode() == before


def test_host_has_nothing_to_wait_for() -> None:
    with pytest.raises(pytest.skip.Exception, match="a call returns when its work is done"):
        CHECKS["waits"](spec_of(twice, waits=False), CPU, FLOAT32)


def test_checks_of_streams_apply_to_what_they_are_for() -> None:
    op = OpSpec(op=ops.add, reference=np.add)

    assert [CHECKS[name].needs for name in ("side_stream", "captured", "waits")] == [
        ("streams",), ("graphs",), ("streams",),
    ]  # fmt: skip
    assert [CHECKS["captured"].applies(one) for one in (spec_of(twice), op)] == [True, False]
    assert [CHECKS["waits"].applies(one) for one in (spec_of(twice), spec_of(twice, waits=False), op)] == [
        False, True, False,
    ]  # fmt: skip


def test_the_default_stream_is_busy_while_the_first_side_stream_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[Any] = []
    spin = backend().spin

    def noting(index: int, work: Any) -> None:
        order.append("busy")
        spin(index, work)

    monkeypatch.setattr(backend(), "spin", noting)
    side(lambda xp, a: (order.append("call"), a + a)[1])

    assert order[:3] == ["call", "busy", "call"]


def test_function_that_divides_by_zero_on_a_side_stream_does_not_warn() -> None:
    spec = spec_of(lambda xp, a: 1 / (a - a), lambda a: np.full(a.shape, np.inf))

    CHECKS["side_stream"](spec, SIM, FLOAT32)
