"""The input that ``cuassay report --suspects`` writes for ``cuassay ab -``: two commits, a device, benchmark names."""

from __future__ import annotations

import argparse
import json
import sys

from cuassay.errors import ArgumentError

__all__ = ["fill_in"]


def fill_in(options: argparse.Namespace) -> bool:
    """Take the comparison from standard input if BASE is ``-``; return False if there is nothing to compare.

    Raises
    ------
    ArgumentError
        If BASE or HEAD is missing, or standard input is not output of the report.
    """
    if options.base != "-":
        if options.head is None:
            raise ArgumentError(
                f"HEAD is missing; got BASE {options.base!r} alone; give both, or - for suspects of a report"
            )
        return True
    text = sys.stdin.read()
    try:
        suspects = json.loads(text)
        base, head, device, names = (suspects[key] for key in ("base", "head", "device", "benchmarks"))
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"standard input holds {text[:60]!r}, not suspects; write: cuassay report DIR --suspects | cuassay ab -"
        ) from error
    if not names:
        return False
    if not (base and head) or base == head:
        raise ArgumentError(
            f"the suspects are between commit {base!r} and {head!r}; record runs inside a git checkout, of two commits"
        )
    options.base, options.head, options.only = base, head, [*options.only, *names]
    if options.run is None:  # the command of --run names its own device
        options.device = options.device or device
    return True
