"""Which implementation serves (op, device kind, dtype), and what exists when none does.

Kinds register here when they are loaded. This module imports no kind, with one exception: at the first array or device,
`_loaders` imports `cuassay.devices` by name, which defines how a kind is loaded. A kind may have a *boxed fallback*,
which receives every call for which that kind has no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cuassay.arrays.dtypes import as_dtype, dtype_name
from cuassay.arrays.subclasses import why_refused
from cuassay.core.device import Device
from cuassay.core.protocols import Backend
from cuassay.errors import ArgumentError, DeviceError, KernelNotFoundError, SchemaError

if TYPE_CHECKING:
    from cuassay.ops.operation import Op
    from cuassay.ops.schema import Schema

__all__ = [
    "Fallback",
    "Implementation",
    "backend",
    "backend_for",
    "backend_of",
    "backends",
    "device_of",
    "dtypes",
    "fallback",
    "find",
    "implement",
    "is_declared",
    "not_found",
    "op",
    "ops",
    "owner_of",
    "register_backend",
    "register_fallback",
    "register_op",
    "routes",
    "set_loaders",
    "substituted",
    "unlist",
]

#: Called as ``implementation(*arrays, **scalars, out=out)``; writes `out` (without `out` if the op makes no array).
#: An implementation may carry ``prepare(op, bound, out) -> plan``; see `cuassay.ops.Op.prepare`.
Implementation = Callable[..., None]

#: Called as ``fallback(op, bound, dtype, out)``.
Fallback = Callable[["Op", dict[str, Any], np.dtype[Any], Any], None]

_ops: dict[str, Op] = {}
_unlisted: set[str] = set()
_implementations: dict[tuple[str, str, np.dtype[Any]], Implementation] = {}
_fallbacks: dict[str, tuple[Fallback, str]] = {}
_backends: dict[str, Backend] = {}
_kind_of_type: dict[type, Backend] = {}

#: The routes that dispatch has resolved so far, by op and by the types and dtypes of its operands. A change of the
#: registry replaces the dict and never clears it, because a concurrent call may still store what it resolved before.
routes: dict[tuple[Any, ...], Any] = {}


def _forget_routes() -> None:
    global routes  # noqa: PLW0603  the single dict that dispatch reads at each call
    routes = {}


class _Loaders(NamedTuple):
    """How to load a kind by the type of its arrays, or by its name; either may do nothing."""

    for_type: Callable[[type], object]
    for_kind: Callable[[str], object]


_given_loaders: _Loaders | None = None


def _loaders() -> _Loaders:
    """Return the loaders that `cuassay.devices` set.

    This is the only import from a lower layer to a higher one: a program that imports only ``cuassay.ops`` has loaded
    no kind when its first array arrives.
    """
    if _given_loaders is None:
        import_module("cuassay.devices")
    if _given_loaders is None:  # while it is being imported, for example by a kind's own module
        return _Loaders(lambda array_type: None, lambda kind: None)
    return _given_loaders


def register_op(declared: Op) -> None:
    """Add an op to the catalog. Raises `SchemaError` if the name is taken."""
    if declared.name in _ops:
        raise SchemaError(f"an op named {declared.name!r} exists already; choose another name")
    _ops[declared.name] = declared


def op(name: str) -> Op:
    """Return the declared op of that name. Raises `SchemaError` if there is none."""
    try:
        return _ops[name]
    except KeyError:
        raise SchemaError(
            f"no op is named {name!r}; declare it with cuassay.ops.declare (our own: in cuassay/ops/catalog.py); "
            f"declared so far: {', '.join(sorted(_ops))}"
        ) from None


def ops() -> tuple[Op, ...]:
    """Return every declared op, in the order of declaration, without those passed to `unlist`."""
    return tuple(op for name, op in _ops.items() if name not in _unlisted)


def unlist(name: str) -> None:
    """Omit an op from `ops`: a program generated it from text, and it does not belong to the catalog."""
    _unlisted.add(op(name).name)


def is_declared(name: str) -> bool:
    """Return whether the name of an op is taken."""
    return name in _ops


def implement(name: str, *, kind: str, dtypes: Iterable[str]) -> Callable[[Implementation], Implementation]:
    """Decorate a function that computes op `name` on device kind `kind` for these registry dtypes.

    Raises
    ------
    SchemaError
        If the op is not declared, is not defined for a dtype, or already has that implementation.
    """
    declared = op(name).schema

    def register(function: Implementation) -> Implementation:
        keys = [(name, kind, as_dtype(_defined(declared, dtype))) for dtype in dtypes]
        for key in keys:
            if key in _implementations:
                raise SchemaError(f"{name} on {kind} for {dtype_name(key[2])} is implemented twice; remove one")
        _implementations.update(dict.fromkeys(keys, function))
        _forget_routes()
        return function

    return register


def _defined(schema: Schema, dtype: str) -> str:
    if dtype not in schema.dtypes:
        raise SchemaError(
            f"{schema.name} is not defined for {dtype}, so no kernel can be; defined: {', '.join(schema.dtypes)}"
        )
    return dtype


@contextmanager
def substituted(name: str, *, kind: str, wrap: Callable[[Implementation], Implementation]) -> Iterator[None]:
    """Replace each kernel of `name` on `kind` by `wrap(kernel)` inside the block, to plant faults or observe calls."""
    op(name)
    former = {key: kernel for key, kernel in _implementations.items() if key[:2] == (name, kind)}
    _implementations.update({key: wrap(kernel) for key, kernel in former.items()})
    _forget_routes()
    try:
        yield
    finally:
        _implementations.update(former)
        _forget_routes()


def register_fallback(kind: str, fallback: Fallback, *, like: str) -> None:
    """Send calls of `kind` without a kernel to `fallback`, which supports what kind `like` supports."""
    _fallbacks[kind] = fallback, like
    _forget_routes()


def find(declared: Op, kind: str, dtype: np.dtype[Any]) -> Implementation | None:
    """Return the implementation of exactly (op, kind, dtype), or None."""
    return _implementations.get((declared.name, kind, dtype))


def fallback(kind: str) -> Fallback | None:
    """Return the boxed fallback of `kind`, or None."""
    found = _fallbacks.get(kind)
    return None if found is None else found[0]


def dtypes(declared: Op, kind: str) -> tuple[str, ...]:
    """Return the registry dtypes of `declared` on `kind`, in the schema's order: kernels, fallback and composition."""
    own = {name for name in declared.schema.dtypes if (declared.name, kind, as_dtype(name)) in _implementations}
    if kind in _fallbacks:
        own |= set(dtypes(declared, _fallbacks[kind][1]))
    if declared.parts:
        own |= set.intersection(*(set(dtypes(op(part), kind)) for part in declared.parts))
    return tuple(name for name in declared.schema.dtypes if name in own)


def not_found(declared: Op, kind: str, dtype: np.dtype[Any]) -> KernelNotFoundError:
    """Return the error that lists what exists instead."""
    here = ", ".join(dtypes(declared, kind)) or "no dtype"
    elsewhere = [other for other in _backends if dtype_name(dtype) in dtypes(declared, other)]
    return KernelNotFoundError(
        f"{declared.name} has no kernel for {dtype_name(dtype)} on {kind}; {kind} has it for {here}; "
        f"of the loaded kinds, {', '.join(elsewhere) or 'none'} has it for {dtype_name(dtype)}; "
        f"cast, move the arrays, or register one with cuassay.ops.implement"
    )


def register_backend(backend: Backend) -> None:
    """Make a kind's arrays known to dispatch; the kind's module calls it when it loads."""
    _backends[backend.kind] = backend
    _kind_of_type.clear()
    _forget_routes()


def backends() -> tuple[Backend, ...]:
    """Return the kinds loaded so far."""
    return tuple(_backends.values())


def set_loaders(*, for_type: Callable[[type], object], for_kind: Callable[[str], object]) -> None:
    """Set how to load a kind by the type of its arrays, or by its name; either may do nothing."""
    global _given_loaders  # noqa: PLW0603  one pair for the process
    _given_loaders = _Loaders(for_type, for_kind)


def backend_of(array_type: type) -> Backend | None:
    """Return the kind that owns arrays of this type, loading it if necessary; None if it is not an array type."""
    found = _kind_of_type.get(array_type)
    if found is None:
        found = _owner(array_type)
        if found is None and _loaders().for_type(array_type):
            found = _owner(array_type)
        if found is not None:
            _kind_of_type[array_type] = found
    return found


def backend_for(array: Any) -> Backend | None:
    """Return the kind of `array`, or of the array that it represents while calls are recorded."""
    found = backend_of(type(array))
    if found is None and hasattr(type(array), "represents"):
        return backend_for(array.represents)
    return found


def owner_of(array: Any, what: str) -> Backend:
    """Return the kind that owns `array`, named `what` in errors. Raises `ArgumentError` if no kind owns it."""
    found = backend_of(type(array))
    if found is None:
        if hasattr(type(array), "represents"):
            raise array.left(what)
        why = why_refused(type(array))
        if why is not None:
            raise ArgumentError(f"{what} is of a type that no operation takes; got {_type_name(array)}: {why}")
        raise ArgumentError(f"{what} is not an array of any known device kind; got {_type_name(array)}; {_MAKE_ONE}")
    return found


_MAKE_ONE = "make one of it: numpy.asarray(...) on the host, cuassay.from_host(..., device) on another device"


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def device_of(array: Any, what: str) -> Device:
    """Return the device of `array`, or of the array that it represents; see `owner_of` for errors."""
    while hasattr(type(array), "represents"):
        array = array.represents
    return owner_of(array, what).device_of(array)


def _owner(array_type: type) -> Backend | None:
    return next((backend for backend in _backends.values() if backend.owns(array_type)), None)


def backend(kind: str) -> Backend:
    """Return the backend of `kind`, loading it if necessary. Raises `DeviceError` if there is none."""
    if kind not in _backends:
        _loaders().for_kind(kind)
    try:
        return _backends[kind]
    except KeyError:
        raise DeviceError(f"there is no device kind {kind!r}; loaded: {', '.join(_backends) or 'none'}") from None
