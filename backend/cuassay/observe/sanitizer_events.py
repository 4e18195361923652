"""What a sanitizer does with each watcher event, as calls of its engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cuassay.core.device import Device
from cuassay.core.watchers import Occurrence
from cuassay.order.clock import Queue
from cuassay.order.engine import Engine
from cuassay.order.journal import GIVEN_BACK, TAKEN

__all__ = ["OF_MEMORY", "OF_SUBJECT", "WITHOUT_STREAM", "ActOnMemory", "memory_actions", "with_stream"]

#: Events of which the allocator's form is handled without an occurrence: the number of each in the journal.
OF_MEMORY = {"memory_taken": TAKEN, "memory_returned": GIVEN_BACK}

ActOnMemory = Callable[[str, int, int, Queue], object]


def memory_actions(engine: Engine) -> dict[str, ActOnMemory]:
    """Return what handles the allocator's form of each event of memory."""
    return {"memory_taken": engine.take, "memory_returned": engine.give_back}


#: Events whose subject is a stream.
OF_SUBJECT = frozenset({"stream_synchronized", "stream_found_done"})

#: The action for each event that does not name a stream.
WITHOUT_STREAM: Mapping[str, Callable[[Engine, Occurrence], object]] = {
    "event_dropped": lambda engine, event: engine.drop_event(_kind(event), event.subject),
    "event_synchronized": lambda engine, event: engine.host_waits_for_event(_kind(event), event.subject),
    "event_found_done": lambda engine, event: engine.host_waits_for_event(_kind(event), event.subject),
    "device_synchronized": lambda engine, event: engine.host_waits_for_device(Device(event.device)),
    "graph_captured": lambda engine, event: engine.end_capture(event.subject),
    "graph_updated": lambda engine, event: engine.move_graph(event.subject, event.other),
    "graph_dropped": lambda engine, event: engine.drop_graph(event.subject),
}


def with_stream(engine: Engine) -> dict[str, Callable[[Occurrence, Queue], object]]:
    """Return the action for each event that names a stream."""
    return {
        "accessed": lambda event, queue: engine.launch(queue, event.name, event.accesses),
        "event_recorded": lambda event, queue: engine.record(queue, _kind(event), event.subject),
        "event_waited": lambda event, queue: engine.wait(queue, _kind(event), event.subject),
        "stream_synchronized": lambda event, queue: engine.host_waits_for(queue),
        "stream_found_done": lambda event, queue: engine.host_waits_for(queue),
        "memory_taken": lambda event, queue: engine.take(event.device, event.subject, event.nbytes, queue),
        "memory_recorded": lambda event, queue: engine.use(event.device, event.subject, queue),
        "memory_returned": lambda event, queue: engine.give_back(event.device, event.subject, event.nbytes, queue),
        "graph_capture_begun": lambda event, queue: engine.begin_capture(event.subject, queue),
        "graph_body_begun": lambda event, queue: engine.body(event.subject, queue, begins=True),
        "graph_body_ended": lambda event, queue: engine.body(event.subject, queue, begins=False),
        "graph_replay_begun": lambda event, queue: engine.replay(event.subject, queue),
    }


def _kind(event: Occurrence) -> str:
    return event.device.partition(":")[0]
