"""The committed ledger, judged: runs on many cards and hosts are compared, and what did not change is not accused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cuassay.benchmarking.asv import main
from cuassay_reports.analysis import load
from cuassay_reports.compare import SERIES, changes
from cuassay_reports.load import Results, grouped_by, records
from cuassay_reports.pairs import Pairs

ROOT = Path(__file__).parents[3]
LEDGER = ROOT / "reports" / "ledger"

#: The newest run of the ledger that these figures were stated for: later ones may be of other hardware.
LAST = "20261122T203306-f9dd1e"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the ledger's files of the days up to that run; each later one would make these tests slower."""
    if not LEDGER.is_dir():
        pytest.skip("the ledger is not here: a source distribution leaves it out")
    folder = tmp_path_factory.mktemp("ledger")
    for file in LEDGER.glob("*.jsonl.gz"):
        if file.name[:10].replace("-", "") <= LAST[:8]:
            shutil.copy(file, folder)
    return folder


@pytest.fixture(scope="module")
def until(files: Path) -> Results:
    """The ledger up to the run that the figures were stated for."""
    ledger = load(files)
    last = int(ledger.runs.index[ledger.runs["run"] == LAST][0])
    kept = {name: getattr(ledger, name) for name in ("devices", "tests", "times", "limits")}
    older = {name: frame[frame["order"] <= last].reset_index(drop=True) for name, frame in kept.items()}
    return Results(runs=ledger.runs.iloc[: last + 1], **older)


def test_nine_in_ten_of_the_newest_rows_have_a_verdict(until: Results) -> None:
    found = changes(until)
    newest = found[found["run"] == LAST]
    refused = newest[(newest["verdict"] == "") & newest["why"].str.contains("uuid|cores")]

    assert len(newest) == 346
    assert (newest["verdict"] != "").mean() >= 0.9
    assert len(refused) == 0


def test_unchanged_peers_are_not_accused_across_cards(until: Results) -> None:
    """At most one false "slower" and one false "faster" in 300, over all ordered pairs of runs."""
    times = until.times[(until.times["groups"] == "") & until.times["implementation"].isin(["torch", "cupy"])]
    runs = {run: grouped_by(records(rows), SERIES) for run, rows in times.groupby("run", sort=False)}
    pairs = Pairs(until)
    words = pd.Series([
        pairs.pair(old, new, "cuda:0").judge(runs[old][key][-1], rows[-1])[0].word
        for old, new in permutations(runs, 2)
        for key, rows in runs[new].items()
        if key in runs[old]
    ])  # fmt: skip

    assert len(words) > 5000
    assert (words == "slower").mean() <= 1 / 300
    assert (words == "faster").mean() <= 1 / 300


def test_a_slow_down_of_a_fifth_is_seen_across_cards(until: Results) -> None:
    times = until.times.copy()
    planted = (times["run"] == LAST) & (times["implementation"] == "cuassay") & (times["median"] > 20e-6)
    planted &= times["launches"] == "queued"
    times.loc[planted, ["median", "q25", "q75"]] *= 1.2
    found = changes(Results(until.runs, until.devices, until.tests, times, until.limits))

    seen = found[(found["run"] == LAST) & (found["verdict"] == "slower")]
    assert len(seen) >= 0.9 * planted.sum()


def test_asv_lists_at_most_two_regressions(files: Path, until: Results, tmp_path: Path) -> None:
    pytest.importorskip("asv", reason="asv is an extra")
    commits = [commit for commit in until.runs["commit"].unique() if commit]
    if sum(_git("merge-base", "--is-ancestor", commit, "HEAD") == 0 for commit in commits) < len(commits) / 2:
        pytest.skip("most commits of the ledger are not in this clone: fetch the whole history")
    assert main([str(files), "--out", str(tmp_path / "results")]) == 0

    text = re.sub(r"^ *//.*$", "", (ROOT / "asv.conf.json").read_text(), flags=re.MULTILINE)
    settings: dict[str, Any] = json.loads(text)
    settings |= {"repo": str(ROOT), "results_dir": "results", "html_dir": "html", "branches": ["HEAD"]}
    (tmp_path / "asv.conf.json").write_text(json.dumps(settings))
    subprocess.run([sys.executable, "-m", "asv", "publish"], cwd=tmp_path, check=True, capture_output=True)

    assert len(json.loads((tmp_path / "html" / "regressions.json").read_text())["regressions"]) <= 2


def _git(*arguments: str) -> int:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False).returncode
