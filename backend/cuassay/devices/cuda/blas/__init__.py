"""Matrix products by cuBLASLt and cuBLAS: how a product finds its kernel, and where others may take part.

From the bottom up: `problem` says what decides a kernel, `layouts` how arrays become a problem (both pure numbers),
`product` is one product of arrays, `cublaslt` and `cublas` are the libraries, and `plans` keeps what is ready to run.
`routing` turns the calls of ops into products, and `gemm` runs them. `emulation` and `fp8` compute in formats that no
library offers, `product_shortcuts` serves repeated calls, and `conv` and `solver` build on products.

`providers` is who offers ways to compute a product: `libraries` (cuBLASLt's algorithms and what is near them, cuBLAS)
and kernels of our own. `tuning` races what they offer on a `bench` of random `operands`, keeps the best whose result is
in `agreement` with the library's first, and is the selector of `plans` while `cuassay.cuda.tunable` is enabled;
`offline` tunes listed problems, on one GPU or several.

Two seams are for others.

A tuner of another kind enumerates and chooses::

    problem                                     # a `Problem`: equal ones may share a choice; all it depends on is in it
    for candidate in providers.candidates(problem, device):
        plan = providers.plan(problem, candidate, device)   # of this thread and device
        plan.run(a, b, c, d)                    # addresses in the library's order; `c` is `d` where beta is 0
    plans.set_selector(chosen)                  # (problem, device index) -> candidate, or None for the library's first

A `Candidate` is plain data: it may be kept on disk, bound to the providers' versions and the GPU.
`plans.observe` registers a function that is called with the problem of each plan that is made.

A precision mode that no library has registers who finds what multiplies in it (see `gemm.register_emulation`)::

    gemm.register_emulation("bf16x6", find)     # find(product, a, b, c, out: layouts) -> multiply(product), or None

`emulation` does so for the split modes. Without it they compute in float32: never less precisely than was asked for.
"""

from __future__ import annotations
