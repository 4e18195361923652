"""The installed CuPy has each private name that we use, and each does what its public counterpart does; no GPU."""

# ruff: noqa: E402  what is imported further down needs what is asked for first

from __future__ import annotations

from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

from cuassay.devices.cuda.driver import cupy_private


def is_there(dotted: str) -> bool:
    parent, _, name = dotted.rpartition(".")
    try:
        owner = resolve_name(parent)
    except (ImportError, AttributeError):
        return False
    if hasattr(owner, "__path__") and find_spec(dotted) is not None:
        return True  # a module; it is not imported, because the library that it needs may be absent
    return hasattr(owner, name)


@pytest.mark.parametrize("name", cupy_private.PRIVATE)
def test_the_installed_cupy_has_it(name: str) -> None:
    assert is_there(name), f"CuPy {cupy.__version__} has no {name}; we use it for: {cupy_private.PRIVATE[name]}"


def on_nothing(shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    """An array on memory that is never touched."""
    memory = cupy.cuda.UnownedMemory(2**20, 2**10, None, 0)
    return cupy.ndarray(shape, "float32", cupy.cuda.MemoryPointer(memory, 0), strides)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((), None), ((0, 3), None), ((4, 6), None), ((4, 6), (4, 16)), ((4, 6), (48, 8)), ((1, 6), (400, 4))],
    ids=["scalar", "empty", "C", "Fortran", "gaps", "one row"],
)
def test_contiguity_is_as_the_flags_say(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
    array = on_nothing(shape, strides)
    flags = array.flags

    assert cupy_private.is_c_contiguous(array) is flags.c_contiguous
    assert cupy_private.is_f_contiguous(array) is flags.f_contiguous
    assert cupy_private.layout_of(array) == (array.dtype, shape, flags.c_contiguous)
    assert cupy_private.dense_layout_of(array) == (array.dtype, shape, flags.c_contiguous, flags.f_contiguous)


def test_the_short_way_to_an_array_serves() -> None:
    wanted = on_nothing((4, 6))
    made = cupy_private.make_array((4, 6), "float32", wanted.data)

    assert cupy_private.make_array is not cupy.ndarray
    facts = ("__class__", "shape", "strides", "dtype", "size", "nbytes", "base")
    assert [getattr(made, fact) for fact in facts] == [getattr(wanted, fact) for fact in facts]
    assert made.data.ptr == wanted.data.ptr


def test_a_memory_gives_its_owner() -> None:
    class Memory(cupy.cuda.UnownedMemory):  # type: ignore[misc, name-defined]
        owner = cupy_private.owner_of_memory

    owner = object()

    assert Memory(2**20, 2**10, owner, 0).owner is owner


@pytest.mark.parametrize("kind", ["Stream", "ExternalStream"])
def test_each_kind_of_stream_has_the_base(kind: str) -> None:
    assert issubclass(getattr(cupy.cuda, kind), cupy_private.BaseStream)
    assert cupy_private.BaseStream is resolve_name("cupy.cuda.stream._BaseStream")


def test_a_listener_hears_waits_until_it_is_taken_away() -> None:
    heard: list[str] = []
    theirs = cupy._core.syncdetect._declare_synchronize
    try:
        cupy_private.listen_to_waits("test", lambda: heard.append("wait"))
        cupy._core.syncdetect._declare_synchronize()
    finally:
        cupy_private.listen_to_waits("test", None)

    assert heard == ["wait"]
    assert cupy._core.syncdetect._declare_synchronize is theirs
