// What kernels that work on rows share: reductions over a warp or a block.

#pragma once

#include "element.cuh"

constexpr unsigned kAllLanes = 0xffffffffu;

template <typename W> __device__ __forceinline__ W warp_sum(W value) {
#pragma unroll
    for (int lane = 16; lane; lane /= 2) value += __shfl_xor_sync(kAllLanes, value, lane);
    return value;
}

template <typename W> __device__ __forceinline__ W warp_max(W value) {
#pragma unroll
    for (int lane = 16; lane; lane /= 2) value = nan_maximum(value, __shfl_xor_sync(kAllLanes, value, lane));
    return value;
}

// Every thread gets the sum over the block. Each warp adds up all warps' sums itself, which saves a second barrier
// before the result can be used; `scratch` (32 entries) may be written again only after another barrier.
template <typename W> __device__ __forceinline__ W block_sum(W value, W* scratch) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : W(0));
}

// Every thread gets the maximum over the block; as `block_sum`.
template <typename W> __device__ __forceinline__ W block_max(W value, W* scratch) {
    value = warp_max(value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_max(scratch[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
}
