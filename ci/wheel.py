"""Check the contents of the wheel.

A wheel must contain every file of the two packages that git tracks or does not ignore, and nothing else. Without an
argument the wheel is built first, in a temporary folder.

    ci/wheel.py [WHEEL]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["build", "faults", "packaged"]

ROOT = Path(__file__).parent.parent
PACKAGES = {"cuassay": "backend", "cuassay_reports": "reports"}
NEEDED = ("cuassay/py.typed", "cuassay/__init__.py", "cuassay_reports/py.typed", "cuassay_reports/__init__.py")


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(arguments[0]) if arguments else build(Path(folder))
        found = faults(wheel)
        size = wheel.stat().st_size
    if found:
        raise SystemExit("\n".join([f"{wheel.name} is not as it should be:", *found]))
    print(f"{wheel.name}: {size:,} bytes, as it should be")


def build(folder: Path) -> Path:
    """Build the wheel into `folder`, with the installed hatchling."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the wheel cannot be built:\n{done.stdout}{done.stderr}")
    return next(folder.glob("*.whl"))


def faults(wheel: Path) -> list[str]:
    """Return one line for each file that is missing from the wheel or must not be in it."""
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = packaged() | set(NEEDED)
    missing = [f"  missing: {name}" for name in sorted(wanted - held)]
    return missing + [f"  not ours to ship: {name}" for name in sorted(held - wanted)]


def packaged() -> set[str]:
    """Return each file of the two packages that git tracks or does not ignore, by its name in the wheel."""
    found = set()
    for package, source in PACKAGES.items():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", f"{source}/{package}"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found |= {name.removeprefix(f"{source}/") for name in listed.split("\0") if name and (ROOT / name).exists()}
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
