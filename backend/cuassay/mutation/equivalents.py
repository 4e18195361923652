"""Read the list of mutants that do not change behaviour: a TOML file, kept with the code, with a reason for each.

::

    [[equivalent]]
    mutant = "0f3a5b7c9d1e"
    reason = "the bound is checked again by the caller"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from cuassay.errors import SettingError

__all__ = ["read_equivalents"]


def read_equivalents(path: Path) -> Mapping[str, str]:
    """Return a mapping from the identity of a mutant to the reason why it changes nothing.

    Raises
    ------
    SettingError
        If the file cannot be read, or an entry lacks one of its two fields.
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingError(f"{path} cannot be read as a list of equivalent mutants: {error}; see --help") from error
    found: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        mutant, reason = entry.get("mutant"), entry.get("reason")
        if not (isinstance(mutant, str) and isinstance(reason, str) and reason.strip()):
            raise SettingError(
                f"{path}: entry {number} is {entry!r}; it needs mutant = identity and reason = why it changes nothing"
            )
        found[mutant] = reason
    return found
