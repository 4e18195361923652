"""Compare randomly drawn bodies on NumPy with a C++ compiler; see ``suites/shared/random_bodies.py``.

``python ci/bodies.py NUMBER [FIRST] [--seconds S]`` prints the seeds whose results differ in any bit, and how many
bodies were compared; the exit status is 1 if a result differs. One run of the compiler takes 250 bodies. 10,000 bodies
take about 75 s of one core.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "suites" / "shared"))

from random_bodies import compiled, computed, draw  # type: ignore[import-not-found]

__all__ = ["main"]

#: The number of bodies that are compiled as one source.
_STEP = 250


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the bodies that the arguments name; return the exit status."""
    parser = argparse.ArgumentParser(prog="python ci/bodies.py", description="Compare random bodies with a compiler.")
    parser.add_argument("number", type=int, help="the number of bodies")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the first seed (0)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further 250 bodies after this time")
    asked = parser.parse_args(argv)
    begun, compared, different = time.monotonic(), 0, 0
    end = asked.first + asked.number
    for begin in range(asked.first, end, _STEP):
        if time.monotonic() - begun > asked.seconds:
            break
        seeds = range(begin, min(begin + _STEP, end))
        for told in _differences(seeds):
            different += 1
            print(told, flush=True)
        compared += len(seeds)
    cut = "" if compared == asked.number else f" of {asked.number:,}"
    print(f"{compared:,}{cut} bodies from seed {asked.first}, {different:,} differ ({time.monotonic() - begun:.0f} s)")
    return int(different > 0)


def _differences(seeds: range) -> Iterator[str]:
    """Compile the bodies of the seeds as one source, and yield a line for each that differs."""
    bodies = [draw(seed) for seed in seeds]
    with tempfile.TemporaryDirectory() as folder:
        wanted = compiled(bodies, Path(folder))
    for seed, one, want in zip(seeds, bodies, wanted, strict=True):
        try:
            got = computed(one)
        except Exception as error:  # noqa: BLE001  every exception is a finding
            yield f"seed {seed}, {one.dtype}: {error!r}"
            continue
        if not np.array_equal(got, want, equal_nan=True):
            yield f"seed {seed}, {one.dtype}: another result"


if __name__ == "__main__":
    sys.exit(main())
