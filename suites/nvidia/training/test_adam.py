"""Adam on CUDA: one launch, compared with torch's, tensors that begin anywhere, what a captured step keeps."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import Device, cuda, from_host, ops, to_host
from cuassay.arrays.dtypes import as_dtype, epsilon
from cuassay.devices.cuda.ops.tables import KEEPER, Keeper, Tables
from cuassay.optim import Adam, AdamW
from cuassay.testing import exclusive
from cuassay.testing.compare import assert_same_bits

pytestmark = pytest.mark.usefixtures("on_cuda")


DEVICE = "cuda:0"
MARGIN, POISON = 8, -77.0


def draw(seed: int, dtype: str = "float32", sizes: tuple[int, ...] = (5, 4097, 64)) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [from_host(generator.standard_normal(size).astype(as_dtype(dtype)), DEVICE) for size in sizes]


def launches(step: Callable[[], None]) -> int:
    """Nodes of a graph of what `step` gives the device."""
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        step()
    nodes = graph.statistics().nodes
    graph.reset()
    return int(nodes)


# ------------------------------------------------------------------------------------------------ launches


@pytest.mark.parametrize("count", [1, 100, 3000])
def test_a_step_is_one_launch_whatever_the_list(count: int) -> None:
    params, grads = (draw(seed, sizes=(33,) * count) for seed in (0, 1))
    optimizer = AdamW(params, amsgrad=True)
    optimizer.step(grads, zero_grads=True)

    assert launches(lambda: optimizer.step(grads, zero_grads=True)) == 1


def test_unscaling_checking_clipping_stepping_and_zeroing_are_two_launches() -> None:
    params, grads, cell = draw(0), draw(1), from_host(np.ones((), np.float32), DEVICE)
    optimizer = AdamW(params)
    options = {"grad_scale": cell, "found_inf": cell.copy(), "check_finite": True, "max_norm": 1.0, "zero_grads": True}
    optimizer.step(grads, **options)

    assert launches(lambda: optimizer.step(grads, **options)) == 2


@exclusive
def test_blocks_that_start_late_take_the_same_step() -> None:
    """A tensor of more chunks than run at once: the count of steps moves on when the last of them has read it."""
    params = [cupy.zeros(2**27, cupy.float32)]
    grads, optimizer = [cupy.full(2**27, 0.5, cupy.float32)], Adam(params, lr=1.0)

    for _ in range(3):
        optimizer.step(grads)

        first = float(params[0][0])
        assert bool((params[0] == first).all())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lists_of_any_kind_are_one_launch(dtype: str) -> None:
    a, b = draw(0, dtype), draw(1, dtype)
    calls = (
        ops.foreach_add_.prepare(a, b).run,
        ops.foreach_mul_.prepare(a, 2.0).run,
        ops.foreach_norm.prepare(a).run,
        ops.foreach_zero_.prepare(a).run,
    )

    assert [launches(call) for call in calls] == [1, 1, 1, 1]


def test_other_gradients_and_rates_cost_no_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    params = draw(0)
    optimizer = Adam(params)
    optimizer.step(draw(1))
    made = []
    monkeypatch.setattr(Tables, "__init__", lambda self, *args, **kwargs: made.append(args))

    optimizer.step(draw(2))
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step(draw(3))

    assert made == []


# ------------------------------------------------------------------------------------------------ compared with torch

TORCH: dict[str, dict[str, Any]] = {
    "plain": {},
    "L2": {"weight_decay": 0.1},
    "decoupled": {"weight_decay": 0.1, "decoupled": True},
    "amsgrad": {"amsgrad": True, "maximize": True, "betas": (0.8, 0.99)},
}


@pytest.mark.parametrize("options", TORCH.values(), ids=TORCH)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_ten_steps_agree_with_torchs_fused(dtype: str, options: dict[str, Any]) -> None:
    torch = load_torch()
    params = draw(0, dtype)
    theirs = [torch.nn.Parameter(as_torch(torch, param)) for param in params]
    decoupled = options.get("decoupled", False)
    hyper = {"weight_decay": 0.0, **{name: value for name, value in options.items() if name != "decoupled"}}
    ours = (AdamW if decoupled else Adam)(params, lr=2**-7, **hyper)
    peer = (torch.optim.AdamW if decoupled else torch.optim.Adam)(theirs, lr=2**-7, fused=True, **hyper)

    for seed in range(1, 11):
        grads = draw(seed, dtype)
        for param, grad in zip(theirs, grads, strict=True):
            param.grad = as_torch(torch, grad)
        ours.step(grads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer.step()

    for param, other in zip(params, theirs, strict=True):
        right = other.detach().double().cpu().numpy()
        units = {"float32": 60, "float64": 60}.get(dtype, 4)  # torch's 1 - beta2 is rounded to float32: 1e-5 of v
        np.testing.assert_allclose(
            to_host(param).astype(np.float64), right, rtol=0, atol=units * epsilon(dtype) * np.abs(right).max()
        )


def load_torch() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that torch gives at its start is not ours
        torch = pytest.importorskip("torch", reason="torch is not installed")
        torch.cuda.is_available()
    return torch


def as_torch(torch: Any, array: Any) -> Any:
    host = torch.from_numpy(to_host(array).astype(np.float64))
    return host.to(DEVICE, getattr(torch, array.dtype.name))


# ------------------------------------------------------------------------------------------------ any beginning


def views(dtype: str, sizes: list[int], offsets: list[int], seed: int) -> tuple[list[Any], list[Any]]:
    generator, found, bases = np.random.default_rng(seed), [], []
    for size, offset in zip(sizes, offsets, strict=True):
        host = np.full(size + 2 * MARGIN, POISON, as_dtype(dtype))
        host[offset : offset + size] = np.abs(generator.standard_normal(size)).astype(as_dtype(dtype))
        bases.append(from_host(host, DEVICE))
        found.append(bases[-1][offset : offset + size])
    return found, bases


@pytest.mark.parametrize("seed", [None, 11], ids=["nearest", "stochastic"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_lists_that_begin_anywhere_are_stepped_and_nothing_next_to_them(dtype: str, seed: int | None) -> None:
    if seed is not None and dtype != "bfloat16":
        pytest.skip("stochastic rounding is for bfloat16")
    places = list(product(range(8), range(0, 8, 3)))
    sizes = [600 + 101 * k for k in range(len(places))]
    offsets = [[place[0] for place in places], [place[1] for place in places]]
    made = [views(dtype, sizes, offsets[k in (1, 3)], k) for k in range(4)]
    lists = [one for one, _ in made]
    hosts = [[to_host(array) for array in one] for one in lists]
    steps, counts = cupy.full(len(sizes), 2, np.float32), np.full(len(sizes), 2, np.float32)

    ops.fused_adam_(*lists, [], [], steps, 0.125, seed=seed)
    ops.fused_adam_(*hosts, [], [], counts, 0.125, seed=seed)

    unit = 2 * epsilon(dtype) if dtype == "bfloat16" else 64 * epsilon(dtype)  # a sum rounded the other way
    for one, right in zip(lists, hosts, strict=True):
        for array, wanted in zip(one, right, strict=True):
            np.testing.assert_allclose(
                to_host(array).astype(np.float64), wanted.astype(np.float64), rtol=unit, atol=unit
            )
    assert_same_bits(steps, counts)
    for (one, bases), where in zip(made, (offsets[0], offsets[1], offsets[0], offsets[1]), strict=True):
        for array, base, offset in zip(one, bases, where, strict=True):
            host = to_host(base).astype(np.float64)
            assert {*host[:offset], *host[offset + array.size :]} == {POISON}


def test_stochastic_rounding_draws_the_references_bits() -> None:
    """Moments of zeros: each new one is (1 - beta) g, rounded by its own 16 bits and no other's."""
    shapes = (8, 4101)
    gradients = [np.linspace(1, 2, size).astype(as_dtype("bfloat16")) for size in shapes]
    found = []
    for device in ("cpu", DEVICE):
        lists = [[from_host(one, device) for one in gradients] for _ in range(2)]
        lists += [[from_host(np.zeros_like(one), device) for one in gradients] for _ in range(2)]
        steps = from_host(np.zeros(2, np.float32), device)
        ops.fused_adam_(*lists, [], [], steps, 0.0, beta1=0.5, beta2=0.5, seed=2**63 + 5)
        found.append([to_host(array).astype(np.float32) for array in lists[3]])

    for left, right in zip(*found, strict=True):
        assert np.mean(left != right) < 1e-3  # half of g squared is exact in float32


# ------------------------------------------------------------------------------------------------ captures


def test_a_graph_keeps_the_tables_of_a_plan_that_is_gone() -> None:
    params, expected, grads = draw(0), draw(0), draw(1)
    optimizer, right = Adam(params), Adam(expected)
    optimizer.step(grads)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        optimizer.step(grads)
    optimizer.step(draw(2))
    for array, start in zip(params, draw(0), strict=True):
        ops.copy(start, out=array)
    optimizer.load_state_dict(right.state_dict())
    optimizer._states[0]._kept = None
    gc.collect()
    trash = [cupy.full(n, 0xFF, np.uint8) for n in range(8, 4096, 8)]

    for _ in range(2):
        graph.replay()
        right.step(grads)
    cuda.synchronize()

    for array, wanted in zip(params, expected, strict=True):
        assert_same_bits(array, to_host(wanted))
    graph.reset()
    assert len(trash) == 511


def test_a_call_without_a_plan_can_be_captured() -> None:
    a = draw(0)
    expected = [4 * to_host(array) for array in a]
    ops.foreach_mul_(a, 1.0)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        ops.foreach_mul_(a, 2.0)
    gc.collect()

    graph.replay()
    graph.replay()

    for array, wanted in zip(a, expected, strict=True):
        assert_same_bits(array, wanted)
    graph.reset()


def test_captures_that_overlap_keep_each_what_was_launched_in_it() -> None:
    keeper, (outer, inner) = Keeper(), (object(), object())
    device = Device("cuda", 0)
    keeper.capture_begin(outer, device)
    keeper.hold("first")
    keeper.capture_begin(inner, device)
    keeper.hold("both")
    keeper.capture_end(outer, device)
    keeper.hold("second")

    assert keeper._held[id(outer)] == ["first", "both"]
    assert keeper._held[id(inner)] == ["both", "second"]
    keeper.capture_forget(inner, device)
    assert keeper.open == {}
    assert list(keeper._held) == [id(outer)]


def test_tables_of_a_plan_outlive_a_launch_that_another_stream_has_not_begun() -> None:
    """The memory is that of the stream on which the plan was made, and would be used there again at once."""
    a = draw(0, sizes=(2048,) * 40)
    expected = [2 * to_host(one) for one in a]
    here, there = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    cuda.synchronize()
    with here:
        plan = ops.foreach_mul_.prepare(a, 2.0)
    here.synchronize()
    gc.collect()
    with there:
        cuda.spin(2_000_000_000)
        plan.run()
    with here:
        del plan
        others = [cupy.zeros(size, np.uint8) for size in (512, 1024, 2048, 4096) for _ in range(256)]
    has_begun = there.done
    cuda.synchronize()

    assert (len(others), has_begun) == (1024, False)
    for one, right in zip(a, expected, strict=True):
        np.testing.assert_array_equal(to_host(one), right)


def test_nothing_is_kept_for_a_graph_that_is_reset() -> None:
    a = draw(0)
    plan = ops.foreach_mul_.prepare(a, 2.0)
    plan.run()
    before = len(KEEPER._held)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        plan.run()

    assert len(KEEPER._held) == before + 1
    graph.reset()
    assert len(KEEPER._held) == before


def test_a_graph_of_a_strided_norm_keeps_what_its_plan_computed_into() -> None:
    a, graph = draw(0), cuda.CUDAGraph()
    out = cupy.zeros((len(a), 2), np.float32)[:, 0]
    plan = ops.foreach_norm.prepare(a, out=out)
    plan.run()
    expected = out.get()
    with cuda.graph(graph):
        plan.run()
    del plan
    gc.collect()
    others = [from_host(np.full(len(a), POISON, np.float32), DEVICE) for _ in range(64)]
    out[:] = 0

    graph.replay()

    np.testing.assert_array_equal(out.get(), expected)
    assert {float(value) for other in others for value in to_host(other)} == {POISON}
    graph.reset()


@pytest.mark.parametrize("is_captured", [False, True], ids=["run", "captured"])
def test_a_plan_is_run_on_another_stream_than_its_tables_are_uploaded_on(is_captured: bool) -> None:
    a, expected = draw(0), [2 * to_host(array) for array in draw(0)]
    ops.foreach_mul_(draw(0), 2.0)
    cuda.synchronize()
    busy, other, graph = cuda.Stream(), cuda.Stream(), cuda.CUDAGraph()
    with busy:
        cuda.spin(100_000_000)
        plan = ops.foreach_mul_.prepare(a, 2.0)

    with other:
        if is_captured:
            with cuda.graph(graph):
                plan.run()
            graph.replay()
        else:
            plan.run()
    other.synchronize()

    for array, wanted in zip(a, expected, strict=True):
        assert_same_bits(array, wanted)
    graph.reset()


def test_gradients_bound_again_on_another_stream_are_read_there() -> None:
    first, second, norm = draw(0), draw(1), from_host(np.zeros((), np.float32), DEVICE)
    expected = np.sqrt(sum(np.sum(to_host(array).astype(np.float64) ** 2) for array in second))
    ops.global_norm_.prepare(second, norm, None, None).run()
    cuda.synchronize()
    busy, other = cuda.Stream(), cuda.Stream()
    with busy:
        cuda.spin(100_000_000)
        plan = ops.global_norm_.prepare(first, norm, None, None)

    with other:
        plan.rebind(grads=second).run()
    other.synchronize()

    assert float(to_host(norm)) == pytest.approx(expected, rel=1e-6)


def test_a_list_in_a_capture_begun_by_cupy_is_replayed_when_the_call_is_long_over() -> None:
    a, stream = draw(0), cupy.cuda.Stream(non_blocking=True)
    expected = [4 * to_host(array) for array in a]
    ops.foreach_mul_(draw(0), 2.0)
    cuda.synchronize()
    with stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
        ops.foreach_mul_(a, 2.0)
        graph = stream.end_capture()
    gc.collect()
    trash = [np.full(size, -1, np.int64) for size in range(1, 64) for _ in range(32)]

    graph.launch(stream)
    graph.launch(stream)
    stream.synchronize()

    for array, wanted in zip(a, expected, strict=True):
        assert_same_bits(array, wanted)
    assert len(trash) == 63 * 32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("master", [False, True], ids=["plain", "masters"])
def test_states_begin_where_their_parameters_do(dtype: str, master: bool) -> None:
    if master and dtype == "float32":
        pytest.skip("master weights are for 16-bit parameters")
    params, _ = views(dtype, [4097] * 8, list(range(8)), 0)
    optimizer = Adam(params, master_weights=master, amsgrad=True)
    lists = [params, *(one for one in optimizer._states[0].lists.values() if one)]

    assert Tables(lists, 1).off == 0


def test_tables_say_what_they_hold() -> None:
    tables = Tables([draw(0), None], 1)

    assert repr(tables) == "Tables(2 lists, 3 tensors, 7 chunks)"
    assert tables.off == 0
    assert tables.replaced(0, draw(0, sizes=(5, 4096, 64))) is None
