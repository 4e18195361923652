"""Declare a body as an operation, once for each text, on each device kind that can run bodies."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import BOOL, COMPLEX, FLOATS, INTEGERS, compute_dtype, is_complex
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DTypeError, GradientError, ShapeError
from cuassay.jit.arithmetic import as_type, real_dtype
from cuassay.jit.body import Body, read
from cuassay.jit.complexes import check
from cuassay.jit.run import run
from cuassay.jit.tangent import tangent
from cuassay.ops import catalog, registry, shapes
from cuassay.ops.operation import Op
from cuassay.ops.rules import Formula
from cuassay.ops.schema import Arguments

__all__ = ["MOST_INPUTS", "MOST_OUTPUTS", "Elementwise", "elementwise", "free_name", "in_type", "provide"]

#: As torch's jiterator.
MOST_INPUTS = 8
MOST_OUTPUTS = 8

_DTYPES = (*BOOL, *INTEGERS, *FLOATS, *COMPLEX)

_makers: dict[str, Maker] = {}
_declared: dict[tuple[str, tuple[tuple[str, Any], ...]], Elementwise] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An operation that is computed by a body, called as ``operation(*arrays, **scalars)``.

    Attributes
    ----------
    op : Op
        The declared operation. With several outputs it writes its last parameters instead of allocating a result.
    body : Body
        The body that it computes.
    scalars : tuple of str
        The names of the parameters that are numbers.
    """

    op: Op
    body: Body
    scalars: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Elementwise({self.op.schema.signature.strip()!r})"

    def __call__(self, *arrays: Any, out: Any = None, **scalars: Any) -> Any:
        """Compute the result on the device of the arrays; a tuple of arrays if the body writes several references.

        Parameters
        ----------
        *arrays
            One array for each input; they broadcast. With one output, all but one may be Python numbers.
        out : array, or tuple of arrays, optional
            The arrays to write instead of new ones.
        **scalars
            Values that replace the declared defaults.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError, DeviceError
            As every operation does.
        """
        if len(self.body.outputs) < 2:
            return self.op(*arrays, out=out, **scalars)
        outs = self._new_outputs(arrays) if out is None else tuple(out)
        if len(outs) != len(self.body.outputs):
            raise ArgumentError(
                f"{self.op.name} has {len(self.body.outputs)} outputs; got {len(outs)} in out=; give one for each"
            )
        self.op(*arrays, *outs, **scalars)
        return outs

    def numbers(self, dtype: np.dtype[Any], given: Mapping[str, Any]) -> list[Any]:
        """Return the scalars of a call in the type that the body computes in; for a complex one, in that of its parts.

        Raises
        ------
        CompileError
            If `dtype` is complex and the body cannot be computed in it. The message has line, column and advice.
        ArgumentError
            If a scalar is complex.
        """
        if dtype.kind == "c":
            check(self.body, dtype, len(self.scalars))
        for name, value in given.items():
            if isinstance(value, complex):
                raise ArgumentError(f"{name} of {self.op.name} must be a real number; got {value}; give it as an array")
        return [np.asarray(given[name]).astype(real_dtype(dtype))[()] for name in self.scalars]

    def _new_outputs(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Return new outputs with the broadcast shape and promoted dtype of the inputs."""
        names = self.op.schema.array_names[: -len(self.body.outputs)]
        if len(arrays) != len(names):
            raise ArgumentError(
                f"{self.op.name} takes {len(names)} arrays ({', '.join(names)}); got {len(arrays)}; give one for each"
            )
        if any(hasattr(type(array), "represents") for array in arrays):
            raise GradientError(
                f"{self.body.entry.name} has no derivative, because its body has {len(self.body.outputs)} results; "
                "write a body for each of them"
            )
        backends = [
            registry.owner_of(array, f"{self.op.name}'s {name}") for name, array in zip(names, arrays, strict=True)
        ]
        backend, index = backends[0], backends[0].device_of(arrays[0]).index
        dtype = self.op.schema.registry_dtype([array.dtype for array in arrays])
        shape = shapes.broadcast(dict(zip(names, arrays, strict=True)))
        return tuple(backend.empty(shape, dtype, index) for _ in self.body.outputs)


#: Makes the implementation of an operation, which is called with ``(*inputs, out=..., **scalars)``, or with several
#: outputs ``(*inputs, *outputs, **scalars)``.
Maker = Callable[[Elementwise], registry.Implementation]


def elementwise(code: str, **scalars: float) -> Elementwise:
    """Declare an operation from the text of a C++ function template.

    Parameters
    ----------
    code : str
        The text, such as ``template <typename T> T scaled(T x, T y, T alpha) { return x + alpha * y; }``. The last
        function is computed for each element, and may call those before it. It returns a ``T``, or returns ``void`` and
        writes parameters that are references (``T& out``). ``T`` is the promoted dtype of the arrays, which may be
        complex; for 16-bit floats it is float, and results are rounded once.
    **scalars
        The parameters that are real numbers, with their defaults: ``alpha=1.0``. They come after the arrays.

    Returns
    -------
    Elementwise
        The operation. Equal text and scalars give the same object.

    Raises
    ------
    CompileError
        If the text is not such a function. The message has line, column and advice.
    ArgumentError
        If a scalar is not a parameter or not a number, or there are no arrays or more than eight.
    LibraryNotFoundError
        If pycparser is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import cuassay
    >>> scaled = cuassay.jit.elementwise(
    ...     "template <typename T> T scaled(T x, T y, T alpha) { return x + alpha * y; }", alpha=2.0
    ... )
    >>> scaled(np.ones(3, np.float32), np.arange(3, dtype=np.float32), alpha=10.0)
    array([ 1., 11., 21.], dtype=float32)
    """
    body = read(code)
    _check_scalars(body, scalars)
    key = code, tuple(sorted(scalars.items()))
    with _lock:
        found = _declared.get(key)
        if found is None:
            found = _declared[key] = _declare(body, scalars)
            for kind, make in _makers.items():
                _implement(found, kind, make)
    return found


def provide(kind: str, make: Maker) -> None:
    """Implement all present and future bodies on device kind `kind`. The kind calls this when it is loaded."""
    with _lock:
        _makers[kind] = make
        for found in _declared.values():
            _implement(found, kind, make)


def _implement(found: Elementwise, kind: str, make: Maker) -> None:
    registry.implement(found.op.name, kind=kind, dtypes=_DTYPES)(make(found))


def _check_scalars(body: Body, scalars: Mapping[str, Any]) -> None:
    arrays = len(body.inputs) - len(scalars)
    last = body.inputs[arrays:]
    if unknown := [name for name in scalars if name not in body.inputs]:
        raise ArgumentError(
            f"{body.entry.name} reads no parameter {', '.join(unknown)}; its parameters are {', '.join(body.inputs)}"
        )
    if set(last) != set(scalars):
        raise ArgumentError(
            f"the numbers of {body.entry.name} must be its last parameters; got {', '.join(scalars)}; its parameters "
            f"are {', '.join(body.inputs)}; put the arrays first"
        )
    for name, value in scalars.items():
        if not isinstance(value, bool | int | float):
            raise ArgumentError(f"{name} of {body.entry.name} must be a number; got {shown(value)}; give its default")
        if not math.isfinite(value):
            raise ArgumentError(f"{name} of {body.entry.name} must be finite; got {value}; give that in the call")
    if not 1 <= arrays <= MOST_INPUTS:
        raise ArgumentError(f"{body.entry.name} has {arrays} arrays; give 1 to {MOST_INPUTS}, and numbers as scalars")
    if len(body.outputs) > MOST_OUTPUTS:
        raise ArgumentError(f"{body.entry.name} has {len(body.outputs)} outputs; give {MOST_OUTPUTS} at most")


def _declare(body: Body, scalars: Mapping[str, Any]) -> Elementwise:
    names = tuple(name for name in body.inputs if name in scalars)
    arrays = [name for name in body.inputs if name not in scalars]
    several = body.outputs if len(body.outputs) > 1 else ()
    written = [f"{name}!" for name in several]
    numbers = [f"{name}={scalars[name]!r}" for name in names]
    parameters = ", ".join([*arrays, *written, *(["*", *numbers] if numbers else [])])
    more: dict[str, Any] = {"dtype_from": tuple(arrays)} if several else {}
    if not several:
        more["derivative"] = {name: _formula(body, name, scalars) for name in arrays}
    op = catalog.declare(
        f"{free_name(body.entry.name)}({parameters}) -> {'' if several else 'out'}",
        shape=_shape_of_several(arrays, several) if several else shapes.broadcast,
        dtypes=_DTYPES,
        op_class="elementwise",
        doc=f"From a body::\n\n{body.code}",
        **more,
    )
    registry.unlist(op.name)
    return Elementwise(op, body, names)


def _formula(body: Body, name: str, scalars: Mapping[str, Any]) -> Formula:
    """Return the gradient of one array: the derivative of the body, which is itself an operation."""

    def gradient(grad: Any, forward: Any) -> Any:
        arrays = [getattr(forward, one) for one in body.inputs if one not in scalars]
        derived = elementwise(tangent(body, name, len(scalars)), **scalars)
        return derived(*arrays, grad, **{one: getattr(forward, one) for one in scalars})

    return Formula(gradient, tuple(one for one in body.inputs if one not in scalars))


def free_name(name: str) -> str:
    """Return `name`, or with a number if another operation has that name: the second `f` is `f_2`."""
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(one for one in names if not registry.is_declared(one))


def _shape_of_several(arrays: Sequence[str], outputs: Sequence[str]) -> Callable[[Arguments], tuple[int, ...]]:
    def shape(bound: Arguments) -> tuple[int, ...]:
        wanted = shapes.broadcast({name: bound[name] for name in arrays})
        for name in outputs:
            if tuple(bound[name].shape) != wanted:
                raise ShapeError(
                    f"{name} must have the arrays' broadcast shape {wanted}; got {tuple(bound[name].shape)}"
                )
            if any(is_complex(bound[one].dtype) for one in arrays) and not is_complex(bound[name].dtype):
                raise DTypeError(
                    f"{name} must be complex, as the arrays; got {bound[name].dtype}; take its parts after"
                )
        return wanted

    return shape


# ------------------------------------------------------------------------------------------------ on NumPy arrays


def _on_numpy(found: Elementwise) -> registry.Implementation:
    body = found.body
    read_by = len(body.inputs) - len(found.scalars)

    def compute(*given: Any, out: Any = None, **numbers: Any) -> None:
        outs = given[read_by:] or (out,)
        wide = compute_dtype(outs[0].dtype)
        inputs = [in_type(value, wide) for value in given[:read_by]]
        inputs += found.numbers(wide, numbers)
        results = run(body, wide, inputs)
        for one, result in zip(outs, results, strict=True):
            with np.errstate(over="ignore"):
                one[...] = result.astype(one.dtype, copy=False)

    return compute


def in_type(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert an operand to the type of the body. Raises `OverflowError` for a Python integer that does not fit."""
    if not isinstance(value, np.ndarray):
        return np.asarray(value, dtype)
    return as_type(value.astype(compute_dtype(value.dtype), copy=False), dtype)


provide("cpu", _on_numpy)
