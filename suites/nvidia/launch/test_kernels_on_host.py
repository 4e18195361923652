"""Parts of our kernels that only captured graphs or huge arrays come to, run on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, ops
from cuassay.core.recordings import Place, Position, ReplayState
from cuassay.random import GeneratorState

pytest.importorskip("cuassay_host", reason="the kind `host` is on the path in `ci/run cupy` only")
emulated = pytest.importorskip("kernel_emulator.memory", reason="CuPy is not installed")

from cuassay.devices.cuda.launch.launch import kernel  # noqa: E402
from cuassay.devices.cuda.ops import elementwise, reduction  # noqa: E402
from cuassay.devices.cuda.ops.random import PhiloxState, _Cell  # noqa: E402

HOST = Device("host", 0)

#: A seed and an offset whose upper halves matter, and how many words the graph's earlier calls take.
STATE, EARLIER = GeneratorState(2**40 + 7, 2**36 + 12), 20

#: Operations with the options that choose their kernels.
DRAWS: list[tuple[Any, dict[str, Any]]] = [
    (ops.uniform, {}),
    (ops.normal, {}),
    (ops.integers, {"low": -5, "high": 1000}),
    (ops.dropout, {"p": 0.3}),
    (ops.permutation, {}),
]


def _cell() -> tuple[_Cell, Any]:
    """A cell that holds `STATE`, and its two words."""
    words = emulated.guarded((2,), np.dtype(np.uint64))
    words[:] = STATE.seed, STATE.offset
    array = emulated.as_cupy(words)
    return _Cell(array, array.data.ptr, HOST), words


@pytest.mark.parametrize(("op", "options"), DRAWS, ids=[op.name for op, _ in DRAWS])
def test_a_captured_call_draws_from_where_its_replay_begins(op: Any, options: dict[str, Any]) -> None:
    """The place moves on after the capture; the cell holds where the replay begins."""
    dtype = np.int32 if op in (ops.integers, ops.permutation) else np.float32
    like = devices.from_host(np.ones(1031, dtype), HOST)
    place = Place(Position(GeneratorState(1, 0)), _cell()[0])

    captured = op(like, state=ReplayState(place, EARLIER), **options)

    given = op(like, state=GeneratorState(STATE.seed, STATE.offset + EARLIER), **options)
    np.testing.assert_array_equal(devices.to_host(captured), devices.to_host(given))


def test_a_cell_is_renewed_before_a_replay() -> None:
    cell, words = _cell()

    kernel("random.cu", "random_renew")(1, 1, (PhiloxState(5, 2**40, cell.address),))

    assert words.tolist() == [5, 2**40]


@pytest.mark.parametrize("is_true", [True, False])
def test_a_condition_is_what_its_value_holds(is_true: bool) -> None:
    value, node = (emulated.as_cupy(emulated.guarded((1,), np.dtype(one))) for one in (np.bool_, np.uint32))
    value.fill(is_true)

    kernel("condition.cu", "set_condition")(1, 1, (node.data.ptr, value))

    assert emulated.as_numpy(node).tolist() == [is_true]


@pytest.fixture
def narrow_grid(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Grids have two rows at most, so that a block walks over several rows of an array."""
    plans = reduction._rows, reduction._columns
    monkeypatch.setattr(reduction, "_MAX_GRID_Y", 2)
    for plan in plans:
        plan.cache_clear()
    yield
    for plan in plans:
        plan.cache_clear()


@pytest.mark.usefixtures("narrow_grid")
@pytest.mark.parametrize(
    "shape",
    [(7, 4_099, 1), (7, 20_000, 1), (7, 100, 33), (7, 515, 33)],
    ids=["rows", "parts", "columns", "clusters"],
)
def test_a_block_that_walks_over_rows_reduces_each(shape: tuple[int, ...]) -> None:
    """A row's last read of shared memory comes before the next row's first write: in several orders of threads."""
    host = np.random.default_rng(2026).integers(-8, 8, shape).astype(np.float32)
    a = devices.from_host(host, HOST)

    for _ in range(5):
        total, largest = ops.sum(a, axis=1), ops.amax(a, axis=1)

        np.testing.assert_array_equal(devices.to_host(total), host.sum(axis=1))
        np.testing.assert_array_equal(devices.to_host(largest), host.max(axis=1))


def test_an_axis_of_more_than_32_bits_is_divided_by_in_64() -> None:
    """The layout has more elements along its axis than the arrays, of which the kernel sees the first ones."""
    host = np.random.default_rng(2026).standard_normal(1_031).astype(np.float32)
    a, out = (emulated.as_cupy(emulated.guarded(host.shape, host.dtype)) for _ in range(2))
    a.set(host)
    layout = elementwise._Layout(n=host.size, axes=2)
    layout.extent[0], layout.extent[1] = 2**33 + 1, 3
    for place in range(2):
        layout.stride[place][0], layout.stride[place][1] = 1, 2**20

    kernel("elementwise.cu", "strided_unary<Relu, float32>")(5, 256, (a, out, layout))

    np.testing.assert_array_equal(emulated.as_numpy(out), np.maximum(host, 0))
