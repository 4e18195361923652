"""Runs CUDA C++ kernels on the host: no GPU and no driver are needed, only g++ and the headers of the CUDA toolkit.

`compiler` makes a shared library of a kernel's text, `launches` runs it in place of the driver, `memory` allocates
arrays between guards, and `cuda.h` says how threads, barriers, shuffles and shared memory behave.
"""
