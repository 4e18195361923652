"""`cuassay.cuda` by torch's names, where there is no device."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.util import find_spec

import pytest

import cuassay.cuda
from cuassay.errors import CuassayError, DeviceError, LibraryNotFoundError

#: Every public name, by the module of the face it lives in; "" is the face itself.
NAMES = {
    "history": "dump_snapshot record_memory_history",
    "host": "empty_host_cache empty_pinned is_pinned pin pin_memory reserve_pinned unpin",
    "": """
        can_device_access_peer compile_kernel cudart current_device device device_count driver_version
        get_arch_list get_device_capability get_device_name get_device_properties init is_available is_bf16_supported
        is_initialized is_tf32_supported libraries mem_get_info set_device synchronize
    """,
    "memory": """
        CUDAPluggableAllocator MemPool caching_allocator_alloc caching_allocator_delete
        caching_allocator_disabled caching_allocator_enable change_current_allocator empty_cache
        get_allocator_backend get_allocator_settings get_per_process_memory_fraction host_memory_stats
        host_memory_stats_as_nested_dict ipc_collect ipc_handle max_memory_allocated max_memory_cached
        max_memory_reserved memory_allocated memory_cached memory_reserved memory_resource memory_snapshot
        memory_stats memory_stats_as_nested_dict memory_summary open_ipc_handle record_stream
        reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated
        reset_max_memory_cached reset_peak_host_memory_stats reset_peak_memory_stats set_allocator_settings
        set_per_process_memory_fraction use_mem_pool use_with_cupy use_with_numba
    """,
    "random": """
        get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed seed_all set_rng_state
        set_rng_state_all
    """,
    "blas": "cublas_workspace_size current_blas_handle matmul preferred_blas_library",
    "graphs": """
        CUDAGraph GraphedCallable graph graph_pool_handle is_current_stream_capturing make_graphed_callables
        register_graph_capture_end_hook register_graph_capture_start_hook register_graph_destroy_hook
        register_graph_instantiate_hook register_graph_replay_end_hook register_graph_replay_start_hook
    """,
    "streams": """
        Event ExternalStream Stream current_stream default_stream get_stream_from_external get_sync_debug_mode
        set_stream set_sync_debug_mode spin stream
    """,
}


def test_the_public_names_are_fixed() -> None:
    assert cuassay.cuda.__all__ == sorted(name for names in NAMES.values() for name in names.split())


#: Those of `cuassay.cuda.streams` that are there without CuPy.
STREAM_FUNCTIONS = [name for name in NAMES["streams"].split() if name.islower()]


@pytest.mark.parametrize("name", [*NAMES[""].split(), *NAMES["random"].split(), *STREAM_FUNCTIONS])
def test_every_public_function_is_annotated_and_documented(name: str) -> None:
    function = getattr(cuassay.cuda, name)

    assert inspect.getdoc(function)
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty


@pytest.mark.parametrize("module", [name for name in NAMES if name])
def test_a_module_of_the_face_is_there_without_importing_it(module: str) -> None:
    code = f"import cuassay; print(cuassay.cuda.{module}.__name__)"

    said = subprocess.check_output([sys.executable, "-c", f"import cuassay.cuda; {code}"], text=True)

    assert said.strip() == f"cuassay.cuda.{module}"


def test_importing_the_face_imports_no_cuda_library() -> None:
    modules = ", ".join(f"cuassay.cuda.{name}" for name in NAMES if name)
    code = f"import sys, {modules}; print([m for m in sys.modules if m.split('.')[0] in ('cupy', 'cuda', 'nvmath')])"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_device_of_another_kind_is_refused() -> None:
    with pytest.raises(DeviceError, match="sim:0 is not a CUDA device"):
        cuassay.cuda.set_device("sim:0")


@pytest.mark.parametrize("call", ["init", "current_device", "synchronize", "get_device_name", "mem_get_info"])
def test_without_a_device_the_error_says_what_is_missing(call: str) -> None:
    if cuassay.cuda.is_available():
        pytest.skip("a CUDA device is here")

    with pytest.raises(CuassayError, match=r"driver|CUDA_VISIBLE_DEVICES"):
        getattr(cuassay.cuda, call)()


@pytest.mark.parametrize("call", ["use_with_cupy", "record_memory_history", "MemPool", "Stream", "CUDAGraph"])
def test_without_cupy_the_error_says_what_is_missing(call: str) -> None:
    if find_spec("cupy") is not None:
        pytest.skip("CuPy is here")

    with pytest.raises(LibraryNotFoundError, match=r"install (what CUDA needs with: pip|NVIDIA's driver)"):
        getattr(cuassay.cuda, call)()


@pytest.mark.parametrize(
    "row",
    "libcuda cudart nvrtc cublas cublasLt nvml nccl cufile cusolver curand nvJitLink cudnn cupti nvtx".split(),
)
def test_each_library_is_found_or_its_absence_explained(row: str) -> None:
    (found,) = (entry for entry in cuassay.cuda.libraries() if entry[0] == row)

    _, path, _, reason = found
    assert bool(path) != bool(reason)


def test_an_unknown_cudart_name_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no 'cudaMalloc'; it has cudaError, cudaGetErrorString"):
        _ = cuassay.cuda.cudart().cudaMalloc


def test_the_face_has_streams_that_work_goes_to() -> None:
    if not cuassay.cuda.is_available():
        pytest.skip("no CUDA device")
    from cuassay.cuda.streams import Event, Stream

    own = Stream()
    with cuassay.cuda.stream(own):
        event = Event()
        event.record()
        assert cuassay.cuda.current_stream() == own
    assert cuassay.cuda.current_stream() != own
    event.synchronize()
    assert event.query()


def test_an_unknown_name_of_streams_lists_those_there_are() -> None:
    import cuassay.cuda.streams

    with pytest.raises(AttributeError, match="has no attribute 'Queue'; its classes: Event, ExternalStream, Stream"):
        _ = cuassay.cuda.streams.Queue
