"""Storey 4, the referee: a verdict on kernels that nobody trusts.

The judge's process never imports a candidate. `process` starts one in a process of its own, `jail` says what that
process cannot do, `protocol` is the only language between the two, and `candidate` is what runs on the other side.
`zygote` keeps a warm process to fork candidates from, and `supervisor` watches one and ends what it leaves behind.
"""
