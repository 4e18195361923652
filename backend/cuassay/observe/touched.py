"""Which arrays a call reads and writes, by its op's schema, and where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuassay.core.device import Device
from cuassay.core.protocols import Observable
from cuassay.errors import CuassayError
from cuassay.ops import Op, registry
from cuassay.order.extents import Extent

__all__ = ["Work", "by_call", "by_schema", "is_observable", "located", "outputs"]

#: The device of the first array, the other devices, and where all arrays lie, and whether each is written.
Work = tuple[Device, list[Device], list[tuple[Extent, bool]]]

#: What may stand for an array; to ask which kind owns one of these is slow.
_NUMBERS = frozenset({bool, int, float, complex, type(None)})

#: By kind, whether it is `Observable`, which is slow to find out, and whether it may find races itself.
_offers: dict[str, tuple[bool, bool]] = {}

#: Arrays, and whether each is written.
Touched = list[tuple[Any, bool]]


def by_call(op: Op, args: Sequence[Any], out: Any, scalars: Mapping[str, Any]) -> Touched:
    """The arrays of a call; none where its arguments do not fit, which the call itself refuses."""
    writes = op.schema.writes
    if (
        writes is not None
        and len(writes) == len(args)
        and (not scalars or scalars.keys() <= set(op.schema.scalar_names))
    ):
        found = list(zip(args, writes))  # noqa: B905  the lengths are compared already
        if out is not None:
            found += outputs(out)
        return found
    try:
        bound = op.schema.bind(args, scalars)
        return by_schema(op, bound, out)
    except (CuassayError, TypeError, ValueError):
        return []


def by_schema(op: Op, bound: Mapping[str, Any], out: Any) -> Touched:
    """The arrays of a call whose arguments are given by name; `out` is written. A view touches nothing."""
    if op.schema.view_of and (out is None or _shares(bound[op.schema.view_of], out)):
        return []
    found: Touched = []
    for param in op.schema.arrays:
        write, value = param.access != "read", bound[param.name]
        if isinstance(value, (list, tuple)):
            found += [(array, write) for _, array in param.members(value)]
        else:
            found.append((value, write))
    return found if out is None else found + outputs(out)


def outputs(result: Any) -> Touched:
    """The arrays that a call has made or written: one, those of a tuple, or none."""
    if isinstance(result, (tuple, list)):
        return [(one, True) for one in result]
    return [] if result is None else [(result, True)]


def _shares(array: Any, view: Any) -> bool:
    backend = registry.backend_of(type(view))
    return backend is not None and backend.owns(type(array)) and backend.overlap(array, view) != "none"


def is_observable(backend: Any) -> bool:
    """Whether the kind offers what a sanitizer needs, and finds no races itself."""
    if backend is None:
        return False
    offers = _offers.get(backend.kind)
    if offers is None:  # whether it says anything of races is asked once too: to miss an attribute is slow
        is_one = isinstance(backend, Observable)
        offers = _offers[backend.kind] = is_one, is_one and hasattr(backend, "finds_races")
    is_one, may_judge = offers
    return is_one and not (may_judge and backend.finds_races)


def is_always_observable(kind: str) -> bool:
    """Whether `is_observable` said so of the kind, and will again."""
    return _offers.get(kind) == (True, False)


def located(arrays: Touched) -> Work | None:
    """The device of the first of `arrays` that a sanitizer sees, the other devices, and where all of these lie."""
    home: Device | None = None
    others: list[Device] = []
    found: list[tuple[Extent, bool]] = []
    last: type = type(None)
    device_of: Callable[[Any], Device] | None = None
    extent: Callable[[Any], Extent] | None = None
    for array, write in arrays:
        if array.__class__ is not last:  # mostly all are of one type
            last = array.__class__
            backend: Any = None if last in _NUMBERS else registry.backend_of(last)
            if is_observable(backend):
                device_of, extent = backend.device_of, backend.extent
            else:
                device_of = None
        if device_of is None or extent is None:
            continue
        device = device_of(array)
        if home is None:
            home = device
        elif device is not home and device != home and device not in others:
            others.append(device)
        found.append((extent(array), write))
    return None if home is None else (home, others, found)
