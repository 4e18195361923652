"""Shape rules of matrix products, usable without calls; those of stacks, vectors and layers are in `shapes`.

Each rule checks what every device kind must reject alike: extents, activations, offsets, and scales of fp8 operands.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from numbers import Complex, Real
from typing import Any, NamedTuple

from cuassay.arrays.dtypes import COMPLEX, FLOATS, FP8, as_dtype, dtype_name, is_complex
from cuassay.arrays.layout import broadcast_shapes
from cuassay.core.numbers import as_whole
from cuassay.errors import ArgumentError, DTypeError, ShapeError
from cuassay.ops import shapes
from cuassay.ops.schema import Arguments, ShapeRule

__all__ = [
    "ACTIVATIONS",
    "MixedForm",
    "added",
    "formats",
    "grouped",
    "groups",
    "layer",
    "matrices",
    "mixed",
    "mixed_form",
    "pairs",
    "scaled",
    "scaling",
]

Shape = tuple[int, ...]

#: The activations that may follow a product in the same pass. GELU is the tanh form, because libraries fuse that one.
ACTIVATIONS = (None, "relu", "gelu_tanh")


def matrices(bound: Arguments) -> Shape:
    """Map (M, K) and (K, N) to (M, N) without broadcasting."""
    a, b = shapes.shape_of(bound["a"]), shapes.shape_of(bound["b"])
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise ShapeError(f"mm needs matrices (M, K) and (K, N); got {a} and {b}; use matmul for vectors and stacks")
    _check_out_dtype(bound)
    return a[0], b[1]


def pairs(bound: Arguments) -> Shape:
    """Map (B, M, K) and (B, K, N) to (B, M, N) without broadcasting."""
    a, b = shapes.shape_of(bound["a"]), shapes.shape_of(bound["b"])
    if len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1]:
        raise ShapeError(f"bmm needs stacks (B, M, K) and (B, K, N); got {a} and {b}; use matmul to broadcast them")
    _check_out_dtype(bound)
    return a[0], a[1], b[2]


def _check_out_dtype(bound: Arguments) -> None:
    """Check that ``out_dtype`` can hold the result: a floating dtype, or complex if an operand is complex."""
    named = bound.get("out_dtype")
    if named is None:
        return
    allowed = COMPLEX if is_complex(bound["a"].dtype) or is_complex(bound["b"].dtype) else FLOATS
    if dtype_name(as_dtype(named)) not in allowed:
        raise DTypeError(f"out_dtype must be one of {', '.join(allowed)}; got {named!r}; cast the result to others")


def added(rule: ShapeRule) -> ShapeRule:
    """Extend `rule` by a check that `c` broadcasts to its shape and that the activation, if any, exists."""

    def checked(bound: Arguments) -> Shape:
        shape, c = rule(bound), shapes.shape_of(bound["c"])
        if len(c) > len(shape) or broadcast_shapes(c, shape) != shape:
            raise ShapeError(f"c must broadcast to the product's shape {shape}; got {c}; expand or reshape it")
        _check_factors(bound)
        _check_activation(bound)
        return shape

    return checked


def _check_factors(bound: Arguments) -> None:
    """Check that alpha and beta are numbers on the host, and complex only if an operand is."""
    for name in ("alpha", "beta"):
        value = bound[name]
        if type(value) in (float, int) or isinstance(value, Real):  # exact types first, for speed
            continue
        if not isinstance(value, Complex) or not any(is_complex(bound[one].dtype) for one in ("c", "a", "b")):
            raise ArgumentError(f"{name} must be a number, complex only if an operand is; got {value!r}; give a float")


def layer(bound: Arguments) -> Shape:
    """Apply `shapes.linear`, and check that the activation exists."""
    _check_activation(bound)
    return shapes.linear(bound)


def _check_activation(bound: Arguments) -> None:
    dtypes = (value.dtype for value in bound.values() if hasattr(value, "dtype"))
    if bound.get("activation") and any(map(is_complex, dtypes)):
        raise DTypeError("an activation needs real numbers; got complex ones; apply it to parts of the result")
    if bound.get("activation") not in ACTIVATIONS:
        names = ", ".join(map(repr, ACTIVATIONS))
        raise ArgumentError(f"activation must be one of {names}; got {bound['activation']!r}; apply others after")


# ------------------------------------------------------------------------------------------------ groups


def grouped(bound: Arguments) -> Shape:
    """Map rows (T, K), in groups that end at ``offs``, and (G, K, N) to (T, N)."""
    a, b = shapes.shape_of(bound["a"]), shapes.shape_of(bound["b"])
    if len(a) != 2 or len(b) != 3 or a[1] != b[1]:
        raise ShapeError(f"grouped_mm needs rows (T, K) and matrices (G, K, N); got {a} and {b}; reshape an operand")
    groups(bound["offs"], b[0], a[0])
    return a[0], b[2]


def groups(offs: Any, count: int, rows: int) -> tuple[tuple[int, int], ...]:
    """Return first row and end of each of `count` groups that end at `offs`; rows after the last group become 0.

    Raises
    ------
    ArgumentError
        If `offs` are not `count` ascending whole numbers up to `rows`.
    """
    wholes = tuple(map(as_whole, offs if isinstance(offs, Iterable) else (offs,)))
    ends = tuple(end for end in wholes if end is not None)
    ascending = all(first <= second for first, second in pairwise((0, *ends, rows)))
    if len(wholes) != count or None in wholes or not ascending:
        raise ArgumentError(
            f"offs must be {count} ascending whole numbers up to {rows}, the ends of the groups, on the host; "
            f"got {offs!r}; of an array give tuple(array.tolist())"
        )
    return tuple(pairwise((0, *ends)))


# ------------------------------------------------------------------------------------------------ fp8


def scaled(bound: Arguments) -> Shape:
    """Map fp8 (M, K) and (K, N), with one scale per array or per row and column, to (M, N)."""
    shape = matrices(bound)
    formats(bound)
    scaling(bound)
    bias = bound["bias"]
    if bound["out_dtype"] is None:
        raise ArgumentError(
            f"scaled_mm needs out_dtype, as fp8 operands name none; got None; give one of {', '.join(FLOATS)}"
        )
    _check_out_dtype(bound)
    if bias is not None and shapes.shape_of(bias) != shape[1:]:
        raise ShapeError(
            f"scaled_mm's bias must have shape {shape[1:]}; got {shapes.shape_of(bias)}; give one for each column"
        )
    return shape


def formats(bound: Arguments) -> tuple[str, str]:
    """Return the fp8 formats of `a` and `b`: their dtypes or, for codes held as uint8, the named formats.

    Raises
    ------
    DTypeError
        If a format is ambiguous or missing.
    """
    return _format(bound, "a"), _format(bound, "b")


def _format(bound: Arguments, name: str) -> str:
    held, named = dtype_name(bound[name].dtype), bound[f"format_{name}"]
    if held in FP8 and named in (None, held):
        return held
    if held == "uint8" and named in FP8:
        return str(named)
    raise DTypeError(
        f"scaled_mm's {name} is {held} with format_{name}={named!r}; give an array of {' or '.join(FP8)}, "
        f"or its codes as uint8 and format_{name}= one of these"
    )


def scaling(bound: Arguments) -> str:
    """Return ``"tensor"`` for one scale per array, or ``"outer"`` for one per row of `a` and per column of `b`.

    Raises
    ------
    ShapeError
        If the scales have neither form.
    DTypeError
        If they are not floating numbers.
    """
    a, b = shapes.shape_of(bound["scale_a"]), shapes.shape_of(bound["scale_b"])
    rows, columns = shapes.shape_of(bound["a"])[0], shapes.shape_of(bound["b"])[1]
    for name in ("scale_a", "scale_b"):
        if (found := dtype_name(bound[name].dtype)) not in FLOATS:
            raise DTypeError(f"scaled_mm's {name} must be one of {', '.join(FLOATS)}; got {found}; cast it to float32")
    if a in ((), (1,), (1, 1)) and b in ((), (1,), (1, 1)):
        return "tensor"
    if (a, b) == ((rows, 1), (1, columns)):
        return "outer"
    raise ShapeError(
        f"scaled_mm's scales must have one element each, or shapes {(rows, 1)} and {(1, columns)}; got {a} and {b}; "
        "scale by blocks with products of the blocks"
    )


# ------------------------------------------------------------------------------------------------ integer weights


class MixedForm(NamedTuple):
    """What the weights of `mixed_linear` are: their rows and terms, the bits of a number, and the groups of terms."""

    rows: int
    depth: int
    bits: int
    groups: int

    @property
    def group(self) -> int:
        """Terms that share a scale."""
        return self.depth // self.groups


def mixed(bound: Arguments) -> Shape:
    """Map (..., K) and weights (N, K) of int8, or (N, K / 2) of uint8 with two numbers each, to (..., N)."""
    form, a, bias = mixed_form(bound), bound["a"], bound["bias"]
    if bias is not None and shapes.shape_of(bias) != (form.rows,):
        raise ShapeError(
            f"mixed_linear's bias must have shape {(form.rows,)}; got {shapes.shape_of(bias)}; "
            "give one for each row of the weight"
        )
    if bias is not None and dtype_name(bias.dtype) != dtype_name(a.dtype):
        raise DTypeError(
            f"mixed_linear's bias must be {dtype_name(a.dtype)}, as its inputs; got {dtype_name(bias.dtype)}; cast it"
        )
    _check_activation(bound)
    return *shapes.shape_of(a)[:-1], form.rows


def mixed_form(bound: Arguments) -> MixedForm:
    """Return what the weights are.

    Raises
    ------
    ShapeError
        If the weights do not fit the inputs, or the scales the weights.
    DTypeError
        If the weights are neither int8 nor uint8, or the scales not floating numbers.
    """
    a, weight, scale = (shapes.shape_of(bound[name]) for name in ("a", "weight", "scale"))
    of_weight = _one_of(bound, "weight", ("int8", "uint8"), "quantize it; uint8 holds two numbers of 4 bits")
    _one_of(bound, "scale", FLOATS, "cast it to float32")
    bits = 8 if of_weight == "int8" else 4
    if not a or len(weight) != 2 or a[-1] != weight[1] * 8 // bits:
        terms = "K" if bits == 8 else "K / 2"
        raise ShapeError(
            f"mixed_linear needs inputs (..., K) and {of_weight} weights (N, {terms}); got {a} and {weight}; "
            "a uint8 holds two neighbouring terms of a row"
        )
    groups = scale[1] if len(scale) == 2 else 1
    if scale[:1] != weight[:1] or len(scale) not in (1, 2) or groups < 1 or a[-1] % groups:
        raise ShapeError(
            f"mixed_linear's scale must have shape {(weight[0],)}, or (N, G) with G groups of the {a[-1]} terms; "
            f"got {scale}; give each group as many terms"
        )
    return MixedForm(weight[0], a[-1], bits, groups)


def _one_of(bound: Arguments, name: str, allowed: tuple[str, ...], advice: str) -> str:
    """Return the dtype of an argument of `mixed_linear`, which must be an array of an allowed one."""
    value = bound[name]
    found = dtype_name(value.dtype) if hasattr(value, "dtype") else f"the number {value!r}"
    if found not in allowed:
        raise DTypeError(f"mixed_linear's {name} must be one of {', '.join(allowed)}; got {found}; {advice}")
    return found
