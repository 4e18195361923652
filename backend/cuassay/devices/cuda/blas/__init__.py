"""Matrix products by cuBLASLt and cuBLAS: how a product finds its kernel, and where others may take part.

From the bottom up: `problem` says what decides a kernel, `layouts` how arrays become a problem (both pure numbers),
`cublaslt` and `cublas` are the libraries, `plans` keeps what is ready to run; arrays come in by `devices.cuda.gemm`.

Two seams are for others.

A tuner enumerates and chooses::

    problem                                     # a `Problem`: equal ones may share a choice; all it depends on is in it
    for algorithm in plans.candidates(problem, count=100, workspace_nbytes=2**25):
        plan = plans.Plan(problem, algorithm)   # descriptors of this thread and device
        plan.run(a, b, c, d)                    # addresses in the library's order; `c` is `d` where beta is 0
    plans.set_selector(chosen)                  # (problem, device index) -> Algorithm, or None for the library's first

An `Algorithm` is 64 bytes and a workspace: it may be kept on disk, bound to the library's version and the GPU.
`plans.observe` is told of each problem that gets a plan, once: what a record of untuned shapes needs.

A precision mode that no library has registers how it multiplies (see `devices.cuda.gemm.Product`)::

    gemm.register_emulation("bf16x6", multiply)     # multiply(product) -> None, in order of the current stream
    gemm.register_emulation("bf16x6", multiply, prepare)    # prepare(product) -> a call that computes it again

Until one is, the split modes compute in float32: never less precise than asked.
"""

from __future__ import annotations
