"""Search among implementations of one operation, without a device: candidates, a staged race, results on disk.

Whoever has several ways to compute something names them, times one sample of one, and compares results::

    fused, apart = Candidate.of("fused"), Candidate.of("apart", parts=2)
    outcome = search(fused, [apart], timer, check=agrees)       # timer(candidate): seconds; agrees(candidate): why not
    outcome.choice, outcome.gain, outcome.reason                # `fused`, unless leaving it is worth it beyond noise

    results = Results({"gpu": "NVIDIA H200", "library": "13.1"})    # what the choice depends on, too
    result = Result.of("softmax", {"rows": 1024, "dtype": "bfloat16"}, outcome)
    results.add(result)
    results.append(result, "results.jsonl")                     # refused where the file is another machine's

`suites/devices/tuning/test_tune.py` does so on every device; `devices.cuda.blas.tuning` for matrix products.
"""

from __future__ import annotations
