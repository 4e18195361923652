// Philox4x32-10: 128 random bits as a pure function of (seed, offset, subsequence); uniforms and normals made of them.
//
// Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11 (2011),
// section 4.3; its answers are checked against the vectors published with Random123.
//
// Key:      words 0, 1 are the lower and upper half of the seed.
// Counter:  words 0, 1 are the lower and upper half of offset / 4; words 2, 3 of the subsequence.
//
// The subsequence is an index among *elements* (element / how many elements one call serves), in C order of the logical
// array, never the number of a thread: numbers depend on nothing of the launch. The offset counts the words that every
// subsequence has given before; a kernel that makes `n` calls for a subsequence takes offset, offset + 4, ...,
// and the host moves the offset by 4 * n afterwards (`Generator.take`). The host's arithmetic of the same is
// cuassay/arrays/philox.py; the host's view of `Drawn` is `drawn` in devices/cuda/random.py.

#pragma once

#include "element.cuh"

// Where a launch draws from, passed by value. Outside captures `cell` is null. In a captured graph it points at
// {seed, offset} in device memory, which every replay finds renewed, and `offset` counts from there: what earlier calls
// of the same graph take.
struct Drawn {
    uint64 seed;
    uint64 offset;
    const uint64* cell;
};

// A Drawn that was looked up. IN_CELL is a template parameter, because a seed that is known to be a kernel's parameter
// leaves the key schedule to the uniform datapath.
struct Philox {
    uint64 seed;
    uint64 call;  // offset / 4
};

template <bool IN_CELL> __device__ __forceinline__ Philox begin(const Drawn& drawn) {
    if (IN_CELL) return {drawn.cell[0], (drawn.cell[1] + drawn.offset) / 4};
    return {drawn.seed, drawn.offset / 4};
}

__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64 a = uint64(0xD2511F53u) * counter.x, b = uint64(0xCD9E8D57u) * counter.z;
        counter = make_uint4(uint32(b >> 32) ^ counter.y ^ key.x, uint32(b), uint32(a >> 32) ^ counter.w ^ key.y, uint32(a));
        key.x += 0x9E3779B9u;  // the golden ratio
        key.y += 0xBB67AE85u;  // sqrt(3) - 1
    }
    return counter;
}

// The `call`-th four words (from 0) that a subsequence draws in this launch.
__device__ __forceinline__ uint4 philox(Philox from, uint64 subsequence, uint64 call = 0) {
    const uint64 low = from.call + call;
    return philox(make_uint4(uint32(low), uint32(low >> 32), uint32(subsequence), uint32(subsequence >> 32)),
                  make_uint2(uint32(from.seed), uint32(from.seed >> 32)));
}

// ------------------------------------------------------------------------------------------------ uniforms

// In [0, 1), at equal distances: 24 bits for float, 53 for double. More would round to 1 at the upper end.
__device__ __forceinline__ float unit(uint32 word) { return float(word >> 8) * 0x1p-24f; }
__device__ __forceinline__ double unit(uint32 low, uint32 high) {
    return double((uint64(high) << 32 | low) >> 11) * 0x1p-53;
}
