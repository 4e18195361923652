"""Find which arrays a call reads and writes, by its op's schema, and where they are in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cuassay.core.device import Device
from cuassay.core.protocols import Observable
from cuassay.errors import CuassayError
from cuassay.ops import Op, registry
from cuassay.order.extents import Extent

__all__ = [
    "Described",
    "Look",
    "Touched",
    "Work",
    "by_call",
    "by_schema",
    "described",
    "described_call",
    "is_always_observable",
    "is_observable",
    "located",
    "look_at",
    "outputs",
]

#: The device of the first array, the other devices, and the extent of each array with whether it is written.
Work = tuple[Device, list[Device], list[tuple[Extent, bool]]]

#: Types that may be passed in place of an array. Asking the registry who owns them is slow, so they are skipped.
_NUMBERS = frozenset({bool, int, float, complex, type(None)})

#: By kind: whether it is `Observable`, and whether it may find races itself. Cached, because checking is slow.
_offers: dict[str, tuple[bool, bool]] = {}

#: Arrays, each with whether it is written.
Touched = list[tuple[Any, bool]]


def by_call(op: Op, args: Sequence[Any], out: Any, scalars: Mapping[str, Any]) -> Touched:
    """Return the arrays that a call touches.

    The list is empty if the arguments do not fit the schema, because the call itself will raise.
    """
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
    """Return the arrays that a call touches, for arguments bound by name.

    `out` counts as written. An op that returns a view touches nothing.
    """
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
    """Return the arrays that a call has made or writes: one, those of a tuple or of lists, or none.

    Lists inside a list are looked into, and none below them: `result` may be a wrong `out`, such as a list that
    contains itself.
    """
    return [(array, True) for one in _members(result) for array in _members(one) if array is not None]


def _members(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


def _shares(array: Any, view: Any) -> bool:
    backend = registry.backend_of(type(view))
    return backend is not None and backend.owns(type(array)) and backend.overlap(array, view) != "none"


def is_observable(backend: Any) -> bool:
    """Return whether the kind offers what a sanitizer needs and does not find races itself."""
    if backend is None:
        return False
    offers = _offers.get(backend.kind)
    if offers is None:  # cached: an isinstance check of a protocol and a failed attribute look-up are slow
        is_observable_type = isinstance(backend, Observable)
        offers = _offers[backend.kind] = is_observable_type, is_observable_type and hasattr(backend, "finds_races")
    is_observable_type, may_judge = offers
    return is_observable_type and not (may_judge and backend.finds_races)


def is_always_observable(kind: str) -> bool:
    """Return whether `is_observable` was true for the kind and cannot change."""
    return _offers.get(kind) == (True, False)


class Look(NamedTuple):
    """How the traits of one type of array are found; see `cuassay.core.protocols.Observable`."""

    kind: str
    array_type: type
    traits_of: Callable[[Any], tuple[Any, ...]]
    extent_of: Callable[[tuple[Any, ...]], Extent]
    memories: dict[int, str]

    def memory(self, index: int) -> str:
        """Return the name of a device's memory, and keep it in `memories`."""
        return self.memories.setdefault(index, f"{self.kind}:{index}")


#: How the arrays' traits are found, the index of their device, the traits of each, and whether each is written.
Described = tuple[Look, int, list[tuple[Any, ...]], Sequence[bool]]


_looks: dict[type, Look] = {}


def look_at(array_type: type) -> Look | None:
    """Return how the traits of such arrays are found, or None if their kind does not tell."""
    backend: Any = registry.backend_of(array_type)
    traits = getattr(backend, "traits", None)
    if traits is None or not is_observable(backend) or not is_always_observable(backend.kind):
        return None
    traits_of, extent_of = traits
    found = _looks[array_type] = Look(backend.kind, array_type, traits_of, extent_of, {})
    return found


def described_call(op: Op, args: Sequence[Any], out: Any, scalars: Mapping[str, Any]) -> Described | None:
    """Return `described` of the arrays that a call touches; None also if the arguments do not fit the schema."""
    writes = op.schema.writes
    if writes is None or scalars or len(writes) != len(args):
        return described(by_call(op, args, out, scalars))
    if args and args[-1].__class__ in _NUMBERS:
        args, writes = args[:-1], writes[:-1]
    try:  # most calls have arrays of one type alone; other objects lack one of the attributes
        look = _looks[args[0].__class__]
        found = list(map(look.traits_of, args))
        if out is not None:
            found.append(look.traits_of(out))
            writes = (*writes, True)
    except (AttributeError, IndexError, KeyError, ValueError):  # a ValueError: `data` of NumPy's bfloat16 arrays
        return described(by_call(op, args, out, scalars))
    index = found[0][1]
    for traits in found:
        if traits[1] != index:
            return None
    return look, index, found, writes


def described(arrays: Iterable[tuple[Any, bool]]) -> Described | None:
    """Return the traits of arrays of one type on one device; None for all other arrays."""
    look: Look | None = None
    index = -1
    found: list[tuple[Any, ...]] = []
    writes: list[bool] = []
    for array, write in arrays:
        array_type = array.__class__
        if array_type in _NUMBERS:
            continue
        if look is None:
            look = _looks.get(array_type) or look_at(array_type)
        if look is None or look.array_type is not array_type:
            return None
        traits = look.traits_of(array)
        if traits[1] != index and found:
            return None
        index = traits[1]
        found.append(traits)
        writes.append(write)
    return None if look is None else (look, index, found, writes)


def located(arrays: Touched) -> Work | None:
    """Return the devices and extents of the arrays that a sanitizer can observe, or None if there are none."""
    home: Device | None = None
    others: list[Device] = []
    found: list[tuple[Extent, bool]] = []
    last: type = type(None)
    device_of: Callable[[Any], Device] | None = None
    extent: Callable[[Any], Extent] | None = None
    for array, write in arrays:
        if array.__class__ is not last:  # usually all arrays have one type
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
