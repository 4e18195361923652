"""What a derivative of an op is: a formula over ops for each parameter, and the values that the formula reads.

The rules of the declared ops are in `cuassay.ops.derivatives`; a user's op gets its own by
``declare(..., derivative=)``. `cuassay.autograd` decides how calls are recorded and formulas are run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from cuassay.core.words import shown
from cuassay.errors import SchemaError
from cuassay.ops.schema import Schema

__all__ = ["Derivative", "Formula", "Forward", "Reads", "derivative_of", "forward_class", "forward_of", "register"]


#: From a call's arguments by name to the names of those that are read.
Reads = Callable[[Mapping[str, Any]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Formula:
    """A function from the gradient of the output to that of one parameter.

    Attributes
    ----------
    function : callable
        ``function(grad, forward)``, where `forward` is a `Forward`. Its result may be broadcast or in a wider dtype: it
        is summed to the parameter's shape and cast to its dtype. For a list of arrays it returns a list with one
        gradient for each.
    reads : tuple of str, or callable
        The parameters whose values it reads, and ``"out"``; or a function from the call's arguments by name to these.
        Only these values are kept from the forward call; of other arrays only shape and dtype are kept.
    """

    function: Callable[[Any, Forward], Any]
    reads: tuple[str, ...] | Reads = ()

    def read(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the values that it reads of a call."""
        return self.reads if isinstance(self.reads, tuple) else self.reads(arguments)


class Forward:
    """A call as formulas see it: arguments by name, and ``out``. Arrays that no formula reads are `Meta`.

    ``home`` is the device of the arguments. Each set of names has a class of its own, see `forward_class`: values in
    slots take less memory than a dict, and the backward pass waits mostly for memory.
    """

    __slots__ = ("_made",)

    _made: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the call has no {name!r}; it has {', '.join(type(self).__slots__)}")

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, computed by the first formula of the call that asks for `name`."""
        if not hasattr(self, "_made"):  # is made here, because most calls need none
            self._made = {}
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]


@cache
def forward_class(names: tuple[str, ...]) -> type[Forward]:
    """Return the class of calls with these names; an instance has no values until they are set."""
    return type("Forward", (Forward,), {"__slots__": names})


def forward_of(values: Mapping[str, Any]) -> Forward:
    """Return a call with these values by name."""
    forward = forward_class(tuple(values))()
    for name, value in values.items():
        setattr(forward, name, value)
    return forward


#: From a parameter to its formula, or to the reason why it has none. A parameter that is not named has no gradient,
#: because small changes of it do not change the result, as in comparisons. A text instead of the mapping says why the
#: op has no derivative.
Derivative = Mapping[str, Formula | str] | str

_derivatives: dict[str, Derivative] = {}


def register(schema: Schema, derivative: Any) -> None:
    """Register the derivative of an op; a plain function used as a formula reads every argument and the output.

    Raises
    ------
    SchemaError
        If it names a parameter that the op does not have, or maps one to neither a formula nor a reason.
    """
    if isinstance(derivative, str):
        _derivatives[schema.name] = derivative
        return
    if len(schema.written) > 1:
        raise SchemaError(
            f"{schema.name} writes several parameters, and a formula gets the gradient of one; say in a text why it "
            "has no derivative"
        )
    if schema.result_type is not None:
        raise SchemaError(
            f"{schema.name} has several outputs, and a formula gets the gradient of one; write a "
            "cuassay.autograd.Function that calls it, or say in a text why there is none"
        )
    entries = derivative.items() if isinstance(derivative, Mapping) else [(derivative, None)]
    _derivatives[schema.name] = {name: _formula(schema, name, given) for name, given in entries}


def _formula(schema: Schema, name: Any, given: Any) -> Formula | str:
    if name not in schema.array_names:
        raise SchemaError(
            f"{schema.name}'s derivative names {shown(name)}; it is a mapping from its arrays, "
            f"{', '.join(schema.array_names)}, to formulas"
        )
    if isinstance(given, Formula):
        named = given.reads if isinstance(given.reads, tuple) else ()
        if unknown := set(named) - {*schema.array_names, "out"}:
            raise SchemaError(
                f"the formula of {schema.name}'s {name} reads {', '.join(sorted(unknown))}; it may read "
                f"{', '.join(schema.array_names)} and out"
            )
        return given
    if isinstance(given, str):
        return given
    if not callable(given):
        raise SchemaError(
            f"the formula of {schema.name}'s {name} is {shown(given)}; write a function (grad, forward), or say in a "
            "text why there is none"
        )
    return Formula(given, (*schema.array_names, "out"))


def derivative_of(name: str) -> Derivative:
    """Return the derivative of the op of that name, or a text that says why it has none.

    The derivative of an op that writes a parameter is that of its functional form.
    """
    return _derivatives.get(
        name.removesuffix(".functional"), "no rule is written for it; declare it with derivative={parameter: formula}"
    )
