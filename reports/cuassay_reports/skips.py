"""What did not run and why: skips by reason, tests that ran nowhere, and what is new since the previous run.

A green page means nothing if half of it was skipped, so skips are shown with the same care.
"""

from __future__ import annotations

import re

from cuassay_reports.frames import pd
from cuassay_reports.load import Results
from cuassay_reports.moved import with_current_ids

__all__ = ["by_reason", "new_since", "nowhere", "without_device"]

#: Part of the id of a test for which no device was chosen.
_NOWHERE = re.compile(r"[\[-]nowhere[-\]]")

#: The reason of a generated check that its declaration leaves out by `without=`.
_OPTED_OUT = re.compile(r"\S+ opts out of \w+: ")


def by_reason(tests: pd.DataFrame) -> pd.DataFrame:
    """Group skips by reason.

    Returns
    -------
    pandas.DataFrame
        `reason`, `count`, `devices` and `ops` (tuples), most frequent first.
    """
    skipped = tests[tests["outcome"] == "skipped"]
    rows = [
        {
            "reason": reason or "no reason given",
            "count": len(group),
            "devices": _names(group["device"]),
            "ops": _names(group["op"]),
        }
        for reason, group in skipped.groupby("reason", sort=False)
    ]
    found = pd.DataFrame(rows, columns=["reason", "count", "devices", "ops"])
    return found.sort_values("count", ascending=False, kind="stable", ignore_index=True)


def nowhere(results: Results) -> pd.DataFrame:
    """Return the tests that were skipped wherever they were collected: on every device, in each of several jobs.

    The newest run of every subject counts, and every other run of their commits, because the jobs of one commit may
    share a device or divide the tests. A run with uncommitted changes counts only if it is the newest. If the commit of
    a subject's newest run is unknown, a test that it lacks counts as in the newest run that has it, because the newest
    run may be of a few tests. A test that a job collected for none of its devices counts as run if one of its cases ran
    in another job. A generated check that its declaration leaves out does not count.

    Returns
    -------
    pandas.DataFrame
        `test` (the id without its device), `subjects` and `reasons` (tuples).
    """
    tests = _of_newest_commits(results)
    tests = tests[~tests["reason"].str.match(_OPTED_OUT)]
    columns = (tests[name] for name in ("nodeid", "device", "dtype", "template"))
    is_nowhere = (tests["device"] == "") & (tests["nodeid"].str.contains(_NOWHERE) | (tests["template"] != ""))
    marked = tests.assign(test=[_name(*row) for row in zip(*columns, strict=True)], is_nowhere=is_nowhere)
    known = {name.partition("[")[0] for name in marked.loc[~marked["is_nowhere"], "test"]}
    ran = set(marked.loc[marked["outcome"] != "skipped", "test"])
    idle = marked[~marked["test"].isin(ran) & ~(marked["is_nowhere"] & marked["test"].isin(known))]
    rows = [
        {"test": test, "subjects": _names(group["subject"]), "reasons": _names(group["reason"])}
        # The newest run comes first; the reasons of an earlier one may name lines that have moved.
        for test, group in idle.drop_duplicates(["subject", "nodeid"]).groupby("test", sort=False)
    ]
    return pd.DataFrame(rows, columns=["test", "subjects", "reasons"])


def _of_newest_commits(results: Results) -> pd.DataFrame:
    newest = results.latest().tests
    runs = results.runs
    commits = set(runs.loc[runs["run"].isin(newest["run"]), "commit"]) - {""}
    clean = runs.loc[runs["commit"].isin(commits) & ~runs["dirty"].eq(True).fillna(False), "run"]
    of_commits = results.tests[results.tests["run"].isin(clean)]
    found: pd.DataFrame = pd.concat([newest, of_commits, _lacking(results, newest)], ignore_index=True)
    return found


def _lacking(results: Results, newest: pd.DataFrame) -> pd.DataFrame:
    """Return, for subjects whose newest run has no known commit, the newest rows of tests that this run lacks."""
    runs, tests = results.runs, results.tests
    unknown = runs.loc[runs["commit"] == "", "run"]
    subjects = newest.loc[newest["run"].isin(unknown), "subject"].unique()
    older = tests[tests["run"].isin(unknown) & tests["subject"].isin(subjects) & ~tests["run"].isin(newest["run"])]
    held = pd.MultiIndex.from_frame(newest[["subject", "nodeid"]])
    lacking = older[~pd.MultiIndex.from_frame(older[["subject", "nodeid"]]).isin(held)]
    return lacking.drop_duplicates(["subject", "nodeid"], keep="last")


def _name(nodeid: str, device: str, dtype: str, template: str) -> str:
    """Return the name of a test on every device: its id without the device, or the test of its template."""
    if template:
        name = f"{nodeid.partition('::')[0]}::{template}"
        return f"{name}[{dtype}]" if dtype else name
    return without_device(nodeid, device) if device or not _NOWHERE.search(nodeid) else nodeid.partition("[")[0]


def without_device(nodeid: str, device: str) -> str:
    """Return a test's id with its device taken out: ``t[sim:0-float32]`` becomes ``t[float32]``."""
    head, bracket, parameters = nodeid.partition("[")
    if not device or not bracket:
        return nodeid
    parts = [part for part in parameters.removesuffix("]").split("-") if part != device]
    return f"{head}[{'-'.join(parts)}]" if parts else head


def new_since(results: Results) -> pd.DataFrame:
    """Return the tests that now fail or are skipped, and did not in the subject's previous run.

    A test that was not there before is new only if it fails, because adding a test that one device skips is not a loss.
    For a subject without an earlier run nothing is new.

    Returns
    -------
    pandas.DataFrame
        Rows of the newest tests, with `before`, the previous outcome ("" if there was none).
    """
    newest = results.latest().tests
    now = newest[newest["outcome"].isin(["failed", "error", "skipped"])]
    pairs = now.merge(_previous(results.tests, newest), on=["subject", "nodeid"], how="left")
    pairs["before"] = pairs["before"].fillna("")
    failing = pairs["outcome"] != "skipped"
    had = pairs["subject"].isin(_seen_before(results.tests, newest))
    # A failure that is now skipped is reported too, because skipping is a way to hide it.
    lost = (failing & ~pairs["before"].isin(["failed", "error"])) | (~failing & ~pairs["before"].isin(["", "skipped"]))
    return pairs[had & lost].reset_index(drop=True)


def _earlier(tests: pd.DataFrame, newest: pd.DataFrame) -> pd.DataFrame:
    """Return the tests of each subject's last run before its newest."""
    current = newest.drop_duplicates("subject")[["subject", "order"]].rename(columns={"order": "now"})
    older = tests.merge(current, on="subject")
    older = older[older["order"] < older["now"]]
    return older[older["order"] == older.groupby("subject")["order"].transform("max")]


def _previous(tests: pd.DataFrame, newest: pd.DataFrame) -> pd.DataFrame:
    earlier = with_current_ids(_earlier(tests, newest), newest)
    return earlier[["subject", "nodeid", "outcome"]].rename(columns={"outcome": "before"})


def _seen_before(tests: pd.DataFrame, newest: pd.DataFrame) -> set[str]:
    return set(_earlier(tests, newest)["subject"])


def _names(values: pd.Series[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))
