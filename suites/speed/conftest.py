"""What the benchmarks share: the bridge to pytest-benchmark, the run's ceilings, peers, and the record."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cuassay import Device, devices, namespace, to_host
from cuassay.benchmarking.cases import Case, timing_row
from cuassay.benchmarking.conditions import Watch
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark, is_measuring
from cuassay.benchmarking.roofline import Limit, limits
from cuassay.benchmarking.timing import Timing
from cuassay.results.record import Recorder

#: The same computation by the device's own array library: NumPy on cpu, CuPy on cuda.
ARRAY_PEERS: dict[str, Callable[..., Any]] = {
    "add": lambda xp, a, b: xp.add(a, b),
    "mul": lambda xp, a, b: xp.multiply(a, b),
    "sub": lambda xp, a, b: xp.subtract(a, b),
    "div": lambda xp, a, b: xp.divide(a, b),
    "neg": lambda xp, a: xp.negative(a),
    "sqrt": lambda xp, a: xp.sqrt(a),
    "log": lambda xp, a: xp.log(a),
    "tanh": lambda xp, a: xp.tanh(a),
    "where": lambda xp, condition, a, b: xp.where(condition, a, b),
    "exp": lambda xp, a: xp.exp(a),
    "relu": lambda xp, a: xp.maximum(a, 0),
    "sum": lambda xp, a, axis=None: xp.sum(a, axis=axis),
    "amax": lambda xp, a, axis=None: xp.max(a, axis=axis),
    "matmul": lambda xp, a, b: xp.matmul(a, b),
    "copy": lambda xp, a, memory_format="preserve": a.copy(),  # in C order
    "cat": lambda xp, arrays, axis: xp.concatenate(arrays, axis),
    "stack": lambda xp, arrays, axis=0: xp.stack(arrays, axis),
}


def _of_torch(name: str) -> Callable[..., Any]:
    """Torch's function of that name."""
    return lambda torch, *arrays: getattr(torch, name)(*arrays)


def _along_axis(name: str) -> Callable[..., Any]:
    """The function of that name in torch, which takes the axis by place."""
    return lambda torch, a, axis=-1: getattr(torch, name)(a, axis)


#: And by torch.
TORCH_PEERS: dict[str, Callable[..., Any]] = {
    "add": lambda torch, a, b: torch.add(a, b),
    "mul": lambda torch, a, b: torch.mul(a, b),
    "sub": lambda torch, a, b: torch.sub(a, b),
    "div": lambda torch, a, b: torch.div(a, b),
    "neg": lambda torch, a: torch.neg(a),
    "sqrt": lambda torch, a: torch.sqrt(a),
    "log": lambda torch, a: torch.log(a),
    "tanh": lambda torch, a: torch.tanh(a),
    "sigmoid": lambda torch, a: torch.sigmoid(a),
    "silu": lambda torch, a: torch.nn.functional.silu(a),
    "clamp": lambda torch, a, **bounds: torch.clamp(a, **bounds),
    **{name: _of_torch(name) for name in ("abs", "sign", "rsqrt", "reciprocal", "expm1", "log1p", "sin", "cos", "erf")},
    **{name: _of_torch(name) for name in ("pow", "maximum", "minimum", "greater", "logical_and", "logical_not")},
    "gelu_backward": lambda torch, grad, a: torch.ops.aten.gelu_backward(grad, a),
    "exp": lambda torch, a: torch.exp(a),
    "relu": lambda torch, a: torch.relu(a),
    "gelu": lambda torch, a: torch.nn.functional.gelu(a),
    "softmax": lambda torch, a, axis=-1: torch.softmax(a, axis),
    "layer_norm": lambda torch, a, weight, bias: torch.nn.functional.layer_norm(a, a.shape[-1:], weight, bias),
    "softmax_backward": lambda torch, grad, result, axis=-1: torch.ops.aten._softmax_backward_data(
        grad, result, axis, result.dtype
    ),
    "sum": lambda torch, a, axis=None: torch.sum(a, axis),
    "amax": lambda torch, a, axis=None: torch.amax(a, axis),
    "matmul": lambda torch, a, b: torch.matmul(a, b),
    "mm": lambda torch, a, b: torch.mm(a, b),
    "bmm": lambda torch, a, b: torch.bmm(a, b),
    "addmm": lambda torch, c, a, b, activation: torch._addmm_activation(c, a, b, use_gelu=activation == "gelu_tanh"),
    "baddbmm": lambda torch, c, a, b, alpha: torch.baddbmm(c, a, b, alpha=alpha),
    "linear": lambda torch, a, weight, bias: torch.nn.functional.linear(a, weight, bias),
    "copy": lambda torch, a, memory_format="preserve": a.clone(memory_format=getattr(torch, f"{memory_format}_format")),
    "cat": lambda torch, arrays, axis: torch.cat(arrays, axis),
    "stack": lambda torch, arrays, axis=0: torch.stack(arrays, axis),
    **{name: _of_torch(name) for name in ("less", "where")},
    **{name: _along_axis(name) for name in ("argmax", "prod", "mean", "cumsum", "logsumexp", "log_softmax")},
    "var": lambda torch, a, axis: torch.var(a, axis, correction=0),
    "pad": lambda torch, a, widths: torch.nn.functional.pad(a, [one for pair in reversed(widths) for one in pair]),
    "embedding": lambda torch, index, table: torch.nn.functional.embedding(index, table),
    "gather": lambda torch, a, index, axis: torch.gather(a, axis, index),
    "index_add": lambda torch, a, index, b, axis: torch.index_add(a, axis, index, b),
}


@pytest.fixture
def device_benchmark(device_benchmark: DeviceBenchmark) -> DeviceBenchmark:
    """The harness's. The files here write their rows themselves: by names of their own, host times too."""
    device_benchmark.write = None
    return device_benchmark


@pytest.fixture
def host_times(device: Device, device_benchmark: DeviceBenchmark, recorder: Recorder | None) -> Callable[..., None]:
    """Measures batches of `per_sample` calls side by side, and keeps the host's time of one call.

    What a call has measured of itself, a part of it, is in `parts` by name, and is kept instead.
    """

    def measure(
        op: str,
        case: str,
        calls: dict[str, Callable[[], Any]],
        per_sample: int,
        parts: dict[str, list[float]] | None = None,
        **options: Any,
    ) -> None:
        timings = device_benchmark(calls, device, cache="warm", queued=False, op=op, case=case, **options)
        for name, timing in timings.items():
            samples = timing.host_s if parts is None else parts[name][-len(timing.host_s) :]
            host = Timing(tuple(s / per_sample for s in samples), (), "host", timing.cache)
            device_benchmark.note(**{f"{name}_host_median_s": host.median_s})
            if recorder is not None:
                recorder.write_time(**timing_row(op, device, name, host, case=case))

    return measure


@pytest.fixture
def emptied_queue(device: Device) -> Iterator[None]:
    """What one test gave the device is not in the queue of the next."""
    yield
    devices.backend(device.kind).synchronize(device.index)


@pytest.fixture(scope="session")
def peers() -> Callable[[Case], dict[str, Callable[[], Any]]]:
    """Of a case: its peers."""
    return peers_of


def peers_of(case: Case) -> dict[str, Callable[[], Any]]:
    """The peers present on the case's device, by name, made ready on the same numbers."""
    found: dict[str, Callable[[], Any]] = {}
    array_peer, library = ARRAY_PEERS.get(case.spec.name), {"cpu": "numpy", "cuda": "cupy"}.get(case.device.kind)
    if array_peer is not None and library is not None and _computes(library, case.dtype):
        xp = namespace(case.device)
        found[library] = lambda: array_peer(xp, *case.arguments, **case.keywords)
    if library is not None and importlib.util.find_spec("torch") is not None and case.spec.name in TORCH_PEERS:
        found["torch"] = _torch_call(case)
    return found


def _computes(library: str, dtype: str) -> bool:
    """CuPy knows bfloat16 in few functions; NumPy's rounds after every step, which is another computation."""
    return dtype != "bfloat16"


def _torch_call(case: Case) -> Callable[[], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that torch gives at its start is not ours
        import torch

        torch.cuda.is_available()
    where = str(case.device) if case.device.kind == "cuda" else "cpu"
    dtype = getattr(torch, case.dtype)

    def given(a: Any) -> Any:
        if isinstance(a, list):
            return [given(one) for one in a]
        on_host = to_host(a)
        if on_host.dtype.kind in "biu":  # of a condition or an index
            return torch.from_numpy(on_host).to(where)
        axes = sorted(range(a.ndim), key=lambda axis: -a.strides[axis])  # torch's strides are in the same order
        dense = torch.from_numpy(on_host.astype("float32").transpose(axes).copy()).to(where, dtype)
        return dense.permute([axes.index(axis) for axis in range(a.ndim)])

    arrays = [given(a) for a in case.arguments]
    function = TORCH_PEERS[case.spec.name]
    return lambda: function(torch, *arrays, **case.keywords)


@pytest.fixture(scope="session")
def ceilings(pytestconfig: pytest.Config, recorder: Recorder | None) -> Callable[[Device], tuple[Limit, ...]]:
    """The device's measured limits, taken once a session where anything is measured."""
    known: dict[Device, tuple[Limit, ...]] = {}

    def of(device: Device) -> tuple[Limit, ...]:
        if not is_measuring(pytestconfig):
            return ()
        if device not in known:
            known[device] = limits(device)
            for limit in known[device] if recorder is not None else ():
                recorder.write_limit(**limit.columns())
        return known[device]

    return of


@pytest.fixture(scope="session")
def recorder(pytestconfig: pytest.Config) -> Iterator[Recorder | None]:
    """Where ``--cuassay-record`` keeps rows, in the run that the harness began there."""
    path = pytestconfig.getoption("cuassay_record")
    if path is None:
        yield None
        return
    with Recorder(path, run=_run_of(pytestconfig)) as opened:
        watch = Watch(opened.write)
        write = opened.write_time

        def watched(**columns: object) -> None:
            write(**columns)
            watch.look(str(columns["device"]))

        opened.write_time = watched  # type: ignore[method-assign]
        yield opened
        watch.close()


def _run_of(config: pytest.Config) -> str | None:
    """The id of the run whose row this session writes, or was told."""
    recording = config.pluginmanager.get_plugin("cuassay_recording")
    return config.getoption("cuassay_run") or getattr(recording, "run", None)
