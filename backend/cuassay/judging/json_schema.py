"""The JSON Schema of the file that ``cuassay judge --json`` writes, made from the records of `verdict`."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cuassay.judging.verdict import SCHEMA, Verdict

__all__ = ["verdicts_schema"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PLAIN: Mapping[Any, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
}  # fmt: skip


def verdicts_schema() -> dict[str, Any]:
    """Return the schema of a list of verdicts. Fields that it does not name may come later, with the same number."""
    verdict = _record(Verdict)
    verdict["properties"] = {"schema": {"const": SCHEMA, "description": "The version of this form."}} | verdict[
        "properties"
    ]
    verdict["required"].insert(0, "schema")
    return {"$schema": _DIALECT, "title": "Verdicts of cuassay judge", "type": "array", "items": verdict}


def _record(kind: Any) -> dict[str, Any]:
    """Return the schema of a dataclass, with the descriptions of its docstring."""
    hints, told = get_type_hints(kind), _attributes(kind)
    properties = {}
    for one in fields(kind):
        properties[one.name] = _of_type(hints[one.name])
        if one.name in told:
            properties[one.name]["description"] = told[one.name]
    required = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    return {
        "type": "object",
        "description": inspect.getdoc(kind).partition("\n\n")[0].replace("\n", " "),  # type: ignore[union-attr]
        "properties": properties,
        "required": required,
    }


def _of_type(hint: Any) -> dict[str, Any]:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or hint in _PLAIN:
        return {"type": _PLAIN[hint]} if hint in _PLAIN else {}
    if is_dataclass(hint):
        return _record(hint)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _of_type(inner[0])}
    if origin in (Union, types.UnionType):
        return {"type": [_PLAIN[one] for one in inner]}
    return {"type": "object", "additionalProperties": _of_type(inner[1])}  # a mapping from names


def _attributes(kind: Any) -> dict[str, str]:
    """Return the descriptions of attributes by name, from a docstring in NumPy's style."""
    section = (inspect.getdoc(kind) or "").partition("Attributes\n----------\n")[2]
    found: dict[str, str] = {}
    for names, text in re.findall(r"^([\w, ]+) : [^\n]*\n((?:    [^\n]*\n?|\n)+)", section, re.MULTILINE):
        for name in names.split(", "):
            found[name] = " ".join(text.split())
    return found
