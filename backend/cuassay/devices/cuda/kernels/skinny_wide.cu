// out[j, i] = activation(alpha * sum_k weights[i, k] * inputs[j, k] + beta * third[j, i] + bias[i]), for few j: tokens
//
// Such a product takes as long as reading the weights. Three things decide its speed: how many bytes of the weights
// every multiprocessor has in flight, whether all multiprocessors finish at the same time, and how early the first
// loads are issued. Tensor cores multiply the 16-bit operands and sum in float32. There are no atomics, so every run
// gives the same bits. In this kernel a warpgroup computes 64 rows, and one warp issues the bulk copies. wgmma and
// tensor maps need sm_90a. The steps of all tiles are divided evenly among the blocks (M. Osama et al., "Stream-K:
// work-centric parallel decomposition for dense matrix-matrix multiplication on the GPU", PPoPP 2023). A block works
// from its last tile to its first. If another block finishes the last tile, this block writes its partial sums of that
// tile to the workspace before it does anything else. It finishes its first tile last, and adds the partial sums of the
// other blocks in the order of the blocks. So a block waits only for blocks of lower index, which started earlier, and
// it seldom has to wait at all. With fewer tiles than multiprocessors, a cluster may share the depth of one tile
// instead: each block takes a part of the terms. The partial sums then go through shared memory, and no block waits for
// another one's writes to global memory. On an H200 with 132 multiprocessors, clusters of 4 blocks reach only 120 of
// them, and clusters of 8 fewer. If two blocks fit on a multiprocessor, clusters of 4 reach all of them.
//
// A launch may start early (programmatic dependent launch): it prefetches its first weights into the level-2 cache
// while the previous kernel ends, and reads nothing before that kernel is complete.
// Shapes: weights: (rows, depth); K_CONTIGUOUS: the terms of a row are contiguous, otherwise the rows of a term are;
//         inputs: (tokens, depth), the terms of a token contiguous; out, third: (tokens, rows), the rows of a token
//         contiguous; bias: (rows,). The addresses and strides of weights and inputs are multiples of 16 bytes.
//         Elements outside the extents count as zeros and are not read.
// Launch: 128 * GROUPS + 32 threads, 64 * GROUPS rows a tile, no more blocks than steps. Without clusters, any such
//         number of blocks; with clusters (along x), one cluster for each tile. Maps: boxes of the weights are 64 terms
//         by the rows of a tile (if not K_CONTIGUOUS, 64 rows by 64 terms), boxes of the inputs are 64 terms by TOKENS,
//         with the 128-byte swizzle. Workspace, only without clusters: 8 bytes a block, none of which may equal
//         `ready`, then the sums of one tile a block. Dynamic shared memory: STAGES stages of 64 * GROUPS + TOKENS
//         lines of 64 * PANELS elements each, then TOKENS lines of 64 * GROUPS + 4 floats; in a cluster these lines
//         overlay the stages.
// Caller: devices/cuda/blas/skinny.py. OpSpecs: cuassay/testing/specs/linalg.py.

#include "skinny.cuh"

// A tensor map as the driver encodes it.
struct alignas(64) TensorMap { uint64 words[16]; };

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void make_barrier(unsigned at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void expect_bytes(unsigned barrier, int nbytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(nbytes) : "memory");
}
__device__ __forceinline__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void await(unsigned barrier, int parity) {
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\n"
                 "bra again;\nover:\n}" ::"r"(barrier), "r"(parity) : "memory");
}
__device__ __forceinline__ void copy_box(unsigned to, const TensorMap* map, int x, int y, unsigned barrier, uint64 policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy) : "memory");
}
__device__ __forceinline__ void prefetch_box(const TensorMap* map, int x, int y) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y) : "memory");
}

// `publish` announces to another block that data is ready; `await_value` waits for that announcement.
__device__ __forceinline__ void publish(uint64* flag, uint64 value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}
__device__ __forceinline__ void await_value(const uint64* flag, uint64 value) {
    uint64 found;
    do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(flag) : "memory");
    while (found != value);
}
#endif

// s += left * right, 64 rows by TOKENS by 16 terms. TURNED: the rows of a term are contiguous.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#define SUMS4(g) "+f"(s[g][0]), "+f"(s[g][1]), "+f"(s[g][2]), "+f"(s[g][3])
#define SUMS8(g) SUMS4(g), SUMS4(g + 1)
#define SUMS16(g) SUMS8(g), SUMS8(g + 2)
#define SUMS32(g) SUMS16(g), SUMS16(g + 4)
#define SUMS64(g) SUMS32(g), SUMS32(g + 8)
#define NAMES4 "%0, %1, %2, %3"
#define NAMES8 NAMES4 ", %4, %5, %6, %7"
#define NAMES16 NAMES8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES32 NAMES16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES64                                                                                                     \
    NAMES32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                    \
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WIDE_TYPE(T, type, tokens, names, left_name, right_name, turned_name, ...)                                  \
    template <bool TURNED> struct Warpgroup<T, tokens, TURNED> {                                                    \
        static __device__ __forceinline__ void add(float (&s)[tokens / 8][4], uint64 left, uint64 right) {         \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #tokens "k16.f32." type "." type " {" names "}, %"    \
                         #left_name ", %" #right_name ", 1, 1, 1, %" #turned_name ", 0;"                           \
                         : __VA_ARGS__ : "l"(left), "l"(right), "n"(TURNED));                                      \
        }                                                                                                          \
    }
#define WIDE(...) WIDE_TYPE(bfloat16, "bf16", __VA_ARGS__); WIDE_TYPE(float16, "f16", __VA_ARGS__)
template <typename T, int TOKENS, bool TURNED> struct Warpgroup;
WIDE(8, NAMES4, 4, 5, 6, SUMS4(0));
WIDE(16, NAMES8, 8, 9, 10, SUMS8(0));
WIDE(32, NAMES16, 16, 17, 18, SUMS16(0));
WIDE(64, NAMES32, 32, 33, 34, SUMS32(0));
WIDE(128, NAMES64, 64, 65, 66, SUMS64(0));

// The wgmma descriptor of lines that `place` swizzled; groups of eight lines are 1,024 bytes apart.
__device__ __forceinline__ uint64 described(unsigned at) {
    return uint64(at >> 4) | uint64(1) << 16 | uint64(1024 >> 4) << 32 | uint64(1) << 62;
}
#endif

// Walks over the steps of a block: tiles from the last to the first, and the steps of each tile in ascending order.
struct Steps {
    int begin, steps, tile, step, high;

    __device__ __forceinline__ Steps(int begin, int end, int steps) : begin(begin), steps(steps) { enter(end); }
    __device__ __forceinline__ void enter(int end) {
        high = end;
        tile = (high - 1) / steps;
        step = begin > tile * steps ? begin : tile * steps;
    }
    __device__ __forceinline__ void advance() {
        if (++step == high) enter(tile * steps);
    }
    __device__ __forceinline__ int within() const { return step - tile * steps; }
};

// Calls ask(offset in the stage, x, y) for each box of weights of a step.
template <bool K_CONTIGUOUS, int ROWS, int PANELS, typename Ask>
__device__ __forceinline__ void each_box(const Steps& at, Ask ask) {
#pragma unroll
    for (int panel = 0; panel < PANELS; ++panel) {
        const int row = at.tile * ROWS, k = (at.within() * PANELS + panel) * kPanel;
        if (K_CONTIGUOUS) {
            ask(panel * ROWS * 128, k, row);
        } else {
#pragma unroll
            for (int first = 0; first < ROWS; first += kPanel) ask((panel * ROWS + first) * 128, row + first, k);
        }
    }
}

template <typename T, typename O, bool K_CONTIGUOUS, int TOKENS, int GROUPS, int PANELS, int STAGES>
__global__ void __launch_bounds__(128 * GROUPS + 32, GROUPS == 2 && TOKENS <= 64 ? 2 : 1)  // `tilings` relies on these numbers; 1 sets no bound
skinny_wide(const __grid_constant__ TensorMap weights, const __grid_constant__ TensorMap inputs, const O* third, O* out,
            const O* bias, uint64* workspace, uint64 ready, Extents extents, Finish finish) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    constexpr int kThreads = 128 * GROUPS, kRows = 64 * GROUPS, kDepth = kPanel * PANELS, kGroups = TOKENS / 8;
    constexpr int kWeightPanel = kRows * 128, kInputPanel = TOKENS * 128;
    constexpr int kInputs = PANELS * kWeightPanel, kStageBytes = kInputs + PANELS * kInputPanel;
    constexpr int kSumLine = kRows + kPadding, kMostRanks = 8;
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(8) uint64 barriers[2 * STAGES];

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = thread / 128;
    const int ranks = cluster_size(), rank = cluster_rank();
    const int tiles = (extents.rows + kRows - 1) / kRows, steps = (extents.depth + kDepth - 1) / kDepth;
    const auto first_of = [&](int block) { return int(int64(tiles) * steps * block / gridDim.x); };
    const int begin = first_of(blockIdx.x), end = first_of(blockIdx.x + 1);
    const unsigned stages = shared_address(memory), full = shared_address(barriers), empty = full + 8 * STAGES;

    if (thread == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            make_barrier(full + 8 * stage, 1);
            make_barrier(empty + 8 * stage, 4 * GROUPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (group == GROUPS) {  // this warp issues the copies, from one lane
        if (lane) return;
        Steps at(begin, end, steps);
        for (int i = 0; i < STAGES && i < end - begin; ++i, at.advance())
            each_box<K_CONTIGUOUS, kRows, PANELS>(at, [&](int, int x, int y) { prefetch_box(&weights, x, y); });
        await_the_former_kernel();

        const uint64 once = used_once(), again = used_again();
        int stage = 0, parity = 1;
        at = Steps(begin, end, steps);
        for (int i = begin; i < end; ++i, at.advance()) {
            const unsigned to = stages + stage * kStageBytes, barrier = full + 8 * stage;
            await(empty + 8 * stage, parity);
            expect_bytes(barrier, kStageBytes);
            each_box<K_CONTIGUOUS, kRows, PANELS>(
                at, [&](int offset, int x, int y) { copy_box(to + offset, &weights, x, y, barrier, once); });
#pragma unroll
            for (int panel = 0; panel < PANELS; ++panel)
                copy_box(to + kInputs + panel * kInputPanel, &inputs, at.within() * kDepth + panel * kPanel, 0, barrier, again);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        return;
    }

    await_the_former_kernel();
    const Result<O> result = {third, out, bias, finish};
    constexpr int kSums = TOKENS / 2;  // sums of a thread
    float* parts = reinterpret_cast<float*>(workspace + gridDim.x) + thread;
    int stage = 0, parity = 0;
    for (int high = end; high > begin;) {
        const int tile = (high - 1) / steps, low = begin > tile * steps ? begin : tile * steps;
        float sums[kGroups][4];
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i / 4][i % 4] = 0;

        int former = -1;
        for (int step = low; step < high; ++step) {
            await(full + 8 * stage, parity);
            const unsigned of_weights = stages + stage * kStageBytes + group * (64 * 128);
            const unsigned of_inputs = stages + stage * kStageBytes + kInputs;
            wgmma_begin();
#pragma unroll
            for (int panel = 0; panel < PANELS; ++panel)
#pragma unroll
                for (int k = 0; k < kPanel / 16; ++k)
                    Warpgroup<T, TOKENS, !K_CONTIGUOUS>::add(
                        sums, described(of_weights + panel * kWeightPanel + k * (K_CONTIGUOUS ? 32 : 16 * 128)),
                        described(of_inputs + panel * kInputPanel + k * 32));
            wgmma_end();
            wgmma_wait<1>();
            if (former >= 0 && lane == 0) arrive(empty + 8 * former);
            former = stage;
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        wgmma_wait<0>();
        if (lane == 0) arrive(empty + 8 * former);
#pragma unroll
        for (int i = 0; i < kSums; ++i)  // keeps the compiler from using the sums before the wait
            asm volatile("" : "+f"(sums[i / 4][i % 4])::"memory");

        if (ranks == 1 && high < (tile + 1) * steps) {
            float* to = parts + int64(blockIdx.x) * (kSums * kThreads);
#pragma unroll
            for (int i = 0; i < kSums; ++i) __stcg(to + i * kThreads, sums[i / 4][i % 4]);
            __threadfence();
            asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
            if (thread == 0) publish(workspace + blockIdx.x, ready);
            high = low;
            continue;
        }
        if (ranks == 1 && low > tile * steps) {
            int other = blockIdx.x;
            while (first_of(other) > tile * steps) --other;
            const int others = blockIdx.x - other;
            for (; other < blockIdx.x; ++other) {
                if (lane == 0) await_value(workspace + other, ready);
                __syncwarp();
                const float* from = parts + int64(other) * (kSums * kThreads);
#pragma unroll
                for (int i = 0; i < kSums; ++i) sums[i / 4][i % 4] += __ldcg(from + i * kThreads);
            }
            asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
            for (int i = thread; i < others; i += kThreads) workspace[blockIdx.x - 1 - i] = 0;  // the next launch may get this memory
        }
        // The sums go through shared memory so that the epilogue is a loop that is compiled once. When it was unrolled
        // over registers, a launch took up to 16 us longer, probably because more code had to be fetched. In a cluster
        // the lines overlay the stages: a cluster has one tile, and all stages have been read by now.
        float* lines = reinterpret_cast<float*>(memory + (ranks > 1 ? 0 : STAGES * kStageBytes));
        asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");  // the last tile's lines, or the stages, have been read
#pragma unroll
        for (int i = 0; i < kSums; ++i)
            lines[(i / 4 * 8 + lane % 4 * 2 + i % 2) * kSumLine + group * 64 + warp % 4 * 16 + lane / 4 + i % 4 / 2 * 8] =
                sums[i / 4][i % 4];
        if (ranks > 1) cluster_barrier();  // the copying warp has exited, or will: no barrier waits for it
        else asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
#pragma unroll 1
        for (int i = rank * kThreads + thread; i < extents.tokens * (kRows / 4); i += ranks * kThreads) {
            const int token = i / (kRows / 4), row = i % (kRows / 4) * 4;
            const unsigned at = shared_address(lines + token * kSumLine + row);
            float4 part[kMostRanks];
#pragma unroll
            for (int other = 0; other < kMostRanks; ++other)  // issue all loads before the first addition
                if (other < ranks) part[other] = read_of(at, other);
            float total[4] = {};
#pragma unroll
            for (int other = 0; other < kMostRanks; ++other)
                if (other < ranks)
                    total[0] += part[other].x, total[1] += part[other].y, total[2] += part[other].z, total[3] += part[other].w;
            if (tile * kRows + row < extents.rows) store_rows(result, total, tile * kRows + row, token, extents);
        }
        if (ranks > 1) cluster_barrier();  // others may still read this block's sums
        high = low;
    }
#endif
}
