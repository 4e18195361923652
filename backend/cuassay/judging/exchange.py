"""One call of a candidate's process: what is prepared before the clock runs, and what is read after it has stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from cuassay.judging.arena import Arena, Asked, Layout, form_of
from cuassay.judging.device_arena import DeviceArena
from cuassay.judging.protocol import RawReply, Request, packed
from cuassay.judging.reply import Reply, output_of, raised_of

__all__ = ["Exchange", "Prepared"]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A call whose arrays have their places: the first arena that holds them, their layout, and the arguments."""

    arena: Arena
    layout: Layout
    form: bytes
    arrays: Sequence[NDArray[Any]]

    @classmethod
    def of(
        cls,
        arenas: Sequence[Arena],
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        outputs: Sequence[Asked],
        seed: int | None,
    ) -> Prepared:
        """Place the arrays of a call, and write the poison.

        Raises
        ------
        ArgumentError
            If the arguments cannot be passed to a candidate.
        """
        form, arrays = form_of(arguments, options)
        arena = next((one for one in arenas if one.holds(arrays, outputs)), arenas[-1])
        layout = arena.place(arrays, outputs, seed)
        arena.prepare(layout, arrays)
        return cls(arena, layout, form, arrays)

    def message(self, number: int, *, is_empty: bool = False) -> bytes:
        """Return the request number `number`, as it is stored while the clock runs."""
        is_on_device = isinstance(self.arena, DeviceArena)
        return packed(Request(number, self.form, self.layout.inputs, self.layout.rooms, is_on_device, is_empty))


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """A call and its raw reply; `take` returns the copies of the outputs. For the times see `Reply`."""

    call: Prepared
    take: Callable[[], list[NDArray[Any]]]
    reply: RawReply
    asked_ns: int
    begun_ns: int
    ended_ns: int

    @property
    def seconds(self) -> float | None:
        """The time from the release of the arguments to the end of the copies; None if the candidate raised."""
        return None if self.reply.error is not None else (self.ended_ns - self.begun_ns) * 1e-9

    def read(self, taken: Sequence[NDArray[Any]], outputs: int) -> Reply:
        """Return the call as the judge saw it, with the copies that `take` gave; `outputs` is the expected number."""
        layout, reply = self.call.layout, self.reply
        return Reply(
            outputs=tuple(output_of(reply, *one) for one in enumerate(zip(taken, layout.poisons, strict=True))),
            extra=max(len(reply.claims) - outputs, 0),
            asked_ns=self.asked_ns,
            begun_ns=self.begun_ns,
            ended_ns=self.ended_ns,
            changed=self.call.arena.changed(layout, self.call.arrays),
            device_s=reply.device_s,
            is_queued=reply.is_queued,
            raised=None if reply.error is None else raised_of(reply.error),
        )
