"""After a fault every call that touches the simulated machine says that it is lost, whichever way it is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuassay import ops
from cuassay.devices.sim import BACKEND
from cuassay.devices.sim.memory_source import SimSource
from cuassay.errors import DeviceLostError

PAGE = 4096


@pytest.fixture
def ready() -> Iterator[SimpleNamespace]:
    """Arrays, a stream, an event, a graph, pinned memory and a source of memory of a machine that is well."""
    with BACKEND.simulated(devices=1) as sim:
        stream = sim.new_stream(0)
        a = sim.from_host(np.ones(8, np.float32), 0)
        graph = sim.new_capture(0)
        stream.wait_stream(sim.current_stream(0))
        graph.begin(stream)
        ops.add(a, a)
        graph.end()
        source = SimSource(sim.machine.devices[0], PAGE)
        span = source.span(8 * PAGE, 0)
        source.map(span, [PAGE])
        yield SimpleNamespace(
            sim=sim,
            a=a,
            xp=sim.namespace(0),
            stream=stream,
            event=stream.record_event(),
            graph=graph,
            pinned=sim.empty_pinned((8,), "float32", 0),
            source=source,
            span=span,
            segment=source.reserve(PAGE, 0),
            marker=source.record(0),
        )


CALLS: dict[str, Callable[[Any], Any]] = {
    "empty": lambda r: r.sim.empty((3,), "float32", 0),
    "from_host": lambda r: r.sim.from_host(np.ones(3), 0),
    "to_host": lambda r: r.sim.to_host(r.a),
    "operator": lambda r: r.a + r.a,
    "in place": lambda r: r.a.__iadd__(1),
    "function": lambda r: r.xp.exp(r.a),
    "namespace's empty": lambda r: r.xp.empty((3,)),
    "numbers": lambda r: r.xp.random.random(3),
    "op": lambda r: ops.add(r.a, r.a),
    "spin": lambda r: r.sim.spin(0, 10),
    "flush_cache": lambda r: r.sim.flush_cache(0),
    "memory_info": lambda r: r.sim.memory_info(0),
    "synchronize": lambda r: r.sim.synchronize(0),
    "stream's query": lambda r: r.stream.query(),
    "stream's synchronize": lambda r: r.stream.synchronize(),
    "record": lambda r: r.event.record(),
    "wait": lambda r: r.event.wait(),
    "event's query": lambda r: r.event.query(),
    "event's synchronize": lambda r: r.event.synchronize(),
    "capture": lambda r: r.sim.new_capture(0).begin(r.stream),
    "replay": lambda r: r.graph.replay(),
    "reset": lambda r: r.graph.reset(),
    "empty_pinned": lambda r: r.sim.empty_pinned((8,), "float32", 0),
    "pinned memory": lambda r: r.pinned.touch("a look", write=True),
    "transfer": lambda r: r.sim.transfer(r.pinned, r.a, non_blocking=True),
    "source's reserve": lambda r: r.source.reserve(PAGE, 0),
    "source's span": lambda r: r.source.span(PAGE, 0),
    "source's map": lambda r: r.source.map(r.span + PAGE, [PAGE]),
    "source's unmap": lambda r: r.source.unmap([r.span]),
    "source's alias": lambda r: r.source.alias([r.span]),
    "source's release": lambda r: r.source.release(r.segment),
    "source's synchronize": lambda r: r.source.synchronize([0]),
    "source's record": lambda r: r.source.record(0),
    "source's wait": lambda r: r.source.wait(0, r.marker),
    "source's query": lambda r: r.source.query(r.marker),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_lost_machine_refuses(ready: SimpleNamespace, call: Callable[[Any], Any]) -> None:
    ready.sim.inject_fault("an assert failed")

    with pytest.raises(DeviceLostError, match="an assert failed"):
        call(ready)
