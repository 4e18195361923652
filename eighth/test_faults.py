"""The wrong functions: each should fail, for the reason that its pair says."""

import importlib

from cuassay.testing import conformance
from pairs import PAIRS

for module in ("numbers_", "places", "memory_", "shapes"):
    importlib.import_module(module)

for pair in PAIRS:
    wrong, right, declare = pair.make()
    wrong.__name__ = pair.name
    globals()[f"test_{pair.name}"] = conformance(declare(wrong))
