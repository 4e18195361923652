// out[j, i] = activation(alpha * sum_k weights[i, k] * inputs[j, k] + beta * third[j, i] + bias[i]), for few j: tokens
//
// Such a product takes as long as reading the weights. Three things decide its speed: how many bytes of the weights
// every multiprocessor has in flight, whether all multiprocessors finish at the same time, and how early the first
// loads are issued. Tensor cores multiply the 16-bit operands and sum in float32. There are no atomics, so every run
// gives the same bits. In this kernel a warp computes 16 or 32 rows, so that small matrices also give tiles for all
// multiprocessors. A block walks over tiles and loads the weights of the next tile meanwhile. If there are fewer tiles
// than multiprocessors, a cluster of blocks shares the depth of a tile, and each block adds up a part of the sums from
// the shared memory of all of them.
//
// A launch may start early (programmatic dependent launch): it prefetches its first weights into the level-2 cache
// while the previous kernel ends, and reads nothing before that kernel is complete. Between small products on an H200
// this saved 1.1 to 1.5 us of the 3.5 us that a launch takes in addition to its memory traffic. Clusters of 4 or more
// leave some multiprocessors idle, unless two blocks fit on one.
// Shapes: weights: (rows, depth); K_CONTIGUOUS: the terms of a row are contiguous, otherwise the rows of a term are;
//         inputs: (tokens, depth), the terms of a token contiguous; out, third: (tokens, rows), the rows of a token
//         contiguous; bias: (rows,). The addresses and strides of weights and inputs are multiples of 16 bytes.
//         Elements outside the extents count as zeros and are not read.
// Launch: 32 * WARPS * SLICES threads, ROWS * WARPS rows a tile (without K_CONTIGUOUS a multiple of 64); each of the
//         SLICES groups of warps takes 64 terms of a stage; clusters along x share a tile. Compute capability 9.0.
//         Dynamic shared memory: the stages, of ROWS * WARPS + TOKENS lines of 64 * SLICES elements each, then SLICES *
//         TOKENS lines of ROWS * WARPS + 4 floats.
// Caller: devices/cuda/blas/skinny.py. OpSpecs: cuassay/testing/specs/linalg.py.

#include "skinny.cuh"
#include "skinny_warps.cuh"

#if __CUDA_ARCH__ >= 900
// Loads four matrices of 8 x 8; `from` is this lane's line of one of them.
template <bool TURNED> __device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned from) {
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
#endif

template <typename T, typename O, bool K_CONTIGUOUS, int TOKENS, int ROWS, int WARPS, int SLICES, int STAGES>
__global__ void __launch_bounds__(32 * WARPS * SLICES, 1)  // without the 1, ptxas spills and uses half the registers
skinny_narrow(const T* weights, const T* inputs, const O* third, O* out, const O* bias, Extents extents, Finish finish) {
#if __CUDA_ARCH__ >= 900
    constexpr int kThreads = 32 * WARPS * SLICES, kRows = ROWS * WARPS, kDepth = kPanel * SLICES;
    constexpr int kTiles = ROWS / 16, kGroups = TOKENS / 8, kPairs = kGroups > 1 ? kGroups / 2 : 1;
    constexpr int kWeightBytes = kRows * kDepth * 2, kStageBytes = kWeightBytes + TOKENS * kDepth * 2;
    constexpr int kPieces = K_CONTIGUOUS ? kDepth / 8 : kRows / 8, kLines = K_CONTIGUOUS ? kRows : kDepth;
    constexpr int kStep = kThreads / kPieces, kInputPieces = kDepth / 8, kInputStep = kThreads / kInputPieces;
    constexpr int kCacheLine = 128 / sizeof(T);
    extern __shared__ __align__(1024) unsigned char memory[];

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int slice = warp / WARPS, first_row = warp % WARPS * ROWS;
    const int ranks = cluster_size(), rank = cluster_rank();
    const int tiles = (extents.rows + kRows - 1) / kRows, first = blockIdx.x / ranks, stride = gridDim.x / ranks;
    const int steps = (extents.depth + kDepth - 1) / kDepth;
    const int begin = int(int64(steps) * rank / ranks), end = int(int64(steps) * (rank + 1) / ranks);
    const unsigned stages = shared_address(memory);
    float* parts = reinterpret_cast<float*>(memory + STAGES * kStageBytes);
    const Result<O> result = {third, out, bias, finish};

    // Prefetches what the first stages will hold, one cache line for each access.
    constexpr int kAcross = (K_CONTIGUOUS ? (STAGES - 1) * kDepth : kRows + kCacheLine - 1) / kCacheLine;
    for (int i = thread; i < (K_CONTIGUOUS ? kRows : (STAGES - 1) * kDepth) * kAcross; i += kThreads) {
        const int line = i / kAcross, across = i % kAcross * kCacheLine;
        const int row = first * kRows + (K_CONTIGUOUS ? line : across), k = begin * kDepth + (K_CONTIGUOUS ? across : line);
        if (row < extents.rows && k < extents.depth)
            prefetch(weights + (K_CONTIGUOUS ? row * extents.weights_leading + k : k * extents.weights_leading + row));
    }
    await_the_former_kernel();

    const int line = thread / kPieces, piece = thread % kPieces;
    const int input_line = thread / kInputPieces, input_piece = thread % kInputPieces;
    const uint64 once = used_once(), again = used_again();
    int next_tile = first, next_step = begin;
    auto load = [&](int stage) {
        if (next_tile < tiles) {
            const unsigned to = stages + stage * kStageBytes;
            const int k = next_step * kDepth;
#pragma unroll
            for (int i = 0; i < kLines / kStep; ++i) {
                const int at = line + i * kStep;
                const int row = next_tile * kRows + (K_CONTIGUOUS ? at : piece * 8), inner = k + (K_CONTIGUOUS ? piece * 8 : at);
                const bool is_inside = row < extents.rows && inner < extents.depth;
                const T* from = weights + (K_CONTIGUOUS ? row * extents.weights_leading + inner : inner * extents.weights_leading + row);
                fetch(to + piece / 8 * (kLines * 128) + place(at, piece % 8), is_inside ? from : weights, is_inside, once);
            }
#pragma unroll
            for (int i = 0; i < (TOKENS + kInputStep - 1) / kInputStep; ++i) {
                const int token = input_line + i * kInputStep, inner = k + input_piece * 8;
                const bool is_inside = token < extents.tokens && inner < extents.depth;
                const T* from = inputs + token * extents.inputs_leading + inner;
                if (TOKENS % kInputStep == 0 || token < TOKENS)
                    fetch(to + kWeightBytes + input_piece / 8 * (TOKENS * 128) + place(token, input_piece % 8),
                          is_inside ? from : inputs, is_inside, again);
            }
            if (++next_step == end) next_step = begin, next_tile += stride;
        }
        close_stage();  // also if it is empty, because stages are counted
    };
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) load(stage);

    int stage = 0;
    for (int tile = first; tile < tiles; tile += stride) {
        float sums[kTiles][kGroups][4];
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
            for (int group = 0; group < kGroups; ++group)
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[t][group][i] = 0;

        for (int step = begin; step < end; ++step) {
            await_stages<STAGES - 2>();
            __syncthreads();
            load(stage ? stage - 1 : STAGES - 1);
            const unsigned of_weights = stages + stage * kStageBytes;
            const unsigned of_inputs = of_weights + kWeightBytes + slice * (TOKENS * 128);
            unsigned a[4], b[kPairs][4];
#pragma unroll
            for (int k = 0; k < kPanel / 16; ++k) {
                if (kGroups == 1) {  // both depth halves of two instructions at once
                    if (k % 2 == 0) load_matrices<false>(b[0], of_inputs + place(lane % 8, k * 2 + lane / 8));
                } else {
#pragma unroll
                    for (int pair = 0; pair < kPairs; ++pair)
                        load_matrices<false>(b[pair], of_inputs + place(pair * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
                }
#pragma unroll
                for (int t = 0; t < kTiles; ++t) {
                    if (K_CONTIGUOUS) {
                        const int row = first_row + t * 16 + lane % 16;
                        load_matrices<false>(a, of_weights + slice * (kRows * 128) + place(row, k * 2 + lane / 16));
                    } else {
                        const int inner = slice * kPanel + k * 16 + lane % 8 + lane / 16 * 8, row = first_row + t * 16 + lane / 8 % 2 * 8;
                        load_matrices<true>(a, of_weights + row / kPanel * (kDepth * 128) + place(inner, row / 8 % 8));
                    }
#pragma unroll
                    for (int group = 0; group < kGroups; ++group) {
                        const int half = kGroups == 1 ? k % 2 : group % 2;
                        Warp<T>::add(sums[t][group], a, b[group / 2][half * 2], b[group / 2][half * 2 + 1]);
                    }
                }
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }

        add_up<TOKENS, kRows, SLICES, kThreads>(parts, sums, slice, first_row, extents.tokens,
                                                [&](const float (&total)[4], int row, int token) {
            if (tile * kRows + row < extents.rows) store_rows(result, total, tile * kRows + row, token, extents);
        });
    }
#endif
}
