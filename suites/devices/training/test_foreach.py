"""Operations over lists on every kind: arrays at any address, the memory next to them, plans bound again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuassay import Device, from_host, ops, to_host
from cuassay.arrays.dtypes import as_dtype
from cuassay.errors import ArgumentError, DeviceError, DTypeError
from cuassay.testing import dtypes
from cuassay.testing.compare import assert_same_bits

FLOATS = ("float32", "bfloat16", "float16", "float64")
MARGIN = 8
POISON = -77.0

Views = Callable[..., tuple[list[Any], list[Any]]]


@pytest.fixture
def views(device: Device) -> Views:
    """Make views of given sizes at given offsets into poisoned arrays, and those arrays."""

    def make(dtype: Any, sizes: list[int], offsets: list[int], seed: int = 0) -> tuple[list[Any], list[Any]]:
        generator, found, bases = np.random.default_rng(seed), [], []
        for size, offset in zip(sizes, offsets, strict=True):
            host = np.full(size + 2 * MARGIN, POISON, as_dtype(dtype))
            host[offset : offset + size] = generator.standard_normal(size).astype(as_dtype(dtype))
            bases.append(from_host(host, device))
            found.append(bases[-1][offset : offset + size])
        return found, bases

    return make


def assert_margins_untouched(bases: list[Any], views: list[Any], offsets: list[int]) -> None:
    for base, view, offset in zip(bases, views, offsets, strict=True):
        host = to_host(base).astype(np.float64)
        assert set(host[:offset]) <= {POISON}
        assert set(host[offset + view.size :]) <= {POISON}


def doubled(arrays: list[Any]) -> list[np.ndarray[Any, Any]]:
    return [(2 * to_host(array).astype(np.float64)).astype(array.dtype) for array in arrays]


@dtypes("float32", "bfloat16", "float64")
@pytest.mark.parametrize("weight", [0.0, 1.0], ids=str)
def test_lerp_gives_either_end_exactly(device: Device, dtype: Any, weight: float) -> None:
    """Also where the other end is so large that their difference does not hold this one."""
    hosts = [np.array(ends, dtype) for ends in ([2.0**60, 1.0, -3.0], [1.0, 2.0**60, 0.25])]
    a, b = ([from_host(host, device)] for host in hosts)

    ops.foreach_lerp_(a, b, weight)

    np.testing.assert_array_equal(to_host(a[0]), hosts[int(weight)])


@dtypes(*FLOATS)
def test_arrays_that_begin_anywhere_are_computed_and_nothing_next_to_them(views: Views, dtype: Any) -> None:
    """Every pair of beginnings, within a pack of 8; long enough for whole warps, and of every length of the rest."""
    places = list(product(range(8), repeat=2))
    sizes = [700 + 37 * k for k in range(len(places))]
    (a, a_bases), (b, b_bases) = (views(dtype, sizes, [place[i] for place in places], i) for i in (0, 1))
    expected = [
        (x.astype(np.float64) + y.astype(np.float64)).astype(np.float32 if dtype != np.float64 else np.float64)
        for x, y in zip(map(to_host, a), map(to_host, b), strict=True)
    ]

    ops.foreach_add_(a, b)

    for array, right in zip(a, expected, strict=True):
        assert_same_bits(array, right.astype(dtype))
    assert_margins_untouched(a_bases, a, [place[0] for place in places])
    assert_margins_untouched(b_bases, b, [place[1] for place in places])


@dtypes("float32", "bfloat16")
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 7)), min_size=1, max_size=6))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sizes_at_any_place_are_doubled(views: Views, dtype: Any, drawn: list[tuple[int, int]]) -> None:
    sizes, offsets = [size for size, _ in drawn], [offset for _, offset in drawn]
    arrays, bases = views(dtype, sizes, offsets)
    expected = doubled(arrays)

    ops.foreach_mul_(arrays, 2.0)

    for array, right in zip(arrays, expected, strict=True):
        assert_same_bits(array, right)
    assert_margins_untouched(bases, arrays, offsets)


#: A chunk of a kernel is 256 threads' packs of 16 bytes, one or 64 packs for each thread: 512 to 131,072 elements.
CHUNKS = [512 * chunks << packs for packs in range(9) for chunks in (1, 2, 3)]


@dtypes(*FLOATS)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_arrays_of_one_two_and_three_whole_chunks_are_computed_to_their_ends(
    views: Views, dtype: Any, more: int
) -> None:
    sizes = [size + more for size in sorted(set(CHUNKS))]
    arrays, bases = views(dtype, sizes, [0] * len(sizes))
    for number, array in enumerate(arrays):
        array[-1] = 8 + number  # the largest is the last one, which a chunk too few would leave out
    norms = [np.linalg.norm(to_host(array).astype(np.float64)) for array in arrays]
    expected = doubled(arrays)

    np.testing.assert_allclose(to_host(ops.foreach_norm(arrays)), norms, rtol=1e-6)
    np.testing.assert_array_equal(to_host(ops.foreach_max(arrays)), [8 + n for n in range(len(sizes))])
    ops.foreach_mul_(arrays, 2.0)

    for array, right in zip(arrays, expected, strict=True):
        assert_same_bits(array, right)
    assert_margins_untouched(bases, arrays, [0] * len(sizes))


@dtypes(*FLOATS)
def test_norms_of_arrays_that_begin_anywhere_count_each_element_once(views: Views, dtype: Any) -> None:
    arrays, _ = views(dtype, [5000 + k for k in range(8)], list(range(8)))
    expected = [np.linalg.norm(to_host(array).astype(np.float64)) for array in arrays]

    np.testing.assert_allclose(to_host(ops.foreach_norm(arrays)), expected, rtol=1e-6)
    np.testing.assert_allclose(
        to_host(ops.foreach_norm(arrays, ord=np.inf)),
        [np.abs(to_host(array).astype(np.float64)).max() for array in arrays],
        rtol=1e-7,
    )


def test_norms_twice_give_the_same_bits(views: Views) -> None:
    arrays, _ = views("float32", [200_001, 3], [1, 0])

    assert_same_bits(ops.foreach_norm(arrays), ops.foreach_norm(arrays))


def test_a_plan_computes_on_what_the_arrays_hold_by_then(views: Views) -> None:
    arrays, _ = views("float32", [5, 4097], [0, 3])
    expected = doubled(arrays)
    plan = ops.foreach_mul_.prepare(arrays, 2.0)

    for array, right in zip(arrays, expected, strict=True):
        ops.copy(from_host(right, "cpu"), out=array)
    plan.run()

    for array, right in zip(arrays, expected, strict=True):
        assert_same_bits(array, 2 * right)


@pytest.mark.parametrize("offset", [0, 1], ids=["same place", "another place"])
def test_a_plan_bound_to_other_arrays_computes_on_those(views: Views, offset: int) -> None:
    (first, _), (second, _) = (views("float32", [5, 4097], [k, k], k) for k in (0, offset))
    kept, norm = [to_host(array) for array in first], from_host(np.zeros((), np.float32), _device(first))
    plan = ops.global_norm_.prepare(first, norm, None, None)
    plan.run()

    plan = plan.rebind(grads=second)
    plan.run()

    expected = np.sqrt(sum(np.sum(to_host(array).astype(np.float64) ** 2) for array in second))
    assert float(to_host(norm)) == pytest.approx(expected, rel=1e-6)
    for array, right in zip(first, kept, strict=True):
        assert_same_bits(array, right)


def _device(arrays: list[Any]) -> Device:
    return ops.registry.backend_of(type(arrays[0])).device_of(arrays[0])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: {"grads": [*a[:-1], a[-1].astype(np.float64)]}, DTypeError, "grads must have one dtype"),
        (lambda a: {"grads": [*a[:-1], to_host(a[-1]).tolist()]}, ArgumentError, r"grads\[1\] is not an array"),
        (lambda a: {"grad_scale": 2.0}, ArgumentError, "grad_scale must be an array of the device"),
    ],
    ids=["dtype", "no array", "a number"],
)
def test_what_a_plan_cannot_be_bound_to_is_refused(views: Views, change: Any, error: Any, message: str) -> None:
    arrays, _ = views("float32", [5, 33], [0, 0])
    plan = ops.global_norm_.prepare(arrays, from_host(np.zeros((), np.float32), _device(arrays)), None, None)

    with pytest.raises(error, match=message):
        plan.rebind(**change(arrays))


@pytest.mark.parametrize("change", [{"lr": -1.0}, {"eps": -1.0}, {"beta1": 1.5}], ids=lambda change: next(iter(change)))
def test_a_refused_change_leaves_the_plan_of_a_step_as_it_was(views: Views, change: dict[str, float]) -> None:
    def lists() -> list[list[Any]]:
        """Parameters, gradients, and both moments, the second of which is positive."""
        made = [views("float32", [5, 33], [0, 0], seed)[0] for seed in range(4)]
        for array in made[3]:
            ops.mul(array, array, out=array)
        return made

    def prepared(arrays: list[list[Any]]) -> Any:
        steps = from_host(np.zeros(2, np.float32), _device(arrays[0]))
        return ops.fused_adam_.prepare(*arrays, [], [], steps, 0.125)

    found, expected = lists(), lists()
    plan, right = prepared(found), prepared(expected)

    with pytest.raises(ArgumentError, match=next(iter(change))):
        plan.rebind(**change)
    for one in (plan, right):
        one.run()
        one.rebind(lr=0.5).run()

    for array, wanted in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        assert_same_bits(array, to_host(wanted))


def test_lists_of_two_kinds_of_device_are_refused(views: Views, device: Device) -> None:
    arrays, _ = views("float32", [5], [0])
    other = from_host(np.ones(5, np.float32), "sim" if device.kind == "cpu" else "cpu")

    with pytest.raises(DeviceError, match=r"needs all arrays on one device; a\[0\] is on .*, b\[0\] on"):
        ops.foreach_add_(arrays, [other])


def test_an_empty_list_is_refused(device: Device) -> None:
    with pytest.raises(ArgumentError, match="needs at least one array"):
        ops.foreach_zero_([])
