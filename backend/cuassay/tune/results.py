"""Tuning results by op and problem, in memory and in a file that is bound to the machine they were measured on.

A problem is plain data with everything in a call that the choice depends on. The header of the file holds everything
else: the GPU, the driver and the libraries. If a problem has two rows, the later one is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuassay.errors import ArgumentError, TuningError
from cuassay.tune.results_file import ResultsFile
from cuassay.tune.search import Outcome
from cuassay.tune.space import Candidate
from cuassay_reports.lines import canonical

__all__ = ["VERSION", "Result", "Results", "append_untuned", "read_untuned"]

#: The version of both file formats. Files of another version are rejected.
VERSION = 1

_RESULTS, _UNTUNED = "cuassay tuning results", "cuassay untuned problems"

Problem = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The choice for one problem.

    Attributes
    ----------
    op : str
        The name of the op, such as ``gemm``.
    problem : mapping
        The problem as plain data.
    choice : Candidate
        The candidate to use.
    default_us, us : float
        Microseconds per call of the default and of the choice.
    gain, spread : float
        As in `Outcome`.
    """

    op: str
    problem: Problem
    choice: Candidate
    default_us: float
    us: float
    gain: float
    spread: float

    @classmethod
    def of(cls, op: str, problem: Problem, outcome: Outcome) -> Result:
        """Make a result from the outcome of a search."""
        return cls(
            op=op,
            problem=problem,
            choice=outcome.choice,
            default_us=round(outcome.default_s * 1e6, 4),
            us=round(outcome.chosen_s * 1e6, 4),
            gain=round(outcome.gain, 5),
            spread=round(outcome.spread, 5),
        )

    @property
    def key(self) -> tuple[str, str]:
        """The key under which results are stored."""
        return self.op, canonical(self.problem)

    def plain(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        figures = {name: getattr(self, name) for name in _FIGURES}
        return {"op": self.op, "problem": dict(self.problem), "choice": self.choice.plain(), **figures}

    @classmethod
    def from_plain(cls, row: Mapping[str, Any]) -> Result:
        """Make a result from the data that `plain` returned.

        Raises
        ------
        ArgumentError
            If a field is missing or has the wrong type. The message names the field and its value.
        """
        op, problem = _field(row, "op", str), _field(row, "problem", dict)
        choice = Candidate.from_plain(_field(row, "choice", dict))
        figures = {name: float(_field(row, name, (int, float))) for name in _FIGURES}
        return cls(op=op, problem=problem, choice=choice, **figures)


_FIGURES = ("default_us", "us", "gain", "spread")


def _field(row: Mapping[str, Any], name: str, wanted: type | tuple[type, ...]) -> Any:
    value = row.get(name)
    if not isinstance(value, wanted) or isinstance(value, bool):
        names = " or ".join(one.__name__ for one in (wanted if isinstance(wanted, tuple) else (wanted,)))
        raise ArgumentError(f"field {name} should be {names}; got {value!r}")
    return value


class Results:
    """The results of one machine so far. Safe to use from several threads.

    Parameters
    ----------
    validators : mapping
        What results depend on in addition to the problem: the GPU, the driver, and the version of each library.
    """

    def __init__(self, validators: Mapping[str, str]) -> None:
        self.validators = dict(validators)
        self._found: dict[tuple[str, str], Result] = {}
        self._unwritten: dict[tuple[str, str], Result] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Results({len(self._found)} of {self.validators})"

    def __len__(self) -> int:
        return len(self._found)

    def find(self, op: str, problem: Problem) -> Result | None:
        """Return the result for `problem`, or None."""
        return self._found.get((op, canonical(problem)))

    def all(self) -> tuple[Result, ...]:
        """Return every result, in the order in which their problems were first added."""
        with self._lock:
            return tuple(self._found.values())

    def unwritten(self) -> tuple[Result, ...]:
        """Return the results that were added but not written to a file."""
        with self._lock:
            return tuple(self._unwritten.values())

    def add(self, result: Result) -> None:
        """Keep `result` in memory."""
        with self._lock:
            self._found[result.key] = self._unwritten[result.key] = result

    def append(self, result: Result, path: str | Path) -> None:
        """Append `result` to a file.

        Raises
        ------
        TuningError
            If the file is unreadable, cut off, from another machine, or cannot be written.
        """
        self._file(path).append(result.plain())
        self._reached([result])

    def read(self, path: str | Path) -> int:
        """Load every result in a file, and return their number.

        Raises
        ------
        TuningError
            If the file is absent, unreadable, cut off, or from another machine. Nothing is loaded then.
        """
        rows = [_row(path, number, row, Result.from_plain) for number, row in self._file(path).read()]
        with self._lock:
            for result in rows:
                self._found[result.key] = result
                self._unwritten.pop(result.key, None)
        return len(rows)

    def write(self, path: str | Path) -> int:
        """Append the results that a file lacks or has different values for, and return the number of rows added.

        Raises
        ------
        TuningError
            If the file is unreadable, cut off, or from another machine.
        """
        there, mine = Results(self.validators), self.all()
        if Path(path).exists():
            there.read(path)
        missing = [result.plain() for result in mine if there._found.get(result.key) != result]
        if missing:
            self._file(path).append(*missing)
        self._reached(mine)
        return len(missing)

    def _reached(self, results: Iterable[Result]) -> None:
        """Mark these results as written, unless a problem has got another result meanwhile."""
        with self._lock:
            for result in results:
                if self._unwritten.get(result.key) == result:
                    del self._unwritten[result.key]

    def clear(self) -> None:
        """Forget all results. Files are not changed."""
        with self._lock:
            self._found.clear()
            self._unwritten.clear()

    def _file(self, path: str | Path) -> ResultsFile:
        return ResultsFile(path, {"format": _RESULTS, "version": VERSION, "validators": self.validators})


def _row(path: str | Path, number: int, row: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Any]) -> Any:
    try:
        return read(row)
    except ArgumentError as error:
        raise TuningError(f"{path} cannot be read: line {number}: {error}") from error


def append_untuned(path: str | Path, op: str, problem: Problem) -> None:
    """Append a problem to a file of problems to tune later, on any machine.

    Raises
    ------
    TuningError
        If the file has another format, is cut off, or cannot be written.
    """
    ResultsFile(path, {"format": _UNTUNED, "version": VERSION}).append({"op": op, "problem": dict(problem)})


def read_untuned(paths: Sequence[str | Path]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return the distinct ops and problems in these files.

    Raises
    ------
    TuningError
        If a file is absent, unreadable, cut off, or has another format.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in paths:
        for number, row in ResultsFile(path, {"format": _UNTUNED, "version": VERSION}).read():
            op = _row(path, number, row, lambda row: _field(row, "op", str))
            problem = _row(path, number, row, lambda row: _field(row, "problem", dict))
            found.setdefault((op, canonical(problem)), problem)
    return tuple((op, problem) for (op, _), problem in found.items())
