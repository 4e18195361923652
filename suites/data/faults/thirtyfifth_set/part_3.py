"""Options, masks, padding of shapes, complex numbers, transforms, polynomials, special functions: faults with twins."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cuassay.testing import ErrorInput, OpSpec, Sample


class Pair(NamedTuple):
    name: str
    kind: str
    origin: str
    shows: str
    checks: tuple[str, ...]
    make: Callable[[], tuple[Any, Any, Any]]


PAIRS: list[Pair] = []


def pair(name, kind, origin, shows, *checks):
    def register(make):
        PAIRS.append(Pair(name, kind, origin, shows, checks, make))
        return make

    return register


@pair(
    "sample_variance",
    "a negative number of degrees of freedom is divided by",
    "torch.var and cupy.var with a correction larger than the number of elements: negative variances instead of nan",
    "two rows with ddof=3 and axis=0: a negative variance where nan is right",
)
def sample_variance():
    """The variance with `ddof` degrees of freedom used up; nan where none are left."""

    def spread(a, left, axis, keepdims):
        wide = a.astype("float64")
        away = wide - wide.mean(axis=axis, keepdims=True)
        return ((away * away).sum(axis=axis, keepdims=keepdims) / left).astype(a.dtype)

    def undefined(xp, a, axis, keepdims):
        shape = list(a.shape)
        shape[axis : axis + 1 or None] = [1] if keepdims else []
        return xp.full(tuple(shape), math.nan, dtype=a.dtype)

    def check(ddof):
        if ddof < 0:
            raise ValueError(f"ddof is {ddof}; give 0 or more")

    def wrong(xp, a, ddof=0, axis=-1, keepdims=False):
        check(ddof)
        left = a.shape[axis] - ddof
        if left == 0 or a.shape[axis] == 0:
            return undefined(xp, a, axis, keepdims)
        return spread(a, left, axis, keepdims)

    def right(xp, a, ddof=0, axis=-1, keepdims=False):
        check(ddof)
        left = a.shape[axis] - ddof
        if left <= 0:
            return undefined(xp, a, axis, keepdims)
        return spread(a, left, axis, keepdims)

    def reference(a, ddof=0, axis=-1, keepdims=False):
        left = a.shape[axis] - ddof
        if left <= 0:
            return np.full_like(a.sum(axis=axis, keepdims=keepdims), math.nan)
        return ((a - a.mean(axis=axis, keepdims=True)) ** 2).sum(axis=axis, keepdims=keepdims) / left

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="sample_variance",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((5, 33)),
                Sample((make((4, 9)),), {"ddof": 3, "axis": 0}),
                Sample((make((2, 6, 5)),), {"ddof": 1, "axis": 1, "keepdims": True}),
                Sample((make((3, 0)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"ddof": -1}), ValueError, "ddof is -1")],
        )

    return wrong, right, declare


@pair(
    "round_decimals",
    "out= is ignored where there is nothing to round",
    "ndarray.round of integers in array libraries: the early return of a copy came before out was looked at",
    "int32 with decimals=0 and out=: the array out keeps its old content",
)
def round_decimals():
    """Numbers rounded to `decimals` places, half to even; integers change only for negative `decimals`."""

    def check(decimals):
        if decimals != int(decimals):
            raise TypeError(f"decimals is {decimals}; give an integer")

    def rounded(xp, a, decimals):
        wide, scale = a.astype("float64"), 10.0 ** abs(decimals)
        if decimals < 0:
            return (xp.rint(wide / scale) * scale).astype(a.dtype)
        return (xp.rint(wide * scale) / scale).astype(a.dtype)

    def wrong(xp, a, decimals=0, out=None):
        check(decimals)
        if a.dtype.kind in "iu" and decimals >= 0:
            return a.copy()
        result = rounded(xp, a, decimals)
        if out is None:
            return result
        out[...] = result
        return out

    def right(xp, a, decimals=0, out=None):
        check(decimals)
        exact = a.dtype.kind in "iu" and decimals >= 0
        result = a.copy() if exact else rounded(xp, a, decimals)
        if out is None:
            return result
        out[...] = result
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="round_decimals",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make((5, 33), low=-9999, high=9999),
                Sample((make((3, 17), low=-9999, high=9999),), {"decimals": 2}),
                Sample((make(40, low=-9999, high=9999),), {"decimals": -2}),
            ],
            reference=lambda a, decimals=0: np.round(a, decimals),
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=9),), {"decimals": 0.5}), TypeError, "decimals is 0.5")
            ],
        )

    return wrong, right, declare


@pair(
    "mean_where",
    "the mask is counted before it is broadcast",
    "numpy.mean and cupy.mean with where=: the number of elements has to be that of the mask as broadcast",
    "an array (3, 4, 5) with a mask (4, 5) and axis=0: the count runs over the wrong axis of the mask",
)
def mean_where():
    """The mean along an axis of the elements where a mask is true; the mask broadcasts, no elements give nan."""

    def divide(xp, a, mask, count, axis):
        total = xp.where(mask, a.astype("float64"), 0.0).sum(axis=axis)
        return xp.where(count > 0, total / xp.maximum(count, 1), math.nan).astype(a.dtype)

    def wrong(xp, a, where, axis=-1):
        return divide(xp, a, xp.broadcast_to(where, a.shape), where.sum(axis=axis), axis)

    def right(xp, a, where, axis=-1):
        mask = xp.broadcast_to(where, a.shape)
        return divide(xp, a, mask, mask.sum(axis=axis), axis)

    def reference(a, where, axis=-1):
        a, mask = np.moveaxis(a, axis, -1), np.moveaxis(np.broadcast_to(where, a.shape), axis, -1)
        out = np.full(a.shape[:-1], math.nan)
        for i in np.ndindex(out.shape):
            if mask[i].any():
                out[i] = a[i][mask[i]].mean()
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="mean_where",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                (make(30), make(30, dtype="bool")),
                Sample((make((4, 9)), make((4, 9), dtype="bool")), {"axis": 0}),
                Sample((make((3, 4, 5)), make((4, 5), dtype="bool")), kind="broadcast"),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "complex_tanh",
    "overflow in both halves of a quotient",
    "complex tanh of thrust and of early array libraries: sinh(2x) / (cosh(2x) + cos(2y)) is inf / inf for large x",
    "400 + 1j: nan where the result is 1",
)
def complex_tanh():
    """The hyperbolic tangent of complex numbers."""

    def wrong(xp, a):
        x, y = 2 * a.real.astype("float64"), 2 * a.imag.astype("float64")
        below = xp.cosh(x) + xp.cos(y)
        return (xp.sinh(x) / below + 1j * (xp.sin(y) / below)).astype(a.dtype)

    def right(xp, a):
        return xp.tanh(a.astype("complex128")).astype(a.dtype)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="complex_tanh",
            dtypes=("complex64",),
            samples=lambda make: [make(40), make((3, 17)), Sample((make(()),), kind="scalar")],
            reference=lambda a: np.tanh(a),
        )

    return wrong, right, declare


@pair(
    "pivot_places",
    "the size of a complex number is the sum of its parts",
    "cublasIcamax measures |re| + |im|, and wrappers of it took the result for that of argmax(abs(a))",
    "[3 + 0j, 2 + 2j]: place 1 where 3 is the larger in modulus",
)
def pivot_places():
    """The place of the largest modulus along an axis, the first of equals."""

    def wrong(xp, a, axis=-1):
        wide = a.astype("complex128")
        return xp.argmax(xp.abs(wide.real) + xp.abs(wide.imag), axis=axis)

    def right(xp, a, axis=-1):
        return xp.argmax(xp.abs(a.astype("complex128")), axis=axis)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="pivot_places",
            dtypes=("complex64", "complex128"),
            result_dtype="int64",
            samples=lambda make: [
                make(12),
                make((30, 7)),
                Sample((make((5, 40)),), {"axis": 0}),
            ],
            reference=lambda a, axis=-1: np.argmax(np.abs(a), axis=axis),
        )

    return wrong, right, declare


@pair(
    "heaviside_step",
    "nan compares as not positive and becomes 0",
    "heaviside and sign in GPU libraries: built from comparisons, they lost nan, which numpy.heaviside keeps",
    "nan in the first argument: 0 where nan is right",
)
def heaviside_step():
    """0 for negative numbers, 1 for positive ones, `at_zero` for zeros, as numpy.heaviside."""

    def wrong(xp, a, at_zero):
        return xp.where(a == 0, at_zero, (a > 0).astype(a.dtype))

    def right(xp, a, at_zero):
        return xp.where(a == 0, at_zero, xp.where(xp.isnan(a), a, (a > 0).astype(a.dtype)))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="heaviside_step",
            dtypes=("float16", "float32", "float64"),
            samples=lambda make: [
                (make((5, 33)), make((5, 33))),
                (make.of([-2.0, -0.0, 0.0, 2.0]), make(4)),
                Sample((make((4, 9)), make(9)), kind="broadcast"),
            ],
            reference=lambda a, at_zero: np.heaviside(a, at_zero),
        )

    return wrong, right, declare


@pair(
    "alternate_signs",
    "positions in the dtype of the data",
    "torch.arange in half precision for positions: from 2048 on float16 has no odd numbers left",
    "float16 and rows longer than 2048: all later signs are equal",
)
def alternate_signs():
    """Every second element of the last axis negated, from `start` on: it centres the spectrum of a row."""

    def check(start):
        if start not in (0, 1):
            raise ValueError(f"start is {start}; give 0 or 1")

    def wrong(xp, a, start=1):
        check(start)
        odd = (xp.arange(a.shape[-1], dtype=a.dtype) + (1 - start)) % 2
        return a * (1 - 2 * odd)

    def right(xp, a, start=1):
        check(start)
        odd = (xp.arange(a.shape[-1], dtype="int64") + (1 - start)) % 2
        return a * (1 - 2 * odd).astype(a.dtype)

    def reference(a, start=1):
        out = np.array(a)
        out[..., start::2] *= -1
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="alternate_signs",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make(33),
                Sample((make((3, 257)),), {"start": 0}),
                Sample((make((2, 0)),), kind="empty"),
            ],
            reference=reference,
            error_inputs=lambda make: [ErrorInput(Sample((make(4),), {"start": 2}), ValueError, "start is 2")],
            bench=lambda make, sizes: [make((sizes.length, sizes.width))],
        )

    return wrong, right, declare


@pair(
    "spectrum_2d",
    "the orthonormal factor is that of the default axes",
    "fftn with norm='ortho' over a subset of axes: the factor was computed from other lengths than those transformed",
    "axes=(0, 1) with norm='ortho' of an array (4, 6, 5): scaled by 1 / sqrt(30), not by 1 / sqrt(24)",
)
def spectrum_2d():
    """The discrete Fourier transform over two axes, with the norms of numpy.fft."""

    def transform(xp, a, axes, norm, points):
        if norm not in ("backward", "ortho", "forward"):
            raise ValueError(f"norm is {norm!r}; give 'backward', 'ortho' or 'forward'")
        factor = {"backward": 1.0, "ortho": 1 / math.sqrt(max(points, 1)), "forward": 1 / max(points, 1)}[norm]
        return (xp.fft.fftn(a.astype("complex128"), axes=axes) * factor).astype(a.dtype)

    def wrong(xp, a, axes=(-2, -1), norm="backward"):
        return transform(xp, a, axes, norm, a.shape[-2] * a.shape[-1])

    def right(xp, a, axes=(-2, -1), norm="backward"):
        return transform(xp, a, axes, norm, a.shape[axes[0]] * a.shape[axes[1]])

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="spectrum_2d",
            dtypes=("complex64", "complex128"),
            samples=lambda make: [
                make((3, 8, 8)),
                Sample((make((8, 6)),), {"norm": "ortho"}),
                Sample((make((7, 5)),), {"norm": "forward"}),
                Sample((make((4, 6, 5)),), {"axes": (0, 1)}),
            ],
            reference=lambda a, axes=(-2, -1), norm="backward": np.fft.fftn(a, axes=axes, norm=norm),
            error_inputs=lambda make: [
                ErrorInput(Sample((make((4, 4)),), {"norm": "unit"}), ValueError, "norm is 'unit'")
            ],
        )

    return wrong, right, declare


@pair(
    "exprel",
    "cancellation next to the series",
    "scipy.special.exprel exists because (exp(x) - 1) / x loses digits; copies switch from the series too early",
    "x = 2e-5 in float32: wrong in the third digit",
)
def exprel():
    """(exp(x) - 1) / x, and its limit 1 at 0."""

    def wrong(xp, a):
        small = xp.abs(a) < 1e-5
        divisor = xp.where(small, xp.ones_like(a), a)
        return xp.where(small, 1 + a / 2, (xp.exp(a) - 1) / divisor)

    def right(xp, a):
        wide = a.astype("float64")
        divisor = xp.where(wide == 0, 1.0, wide)
        return xp.where(wide == 0, 1.0, xp.expm1(wide) / divisor).astype(a.dtype)

    def reference(a):
        divisor = np.where(a == 0, 1.0, a)
        return np.where(a == 0, 1.0, np.expm1(a) / divisor)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="exprel",
            dtypes=("float32", "float64"),
            samples=lambda make: [
                make((5, 33), low=-20, high=20),
                make(200, low=-1, high=1),
                make.of([-1.0, 0.0, 1.0]),
            ],
            reference=reference,
        )

    return wrong, right, declare


@pair(
    "logit_clamped",
    "1 - eps is rounded to 1 before it is a bound",
    "clamping of probabilities to [eps, 1 - eps] in half precision in loss functions: 1 - 1e-6 is 1 in float16",
    "a probability of 1 in float16: inf where the result is 13.8",
)
def logit_clamped():
    """log(p / (1 - p)) of probabilities clamped to [eps, 1 - eps]."""

    def check(eps):
        if not 0 < eps < 0.5:
            raise ValueError(f"eps is {eps}; give a number between 0 and 0.5")

    def wrong(xp, p, eps=1e-6):
        check(eps)
        wide = xp.clip(p, eps, 1 - eps).astype("float64")
        return (xp.log(wide) - xp.log1p(-wide)).astype(p.dtype)

    def right(xp, p, eps=1e-6):
        check(eps)
        wide = xp.clip(p.astype("float64"), eps, 1 - eps)
        return (xp.log(wide) - xp.log1p(-wide)).astype(p.dtype)

    def reference(p, eps=1e-6):
        p = np.clip(p, eps, 1 - eps)
        return np.log(p) - np.log1p(-p)

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="logit_clamped",
            dtypes=("float16", "float32"),
            samples=lambda make: [
                make((5, 33), low=0, high=1),
                Sample((make((3, 17), low=0, high=1),), {"eps": 1e-4}),
            ],
            reference=reference,
            error_inputs=lambda make: [
                ErrorInput(Sample((make(4, low=0, high=1),), {"eps": 0.5}), ValueError, "eps is 0.5")
            ],
        )

    return wrong, right, declare


@pair(
    "trace_offset",
    "the length of a diagonal beside the main one is that of a square matrix",
    "diagonal and trace with offset in array libraries: the offset shortens only the side that it runs along",
    "3 rows, 9 columns and offset=2: one element is added up where the diagonal has three",
)
def trace_offset():
    """The sum of a diagonal of each matrix; `offset` counts to the right of the main diagonal."""

    def add_up(xp, a, offset, count):
        along = xp.arange(max(count, 0))
        picked = a[..., along + max(-offset, 0), along + max(offset, 0)]
        if a.dtype.kind == "f":
            return picked.astype("float64").sum(axis=-1).astype(a.dtype)
        return picked.sum(axis=-1)

    def wrong(xp, a, offset=0):
        rows, columns = a.shape[-2:]
        return add_up(xp, a, offset, min(rows, columns) - abs(offset))

    def right(xp, a, offset=0):
        rows, columns = a.shape[-2:]
        return add_up(xp, a, offset, min(rows - max(-offset, 0), columns - max(offset, 0)))

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="trace_offset",
            dtypes=("float32", "int32"),
            samples=lambda make: [
                make((3, 9)),
                make((2, 8, 5)),
                Sample((make((7, 7)),), {"offset": 2}),
                Sample((make((2, 6, 6)),), {"offset": -1}),
                Sample((make((0, 4)),), kind="empty"),
            ],
            reference=lambda a, offset=0: np.trace(a, offset, axis1=-2, axis2=-1),
        )

    return wrong, right, declare


@pair(
    "poly_from_roots",
    "nothing to do means zeros",
    "early returns for inputs of size 0 in GPU libraries: numpy.poly of no roots is the polynomial 1, not 0",
    "three polynomials without roots: coefficient 0 where 1 is right",
)
def poly_from_roots():
    """Coefficients of the polynomials with given roots in the last axis, highest power first, leading coefficient 1."""

    def multiply(xp, roots):
        wide = roots.astype("float64")
        zero = xp.zeros((*roots.shape[:-1], 1))
        out = zero + 1
        for k in range(roots.shape[-1]):
            root = wide[..., k : k + 1]
            out = xp.concatenate([out, zero], axis=-1) - xp.concatenate([zero, out * root], axis=-1)
        return out.astype(roots.dtype)

    def wrong(xp, roots):
        if roots.size == 0:
            return xp.zeros((*roots.shape[:-1], roots.shape[-1] + 1), dtype=roots.dtype)
        return multiply(xp, roots)

    def right(xp, roots):
        return multiply(xp, roots)

    def reference(roots):
        out = np.empty((*roots.shape[:-1], roots.shape[-1] + 1))
        for i in np.ndindex(roots.shape[:-1]):
            row = np.ones(1)
            for root in roots[i]:
                row = np.convolve(row, [1.0, -root])
            out[i] = row
        return out

    def declare(fn):
        return OpSpec(
            fn=fn,
            name="poly_from_roots",
            dtypes=("float32",),
            samples=lambda make: [
                make(4, low=-2, high=2),
                make((3, 5), low=-2, high=2),
                make((2, 3, 1), low=-2, high=2),
                Sample((make((3, 0), low=-2, high=2),), kind="empty"),
            ],
            reference=reference,
        )

    return wrong, right, declare
