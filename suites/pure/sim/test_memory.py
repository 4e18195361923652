"""The simulated device's memory is finite and poisoned; its profiles say what it can do."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cuassay import ops
from cuassay.arrays.dtypes import COMPLEX, FLOATS, FP8
from cuassay.core.capability import DTYPE_NAMES, FEATURES, QUANTITIES
from cuassay.core.device import Device
from cuassay.devices.sim import BACKEND, PROFILES, SimArray
from cuassay.devices.sim.memory import ALIGNMENT, Arena
from cuassay.errors import CapabilityError, OutOfMemoryError, SettingError
from cuassay.order.clock import Host, Queue

TOTAL = 2**16


@pytest.fixture(autouse=True)
def machine() -> Iterator[None]:
    with BACKEND.simulated(devices=1, memory=TOTAL):
        yield


def empty(nbytes: int) -> SimArray:
    return BACKEND.empty((nbytes,), "uint8", 0)


#: Features that profiles leave out, in addition to those that no simulated device has.
LEFT_OUT = {
    "h200": "",
    "copies": "views",
    "mps": "complex conditional_graphs fp8 graphs peer_access tf32",
    "mps-macos13": "complex conditional_graphs fp8 graphs peer_access tf32",
    "minimal": "complex conditional_graphs fp8 graphs peer_access streams tf32 timing",
}


class TestFiniteMemory:
    def test_out_of_memory_says_what_was_asked_what_is_free_and_the_largest_range(self) -> None:
        kept = [empty(TOTAL // 4) for _ in range(4)]
        del kept[0], kept[1]

        with pytest.raises(OutOfMemoryError) as caught:
            empty(TOTAL // 2)

        message = str(caught.value)
        parts = ("sim:0", "32,768 bytes (32 KiB)", "32 KiB of 64 KiB", "the largest range 16,384", "CUASSAY_SIM_MEMORY")
        assert [part for part in parts if part not in message] == []

    def test_a_full_device_has_no_free_range(self) -> None:
        kept = empty(TOTAL)

        with pytest.raises(OutOfMemoryError, match=r"free: 0 bytes of 65,536 .* the largest range 0;"):
            empty(1)

        assert kept.nbytes == TOTAL

    def test_a_block_dropped_while_another_is_given_back_waits_for_its_turn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The garbage collector runs at any allocation, inside the allocator too."""
        kept, first, later = (empty(TOTAL // 4) for _ in range(3))
        dropped, begun, ended, give_back = [later], [], [], Arena.give_back
        del later

        def collecting(arena: Arena, low: int, *rest: Any) -> None:
            begun.append(low)
            dropped.clear()
            give_back(arena, low, *rest)
            ended.append(low)

        with monkeypatch.context() as patched:
            patched.setattr(Arena, "give_back", collecting)
            del first

        assert begun == ended == [TOTAL // 4, TOTAL // 2]
        assert BACKEND.memory_info(0) == (3 * TOTAL // 4, TOTAL)
        del kept

    def test_it_is_a_memory_error_and_the_device_recovers(self) -> None:
        with pytest.raises(MemoryError):
            empty(2 * TOTAL)

        array = empty(TOTAL)

        assert array.size == TOTAL

    def test_dropped_neighbours_join(self) -> None:
        parts = [empty(TOTAL // 4) for _ in range(4)]
        parts.clear()

        assert empty(TOTAL).nbytes == TOTAL

    def test_memory_that_waits_for_a_stream_is_taken_when_nothing_else_is_left(self) -> None:
        stream = BACKEND.new_stream(0)
        with BACKEND.use_stream(stream):
            array = empty(TOTAL)
            array.fill(1)
        del array

        assert empty(TOTAL).nbytes == TOTAL

    def test_neighbours_that_join_wait_for_the_later_of_both(self) -> None:
        arena = Arena("sim:0", 4 * ALIGNMENT, Host())
        for _ in range(4):
            arena.try_take(ALIGNMENT, None)
        arena.give_back(0, ALIGNMENT, {1: 5})
        arena.give_back(ALIGNMENT, 2 * ALIGNMENT, {1: 9})

        early, late = (Queue(2, "stream 2", Device("sim", 0), clock={1: epoch}) for epoch in (5, 9))

        assert arena.try_take(2 * ALIGNMENT, early) is None
        assert arena.try_take(2 * ALIGNMENT, late) == 0

    def test_neighbours_of_two_streams_join_when_nothing_else_is_left(self) -> None:
        first = empty(TOTAL // 2)
        with BACKEND.use_stream(BACKEND.new_stream(0)):
            second = empty(TOTAL // 2)
            second.fill(1)
        first.fill(1)
        del first, second

        assert empty(TOTAL).nbytes == TOTAL

    def test_arrays_in_a_cycle_are_collected_before_giving_up(self) -> None:
        gc.collect()
        cycle: list[Any] = [empty(TOTAL)]
        cycle.append(cycle)
        del cycle

        assert empty(TOTAL).nbytes == TOTAL

    def test_nothing_leaks(self) -> None:
        array = BACKEND.from_host(np.ones((4, 4), np.float32), 0)
        for _ in range(50):
            array = ops.add(np.exp(array)[::2].sum(axis=0), array) * 0
        del array

        assert BACKEND.memory_info(0) == (TOTAL, TOTAL)

    def test_results_take_device_memory(self) -> None:
        array = BACKEND.from_host(np.ones(256, np.uint8), 0)

        results = [array + 1, array.copy(), ops.copy(array)]

        assert BACKEND.memory_info(0)[0] == TOTAL - 256 * (1 + len(results))

    def test_arrays_dropped_in_another_thread_give_their_memory_back(self) -> None:
        kept = [empty(256)]
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()

        assert BACKEND.memory_info(0) == (TOTAL, TOTAL)

    def test_arrays_without_elements_take_none(self) -> None:
        array = BACKEND.empty((0, 4), "float32", 0)

        assert BACKEND.memory_info(0)[0] == TOTAL
        assert (array + 1).get().shape == (0, 4)


class TestPoison:
    @pytest.mark.parametrize("dtype", [*FP8, *FLOATS, *COMPLEX])
    def test_new_floating_point_memory_is_nan(self, dtype: str) -> None:
        host = BACKEND.empty((3,), dtype, 0).get()

        assert np.isnan(host.astype(np.complex64)).all()

    def test_new_memory_leaves_its_neighbours_as_they_are(self) -> None:
        blocks = [BACKEND.from_host(np.full(ALIGNMENT, 7, np.uint8), 0) for _ in range(3)]
        del blocks[1]

        BACKEND.empty((ALIGNMENT,), "uint8", 0)

        assert [block.get().tolist() for block in blocks] == [[7] * ALIGNMENT] * 2

    @pytest.mark.parametrize(("dtype", "value"), [("int32", -0x55555556), ("uint8", 0xAA), ("bool", True)])
    def test_new_integers_are_a_pattern(self, dtype: str, value: int) -> None:
        assert (BACKEND.empty((3,), dtype, 0).get() == value).all()

    def test_memory_is_poisoned_when_it_is_freed(self) -> None:
        array = BACKEND.from_host(np.ones(8, np.float32), 0)
        raw = array.raw
        del array

        assert np.isnan(raw).all()


class TestTransfers:
    @pytest.mark.parametrize(
        "host",
        [
            pytest.param(np.arange(6).reshape(2, 3), id="c"),
            pytest.param(np.arange(6).reshape(2, 3).T, id="f"),
            pytest.param(np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0), id="permuted"),
            pytest.param(np.arange(9)[::2], id="strided"),
            pytest.param(np.arange(6)[::-1], id="reversed"),
            pytest.param(np.float64(3.5), id="0-d"),
            pytest.param(np.ones(3, ml_dtypes.bfloat16), id="bfloat16"),
            pytest.param(np.empty((2, 0)), id="empty"),
        ],
    )
    def test_values_dtype_and_order_of_axes_survive(self, host: Any) -> None:
        array = BACKEND.from_host(host, 0)

        back = BACKEND.to_host(array)

        np.testing.assert_array_equal(back, host)
        assert back.dtype == host.dtype
        assert array.strides == np.empty_like(host, order="K").strides

    def test_what_comes_to_the_host_is_a_copy(self) -> None:
        array = BACKEND.from_host(np.zeros(3), 0)
        array.get()[:] = 1

        assert not array.get().any()

    @pytest.mark.parametrize(
        ("one", "other", "expected"),
        [
            (np.s_[:4], np.s_[4:], "none"),
            (np.s_[:4], np.s_[:4], "same"),
            (np.s_[:4], np.s_[2:6], "partial"),
            (np.s_[::2], np.s_[1::2], "none"),
        ],
        ids=["apart", "same", "partial", "interleaved"],
    )
    def test_overlap(self, one: slice, other: slice, expected: str) -> None:
        array = BACKEND.from_host(np.zeros(8), 0)

        assert BACKEND.overlap(array[one], array[other]) == expected

    def test_text_and_objects_stay_on_the_host(self) -> None:
        with pytest.raises(CapabilityError, match="numbers only"):
            BACKEND.from_host(np.array(["a"]), 0)


class TestProfiles:
    @pytest.mark.parametrize("name", PROFILES)
    @pytest.mark.parametrize("question", [*FEATURES, *QUANTITIES, *(f"matmul:{dtype}" for dtype in DTYPE_NAMES)])
    def test_every_question_is_answered_and_every_no_has_a_reason(self, name: str, question: str) -> None:
        with BACKEND.simulated(devices=1, memory=TOTAL, profile=name):
            answer = BACKEND.probe(0, question)

        assert answer.present or len(answer.reason) > 10

    @pytest.mark.parametrize("name", PROFILES)
    def test_exactly_what_a_profile_leaves_out_is_missing(self, name: str) -> None:
        with BACKEND.simulated(devices=2, memory=TOTAL, profile=name):
            missing = {feature for feature in FEATURES if not BACKEND.probe(0, feature)}
            compute, memory, count = (BACKEND.probe(0, question) for question in ("compute", "memory", "count"))

        assert missing == {"complex_half", "cublaslt", "ipc", "vmm", *LEFT_OUT[name].split()}
        assert (memory.value, count.value) == (TOTAL, 2)
        assert (compute.present, compute.value) == ((True, 9.0) if name in {"h200", "copies"} else (False, 0.0))

    @pytest.mark.parametrize(
        ("name", "dtype", "reason"),
        [
            ("mps", "float64", "Metal has no 64-bit"),
            ("mps", "complex128", "Metal has no 64-bit"),
            ("mps-macos13", "bfloat16", "this is macOS 13"),
            ("mps-macos13", "float64", "Metal has no 64-bit"),
            ("minimal", "float16", "float32 and integers only"),
        ],
    )
    def test_an_array_of_a_missing_dtype_cannot_be_made(self, name: str, dtype: str, reason: str) -> None:
        with BACKEND.simulated(devices=1, memory=TOTAL, profile=name), pytest.raises(CapabilityError, match=reason):
            BACKEND.empty((1,), dtype, 0)

    def test_a_result_of_a_missing_dtype_cannot_be_made_either(self) -> None:
        with BACKEND.simulated(devices=1, memory=TOTAL, profile="mps"):
            array = BACKEND.from_host(np.arange(4, dtype=np.int32), 0)

            with pytest.raises(CapabilityError, match=r"storage:float64"):
                array.mean()

    def test_an_op_class_can_lack_a_dtype_that_is_stored(self) -> None:
        with BACKEND.simulated(devices=1, memory=TOTAL, profile="mps"):
            array = BACKEND.from_host(np.ones((2, 2), np.complex64), 0)
            ops.add(array, array)

            with pytest.raises(CapabilityError, match="no matmul:complex64: Metal"):
                ops.matmul(array, array)

    def test_bfloat16_came_with_macos_14(self) -> None:
        with BACKEND.simulated(devices=1, memory=TOTAL, profile="mps"):
            assert BACKEND.empty((1,), "bfloat16", 0).dtype == ml_dtypes.bfloat16

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            ("new_stream", "no streams: the profile minimal has one stream; use the default stream"),
            ("new_capture", "no graphs: the profile minimal captures nothing; call the work each time"),
            ("new_event", "no timing: the profile minimal has no device clock; make the event with timing=False"),
        ],
        ids=["streams", "graphs", "timing"],
    )
    def test_minimal_has_one_stream_no_graphs_and_no_timing(self, make: str, said: str) -> None:
        options = {"timing": True} if make == "new_event" else {}
        with BACKEND.simulated(devices=1, profile="minimal"), pytest.raises(CapabilityError, match=f"sim:0: {said}"):
            getattr(BACKEND, make)(0, **options)

    def test_an_unknown_profile_is_refused_with_the_list(self) -> None:
        with (
            pytest.raises(SettingError, match="h200, mps, mps-macos13, copies, minimal"),
            BACKEND.simulated(profile="tpu"),
        ):
            pass

    def test_the_settings_make_the_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"DEVICES": "3", "MEMORY": "1MiB", "PROFILE": "mps"}.items():
            monkeypatch.setenv(f"CUASSAY_SIM_{name}", value)

        with BACKEND.simulated():
            assert BACKEND.count() == 3
            assert BACKEND.memory_info(2) == (2**20, 2**20)
            assert BACKEND.identity(2)["name"] == "simulated accelerator (mps)"
            assert BACKEND.identity(2)["uuid"] == "SIM-2"

    def test_visible_devices_are_those_that_are_named_in_their_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUASSAY_SIM_VISIBLE_DEVICES", "SIM-3,SIM-1")

        with BACKEND.simulated():
            assert [BACKEND.identity(index)["uuid"] for index in range(BACKEND.count())] == ["SIM-3", "SIM-1"]
            assert BACKEND.visibility() == ("CUASSAY_SIM_VISIBLE_DEVICES", ("SIM-3", "SIM-1"))

    def test_no_devices_is_absent_with_a_reason(self) -> None:
        with BACKEND.simulated(devices=0):
            assert "CUASSAY_SIM_DEVICES" in (BACKEND.why_absent() or "")
