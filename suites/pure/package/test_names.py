"""The public names of each public module, listed in ``suites/data/public_names.toml``."""

from __future__ import annotations

import importlib
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from cuassay.errors import LibraryNotFoundError

LIST = Path(__file__).parents[2] / "data" / "public_names.toml"
NAMES: dict[str, list[str]] = tomllib.loads(LIST.read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", NAMES)
def test_a_module_offers_the_names_on_the_list(module: str) -> None:
    offered = set(importlib.import_module(module).__all__)
    listed = set(NAMES[module])

    assert offered == listed, (
        f"{module} has new names {sorted(offered - listed)} and lacks {sorted(listed - offered)}; "
        f"if that is meant, change {LIST.name} and write a line in CHANGELOG.md"
    )


@pytest.mark.parametrize("module", NAMES)
def test_every_name_on_the_list_is_there(module: str) -> None:
    imported = importlib.import_module(module)

    for name in NAMES[module]:
        with suppress(LibraryNotFoundError):  # it exists, and needs a library that is absent
            getattr(imported, name)


@pytest.mark.parametrize("module", NAMES)
def test_the_list_is_sorted_and_says_each_name_once(module: str) -> None:
    assert NAMES[module] == sorted(set(NAMES[module]))
