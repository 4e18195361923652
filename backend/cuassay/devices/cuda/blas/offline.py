"""Tuning of listed problems, separately from the program that recorded them: in this process, or in one process a GPU.

``python -m cuassay.devices.cuda.blas.offline DEVICE`` reads lines from standard input: first the state that was set by
calls in the parent process, then the problems. It adds results to the device's file, which accepts rows from several
processes, and writes a line for each result to standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cuassay.core.determinism import get_deterministic_debug_mode, set_deterministic_debug_mode
from cuassay.core.precision import current_precision, matmul_options, set_default_precision, set_matmul_options
from cuassay.devices.cuda.blas import controls
from cuassay.devices.cuda.blas.layouts import Stack, place
from cuassay.devices.cuda.blas.problem import Problem, compute_of, reductions_of, representative
from cuassay.devices.cuda.blas.tuning import OP, Options, tuner
from cuassay.devices.cuda.driver import runtime
from cuassay.errors import ArgumentError, StateError, TuningError
from cuassay.tune.results import read_untuned
from cuassay.tune.shapes import GemmShape

__all__ = ["main", "problem_of", "problems_in", "tune", "tune_on_several", "unknown"]

Row = dict[str, Any]
Tell = Callable[[Row], object]


def problems_in(paths: Sequence[str | Path]) -> tuple[Problem, ...]:
    """Return the products that files of untuned problems list, each once.

    Raises
    ------
    TuningError
        If there is no file, if a file is unreadable or of another kind, or if it lists something that is not a product.
    """
    if not paths:
        raise TuningError("no file of untuned products matches; record one first: cuda.tunable.record_untuned_enable()")
    found = []
    for op, problem in read_untuned(paths):
        if op != OP:
            raise TuningError(f"{', '.join(map(str, paths))} lists op {op!r}; only {OP!r} is tuned here")
        try:
            found.append(Problem.from_plain(problem))
        except ArgumentError as error:
            raise TuningError(f"{', '.join(map(str, paths))} lists something that is not a product: {error}") from error
    return tuple(found)


def problem_of(shape: GemmShape, dtype: str | None = None, out_dtype: str | None = None) -> Problem:
    """Return the product of a call of `cuassay.ops.mm`, in the current precision mode and with the current options.

    Parameters
    ----------
    shape : GemmShape
        The extents and the layout.
    dtype, out_dtype : str, optional
        Replace the shape's own dtypes; if only `dtype` is given, the result has it too.
    """
    taken = dtype or shape.dtype
    result = out_dtype or dtype or shape.out_dtype
    a, b = (
        Stack(1, rows, columns, 0, *((columns, 1) if letter == "N" else (1, rows)), taken)
        for letter, rows, columns in zip(shape.layout, (shape.m, shape.k), (shape.k, shape.n), strict=True)
    )
    d = Stack(1, shape.m, shape.n, 0, shape.n, 1, result)
    options = matmul_options()
    fields = {"compute": compute_of(taken, current_precision(), options), "reductions": reductions_of(taken, options)}
    placed = place(a, b, None, d, **fields)
    if isinstance(placed, str):
        raise ArgumentError(f"no library multiplies {shape}: operand {placed} would have to be copied")
    return placed.problem


def unknown(problems: Iterable[Problem], device: int) -> list[Problem]:
    """Return the problems that have no result yet, each once."""
    known = tuner().results(device)
    once = dict.fromkeys(map(representative, problems))
    return [problem for problem in once if known.find(OP, problem.plain()) is None]


def tune(problems: Iterable[Problem], device: int, tell: Tell | None = None) -> None:
    """Tune each problem that is not known yet on `device`; `tell` receives a row for each product when it is found.

    Raises
    ------
    CuassayError
        If a product cannot run at all.
    """
    with runtime.device(device):
        for problem in unknown(problems, device):
            report = tuner().tune(problem, device)
            if tell is not None:
                tell(report.row())


def tune_on_several(problems: Sequence[Problem], devices: Sequence[int], tell: Tell | None = None) -> None:
    """Tune in one process for each device, dividing the products among them; all add to their devices' files.

    Raises
    ------
    StateError
        If results are not written, since the processes hand them over in files; or if a process failed: the others have
        then finished, and their results are kept.
    """
    if not tuner().options.writing:
        raise StateError(
            "tuning processes exchange results through files, but no file is written; "
            "call cuda.tunable.write_file_on_exit(True), or tune on one device"
        )
    lock, state = threading.Lock(), _called()

    def run(place: int) -> int:
        part = [representative(problem).plain() for problem in problems[place :: len(devices)]]
        command = [sys.executable, "-m", __name__, str(devices[place])]
        process: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with process:
            # Write everything before reading: the child reads all of its input before it starts.
            with suppress(BrokenPipeError):  # the child has ended already; its status says why
                process.stdin.write("".join(f"{json.dumps(line)}\n" for line in (state, *part)))
                process.stdin.close()
            for line in process.stdout:
                with lock:
                    if tell is not None:
                        tell(json.loads(line))
        return int(process.returncode)

    with ThreadPoolExecutor(len(devices)) as pool:
        statuses = dict(zip(devices, pool.map(run, range(len(devices))), strict=True))
    failed = [f"cuda:{device} ended with {status}" for device, status in statuses.items() if status]
    if failed:
        raise StateError(f"a tuning process failed: {', '.join(failed)}; see what it printed")


def main(device: int) -> None:
    """Tune the problems on standard input, which follow a line with the parent's state; print a row for each."""
    state, *problems = (json.loads(line) for line in sys.stdin)
    _adopt(state)
    tune(map(Problem.from_plain, problems), device, _show)


def _called() -> dict[str, Any]:
    """Return, as JSON data, the state that calls have set and that affects products.

    Settings are in the environment.
    """
    return {
        "options": tuner().options.plain(),
        "precision": current_precision(),
        "products": asdict(matmul_options()),
        "determinism": get_deterministic_debug_mode(),
        "blas": controls.called(),
    }


def _adopt(state: Mapping[str, Any]) -> None:
    """Set the state that another process returned from `_called`."""
    set_default_precision(state["precision"])
    set_matmul_options(**state["products"])
    set_deterministic_debug_mode(state["determinism"])
    controls.adopt(state["blas"])
    tuner().configure(**Options.fields_of(state["options"]))


def _show(row: Row) -> None:
    sys.stdout.write(f"{json.dumps(row)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
