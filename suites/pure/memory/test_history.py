"""What an allocator remembers: which events with which stacks, the ring, what a snapshot holds, files and back."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from cuassay.core.watchers import watch
from cuassay.errors import ArgumentError, OutOfMemoryError
from cuassay.memory import CachingAllocator, HostAllocator, IntegerSource
from cuassay.memory.history import ACTIONS
from cuassay.memory.snapshot import combined, dump, load

MIB = 2**20


@pytest.fixture
def allocator() -> CachingAllocator:
    return CachingAllocator(IntegerSource(200 * MIB, is_lazy=True, granularity=0), config="")


def told(allocator: CachingAllocator) -> list[tuple[str, int]]:
    """Of all but the looks taken at it here."""
    events = allocator.snapshot()["device_traces"][0]
    return [(event["action"], event["size"]) for event in events if event["action"] != "snapshot"]


def ask(allocator: CachingAllocator, nbytes: int) -> Any:
    """The function that stacks must name."""
    return allocator.malloc(nbytes)


# ------------------------------------------------------------------------------------------------ events


def test_requests_and_frees_are_told_in_order(allocator: CachingAllocator) -> None:
    allocator.record_history()

    block = ask(allocator, 3 * MIB)
    allocator.free(block)
    allocator.free(ask(allocator, 3 * MIB))
    allocator.empty_cache()

    pair = [("free_requested", 3 * MIB), ("free_completed", 3 * MIB)]
    assert told(allocator) == [
        ("segment_alloc", 20 * MIB),
        ("alloc", 3 * MIB),
        *pair,
        ("alloc", 3 * MIB),
        *pair,
        ("segment_free", 20 * MIB),
    ]


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
@pytest.mark.parametrize("seed", range(3))
def test_memory_is_placed_as_without_a_history(granularity: int, seed: int) -> None:
    plain, watched = (
        CachingAllocator(IntegerSource(2048 * MIB, is_lazy=True, granularity=granularity), config="") for _ in range(2)
    )
    watched.record_history()

    assert placed(watched, seed) == placed(plain, seed)


def placed(allocator: CachingAllocator, seed: int) -> list[int]:
    """The address of each block that a random run of requests and frees on two streams is given."""
    draw = random.Random(seed)  # noqa: S311  a program, no secret
    live: list[Any] = []
    addresses = []
    for _ in range(200):
        if live and draw.random() < 0.5:
            allocator.free(live.pop(draw.randrange(len(live))))
        else:
            live.append(allocator.malloc(draw.choice([512, 5000, MIB, 3 * MIB, 12 * MIB]), draw.choice([0, 7])))
            addresses.append(live[-1].address)
    return addresses


def test_a_capture_reuses_what_a_former_one_of_its_pool_freed_while_somebody_watches() -> None:
    with watch(lambda occurrence: None):
        allocator = CachingAllocator(IntegerSource(), config="", name="cuda:0")
        pool = allocator.create_pool()
        addresses = []
        for _ in range(3):
            with allocator.capturing(), allocator.use_pool(pool):
                block = allocator.malloc(4096, 7)
                allocator.free(block)
            addresses.append(block.address)

    assert len(set(addresses)) == 1


@pytest.mark.parametrize("users", [(), (7,)], ids=["one stream", "used by another"])
@pytest.mark.parametrize("is_recorded", [False, True], ids=["plain", "recorded"])
def test_watchers_are_told_of_each_request_and_free_while_they_watch(is_recorded: bool, users: tuple[int, ...]) -> None:
    heard: list[Any] = []
    early = CachingAllocator(IntegerSource(), config="", name="early")
    with watch(heard.append, ("memory_taken", "memory_returned")):
        late = CachingAllocator(IntegerSource(), config="", name="late")
        for allocator in (early, late):
            if is_recorded:
                allocator.record_history()
            for _ in range(2):  # a miss, and a hit where no other stream uses it
                use(allocator, users)
    use(early, users)

    assert [(one.device, one.event, one.stream, one.nbytes) for one in heard] == [
        (name, event, 3, 4096)
        for name in ("early", "early", "late", "late")
        for event in ("memory_taken", "memory_returned")
    ]
    assert (early.history is None) is not is_recorded


def test_a_watcher_may_take_the_figures_of_memory_events() -> None:
    told: list[Any] = []
    figures: list[Any] = []
    allocator = CachingAllocator(IntegerSource(), config="", name="it")
    events = ("memory_taken", "memory_returned")
    of_memory = {event: lambda *given, event=event: figures.append((event, *given)) for event in events}
    with watch(told.append, events), watch(lambda _: None, events, of_memory=of_memory):
        for users in ((), (), (7,)):
            use(allocator, users)
    use(allocator, ())

    assert figures == [(one.event, one.device, one.subject, one.stream, one.nbytes) for one in told]
    assert len(figures) == 6


def use(allocator: CachingAllocator, users: tuple[int, ...]) -> None:
    block = allocator.malloc(4096, 3)
    for user in users:
        allocator.record_stream(block, user)
    allocator.free(block)


def test_pages_that_come_and_go_are_told() -> None:
    allocator = CachingAllocator(IntegerSource(), config="")
    allocator.record_history(skip_actions=["alloc", "free_requested", "free_completed", "snapshot"])
    block = ask(allocator, 5 * MIB)
    address = block.address

    allocator.free(block)
    allocator.empty_cache()

    assert told(allocator) == [("segment_map", 6 * MIB), ("segment_unmap", 6 * MIB)]
    assert {event["addr"] for event in allocator.snapshot()["device_traces"][0]} == {address}


def test_a_block_that_another_stream_uses_is_completed_when_that_is_done(allocator: CachingAllocator) -> None:
    allocator.record_history(skip_actions=["segment_alloc"])
    block = ask(allocator, 12 * MIB)
    allocator.record_stream(block, 3)

    allocator.free(block)
    before = told(allocator)
    allocator.malloc(12 * MIB)

    assert [action for action, _ in before] == ["alloc", "free_requested"]
    assert [action for action, _ in told(allocator)][2:] == ["free_completed", "alloc"]


def test_running_out_is_told_with_what_was_free(allocator: CachingAllocator) -> None:
    allocator.record_history()
    ask(allocator, 150 * MIB)
    with pytest.raises(OutOfMemoryError):
        ask(allocator, 100 * MIB)

    (event,) = (entry for entry in allocator.snapshot()["device_traces"][0] if entry["action"] == "oom")

    assert event["size"] == 100 * MIB
    assert "addr" not in event
    assert event["frames"][0]["name"] == "ask"


def test_blocks_from_before_are_told_of_when_they_are_freed(allocator: CachingAllocator) -> None:
    early = ask(allocator, 3 * MIB)
    allocator.record_history()

    allocator.free(early)
    ask(allocator, 4 * MIB)
    allocator.empty_cache()

    assert ("free_completed", 3 * MIB) in told(allocator)


def test_every_event_says_when_where_and_for_which_stream_and_pool(allocator: CachingAllocator) -> None:
    allocator.record_history()
    pool = allocator.create_pool()
    with allocator.use_pool(pool):
        block = allocator.malloc(5 * MIB, 7)

    event = allocator.snapshot()["device_traces"][0][-1]

    assert (event["addr"], event["stream"], event["pool_id"]) == (block.address, 7, pool.id)
    assert event["time_us"] > 1.7e15
    assert event["action"] in ACTIONS


# ------------------------------------------------------------------------------------------------ stacks


def test_events_of_one_stack_share_its_frames(allocator: CachingAllocator) -> None:
    allocator.record_history()
    for _ in range(2):
        ask(allocator, MIB)

    first, second = (e for e in allocator.snapshot()["device_traces"][0] if e["action"] == "alloc")

    assert first["frames"] is second["frames"]


def test_a_stack_begins_with_who_asked_not_with_us(allocator: CachingAllocator) -> None:
    allocator.record_history()
    ask(allocator, MIB)

    frames = allocator.snapshot()["device_traces"][0][-1]["frames"]

    assert [frame["name"] for frame in frames[:2]] == [
        "ask",
        "test_a_stack_begins_with_who_asked_not_with_us",
    ]
    assert frames[0]["filename"] == __file__
    assert Path(__file__).read_text(encoding="utf-8").splitlines()[frames[0]["line"] - 1] == (
        "    return allocator.malloc(nbytes)"
    )


@pytest.mark.parametrize(
    ("context", "of_blocks", "of_requests", "of_frees"),
    [(None, 0, 0, 0), ("state", 1, 0, 0), ("alloc", 1, 1, 0), ("all", 1, 1, 1)],
)
def test_the_context_says_which_events_have_stacks(
    allocator: CachingAllocator, context: str | None, of_blocks: int, of_requests: int, of_frees: int
) -> None:
    allocator.record_history(context=context)
    kept, dropped = ask(allocator, MIB), ask(allocator, MIB)
    allocator.free(dropped)
    snapshot = allocator.snapshot()

    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    (live,) = (block for block in blocks if block["address"] == kept.address)
    by_action = {event["action"]: bool(event["frames"]) for event in snapshot["device_traces"][0]}

    assert (bool(live["frames"]), by_action["alloc"], by_action["free_requested"]) == (
        bool(of_blocks),
        bool(of_requests),
        bool(of_frees),
    )
    assert by_action["segment_alloc"] == bool(of_frees)


def test_state_keeps_the_stacks_of_live_blocks_and_no_events(allocator: CachingAllocator) -> None:
    allocator.record_history("state")
    block = ask(allocator, MIB)

    snapshot = allocator.snapshot()

    assert snapshot["device_traces"] == [[]]
    assert snapshot["segments"][0]["blocks"][0]["address"] == block.address
    assert snapshot["segments"][0]["blocks"][0]["frames"][0]["name"] == "ask"
    allocator.free(block)
    assert allocator.snapshot()["segments"][0]["blocks"][0]["frames"] == []


# ------------------------------------------------------------------------------------------------ on and off


def test_as_many_entries_as_nobody_has_memory_for_are_all(allocator: CachingAllocator) -> None:
    allocator.record_history(max_entries=2**70)

    allocator.free(allocator.malloc(4096))

    assert allocator.heap.history is not None
    assert len(allocator.heap.history) >= 2


def test_the_ring_keeps_the_newest(allocator: CachingAllocator) -> None:
    allocator.record_history(max_entries=3)
    for size in range(1, 10):
        ask(allocator, size * 512)

    assert [size for _, size in told(allocator)] == [7 * 512, 8 * 512, 9 * 512]


def test_off_a_block_that_is_used_again_has_not_the_stack_of_its_former_owner(allocator: CachingAllocator) -> None:
    allocator.record_history()
    former = ask(allocator, MIB)
    allocator.record_history(None)

    allocator.free(former)
    again = allocator.malloc(MIB)

    assert again is former
    assert allocator.snapshot()["segments"][0]["blocks"][0]["frames"] == []


def test_a_snapshot_is_an_event_that_the_next_one_tells(allocator: CachingAllocator) -> None:
    allocator.record_history()
    ask(allocator, 3 * MIB)

    first, second = (allocator.snapshot()["device_traces"][0] for _ in range(2))

    assert [event["action"] for event in first] == ["segment_alloc", "alloc"]
    assert second[:-1] == first
    event = {name: second[-1][name] for name in ("action", "size", "stream", "addr", "pool_id", "frames")}
    assert event == {"action": "snapshot", "size": 3 * MIB, "stream": 0, "addr": 0, "pool_id": (0, 0), "frames": []}


def test_off_nothing_more_is_kept_and_what_was_stays_until_it_is_cleared(allocator: CachingAllocator) -> None:
    allocator.record_history()
    ask(allocator, MIB)
    kept = told(allocator)

    allocator.record_history(None)
    allocator.free(ask(allocator, MIB))

    assert told(allocator) == kept
    allocator.record_history(None, clear_history=True)
    assert allocator.snapshot()["device_traces"] == []


def test_on_again_goes_on_and_cleared_begins_again(allocator: CachingAllocator) -> None:
    allocator.record_history()
    ask(allocator, MIB)
    allocator.record_history()
    ask(allocator, 2 * MIB)
    assert [size for action, size in told(allocator) if action == "alloc"] == [MIB, 2 * MIB]

    allocator.record_history(clear_history=True)
    block = ask(allocator, 2 * MIB)
    allocator.free(block)

    assert [action for action, _ in told(allocator)] == ["alloc", "free_requested", "free_completed"]


def test_on_again_live_blocks_keep_their_stacks(allocator: CachingAllocator) -> None:
    allocator.record_history()
    block = ask(allocator, 3 * MIB)

    allocator.record_history()

    assert allocator.history is not None
    assert ask.__code__ in [code for code, _ in allocator.history.frames_of(block.address)]


def test_a_freed_block_has_no_stack(allocator: CachingAllocator) -> None:
    allocator.record_history()
    block = ask(allocator, 3 * MIB)

    allocator.free(block)

    assert allocator.history is not None
    assert allocator.history.frames_of(block.address) == ()


@pytest.mark.parametrize("users", [(), (7,)], ids=["one stream", "used by another"])
def test_blocks_of_one_size_from_before_and_from_meanwhile_all_go_back(
    allocator: CachingAllocator, users: tuple[int, ...]
) -> None:
    early = allocator.malloc(3 * MIB)
    allocator.record_history()
    late = allocator.malloc(3 * MIB)
    for user in users:
        allocator.record_stream(early, user)
    allocator.free(early)
    allocator.empty_cache()

    allocator.free(late)

    assert allocator.empty_cache() == 20 * MIB


def test_off_a_hit_is_the_hit_it_was(allocator: CachingAllocator) -> None:
    """The quick lists serve again, without a miss, once recording has stopped."""
    allocator.record_history()
    allocator.free(ask(allocator, MIB))
    allocator.record_history(None, clear_history=True)
    allocator.free(ask(allocator, MIB))
    stream_pool = allocator.stream_pool(0)
    stream_pool._miss = None  # type: ignore[assignment]

    for _ in range(3):
        allocator.free(stream_pool.malloc(MIB))


@pytest.mark.parametrize(
    "wrong",
    [
        {"enabled": "some"},
        {"context": "stack"},
        {"stacks": "c++"},
        {"max_entries": 0},
        {"skip_actions": ["malloc"]},
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_and_changes_nothing(allocator: CachingAllocator, wrong: dict[str, Any]) -> None:
    allocator.record_history()
    ask(allocator, MIB)
    kept = told(allocator)

    with pytest.raises(ArgumentError):
        allocator.record_history(**wrong)

    ask(allocator, 2 * MIB)
    assert told(allocator)[: len(kept)] == kept
    assert len(told(allocator)) > len(kept)


def test_what_is_told_adds_up_to_what_is_live() -> None:
    """A random program, with recording switched at random: no block is lost, and the events of one stretch balance."""
    chance = random.Random(3)  # noqa: S311
    source = IntegerSource(is_lazy=False, granularity=0)
    allocator = CachingAllocator(source, config="")
    live: list[Any] = []
    for step in range(4000):
        if step % 500 == 250:
            allocator.record_history(chance.choice(["all", "state", None]), clear_history=chance.random() < 0.5)
        if live and chance.random() < 0.5:
            allocator.free(live.pop(chance.randrange(len(live))))
        else:
            live.append(allocator.malloc(chance.choice([512, 5000, 3 * MIB, chance.randrange(1, MIB)])))
            if chance.random() < 0.1:
                allocator.record_stream(live[-1], 5)
    allocator.record_history("all", clear_history=True)
    before = allocator.statistics().active_bytes.all.current
    for block in live:
        allocator.free(block)
    again = [allocator.malloc(1000) for _ in range(50)]
    allocator.empty_cache()

    moves = {"alloc": 1, "free_completed": -1}
    balance = sum(moves.get(action, 0) * size for action, size in told(allocator))
    assert balance == sum(block.nbytes for block in again) - before
    assert allocator.statistics().allocated_bytes.all.current == sum(block.nbytes for block in again)


def test_pinned_memory_has_a_history_too() -> None:
    host = HostAllocator(IntegerSource(granularity=0), config="")
    host.record_history()

    host.free(ask(host, 5 * MIB))

    assert [action for action, _ in told(host)][-3:] == ["alloc", "free_requested", "free_completed"]


@pytest.mark.parametrize("granularity", [0, 2 * MIB], ids=["segments", "pages"])
def test_entries_of_segments_are_the_memory_taken_each_byte_once(granularity: int) -> None:
    """Ranges that grow, small segments out of their pages and views of several: a random program, looked at often."""
    chance, live = random.Random(7), []  # noqa: S311
    allocator = CachingAllocator(IntegerSource(granularity=granularity), config="")
    for step in range(1500):
        if live and chance.random() < 0.5:
            allocator.free(live.pop(chance.randrange(len(live))))
        else:
            live.append(allocator.malloc(chance.choice([700, 3 * MIB, chance.randrange(1, 60 * MIB)])))
        if step % 100 == 0:
            segments = allocator.snapshot()["segments"]
            for entry in segments:
                assert entry["total_size"] == sum(block["size"] for block in entry["blocks"])
                assert entry["address"] == entry["blocks"][0]["address"]
            assert sum(entry["total_size"] for entry in segments) == allocator.statistics().reserved_bytes.all.current
            blocks = {block["address"]: block["requested_size"] for entry in segments for block in entry["blocks"]}
            asked = {block.address: block.requested for block in live}
            assert blocks == dict.fromkeys(blocks, 0) | asked


# ------------------------------------------------------------------------------------------------ files


@pytest.fixture
def snapshot(allocator: CachingAllocator) -> dict[str, Any]:
    allocator.record_history()
    kept = [ask(allocator, size) for size in (MIB, 3 * MIB, 512)]
    allocator.free(kept.pop())
    return allocator.snapshot()


@pytest.mark.parametrize(("name", "format"), [("s.json", "json"), ("s.json.gz", "json"), ("s.pickle", "torch")])
def test_a_snapshot_is_written_and_read_back(
    snapshot: dict[str, Any],
    tmp_path: Path,
    name: str,
    format: str,  # noqa: A002
) -> None:
    dump(snapshot, tmp_path / name, format)

    assert json.dumps(load(tmp_path / name)) == json.dumps(snapshot)


def test_the_torch_format_is_a_pickle_of_plain_data_in_its_schema(snapshot: dict[str, Any], tmp_path: Path) -> None:
    dump(snapshot, tmp_path / "s.pickle", "torch")

    found = pickle.loads((tmp_path / "s.pickle").read_bytes())  # noqa: S301  just written

    assert {"segments", "device_traces", "allocator_settings", "external_annotations"} <= set(found)
    segment = found["segments"][0]
    assert {
        "device",
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "requested_size",
        "stream",
        "segment_type",
        "segment_pool_id",
        "is_expandable",
        "frames",
        "blocks",
    } == set(segment)
    assert {"address", "size", "requested_size", "state", "frames"} == set(segment["blocks"][0])
    assert {"filename", "line", "name"} == set(found["device_traces"][0][-1]["frames"][0])


def test_json_writes_each_stack_once(allocator: CachingAllocator, tmp_path: Path) -> None:
    allocator.record_history()
    for _ in range(1000):
        allocator.free(ask(allocator, MIB))

    dump(allocator.snapshot(), tmp_path / "s.json")

    text = (tmp_path / "s.json").read_text(encoding="utf-8")
    assert text.count('"name": "ask"') == 1


def test_a_file_that_would_run_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.pickle").write_bytes(pickle.dumps({"segments": [Path("x")]}))

    with pytest.raises(ArgumentError, match="a snapshot is plain data"):
        load(tmp_path / "bad.pickle")


SEGMENT = {"address": 0, "total_size": 2, "stream": 0, "blocks": []}
SPOILT = {  # by name: packed bytes hold when they were packed, and xdist compares ids
    "empty": (b"", "it is empty"),
    "words": (b"nonsense", "it is neither an object of JSON nor a pickle"),
    "list": (b"[1, 2]", "it is neither an object of JSON"),
    "number": (b'{"segments": 3}', "has no segments"),
    "packed": (gzip.compress(b"{}"), "has no segments"),
    "cut off": (gzip.compress(b'{"segments": []}')[:-5], ""),
    "no gzip": (b"\x1f\x8b and so on", ""),
    "a segment of nothing": (b'{"segments": [{}]}', "one segment of it has no address, total_size"),
    "a segment that is a number": (b'{"segments": [3]}', "one segment of it has no address"),
    "a block of nothing": (json.dumps({"segments": [{**SEGMENT, "blocks": [{}]}]}).encode(), "one block of it has no"),
    "an event of nothing": (b'{"segments": [], "device_traces": [[{}]]}', "one event of it has no action"),
    "a device before the first": (
        json.dumps({"segments": [{**SEGMENT, "device": -1}]}).encode(),
        "segment of it is -1",
    ),
    "too many devices": (json.dumps({"segments": [{**SEGMENT, "device": 2**16}]}).encode(), "segment of it is 65536"),
    "an address below every integer": (
        json.dumps({"segments": [{**SEGMENT, "address": -(2**64)}]}).encode(),
        "the address of one segment of it is -18446744073709551616",
    ),
    "no trace": (b'{"segments": [], "device_traces": 3}', ""),
    "a request at no address": (
        b'{"segments": [], "device_traces": [[{"action": "alloc", "size": 2, "stream": 0}]]}',
        "one event of it has no addr",
    ),
    "stacks that are none": (b'{"segments": [], "device_traces": [], "stacks": 3}', ""),
}


@pytest.mark.parametrize(("data", "why"), SPOILT.values(), ids=SPOILT)
def test_a_file_without_a_snapshot_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / "x").write_bytes(data)

    with pytest.raises(ArgumentError, match=f"x holds no snapshot: .*{why}.*; write one with dump_snapshot"):
        load(tmp_path / "x")


def test_blocks_and_events_may_have_no_stacks(tmp_path: Path) -> None:
    block, event = (
        {"address": 0, "size": 2, "state": "inactive"},
        {"action": "alloc", "addr": 0, "size": 2, "stream": 0},
    )
    (tmp_path / "x").write_text(json.dumps({"segments": [{**SEGMENT, "blocks": [block]}], "device_traces": [[event]]}))

    found = load(tmp_path / "x")

    assert found["segments"][0]["blocks"][0]["frames"] == found["device_traces"][0][0]["frames"] == []


def test_fields_that_a_writer_left_out_are_zero(tmp_path: Path) -> None:
    block, event = {"address": 0, "size": 2, "state": "inactive"}, {"action": "oom", "size": 2, "stream": 0}
    (tmp_path / "x").write_text(json.dumps({"segments": [{**SEGMENT, "blocks": [block]}], "device_traces": [[event]]}))

    found = load(tmp_path / "x")

    (segment,), ((told,),) = found["segments"], found["device_traces"]
    assert (segment["device"], segment["allocated_size"]) == (0, 0)
    assert (segment["blocks"][0]["requested_size"], told["time_us"]) == (0, 0)


@pytest.mark.parametrize("device", [0, 1, 2**16 - 1])
def test_a_segment_may_be_of_any_device(tmp_path: Path, device: int) -> None:
    (tmp_path / "x").write_text(json.dumps({"segments": [{**SEGMENT, "device": device}]}))

    assert load(tmp_path / "x")["segments"][0]["device"] == device


def test_an_unknown_format_is_refused(snapshot: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="json, torch; got 'xml'"):
        dump(snapshot, tmp_path / "x", "xml")


def test_devices_are_combined_by_their_index(snapshot: dict[str, Any]) -> None:
    whole = combined({2: snapshot})

    assert {segment["device"] for segment in whole["segments"]} == {2}
    assert [len(trace) for trace in whole["device_traces"]] == [0, 0, len(snapshot["device_traces"][0])]


def test_combining_no_snapshots_gives_an_empty_one() -> None:
    whole = combined({})

    assert (whole["segments"], whole["device_traces"], whole["allocator_settings"]) == ([], [], {})
