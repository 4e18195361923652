"""The ``xp`` of the simulated device: names and results are NumPy's, host data is refused; and what handles promise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cuassay.core.protocols import Backend, Capture, Event, Stream
from cuassay.devices.sim import BACKEND, SimArray
from cuassay.errors import CapabilityError, DeviceError, RaceError


@pytest.fixture(autouse=True)
def machine() -> Iterator[None]:
    with BACKEND.simulated(devices=2, memory=2**20):
        yield


@pytest.fixture
def xp() -> Any:
    return BACKEND.namespace(0)


def test_a_device_has_one_namespace_as_a_module_is_one() -> None:
    kept = {BACKEND.namespace(index): index for index in (0, 1, 0, 1)}

    assert kept == {BACKEND.namespace(0): 0, BACKEND.namespace(1): 1}


SAME_AS_NUMPY: dict[str, Callable[[Any], Any]] = {
    "array": lambda xp: xp.array([[1, 2], [3, 4]], dtype="float32"),
    "asarray": lambda xp: xp.asarray([1.0, 2.0]),
    "zeros": lambda xp: xp.zeros((2, 3), dtype=xp.int8),
    "ones": lambda xp: xp.ones(4),
    "full": lambda xp: xp.full((2, 2), 7),
    "arange": lambda xp: xp.arange(2, 10, 3),
    "linspace": lambda xp: xp.linspace(0, 1, 5),
    "eye": lambda xp: xp.eye(3, k=1),
    "tri": lambda xp: xp.tri(3),
    "zeros_like": lambda xp: xp.zeros_like(xp.ones((2, 2))),
    "full_like": lambda xp: xp.full_like(xp.ones((2, 2)), 3),
    "meshgrid": lambda xp: xp.meshgrid(xp.arange(2), xp.arange(3))[1],
    "scalar": lambda xp: xp.sin(1.0),
    "ufunc-method": lambda xp: xp.add.reduce(xp.arange(5)),
    "linalg": lambda xp: xp.linalg.norm(xp.arange(4.0)),
    "fft": lambda xp: xp.fft.rfft(xp.arange(8.0)),
    "constant": lambda xp: xp.asarray(xp.pi),
    "newaxis": lambda xp: xp.arange(3)[:, xp.newaxis],
    "where": lambda xp: xp.where(xp.arange(4) > 1, 1.0, 0.0),
    "astype": lambda xp: xp.arange(3).astype(xp.complex64),
    "named-tuple": lambda xp: xp.linalg.eigh(xp.eye(2)).eigenvalues,
}


@pytest.mark.parametrize("make", SAME_AS_NUMPY.values(), ids=SAME_AS_NUMPY.keys())
def test_results_are_numpys_and_on_the_device(xp: Any, make: Callable[[Any], Any]) -> None:
    result, expected = make(xp), make(np)

    assert isinstance(result, SimArray)
    assert result.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(xp.asnumpy(result), expected)


@pytest.mark.parametrize(
    "name", ["frombuffer", "load", "memmap", "ma", "char", "matrix", "recarray", "nditer", "polynomial"]
)
def test_what_makes_no_sense_on_a_device_is_refused_with_a_reason(xp: Any, name: str) -> None:
    with pytest.raises(CapabilityError, match=rf"xp\.{name} is not offered on sim:0: \w+"):
        getattr(xp, name)


def test_what_numpy_has_not_is_an_attribute_error(xp: Any) -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        xp.no_such_function  # noqa: B018  # asking is the act


def test_a_host_array_alone_is_refused_too(xp: Any) -> None:
    with pytest.raises(TypeError, match=r"exp got a numpy.ndarray.*xp.asarray"):
        xp.exp(np.ones(3))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_dtypes_that_numpy_has_not_go_by_name(xp: Any, dtype: str) -> None:
    assert {str(made.dtype) for made in (xp.zeros(3, dtype), xp.full(3, 1, dtype=dtype), xp.empty(3, dtype))} == {dtype}


def test_asarray_gives_the_array_itself(xp: Any) -> None:
    array = xp.arange(3)

    assert xp.asarray(array) is array
    assert xp.array(array) is not array


def test_an_array_of_another_device_is_not_taken(xp: Any) -> None:
    with pytest.raises(DeviceError, match=r"not on sim:0; move it with cuassay.ops.copy"):
        xp.asarray(BACKEND.namespace(1).arange(3))


def test_the_handles_fit_their_protocols() -> None:
    assert isinstance(BACKEND, Backend)
    assert isinstance(BACKEND.new_stream(0), Stream)
    assert isinstance(BACKEND.new_event(0), Event)
    assert isinstance(BACKEND.new_capture(0), Capture)


def test_every_handle_prints_what_a_log_needs(xp: Any) -> None:
    handles = (xp.ones((2, 3)), BACKEND.new_stream(1), BACKEND.new_event(0, timing=True), BACKEND.new_capture(0), xp)

    assert [repr(handle) for handle in handles] == [
        "SimArray(shape=(2, 3), dtype=float64, device='sim:0')",
        "SimStream(stream 2 of sim:1)",
        "SimEvent(sim:0, not recorded, timing)",
        "SimCapture(sim:0, empty, 0 launches)",
        "Namespace(numpy on sim:0)",
    ]


def test_arrays_alive_at_the_interpreters_exit_do_no_harm() -> None:
    program = (
        "import numpy as np\n"
        "from cuassay.devices.sim import BACKEND\n"
        "array = BACKEND.from_host(np.ones(4), 0)\n"
        "with BACKEND.use_stream(BACKEND.new_stream(0)): BACKEND.empty((2,), 'float32', 0)\n"
        "cycle = [array]; cycle.append(cycle)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_flags_are_attributes_and_items_as_numpys(xp: Any) -> None:
    turned, numpys = xp.ones((2, 3)).T, np.ones((2, 3)).T

    for name in ("c_contiguous", "f_contiguous", "forc", "fnc", "writeable"):
        assert getattr(turned.flags, name) == turned.flags[name.upper()] == getattr(numpys.flags, name)
    with pytest.raises(KeyError, match="'OWNDATA' is not a flag"):
        turned.flags["OWNDATA"]


SLICED: dict[str, Callable[[Any], Any]] = {
    "slice": lambda array: array[1:],
    "transpose": lambda array: array.T,
    "reshape": lambda array: array.reshape(-1),
    "function": lambda array: np.flip(array),
    "iteration": lambda array: next(iter(array)),
}


@pytest.mark.parametrize("view", SLICED.values(), ids=SLICED.keys())
def test_a_slice_is_a_copy_on_a_device_without_views(view: Callable[[Any], Any]) -> None:
    with BACKEND.simulated(devices=1, memory=2**20, profile="copies") as backend:
        array = backend.namespace(0).ones((3, 2))

        view(array)[...] = 5

        assert array.get().tolist() == np.ones((3, 2)).tolist()
        assert backend.probe(0, "views").reason == "the profile copies gives a copy for each slice"


def test_a_write_at_an_index_reaches_the_array_without_views() -> None:
    with BACKEND.simulated(devices=1, memory=2**20, profile="copies") as backend:
        array = backend.namespace(0).ones(4)

        array[1:3] += 1

        assert array.get().tolist() == [1, 2, 2, 1]
        assert backend.namespace(0).asarray(array) is array


def test_a_slice_without_views_reads_the_array() -> None:
    with BACKEND.simulated(devices=1, memory=2**20, profile="copies") as backend:
        array = backend.from_host(np.ones(4), 0)
        backend.synchronize(0)
        with backend.use_stream(backend.new_stream(0)):
            array.fill(2.0)

        with pytest.raises(RaceError, match=r"read by getitem .* not ordered after the write by fill"):
            array[1:]


def test_empty_like_is_poisoned_as_empty_is() -> None:
    xp = BACKEND.namespace(0)
    like = xp.ones((3, 5), dtype="float32")

    assert np.isnan(xp.empty_like(like).get()).all()
    assert np.isnan(np.empty_like(like.T).get()).all()
