"""One call of an op, from arguments to kernel: bind, interpose, route, place, check the output, run.

Interposers (autocast, tracing, profiling) see every call, outermost first, without being imported here. If none is set,
a call pays for one comparison. `schema` defines an operation, and `registry` finds its implementation. Decisions that
depend only on the operands' types and dtypes are made once and cached as a `_Route`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.core import determinism
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.errors import ArgumentError
from cuassay.ops import formats, functional, registry
from cuassay.ops.arguments import blame, blame_shape, check_lists, output_shape
from cuassay.ops.explain import described, is_explaining, note, within
from cuassay.ops.interposers import interposers, through
from cuassay.ops.operation import Call, Op, promoted_operands
from cuassay.ops.outputs import check_apart, check_out, check_outs, check_written, refuse_out
from cuassay.ops.placement import arrays, destination, is_number, place_of
from cuassay.ops.plan import Plan, on
from cuassay.ops.schema import Schema
from cuassay.ops.several_outputs import each_shape

__all__ = ["dispatch", "prepare", "redispatch"]


def dispatch(op: Op, args: Sequence[Any], out: Any, scalars: Mapping[str, Any]) -> Any:
    """Run one call through the interposers and return its result."""
    bound = op.schema.bind(args, scalars)
    if interposers.stack:
        return through(interposers.stack, Call(op, bound, out), _run_call)
    return _run(op, bound, out)


def prepare(op: Op, args: Sequence[Any], out: Any, scalars: Mapping[str, Any]) -> Plan:
    """Make the plan of one call; see `Op.prepare`."""
    bound = op.schema.bind(args, scalars)
    route, device, target = _resolve(op, bound, out)
    if target.kind != device.kind:
        return _plan_across(op, bound, route, out, target)
    if out is None and op.schema.view_of:
        return _plan_view(op, bound, route, device)
    out = route.output(op, bound, route, target, out)
    if not op.schema.deterministic:
        determinism.alert(op.name)
    custom = getattr(registry.find(op, device.kind, route.dtype), "prepare", None)
    try:
        with route.backend.activate(device.index):
            run = custom(op, bound, out) if custom is not None else partial(route.serve, bound, out)
    except (ArithmeticError, TypeError, ValueError) as error:
        blame(op.schema, bound, dtype_name(route.dtype), out, error)
    execute = partial(on, route.backend, device.index, run)
    return Plan(op, device, dtype_name(route.dtype), execute, out, bound, getattr(run, "rebind", None))


def redispatch(op: Op, kind: str, bound: Mapping[str, Any], dtype: np.dtype[Any], out: Any) -> None:
    """Run the kernel or composition of `kind` on arrays of that kind, without interposers and checks."""
    implementation = registry.find(op, kind, dtype)
    if implementation is not None:
        _invoke(op, implementation, bound, out)
    elif op.composite is not None:
        out[...] = op.composite(**bound)
    else:
        raise registry.not_found(op, kind, dtype)


@dataclass(frozen=True, slots=True)
class _Route:
    """The decisions that depend only on the types and dtypes of a call's operands; cached in `registry.routes`.

    Attributes
    ----------
    backend : Backend
        The backend of the arrays' kind.
    places : tuple of int
        Which operands are arrays; the others are Python numbers.
    dtype, result
        The registry dtype; the output's dtype, a tuple for several outputs, or None if the op makes no array.
    serve : callable
        Computes the result: ``serve(bound, out)``.
    output : callable
        Returns a new output, or checks the caller's: ``output(op, bound, route, device, out)``.
    """

    backend: Backend
    places: tuple[int, ...]
    dtype: np.dtype[Any]
    result: Any
    serve: Callable[[dict[str, Any], Any], None]
    output: Callable[[Op, Mapping[str, Any], Any, Device, Any], Any]


def _run_call(call: Call) -> Any:
    served = NotImplemented if interposers.is_explaining else call.op.run_bound(call.arguments, call.out)
    return _run(call.op, dict(call.arguments), call.out) if served is NotImplemented else served


def _run(op: Op, bound: dict[str, Any], out: Any) -> Any:
    route, device, target = _resolve(op, bound, out)
    if target.kind != device.kind:
        return _across(op, bound, out, route.backend, target)
    if out is None and op.schema.view_of:
        return _view(op, bound, route, device)
    out = route.output(op, bound, route, target, out)
    try:
        if interposers.is_explaining:
            with within(described(op.name, bound, device)):
                on(route.backend, device.index, partial(route.serve, bound, out))
        elif route.backend.is_current(device.index):  # as `on` does; its frame and the `partial` cost 4 % of a call
            route.serve(bound, out)
        else:
            on(route.backend, device.index, partial(route.serve, bound, out))
    except (ArithmeticError, TypeError, ValueError) as error:
        blame(op.schema, bound, dtype_name(route.dtype), out, error)
    return out


def _view(op: Op, bound: Mapping[str, Any], route: _Route, device: Device) -> Any:
    """Return the view that the op's composition makes; kinds with views move no data."""
    output_shape(op.schema, bound)
    view = partial(cast("Callable[..., Any]", op.composite), **bound)
    if is_explaining():
        with within(described(op.name, bound, device)):
            note(f"a view of {op.schema.view_of}, where its strides allow one")
    return on(route.backend, device.index, view)


def _plan_view(op: Op, bound: Mapping[str, Any], route: _Route, device: Device) -> Plan:
    """Return a plan whose output is a view of the array; if it had to be a copy, each run copies again."""
    out = _view(op, bound, route, device)
    shares = route.backend.overlap(bound[op.schema.view_of], out) != "none"
    run: Callable[[], Any] = (lambda: None) if shares or not out.size else partial(route.serve, dict(bound), out)
    return Plan(op, device, dtype_name(route.dtype), partial(on, route.backend, device.index, run), out, bound)


def _resolve(op: Op, bound: Mapping[str, Any], out: Any) -> tuple[_Route, Device, Device]:
    """Return the route, the arrays' device, and the output's device, which differs only if the op moves arrays."""
    operands = _operands(op.schema, bound)
    route = _route(op, bound, operands)
    device_of = route.backend.device_of
    places: Sequence[int] = route.places  # not by `_places`: another frame costs 2 % per call
    if op.schema.is_irregular:
        check_lists(op.schema, bound)
        _check_owner(op, bound, operands, route.backend)
        places = range(len(operands))
    if op.schema.written:
        check_written(op.schema, bound)
    devices = [device_of(operands[place]) for place in places]
    device = devices[0]
    if devices.count(device) < len(devices):
        place_of(op, bound)  # raises, and names two arrays on different devices
    return route, device, device if op.schema.place is None else destination(op, bound, out, device)


def _check_owner(op: Op, bound: Mapping[str, Any], operands: Sequence[Any], backend: Backend) -> None:
    """Raise if an array is of another kind; a cached route is chosen only by the lists that decide the dtype."""
    if not all(map(backend.owns, set(map(type, operands)))):
        place_of(op, bound)  # raises if an argument is not an array


def _places(op: Op, route: _Route, operands: Sequence[Any]) -> Sequence[int]:
    """Return which operands are arrays; lists hold only arrays, and their length may change between calls."""
    return range(len(operands)) if op.schema.is_irregular else route.places


def _operands(schema: Schema, bound: Mapping[str, Any]) -> Sequence[Any]:
    """Return the arrays, and the Python numbers given for arrays, in order; lists are flattened."""
    if schema.is_irregular:
        return [value for param in schema.arrays for value in param.values(bound[param.name])]
    return schema.pick_arrays(bound)


def _route(op: Op, bound: Mapping[str, Any], operands: Sequence[Any]) -> _Route:
    routes = registry.routes
    if op.schema.is_irregular:
        operands = promoted_operands(op.schema, bound)
        key = (op, *dict.fromkeys((type(operand), getattr(operand, "dtype", None)) for operand in operands))
    else:
        key = (op, *[(type(operand), getattr(operand, "dtype", None)) for operand in operands])
    if op.schema.out_dtype_from:
        key = *key, str(bound[op.schema.out_dtype_from])
    found: _Route | None = routes.get(key)
    if found is None:
        found = routes[key] = _find_route(op, bound, operands)
    return found


def _find_route(op: Op, bound: Mapping[str, Any], operands: Sequence[Any]) -> _Route:
    backend, _ = place_of(op, bound)
    if all(map(is_number, operands)):  # an array of one element counts as a number here
        raise ArgumentError(f"{op.name} needs at least one array in {op.schema.arrays[0].name}; got an empty list")
    dtype = op.schema.registry_dtype(
        [one if is_number(one) else as_dtype(one.dtype) for one in promoted_operands(op.schema, bound)]
    )
    places = tuple(place for place, operand in enumerate(operands) if not is_number(operand))
    if op.schema.functional_of:
        return _Route(backend, places, dtype, None, partial(_run_on_copies, op), _copies)
    result = op.schema.result_dtype(dtype, bound) if op.schema.outputs else None
    serve = _kernel_for(op, backend.kind, dtype)
    output = _output if op.schema.is_single else _outputs if op.schema.outputs else _no_output
    return _Route(backend, places, dtype, result, serve if op.schema.deterministic else _alerting(op, serve), output)


def _alerting(op: Op, serve: Callable[[dict[str, Any], Any], None]) -> Callable[[dict[str, Any], Any], None]:
    """Wrap the `serve` of a nondeterministic op, so that it warns or raises if the process asked for determinism."""

    def run(bound: dict[str, Any], out: Any) -> None:
        determinism.alert(op.name)
        serve(bound, out)

    return run


def _kernel_for(op: Op, kind: str, dtype: np.dtype[Any]) -> Callable[[dict[str, Any], Any], None]:
    """Return what computes on `kind`: its kernel, the boxed fallback, the composition, or a function that raises."""
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
    if schema.is_single:
        implementation(*schema.pick_arrays(bound), out=out, **scalars)
    else:
        implementation(*schema.pick_arrays(bound), *(out or ()), **scalars)


def _plan_across(op: Op, bound: Mapping[str, Any], route: _Route, out: Any, target: Device) -> Plan:
    if out is None:
        out = _output(op, bound, replace(route, backend=registry.backend(target.kind)), target, None)
    run = partial(_across, op, bound, out, route.backend, target)
    return Plan(op, target, dtype_name(route.dtype), run, out)


def _across(op: Op, bound: Mapping[str, Any], out: Any, backend: Backend, target: Device) -> Any:
    """Copy between kinds through a host array, which both kinds understand."""
    (_, array), *_ = arrays(op.schema, bound)
    output_shape(op.schema, bound)
    arrived = registry.backend(target.kind).from_host(backend.to_host(array), target.index)
    if out is not None:
        return op(arrived, out=out)
    wanted = formats.wanted_of(array, bound.get("memory_format", "preserve"))
    return arrived if formats.suggest_memory_format(arrived) == wanted else op(arrived, memory_format=wanted)


def _output(op: Op, bound: Mapping[str, Any], route: _Route, device: Device, out: Any) -> Any:
    """Return a new output on `device`, or the caller's output after checking it."""
    schema, backend = op.schema, route.backend
    try:
        shape = schema.shape(bound)
    except (TypeError, ValueError) as error:  # inlined `output_shape`: another frame costs 1 % per call
        blame_shape(schema, bound, error)
    if out is None:
        if len(shape) == 4 and schema.channels_last is not None and schema.channels_last(bound, shape):
            return formats.with_channels_last(lambda stored: backend.empty(stored, route.result, device.index), shape)
        return backend.empty(shape, route.result, device.index)
    operands = _operands(schema, bound)
    arrays = [operands[place] for place in _places(op, route, operands)]
    check_out(schema, bound, arrays, out, backend=backend, device=device, shape=shape, dtype=route.result)
    return out


def _outputs(op: Op, bound: Mapping[str, Any], route: _Route, device: Device, out: Any) -> Any:
    """Return a named tuple of new outputs, or of the caller's outputs after checking them."""
    schema, backend = op.schema, route.backend
    made = cast("Callable[..., Any]", schema.result_type)
    shapes = each_shape(schema, output_shape(schema, bound))
    if out is None:
        wanted = zip(shapes, route.result, strict=True)
        return made(*(backend.empty(shape, dtype, device.index) for shape, dtype in wanted))
    operands = _operands(schema, bound)
    arrays = [operands[place] for place in _places(op, route, operands)]
    check_outs(schema, bound, arrays, out, backend=backend, device=device, shapes=shapes, dtypes=route.result)
    return made(*out)


def _copies(op: Op, bound: Mapping[str, Any], route: _Route, device: Device, out: Any) -> Any:
    """Return new arrays for the copies of a functional form, or the caller's after checking them."""
    schema, backend = op.schema, route.backend
    if out is not None:
        found = functional.given(schema, bound, out)
        operands = [operand for operand in _operands(schema, bound) if not is_number(operand)]
        for name, array, one in functional.pairs(schema, bound, found):
            check_out(
                schema, bound, operands, one, backend=backend, device=device, shape=tuple(array.shape),
                dtype=array.dtype, name=f"out for {name}",
            )  # fmt: skip
        check_apart(schema, list(functional.each(out)), backend)
        check_written(registry.op(schema.functional_of).schema, found)
    else:
        found = {
            name: functional.over(bound[name], lambda one: backend.empty(tuple(one.shape), one.dtype, device.index))
            for name in schema.outputs
        }
    output_shape(schema, {**bound, **found})  # the rule of the op, for the arrays that it will get
    return functional.result(schema, found) if out is None else out


def _run_on_copies(op: Op, bound: Mapping[str, Any], out: Any) -> None:
    """Copy to `out` what the op writes, and call it on the copies."""
    found, copy = functional.by_name(op.schema, out), registry.op("copy")
    for _, array, one in functional.pairs(op.schema, bound, found):
        copy(array, out=one)
    registry.op(op.schema.functional_of)(**{**bound, **found})


def _no_output(op: Op, bound: Mapping[str, Any], route: _Route, device: Device, out: Any) -> None:
    """Reject `out`, and check the arguments of an op that makes no array."""
    refuse_out(op.schema, out)
    try:
        op.schema.shape(bound)
    except (TypeError, ValueError) as error:
        blame_shape(op.schema, bound, error)
