"""The samples of a spec that gives none: shapes with tails, broadcasting, and special numbers of the dtype."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import COMPLEX, INTEGERS, as_dtype, promote
from cuassay.errors import DTypeError, SpecError
from cuassay.ops.operation import Op
from cuassay.testing.declared import FORMS
from cuassay.testing.samples import HostArray, Kind, Sample, Samples, joined

__all__ = ["AWKWARD", "array_count", "binary", "default_samples", "promoting", "unary"]

Shape = tuple[int, ...]

#: Extents around the sizes of warps, vectors, blocks and tiles, where kernels forget tails.
AWKWARD: tuple[int, ...] = (1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 4097)


#: Larger integers than float32 represents exactly, so that a conversion to float32 and back shows.
_WIDE = 2**25

#: More elements than a block of threads processes in any dtype, in rows that vectors do not divide.
_BLOCKS: Shape = (67, 129)

_GRIDS: tuple[Shape, ...] = ((3, 5, 7), (64, 129), (33, 31), (1, 257), (2, 1, 3, 1, 5))

_ORDINARY: tuple[Shape, ...] = (*((extent,) for extent in AWKWARD), *_GRIDS)

_PAIRS: tuple[tuple[Kind, Shape, Shape], ...] = (
    ("empty", (0,), (0,)), ("empty", (3, 0, 2), (2,)), ("empty", (0, 1), (1, 4)),
    ("scalar", (), ()), ("scalar", (), (5,)),
    ("broadcast", (4, 1), (5,)), ("broadcast", (129,), (33, 129)), ("broadcast", (2, 1, 3), (7, 1)),
    ("broadcast", (1,), (257,)), ("broadcast", (67, 128), (128,)), ("broadcast", (9, 1), (1, 9)),
)  # fmt: skip

_KIND_LABELS: dict[str, str] = {"empty": "no elements", "scalar": "0-d", "broadcast": "broadcast"}
_WIDE_LABEL = "integers of 26 bits, more than float32 holds: shape 257"
_EDGE_LABEL = "edges of the dtype: zeros, infinities, NaN, the smallest and largest numbers"


def _shape_label(shape: Shape) -> str:
    """A label for the shape; if its extent is next to a power of two, where kernels forget tails, it names that."""
    label = f"shape {joined(shape)}"
    if len(shape) > 1 or shape[0] < 31:
        return label
    power = 1 << round(math.log2(shape[0]))
    words = {-1: "one below", 0: "exactly", 1: "one above"}
    return f"{label}, {words[shape[0] - power]} {power:,}"


def unary(make: Samples, *, largest: bool = True) -> Iterator[Sample]:
    """Yield samples of an elementwise function of one array; `largest` as in `Samples.extremal`."""
    for shape in _ORDINARY:
        yield Sample((make(shape),), label=_shape_label(shape))
    if make.dtype in INTEGERS:
        yield Sample((make(257, low=-_WIDE, high=_WIDE),), label=_WIDE_LABEL)
    for shape in ((0,), (3, 0, 2)):
        yield Sample((make(shape),), kind="empty", label=f"no elements: shape {joined(shape)}")
    yield Sample((make(()),), kind="scalar", label="0-d")
    yield Sample((make.extremal(largest=largest),), kind="extremal", label=_EDGE_LABEL)


def binary(make: Samples, *, largest: bool = True) -> Iterator[Sample]:
    """Yield samples of an elementwise function of two arrays that broadcast; `largest` as in `Samples.extremal`."""
    for shape in _ORDINARY:
        yield Sample((make(shape), make(shape)), label=_shape_label(shape))
    if make.dtype in INTEGERS:
        wide = (make(257, low=-_WIDE, high=_WIDE), make(257, low=-_WIDE, high=_WIDE))
        yield Sample(wide, label=_WIDE_LABEL)
    for kind, left, right in _PAIRS:
        label = f"{_KIND_LABELS[kind]}: shapes {joined(left)}, {joined(right)}"
        yield Sample((make(left), make(right)), kind=kind, label=label)
    yield from _mixed(make)
    edge = make.extremal(largest=largest)
    grid = np.meshgrid(edge.values, edge.values)
    pairs = (HostArray(grid[0].copy()), HostArray(grid[1].copy()))
    yield Sample(pairs, kind="extremal", label=f"{_EDGE_LABEL}, each with each")
    number = 2 if make.dtype in INTEGERS else 1.1
    yield Sample((make(_BLOCKS), number), {}, f"{number} at the right of {joined(_BLOCKS)}", "python")
    yield Sample((number, make(_BLOCKS)), {}, f"{number} at the left of {joined(_BLOCKS)}", "python")
    transposed = make(_BLOCKS, layout="transposed")
    yield Sample((transposed, number), {}, f"{number} with a transposed array of {joined(_BLOCKS)}", "python")


def promoting(dtype: str, *others: str) -> Iterator[str]:
    """Those of `others` that differ from `dtype` and have a common dtype with it."""
    for other in others:
        with suppress(DTypeError):
            promote(as_dtype(dtype), as_dtype(other))
            if other != dtype:
                yield other


def _mixed(make: Samples) -> Iterator[Sample]:
    number = 2 if make.dtype in INTEGERS else 1.1  # 16-bit floats cannot represent 1.1, and must not round it first
    for other in promoting(make.dtype, "uint8", "int32", "float16", "bfloat16", "float32", "complex64"):
        yield Sample((make((3, 33)), make((3, 33), dtype=other)), {}, f"with {other}", "promotion")
    yield Sample((make(33), number), {}, f"{number} at the right", "python")
    yield Sample((number, make((2, 33))), {}, f"{number} at the left", "python")
    yield Sample((make((3, 33), layout="transposed"), number), {}, f"{number} with a transposed array", "python")


#: Advice on how to give samples of several arrays.
_FORM = (
    "default inputs exist for one or two arrays only; give the arrays of each call as a tuple: "
    "samples=lambda make: [(make((3, 5)), make((3, 5)), make((3, 5)))]"
)


def array_count(name: str, fn: Callable[..., Any] | None) -> int:
    """The number of arrays that a function requires by position; `SpecError` if that is 0 or not fixed."""
    if fn is None:
        return 0
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError as error:  # a builtin, or a ufunc of an older NumPy
        raise SpecError(f"{name} has no signature that can be read: {error}; write fn={FORMS['fn']}") from error
    required = required_names(parameters)
    if len(required) > 1:
        return len(required) - 1
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        raise SpecError(f"{name} takes any number of arrays; {_FORM}")
    here = f" (here {parameters[0].name!r})" if parameters and parameters[0].name != "xp" else ""
    raise SpecError(
        f"{name} takes no array by position; its first parameter is xp, the array namespace{here}, and arrays follow: "
        f"write fn={FORMS['fn']}, or give samples="
    )


def required_names(parameters: Iterable[inspect.Parameter]) -> list[str]:
    """The names of required positional parameters."""
    return [one.name for one in parameters if one.kind in _POSITIONAL and one.default is one.empty]


#: Kinds of parameters that accept positional arguments.
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def default_samples(
    name: str, fn: Callable[..., Any] | None, op: Op | None, *, has_reference: bool
) -> Callable[[Samples], Iterator[Sample]]:
    """The function that draws the samples of a spec that gives none; `SpecError` if it takes more than two arrays."""
    count = len(op.schema.arrays) if op is not None else array_count(name, fn)
    if count > 2:
        raise SpecError(f"{name} takes {count} arrays; {_FORM}")
    drawn = unary if count == 1 else binary

    def samples(make: Samples) -> Iterator[Sample]:
        yield from drawn(make, largest=op is not None)
        if op is None and has_reference and make.dtype not in (*INTEGERS, *COMPLEX, "bool"):
            far = make.far()
            yield Sample(
                (far, HostArray(far.values[::-1].copy()))[:count],
                kind="extremal",
                label="exp overflows",
            )

    return samples
