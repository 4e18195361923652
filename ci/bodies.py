"""Compare randomly drawn bodies on NumPy with a C++ compiler; see ``suites/shared/random_bodies.py``.

``python ci/bodies.py NUMBER [FIRST]`` prints the seeds whose results differ; the exit status is 1 if there are any.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "suites" / "shared"))

from random_bodies import compiled, computed, draw  # type: ignore[import-not-found]

__all__ = ["main"]

#: The number of bodies that are compiled as one source.
_STEP = 250


def main(many: int, first: int = 0) -> int:
    """Compare `many` bodies from seed `first` on; return the exit status."""
    different = 0
    for begin in range(first, first + many, _STEP):
        bodies = [draw(seed) for seed in range(begin, min(begin + _STEP, first + many))]
        with tempfile.TemporaryDirectory() as folder:
            wanted = compiled(bodies, Path(folder))
        for seed, one, want in zip(range(begin, begin + _STEP), bodies, wanted, strict=False):
            try:
                got = computed(one)
            except Exception as error:  # noqa: BLE001  every exception is a finding
                got, why = None, repr(error)
            if got is None or not np.array_equal(got, want, equal_nan=True):
                different += 1
                print(f"seed {seed}, {one.dtype}: {why if got is None else 'another result'}")
    print(f"{many:,} bodies, {different:,} differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
