"""Make the pictures of the README and the documentation from real output, light and dark.

They show a race that pytest reports, the report of the committed ledger, and the memory of a small program by call
site. Rich draws terminals as SVG, and headless Chromium draws pages as PNG.

    python -m pages.pictures
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from cuassay_reports.load import load

__all__ = ["main"]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "reports" / "docs"
PICTURES = DOCS / "pictures"
COLUMNS = 100

#: The pages whose programs are run, with the files that they show.
RACE = DOCS / "tutorials" / "races.md"
MEMORY = DOCS / "tutorials" / "memory.md"

#: Chromium's names of the schemes, in the order of its setting.
SCHEMES = ("dark", "light")

LIGHT = TerminalTheme(
    (255, 255, 255), (36, 41, 47),
    [
        (36, 41, 47), (180, 35, 24), (17, 99, 41), (125, 78, 0),
        (9, 105, 218), (130, 80, 223), (27, 124, 131), (87, 96, 106),
    ],
)  # fmt: skip
DARK = TerminalTheme(
    (13, 17, 23), (230, 237, 243),
    [
        (72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34),
        (88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196),
    ],
)  # fmt: skip
THEMES = {"dark": DARK, "light": LIGHT}


def main() -> None:
    """Make all pictures; print each path when it is written."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Chromium is not on PATH; install it, for example with: apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "example"
        folder.mkdir()
        _draw_terminal("race", _race(folder))
        _photograph(chromium, "report", _report(folder), 860, 800)
        _photograph(chromium, "memory", _memory(folder), 1180, 760)


def _race(folder: Path) -> str:
    _write_files(RACE, folder)
    shown = _run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=yes", "test_streams.py"], folder)
    return shown[shown.index("\n", shown.index("FAILURES")) + 1 :].replace(f"{folder}/", "")


def _report(folder: Path) -> Path:
    """Make the report of the runs that finished: the picture shows a report, and not which run was interrupted."""
    page, ledger = folder / "report.html", folder / "ledger"
    ledger.mkdir()
    for file in (ROOT / "reports" / "ledger").glob("*.jsonl.gz"):
        if not load(file).runs["ended_early"].any():
            shutil.copy(file, ledger)
    _run([sys.executable, "-m", "cuassay", "report", str(ledger), "--html", str(page)], folder)
    return page


def _memory(folder: Path) -> Path:
    _write_files(MEMORY, folder)
    _run([sys.executable, "train.py"], folder)
    page = folder / "memory.html"
    _run([sys.executable, "-m", "cuassay", "memory", "viz", "snapshot.json", "-o", str(page)], folder)
    return page


def _write_files(page: Path, folder: Path) -> None:
    for text in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", text)
        if name is not None:
            (folder / name[1]).write_text(text, encoding="utf-8")


def _run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def _draw_terminal(name: str, text: str) -> None:
    for scheme, theme in THEMES.items():
        console = Console(record=True, width=COLUMNS, file=Path(os.devnull).open("w"), force_terminal=True)  # noqa: SIM115
        for line in AnsiDecoder().decode(text):
            console.print(line, soft_wrap=False)
        drawn = console.export_svg(title="pytest test_streams.py", theme=theme, unique_id=name)
        # Rich refers to a font on a server; the viewer's own monospace font suffices.
        drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL).replace("Fira Code", "ui-monospace")
        _say(PICTURES / f"{name}-{scheme}.svg", drawn)


def _say(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    print(path.relative_to(ROOT))


def _photograph(chromium: str, name: str, page: Path, width: int, height: int) -> None:
    for number, scheme in enumerate(SCHEMES):
        path = PICTURES / f"{name}-{scheme}.png"
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}",
            f"--blink-settings=preferredColorScheme={number}", f"--screenshot={path}",
        ]  # fmt: skip
        done = subprocess.run([chromium, *options, page.as_uri()], capture_output=True, text=True, check=False)
        if not path.exists():
            raise SystemExit(f"{chromium} made no picture of {page}:\n{done.stderr}")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
