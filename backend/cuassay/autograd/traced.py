"""`TracedArray`: replaces the arrays of a differentiated function, so that every operation on them is recorded.

It has the shape, dtype and operators of an array. Each operator is a call of `cuassay.ops`, and each view is recorded.
Any other use of the values that the recorder would not see (NumPy, CuPy, `float`) raises an error that says what to
call instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

from cuassay import ops
from cuassay.core import callers
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, GradientError, MissingNameError
from cuassay.ops.conv_derivatives import placed

__all__ = ["TracedArray", "bottom"]

#: From the NumPy function that an operator with a plain array on its left calls to the equivalent op.
_UFUNCS: dict[str, Callable[[Any, Any], Any]] = {
    "add": ops.add,
    "subtract": ops.sub,
    "multiply": ops.mul,
    "divide": ops.div,
    "matmul": ops.matmul,
    "less_equal": ops.less_equal,
}

_ADVICE = (
    "call an op of cuassay.ops instead; for a value that needs no gradient, cuassay.autograd.stop_gradient(x) gives "
    "the plain array"
)


class _Recorder(Protocol):
    def viewed(self, array: TracedArray, name: str, view: Callable[[Any], Any], back: Callable[[Any], Any]) -> Any:
        """Record a view of `array`; `back` takes a gradient of the view to one of the array."""


class TracedArray:
    """An array inside a function that is differentiated.

    Parameters
    ----------
    value : array
        The values. In nested derivatives it may be another `TracedArray`.
    recorder : object
        Records the calls on the array.
    node : object
        The node and output that made the array.

    Attributes
    ----------
    represents : array
        `value`.
    """

    __array_priority__ = 1000.0  # CuPy defers operators to the operand with the higher priority
    __slots__ = ("node", "recorder", "represents")

    def __init__(self, value: Any, recorder: _Recorder, node: Any) -> None:
        self.represents = value
        self.recorder = recorder
        self.node = node

    def __repr__(self) -> str:
        return f"TracedArray({self.shape}, {self.dtype})"

    # ---------------------------------------------------------------------------------------------- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return tuple(self.represents.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        found: np.dtype[Any] = self.represents.dtype
        return found

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d array has no length; ask its shape")
        return self.shape[0]

    # ---------------------------------------------------------------------------------------------- views

    @property
    def T(self) -> TracedArray:  # noqa: N802  NumPy's name
        """The array with its axes reversed."""
        return self.transpose()

    @property
    def mT(self) -> TracedArray:  # noqa: N802  NumPy's name
        """The array with its last two axes exchanged."""
        return self.swapaxes(-1, -2)

    def transpose(self, *axes: Any) -> TracedArray:
        """Return the array with its axes in this order; reversed if none is given."""
        wanted = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
        order = tuple(range(self.ndim))[::-1] if not wanted or wanted[0] is None else tuple(wanted)
        back = tuple(int(place) for place in np.argsort([axis % max(self.ndim, 1) for axis in order]))
        return self._view("transpose", lambda a: a.transpose(order), lambda grad: grad.transpose(back))

    def swapaxes(self, first: int, second: int) -> TracedArray:
        """Return the array with two axes exchanged."""
        return self._view("swapaxes", lambda a: a.swapaxes(first, second), lambda grad: grad.swapaxes(first, second))

    def reshape(self, *shape: Any) -> TracedArray:
        """Return the same elements in another shape."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        former = self.shape
        return self._view("reshape", lambda a: a.reshape(tuple(wanted)), lambda grad: grad.reshape(former))

    def ravel(self) -> TracedArray:
        """Return the elements along one axis."""
        return self.reshape((-1,))

    def __getitem__(self, index: Any) -> TracedArray:
        entries = index if isinstance(index, tuple) else (index,)
        if any(not isinstance(one, int | slice | np.integer | None) and one is not Ellipsis for one in entries):
            raise GradientError(
                f"x[...] of a traced array takes whole numbers, slices, None and ...; got {shown(index)} at "
                f"{callers.line()}; choose elements by cuassay.ops.where"
            )
        if Ellipsis not in entries:
            entries = *entries, Ellipsis  # makes a single element a view, too
        shape = self.shape
        return self._view("x[...]", lambda a: a[entries], lambda grad: placed(grad, shape, entries))

    def placed(self, shape: tuple[int, ...], index: Any) -> TracedArray:
        """Return zeros of `shape` with this array at `index`: the derivative of ``x[index]``, which is recorded."""
        back: Callable[[Any], Any] = lambda outer: outer[index]  # noqa: E731
        return self._view("x[...]", lambda a: placed(a, shape, index), back)

    def _view(self, name: str, view: Callable[[Any], Any], back: Callable[[Any], Any]) -> TracedArray:
        found: TracedArray = self.recorder.viewed(self, name, view, back)
        return found

    # ---------------------------------------------------------------------------------------------- operators

    def __add__(self, other: Any) -> Any:
        return ops.add(self, other)

    def __radd__(self, other: Any) -> Any:
        return ops.add(other, self)

    def __sub__(self, other: Any) -> Any:
        return ops.sub(self, other)

    def __rsub__(self, other: Any) -> Any:
        return ops.sub(other, self)

    def __mul__(self, other: Any) -> Any:
        return ops.mul(self, other)

    def __rmul__(self, other: Any) -> Any:
        return ops.mul(other, self)

    def __truediv__(self, other: Any) -> Any:
        return ops.div(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return ops.div(other, self)

    def __matmul__(self, other: Any) -> Any:
        return ops.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return ops.matmul(other, self)

    def __neg__(self) -> Any:
        return ops.neg(self)

    def __le__(self, other: Any) -> Any:
        return ops.less_equal(self, other)

    def __ge__(self, other: Any) -> Any:
        return ops.less_equal(other, self)

    def __pow__(self, exponent: Any) -> Any:
        if exponent != 2:
            raise ArgumentError(f"x ** n of a traced array takes n = 2; got {shown(exponent)}; multiply by ops.mul")
        return ops.mul(self, self)

    # ---------------------------------------------------------------------------------------------- refused

    def left(self, what: str) -> GradientError:
        """Return the error for a call outside of the ops that gets this array as `what`."""
        return GradientError(
            f"{what} is a traced array of a function that is differentiated, of shape {self.shape}, and was used at "
            f"{callers.line()} where no recorder sees it; {_ADVICE}"
        )

    def _refuse(self, name: str) -> NoReturn:
        raise GradientError(f"{name} of a traced array, at {callers.line()}, has no derivative here; {_ADVICE}")

    def __getattr__(self, name: str) -> NoReturn:
        op = f"cuassay.ops.{name}" if hasattr(ops, name) and not name.startswith("_") else ""
        advice = f"call {op}(x)" if op else _ADVICE
        raise MissingNameError(f"an array of a function that is differentiated has no attribute {name!r}; {advice}")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        op = _UFUNCS.get(ufunc.__name__)
        if method == "__call__" and op is not None and not kwargs and len(inputs) == 2:
            return op(*inputs)
        return self._refuse(f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        self._refuse(f"numpy.{function.__name__}")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        self._refuse("numpy.asarray")

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("a function of CuPy")

    def __dlpack__(self, **options: Any) -> NoReturn:
        self._refuse("from_dlpack")

    def __bool__(self) -> bool:
        return self._refuse("bool")

    def __float__(self) -> NoReturn:
        self._refuse("float")

    def __int__(self) -> NoReturn:
        self._refuse("int")

    def item(self) -> NoReturn:
        """Raise, because the host would read a value that gradients depend on."""
        self._refuse("item")

    def tolist(self) -> NoReturn:
        """Raise, as `item` does."""
        self._refuse("tolist")

    def __eq__(self, other: object) -> NoReturn:
        self._refuse("== (write cuassay.ops.equal)")

    def __lt__(self, other: Any) -> NoReturn:
        self._refuse("x < y (write x <= y if both may be equal, or cuassay.ops.logical_not(y <= x))")

    def __gt__(self, other: Any) -> NoReturn:
        self._refuse("x > y (write x >= y if both may be equal, or cuassay.ops.logical_not(x <= y))")

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        self._refuse("x[...] = value (write cuassay.ops.where)")

    def __iadd__(self, other: Any) -> Any:
        self._refuse("+= (write x = x + y)")

    def __isub__(self, other: Any) -> Any:
        self._refuse("-= (write x = x - y)")

    def __imul__(self, other: Any) -> Any:
        self._refuse("*= (write x = x * y)")

    __hash__ = object.__hash__


def bottom(value: Any) -> Any:
    """Return the plain array inside nested traced arrays. Other values are returned unchanged."""
    while isinstance(value, TracedArray):
        value = value.represents
    return value
