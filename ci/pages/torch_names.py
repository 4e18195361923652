"""The table of torch's names, ours, and the differences, for `cuassay.cuda`.

The names are those of torch's reference page of ``torch.cuda``. The code shows whether we have each name, and the
sentences of its docstring that mention torch are the differences.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cuassay import cuda

__all__ = ["ABSENT", "ELSEWHERE", "OURS_ALONE", "TORCH", "page", "rows"]

SOURCE = Path(cuda.__file__).parent

#: The names that torch documents as ``torch.cuda.NAME`` or ``torch.cuda.memory.NAME``.
TORCH = """
StreamContext can_device_access_peer check_error current_blas_handle current_device current_stream cudart default_stream
device device_count device_memory_used device_of get_arch_list get_device_capability get_device_name
get_device_properties get_gencode_flags get_stream_from_external get_sync_debug_mode init ipc_collect is_available
is_bf16_supported is_initialized is_tf32_supported memory_usage set_device set_stream set_sync_debug_mode stream
synchronize utilization temperature power_draw clock_rate AcceleratorError OutOfMemoryError get_rng_state
get_rng_state_all set_rng_state set_rng_state_all manual_seed manual_seed_all seed seed_all initial_seed Stream
ExternalStream Event is_current_stream_capturing graph_pool_handle CUDAGraph graph make_graphed_callables empty_cache
get_per_process_memory_fraction list_gpu_processes mem_get_info memory_stats memory_stats_as_nested_dict
reset_accumulated_memory_stats host_memory_stats host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats
memory_summary memory_snapshot memory_allocated max_memory_allocated reset_max_memory_allocated memory_reserved
max_memory_reserved set_per_process_memory_fraction memory_cached max_memory_cached reset_max_memory_cached
reset_peak_memory_stats reset_peak_host_memory_stats caching_allocator_alloc caching_allocator_delete
get_allocator_backend CUDAPluggableAllocator change_current_allocator MemPool
caching_allocator_enable use_mem_pool
comm.broadcast comm.broadcast_coalesced comm.reduce_add comm.reduce_add_coalesced comm.scatter comm.gather nccl.version
profiler.profile profiler.start profiler.stop nvtx.mark nvtx.range_push nvtx.range_pop nvtx.range nvtx.range_start
nvtx.range_end gds.GdsFile gds.gds_register_buffer gds.gds_deregister_buffer green_contexts.GreenContext
jiterator._create_jit_fn jiterator._create_multi_output_jit_fn _sanitizer.enable_cuda_sanitizer
""".split()

#: Where ours is, by torch's name, if it is not ``cuassay.cuda.NAME``.
ELSEWHERE = {
    "OutOfMemoryError": "cuassay.errors.OutOfMemoryError",
    "StreamContext": "cuassay.cuda.stream",
    "use_mem_pool": "cuassay.cuda.memory.use_mem_pool",
}

#: Modules that have no page in the reference to link to.
WITHOUT_PAGES = ("cuassay.cuda.memory",)

#: Differences that the docstring of one name does not mention, because they hold for several names.
DIFFERENCES = {
    "_sanitizer.enable_cuda_sanitizer": "Accesses are compared by byte ranges; replays of graphs are checked too.",
    "Event": "Events of CuPy, torch and cuda.core are accepted.",
    "ExternalStream": "Streams of CuPy, torch and cuda.core are accepted as they are.",
    "StreamContext": "What `stream` returns has no class of its own.",
    "Stream": "Streams of CuPy, torch and cuda.core are accepted where ours are.",
    "device_count": "It never initialises CUDA in this process, so it is safe before a fork.",
    "is_available": "It never initialises CUDA in this process, so it is safe before a fork.",
    "make_graphed_callables": "There is no backward pass; `replay` reads new inputs where they are.",
    "jiterator._create_jit_fn": "It takes arrays of every device kind; scalars are matched by name.",
    "jiterator._create_multi_output_jit_fn": "As `_create_jit_fn`.",
    "manual_seed": "The numbers depend on seed, offset and index alone, so every GPU model gives the same.",
    "manual_seed_all": "As `manual_seed`.",
    "nvtx.range_end": "An id that is not open raises `ArgumentError`.",
    "profiler.profile": "`cuassay.profile` needs no external tool.",
}

#: The reason why we lack a name, by the beginning of torch's name.
ABSENT = {
    "AcceleratorError": "errors of the driver are `cuassay.errors.DriverError`",
    "check_error": "each call of ours checks its own status",
    "clock_rate": "no readings of sensors; use nvidia-smi",
    "comm.": "no collectives yet",
    "device_memory_used": "no readings of sensors; `mem_get_info` has free and total memory",
    "device_of": "use `cuassay.cuda.device` with the array's device",
    "gds.": "no GPUDirect Storage yet",
    "get_gencode_flags": "kernels are compiled for the device that is present",
    "green_contexts.": "no green contexts",
    "list_gpu_processes": "no list of processes; use nvidia-smi",
    "memory_usage": "no readings of sensors; use nvidia-smi",
    "nccl.": "no collectives yet",
    "power_draw": "no readings of sensors; use nvidia-smi",
    "temperature": "no readings of sensors; use nvidia-smi",
    "utilization": "no readings of sensors; use nvidia-smi",
}

#: The names that we have and torch does not, or has in another module.
OURS_ALONE = sorted(set(cuda.__all__) - set(TORCH))


def page() -> str:
    """Return the whole page."""
    lines = [f"| `{name}` | {_linked(ours)} | {differs} |" for name, ours, differs in rows()]
    alone = ", ".join(_linked(f"cuassay.cuda.{name}") for name in OURS_ALONE)
    return (
        "# torch's names and ours\n\n"
        "Every name of torch's reference page of `torch.cuda`. An empty last cell means that it does what torch's "
        "does, for CuPy arrays.\n\n| `torch.cuda` | ours | what differs |\n|---|---|---|\n" + "\n".join(lines) + "\n\n"
        "`torch.cuda.tunable` has its own page: [cuassay.cuda.tunable](cuassay.cuda.tunable.md). `torch.amp` is "
        "[cuassay.amp](cuassay.amp.md), `torch.optim` [cuassay.optim](cuassay.optim.md).\n\n"
        f"## Ours alone\n\nNot on torch's page, or in another of its modules: {alone}.\n"
    )


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield torch's name, ours or "", and the differences."""
    for name in TORCH:
        reason = next((why for begin, why in ABSENT.items() if name.startswith(begin)), None)
        if reason is None:
            yield name, ELSEWHERE.get(name, f"cuassay.cuda.{name}"), DIFFERENCES.get(name) or _differs(name)
        else:
            yield name, "", reason


def _linked(ours: str) -> str:
    if not ours:
        return ""
    module, _, name = ours.rpartition(".")
    shown = name if module == "cuassay.cuda" else ours.removeprefix("cuassay.")
    return f"`{shown}`" if module in WITHOUT_PAGES else f"[`{shown}`]({module}.md#{ours})"


def _differs(name: str) -> str:
    text = " ".join(_docstrings().get(name, "").split("\n\n    ")[0].split())
    sentences = re.split(r"(?<=\.)\s+", re.sub(r"\b(Parameters|Returns|Raises|Attributes|Examples) -{3,}.*", "", text))
    return " ".join(sentence for sentence in sentences if re.search(r"\btorch\b", sentence)).replace("|", "\\|")


@cache
def _docstrings() -> dict[str, str]:
    """Return the docstring of each function and class of `cuassay.cuda`, read from source without loading a driver."""
    found: dict[str, str] = {}
    for file in sorted(SOURCE.glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.setdefault(node.name, ast.get_docstring(node) or "")
    return found
