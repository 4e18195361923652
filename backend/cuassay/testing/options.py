"""The harness's command-line options and their names.

They are registered as ``--cuassay-*``, a prefix that no other plugin uses. The short names ``--device`` and
``--require-device`` work only if no plugin or conftest defines them. That is known once the conftests are loaded. Short
names are then rewritten to long ones, and never registered, so that a conftest found later may still define them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

__all__ = ["SHORT_FLAGS", "SHORT_NAMES", "add_options", "hide_values", "split_list", "translate_short_names"]

#: Short names and the options that they mean.
SHORT_NAMES = {"--device": "--cuassay-device", "--require-device": "--cuassay-require-device"}

#: The same for options that take no value.
SHORT_FLAGS = {"--check-skips": "--cuassay-check-skips"}

_DEVICE_HELP = (
    "device to test on: kind (index 0), kind:index, kind:* (every one of that kind) or all (every kind present); "
    "may be repeated or given as a comma list; default: the setting CUASSAY_DEVICES, else accelerators, else cpu"
)
_REQUIRE_HELP = "fail unless this device is present and at least one test passes or fails on it; selects it as well"
_CHECK_HELP = (
    "run the tests that the tables of cuassay_skips skip as well, and tell which pass; their failures fail nothing"
)
_SKIPS_HELP = "tables of known skips and expected failures: TOML files, or folders of them"
_SHARD_HELP = (
    "run one part of the collected cases: I/N is the I-th of N, from 1, each in a process of its own at the same "
    "time; tests marked `exclusive` are in no part, and run with: alone"
)
_BUDGET_HELP = "fail if more than N tests are skipped, of all or of device or kind D; may be repeated"
_BASELINE_HELP = "fail if a test is skipped that ran in the record FILE, which --cuassay-record wrote"
_UNCHECKED_HELP = "fail if a test passes without an assertion or a checking function having run; it traces the tests"
_ISOLATE_HELP = (
    "run the tests in a worker process: one that crashes, hangs longer than CUASSAY_HANG_SECONDS or loses its device "
    "costs the test it ran, and the rest goes on in a fresh process; workers of xdist are replaced without it"
)
_RESUME_HELP = (
    "run only the tests that have no outcome in the record FILE, such as that of a session that was killed; with "
    "--collect-only they are listed"
)
_TIMELINE_HELP = (
    "keep a timeline of each test that fails or is slow in the folder DIR, as one page: ops, kernels, copies, waits "
    "and memory"
)
_SANITIZE_HELP = (
    "fail a test whose work on a CUDA device is not ordered: an access that no wait orders after a conflicting one of "
    "another stream, or memory that is freed too early; tests marked `racing` may"
)
_SLOW_HELP = "seconds from which a test is slow for --cuassay-timeline; 10 if it is not given"
_WORKERS_HELP = (
    "how workers of xdist meet devices: one (default) runs the tests of a device in one worker at a time; own gives "
    "each worker a device of its own, by UUID; share gives each worker one that others may have as well, and reserves "
    "the memory that tests declare"
)


def add_options(parser: pytest.Parser) -> None:
    """Register the options under their long names."""
    group = parser.getgroup("cuassay", "cuassay: tests on every device")
    group.addoption("--cuassay-device", action="append", default=[], metavar="D", help=_DEVICE_HELP)
    group.addoption("--cuassay-require-device", action="append", default=[], metavar="D", help=_REQUIRE_HELP)
    group.addoption(
        "--cuassay-record",
        metavar="FILE",
        help="append the outcomes to FILE, as JSON lines that `cuassay report` reads",
    )
    group.addoption(
        "--cuassay-run",
        metavar="ID",
        help="id of the run these rows belong to, whose run row somebody else has written",
    )
    group.addoption("--cuassay-fail-nowhere", action="store_true", help="fail if a test ran on no device")
    group.addoption("--cuassay-fail-unchecked", action="store_true", help=_UNCHECKED_HELP)
    group.addoption("--cuassay-skip-budget", action="append", default=[], metavar="[D=]N", help=_BUDGET_HELP)
    group.addoption("--cuassay-skip-baseline", metavar="FILE", help=_BASELINE_HELP)
    group.addoption("--cuassay-isolate", action="store_true", help=_ISOLATE_HELP)
    group.addoption("--cuassay-workers", choices=("one", "own", "share"), default="one", help=_WORKERS_HELP)
    group.addoption("--cuassay-resume", metavar="FILE", help=_RESUME_HELP)
    group.addoption("--cuassay-shard", metavar="I/N", help=_SHARD_HELP)
    group.addoption("--cuassay-check-skips", action="store_true", help=_CHECK_HELP)
    group.addoption("--cuassay-sanitize", action="store_true", help=_SANITIZE_HELP)
    group.addoption("--cuassay-timeline", metavar="DIR", help=_TIMELINE_HELP)
    group.addoption("--cuassay-timeline-slow", type=float, default=10.0, metavar="S", help=_SLOW_HELP)
    parser.addini("cuassay_skips", type="paths", default=[], help=_SKIPS_HELP)


def split_list(values: Iterable[str]) -> tuple[str, ...]:
    """Split comma-separated values of repeated options; each name once, in the order given."""
    names = (name.strip() for value in values for name in value.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def hide_values(early_config: pytest.Config, args: list[str]) -> None:
    """Remove the values of short names from pytest's list of paths, before it looks there for conftests."""
    values = {value for name, value in pairwise(args) if name in SHORT_NAMES}
    paths = early_config.known_args_namespace.file_or_dir
    paths[:] = [path for path in paths if path not in values or Path(path).exists()]


def translate_short_names(args: list[str], parser: pytest.Parser, *, for_help: bool) -> None:
    """Rewrite short names in `args`, in place, unless somebody else defines them; with `for_help`, register them."""
    for short, long in (SHORT_NAMES | SHORT_FLAGS).items():
        if not _is_free(parser, short):
            continue
        args[:] = [_renamed(argument, short, long) for argument in args]
        if for_help:
            _show(parser, short, long)


def _is_free(parser: pytest.Parser, name: str) -> bool:
    try:
        _, unknown = parser.parse_known_and_unknown_args([f"{name}=cpu"])
    except (pytest.UsageError, ValueError):  # the option that has this name rejects the value
        return False
    return bool(unknown)


def _renamed(argument: str, short: str, long: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{long}{equals}{value}" if name == short else argument


def _show(parser: pytest.Parser, short: str, long: str) -> None:
    form: dict[str, Any] = {"action": "store_true"} if short in SHORT_FLAGS else {"action": "append", "metavar": "D"}
    parser.getgroup("cuassay").addoption(short, help=f"short for {long}; free in this project", **form)
