"""Copies between arrays that are contiguous along different axes: in every layout, without writing next to `out`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_places import KINDS, Place

from cuassay import Device, from_host, ops, to_host
from cuassay.testing import devices, exclusive

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
transposed = pytest.importorskip("cuassay.devices.cuda.ops.transposed", reason="CuPy is not installed")

DTYPES = ["int8", "uint16", "float32", "int64", "complex128"]

#: How each layout takes its part of a C-ordered array: the array's shape and the part.
LAYOUTS: dict[str, tuple[tuple[int, ...], Any]] = {
    "matrix": ((70, 131), lambda a: a.T),
    "whole packs": ((128, 256), lambda a: a.T),
    "least": ((16, 16), lambda a: a.T),
    "one more than a tile": ((129, 65), lambda a: a.T),
    "channels last to first": ((2, 9, 5, 20), lambda a: a.transpose(0, 3, 1, 2)),
    "channels first to last": ((3, 24, 4, 6), lambda a: a.transpose(0, 2, 3, 1)),
    "every axis moved": ((3, 17, 2, 19), lambda a: a.transpose(3, 2, 0, 1)),
    "whole tiles, twice": ((2, 128, 64), lambda a: a.transpose(0, 2, 1)),
    "rows with a gap": ((40, 48), lambda a: a[:, :36].T),
    "first element left out": ((33, 50), lambda a: a[:, 1:].T),
    "outer axis reversed": ((4, 20, 30), lambda a: a[::-1].transpose(0, 2, 1)),
    "outer axis repeated": ((1, 20, 30), lambda a: a.repeat(3, 0).transpose(0, 2, 1)),
}


@pytest.fixture
def place(device: Device) -> Place:
    return Place(device)


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    size = int(np.prod(shape))
    return (np.random.default_rng(7).permutation(size) % 120).astype(dtype).reshape(shape)


@devices(*KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_element_arrives_and_no_other_is_written(place: Place, layout: str, dtype: str) -> None:
    shape, part = LAYOUTS[layout]
    host = numbers(shape, dtype)
    wanted = part(host)
    given = place(host)
    a = cupy.broadcast_to(given, (3, 20, 30)).transpose(0, 2, 1) if "repeated" in layout else part(given)
    room = place(np.full(wanted.size + 48, 77, dtype))
    out = room[16 : 16 + wanted.size].reshape(wanted.shape)

    assert transposed.transpose(out, a)

    np.testing.assert_array_equal(place.back(out), wanted)
    assert (place.back(room[:16]) == 77).all()
    assert (place.back(room[16 + wanted.size :]) == 77).all()


@devices(*KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_output_with_gaps_keeps_what_is_between(place: Place, dtype: str) -> None:
    host = numbers((41, 52), dtype)
    room = place(np.full((52, 60), 77, dtype))

    assert transposed.transpose(room[:, 3:44], place(host).T)

    found = place.back(room)
    np.testing.assert_array_equal(found[:, 3:44], host.T)
    assert (found[:, :3] == 77).all()
    assert (found[:, 44:] == 77).all()


@devices(*KINDS)
@exclusive
def test_rows_of_a_tile_may_be_more_than_two_gibibytes_apart(device: Device, place: Place) -> None:
    """Little of the memory is ever touched. Its first half is where an offset that wraps around would lead."""
    shape, part, host = (128, 40_000_000), (slice(64, None), slice(0, 80)), numbers((64, 80), "uint8")
    if device.kind == "cuda":
        room = cupy.empty(shape, np.uint8)
        room[part] = place(host)
    else:
        from kernel_emulator import memory

        whole = np.empty(shape, np.uint8)
        whole[part] = host
        room = memory.as_cupy(whole)
    out = place(np.zeros((80, 64), np.uint8))

    assert transposed.transpose(out, room[part].T)

    np.testing.assert_array_equal(place.back(out), host.T)


@devices(*KINDS)
@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ((64, 64), lambda a: a),
        ((15, 64), lambda a: a.T),
        ((64, 64), lambda a: a.T[::2]),
        ((64,), lambda a: a),
        ((0, 64), lambda a: a.T),
        ((), lambda a: a),
    ],
    ids=["same order", "fewer than sixteen", "no neighbours", "one axis", "no element", "no axis"],
)
def test_other_layouts_are_left_to_others(place: Place, shape: tuple[int, ...], part: Any) -> None:
    a = part(place(np.ones(shape, np.float32)))

    assert not transposed.transpose(place(np.zeros(a.shape, np.float32)), a)


@devices("cuda")
@pytest.mark.parametrize("shape", [(1031, 517), (2, 131, 40, 70)])
def test_a_large_copy_is_made_by_tiles(device: Device, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    done: list[bool] = []
    whole = transposed.transpose
    monkeypatch.setattr(transposed, "transpose", lambda out, a: done.append(whole(out, a)) or done[-1])
    host = numbers(shape, "float32")
    given = from_host(host, device)

    if len(shape) == 2:
        copied = ops.copy(given.T, memory_format="contiguous")
    else:
        copied = ops.copy(given, memory_format="channels_last")

    assert done == [True]
    np.testing.assert_array_equal(to_host(copied), host.T if len(shape) == 2 else host)
