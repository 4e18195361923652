"""The Python array API standard on the simulated device: what code that is written for it asks of an array."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cuassay import Device
from cuassay.devices.sim import BACKEND
from cuassay.errors import ArgumentError, DeviceError, RaceError

Call = Callable[[Any], Any]


# ------------------------------------------------------------------------------------------------ the standard


def test_an_array_gives_the_namespace_of_its_device(xp: Any) -> None:
    other = BACKEND.namespace(1)

    assert xp.ones(3).__array_namespace__() is xp
    assert other.ones(3).__array_namespace__(api_version=xp.__array_api_version__) is other
    with pytest.raises(ArgumentError, match=r"follows the array API standard of .*; got '1999.12'"):
        xp.ones(3).__array_namespace__(api_version="1999.12")


def test_the_namespace_bears_a_name_of_its_own(xp: Any) -> None:
    assert (xp.__name__, xp.linalg.__name__) == ("cuassay.devices.sim", "cuassay.devices.sim.linalg")


def test_signatures_are_numpys(xp: Any) -> None:
    assert inspect.signature(xp.sum) == inspect.signature(np.sum)


def test_the_inspection_says_what_the_device_has(xp: Any) -> None:
    found = xp.__array_namespace_info__()

    assert found.default_device() == Device("sim:0")
    assert found.devices() == [Device("sim:0"), Device("sim:1")]
    assert found.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert found.default_dtypes() == np.__array_namespace_info__().default_dtypes()
    assert found.dtypes() == np.__array_namespace_info__().dtypes()
    assert found.dtypes(kind=("bool", "real floating")).keys() == {"bool", "float32", "float64"}
    with pytest.raises(ArgumentError, match="'float' is not a kind of dtypes"):
        found.dtypes(kind="float")


MAKERS: dict[str, Call] = {
    "zeros": lambda xp: xp.zeros(3),
    "full": lambda xp: xp.full(3, 1.5),
    "arange": lambda xp: xp.arange(3.0),
    "linspace": lambda xp: xp.linspace(0, 1, 3),
    "eye": lambda xp: xp.eye(3),
    "asarray": lambda xp: xp.asarray([1.5]),
    "empty": lambda xp: xp.empty(3),
    "fftfreq": lambda xp: xp.fft.fftfreq(4),
    "random": lambda xp: xp.random.rand(3),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_default_dtype_is_what_the_inspection_says_on_a_device_without_float64(make: Call) -> None:
    with BACKEND.simulated(devices=1, memory=2**20, profile="mps") as backend:
        xp = backend.namespace(0)

        assert make(xp).dtype == xp.__array_namespace_info__().default_dtypes()["real floating"] == np.float32
        assert "float64" not in xp.__array_namespace_info__().dtypes()


ON_A_DEVICE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "zeros": lambda xp, x, device: xp.zeros(3, device=device),
    "ones": lambda xp, x, device: xp.ones(3, device=device),
    "empty": lambda xp, x, device: xp.empty(3, device=device),
    "full": lambda xp, x, device: xp.full(3, 2, device=device),
    "arange": lambda xp, x, device: xp.arange(3, device=device),
    "linspace": lambda xp, x, device: xp.linspace(0, 1, 3, device=device),
    "eye": lambda xp, x, device: xp.eye(3, device=device),
    "tri": lambda xp, x, device: xp.tri(3, device=device),
    "fftfreq": lambda xp, x, device: xp.fft.fftfreq(3, device=device),
    "array": lambda xp, x, device: xp.array([1, 2], device=device),
    "asarray": lambda xp, x, device: xp.asarray([1, 2], device=device),
    "from_dlpack": lambda xp, x, device: xp.from_dlpack(np.ones(3), device=device),
    "zeros_like": lambda xp, x, device: xp.zeros_like(x, device=device),
    "full_like": lambda xp, x, device: xp.full_like(x, 2, device=device),
    "asarray-there": lambda xp, x, device: xp.asarray(x, device=device),
    "astype": lambda xp, x, device: xp.astype(x, xp.int8, device=device),
    "ascontiguousarray": lambda xp, x, device: xp.ascontiguousarray(x, device=device),
    "to_device": lambda xp, x, device: x.to_device(device),
}


@pytest.mark.parametrize("make", ON_A_DEVICE.values(), ids=ON_A_DEVICE.keys())
@pytest.mark.parametrize("where", ["sim:1", Device("sim:1"), "sim:0"], ids=["name", "other", "own"])
def test_an_array_is_made_on_the_device_that_is_named(xp: Any, make: Any, where: Any) -> None:
    made = make(xp, xp.arange(3), where)

    assert made.device == Device(where)


@pytest.mark.parametrize("make", [row for name, row in ON_A_DEVICE.items() if name != "to_device"])
@pytest.mark.parametrize("where", ["cpu", "cuda:0", "sim:7"])
def test_a_device_that_is_not_simulated_or_not_there_is_refused(xp: Any, make: Any, where: str) -> None:
    with pytest.raises(DeviceError, match=rf"{where}.*; (use cuassay.devices.namespace|2 simulated devices are here)"):
        make(xp, xp.arange(3), where)


def test_arrays_go_to_the_host_and_to_another_device_in_order(xp: Any) -> None:
    x = xp.arange(3.0)

    assert type(x.to_device("cpu")) is np.ndarray
    assert x.to_device("sim:0") is x
    assert x.to_device("sim:1").get().tolist() == [0, 1, 2]
    with pytest.raises(DeviceError, match=r"use cuassay\.ops\.copy"):
        x.to_device("cuda")


def test_copy_says_whether_memory_may_be_shared(xp: Any) -> None:
    x = xp.arange(3)

    assert xp.asarray(x, copy=None) is xp.asarray(x, copy=False) is x
    assert xp.asarray(x, copy=True) is not x
    for refused in (lambda: xp.asarray([1], copy=False), lambda: xp.asarray(x, dtype=xp.int8, copy=False)):
        with pytest.raises(ValueError, match="copy=False"):
            refused()


def test_lists_of_arrays_are_stacked(xp: Any) -> None:
    x = xp.arange(3)

    assert xp.asarray([[x[0], 5], [x[2], 7]]).get().tolist() == [[0, 5], [2, 7]]
    assert xp.array([x, x], dtype="float32").dtype == np.float32


def test_a_masked_array_does_not_lose_its_mask(xp: Any) -> None:
    with pytest.raises(TypeError, match=r"would lose its mask on sim:0; move .data and .mask"):
        xp.asarray(np.ma.masked_array([1, 2], [True, False]))


# ------------------------------------------------------------------------------------------------ DLPack


def test_dlpack_gives_the_host_a_copy(xp: Any) -> None:
    x = xp.arange(3.0)

    host = np.from_dlpack(x, device="cpu")
    host_before = host.tolist()
    x += 1

    assert host_before == host.tolist() == [0, 1, 2]
    assert x.__dlpack_device__() == (12, 0)


def test_dlpack_does_not_show_the_memory_itself(xp: Any) -> None:
    for refused in (lambda: np.from_dlpack(xp.ones(3)), lambda: xp.ones(3).__dlpack__(dl_device=(1, 0), copy=False)):
        with pytest.raises(BufferError, match=r"does not show its memory to other libraries"):
            refused()
    with pytest.raises(BufferError, match="give device='sim:0' for a copy"):
        xp.from_dlpack(np.ones(3))


@pytest.mark.parametrize(
    "path", [lambda x: x.to_device("cpu"), lambda x: x.to_device("sim:1"), lambda x: np.from_dlpack(x, device="cpu")]
)
def test_ways_to_other_places_are_ordered(xp: Any, path: Call) -> None:
    x = xp.ones(4)
    BACKEND.synchronize(0)
    with BACKEND.use_stream(BACKEND.new_stream(0)):
        x.fill(2.0)

    with pytest.raises(RaceError, match="not ordered after the write by fill"):
        path(x)


# ------------------------------------------------------------------------------------------------ more of NumPy's


def test_as_strided_stays_within_the_memory_of_its_array(xp: Any) -> None:
    x = xp.arange(6.0)
    strided = xp.lib.stride_tricks.as_strided

    assert strided(x, (3, 2), (8, 16)).get().tolist() == [[0, 2], [1, 3], [2, 4]]
    with pytest.raises(ArgumentError, match="outside its memory"):
        strided(x, (1000,), (8,))
    assert xp.lib.stride_tricks.sliding_window_view(x, 3).get().tolist()[3] == [3, 4, 5]


def test_unique_values_are_sorted_as_cupys(xp: Any) -> None:
    assert xp.unique_values(xp.asarray([5, 1, 9, 1, 3])).tolist() == [1, 3, 5, 9]


def test_a_vectorized_function_does_not_get_the_memory(xp: Any) -> None:
    with pytest.raises(TypeError, match=r"takes no signature=: the function would get the memory itself"):
        xp.vectorize(np.sum, signature="(n)->()")


def test_random_numbers_in_a_graph_are_those_of_the_calls_without_it(xp: Any) -> None:
    xp.random.seed(3)
    expected = [xp.random.rand(2).tolist() for _ in range(2)]
    xp.random.seed(3)
    graph = BACKEND.new_capture(0)
    with BACKEND.use_stream(BACKEND.new_stream(0)):
        graph.begin()
        drawn = xp.random.rand(2)
        graph.end()
        found = []
        for _ in range(2):
            graph.replay()
            found.append(drawn.tolist())

    assert found == expected


IN_PLACE: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    name: (getattr(operator, name), dtype)
    for dtype, names in (
        ("float64", "iadd isub imul itruediv ifloordiv imod ipow imatmul"),
        ("int64", "iand ior ixor ilshift irshift"),
    )
    for name in names.split()
}


@pytest.mark.parametrize(("operate", "dtype"), IN_PLACE.values(), ids=IN_PLACE.keys())
def test_an_operator_in_place_writes_the_array_itself(xp: Any, operate: Any, dtype: str) -> None:
    host = np.arange(1, 5).astype(dtype).reshape(2, 2)
    array = xp.asarray(host)
    view, kept = array[0], array

    array = operate(array, xp.asarray(host))
    expected = operate(host.copy(), host)

    assert array is kept
    assert array.get().tolist() == expected.tolist()
    assert view.get().tolist() == expected[0].tolist()
