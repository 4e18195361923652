"""One call of an op, from arguments to kernel: bind, interpose, route, place, check the output, run.

Interposers (autocast, tracing, profiling) see every call, outermost first, without being imported here; with
none set, a call pays one comparison. What an operation is stands in `schema`, what serves it in `registry`.
What follows from the operands' types and dtypes alone is found once and kept: a `_Route`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core import determinism
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.errors import SchemaError
from cuassay.ops import registry
from cuassay.ops.arguments import as_meta, blame, blame_shape, check_lists, shape_of
from cuassay.ops.explain import described, is_explaining, within
from cuassay.ops.interposers import Call, Interposer, interpose, interposers, through
from cuassay.ops.outputs import check_out, check_written, refuse_out
from cuassay.ops.placement import arrays, destination, is_number, place_of
from cuassay.ops.schema import Meta, Schema

__all__ = ["Call", "Interposer", "Op", "Plan", "Shortcut", "interpose", "redispatch"]

#: From a call's arrays, its ``out`` and its scalars to the result; or `NotImplemented`, and nothing was done.
Shortcut = Callable[[tuple[Any, ...], Any, Mapping[str, Any]], Any]


class Op:
    """A declared operation: callable, with its schema, shape rule and plans.

    Parameters
    ----------
    schema : Schema
        What it is.
    composite : callable, optional
        The same operation written in terms of other ops; used on kinds that have no kernel for it.
    parts : sequence of str
        Names of the ops `composite` calls.

    Attributes
    ----------
    shortcuts : dict
        By the type of the first array, what serves plain calls at once, the first that can; filled by kinds.
    """

    def __init__(self, schema: Schema, composite: Callable[..., Any] | None = None, parts: Sequence[str] = ()) -> None:
        self.schema = schema
        self.name = schema.name
        self.composite = composite
        self.parts = tuple(parts)
        self.shortcuts: dict[type, tuple[Shortcut, ...]] = {}
        self.__doc__ = schema.doc
        registry.register_op(self)

    def __repr__(self) -> str:
        return f"Op({self.schema.signature!r})"

    def __call__(self, *args: Any, out: Any = None, **scalars: Any) -> Any:
        """Run on the device the arrays live on, in order of its current stream.

        Parameters
        ----------
        *args, **scalars
            As in the signature. In elementwise ops Python numbers may stand for arrays, all but one.
        out : array, optional
            Written instead of a new array; must have the shape, dtype and device of the result.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            If the arguments do not fit the schema.
        DeviceError
            If the arrays live on several devices.
        KernelNotFoundError
            If the device kind has no implementation.
        """
        shortcuts = self.shortcuts.get(args[0].__class__) if args else None
        if shortcuts is not None and not interposers.is_watched:
            for shortcut in shortcuts:
                served = shortcut(args, out, scalars)
                if served is not NotImplemented:
                    return served
        return self.dispatch(args, out, scalars)

    def dispatch(self, args: Sequence[Any], out: Any, scalars: Mapping[str, Any]) -> Any:
        """The call without shortcuts: what they are measured by."""
        bound = self.schema.bind(args, scalars)
        if interposers.stack:
            return through(interposers.stack, Call(self, bound, out), _run_call)
        return _run(self, bound, out)

    def inplace(self, *args: Any, **scalars: Any) -> Any:
        """Like calling it with the first array as ``out``. Raises `SchemaError` where that is not elementwise."""
        if not self.schema.elementwise:
            raise SchemaError(f"{self.name} is not elementwise, so it has no in-place form; give out=")
        return self(*args, out=args[0] if args else None, **scalars)

    def meta(self, *args: Any, **scalars: Any) -> Meta:
        """Shape, dtype and bytes of the result, without memory: arrays, `Meta` or ``(shape, dtype)`` go in.

        Raises
        ------
        SchemaError
            If the op makes no array.
        ArgumentError, ShapeError, DTypeError
            As the call itself.
        """
        bound = self.schema.bind(args, scalars)
        described = {param.name: as_meta(bound[param.name]) for param in self.schema.arrays}
        bound.update(described)
        dtype = self.schema.registry_dtype(_deciding(self.schema, bound))
        if not self.schema.outputs:
            raise SchemaError(f"{self.name} makes no array, so it has no meta; it writes its parameters")
        return Meta(shape_of(self.schema, bound), self.schema.result_dtype(dtype, bound))

    def dtypes(self, kind: str) -> tuple[str, ...]:
        """The registry dtypes that run on `kind`, once that kind is loaded."""
        return registry.dtypes(self, kind)

    def prepare(self, *args: Any, out: Any = None, **scalars: Any) -> Plan:
        """Resolve everything that does not depend on values; the plan's owner may run it many times.

        The plan holds the arrays given here. What an implementation keeps between runs (descriptors, pointer
        tables, workspaces) it returns from its own ``prepare`` attribute, and lives in the plan.

        Parameters
        ----------
        args, scalars
            As for a call.
        out : array, optional
            Written by each run; made here where there is none.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError, DeviceError, CapabilityError
            As a call would.
        """
        bound = self.schema.bind(args, scalars)
        route, device, target = _resolve(self, bound, out)
        if target.kind != device.kind:
            return _plan_across(self, bound, route, out, target)
        out = _output(self, bound, route, target, out)
        if not self.schema.deterministic:
            determinism.alert(self.name)
        custom = getattr(registry.find(self, device.kind, route.dtype), "prepare", None)
        try:
            with route.backend.activate(device.index):
                run = custom(self, bound, out) if custom is not None else partial(route.serve, bound, out)
        except (ArithmeticError, TypeError, ValueError) as error:
            blame(self.schema, bound, dtype_name(route.dtype), out, error)
        execute = partial(_on, route.backend, device.index, run)
        return Plan(self, device, dtype_name(route.dtype), execute, out, bound, getattr(run, "rebind", None))


@dataclass(frozen=True, slots=True)
class Plan:
    """A call made ready: `run` computes on the same arrays again and gives `out`."""

    op: Op
    device: Device
    dtype: str
    execute: Callable[[], Any]
    out: Any
    bound: Mapping[str, Any] = field(default_factory=dict)
    renew: Callable[[Mapping[str, Any]], Callable[[], Any] | None] | None = None

    def run(self) -> Any:
        """Compute; gives the output array (None where the op makes none)."""
        try:
            self.execute()
        except (ArithmeticError, TypeError, ValueError) as error:
            blame(self.op.schema, self.bound, self.dtype, self.out, error)
        return self.out

    def rebind(self, **changed: Any) -> Plan:
        """A plan of the same call with these arguments changed; this one may no longer be run.

        What an implementation has made ready and can keep, it keeps: of a fused optimizer a new learning rate costs
        microseconds, new gradients of the same shapes their addresses. Everything is checked as `Op.prepare` does.
        """
        backend = registry.backend(self.device.kind)
        try:
            run = None if self.renew is None else _on(backend, self.device.index, partial(self.renew, changed))
        except (ArithmeticError, TypeError, ValueError) as error:
            blame(self.op.schema, {**self.bound, **changed}, self.dtype, self.out, error)
        if run is None:
            return self.op.prepare(**{**self.bound, **changed}, out=self.out)
        execute = partial(_on, backend, self.device.index, run)
        return replace(self, execute=execute, bound={**self.bound, **changed})

    def __repr__(self) -> str:
        return f"Plan({self.op.name}, {self.dtype}, {self.device})"


def redispatch(op: Op, kind: str, bound: Mapping[str, Any], dtype: np.dtype[Any], out: Any) -> None:
    """Run kind `kind`'s kernel (or composition) on arrays that are already its own, past interposers and checks."""
    implementation = registry.find(op, kind, dtype)
    if implementation is not None:
        _invoke(op, implementation, bound, out)
    elif op.composite is not None:
        out[...] = op.composite(**bound)
    else:
        raise registry.not_found(op, kind, dtype)


@dataclass(frozen=True, slots=True)
class _Route:
    """What the types and dtypes of a call's operands decide; kept in `registry.routes`.

    Attributes
    ----------
    backend : Backend
        The kind of the arrays.
    places : tuple of int
        Which operands are arrays; the others are Python numbers.
    dtype, result
        The registry dtype; the output's, None where the op makes none.
    serve : callable
        Computes: ``serve(bound, out)``.
    """

    backend: Backend
    places: tuple[int, ...]
    dtype: np.dtype[Any]
    result: np.dtype[Any] | None
    serve: Callable[[dict[str, Any], Any], None]


def _run_call(call: Call) -> Any:
    return _run(call.op, dict(call.arguments), call.out)


def _run(op: Op, bound: dict[str, Any], out: Any) -> Any:
    route, device, target = _resolve(op, bound, out)
    if target.kind != device.kind:
        return _across(op, bound, out, route.backend, target)
    out = _output(op, bound, route, target, out)
    try:
        if is_explaining():
            with within(described(op.name, bound, device)):
                _on(route.backend, device.index, partial(route.serve, bound, out))
        else:
            _on(route.backend, device.index, partial(route.serve, bound, out))
    except (ArithmeticError, TypeError, ValueError) as error:
        blame(op.schema, bound, dtype_name(route.dtype), out, error)
    return out


def _on(backend: Backend, index: int, run: Callable[[], Any]) -> Any:
    """Run a plan, or prepare a new one, with its device current."""
    if backend.is_current(index):
        return run()
    with backend.activate(index):
        return run()


def _resolve(op: Op, bound: Mapping[str, Any], out: Any) -> tuple[_Route, Device, Device]:
    """The route, where the arrays are, and where the output goes: to them, unless the op moves arrays."""
    operands = _operands(op.schema, bound)
    route = _route(op, bound, operands)
    device_of = route.backend.device_of
    if op.schema.is_irregular:
        check_lists(op.schema, bound)
        _check_owner(op, bound, operands, route.backend)
    if op.schema.written:
        check_written(op.schema, bound)
    devices = [device_of(operands[place]) for place in _places(op, route, operands)]
    device = devices[0]
    if devices.count(device) < len(devices):
        place_of(op, bound)  # raises, naming two that differ
    return route, device, device if op.schema.place is None else destination(op, bound, out, device)


def _check_owner(op: Op, bound: Mapping[str, Any], operands: Sequence[Any], backend: Backend) -> None:
    """A route is kept by what decides the dtype: the arrays of the other lists may still be of another kind."""
    if not all(map(backend.owns, set(map(type, operands)))):
        place_of(op, bound)  # raises where one is not an array


def _places(op: Op, route: _Route, operands: Sequence[Any]) -> Sequence[int]:
    """Which operands are arrays; lists hold nothing else, and are of another length at each call."""
    return range(len(operands)) if op.schema.is_irregular else route.places


def _operands(schema: Schema, bound: Mapping[str, Any]) -> Sequence[Any]:
    """The arrays, and the Python numbers that stand for some, in order; lists of arrays one by one."""
    if schema.is_irregular:
        return [value for param in schema.arrays for value in param.values(bound[param.name])]
    return schema.pick_arrays(bound)


def _route(op: Op, bound: Mapping[str, Any], operands: Sequence[Any]) -> _Route:
    routes = registry.routes
    if op.schema.is_irregular:
        operands = _deciding(op.schema, bound)
        key = (op, *dict.fromkeys((type(operand), getattr(operand, "dtype", None)) for operand in operands))
    else:
        key = (op, *[(type(operand), getattr(operand, "dtype", None)) for operand in operands])
    if op.schema.typed_by:
        key = *key, str(bound[op.schema.typed_by])
    found: _Route | None = routes.get(key)
    if found is None:
        found = routes[key] = _find_route(op, bound, operands)
    return found


def _deciding(schema: Schema, bound: Mapping[str, Any]) -> Sequence[Any]:
    """The operands whose promotion is the registry dtype."""
    wanted = schema.decides or schema.array_names
    return [array for param in schema.arrays if param.name in wanted for array in param.values(bound[param.name])]


def _find_route(op: Op, bound: Mapping[str, Any], operands: Sequence[Any]) -> _Route:
    backend, _ = place_of(op, bound)
    dtype = op.schema.registry_dtype([one if is_number(one) else as_dtype(one.dtype) for one in operands])
    places = tuple(place for place, operand in enumerate(operands) if not is_number(operand))
    result = op.schema.result_dtype(dtype, bound) if op.schema.outputs else None
    serve = _server(op, backend.kind, dtype)
    return _Route(backend, places, dtype, result, serve if op.schema.deterministic else _alerting(op, serve))


def _alerting(op: Op, serve: Callable[[dict[str, Any], Any], None]) -> Callable[[dict[str, Any], Any], None]:
    """`serve` of an op that may give other bits at the next run: refused or warned of, where the process asked."""

    def run(bound: dict[str, Any], out: Any) -> None:
        determinism.alert(op.name)
        serve(bound, out)

    return run


def _server(op: Op, kind: str, dtype: np.dtype[Any]) -> Callable[[dict[str, Any], Any], None]:
    """What computes on `kind`: its kernel, its boxed fallback, the composition, else the error that says so."""
    implementation, boxed, composite = registry.find(op, kind, dtype), registry.fallback(kind), op.composite
    if implementation is not None:
        return partial(_invoke, op, implementation)
    if boxed is not None:
        return lambda bound, out: boxed(op, bound, dtype, out)
    if composite is not None and dtype_name(dtype) in registry.dtypes(op, kind):
        return lambda bound, out: registry.op("copy")(composite(**bound), out=out)

    def refuse(bound: dict[str, Any], out: Any) -> None:
        raise registry.not_found(op, kind, dtype)

    return refuse


def _invoke(op: Op, implementation: registry.Implementation, bound: Mapping[str, Any], out: Any) -> None:
    schema = op.schema
    scalars = {name: bound[name] for name in schema.scalar_names} if schema.scalar_names else {}
    if schema.outputs:
        implementation(*schema.pick_arrays(bound), out=out, **scalars)
    else:
        implementation(*schema.pick_arrays(bound), **scalars)


def _plan_across(op: Op, bound: Mapping[str, Any], route: _Route, out: Any, target: Device) -> Plan:
    if out is None:
        (meta,) = op.schema.infer(bound, route.dtype)
        out = registry.backend(target.kind).empty(meta.shape, meta.dtype, target.index)
    run = partial(_across, op, bound, out, route.backend, target)
    return Plan(op, target, dtype_name(route.dtype), run, out)


def _across(op: Op, bound: Mapping[str, Any], out: Any, backend: Backend, target: Device) -> Any:
    """Between kinds: through a host array, which both understand."""
    (_, array), *_ = arrays(op.schema, bound)
    arrived = registry.backend(target.kind).from_host(backend.to_host(array), target.index)
    return arrived if out is None else op(arrived, out=out)


def _output(op: Op, bound: Mapping[str, Any], route: _Route, device: Device, out: Any) -> Any:
    """A new output on `device`, or the caller's, checked; None where the op makes none."""
    schema, backend = op.schema, route.backend
    if route.result is None:
        refuse_out(schema, out)
    try:
        shape = schema.shape(bound)
    except (TypeError, ValueError) as error:  # not `shape_of`: another frame costs each call 1 %
        blame_shape(schema, bound, error)
    if route.result is None:
        return None
    if out is None:
        return backend.empty(shape, route.result, device.index)
    operands = _operands(schema, bound)
    arrays = [operands[place] for place in _places(op, route, operands)]
    check_out(schema, bound, arrays, out, backend=backend, device=device, shape=shape, dtype=route.result)
    return out
