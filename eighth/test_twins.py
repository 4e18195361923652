"""The right twins: `pytest test_twins.py --device cpu --device sim` must be green."""

import importlib

from cuassay.testing import conformance
from pairs import PAIRS

for module in ("numbers_", "places", "memory_", "shapes"):
    importlib.import_module(module)

for pair in PAIRS:
    wrong, right, declare = pair.make()
    right.__name__ = pair.name
    globals()[f"test_{pair.name}"] = conformance(declare(right))
