// out[o, i] = statistic over r of a[o, r, i]: the variance, or the logarithm of the sum of exponentials, in one pass.
//
// rows.cuh describes how a variance is accumulated and merged.
// Shapes: a (outer, reduced, inner), contiguous; partial (outer, parts, inner); out (outer, inner).
// Launch: statistic_of_part: grid (tiles, parts, outer), a tile of 32 * N columns for 256 threads, eight rows at a time; N divides
//         inner. statistic_of_parts: one thread a column.
// Caller: devices/cuda/ops/normalization.py. OpSpecs: cuassay/testing/specs/statistics.py.

#include "rows.cuh"

template <typename W> struct LogSum {
    W maximum, sum;

    __device__ __forceinline__ void clear() { maximum = minus_infinity<W>(), sum = 0; }
    __device__ __forceinline__ void add(W value, W, W) { merge(value, W(1)); }
    __device__ __forceinline__ void merge(const LogSum& other) { merge(other.maximum, other.sum); }
    // Takes only one exponential, because the larger maximum's is 1. A total with maximum -inf is skipped: the
    // difference would be NaN.
    __device__ __forceinline__ void merge(W top, W total) {
        if (top == minus_infinity<W>()) return;
        const W smaller = exponential_below(top < maximum ? top : maximum, top < maximum ? maximum : top);
        sum = top < maximum ? sum + total * smaller : sum * smaller + total;
        maximum = nan_maximum(maximum, top);
    }
    __device__ __forceinline__ W result(double) const {
        const Level<W> level(maximum, sum);
        return level.shift + level.rest;
    }
};

template <typename Statistic, typename T, int N>
__global__ void __launch_bounds__(256)
statistic_of_part(const T* a, Statistic* partial, T* out, int64 outer, int64 reduced, int64 inner, int64 length,
                  double divisor) {
    using W = typename Wide<T>::type;
    __shared__ Statistic shared[8][32 * N];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    const int64 first = int64(blockIdx.x) * 32 * N, column = first + lane * N;
    const int64 begin = blockIdx.y * length, end = begin + length < reduced ? begin + length : reduced;
    for (int64 row = blockIdx.z; row < outer; row += gridDim.z) {  // grid.z stops at 65,535
        Statistic held[N];
#pragma unroll
        for (int i = 0; i < N; ++i) held[i].clear();
        if (column < inner) {
            const T* from = a + row * reduced * inner + column;
            W number = 0;
#pragma unroll(sizeof(W) == 8 ? 2 : 4)
            for (int64 at = begin + line; at < end; at += 8) {
                const Pack<T, N> pack = load_pack<T, N>(from + at * inner);
                number += 1;
                const W inverse = W(1) / number;
#pragma unroll
                for (int i = 0; i < N; ++i) held[i].add(widen<W>(pack.at[i]), number, inverse);
            }
        }
#pragma unroll
        for (int i = 0; i < N; ++i) shared[line][lane * N + i] = held[i];
        __syncthreads();
        for (int i = threadIdx.x; i < 32 * N && first + i < inner; i += blockDim.x) {
            Statistic total = shared[0][i];
            for (int other = 1; other < 8; ++other) total.merge(shared[other][i]);
            if (gridDim.y == 1) out[row * inner + first + i] = narrow<T>(total.result(divisor));
            else partial[(row * gridDim.y + blockIdx.y) * inner + first + i] = total;
        }
        __syncthreads();  // the next row uses the same shared memory
    }
}

template <typename Statistic, typename T>
__global__ void statistic_of_parts(const Statistic* partial, T* out, int64 columns, int64 inner, int64 parts, double divisor) {
    const int64 column = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const Statistic* from = partial + column / inner * parts * inner + column % inner;
    Statistic total = from[0];
    for (int64 part = 1; part < parts; ++part) total.merge(from[part * inner]);
    out[column] = narrow<T>(total.result(divisor));
}
