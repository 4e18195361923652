"""What a call costs the host: on few elements, compared with the same call of the device's own library and of torch.

Rows have the host's clock: the time until the call returns, in warm batches short enough that no queue fills.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuassay import Device, from_host, namespace, ops, to_host
from cuassay.benchmarking.cases import timing_row
from cuassay.benchmarking.pytest_benchmark import DeviceBenchmark
from cuassay.benchmarking.timing import Timing
from cuassay.devices import backend
from cuassay.results.record import Recorder
from cuassay.testing import devices

ELEMENTS = 1024
LIBRARIES = {"cpu": "numpy", "cuda": "cupy"}

Call = Callable[[], Any]
Measured = Callable[[str, dict[str, Call]], None]

ADD = """
__global__ void add(float* out, const float* a, const float* b, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
"""

#: The floor: the driver's call in a loop of C, its arguments packed once.
LAUNCH_IN_C = """
int launch_many(int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                              void **, void **), void *function, void *stream, void **arguments, int count) {
    int status = 0;
    while (count-- && !status) status = launch(function, 4, 1, 1, 256, 1, 1, 0, stream, arguments, 0);
    return status;
}
"""

#: Launches a sample: few enough that the queue does not fill.
LAUNCHES = 100


@dataclass(frozen=True)
class Form:
    """One way to call: ours, and a peer's, from (library, a, b, out) to what is timed."""

    case: str
    ours: Callable[[Any, Any, Any], Call]
    peer: Callable[[Any, Any, Any, Any], Call]

    def __str__(self) -> str:
        return self.case.replace(" ", "-")


FORMS = (
    Form("new output", lambda a, b, out: lambda: ops.add(a, b), lambda xp, a, b, out: lambda: xp.add(a, b)),
    Form(
        "given output",
        lambda a, b, out: lambda: ops.add(a, b, out=out),
        lambda xp, a, b, out: lambda: xp.add(a, b, out=out),
    ),
    Form(
        "number",
        lambda a, b, out: lambda: ops.add(a, 2.0, out=out),
        lambda xp, a, b, out: lambda: xp.add(a, 2.0, out=out),
    ),
    Form(
        "one element for all",
        lambda a, b, out: lambda b=b[:1]: ops.add(a, b, out=out),
        lambda xp, a, b, out: lambda b=b[:1]: xp.add(a, b, out=out),
    ),
    Form(
        "plan",
        lambda a, b, out: ops.add.prepare(a, b, out=out).run,
        lambda xp, a, b, out: lambda: xp.add(a, b, out=out),
    ),
)


@pytest.fixture
def measured(device: Device, device_benchmark: DeviceBenchmark, recorder: Recorder | None) -> Measured:
    """Measures calls side by side, and keeps the host's times where figures are kept."""

    def measure(case: str, calls: dict[str, Call]) -> None:
        timings = device_benchmark(calls, device, cache="warm", queued=False, op="add", case=case)
        hosts = {name: Timing(timing.host_s, timing.host_s, "host", timing.cache) for name, timing in timings.items()}
        device_benchmark.note(**{f"{name}_host_median_s": timing.median_s for name, timing in hosts.items()})
        for name, timing in hosts.items() if recorder is not None else ():
            told = {"case": f"{case}, {ELEMENTS} elements", "dtype": "float32"}
            recorder.write_time(**timing_row("host_overhead", device, name, timing, **told))

    return measure


@pytest.fixture
def operands(device: Device) -> tuple[Any, Any, Any]:
    """Two arrays and an output, on the device."""
    a, b, out = (from_host(np.full(ELEMENTS, value, np.float32), device) for value in (1, 2, 0))
    return a, b, out


@devices("cpu", "cuda")
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_call(device: Device, form: Form, operands: tuple[Any, Any, Any], measured: Measured) -> None:
    ours = form.ours(*operands)
    calls = {"cuassay": ours, LIBRARIES[device.kind]: form.peer(namespace(device), *operands)}
    if importlib.util.find_spec("torch") is not None:
        calls["torch"] = form.peer(*_torch_operands(device))

    measured(form.case, calls)

    assert to_host(ours()).tolist() == [3.0] * ELEMENTS


def _torch_operands(device: Device) -> tuple[Any, Any, Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that torch gives at its start is not ours
        import torch

        a, b, out = (
            torch.full((ELEMENTS,), value, device=str(device).replace("cpu:0", "cpu")) for value in (1.0, 2.0, 0.0)
        )
    return torch, a, b, out


@devices("cuda")
def test_launch(device: Device, operands: tuple[Any, Any, Any], measured: Measured) -> None:
    from cuassay import cuda

    xp, (a, b, out) = namespace(device), operands
    arguments, peer_arguments = (out, a, b, ELEMENTS), (out, a, b, np.int64(ELEMENTS))
    kernel = cuda.compile_kernel(ADD, "add")
    peer = xp.RawKernel(f'extern "C" {ADD.strip()}', "add")
    bound = kernel.bind(4, 256, arguments)

    measured(
        "launch",
        {
            "cuassay": lambda: kernel(4, 256, arguments),
            "cuassay bound": bound,
            "cupy": lambda: peer((4,), (256,), peer_arguments),
        },
    )
    out.fill(0)
    bound()

    assert to_host(out).tolist() == [3.0] * ELEMENTS


@devices("cuda")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) on PATH")
def test_launch_next_to_c(device: Device, operands: tuple[Any, Any, Any], measured: Measured, tmp_path: Path) -> None:
    from cuassay import cuda

    a, b, out = operands
    kernel = cuda.compile_kernel(ADD, "add")
    arguments = (out, a, b, ELEMENTS)
    block = kernel.prepare([type(argument) for argument in arguments])
    block.write(arguments)
    stream = backend(device.kind).current_stream(device.index).ptr
    launch_many = _launch_in_c(tmp_path, block, arguments, stream)

    measured(
        f"{LAUNCHES} launches",
        {
            "cuassay prepared": _repeated(block.bind(4, 256, 0, stream)),  # for one stream, its status unread
            "cuassay bound": _repeated(kernel.bind(4, 256, arguments)),  # for whichever stream is current
            "c": launch_many,
        },
    )
    out.fill(0)
    launch_many()

    assert to_host(out).tolist() == [3.0] * ELEMENTS


def _repeated(launch: Call) -> Call:
    def run() -> None:
        for _ in repeat(None, LAUNCHES):  # cheaper than range, which makes a number each time
            launch()

    return run


def _launch_in_c(folder: Path, block: Any, arguments: tuple[Any, ...], stream: int) -> Call:
    """The same launches from C."""
    source, library = folder / "launch.c", folder / "launch.so"
    source.write_text(LAUNCH_IN_C)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    driver, compiled = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(str(library))
    values = [ctypes.c_void_p(array.data.ptr) for array in arguments[:3]] + [ctypes.c_longlong(arguments[3])]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    function = ctypes.c_void_p(block._handle)

    def launch_many() -> None:
        status = compiled.launch_many(driver.cuLaunchKernel, function, ctypes.c_void_p(stream), pointers, LAUNCHES)
        assert status == 0
        assert values  # the pointers point into them

    return launch_many
