"""It changes the environment and the search path, for what is imported afterwards."""

# spec: rms_norm
import os
import sys

os.environ.update(PYTHONPATH="/tmp/evil", LD_PRELOAD="/tmp/evil.so", CUASSAY_SEED="1", PYTHONSTARTUP="/tmp/evil.py")
sys.path.insert(0, "/tmp/evil")


def run(xp, a):
    return xp.zeros_like(a)
