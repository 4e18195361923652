"""The files that a confined candidate sees: Python, libraries, this package without declarations, devices, scratch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cuassay
from cuassay.judging.limits import JailOptions

__all__ = ["Places", "places"]

_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache")
_PROGRAMS = ("/bin", "/usr/bin", "/usr/local/bin", "/usr/libexec", "/usr/include")
_CUDA = ("/usr/local/cuda", "/usr/local/nvidia", "/sys", "/etc/OpenCL", "/etc/vulkan")
_CUDA_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

#: Subpackages with declarations of the package's own operations, which contain the answers.
_DECLARATIONS = ("testing",)


@dataclass(frozen=True, slots=True)
class Places:
    """Files of the machine, by real path.

    Attributes
    ----------
    read : tuple of str
        Files and folders that may be read.
    names : tuple of str
        Symbolic links through which some of `read` are known.
    hidden : tuple of str
        Files and folders inside `read` that must not be read.
    devices : tuple of str
        Device files.
    """

    read: tuple[str, ...]
    names: tuple[str, ...]
    hidden: tuple[str, ...]
    devices: tuple[str, ...]

    def hidden_at(self, place: str) -> Iterator[str]:
        """Yield the paths below `place`, from `read` or `names`, that must be hidden."""
        real = os.path.realpath(place)
        for one in self.hidden:
            if _is_inside(one, real):
                yield place + one[len(real) :]

    def granted(self) -> tuple[list[str], list[str]]:
        """Return the paths to read as a whole, and the folders to list only, which surround hidden files."""
        whole: list[str] = []
        listed: list[str] = []
        for one in self.read:
            self._grant(Path(one), whole, listed)
        return whole, listed

    def _grant(self, path: Path, whole: list[str], listed: list[str]) -> None:
        if any(_is_inside(str(path), one) for one in self.hidden):
            return
        if not any(_is_inside(one, str(path)) for one in self.hidden):
            whole.append(str(path))
            return
        listed.append(str(path))
        for entry in path.iterdir():
            if not entry.is_symlink():  # its target has its own rule, or none
                self._grant(entry, whole, listed)


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def places(kind: str, options: JailOptions) -> Places:
    """Return the files that a candidate on a device of this kind sees."""
    package = Path(cuassay.__file__).parent
    asked = [
        *_LIBRARIES,
        *(_PROGRAMS if options.executes else ()),
        *(_of_cuda() if kind == "cuda" else ()),
        *(sys.prefix, sys.base_prefix, sys.base_exec_prefix),
        *_import_roots(),
        *options.readable,
    ]
    known = [one for one in asked if Path(one).exists()]
    read = _outermost(map(os.path.realpath, known))
    names = _outermost(one for one in known if os.path.realpath(one) != one)
    hidden = [os.path.realpath(one) for one in options.hidden]
    hidden += [str(package.resolve() / room) for room in _DECLARATIONS]
    nodes = [*_DEVICES, *(map(str, Path("/dev").glob("nvidia*")) if kind == "cuda" else ())]
    return Places(read, names, tuple(hidden), tuple(one for one in nodes if Path(one).exists()))


def _of_cuda() -> Iterator[str]:
    yield from _CUDA
    for name in _CUDA_VARIABLES:
        yield from (one for one in os.environ.get(name, "").split(":") if one.startswith("/"))


def _import_roots() -> list[str]:
    """Return the folders from which this package, NumPy and their needs were imported; they hold no user files."""
    found = (sys.modules.get(name) for name in ("cuassay", "numpy", "ml_dtypes", "cupy"))
    files = (getattr(one, "__file__", None) for one in found)
    return [str(Path(file).parent) for file in files if file]


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Drop repetitions, and paths inside other paths."""
    kept: Sequence[str] = ()
    for path in sorted(set(paths), key=len):
        if not any(_is_inside(path, one) for one in kept):
            kept = (*kept, path)
    return tuple(kept)
