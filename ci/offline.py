"""Bundle wheels for a machine without network, with another Python and platform than this one.

The bundle contains all wheels that our wheel and its extras need, except those that the other machine has. Installed
versions there also constrain the choice, so that the bundle fits; other versions come from ci/constraints.txt. pip
evaluates environment markers for the Python that runs it: run this with the other machine's minor version if they
matter.

    ci/run offline --installed freeze.txt nvmath-python

writes dist/offline/*.whl and prints the line that installs them. `freeze.txt` is the other machine's
`python3 -m pip freeze` or `pip list`, or a list of names.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pins
import wheel

__all__ = ["bundled", "install_line", "parse_installed"]

# pip matches platform tags exactly: a wheel for an older glibc must be requested by its own tag.
GLIBC_MINORS = (39, 35, 34, 31, 28, 27, 26, 24, 17, 12, 5)
LEGACY_TAGS = ("manylinux2014", "manylinux2010", "manylinux1")

NAME = r"(?P<name>[A-Za-z0-9][\w.-]*)"
INSTALLED_FORMS = (
    re.compile(rf"-e .*#egg={NAME}.*"),  # a checkout, and below a file: an index does not have their versions
    re.compile(rf"{NAME} @ .*"),
    re.compile(rf"{NAME}(==|\s+)(?P<version>\S+).*"),
    re.compile(NAME),
)

Versions = dict[str, str]


def main() -> None:
    options = _options()
    installed = parse_installed(options.installed.read_text()) if options.installed else {}
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("*.whl"):  # two versions of a package would stop the installation on the other machine
        old.unlink()
    own = wheel.build(options.out)
    wanted = [f"{own}[{options.extras}]" if options.extras else str(own), *options.requirement]
    chosen = bundled(_resolve(wanted, installed, options), installed)
    _download(chosen, options)
    _report(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ci/run offline", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("requirement", nargs="*", help="what else to bundle, such as nvmath-python")
    parser.add_argument(
        "--installed", type=Path, metavar="FILE", help="what the other side has: pip freeze or pip list"
    )
    parser.add_argument(
        "--extras", default="asv,benchmark,cuda13,report", help="extras of ours to bundle (default %(default)s)"
    )
    parser.add_argument(
        "--python", dest="version", default="3.12", help="the other side's Python (default %(default)s)"
    )
    parser.add_argument("--machine", default="x86_64", help="its processor (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("dist/offline"), help="folder (default %(default)s)")
    return parser.parse_args()


def parse_installed(text: str) -> Versions:
    """Return the version of each name in the output of pip freeze or pip list, or in a list of names; "" if unknown.

    Raises
    ------
    SystemExit
        If a line is not of these forms; the message shows it.
    """
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return dict(_entry(line) for line in lines if line and not line.startswith(("Package ", "---")))


def _entry(line: str) -> tuple[str, str]:
    for form in INSTALLED_FORMS:
        if match := form.fullmatch(line):
            return pins.name_of(match["name"]), match.groupdict().get("version", "")
    raise SystemExit(f"cannot read {line!r}; give the output of `python3 -m pip freeze`, or one name a line")


def bundled(resolved: Versions, installed: Iterable[str]) -> Versions:
    """Return the part of `resolved` that the other machine lacks; our own wheel is already in the folder."""
    return {name: version for name, version in resolved.items() if name not in {*installed, "cuassay"}}


def _resolve(wanted: list[str], installed: Versions, options: argparse.Namespace) -> Versions:
    exact = [f"{name}=={version}" for name, version in installed.items() if version and name != "cuassay"]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(pins.replaced(pins.constraints(), exact)))
        found = Path(folder, "report.json")
        dry = ["install", "--dry-run", "--ignore-installed", "--target", folder, "--report", str(found)]
        _pip([*dry, "--constraint", str(constraints), *_target(options), *wanted])
        rows = json.loads(found.read_text())["install"]
    return {pins.name_of(row["metadata"]["name"]): row["metadata"]["version"] for row in rows}


def _download(chosen: Versions, options: argparse.Namespace) -> None:
    if chosen:
        exact = [f"{name}=={version}" for name, version in chosen.items()]
        _pip(["download", "--no-deps", "--dest", str(options.out), *_target(options), *exact])


def _target(options: argparse.Namespace) -> list[str]:
    tags = [f"manylinux_2_{minor}_{options.machine}" for minor in GLIBC_MINORS]
    tags += [f"{legacy}_{options.machine}" for legacy in LEGACY_TAGS]
    platforms = [part for tag in tags for part in ("--platform", tag)]
    return ["--only-binary=:all:", "--implementation", "cp", "--python-version", options.version, *platforms]


def _pip(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", *arguments]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("pip could not do it (see above); a wheel may be missing for that Python and platform")


def _report(options: argparse.Namespace) -> None:
    wheels = sorted(options.out.glob("*.whl"))
    size = sum(file.stat().st_size for file in wheels)
    print(*(f"  {file.name}" for file in wheels), sep="\n")
    print(f"{len(wheels)} wheels, {size / 2**20:.1f} MiB. On the other side:\n\n  {install_line(options.out)}")


def install_line(folder: Path) -> str:
    """Return the command that adds a bundle to the other machine's packages without changing them."""
    pip = "python3 -m pip install --no-index --no-deps --no-compile --upgrade"
    return f"{pip} --target site {folder.as_posix()}/*.whl && export PYTHONPATH=$PWD/site"


if __name__ == "__main__":
    main()
