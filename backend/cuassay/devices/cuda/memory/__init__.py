"""Device memory of the kind `cuda`: `cuassay.memory`'s allocator over the driver, and CuPy's arrays on top of it.

======================= ==========================================================================================
`virtual`, `order`      the driver: pages and addresses; events between streams
`sources`               where memory comes from: ``cudaMalloc``, the driver's pool, pages
`allocator`             one caching allocator a device
`hook`                  the memory object and finaliser of a CuPy array; every allocation of CuPy's
`pools`                 private pools, for users and captures
`direct`, `pluggable`   no cache at all; memory from functions of the user's
`ipc`, `interop`        memory shared with other processes; with cuda.core and Numba
`tags`                  tags in blocks, for replays and tests
======================= ==========================================================================================
"""
