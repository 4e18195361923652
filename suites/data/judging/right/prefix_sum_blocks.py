"""Blocks first, then the sums of the blocks before."""

# spec: prefix_sum
def run(xp, a):
    out = xp.empty_like(a)
    before = xp.zeros_like(a[..., :1])
    for start in range(0, a.shape[-1], 32):
        part = xp.cumsum(a[..., start : start + 32], axis=-1) + before
        out[..., start : start + 32] = part
        before = part[..., -1:]
    return out
