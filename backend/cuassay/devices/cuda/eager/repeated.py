"""Calls that come again, past dispatch: what one launched is launched again, on other addresses.

A call of an implementation marked `only_launches` is watched once. Where it made one launch, and each array that this
was given begins where an operand or the output does, then layouts, scalars and alignment decide all of it but the
addresses: a later call alike in these writes its own into the arguments' words and launches. Everything else is left to
dispatch: what is not recognised, an output that overlaps an operand otherwise than it did, addresses aligned to less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import cupy

from cuassay.arrays.layout import byte_range
from cuassay.core import settings
from cuassay.devices.cuda.driver import runtime
from cuassay.devices.cuda.driver.context import refused_in_child
from cuassay.devices.cuda.driver.cupy_private import layout_of
from cuassay.devices.cuda.eager import shortcuts
from cuassay.devices.cuda.eager.shortcuts import ALIGNMENT
from cuassay.devices.cuda.launch.block import STREAM_WORD
from cuassay.devices.cuda.launch.launch import Launched, watched
from cuassay.devices.cuda.memory import hook
from cuassay.ops import Op, registry
from cuassay.ops.placement import is_number

__all__ = ["Repeated", "install", "only_launches"]

Array = Any

#: Forms of call that are kept, and that are counted; with one more, all are dropped.
_MOST_KEPT = 4096

_ndarray: Any = cupy.ndarray
_fresh = hook.fresh
_current_stream = cupy.cuda.get_current_stream
refused_in_child(globals(), "_current_stream", "_fresh")

_Marked = TypeVar("_Marked")


def only_launches(implementation: _Marked) -> _Marked:
    """Mark an implementation whose launches may be repeated without it.

    It launches our kernels, which it chooses by layouts, scalars and by whether addresses are multiples of 16; it calls
    no other op and keeps nothing. What else it does on the device goes through an array of its own, given to a launch.
    """
    implementation.only_launches = True  # type: ignore[attr-defined]
    return implementation


#: A launch made ready: its words, which of them takes which address, the call.
_Ready = tuple[memoryview, tuple[tuple[int, int], ...], Callable[[], int]]


class _Form:
    """A launch that may be repeated.

    Parameters
    ----------
    launched : Launched
        As it was watched.
    arrays : sequence of cupy.ndarray
        The operands, and the output last.

    Attributes
    ----------
    shape, dtype, nbytes
        The output's.
    idle : list
        Launches made ready that no call uses now.
    """

    def __init__(self, launched: Launched, arrays: Sequence[Array]) -> None:
        out, places = arrays[-1], {array.data.ptr: place for place, array in enumerate(arrays)}
        self.shape, self.dtype, self.nbytes = out.shape, out.dtype, out.nbytes
        self._ranges = [byte_range(array.shape, array.strides, array.dtype.itemsize, 0) for array in arrays]
        self._kernel, self._shape = launched.kernel, (launched.grid, launched.block, launched.shared)
        self._types = [type(argument) for argument in launched.arguments]
        block = self._kernel.prepare(self._types)
        block.write(launched.arguments)
        self._constants: Any = block.slots[:]
        self._links = tuple((word, places[launched.arguments[at].data.ptr]) for word, at in block.address_words)
        self.idle: list[_Ready] = []

    def made(self) -> _Ready:
        """One more."""
        block = self._kernel.prepare(self._types)
        block.slots[:] = self._constants
        return block.words, self._links, block.bind(*self._shape)

    def is_apart(self, addresses: Sequence[int]) -> bool:
        """Whether the output shares no memory with an operand, but one that begins where it does, as when watched."""
        target = addresses[-1]
        low, high = self._ranges[-1]
        for address, (first, last) in zip(addresses, self._ranges, strict=True):
            if address != target and address + first < target + high and target + low < address + last:
                return False
        return True


class Repeated:
    """Serves the calls of `op` that come again."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._forms: dict[Any, _Form | Literal[False]] = {}  # False: dispatch's for good
        self._seen: set[Any] = set()
        self._routes = registry.routes

    def __repr__(self) -> str:
        return f"Repeated({self._op.name}, {len(self._forms)} forms kept)"

    def serve(self, operands: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]) -> Any:
        """The result; or `NotImplemented`, and nothing is done."""
        key: list[Any] = []
        addresses: list[int] = []
        bits = 0
        for array in operands if out is None else (*operands, out):
            if array.__class__ is _ndarray:
                layout = layout_of(array)
                key.append(layout if layout[2] else (layout, array.strides))
                address = array.data.ptr
                addresses.append(address)
                bits |= address
            elif is_number(array):
                key.append((array.__class__, array))
            else:
                return NotImplemented
        if bits % ALIGNMENT:
            return NotImplemented
        for name, value in scalars.items():
            key.append((name, value.__class__, value))
        if len(addresses) > 1 and len(set(addresses)) < len(addresses):
            key.append(tuple(map(addresses.index, addresses)))  # which begin in one place decides where results may go
        key.append(out is None)
        return self._repeat(tuple(key), addresses, operands, out, scalars)

    def _repeat(
        self, key: Any, addresses: list[int], operands: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]
    ) -> Any:
        if registry.routes is not self._routes:  # another implementation may serve from here
            self.forget()
        try:
            form = self._forms.get(key)
        except TypeError:  # a scalar that cannot be told from others at once, such as a list
            return NotImplemented
        if form is None:
            return self._watch(key, operands, out, scalars)
        if not form:
            return NotImplemented
        stream = _current_stream().ptr
        if out is None:
            out = _fresh(form.shape, form.dtype, form.nbytes, 0, stream)
            addresses.append(out.data.ptr)
        elif not form.is_apart(addresses):
            return NotImplemented
        try:
            ready = form.idle.pop()
        except IndexError:
            ready = form.made()
        words, links, fire = ready
        for word, place in links:
            words[word] = addresses[place]
        words[STREAM_WORD] = stream
        failed = fire()
        form.idle.append(ready)
        return NotImplemented if failed else out

    def forget(self) -> None:
        """Drop the forms: who replaces a kernel must, or it goes on being launched."""
        self._forms, self._seen, self._routes = {}, set(), registry.routes

    def _watch(self, key: Any, operands: tuple[Any, ...], out: Any, scalars: Mapping[str, Any]) -> Any:
        """The first call of a form is left to dispatch; the second is watched while dispatch serves it."""
        if len(self._forms) + len(self._seen) >= _MOST_KEPT:
            self.forget()
        if key not in self._seen:
            self._seen.add(key)
            return NotImplemented
        forms = self._forms
        with watched() as launches:
            result = self._op.dispatch(operands, out, scalars)
        arrays = [one for one in (*operands, result) if one.__class__ is _ndarray]
        self._seen.discard(key)
        forms[key] = _Form(launches[0], arrays) if self._may_repeat(operands, scalars, launches, arrays) else False
        return result

    def _may_repeat(
        self,
        operands: tuple[Any, ...],
        scalars: Mapping[str, Any],
        launches: Sequence[Launched],
        arrays: Sequence[Array],
    ) -> bool:
        """Whether the launch, and nothing but addresses, is all there is to a call alike."""
        if len(launches) != 1 or launches[0].stream is not None:
            return False
        if any(map(_has_signed_zero, (*operands, *scalars.values()))):
            return False
        dtype = self._op.schema.registry_dtype([one if is_number(one) else one.dtype for one in operands])
        if not getattr(registry.find(self._op, "cuda", dtype), "only_launches", False):
            return False
        known = {array.data.ptr for array in arrays}
        given = [one for one in launches[0].arguments if hasattr(type(one), "__cuda_array_interface__")]
        return all(one.__class__ is _ndarray and one.data.ptr in known for one in given)


def _has_signed_zero(value: Any) -> bool:
    """Whether a number has a part that is 0.0 or -0.0, which are one key."""
    if type(value) is complex:
        return not (value.real and value.imag)
    return type(value) is float and not value


def install(op: Op) -> None:
    """Let calls of `op` that its other shortcuts leave be repeated.

    Not where there are several devices, of which the right one must be made current, nor where launches block.
    """
    if runtime.device_count() == 1 and not settings.get("CUASSAY_LAUNCH_BLOCKING"):
        made = Repeated(op)
        shortcuts.installed.append(made)
        op.shortcuts[_ndarray] = (*op.shortcuts.get(_ndarray, ()), made.serve)
