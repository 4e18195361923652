"""It leaves processes behind that ignore every signal, and is wrong."""

# spec: rms_norm
import os
import signal
import time


def run(xp, a):
    if not os.fork():
        for number in range(1, 32):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                continue
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(1000)
    return xp.zeros_like(a)
