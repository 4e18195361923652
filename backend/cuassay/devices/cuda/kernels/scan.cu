// out[o, r, i] = the sum of a[o, 0, i] to a[o, r, i]: prefix sums along one axis, integers in 64 bits, 16-bit floats in float.
//
// A block processes a row in tiles: each thread adds four neighbours, then the warp and the block scan the totals. One
// block handles a whole row, so a few long rows use only a part of the GPU.
// Source: M. Harris, S. Sengupta, J. Owens, "Parallel prefix sum (scan) with CUDA", GPU Gems 3, chapter 39. Along
// another axis a column is cut into parts, whose length depends only on the column's length. A result is the sum of the
// parts before it plus the sum within its part, whichever thread computes it, so the bits do not depend on the launch.
// With few columns each thread takes one part, after cumsum_parts has computed the sums of all parts but the last; with
// many columns each thread takes a whole column.
// Shapes: cumsum_rows: a (outer, length). cumsum_parts, cumsum_columns: a (outer, length, inner), sums (parts, outer * inner).
// Launch: cumsum_rows: one block of 256 threads a row. The others: grid (columns, groups of parts), one thread for each.
// Caller: devices/cuda/ops/reduction.py. OpSpecs: cuassay/testing/specs/statistics.py.

#include "element.cuh"

constexpr int kItems = 4;  // neighbours that one thread adds

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

constexpr int kRows = 16;  // rows that a thread has in flight; half as many for 8-byte elements

// Calls take(value) for `count` elements that are `step` apart, in order.
template <typename T, typename Take>
__device__ __forceinline__ void each_of(const T* next, int64 count, int64 step, Take take) {
    constexpr int kDepth = sizeof(T) > 4 ? kRows / 2 : kRows;
    for (; count >= kDepth; count -= kDepth) {
        T value[kDepth];
#pragma unroll
        for (int i = 0; i < kDepth; ++i, next += step) value[i] = *next;
#pragma unroll
        for (int i = 0; i < kDepth; ++i) take(value[i]);
    }
#pragma unroll 1
    for (; count > 0; --count, next += step) take(*next);
}

template <typename T, typename A>
__global__ void cumsum_parts(const T* a, A* sums, int64 outer, int64 length, int64 inner, int64 part) {
    const int64 column = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= outer * inner) return;
    const int64 start = column / inner * length * inner + column % inner;
    const int64 from = int64(blockIdx.y) * part;
    A sum = A(0);
    each_of(a + start + from * inner, part, inner, [&](T value) { sum += widen<A>(value); });
    sums[int64(blockIdx.y) * outer * inner + column] = sum;
}

template <typename T, typename A, typename Out>
__global__ void cumsum_columns(const T* a, Out* out, const A* sums, int64 outer, int64 length, int64 inner, int64 part,
                               int64 together) {
    const int64 column = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= outer * inner) return;
    const int64 start = column / inner * length * inner + column % inner;
    const int64 first = int64(blockIdx.y) * together;
    A carried = A(0);
    each_of(sums + column, first, outer * inner, [&](A sum) { carried += sum; });
    int64 left = length - first * part;
    if (left > together * part) left = together * part;
    const T* next = a + start + first * part * inner;
    Out* to = out + start + first * part * inner;
    for (; left > 0; left -= part, next += part * inner) {
        A sum = A(0);
        each_of(next, left < part ? left : part, inner, [&](T value) {
            sum += widen<A>(value);
            *to = narrow<Out>(carried + sum);
            to += inner;
        });
        carried += sum;
    }
}
