// out[o, r, i] = the sum of a[o, 0, i] to a[o, r, i]: prefix sums along one axis, integers in 64 bits, 16-bit floats in float.
//
// A block takes a row in tiles: each thread adds up four neighbours, the warp and the block their totals. A long row is one
// block's work, so few long rows use a part of the card only.
// Source: M. Harris, S. Sengupta, J. Owens, "Parallel prefix sum (scan) with CUDA", GPU Gems 3, chapter 39.
// Shapes: cumsum_rows: a (outer, length). cumsum_columns: a (outer, length, inner).
// Launch: cumsum_rows: one block of 256 threads a row. cumsum_columns: one thread a column.
// Caller: devices/cuda/ops/reduction.py. OpSpecs: cuassay/testing/specs/statistics.py.

#include "element.cuh"

constexpr int kItems = 4;  // neighbours a thread adds up by itself

template <typename T, typename A, typename Out>
__global__ void cumsum_rows(const T* a, Out* out, int64 length) {
    __shared__ A totals[8];
    const T* from = a + int64(blockIdx.x) * length;
    Out* to = out + int64(blockIdx.x) * length;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    A carried = A(0);
    for (int64 base = 0; base < length; base += 256 * kItems) {
        const int64 first = base + threadIdx.x * kItems;
        A sums[kItems];
        A sum = A(0);
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            if (first + i < length) sum += widen<A>(from[first + i]);
            sums[i] = sum;
        }
        A before = sum;
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            const A other = __shfl_up_sync(0xffffffffu, before, by);
            if (lane >= by) before += other;
        }
        if (lane == 31) totals[warp] = before;
        before = __shfl_up_sync(0xffffffffu, before, 1);
        if (lane == 0) before = A(0);
        __syncthreads();
        A whole = A(0);
        for (int other = 0; other < 8; ++other) {
            if (other == warp) before += whole;
            whole += totals[other];
        }
#pragma unroll
        for (int i = 0; i < kItems; ++i)
            if (first + i < length) to[first + i] = narrow<Out>(carried + (before + sums[i]));
        carried += whole;
        __syncthreads();  // the next tile uses the same shared memory
    }
}

template <typename T, typename A, typename Out>
__global__ void cumsum_columns(const T* a, Out* out, int64 outer, int64 length, int64 inner) {
    const int64 column = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= outer * inner) return;
    const int64 start = column / inner * length * inner + column % inner;
    A sum = A(0);
    for (int64 at = 0; at < length; ++at) {
        sum += widen<A>(a[start + at * inner]);
        out[start + at * inner] = narrow<Out>(sum);
    }
}
