"""It never answers."""

# spec: rms_norm
import time


def run(xp, a):
    time.sleep(1000)
