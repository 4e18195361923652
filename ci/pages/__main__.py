"""Build the documentation site: collect the pages, generate the others, build, check.

    python -m pages [--serve-from-disk]

Zensical builds the site. It reads `reports/docs/mkdocs.yml`, and fails on a dead link or a missing anchor. This module
makes the other checks: every public name has a docstring and a place in the reference, every page is in the navigation,
and the site needs no network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from pages import generated, names, network

__all__ = ["main"]

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "reports" / "docs"
WORK = ROOT / "reports" / "out" / "docs"
SITE = ROOT / "reports" / "out" / "site"

#: The only page of the reference that is written by hand; the files of the others are for readers of a clone.
_LIST = "reference/index.md"


def main() -> None:
    """Build the site; exit with status 1 and the list of faults if there are any."""
    began = time.perf_counter()
    _stop_at(names.undocumented())
    _collect()
    _stop_at(_not_in_navigation())
    _build()
    _stop_at(network.use_own_files(SITE) + names.missing_from(SITE))
    print(f"{SITE / 'index.html'}: {len(list(SITE.rglob('*.html')))} pages in {time.perf_counter() - began:.0f} s")


def _collect() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(SOURCE, WORK / "pages", ignore=shutil.ignore_patterns("mkdocs.yml"))
    shutil.copy(SOURCE / "mkdocs.yml", WORK)
    made = generated.pages()
    kept = sorted(str(page.relative_to(SOURCE)) for page in (SOURCE / "reference").glob("*.md"))
    _stop_at(
        [f"{path} is for clones, and no page of the site replaces it" for path in kept if path not in {*made, _LIST}]
    )
    for path, text in made.items():
        page = WORK / "pages" / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


def _not_in_navigation() -> list[str]:
    listed = (WORK / "mkdocs.yml").read_text(encoding="utf-8")
    pages = sorted(str(page.relative_to(WORK / "pages")) for page in (WORK / "pages").rglob("*.md"))
    return [f"{page} is not in the navigation of reports/docs/mkdocs.yml" for page in pages if page not in listed]


def _build() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(WORK / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the site cannot be built:\n{done.stdout}{done.stderr.partition('Traceback')[0]}")
    (WORK / "site").rename(SITE)


def _stop_at(faults: list[str]) -> None:
    if faults:
        raise SystemExit("\n".join(faults))


if __name__ == "__main__":
    main()
