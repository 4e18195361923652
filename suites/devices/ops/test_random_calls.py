"""Random calls of every public function and operation, with one to three bad values each, reproducible by their seed.

A test run makes a few thousand. ``python suites/devices/ops/test_random_calls.py CALLS SEED`` makes as many as it is
told, on cpu and sim; ``ci/run endurance`` calls it. A failure names the function and its bad values as
``bad_values`` does.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "shared"))

from bad_calls import (
    answer,
    files_land_elsewhere,  # noqa: F401  a fixture for every test here, as the two others
    functions,
    hangs_are_ended,  # noqa: F401
    op_call,
    parameters,
    required,
    state_restored,  # noqa: F401
    told,
)
from bad_values import BAD

from cuassay import Device, ops

#: Calls of each seed in a test run.
CALLS = 1000


def calls(count: int, seed: int, device: Device) -> dict[str, str]:
    """Make `count` calls; those whose answers break the rule, each with what is wrong."""
    drawn = random.Random(seed)  # noqa: S311  reproducible is what it must be
    called = [(path, function, parameters(function)) for path, function in functions()]
    called += [(op.name, op, tuple(param.name for param in op.schema.params)) for op in ops.ops()]
    called = [one for one in called if one[2]]
    offences = {}
    for _ in range(count):
        name, function, names = drawn.choice(called)
        good = op_call(function, device) if isinstance(function, ops.Op) else required(function, device)
        changed = drawn.sample(names, min(len(names), drawn.randint(1, 3)))
        bad = {one: drawn.choice(list(BAD)) for one in changed}
        if good is None:
            continue
        found = answer(function, {**good, **{one: BAD[value]() for one, value in bad.items()}})
        if found is not None:
            offences[f"{name}({bad})"] = found
    return offences


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.filterwarnings("ignore")
def test_random_calls_with_bad_values_are_refused(device: Device, seed: int) -> None:
    offences = calls(CALLS, seed, device)

    assert not offences, told(offences)


def main(count: int, seed: int) -> int:
    """Make `count` calls on each kind that needs no hardware; 1 where one breaks the rule."""
    warnings.simplefilter("ignore")
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ("cpu", "sim"):
            offences = calls(count, seed, Device(name))
            print(f"{name}: {count:,} random calls, seed {seed}: {len(offences)} break the rule", flush=True)  # noqa: T201  a script
            print(told(offences), end="\n" * bool(offences))  # noqa: T201
            status |= bool(offences)
    return status


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(given or [30_000]), *([2026] if len(given) < 2 else [])))
