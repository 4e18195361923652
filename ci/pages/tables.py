"""The tables of the reference, each read from the code that defines its content."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterable, Iterator, Sequence

import griffe

from cuassay import cli, errors
from cuassay.core import settings
from cuassay.core.capability import DTYPE_NAMES, FEATURES, OP_CLASSES, QUANTITIES
from cuassay.judging.catalogue import CATALOGUE, CHEATS
from cuassay.testing import OpSpec
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.own_specs import own_specs
from cuassay_reports.columns import TABLES
from cuassay_reports.facts import FINGERPRINT

__all__ = ["pages", "table"]


def pages() -> dict[str, str]:
    """Return the text of each page, by its path in the site."""
    return {
        "reference/opspec.md": _opspec(),
        "reference/settings.md": _settings(),
        "reference/capabilities.md": _capabilities(),
        "reference/columns.md": _columns(),
        "reference/commands.md": _commands(),
        "reference/errors.md": _errors(),
        "reference/cheats.md": _cheats(),
    }


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown; a bar inside a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


# ------------------------------------------------------------------------------------------------ OpSpec


def _opspec() -> str:
    return (
        "# OpSpec: fields and checks\n\n"
        "An `OpSpec` declares one operation. `conformance(spec)` makes its tests. Give `fn` or `op`; every other field "
        "has a default.\n\n## Fields\n\n" + table(("field", "type", "meaning"), _fields()) + "\n## Checks\n\n"
        "Each check is one test for each device and, unless stated otherwise, for each dtype. The third column says "
        "whether a spec that holds only `fn=lambda xp, a: ...` gets it; the last, how many of the "
        f"{len(own_specs())} operations of `cuassay.ops` do. A check that this spec does not get "
        "needs a `reference=`, samples of its `kind`, the field that it names, or an operation that is declared.\n\n"
        "A check is skipped, with the reason, where the device lacks the dtype or what the column *needs* names, and "
        "where the function refuses the check's inputs itself. "
        "To opt out of one, give its name and the reason: "
        '`without={"aliasing": "the result is a buffer on purpose"}`.\n\n'
        + table(("check", "what must hold", "needs", "plain function", "our operations"), _checks())
    )


def _fields() -> Iterator[tuple[str, str, str]]:
    parsed = griffe.Docstring(inspect.getdoc(OpSpec) or "").parse("numpy")
    section = next(part for part in parsed if part.kind is griffe.DocstringSectionKind.parameters)
    for field in section.value:
        for name in field.name.split(", "):
            yield f"`{name}`", str(field.annotation).replace(", optional", ""), " ".join(field.description.split())


def _checks() -> Iterator[tuple[str, str, str, str, str]]:
    plain = OpSpec(fn=lambda xp, a: xp.exp(a), name="plain")
    own = own_specs()
    for name, check in CHECKS.items():
        sentence = " ".join(check.doc.split())
        once = "" if check.per_dtype else " Once for each device."
        count = sum(check.applies(spec) for spec in own)
        needs = ", ".join(f"`{need}`" for need in check.needs)
        yield f"`{name}`", sentence + once, needs, "yes" if check.applies(plain) else "", str(count)


# ----------------------------------------------------------------------------------------------- settings


def _settings() -> str:
    rows = (
        (f"`{row.name}`", row.type, f"`{row.value!r}`", row.meaning, ", ".join(f"`{other}`" for other in row.aliases))
        for row in settings.describe({})
    )
    return (
        "# Settings\n\nEvery environment variable that cuassay reads. "
        "`cuassay settings` prints the values in force.\n\n"
        + table(("variable", "type", "default", "meaning", "read instead, if unset"), rows)
    )


def _capabilities() -> str:
    return (
        "# Capabilities\n\nA test names what it needs with `@requires(...)`, a spec with `requires=`. A device that "
        "lacks it skips the test and says why. `cuassay devices -v` shows what each device here has.\n\n## Features\n\n"
        + table(("name", "meaning"), ((f"`{name}`", text) for name, text in FEATURES.items()))
        + "\n## Quantities\n\nWrite them with `>=`, such as `memory>=1GiB` or `compute>=9.0`.\n\n"
        + table(("name", "meaning"), ((f"`{name}`", text) for name, text in QUANTITIES.items()))
        + "\n## Dtypes\n\nA dtype's name, alone or after a class of operations and a colon, such as `matmul:float16`."
        + f" The classes are {', '.join(f'`{name}`' for name in OP_CLASSES)}."
        + f" The dtypes are {', '.join(f'`{name}`' for name in DTYPE_NAMES)}.\n"
    )


def _cheats() -> str:
    return (
        f"# Cheats\n\nThe catalogue, version {CATALOGUE}, whose numbers the verdicts of `cuassay judge` name. T is "
        "about time, C about correctness, X about the harness; B is a matter of policy.\n\n"
        + table(("number", "what the cheat does"), CHEATS.items())
    )


# ------------------------------------------------------------------------------------------------ columns


def _columns() -> str:
    text = (
        "# Columns of a record\n\nA result file holds JSON lines. The field `record` names the table a line belongs "
        "to. `cuassay_reports.load` gives the tables as pandas frames.\n"
    )
    for name, columns in TABLES.items():
        rows = (
            (f"`{c.name}`", c.kind, c.unit, "yes" if c.required else "", c.meaning + _choices(c.choices))
            for c in columns
        )
        text += f"\n## {name}\n\n" + table(("column", "type", "unit", "required", "meaning"), rows)
    facts = ((f"`{fact.name}`", fact.weight, fact.meaning) for fact in FINGERPRINT)
    return (
        text + "\n## Fingerprint\n\nOnly rows whose hard facts are equal are compared. Soft facts that differ are "
        "reported and weaken the verdict;\nothers are only recorded.\n\n" + table(("fact", "weight", "meaning"), facts)
    )


def _choices(choices: Sequence[str]) -> str:
    return f" ({', '.join(choices)})" if choices else ""


# ------------------------------------------------------------------------------------------------ commands


def _commands() -> str:
    text = (
        "# Commands\n\nEvery command exits with 0 if all went well, with 1 if something failed, and with 2 if it was "
        "given something wrong.\n"
    )
    for name, parser in _parsers(cli.parser()):
        text += f"\n## {name}\n\n```text\n{parser.format_help().rstrip()}\n```\n"
    return text


def _parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield parser.prog, parser
    for action in parser._actions:  # noqa: SLF001  argparse has no public access to its subcommands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                yield from _parsers(below)


# ------------------------------------------------------------------------------------------------ errors


def _errors() -> str:
    text = "# Errors\n\nEach message says what was wrong, what was given and what to do.\n\n"
    return text + table(("error", "is also a", "raised when"), _error_rows(errors.CuassayError, 0))


def _error_rows(base: type[Exception], depth: int) -> Iterator[tuple[str, str, str]]:
    also = [one.__name__ for one in base.__mro__ if one.__module__ == "builtins"]
    sentence = " ".join((base.__doc__ or "").split("\n\n")[0].split())
    yield f"{'&nbsp;' * 4 * depth}`{base.__name__}`", f"`{also[0]}`", sentence
    for below in base.__subclasses__():
        if below.__module__ == "cuassay.errors":
            yield from _error_rows(below, depth + 1)
