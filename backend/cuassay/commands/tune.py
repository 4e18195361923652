"""``cuassay tune``: tune products of a file, or public ones, on one or more GPUs; show progress and gains."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from cuassay import devices
from cuassay.commands.parsing import Parser
from cuassay.core.device import Device
from cuassay.errors import ArgumentError, CapabilityError, DeviceError
from cuassay.tune.results import Results
from cuassay.tune.shapes import GemmShape, read_shapes, spread_out
from cuassay_reports.terminal import columns, fitted

__all__ = ["add_tune_command"]

Row = dict[str, Any]


def add_tune_command(commands: argparse._SubParsersAction[Parser]) -> None:
    """Declare ``tune``."""
    tune = commands.add_parser(
        "tune",
        help="find the fastest algorithms for matrix products, and keep them",
        example="cuassay tune cuassay_untuned.jsonl --device cuda:0\ncuassay tune --shapes llama3_8b --limit 10",
    )
    tune.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="untuned products as cuassay.cuda.tunable records them; or shapes of the form of "
        "suites/data/gemm_shapes.json: all, or one list as FILE:NAME",
    )
    tune.add_argument("--shapes", metavar="NAME", help=f"public products that are included: {', '.join(_public())}")
    tune.add_argument("--device", action="append", metavar="D", help="cuda:0; repeatable, one process per device")
    tune.add_argument("--dtype", metavar="T", help="dtype of operands and results, instead of the one in the list")
    tune.add_argument("--limit", type=int, metavar="N", help="tune only N products, spread evenly over the list")
    tune.add_argument("--out", metavar="RESULTS", help="file of results, instead of CUASSAY_TUNABLEOP_FILENAME")
    tune.add_argument("--json", action="store_true", help="the table as JSON")
    tune.set_defaults(command=_tune)


def _tune(options: argparse.Namespace) -> int:
    _check_arguments(options)
    indices = [_usable(Device(name)) for name in options.device or ["cuda:0"]]
    from cuassay.devices.cuda.blas import offline
    from cuassay.devices.cuda.blas.tuning import tuner
    from cuassay.devices.cuda.driver import runtime

    if options.out is not None:
        tuner().configure(path=options.out)
    _check_files(indices)
    with runtime.device(indices[0]):
        products = _products(options)
        unknown = offline.unknown(products, indices[0])
        _say(f"{len(products)} products, {len(products) - len(unknown)} known already; {tuner().path(indices[0])}")
        rows: list[Row] = []
        tell = _progress(rows, len(unknown))
        if len(indices) == 1:
            offline.tune(unknown, indices[0], tell)
        else:
            offline.tune_on_several(unknown, indices, tell)
    _show(rows, as_json=options.json)
    return 0


def _check_arguments(options: argparse.Namespace) -> None:
    """Raise `ArgumentError` for arguments that are wrong on any machine, before a device is used."""
    if (options.file is None) == (options.shapes is None):
        given = "neither" if options.file is None else "both"
        raise ArgumentError(f"tune needs either a file or --shapes NAME; got {given}; give one of them")
    if options.shapes is not None:
        _listed(_public(), options.shapes, "--shapes has no list")
    if options.limit is not None and options.limit < 1:
        raise ArgumentError(f"--limit must be 1 or more; got {options.limit}; give how many products to tune")


def _check_files(indices: Sequence[int]) -> None:
    """Check the files before the search: results that cannot be stored would be lost; each file is for one model."""
    from cuassay.devices.cuda.blas.tuning import tuner, validators

    for index in indices:
        if Path(tuner().path(index)).exists():
            Results(validators(index)).read(tuner().path(index))
    models = {validators(index)["gpu"] for index in indices}
    if len(models) > 1:
        raise ArgumentError(f"each GPU tunes a part for all, so they must be alike; got {', '.join(sorted(models))}")


def _usable(device: Device) -> int:
    if device.kind != "cuda":
        raise CapabilityError(f"{device} computes a product in one way only; tune on a CUDA device, such as cuda:0")
    backend = devices.backend("cuda")
    reason = backend.why_absent()
    if reason is not None:
        raise CapabilityError(f"{device} cannot be tuned: {reason}")
    if device.index >= backend.count():
        raise DeviceError(f"{device} does not exist; {backend.count()} CUDA devices are visible")
    return device.index


# ------------------------------------------------------------------------------------------------ what is tuned


def _public() -> dict[str, tuple[GemmShape, ...]]:
    with resources.as_file(resources.files("cuassay.tune") / "public_shapes.json") as path:
        return read_shapes(path)


def _products(options: argparse.Namespace) -> Sequence[Any]:
    from cuassay.devices.cuda.blas import offline

    if options.shapes is not None:
        shapes = _listed(_public(), options.shapes, "--shapes has no list")
    elif _is_recorded(options.file):
        if options.dtype is not None:
            raise ArgumentError(f"{options.file} says of each product its dtype; leave --dtype out")
        return _limited(offline.problems_in([options.file]), options.limit)
    else:
        path, name = _split(options.file)
        lists = read_shapes(path)
        shapes = (
            _listed(lists, name, f"{path} has no list") if name else [one for some in lists.values() for one in some]
        )
    chosen = dict.fromkeys(offline.problem_of(shape, options.dtype) for shape in shapes)
    return _limited(list(chosen), options.limit)


def _listed(lists: dict[str, tuple[GemmShape, ...]], name: str, otherwise: str) -> Sequence[GemmShape]:
    if name not in lists:
        raise ArgumentError(f"{otherwise} {name!r}; choose one of {', '.join(lists)}")
    return lists[name]


def _is_recorded(file: str) -> bool:
    """Return whether it is a file of JSON lines that begins with a header, whatever the header says."""
    try:
        with Path(file).open(encoding="utf-8") as lines:
            return "format" in json.loads(next(lines))
    except (OSError, ValueError, StopIteration, TypeError):
        return False


def _split(file: str) -> tuple[str, str]:
    path, colon, name = file.rpartition(":")
    return (path, name) if colon and not Path(file).exists() else (file, "")


def _limited(products: Sequence[Any], limit: int | None) -> Sequence[Any]:
    return products if limit is None else spread_out(products)[:limit]


# ------------------------------------------------------------------------------------------------ what is shown


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _progress(rows: list[Row], total: int) -> Callable[[Row], None]:
    def note(row: Row) -> None:
        rows.append(row)
        _say(
            f"[{len(rows)}/{total}] {row['problem']}: {row['reason']} ({row['tried']} tried in {row['seconds']:.2f} s)"
        )

    return note


def _show(rows: Sequence[Row], *, as_json: bool) -> None:
    gain = geometric_mean([1 + row["gain"] for row in rows]) - 1 if rows else 0.0
    if as_json:
        print(json.dumps({"products": list(rows), "gain": round(gain, 5)}, indent=2))
        return
    for line in _lines(rows, gain):
        print(fitted(line, columns(sys.stdout)))


def _lines(rows: Sequence[Row], gain: float) -> Iterator[str]:
    width = max((len(row["problem"]) for row in rows), default=len("product"))
    yield f"{'product':<{width}} {'default µs':>11} {'tuned µs':>11} {'gain':>7}  choice"
    for row in sorted(rows, key=lambda row: -row["gain"]):
        choice = row["choice"] if row["gain"] else "as it was"
        yield f"{row['problem']:<{width}} {row['default_us']:>11.2f} {row['us']:>11.2f} {row['gain']:>7.1%}  {choice}"
    yield f"{'geometric mean':<{width}} {'':>11} {'':>11} {gain:>7.1%}"
