"""Operations that reduce: ``map`` computes each element, ``combine`` joins two values, and ``finish`` ends a total.

This corresponds to CuPy's ReductionKernel, with its three expressions as functions of one text.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuassay.arrays.dtypes import FLOATS, INTEGERS, compute_dtype
from cuassay.core.words import shown
from cuassay.errors import ArgumentError
from cuassay.jit.body import Body, read
from cuassay.jit.declared import MOST_INPUTS, free_name, in_type
from cuassay.jit.run import run
from cuassay.ops import catalog, registry, shapes
from cuassay.ops.operation import Op
from cuassay.ops.schema import Arguments, Meta
from cuassay.ops.shapes import reduced_axes

__all__ = ["Reduction", "provide_reductions", "reduction"]

_DTYPES = (*INTEGERS, *FLOATS)
_FUNCTIONS = {"map": None, "combine": 2, "finish": 1}

_makers: dict[str, Callable[[Reduction], registry.Implementation]] = {}
_declared: dict[tuple[Any, ...], Reduction] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Reduction:
    """An operation that reduces, called as ``operation(*arrays, axis=None, keepdims=False, **scalars)``.

    Attributes
    ----------
    op : Op
        The declared operation.
    body : Body
        Its functions. The entry is ``map``.
    identity : float
        The neutral element of ``combine``.
    scalars : tuple of str
        The names of the parameters of ``map`` that are numbers.
    """

    op: Op
    body: Body
    identity: float
    scalars: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Reduction({self.op.schema.signature!r})"

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Compute the result on the device of the arrays. Raises as every operation does."""
        return self.op(*arrays, out=out, **named)

    @property
    def has_finish(self) -> bool:
        """Whether there is a function ``finish`` for each total."""
        return "finish" in self.body.functions


def reduction(code: str, *, identity: float, name: str = "reduced", **scalars: float) -> Reduction:
    """Declare an operation that reduces from the text of C++ function templates.

    Parameters
    ----------
    code : str
        The functions ``map``, which takes the arrays and scalars, ``T combine(T a, T b)`` and, optionally,
        ``T finish(T total)``. ``combine`` must be associative and commutative, because values are combined in parts.
        ``T`` is the promoted dtype of the arrays; for 16-bit floats it is float, and results are rounded once.
    identity : float
        The neutral element of ``combine``, such as 0 for a sum. It is the total of no elements.
    name : str
        The name of the operation in messages.
    **scalars
        The parameters of ``map`` that are numbers, with their defaults.

    Returns
    -------
    Reduction
        The operation. Equal texts and numbers give the same object.

    Raises
    ------
    CompileError
        If the text is not valid. The message has line, column and advice.
    ArgumentError
        If a function is missing, or takes another number of parameters, or if identity or a scalar is not a number.
    LibraryNotFoundError
        If pycparser is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import cuassay
    >>> distance = cuassay.jit.reduction(
    ...     "template <typename T> T map(T x, T y) { return (x - y) * (x - y); }"
    ...     "template <typename T> T combine(T a, T b) { return a + b; }"
    ...     "template <typename T> T finish(T total) { return sqrt(total); }",
    ...     identity=0,
    ... )
    >>> distance(np.array([[0.0, 3.0], [1.0, 1.0]]), np.array([4.0, 0.0]), axis=1)
    array([5.        , 3.16227766])
    """
    body = _checked(read(code), identity, scalars)
    key = code, identity, name, tuple(sorted(scalars.items()))
    with _lock:
        found = _declared.get(key)
        if found is None:
            found = _declared[key] = _declare(body, identity, name, scalars)
            for kind, make in _makers.items():
                registry.implement(found.op.name, kind=kind, dtypes=_DTYPES)(make(found))
    return found


def provide_reductions(kind: str, make: Callable[[Reduction], registry.Implementation]) -> None:
    """Implement all present and future reductions on device kind `kind`."""
    with _lock:
        _makers[kind] = make
        for found in _declared.values():
            registry.implement(found.op.name, kind=kind, dtypes=_DTYPES)(make(found))


def _checked(body: Body, identity: object, scalars: Mapping[str, object]) -> Body:
    """Check a body, and return it with ``map`` as its entry."""
    for name, count in _FUNCTIONS.items():
        function = body.functions.get(name)
        if function is None and name != "finish":
            raise ArgumentError(
                f"a reduction needs a function {name}; got {', '.join(body.functions)}; write T {name}(...)"
            )
        if function is not None and count not in (None, len(function.parameters)):
            raise ArgumentError(f"{name} takes {count} values; got {len(function.parameters)} parameters")
        if function is not None and function.returns == "void":
            raise ArgumentError(f"{name} must return its value; write T {name}(...)")
    for name, value in {"identity": identity, **scalars}.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
            raise ArgumentError(f"{name} must be a number; got {shown(value)}")
    found = replace(body, entry=body.functions["map"])
    arrays = len(found.inputs) - len(scalars)
    if set(found.inputs[arrays:]) != set(scalars) or not 1 <= arrays <= MOST_INPUTS:
        raise ArgumentError(
            f"map takes 1 to {MOST_INPUTS} arrays, then its scalars; its parameters are {', '.join(found.inputs)}, the "
            f"scalars {', '.join(scalars) or 'none'}"
        )
    return found


def _declare(body: Body, identity: float, name: str, scalars: Mapping[str, Any]) -> Reduction:
    numbers = tuple(one for one in body.inputs if one in scalars)
    arrays = [one for one in body.inputs if one not in scalars]
    defaults = "".join(f", {one}={scalars[one]!r}" for one in numbers)

    def shape(bound: Arguments) -> tuple[int, ...]:
        whole = shapes.broadcast({one: bound[one] for one in arrays})
        a = Meta(whole, np.dtype(np.float32))
        return shapes.reduced({"a": a, "axis": bound["axis"], "keepdims": bound["keepdims"]})

    op = catalog.declare(
        f"{free_name(name)}({', '.join(arrays)}, *, axis=None, keepdims=False{defaults}) -> out",
        shape=shape,
        dtypes=_DTYPES,
        op_class="reduction",
        doc=f"From a body::\n\n{body.code}",
        derivative="it is a reduction of a text; reduce the result of cuassay.jit.elementwise by ops.sum instead",
    )
    registry.unlist(op.name)
    return Reduction(op, body, identity, numbers)


# ------------------------------------------------------------------------------------------------ on NumPy arrays


def _on_numpy(found: Reduction) -> registry.Implementation:
    body, count = found.body, len(found.body.inputs) - len(found.scalars)

    def compute(*given: Any, axis: Any, keepdims: bool, out: Any, **numbers: Any) -> None:
        wide = compute_dtype(out.dtype)
        inputs = [in_type(value, wide) for value in given]
        inputs += [np.asarray(numbers[name]).astype(wide) for name in body.inputs[count:]]
        (values,) = run(body, wide, inputs)
        axes = reduced_axes(axis, values.ndim)
        kept = [place for place in range(values.ndim) if place not in axes]
        rows = (
            values.transpose(*kept, *axes).reshape(math.prod(values.shape[place] for place in kept), -1)
            if out.size
            else None
        )
        if rows is None:
            return
        total = _combined(replace(body, entry=body.functions["combine"]), wide, rows, found.identity)
        if found.has_finish:
            (total,) = run(replace(body, entry=body.functions["finish"]), wide, [total])
        with np.errstate(over="ignore"):
            out[...] = total.reshape(out.shape).astype(out.dtype, copy=False)

    return compute


def _combined(body: Body, dtype: Any, rows: NDArray[Any], identity: float) -> NDArray[Any]:
    """Return the total of each row, by combining its halves repeatedly."""
    if not rows.shape[1]:
        return np.full(rows.shape[0], identity, dtype)
    while (width := rows.shape[1]) > 1:
        half = width // 2
        (joined,) = run(body, dtype, [rows[:, :half], rows[:, half : 2 * half]])
        rows = np.concatenate([joined, rows[:, 2 * half :]], axis=1)
    return rows[:, 0]


provide_reductions("cpu", _on_numpy)
