"""Faults planted in the host code of products: a generated check finds each.

That every fault still has its place in the source needs no GPU; that the check fails needs one. No fault makes a kernel
read or write outside an array: that would end the context.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cuassay.devices.cuda
from cuassay.arrays.dtypes import as_dtype
from cuassay.errors import DriverError
from cuassay.ops import registry
from cuassay.testing.generated.checks import CHECKS
from cuassay.testing.own_specs import own_specs

SPECS = {spec.name: spec for spec in own_specs()}
ROOM = "cuassay.devices.cuda"


@dataclass(frozen=True)
class Fault:
    """`right`, once in `module` of the cuda room, becomes `wrong`; `check` of `op` must fail in `dtype`."""

    op: str
    what: str
    check: str
    dtype: str
    module: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.op}: {self.what}".replace(" ", "-")

    @property
    def text(self) -> str:
        """The module's source."""
        folder = Path(cuassay.devices.cuda.__file__).parent
        return folder.joinpath(*self.module.split(".")).with_suffix(".py").read_text(encoding="utf-8")


FAULTS = (
    Fault("matmul", "transpose not told", "layouts", "float32", "blas.layouts",
          "transpose_b=a_flipped", "transpose_b=False"),
    Fault("bmm", "only the first of a stack", "values", "float32", "blas.layouts", "batch=d.count", "batch=1"),
    Fault("matmul", "added to what was there", "out", "float32", "blas.gemm", '"beta": product.beta,', '"beta": 1.0,'),
    Fault("mm", "tf32 unasked", "values", "float32", "blas.problem",
          'return _FLOAT32_MODES.get(mode, "32F")', 'return "32F_FAST_TF32"'),
    Fault("matmul", "16-bit accumulator", "values", "float16", "blas.problem",
          'if name == "float16" and options.fp16_accumulation:', 'if name == "float16":'),
    Fault("matmul", "of no terms is not zero", "zero_size", "float32", "blas.gemm", "out.fill(0)", "out.fill(1)"),
    Fault("linear", "bias left out", "values", "float32", "blas.routing",
          "weight.T, out, None, bias, 1.0, 0.0, activation", "weight.T, out, None, None, 1.0, 0.0, activation"),
    Fault("linear", "no activation", "values", "bfloat16", "blas.gemm",
          "[words[product.activation]] if product.activation else []", "[]"),
    Fault("addmm", "beta ignored", "values", "float32", "blas.routing",
          "return a, b, out, c, None, alpha, beta, activation", "return a, b, out, c, None, alpha, 1.0, activation"),
    Fault("baddbmm", "alpha ignored", "values", "float32", "blas.routing",
          "return a, b, out, c, None, alpha, beta, activation", "return a, b, out, c, None, 1.0, beta, activation"),
    Fault("addmm", "gelu of float64 in float32", "values", "float64", "blas.gemm",
          'product.activation == "gelu_tanh" and product.out', 'product.activation == "none" and product.out'),
    Fault("grouped_mm", "rows past the last", "values", "float32", "blas.routing", "out[end:] = 0", "out[end:] = 1"),
    Fault("scaled_mm", "exponents decoded wrongly", "values", "uint8", "blas.fp8",
          "np.float16(256)", "np.float16(128)"),
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_has_exactly_one_place(fault: Fault) -> None:
    assert fault.text.count(fault.right) == 1
    assert fault.check in CHECKS


# ------------------------------------------------------------------------------------------------ on a device


@pytest.fixture
def plant(cublaslt: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Puts what the spoilt text defines where the right things are; plans made before and after are forgotten."""
    from cuassay.devices.cuda.blas import controls

    def spoil(fault: Fault) -> ModuleType:
        right = importlib.import_module(f"{ROOM}.{fault.module}")
        spoilt = ModuleType(right.__name__)
        monkeypatch.setitem(sys.modules, right.__name__, spoilt)  # dataclasses look their module up
        exec(compile(fault.text.replace(fault.right, fault.wrong), fault.module, "exec"), vars(spoilt))  # noqa: S102
        monkeypatch.setitem(sys.modules, right.__name__, right)
        _replace(right, spoilt, monkeypatch)
        monkeypatch.setattr(registry.op(fault.op), "shortcuts", {})
        controls.renew()
        return spoilt

    yield spoil
    monkeypatch.undo()
    controls.renew()


def _replace(right: ModuleType, spoilt: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions and classes that `right` defines, in every module of the room that has them by name."""
    own = {name: value for name, value in vars(right).items() if getattr(value, "__module__", None) == right.__name__}
    for module in [module for name, module in sys.modules.items() if name.startswith(ROOM)]:
        for name, value in own.items():
            if vars(module).get(name) is value:
                monkeypatch.setattr(module, name, getattr(spoilt, name))


def _spoilt_implementation(right: Any, spoilt: ModuleType) -> Any:
    """The implementation made of what `spoilt` defines; another module's stays."""
    kind = getattr(spoilt, type(right).__name__, None)
    if kind is None:
        return right
    spread = getattr(right, "_spread", None)
    return kind() if spread is None else kind(getattr(spoilt, spread.__name__))


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_planted_host_fault_fails_a_check_that_names_the_op(fault: Fault, plant: Any) -> None:
    spoilt = plant(fault)

    with (
        registry.substituted(fault.op, kind="cuda", wrap=lambda right: _spoilt_implementation(right, spoilt)),
        pytest.raises((AssertionError, DriverError)) as caught,
    ):
        CHECKS[fault.check](SPECS[fault.op], "cuda:0", as_dtype(fault.dtype))

    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert f"op: {fault.op} on cuda:0 in {fault.dtype}" in told


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_check_passes_without_the_fault(fault: Fault, on_cuda: None) -> None:
    CHECKS[fault.check](SPECS[fault.op], "cuda:0", as_dtype(fault.dtype))
