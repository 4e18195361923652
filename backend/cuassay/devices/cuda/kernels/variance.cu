// out[r] = sum_c (a[r, c] - mean_c a[r])^2 / divisor: the variance of each row, in one pass.
//
// The variance of a pack is computed about the pack's own mean, then merged with the packs before it; rows.cuh
// describes how.
// Shapes: a (rows, columns), contiguous; out (rows,).
// Launch: 256 threads; LANES threads a row: 32 with eight rows a block, or all 256.
// Caller: devices/cuda/ops/normalization.py. OpSpecs: cuassay/testing/specs/statistics.py.

#include "rows.cuh"

template <typename W, typename T, int N> __device__ __forceinline__ Variance<W> variance_of(const Pack<T, N>& pack) {
    Variance<W> found;
    found.clear();
    found.count = N;
#pragma unroll
    for (int i = 0; i < N; ++i) found.mean += widen<W>(pack.at[i]);
    found.mean *= W(1) / W(N);  // exact: N is a power of two
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const W rest = widen<W>(pack.at[i]) - found.mean;
        found.squares += rest * rest;
    }
    return found;
}

template <typename W> __device__ __forceinline__ void merge_warp(Variance<W>& variance) {
#pragma unroll
    for (int lane = 16; lane; lane /= 2) {
        const Variance<W> other = {__shfl_xor_sync(kAllLanes, variance.count, lane),
                                   __shfl_xor_sync(kAllLanes, variance.mean, lane),
                                   __shfl_xor_sync(kAllLanes, variance.squares, lane)};
        // If both have the same count, as they nearly always do, the share is 1/2 and no division is needed.
        if (__all_sync(kAllLanes, other.count == variance.count)) {
            const W step = other.mean - variance.mean;
            variance.mean += step * W(0.5);
            variance.squares += other.squares + step * step * (variance.count * W(0.5));
            variance.count += other.count;
        } else {
            variance.merge(other);
        }
    }
}

template <typename T, int N, int LANES>
__global__ void __launch_bounds__(256) var_rows(const T* a, T* out, int64 rows, int64 columns, double divisor) {
    using W = typename Wide<T>::type;
    __shared__ Variance<W> of_warp[8];
    const int64 row = int64(blockIdx.x) * (blockDim.x / LANES) + threadIdx.x / LANES;
    if (row >= rows) return;
    const T* from = a + row * columns;
    const int64 lane = threadIdx.x % LANES, head = before_packs<T, N>(from, columns);
    Variance<W> variance;
    variance.clear();
    if (lane < head) variance.merge(variance_of<W>(load_pack<T, 1>(from + lane)));
    int64 at = head + lane * N;
#pragma unroll 4
    for (; at + N <= columns; at += LANES * N) variance.merge(variance_of<W>(load_pack<T, N>(from + at)));
    for (; at < columns; ++at) variance.merge(variance_of<W>(load_pack<T, 1>(from + at)));
    merge_warp(variance);
    if (LANES > 32) {
        if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = variance;
        __syncthreads();
        if (threadIdx.x >= 32) return;
        variance = of_warp[0];
        for (int warp = 1; warp < LANES / 32; ++warp) variance.merge(of_warp[warp]);
    }
    if (lane == 0) out[row] = narrow<T>(variance.result(divisor));
}
