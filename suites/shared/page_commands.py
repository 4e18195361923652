"""Shell commands on a page that are shown but not run: what each of them names must exist.

A block of ``sh`` needs a GPU, a network, a clone or another project, and a block of ``yaml`` a runner. So the words of
their commands are checked: subcommands and options by the parser that the command itself uses, jobs of ``ci/run`` and
their options by the script, extras by ``pyproject.toml``, settings by their table, and paths by the repository or the
files that the page shows. A word in capitals, such as ``NAME``, is the reader's to fill in. A program that is not
known here fails, so that a new one gets its check.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cuassay import cli
from cuassay.core.settings import SETTINGS

__all__ = ["Checker", "commands"]

#: Programs of others, and of the shell: only what follows compute-sanitizer's own options is looked at.
_OTHERS = {"", "asv", "cat", "cd", "export", "git", "mkdir"}  # Path(".").name is ""
_ENDS = {"&&", "||", "|", ";"}
_PLACEHOLDER = re.compile(r"[A-Z]+$")


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command in the text of a block, without redirections and comments; of a workflow, its steps."""
    steps = re.findall(r"^ *- run: (.*)", text, re.MULTILINE)
    for line in steps or text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        tokens = iter(lexer)
        for token in tokens:
            if token in _ENDS:
                yield words
                words = []
            elif token in (">", ">>", "<"):
                next(tokens)
            else:
                words.append(token)
        if words:
            yield words


@dataclass(frozen=True)
class Checker:
    """Checks the commands of one page.

    Attributes
    ----------
    root : Path
        The repository.
    files : frozenset of str
        Files that the page shows.
    options : pytest.Parser
        Of a session that has the project's plugins.
    """

    root: Path
    files: frozenset[str]
    options: pytest.Parser

    def check_block(self, text: str) -> None:
        """Check every command in the text of a block; raises `AssertionError` at the first that is wrong."""
        for words in commands(text):
            self.check(words)

    def check(self, words: Sequence[str]) -> None:
        """Raise `AssertionError` where a command names something that does not exist."""
        while words and (assigned := re.match(r"([A-Z_]+)=", words[0])) is not None:
            assert not assigned[1].startswith("CUASSAY_") or assigned[1] in SETTINGS, f"no setting {assigned[1]}"
            words = words[1:]
        if not words:
            return
        name = Path(words[0]).name
        if name.startswith("python"):
            self._python(words[1:])
        elif words[0] == "ci/run":
            self._job(words[1:])
        elif name not in _OTHERS:
            assert name in self._known, f"nothing is known of {name}; add a check of it to {Path(__file__).name}"
            self._known[name](words[1:])

    @property
    def _known(self) -> dict[str, Callable[[Sequence[str]], None]]:
        return {
            "cuassay": self._cuassay,
            "pytest": self._pytest,
            "pip": self._pip,
            "compute-sanitizer": self._after_options,
        }

    def _python(self, words: Sequence[str]) -> None:
        if words[0] != "-m":
            return  # a program of the reader
        module, rest = words[1], words[2:]
        if module in self._known:
            self._known[module](rest)
        elif module.startswith("cuassay"):
            self._module(module, rest)
        else:
            assert module in sys.stdlib_module_names, f"nothing is known of python -m {module}"

    def _cuassay(self, words: Sequence[str]) -> None:
        given = ["1" if word == "N" else word for word in words]
        try:
            cli.parser().parse_args(given)
        except SystemExit as error:
            if not error.code:  # an option such as --cheats prints and exits
                return
            raise AssertionError(f"cuassay rejects: {shlex.join(words)}") from error
        for word in words:
            if " " in word and not word.startswith("-"):
                self.check(shlex.split(word))
        self._paths(words)

    def _pytest(self, words: Sequence[str]) -> None:
        given = [re.sub(r"^--(?=(require-)?device\b)", "--cuassay-", word) for word in words]  # the short names
        found, unknown = self.options.parse_known_and_unknown_args(given)
        assert unknown == [], f"pytest has no option {' '.join(unknown)}"
        self._paths(found.file_or_dir)

    def _module(self, module: str, words: Sequence[str]) -> None:
        command = [sys.executable, "-m", module, "--help"]
        told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=self.root).stdout
        self._told(told, words, f"python -m {module}")

    def _pip(self, words: Sequence[str]) -> None:
        extras = tomllib.loads((self.root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for word in words:
            assert not re.match(r"cuassay(\[|$)", word), f"no package index has {word}; give the path of a clone"
            for extra in re.findall(r"^[./].*\[([\w,-]+)\]", word):
                assert set(extra.split(",")) <= set(extras), f"{word} names an extra that is not in pyproject.toml"

    def _after_options(self, words: Sequence[str]) -> None:
        self.check(words[next(place for place, word in enumerate(words) if Path(word).name == "python") :])

    def _job(self, words: Sequence[str]) -> None:
        if words[:1] == ["--python"]:
            words = words[2:]
        if not words:
            return
        script = self.root / "ci" / f"{words[0]}.sh"
        assert script.exists(), f"ci/run has no job {words[0]}"
        if words[0] == "test":
            self._pytest(words[1:])
            return
        program = script.with_suffix(".py")
        told = script.read_text() + (program.read_text() if program.exists() else "")
        self._told(told, words[1:], f"ci/run {words[0]}")

    def _told(self, text: str, words: Sequence[str], command: str) -> None:
        for word in words:
            assert not word.startswith("-") or re.search(rf"{re.escape(word)}\b", text), f"{command} has no {word}"
        self._paths(words)

    def _paths(self, words: Sequence[str]) -> None:
        """Words that look like paths into the repository, or like programs, must lead to something."""
        for word in words:
            path = word.partition("::")[0]
            named = path.split("/")[0] in _FOLDERS or (path.endswith(".py") and "/" not in path)
            if named and not _PLACEHOLDER.search(path):
                assert path in self.files or (self.root / path).exists(), f"{path} does not exist"


_FOLDERS = {"backend", "suites", "ci"}
