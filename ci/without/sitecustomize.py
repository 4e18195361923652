"""Hides installed packages from every new interpreter, to run code as on a machine that lacks them.

Python imports this file at its start if the folder is on ``PYTHONPATH``, which subprocesses inherit.
``WITHOUT_MODULES`` names the hidden packages, such as ``nvmath,cuda.core``: importing one, or a module in it, fails as
if it were not installed, and `importlib.util.find_spec` returns None. `importlib.metadata` still finds them.
"""

import importlib.machinery
import os
from collections.abc import Sequence
from typing import Any

HIDDEN = tuple(filter(None, os.environ.get("WITHOUT_MODULES", "").split(",")))

_find = importlib.machinery.PathFinder.find_spec


class _Finder:
    """Finds modules unless they are hidden. A bound method of it, kept as a class attribute, is not bound again.

    pytest keeps `PathFinder.find_spec` so. A plain function there would get pytest's hook as the module's name.
    """

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if any(name == hidden or name.startswith(f"{hidden}.") for hidden in HIDDEN):
            return None
        return _find(name, path, target)


if HIDDEN:
    importlib.machinery.PathFinder.find_spec = _Finder().find_spec  # type: ignore[method-assign, assignment]
