"""Layer 4, the referee: verdicts on untrusted kernels.

The judge's process never imports a candidate. `process` starts each candidate in its own process, `jail` confines that
process, `protocol` is the only channel between the two, and `candidate` runs on the other side. `zygote` keeps a warm
process to fork candidates from, and `supervisor` watches a candidate and ends whatever it leaves behind.
"""
