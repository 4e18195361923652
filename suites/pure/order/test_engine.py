"""The happens-before engine with made-up streams, events and addresses: torch's tests of its CUDA sanitizer, and ours.

Source of the behaviours: ``test/test_cuda_sanitizer.py`` of PyTorch 2.4. An array of torch's is a data pointer; here it
is four bytes at an address.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from cuassay.core.device import Device
from cuassay.errors import RaceError
from cuassay.order.accesses import Span
from cuassay.order.engine import Engine
from cuassay.order.extents import Extent

DEVICE = Device("cuda", 0)
A, B = (1000, 2000)
SIZE = 1000


def extent(address: int, size: int = 1, *, is_told: bool = True, memory: str = "cuda:0") -> Extent:
    return Extent(
        memory,
        address,
        (size,),
        (4,),
        np.dtype("float32"),
        Span(address, address + 4 * size, dense=True),
        is_told=is_told,
    )


class Program:
    """An engine, and short words for what it is told."""

    def __init__(self) -> None:
        self.engine = Engine()

    def queue(self, stream: int, device: Device = DEVICE) -> Any:
        return self.engine.queue(device, stream)

    def launch(self, stream: int, reads: Iterable[int] = (), writes: Iterable[int] = ()) -> None:
        accesses = [*((extent(one), False) for one in reads), *((extent(one), True) for one in writes)]
        self.engine.launch(self.queue(stream), f"kernel on {stream}", accesses, ("program.py", stream))

    def races(self, stream: int, reads: Sequence[int] = (), writes: Sequence[int] = ()) -> bool:
        try:
            self.launch(stream, reads, writes)
        except RaceError:
            return True
        return False

    def record(self, event: int, stream: int) -> None:
        self.engine.record(self.queue(stream), "cuda", event)

    def wait(self, event: int, stream: int) -> None:
        self.engine.wait(self.queue(stream), "cuda", event)


@pytest.fixture
def p() -> Program:
    return Program()


# ------------------------------------------------------------------------------------------------ torch's


def test_a_launch_without_arrays_races_with_nothing(p: Program) -> None:
    assert not p.races(1)


def test_reads_on_two_streams_pass(p: Program) -> None:
    p.launch(1, reads=[A])

    assert not p.races(2, reads=[A])


def test_a_write_after_a_read_without_a_wait_is_found(p: Program) -> None:
    p.launch(1, reads=[A])

    assert p.races(2, writes=[A])


def test_with_an_event_it_passes(p: Program) -> None:
    p.launch(1, reads=[A])
    p.record(0, 1)
    p.wait(0, 2)

    assert not p.races(2, writes=[A])


@pytest.mark.parametrize("waits", [True, False])
def test_a_read_is_held_against_the_last_write_though_others_read_in_between(p: Program, waits: bool) -> None:
    p.launch(1, writes=[A])
    p.record(0, 1)
    p.wait(0, 2)
    p.launch(2, reads=[A])
    if waits:
        p.wait(0, 3)

    assert p.races(3, reads=[A]) is not waits


@pytest.mark.parametrize("waits", [True, False])
def test_two_branches_of_one_stream_are_ordered_after_it(p: Program, waits: bool) -> None:
    p.launch(1, reads=[A], writes=[B])
    p.record(0, 1)
    p.wait(0, 2)
    p.launch(2, writes=[A])
    if waits:
        p.wait(0, 3)

    assert p.races(3, writes=[B]) is not waits


@pytest.mark.parametrize("length", [2, 5, 10])
def test_waits_are_passed_on_along_a_chain_of_streams(p: Program, length: int) -> None:
    p.launch(0, reads=[A])
    for stream in range(length - 1):
        p.record(stream, stream)
        p.wait(stream, stream + 1)

    assert not p.races(length - 1, writes=[A])


def test_a_wait_for_a_record_of_before_the_access_does_not_help(p: Program) -> None:
    p.record(0, 1)
    p.launch(1, writes=[A])
    p.wait(0, 2)

    assert p.races(2, reads=[A])


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_dropped_event_holds_nothing(p: Program, is_dropped: bool) -> None:
    p.launch(1, writes=[A])
    p.record(0, 1)
    if is_dropped:
        p.engine.drop_event("cuda", 0)
    p.wait(0, 2)

    assert p.races(2, reads=[A]) is is_dropped


@pytest.mark.parametrize("missed", [None, 0, 1, 2])
def test_a_write_is_held_against_every_read(p: Program, missed: int | None) -> None:
    for stream in range(3):
        p.launch(stream, reads=[A])
        p.record(stream, stream)
        if stream != missed:
            p.wait(stream, 3)

    assert p.races(3, writes=[A]) is (missed is not None)


def test_one_launch_may_race_twice_and_the_first_is_told(p: Program) -> None:
    p.launch(1, writes=[A, B])

    with pytest.raises(RaceError, match="address 0x3e8"):
        p.launch(2, writes=[A, B])
    assert len(p.engine.found) == 1


def test_states_are_merged_and_not_replaced(p: Program) -> None:
    for stream, array in ((1, A), (2, B)):
        p.launch(stream, writes=[array])
        p.record(stream, stream)
        p.wait(stream, 3)
    p.record(3, 3)
    p.wait(3, 4)

    assert not p.races(4, reads=[A, B])


def test_a_second_record_replaces_the_first(p: Program) -> None:
    p.launch(1, writes=[A])
    p.record(0, 1)
    p.launch(2, writes=[B])
    p.record(0, 2)
    p.wait(0, 3)

    assert not p.races(3, reads=[B])
    assert p.races(3, reads=[A])


def test_a_stream_may_wait_for_several_events(p: Program) -> None:
    p.launch(1, writes=[A])
    p.record(0, 1)
    p.record(1, 1)
    p.wait(0, 2)
    p.wait(1, 2)

    assert not p.races(2, writes=[A])


def test_a_wait_for_the_device_orders_what_was_before_it_alone(p: Program) -> None:
    p.launch(1, writes=[A])
    p.engine.host_waits_for_device(DEVICE)
    assert not p.races(2, writes=[A])

    assert p.races(1, writes=[A])


def test_a_stream_that_is_met_after_a_wait_is_ordered_after_it(p: Program) -> None:
    p.launch(1, writes=[A])
    p.engine.host_waits_for_device(DEVICE)

    assert not p.races(7, writes=[A])


def test_a_wait_of_the_host_for_a_stream_orders_every_other_stream(p: Program) -> None:
    p.launch(1, writes=[A])
    p.launch(2, writes=[B])
    p.engine.host_waits_for(p.queue(1))

    assert not p.races(3, reads=[A])
    assert p.races(3, reads=[B])


def test_a_wait_of_the_host_for_an_event_orders_what_it_holds(p: Program) -> None:
    p.launch(1, writes=[A])
    p.record(0, 1)
    p.launch(1, writes=[B])
    p.engine.host_waits_for_event("cuda", 0)

    assert not p.races(2, reads=[A])
    assert p.races(2, reads=[B])


@pytest.mark.parametrize("call", ["wait", "drop", "synchronize"])
def test_an_event_that_is_older_than_the_sanitizer_holds_nothing(p: Program, call: str) -> None:
    if call == "wait":
        p.wait(5, 1)
    elif call == "drop":
        p.engine.drop_event("cuda", 5)
    else:
        p.engine.host_waits_for_event("cuda", 5)

    assert not p.races(1, writes=[A])


def test_the_message_names_both_launches_their_arrays_lines_and_streams_and_the_wait(p: Program) -> None:
    p.launch(1, writes=[A])

    with pytest.raises(RaceError) as caught:
        p.launch(2, reads=[A])

    assert str(caught.value) == (
        "cuda:0: read by kernel on 2 of a float32 array of shape (1,) (4 B at address 0x3e8) on stream 2 at "
        "program.py:2 is not ordered after the write by kernel on 1 of a float32 array of shape (1,) (4 B at address "
        "0x3e8) on stream 1 at program.py:1; insert stream2.wait_stream(stream1) before the read, or wait for an event "
        "recorded after the write"
    )


# ------------------------------------------------------------------------------------------------ devices, streams


def test_advice_names_the_devices_where_there_are_two(p: Program) -> None:
    p.launch(1, writes=[A])

    with pytest.raises(RaceError, match=r"insert stream1@cuda:1.wait_stream\(stream1@cuda:0\)"):
        p.engine.launch(p.queue(1, Device("cuda", 1)), "peer", [(extent(A), False)])


def test_a_wait_for_one_device_leaves_the_other(p: Program) -> None:
    other = p.queue(1, Device("cuda", 1))
    p.engine.launch(other, "peer", [(extent(A), True)])
    p.engine.host_waits_for_device(DEVICE)

    assert p.races(1, reads=[A])


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("order", [(0, 5), (5, 0)], ids=["default first", "default last"])
def test_the_legacy_default_stream_waits_for_blocking_streams(
    p: Program, blocking: bool, order: tuple[int, int]
) -> None:
    p.queue(0)
    p.engine.queue(DEVICE, 5, blocking=blocking)
    p.launch(order[0], writes=[A])

    assert p.races(order[1], reads=[A]) is not blocking


def test_an_event_on_the_legacy_default_stream_holds_what_blocking_streams_were_given(p: Program) -> None:
    p.engine.queue(DEVICE, 5, blocking=True)
    p.launch(5, writes=[A])
    p.record(0, 0)
    p.wait(0, 1)

    assert not p.races(1, reads=[A])


@pytest.mark.parametrize("blocking", [True, False])
def test_a_wait_of_the_host_for_the_legacy_default_stream_includes_blocking_streams(p: Program, blocking: bool) -> None:
    p.engine.queue(DEVICE, 5, blocking=blocking)
    p.launch(5, writes=[A])
    p.engine.host_waits_for(p.queue(0))

    assert p.races(1, reads=[A]) is not blocking


# ------------------------------------------------------------------------------------------------ memory


def test_memory_that_is_given_out_again_has_no_former_accesses(p: Program) -> None:
    p.engine.take("cuda:0", A, 512, p.queue(1))
    p.launch(1, writes=[A])
    p.engine.give_back("cuda:0", A, 512, p.queue(1))
    p.engine.take("cuda:0", A, 512, p.queue(2))

    assert not p.races(2, writes=[A])


@pytest.mark.parametrize("cure", [None, "wait", "record", "host"])
def test_memory_that_is_freed_while_another_stream_uses_it(p: Program, cure: str | None) -> None:
    p.engine.take("cuda:0", A, 512, p.queue(1))
    p.launch(2, writes=[A])
    if cure == "wait":
        p.record(0, 2)
        p.wait(0, 1)
    elif cure == "record":
        p.engine.use("cuda:0", A, p.queue(2))
    elif cure == "host":
        p.engine.host_waits_for(p.queue(2))

    p.engine.give_back("cuda:0", A, 512, p.queue(1))

    if cure is None:
        with pytest.raises(
            RaceError, match=r"early free at \S*test_engine\.py:\d+ of stream 1's memory, .*record_stream"
        ):
            p.engine.raise_late()
    p.engine.raise_late()


@pytest.mark.parametrize("call", ["launch", "stream", "event", "device", "replay"])
def test_an_early_free_is_told_by_the_next_launch_or_wait(p: Program, call: str) -> None:
    p.engine.take("cuda:0", A, 512, p.queue(1))
    p.launch(2, writes=[A])
    p.engine.give_back("cuda:0", A, 512, p.queue(1))
    calls = {
        "launch": lambda: p.launch(1),
        "stream": lambda: p.engine.host_waits_for(p.queue(3)),
        "event": lambda: p.engine.host_waits_for_event("cuda", 9),
        "device": lambda: p.engine.host_waits_for_device(DEVICE),
        "replay": lambda: p.engine.replay(1, p.queue(1)),
    }

    with pytest.raises(RaceError, match="early free"):
        calls[call]()


def test_memory_of_which_nobody_tells_is_left_out_and_counted(p: Program) -> None:
    foreign = extent(A, is_told=False)
    for stream in (1, 2):
        p.engine.launch(p.queue(stream), "kernel", [(foreign, True)])

    assert sum(p.engine.unseen.values()) == 2


def test_memory_of_which_nobody_tells_is_judged_while_it_is_known(p: Program) -> None:
    p.engine.take("cuda:0", A - 100, 512, p.queue(1))
    p.engine.launch(p.queue(1), "kernel", [(extent(A, is_told=False), True)])

    assert p.races(2, writes=[A])
    assert not p.engine.unseen


def test_a_block_is_found_by_an_address_inside_it_alone(p: Program) -> None:
    p.engine.take("cuda:0", 100, 50, p.queue(1))
    for address in (99, 150):
        p.engine.launch(p.queue(1), "kernel", [(extent(address, is_told=False), True)])
    p.engine.launch(p.queue(1), "kernel", [(extent(146, is_told=False), True)])

    assert sum(p.engine.unseen.values()) == 2


@pytest.mark.parametrize("parts", [1, 4, 40])
@pytest.mark.parametrize("seed", range(5))
def test_accesses_of_a_block_are_judged_as_those_of_memory_without_blocks(parts: int, seed: int) -> None:
    of_a_block, without = Program(), Program()
    of_a_block.engine.take("cuda:0", 0, 4 * SIZE, of_a_block.queue(1))

    pairs = zip(verdicts(of_a_block, seed, parts), verdicts(without, seed, parts), strict=True)
    assert [launch for launch, (found, expected) in enumerate(pairs) if found is not expected] == []


@pytest.mark.parametrize("is_block", [True, False], ids=["block", "no block"])
def test_a_write_with_gaps_keeps_the_accesses_of_the_elements_it_skips(p: Program, is_block: bool) -> None:
    if is_block:
        p.engine.take("cuda:0", A, 512, p.queue(1))
    p.launch(1, writes=[A + 4])
    p.record(0, 1)
    p.wait(0, 2)
    p.engine.launch(p.queue(2), "kernel", [(every_other(A), True)])

    assert p.races(3, reads=[A + 4])


@pytest.mark.parametrize("place", [0, 20, 39])
def test_each_of_many_accesses_of_one_block_is_held(p: Program, place: int) -> None:
    p.engine.take("cuda:0", 0, 4 * SIZE, p.queue(1))
    for one in range(40):
        p.launch(1, writes=[4 * one])

    assert len(p.engine) == 40
    assert p.races(2, reads=[4 * place])


def test_early_frees_of_a_block_with_many_accesses_are_found(p: Program) -> None:
    p.engine.take("cuda:0", 0, 4 * SIZE, p.queue(1))
    for one in range(40):
        p.launch(2, writes=[4 * one])
    p.engine.give_back("cuda:0", 0, 4 * SIZE, p.queue(1))

    with pytest.raises(RaceError, match="early free"):
        p.launch(1)


def verdicts(p: Program, seed: int, parts: int) -> list[bool]:
    """Of each launch of a random program on four streams, whether it races.

    Arrays begin at one of `parts` places, or up to two elements behind it, so that some lie in the gaps of others.
    """
    draw, found = random.Random(seed), []  # noqa: S311  a program, no secret
    for _ in range(2000):
        stream, other, write = draw.randrange(4), draw.randrange(4), draw.random() < 0.4
        act, begin = draw.random(), 4 * (SIZE // parts * draw.randrange(parts) + draw.randrange(3))
        size = 1 if draw.random() < 0.9 else SIZE - begin // 4
        array = every_other(begin) if draw.random() < 0.4 else extent(begin, size)
        if act < 0.35:
            p.record(0, other)
            p.wait(0, stream)
        elif act < 0.37:
            p.engine.host_waits_for(p.queue(stream))
        else:
            try:
                p.engine.launch(p.queue(stream), "kernel", [(array, write)], ("program.py", 1))
            except RaceError:
                found.append(True)
            else:
                found.append(False)
    return found


def every_other(begin: int) -> Extent:
    """Two elements with one left out between them."""
    place = Span(begin, begin + 12, dense=False)
    return Extent("cuda:0", begin, (2,), (8,), np.dtype("float32"), place)


def test_quiet_engines_raise_and_keep_nothing(p: Program) -> None:
    p.engine.is_quiet = True
    p.launch(1, writes=[A])
    p.launch(2, writes=[A])
    p.engine.is_quiet = False

    assert p.engine.found == []
    assert not p.races(2, writes=[A])


# ------------------------------------------------------------------------------------------------ graphs


def test_a_capture_is_judged_at_its_replays(p: Program) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.launch(1, writes=[A])
    p.engine.end_capture(1)
    assert not p.races(2, writes=[A])

    with pytest.raises(RaceError):
        p.engine.replay(1, p.queue(1))


def test_replays_of_one_graph_follow_each_other(p: Program) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.launch(1, writes=[A])
    p.engine.end_capture(1)

    p.engine.replay(1, p.queue(1))
    p.engine.replay(1, p.queue(2))


def test_a_replay_follows_the_last_one_and_not_what_came_after_it(p: Program) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.launch(1, writes=[A])
    p.engine.end_capture(1)
    p.engine.replay(1, p.queue(1))
    p.launch(1, writes=[B])

    p.engine.replay(1, p.queue(2))

    assert p.races(2, reads=[B])


def test_work_after_a_replay_is_not_recorded(p: Program) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.engine.end_capture(1)
    p.launch(1, writes=[A])

    assert p.races(2, writes=[A])


@pytest.mark.parametrize("end", ["end", "drop"])
def test_after_the_end_of_a_capture_all_its_streams_are_free(p: Program, end: str) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.record(0, 1)
    p.wait(0, 2)
    p.launch(2)
    p.engine.end_capture(1) if end == "end" else p.engine.drop_graph(1)

    p.launch(2, writes=[A])
    assert p.races(1, writes=[A])


def test_a_graph_that_was_not_seen_is_counted(p: Program) -> None:
    p.engine.replay(77, p.queue(1))

    assert sum(p.engine.unseen.values()) == 1


def test_an_event_of_a_capture_holds_nothing_after_it(p: Program) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.record(0, 1)
    p.engine.end_capture(1)
    p.wait(0, 2)
    p.launch(2, writes=[A])

    assert p.races(1, writes=[A])


def test_the_memory_of_a_graph_is_not_freed_too_early_by_who_drops_its_arrays(p: Program) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.engine.take("cuda:0", A, 512, p.queue(1))
    p.launch(1, writes=[A])
    p.engine.end_capture(1)
    p.engine.give_back("cuda:0", A, 512, p.queue(1))
    p.engine.replay(1, p.queue(2))

    p.engine.raise_late()
    assert p.races(3, reads=[A])


def test_memory_from_outside_must_live_as_long_as_the_graph(p: Program) -> None:
    p.engine.take("cuda:0", A, 512, p.queue(1))
    p.engine.begin_capture(1, p.queue(1))
    p.launch(1, reads=[A])
    p.engine.end_capture(1)
    p.engine.replay(1, p.queue(1))
    p.engine.give_back("cuda:0", A, 512, p.queue(1))

    with pytest.raises(RaceError, match=r"a replay of kernel on 1, captured at program.py:1, reads a float32 array"):
        p.engine.replay(1, p.queue(1))


def test_graphs_that_share_memory_race_where_their_replays_are_not_ordered(p: Program) -> None:
    for graph, stream in ((1, 1), (2, 2)):
        p.engine.begin_capture(graph, p.queue(stream))
        p.engine.take("cuda:0", A, 512, p.queue(stream))
        p.launch(stream, writes=[A])
        p.engine.end_capture(graph)
        p.engine.give_back("cuda:0", A, 512, p.queue(stream))
        if graph == 1:
            p.engine.replay(1, p.queue(1))

    with pytest.raises(RaceError, match="write by kernel on 2"):
        p.engine.replay(2, p.queue(2))


def test_work_after_a_replay_follows_all_of_its_branches(p: Program) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.record(0, 1)
    p.wait(0, 2)
    p.launch(2, writes=[A])  # how it is joined was not seen
    p.engine.end_capture(1)
    p.engine.replay(1, p.queue(1))

    assert not p.races(1, reads=[A])
    assert p.races(2, reads=[A])


def test_a_block_whose_free_was_not_seen_is_gone_when_its_address_is_given_out_again(p: Program) -> None:
    p.engine.take("cuda:0", A, 512, p.queue(1))
    p.engine.begin_capture(1, p.queue(1))
    p.launch(1, reads=[A])
    p.engine.end_capture(1)
    p.engine.take("cuda:0", A, 512, p.queue(1))

    with pytest.raises(RaceError, match="early free: a replay"):
        p.engine.replay(1, p.queue(1))


def test_the_body_of_a_conditional_node_is_recorded_on_whatever_stream_it_is_given(p: Program) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.engine.body(1, p.queue(5), begins=True)
    p.launch(5, writes=[A])
    p.engine.body(1, p.queue(5), begins=False)
    p.engine.end_capture(1)
    p.launch(5, writes=[B])  # outside: not recorded
    p.engine.replay(1, p.queue(1))

    assert not p.races(1, reads=[A])
    assert p.races(1, reads=[B])


def test_a_replay_into_a_capture_is_left_to_the_kind_which_refuses_it(p: Program) -> None:
    p.engine.begin_capture(1, p.queue(1))
    p.launch(1, writes=[A])
    p.engine.end_capture(1)
    p.engine.begin_capture(2, p.queue(2))
    p.engine.replay(1, p.queue(2))

    assert not p.races(3, writes=[A])


def test_what_an_allocator_gives_back_in_order_has_no_accesses_and_its_neighbours_keep_theirs(p: Program) -> None:
    p.launch(1, writes=[A, B])

    p.engine.forget("cuda:0", A, 4)

    assert [p.races(2, writes=[one]) for one in (A, B)] == [False, True]


@pytest.mark.parametrize("other", [2, 9], ids=["a graph that was seen", "one that was not"])
def test_a_graph_that_takes_over_another_has_that_ones_work_alone(p: Program, other: int) -> None:
    for graph, address in ((1, A), (2, B)):
        p.engine.begin_capture(graph, p.queue(1))
        p.launch(1, writes=[address])
        p.engine.end_capture(graph)

    p.engine.move_graph(1, other)
    p.engine.replay(1, p.queue(1))
    p.engine.replay(other, p.queue(1))

    assert [p.races(2, reads=[one]) for one in (A, B)] == [False, other == 2]
    assert sum(p.engine.unseen.values()) == (1 if other == 2 else 2)
