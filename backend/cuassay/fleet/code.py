"""Which code a worker has: a digest of an installed distribution, of a wheel, or of the files of a folder.

A worker refuses a shard whose digest is not that of its own code, so that no two versions are mixed in one record.
"""

from __future__ import annotations

import csv
import hashlib
import subprocess
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from cuassay.errors import ArgumentError

__all__ = ["FOLDER", "digest_of", "of_folder", "of_wheel"]

#: Means the working folder where the name of a distribution is expected.
FOLDER = "."

#: What counts as code where git does not track it, and folders that are left out.
_CODE = frozenset({".c", ".cfg", ".cpp", ".cu", ".cuh", ".h", ".ini", ".py", ".so", ".toml"})
_CACHES = frozenset({"__pycache__", "node_modules"})


def digest_of(code: str) -> str:
    """The digest of `code` here: of an installed distribution by its name, or of the working folder for ``.``.

    Raises
    ------
    ArgumentError
        There is no such distribution.
    """
    if code == FOLDER:
        return of_folder(Path.cwd())
    try:
        found = distribution(code)
    except PackageNotFoundError as error:
        raise ArgumentError(f"{code} is not installed here; install its wheel on this machine") from error
    return _of_record(_record_of(found).splitlines())


def _record_of(found: Distribution) -> str:
    text = found.read_text("RECORD")
    if text is None:
        raise ArgumentError(f"{found.name} was not installed from a wheel: it has no RECORD; install its wheel")
    return text


def of_wheel(path: Path) -> tuple[str, str]:
    """The name of a wheel's distribution, and the digest that it has once it is installed.

    Raises
    ------
    ArgumentError
        It is not a wheel.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            record = next(name for name in wheel.namelist() if name.endswith(".dist-info/RECORD"))
            return path.name.partition("-")[0], _of_record(wheel.read(record).decode().splitlines())
    except (OSError, StopIteration, zipfile.BadZipFile) as error:
        raise ArgumentError(f"{path} is not a wheel: {error!r}; name a file that ends in .whl") from error


def _of_record(lines: Iterable[str]) -> str:
    """Of the files outside of ``.dist-info``: what an installer adds there, and scripts, differ by machine."""
    rows = sorted(
        (name, content)
        for name, content, *_ in csv.reader(lines)
        if content and not name.startswith("../") and ".dist-info/" not in name and not name.endswith(".pyc")
    )
    return _hashed(f"{name} {content}" for name, content in rows)


def of_folder(folder: Path) -> str:
    """Of the files that git tracks in `folder`, and of the code that it neither tracks nor ignores.

    Without git, of all code. Results that a run writes there change nothing.
    """
    tracked, others = _git(folder, "--cached"), _git(folder, "--others", "--exclude-standard")
    untracked = others if tracked else [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    names = {*tracked, *(name for name in untracked if _is_code(Path(name)))}
    return _hashed(f"{name} {_content(folder / name)}" for name in sorted(names))


def _is_code(name: Path) -> bool:
    return name.suffix in _CODE and not any(part in _CACHES or part.startswith(".") for part in name.parts)


def _content(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:  # deleted, a folder of its own repository, or a link that leads nowhere
        return ""


def _git(folder: Path, *which: str) -> list[str]:
    """Files as ``git ls-files`` lists them; none where `folder` is in no repository."""
    asked = ["git", "-C", str(folder), "ls-files", "-z", *which]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [name for name in told.stdout.split("\0") if name] if told.returncode == 0 else []


def _hashed(lines: Iterable[str]) -> str:
    found = hashlib.sha256()
    for line in lines:
        found.update(f"{line}\n".encode())
    return found.hexdigest()
