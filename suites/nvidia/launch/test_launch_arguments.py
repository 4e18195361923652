"""What reaches a kernel: the argument block's bytes, and the checks before it; no GPU."""

# ruff: noqa: E402  what is imported further down needs what is asked for first

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cuassay.errors import ArgumentError, CompileError, DTypeError

cuda = pytest.importorskip("cuassay.cuda")
pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

from cuassay.devices.cuda.launch import block
from cuassay.devices.cuda.launch.launch import Launch, stream_address
from cuassay.devices.cuda.launch.userkernel import CheckedLaunch, check_arguments, check_shape, parse_signature


class Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int64), ("second", ctypes.c_int64))


class Device:
    """Something with a device pointer, as torch and numba have it."""

    dtype = np.dtype(np.float32)

    def __repr__(self) -> str:
        return "array"  # its ids are the same in every worker

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (0x7F00_1234, False)}


class Foreign:
    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 0x7F00_0050)


def words(*arguments: Any) -> list[int]:
    launch = Launch(None, [type(argument) for argument in arguments])
    launch.write(arguments)
    return list(launch.slots)


@pytest.mark.parametrize(
    ("argument", "bits"),
    [
        (1, 1),
        (-1, 2**64 - 1),
        (2**63, 2**63),
        (True, 1),
        (1.5, 0x3FF8_0000_0000_0000),
        (np.float32(1.5), 0x3FC0_0000),
        (np.float16(1.5), 0x3E00),
        (ml_dtypes.bfloat16(1.5), 0x3FC0),
        (np.int32(-1), 2**32 - 1),
        (np.bool_(True), 1),
        (Device(), 0x7F00_1234),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_stored_with_the_bits_of_its_type(argument: Any, bits: int) -> None:
    assert words(argument) == [bits]


def test_structures_lie_between_their_neighbours() -> None:
    assert words(7, Pair(3, 4), np.int32(5)) == [7, 3, 4, 5]


def test_a_block_is_written_again_in_place() -> None:
    launch = Launch(None, [int, int])
    launch.write((1, 2))
    launch.slots[0] = 9

    assert list(launch.slots) == [9, 2]


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_an_int_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(ArgumentError, match="does not fit the 64 bits"):
        words(value)


@pytest.mark.parametrize(
    ("value", "hint"), [(np.zeros(2), "cupy.asarray"), ([1, 2], "pass its parts"), (None, "NoneType")], ids=repr
)
def test_what_no_kernel_can_take_is_refused(value: Any, hint: str) -> None:
    with pytest.raises(DTypeError, match=hint):
        words(value)


# ------------------------------------------------------------------------------------------------ what the driver gets


class Config(ctypes.Structure):
    """``CUlaunchConfig`` as cuda.h has it."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class Attribute(ctypes.Structure):
    """``CUlaunchAttribute``: the value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_uint), ("padding", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a stand-in for ``cuLaunchKernelEx`` is given, launch by launch; kernels have two 8-byte parameters."""
    seen = []

    def stand_in(config: int, handle: int, pointers: int, extra: int) -> int:
        described = Config.from_address(config)
        values = [ctypes.c_uint64.from_address(ctypes.c_void_p.from_address(pointers + 8 * i).value) for i in range(2)]
        seen.append(
            {
                "shape": (tuple(described.grid), tuple(described.block), described.shared),
                "stream": described.stream,
                "attributes": (described.attributes, described.attribute_count),
                "handle": handle,
                "values": [value.value for value in values],
                "extra": extra,
            }
        )
        return 7

    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
    monkeypatch.setattr(block, "_driver_launch", lambda: prototype(stand_in))
    return seen


def test_the_driver_is_given_configuration_handle_and_arguments(launched: list[Any]) -> None:
    launch = Launch(0x1234, [int, Device])
    launch.write((3, Device()))

    status = launch.launch((4, 5, 6), (32, 2, 1), 1024, 99)

    assert status == 7
    assert launched == [
        {
            "shape": ((4, 5, 6), (32, 2, 1), 1024),
            "stream": 99,
            "attributes": (None, 0),
            "handle": 0x1234,
            "values": [3, 0x7F00_1234],
            "extra": None,
        }
    ]


@pytest.mark.parametrize("grid", [8, np.int64(8), (8,), [8, 1]], ids=repr)
def test_extents_left_out_are_one(launched: list[Any], grid: Any) -> None:
    launch = Launch(1, [int, int])

    launch.launch(grid, 32, 0, 5)

    assert launched[0]["shape"] == ((8, 1, 1), (32, 1, 1), 0)


def test_a_second_launch_may_differ_in_all(launched: list[Any]) -> None:
    launch, grid = Launch(1, [int, int]), [1, 1]
    launch.write((1, 2))
    launch.launch(grid, 32, 0, 5)
    launch.write((3, 4))
    grid[0] = 2

    launch.launch(grid, 32, 0, 6)
    launch.launch(grid, 64, 16, 6)

    assert [(each["shape"][0][0], each["shape"][1][0], each["shape"][2]) for each in launched] == [
        (1, 32, 0),
        (2, 32, 0),
        (2, 64, 16),
    ]
    assert [(each["stream"], each["values"]) for each in launched] == [(5, [1, 2]), (6, [3, 4]), (6, [3, 4])]


@pytest.mark.parametrize(
    ("asked", "attributes"),
    [
        ({"cluster": 4}, [(4, [4, 1, 1])]),
        ({"early": True}, [(6, [1, 0, 0])]),
        ({"cluster": 2, "early": True}, [(4, [2, 1, 1]), (6, [1, 0, 0])]),
        ({"cluster": 1}, []),
    ],
    ids=str,
)
def test_an_arrangement_reaches_the_driver_until_there_is_another(
    launched: list[Any], asked: dict[str, Any], attributes: list[Any]
) -> None:
    launch = Launch(0x1234, [int, int])
    launch.arrange(cluster=8, early=True)
    launch.arrange(**asked)

    launch.launch(8, 32, 0, 5)

    address, count = launched[0]["attributes"]
    found = [Attribute.from_address(address + index * ctypes.sizeof(Attribute)) for index in range(count)]
    assert [(one.id, list(one.value[:3])) for one in found] == attributes
    assert all(not any(one.value[3:]) for one in found)


def test_a_bound_launch_keeps_its_block_and_sees_what_is_written_to_it(launched: list[Any]) -> None:
    launch = Launch(1, [int, int])
    launch.write((1, 2))
    fire, slots = launch.bind(8, 32, stream=5), launch.slots
    del launch

    statuses = [fire()]
    slots[1] = 9
    statuses.append(fire())

    assert statuses == [7, 7]
    assert [each["values"] for each in launched] == [[1, 2], [1, 9]]
    assert {each["stream"] for each in launched} == {5}


def test_what_is_arranged_lies_in_the_block_that_a_bound_launch_keeps(launched: list[Any]) -> None:
    launch = Launch(1, [int, int])
    launch.arrange(cluster=2, early=True)
    fire, words = launch.bind(8, 32, stream=5), launch.words
    del launch

    fire()

    address, count = launched[0]["attributes"]
    start = ctypes.addressof(ctypes.c_char.from_buffer(words))
    assert start < address < address + count * ctypes.sizeof(Attribute) <= start + words.nbytes
    assert [Attribute.from_address(address + place).id for place in (0, ctypes.sizeof(Attribute))] == [4, 6]
    assert launched[0]["values"] == [0, 0]


@pytest.mark.parametrize("grid", [(-1, 1, 1), (2**32, 1, 1), 2**32], ids=repr)
def test_an_extent_that_would_wrap_around_is_refused(launched: list[Any], grid: int | tuple[Any, ...]) -> None:
    launch = Launch(1, [int, int])

    with pytest.raises(ArgumentError, match="is not a launch shape"):
        launch.launch(grid, 32, 0, 5)

    assert launched == []


# ------------------------------------------------------------------------------------------------ streams


@pytest.mark.parametrize(
    ("stream", "address"), [(0x7F00_0040, 0x7F00_0040), (Foreign(), 0x7F00_0050)], ids=["address", "protocol"]
)
def test_streams_of_every_form_have_an_address(stream: Any, address: int) -> None:
    assert stream_address(stream) == address


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(ArgumentError, match="is not a CUDA stream"):
        stream_address("main")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__global__ void f() {}", ()),
        ("__global__ void f(void) {}", ()),
        ("__global__ void f(const float* __restrict__ a, int n) {}", ("float32*", "int32")),
        ('extern "C" __global__ void __launch_bounds__(256) f(half *a, size_t) {}', ("float16*", "uint64")),
        ("__global__ void g(int a) {} __global__ void f(double a[]) {}", ("float64*",)),
        ("// __global__ void f(int a)\n__global__ void f(/* n */ unsigned long long n) {}", ("uint64",)),
        ("__global__ void f(Layout layout, float4* v) {}", ("?", "?*")),
        ("template <typename T> __global__ void f(T* a) {}", None),
        ("__global__ void g(int a) {}", None),
    ],
)
def test_a_signature_is_read_from_the_source(source: str, expected: tuple[Any, ...] | None) -> None:
    assert parse_signature(source, "f") == expected


@pytest.mark.parametrize(
    ("parameter", "argument"),
    [("int64", 3), ("uint64", 3), ("float64", 3.0), ("bool", True), ("float32", np.float32(3)), ("float32*", Device())],
    ids=str,
)
def test_arguments_that_fit_pass(parameter: str, argument: Any) -> None:
    check_arguments("f", [parameter], [argument])
    check_arguments("f", ["?"], [argument])


@pytest.mark.parametrize(
    ("parameter", "argument", "message"),
    [
        ("int32", 3, r"parameter 0 is int32; got int \(int64\); give numpy.int32\(...\), or declare .* long long"),
        ("float32", 3.0, r"got float \(float64\); give numpy.float32\(...\), or declare .* double"),
        ("float64*", Device(), r"got Device \(float32\*\); give a device array of float64"),
        ("float32*", 3, "give a device array of float32"),
        ("?*", 3.0, "parameter 0 is \\?\\*"),
        ("float32", Device(), "give a float32"),
        ("int64", np.zeros(1), "cannot read host memory"),
    ],
)
def test_arguments_that_do_not_fit_are_named(parameter: str, argument: Any, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        check_arguments("f", [parameter], [argument])


def test_a_wrong_number_of_arguments_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"f\(int64, int64\) has 2 parameters; got 1 arguments"):
        check_arguments("f", ["int64", "int64"], [1])


@pytest.mark.parametrize("dims", [0, (), (1, 2, 3, 4), (1, 0), (1.5,)])
def test_a_launch_shape_of_nothing_is_refused(dims: int | tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError, match="grid must be one to three whole numbers"):
        check_shape("grid", dims)


class CupysArray:
    """As far as a launch looks at one of CuPy's."""

    __cuda_array_interface__ = None

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.data = types.SimpleNamespace(ptr=0x1000)


CupysArray.__module__ = "cupy"


def foreign(dtype: str) -> Device:
    array = Device()
    array.dtype = np.dtype(dtype)
    return array


@pytest.mark.parametrize("make", [CupysArray, foreign], ids=["CuPy's", "another's"])
def test_dtypes_are_looked_at_in_every_launch(make: Callable[..., Any]) -> None:
    launch = CheckedLaunch(1, [int, type(make("float32"))], "f", ("int64", "float32*"))
    launch.write((5, make("float32")))

    with pytest.raises(DTypeError, match=r"f: parameter 1 is float32\*; got \w+ \(float64\*\)"):
        launch.write((5, make("float64")))

    launch.write((6, make("float32")))
    assert launch.slots[0] == 6


def test_a_pointer_to_what_is_not_known_takes_every_dtype() -> None:
    launch = CheckedLaunch(1, [CupysArray, CupysArray], "f", ("?*", "?"))

    for dtype in ("float32", "int8"):
        launch.write((CupysArray(dtype), CupysArray(dtype)))

    assert list(launch.slots) == [0x1000, 0x1000]


def test_the_shape_of_every_launch_is_looked_at(launched: list[Any]) -> None:
    launch = CheckedLaunch(0x1234, [int, int], "f", ("int64", "int64"))
    launch.launch(1, 32, 0, 0)

    with pytest.raises(ArgumentError, match="block must be one to three whole numbers of 1 or more; got 0"):
        launch.launch(1, 0, 0, 0)


def test_a_user_kernel_knows_its_signature_before_any_device_is_touched() -> None:
    kernel = cuda.compile_kernel("__global__ void f(float* a, long long n) {}", "f")

    assert kernel.signature == ("float32*", "int64")
    assert repr(kernel) == "UserKernel(f, not loaded)"


def test_a_user_kernel_with_an_arch_is_compiled_at_once() -> None:
    with pytest.raises(CompileError, match="identifier"):
        cuda.compile_kernel("__global__ void f(float* a) { b; }", "f", arch="sm_90")
