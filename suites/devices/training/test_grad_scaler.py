"""GradScaler: what is scaled, when a step is held off, how the scale moves; nothing waits for the host on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, ops
from cuassay.amp import GradScaler
from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core import syncdebug
from cuassay.errors import ArgumentError, DeviceError, StateError
from cuassay.optim import Adam
from cuassay.testing import requires


def on(device: Device, *values: float, dtype: str = "float32") -> Any:
    return devices.from_host(np.array(values, as_dtype(dtype)), device)


def host(array: Any) -> Any:
    return devices.to_host(array).astype(np.float64)


def kind(device: Device) -> str:
    return str(device).partition(":")[0]


@pytest.fixture
def scaler(device: Device) -> GradScaler:
    return GradScaler(kind(device), init_scale=8.0, growth_interval=2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_an_output_is_scaled_in_its_own_dtype(device: Device, scaler: GradScaler, dtype: str) -> None:
    scaled = scaler.scale(on(device, 1.5, -2.0, dtype=dtype))

    assert dtype_name(scaled.dtype) == dtype
    assert host(scaled).tolist() == [12.0, -16.0]


def test_containers_keep_their_type(device: Device, scaler: GradScaler) -> None:
    scaled = scaler.scale([on(device, 1.0), (on(device, 2.0),)])

    assert type(scaled) is list
    assert type(scaled[1]) is tuple
    assert host(scaled[1][0]).tolist() == [16.0]


def test_another_iterable_is_scaled_as_it_is_read(device: Device, scaler: GradScaler) -> None:
    assert [host(one).tolist() for one in scaler.scale(on(device, value) for value in (1.0, 2.0))] == [[8.0], [16.0]]


def test_gradients_are_unscaled_in_place(device: Device, scaler: GradScaler) -> None:
    grads = [on(device, 8.0, 16.0), on(device, 4.0, dtype="float64")]

    scaler.unscale_(Recorder(), grads)

    assert [host(grad).tolist() for grad in grads] == [[1.0, 2.0], [0.5]]


class Recorder:
    """An optimizer that knows nothing of scaling."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, grads: Any) -> str:
        self.steps += 1
        return "stepped"


@pytest.mark.parametrize(("grad", "stepped"), [(8.0, 1), (np.inf, 0), (-np.inf, 0), (np.nan, 0)])
def test_a_foreign_optimizer_is_stepped_only_with_finite_gradients(
    device: Device, scaler: GradScaler, grad: float, stepped: int
) -> None:
    optimizer = Recorder()

    given = scaler.step(optimizer, [on(device, 1.0), on(device, grad)])

    assert optimizer.steps == stepped
    assert given == ("stepped" if stepped else None)


@pytest.mark.parametrize("unscaled", [False, True], ids=["inside the step", "unscaled before"])
def test_our_optimizer_steps_by_the_unscaled_gradient(device: Device, scaler: GradScaler, unscaled: bool) -> None:
    params, plain = [on(device, 1.0, 2.0)], [on(device, 1.0, 2.0)]
    grads = [on(device, 8.0, -16.0)]
    optimizer = Adam(params, lr=0.1)

    if unscaled:
        scaler.unscale_(optimizer, grads)
    scaler.step(optimizer, grads)
    scaler.update()
    Adam(plain, lr=0.1).step([on(device, 1.0, -2.0)])

    assert host(params[0]).tolist() == host(plain[0]).tolist()


def test_an_overflow_holds_the_step_off_and_the_next_one_counts_from_there(device: Device, scaler: GradScaler) -> None:
    params = [on(device, 1.0)]
    optimizer = Adam(params, lr=0.1)

    scaler.step(optimizer, [on(device, np.inf)])
    scaler.update()
    assert host(params[0]).tolist() == [1.0]
    assert scaler.get_scale() == 4.0

    scaler.step(optimizer, [on(device, 4.0)])
    scaler.update()
    assert host(params[0])[0] == pytest.approx(0.9)
    assert int(optimizer.state_dict()["state"][0]["step"]) == 1


def test_the_scale_follows_torch_through_overflows(device: Device) -> None:
    """torch's own graph test: gradients 5, 20,000, 5, 40,000 of float16 losses scaled by 4, of float32 weights."""
    scaler, optimizer = GradScaler(kind(device), init_scale=4.0), Recorder()
    seen = []
    for value in (5.0, 20_000.0, 5.0, 40_000.0):
        grads = [ops.cast(scaler.scale(on(device, value, dtype="float16")), dtype="float32")]
        scaler.step(optimizer, grads)
        scaler.update()
        seen.append((scaler.get_scale(), scaler.get_growth_tracker()))

    assert seen == [(4.0, 1), (2.0, 0), (2.0, 1), (1.0, 0)]


def test_it_grows_after_enough_good_steps(device: Device, scaler: GradScaler) -> None:
    seen = []
    for _ in range(4):
        scaler.step(Recorder(), [on(device, 1.0)])
        scaler.update()
        seen.append(scaler.get_scale())

    assert seen == [8.0, 16.0, 16.0, 32.0]


def test_an_overflow_of_one_optimizer_backs_the_scale_off_but_steps_the_other(
    device: Device, scaler: GradScaler
) -> None:
    good, bad = [on(device, 1.0)], [on(device, 1.0)]

    first, second = Adam(good, lr=0.1), Adam(bad, lr=0.1)
    scaler.step(first, [on(device, 8.0)])
    scaler.step(second, [on(device, np.nan)])
    scaler.update()

    assert host(good[0])[0] == pytest.approx(0.9)
    assert host(bad[0]).tolist() == [1.0]
    assert scaler.get_scale() == 4.0
    scaler.step(first, [on(device, 4.0)])
    scaler.step(second, [on(device, 4.0)])
    scaler.update()
    assert scaler.get_growth_tracker() == 1  # the flags were taken down


@requires("count>=2")
@pytest.mark.parametrize("bad", [0, 1], ids=["where the scale lives", "elsewhere"])
def test_one_scale_serves_two_devices(device: Device, scaler: GradScaler, bad: int) -> None:
    places = Device(device.kind, 0), Device(device.kind, 1)
    params = [on(place, 1.0) for place in places]
    optimizers = [Adam([param], lr=0.1) for param in params]

    first = [host(output).tolist() for output in scaler.scale([on(place, 2.0) for place in places])]
    for index, (optimizer, place) in enumerate(zip(optimizers, places, strict=True)):
        scaler.step(optimizer, [on(place, np.inf if index == bad else 8.0)])
    scaler.update()
    second = [host(output).tolist() for output in scaler.scale([on(place, 2.0) for place in places])]

    assert (first, second) == ([[16.0]] * 2, [[8.0]] * 2)
    assert host(params[bad]).tolist() == [1.0]
    assert host(params[1 - bad])[0] == pytest.approx(0.9)


@pytest.fixture
def no_waits() -> Iterator[Callable[[], None]]:
    """From ``no_waits()`` on a wait of the host raises."""
    former = syncdebug.get_mode()
    yield lambda: syncdebug.set_mode("error")
    syncdebug.set_mode(former)


def test_nothing_waits_for_the_host(device: Device, scaler: GradScaler, no_waits: Callable[..., Any]) -> None:
    params, grads = [on(device, 1.0, 2.0)], [on(device, 8.0, 8.0)]
    optimizer, loss = Adam(params, lr=0.1), on(device, 1.0)
    scaler.scale(loss)
    scaler.step(optimizer, grads)  # what is made at first use is there
    scaler.update()

    no_waits()
    scaler.scale(loss)
    scaler.step(optimizer, grads, zero_grads=True)
    scaler.update()


def test_on_a_second_device_the_scale_is_that_of_now() -> None:
    with devices.backend("sim").simulated(devices=2):
        places = Device("sim", 0), Device("sim", 1)
        optimizers = [Adam([on(place, 1.0)]) for place in places]
        scaler = GradScaler("sim", init_scale=8.0)

        for bad in (np.inf, 1.0):
            for optimizer, place in zip(optimizers, places, strict=True):
                scaler.scale(on(place, 1.0))
                scaler.step(optimizer, [on(place, bad)])
            scaler.update()

        assert [float(host(scaler.scale(on(place, 1.0)))[0]) for place in places] == [4.0, 4.0]


def test_gradients_that_moved_take_their_flag_along() -> None:
    with devices.backend("sim").simulated(devices=2):
        scaler, recorder = GradScaler("sim", init_scale=8.0), Recorder()
        for index in (0, 1):
            scaler.step(recorder, [on(Device("sim", index), 8.0)])
            scaler.update()

        assert scaler.get_growth_tracker() == 2


def test_after_a_scale_of_the_callers_a_new_round_begins(device: Device, scaler: GradScaler) -> None:
    optimizer = Adam([on(device, 1.0)])
    scaler.step(optimizer, [on(device, 8.0)])

    scaler.update(32.0)
    scaler.step(optimizer, [on(device, 8.0)])
    scaler.update()

    assert scaler.get_growth_tracker() == 1


def test_the_inverse_is_that_of_the_scale_as_it_is_kept(device: Device) -> None:
    scaler, grads = GradScaler(kind(device), init_scale=8.1), [on(device, 1.0)]

    scaler.unscale_(Recorder(), grads)

    kept = np.float64(np.float32(8.1))
    assert devices.to_host(grads[0])[0] == np.float32(1 / kept)


@pytest.mark.parametrize(("name", "bad"), [("growth_factor", 1.0), ("backoff_factor", 1.5), ("growth_interval", 0)])
def test_a_setting_that_is_refused_leaves_the_former(device: Device, scaler: GradScaler, name: str, bad: float) -> None:
    former = getattr(scaler, f"get_{name}")()

    with pytest.raises(ArgumentError, match=name):
        getattr(scaler, f"set_{name}")(bad)

    assert getattr(scaler, f"get_{name}")() == former


@pytest.mark.parametrize("new", [32.0, "array"])
def test_a_scale_of_the_callers_is_taken(device: Device, scaler: GradScaler, new: float | str) -> None:
    scaler.scale(on(device, 1.0))

    scaler.update(on(device, 32.0) if new == "array" else new)

    grads = [on(device, 64.0)]
    scaler.unscale_(Recorder(), grads)
    assert (scaler.get_scale(), scaler.get_growth_tracker()) == (32.0, 0)
    assert host(grads[0]).tolist() == [2.0]


def test_an_overflow_before_a_scale_of_the_callers_does_not_hold_off_the_next_step(
    device: Device, scaler: GradScaler
) -> None:
    optimizer = Recorder()
    scaler.step(optimizer, [on(device, np.inf)])

    scaler.update(32.0)
    scaler.step(optimizer, [on(device, 1.0)])

    assert optimizer.steps == 1


def test_a_state_survives(device: Device, scaler: GradScaler) -> None:
    scaler.step(Recorder(), [on(device, np.inf)])
    scaler.update()
    scaler.step(Recorder(), [on(device, 1.0)])
    scaler.update()
    saved = scaler.state_dict()
    assert saved == {
        "scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2, "_growth_tracker": 1,
    }  # fmt: skip

    for other in (GradScaler(kind(device)), used(GradScaler(kind(device)), device)):
        other.load_state_dict(saved)
        assert other.state_dict() == saved
        grads = [on(device, 4.0)]
        other.unscale_(Recorder(), grads)
        assert host(grads[0]).tolist() == [1.0]


def used(scaler: GradScaler, device: Device) -> GradScaler:
    scaler.scale(on(device, 1.0))
    return scaler


def test_disabled_it_does_nothing_but_step(device: Device) -> None:
    scaler, optimizer, output = GradScaler(kind(device), enabled=False), Recorder(), on(device, 3.0)

    assert scaler.scale(output) is output
    scaler.unscale_(optimizer, [output])
    assert scaler.step(optimizer, [on(device, np.inf)]) == "stepped"
    scaler.update()
    assert (scaler.get_scale(), scaler.state_dict()) == (1.0, {})


CALLS = {
    "unscaled twice": (["unscale_", "unscale_"], "unscale_\\(\\) has already been called"),
    "stepped twice": (["step", "step"], "step\\(\\) has already been called"),
    "unscaled after the step": (["step", "unscale_"], "step\\(\\) is done"),
    "nothing to update by": (["update"], "no optimizer that was stepped"),
    "updated twice": (["step", "update", "update"], "no optimizer that was stepped"),
}


@pytest.mark.parametrize(("calls", "says"), CALLS.values(), ids=CALLS)
def test_calls_out_of_order_say_which_is_due(device: Device, scaler: GradScaler, calls: list[Any], says: str) -> None:
    optimizer = Recorder()

    def call(name: str) -> None:
        getattr(scaler, name)(*([] if name == "update" else [optimizer, [on(device, 1.0)]]))

    for name in calls[:-1]:
        call(name)
    with pytest.raises(StateError, match=says):
        call(calls[-1])


BAD = {
    "a shrinking growth": (lambda kind: GradScaler(kind, growth_factor=0.5), "growth_factor must be a number above 1"),
    "a growing backoff": (lambda kind: GradScaler(kind, backoff_factor=2.0), "backoff_factor must be a number between"),
    "no interval": (lambda kind: GradScaler(kind, growth_interval=0), "growth_interval must be a whole number"),
    "a number for an output": (lambda kind: GradScaler(kind).scale(3.0), "scale takes arrays"),
    "an empty state": (lambda kind: GradScaler(kind).load_state_dict({}), "lacks scale, growth_factor"),
    "a factor set later": (lambda kind: GradScaler(kind).set_growth_factor(1.0), "growth_factor must be"),
}


@pytest.mark.parametrize(("make", "says"), BAD.values(), ids=BAD)
def test_bad_input_is_refused(device: Device, make: Callable[..., Any], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        make(kind(device))


def test_float16_gradients_are_unscaled_in_the_step_only(device: Device, scaler: GradScaler) -> None:
    grads, params = [on(device, 8.0, dtype="float16")], [on(device, 1.0, dtype="float16")]

    with pytest.raises(ArgumentError, match="float16 gradients"):
        scaler.unscale_(Recorder(), grads)
    with pytest.raises(ArgumentError, match="float16 gradients"):
        scaler.unscale_(Recorder(), [on(device, 8.0), *grads])  # wherever they stand in the list
    with pytest.raises(ArgumentError, match="float16 gradients"):
        scaler.step(Recorder(), grads)
    scaler.step(Adam(params, lr=0.5), grads)

    assert host(params[0])[0] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("name", ["grad_scale", "found_inf"])
def test_what_the_scaler_gives_is_not_given_twice(device: Device, scaler: GradScaler, name: str) -> None:
    params, grads = [on(device, 1.0)], [on(device, 8.0)]

    with pytest.raises(ArgumentError, match=f"got {name} too; omit them"):
        scaler.step(Adam(params), grads, **{name: on(device, 1.0)})

    assert host(params[0]).tolist() == [1.0]
    scaler.step(Adam(params, lr=0.5), grads)
    assert host(params[0])[0] == pytest.approx(0.5)


def test_an_array_of_another_kind_is_refused(device: Device) -> None:
    other = "sim" if kind(device) == "cpu" else "cpu"

    with pytest.raises(DeviceError, match=f"for {other} arrays"):
        GradScaler(other).scale(on(device, 1.0))


def test_a_failed_load_changes_nothing(device: Device, scaler: GradScaler) -> None:
    with pytest.raises(ArgumentError, match="backoff_factor"):
        scaler.load_state_dict({**scaler.state_dict(), "backoff_factor": 7.0, "scale": 1.0})

    assert scaler.state_dict()["scale"] == 8.0
    assert scaler.get_backoff_factor() == 0.5


@requires("graphs")
def test_it_moves_inside_a_captured_graph(device: Device, scaler: GradScaler) -> None:
    backend = devices.backend(kind(device))
    params, grads = [on(device, 1.0)], [on(device, 8.0)]
    optimizer, later = Adam(params, lr=0.1), [on(device, value) for value in (np.inf, 8.0, 8.0)]
    backend.synchronize(device.index)
    with backend.use_stream(backend.new_stream(device.index)):
        scaler.step(optimizer, grads)
        scaler.update()
        backend.synchronize(device.index)
        capture = backend.new_capture(device.index)
        capture.begin()
        scaler.step(optimizer, grads)
        scaler.update()
        capture.end()
        seen = []
        for value in later:
            ops.copy(value, out=grads[0])
            capture.replay()
            seen.append((scaler.get_scale(), float(host(params[0])[0])))
        capture.reset()

    scales, values = zip(*seen, strict=True)
    assert scales == (4.0, 4.0, 8.0)
    assert values[0] > values[1] > values[2]


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan"), 1e39, 1e-46, "x", None])
def test_a_scale_that_cannot_be_one_is_refused(scale: float | str | None) -> None:
    scaler = GradScaler("sim", init_scale=8.0)
    with pytest.raises(ArgumentError, match="finite and above 0 in float32; got"):
        GradScaler("sim", init_scale=scale)
    with pytest.raises(ArgumentError, match="finite and above 0 in float32; got"):
        scaler.load_state_dict({**scaler.state_dict(), "scale": scale, "growth_factor": 7.0})
    assert (scaler.get_scale(), scaler.get_growth_factor()) == (8.0, 2.0)
    if scale is not None:
        with pytest.raises(ArgumentError, match="finite and above 0 in float32; got"):
            scaler.update(scale)


@pytest.mark.parametrize("tracker", [-1, 1.5, True, "3"])
def test_a_tracker_that_cannot_be_one_is_refused_and_nothing_is_changed(tracker: bool | float | str) -> None:
    scaler = GradScaler("sim", init_scale=8.0)
    with pytest.raises(ArgumentError, match="_growth_tracker must be a number of steps"):
        scaler.load_state_dict({**scaler.state_dict(), "scale": 4.0, "_growth_tracker": tracker})
    assert scaler.get_scale() == 8.0


def test_a_scale_is_one_number(device: Device, scaler: GradScaler) -> None:
    with pytest.raises(ArgumentError, match=r"one number; got an array of shape \(2,\)"):
        scaler.update(on(device, 1.0, 2.0))


def test_a_numpy_number_is_a_scale_as_any(device: Device, scaler: GradScaler) -> None:
    scaler.update(np.float64(4))

    assert scaler.get_scale() == 4.0
    assert host(scaler.scale(on(device, 1.0))).tolist() == [4.0]


def test_a_scaler_of_no_known_kind_is_refused() -> None:
    with pytest.raises(DeviceError, match="no device kind 'sin'; known: cpu, sim, cuda"):
        GradScaler("sin")
