"""Shortcuts: that plain elementwise calls are served, with the same bits; products as graphs.

For all that is served past dispatch see `suites/devices/ops/test_repeated_calls.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")

import cupy

from cuassay import cuda, ops
from cuassay.devices.cuda.blas.plan_cache import PlanCache, table
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.ops import registry


@pytest.fixture
def shortcut(on_cuda: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """That of `add`, and whether it served the last call."""
    ops.add(cupy.ones(3), cupy.ones(3))  # loads the kind
    found = ops.add.shortcuts.get(cupy.ndarray)
    if found is None:
        pytest.skip("shortcuts are for one device, and for launches that do not block")
    first, *others = found

    def noting(operands: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]) -> Any:
        served = first(operands, out, scalars)
        noting.served = served is not NotImplemented  # type: ignore[attr-defined]
        return served

    monkeypatch.setitem(ops.add.shortcuts, cupy.ndarray, (noting, *others))
    return noting


@pytest.mark.usefixtures("shortcut")
def test_no_op_tries_a_shortcut_twice() -> None:
    def kind(shortcut: Any) -> Any:
        return type(getattr(shortcut, "__self__", shortcut))

    kinds = {op.name: [kind(one) for one in op.shortcuts.get(cupy.ndarray, ())] for op in registry.ops()}
    del kinds["add"]  # whose first is the fixture's

    assert {name: found for name, found in kinds.items() if len(found) > len(set(found))} == {}


def draw(dtype: str, *shape: int) -> Any:
    return (cupy.random.default_rng(1).integers(0, 100, shape)).astype(dtype)


def warm(a: Any, b: Any) -> None:
    """Add until calls like it are repeated."""
    for _ in range(3):
        ops.add(a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "complex64"])
@pytest.mark.parametrize("size", [1, 3, 1000, 70_001])
def test_a_plain_call_is_served_with_the_same_bits(shortcut: Any, dtype: str, size: int) -> None:
    a, b = draw(dtype, size), draw(dtype, size)
    warm(a, b)

    quick = ops.add(a, b)
    assert shortcut.served
    into = cupy.empty_like(a)
    assert ops.add(a, b, out=into) is into
    assert shortcut.served

    assert quick.dtype == a.dtype
    assert (quick == a + b).all()
    assert (into == quick).all()


def test_in_place_is_served(shortcut: Any) -> None:
    a = cupy.ones((8, 16), cupy.float32)
    warm(a, a)

    assert ops.add(a, a, out=a) is a
    assert shortcut.served
    assert (a == 2).all()


OTHERS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "a number": lambda a: (a, 1.0),
    "a broadcast": lambda a: (a, a[:1]),
    "a column": lambda a: (a, a[:, :1]),
    "another dtype": lambda a: (a, a.astype("float64")),
    "another order": lambda a: (a, cupy.asfortranarray(a)),
    "gaps": lambda a: (a[:, ::2], a[:, ::2]),
    "unaligned": lambda a: (a.reshape(-1)[1:], a.reshape(-1)[:-1]),
    "empty": lambda a: (a[:0], a[:0]),
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_calls_are_right_after_plain_ones(shortcut: Any, other: str) -> None:
    whole = draw("float32", 6, 8)
    warm(whole, whole)
    a, b = OTHERS[other](whole)

    for _ in range(4):
        assert cupy.allclose(ops.add(a, b), cupy.add(a, b))


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (lambda whole: cupy.empty((3, 3), "float32"), ShapeError),
        (lambda whole: cupy.empty((6, 8), "float64"), DTypeError),
        (lambda whole: whole[1:], ArgumentError),
    ],
    ids=["shape", "dtype", "overlap"],
)
def test_a_wrong_out_is_refused_all_the_same(shortcut: Any, out: Callable[[Any], Any], error: type[Exception]) -> None:
    whole = draw("float32", 7, 8)
    warm(whole[:6], whole[:6])

    with pytest.raises(error):
        ops.add(whole[:6], whole[:6], out=out(whole))


def test_a_plain_call_goes_to_the_current_stream_and_into_a_capture(shortcut: Any) -> None:
    stream, a, out = cuda.Stream(), cupy.ones(1000, cupy.float32), cupy.zeros(1000, cupy.float32)
    warm(a, a)
    ops.add(a, a, out=out)
    stream.wait_stream(cuda.default_stream())
    with stream:
        stream.begin_capture()
        ops.add(a, out, out=out)
        graph = stream.end_capture()
        assert shortcut.served
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()

    assert (out == 5).all()


def test_threads_do_not_share_a_launch(shortcut: Any) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        a, one, out = (cupy.full(513, value, cupy.float32) for value in (number, 1, 0))
        for _ in range(300):
            ops.add(a, one, out=out)
        if not (out == number + 1).all():
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


@pytest.mark.parametrize("is_given", [False, True], ids=["new", "out"])
def test_a_call_is_right_as_the_first_of_a_thread(shortcut: Any, is_given: bool) -> None:
    """The driver refuses a launch in a thread that has no context yet."""
    a, b = cupy.full(513, 2, cupy.float32), cupy.full(513, 3, cupy.float32)
    out = cupy.zeros(513, cupy.float32) if is_given else None
    for _ in range(5):
        ops.add(a, b, out=out)
    assert shortcut.served
    if out is not None:
        out.fill(0)
    cuda.synchronize()
    found: list[Any] = []

    thread = threading.Thread(target=lambda: found.append(ops.add(a, b, out=out)))
    thread.start()
    thread.join()
    cuda.synchronize()

    assert (found[0] == 5).all()


# ------------------------------------------------------------------------------------------------ products


def graphs_of_this_thread() -> int:
    """Products that have become graphs."""
    return sum(type(value) is not int for value in table(0).repeats.values())


@pytest.mark.usefixtures("cublaslt")  # cuBLAS' plans have a workspace, and become no graphs
def test_a_product_on_the_same_addresses_becomes_a_graph_that_reads_them_again(shortcut: Any) -> None:
    a, b, out = (draw("float32", 128, 128) for _ in range(3))
    before = graphs_of_this_thread()

    for factor in range(1, 21):
        a.fill(factor)
        ops.mm(a, b, out=out)
        assert (out == a @ b).all()

    assert graphs_of_this_thread() == before + 1


@pytest.mark.usefixtures("cublaslt")
def test_a_change_of_the_controls_makes_products_again(shortcut: Any) -> None:
    a, b, out = (draw("float32", 128, 128) for _ in range(3))
    for _ in range(20):
        ops.mm(a, b, out=out)
    assert graphs_of_this_thread() > 0
    cuda.preferred_blas_library("cublas")
    try:
        assert graphs_of_this_thread() == 0
        assert (ops.mm(a, b, out=out) == a @ b).all()
    finally:
        cuda.preferred_blas_library("default")


@pytest.mark.usefixtures("cublaslt")
def test_a_product_becomes_a_graph_next_to_the_capture_of_another_thread(shortcut: Any) -> None:
    arrays, x = [draw("float32", 128, 128) for _ in range(3)], cupy.ones(8, cupy.float32)
    ops.add(x, x, out=x)
    may_go_on, is_warm, made = threading.Event(), threading.Event(), []

    def multiply() -> None:
        a, b, out = arrays
        ops.mm(a, b, out=out)
        is_warm.set()
        may_go_on.wait(10)
        for _ in range(20):
            ops.mm(a, b, out=out)
        made.append(graphs_of_this_thread())

    thread, graph = threading.Thread(target=multiply), cuda.CUDAGraph()
    thread.start()
    is_warm.wait(10)
    with cuda.graph(graph, capture_error_mode="global"):
        may_go_on.set()
        thread.join()
        ops.add(x, x, out=x)
    graph.replay()
    cuda.synchronize()

    assert made == [1]
    assert (x == 4).all()


def test_graphs_without_room_are_refused_and_in_the_end_take_the_place_of_all() -> None:
    cache = PlanCache()
    for number in range(256):
        assert [cache.count(number, calls) for calls in (1, 7, 8)] == [False, False, True]
        cache.keep(number, "graph")

    for _ in range(4095):
        cache.keep("late", "graph")
    assert (len(cache.repeats), cache.repeats["late"], cache.repeats[0]) == (257, 0, "graph")
    cache.keep("late", "graph")

    assert cache.repeats == {"late": "graph"}
    assert [cache.count(0, calls) for calls in (8, 15, 16)] == [False, False, True]
