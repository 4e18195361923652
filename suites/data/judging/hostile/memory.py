"""It asks for 10 GB and writes to every page."""

# spec: rms_norm
import mmap


def run(xp, a):
    memory = mmap.mmap(-1, 10 << 30)
    for page in range(0, len(memory), 4096):
        memory[page] = 1
