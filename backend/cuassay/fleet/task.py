"""What is sent to a worker: words alone. No object of the tests' code is pickled or unpickled anywhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ROWS", "TESTS", "Task"]

#: Words of a task's arguments that stand for files of the worker: the rows it writes, and the ids of its tests.
ROWS = "{rows}"
TESTS = "{tests}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One shard for one worker.

    Attributes
    ----------
    run, attempt : str, int
        Which attempt of which run this is; its rows bear both.
    digest : str
        Of the code that the worker must have; see `cuassay.fleet.code`.
    code : str
        Whose digest it is: a distribution, or ``.`` for the files of the worker's folder.
    arguments : tuple of str
        For ``python -m``; `ROWS` and `TESTS` in them are replaced.
    tests : tuple of str
        Ids of the shard's tests.
    kinds : tuple of str
        The devices that are checked first.
    flush_s : float
        How long rows are gathered before they are sent, seconds.
    """

    run: str
    attempt: int
    digest: str
    code: str
    arguments: tuple[str, ...]
    tests: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    flush_s: float = 0.1

    def words(self) -> dict[str, Any]:
        """It as plain data."""
        return asdict(self)

    @property
    def topic(self) -> str:
        """The topic under which its rows are sent."""
        return f"cuassay-{self.run}"
