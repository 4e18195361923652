"""Controls of matrix products under the names of ``torch.backends.cuda``; importing this loads no CUDA library.

Differences from torch: reduced-precision reductions of 16-bit products are forbidden by default (see
`cuassay.core.precision`); the default library is cuBLASLt; a bad ``CUBLAS_WORKSPACE_CONFIG`` raises instead of being
ignored.
"""

from __future__ import annotations

from typing import cast

from cuassay.core import precision
from cuassay.core.device import Device
from cuassay.core.precision import MODES, Mode
from cuassay.cuda.naming import DeviceLike, index_of
from cuassay.errors import ArgumentError

__all__ = ["Matmul", "cublas_workspace_size", "current_blas_handle", "matmul", "preferred_blas_library"]


def _option(dtype: str) -> property:
    name = f"{dtype}_reduced_precision_reduction"

    def get(self: Matmul) -> bool:
        return bool(getattr(precision.matmul_options(), name))

    def put(self: Matmul, allowed: bool | tuple[bool, bool]) -> None:
        reduced, split = (allowed, True) if isinstance(allowed, bool) else allowed
        precision.set_matmul_options(**{name: reduced, f"{dtype}_split_k": split})

    return property(get, put, doc=f"Whether {dtype} parts of a product may be added in 16 bits; (allowed, split-k).")


def _split_k(dtype: str) -> property:
    def get(self: Matmul) -> bool:
        return bool(getattr(precision.matmul_options(), f"{dtype}_split_k"))

    return property(get, doc=f"Whether {dtype} products may be split along K; set with the reduction, as a tuple.")


class Matmul:
    """The switches of ``torch.backends.cuda.matmul``, for the whole process."""

    __slots__ = ()

    allow_fp16_reduced_precision_reduction = _option("fp16")
    allow_fp16_reduced_precision_reduction_split_k = _split_k("fp16")
    allow_bf16_reduced_precision_reduction = _option("bf16")
    allow_bf16_reduced_precision_reduction_split_k = _split_k("bf16")

    def __repr__(self) -> str:
        return f"Matmul(fp32_precision={self.fp32_precision!r}, {precision.matmul_options()})"

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products round their operands to TF32: whether the process's default mode is tf32."""
        return self.fp32_precision == "tf32"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        if not isinstance(allowed, bool):
            raise ArgumentError(
                f"allow_tf32 must be True or False; got {allowed!r}; for a mode by name set fp32_precision"
            )
        precision.set_default_precision("tf32" if allowed else "ieee")

    @property
    def fp32_precision(self) -> Mode:
        """The process's default mode of float32 products: one of torch's, or one of the split modes."""
        return precision.default_precision()

    @fp32_precision.setter
    def fp32_precision(self, mode: str) -> None:
        if mode != "none" and mode not in MODES:
            raise ArgumentError(
                f"{mode!r} is not a precision of float32 products; give none or one of {', '.join(MODES)}"
            )
        precision.set_default_precision(None if mode == "none" else cast(Mode, mode))

    @property
    def allow_fp16_accumulation(self) -> bool:
        """Whether float16 products may accumulate in float16."""
        return precision.matmul_options().fp16_accumulation

    @allow_fp16_accumulation.setter
    def allow_fp16_accumulation(self, allowed: bool) -> None:
        precision.set_matmul_options(fp16_accumulation=allowed)


matmul = Matmul()
"""The switches of matrix products, as attributes: ``matmul.allow_tf32 = True``."""


def preferred_blas_library(backend: str | None = None) -> str:
    """Set the preferred library, ``"cublas"``, ``"cublaslt"`` or ``"default"``, and return it; None only returns it.

    Raises
    ------
    ArgumentError
        If `backend` is another name.
    """
    from cuassay.devices.cuda.blas import controls

    return controls.preferred_blas_library(backend)


def cublas_workspace_size(device: DeviceLike = None, nbytes: int | None = None) -> int:
    """Return the workspace limit of a product on `device` in bytes; `nbytes`, if given, becomes the new limit.

    Raises
    ------
    ArgumentError
        If `nbytes` is negative.
    """
    from cuassay.devices.cuda.blas import controls

    return controls.workspace_nbytes(index_of(device), controls.library(), nbytes)


def current_blas_handle(device: DeviceLike = None) -> int:
    """Return the address of this thread's ``cublasHandle_t`` on `device` and its current stream, for other libraries.

    It uses cuBLAS' own workspace: call ``cublasSetWorkspace`` before a capture.
    """
    from cuassay import cuda
    from cuassay.devices.cuda.blas import cublas

    index = index_of(device)
    with cuda.device(Device("cuda", index)):
        return cublas.current_handle(index)
