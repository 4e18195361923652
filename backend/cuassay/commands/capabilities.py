"""``cuassay capabilities``: which operation runs in which dtype on which device, and why not elsewhere."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from cuassay import ops
from cuassay.commands.parsing import Parser, painted
from cuassay.core.capability import DTYPE_NAMES
from cuassay.core.device import Device
from cuassay.core.nearest import did_you_mean
from cuassay.devices import why_unsupported
from cuassay.errors import ArgumentError
from cuassay.ops import Op
from cuassay_reports.terminal import columns, fitted

__all__ = ["add_capabilities_command"]

_Listed = TypeVar("_Listed")

#: Column heads of some dtypes; others are written as their first letter and their bits.
_HEADS = {"bool": "bool", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "bfloat16": "bf16"}

#: The cell for a dtype in which the operation is not defined on any device.
_UNDEFINED = "."

#: The width of a cell in characters.
_CELL = 5


def add_capabilities_command(commands: argparse._SubParsersAction[Parser]) -> None:
    """Declare ``capabilities``."""
    listing = commands.add_parser(
        "capabilities",
        help="show which operation runs in which dtype on which device, and why not elsewhere",
        example="cuassay capabilities softmax 'foreach_*' --device sim\ncuassay capabilities --checks",
    )
    listing.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="operations, or with --checks checks; also patterns such as 'foreach_*'; default: all",
    )
    listing.add_argument(
        "--device", action="append", metavar="D", help="cuda:0, sim, cuda:*, all; repeatable; default: all"
    )
    listing.add_argument(
        "--json", action="store_true", help="the same as JSON, one row per operation, dtype and device"
    )
    listing.add_argument(
        "--checks",
        action="store_true",
        help="list the checks that the tests of an OpSpec are made of, and nothing else",
    )
    listing.set_defaults(command=_capabilities)


def _capabilities(options: argparse.Namespace) -> int:
    from cuassay.testing.presence import Presence

    if options.checks:
        return _list_checks(options.names)
    listed = _chosen(options.names, {op.name: op for op in ops.ops()}, "operation")
    presence = Presence(options.device or ["all"])
    if options.json:
        print(json.dumps([_row(op, dtype, device) for device, op, dtype in _cells(presence.devices, listed)], indent=2))
        return 0
    width = columns(sys.stdout)
    print("\n\n".join("\n".join(_table(device, listed, width)) for device in presence.devices))
    for kind, reason in presence.absent.items():
        print(painted(f"\n{kind} absent: {reason}", "faint", sys.stdout))
    return 0


def _chosen(patterns: Sequence[str], known: Mapping[str, _Listed], what: str) -> list[_Listed]:
    """Return what the patterns name, in the order of `known`; all of it without patterns."""
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            raise ArgumentError(
                f"no {what} is named {pattern!r}{did_you_mean(pattern, known)}; without a name, all are listed"
            )
    return [one for name, one in known.items() if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)]


def _list_checks(names: Sequence[str]) -> int:
    """Print what each generated check requires, as its docstring says."""
    from cuassay.testing.generated.checks import CHECKS

    width = columns(sys.stdout)
    for name, check in _chosen(names, {name: (name, check) for name, check in CHECKS.items()}, "check"):
        print(fitted(f"{name}: {' '.join(check.doc.split())}", width))
    return 0


def _cells(devices: Sequence[Device], listed: Sequence[Op]) -> Iterable[tuple[Device, Op, str]]:
    return ((device, op, dtype) for device in devices for op in listed for dtype in DTYPE_NAMES)


def _row(op: Op, dtype: str, device: Device) -> dict[str, Any]:
    reason = _why_not(op, dtype, device) if _is_defined(op, dtype) else f"{op.name} is not defined for {dtype}"
    return {"op": op.name, "dtype": dtype, "device": str(device), "supported": reason is None, "reason": reason}


def _is_defined(op: Op, dtype: str) -> bool:
    return dtype in op.schema.dtypes


def _why_not(op: Op, dtype: str, device: Device) -> str | None:
    """Return the reason without the device, which the table's head names."""
    reason = why_unsupported(op, device, dtype)
    return None if reason is None else reason.removeprefix(f"{device}: ")


def _table(device: Device, listed: Sequence[Op], width: int | None) -> Iterator[str]:
    """Yield one line per operation, for as many dtypes at a time as `width` allows; then the numbered reasons."""
    numbers: dict[str, int] = {}
    parts = list(_parts(max(len(op.name) for op in listed), width))
    for dtypes in parts:
        yield from _part(device, listed, dtypes, numbers)
        yield from [""] if len(parts) > 1 else []
    yield fitted(f"yes: supported; {_UNDEFINED}: the operation is not defined for the dtype", width)
    yield from (fitted(f"{number}: {reason}", width) for reason, number in numbers.items())


def _parts(name: int, width: int | None) -> Iterator[Sequence[str]]:
    """Return the dtypes in groups whose cells fit into `width` columns after a name of `name` characters."""
    count = len(DTYPE_NAMES) if width is None else max(1, (width - name) // _CELL)
    return (DTYPE_NAMES[start : start + count] for start in range(0, len(DTYPE_NAMES), count))


def _part(device: Device, listed: Sequence[Op], dtypes: Sequence[str], numbers: dict[str, int]) -> Iterator[str]:
    name = max(len(op.name) for op in listed)
    yield painted(f"{device!s:{name}}" + "".join(f"{_head(dtype):>{_CELL}}" for dtype in dtypes), "bold", sys.stdout)
    for op in listed:
        yield f"{op.name:{name}}" + "".join(f"{_cell(op, dtype, device, numbers):>{_CELL}}" for dtype in dtypes)


def _head(dtype: str) -> str:
    return _HEADS.get(dtype) or dtype[0] + dtype.lstrip("abcdefghijklmnopqrstuvwxyz")


def _cell(op: Op, dtype: str, device: Device, numbers: dict[str, int]) -> str:
    if not _is_defined(op, dtype):
        return _UNDEFINED
    reason = _why_not(op, dtype, device)
    return "yes" if reason is None else str(numbers.setdefault(_general(reason, op, dtype), len(numbers) + 1))


def _general(reason: str, op: Op, dtype: str) -> str:
    """Generalize a reason: "no storage:float64: WHY" becomes WHY, and no operation is named."""
    _, is_of_dtype, why = reason.partition(f":{dtype}: ")
    return why if is_of_dtype else reason.replace(f"{op.name} has no kernel for {dtype}", "there is no kernel")
