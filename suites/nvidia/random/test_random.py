"""Generators of CUDA devices by torch's names, and what random numbers are on a GPU alone."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cuassay import Device, from_host, ops, random, to_host
from cuassay import cuda as face_of_cuda
from cuassay.core.generator import DEFAULT_SEED
from cuassay.cuda import random as face
from cuassay.devices.cuda.driver import runtime
from cuassay.errors import ArgumentError
from cuassay.random import GeneratorState
from cuassay.testing import exclusive

pytestmark = pytest.mark.usefixtures("own_generators")


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "device_count", lambda: 2)
    monkeypatch.setattr(runtime, "is_initialized", lambda: False)


def test_an_unseeded_device_starts_from_torchs_seed(two_devices: None) -> None:
    assert face.initial_seed() == DEFAULT_SEED
    assert face.get_rng_state() == GeneratorState().to_bytes()


def test_manual_seed_is_for_the_current_device_and_manual_seed_all_for_every_one(two_devices: None) -> None:
    face.manual_seed(3)
    assert [state[0] for state in face.get_rng_state_all()] == [3, DEFAULT_SEED % 256]

    face.manual_seed_all(4)
    assert [state[0] for state in face.get_rng_state_all()] == [4, 4]


def test_seeding_every_kind_reaches_cuda(two_devices: None) -> None:
    random.manual_seed(17)

    assert [state[0] for state in face.get_rng_state_all()] == [17, 17]


def test_states_are_set_one_a_device(two_devices: None) -> None:
    states = [GeneratorState(seed, 8).to_bytes() for seed in (1, 2)]

    face.set_rng_state_all(states)

    assert face.get_rng_state_all() == states
    assert face.get_rng_state("cuda:1") == face.get_rng_state(1) == states[1]


def test_a_drawn_seed_is_given_back_and_differs(two_devices: None) -> None:
    first = face.seed()
    assert face.initial_seed() == first

    second = face.seed_all()
    assert second != first
    assert face.get_rng_state_all() == [GeneratorState(second).to_bytes()] * 2


def test_no_state_of_another_length_is_taken(two_devices: None) -> None:
    with pytest.raises(ArgumentError, match="16 bytes"):
        face.set_rng_state(bytes(17))


# ------------------------------------------------------------------------------------------------ on a device


@pytest.fixture
def cupy(on_cuda: None) -> Any:
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_numbers_do_not_depend_on_an_arrays_alignment(cupy: Any, shift: int) -> None:
    state, base = GeneratorState(5), cupy.zeros(1003, cupy.float32)
    aligned = ops.uniform(base[: 1000 - shift].copy(), state=state)

    ops.uniform(base[shift:1000], state=state, out=base[shift:1000])

    assert bool((base[shift:1000] == aligned).all())
    assert float(base[:shift].sum() + base[1000:].sum()) == 0


def test_the_default_generators_cells_return_when_graphs_are_gone(cupy: Any) -> None:
    from cuassay import devices
    from cuassay.devices.cuda.ops import random as on_cuda

    backend, generator = devices.backend("cuda"), random.Generator("cuda")
    out = cupy.zeros(8, cupy.float32)
    stream = backend.new_stream(0)
    stream.wait_stream(backend.current_stream(0))
    slabs = []
    for _ in range(3 * on_cuda._Cells.SLAB):
        graph = backend.new_capture(0)
        with backend.use_stream(stream):
            graph.begin()
            random.uniform(out=out, generator=generator)
            graph.end()
            graph.replay()
        slabs.append(id(on_cuda._CELLS._free[generator.device]))
        graph.reset()
        if len(slabs) % 100 == 0:
            stream.synchronize()
    stream.synchronize()  # the replays write `out`, whose memory goes to the next array when it is dropped

    free = on_cuda._CELLS._free[generator.device]
    assert len({id(cell.memory) for cell in free}) <= 2


def test_a_cell_is_dropped_while_another_is_taken() -> None:
    """As a finaliser does that the collector runs within a capture."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from cuassay.devices.cuda.ops.random import _Cell, _Cells

    cells, device = _Cells(), Device("cuda", 0)
    cell = _Cell(None, 0, device)
    with cells._lock:
        thread = threading.Thread(target=cells.drop, args=(cell,), daemon=True)
        thread.start()
        thread.join(10)

    assert not thread.is_alive(), "the finaliser waits for the capture"
    assert cells._free[device] == [cell]


def test_a_graph_is_dropped_while_the_stream_of_its_replays_is_captured(cupy: Any) -> None:
    from cuassay import devices

    backend, generator = devices.backend("cuda"), random.Generator("cuda", seed=6)
    out, stream = cupy.zeros(8, cupy.float32), backend.new_stream(0)
    backend.synchronize(0)
    graphs = [backend.new_capture(0) for _ in range(2)]
    with backend.use_stream(stream):
        random.uniform(out=out, generator=generator)
        graphs[0].begin()
        random.uniform(out=out, generator=generator)
        graphs[0].end()
        graphs[0].replay()
        graphs[1].begin()
        graphs[0].reset()
        random.uniform(out=out, generator=generator)
        graphs[1].end()
        state = generator.get_state()
        graphs[1].replay()
    stream.synchronize()

    expected = random.uniform(out=cupy.zeros(8, cupy.float32), generator=resumed(state))
    assert bool((out == expected).all())
    graphs[1].reset()


def resumed(state: Any) -> Any:
    generator = random.Generator("cuda")
    generator.set_state(state)
    return generator


def test_a_graph_replayed_on_two_streams_keeps_its_order(cupy: Any) -> None:
    from cuassay import devices

    backend, generator = devices.backend("cuda"), random.Generator("cuda", seed=6)
    out = cupy.zeros(2**22, cupy.float32)
    streams = [backend.new_stream(0) for _ in range(2)]
    backend.synchronize(0)
    graph = backend.new_capture(0)
    with backend.use_stream(streams[0]):
        random.uniform(out=out, generator=generator)
        streams[0].synchronize()
        graph.begin()
        random.uniform(out=out, generator=generator)
        graph.end()

    for replay in range(20):
        with backend.use_stream(streams[replay % 2]):
            graph.replay()
    backend.synchronize(0)

    wanted = ops.uniform(from_host(to_host(out), "cuda"), state=GeneratorState(6, 4 + 4 * 19))
    assert bool((out == wanted).all())
    graph.reset()


def test_a_replay_on_another_stream_waits_for_the_numbers_of_the_one_before(cupy: Any) -> None:
    """Where a replay begins late, what the next one draws from is not written before it has read its own."""
    from cuassay import devices

    backend, generator = devices.backend("cuda"), random.Generator("cuda", seed=6)
    out = cupy.zeros(64, cupy.float32)
    late, soon = (backend.new_stream(0) for _ in range(2))
    backend.synchronize(0)
    graph = backend.new_capture(0)
    with backend.use_stream(late):
        random.uniform(out=out, generator=generator)
        late.synchronize()
        graph.begin()
        random.uniform(out=out, generator=generator)
        graph.end()
        graph.replay()
        late.synchronize()

        face_of_cuda.spin(20_000_000)
        graph.replay()
    with backend.use_stream(soon):
        graph.replay()
    backend.synchronize(0)

    wanted = ops.uniform(from_host(to_host(out), "cuda"), state=GeneratorState(6, 4 + 4 * 2))
    assert bool((out == wanted).all())
    graph.reset()


@exclusive
def test_more_elements_than_32_bits_count(cupy: Any) -> None:
    from cuassay.arrays import distributions, philox

    n, state = 2**31 + 1000, GeneratorState(8)
    if cupy.cuda.runtime.memGetInfo()[0] < 2 * n:
        pytest.skip("less than 4 GiB of free memory")

    mask = ops.dropout_mask(cupy.broadcast_to(cupy.zeros((), cupy.float16), (n,)), state=state, p=0.5)

    words = philox.random_words(state, 250, first=2**29).reshape(-1)
    assert (to_host(mask[2**31 :]) == (words >= distributions.dropped_words(0.5))).all()
    assert abs(float(mask.mean()) - 0.5) < 1e-4
