"""Hints from a candidate's source: library calls, fallbacks, kept results; and violations of a policy.

The source is parsed, never run. Names can be hidden from the scan, so an absence proves nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from cuassay.core.nearest import did_you_mean
from cuassay.errors import SettingError
from cuassay.judging.verdict import Evidence

__all__ = ["POLICIES", "Policy", "parse_policy", "scan"]

#: The possible decisions about each benign shortcut; the first is the default.
POLICIES: Mapping[str, tuple[str, ...]] = {"library": ("flag", "allow", "refuse")}

Policy = Mapping[str, str]

#: The most characters of a source that are parsed: its syntax tree takes about 500 times as many bytes in the judge.
_MOST_CHARACTERS = 1 << 17

#: Functions that do a whole operation.
_WHOLE = frozenset(
    "convolve correlate dot einsum fft fftn inner irfft matmul median rfft sort argsort cumsum tensordot vdot".split()
)

#: Modules of libraries with whole operations, and modules that a kernel does not need.
_LIBRARIES = frozenset("torch jax scipy cupyx cuassay numba triton cublas cudnn".split())
_TOOLS = frozenset("ctypes gc inspect os signal socket subprocess sys threading multiprocessing".split())

_CUDA_LIBRARY = re.compile(r"#\s*include\s*[<\"](cublas|cudnn|cufft|cub/|thrust/|cutlass)")


def parse_policy(text: str) -> dict[str, str]:
    """Parse a comma-separated policy such as ``library=refuse``.

    Raises
    ------
    SettingError
        If a word is unknown.
    """
    chosen = {name: words[0] for name, words in POLICIES.items()}
    for part in filter(None, text.split(",")):
        name, _, word = part.partition("=")
        if name not in POLICIES:
            raise SettingError(
                f"--policy knows no {name!r}{did_you_mean(name, POLICIES)}; it knows {', '.join(POLICIES)}"
            )
        if word not in POLICIES[name]:
            raise SettingError(
                f"--policy {name}={word!r}{did_you_mean(word, POLICIES[name])}: use one of {', '.join(POLICIES[name])}"
            )
        chosen[name] = word
    return chosen


def scan(text: str, *, is_python: bool, policy: Policy) -> list[Evidence]:
    """Return what the source shows, without repetitions; a library call is ``proven`` if the policy refuses it."""
    is_refused = policy.get("library") == "refuse"
    if len(text) > _MOST_CHARACTERS:
        why = f"the source has {len(text):,} characters, and is not read beyond {_MOST_CHARACTERS:,}"
        return [Evidence(id="X11", certainty="indicated" if is_refused else "hint", evidence=why)]
    certainty: Literal["proven", "hint"] = "proven" if is_refused else "hint"
    found: dict[tuple[str, str], Evidence] = {}
    for number, what in _python(text) if is_python else _cuda(text):
        if number == "B1" and policy.get("library") == "allow":
            continue
        evidence = Evidence(id=number, certainty=certainty if number == "B1" else "hint", evidence=what)
        found.setdefault((number, what), evidence)
    return list(found.values())


def _cuda(text: str) -> Iterator[tuple[str, str]]:
    for match in _CUDA_LIBRARY.finditer(text):
        yield "B1", f"the source includes {match[1].rstrip('/')}"


def _python(text: str) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        yield from _imports(node)
        if isinstance(node, ast.Call) and (name := _called(node)) in _WHOLE:
            yield "B1", f"line {node.lineno} calls {name}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield "B1", f"line {node.lineno} multiplies matrices with @"
        if isinstance(node, ast.ExceptHandler):
            yield "B2", f"line {node.lineno} catches exceptions"
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield "B3", f"line {node.lineno} keeps {', '.join(node.names)} between calls"


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    for name in names:
        top = name.partition(".")[0]
        if top in _LIBRARIES:
            yield "B1", f"the source imports {top}"
        if top in _TOOLS:
            yield "X2", f"the source imports {top}; what for is not known"


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""
