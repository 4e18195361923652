"""Mutants: one small change of one file each, with an identity that does not depend on the rest of the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

__all__ = ["Edit", "Mutant", "mutants_of"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces characters `start` to `end` of a text by `replacement`.

    Attributes
    ----------
    operator : str
        The name of the mutation operator, such as ``term dropped``.
    function : str
        The changed function or kernel, with a dotted name if it is nested; empty at module level.
    scope : tuple of int
        The first and last line of the Python function that contains the change, from 1; zeros at module level.
    statement : tuple of int
        The first and last line of the Python statement that contains the change, without nested statements; zeros in
        the head of a function.
    """

    operator: str
    start: int
    end: int
    replacement: str
    function: str = ""
    scope: tuple[int, int] = (0, 0)
    statement: tuple[int, int] = (0, 0)

    def apply(self, text: str) -> str:
        """Return the text with this change."""
        return text[: self.start] + self.replacement + text[self.end :]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed file.

    Attributes
    ----------
    path : str
        The file, relative to the project's root, with slashes.
    line, last_line : int
        The first and last changed line, from 1.
    edit : Edit
        The change.
    identity : str
        Twelve hexadecimal digits, which depend only on the file, the function's name, the operator and the changed
        lines.
    """

    path: str
    line: int
    last_line: int
    edit: Edit
    identity: str

    @property
    def function(self) -> str:
        """The changed function or kernel; empty at module level."""
        return self.edit.function

    def diff(self, text: str) -> str:
        """Return the changed lines as they were and as they are: of two that change places, both."""
        old, new = text.splitlines(), self.edit.apply(text).splitlines()
        before = _shared(old, new)
        after = _shared(old[before:][::-1], new[before:][::-1])
        removed, added = (lines[before : len(lines) - after] for lines in (old, new))
        return "\n".join([*(f"-{line}" for line in removed), *(f"+{line}" for line in added)])


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def mutants_of(path: str, text: str, edits: Iterable[Edit]) -> list[Mutant]:
    """Return the mutants of a file for its edits. Edits that give the same text count once."""
    made: dict[str, Mutant] = {}
    met: dict[str, int] = {}
    for edit in edits:
        mutated = edit.apply(text)
        if mutated in made or mutated == text:
            continue
        words = (path, edit.function, edit.operator, *_changed_lines(text, mutated, edit))
        name = "\0".join(words)
        met[name] = met.get(name, 0) + 1  # a function may contain the same line twice
        identity = hashlib.sha256(f"{name}\0{met[name]}".encode()).hexdigest()[:12]
        line = text.count("\n", 0, edit.start) + 1
        last = text.count("\n", 0, max(edit.start, edit.end - 1)) + 1
        made[mutated] = Mutant(path, line, last, edit, identity)
    return list(made.values())


def _changed_lines(text: str, mutated: str, edit: Edit) -> tuple[str, str]:
    """Return the whole changed lines before and after, without indentation."""
    begin = text.rfind("\n", 0, edit.start) + 1
    tail = text.find("\n", edit.end)
    rest = 0 if tail < 0 else len(text) - tail
    return text[begin : len(text) - rest].strip(), mutated[begin : len(mutated) - rest].strip()
