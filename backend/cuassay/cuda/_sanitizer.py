"""The race sanitizer of CUDA, by the name of ``torch.cuda._sanitizer``.

It finds an access that is not ordered after a conflicting one of another stream, and memory that is freed while another
stream may still use it. Where we differ from torch: accesses are compared by bytes, replays of graphs are judged by the
launches recorded in them, kernels of `cuassay.cuda.compile_kernel` and functions of CuPy are seen, and the error is
raised where the access is made, as `cuassay.errors.RaceError`.
"""

from __future__ import annotations

import atexit
import sys

from cuassay.observe.sanitizer import Sanitizer, summary

__all__ = ["disable_cuda_sanitizer", "enable_cuda_sanitizer"]

_on: list[Sanitizer] = []


def enable_cuda_sanitizer() -> None:
    """Judge all work of this process from here, in every thread; twice is allowed. Call it before streams are used.

    The setting ``CUASSAY_CUDA_SANITIZER`` (torch's ``TORCH_CUDA_SANITIZER``) does it at the import of `cuassay`. At the
    end of the process what was found, and what could not be seen, is written to the standard error.
    """
    if not _on:
        _on.append(Sanitizer())
        _on[0].start()


def disable_cuda_sanitizer() -> None:
    """Judge no more; twice is allowed."""
    while _on:
        _tell(_on.pop())


@atexit.register
def _at_exit() -> None:
    disable_cuda_sanitizer()


def _tell(sanitizer: Sanitizer) -> None:
    sanitizer.stop()
    for line in summary(sanitizer):
        sys.stderr.write(f"{line}\n")
