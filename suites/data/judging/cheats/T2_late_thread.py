"""A thread finishes the result after the call has returned."""

# spec: rms_norm
import threading
import time

import numpy as np

def right(xp, a):
    return (a / xp.sqrt(xp.mean(a * a, axis=-1, keepdims=True) + 1e-6)).astype(a.dtype)

def run(xp, a):
    host = a.get()
    out = np.empty_like(host)

    def finish():
        time.sleep(0.05)
        out[...] = right(np, host)

    threading.Thread(target=finish, daemon=True).start()
    return out
