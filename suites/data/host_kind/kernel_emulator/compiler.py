"""From CUDA C++ to a shared library of the host.

The text stays as it is but for what C++ lacks: variables in shared memory, PTX, and how many blocks a cluster has.
Kernels that use asynchronous copies, or tensor cores by other instructions than the `mma` of a warp, do not run here.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from cuassay.devices.cuda.launch.source import header_directory, kernel_source
from cuassay.errors import CompileError, LibraryNotFoundError

__all__ = ["library", "runtime", "translated", "why_absent"]

_HERE = Path(__file__).parent
_HEADER, _RUNTIME = _HERE / "cuda.h", _HERE / "runtime.cpp"
_OPTIONS = (
    "-std=c++17", "-O1", "-w", "-fPIC", "-fno-strict-aliasing", "-fno-gnu-unique", "-ffp-contract=off",
    "-fsanitize=bounds-strict", "-nodefaultlibs",  # what it calls is in runtime.cpp, not in a library
)  # fmt: skip

#: A kernel calls a function of runtime.cpp before each load; guards find stores.
_CHECKED = (
    "-fsanitize=kernel-address", "--param=asan-instrumentation-with-call-threshold=0",
    "--param=asan-instrument-writes=0", "--param=asan-stack=0", "--param=asan-globals=0",
)  # fmt: skip

#: An instruction of PTX to the function of `cuda.h` that does the same.
_PTX = {
    "max.NaN.f32": "ptx_max_nan",
    "sqrt.approx.f32": "ptx_sqrt",
    "ex2.approx.ftz.f32": "ptx_exp2_ftz",
    "ex2.approx.f32": "ptx_exp2",
    "lg2.approx.f32": "ptx_log2",
    "lg2.approx.ftz.f32": "ptx_log2_ftz",
    "rcp.approx.f32": "ptx_rcp",
    "rcp.approx.ftz.f32": "ptx_rcp_ftz",
    "ld.global.b": "ptx_load_if",
    "mul.wide.u32": "ptx_mul_wide",
    "%cluster_ctarank": "ptx_cluster_rank",
    r"barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait": "ptx_cluster_barrier",
    "barrier.cluster.arrive": "ptx_cluster_arrive",
    "barrier.cluster.wait": "ptx_cluster_wait",
    "mapa.u64": "ptx_in_block",
    "%cluster_nctarank": "ptx_cluster_size",
    "mapa.shared::cluster.u32": "ptx_shared_of_block",
    "ld.shared::cluster.v4.f32": "ptx_load_shared",
    "ld.global.nc.L1::no_allocate": "ptx_load_once",
    "mma.sync.aligned.m16n8k16": "ptx_multiply(type, ",  # the macro's parameter, the dtype of the operands
    "createpolicy": "ptx_hint",
    "griddepcontrol": "ptx_hint",
    "prefetch.global": "ptx_hint",
    "cp.async": "ptx_absent",
}

_ASM = re.compile(r'asm(?:\s+volatile)?\s*\(\s*"(?P<text>[^"]*)"(?P<operands>(?:[^;"]|"[^"]*")*)\)\s*;')
_OPERAND = re.compile(r'"[=+]?[a-z]"\s*\(((?:[^()]|\([^()]*\))*)\)')
_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?(?P<type>[\w\s]+?)\s+(?P<name>\w+)\[\];")
_STATIC = re.compile(r"__shared__\s+(?:__align__\(\d+\)\s+)?(?P<type>\w+(?:<[^;]*?>)?)\s+(?P<names>[^;]+);")
_CLUSTER = re.compile(
    r"(?P<template>template\s*<[^;{}]*?>)\s*__global__\s+void\s+CLUSTER_OF\((?P<blocks>\w+)\)"
    r"(?:\s*__launch_bounds__\((?:[^()]|\([^()]*\))*\))?\s*(?P<name>\w+)\("
)
_INCLUDE = re.compile(r'^\s*#include "(?P<name>[\w.]+)"', re.MULTILINE)


def why_absent() -> str | None:
    """Why kernels cannot run here, or None."""
    if shutil.which("g++") is None:
        return "g++ is not installed"
    try:
        header_directory()
    except LibraryNotFoundError as error:
        return str(error)
    return None


@cache
def library(text: str, name: str) -> ctypes.CDLL:
    """The kernel `name`, as ``kernel<float, 4>``, of a text; compiled once and kept on disk.

    Raises
    ------
    CompileError
        If g++ refuses the text.
    """
    whole = f'#include "cuda.h"\n{translated(_with_headers(text))}\nHOST_KERNEL({_cluster(text, name)}, {name})\n'
    runtime()
    folder = _compiled()
    path = folder / (hashlib.sha256(whole.encode()).hexdigest()[:24] + ".so")
    if not path.exists():
        source = path.with_suffix(f".{os.getpid()}.cpp")
        source.write_text(whole, encoding="utf-8")
        try:
            _compile(*_CHECKED, "-shared", f"-I{folder}", str(source), "-lgcc", out=path)
        finally:
            source.unlink()
    return ctypes.CDLL(str(path))


# ------------------------------------------------------------------------------------------------ the text


def translated(text: str) -> str:
    """`text` with shared variables and PTX as calls of functions that `cuda.h` has."""
    text = _CLUSTER.sub(r"\g<template> constexpr int cluster_of_\g<name> = \g<blocks>; \g<0>", text)
    text = _DYNAMIC.sub(r"\g<type>* \g<name> = host::dynamic_shared<\g<type>>();", text)
    text = _STATIC.sub(_shared, text)
    return _ASM.sub(_ptx, text)


def _cluster(text: str, name: str) -> str:
    """How many blocks a cluster of a kernel has, as an expression of C++."""
    kernels = {found["name"] for found in _CLUSTER.finditer(text)}
    return f"(cluster_of_{name})" if name.partition("<")[0] in kernels else "1"


def _shared(found: re.Match[str]) -> str:
    declared = []
    for place, one in enumerate(re.split(r",(?![^\[]*\])", found["names"])):
        name, extents = re.fullmatch(r"\s*(\w+)((?:\[[^\]]*\])*)\s*", one).groups()  # type: ignore[union-attr]
        number = 8 * found.start() + place
        declared.append(f"auto& {name} = host::shared<{found['type']}{extents}, {number}>();")
    return " ".join(declared)


def _ptx(found: re.Match[str]) -> str:
    for instruction, name in _PTX.items():
        if instruction in found["text"]:
            opening = name if "(" in name else f"{name}("
            return f"{opening}{', '.join(_OPERAND.findall(found['operands']))});"
    return 'static_assert(sizeof(int) == 0, "this PTX does not run on the host");'


def _with_headers(text: str) -> str:
    """`text` with our own headers in place of their includes, each once."""
    seen: set[str] = set()

    def included(found: re.Match[str]) -> str:
        name = found["name"]
        if name in seen:
            return ""
        seen.add(name)
        return _INCLUDE.sub(included, kernel_source(name).replace("#pragma once", ""))

    return _INCLUDE.sub(included, text)


# ------------------------------------------------------------------------------------------------ g++


@cache
def _folder() -> Path:
    """Where libraries are kept: readable by their user alone, as they are code."""
    folder = Path(tempfile.gettempdir()) / f"cuassay-kernels-on-host-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user; remove it, or set TMPDIR")
    return folder


@cache
def runtime() -> ctypes.CDLL:
    """What runs the threads, loaded where libraries of kernels find it."""
    return ctypes.CDLL(str(_compiled() / "runtime.so"), mode=ctypes.RTLD_GLOBAL)


@cache
def _compiled() -> Path:
    """The folder of `cuda.h` and of the runtime, compiled once."""
    texts = _HEADER.read_bytes() + _RUNTIME.read_bytes()
    folder = _folder() / hashlib.sha256(texts + " ".join([*_OPTIONS, *_CHECKED, *_include()]).encode()).hexdigest()[:16]
    made = folder / "runtime.so"
    if not made.exists():
        folder.mkdir(exist_ok=True)
        shutil.copy(_HEADER, folder / "cuda.h")
        _compile(*_CHECKED, "-x", "c++-header", str(folder / "cuda.h"), out=folder / "cuda.h.gch")
        _compile("-shared", f"-I{folder}", str(_RUNTIME), "-lstdc++", "-lm", "-lc", "-lgcc", out=made)
    return folder


def _include() -> tuple[str, str]:
    return f"-I{_HEADER.parent}", f"-I{header_directory()}"


def _compile(*arguments: str, out: Path) -> None:
    made = out.with_suffix(f".{os.getpid()}")
    command = ["g++", *_OPTIONS, *arguments, *_include(), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"g++ does not compile the kernel:\n{done.stderr[:4000]}")
    made.replace(out)
