"""The precision in which matrix products are computed: the modes by name, the contexts and defaults that set them.

Two things are set here. The *mode* says what becomes of float32 operands, by context, by call or as the default of the
process. The *options* say what a product of 16-bit operands may give up, for the process. Names follow ``torch`` where
it has one. An implementation asks at the time of the call; nothing here computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast

from cuassay.core import settings, surroundings
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, SettingError

__all__ = [
    "MODES",
    "MatmulOptions",
    "Mode",
    "current_precision",
    "default_precision",
    "get_float32_matmul_precision",
    "matmul_options",
    "precision",
    "resolved",
    "set_default_precision",
    "set_float32_matmul_precision",
    "set_matmul_options",
]

Mode = Literal["ieee", "tf32", "tf32x3", "bf16x3", "bf16x6", "bf16x9", "bf16", "fp16"]

#: What each mode does to the operands of a float32 product; sums are float32 in all of them. A device may compute in a
#: more precise one instead: an H200 serves ``tf32x3`` by ``bf16x6``, and small products by ``ieee``.
MODES: dict[str, str] = {
    "ieee": "float32 as it is",
    "tf32": "operands rounded to TF32 (10 explicit bits of mantissa)",
    "tf32x3": "operands split into two TF32 parts, three products",
    "bf16x3": "operands split into two bfloat16 parts, three products: 16 bits of each operand",
    "bf16x6": "operands split into three bfloat16 parts, the six largest products",
    "bf16x9": "operands split into three bfloat16 parts, all nine products",
    "bf16": "operands rounded to bfloat16",
    "fp16": "operands rounded to float16",
}

#: ``torch.set_float32_matmul_precision``'s words. There "medium" is TF32 on CUDA all the same; here it is what it says.
_WORDS: dict[str, Mode] = {"highest": "ieee", "high": "tf32", "medium": "bf16"}

#: None: not asked for yet. The setting is read once, as reading it costs microseconds and every product asks.
_default: Mode | None = None
_current: ContextVar[Mode | None] = ContextVar("cuassay_precision", default=None)


def current_precision() -> Mode:
    """The mode in force here: the innermost `precision` context, else the process default."""
    return _current.get() or _default or default_precision()


def default_precision() -> Mode:
    """The process default: what was set last, else ``CUASSAY_FLOAT32_PRECISION`` as it was at the first question."""
    global _default  # noqa: PLW0603  one a process
    if _default is None:
        _default = _given()
    return _default


def set_default_precision(mode: Mode | None) -> Mode:
    """Set the process default; return the former one. None reads ``CUASSAY_FLOAT32_PRECISION`` again."""
    global _default
    chosen = _given() if mode is None else _checked(mode)
    former, _default = default_precision(), chosen
    return former


def _given() -> Mode:
    given: Mode = settings.get("CUASSAY_FLOAT32_PRECISION")
    if given not in MODES:
        raise SettingError(
            f"CUASSAY_FLOAT32_PRECISION must be one of {', '.join(MODES)}; got {given!r}; correct it or unset it"
        )
    return given


@contextmanager
def precision(mode: Mode) -> Iterator[None]:
    """Compute float32 products in `mode` inside the block, in this thread or task only.

    Raises
    ------
    ArgumentError
        If `mode` is not one of `MODES`.
    """
    token = _current.set(_checked(mode))
    try:
        yield
    finally:
        _current.reset(token)


surroundings.register(lambda: partial(precision, current_precision()))


def resolved(override: Mode | None) -> Mode:
    """The mode of one call: what it was given, else the one in force. Raises `ArgumentError`."""
    return current_precision() if override is None else _checked(override)


def _checked(mode: object) -> Mode:
    if not isinstance(mode, str) or mode not in MODES:
        raise ArgumentError(f"{shown(mode)} is not a precision mode; give one of {', '.join(MODES)}")
    return cast("Mode", mode)


def set_float32_matmul_precision(precision: str) -> None:
    """Set the process default by torch's words: ``"highest"`` ieee, ``"high"`` tf32, ``"medium"`` bf16.

    Raises
    ------
    ArgumentError
        If it is another word.
    """
    word: object = precision  # callers without a type checker pass anything
    if not isinstance(word, str) or word not in _WORDS:
        raise ArgumentError(f"{shown(word)} is not one of torch's precisions; give one of {', '.join(_WORDS)}")
    set_default_precision(_WORDS[word])


def get_float32_matmul_precision() -> str:
    """The process default in torch's words: bf16x3 is "high", the other split modes are as good as float32."""
    return {"tf32": "high", "bf16x3": "high", "bf16": "medium", "fp16": "medium"}.get(default_precision(), "highest")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulOptions:
    """What a product of 16-bit operands may give up; torch's names, where each starts with ``allow_``.

    Attributes
    ----------
    fp16_reduced_precision_reduction, bf16_reduced_precision_reduction : bool
        The parts of a product split along K may be added in 16 bits. torch allows it from the start. We do not: such
        a result is not the rounding of a float32 sum (bfloat16, K = 1,025: 0.75 units in the last place off).
    fp16_split_k, bf16_split_k : bool
        A product may be split along K at all.
    fp16_accumulation : bool
        float16 products may accumulate in float16.
    """

    fp16_reduced_precision_reduction: bool = False
    bf16_reduced_precision_reduction: bool = False
    fp16_split_k: bool = True
    bf16_split_k: bool = True
    fp16_accumulation: bool = False


_options = MatmulOptions()


def matmul_options() -> MatmulOptions:
    """The options in force, for the whole process."""
    return _options


def set_matmul_options(**changes: bool) -> MatmulOptions:
    """Change some of the options; return the former ones, which ``set_matmul_options(**asdict(former))`` restores.

    Raises
    ------
    ArgumentError
        If there is no such option, its value is not a bool, or a dtype allows reduced reductions but not split-k.
    """
    global _options
    for name, value in changes.items():
        if name not in MatmulOptions.__dataclass_fields__ or not isinstance(value, bool):
            known = ", ".join(MatmulOptions.__dataclass_fields__)
            raise ArgumentError(
                f"{name}={shown(value)} is not an option of matrix products; set one of these to True or False: {known}"
            )
    wanted = replace(_options, **changes)
    for dtype in ("fp16", "bf16"):
        if getattr(wanted, f"{dtype}_reduced_precision_reduction") and not getattr(wanted, f"{dtype}_split_k"):
            raise ArgumentError(
                f"{dtype}: allow_splitk=False is not supported when reduced precision reductions are allowed; "
                "forbid those, or allow split-k"
            )
    former, _options = _options, wanted
    return former
