"""What the readable implementations on NumPy arrays promise to the last bit: every other kind is compared with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cuassay import devices, linalg, ops
from cuassay.arrays import distributions
from cuassay.arrays.dtypes import as_dtype
from cuassay.devices.cpu import optim as reference
from cuassay.errors import ArgumentError, DeviceError, DTypeError
from cuassay.optim import Adam, AdamW
from cuassay.random import GeneratorState

STATE = GeneratorState(3)
BFLOAT16 = as_dtype("bfloat16")


def cell(value: float) -> Any:
    return np.array(value, np.float32)


# ------------------------------------------------------------------------------------------------ lists


@pytest.mark.parametrize(("weight", "place"), [(0.0, 0), (1.0, 1)])
def test_a_lerp_is_exact_at_both_ends(weight: float, place: int) -> None:
    ends = np.array([1e8, -3e7], np.float32), np.array([0.3, 1e-4], np.float32)
    a = ends[0].copy()

    ops.foreach_lerp_([a], [ends[1]], weight)

    np.testing.assert_array_equal(a, ends[place])


def near_ties() -> tuple[Any, Any]:
    """float64 numbers next to the middle of two bfloat16 ones, and the nearer of the two."""
    odd = 1 + 2.0**-7 * np.arange(1, 128, 2)
    return odd + 2.0**-8 + 2.0**-30, odd + 2.0**-7


def test_a_list_of_float64_is_rounded_to_bfloat16_once() -> None:
    wide, nearest = near_ties()
    found = np.empty(wide.shape, BFLOAT16)

    ops.foreach_copy_([found], [wide])

    np.testing.assert_array_equal(found.astype(np.float64), nearest)


@pytest.mark.parametrize("product", ["mm", "bmm"])
def test_a_product_of_float64_is_rounded_to_bfloat16_once(product: str) -> None:
    wide, nearest = near_ties()
    a, b = (wide[:, None], np.ones((1, 1))) if product == "mm" else (wide[None, :, None], np.ones((1, 1, 1)))

    found = getattr(ops, product)(a, b, out_dtype="bfloat16")

    np.testing.assert_array_equal(found.astype(np.float64).ravel(), nearest)


def test_a_float32_mode_is_not_for_16_bit_operands_of_a_float32_sum() -> None:
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal(shape).astype(np.float16) for shape in ((4, 64), (64, 3)))

    found = ops.addmm(np.zeros(3, np.float32), a, b, precision="bf16")

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, a.astype(np.float64) @ b.astype(np.float64), rtol=0, atol=1e-5)


def test_fp8_scales_are_applied_one_after_the_other() -> None:
    a = np.full((16, 16), 2.0**-4, as_dtype("float8_e4m3fn"))
    small = np.full(1, 1e-20, np.float32), np.full(1, 1e-19, np.float32)
    large = np.full(1, 1e20, np.float32), np.full(1, 1e18, np.float32)

    found = ops.scaled_mm(a, a, *large, None, out_dtype="float32")
    vanishing = ops.scaled_mm(a, a, small[0], large[0], None, out_dtype="float32")

    np.testing.assert_allclose(found, 16 * 2.0**-8 * 1e38, rtol=1e-6)
    np.testing.assert_allclose(vanishing, 16 * 2.0**-8, rtol=1e-6)


@pytest.mark.parametrize(("factor", "dtype"), [(1j, "float32"), (None, "float32"), ("x", "complex64")], ids=str)
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_factor_that_is_none_is_refused(name: str, factor: Any, dtype: str) -> None:
    one = np.ones((2, 2), dtype)

    with pytest.raises(ArgumentError, match=f"{name} must be a number"):
        ops.addmm(one, one, one, **{name: factor})


def test_a_complex_factor_is_one_of_complex_products() -> None:
    one = np.ones((2, 2), np.complex64)

    np.testing.assert_array_equal(ops.addmm(one, one, one, alpha=1j, beta=-1j), np.full((2, 2), 1j))


@pytest.mark.parametrize(
    "call",
    [
        lambda a: ops.foreach_add_([a], 1j),
        lambda a: ops.foreach_add_([a], 1.0, alpha=1j),
        lambda a: ops.foreach_mul_([a], None),
        lambda a: ops.foreach_lerp_([a], [a.copy()], 1j),
    ],
    ids=["b", "alpha", "none", "weight"],
)
def test_a_number_next_to_a_list_is_a_real_one(call: Any) -> None:
    with pytest.raises(ArgumentError, match="a real number"):
        call(np.ones(3, np.float32))


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: ops.foreach_add_([a, a], 1.0),
        lambda a, b: ops.foreach_add_([a, b], [b, a]),
        lambda a, b: ops.foreach_unscale_([a, a], cell(0), cell(1)),
    ],
    ids=["twice", "crossed", "gradients"],
)
def test_an_array_that_is_written_stands_once(call: Any) -> None:
    with pytest.raises(ArgumentError, match="give each array once"):
        call(np.ones(3, np.float32), np.ones(3, np.float32))


def test_an_array_may_be_added_to_itself_and_one_to_several() -> None:
    a, b = np.ones(3, np.float32), np.full(3, 2, np.float32)

    ops.foreach_add_([a], [a])
    np.testing.assert_array_equal(a, b)
    ops.foreach_add_([a, b], [one := np.ones(3, np.float32), one])
    np.testing.assert_array_equal(b, np.full(3, 3))


def test_nan_wins_over_infinity_in_a_norm() -> None:
    norm, found = cell(0), cell(0)

    ops.global_norm_([np.array([np.inf], np.float32), np.array([np.nan], np.float32)], norm, found, None)

    assert math.isnan(norm)
    assert found == 1


def test_clipping_by_a_norm_that_is_nan_leaves_nothing_as_it_was() -> None:
    params = [np.ones(2, np.float32), np.ones(2, np.float32)]

    Adam(params).step([np.ones(2, np.float32), np.array([np.nan, 1], np.float32)], max_norm=1.0)

    assert np.isnan(params).all()


# ------------------------------------------------------------------------------------------------ Adam


def chances(count: int, size: int, **options: Any) -> tuple[list[np.ndarray[Any, Any]], Adam]:
    """Parameters of 1 after a step that each survives by chance: which did not move."""
    params = [np.ones(size, BFLOAT16) for _ in range(count)]
    optimizer = Adam(params, lr=2.0**-10, seed=5, **options)
    optimizer.step([np.ones(size, BFLOAT16) for _ in range(count)])
    return [param == 1 for param in params], optimizer


def agreement(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Of chances of 3/4 the share that agrees is 5/8 where they have nothing to do with each other."""
    return float(np.mean(a == b))


def test_neighbours_tensors_and_steps_are_rounded_by_chances_of_their_own() -> None:
    (first, second), optimizer = chances(2, 8192)
    optimizer.step([np.ones(8192, BFLOAT16)] * 2)

    pairs = (first[::2], first[1::2]), (first, second), (first[2048:], second[:-2048]), (first[:-8], first[8:])
    assert [agreement(*pair) for pair in pairs] == pytest.approx([0.625] * len(pairs), abs=0.05)


def test_each_list_that_is_rounded_has_chances_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: list[int] = []
    bits = reference.stochastic_bits

    def seen(seed: int, step: int, tensor: int, size: int, stream: int) -> Any:
        streams.append(stream)
        return bits(seed, step, tensor, size, stream)

    monkeypatch.setattr(reference, "stochastic_bits", seen)
    chances(1, 8, amsgrad=True)

    assert len(streams) == len(set(streams)) == 4


def test_with_masters_parameters_are_their_rounding_also_by_chance() -> None:
    _, optimizer = chances(1, 4096, master_weights=True, state_dtype="bfloat16")
    (param,), state = optimizer.param_groups[0]["params"], optimizer.state_dict()["state"][0]

    np.testing.assert_array_equal(param, state["master"].astype(BFLOAT16))


def test_gradients_of_float32_with_masters_keep_their_digits() -> None:
    grads = [np.array([1.001, -0.3333], np.float32)]
    half, single = [np.ones(2, BFLOAT16)], [np.ones(2, np.float32)]
    of_half, of_single = Adam(half, master_weights=True), Adam(single)
    for optimizer in (of_half, of_single):
        optimizer.step(grads)

    for name in ("exp_avg", "exp_avg_sq"):
        np.testing.assert_array_equal(*(one.state_dict()["state"][0][name] for one in (of_half, of_single)))


def test_maximizing_adds_the_decay_as_minimizing_does() -> None:
    up, down = ([np.full(3, 2.0)] for _ in range(2))

    Adam(up, maximize=True, weight_decay=0.5).step([np.full(3, 0.25)])
    Adam(down, weight_decay=0.5).step([np.full(3, -0.25)])

    np.testing.assert_array_equal(up[0], down[0])


def test_adamw_decays_by_torchs_default() -> None:
    assert AdamW([np.ones(1)]).param_groups[0]["weight_decay"] == 1e-2


def test_a_load_leaves_betas_a_pair_and_what_states_were_made_by_alone() -> None:
    optimizer = Adam([np.ones(1)])
    saved = optimizer.state_dict()
    saved["param_groups"][0] |= {"betas": [0.5, 0.75], "amsgrad": True}

    optimizer.load_state_dict(saved)

    group = optimizer.param_groups[0]
    assert (group["betas"], group["amsgrad"]) == ((0.5, 0.75), False)


# ------------------------------------------------------------------------------------------------ linear algebra


def test_a_matrix_that_is_singular_has_no_numbers() -> None:
    a = np.zeros((2, 3, 3))
    a[1] = np.eye(3)

    x, info = ops.solve(a, np.ones((2, 3, 1)))

    assert np.isnan(x[0]).all()
    assert (x[1] == 1).all()
    assert info.tolist() == [1, 0]


@pytest.mark.parametrize(("rcond", "rank"), [(None, 1), (0.0, 2), (1e-16, 2)])
def test_small_singular_values_count_as_0_by_the_longer_side(rcond: float | None, rank: int) -> None:
    a = np.zeros((100, 2))
    a[0, 0], a[1, 1] = 1.0, 5e-15  # between 2 and 100 units in the last place

    assert int(linalg.lstsq(a, np.ones((100, 1)), rcond=rcond)[2]) == rank


def test_a_matrix_of_zeros_has_no_rank() -> None:
    x, _, rank, _ = linalg.lstsq(np.zeros((4, 2)), np.ones((4, 1)))

    assert int(rank) == 0
    assert not x.any()


# ------------------------------------------------------------------------------------------------ random numbers


def test_a_normal_number_is_moved_and_stretched_once() -> None:
    like = np.empty(100)

    plain, moved = (ops.normal(like, state=STATE, mean=mean, std=std) for mean, std in ((0.0, 1.0), (5.0, 3.0)))

    np.testing.assert_array_equal(moved, plain * 3.0 + 5.0)


def test_the_last_that_is_allowed_is_allowed() -> None:
    small = np.empty(128, np.int8)

    assert ops.integers(small, state=STATE, low=127, high=128).tolist() == [127] * 128
    assert sorted(ops.permutation(small, state=STATE).tolist()) == [*range(128)]
    assert ops.normal(np.empty(3), state=STATE, mean=2.0, std=0.0).tolist() == [2.0] * 3
    assert ops.dropout(np.ones(3), state=STATE, p=1.0).tolist() == [0.0] * 3
    assert not ops.dropout_mask(np.ones(3), state=STATE, p=1.0).any()
    with pytest.raises(ArgumentError, match="does not fit"):
        ops.permutation(np.empty(129, np.int8), state=STATE)


# ------------------------------------------------------------------------------------------------ calls


def test_an_out_whose_rows_overlap_is_refused() -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (3, 3), (8, 4))

    with pytest.raises(ArgumentError, match="several elements in one place"):
        ops.add(np.ones((3, 3), np.float32), 1.0, out=out)


def test_a_bool_stands_for_an_array_as_other_numbers_do() -> None:
    assert ops.add(np.ones(2, np.float32), True).tolist() == [2.0, 2.0]


def test_a_plan_that_is_bound_again_writes_where_it_wrote() -> None:
    a, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    plan = ops.add.prepare(a, a, out=out)

    given = plan.rebind(b=3 * a).run()

    assert given is out
    assert out.tolist() == [4.0] * 3


def test_an_out_on_another_device_of_the_kind_is_refused() -> None:
    with devices.backend("sim").simulated(devices=2) as sim:
        a, out = (sim.from_host(np.ones(3, np.float32), index) for index in (0, 1))

        with pytest.raises(DeviceError, match="out must be on sim:0"):
            ops.add(a, a, out=out)


def test_memory_is_taken_in_the_order_of_the_stream_that_is_named() -> None:
    with devices.backend("sim").simulated(devices=1) as sim:
        stream, like = sim.new_stream(0), sim.from_host(np.ones(3, np.float32), 0)

        assert devices.empty_like(like, stream=stream).block.queue is stream.queue


def test_counts_and_gradients_of_adam_have_their_dtypes() -> None:
    wide = [np.ones(2)]
    with pytest.raises(DTypeError, match="grads for float64"):
        Adam(wide).step([np.ones(2, np.float32)])
    with pytest.raises(ArgumentError, match="float32, one number a parameter"):
        ops.fused_adam_(*([np.ones(2)] for _ in range(4)), [], [], np.zeros(1), 0.1, None, None, None)


def test_no_bits_of_stochastic_rounding_are_drawn_twice() -> None:
    places = [(step, tensor, stream) for step in range(1, 9) for tensor in range(3) for stream in (0, 2, 3, 4)]

    drawn = {reference.stochastic_bits(5, step, tensor, 32, stream).tobytes() for step, tensor, stream in places}

    assert len(drawn) == len(places)


@pytest.mark.parametrize(
    "drop", [lambda a, p: ops.dropout(a, state=STATE, p=p), lambda a, p: ops.dropout_mask(a, state=STATE, p=p)]
)
def test_a_word_at_the_probability_itself_keeps(drop: Any) -> None:
    words = distributions.words_of(STATE, 8)
    a = np.ones(8, np.float32)

    kept = drop(a, int(words[3]) / 2.0**32) != 0

    np.testing.assert_array_equal(kept, words >= words[3])


def test_what_a_slice_of_the_simulated_device_keeps_alive_is_its_own_memory() -> None:
    first, second = (devices.from_host(np.full(64, value, np.float32), "sim") for value in (1, 2))
    view = (first + second)[8:16]

    block = view.block
    assert block is not None
    assert block not in (first.block, second.block)
    assert block.low <= view.span.low < view.span.high <= block.high
