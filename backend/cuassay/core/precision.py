"""The precision of matrix products: the modes, and the contexts and defaults that set them.

The *mode* says how float32 operands are treated. It is set by a context, by a call, or as the default of the process.
The *options* say which accuracy a product of 16-bit operands may give up, for the process. Names follow ``torch`` where
it has them. Implementations read both at each call; this module computes nothing.
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

#: What each mode does to the operands of a float32 product. Sums are float32 in all modes. A device may use a more
#: precise mode instead: an H200 computes ``tf32x3`` as ``bf16x6``, and small products as ``ieee``.
MODES: dict[str, str] = {
    "ieee": "operands unchanged",
    "tf32": "operands rounded to TF32 (10 explicit bits of mantissa)",
    "tf32x3": "operands split into two TF32 parts, three products",
    "bf16x3": "operands split into two bfloat16 parts, three products: 16 bits of each operand",
    "bf16x6": "operands split into three bfloat16 parts, the six largest products",
    "bf16x9": "operands split into three bfloat16 parts, all nine products",
    "bf16": "operands rounded to bfloat16",
    "fp16": "operands rounded to float16",
}

#: The names of ``torch.set_float32_matmul_precision``. In torch "medium" is still TF32 on CUDA; here it is bfloat16.
_WORDS: dict[str, Mode] = {"highest": "ieee", "high": "tf32", "medium": "bf16"}

#: None until first needed. The setting is read once, because reading takes microseconds and every product needs it.
_default: Mode | None = None
_current: ContextVar[Mode | None] = ContextVar("cuassay_precision", default=None)


def current_precision() -> Mode:
    """Return the mode in force: that of the innermost `precision` context, else the process default."""
    return _current.get() or _default or default_precision()


def default_precision() -> Mode:
    """Return the process default: the one set last, else ``CUASSAY_FLOAT32_PRECISION`` as first read."""
    global _default  # noqa: PLW0603  one per process
    if _default is None:
        _default = _from_environment()
    return _default


def set_default_precision(mode: Mode | None) -> Mode:
    """Set the process default, and return the former one. None reads ``CUASSAY_FLOAT32_PRECISION`` again.

    Raises
    ------
    ArgumentError
        If `mode` is not one of `MODES`.
    SettingError
        If the variable does not hold one of `MODES`.
    """
    global _default
    chosen = _from_environment() if mode is None else _checked(mode)
    former, _default = default_precision(), chosen
    return former


def _from_environment() -> Mode:
    mode: Mode = settings.get("CUASSAY_FLOAT32_PRECISION")
    if mode not in MODES:
        raise SettingError(
            f"CUASSAY_FLOAT32_PRECISION must be one of {', '.join(MODES)}; got {mode!r}; correct it or unset it"
        )
    return mode


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
    """Return the mode of one call: `override`, or the mode in force if it is None.

    Raises
    ------
    ArgumentError
        If `override` is not one of `MODES`.
    """
    return current_precision() if override is None else _checked(override)


def _checked(mode: object) -> Mode:
    if not isinstance(mode, str) or mode not in MODES:
        raise ArgumentError(f"{shown(mode)} is not a precision mode; give one of {', '.join(MODES)}")
    return cast("Mode", mode)


def set_float32_matmul_precision(precision: str) -> None:
    """Set the process default by torch's names: ``"highest"`` is ieee, ``"high"`` tf32, ``"medium"`` bf16.

    Raises
    ------
    ArgumentError
        If it is another name.
    """
    word: object = precision  # callers without a type checker pass anything
    if not isinstance(word, str) or word not in _WORDS:
        raise ArgumentError(f"{shown(word)} is not one of torch's precisions; give one of {', '.join(_WORDS)}")
    set_default_precision(_WORDS[word])


def get_float32_matmul_precision() -> str:
    """Return the process default by torch's names. bf16x3 is "high"; the more precise split modes are "highest"."""
    return {"tf32": "high", "bf16x3": "high", "bf16": "medium", "fp16": "medium"}.get(default_precision(), "highest")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulOptions:
    """Options of products of 16-bit operands. torch's names for them start with ``allow_``.

    Attributes
    ----------
    fp16_reduced_precision_reduction, bf16_reduced_precision_reduction : bool
        Whether the parts of a product split along K may be added in 16 bits. torch's default is True. Ours is False,
        because such a result is not a rounded float32 sum (bfloat16, K = 1,025: off by 0.75 units in the last place).
    fp16_split_k, bf16_split_k : bool
        Whether a product may be split along K.
    fp16_accumulation : bool
        Whether float16 products may accumulate in float16.
    """

    fp16_reduced_precision_reduction: bool = False
    bf16_reduced_precision_reduction: bool = False
    fp16_split_k: bool = True
    bf16_split_k: bool = True
    fp16_accumulation: bool = False


_options = MatmulOptions()


def matmul_options() -> MatmulOptions:
    """Return the options in force for the whole process."""
    return _options


def set_matmul_options(**changes: bool) -> MatmulOptions:
    """Change some of the options, and return the former ones; ``set_matmul_options(**asdict(former))`` restores them.

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
