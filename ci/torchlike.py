"""Run test files of torch, or of a library with its decorators, with torch and with cuassay.testing.torchlike; compare.

``python ci/torchlike.py FILE...`` needs an interpreter that has torch and cuassay, and for example files of the folder
``test`` of pytorch's repository. In a copy of each file, imports from ``torch.testing._internal.common_device_type``
come from ``cuassay.testing.torchlike``, and nothing else changes. Both run on the cpu; each test must have the same
name and outcome.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

TORCHS, OURS = "torch.testing._internal.common_device_type", "cuassay.testing.torchlike"


def main() -> int:
    """Compare each file; return 1 if a test differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    differing = sum(_compare(path) for path in parser.parse_args().files)
    return 1 if differing else 0


def _compare(path: Path) -> int:
    """Print how many tests agree and which differ; return the number of differing tests."""
    source = path.read_text()
    theirs, ours = _run(path.name, source, "-p", "no:cuassay"), _run(path.name, source.replace(TORCHS, OURS))
    names = sorted(theirs.keys() | ours.keys())
    unlike = [name for name in names if theirs.get(name) != ours.get(name)]
    counts = {outcome: list(ours.values()).count(outcome) for outcome in sorted(set(ours.values()))}
    print(f"{path.name}: {len(names) - len(unlike)} of {len(names)} tests alike; by torchlike {counts}", flush=True)
    for name in unlike[:20]:
        print(f"  {name}: torch {theirs.get(name)}, torchlike {ours.get(name)}")
    return len(unlike) if names else 1


def _run(name: str, source: str, *options: str) -> dict[str, str]:
    """Return each test's outcome, by its class and name."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_text(source)
        command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "--junitxml=found.xml"]
        setting = {**os.environ, "CUASSAY_DEVICES": "cpu", "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu"}
        found = subprocess.run(
            [*command, *options, name], cwd=folder, env=setting, capture_output=True, text=True, check=False
        )
        if found.returncode not in {0, 1}:
            sys.exit(f"{name}: the run ended with {found.returncode}:\n{found.stdout[-3000:]}{found.stderr[-1000:]}")
        cases = ET.parse(Path(folder, "found.xml")).iter("testcase")  # noqa: S314  just written by pytest
        return {f"{case.get('classname')}.{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ET.Element) -> str:
    kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
    return "+".join(sorted(kinds)) or "passed"


if __name__ == "__main__":
    sys.exit(main())
