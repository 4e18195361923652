"""Random numbers on every kind of device: the cpu's, call by call; generators, and graphs that draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cuassay import Device, devices, empty, from_host, ops, random, to_host
from cuassay.arrays import distributions
from cuassay.arrays.dtypes import epsilon
from cuassay.errors import ArgumentError, CaptureError, DeviceError
from cuassay.random import Generator, GeneratorState, default_generator
from cuassay.testing import requires

pytestmark = pytest.mark.usefixtures("own_generators")


N = 1001
SEED = 2**40 + 7

#: Function to a call of it that makes a new array on a device; normals are left out where bits are compared.
CALLS: dict[str, Callable[..., Any]] = {
    "uniform": lambda where, gen: random.uniform(N, -1.0, 3.0, device=where, generator=gen),
    "uniform bfloat16": lambda where, gen: random.uniform((7, 11), dtype="bfloat16", device=where, generator=gen),
    "integers": lambda where, gen: random.integers(-5, 100, N, dtype="int8", device=where, generator=gen),
    "long integers": lambda where, gen: random.integers(0, 2**50, N, device=where, generator=gen),
    "permutation": lambda where, gen: random.permutation(N, device=where, generator=gen),
    "bernoulli": lambda where, gen: random.bernoulli(from_host(np.full(N, 0.3), where), generator=gen),
    "dropout_mask": lambda where, gen: random.dropout_mask(empty((N,), "float32", where), 0.25, generator=gen),
    "dropout": lambda where, gen: random.dropout(from_host(np.arange(N, dtype=np.float32), where), generator=gen),
}
NORMAL = {"normal": lambda where, gen: random.normal(N, device=where, generator=gen)}


@pytest.fixture
def generator(device: Device) -> Generator:
    return Generator(device, seed=SEED)


# ------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize("name", CALLS)
def test_one_seed_gives_the_cpus_numbers(name: str, device: Device, generator: Generator) -> None:
    host = Generator("cpu", seed=SEED)

    for _ in range(2):
        np.testing.assert_array_equal(to_host(CALLS[name](device, generator)), CALLS[name]("cpu", host))


@pytest.mark.parametrize("offset", [2**34 - 4, 2**34 + 8, 2**62], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_far_into_a_stream_the_numbers_are_the_cpus(
    name: str, offset: int, device: Device, generator: Generator
) -> None:
    host = Generator("cpu", seed=SEED)
    for one in (generator, host):
        one.set_offset(offset)

    for _ in range(2):
        np.testing.assert_array_equal(to_host(CALLS[name](device, generator)), CALLS[name]("cpu", host))


@pytest.mark.parametrize("low", [1.0, -3.0, 100.0])
@pytest.mark.parametrize("steps", [1, 3, 5])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_range_of_few_floats_never_gives_its_end(
    dtype: str, steps: int, low: float, device: Device, generator: Generator
) -> None:
    """Rounded to nearest, every sixth number or so of such a range would be `high`."""
    high = low + steps * abs(low) * epsilon(dtype)
    host = Generator("cpu", seed=SEED)

    found = random.uniform(N, low, high, dtype=dtype, device=device, generator=generator)

    assert to_host(found).astype(np.float64).max() < high
    np.testing.assert_array_equal(to_host(found), random.uniform(N, low, high, dtype=dtype, generator=host))


def test_numbers_far_into_a_stream_are_not_those_at_its_beginning(device: Device, generator: Generator) -> None:
    near = to_host(random.uniform(N, device=device, generator=generator))
    generator.set_offset(2**34)  # of which a counter of 32 bits would keep nothing

    assert (to_host(random.uniform(N, device=device, generator=generator)) != near).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normals_are_those_of_float64_within_4_ulp(dtype: str, device: Device, generator: Generator) -> None:
    got = to_host(random.normal(200_000, dtype=dtype, device=device, generator=generator))

    wanted = distributions.normal(GeneratorState(SEED), got.size, got.dtype)
    assert np.max(np.abs(got - wanted) / np.spacing(np.abs(wanted.astype(dtype)))) <= 4


@pytest.mark.parametrize("name", [*CALLS, *NORMAL])
def test_a_call_takes_four_words_and_the_next_draws_again(name: str, device: Device, generator: Generator) -> None:
    call = (CALLS | NORMAL)[name]

    first, second = call(device, generator), call(device, generator)

    assert generator.get_offset() == 8
    assert (to_host(first) != to_host(second)).any()


@pytest.mark.parametrize("name", [*CALLS, *NORMAL])
def test_a_state_set_back_draws_the_same(name: str, device: Device, generator: Generator) -> None:
    call, state = (CALLS | NORMAL)[name], generator.get_state()

    first = call(device, generator)
    generator.set_state(state)

    np.testing.assert_array_equal(to_host(call(device, generator)), to_host(first))


def test_an_array_without_elements_takes_nothing(device: Device, generator: Generator) -> None:
    assert random.uniform((3, 0), device=device, generator=generator).shape == (3, 0)
    assert random.permutation(0, device=device, generator=generator).shape == (0,)
    assert generator.get_offset() == 0


def test_without_a_generator_the_devices_default_one_draws(device: Device) -> None:
    random.manual_seed(SEED)
    first = random.uniform(N, device=device)

    np.testing.assert_array_equal(to_host(first), random.uniform(N, generator=Generator("cpu", seed=SEED)))
    assert default_generator(device).get_offset() == 4


def test_a_generator_says_where_to_draw(device: Device, generator: Generator) -> None:
    drawn = random.uniform(3, generator=generator)

    assert devices.backend(device.kind).device_of(drawn) == device


def test_numbers_follow_the_logical_order_of_a_strided_array(device: Device, generator: Generator) -> None:
    base = empty((20, 30), "float32", device)

    for out in (base.T, base[::2], base[:, ::-1], base[1:, 3:]):
        state = generator.take()
        ops.uniform(out, state=state, out=out)
        np.testing.assert_array_equal(to_host(out), ops.uniform(np.empty(out.shape, np.float32), state=state))


def test_a_gradient_is_dropped_where_its_array_was(device: Device, generator: Generator) -> None:
    a, gradient = from_host(np.ones((9, 33), np.float32), device), from_host(np.full((9, 33), 3.0), device)
    state = generator.take()

    out, back = (to_host(ops.dropout(array, state=state, p=0.4)) for array in (a, gradient))

    np.testing.assert_array_equal(back == 0, out == 0)
    np.testing.assert_array_equal(to_host(ops.dropout_mask(a, state=state, p=0.4)), out != 0)
    np.testing.assert_allclose(back[back != 0], 5.0)


@pytest.mark.parametrize("place", range(8))
def test_a_word_at_the_threshold_is_kept_and_not_drawn(place: int, device: Device, generator: Generator) -> None:
    """The probability is that word over 2^32 exactly: `<` in place of `<=`, or a word rounded to float32, is seen."""
    state = generator.take()
    words = distributions.words_of(state, 8)
    p = int(words[place]) / 2**32
    ones = from_host(np.ones(8, np.float32), device)
    probabilities = from_host(np.array([p, p + 2.0**-32])[:, None].repeat(8, axis=1), device)

    np.testing.assert_array_equal(to_host(ops.dropout_mask(ones, state=state, p=p)), words >= words[place])
    np.testing.assert_array_equal(to_host(ops.dropout(ones, state=state, p=p)) != 0, words >= words[place])
    for row, expected in zip(probabilities, (words < words[place], words <= words[place]), strict=True):
        np.testing.assert_array_equal(to_host(ops.bernoulli(row, state=state)), expected)


def test_a_uniform_above_two_to_the_32_elements_would_use_new_words() -> None:
    """The subsequence has 64 bits: elements 2**32 * 4 apart share no counter."""
    from cuassay.arrays.philox import random_words

    first, far = (random_words(GeneratorState(1), 4, first=start) for start in (0, 2**32))

    assert np.intersect1d(first, far).size == 0


def test_another_devices_generator_is_refused(device: Device) -> None:
    foreign = Generator("cpu:1", seed=1)

    with pytest.raises(DeviceError, match="give a generator of that device"):
        random.uniform(3, device=device, generator=foreign)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: random.uniform(), "neither a shape nor out"),
        (lambda: random.uniform(3, out=np.empty(3, np.float32)), "got shape 3 too; omit it"),
        (lambda: random.uniform(out=np.empty(3, np.float32), device="cpu"), "got device 'cpu' too; omit it"),
        (lambda: random.uniform(out=np.empty(3, np.float32), dtype="float64"), "got dtype 'float64' too"),
        (lambda: random.normal(out=np.empty(3, np.float32), dtype="float32"), "got dtype 'float32' too"),
        (lambda: random.integers(0, 3, out=np.empty(3, np.int32), dtype="int32"), "got dtype 'int32' too"),
        (lambda: random.permutation(out=np.empty(3, np.int32), dtype="int32"), "got dtype 'int32' too"),
        (
            lambda: random.dropout([1.0, 2.0]),
            "not an array of any known device kind; got builtins.list",
        ),
    ],
    ids=["nothing", "two shapes", "two devices", "uniform", "normal", "integers", "permutation", "no array"],
)
def test_arguments_that_do_not_fit_are_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        call()


# ------------------------------------------------------------------------------------------------ graphs


class Captured:
    """A graph on a stream of its own, of work that has run there once before."""

    def __init__(self, device: Device) -> None:
        self.backend = devices.backend(device.kind)
        self.device = device
        self.stream = self.backend.new_stream(device.index)
        self.graph = self.backend.new_capture(device.index)

    def of(self, work: Callable[[], Any]) -> None:
        self.kept = work  # and the arrays it uses: a graph does not keep them
        with self.backend.activate(self.device.index), self.backend.use_stream(self.stream):
            work()
            self.stream.synchronize()
            self.graph.begin()
            try:
                work()
            finally:
                self.graph.end()

    def replay(self) -> None:
        with self.backend.activate(self.device.index), self.backend.use_stream(self.stream):
            self.graph.replay()
            self.stream.synchronize()

    def host(self, array: Any) -> Any:
        with self.backend.activate(self.device.index), self.backend.use_stream(self.stream):
            return to_host(array)


@pytest.fixture
def captured(device: Device) -> Iterator[Captured]:
    found = Captured(device)
    yield found
    found.graph.reset()


@pytest.fixture
def outs(device: Device) -> tuple[Any, Any]:
    found = tuple(from_host(np.zeros(N, np.float32), device) for _ in range(2))
    devices.backend(device.kind).synchronize(device.index)
    return found[0], found[1]


def drawn_by(state: GeneratorState) -> tuple[Any, Any]:
    """What the two calls of the graphs below draw from `state`, by the cpu."""
    like = np.empty(N, np.float32)
    return ops.uniform(like, state=state), ops.dropout_mask(like, state=state.advance(1, 4)).astype(np.float32)


def two_calls(outs: tuple[Any, Any], generator: Generator) -> Callable[[], None]:
    ones = from_host(np.ones(N, np.float32), generator.device)
    devices.backend(generator.device.kind).synchronize(generator.device.index)

    def work() -> None:
        random.uniform(out=outs[0], generator=generator)
        random.dropout(ones, generator=generator, out=outs[1])

    return work


@requires("graphs")
def test_each_replay_draws_what_eager_calls_would_have_drawn(
    captured: Captured, outs: tuple[Any, Any], generator: Generator
) -> None:
    captured.of(two_calls(outs, generator))
    assert generator.get_offset() == 8  # of the run before: a capture takes nothing

    for between in (0, 4, 0):
        generator.set_offset(generator.get_offset() + between)
        offset = generator.get_offset()
        captured.replay()
        uniform, kept = drawn_by(GeneratorState(SEED, offset))
        np.testing.assert_array_equal(captured.host(outs[0]), uniform)
        np.testing.assert_array_equal(captured.host(outs[1]), 2 * kept)
        assert generator.get_offset() == offset + 8


@requires("graphs")
def test_a_replay_follows_a_new_seed(captured: Captured, outs: tuple[Any, Any], generator: Generator) -> None:
    captured.of(two_calls(outs, generator))

    generator.manual_seed(99)
    captured.replay()

    np.testing.assert_array_equal(captured.host(outs[0]), drawn_by(GeneratorState(99))[0])


@requires("graphs")
def test_two_graphs_of_one_generator_draw_after_each_other(
    device: Device, captured: Captured, outs: tuple[Any, Any], generator: Generator
) -> None:
    other = Captured(device)
    other_out = from_host(np.zeros(N, np.float32), device)
    devices.backend(device.kind).synchronize(device.index)
    captured.of(two_calls(outs, generator))
    other.of(lambda: random.uniform(out=other_out, generator=generator))
    generator.manual_seed(SEED)

    for graph in (other, captured, other):
        graph.replay()

    np.testing.assert_array_equal(captured.host(outs[0]), drawn_by(GeneratorState(SEED, 4))[0])
    np.testing.assert_array_equal(other.host(other_out), drawn_by(GeneratorState(SEED, 12))[0])
    other.graph.reset()


@requires("graphs")
def test_two_generators_in_one_graph_keep_their_own_place(
    device: Device, captured: Captured, outs: tuple[Any, Any], generator: Generator
) -> None:
    second = Generator(device, seed=5)

    def work() -> None:
        random.uniform(out=outs[0], generator=generator)
        random.uniform(out=outs[1], generator=second)

    captured.of(work)
    captured.replay()

    np.testing.assert_array_equal(captured.host(outs[0]), drawn_by(GeneratorState(SEED, 4))[0])
    np.testing.assert_array_equal(captured.host(outs[1]), drawn_by(GeneratorState(5, 4))[0])


@requires("graphs")
def test_seed_and_state_are_not_changed_while_capturing(
    captured: Captured, outs: tuple[Any, Any], generator: Generator
) -> None:
    def work() -> None:
        random.uniform(out=outs[0], generator=generator)
        if runs:
            with pytest.raises(CaptureError, match="is illegal while"):
                generator.manual_seed(1)
            with pytest.raises(CaptureError, match="is illegal while"):
                random.manual_seed(1)
            with pytest.raises(CaptureError, match="is illegal while"):
                generator.set_state(bytes(16))

    default_generator(generator.device)
    runs: list[bool] = []
    captured.of(lambda: (work(), runs.append(True)))  # the second is the captured one

    generator.manual_seed(1)
    assert generator.initial_seed() == 1


@requires("graphs")
def test_a_permutation_is_captured(device: Device, captured: Captured, generator: Generator) -> None:
    out = from_host(np.zeros(N, np.int64), device)
    devices.backend(device.kind).synchronize(device.index)
    captured.of(lambda: random.permutation(out=out, generator=generator))

    captured.replay()

    np.testing.assert_array_equal(
        captured.host(out), ops.permutation(np.empty(N, np.int64), state=GeneratorState(SEED, 4))
    )
