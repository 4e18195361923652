"""By doubling: each step adds what lies twice as far away."""

# spec: prefix_sum
def run(xp, a):
    out, step = a.copy(), 1
    while step < a.shape[-1]:
        shifted = out.copy()
        shifted[..., step:] += out[..., :-step]
        out, step = shifted, 2 * step
    return out
