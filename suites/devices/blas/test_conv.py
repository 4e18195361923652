"""Convolution on every kind: memory formats, and what follows from its being a product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, from_host, ops, to_host
from cuassay.amp import autocast
from cuassay.ops.convolution import Geometry
from cuassay.testing.samples import LAYOUTS, Samples

WINDOW = {"stride": (1, 2), "padding": (1, 0), "dilation": (2, 1)}


def operands(dtype: str = "float32") -> tuple[Any, Any, Any]:
    make = Samples(5, dtype, "conv")
    shapes: tuple[Any, ...] = (2, 8, 7, 9), (4, 8, 3, 2), 4
    a, weight, bias = (make(shape, low=-1, high=1).values for shape in shapes)
    return a, weight, bias


def expected(dtype: str = "float32") -> Any:
    return ops.slow_conv2d(*operands(dtype), **WINDOW)


def channels_last(array: Any, device: Device) -> Any:
    """The same numbers in the same shape, the channels next to one another in memory."""
    return from_host(np.ascontiguousarray(array.transpose(0, 2, 3, 1)), device).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "none"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_channels_last_gives_what_channels_first_does(device: Device, dtype: str, bias: bool) -> None:
    a, weight, row = operands(dtype)
    last = channels_last(a, device), channels_last(weight, device), from_host(row, device) if bias else None

    out = to_host(ops.slow_conv2d(*last, **WINDOW))

    wanted = ops.slow_conv2d(a, weight, row if bias else None, **WINDOW)
    wide = np.complex128 if dtype == "complex64" else np.float64
    np.testing.assert_allclose(out.astype(wide), wanted.astype(wide), rtol=2**-7, atol=2**-6)


def test_an_out_with_channels_last_is_written_so(device: Device) -> None:
    a, weight, bias = operands()
    wanted = expected()
    out = channels_last(np.zeros_like(wanted), device)

    given = ops.slow_conv2d(
        channels_last(a, device), from_host(weight, device), from_host(bias, device), out=out, **WINDOW
    )

    assert given is out
    np.testing.assert_allclose(to_host(out), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "contiguous"])
def test_images_of_any_strides_are_read_as_they_are(device: Device, layout: str) -> None:
    make = Samples(5, "float32", "conv")
    shapes: tuple[Any, ...] = (2, 8, 7, 9), (4, 8, 3, 2), 4
    arrays = [make(shape, low=-1, high=1).laid_out(layout).on(device) for shape in shapes]

    np.testing.assert_allclose(to_host(ops.slow_conv2d(*arrays, **WINDOW)), expected(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("nbytes", "parts"), [(1, [1, 1]), (10_000, [2])])
def test_images_unfolded_a_few_at_a_time_give_the_same(
    device: Device, nbytes: int, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, cut, seen = expected(), Geometry.chunks, []

    def chunks(geometry: Geometry, itemsize: int) -> Iterator[slice]:
        for part in cut(geometry, itemsize):
            seen.append(part.stop - part.start)
            yield part

    monkeypatch.setattr("cuassay.ops.convolution._UNFOLDED", nbytes)
    monkeypatch.setattr(Geometry, "chunks", chunks)

    out = to_host(ops.slow_conv2d(*[from_host(one, device) for one in operands()], **WINDOW))

    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
    assert seen == parts


def test_a_window_of_one_is_a_product(device: Device) -> None:
    make = Samples(5, "float64", "conv")
    a, weight = make((2, 3, 4, 5)).values, make((6, 3, 1, 1)).values

    out = to_host(ops.slow_conv2d(from_host(a, device), from_host(weight, device)))

    np.testing.assert_allclose(out, np.einsum("nchw,oc->nohw", a, weight[:, :, 0, 0]), rtol=1e-12)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "none"])
def test_it_follows_the_precision_it_is_given(device: Device, bias: bool) -> None:
    a, weight, row = (from_host(one, device) for one in operands())

    exact, rough = (
        to_host(ops.slow_conv2d(a, weight, row if bias else None, precision=mode, **WINDOW))
        for mode in ("ieee", "bf16")
    )

    assert 1e-4 < abs(exact - rough).max() < 0.1


@pytest.mark.parametrize("groups", [2, 4])
def test_a_group_sees_its_own_channels(device: Device, groups: int) -> None:
    a, weight, _ = operands("float64")
    weight = weight[:, : 8 // groups]
    size, filters = 8 // groups, 4 // groups
    parts = [
        ops.slow_conv2d(a[:, g * size : (g + 1) * size], weight[g * filters : (g + 1) * filters], **WINDOW)
        for g in range(groups)
    ]

    out = to_host(ops.slow_conv2d(from_host(a, device), from_host(weight, device), groups=groups, **WINDOW))

    np.testing.assert_allclose(out, np.concatenate(parts, axis=1), rtol=1e-12)


def test_autocast_lowers_it_as_any_product(device: Device) -> None:
    there = [from_host(one, device) for one in operands()]
    if devices.why_unsupported(ops.slow_conv2d, device, "bfloat16"):
        pytest.skip(f"{device} has no bfloat16")

    with autocast(device.kind, "bfloat16"):
        assert str(ops.slow_conv2d(*there, **WINDOW).dtype) == "bfloat16"
