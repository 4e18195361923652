"""Tests whose files moved: rows of earlier runs get the current ids of the tests.

pytest's id begins with the path of the file. Otherwise a moved test would have no history: a failure that is years old
would be called new, and a test that passed before the move and is skipped after it would not be missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cuassay_reports.frames import pd

__all__ = ["with_current_ids"]


def with_current_ids(tests: pd.DataFrame, newest: pd.DataFrame) -> pd.DataFrame:
    """Return `tests` with the earlier ids of moved tests replaced by those they have in `newest`.

    A test has moved if only earlier runs have its id, only `newest` has an id that differs only in the file, and no
    other id on either side does so.

    Parameters
    ----------
    tests : pandas.DataFrame
        Rows of any runs.
    newest : pandas.DataFrame
        The rows of each subject's newest run.
    """
    if tests.empty:
        return tests
    orders = newest.drop_duplicates("subject").set_index("subject")["order"]
    before = set(tests.loc[tests["order"] < tests["subject"].map(orders), "nodeid"].unique())
    now = set(newest["nodeid"].unique())
    gone, added = _by_test(before - now), _by_test(now - before)
    moves = {gone[test]: added[test] for test in gone.keys() & added.keys()}
    return tests.assign(nodeid=tests["nodeid"].map(lambda nodeid: moves.get(nodeid, nodeid))) if moves else tests


def _by_test(ids: Iterable[str]) -> dict[str, str]:
    """Map the part after the file to the id, for tests whose name is in only one file."""
    tests = {nodeid: nodeid.partition("::")[2] for nodeid in ids if "::" in nodeid}
    files = Counter(tests.values())
    return {test: nodeid for nodeid, test in tests.items() if files[test] == 1}
