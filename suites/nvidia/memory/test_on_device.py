"""Device memory on a CUDA device: CuPy on our allocator, captures, pluggable sources, other processes and libraries."""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuassay
from cuassay import devices
from cuassay.cuda import memory
from cuassay.errors import ArgumentError, DeviceError, LibraryNotFoundError, OutOfMemoryError

if not cuassay.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

import cupy

from cuassay.devices.cuda.memory import allocator as allocators
from cuassay.devices.cuda.memory import hook, pools

MIB = 2**20


def filled(nbytes: int, value: int = 7) -> Any:
    return cuassay.full(nbytes, value, "uint8", "cuda:0")


class TestArrays:
    def test_an_array_and_its_views_hold_one_block(self) -> None:
        array = filled(4096)
        block = hook.block_of(array)
        view = array[100:200].reshape(10, 10)
        del array

        assert hook.block_of(view) is block
        assert block.is_live
        assert (view.get() == 7).all()
        del view
        assert not block.is_live

    def test_a_dropped_array_is_the_next_ones_memory(self) -> None:
        address = filled(12345).data.ptr

        assert filled(12345).data.ptr == address

    @pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 1, 3), (2, 0)], ids=str)
    def test_it_is_as_cupys_own_constructor_makes_it(self, shape: tuple[int, ...]) -> None:
        ours = cuassay.empty(shape, "float16", "cuda:0")
        theirs = cupy.ndarray(shape, "float16", ours.data)

        for fact in ("__class__", "shape", "strides", "dtype", "size", "nbytes", "ndim"):
            assert getattr(ours, fact) == getattr(theirs, fact)
        assert (ours.flags.c_contiguous, ours.flags.f_contiguous) == (
            theirs.flags.c_contiguous,
            theirs.flags.f_contiguous,
        )

    def test_an_array_without_elements_takes_nothing(self) -> None:
        before = memory.memory_allocated()

        array = cuassay.empty((0, 3), "float32", "cuda:0")

        assert array.data.ptr == 0
        assert memory.memory_allocated() == before

    @pytest.mark.parametrize("kind", ["ours", "cupy", "address", "torch", "cuda.core"])
    def test_the_stream_may_be_of_many_kinds(self, kind: str) -> None:
        stream, address = made_stream(kind)

        array = cuassay.empty(1000, "float32", "cuda:0", stream=stream)

        assert hook.block_of(array).stream == address

    @pytest.mark.parametrize("stream", ["left", -1, 1.5, 1_000_000, 2**70], ids=repr)
    def test_what_is_no_stream_is_refused(self, stream: Any) -> None:
        with pytest.raises(ArgumentError, match="is not a CUDA stream"):
            cuassay.empty(10, "float32", "cuda:0", stream=stream)

    def test_a_block_other_streams_use_waits_for_them(self) -> None:
        own, other = cuassay.cuda.Stream(), cuassay.cuda.Stream()
        array = cuassay.empty(3 * MIB, "uint8", "cuda:0", stream=own)
        block = hook.block_of(array)
        memory.record_stream(array, other)

        del array

        assert block.is_pending
        own.synchronize()
        other.synchronize()
        memory.empty_cache()
        assert not block.is_pending

    def test_memory_of_others_cannot_be_recorded(self) -> None:
        with pytest.raises(ArgumentError, match="this array's memory is another allocator's"):
            memory.record_stream(cupy.zeros(3), cuassay.cuda.Stream())


def made_stream(kind: str) -> tuple[Any, int]:
    if kind == "torch":
        torch = pytest.importorskip("torch", reason="torch is not installed")
        stream = torch.cuda.Stream()
        return stream, stream.cuda_stream
    if kind == "cuda.core":
        core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
        device = core.Device(0)
        device.set_current()
        stream = device.create_stream()
        return stream, int(stream.handle)
    stream = cupy.cuda.Stream(non_blocking=True) if kind == "cupy" else cuassay.cuda.Stream()
    return (stream.ptr, stream.ptr) if kind == "address" else (stream, stream.ptr)


class TestWithCupy:
    @pytest.fixture
    def _hooked(self) -> Iterator[None]:
        memory.use_with_cupy()
        yield
        memory.use_with_cupy(False)

    @pytest.mark.usefixtures("_hooked")
    def test_every_array_is_ours_in_every_thread(self) -> None:
        found = []
        thread = threading.Thread(target=lambda: found.append(hook.block_of(cupy.arange(10.0) + 1)))
        thread.start()
        thread.join()

        assert hook.block_of(cupy.zeros(1000)) is not None
        assert found[0] is not None

    @pytest.mark.usefixtures("_hooked")
    def test_the_current_stream_is_the_blocks(self) -> None:
        stream = cuassay.cuda.Stream()
        with cuassay.cuda.stream(stream):
            array = cupy.zeros(1000)

        assert hook.block_of(array).stream == stream.ptr

    def test_without_it_cupy_keeps_its_own_pool(self) -> None:
        assert hook.block_of(cupy.zeros(1000)) is None

    def test_dead_cycles_give_their_memory_back(self) -> None:
        gc.collect()  # of the cycles that other tests left
        before = memory.memory_allocated()
        cycle: list[Any] = [filled(MIB)]
        cycle.append(cycle)
        del cycle

        gc.collect()

        assert memory.memory_allocated() == before


class TestPools:
    def test_cupys_arrays_of_this_thread_come_from_it(self) -> None:
        pool, elsewhere = memory.MemPool(), []
        thread = threading.Thread(target=lambda: elsewhere.append(hook.block_of(filled(10)).stream_pool.pool.id))

        with memory.use_mem_pool(pool):
            arrays = [cupy.zeros(1000), filled(1000)]
            owners = pool.use_count()
            thread.start()
            thread.join()

        assert {hook.block_of(array).stream_pool.pool.id for array in arrays} == {pool.id}
        assert elsewhere == [(0, 0)]
        assert (owners, pool.use_count()) == (2, 1)
        assert pool.snapshot()

    def test_arrays_outlive_it_and_its_memory_goes_back_with_the_last(self) -> None:
        pool = memory.MemPool()
        with memory.use_mem_pool(pool):
            array = filled(3 * MIB)
        number = pool.id
        del pool
        gc.collect()
        memory.empty_cache()

        assert (array.get() == 7).all()
        assert memory.memory_snapshot(number)
        del array
        memory.empty_cache()
        assert not memory.memory_snapshot(number)

    @pytest.mark.parametrize("through", [pickle.dumps, copy.copy, copy.deepcopy])
    @pytest.mark.parametrize("make", [memory.MemPool, lambda: allocators.allocator(0)], ids=["pool", "allocator"])
    def test_a_pool_and_an_allocator_are_neither_pickled_nor_copied(
        self, make: Callable[[], Any], through: Callable[[Any], Any]
    ) -> None:
        with pytest.raises(TypeError, match=r"\w+\(.*cuda:0.*\) belongs to this process"):
            through(make())

    def test_an_unknown_id_is_refused(self) -> None:
        with pytest.raises(ArgumentError, match="has no pool"), memory.use_mem_pool((0, 99999)):
            pass

    def test_a_captures_memory_is_the_pools_and_the_replay_is_right(self) -> None:
        pool, stream = memory.MemPool(), cuassay.cuda.Stream()
        ones = cuassay.full(1000, 1.0, "float32", "cuda:0")
        cupy.cuda.Device().synchronize()

        with stream, pools.capturing(pool):
            stream.begin_capture()
            once = ones + 1
            large = cuassay.empty(50 * MIB, "uint8", "cuda:0")
            thrice = once * 3
            memory.empty_cache()
            graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()

        assert {hook.block_of(array).stream_pool.pool.id for array in (once, large, thrice)} == {pool.id}
        assert (thrice.get() == 6).all()


class TestWithoutCaching:
    def test_each_array_is_an_allocation_of_its_own(self) -> None:
        with memory.caching_allocator_disabled():
            array = cuassay.full(1000, 2, "uint8", "cuda:0")
            block = hook.block_of(array)

        assert block.nbytes == 1000
        assert (array.get() == 2).all()
        del array
        cached = filled(1000)
        assert hook.block_of(cached).nbytes >= 1024

    def test_a_capture_uses_its_own_pool_and_gives_nothing_back(self) -> None:
        with memory.caching_allocator_disabled():
            x = cuassay.full(1000, 2, "float32", "cuda:0")
            freed = cuassay.full(1000, 1, "float32", "cuda:0")
            graph, others = cuassay.cuda.CUDAGraph(), list[Any]()
            with cuassay.cuda.graph(graph):
                del freed
                aside = threading.Thread(target=lambda: others.append(cuassay.empty(1000, "float32", "cuda:0")))
                aside.start()
                aside.join()
                doubled = cuassay.ops.add(x, x)
                tripled = cuassay.ops.add(doubled, x)
                del doubled  # the graph writes there at each replay
            nines = [cuassay.full(1000, 9, "float32", "cuda:0") for _ in range(10)]
            graph.replay()

        assert len(others) == 1
        assert hook.block_of(tripled).stream_pool.pool.is_private
        assert (tripled.get() == 6).all()
        assert all((nine.get() == 9).all() for nine in nines)


LIBRARY = """
#include <cuda_runtime_api.h>
#include <sys/types.h>
static long live;
extern "C" void* take(ssize_t size, int device, cudaStream_t stream) {
    void* address = 0;
    if (cudaMalloc(&address, size)) return 0;
    ++live;
    return address;
}
extern "C" void give(void* address, ssize_t size, int device, cudaStream_t stream) { --live; cudaFree(address); }
extern "C" void* none(ssize_t size, int device, cudaStream_t stream) { return 0; }
extern "C" long count() { return live; }
"""


@cache
def built(folder: Path) -> Path:
    """The library, compiled once."""
    (folder / "take.cu").write_text(LIBRARY)
    command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", folder / "take.cu", "-o", folder / "libtake.so"]
    subprocess.run(command, check=True)
    return folder / "libtake.so"


@pytest.fixture
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    return built(tmp_path_factory.getbasetemp())


class TestPluggable:
    @pytest.mark.parametrize("way", ["names", "addresses"])
    def test_a_library_serves_a_pool(self, library: Path, way: str) -> None:
        loaded = ctypes.CDLL(str(library))
        functions: Any = (str(library), "take", "give")
        if way == "addresses":
            functions = tuple(ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value for name in ("take", "give"))
        pool = memory.MemPool(memory.CUDAPluggableAllocator(*functions).allocator())
        with memory.use_mem_pool(pool):
            array = filled(3 * MIB)

        assert loaded.count() == 1
        assert (array.get() == 7).all()
        del array, pool
        gc.collect()
        memory.empty_cache()
        assert loaded.count() == 0

    def test_null_is_out_of_memory(self, library: Path) -> None:
        pool = memory.MemPool(memory.CUDAPluggableAllocator(str(library), "none", "give"))

        with memory.use_mem_pool(pool), pytest.raises(OutOfMemoryError):
            filled(3 * MIB)

    def test_a_change_keeps_figures_and_each_block_goes_where_it_came_from(self) -> None:
        calls: list[tuple[str, int]] = []
        former = filled(5 * MIB)

        def take(nbytes: int, device: int, stream: int) -> int:
            calls.append(("take", nbytes))
            return int(cupy.cuda.runtime.malloc(nbytes))

        def give(address: int, nbytes: int, device: int, stream: int) -> None:
            calls.append(("give", nbytes))
            cupy.cuda.runtime.free(address)

        memory.change_current_allocator(memory.CUDAPluggableAllocator(take, give))
        try:
            array = filled(3 * MIB)
            assert memory.get_allocator_backend() == "pluggable"
            assert memory.memory_allocated() == 3 * MIB
            assert calls[0][0] == "take"
        finally:
            memory.change_current_allocator(None)

        assert memory.get_allocator_backend() == "native"
        assert (former.get() == 7).all()
        del former
        assert (array.get() == 7).all()
        del array
        memory.empty_cache()
        assert sum(nbytes if call == "take" else -nbytes for call, nbytes in calls) == 0

    def test_the_wait_before_a_segment_goes_back_is_not_one_of_the_callers(self) -> None:
        """Stopped by the sync debug mode, it would leave the segment neither here nor there."""
        given: list[int] = []

        def take(nbytes: int, device: int, stream: int) -> int:
            return int(cupy.cuda.runtime.malloc(nbytes))

        def give(address: int, nbytes: int, device: int, stream: int) -> None:
            given.append(nbytes)
            cupy.cuda.runtime.free(address)

        pool = memory.MemPool(memory.CUDAPluggableAllocator(take, give))
        with memory.use_mem_pool(pool):
            array = filled(3 * MIB)

        cuassay.cuda.set_sync_debug_mode("error")
        try:
            del array, pool
            gc.collect()
            memory.empty_cache()
        finally:
            cuassay.cuda.set_sync_debug_mode("default")

        assert sum(given) >= 3 * MIB

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            (("/nowhere.so", "take", "give"), LibraryNotFoundError, "cannot be loaded"),
            ((3.5, 1), ArgumentError, "is not a function"),
            ((print, None), ArgumentError, "None is not a function"),
        ],
        ids=["path", "number", "none"],
    )
    def test_what_is_no_allocator_is_refused(
        self, arguments: tuple[Any, ...], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            memory.CUDAPluggableAllocator(*arguments)

    def test_a_missing_name_is_told(self, library: Path) -> None:
        with pytest.raises(LibraryNotFoundError, match="has no function 'nothing'"):
            memory.CUDAPluggableAllocator(str(library), "take", "nothing")


IMPORTER = """
import pickle, sys
from cuassay.cuda import memory
handle = pickle.loads(sys.stdin.buffer.read())
array = memory.open_ipc_handle(handle)
print(int(array.sum()))
array += 1
del array
try:
    memory.open_ipc_handle(handle)
    print("opened twice")
except Exception as error:
    print(type(error).__name__)
"""


class TestOtherProcesses:
    def exported(self) -> Any:
        with memory.use_mem_pool(memory.MemPool(one_handle=True)):
            filled(1000)
            return cuassay.full((100, 10), 3, "int32", "cuda:0")[10:20]

    def test_an_array_is_read_and_written_elsewhere_and_kept_meanwhile(self) -> None:
        array = self.exported()
        block, handle = hook.block_of(array), memory.ipc_handle(array)
        host = array.base
        del array
        gc.collect()

        assert block.is_live
        run = subprocess.run(
            [sys.executable, "-c", IMPORTER], input=pickle.dumps(handle), capture_output=True, check=False
        )

        assert run.stdout.split() == [b"300", b"ArgumentError"], run.stderr
        del host
        memory.ipc_collect()
        assert not block.is_live

    def test_an_importer_that_dies_holds_nothing(self) -> None:
        array = self.exported()
        block, handle = hook.block_of(array), memory.ipc_handle(array)
        del array
        code = IMPORTER.replace("array += 1", "import os; os._exit(1)")

        subprocess.run([sys.executable, "-c", code], input=pickle.dumps(handle), capture_output=True, check=False)
        gc.collect()
        memory.ipc_collect()

        assert not block.is_live

    def test_the_exporter_itself_cannot_open_it(self) -> None:
        array = self.exported()

        with pytest.raises(DeviceError, match="only in another process"):
            memory.open_ipc_handle(memory.ipc_handle(array))

        memory.ipc_collect()

    def test_memory_in_pages_is_refused(self) -> None:
        array = filled(64 * MIB)
        if not allocators.allocator(0).config.expandable_segments:
            pytest.skip("expandable_segments is off")

        with pytest.raises(ArgumentError, match="lies in pages"):
            memory.ipc_handle(array)

    def test_memory_of_others_is_refused(self) -> None:
        with pytest.raises(ArgumentError, match="in cuassay's memory"):
            memory.ipc_handle(cupy.zeros(3))

    def test_a_forked_child_is_refused_and_its_frees_do_no_harm(self) -> None:
        array = filled(1000)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            told = b""
            for attempt in (lambda: filled(10), lambda: hook.allocate(10)):
                try:
                    attempt()
                    told += b"allocated "
                except Exception as error:  # noqa: BLE001  whatever it is goes to the parent
                    told += type(error).__name__.encode() + b" "
            del array
            os.write(write, told)
            os._exit(0)
        os.waitpid(child, 0)

        assert os.read(read, 1000).split() == [b"ForkError", b"ForkError"]
        assert (array.get() == 7).all()


NUMBA = """
import numpy as np
from cuassay.cuda import memory
memory.use_with_numba()
from numba import cuda
before = memory.memory_allocated()
array = cuda.to_device(np.arange(1000))
print(memory.memory_allocated() - before, array.copy_to_host().sum(), *cuda.current_context().get_memory_info()[:0])
del array
print(memory.memory_allocated() - before)
"""


class TestOtherLibraries:
    def test_cuda_core_takes_its_buffers_from_us(self) -> None:
        core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
        device = core.Device(0)
        device.set_current()
        resource, before = memory.memory_resource(), memory.memory_allocated()
        stream = device.create_stream()

        buffer = resource.allocate(5000, stream=stream)

        assert memory.memory_allocated() - before == 5120
        assert (buffer.size, resource.device_id, resource.is_host_accessible) == (5000, 0, False)
        buffer.close()
        stream.sync()
        assert memory.memory_allocated() == before

    def test_a_buffer_closed_on_another_stream_is_read_there_before_it_is_written(self) -> None:
        core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
        device, runtime, nbytes = core.Device(0), cupy.cuda.runtime, 4 * MIB
        device.set_current()
        resource, (first, second) = memory.memory_resource(), (device.create_stream() for _ in range(2))
        kept = filled(nbytes, 0)
        buffer = resource.allocate(nbytes, stream=first)
        runtime.memset(int(buffer.handle), 7, nbytes)
        device.sync()
        with cupy.cuda.Stream.from_external(second) as reading:
            devices.backend("cuda").spin(0, 400_000_000)
            runtime.memcpyAsync(kept.data.ptr, int(buffer.handle), nbytes, runtime.memcpyDeviceToDevice, reading.ptr)

        buffer.close(stream=second)
        given = [resource.allocate(nbytes, stream=first) for _ in range(4)]
        for one in given:
            runtime.memsetAsync(int(one.handle), 9, nbytes, int(first.handle))
        device.sync()

        assert bool((kept == 7).all())
        for one in given:
            one.close()

    def test_cuda_cores_device_may_have_it_as_its_own(self) -> None:
        core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
        device = core.Device(0)
        device.set_current()
        former = device.memory_resource
        device.memory_resource = memory.memory_resource()
        try:
            before = memory.memory_allocated()
            buffer = device.allocate(1024, stream=device.default_stream)
            assert memory.memory_allocated() - before == 1024
            buffer.close()
        finally:
            device.memory_resource = former

    def test_numba_takes_its_arrays_from_us(self) -> None:
        pytest.importorskip("numba.cuda", reason="Numba is not installed")

        run = subprocess.run([sys.executable, "-c", NUMBA], capture_output=True, text=True, check=False)

        assert run.stdout.split() == ["8192", str(np.arange(1000).sum()), "0"], run.stderr
