"""Adam on every kind: against float64, over steps; what outlives a step; what is noticed, refused, rolled back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import Device, cuda, devices, from_host, ops, to_host
from cuassay.arrays.dtypes import HALVES, as_dtype, dtype_name, epsilon
from cuassay.core import syncdebug
from cuassay.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from cuassay.optim import Adam, AdamW, load, save
from cuassay.testing import dtypes, requires
from cuassay.testing.compare import assert_same_bits

Arrays = list[Any]
Draw = Callable[..., Arrays]

SHAPES = ((1,), (3, 5), (4097,), (2, 3, 7))
CONFIGURATIONS: dict[str, tuple[type[Adam], dict[str, Any]]] = {
    "plain": (Adam, {}),
    "L2": (Adam, {"weight_decay": 0.1, "betas": (0.8, 0.99)}),
    "decoupled": (AdamW, {"weight_decay": 0.1}),
    "amsgrad": (AdamW, {"amsgrad": True, "maximize": True}),
}
CONFIGURED = pytest.mark.parametrize(("kind", "options"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)


@pytest.fixture
def draw(device: Device) -> Draw:
    """Arrays of the shapes, the same at every call with the same seed."""

    def make(seed: int, dtype: Any = "float32", shapes: Sequence[tuple[int, ...]] = SHAPES) -> Arrays:
        generator = np.random.default_rng(seed)
        return [from_host(generator.standard_normal(shape).astype(as_dtype(dtype)), device) for shape in shapes]

    return make


@pytest.fixture
def scalar(device: Device) -> Callable[[float], Any]:
    return lambda value: from_host(np.array(value, np.float32), device)


@pytest.fixture
def no_waits() -> Iterator[None]:
    """A wait of the host raises."""
    former = syncdebug.get_mode()
    syncdebug.set_mode("error")
    yield
    syncdebug.set_mode(former)


def values(arrays: Arrays) -> list[np.ndarray[Any, Any]]:
    return [to_host(array) for array in arrays]


def wide(arrays: Arrays) -> list[np.ndarray[Any, Any]]:
    return [to_host(array).astype(np.float64) for array in arrays]


def assert_all_same_bits(left: Sequence[Any], right: Sequence[Any]) -> None:
    for one, other in zip(left, right, strict=True):
        assert_same_bits(one, other)


def reference(
    params: list[np.ndarray[Any, Any]],
    steps: Sequence[list[np.ndarray[Any, Any]]],
    *,
    decoupled: bool,
    lr: float = 1e-2,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 0.0,
    amsgrad: bool = False,
    maximize: bool = False,
) -> list[np.ndarray[Any, Any]]:
    """Algorithm 1 of arXiv 1412.6980, in float64, over the gradients of several steps."""
    found = []
    for i, p in enumerate(params):
        m = v = top = np.zeros_like(p)
        for t, grads in enumerate(steps, 1):
            g = -grads[i] if maximize else grads[i]
            g = g + (0 if decoupled else weight_decay) * p
            p = p * (1 - lr * weight_decay) if decoupled else p  # noqa: PLW2901
            m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
            top = np.maximum(top, v)
            size = (top if amsgrad else v) / (1 - betas[1] ** t)
            p = p - lr * m / (1 - betas[0] ** t) / (np.sqrt(size) + 1e-8)  # noqa: PLW2901
        found.append(p)
    return found


# ------------------------------------------------------------------------------------------------ the numbers


@CONFIGURED
@dtypes("float32", "float64")
def test_ten_steps_agree_with_float64(draw: Draw, dtype: Any, kind: type[Adam], options: dict[str, Any]) -> None:
    params, steps = draw(0, dtype), [draw(seed, dtype) for seed in range(1, 11)]
    expected = reference(wide(params), [wide(grads) for grads in steps], decoupled=kind is AdamW, **options)
    optimizer = kind(params, lr=1e-2, **{"weight_decay": 0.0, **options})

    for grads in steps:
        optimizer.step(grads)

    for param, right in zip(wide(params), expected, strict=True):
        np.testing.assert_allclose(param, right, rtol=0, atol=40 * epsilon(dtype) * max(1, np.abs(right).max()))


@dtypes(*HALVES)
def test_master_weights_are_as_good_as_float32_ones(draw: Draw, dtype: Any) -> None:
    params, steps = draw(0, dtype), [draw(seed, dtype) for seed in range(1, 11)]
    expected = reference(wide(params), [wide(grads) for grads in steps], decoupled=True)
    optimizer = AdamW(params, lr=1e-2, weight_decay=0.0, master_weights=True)

    for grads in steps:
        optimizer.step(grads)

    masters = [entry["master"] for entry in optimizer.state_dict()["state"].values()]
    for param, master, right in zip(params, masters, expected, strict=True):
        np.testing.assert_allclose(master, right, rtol=0, atol=2e-6 * max(1, np.abs(right).max()))
        assert_same_bits(param, master.astype(as_dtype(dtype)))


@dtypes("bfloat16")
def test_updates_below_a_bfloat16_unit_are_lost_to_nearest_and_kept_on_average_by_chance(
    draw: Draw, dtype: Any, device: Device
) -> None:
    """Each step is a quarter of the unit at 1; 32 of them are 8 units."""
    ones, grads = np.ones(4096, as_dtype(dtype)), [from_host(np.ones(4096, as_dtype(dtype)), device)]
    nearest, chance = [from_host(ones, device)], [from_host(ones, device)]
    plain, stochastic = Adam(nearest, lr=2.0**-10), Adam(chance, lr=2.0**-10, seed=7)

    for _ in range(32):
        plain.step(grads)
        stochastic.step(grads)

    assert to_host(nearest[0]).astype(np.float32).min() == 1.0
    moved = 1 - to_host(chance[0]).astype(np.float64)
    assert moved.mean() == pytest.approx(32 * 2.0**-10, rel=0.03)
    assert len(np.unique(moved)) > 4


@dtypes("bfloat16")
def test_stochastic_rounding_is_a_function_of_the_seed(draw: Draw, dtype: Any) -> None:
    found = []
    for seed in (1, 1, 2**63 + 1):
        params = draw(0, dtype)
        Adam(params, seed=seed).step(draw(1, dtype))
        found.append(values(params))

    assert_all_same_bits(found[0], found[1])
    assert any(np.any(a != b) for a, b in zip(found[0], found[2], strict=True))


@dtypes("bfloat16", "float32")
@pytest.mark.parametrize("count", [1, 2])
def test_stochastic_rounding_takes_the_cpus_bits_for_every_state(
    draw: Draw, dtype: Any, device: Device, count: int
) -> None:
    """With betas of one half a new state is rounded once to float32 on every kind: only the bits can differ."""
    found, stepped = [], []
    for where in (device, Device("cpu")):
        params = [from_host(array, where) for array in values(draw(0, dtype))]
        optimizer = Adam(params, betas=(0.5, 0.5), amsgrad=True, seed=2**40 + 7, state_dtype="bfloat16")
        for step in range(count):
            optimizer.step([from_host(array, where) for array in values(draw(step + 1, dtype))])
        states = optimizer.state_dict()["state"].values()
        found.append([state[name] for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") for state in states])
        stepped.append(wide(params))

    assert_all_same_bits(*found)
    if dtype == np.float32:  # of which nothing is rounded to 16 bits
        for param, right in zip(*stepped, strict=True):
            np.testing.assert_allclose(param, right, rtol=1e-5, atol=1e-6)


@dtypes("bfloat16")
def test_a_nan_stays_one_where_it_is_rounded_by_chance(dtype: Any, device: Device) -> None:
    """A GPU's own NaN has all bits set: random bits added to it would make it a zero."""
    params = [from_host(np.ones(64, as_dtype(dtype)), device)]
    optimizer = Adam(params, seed=7)

    optimizer.step([from_host(np.full(64, 0x7FFFFFFF, np.uint32).view(np.float32), device)])

    (state,) = optimizer.state_dict()["state"].values()
    for array in (wide(params)[0], np.asarray(state["exp_avg"], np.float64)):
        assert np.isnan(array).all()


@CONFIGURED
def test_two_runs_give_the_same_bits(draw: Draw, kind: type[Adam], options: dict[str, Any]) -> None:
    runs = []
    for _ in range(2):
        params = draw(0)
        optimizer = kind(params, **options)
        for seed in range(1, 4):
            optimizer.step(draw(seed), max_norm=1.0)
        runs.append(values(params))

    assert_all_same_bits(*runs)


def test_a_rate_on_the_device_is_that_number(draw: Draw, scalar: Any) -> None:
    left, right, rate = draw(0), draw(0), scalar(0.125)
    by_number, by_array = Adam(left, lr=0.125), Adam(right, lr=rate)
    for optimizer in (by_number, by_array):
        optimizer.step(draw(1))
    assert_all_same_bits(values(left), values(right))

    by_number.param_groups[0]["lr"] = 0.5
    ops.copy(scalar(0.5), out=rate)
    for optimizer in (by_number, by_array):
        optimizer.step(draw(2))

    assert_all_same_bits(values(left), values(right))


def test_parameters_without_elements_and_of_no_axes_are_stepped(draw: Draw) -> None:
    params = draw(0, shapes=((0,), (), (3, 0)))
    before = float(to_host(params[1]))
    optimizer = Adam(params, lr=0.5)

    optimizer.step(draw(1, shapes=((0,), (), (3, 0))))

    assert abs(float(to_host(params[1])) - before) == pytest.approx(0.5, rel=1e-5)
    assert [float(entry["step"]) for entry in optimizer.state_dict()["state"].values()] == [1, 1, 1]


# ------------------------------------------------------------------------------------------------ in the same pass


def test_gradients_are_unscaled_clipped_and_zeroed_in_the_step(draw: Draw, scalar: Any) -> None:
    params, grads = draw(0), draw(1)
    norm = np.sqrt(sum(np.sum(grad**2) for grad in wide(grads)))
    clipped = [grad / 8 * min(1, 2 / (norm / 8 + 1e-6)) for grad in wide(grads)]
    expected = reference(wide(params), [clipped], decoupled=False)
    optimizer = Adam(params, lr=1e-2)

    optimizer.step(grads, grad_scale=scalar(8.0), max_norm=2.0, zero_grads=True)

    assert float(to_host(optimizer.grad_norm)) == pytest.approx(norm / 8, rel=1e-6)
    assert not any(np.any(grad) for grad in values(grads))
    for param, right in zip(wide(params), expected, strict=True):
        np.testing.assert_allclose(param, right, rtol=1e-5, atol=1e-6)


def test_gradients_hold_what_was_stepped_by(draw: Draw, scalar: Any) -> None:
    grads, before = draw(1), wide(draw(1))

    Adam(draw(0)).step(grads, grad_scale=scalar(4.0))

    for grad, right in zip(wide(grads), before, strict=True):
        np.testing.assert_array_equal(grad, right / 4)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan], ids=str)
def test_a_step_on_what_is_not_finite_is_rolled_back(draw: Draw, scalar: Any, bad: float) -> None:
    params, before, found = draw(0), values(draw(0)), scalar(0.0)
    spoilt = values(draw(1))
    spoilt[2][4096] = bad
    grads = draw(1)
    ops.copy(spoilt[2], out=grads[2])
    optimizer = AdamW(params, lr=0.5)

    optimizer.step(grads, found_inf=found, check_finite=True, zero_grads=True)

    assert float(to_host(found)) == 1
    assert_all_same_bits(values(params), before)
    assert not any(np.any(grad) for grad in values(grads))
    assert {float(entry["step"]) for entry in optimizer.state_dict()["state"].values()} == {0.0}

    optimizer.step(draw(1), found_inf=found, check_finite=True)
    assert float(to_host(found)) == 0
    assert {float(entry["step"]) for entry in optimizer.state_dict()["state"].values()} == {1.0}


@pytest.mark.parametrize("place", [0, 1])
def test_what_is_not_finite_in_one_group_rolls_back_every_group(draw: Draw, scalar: Any, place: int) -> None:
    groups, found = [draw(0), draw(2, "float64")], scalar(0.0)
    before, lists = [values(group) for group in groups], [draw(1), draw(3, "float64")]
    spoilt = values(lists[place])[0].copy()
    spoilt[...] = np.inf
    ops.copy(spoilt, out=lists[place][0])
    optimizer = Adam([{"params": group} for group in groups], lr=0.5)

    optimizer.step(lists, found_inf=found, check_finite=True)

    assert float(to_host(found)) == 1
    for group, kept in zip(groups, before, strict=True):
        assert_all_same_bits(values(group), kept)


def test_the_norm_is_over_all_groups(draw: Draw) -> None:
    lists = [draw(1), draw(2, "float64")]
    norm = np.sqrt(sum(np.sum(grad**2) for grads in lists for grad in wide(grads)))
    optimizer = Adam([{"params": draw(0)}, {"params": draw(0, "float64"), "lr": 1.0}])

    optimizer.step(lists, max_norm=1.0)

    assert float(to_host(optimizer.grad_norm)) == pytest.approx(norm, rel=1e-6)
    np.testing.assert_allclose(wide(lists[1])[2], wide(draw(2, "float64"))[2] / norm, rtol=1e-5)


@pytest.mark.usefixtures("no_waits")
def test_no_step_waits_for_the_device(draw: Draw, scalar: Any) -> None:
    params, grads, found = draw(0), draw(1), scalar(0.0)
    optimizer = Adam(params, lr=scalar(0.1), amsgrad=True)
    cells = {"grad_scale": scalar(2.0), "found_inf": found, "max_norm": 1.0, "check_finite": True, "zero_grads": True}

    for arrays in (grads, grads, draw(2)):
        optimizer.step(arrays, **cells)


# ------------------------------------------------------------------------------------------------ what outlives a step


@CONFIGURED
@dtypes("float32", "bfloat16")
def test_states_survive_a_save_and_a_load(
    draw: Draw, dtype: Any, kind: type[Adam], options: dict[str, Any], tmp_path: Path
) -> None:
    whole, parts = draw(0, dtype), draw(0, dtype)
    master = {"master_weights": True} if dtype_name(dtype) == "bfloat16" else {}
    straight, first = kind(whole, lr=0.25, **options, **master), kind(parts, lr=0.25, **options, **master)
    for optimizer in (straight, first):
        optimizer.step(draw(1, dtype))
    save(first, tmp_path / "state.npz")

    second = kind(parts, lr=99.0, **options, **master)
    load(second, tmp_path / "state.npz")
    for optimizer in (straight, second):
        optimizer.step(draw(2, dtype))

    assert_all_same_bits(values(whole), values(parts))
    assert second.param_groups[0]["lr"] == 0.25


@dtypes("bfloat16")
def test_bfloat16_states_are_files_of_numpy(draw: Draw, dtype: Any, tmp_path: Path) -> None:
    params = draw(0, dtype)
    optimizer, other = Adam(params), Adam(draw(5, dtype))
    optimizer.step(draw(1, dtype))

    save(optimizer, tmp_path / "state.npz")
    load(other, tmp_path / "state.npz")

    mine, theirs = optimizer.state_dict()["state"], other.state_dict()["state"]
    for number, entry in mine.items():
        for name, array in entry.items():
            assert_same_bits(theirs[number][name], array)


def test_a_state_dict_has_torchs_form_and_is_plain(draw: Draw, scalar: Any) -> None:
    optimizer = Adam([{"params": draw(0)[:1]}, {"params": draw(0)[1:], "lr": scalar(0.5)}], amsgrad=True)

    found = optimizer.state_dict()

    assert list(found["state"]) == [0, 1, 2, 3]
    assert set(found["state"][3]) == {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
    assert all(isinstance(array, np.ndarray) for entry in found["state"].values() for array in entry.values())
    assert [group["params"] for group in found["param_groups"]] == [[0], [1, 2, 3]]
    assert [group["lr"] for group in found["param_groups"]] == [1e-3, 0.5]


def test_a_load_leaves_a_rate_on_the_device_in_its_place(draw: Draw, scalar: Any) -> None:
    rate = scalar(0.5)
    optimizer = Adam(draw(0), lr=rate)

    optimizer.load_state_dict(Adam(draw(0), lr=0.125).state_dict())

    assert optimizer.param_groups[0]["lr"] is rate
    assert float(to_host(rate)) == 0.125


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda draw: Adam(draw(0)[:2]), r"groups of \[2\] parameters"),
        (lambda draw: Adam(draw(0), amsgrad=True), "keeps exp_avg, exp_avg_sq, step"),
        (lambda draw: Adam(draw(0, shapes=((1,), (3, 5), (4096,), (2, 3, 7)))), r"must have shape \(4097,\)"),
    ],
    ids=["fewer", "options", "shapes"],
)
def test_a_state_of_another_optimizer_is_refused_whole(draw: Draw, other: Any, message: str) -> None:
    optimizer, state = Adam(draw(0)), other(draw).state_dict()
    state["param_groups"][0]["lr"] = 77.0

    with pytest.raises((ArgumentError, ShapeError), match=message):
        optimizer.load_state_dict(state)

    assert optimizer.param_groups[0]["lr"] == 1e-3


def test_another_file_is_no_state(draw: Draw, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", weights=np.ones(3))

    np.save(tmp_path / "one.npy", np.ones(3))

    with pytest.raises(ArgumentError, match="holds no optimizer's state: it is one array"):
        load(Adam(draw(0)), tmp_path / "one.npy")
    with pytest.raises(ArgumentError, match="holds no optimizer's state; it has weights"):
        load(Adam(draw(0)), tmp_path / "other.npz")


# ------------------------------------------------------------------------------------------------ what is noticed


def test_other_gradients_are_noticed_also_in_the_same_list(draw: Draw) -> None:
    left, right = draw(0), draw(0)
    one, other, same = Adam(left), Adam(right), draw(1)
    one.step(draw(1))
    other.step(same)

    same[2] = draw(2)[2]
    fresh = draw(1)
    fresh[2] = draw(2)[2]
    one.step(tuple(fresh))
    other.step(same)

    assert_all_same_bits(values(left), values(right))


def test_what_is_written_into_gradients_is_seen(draw: Draw) -> None:
    left, right, grads = draw(0), draw(0), tuple(draw(1))
    one, other = Adam(left), Adam(right)
    one.step(draw(1))
    other.step(grads)

    for grad, fresh in zip(grads, draw(2), strict=True):
        ops.copy(fresh, out=grad)
    one.step(draw(2))
    other.step(grads)

    assert_all_same_bits(values(left), values(right))


def test_a_parameter_in_place_of_another_is_noticed(draw: Draw) -> None:
    params, moved = draw(0), draw(3)
    optimizer = Adam(params, lr=1.0)
    optimizer.step(draw(1))

    optimizer.param_groups[0]["params"] = tuple(moved)
    before = values(params)
    optimizer.step(draw(1))

    assert_all_same_bits(values(params), before)
    assert all(np.any(a != b) for a, b in zip(values(moved), values(draw(3)), strict=True))


@pytest.mark.parametrize(
    "form", [as_dtype("bfloat16"), as_dtype("bfloat16").type, "bfloat16"], ids=["dtype", "type", "name"]
)
def test_states_dtype_is_saved_as_a_word_however_it_was_given(draw: Draw, form: Any, tmp_path: Path) -> None:
    optimizer, other = Adam(draw(0), state_dtype=form), Adam(draw(0), state_dtype="bfloat16")
    optimizer.step(draw(1))

    save(optimizer, tmp_path / "state.npz")
    load(other, tmp_path / "state.npz")

    assert optimizer.state_dict()["param_groups"][0]["state_dtype"] == "bfloat16"
    assert_all_same_bits(moments(other), moments(optimizer))


def test_numpy_numbers_are_hyperparameters_as_any(draw: Draw) -> None:
    params, expected = draw(0), draw(0)
    optimizer = Adam(params, lr=np.float64(0.5), betas=(0.9, np.float32(0.5)))
    optimizer.param_groups[0]["lr"] = np.float64(0.25)  # as a schedule computes it
    optimizer.step(draw(1))
    Adam(expected, lr=0.25, betas=(0.9, 0.5)).step(draw(1))

    assert_all_same_bits(values(params), values(expected))
    assert json.loads(json.dumps(optimizer.state_dict()["param_groups"]))[0]["betas"] == [0.9, 0.5]


def moments(optimizer: Adam) -> list[np.ndarray[Any, Any]]:
    """Everything its states hold."""
    return [np.atleast_1d(value) for one in optimizer.state_dict()["state"].values() for value in one.values()]


BAD_SAVED: dict[str, Any] = {
    "a step of two numbers": (
        "state",
        lambda state: state[1].update(step=np.zeros(2)),
        "step of parameter 1 must be one",
    ),
    "a step of letters": ("state", lambda state: state[1].update(step="x"), "step of parameter 1 must be one"),
    "no entry": ("state", lambda state: state.pop(1), r"lacks that of parameters \[1\]"),
    "no rate": ("param_groups", lambda groups: groups[0].update(lr=float("nan")), "lr must be a number"),
    "no betas": ("param_groups", lambda groups: groups[0].update(betas="oops"), "betas must be two numbers"),
    "no group": ("param_groups", lambda groups: groups[0].pop("params"), "are not groups with params"),
}


@pytest.mark.parametrize(("part", "spoil", "message"), BAD_SAVED.values(), ids=BAD_SAVED)
def test_a_saved_state_that_is_none_is_refused_before_anything_is_written(
    draw: Draw, part: str, spoil: Any, message: str
) -> None:
    optimizer, other = Adam(draw(0), lr=0.5), Adam(draw(0), lr=0.25)
    optimizer.step(draw(1))
    saved, before = optimizer.state_dict(), moments(other)
    spoil(saved[part])

    with pytest.raises(ArgumentError, match=message):
        other.load_state_dict(saved)

    assert_all_same_bits(moments(other), before)
    assert other.param_groups[0]["lr"] == 0.25


BAD_GROUPS: dict[str, Any] = {
    "one beta": ({"betas": (0.9,)}, "betas must be two numbers"),
    "a number": ({"betas": 0.9}, "betas must be two numbers"),
    "an infinite beta": ({"betas": (float("inf"), 0.9)}, "beta1 must be a number"),
}


@pytest.mark.parametrize(("options", "message"), BAD_GROUPS.values(), ids=BAD_GROUPS)
def test_betas_that_are_none_are_refused(draw: Draw, options: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Adam(draw(0), **options)


def test_a_group_without_parameters_is_refused(draw: Draw) -> None:
    with pytest.raises(ArgumentError, match="needs 'params'; got 'lr'"):
        Adam([{"params": draw(0)}, {"lr": 1.0}])


def test_whole_numbers_are_no_parameters(device: Device) -> None:
    with pytest.raises(DTypeError, match=r"parameters must be one of .*; got int32"):
        Adam([from_host(np.ones(3, np.int32), device)])


@pytest.mark.parametrize("options", [{"zero_grads": True}, {"max_norm": 1.0}], ids=["zeroed", "clipped"])
def test_a_gradient_that_is_written_stands_once(draw: Draw, options: Any) -> None:
    params = draw(0, shapes=((3, 5), (3, 5)))
    (grad,) = draw(1, shapes=((3, 5),))

    with pytest.raises(ArgumentError, match=r"grads\[1\] is the array that grads\[0\] is"):
        Adam(params).step([grad, grad], **options)


def test_a_gradient_that_is_unscaled_stands_once(draw: Draw, scalar: Any) -> None:
    params = draw(0, shapes=((3, 5), (3, 5)))
    (grad,) = draw(1, shapes=((3, 5),))

    with pytest.raises(ArgumentError, match=r"grads\[1\] is the array that grads\[0\] is"):
        Adam(params).step([grad, grad], grad_scale=scalar(2.0))


def test_a_gradient_that_is_only_read_may_be_that_of_several(draw: Draw) -> None:
    params, alone = draw(0, shapes=((3, 5), (3, 5))), draw(0, shapes=((3, 5), (3, 5)))
    (grad,) = draw(1, shapes=((3, 5),))

    Adam(params).step([grad, grad])
    Adam(alone).step([grad, ops.copy(grad)])

    assert_all_same_bits(values(params), values(alone))


def test_a_parameter_is_not_its_own_gradient(draw: Draw) -> None:
    params, grads = draw(0), draw(1)

    with pytest.raises(ArgumentError, match=r"grads\[0\] is the array that params\[0\] is"):
        Adam(params).step([params[0], *grads[1:]])


@pytest.mark.parametrize("name", ["amsgrad", "master_weights", "state_dtype"])
def test_what_states_were_made_by_may_not_change(draw: Draw, name: str) -> None:
    optimizer = Adam(draw(0))
    optimizer.param_groups[0][name] = "float32" if name == "state_dtype" else True

    with pytest.raises(ArgumentError, match=f"{name} was .* when the states were made"):
        optimizer.step(draw(1))


def test_every_hyperparameter_holds_from_the_next_step_on(draw: Draw) -> None:
    changes = {"lr": 0.5, "betas": (0.5, 0.75), "eps": 0.25, "weight_decay": 0.5, "maximize": True}
    params, expected = draw(0), draw(0)
    optimizer, fresh = AdamW(params), AdamW(expected, **changes)
    optimizer.step(draw(1))
    for array, start in zip(params, draw(0), strict=True):
        ops.copy(start, out=array)
    optimizer.load_state_dict(AdamW(draw(0)).state_dict())

    optimizer.param_groups[0].update(changes)
    optimizer.step(draw(1))
    fresh.step(draw(1))

    assert_all_same_bits(values(params), values(expected))


@pytest.mark.parametrize(
    ("grads", "error", "message"),
    [
        (lambda draw: draw(1)[:-1], ArgumentError, "params has 4 arrays and grads 3"),
        (
            lambda draw: draw(1, shapes=((1,), (5, 3), (4097,), (2, 3, 7))),
            ShapeError,
            r"grads\[1\] must have the shape",
        ),
        (lambda draw: draw(1, "float64"), DTypeError, "grads for float32 params must be float32"),
        (lambda draw: [draw(1)[0].astype(np.float64), *draw(1)[1:]], DTypeError, "grads must have one dtype"),
        (lambda draw: [*draw(1)[:3], None], ArgumentError, r"grads\[3\] is not an array"),
    ],
    ids=["fewer", "shape", "dtype", "mixed", "none"],
)
@pytest.mark.parametrize("first", [True, False], ids=["first step", "later step"])
def test_gradients_that_do_not_fit_are_refused_and_the_next_step_is_right(
    draw: Draw, grads: Any, error: type[Exception], message: str, first: bool
) -> None:
    params = draw(0)
    optimizer = Adam(params)
    if not first:
        optimizer.step(draw(1))
    before = values(params)

    with pytest.raises(error, match=message):
        optimizer.step(grads(draw))

    assert_all_same_bits(values(params), before)
    optimizer.step(draw(2))
    assert all(np.any(a != b) for a, b in zip(values(params), before, strict=True))


def test_gradients_of_another_kind_of_device_are_refused(draw: Draw, device: Device) -> None:
    other = "sim" if device.kind == "cpu" else "cpu"
    optimizer = Adam(draw(0))
    optimizer.step(draw(1))

    with pytest.raises(DeviceError, match="needs all arrays on one device"):
        optimizer.step([from_host(to_host(grad), other) for grad in draw(1)])


@requires("count>=2")
def test_parameters_of_two_devices_in_a_group_are_refused(draw: Draw, device: Device) -> None:
    other = Device(device.kind, 0 if device.index else 1)
    there = from_host(np.ones(3, np.float32), other)

    with pytest.raises(DeviceError, match=rf"params\[4\] on {other}; make a group for each device"):
        Adam([*draw(0), there])


def test_parameters_of_two_dtypes_in_a_group_are_refused(draw: Draw) -> None:
    with pytest.raises(DTypeError, match="a list \\(a parameter group\\) of their own"):
        Adam([*draw(0), *draw(0, "float64")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": float("nan")}, "lr must be a number, 0 or more and finite; got nan"),
        ({"lr": -0.5}, "lr must be a number"),
        ({"betas": (-0.1, 0.9)}, "beta1 must be a number, 0 or more and below 1; got -0.1"),
        ({"betas": (0.9, 1.0)}, "beta2 must be a number"),
        ({"eps": -1.0}, "eps must be"),
        ({"weight_decay": float("inf")}, "weight_decay must be"),
        ({"seed": 0}, "stochastic rounding"),
        ({"master_weights": True}, "master_weights are for bfloat16 and float16 parameters; got float32"),
        ({"state_dtype": "float16"}, "exp_avgs for float32 params must be float32 or bfloat16; got float16"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(map(str, value)),
)
def test_what_is_no_hyperparameter_is_refused_at_once(draw: Draw, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ArgumentError, DTypeError), match=message):
        Adam(draw(0), **options)


def test_a_nan_rate_set_later_is_refused_at_the_step(draw: Draw) -> None:
    optimizer = Adam(draw(0))
    optimizer.step(draw(1))
    optimizer.param_groups[0]["lr"] = float("nan")

    with pytest.raises(ArgumentError, match="lr must be a number"):
        optimizer.step(draw(1))


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (lambda params: {"params": params, "rate": 1}, "has no 'rate'"),
        (lambda params: {"params": []}, "no parameters"),
        (lambda params: {"params": [params[0], params[0]]}, r"params\[1\] twice"),
    ],
    ids=["name", "empty", "twice"],
)
def test_a_group_that_is_none_is_refused(draw: Draw, group: Any, message: str) -> None:
    optimizer = Adam(draw(0))

    with pytest.raises(ArgumentError, match=message):
        optimizer.add_param_group(group(draw(5)))

    optimizer.step(draw(1))


def test_an_array_in_place_of_a_list_of_them_is_refused(draw: Draw) -> None:
    with pytest.raises(ArgumentError, match=r"got one array; give \[params\]"):
        Adam(draw(0)[0])


def test_a_group_added_later_starts_at_its_first_step(draw: Draw) -> None:
    params, later = draw(0), draw(3)
    optimizer = Adam(params)
    optimizer.step(draw(1))

    optimizer.add_param_group({"params": later, "lr": 0.5})
    optimizer.step([draw(1), draw(2)])

    counts = [float(entry["step"]) for entry in optimizer.state_dict()["state"].values()]
    assert counts == [2] * 4 + [1] * 4
    assert repr(optimizer) == "Adam(4, 4 parameters, lr 0.001, 0.5)"
    with pytest.raises(ArgumentError, match="one sequence of gradients a group; got 4 for 2 groups"):
        optimizer.step(draw(1))


# ------------------------------------------------------------------------------------------------ streams and graphs


@requires("graphs")
def test_a_captured_step_counts_and_computes_at_each_replay(draw: Draw, device: Device, scalar: Any) -> None:
    backend = devices.backend(device.kind)
    eager, captured, grads, rate = draw(0), draw(0), draw(1), scalar(0.25)
    one, other = AdamW(eager, lr=0.25), AdamW(captured, lr=rate)
    options = {"max_norm": 1.0, "grad_scale": scalar(2.0)}
    for optimizer in (one, other):
        optimizer.step(draw(1) if optimizer is one else grads, **options)
    graph = backend.new_capture(device.index)
    with cuda.graph(graph):
        other.step(grads, **options)

    for seed in (2, 3, 4):
        for grad, fresh in zip(grads, draw(seed), strict=True):
            ops.copy(fresh, out=grad)
        graph.replay()
        one.step(draw(seed), **options)
    backend.synchronize(device.index)

    assert_all_same_bits(values(captured), values(eager))
    assert {float(entry["step"]) for entry in other.state_dict()["state"].values()} == {4.0}
    graph.reset()


@requires("streams")
def test_a_step_on_a_stream_of_its_own_is_ordered_by_waits(draw: Draw, device: Device) -> None:
    backend = devices.backend(device.kind)
    params, expected, grads = draw(0), draw(0), draw(1)
    optimizer, right = Adam(params), Adam(expected)
    main, side = backend.current_stream(device.index), backend.new_stream(device.index)

    side.wait_stream(main)
    with backend.use_stream(side):
        optimizer.step(grads)
    main.wait_stream(side)
    optimizer.step(grads)
    for _ in range(2):
        right.step(draw(1))

    assert_all_same_bits(values(params), values(expected))


def test_what_is_no_state_is_refused(draw: Draw, tmp_path: Path) -> None:
    optimizer = Adam(draw(1))
    (tmp_path / "junk.npz").write_text("junk")

    with pytest.raises(ArgumentError, match=r"junk.npz holds no optimizer's state: it is not an .npz file"):
        load(optimizer, tmp_path / "junk.npz")
    with pytest.raises(ArgumentError, match="the state lacks param_groups, state; give what state_dict gave"):
        optimizer.load_state_dict({})
