"""One asv series an op, from its OpSpec; what is measured and how is decided in `cuassay.benchmarking.asv`."""

from __future__ import annotations

from cuassay.benchmarking.asv import series

globals().update(series())
