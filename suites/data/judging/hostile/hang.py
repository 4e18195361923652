"""It holds the lock of the interpreter and sleeps."""

# spec: rms_norm
import ctypes


def run(xp, a):
    ctypes.PyDLL(None).sleep(1000)
