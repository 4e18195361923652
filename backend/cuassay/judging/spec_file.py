"""Load the trusted declaration that ``SPEC.py::name`` names."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import cuassay
from cuassay.core.nearest import did_you_mean
from cuassay.errors import SpecError
from cuassay.judging.protocol import MAX_OUTPUTS
from cuassay.testing.opspec import OpSpec

__all__ = ["Declaration", "load_declaration"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declaration and its file.

    Attributes
    ----------
    spec : OpSpec
        The declaration; if each result has its own, that of the first result.
    path : Path
        Its file.
    name : str
        Its name in that file.
    digest : str
        The first 16 digits of the file's SHA-256.
    files : tuple of Path
        The declaration's file and the user's files that it imports. A candidate must not read them.
    given : str
        The file as given to the command; empty if it was loaded otherwise.
    others : tuple of OpSpec
        The declarations of the other results, if each has its own.
    """

    spec: OpSpec
    path: Path
    name: str
    digest: str
    files: tuple[Path, ...] = ()
    given: str = ""
    others: tuple[OpSpec, ...] = ()

    @property
    def specs(self) -> tuple[OpSpec, ...]:
        """The spec, or one spec for each result."""
        return (self.spec, *self.others)

    @property
    def target(self) -> str:
        """The declaration in the form that the command takes."""
        return f"{self.path}::{self.name}"


def load_declaration(target: str) -> Declaration:
    """Load the `OpSpec`, or the tests that `conformance` made of one, that ``SPEC.py::name`` names.

    The name may be omitted if the file has one declaration. The file is trusted, and is imported here. A tuple of specs
    declares several results, one by each spec: the function of each returns only its result.

    Raises
    ------
    SpecError
        If there is no such file or name, if it is not a declaration, or if it cannot judge a candidate: it has no
        separate reference, its op returns nothing, it works in place, or it has too many results.
    """
    file, _, name = target.partition("::")
    path = Path(file).resolve()
    if not path.is_file():
        raise SpecError(f"{file} is not a file; name a declaration as SPEC.py::name")
    before = set(sys.modules)
    found = {key: specs for key, value in vars(_imported(path)).items() if (specs := _specs_of(value))}
    files = (path, *_files_of(set(sys.modules) - before))
    if not found:
        raise SpecError(f"{file} declares no OpSpec at module level; write rms = OpSpec(...), and name SPEC.py::rms")
    if not name and len(found) > 1:
        raise SpecError(f"{file} declares {', '.join(found)}; name one, as {file}::{next(iter(found))}")
    name = name or next(iter(found))
    if name not in found:
        raise SpecError(f"{file} declares no {name!r}{did_you_mean(name, found)}; OpSpecs in it: {', '.join(found)}")
    spec, *others = found[name]
    for one in found[name]:
        _refuse_unable(one, is_one_of_several=bool(others))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return Declaration(spec, path, name, digest, tuple(dict.fromkeys(files)), given=file, others=tuple(others))


def _files_of(modules: Iterable[str]) -> Iterator[Path]:
    """Yield the files of modules that are neither installed nor part of Python."""
    for name in sorted(modules):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and not _is_installed(file):
            yield Path(file).resolve()


def _is_installed(file: str) -> bool:
    """Return whether a file is part of Python, of an installed package or of this one."""
    folders = {*sysconfig.get_paths().values(), str(Path(cuassay.__file__).parent)}
    return any(Path(file).is_relative_to(folder) for folder in folders)


def _specs_of(value: Any) -> tuple[OpSpec, ...]:
    """Return the specs of a module's variable: one, or those of a tuple; none if it is something else."""
    several = value if isinstance(value, tuple) else (value,)
    found = tuple(spec for one in several if (spec := _spec_of(one)) is not None)
    return found if len(found) == len(several) else ()


def _spec_of(value: Any) -> OpSpec | None:
    """Return the spec that a module's variable holds, directly or as tests made by `conformance`."""
    spec = value if isinstance(value, OpSpec) else getattr(value, "spec", None)
    return spec if isinstance(spec, OpSpec) and not isinstance(value, type) else None


def _imported(path: Path) -> ModuleType:
    """Import the file under a unique module name; modules in its folder can be imported."""
    name = f"cuassay_declaration_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise SpecError(f"{path.name} is not a Python file; name a declaration as SPEC.py::name")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        module_spec.loader.exec_module(module)
    except SpecError:
        raise
    except Exception as error:
        advice = "; install it, or set PYTHONPATH to its folder" if isinstance(error, ModuleNotFoundError) else ""
        raised = f"{type(error).__name__}: {error}{_line_of(error)}"
        raise SpecError(f"{path.name} cannot be imported: {raised}{advice}") from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _line_of(error: BaseException) -> str:
    """Return the last line of the user's files that an error passed, in brackets; empty if there is none."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    found = next((one for one in frames if Path(one.filename).is_file() and not _is_installed(one.filename)), None)
    return "" if found is None else f" ({Path(found.filename).name}:{found.lineno})"


def _refuse_unable(spec: OpSpec, *, is_one_of_several: bool) -> None:
    if spec.is_its_own_reference:
        raise SpecError(
            f"{spec.name} has no reference=, and is compared with itself; a candidate is judged by a reference: give "
            "reference=, in NumPy"
        )
    if spec.op is not None and not spec.op.schema.is_single:
        raise SpecError(
            f"{spec.name} does not return one array: {spec.op.schema.signature}; a candidate must; declare a function"
        )
    if "inputs_unchanged" in spec.without:
        raise SpecError(
            f"{spec.name} works in place (without= names inputs_unchanged); a candidate may not write its inputs; "
            "declare a form that returns a new array"
        )
    answer = spec.answers(next(spec.draw(0, spec.dtypes[0], "values"))) if spec.has_lists else None
    if not isinstance(answer, list | tuple):
        return
    if is_one_of_several:
        raise SpecError(
            f"{spec.name} declares one of several results, and gives a {type(answer).__name__}; give one array, as "
            "fn=lambda xp, a: f(xp, a)[0]"
        )
    if len(answer) > MAX_OUTPUTS:
        raise SpecError(
            f"{spec.name} gives {len(answer)} results; a candidate gives at most {MAX_OUTPUTS}: declare fewer"
        )
