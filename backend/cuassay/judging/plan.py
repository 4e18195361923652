"""The launch plan of a candidate of the kernel tier: what ``launch.json`` may contain, and its values for one call.

The candidate is ``kernel.cu`` and this file; a trusted runner compiles the former and launches by the latter. No code
of the candidate runs on the host. A plan::

    {"outputs": [{"shape": ["in0[0]"], "dtype": "in0"}],
     "scratch": ["4 * ceil_div(in0.size, 256)"],
     "options": ["--use_fast_math"],
     "launches": [
        {"kernel": "row_sums<{in0}>", "grid": ["in0[0]"], "block": [256], "shared": "4 * 256",
         "arguments": ["in0", "out0", "scratch0", {"int64": "in0[1]"}, {"float32": "eps"}]}]}

Arrays are ``in0, in1, ...`` in the order of the call, ``out0, ...`` and ``scratch0, ...``; ``{in0}`` in a kernel's name
is the C++ type of its elements. `expressions` defines how numbers are written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuassay.core.capability import DTYPE_NAMES
from cuassay.core.words import shown
from cuassay.errors import ArgumentError
from cuassay.judging.expressions import Expression
from cuassay.judging.limits import MOST_SOURCE_NBYTES

__all__ = ["C_TYPES", "KERNEL", "PLAN", "LaunchPlan", "LaunchStep", "OutputPlan", "digest_of", "files_of", "parse_plan"]

#: The names of a candidate's files.
KERNEL, PLAN = "kernel.cu", "launch.json"


def files_of(path: Path, tier: str) -> dict[str, bytes]:
    """Return the files of a candidate by their names in its process; each at most one byte over the limit."""
    if tier == "program":
        return {path.name: _content(path)}
    return {KERNEL: _content(path), PLAN: _content(path.with_name(PLAN))}


def digest_of(path: Path, tier: str) -> str:
    """Return the digest by which a verdict names a candidate: the first 16 digits of the SHA-256 of its files."""
    return hashlib.sha256(b"".join(files_of(path, tier).values())).hexdigest()[:16]


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_SOURCE_NBYTES + 1)


#: From the name of a dtype to its C++ type.
C_TYPES: dict[str, str] = {
    "bool": "bool",
    "int8": "signed char",  # not int8_t: NVRTC has no header that declares it
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
    "complex64": "cuFloatComplex",
    "complex128": "cuDoubleComplex",
}

#: The allowed compiler options; folders and files are chosen by the runner.
_OPTIONS = re.compile(
    r"(--use_fast_math|--fmad=(true|false)|--ftz=(true|false)|--prec-(div|sqrt)=(true|false)|--maxrregcount=\d{1,3}"
    r"|--extra-device-vectorization|--std=c\+\+(14|17|20)|-D[A-Za-z_]\w*(=[\w.+-]*)?)"
)

_KERNEL_NAME = re.compile(r"[A-Za-z_][\w:]*(<[\w:,<>{}\s-]*>)?")
_ARRAY = re.compile(r"(in|out|scratch)\d+")

#: The most outputs, launches, arguments of a launch, and scratch buffers.
_MOST = 64


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """One output: its extents, and a dtype's name or the array whose dtype it has."""

    shape: tuple[Expression, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """One launch. An argument is an array's name, or a dtype with an expression, a float or an option's name."""

    kernel: str
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared: Expression
    arguments: tuple[str | tuple[str, Expression | float | str], ...]

    def kernel_for(self, dtypes: Mapping[str, str]) -> str:
        """Return the kernel's name for arrays of these dtypes; raises `ArgumentError` for an unknown array."""

        def c_type(match: re.Match[str]) -> str:
            if match[1] not in dtypes:
                raise ArgumentError(f"kernel {self.kernel!r} names {match[1]!r}; there are {', '.join(dtypes)}")
            return C_TYPES[dtypes[match[1]]]

        return re.sub(r"\{(\w+)\}", c_type, self.kernel)


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The content of a ``launch.json``."""

    outputs: tuple[OutputPlan, ...]
    scratch: tuple[Expression, ...]
    options: tuple[str, ...]
    launches: tuple[LaunchStep, ...]


def parse_plan(text: str | bytes) -> LaunchPlan:
    """Parse a ``launch.json``.

    Raises
    ------
    ArgumentError
        If it is not a launch plan; the message names the place.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"launch.json is not JSON: {error}; got {shown(text)}; write one object") from error
    fields = _fields("launch.json", value, required=("outputs", "launches"), optional=("scratch", "options"))
    return LaunchPlan(
        outputs=tuple(map(_output, _list("outputs", fields["outputs"]))),
        scratch=tuple(map(Expression, _list("scratch", fields.get("scratch", [])))),
        options=tuple(map(_option, _list("options", fields.get("options", [])))),
        launches=tuple(map(_launch, _list("launches", fields["launches"], least=1))),
    )


def _fields(place: str, value: Any, *, required: Sequence[str], optional: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not {*required} <= value.keys() <= {*required, *optional}:
        got = f"the fields {', '.join(map(repr, value)) or 'none'}" if isinstance(value, dict) else shown(value)
        raise ArgumentError(f"{place} has {', '.join(required)}, and may have {', '.join(optional)}; got {got}")
    return value


def _list(place: str, value: Any, least: int = 0) -> list[Any]:
    if not isinstance(value, list) or not least <= len(value) <= _MOST:
        raise ArgumentError(f"{place} is a list of {least} to {_MOST}; got {shown(value)}; write it in brackets")
    return value


def _output(value: Any) -> OutputPlan:
    fields = _fields("an output", value, required=("shape", "dtype"), optional=())
    dtype = fields["dtype"]
    if dtype not in DTYPE_NAMES and not (isinstance(dtype, str) and _ARRAY.fullmatch(dtype)):
        raise ArgumentError(f"an output's dtype is a name such as 'float32', or an array such as 'in0'; got {dtype!r}")
    return OutputPlan(tuple(map(Expression, _list("shape", fields["shape"]))), dtype)


def _option(value: Any) -> str:
    if not isinstance(value, str) or not _OPTIONS.fullmatch(value):
        raise ArgumentError(
            f"the compiler is not told {shown(value)}; there are --use_fast_math, --fmad=, --ftz=, --prec-div=, "
            "--prec-sqrt=, --maxrregcount=, --extra-device-vectorization, --std= and -D"
        )
    return value


def _launch(value: Any) -> LaunchStep:
    required, optional = ("kernel", "grid", "block", "arguments"), ("shared",)
    fields = _fields("a launch", value, required=required, optional=optional)
    name = fields["kernel"]
    if not isinstance(name, str) or not _KERNEL_NAME.fullmatch(name):
        raise ArgumentError(f"a kernel's name is as C++ spells it, such as 'scale<{{in0}}, 4>'; got {shown(name)}")
    return LaunchStep(
        kernel=name,
        grid=_dims("grid", fields["grid"]),
        block=_dims("block", fields["block"]),
        shared=Expression(fields.get("shared", 0)),
        arguments=tuple(map(_argument, _list("arguments", fields["arguments"]))),
    )


def _dims(place: str, value: Any) -> tuple[Expression, ...]:
    several = value if isinstance(value, list) else [value]
    if not 1 <= len(several) <= 3:
        raise ArgumentError(f"{place} has one to three numbers; got {shown(value)}; write [x, y, z]")
    return tuple(map(Expression, several))


def _argument(value: Any) -> str | tuple[str, Expression | float | str]:
    if isinstance(value, str) and _ARRAY.fullmatch(value):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((dtype, what),) = value.items()
        if dtype in C_TYPES and "float" in dtype and isinstance(what, float | int | str) and not isinstance(what, bool):
            return dtype, what if isinstance(what, str) else float(what)
        if dtype in C_TYPES and ("int" in dtype or dtype == "bool"):
            return dtype, Expression(what)
    raise ArgumentError(
        f"an argument is an array such as 'in0', a whole number such as {{'int64': 'in0.size'}}, or a number such as "
        f"{{'float32': 'eps'}} by the name of an option; got {shown(value)}"
    )
