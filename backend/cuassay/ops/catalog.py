"""The table of declared operations: signature, shape rule, dtypes and class of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import (
    ALL,
    BOOL,
    COMPLEX,
    FLOATS,
    FP8,
    INTEGERS,
    SIGNED,
    UNSIGNED,
    compute_dtype,
    dtype_name,
)
from cuassay.core.device import Device
from cuassay.errors import ArgumentError, SchemaError
from cuassay.ops import (
    compositions,
    convolution,
    decompositions,
    formats,
    indexing,
    joining,
    lists,
    products,
    random_rules,
    registry,
    rules,
    shapes,
    views,
)
from cuassay.ops.dispatch import dispatch, prepare
from cuassay.ops.operation import Op
from cuassay.ops.schema import Schema, ShapeRule, parse_signature

__all__ = [
    "abs",
    "add",
    "addmm",
    "amax",
    "amin",
    "argmax",
    "baddbmm",
    "bernoulli",
    "bmm",
    "cast",
    "cat",
    "cholesky",
    "clamp",
    "copy",
    "cos",
    "cumsum",
    "declare",
    "det",
    "div",
    "dropout",
    "dropout_mask",
    "eigh",
    "embedding",
    "equal",
    "erf",
    "exp",
    "expand",
    "expm1",
    "foreach_add_",
    "foreach_copy_",
    "foreach_lerp_",
    "foreach_max",
    "foreach_mul_",
    "foreach_norm",
    "foreach_unscale_",
    "foreach_zero_",
    "fused_adam_",
    "gather",
    "gelu",
    "gelu_backward",
    "global_norm_",
    "greater",
    "greater_equal",
    "grouped_mm",
    "index_add",
    "integers",
    "inv",
    "layer_norm",
    "layer_norm_backward",
    "less",
    "less_equal",
    "linear",
    "log",
    "log1p",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "lstsq",
    "matmul",
    "maximum",
    "mean",
    "minimum",
    "mixed_linear",
    "mm",
    "mul",
    "neg",
    "normal",
    "not_equal",
    "pad",
    "permutation",
    "permute",
    "pow",
    "prod",
    "qr",
    "reciprocal",
    "relu",
    "reshape",
    "rsqrt",
    "scaled_mm",
    "scatter_sum",
    "segment_sum",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "slice",
    "slow_conv2d",
    "softmax",
    "softmax_backward",
    "solve",
    "sqrt",
    "squeeze",
    "stack",
    "sub",
    "sum",
    "svd",
    "tanh",
    "transpose",
    "uniform",
    "unsqueeze",
    "update_scale_",
    "var",
    "where",
]


def declare(
    signature: str,
    *,
    shape: ShapeRule,
    dtypes: Sequence[str],
    op_class: str,
    composite: Callable[..., Any] | None = None,
    parts: Sequence[str] = (),
    derivative: Mapping[str, Any] | str | None = None,
    **more: Any,
) -> Op:
    """Declare an op; see `Schema` for the fields, `Op` for `composite` and `parts`.

    Parameters
    ----------
    derivative : mapping, optional
        From a parameter to its formula ``(grad, forward) -> gradient``, or to a `cuassay.ops.Formula`, which names the
        values that it reads. A text instead of a formula, or of the mapping, says why there is none.

    Raises
    ------
    SchemaError
        If the signature cannot be read or the name is taken.
    """
    name, params, outputs = parse_signature(signature)
    if op_class in ("elementwise", "random"):
        more.setdefault("channels_last", formats.first([one.name for one in params if one.form == "array"]))
    schema = Schema(
        name=name, params=params, outputs=outputs, shape=shape, dtypes=tuple(dtypes), op_class=op_class, **more
    )
    made = Op(schema, composite, parts, dispatch=dispatch, prepare=prepare)
    if derivative is not None:
        rules.register(schema, derivative)
    return made


def _accumulated(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Apply NumPy's rule for sums: integers widen to 64 bits and keep their signedness; other dtypes stay."""
    name = dtype_name(dtype)
    if name in (*BOOL, *SIGNED):
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if name in UNSIGNED else dtype


def _truth(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.bool_)


def _destination(bound: Mapping[str, Any], out: Any, device: Device) -> Device:
    """Return the device that a copy goes to: ``device=``, the device of `out`, or the array's own."""
    wanted = None if bound["device"] is None else Device(bound["device"])
    if out is None:
        return wanted or device
    place = registry.device_of(out, "copy's out")
    if wanted not in (None, place):
        raise ArgumentError(f"copy got device {wanted} and an out on {place}; give one of the two")
    return place


def _layer(a: Any, weight: Any, bias: Any, *, activation: str | None, precision: Any) -> Any:
    result = matmul(a, weight.T, precision=precision)
    if bias is not None:
        result = add(result, bias)
    if activation is None:
        return result
    return relu(result) if activation == "relu" else gelu(result, approximate="tanh")


def _unary(name: str, doc: str, *, dtypes: Sequence[str] = FLOATS, **more: Any) -> Op:
    return declare(f"{name}(a) -> out", shape=shapes.same("a"), dtypes=dtypes, op_class="elementwise", doc=doc, **more)


def _binary(name: str, doc: str, *, dtypes: Sequence[str], **more: Any) -> Op:
    return declare(
        f"{name}(a, b) -> out", shape=shapes.broadcast, dtypes=dtypes, op_class="elementwise", doc=doc, **more
    )


def _comparison(name: str, doc: str, *, dtypes: Sequence[str] = (*INTEGERS, *FLOATS)) -> Op:
    return _binary(name, f"{doc} With broadcasting; the result is an array of bool.", dtypes=dtypes, result=_truth)


_NUMBERS = (*INTEGERS, *FP8, *FLOATS, *COMPLEX)
_LOGICAL = (*BOOL, *INTEGERS, *FLOATS)

add = _binary("add", "``a + b``, with broadcasting.", dtypes=_NUMBERS)
mul = _binary("mul", "``a * b``, with broadcasting.", dtypes=_NUMBERS)
sub = _binary("sub", "``a - b``, with broadcasting.", dtypes=(*INTEGERS, *FLOATS, *COMPLEX))
div = _binary("div", "``a / b``, with broadcasting.", dtypes=FLOATS)
pow = _binary(
    "pow", "``a ** b``, with broadcasting. As C's pow: 1 where `b` is 0 or `a` is 1, even for NaN.", dtypes=FLOATS
)
maximum = _binary(
    "maximum", "The larger of `a` and `b`, with broadcasting; NaN if either is NaN.", dtypes=(*INTEGERS, *FLOATS)
)
minimum = _binary(
    "minimum", "The smaller of `a` and `b`, with broadcasting; NaN if either is NaN.", dtypes=(*INTEGERS, *FLOATS)
)
neg = _unary("neg", "``-a``.")
abs = _unary("abs", "``|a|``; the most negative integer of a dtype is unchanged.", dtypes=(*INTEGERS, *FLOATS))
sign = _unary("sign", "-1, 0 or 1; 0 for NaN and for zeros of either sign, as in torch.", dtypes=(*INTEGERS, *FLOATS))
sqrt = _unary("sqrt", "The square root; NaN below 0.")
rsqrt = _unary("rsqrt", "``1 / sqrt(a)``; infinite at 0, NaN below 0.")
reciprocal = _unary("reciprocal", "``1 / a``.")
exp = _unary("exp", "``e ** a``.", dtypes=(*FP8, *FLOATS, *COMPLEX))
expm1 = _unary("expm1", "``e ** a - 1``, accurate near 0.")
log = _unary("log", "The natural logarithm; -inf at 0, NaN below 0.")
log1p = _unary("log1p", "``log(1 + a)``, accurate near 0; -inf at -1, NaN below -1.")
sin = _unary("sin", "The sine of an angle in radians; NaN at infinities.")
cos = _unary("cos", "The cosine of an angle in radians; NaN at infinities.")
tanh = _unary("tanh", "The hyperbolic tangent.")
erf = _unary("erf", "The error function.")
sigmoid = _unary("sigmoid", "``1 / (1 + exp(-a))``.")
silu = _unary("silu", "``a * sigmoid(a)``; arXiv 1702.03118.")
relu = _unary("relu", "``max(a, 0)``; NaN stays NaN.", dtypes=(*SIGNED, *FP8, *FLOATS))
clamp = declare(
    "clamp(a, *, min=None, max=None) -> out", shape=shapes.clamped, dtypes=(*INTEGERS, *FLOATS), op_class="elementwise",
    doc="``minimum(maximum(a, min), max)``; `min` and `max` are numbers, and one may be None. NaN stays NaN.",
)  # fmt: skip
gelu = declare(
    "gelu(a, *, approximate='none') -> out",
    shape=shapes.same("a"),
    dtypes=(*FP8, *FLOATS),
    op_class="elementwise",
    doc="``a * Phi(a)``, where Phi is the normal distribution function; `approximate`: 'none' (erf) or 'tanh'; "
    "arXiv 1606.08415.",
)
gelu_backward = declare(
    "gelu_backward(grad, a, *, approximate='none') -> out",
    shape=shapes.broadcast_arrays("grad", "a"),
    dtypes=FLOATS,
    op_class="elementwise",
    doc="``grad`` times the derivative of `gelu` at `a`: the gradient of `gelu`.",
)
equal = _comparison("equal", "``a == b``; False where either is NaN.")
not_equal = _comparison("not_equal", "``a != b``; True where either is NaN.")
less = _comparison("less", "``a < b``; False where either is NaN.")
less_equal = _comparison("less_equal", "``a <= b``; False where either is NaN.")
greater = _comparison("greater", "``a > b``; False where either is NaN.")
greater_equal = _comparison("greater_equal", "``a >= b``; False where either is NaN.")
logical_and = _comparison(
    "logical_and", "Whether `a` and `b` are both nonzero; NaN counts as nonzero.", dtypes=_LOGICAL
)
logical_or = _comparison("logical_or", "Whether `a` or `b` is nonzero; NaN counts as nonzero.", dtypes=_LOGICAL)
logical_xor = _comparison(
    "logical_xor", "Whether exactly one of `a` and `b` is nonzero; NaN counts as nonzero.", dtypes=_LOGICAL
)
logical_not = _unary("logical_not", "Whether `a` is 0; NaN counts as nonzero.", dtypes=_LOGICAL, result=_truth)
where = declare(
    "where(condition, a, b) -> out", shape=shapes.chosen, dtypes=(*BOOL, *INTEGERS, *FLOATS), op_class="elementwise",
    dtype_from=("a", "b"), doc="`a` where `condition`, an array of bool, is True, else `b`; with broadcasting.",
)  # fmt: skip
softmax = declare(
    "softmax(a, *, axis=-1, dtype=None) -> out",
    shape=shapes.softmax,
    dtypes=FLOATS,
    op_class="reduction",
    out_dtype_from="dtype",
    doc="``exp(a - max) / sum(exp(a - max))`` along `axis`; a row that is -inf everywhere gives NaN. It is computed in "
    "the wider of a's dtype and `dtype`, and rounded to `dtype` once.",
)
layer_norm = declare(
    "layer_norm(a, weight, bias, *, eps=1e-05) -> out",
    shape=shapes.normalized,
    dtypes=FLOATS,
    op_class="reduction",
    doc="``(a - mean) / sqrt(var + eps) * weight + bias`` over the last axis; `var` is the biased variance; "
    "arXiv 1607.06450.",
)
softmax_backward = declare(
    "softmax_backward(grad, result, *, axis=-1) -> out",
    shape=shapes.softmax_gradient, dtypes=FLOATS, op_class="reduction",
    doc="``result * (grad - sum(grad * result))`` along `axis`: the gradient of `softmax`, which gave `result`.",
)  # fmt: skip
layer_norm_backward = declare(
    "layer_norm_backward(grad, a, weight, *, eps=1e-05) -> out",
    shape=shapes.normalized_gradient, dtypes=FLOATS, op_class="reduction",
    doc="The gradient of `layer_norm` for `a`: ``(h - mean(h) - x * mean(h * x)) / sqrt(var + eps)``, where h is "
    "``grad * weight`` and x is `a` normalized to mean 0 and variance 1.",
)  # fmt: skip
sum = declare(
    "sum(a, *, axis=None, keepdims=False) -> out",
    shape=shapes.reduced,
    dtypes=(*BOOL, *INTEGERS, *FLOATS, *COMPLEX),
    op_class="reduction",
    result=_accumulated,
    doc="The sum over `axis` (None: all axes). Integers are added in 64 bits, 16-bit floats in float32.",
)
amax = declare(
    "amax(a, *, axis=None, keepdims=False) -> out",
    shape=shapes.non_empty("maximum"), dtypes=_LOGICAL, op_class="reduction",
    doc="The maximum over `axis` (None: all axes); NaN if an element is NaN. Zero elements are an error.",
)  # fmt: skip
amin = declare(
    "amin(a, *, axis=None, keepdims=False) -> out",
    shape=shapes.non_empty("minimum"), dtypes=_LOGICAL, op_class="reduction",
    doc="The minimum over `axis` (None: all axes); NaN if an element is NaN. Zero elements are an error.",
)  # fmt: skip
argmax = declare(
    "argmax(a, *, axis=None, keepdims=False) -> out",
    shape=shapes.argument, dtypes=_LOGICAL, op_class="reduction", result=lambda dtype: np.dtype(np.int64),
    doc="The index of the first maximum along `axis` (None: of the flattened array); a NaN counts as the maximum.",
)  # fmt: skip
prod = declare(
    "prod(a, *, axis=None, keepdims=False) -> out",
    shape=shapes.reduced, dtypes=_LOGICAL, op_class="reduction", result=_accumulated,
    doc="The product over `axis` (None: all axes). Integers are multiplied in 64 bits, 16-bit floats in float32.",
)  # fmt: skip
mean = declare(
    "mean(a, *, axis=None, keepdims=False) -> out", shape=shapes.reduced, dtypes=FLOATS, op_class="reduction",
    doc="The mean over `axis` (None: all axes); NaN over zero elements.",
)  # fmt: skip
var = declare(
    "var(a, *, axis=None, correction=1, keepdims=False) -> out", shape=shapes.variance, dtypes=FLOATS,
    op_class="reduction", composite=compositions.var, parts=("mean", "sum"),
    doc="``sum((a - mean) ** 2) / (n - correction)`` over `axis` (None: all axes), for n elements.",
)  # fmt: skip
logsumexp = declare(
    "logsumexp(a, *, axis=None, keepdims=False) -> out", shape=shapes.reduced, dtypes=FLOATS, op_class="reduction",
    composite=compositions.logsumexp, parts=("amax", "sum"),
    doc="``log(sum(exp(a)))`` over `axis` (None: all axes), without overflow; -inf over zero elements.",
)  # fmt: skip
log_softmax = declare(
    "log_softmax(a, *, axis=-1, dtype=None) -> out", shape=shapes.softmax, dtypes=FLOATS, op_class="reduction",
    composite=compositions.log_softmax, parts=("amax", "sum"), out_dtype_from="dtype",
    doc="``a - logsumexp(a)`` along `axis`; a row that is -inf everywhere gives NaN. `dtype` is as in `softmax`.",
)  # fmt: skip
cumsum = declare(
    "cumsum(a, *, axis) -> out", shape=shapes.along, dtypes=_LOGICAL, op_class="reduction", result=_accumulated,
    doc="The cumulative sum along `axis`. Integers are added in 64 bits, 16-bit floats in float32.",
)  # fmt: skip
pad = declare(
    "pad(a, *, widths, value=0) -> out",
    shape=shapes.padded, dtypes=_LOGICAL, op_class="storage", channels_last=formats.of("a"),
    doc="`a` with a border of `value`; `widths` has a pair (before, after) for each axis.",
)  # fmt: skip
cat = declare(
    "cat(a: arrays, *, axis=0) -> out",
    shape=joining.joined, dtypes=(*_LOGICAL, *COMPLEX), op_class="storage", channels_last=formats.every,
    doc="The arrays of `a` joined along `axis`; their other extents must be equal. Different dtypes are promoted.",
)  # fmt: skip
stack = declare(
    "stack(a: arrays, *, axis=0) -> out",
    shape=joining.stacked, dtypes=(*_LOGICAL, *COMPLEX), op_class="storage",
    doc="The arrays of `a`, of equal shape, joined along a new axis `axis`. Different dtypes are promoted.",
)  # fmt: skip
matmul = declare(
    "matmul(a, b, *, precision=None) -> out",
    shape=shapes.matmul,
    dtypes=(*FLOATS, *COMPLEX),
    op_class="matmul",
    doc="The matrix product, with NumPy's rules for vectors and stacks. 16-bit floats are added in float32.",
)
copy = declare(
    "copy(a, *, device=None, memory_format='preserve') -> out",
    shape=formats.copied,
    dtypes=ALL,
    op_class="storage",
    place=_destination,
    channels_last=formats.asked,
    doc="A copy: on the same device, on `device`, or in `out`, which may be on another device. `memory_format`: "
    "'contiguous' (C order), 'channels_last' (4 dimensions) or 'preserve' (the channels of `a` stay last); an `out` "
    "keeps its own layout.",
)
cast = declare(
    "cast(a, *, dtype) -> out",
    shape=shapes.cast,
    dtypes=FLOATS,
    op_class="storage",
    out_dtype_from="dtype",
    channels_last=formats.of("a"),
    doc="`a` as the floating dtype `dtype`, rounded once to nearest, ties to even; what is too large becomes infinite.",
)
embedding = declare(
    "embedding(index, weight) -> out", shape=indexing.embedding, dtypes=_LOGICAL, op_class="storage",
    dtype_from=("weight",),
    doc="``weight[index]``: rows of a matrix (V, D); `index` is an array of integers. An index out of range is an "
    "error; on cuda it gives NaN instead, or all bits set for dtypes without NaN.",
)  # fmt: skip
gather = declare(
    "gather(a, index, *, axis) -> out", shape=indexing.gather, dtypes=_LOGICAL, op_class="storage", dtype_from=("a",),
    doc="``a[..., index[..., i, ...], ...]`` along `axis`, as NumPy's take_along_axis. An index out of range is "
    "treated as in `embedding`.",
)  # fmt: skip
segment_sum = declare(
    "segment_sum(a, index, *, count) -> out", shape=indexing.segment_sum, dtypes=FLOATS, op_class="reduction",
    dtype_from=("a",),
    doc="`count` rows: row r is the sum of ``a[k]`` over all k with ``index[k] == r``, in the order of k. It is the "
    "gradient of `embedding` for its weight.",
)  # fmt: skip
scatter_sum = declare(
    "scatter_sum(a, index, *, count, axis) -> out", shape=indexing.scatter_sum, dtypes=FLOATS, op_class="reduction",
    dtype_from=("a",),
    doc="Sums of the elements of `a` with the same index, `count` of them along `axis`: the gradient of `gather`.",
)  # fmt: skip
index_add = declare(
    "index_add(a, index, source, *, axis=0) -> out", shape=indexing.index_add, dtypes=FLOATS, op_class="reduction",
    dtype_from=("a", "source"), accumulates="a",
    doc="`a` with slice k of `source` along `axis` added to slice ``index[k]``, in the order of k. `out` may be `a`.",
)  # fmt: skip
mm = declare(
    "mm(a, b, *, precision=None, out_dtype=None) -> out",
    shape=products.matrices, dtypes=(*FLOATS, *COMPLEX), op_class="matmul", out_dtype_from="out_dtype",
    doc="``a @ b`` of matrices (M, K) and (K, N), rounded once to `out_dtype`.",
)  # fmt: skip
bmm = declare(
    "bmm(a, b, *, precision=None, out_dtype=None) -> out",
    shape=products.pairs, dtypes=(*FLOATS, *COMPLEX), op_class="matmul", out_dtype_from="out_dtype",
    doc="`mm` of B pairs of matrices: (B, M, K) and (B, K, N).",
)  # fmt: skip
addmm = declare(
    "addmm(c, a, b, *, alpha=1.0, beta=1.0, activation=None, precision=None) -> out",
    shape=products.added(products.matrices), dtypes=(*FLOATS, *COMPLEX), op_class="matmul", accumulates="c",
    doc="``activation(beta * c + alpha * a @ b)`` of (M, K) and (K, N), rounded once. If beta is 0, `c` is not "
    "read. `out` may be `c`.",
)  # fmt: skip
baddbmm = declare(
    "baddbmm(c, a, b, *, alpha=1.0, beta=1.0, precision=None) -> out",
    shape=products.added(products.pairs), dtypes=(*FLOATS, *COMPLEX), op_class="matmul", accumulates="c",
    doc="``beta * c + alpha * a @ b`` of B pairs of matrices. If beta is 0, `c` is not read. `out` may be `c`.",
)  # fmt: skip
linear = declare(
    "linear(a, weight, bias?, *, activation=None, precision=None) -> out",
    shape=products.layer, dtypes=FLOATS, op_class="matmul", composite=_layer, parts=("matmul", "add"),
    doc="``activation(a @ weight.T + bias)`` for a (..., K), weight (N, K) and bias (N,), as in torch.",
)  # fmt: skip
grouped_mm = declare(
    "grouped_mm(a, b, *, offs, precision=None) -> out",
    shape=products.grouped, dtypes=(*FLOATS, *COMPLEX), op_class="matmul",
    doc="The product of each group of rows of `a` with its own matrix of `b`. Group i ends before row ``offs[i]``; "
    "`offs` are integers on the host.",
)  # fmt: skip
scaled_mm = declare(
    "scaled_mm(a, b, scale_a, scale_b, bias?, *, format_a=None, format_b=None, out_dtype='bfloat16', fast_accum=False) "
    "-> out",
    shape=products.scaled, dtypes=("uint8", *FP8), op_class="matmul", dtype_from=("a",), out_dtype_from="out_dtype",
    doc="``scale_a * scale_b * (a @ b) + bias`` of fp8 operands; `format_a` and `format_b` name the format "
    "of operands stored as uint8.",
)  # fmt: skip
mixed_linear = declare(
    "mixed_linear(a, weight, scale, bias?, *, activation=None) -> out",
    shape=products.mixed, dtypes=FLOATS, op_class="matmul", dtype_from=("a",),
    doc="``activation(a @ (scale * weight).T + bias)`` for a (..., K) and a quantized weight: int8 of shape (N, K), or "
    "uint8 of (N, K / 2), which holds numbers from -8 to 7: of terms 2 * k and 2 * k + 1, ``(q0 & 15) | (q1 << 4)``. "
    "The scale is (N,), or (N, G) with one for each of G groups of terms; bias (N,).",
)  # fmt: skip

slow_conv2d = declare(
    "slow_conv2d(a, weight, bias?, *, stride=1, padding=0, dilation=1, groups=1, precision=None) -> out",
    shape=convolution.conv2d, dtypes=(*FLOATS, *COMPLEX), op_class="matmul", channels_last=formats.of("a"),
    doc="Cross-correlation of images (N, C, H, W) with weight (O, C / groups, KH, KW), by unfolding and a product. "
    "The result has its channels last in memory if `a` has.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ views
#
# Without out= no data moves: on kinds that have views the result is a view of `a`. With out= it is a copy.


def _view(signature: str, shape: ShapeRule, view: Callable[..., Any], doc: str) -> Op:
    return declare(
        signature, shape=shape, dtypes=ALL, op_class="storage", view_of="a", composite=view, parts=("copy",), doc=doc
    )


transpose = _view(
    "transpose(a, *, axis0, axis1) -> out", views.exchanged, views.transpose,
    "A view with two axes exchanged.",
)  # fmt: skip
permute = _view(
    "permute(a, *, axes) -> out", views.permuted, views.permute,
    "A view with the axes in the order of `axes`.",
)  # fmt: skip
reshape = _view(
    "reshape(a, *, shape) -> out", views.reshaped, views.reshape,
    "The same elements, in C order, in another shape; one extent may be -1. A view if the strides of `a` allow one, "
    "else a copy.",
)  # fmt: skip
expand = _view(
    "expand(a, *, shape) -> out", views.expanded, views.expand,
    "A view of `a` broadcast to `shape`. Do not write to it: several of its elements are one place in memory.",
)  # fmt: skip
slice = _view(
    "slice(a, *, axis=0, start=None, stop=None, step=1) -> out", views.sliced, views.slice_of,
    "A view of the elements ``start:stop:step`` along `axis`, as in Python.",
)  # fmt: skip
squeeze = _view(
    "squeeze(a, *, axis=None) -> out", views.squeezed, views.squeeze,
    "A view without the axes of extent 1 that `axis` names (None: all of them).",
)  # fmt: skip
unsqueeze = _view(
    "unsqueeze(a, *, axis) -> out", views.unsqueezed, views.unsqueeze,
    "A view with a new axis of extent 1.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ linear algebra
#
# These ops do not synchronize: `info` (int32) is 0 for each matrix that succeeded. `cuassay.linalg` checks it.


def _linear(signature: str, shape: ShapeRule, words: str, doc: str) -> Op:
    """Declare an op of linear algebra; `words` names the dtypes of its outputs, see `decompositions.dtypes`."""
    return declare(
        signature, shape=shape, dtypes=decompositions.LAPACK, op_class="reduction", result=decompositions.dtypes(words),
        doc=doc,
    )  # fmt: skip


solve = _linear(
    "solve(a, b) -> x, info", decompositions.solve, "si",
    "The solution of ``a @ x = b`` for square matrices (..., N, N) and right-hand sides (..., N, K).",
)  # fmt: skip
inv = _linear(
    "inv(a) -> inverse, info", decompositions.inv, "si",
    "The inverses of square matrices (..., N, N).",
)  # fmt: skip
det = declare(
    "det(a) -> out",
    shape=decompositions.det, dtypes=decompositions.LAPACK, op_class="reduction",
    doc="The determinants of square matrices (..., N, N); 0 for a singular matrix.",
)  # fmt: skip
cholesky = _linear(
    "cholesky(a) -> factor, info", decompositions.cholesky, "si",
    "The lower triangular factor of ``a = factor @ factor.H`` for positive definite matrices. Only the lower triangle "
    "of `a` is read.",
)  # fmt: skip
qr = _linear(
    "qr(a, *, mode='reduced') -> q, r", decompositions.qr, "ss",
    "The factors of ``a = q @ r``: q has orthonormal columns, r is upper triangular.",
)  # fmt: skip
svd = _linear(
    "svd(a, *, full_matrices=False) -> u, s, vh, info", decompositions.svd, "srsi",
    "The factors of ``a = u * s @ vh``: u has orthonormal columns, vh orthonormal rows, and s descends.",
)  # fmt: skip
eigh = _linear(
    "eigh(a, *, uplo='L') -> w, v, info", decompositions.eigh, "rsi",
    "Eigenvalues w, ascending, and orthonormal eigenvectors v of Hermitian matrices: ``a @ v = v * w``. Only the "
    "triangle `uplo` of `a` is read.",
)  # fmt: skip
lstsq = _linear(
    "lstsq(a, b, *, rcond=None) -> x, residuals, rank, s, info", decompositions.lstsq, "sriri",
    "The shortest of the x that make ``|b - a @ x|`` least; singular values up to rcond times the largest are 0.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ over lists of arrays

foreach_add_ = declare(
    "foreach_add_(a!: arrays, b?: arrays, *, alpha=1) ->",
    shape=lists.aligned("a", "b"), dtypes=FLOATS, op_class="elementwise", dtype_from=("a",),
    doc="``a += alpha * b`` for each array of the list `a`; `b` is a list, a number, or an array of one element.",
)  # fmt: skip
foreach_mul_ = declare(
    "foreach_mul_(a!: arrays, b?: arrays) ->",
    shape=lists.aligned("a", "b"), dtypes=FLOATS, op_class="elementwise", dtype_from=("a",),
    doc="``a *= b`` for each array of the list `a`; `b` is a list, a number, or an array of one element.",
)  # fmt: skip
foreach_lerp_ = declare(
    "foreach_lerp_(a!: arrays, b: arrays, weight?) ->",
    shape=lists.aligned("a", "b", scalar="weight"), dtypes=FLOATS, op_class="elementwise", dtype_from=("a",),
    doc="``a += weight * (b - a)`` for each pair of arrays; `weight` is a number, or an array of one element.",
)  # fmt: skip
foreach_copy_ = declare(
    "foreach_copy_(a!: arrays, b: arrays) ->",
    shape=lists.aligned("a", "b", one_dtype=False), dtypes=FLOATS, op_class="storage", dtype_from=("a",),
    doc="Copy each array of `b` into its array of `a`, rounded to nearest where the dtypes differ.",
)  # fmt: skip
foreach_zero_ = declare(
    "foreach_zero_(a!: arrays) ->",
    shape=lists.aligned("a"), dtypes=FLOATS, op_class="storage", doc="Set every element to 0.",
)  # fmt: skip
foreach_norm = declare(
    "foreach_norm(a: arrays, *, ord=2) -> out",
    shape=lists.norms, dtypes=FLOATS, op_class="reduction", result=compute_dtype,
    doc="The 2-norm of each array, or its largest magnitude (``ord=inf``): shape (n,). Squares are added in float64.",
)  # fmt: skip
foreach_max = declare(
    "foreach_max(a: arrays) -> out",
    shape=lists.maxima, dtypes=FLOATS, op_class="reduction",
    doc="The largest element of each array: shape (n,); NaN if an element is NaN. An empty array is an error.",
)  # fmt: skip
global_norm_ = declare(
    "global_norm_(grads: arrays, norm!?, found_inf!?, grad_scale?, *, accumulate=False) ->",
    shape=lists.global_norm, dtypes=FLOATS, op_class="reduction", dtype_from=("grads",),
    doc="Sets `norm` to the 2-norm of all elements of grads / grad_scale, and `found_inf` to 1 if an element is not "
    "finite (for float64: if the sum of squares is not finite), else to 0.",
)  # fmt: skip
foreach_unscale_ = declare(
    "foreach_unscale_(grads!: arrays, found_inf!, inv_scale) ->",
    shape=lists.unscaled, dtypes=FLOATS, op_class="elementwise", dtype_from=("grads",),
    doc="``grads *= inv_scale``. Sets `found_inf` to 1 if an element is not finite, and else leaves it as it is.",
)  # fmt: skip
update_scale_ = declare(
    "update_scale_(scale!, inv_scale!, growth_tracker!, found_inf!, *, growth_factor=2.0, backoff_factor=0.5, "
    "growth_interval=2000) ->",
    shape=lists.loss_scale, dtypes=("float32",), op_class="elementwise", dtype_from=("scale",),
    doc="Updates a loss scale after a step. If found_inf is not 0: ``scale *= backoff_factor``, and the tracker is set "
    "to 0. Else the tracker counts one more; at growth_interval it is set to 0 and ``scale *= growth_factor``, unless "
    "that overflows. Then ``inv_scale = 1 / scale`` and ``found_inf = 0``.",
)  # fmt: skip
fused_adam_ = declare(
    "fused_adam_(params!: arrays, grads!: arrays, exp_avgs!: arrays, exp_avg_sqs!: arrays, max_exp_avg_sqs!: arrays, "
    "masters!: arrays, steps!, lr?, grad_scale?, found_inf?, norm?, *, beta1=0.9, beta2=0.999, eps=1e-08, "
    "weight_decay=0.0, decoupled=False, maximize=False, max_norm=None, zero_grads=False, seed=None) ->",
    shape=lists.adam, dtypes=FLOATS, op_class="elementwise", dtype_from=("params",),
    doc="One step of Adam, or of AdamW (``decoupled``), for every parameter; arXiv 1412.6980, 1711.05101; amsgrad: "
    "1904.09237.",
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ random numbers
#
# Pure functions of `state`, a (seed, offset): `cuassay.random` calls them with a generator's next state. Only shape,
# dtype, device and memory format of `like` matter. Complex numbers take two calls, for the real and imaginary parts.

uniform = declare(
    "uniform(like, *, state, low=0.0, high=1.0) -> out", shape=random_rules.uniform, dtypes=FLOATS, op_class="random",
    doc="Uniform numbers in ``[low, high)``. 16-bit floats are rounded down, so that they never reach `high` either.",
)  # fmt: skip
normal = declare(
    "normal(like, *, state, mean=0.0, std=1.0) -> out", shape=random_rules.normal, dtypes=FLOATS, op_class="random",
    doc="Normal numbers: ``mean + std * z``, with z by the Box-Muller transform.",
)  # fmt: skip
integers = declare(
    "integers(like, *, state, low, high) -> out", shape=random_rules.integers, dtypes=INTEGERS, op_class="random",
    doc="Integers in ``[low, high)``; the relative error of each probability is at most 2**-32.",
)  # fmt: skip
permutation = declare(
    "permutation(like, *, state) -> out", shape=random_rules.permutation, dtypes=INTEGERS, op_class="random",
    doc="The integers from 0 to ``like.size - 1`` in random order.",
)  # fmt: skip
bernoulli = declare(
    "bernoulli(p, *, state) -> out", shape=random_rules.probabilities, dtypes=FLOATS, op_class="random",
    channels_last=None,
    doc="1 with the probability that the input gives there, else 0. Above 1 counts as 1; below 0 and NaN count as 0.",
)  # fmt: skip
dropout_mask = declare(
    "dropout_mask(like, *, state, p=0.5) -> out", shape=random_rules.mask, dtypes=FLOATS, op_class="random",
    result=lambda dtype: np.dtype(np.bool_), doc="True where `dropout`, from the same state, keeps an element.",
)  # fmt: skip
dropout = declare(
    "dropout(a, *, state, p=0.5) -> out", shape=random_rules.dropout, dtypes=FLOATS, op_class="random",
    doc="``a / (1 - p)``, or 0 with probability `p`, even for NaN. The same state gives the same mask, so the backward "
    "pass stores no mask: it applies dropout to the gradient.",
)  # fmt: skip


def _check_exported() -> None:
    """Raise `SchemaError` for an op of this module that `__all__` does not list."""
    for declared in registry.ops():
        if declared.name not in __all__:
            raise SchemaError(
                f"{declared.name} is declared in cuassay/ops/catalog.py, but its __all__ does not list it; add it there"
            )


_check_exported()
