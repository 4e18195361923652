"""What an operation is: parameters, shapes, dtypes. A schema does not say how the operation is computed.

A schema is written as one line, the *signature*::

    "add(a, b) -> out"                       reads two arrays, makes one array
    "softmax(a, *, axis=-1) -> out"          after the star: scalars, with defaults
    "foreach_lerp_(a!: arrays, b: arrays, *, weight) -> "   lists of arrays; ``!`` is read and written
    "foreach_mul_(a!: arrays, b?: arrays, lr?) -> "   ``?``: may be omitted (None), or be a Python number
    "eigh(a) -> values, vectors"             several outputs: the call gives a named tuple

Every op that makes an array has the functional form ``add(a, b)`` and the ``out=`` form; elementwise operations also
have the in-place form ``add.inplace(a, b)``. An op that writes its parameters has the functional form
``foreach_mul_.functional(a, b)``, which writes copies and returns them, with the ``out=`` form of that.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, cast

import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name, promote
from cuassay.core.device import Device
from cuassay.core.words import shown
from cuassay.errors import ArgumentError, DTypeError, SchemaError
from cuassay.ops import several_outputs

__all__ = ["NUMBERS", "Access", "Arguments", "Form", "Meta", "Param", "Schema", "ShapeRule", "parse_signature"]

Form = Literal["array", "arrays", "scalar"]
Access = Literal["read", "both"]

_REQUIRED: Any = object()
#: The types of Python numbers, exactly: ``numpy.float64`` is a `float` too, but an array's element.
NUMBERS = frozenset((bool, int, float, complex))

#: Types of scalars that need no conversion.
_PLAIN = NUMBERS | {type(None), str, tuple, list}


@dataclass(frozen=True, slots=True)
class Meta:
    """An array without its memory: shape and dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """The bytes of its elements, C-contiguous."""
        return self.size * self.dtype.itemsize

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Meta({self.shape}, {dtype_name(self.dtype)})"


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: an array, a list of arrays or a scalar; it is read, or read and written."""

    name: str
    form: Form = "array"
    access: Access = "read"
    default: Any = _REQUIRED

    @property
    def required(self) -> bool:
        """Whether the caller must give it."""
        return self.default is _REQUIRED

    def members(self, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield the arrays in `value`, an argument of this parameter, with their names; none if it was omitted."""
        is_list = self.form == "arrays" and isinstance(value, list | tuple)
        for position, array in enumerate(self.values(value)):
            yield f"{self.name}[{position}]" if is_list else self.name, array

    def values(self, value: Any) -> Sequence[Any]:
        """Return the arrays without names; making names would dominate the cost of a call over lists."""
        if self.form == "arrays" and isinstance(value, list | tuple):
            return value
        return (value,) if self.required or (value is not None and type(value) not in NUMBERS) else ()


#: The arguments of a call by parameter name, with defaults filled in; for a shape rule, arrays as `Meta`.
Arguments = Mapping[str, Any]

#: From the arguments to the shape of the output, or to the shapes of several outputs, in order.
ShapeRule = Callable[[Arguments], tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """One declared operation.

    Attributes
    ----------
    name, params, outputs
        From the signature.
    shape : callable
        The shape rule, from the arguments by name, arrays as `Meta`, to the output's shape, or to those of several
        outputs. For an op that makes no array it only checks the arguments.
    dtypes : tuple of str
        The registry dtypes that the operation is defined for, on any device.
    op_class : str
        One of `cuassay.core.capability.OP_CLASSES`; together with a dtype it names a capability.
    result : callable
        Maps the registry dtype to the output's dtype, or to a tuple of dtypes if there are several outputs; identity
        by default (`sum` of int32 is int64).
    deterministic : bool
        Whether two runs on the same input give the same bits.
    place : callable, optional
        The output's device, for an op that moves arrays: ``(bound, out, device) -> device``.
    dtype_from : tuple of str
        The parameters whose promotion is the registry dtype; all by default.
    out_dtype_from : str
        The scalar that names the output's dtype, such as ``out_dtype``; if it is None, `result` decides.
    view_of : str
        The array of which the result is a view, made by `Op`'s `composite`: no data moves, unless `out` is given.
    channels_last : callable, optional
        Whether the channels of a new output (N, C, H, W) are last: ``(bound, shape) -> bool``; C order if None.
    accumulates : str
        The array that may also be `out`: each element is read only for the result's element at the same position.
    functional_of : str
        The op of which this is the functional form; see `Op.functional`.
    elementwise : bool
        Whether an output element depends on at most one element of each input, so that in-place calls are safe.
    is_single : bool
        Whether there is exactly one output, an array.
    result_type : type, optional
        The named tuple that a call returns, with the op's and the outputs' names; None unless there are several.
    arrays, written, lists, array_names, scalar_names, writes, pick_arrays, is_irregular
        Derived from `params`. `arrays`: arrays and lists, in order. `written`: parameters that are written. `lists`:
        required lists. `writes`: whether each array is written, if the required parameters are all of the arrays, no
        lists and no scalars, else None. `pick_arrays`: from arguments by name to the arrays. `is_irregular`: whether
        a list, an optional array, or a written array that `dtype_from` does not name is among the parameters.
    """

    name: str
    params: tuple[Param, ...]
    outputs: tuple[str, ...]
    shape: ShapeRule
    dtypes: tuple[str, ...]
    op_class: str
    result: Callable[[np.dtype[Any]], Any] = field(default=lambda dtype: dtype)
    deterministic: bool = True
    place: Callable[[Mapping[str, Any], Any, Device], Device] | None = None
    dtype_from: tuple[str, ...] = ()
    out_dtype_from: str = ""
    view_of: str = ""
    channels_last: Callable[[Arguments, tuple[int, ...]], bool] | None = None
    accumulates: str = ""
    doc: str = ""
    functional_of: str = ""
    elementwise: bool = field(init=False, compare=False, repr=False)
    is_single: bool = field(init=False, compare=False, repr=False)
    result_type: Callable[..., Any] | None = field(init=False, compare=False, repr=False)
    arrays: tuple[Param, ...] = field(init=False, compare=False, repr=False)
    written: tuple[Param, ...] = field(init=False, compare=False, repr=False)
    lists: tuple[Param, ...] = field(init=False, compare=False, repr=False)
    array_names: tuple[str, ...] = field(init=False, compare=False, repr=False)
    scalar_names: tuple[str, ...] = field(init=False, compare=False, repr=False)
    writes: tuple[bool, ...] | None = field(init=False, compare=False, repr=False)
    pick_arrays: Callable[[Mapping[str, Any]], Sequence[Any]] = field(init=False, compare=False, repr=False)
    is_irregular: bool = field(init=False, compare=False, repr=False)
    _defaults: Mapping[str, Any] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Derive once from the parameters what every call needs."""
        scalars = [param for param in self.params if param.form == "scalar"]
        names = tuple(param.name for param in self.params if param.form != "scalar")
        is_plain = all(p.form == "array" if p.required else p.form == "scalar" for p in self.params)
        derived = {
            "elementwise": self.op_class in ("elementwise", "random"),
            "is_single": len(self.outputs) == 1 and not self.functional_of,
            "result_type": several_outputs.result_type(self.name, self.outputs) if len(self.outputs) > 1 else None,
            "arrays": tuple(param for param in self.params if param.form != "scalar"),
            "written": tuple(param for param in self.params if param.access == "both"),
            "lists": tuple(param for param in self.params if param.form == "arrays" and param.required),
            "array_names": names,
            "pick_arrays": itemgetter(*names) if len(names) > 1 else lambda bound: [bound[name] for name in names],
            "writes": tuple(p.access != "read" for p in self.params if p.form == "array") if is_plain else None,
            "scalar_names": tuple(param.name for param in scalars),
            "is_irregular": bool(self.dtype_from and (not self.outputs or any(p.access == "both" for p in self.params)))
            or any(p.form == "arrays" or not p.required for p in self.params if p.form != "scalar")
            or bool(self.functional_of),
            "_defaults": {param.name: param.default for param in scalars if not param.required},
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        if self.result_type is not None and not self.functional_of:
            several_outputs.check_fields(self)

    @property
    def in_place(self) -> str:
        """The array that the in-place form writes; empty if there is no in-place form."""
        is_safe = self.elementwise and self.is_single
        return self.accumulates or (self.array_names[0] if is_safe and self.array_names else "")

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by parameter name, with defaults filled in.

        Raises
        ------
        ArgumentError
            If one is missing, given twice or unknown, or if a scalar is given by position.
        """
        if len(args) == len(self.arrays) and (not kwargs or kwargs.keys() <= set(self.scalar_names)):
            bound = dict(zip(self.array_names, args, strict=True))
            if self.scalar_names:
                for value in kwargs.values():
                    if type(value) not in _PLAIN:
                        kwargs = self._plain(kwargs)
                        break
                bound |= {**self._defaults, **kwargs}
            if len(bound) == len(self.params):
                return bound  # the common call; others are bound argument by argument
        return self._bind_by_name(args, kwargs)

    def _bind_by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.arrays):
            raise ArgumentError(
                f"{self.name} takes {len(self.arrays)} arrays by position, got {len(args)}; "
                f"give the rest by name: {self.signature}"
            )
        bound = dict(zip(self.array_names, args, strict=False))
        self._bind_named(bound, kwargs)
        for param in self.params:
            if param.name not in bound:
                bound[param.name] = self._default(param)
        return bound | self._plain({name: bound[name] for name in self.scalar_names})

    def _plain(self, scalars: Mapping[str, Any]) -> dict[str, Any]:
        """Return `scalars` with NumPy numbers as Python numbers, so that kernels of every kind get the same types.

        Raises
        ------
        ArgumentError
            If an array is given for a scalar: comparing it with a word does not give a single truth value.
        """
        return {name: self._plain_one(name, value) for name, value in scalars.items()}

    def _plain_one(self, name: str, value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, type):
            return value  # numpy.float32 names a dtype, although it has an array's attributes
        if hasattr(value, "dtype") and hasattr(value, "shape") and value.shape != ():
            raise ArgumentError(
                f"{self.name}'s {name} is not a parameter for arrays; got {shown(value)}; give a number or a word, "
                "or tuple(array.tolist()) where it takes several"
            )
        return value

    def _bind_named(self, bound: dict[str, Any], kwargs: Mapping[str, Any]) -> None:
        names = {param.name for param in self.params}
        for name, value in kwargs.items():
            if name not in names:
                raise ArgumentError(f"{self.name} has no parameter {name!r}; its form is {self.signature}")
            if name in bound:
                raise ArgumentError(f"{self.name} got {name!r} twice, by position and by name; give it once")
            bound[name] = value

    def _default(self, param: Param) -> Any:
        if param.required:
            raise ArgumentError(f"{self.name} needs {param.name!r}; its form is {self.signature}")
        return param.default

    @property
    def signature(self) -> str:
        """The schema as it was written."""
        arrays = [
            p.name + "!" * (p.access == "both") + "?" * (not p.required) + ": arrays" * (p.form == "arrays")
            for p in self.arrays
        ]
        scalars = [p.name if p.required else f"{p.name}={p.default!r}" for p in self.params if p.form == "scalar"]
        inside = ", ".join([*arrays, *(["*", *scalars] if scalars else [])])
        return f"{self.name}({inside}) -> {', '.join(self.outputs)}".rstrip()

    def registry_dtype(self, operands: Iterable[Any]) -> np.dtype[Any]:
        """Return the promotion of the operands: the dtype by which an implementation is looked up.

        Parameters
        ----------
        operands : iterable of numpy.dtype or Python scalar
            A Python scalar is weak, as in NumPy 2.

        Raises
        ------
        DTypeError
            If they do not promote, or the operation is not defined for the result.
        """
        dtype = promote(*operands)
        if dtype_name(dtype) not in self.dtypes:
            raise DTypeError(
                f"{self.name} is not defined for {dtype_name(dtype)}; it is for {', '.join(self.dtypes)}; "
                f"cast an operand first"
            )
        return dtype

    def infer(self, bound: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[Meta, ...]:
        """Return shape and dtype of every output, for arguments by name (arrays as `Meta`) and the registry dtype."""
        if not self.outputs:
            return ()
        shape, found = self.shape(bound), self.result_dtype(dtype, bound)
        if self.is_single:
            return (Meta(shape, found),)
        return tuple(map(Meta, several_outputs.each_shape(self, shape), found))

    def result_dtype(self, dtype: np.dtype[Any], bound: Mapping[str, Any]) -> Any:
        """Return the output's dtype, or a tuple of dtypes if there are several outputs.

        Raises
        ------
        DTypeError
            If `result` does not return a dtype.
        SchemaError
            If it does not return one dtype for each of several outputs.
        """
        if self.result_type is not None:
            return tuple(map(as_dtype, several_outputs.each_dtype(self, self.result(dtype))))
        named = bound[self.out_dtype_from] if self.out_dtype_from else None
        return as_dtype(self.result(dtype) if named is None else named)


_SIGNATURE = re.compile(r"(?P<name>\w+)\((?P<params>.*)\)\s*->\s*(?P<outputs>[\w, ]*)")


def parse_signature(text: str) -> tuple[str, tuple[Param, ...], tuple[str, ...]]:
    """Return name, parameters and outputs of a signature line.

    Raises
    ------
    SchemaError
        If the line cannot be read.
    """
    match = _SIGNATURE.fullmatch(text.strip())
    if match is None:
        raise SchemaError(f"{text!r} is not a signature; write it as 'name(a, b, *, axis=-1) -> out'")
    outputs = tuple(part.strip() for part in match["outputs"].split(",") if part.strip())
    arrays, _, scalars = match["params"].partition("*")
    params = *_arrays(arrays, text), *_scalars(scalars.strip(" ,"), text)
    _check_names([param.name for param in params], text)
    if len(outputs) > 1:
        several_outputs.check_names(outputs, params, text)
    return match["name"], params, outputs


def _check_names(names: Sequence[str], text: str) -> None:
    for position, name in enumerate(names):
        if name in names[:position]:
            raise SchemaError(f"{text!r} has {name!r} twice; each parameter needs a name of its own")
        if name == "out":
            raise SchemaError(f"{text!r} has a parameter named 'out', which every operation has by itself; rename it")


def _arrays(inside: str, text: str) -> Iterable[Param]:
    return (_array(part.strip(), text) for part in inside.split(",") if part.strip())


def _array(part: str, text: str) -> Param:
    name, _, annotation = (piece.strip() for piece in part.partition(":"))
    plain = name.removesuffix("?").removesuffix("!")
    if annotation not in ("", "array", "arrays") or not plain.isidentifier():
        raise SchemaError(
            f"{part!r} in {text!r} is not an array parameter; write 'a', 'a!' (read and written), 'a?' (may be "
            "missing) or 'a: arrays'"
        )
    form: Form = "arrays" if annotation == "arrays" else "array"
    return Param(plain, form, "both" if "!" in name else "read", None if name.endswith("?") else _REQUIRED)


def _scalars(inside: str, text: str) -> Iterable[Param]:
    """Parse the part after the star as Python: names, and defaults that are literals."""
    if not inside:
        return
    try:
        arguments = cast(ast.Lambda, ast.parse(f"lambda *, {inside}: 0", mode="eval").body).args
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            yield Param(argument.arg, "scalar", "read", _REQUIRED if default is None else ast.literal_eval(default))
    except (SyntaxError, ValueError) as error:
        raise SchemaError(
            f"{inside!r} in {text!r} are not scalar parameters: a name is not an identifier, or a default is not a "
            "literal; write 'axis' or 'axis=-1'"
        ) from error
