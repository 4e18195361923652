"""Memory of the kind `cuda`: `cuassay.memory`'s allocator over the driver, CuPy's arrays on top of it, pinned memory.

======================= ==========================================================================================
`virtual`, `order`      the driver: pages and addresses; events between streams
`perthread`             numbers for the default stream of each thread
`sources`               where memory comes from: ``cudaMalloc``, the driver's pool, pages
`allocator`             one caching allocator for each device
`hook`                  the memory object and finaliser of a CuPy array; every allocation of CuPy's
`pools`                 private pools, for users and captures
`uncached`, `pluggable` an allocator without a cache; memory from a user's functions
`ipc`, `interop`        memory shared with other processes; with cuda.core and Numba
`pinned`, `pins`        arrays in pinned host memory; existing memory that is pinned in place
`pinned_pages`          where pinned memory comes from: pages that are mapped and registered, or the driver
`transfer`, `alignment` copies to and from the host; copies of arrays whose elements are misaligned
`overlap`               whether two arrays share memory
`tags`                  tags in blocks, for replays and tests
======================= ==========================================================================================
"""
