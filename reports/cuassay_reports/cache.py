"""A Parquet copy of the results in a folder, which reads ten times as fast; the result files stay authoritative.

It is in ``.cuassay-cache`` inside the folder and may be deleted at any time. It is used only while every file has the
same size and modification time, or at least the same digest; an unreadable copy is made again. There is no copy without
pyarrow, or in a folder that cannot be written.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cuassay_reports.files import plain_size
from cuassay_reports.frames import pd
from cuassay_reports.tables import lists, objects

__all__ = ["FOLDER", "Cache"]

FOLDER = ".cuassay-cache"
"""The name of the folder with the copy, inside the folder of the result files."""

#: The bytes of result files from which a copy saves time.
_WORTH = 16_000_000

#: Seconds within which a file may change twice without a new modification time.
_GRAIN = 2.0

_LISTS = "samples"

#: Rows per group that pyarrow writes and reads; it needs several times the memory of a group.
_GROUP = 16_384


@dataclass(frozen=True)
class Cache:
    """The copy of one folder.

    Parameters
    ----------
    folder : path
        The folder of the result files.
    files : sequence of path
        All result files in it and below, in order.
    """

    folder: Path
    files: Sequence[Path]

    def read(self) -> tuple[dict[str, pd.DataFrame], dict[str, Any]] | None:
        """Return the frames and the facts that `write` was given, or None if there is no copy of these files."""
        manifest = self._manifest()
        try:
            if manifest is None or not self._is_of_these(manifest):
                return None
            frames = {name: self._read(name, manifest["key"]) for name in manifest["frames"]}
        except (OSError, ValueError, KeyError):
            return None
        return frames, manifest["facts"]

    def state(self) -> dict[Path, tuple[int, int]]:
        """Return the size and modification time of each file that exists."""
        found = {}
        for file in self.files:
            with suppress(OSError):
                found[file] = _stat(file)
        return found

    def write(
        self, frames: Mapping[str, pd.DataFrame], facts: Mapping[str, Any], before: Mapping[Path, tuple[int, int]]
    ) -> None:
        """Keep a copy, if it saves time and can be written, and no file has changed since its state was `before`.

        `before` is the result of `state` before the files were read.
        """
        if _pyarrow() is None:
            return
        try:
            if sum(map(plain_size, self.files)) >= _WORTH:
                self._write(frames, facts, before)
        except OSError:
            return

    def _write(
        self, frames: Mapping[str, pd.DataFrame], facts: Mapping[str, Any], before: Mapping[Path, tuple[int, int]]
    ) -> None:
        started = time.time()
        digests = {file: _digest(file) for file in self.files}
        if self.state() != before:  # after the digests, which are then those of the files that were read
            return
        known = {self._name(file): [*before[file], digest] for file, digest in digests.items()}
        key = hashlib.sha256(json.dumps([_version(), known]).encode()).hexdigest()
        place = self.folder / FOLDER
        place.mkdir(exist_ok=True)
        (place / ".gitignore").write_text("*\n", encoding="utf-8")
        for name, found in frames.items():
            _save(place / f"{name}.parquet", found, key)
        manifest = {"version": _version(), "started": started, "files": known, "key": key, "frames": list(frames)}
        part = _part(place / "copy.json")
        part.write_text(json.dumps({**manifest, "facts": facts}), encoding="utf-8")
        part.replace(place / "copy.json")

    def _manifest(self) -> dict[str, Any] | None:
        if _pyarrow() is None:
            return None
        try:
            manifest = json.loads((self.folder / FOLDER / "copy.json").read_bytes())
            return manifest if manifest["version"] == _version() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _is_of_these(self, manifest: Mapping[str, Any]) -> bool:
        known = manifest["files"]
        if [self._name(file) for file in self.files] != list(known):
            return False
        return all(_is_same(file, known[self._name(file)], manifest["started"]) for file in self.files)

    def _name(self, file: Path) -> str:
        return file.relative_to(self.folder).as_posix()

    def _read(self, name: str, key: str) -> pd.DataFrame:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(self.folder / FOLDER / f"{name}.parquet") as file:
            if file.schema_arrow.metadata.get(b"key") != key.encode():
                raise ValueError(f"{name}.parquet belongs to another copy")
            return _decoded(file)


def _is_same(file: Path, known: Sequence[Any], started: float) -> bool:
    (size, changed, digest), found = known, _stat(file)
    is_old = changed / 1e9 < started - _GRAIN
    return found[0] == size and bool((is_old and found[1] == changed) or _digest(file) == digest)


def _stat(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@cache
def _version() -> str:
    """Return a digest of this package's source, because another reader may read rows differently."""
    here = Path(__file__).parent
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(here.glob("*.py")))).hexdigest()


@cache
def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        return None
    return pyarrow


def _save(path: Path, found: pd.DataFrame, key: str) -> None:
    """Write a frame as Parquet, group by group, with objects as JSON and arrays of numbers as lists."""
    import pyarrow.parquet

    kinds = {name: _kind(name, found[name]) for name in map(str, found) if found[name].dtype == object}
    own = {b"key": key, b"kinds": json.dumps(kinds), b"names": json.dumps([*found])}
    schema = _table(found[:0], kinds).schema
    schema = schema.with_metadata({**(schema.metadata or {}), **own})
    with pyarrow.parquet.ParquetWriter(_part(path), schema, compression="zstd") as writer:
        for start in range(0, len(found), _GROUP):
            writer.write_table(_table(found[start : start + _GROUP], kinds).cast(schema))
    _part(path).replace(path)


def _table(found: pd.DataFrame, kinds: Mapping[str, str]) -> Any:
    import pyarrow

    encoded = {name: _as_json(found[name]) for name, kind in kinds.items() if kind == "json"}
    plain = found.assign(**encoded).drop(columns=[name for name, kind in kinds.items() if kind != "json"])
    table = pyarrow.Table.from_pandas(plain, preserve_index=False)
    if kinds.get(_LISTS) == "list":
        table = table.append_column(_LISTS, pyarrow.array(found[_LISTS], pyarrow.list_(pyarrow.float64())))
    return table


def _kind(name: str, column: pd.Series[Any]) -> str:
    if column.isna().all():
        return "none"
    return "list" if name == _LISTS else "json"


def _as_json(column: pd.Series[Any]) -> pd.Series[str]:
    return pd.Series(["" if value is None else json.dumps(value) for value in column], index=column.index, dtype="str")


def _decoded(file: Any) -> pd.DataFrame:
    metadata = file.schema_arrow.metadata
    kinds, names = json.loads(metadata[b"kinds"]), json.loads(metadata[b"names"])
    plain = file.read(columns=[name for name in names if name not in kinds]).to_pandas()
    columns = {name: _objects(file, name, kinds[name]) if name in kinds else plain[name] for name in names}
    return pd.DataFrame(columns, copy=False)


def _objects(file: Any, name: str, kind: str) -> npt.NDArray[np.object_]:
    if kind == "none":
        return np.full(file.metadata.num_rows, None, dtype=object)
    groups = (file.read_row_group(number, columns=[name]).column(name) for number in range(file.num_row_groups))
    if kind == "list":  # group by group, because pyarrow takes several times the memory of what it reads at once
        return np.concatenate([_as_lists(group.combine_chunks()) for group in groups])
    return objects([json.loads(text) if text else None for group in groups for text in group.to_pylist()])


def _as_lists(column: Any) -> npt.NDArray[np.object_]:
    lengths = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return lists(column.flatten().to_numpy(zero_copy_only=False), lengths)


def _part(path: Path) -> Path:
    """Return the temporary path of a file, which then replaces it, so that no reader sees half of it."""
    return path.with_name(f"{path.name}.{os.getpid()}")
