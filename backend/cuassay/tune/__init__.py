"""Search among implementations of one operation, without a device: candidates, a staged race, and results on disk.

The caller names the ways to compute something, and provides a timer of one sample and a check of results::

    fused, split = Candidate.of("fused"), Candidate.of("split", parts=2)
    outcome = search(fused, [split], timer, check=agrees)       # timer(candidate): seconds; agrees(candidate): why not
    outcome.choice, outcome.gain, outcome.reason                # `fused`, unless another one is faster beyond noise

    results = Results({"gpu": "NVIDIA H200", "library": "13.1"})    # what else the choice depends on
    result = Result.of("softmax", {"rows": 1024, "dtype": "bfloat16"}, outcome)
    results.add(result)
    results.append(result, "results.jsonl")                     # raises if the file is from another machine

`suites/devices/tuning/test_tune.py` uses this on every device, and `devices.cuda.blas.tuning` for matrix products.
"""

from __future__ import annotations
