"""Compare public shapes of matrix products with other libraries, with one row for each shape and implementation.

::

    python -m cuassay.benchmarking.products suites/data/gemm_shapes.json --record FILE --seconds 240

The calls of a shape run as graphs on rotating random operands, so they include no host time. Ours run with and without
the tuner's choice, next to those of `product_peers`. The shapes are ordered so that the first ones cover all lists
evenly, and shapes that FILE already has are skipped: an interrupted run is representative, and continues when it is
started again. All rows of a shape are written at once, so an interrupted run has all rows of a shape or none.
``cuassay report FILE`` summarizes the rows.

Split sums of products of 16-bit operands may be reduced in 16 bits, as torch does by default.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cuassay import devices, ops
from cuassay.arrays.dtypes import as_dtype
from cuassay.benchmarking import product_peers
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.ledger import read
from cuassay.benchmarking.operands import Arena, Operands, elements_of
from cuassay.benchmarking.roofline import limits
from cuassay.benchmarking.rotation import rotate, sets_for
from cuassay.benchmarking.termination import exit_on_sigterm
from cuassay.benchmarking.timing import Timing
from cuassay.core import settings
from cuassay.core.device import Device
from cuassay.core.precision import set_matmul_options
from cuassay.errors import CuassayError
from cuassay.results.record import Recorder, begin
from cuassay.testing.device_facts import device_columns
from cuassay.tune.shapes import GemmShape, read_shapes, spread_out

__all__ = ["cases", "main"]

OURS, UNTUNED = "cuassay", "cuassay untuned"

#: Products of at most this many rows form a group: they occur when a model serves few requests at once.
FEW_ROWS = 128

#: Lists that are also measured in float16.
IN_FLOAT16 = ("gpt2_124m_nanogpt", "square")


def cases(path: str | Path, lists: Sequence[str] = ()) -> dict[GemmShape, tuple[str, ...]]:
    """Return the shapes of a file in the order of measuring, each with its groups.

    Parameters
    ----------
    path : path
        A file of shapes.
    lists : sequence of str
        The lists to read; all of them if empty.
    """
    groups: dict[GemmShape, list[str]] = {}
    for name, shapes in read_shapes(path).items():
        if lists and name not in lists:
            continue
        for shape in shapes:
            groups.setdefault(shape, []).append(name)
            if name in IN_FLOAT16:
                groups.setdefault(replace(shape, dtype="float16", out_dtype="float16"), []).append(f"{name}_float16")
    few = {shape: [*found, f"m<={FEW_ROWS}"] if shape.m <= FEW_ROWS else found for shape, found in groups.items()}
    return {shape: tuple(few[shape]) for shape in spread_out(list(few))}


# ------------------------------------------------------------------------------------------------ the run


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and record, and return the exit status."""
    asked = _parser().parse_args(argv)
    deadline = time.monotonic() + asked.seconds
    try:
        device = devices.find(asked.device)
        chosen = cases(asked.shapes, asked.list)
        with _recorder(asked.record, device) as (recorder, done):
            return _run(device, chosen, recorder, done, deadline, asked.tuning_ms)
    except CuassayError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cuassay.benchmarking.products", description="Measure the public shapes of products."
    )
    parser.add_argument("shapes", help="file of shapes, such as suites/data/gemm_shapes.json")
    parser.add_argument("--record", required=True, metavar="FILE", help="result file; what it has is left out")
    parser.add_argument("--device", default="cuda:0", metavar="D", help="where (default: %(default)s)")
    parser.add_argument("--list", action="append", default=[], metavar="NAME", help="only this list; may be repeated")
    parser.add_argument("--seconds", type=float, default=240.0, help="no shape is begun later (default: %(default)s)")
    parser.add_argument(
        "--tuning-ms", type=int, default=500, metavar="MS", help="for tuning one shape; 0: none (default: %(default)s)"
    )
    return parser


@contextmanager
def _recorder(path: str, device: Device) -> Iterator[tuple[Recorder, set[tuple[str, str]]]]:
    """Open a new or existing file, and yield it with each (case, dtype) that it has for `device`."""
    rows = read([path]) if Path(path).exists() else []
    run = next((row["run"] for row in rows if row["record"] == "run"), None)
    ours = [row for row in rows if row["record"] == "time" and row["implementation"] == OURS]
    with Recorder(path, run=run) as recorder:
        if run is None:
            begin(recorder, "python -m cuassay.benchmarking.products")
        if not any(row["record"] == "device" and row["device"] == str(device) for row in rows):
            recorder.write_device(**device_columns(device))
        yield recorder, {(row["case"], row["dtype"]) for row in ours if row["device"] == str(device)}


def _run(
    device: Device,
    chosen: Mapping[GemmShape, Sequence[str]],
    recorder: Recorder,
    done: set[tuple[str, str]],
    deadline: float,
    tuning_ms: int,
) -> int:
    left = [shape for shape in chosen if (str(shape), shape.dtype) not in done]
    print(f"measuring {len(left)} shapes of {len(chosen)}", flush=True)
    if not left:
        return 0
    if not done:
        for limit in limits(device, sorted({shape.dtype for shape in left})):
            recorder.write_limit(**limit.columns())
    arenas, tuner, failed = _Arenas(device, left), _Tuner(device, tuning_ms), 0
    former = set_matmul_options(bf16_reduced_precision_reduction=True, fp16_reduced_precision_reduction=True)
    try:
        for place, shape in enumerate(left):
            if time.monotonic() > deadline:
                print(f"{len(left) - place} shapes are left; run this again to go on", flush=True)
                break
            failed += not _measured(arenas.operands(shape), device, tuner, recorder, chosen[shape])
    finally:
        set_matmul_options(**asdict(former))
    return int(failed > 0)


class _Arenas:
    """Memory that is large enough for each of the shapes, allocated once."""

    def __init__(self, device: Device, shapes: Iterable[GemmShape]) -> None:
        self._device = device
        sources: dict[str, int] = {}
        results: dict[str, int] = {}
        for shape in shapes:
            of_inputs, of_result = elements_of(shape, self._sets(shape))
            sources[shape.dtype] = max(of_inputs, sources.get(shape.dtype, 0))
            results[shape.out_dtype] = max(of_result, results.get(shape.out_dtype, 0))
        seed = int(settings.get("CUASSAY_SEED"))
        self._sources = {dtype: Arena(device, dtype, size, seed=seed) for dtype, size in sources.items()}
        self._results = {dtype: Arena(device, dtype, size) for dtype, size in results.items()}

    def _sets(self, shape: GemmShape) -> int:
        return sets_for(_nbytes(shape), self._device)

    def operands(self, shape: GemmShape) -> Operands:
        """Return the operands of `shape`, which replace those of the previous shape."""
        return Operands.of(shape, self._sets(shape), self._sources[shape.dtype], self._results[shape.out_dtype])


def _nbytes(shape: GemmShape) -> int:
    """Return how many bytes a call must read and write at least."""
    inputs = shape.m * shape.k + shape.k * shape.n
    return inputs * as_dtype(shape.dtype).itemsize + shape.m * shape.n * as_dtype(shape.out_dtype).itemsize


class _Tuner:
    """Run our product with and without the tuner's choice. On a device without a tuner both are the same."""

    def __init__(self, device: Device, milliseconds: int) -> None:
        self._tunable: Any = None
        if device.kind == "cuda" and milliseconds:
            from cuassay.cuda import tunable

            tunable.set_max_tuning_duration(milliseconds)
            self._tunable = tunable

    @contextmanager
    def using(self, *, enabled: bool, tuning: bool = False) -> Iterator[None]:
        """Set inside the block whether tuned results are used and whether missing ones are tuned."""
        if self._tunable is None:
            yield
            return
        former = self._tunable.is_enabled(), self._tunable.tuning_is_enabled()
        self._tunable.enable(enabled)
        self._tunable.tuning_enable(tuning)
        try:
            yield
        finally:
            self._tunable.enable(former[0])
            self._tunable.tuning_enable(former[1])

    def pass_of(self, calls: Sequence[Callable[[], Any]], *, enabled: bool) -> Callable[[], None]:
        """Return a function that runs all of `calls` in turn."""

        def run() -> None:
            with self.using(enabled=enabled):
                for call in calls:
                    call()

        return run


@dataclass(frozen=True, slots=True)
class _Measured:
    """The results of one shape: timings by implementation, the choice that ours made, and the seconds of its tuning."""

    timings: dict[str, Timing]
    choice: str
    tuning_s: float


def _measured(operands: Operands, device: Device, tuner: _Tuner, recorder: Recorder, groups: Sequence[str]) -> bool:
    """Measure one shape and write its rows. Returns False if it failed, which is printed and does not stop the run."""
    begun, shape = time.monotonic(), operands.shape
    try:
        found = _timings(operands, device, tuner)
    except Exception as error:  # noqa: BLE001  the other shapes are measured regardless of what a library raises
        print(f"{shape} {shape.dtype}: {type(error).__name__}: {error}", flush=True)
        return False
    except BaseException:  # an interrupt or SIGTERM
        print(f"{shape} {shape.dtype} was cut: no row of it is written; run this again to go on", flush=True)
        raise
    recorder.write_times(_rows(found, shape, device, groups))
    print(_line(shape, found, time.monotonic() - begun), flush=True)
    return True


def _rows(found: _Measured, shape: GemmShape, device: Device, groups: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield one row for each implementation."""
    columns = {"case": str(shape), "dtype": shape.dtype, "flops": shape.flops, "bytes": _nbytes(shape)}
    for name, timing in found.timings.items():
        choice = {"choice": found.choice} if name == OURS else {}
        yield {**timing_row("mm", device, name, timing, groups=" ".join(groups), **columns), **choice}


def _timings(operands: Operands, device: Device, tuner: _Tuner) -> _Measured:
    shape = operands.shape
    wider = {} if shape.out_dtype == shape.dtype else {"out_dtype": shape.out_dtype}
    calls = [
        partial(ops.mm, a, b, **wider, out=out) for a, b, out in zip(operands.a, operands.b, operands.out, strict=True)
    ]
    begun = time.monotonic()
    with tuner.using(enabled=True, tuning=True):
        calls[0]()
        devices.backend(device.kind).synchronize(device.index)
        tuning_s = time.monotonic() - begun
        choice = str(ops.explain(calls[0])).rpartition("; ")[2]
    passes = {name: tuner.pass_of(calls, enabled=name == OURS) for name in (OURS, UNTUNED)}
    peers = product_peers.passes(operands, device)
    return _Measured(rotate({**passes, **peers}, operands.sets, device, live=product_peers.LIVE), choice, tuning_s)


def _line(shape: GemmShape, found: _Measured, seconds: float) -> str:
    ours = found.timings[OURS].median_s
    others = {name: one.median_s for name, one in found.timings.items() if not name.startswith(OURS)}
    best = min(others, key=others.__getitem__, default="")
    than = f", {others[best] / ours:.3f} x {best}" if best else ""
    rate = f"{shape.flops / ours / 1e12:.4g} TFLOP/s"
    return (
        f"{shape} {shape.dtype}: {ours * 1e6:.2f} us, {rate}{than}; {found.choice}; "
        f"tuned in {found.tuning_s:.2f} s of {seconds:.2f}"
    )


if __name__ == "__main__":
    with exit_on_sigterm():
        raise SystemExit(main())
