// Shared by skinny_narrow.cu, skinny_wide.cu and skinny_mixed.cu, the kernels for products with few tokens: how lines lie
// in shared memory, when a launch that started early may read, how the blocks of a cluster cooperate, and the epilogue.

#pragma once

#include "element.cuh"

struct Extents {
    int rows, tokens, depth;
    int64 weights_leading, inputs_leading, third_leading, out_leading;
};
struct Finish {
    float alpha, beta;
    int activation;
};
enum Activation { kNone, kRelu, kGelu };

constexpr int kPanel = 64;   // elements in a line of shared memory: 128 bytes, in eight pieces of 16
constexpr int kPadding = 4;  // floats after a line of sums: the lines of two tokens are eight banks apart

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ unsigned shared_address(const void* at) { return unsigned(__cvta_generic_to_shared(at)); }

// The offset of a 16-byte piece in lines of 128 bytes. The line's number permutes the pieces, so that the same piece of
// eight lines is spread over all banks. Bulk copies and wgmma use the same layout, the 128-byte swizzle.
__device__ __forceinline__ unsigned place(int line, int piece) { return line * 128 + ((piece ^ line % 8) << 4); }

// A cache policy for weights: they are used once, and would evict data that is used again from the level-2 cache.
__device__ __forceinline__ uint64 used_once() {
    uint64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ uint64 used_again() {
    uint64 policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Before this point a launch that started early may not touch what the previous kernel reads or writes. The next launch
// may start now.
__device__ __forceinline__ void await_the_former_kernel() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
}

// Blocks that share the depth of a tile are a cluster, and read each other's sums in shared memory.
__device__ __forceinline__ int cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return int(rank);
}
__device__ __forceinline__ int cluster_size() {
    unsigned size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return int(size);
}
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ float4 read_of(unsigned local, int rank) {
    unsigned address;
    float4 value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(local), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w) : "r"(address) : "memory");
    return value;
}

__device__ __forceinline__ float activated(float value, int activation) {
    if (activation == kRelu) return value > 0 || is_nan(value) ? value : 0.0f;
    if (activation == kGelu)  // value / 2 * (1 + tanh(u)) = value / (1 + exp(-2 u)); short code is fetched sooner
        return __fdividef(value, 1.0f + __expf(-1.5957691216057308f * (value + 0.044715f * value * value * value)));
    return value;
}

template <typename O> struct Result {
    const O* third;
    O* out;
    const O* bias;
    Finish finish;
};

// Stores four consecutive rows of a token, from `row` on.
template <typename O>
__device__ __forceinline__ void store_rows(const Result<O>& result, const float (&sums)[4], int row, int token,
                                           const Extents& extents) {
    const Finish& finish = result.finish;
    Pack<O, 4> pack;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float value = finish.alpha * sums[i];
        if (row + i < extents.rows) {
            if (finish.beta != 0) value += finish.beta * widen<float>(result.third[token * extents.third_leading + row + i]);
            if (result.bias) value += widen<float>(result.bias[row + i]);
        }
        pack.at[i] = narrow<O>(activated(value, finish.activation));
    }
    O* to = result.out + token * extents.out_leading + row;
    if (row + 4 <= extents.rows && reinterpret_cast<uint64>(to) % sizeof(pack) == 0) {
        store_pack<O, 4>(to, pack);
    } else {
        for (int i = 0; i < 4; ++i)
            if (row + i < extents.rows) to[i] = pack.at[i];
    }
}
#endif
