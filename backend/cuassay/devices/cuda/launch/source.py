"""From CUDA C++ to a cubin: where sources and headers are, which options NVRTC gets, and the disk cache.

The result is always a cubin for the device's architecture, never PTX: PTX from a compiler newer than the driver does
not load. `launch` loads and launches it.

`cuda.core.Program` and its caches (1.2.2) do not replace this module. With a cache they reject name expressions, which
instantiate every kernel here. They do not notice changed headers, and they keep no log, so there would be no
`Resources`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from cuassay.core import settings
from cuassay.devices.cuda.driver.check import check, guarded
from cuassay.errors import CompileError, LibraryNotFoundError

__all__ = [
    "ARCHITECTURES",
    "Compiled",
    "Resources",
    "architecture",
    "cache_key",
    "compile_source",
    "compiler_version",
    "header_directory",
    "kernel_source",
    "kernels_directory",
]

#: Increased whenever the stored data, or the way it is compiled, changes.
_SCHEMA = 3

#: The architectures that every kernel of cuassay must compile for.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

_OPTIONS = ("--std=c++17", "--ptxas-options=-v")
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one kernel, as ptxas reports them; sizes in bytes a thread, shared memory in bytes a block."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin, the lowered name of each name expression, the compiler's log and each kernel's resources."""

    cubin: bytes
    names: dict[str, str]
    log: str
    resources: dict[str, Resources]

    def __repr__(self) -> str:
        return f"Compiled({', '.join(self.names)}, {len(self.cubin):,} bytes)"


def kernels_directory() -> Path:
    """Return the folder of cuassay's kernels; wheels are installed unpacked, so it exists on disk."""
    return Path(str(resources.files("cuassay.devices.cuda") / "kernels"))


def kernel_source(file: str) -> str:
    """Return the text of one of cuassay's ``.cu`` files."""
    return (resources.files("cuassay.devices.cuda") / "kernels" / file).read_text(encoding="utf-8")


@cache
def _without_cache() -> tuple[str, ...]:
    """Return the option that turns off NVRTC 13's cache: cached programs have an empty log, hence no resources."""
    return ("--no-cache",) if int(compiler_version().partition(".")[0]) >= 13 else ()


@cache
def compiler_version() -> str:
    """Return NVRTC's version, such as ``13.0``.

    Raises
    ------
    LibraryNotFoundError
        If NVRTC is absent.
    """
    with guarded("nvrtc"):
        from cuda.bindings import nvrtc

        major, minor = check(nvrtc.nvrtcVersion(), "asking NVRTC for its version")
    return f"{major}.{minor}"


@cache
def _supported() -> tuple[int, ...]:
    with guarded("nvrtc"):
        from cuda.bindings import nvrtc

        answer = check(nvrtc.nvrtcGetSupportedArchs(), "asking NVRTC for its architectures")
    # Some versions of cuda.bindings also return the number of architectures.
    return tuple(answer[1] if isinstance(answer, tuple) else answer)


def architecture(major: int, minor: int) -> str:
    """Return the newest architecture that NVRTC knows whose cubin runs on compute capability `major`.`minor`.

    Raises
    ------
    CompileError
        If there is none; a cubin runs only within its own major version.
    """
    fitting = [arch for arch in _supported() if arch // 10 == major and arch % 10 <= minor]
    if not fitting:
        raise CompileError(
            f"NVRTC {compiler_version()} cannot compile for compute capability {major}.{minor}; it knows "
            f"{', '.join(f'sm_{arch}' for arch in _supported())}; install CUDA toolkit wheels that support this GPU"
        )
    return f"sm_{max(fitting)}"


@cache
def header_directory() -> Path:
    """Return the folder of ``cuda_fp16.h``: the toolkit's wheel, else CUDA_HOME, CUDA_PATH or /usr/local/cuda.

    Raises
    ------
    LibraryNotFoundError
        If none of these has it.
    """
    places = tuple(_header_places())
    for place in places:
        if (place / "cuda_fp16.h").is_file():
            return place
    raise LibraryNotFoundError(
        f"cuda_fp16.h was not found; looked in {', '.join(map(str, places))}; "
        "install nvidia-cuda-runtime, or set CUDA_HOME to a toolkit"
    )


def _header_places() -> Iterable[Path]:
    try:
        from importlib.util import find_spec

        spec = find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    for root in (spec.submodule_search_locations if spec else None) or ():
        yield from (Path(root) / "cu13/include", Path(root) / "cuda_runtime/include")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "include"
    yield Path("/usr/local/cuda/include")


@cache
def _header_version() -> str:
    match = re.search(r"#define\s+CUDA_VERSION\s+(\d+)", _text(header_directory() / "cuda.h"))
    return match[1] if match else "unknown"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def compile_source(
    source: str,
    *,
    name_expressions: Sequence[str],
    arch: str,
    options: Sequence[str] = (),
    include: Sequence[str | Path] = (),
    file: str = "kernel.cu",
) -> Compiled:
    """Compile `source`, or load the result from the disk cache.

    Parameters
    ----------
    source : str
        CUDA C++.
    name_expressions : sequence of str
        The kernels to instantiate, as C++ spells them: ``"scale"``, ``"scale<float, 4>"``.
    arch : str
        The architecture, such as ``"sm_90"``; no device is needed.
    options : sequence of str
        Further options for NVRTC.
    include : sequence of path
        Folders to search for headers before cuassay's and the toolkit's.
    file : str
        The name of the source in the compiler's messages.

    Raises
    ------
    CompileError
        If the source does not compile; the message shows the first error with its source line, and ``log`` is the whole
        log.
    LibraryNotFoundError
        If NVRTC or the toolkit's headers are absent.
    """
    folders = (*map(str, include), str(kernels_directory()))
    key = cache_key(source, name_expressions=name_expressions, arch=arch, options=options, include=folders)
    found = _load(key)
    if found is None:
        told = (f"--gpu-architecture={arch}", *_OPTIONS, *_without_cache(), *options)
        searched = [f"--include-path={folder}" for folder in (*folders, header_directory())]
        found = _compile(source, name_expressions, (*told, *searched), file)
        _store(key, found)
    return found


def cache_key(
    source: str,
    *,
    name_expressions: Sequence[str],
    arch: str,
    options: Sequence[str] = (),
    include: Sequence[str | Path] = (),
) -> str:
    """Return the digest of everything the result depends on, including the text of included headers.

    Parameters are those of `compile_source`.
    """
    facts = {
        "schema": _SCHEMA,
        "source": source,
        "headers": dict(_headers(source, tuple(map(Path, include)))),
        "names": list(name_expressions),
        "arch": arch,
        "options": [*_OPTIONS, *options],
        "compiler": compiler_version(),
        "toolkit": _header_version(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _headers(source: str, folders: tuple[Path, ...]) -> Iterable[tuple[str, str]]:
    """Yield every included header that is in `folders`; the toolkit's headers are represented by its version."""
    waiting, seen = _INCLUDE.findall(source), set()
    while waiting:
        name = waiting.pop()
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if name in seen or path is None:
            continue
        seen.add(name)
        text = _text(path)
        waiting += _INCLUDE.findall(text)
        yield name, text


def _compile(source: str, names: Sequence[str], options: Sequence[str], file: str) -> Compiled:
    from cuda.bindings import nvrtc

    program = check(nvrtc.nvrtcCreateProgram(source.encode(), file.encode(), 0, [], []), f"reading {file}")
    try:
        for name in names:
            check(nvrtc.nvrtcAddNameExpression(program, name.encode()), f"asking for kernel {name!r} of {file}")
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _log(program)
        if status:
            raise _compile_error(source, names, file, log, status.name)
        lowered = {name: _lowered(program, name, file) for name in names}
        nbytes = check(nvrtc.nvrtcGetCUBINSize(program), "measuring the cubin")
        cubin = _room(nbytes)
        check(nvrtc.nvrtcGetCUBIN(program, cubin), "reading the cubin")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Compiled(cubin[:nbytes], lowered, log, _resources(log))


def _room(nbytes: int) -> bytes:
    """Return bytes for NVRTC to write into, one more than requested.

    CPython has a single object for each bytes value of length 1. When NVRTC wrote the final zero of an empty log into
    ``b" " * 1``, every b" " in the process became a zero, and f-strings compiled afterwards lost the spaces between
    their parts.
    """
    return bytes(nbytes + 1)


def _log(program: Any) -> str:
    from cuda.bindings import nvrtc

    log = _room(check(nvrtc.nvrtcGetProgramLogSize(program), "measuring the compiler's log"))
    check(nvrtc.nvrtcGetProgramLog(program, log), "reading the compiler's log")
    return str(log.rstrip(b"\0 "), "utf-8", "replace")


def _lowered(program: Any, name: str, file: str) -> str:
    from cuda.bindings import nvrtc

    lowered = check(nvrtc.nvrtcGetLoweredName(program, name.encode()), f"finding kernel {name!r} in {file}")
    return str(lowered.decode())


def _compile_error(source: str, names: Sequence[str], file: str, log: str, status: str) -> CompileError:
    """Return an error with the first message, its source line, and advice."""
    first = next((line for line in log.splitlines() if "error" in line), log.partition("\n")[0] or status)
    if first.startswith("__nv_name_map"):  # NVRTC looks up name expressions in this file of its own
        missing = next((name for name in names if re.search(rf"{re.escape(name)}\s*$", log, re.MULTILINE)), names[0])
        return CompileError(
            f"{file} has no kernel {missing!r}; give a name as C++ spells it, such as 'scale<float>'", log=log
        )
    place = re.match(rf"{re.escape(file)}\((\d+)\)", first)
    lines = source.splitlines()
    shown = ""
    if place and 0 < int(place[1]) <= len(lines):
        shown = f"\n    {place[1]} | {lines[int(place[1]) - 1].strip()}\n"
    return CompileError(
        f"{file} ({', '.join(names)}) does not compile: {first}{shown or '; '}correct the source; "
        "the exception's `log` has the compiler's whole text",
        log=log,
    )


_FUNCTION = re.compile(
    r"Function properties for (?P<name>\S+)\n[^\n]*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\s+"
    r"ptxas info\s*: Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)


def _resources(log: str) -> dict[str, Resources]:
    found = {}
    for match in _FUNCTION.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        found[match["name"]] = Resources(
            registers=int(match["registers"]),
            stack=int(match["stack"]),
            spill_stores=int(match["stores"]),
            spill_loads=int(match["loads"]),
            shared=int(shared[1]) if shared else 0,
        )
    return found


# The file format: 32 bytes of digest, then a line of JSON, then the cubin.


def _path(key: str) -> Path:
    return Path(settings.get("CUASSAY_CACHE_DIR")) / "kernels" / f"{key}.kernel"


def _load(key: str) -> Compiled | None:
    """Return the stored result, or None if it is absent, incomplete or in another format."""
    try:
        data = _path(key).read_bytes()
    except OSError:
        return None
    digest, payload = data[:32], data[32:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    head, _, cubin = payload.partition(b"\n")
    facts = json.loads(head)
    resources = {name: Resources(**numbers) for name, numbers in facts["resources"].items()}
    return Compiled(cubin, facts["names"], facts["log"], resources)


def _store(key: str, compiled: Compiled) -> None:
    """Write to a temporary file in the same folder and rename it; a folder that is not writable is ignored."""
    resources = {name: asdict(numbers) for name, numbers in compiled.resources.items()}
    head = json.dumps({"names": compiled.names, "log": compiled.log, "resources": resources}).encode()
    payload = head + b"\n" + compiled.cubin
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(payload).digest() + payload)
        Path(file.name).replace(path)
    except OSError:
        return
