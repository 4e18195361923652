"""The fused Adam step on CuPy arrays: one launch for any list.

A plan (`cuassay.ops.fused_adam_.prepare`) keeps the tables of the lists and the launch. New gradients of the same
shapes only update their addresses; new hyperparameters prepare a new launch. Everything that a step depends on or
changes is on the device, so a step can be captured.
Kernel: kernels/adam.cu. Called by `cuassay.ops`; OpSpecs: `cuassay.testing.specs.optim`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

from cuassay.arrays.dtypes import FLOATS, dtype_name
from cuassay.devices.cuda.launch.launch import kernel
from cuassay.devices.cuda.ops.multi_tensor import word
from cuassay.devices.cuda.ops.tables import BLOCK, Tables, elements_of
from cuassay.ops import Op, lists, registry
from cuassay.ops.schema import Arguments

__all__ = ["register"]


#: The lists in the order of the kernel's table.
_LISTS = ("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "masters")
_GRADS = _LISTS.index("grads")

#: How often a step accesses each list: gradients are only read, the others are also written.
_ACCESSES = (2, 1, 2, 2, 2, 2)

#: Device scalars in the order of ``Cells`` of adam.cu.
_CELLS = ("lr", "grad_scale", "found_inf", "norm")


class _Hyper(ctypes.Structure):
    """``Hyper`` of adam.cu."""

    _fields_ = (
        *(
            (name, ctypes.c_double)
            for name in ("lr", "beta1", "beta2", "one_minus_beta1", "one_minus_beta2", "log_beta1", "log_beta2")
        ),
        *((name, ctypes.c_double) for name in ("eps", "weight_decay", "max_norm")),
        ("seed", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("decoupled", "maximize", "lr_is_double", "unused")),
    )


class _Cells(ctypes.Structure):
    """``Cells`` of adam.cu."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in _CELLS)


class _Step:
    """One prepared step."""

    def __init__(self, bound: Arguments) -> None:
        from_zero = bound["seed"] is not None  # one call of Philox serves eight neighbours
        lists = [bound[name] or None for name in _LISTS]
        self._bind(bound, Tables(lists, 1, accesses=_ACCESSES, from_zero=from_zero))

    def _bind(self, bound: Arguments, tables: Tables) -> None:
        self._bound, self._tables = bound, tables
        arguments = (tables.tensors, tables.chunks, bound["steps"], tables.arrivals, _hyper(bound), _cells(bound))
        self._fire: Callable[[], None] = kernel("adam.cu", _kernel_name(bound, tables.off)).bind(
            tables.blocks, BLOCK, arguments
        )

    def __call__(self) -> None:
        """Launch."""
        self._tables.use(self._tables)
        self._fire()

    def rebind(self, changed: Arguments) -> _Step | None:
        """Use other gradients that fit, device scalars or hyperparameters; return None if more changes."""
        if any(name in changed for name in (*_LISTS, "steps", "seed") if name != "grads"):
            return None
        bound = {**self._bound, **changed}
        tables = self._tables.replaced(_GRADS, bound["grads"]) if "grads" in changed else self._tables
        if tables is None:
            return None
        lists.check_ones(bound, "grad_scale", "found_inf", "norm")
        lists.check_hyperparameters(bound)
        self._bind(bound, tables)
        return self


def _hyper(bound: Arguments) -> _Hyper:
    lr, beta1, beta2 = bound["lr"], float(bound["beta1"]), float(bound["beta2"])
    on_device = hasattr(lr, "dtype")
    return _Hyper(
        lr=0.0 if on_device else lr,
        beta1=beta1,
        beta2=beta2,
        one_minus_beta1=1 - beta1,
        one_minus_beta2=1 - beta2,
        log_beta1=math.log(beta1) if beta1 else -math.inf,
        log_beta2=math.log(beta2) if beta2 else -math.inf,
        eps=bound["eps"],
        weight_decay=bound["weight_decay"],
        max_norm=bound["max_norm"] or 0.0,
        seed=bound["seed"] or 0,
        decoupled=bound["decoupled"],
        maximize=bound["maximize"],
        lr_is_double=on_device and lr.dtype.itemsize == 8,
    )


def _cells(bound: Arguments) -> _Cells:
    given = {name: bound[name] for name in _CELLS if hasattr(bound[name], "dtype")}
    if bound["max_norm"] is None:
        given.pop("norm", None)
    return _Cells(**{name: array.data.ptr for name, array in given.items()})


def _kernel_name(bound: Arguments, off: int) -> str:
    dtypes = [dtype_name(bound[name][0].dtype) for name in ("params", "grads", "exp_avgs")]
    grads = 0 if bound["grad_scale"] is None and bound["max_norm"] is None else 1
    flags = [
        word(bound["masters"]),
        word(bound["max_exp_avg_sqs"]),
        str(2 if bound["zero_grads"] else grads),
        word(bound["seed"] is not None),
        str(off),
    ]
    return f"adam<{', '.join([*dtypes, *flags, str(_blocks(bound, off))])}>"


def _blocks(bound: Arguments, off: int) -> int:
    """Return the blocks a multiprocessor should hold: as many as leave each thread enough registers.

    Measured on H200.
    """
    length = elements_of(*(bound[name][0].dtype for name in _LISTS if bound[name]))
    amsgrad = bool(bound["max_exp_avg_sqs"])
    if length == 2:
        return 3 - amsgrad
    granules = 4 + amsgrad + off.bit_count()  # the granules that a thread has in flight
    granules += bool(bound["zero_grads"] and (off or length == 8))  # the gradients' addresses are kept
    if length == 8 and bound["seed"] is not None:
        granules += 3  # random bits of as many elements
    return 6 if granules <= 4 else 5 if granules <= 6 else 4


class _FusedAdam:
    """The implementation of the op; see `cuassay.ops.fused_adam_`."""

    def __call__(self, *arrays: Any, **scalars: Any) -> None:
        """Make the tables, and launch."""
        names = registry.op("fused_adam_").schema.array_names
        _Step({**dict(zip(names, arrays, strict=True)), **scalars})()

    def prepare(self, op: Op, bound: Arguments, out: None) -> _Step:
        """Return the launch with its tables."""
        return _Step(bound)


def register() -> None:
    """Add the implementation to the registry."""
    registry.implement("fused_adam_", kind="cuda", dtypes=FLOATS)(_FusedAdam())
