"""The two sides of a comparison, ready to start: a commit, a wheel, a folder, an interpreter or a command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from cuassay.errors import ArgumentError

__all__ = ["RECORD", "Arm", "arm", "arm_of_commit", "git", "state_folder"]

RECORD = "{record}"
"""The placeholder in a command for the file that its ``time`` rows go to."""

#: Folders of a source tree that Python imports from, this project's among them.
_ROOTS = ("backend", "reports", "src", ".")


@dataclass(frozen=True)
class Arm:
    """One side of a comparison.

    Attributes
    ----------
    name : str
        The name that the user gave.
    identity : str
        Exactly what the name refers to, such as a full hash. An interrupted comparison continues only if it is equal.
    command : sequence of str
        The command line; `RECORD` is replaced by a file.
    environment : mapping
        Variables that are added to the environment.
    folder : path or None
        The working directory of its processes: the checkout of a commit, else the current folder. Python looks for
        modules there first, and would otherwise find those of the working tree on both sides.
    """

    name: str
    identity: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path | None = None

    def words(self, record: Path) -> list[str]:
        """Return the command that writes its rows to `record`."""
        return [word.replace(RECORD, str(record)) for word in self.command]


@contextmanager
def state_folder(kept: str | None, prefix: str) -> Iterator[Path]:
    """Yield the folder for the files and checkouts of a comparison: `kept`, or a temporary one.

    With a temporary folder its checkouts are removed from git's list of worktrees at the end, also after a failure.
    """
    if kept:
        yield Path(kept)
        return
    with TemporaryDirectory(prefix=prefix) as folder:
        try:
            yield Path(folder)
        finally:
            for one in Path(folder).glob("*/*/.git"):  # where the callers of `arm_of_commit` put checkouts
                git("worktree", "remove", "--force", str(one.parent))


def arm(name: str, folder: Path, workload: Sequence[str], label: str) -> Arm:
    """Prepare one side of a comparison.

    Parameters
    ----------
    name : str
        A commit of the current repository; a wheel; a folder of sources; an interpreter, or the folder of a virtual
        environment; or a command, which contains a space or ``{record}``.
    folder : path
        The folder in which a commit is checked out or a wheel is installed.
    workload : sequence of str
        The arguments of the interpreter, unless `name` is a command.
    label : str
        ``base`` or ``head``: the name of a subfolder of `folder`.

    Raises
    ------
    ArgumentError
        If `name` is not one of these.
    """
    path = Path(name)
    if " " in name or RECORD in name:
        return Arm(name, name, _command(name), {})
    if path.suffix == ".whl" and path.is_file():
        target = _installed(path, folder / label)
        return Arm(name, f"{path.resolve()} {path.stat().st_mtime_ns}", [sys.executable, *workload], _imports([target]))
    python = next((one for one in (path / "bin" / "python", path) if one.is_file() and os.access(one, os.X_OK)), None)
    if python is not None:
        return Arm(name, str(python.absolute()), [str(python.absolute()), *workload], {})
    if path.is_dir():
        _require_workload(name, path, workload)
        return Arm(name, str(path.resolve()), [sys.executable, *workload], _imports(_roots(path.resolve())))
    commit = git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if commit is None:
        raise ArgumentError(
            f"{name!r} is neither a commit of this repository, nor a wheel, a folder, an interpreter or a command; a "
            f"command has a space in it, and {RECORD} where it receives the file of its rows"
        )
    return arm_of_commit(commit, folder / label / commit[:12], workload, name)


def arm_of_commit(commit: str, tree: Path, workload: Sequence[str], name: str) -> Arm:
    """Prepare a side from a full commit hash, which is checked out into `tree` unless that exists.

    Raises
    ------
    ArgumentError
        If the checkout fails, or the commit does not contain the cuassay module that is to be started.
    """
    tree = tree.absolute()
    if not tree.is_dir() and git("worktree", "add", "--detach", "--force", str(tree), commit) is None:
        raise ArgumentError(f"git could not check {name!r} out into {tree}; look at: git worktree list")
    _require_workload(name, tree, workload)
    return Arm(name, commit, [sys.executable, *workload], _imports(_roots(tree)), tree)


def _require_workload(name: str, tree: Path, workload: Sequence[str]) -> None:
    """Raise if the sources lack the cuassay module to start, because both sides would then run the installed one."""
    module = next((word for flag, word in pairwise(workload) if flag == "-m"), "")
    file = f"{module.replace('.', '/')}.py"
    if module.startswith("cuassay.") and not any((root / file).is_file() for root in _roots(tree)):
        raise ArgumentError(
            f"{name!r} does not contain {module}, so its own code would not be measured; to measure a project that "
            f"uses cuassay, give --run 'pytest --benchmark-only --cuassay-record {RECORD}'"
        )


def _command(text: str) -> list[str]:
    words = shlex.split(text)
    if not any(RECORD in word for word in words):
        raise ArgumentError(
            f"the command {text!r} does not say where its rows go; write {RECORD} in the place of the file"
        )
    return words


def _installed(wheel: Path, target: Path) -> Path:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(target)]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ArgumentError(f"pip could not install {wheel}: {done.stderr.strip()}; give a folder or an interpreter")
    return target


def _roots(tree: Path) -> list[Path]:
    return [tree / name for name in _ROOTS if (tree / name).is_dir()]


def _imports(roots: Sequence[Path]) -> dict[str, str]:
    """Return variables that make Python import from `roots` and not from the working directory."""
    former = os.environ.get("PYTHONPATH")
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join([*map(str, roots), *([former] if former else [])])}


def git(*arguments: str) -> str | None:
    """Return what a git command prints, or None if it fails."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
