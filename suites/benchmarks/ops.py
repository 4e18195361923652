"""One asv series an op, from its OpSpec; what is measured and how stands in `cuassay.benchmarking.asv`."""

from __future__ import annotations

from cuassay.benchmarking.asv import series

globals().update(series())
