"""Generators against a shadow model of seed and offset; what captures draw from, told by hand as a capture would."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cuassay import Device, random
from cuassay.core.generator import DEFAULT_SEED
from cuassay.core.generators import default_generators, seed_default_generators
from cuassay.core.recordings import Recordings
from cuassay.errors import ArgumentError, CaptureError
from cuassay.random import Generator, GeneratorState, default_generator

pytestmark = pytest.mark.usefixtures("own_generators")


DEVICE = Device("sim")


class GeneratorAgainstModel(RuleBasedStateMachine):
    """One generator, a graph that draws from it, and (seed, offset) as two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = Generator(DEVICE, seed=1)
        self.seed, self.offset = 1, 0
        self.recordings = Recordings()
        self.renew, self.states, self.words = None, [], 0

    @rule(words=st.integers(0, 40))
    def take(self, words: int) -> None:
        assert self.generator.take(words) == GeneratorState(self.seed, self.offset)
        self.offset += -(-words // 4) * 4

    @rule(seed=st.integers(-(2**63), 2**64 - 1))
    def manual_seed(self, seed: int) -> None:
        self.generator.manual_seed(seed)
        self.seed, self.offset = seed % 2**64, 0

    @rule(calls=st.integers(0, 2**50))
    def set_offset(self, calls: int) -> None:
        self.generator.set_offset(4 * calls)
        self.offset = 4 * calls

    @rule()
    def there_and_back(self) -> None:
        state = self.generator.get_state()
        self.generator.seed()
        self.generator.set_state(state)

    @rule(words=st.lists(st.integers(1, 9), max_size=3))
    def capture(self, words: list[int]) -> None:
        self.recordings.capture_begin(self, DEVICE)
        self.states = [self.generator.take(one) for one in words]
        self.renew = self.recordings.capture_end(self, DEVICE)
        self.recordings.capture_forget(self, DEVICE)
        self.words = [-(-one // 4) * 4 for one in words]

    @rule()
    def replay(self) -> None:
        if self.renew is None:
            return
        self.renew()
        for state, words in zip(self.states, self.words, strict=True):
            assert (state.seed, state.offset) == (self.seed, self.offset)
            self.offset += words

    @invariant()
    def stands_where_the_model_does(self) -> None:
        assert self.generator.initial_seed() == self.seed
        assert self.generator.get_offset() == self.offset
        assert self.generator.get_state() == GeneratorState(self.seed, self.offset).to_bytes()


TestGeneratorAgainstModel = GeneratorAgainstModel.TestCase


@pytest.fixture
def capturing() -> Iterator[Recordings]:
    """A capture of this thread on the device, open during the test."""
    recordings, capture = Recordings(), object()
    recordings.capture_begin(capture, DEVICE)
    yield recordings
    recordings.capture_forget(capture, DEVICE)


CHANGES = {
    "seed": lambda generator: generator.seed(),
    "manual_seed": lambda generator: generator.manual_seed(2),
    "set_state": lambda generator: generator.set_state(bytes(16)),
    "set_offset": lambda generator: generator.set_offset(8),
    "get_state": lambda generator: generator.get_state(),
    "get_offset": lambda generator: generator.get_offset(),
    "clone_state": lambda generator: generator.clone_state(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_state_is_neither_read_nor_changed_while_capturing(name: str, capturing: Recordings) -> None:
    generator = Generator(DEVICE, seed=1)

    with pytest.raises(CaptureError, match=r"is illegal while sim:0 is being captured.*before the capture"):
        CHANGES[name](generator)

    assert generator.initial_seed() == 1


@pytest.mark.parametrize("name", CHANGES)
def test_other_devices_and_threads_are_free_while_one_captures(name: str, capturing: Recordings) -> None:
    CHANGES[name](Generator("sim:1"))
    thread = threading.Thread(target=CHANGES[name], args=(generator := Generator(DEVICE, seed=1),))
    thread.start()
    thread.join()

    assert (generator.initial_seed() == 1) == (name in ("set_offset", "get_state", "get_offset", "clone_state"))


def test_a_default_generator_that_nobody_has_asked_for_is_not_seeded_while_capturing(capturing: Recordings) -> None:
    with pytest.raises(CaptureError, match="seeding it with 999 is illegal"):
        seed_default_generators("sim", 999)

    assert default_generator(DEVICE).initial_seed() == DEFAULT_SEED
    assert default_generator("sim:1").initial_seed() == DEFAULT_SEED


def test_where_one_kind_cannot_be_seeded_none_is(capturing: Recordings) -> None:
    before = default_generator("cpu").initial_seed()

    with pytest.raises(CaptureError):
        random.manual_seed(999)

    assert default_generator("cpu").initial_seed() == before


def test_a_seed_may_be_any_integer() -> None:
    assert Generator(DEVICE, seed=np.int64(5)).initial_seed() == 5
    with pytest.raises(ArgumentError, match="give an integer"):
        Generator(DEVICE, seed=5.0)


@pytest.mark.parametrize("state", [5, None, "sixteen letters."], ids=str)
def test_a_state_that_is_no_bytes_is_refused(state: int | str | None) -> None:
    with pytest.raises(ArgumentError, match="a generator's state is bytes; got"):
        Generator(DEVICE).set_state(state)


def test_the_present_seed_may_be_given_while_capturing(capturing: Recordings) -> None:
    generator = Generator(DEVICE, seed=5)
    generator.take(4)

    assert generator.manual_seed(5).take(4).start == 4


def test_a_capture_that_draws_nothing_costs_its_replays_nothing() -> None:
    recordings = Recordings()
    recordings.capture_begin(recordings, DEVICE)

    assert recordings.capture_end(recordings, DEVICE) is None


def test_of_two_captures_of_a_thread_the_later_one_records() -> None:
    recordings, generator, captures = Recordings(), Generator(DEVICE), ("outer", "inner")
    for capture in captures:
        recordings.capture_begin(capture, DEVICE)

    generator.take()

    renewals = [recordings.capture_end(capture, DEVICE) for capture in reversed(captures)]
    assert [renew is None for renew in renewals] == [False, True]


def test_each_capture_and_generator_has_a_cell_of_its_own_until_it_is_forgotten() -> None:
    numbers, published, dropped = count(), [], []
    recordings = Recordings(lambda device: next(numbers), lambda place: published.append(place.cell), dropped.append)
    generators = [Generator(DEVICE), Generator(DEVICE)]
    captures = [object(), object()]
    renew = []
    for capture in captures:
        recordings.capture_begin(capture, DEVICE)
        for generator in generators * 2:
            generator.take(4)
        renew.append(recordings.capture_end(capture, DEVICE))

    renew[1]()
    renew[0]()
    for capture in captures:
        recordings.capture_forget(capture, DEVICE)

    assert published == [2, 3, 0, 1]
    assert sorted(dropped) == [0, 1, 2, 3]
    assert [generator.get_offset() for generator in generators] == [16, 16]


def test_a_capture_forgotten_while_it_runs_is_over(capturing: Recordings) -> None:
    inner = object()
    capturing.capture_begin(inner, DEVICE)
    capturing.capture_forget(inner, DEVICE)

    assert Generator(DEVICE).take(4).start == 0


def test_a_shared_position_is_one() -> None:
    generator, other = Generator(DEVICE, seed=1), Generator(DEVICE, seed=2)

    shared = generator.graphsafe_get_state()
    other.graphsafe_set_state(shared)
    generator.take(4)
    other.manual_seed(9)

    assert generator.initial_seed() == shared.initial_seed() == 9


def test_positions_may_be_shared_while_capturing(capturing: Recordings) -> None:
    generator, other = Generator(DEVICE, seed=1), Generator(DEVICE, seed=2)

    generator.graphsafe_set_state(other.graphsafe_get_state())

    assert generator.take(4).seed == 2


def test_a_position_of_another_device_is_not_shared() -> None:
    with pytest.raises(ArgumentError, match="is not a generator of sim:0"):
        Generator(DEVICE).graphsafe_set_state(Generator("cpu"))


def test_a_clone_goes_its_own_way() -> None:
    generator = Generator(DEVICE, seed=3)
    generator.take(4)

    clone = generator.clone_state()
    generator.take(4)

    assert (clone.initial_seed(), clone.get_offset()) == (3, 4)


def test_a_state_may_be_an_array_of_bytes() -> None:
    generator = Generator(DEVICE)

    generator.set_state(np.frombuffer(GeneratorState(7, 8).to_bytes(), np.uint8))

    assert (generator.initial_seed(), generator.get_offset()) == (7, 8)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 1.0, True, "1"])
def test_a_seed_that_does_not_fit_is_refused(seed: bool | float | str) -> None:
    with pytest.raises(ArgumentError, match=r"does not fit; give an integer from -2\*\*63"):
        Generator(DEVICE).manual_seed(seed)


def test_default_generators_are_one_a_device_and_start_from_torchs_seed() -> None:
    assert default_generator("sim:1") is default_generator(Device("sim", 1))
    assert default_generator("sim:1").initial_seed() == DEFAULT_SEED


def test_seeding_a_kind_reaches_devices_not_asked_for_yet() -> None:
    early = default_generator("sim:1")
    early.take(4)

    seed_default_generators("sim", 12)

    assert [one.initial_seed() for one in (early, default_generator("sim:0"))] == [12, 12]
    assert early.get_offset() == 0
    assert default_generators("sim") == (default_generator("sim:0"), early)
    assert default_generator("cpu").initial_seed() == DEFAULT_SEED


def test_seeding_a_kind_while_one_of_its_devices_is_captured_changes_none(capturing: Recordings) -> None:
    generators = default_generator("sim:0"), default_generator("sim:1")

    with pytest.raises(CaptureError):
        seed_default_generators("sim", 12)

    assert [one.initial_seed() for one in (*generators, default_generator("sim:2"))] == [DEFAULT_SEED] * 3


@given(threads=st.integers(2, 4))
def test_threads_are_never_given_the_same_state(threads: int) -> None:
    generator, taken = Generator(DEVICE), []

    def work() -> None:
        taken.extend([generator.take(4).offset for _ in range(50)])

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()

    assert sorted(taken) == list(range(0, 200 * threads, 4))
