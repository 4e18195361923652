"""Odd and even neighbours by turns, as many times as there are numbers."""

# spec: sorted_rows
def run(xp, a):
    out = a.copy()
    for turn in range(a.shape[-1]):
        left, right = out[..., turn % 2 : -1 : 2].copy(), out[..., turn % 2 + 1 :: 2].copy()
        n = right.shape[-1]
        out[..., turn % 2 : turn % 2 + 2 * n : 2] = xp.minimum(left[..., :n], right)
        out[..., turn % 2 + 1 :: 2] = xp.maximum(left[..., :n], right)
    return out
