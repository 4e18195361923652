"""The derivatives of the declared ops: a table that maps each op to its formulas, or to the reason why it has none.

A formula takes the gradient of the output and the forward call, and returns the gradient of one parameter. It calls
only ops and views, so it runs on every device kind, is captured and race-checked like any call, and can be
differentiated. It need not undo broadcasting or promotion: `fitted` sums its result to the parameter's shape and casts
it to its dtype. Sources: the chain rule, and for softmax and layer_norm the papers that `cuassay.ops.catalog` names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cuassay.arrays.layout import normalize_axis
from cuassay.errors import GradientError
from cuassay.ops import catalog as ops
from cuassay.ops import products, registry, rules
from cuassay.ops.conv_derivatives import SLOW_CONV2D
from cuassay.ops.elementwise_derivatives import ELEMENTWISE
from cuassay.ops.elementwise_derivatives import NONE as _NONE
from cuassay.ops.elementwise_derivatives import by as _by
from cuassay.ops.elementwise_derivatives import wide as _wide
from cuassay.ops.joining_derivatives import JOINING
from cuassay.ops.list_derivatives import LISTS
from cuassay.ops.row_derivatives import ROWS
from cuassay.ops.rules import Formula, Forward, Reads
from cuassay.ops.shapes import reduced_axes
from cuassay.ops.view_derivatives import VIEWS

__all__ = ["DERIVATIVES", "fitted"]

Array = Any


def fitted(grad: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return `grad` in `dtype`, summed over the axes along which `shape` was broadcast."""
    if tuple(grad.shape) != shape:
        leading = grad.ndim - len(shape)
        axes = [axis for axis in range(grad.ndim) if axis < leading or shape[axis - leading] != grad.shape[axis]]
        if axes:
            grad = ops.sum(grad, axis=tuple(axes), keepdims=True)
        if tuple(grad.shape) != shape:
            grad = grad.reshape(shape)
    return grad if grad.dtype == dtype else ops.cast(grad, dtype=dtype)


def _transposed(array: Array) -> Array:
    return array.swapaxes(-1, -2)


_pass = Formula(lambda grad, forward: grad)

# ------------------------------------------------------------------------------------------------ elementwise


def _not_above_zero(grad: Array, array: Array) -> Array:
    """Return `grad`, with 0 where the array is at most 0; NaN elements of the array pass the gradient, as in torch."""
    return ops.where(ops.less_equal(array, 0), 0.0, grad)


def _gelu_slope(grad: Array, forward: Forward) -> Array:
    return ops.gelu_backward(grad, forward.a, approximate=forward.approximate)


def _gelu_bend(grad: Array, forward: Forward) -> Array:
    """Return the derivative of gelu's slope: ``phi(a) (2 - a^2)``, or the derivative of the tanh form."""
    a = _wide(forward.a)
    squares = ops.mul(a, a)
    if forward.approximate == "none":
        density = ops.mul(ops.exp(ops.mul(squares, -0.5)), 1 / math.sqrt(2 * math.pi))
        bend = ops.mul(density, ops.sub(2.0, squares))
    else:  # a (1 + tanh u) / 2, u = k (a + c a^3)
        k, c = math.sqrt(2 / math.pi), 0.044715
        twice = ops.mul(ops.mul(a, ops.add(ops.mul(squares, c), 1.0)), 2 * k)
        slope, tanh = ops.mul(ops.add(ops.mul(squares, 3 * c), 1.0), k), ops.tanh(ops.mul(twice, 0.5))
        rest = ops.mul(ops.mul(ops.sigmoid(twice), ops.sigmoid(ops.neg(twice))), 4.0)  # 1 - tanh^2, without cancelling
        turn = ops.sub(ops.mul(a, 3 * k * c), ops.mul(tanh, ops.mul(slope, slope)))
        bend = ops.mul(rest, ops.add(slope, ops.mul(a, turn)))
    return ops.mul(ops.mul(_wide(grad), _wide(forward.grad)), bend)


# ------------------------------------------------------------------------------------------------ reductions


def _kept(grad: Array, forward: Forward) -> Array:
    """Return the gradient of a reduction with extent 1 along the reduced axes."""
    shape = forward.a.shape
    if grad.ndim == len(shape):  # the axes were kept
        return grad
    axes = reduced_axes(forward.axis, len(shape))
    return grad.reshape(tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)))


def _sum(grad: Array, forward: Forward) -> Array:
    return ops.copy(ops.expand(_kept(grad, forward), shape=tuple(forward.a.shape)))


def _amax(grad: Array, forward: Forward) -> Array:
    """Share the gradient equally between the elements that are the maximum or minimum, as in torch."""
    grad, is_largest = _kept(grad, forward), ops.equal(forward.a, _kept(forward.out, forward))
    zeros = ops.where(ops.equal(grad, grad), 0.0, grad)
    count = ops.sum(_wide(ops.where(is_largest, 1.0, zeros)), axis=forward.axis, keepdims=True)
    return ops.where(is_largest, ops.div(grad, count.reshape(grad.shape)), 0.0)


def _foreach_max(grad: Array, forward: Forward) -> list[Array]:
    """Apply the rule of `amax` to each array."""
    values = {"axis": None, "keepdims": False}
    return [
        _amax(grad[place, ...], rules.forward_of({**values, "a": one, "out": forward.out[place, ...]}))
        for place, one in enumerate(forward.a)
    ]


def _count(forward: Forward) -> int:
    shape = forward.a.shape
    return math.prod(shape[axis] for axis in reduced_axes(forward.axis, len(shape)))


def _mean_of(grad: Array, forward: Forward) -> Array:
    return ops.mul(ops.expand(_kept(grad, forward), shape=tuple(forward.a.shape)), 1 / max(_count(forward), 1))


def _var(grad: Array, forward: Forward) -> Array:
    a = _wide(forward.a)
    rest = ops.sub(a, ops.mean(a, axis=forward.axis, keepdims=True))
    divisor = max(_count(forward) - forward.correction, 0)
    return ops.mul(rest, ops.mul(_wide(_kept(grad, forward)), 2 / divisor if divisor else math.inf))


def _prod(grad: Array, forward: Forward) -> Array:
    """Multiply by the product of the other elements; a single 0 alone gets a gradient, and several zeros get none."""
    grad, a = _wide(_kept(grad, forward)), _wide(forward.a)
    is_zero = ops.equal(a, 0)
    zeros = ops.sum(ops.where(is_zero, 1.0, ops.mul(a, 0.0)), axis=forward.axis, keepdims=True)
    others = ops.prod(ops.where(is_zero, 1.0, a), axis=forward.axis, keepdims=True)
    alone = ops.mul(grad, ops.where(ops.equal(zeros, 1), others, 0.0))
    among = ops.mul(grad, ops.where(ops.equal(zeros, 0), others, 0.0))
    return ops.where(is_zero, alone, ops.div(among, ops.where(is_zero, 1.0, a)))


def _logsumexp(grad: Array, forward: Forward) -> Array:
    below = ops.sub(_wide(forward.a), _wide(_kept(forward.out, forward)))
    return ops.mul(_wide(_kept(grad, forward)), ops.exp(below))


def _log_softmax(grad: Array, forward: Forward) -> Array:
    grad = _wide(grad)
    total = ops.sum(grad, axis=forward.axis, keepdims=True)
    return ops.sub(grad, ops.mul(ops.exp(_wide(forward.out)), total))


def _cumsum(grad: Array, forward: Forward) -> Array:
    """Sum from the other end."""
    axis = normalize_axis(forward.axis, len(forward.a.shape))
    turned = (*(slice(None) for _ in range(axis)), slice(None, None, -1))
    return ops.cumsum(grad[turned], axis=axis)[turned]


def _inside(grad: Array, forward: Forward) -> Array:
    pairs = zip(forward.widths, forward.a.shape, strict=True)
    return grad[tuple(slice(before, before + extent) for (before, _), extent in pairs)]


# ------------------------------------------------------------------------------------------------ products


def _as_matrices(grad: Array, forward: Forward) -> tuple[Array, bool, bool]:
    """Return the gradient with matrices instead of vectors, and whether each operand was a vector."""
    vectors = len(forward.a.shape) == 1, len(forward.b.shape) == 1
    shape = list(grad.shape)
    if vectors[1]:
        shape.append(1)
    if vectors[0]:
        shape.insert(len(shape) - 1, 1)
    return grad.reshape(tuple(shape)) if any(vectors) else grad, *vectors


def _rows(array: Array) -> Array:
    """Return the array with all axes but the last merged."""
    return array.reshape((math.prod(array.shape[:-1]), array.shape[-1]))


def _matmul_a(grad: Array, forward: Forward) -> Array:
    grad, is_vector, other_is_vector = _as_matrices(grad, forward)
    b = forward.b.reshape((-1, 1)) if other_is_vector else forward.b
    found = ops.matmul(grad, _transposed(b), precision=forward.precision)
    return found.reshape((*found.shape[:-2], found.shape[-1])) if is_vector else found


def _matmul_b(grad: Array, forward: Forward) -> Array:
    grad, other_is_vector, is_vector = _as_matrices(grad, forward)
    a = forward.a.reshape((1, -1)) if other_is_vector else forward.a
    if len(forward.b.shape) <= 2 and a.ndim > 2:  # one product over all rows is faster than a product per matrix
        grad, a = _rows(grad), _rows(a)
    found = ops.matmul(_transposed(a), grad, precision=forward.precision)
    return found.reshape(found.shape[:-1]) if is_vector else found


def _left(product: Callable[..., Array]) -> Callable[[Array, Forward], Array]:
    return lambda grad, forward: product(grad, _transposed(forward.b), precision=forward.precision)


def _right(product: Callable[..., Array]) -> Callable[[Array, Forward], Array]:
    return lambda grad, forward: product(_transposed(forward.a), grad, precision=forward.precision)


def _times(factor: float, array: Array) -> Array:
    return array if factor == 1 else ops.mul(array, float(factor))


def _before_activation(grad: Array, forward: Forward, product: Callable[[], Array]) -> Array:
    """Return the gradient of the activation's input; GELU's input is recomputed, because only its output was kept."""
    if forward.activation is None:
        return grad
    if forward.activation == "relu":
        return _not_above_zero(grad, forward.out)
    return forward.once("before", lambda: ops.gelu_backward(grad, product(), approximate="tanh"))


def _reads(*own: str, all_of: tuple[str, ...]) -> Reads:
    """Return what a product's formula reads for its activation: the result for ReLU, the operands for GELU."""
    more = {None: (), "relu": ("out",), "gelu_tanh": all_of}
    return lambda arguments: (*own, *more[arguments["activation"]])


def _addmm_inner(grad: Array, forward: Forward) -> Array:
    factors = {"alpha": forward.alpha, "beta": forward.beta, "precision": forward.precision}
    return _before_activation(grad, forward, lambda: ops.addmm(forward.c, forward.a, forward.b, **factors))


def _addmm_a(grad: Array, forward: Forward) -> Array:
    found = ops.mm(_addmm_inner(grad, forward), _transposed(forward.b), precision=forward.precision)
    return _times(forward.alpha, found)


def _addmm_b(grad: Array, forward: Forward) -> Array:
    found = ops.mm(_transposed(forward.a), _addmm_inner(grad, forward), precision=forward.precision)
    return _times(forward.alpha, found)


def _linear_inner(grad: Array, forward: Forward) -> Array:
    return _before_activation(
        grad,
        forward,
        lambda: ops.linear(forward.a, forward.weight, forward.bias, precision=forward.precision),
    )


def _linear_a(grad: Array, forward: Forward) -> Array:
    return ops.matmul(_linear_inner(grad, forward), forward.weight, precision=forward.precision)


def _linear_weight(grad: Array, forward: Forward) -> Array:
    grad = _rows(_linear_inner(grad, forward))
    return ops.mm(_transposed(grad), _rows(forward.a), precision=forward.precision)


def _grouped_a(grad: Array, forward: Forward) -> Array:
    return ops.grouped_mm(grad, _transposed(forward.b), offs=forward.offs, precision=forward.precision)


def _grouped_b(grad: Array, forward: Forward) -> Array:
    """Multiply per group, and write each product into that group's matrix."""
    backend = registry.backend_of(type(grad))
    if backend is None or registry.backend_of(type(forward.a)) is None:
        raise GradientError(
            "grouped_mm has no second derivative by its matrices: the first writes them one by one into one array; "
            "write the function with mm of slices"
        )
    count, rows = forward.b.shape[0], forward.a.shape[0]
    found = backend.empty(tuple(forward.b.shape), grad.dtype, backend.device_of(grad).index)
    for group, (first, end) in enumerate(products.groups(forward.offs, count, rows)):
        part = _transposed(forward.a[first:end]), grad[first:end]
        ops.mm(*part, precision=forward.precision, out=found[group])
    return found


# ------------------------------------------------------------------------------------------------ by an index


def _segment_sum(grad: Array, forward: Forward) -> Array:
    shape = tuple(forward.a.shape)
    return ops.embedding(forward.index, grad.reshape((grad.shape[0], math.prod(grad.shape[1:])))).reshape(shape)


def _index_add_source(grad: Array, forward: Forward) -> Array:
    axis = normalize_axis(forward.axis, grad.ndim)
    rows = grad.swapaxes(0, axis)
    shape = tuple(rows.shape)
    found = ops.embedding(forward.index, rows.reshape((shape[0], math.prod(shape[1:]))))
    return found.reshape((found.shape[0], *shape[1:])).swapaxes(0, axis)


# ------------------------------------------------------------------------------------------------ the table


def _back(grad: Array, forward: Forward) -> Array:
    """Return the gradient on the device of the original."""
    is_there = registry.device_of(grad, "the gradient") == forward.home
    return grad if is_there else ops.copy(grad, device=forward.home)


_OF_LINALG = "it has several outputs; call the function of its name in cuassay.linalg, which has a derivative"
_ADDMM, _LINEAR = ("a", "b", "c"), ("a", "weight", "bias")

DERIVATIVES: dict[str, rules.Derivative] = {
    **ELEMENTWISE,
    "add": {"a": _pass, "b": _pass},
    "sub": {"a": _pass, "b": _by()(lambda g, f: ops.neg(g))},
    "mul": {"a": _by("b")(lambda g, f: ops.mul(g, f.b)), "b": _by("a")(lambda g, f: ops.mul(g, f.a))},
    "div": {
        "a": _by("b")(lambda g, f: ops.div(g, f.b)),
        "b": _by("b", "out")(lambda g, f: ops.neg(ops.div(ops.mul(g, f.out), f.b))),
    },
    "neg": {"a": _by()(lambda g, f: ops.neg(g))},
    "sqrt": {"a": _by("out")(lambda g, f: ops.div(ops.mul(g, 0.5), f.out))},
    "exp": {"a": _by("out")(lambda g, f: ops.mul(g, f.out))},
    "log": {"a": _by("a")(lambda g, f: ops.div(g, f.a))},
    "tanh": {"a": _by("out")(lambda g, f: ops.mul(g, ops.sub(1.0, ops.mul(f.out, f.out))))},
    "sigmoid": {"a": _by("out")(lambda g, f: ops.mul(ops.mul(g, f.out), ops.sub(1.0, f.out)))},
    "relu": {"a": _by("out")(lambda g, f: _not_above_zero(g, f.out))},
    "gelu": {"a": _by("a")(_gelu_slope)},
    "gelu_backward": {"grad": _by("a")(_gelu_slope), "a": _by("grad", "a")(_gelu_bend)},
    "equal": _NONE,
    "less_equal": _NONE,
    "where": {
        "a": _by("condition")(lambda g, f: ops.where(f.condition, g, 0.0)),
        "b": _by("condition")(lambda g, f: ops.where(f.condition, 0.0, g)),
    },
    "sum": {"a": _by()(_sum)},
    "amax": {"a": _by("a", "out")(_amax)},
    **ROWS,
    "amin": {"a": _by("a", "out")(_amax)},
    "argmax": _NONE,
    "prod": {"a": _by("a")(_prod)},
    "cumsum": {"a": _by()(_cumsum)},
    "pad": {"a": _by()(_inside)},
    **JOINING,
    **VIEWS,
    "mean": {"a": _by()(_mean_of)},
    "var": {"a": _by("a")(_var)},
    "logsumexp": {"a": _by("a", "out")(_logsumexp)},
    "log_softmax": {"a": _by("out")(_log_softmax)},
    "matmul": {"a": _by("b")(_matmul_a), "b": _by("a")(_matmul_b)},
    "mm": {"a": _by("b")(_left(ops.mm)), "b": _by("a")(_right(ops.mm))},
    "bmm": {"a": _by("b")(_left(ops.bmm)), "b": _by("a")(_right(ops.bmm))},
    "addmm": {
        "c": Formula(lambda g, f: _times(f.beta, _addmm_inner(g, f)), _reads(all_of=_ADDMM)),
        "a": Formula(_addmm_a, _reads("b", all_of=_ADDMM)),
        "b": Formula(_addmm_b, _reads("a", all_of=_ADDMM)),
    },
    "baddbmm": {
        "c": _by()(lambda g, f: _times(f.beta, g)),
        "a": _by("b")(lambda g, f: _times(f.alpha, _left(ops.bmm)(g, f))),
        "b": _by("a")(lambda g, f: _times(f.alpha, _right(ops.bmm)(g, f))),
    },
    "linear": {
        "a": Formula(_linear_a, _reads("weight", all_of=_LINEAR)),
        "weight": Formula(_linear_weight, _reads("a", all_of=_LINEAR)),
        "bias": Formula(_linear_inner, _reads(all_of=_LINEAR)),
    },
    "grouped_mm": {"a": _by("b")(_grouped_a), "b": _by("a")(_grouped_b)},
    "scaled_mm": "its operands are fp8, which a gradient does not fit in; differentiate the product in bfloat16",
    "mixed_linear": "its weight is integers, which have no gradient; dequantize it and differentiate linear",
    "slow_conv2d": SLOW_CONV2D,
    "copy": {"a": _by()(_back)},
    "cast": {"a": _pass},
    "embedding": {"weight": _by("index")(lambda g, f: ops.segment_sum(g, f.index, count=f.weight.shape[0]))},
    "segment_sum": {"a": _by("index")(_segment_sum)},
    "gather": {
        "a": _by("index")(lambda g, f: ops.scatter_sum(g, f.index, count=f.a.shape[f.axis], axis=f.axis)),
    },
    "scatter_sum": {"a": _by("index")(lambda g, f: ops.gather(g, f.index, axis=f.axis))},
    "index_add": {"a": _pass, "source": _by("index")(_index_add_source)},
    "dropout": {"a": _by()(lambda g, f: ops.dropout(g, state=f.state, p=f.p))},
    "dropout_mask": _NONE,
    "bernoulli": _NONE,
    "uniform": _NONE,
    "normal": _NONE,
    "integers": _NONE,
    "permutation": _NONE,
    "det": "call cuassay.linalg.det, which has a derivative",
    **dict.fromkeys(("solve", "inv", "cholesky", "qr", "svd", "eigh", "lstsq"), _OF_LINALG),
    **LISTS,
    "foreach_max": {"a": _by("a", "out")(_foreach_max)},
    "foreach_norm": "it takes a list; of each array write ops.sqrt(ops.sum(ops.mul(a, a)))",
}  # fmt: skip

for _name, _derivative in DERIVATIVES.items():
    rules.register(registry.op(_name).schema, _derivative)
