"""Print the legs of one workflow as the JSON that `strategy.matrix` takes.

Decides how a row of ci/matrix.toml becomes legs: one for each of its jobs.

    ci/matrix.py cpu
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["legs"]

ROWS = Path(__file__).with_name("matrix.toml")


def main(workflow: str) -> None:
    found = legs(tomllib.loads(ROWS.read_text())["machine"], workflow)
    if not found:
        raise SystemExit(f"no row of {ROWS.name} has workflow = {workflow!r}; an empty matrix would pass unseen")
    print(json.dumps({"include": found}))


def legs(rows: list[dict[str, Any]], workflow: str) -> list[dict[str, Any]]:
    """Return one leg per job of each of the workflow's rows."""
    return [_leg(row, job) for row in rows if row["workflow"] == workflow for job in row["jobs"]]


def _leg(row: dict[str, Any], job: str) -> dict[str, Any]:
    return {
        "name": f"{row['name']} {job}",
        "job": job,
        "runs-on": row["runs-on"],
        "python": row.get("python", ""),
        "pins": " ".join(row.get("pins", [])),
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: ci/matrix.py WORKFLOW")
    main(sys.argv[1])
