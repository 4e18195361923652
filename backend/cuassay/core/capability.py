"""The capabilities of devices: their names, requirements on them, and cached answers with reasons.

A requirement is a feature or dtype (``"graphs"``, ``"float16"``), a dtype with an op class (``"matmul:bfloat16"``), or
a quantity with a bound (``"memory>=2GiB"``, ``"compute>=8.0"``). This module defines the names; each device kind probes
them in its own way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cuassay.core.device import Device
from cuassay.core.nearest import did_you_mean
from cuassay.core.units import BYTES, format_bytes
from cuassay.core.words import shown
from cuassay.errors import CapabilityError, CapabilityNameError

__all__ = [
    "DTYPE_NAMES",
    "FEATURES",
    "NOT_DRAWN",
    "OP_CLASSES",
    "QUANTITIES",
    "Answer",
    "Capabilities",
    "Requirement",
    "absent",
    "dtype_word",
    "parse_requirement",
    "present",
    "unknown_dtype",
]

#: Capabilities that a device either has or lacks.
FEATURES: dict[str, str] = {
    "streams": "work can be queued on several streams and ordered by events",
    "events": "events can be recorded, waited for and queried",
    "timing": "the device can time its own work",
    "graphs": "work can be captured once and replayed",
    "conditional_graphs": "a graph may hold if and while nodes",
    "device_memory": "arrays are in memory of the device's own, apart from the host's",
    "pinned_memory": "host memory can be page-locked for asynchronous copies",
    "peer_access": "one device can read another's memory directly",
    "vmm": "virtual address ranges can be reserved and mapped page by page",
    "ipc": "memory can be shared with another process",
    "views": "slices, transposes and reshapes share the array's memory instead of copying it",
    "race_detection": "the device itself finds unordered accesses",
    "cublaslt": "matrix products by cuBLASLt: fused bias and activation, tuning, native fp8",
    "tf32": "float32 matrix products may run with inputs rounded to TF32",
    "fp8": "float8_e4m3fn and float8_e5m2 are stored and computed",
    "complex": "complex64 and complex128 are stored and computed",
    "complex_half": "complex numbers of two float16; no kind offers them, because NumPy has no such dtype",
}

#: Capabilities that have a size, which a requirement compares with ``>=``.
QUANTITIES: dict[str, str] = {
    "compute": "compute capability, major.minor",
    "memory": "total device memory, bytes",
    "count": "devices of this kind",
    "l2": "level-2 cache, bytes",
}

#: The dtypes that a device may support.
DTYPE_NAMES: tuple[str, ...] = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float8_e4m3fn",
    "float8_e5m2",
    "bfloat16",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)

#: Classes of operations; a dtype may be supported in some of them only: ``"matmul:float16"``.
OP_CLASSES: tuple[str, ...] = ("storage", "elementwise", "reduction", "matmul", "random")

#: Dtypes in which no kind draws random numbers, with the reason.
NOT_DRAWN: dict[str, str] = {
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), "no numbers are drawn in 8-bit floats; draw float16 and cast"),
    **dict.fromkeys(("complex64", "complex128"), "complex numbers are drawn as two real ones"),
}

_QUANTITY = re.compile(r"(?P<name>\w+)\s*>=\s*(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]iB|B)?")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a probe.

    Attributes
    ----------
    present : bool
        Whether the device has the capability.
    reason : str
        Why not, if it is absent.
    value : float
        The size of a quantity, in the units of `QUANTITIES`.
    """

    present: bool
    reason: str = ""
    value: float = 0.0

    def __bool__(self) -> bool:
        return self.present


def present(value: float = 0.0) -> Answer:
    """Return the answer for a capability that the device has.

    `value` is the size of a quantity (`major + minor / 10` for compute).
    """
    return Answer(present=True, value=value)


def absent(reason: str) -> Answer:
    """Return the answer for a capability that the device lacks because of `reason`."""
    return Answer(present=False, reason=reason)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A parsed requirement. `text` is the text that was parsed; `minimum` is the bound of a quantity."""

    text: str
    name: str
    minimum: float | None = None


def parse_requirement(text: str) -> Requirement:
    """Parse a requirement such as ``"graphs"``, ``"matmul:bfloat16"`` or ``"memory>=2GiB"``.

    Raises
    ------
    CapabilityNameError
        If `text` does not name a capability, or a quantity has no bound.
    """
    if not isinstance(text, str):
        raise CapabilityNameError(f"a requirement is a str; got {shown(text)}; write one such as 'graphs' or 'float16'")
    quantity = _QUANTITY.fullmatch(text.strip())
    if quantity is not None and quantity["name"] in QUANTITIES:
        return Requirement(text, quantity["name"], float(quantity["value"]) * BYTES[quantity["unit"] or ""])
    op_class, _, dtype = text.rpartition(":")
    if text in FEATURES or (dtype in DTYPE_NAMES and op_class in ("", *OP_CLASSES)):
        return Requirement(text, text)
    raise CapabilityNameError(_unknown(text))


def _unknown(text: str) -> str:
    quantity = re.match(rf"({'|'.join(QUANTITIES)})\s*[<>=]", text.strip())
    if quantity is not None:
        return f"{text!r} is not a requirement; write {quantity[1]}>=NUMBER, bytes with one of KiB, MiB, GiB, TiB"
    if text.strip() in QUANTITIES:
        return f"{text!r} is a quantity and needs a number; write {text.strip()}>=NUMBER"
    meant = did_you_mean(text, (*FEATURES, *QUANTITIES, *DTYPE_NAMES))
    return (
        f"{text!r} names no capability{meant}; features: {', '.join(FEATURES)}; "
        f"quantities (with >=): {', '.join(QUANTITIES)}; "
        f"a dtype ({', '.join(DTYPE_NAMES)}), alone or after an op class ({', '.join(OP_CLASSES)}), "
        "such as 'matmul:float16'"
    )


def dtype_word(dtype: Any) -> Any:
    """Return the name of a dtype object or scalar type such as ``numpy.float32``; other values are returned as is."""
    return dtype.__name__ if isinstance(dtype, type) else getattr(dtype, "name", dtype)


def unknown_dtype(name: object) -> str:
    """Return the error message for a `name` that is not in `DTYPE_NAMES`; it suggests the most similar name."""
    short = _SHORT_NAMES.get(str(name))
    meant = did_you_mean(str(name), DTYPE_NAMES) if short is None else f" (did you mean {short!r}?)"
    return f"{shown(name)} is not a dtype that cuassay knows{meant}; give one of {', '.join(DTYPE_NAMES)}"


#: Names of dtypes in other projects.
_SHORT_NAMES = {
    "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16", "fp32": "float32", "f32": "float32",
    "float": "float32", "fp64": "float64", "f64": "float64", "double": "float64", "int": "int64", "long": "int64",
}  # fmt: skip


@dataclass(slots=True)
class Capabilities:
    """The cached answers of one device.

    Parameters
    ----------
    device : Device
        The device.
    probe : callable
        Called at most once per name, with a feature, a quantity or ``op_class:dtype``.
    """

    device: Device
    probe: Callable[[str], Answer]
    _answers: dict[str, Answer] = field(default_factory=dict, repr=False)

    def answer(self, name: str) -> Answer:
        """Return the cached result of the probe for `name`.

        A dtype without an op class must be supported for storage, elementwise operations and reductions.
        """
        found = self._answers.get(name)
        if found is None:
            found = self._answers[name] = self._ask(name)
        return found

    def _ask(self, name: str) -> Answer:
        if name not in DTYPE_NAMES:
            return self.probe(name)
        answers = (self.answer(f"{op_class}:{name}") for op_class in ("storage", "elementwise", "reduction"))
        return next((answer for answer in answers if not answer), present())

    def missing(self, requirement: str | Requirement) -> str | None:
        """Return why `requirement` is not met, or None if it is."""
        need = parse_requirement(requirement) if isinstance(requirement, str) else requirement
        found = self.answer(need.name)
        if not found:
            return f"{self.device}: no {need.name}: {found.reason}"
        if need.minimum is not None and found.value < need.minimum:
            return f"{self.device}: {need.text} needed; it has {_size(need.name, found.value)}"
        return None

    def require(self, requirements: Iterable[str]) -> None:
        """Raise `CapabilityError`, naming every missing requirement, unless all are met."""
        reasons = [reason for need in requirements if (reason := self.missing(need)) is not None]
        if reasons:
            raise CapabilityError("; ".join(reasons))


def _size(name: str, value: float) -> str:
    return format_bytes(int(value)) if name in ("memory", "l2") else f"{value:g}"
