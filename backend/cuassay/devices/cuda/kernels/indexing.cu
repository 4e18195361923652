// out[i, :] = weight[index[i], :]: rows that an integer array selects; and sums of rows that such an array groups.
//
// segment_sum: out[o, r, :] = start[o, r, :] + the sum of source[o, k, :] over the k with index[k] == r, in ascending
// order, so that two runs give the same bits. A block has ROWS rows and 256 columns, whose sums are in shared memory.
// It scans the whole index, 1,024 numbers at a time, and lists the positions that belong to its rows. Once the list is
// long enough, it adds those rows of the source, with kDepth rows in flight at a time.
// Shapes: weight (V, D), index (n), out (n, D); source (outer, K, inner), index (K), start and out (outer, rows,
//         inner).
// Launch: gather_rows: 256 threads, one pack of N elements a thread. segment_sum: 256 threads, grid (outer * groups of
//         ROWS rows, tiles of 256 columns); ROWS is 1 if there are too few rows to fill the GPU.
// Caller: devices/cuda/ops/indexing.py. OpSpecs: cuassay/testing/specs/indexing.py.

#include "element.cuh"

// U is an unsigned integer of the elements' size. An index out of range gives all ones, which is NaN for a float.
template <typename U, typename I, int N>
__global__ void gather_rows(const U* weight, const I* index, U* out, int64 n, int64 columns, int64 vocabulary) {
    const int64 at = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (at >= n * columns) return;  // the host picks an N that divides columns
    const int64 row = at / columns, from = int64(index[row]);
    Pack<U, N> pack;
    if (from >= 0 && from < vocabulary) {
        pack = load_pack<U, N>(weight + from * columns + (at - row * columns));
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) pack.at[i] = U(~U(0));
    }
    store_pack<U, N>(out + at, pack);
}

constexpr int kWarps = 8;
constexpr int kEach = 4;                            // numbers of the index that a thread reads in a step
constexpr int kStep = kWarps * 32 * kEach;
constexpr int kEnough = 128;                        // list length from which the listed rows are added
constexpr int kDepth = 8;

template <typename T, typename I, bool FROM_START, int ROWS>
__global__ void segment_sum(const T* source, const I* index, const T* start, T* out, int64 rows, int64 length,
                            int64 inner) {
    using W = typename Wide<T>::type;
    __shared__ W totals[ROWS][kWarps * 32];         // a thread reads and writes only its own column
    __shared__ int64 places[kEnough + kStep];
    __shared__ int lines[kEnough + kStep];
    __shared__ int found[kWarps];
    const int64 groups = (rows + ROWS - 1) / ROWS, outer = blockIdx.x / groups;
    const int64 first = (blockIdx.x - outer * groups) * ROWS;
    const int64 column = int64(blockIdx.y) * (kWarps * 32) + threadIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool is_inside = column < inner;
    const int64 to = (outer * rows + first) * inner + column;
    for (int row = 0; row < ROWS; ++row) {
        const bool is_read = FROM_START && is_inside && first + row < rows;
        totals[row][threadIdx.x] = is_read ? widen<W>(start[to + row * inner]) : W(0);
    }
    int waiting = 0;
    for (int64 base = 0; base < length; base += kStep) {
        int64 line[kEach];
        uint32 mask[kEach];
        int mine = 0;
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const int64 k = base + (warp * kEach + i) * 32 + lane;
            line[i] = k < length ? int64(index[k]) - first : int64(-1);
            mask[i] = __ballot_sync(0xffffffffu, line[i] >= 0 && line[i] < ROWS);
            mine += __popc(mask[i]);
        }
        if (lane == 0) found[warp] = mine;
        __syncthreads();
        int at = waiting;
        for (int other = 0; other < kWarps; ++other) {
            if (other < warp) at += found[other];
            waiting += found[other];
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            if (mask[i] >> lane & 1u) {
                const int place = at + __popc(mask[i] & ((1u << lane) - 1u));
                places[place] = base + (warp * kEach + i) * 32 + lane;
                lines[place] = static_cast<int>(line[i]);
            }
            at += __popc(mask[i]);
        }
        __syncthreads();
        if (waiting <= kEnough && base + kStep < length) continue;
        for (int next = 0; next < waiting && is_inside; next += kDepth) {
            T value[kDepth];
#pragma unroll
            for (int i = 0; i < kDepth; ++i) {
                if (next + i < waiting) value[i] = source[(outer * length + places[next + i]) * inner + column];
            }
#pragma unroll
            for (int i = 0; i < kDepth; ++i) {
                if (next + i < waiting) totals[lines[next + i]][threadIdx.x] += widen<W>(value[i]);
            }
        }
        waiting = 0;  // the list is written again after the next barrier
    }
    for (int row = 0; row < ROWS && is_inside && first + row < rows; ++row) {
        out[to + row * inner] = narrow<T>(totals[row][threadIdx.x]);
    }
}
