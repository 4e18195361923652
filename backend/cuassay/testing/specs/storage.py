"""OpSpecs of operations that move numbers without computing: ``devices/<kind>/elementwise.py`` and ``storage.py``."""

from __future__ import annotations

from collections.abc import Iterator

from cuassay import ops
from cuassay.errors import ArgumentError, DeviceError
from cuassay.testing.opspec import ErrorInput, ModelSizes, OpSpec
from cuassay.testing.samples import Sample, Samples

__all__ = ["SPECS"]


def _copy_errors(make: Samples) -> Iterator[ErrorInput]:
    yield ErrorInput(Sample((make(3),), {"device": "warp:0"}, "no such kind"), DeviceError, "warp")
    yield ErrorInput(Sample((), label="nothing to copy"), ArgumentError, "needs 'a'")


def _copies(make: Samples, sizes: ModelSizes) -> Iterator[Sample]:
    yield Sample((make((sizes.batch, sizes.length, sizes.width)),))


SPECS = (OpSpec(op=ops.copy, reference=lambda a, **scalars: a, error_inputs=_copy_errors, bench=_copies),)
