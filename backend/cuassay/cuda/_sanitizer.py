"""The race sanitizer of CUDA, under the name of ``torch.cuda._sanitizer``.

It detects accesses that are not ordered after a conflicting access of another stream, and memory that is freed while
another stream may still use it. Differences from torch: accesses are compared by byte ranges; graph replays are checked
by the launches recorded in the graph; kernels of `cuassay.cuda.compile_kernel` and CuPy functions are covered; and the
error, `cuassay.errors.RaceError`, is raised where the access is made.
"""

from __future__ import annotations

import atexit
import sys

from cuassay.observe.sanitizer import Sanitizer, summary

__all__ = ["disable_cuda_sanitizer", "enable_cuda_sanitizer"]

_on: list[Sanitizer] = []


def enable_cuda_sanitizer() -> None:
    """Check all later work of this process, in every thread; a second call does nothing. Call it before using streams.

    The setting ``CUASSAY_CUDA_SANITIZER`` (torch's ``TORCH_CUDA_SANITIZER``) does this at the import of `cuassay`. At
    the end of the process, the races found and the accesses that it could not see are written to the standard error.
    """
    if not _on:
        _on.append(Sanitizer())
        _on[0].start()


def disable_cuda_sanitizer() -> None:
    """Stop checking, and report; a second call does nothing."""
    while _on:
        _tell(_on.pop())


@atexit.register
def _at_exit() -> None:
    disable_cuda_sanitizer()


def _tell(sanitizer: Sanitizer) -> None:
    sanitizer.stop()
    for line in summary(sanitizer):
        sys.stderr.write(f"{line}\n")
