"""Whether a worker's device is well: asked before each shard, so that a device that is lost fails no test.

A device of the host is asked in this process. Any other is used by a process of its own for a moment: a driver that
hangs then costs a time limit, and the worker itself never holds a context.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from cuassay.core.device import HOST_KINDS

__all__ = ["main", "why_unfit"]

#: Until a device must have answered; the first use of a GPU after a restart takes seconds.
_SECONDS = 60.0

_ELEMENTS = 4096


def why_unfit(kind: str) -> str | None:
    """Why the first device of `kind` cannot run tests, or None."""
    if kind in HOST_KINDS:
        return _why_unfit_here(kind)
    command = [sys.executable, "-m", "cuassay.fleet.health", kind]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"{kind}:0 did not answer within {_SECONDS:g} s"
    if asked.returncode == 0:
        return None
    lines = (asked.stdout.strip() or asked.stderr.strip()).splitlines()
    return lines[-1] if lines else f"{kind}:0 ended the process that used it, with status {asked.returncode}"


def _why_unfit_here(kind: str) -> str | None:
    """Copy numbers there and back, after asking the driver."""
    import numpy as np

    from cuassay.devices import backend

    try:
        owner = backend(kind)
        why = owner.why_absent() or owner.health(0)
        if why is None:
            numbers = np.arange(_ELEMENTS, dtype=np.float32)
            found = owner.to_host(owner.from_host(numbers, 0))
            owner.synchronize(0)
            why = None if np.array_equal(found, numbers) else "numbers that were copied there came back changed"
    except Exception as error:  # noqa: BLE001  whatever it is, the device is not fit
        why = f"{type(error).__name__}: {error}"
    return None if why is None else f"{kind}:0 is not well: {why.splitlines()[0]}"


def main(argv: Sequence[str]) -> int:
    """Print why the device of a kind is not well; gives the exit status."""
    why = _why_unfit_here(argv[0])
    if why is not None:
        print(why)  # noqa: T201  the worker reads it
    return int(why is not None)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
