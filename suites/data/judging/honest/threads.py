"""Rows are shared among threads of the host that end before the call does."""

# spec: rms_norm
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def run(xp, a):
    host = a.get()
    rows = host.reshape(-1, host.shape[-1])
    out = np.empty_like(rows)

    def one(index):
        row = rows[index]
        out[index] = row / np.sqrt((row * row).mean() + 1e-6)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(len(rows))))
    return xp.asarray(out.reshape(host.shape))
