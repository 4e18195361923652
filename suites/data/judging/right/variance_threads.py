"""Rows are shared among threads of the host that end before the call does."""

# spec: variance
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def run(xp, a):
    rows = a.get().reshape(-1, a.shape[-1])
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda row: np.var(row, dtype=np.float64), rows))
    return xp.asarray(np.array(found, a.dtype).reshape(a.shape[:-1]))
