"""The project under test: its root, its files, copies of it, and the mutants of its files."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path

from cuassay.errors import MutationError, SettingError
from cuassay.mutation.baseline import Baseline
from cuassay.mutation.cuda import cuda_mutants, kernels_in, struct_at
from cuassay.mutation.mutant import Mutant
from cuassay.mutation.python import python_mutants, stock_mutants

__all__ = ["CUDA_SUFFIXES", "copy_project", "covering", "find_mutants", "project_files", "project_root"]

CUDA_SUFFIXES = frozenset({".cu", ".cuh"})

#: Folders that are not copied from a project without git.
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "build", "dist", "venv"})

_INCLUDE = re.compile(r'#include\s+"([^"]+)"')

_WORD = re.compile(r"[A-Za-z_]\w*")


def project_root(folder: Path) -> Path:
    """Return the root of the git checkout that contains `folder`, or the folder itself."""
    asked = subprocess.run(
        ["git", "rev-parse", "--show-toplevel"], cwd=folder, capture_output=True, text=True, check=False
    )
    return Path(asked.stdout.strip()).resolve() if asked.returncode == 0 else folder.resolve()


def project_files(root: Path) -> list[str]:
    """Return the files of the project, relative to `root`: those that git does not ignore.

    Without git, these are all files except hidden and built ones.
    """
    asked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if asked.returncode == 0:
        return sorted({name for name in asked.stdout.split("\0") if name and (root / name).is_file()})
    return sorted(path.relative_to(root).as_posix() for path in _walk(root))


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in _PASSED_OVER:
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file():
            yield path


def copy_project(root: Path, files: Iterable[str], to: Path) -> None:
    """Copy `files` of the project to the folder `to`."""
    for name in files:
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, target)


def find_mutants(root: Path, sources: Sequence[str], baseline: Baseline, *, stock: bool = False) -> list[Mutant]:
    """Return the mutants of `sources`, or of the declared functions if no source is named.

    Parameters
    ----------
    root : path
        The project's root.
    sources : sequence of str
        Files and folders, relative to the root or absolute; ``FILE::FUNCTION`` for one function or kernel of a file.
    baseline : Baseline
        The results of the run without a mutant.
    stock : bool
        Whether to also replace whole declared functions by stock mutants.

    Raises
    ------
    MutationError
        If there is nothing to change.
    SettingError
        If a source does not exist or has no such function.
    """
    if sources:
        return [mutant for source in sources for mutant in _of_source(root, source)]
    by_path: dict[str, list[tuple[int, int]]] = {}
    for declared in baseline.declared:
        by_path.setdefault(declared.path, []).append((declared.first, declared.last))
    if not by_path:
        raise MutationError("the tests declare no function of this project; name what to change with --source FILE")
    found: list[Mutant] = []
    for path, lines in by_path.items():
        text = (root / path).read_text(encoding="utf-8")
        found += stock_mutants(path, text, lines) if stock else []
        found += python_mutants(path, text, lines)
    return found


def _of_source(root: Path, source: str) -> Iterator[Mutant]:
    name, _, function = source.partition("::")
    path = (root / name).resolve()
    if not path.exists():
        raise SettingError(f"--source {source}: {path} does not exist; name a file or folder of the project")
    if not path.is_relative_to(root):
        raise SettingError(f"--source {source}: {path} is outside of the project {root}; name a file below it")
    files = [path] if path.is_file() else [file for file in _walk(path) if file.suffix in {".py", *CUDA_SUFFIXES}]
    found = [mutant for file in files for mutant in _of_file(root, file) if function in {"", mutant.function}]
    if function and not found:
        raise SettingError(f"--source {source}: nothing can be changed in a function of that name; see --list")
    yield from found


def _of_file(root: Path, file: Path) -> list[Mutant]:
    make = cuda_mutants if file.suffix in CUDA_SUFFIXES else python_mutants
    return make(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))


def covering(mutant: Mutant, root: Path, files: Sequence[str], baseline: Baseline) -> list[str]:
    """Return the tests that can detect `mutant`, those first that are likely to find it soon.

    For Python these are the tests that run the changed lines or their statement. For the head of a function they are
    the tests that run the function, and for code that runs at import they are those that run any line of the file.
    Tests in a file that is named after the changed one take turns with the others: `pool.py` and `test_pool.py`. Of
    each test function the fastest case comes first.

    For CUDA C++ these are the tests that launch the changed kernel, or any kernel whose file includes the changed file.
    The fastest test of each instantiation comes first. If a struct is changed, tests of kernels that are instantiated
    with it come before others.
    """
    if Path(mutant.path).suffix in CUDA_SUFFIXES:
        struct = struct_at((root / mutant.path).read_text(encoding="utf-8"), mutant.edit.start)
        return _launching(_kernels_of(mutant, root, tuple(files)), struct, baseline)
    scope, statement = mutant.edit.scope, mutant.edit.statement
    found = baseline.covering(mutant.path, mutant.line, mutant.last_line)
    found = found or baseline.covering(mutant.path, *(scope if statement == (0, 0) else statement))
    if scope == (0, 0) or baseline.is_run_outside(mutant.path, mutant.line, mutant.last_line):
        found = found or baseline.touching(mutant.path)
    named, others = dict[str, list[str]](), dict[str, list[str]]()
    for test in _passing(found, baseline):
        file = Path(test.partition("::")[0])
        cases = named if file.stem == f"test_{Path(mutant.path).stem}" else others
        cases.setdefault(test.partition("[")[0], []).append(test)
    return _in_turns([_in_turns(named.values()), _in_turns(others.values())])


def _passing(tests: Iterable[str], baseline: Baseline) -> list[str]:
    """Return the tests that pass without a mutant, the fastest first."""
    good = (set(tests) - set(baseline.failed)) & set(baseline.durations)
    return sorted(good, key=lambda test: baseline.durations[test])


def _launching(kernels: Collection[str], struct: str, baseline: Baseline) -> list[str]:
    """Return the tests that launch one of `kernels`, those with `struct` among its template arguments first.

    The fastest test of each instantiation comes first, then the second fastest of each, and so on.
    """
    naming: list[list[str]] = []
    others: list[list[str]] = []
    for launched, tests in baseline.launches.items():
        name, _, arguments = launched.partition("<")
        if name in kernels:
            (naming if struct in _WORD.findall(arguments) else others).append(_passing(tests, baseline))
    return list(dict.fromkeys([*_in_turns(naming), *_in_turns(others)]))


def _in_turns(columns: Iterable[Sequence[str]]) -> list[str]:
    """Return the first test of each column, then the second of each, and so on, without repetitions."""
    return list(dict.fromkeys(test for row in zip_longest(*columns) for test in row if test is not None))


def _kernels_of(mutant: Mutant, root: Path, files: tuple[str, ...]) -> frozenset[str]:
    """Return the changed kernel, or for a device function all kernels that may call it."""
    of_files = _kernels_by_file(root, files)
    if mutant.function in of_files.get(mutant.path, ()):
        return frozenset({mutant.function})
    return frozenset(name for file in _including(mutant.path, root, files) for name in of_files[file])


@cache
def _kernels_by_file(root: Path, files: tuple[str, ...]) -> dict[str, list[str]]:
    return {name: kernels_in(text) for name, text in _cuda_texts(root, files).items()}


@cache
def _cuda_texts(root: Path, files: tuple[str, ...]) -> dict[str, str]:
    return {name: (root / name).read_text(encoding="utf-8") for name in files if Path(name).suffix in CUDA_SUFFIXES}


def _including(path: str, root: Path, files: tuple[str, ...]) -> set[str]:
    """Return `path` and the CUDA C++ files that include it, directly or indirectly."""
    texts = _cuda_texts(root, files)
    found, grown = {path}, True
    while grown:
        names = {Path(name).name for name in found}
        more = {name for name, text in texts.items() if names & {Path(i).name for i in _INCLUDE.findall(text)}}
        grown = not more <= found
        found |= more
    return found
