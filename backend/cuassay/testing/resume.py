"""``--cuassay-resume FILE`` runs only the tests without an outcome in a record, such as that of a killed session.

The test that ran when the session was killed has no outcome. Workers read only as much of the file as the controller
has read, because the controller may append to the same file.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cuassay.testing.isolation import worker_input

__all__ = ["Resume"]

_NBYTES_KEY = "cuassay_resume_nbytes"


class Resume:
    """A pytest plugin that deselects the tests that have an outcome.

    Parameters
    ----------
    path : Path
        The record.
    nbytes : int, optional
        The number of bytes to read; by default the whole file.

    Raises
    ------
    pytest.UsageError
        If the file is not a record.
    """

    def __init__(self, path: Path, nbytes: int | None = None) -> None:
        self._path = path
        try:
            self._nbytes = path.stat().st_size if nbytes is None else nbytes
            with path.open("rb") as file:
                self._done = _outcomes_in(file.read(self._nbytes))
        except (OSError, ValueError, KeyError, TypeError) as error:
            what = "does not exist" if isinstance(error, FileNotFoundError) else f"is not a record: {error!r}"
            raise pytest.UsageError(
                f"--cuassay-resume {path} {what}; name a file that --cuassay-record wrote"
            ) from None
        self._left_out = 0

    def __repr__(self) -> str:
        return f"Resume({str(self._path)!r}, {self._done.total()} outcomes)"

    @classmethod
    def of(cls, config: pytest.Config) -> Resume:
        """Make the plugin from the option; in a worker, read as much of the file as the controller did."""
        return cls(Path(config.getoption("cuassay_resume")), worker_input(config, _NBYTES_KEY))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Make a worker deselect the same tests."""
        node.workerinput[_NBYTES_KEY] = self._nbytes

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the tests without an outcome; of several tests with one node id, the first ones ran."""
        done, kept, left_out = self._done.copy(), list[pytest.Item](), list[pytest.Item]()
        for item in items:
            (left_out if done[item.nodeid] > 0 else kept).append(item)
            done[item.nodeid] -= 1
        items[:] = kept
        self._left_out = len(left_out)
        if left_out:
            config.hook.pytest_deselected(items=left_out)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let the session succeed if no test is left."""
        if self._left_out and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK


def _outcomes_in(text: bytes) -> Counter[str]:
    """The number of outcomes of each test; a last line that is incomplete is ignored."""
    rows = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
    return Counter(row["nodeid"] for row in rows if row["record"] == "test")
