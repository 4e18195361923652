"""What `cuassay.cuda` answers where CUDA is asked for another kind's device, or is not there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import cuassay
from cuassay import cuda
from cuassay.devices.cuda.driver import cudart
from cuassay.devices.cuda.driver.cudart import Cudart
from cuassay.errors import ArgumentError, DeviceError, LibraryNotFoundError


@pytest.mark.parametrize(
    "ask",
    [cuda.memory_allocated, cuda.memory_reserved, cuda.memory_stats, cuda.memory_summary, cuda.reset_peak_memory_stats],
    ids=lambda ask: ask.__name__,
)
def test_figures_of_another_kinds_device_are_refused_not_zero(ask: Callable[..., Any]) -> None:
    with pytest.raises(DeviceError, match="sim:0 is not a CUDA device"):
        ask("sim")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
@pytest.mark.parametrize("device", [None, 0, "cuda", "sim"], ids=str)
def test_a_stream_without_cuda_says_what_to_install(device: int | str | None) -> None:
    with pytest.raises(LibraryNotFoundError, match=r"libcuda .*; install (what CUDA needs with: pip|NVIDIA's driver)"):
        cuda.current_stream(device)


AXPY = 'extern "C" __global__ void axpy(const float* x, float* out, long long n) {}'


@pytest.mark.parametrize("signature", [None, ("?",) * 3], ids=["signature", "unchecked"])
@pytest.mark.parametrize("kind", ["sim", "meta"])
def test_a_kernel_refuses_arrays_of_a_kind_without_cuda(kind: str, signature: tuple[str, ...] | None) -> None:
    kernel = cuda.compile_kernel(AXPY, "axpy", signature=signature)
    array = cuassay.zeros((3,), "float32", kind)

    with pytest.raises(
        DeviceError, match=rf"axpy: a kernel runs only on a CUDA device; got an array of kind '{kind}'.*if xp"
    ):
        kernel(1, 128, (array, array, 3))


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        (AXPY, "apxy", r"no kernel 'apxy' \(did you mean 'axpy'\?\); it defines axpy; give"),
        ("kernels/axpy.cu", "axpy<float>", r"defines no kernel; got 'kernels/axpy.cu'; .*read_text\(\)"),
        ("__global__ void __launch_bounds__(256) f(int* a) {} // g", "g", "no kernel 'g'; it defines f"),
    ],
    ids=["misspelt", "path", "comment"],
)
def test_a_source_without_the_kernel_is_an_error_before_any_launch(source: str, name: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        cuda.compile_kernel(source, name)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ('#include "kernels.cuh"', "axpy"),
        ("#define MAKE(n) __global__ void n##_kernel(int* a) {}\nMAKE(add)", "add_kernel"),
        ("namespace ns { template <typename T, int N> __global__ void put(T* a) {} }", "ns::put<float, 4>"),
    ],
    ids=["header", "pasted", "template"],
)
def test_a_kernel_that_a_header_or_a_macro_may_define_is_accepted(source: str, name: str) -> None:
    assert cuda.compile_kernel(source, name)


# ------------------------------------------------------------------------------------------------ cudart


def test_cudart_has_names_of_its_version() -> None:
    assert set(dir(Cudart(11))) - set(dir(Cudart(12))) == {"cudaOutputMode", "cudaProfilerInitialize"}
    assert dir(Cudart(13)) == dir(Cudart(12)) == dir(Cudart(None))


@pytest.mark.parametrize("name", ["cudaOutputMode", "cudaProfilerInitialize"])
def test_cudart_says_which_versions_have_a_name(name: str) -> None:
    with pytest.raises(AttributeError, match=f"CUDA 13 has no '{name}'; only CUDA before 12 has it; torch lacks it"):
        getattr(Cudart(13), name)
    assert not hasattr(Cudart(12), name)


@pytest.mark.parametrize("name", ["cudaOutputMode", "cudaProfilerInitialize"])
def test_cudart_without_a_version_or_a_known_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"CUDA 12 has no '{name}'; only CUDA before 12 has it"):
        getattr(Cudart(None), name)
    with pytest.raises(AttributeError, match=r"cudart\(\) has no 'cudaNew'; it has cudaError, cudaGetErrorString"):
        _ = Cudart(13).cudaNew


def test_cudart_gives_functions_of_the_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(cudaError_t=int, cudaProfilerStart=lambda: (0,))
    monkeypatch.setattr(cudart, "_bindings", lambda: runtime)

    assert Cudart(13).cudaError is int
    assert Cudart(13).cudaProfilerStart() == (0,)
    with pytest.raises(AttributeError, match=r"cudart\(\) has no 'cudaMalloc'; it has cudaError, cudaGetErrorString"):
        _ = Cudart(13).cudaMalloc
