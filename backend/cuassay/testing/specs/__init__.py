"""The OpSpecs of our own operations, under the file names used in ``devices/<kind>``."""

from __future__ import annotations

from cuassay.testing.specs import amp, elementwise, linalg, optim, random, reduction, storage

__all__ = ["SPECS"]

SPECS = (*elementwise.SPECS, *optim.SPECS, *reduction.SPECS, *linalg.SPECS, *storage.SPECS, *random.SPECS, *amp.SPECS)
