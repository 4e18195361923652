"""Matrix products by cuBLASLt and cuBLAS: how a product finds its kernel, and where other code can take part.

From the bottom up: `problem` defines what decides a kernel, and `layouts` how arrays become a problem (both are only
arithmetic). `product` is one product of arrays, `cublaslt` and `cublas` are the libraries, and `plans` keeps what is
ready to run. `routing` turns the calls of ops into products, and `gemm` runs them. `emulation` and `fp8` compute in
formats that no library offers, `product_shortcuts` serves repeated calls, and `conv` and `solver` build on products.

`providers` collects ways to compute a product: from `libraries` (cuBLASLt's algorithms and their neighbours, cuBLAS)
and from cuassay's own kernels. `tuning` compares them on a `bench` of random `operands`, keeps the fastest one whose
result is in `agreement` with that of the library's first algorithm, and is the selector of `plans` while
`cuassay.cuda.tunable` is enabled. `offline` tunes listed problems, on one GPU or several.

Other code can connect in two places.

Another tuner enumerates candidates and chooses::

    problem                                     # a `Problem`: equal problems may share a choice
    for candidate in providers.candidates(problem, device):
        plan = providers.plan(problem, candidate, device)   # for this thread and device
        plan.run(a, b, c, d)                    # addresses in the library's order; `c` is `d` if beta is 0
    plans.set_selector(chosen)                  # (problem, device index) -> candidate, or None for the library's first

A `Candidate` is plain data: it can be stored, together with the providers' versions and the GPU for which it is valid.
`plans.observe` registers a function that is called with the problem of each plan that is made.

A precision mode that no library offers registers a function that finds what multiplies in it
(`gemm.register_emulation`)::

    gemm.register_emulation("bf16x6", find)     # find(product, a, b, c, out: layouts) -> multiply(product), or None

`emulation` does so for the split modes. Without it they are computed in float32, never less precisely than requested.
"""

from __future__ import annotations
