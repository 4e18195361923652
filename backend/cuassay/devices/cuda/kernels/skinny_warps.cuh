// Shared by skinny_narrow.cu and skinny_mixed.cu, whose warps multiply 16 rows at a time: copies to the stages of shared
// memory, the instruction, and the sums of a tile. Included after skinny.cuh.

#pragma once

#if __CUDA_ARCH__ >= 900
// Copies 16 bytes to shared memory. Outside the extents it reads nothing and writes zeros.
__device__ __forceinline__ void fetch(unsigned to, const void* from, bool is_inside, uint64 policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
                 "r"(is_inside ? 16 : 0), "l"(policy));
}
__device__ __forceinline__ void close_stage() { asm volatile("cp.async.commit_group;"); }
template <int LEFT> __device__ __forceinline__ void await_stages() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
__device__ __forceinline__ void prefetch(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// The instruction of a warp: adds to `s` the product of 16 rows of 16 terms, `a`, and 16 terms of 8 tokens, `b0` and `b1`.
template <typename T> struct Warp;
#define WARP(T, type)                                                                                                  \
    template <> struct Warp<T> {                                                                                       \
        static __device__ __forceinline__ void add(float (&s)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) { \
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                               \
                         "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                            \
                         : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])                                             \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                             \
        }                                                                                                             \
    }
WARP(bfloat16, "bf16");
WARP(float16, "f16");

// Adds up a tile: `sums` are those of 16 * TILES rows from `first_row` on, one row of them for each of the SLICES groups
// of warps and for each block of the cluster. They are added in this order, and `store` receives four rows of a token.
template <int TOKENS, int ROWS, int SLICES, int THREADS, int TILES, int GROUPS, typename Store>
__device__ __forceinline__ void add_up(float* parts, const float (&sums)[TILES][GROUPS][4], int slice, int first_row,
                                       int tokens, const Store& store) {
    constexpr int kSumLine = ROWS + kPadding;
    const int thread = threadIdx.x, lane = thread % 32, ranks = cluster_size(), rank = cluster_rank();
    float* part = parts + slice * (TOKENS * kSumLine);
#pragma unroll
    for (int t = 0; t < TILES; ++t)
#pragma unroll
        for (int group = 0; group < GROUPS; ++group)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                part[(group * 8 + lane % 4 * 2 + i % 2) * kSumLine + first_row + t * 16 + lane / 4 + i / 2 * 8] = sums[t][group][i];
    if (ranks > 1) cluster_barrier();
    else __syncthreads();
#pragma unroll 1
    for (int i = rank * THREADS + thread; i < tokens * (ROWS / 4); i += ranks * THREADS) {
        const int token = i / (ROWS / 4), row = i % (ROWS / 4) * 4;
        float total[4] = {};
        for (int other = 0; other < ranks; ++other)
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
                const float4 one = read_of(shared_address(parts + (s * TOKENS + token) * kSumLine + row), other);
                total[0] += one.x, total[1] += one.y, total[2] += one.z, total[3] += one.w;
            }
        store(total, row, token);
    }
    if (ranks > 1) cluster_barrier();  // others may still read these sums; else a later barrier waits
}
#endif
