// out[r, c] = y[r, c] * (g[r, c] - sum_c g[r] y[r]): the gradient of softmax's input, where y is softmax's result.
// out[r, c] = (h[r, c] - mean_c h[r] - x[r, c] mean_c (h[r] x[r])) / deviation[r]: the gradient of layer_norm's input,
// where
//             h = g * weight, x = (a - mean_c a) / deviation and deviation = sqrt(var_c a + eps).
//
// The chain rule. The kernel computes mean and variance again, about the mean, as layer_norm.cu does.
// Shapes: grad, result, a, out: (rows, columns), contiguous; weight: (columns,).
// Launch: _short: 256 threads, a warp a row, columns <= 32 * N * PACKS, the row in registers.
//         _long: one block of 512 threads a row, which is read again, often from the level-2 cache. Rows of softmax
//         need not be multiples of a pack: grad, result and out have the same alignment, or N is 1.
// Caller: devices/cuda/ops/normalization.py. OpSpecs: cuassay/testing/specs/reduction.py.

#include "rows.cuh"

template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(256)
softmax_backward_short(const T* grad, const T* result, T* out, int64 rows, int64 columns) {
    using W = typename Wide<T>::type;
    const int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const int64 begin = row * columns;
    const int lane = threadIdx.x % 32;
    Pack<T, N> grads[PACKS], results[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {  // issue all loads before the first use
        const int64 at = (int64(p) * 32 + lane) * N;
        if (at < columns) {  // the host picks an N that divides the columns
            grads[p] = load_pack<T, N>(grad + begin + at);
            results[p] = load_pack<T, N>(result + begin + at);
        }
    }
    W total = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
        if ((int64(p) * 32 + lane) * N < columns)
#pragma unroll
            for (int i = 0; i < N; ++i) total += widen<W>(grads[p].at[i]) * widen<W>(results[p].at[i]);
    total = warp_sum(total);
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int64 at = (int64(p) * 32 + lane) * N;
        if (at < columns) {
            Pack<T, N> pack;
#pragma unroll
            for (int i = 0; i < N; ++i)
                pack.at[i] = narrow<T>(widen<W>(results[p].at[i]) * (widen<W>(grads[p].at[i]) - total));
            store_pack<T, N>(out + begin + at, pack);
        }
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(512) softmax_backward_long(const T* grad, const T* result, T* out, int64 columns) {
    using W = typename Wide<T>::type;
    __shared__ W scratch[32];
    const int64 begin = int64(blockIdx.x) * columns;
    const int64 head = before_packs<T, N>(grad + begin, columns), packs = (columns - head) / N, body = begin + head;
    const bool odd = threadIdx.x < columns - packs * N;  // this thread has an element outside the packs
    const int64 extra = begin + (threadIdx.x < head ? 0 : packs * N) + threadIdx.x;
    W total = odd ? widen<W>(grad[extra]) * widen<W>(result[extra]) : W(0);
    for (int64 p = threadIdx.x; p < packs; p += blockDim.x) {
        const Pack<T, N> grads = load_pack<T, N>(grad + body + p * N), results = load_pack<T, N>(result + body + p * N);
#pragma unroll
        for (int i = 0; i < N; ++i) total += widen<W>(grads.at[i]) * widen<W>(results.at[i]);
    }
    total = block_sum(total, scratch);
    if (odd) out[extra] = narrow<T>(widen<W>(result[extra]) * (widen<W>(grad[extra]) - total));
    for (int64 p = threadIdx.x; p < packs; p += blockDim.x) {
        const Pack<T, N> grads = load_pack<T, N>(grad + body + p * N), results = load_pack<T, N>(result + body + p * N);
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>(widen<W>(results.at[i]) * (widen<W>(grads.at[i]) - total));
        store_pack<T, N>(out + body + p * N, pack);
    }
}

__device__ __forceinline__ float inverse_root(float x) { return 1.0f / sqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return 1.0 / sqrt(x); }

template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(256)
layer_norm_backward_short(const T* grad, const T* a, const T* weight, T* out, int64 rows, int64 columns, double eps) {
    using W = typename Wide<T>::type;
    const int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const int64 begin = row * columns;
    const int lane = threadIdx.x % 32;
    W values[PACKS][N], grads[PACKS][N], sum = 0, squares = 0, first = 0, second = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int64 at = (int64(p) * 32 + lane) * N;
        if (at < columns) {  // the host picks an N that divides the columns
            const Pack<T, N> pack = load_pack<T, N>(a + begin + at), incoming = load_pack<T, N>(grad + begin + at);
            const Pack<T, N> weights = load_pack<T, N>(weight + at);
#pragma unroll
            for (int i = 0; i < N; ++i) {
                values[p][i] = widen<W>(pack.at[i]);
                grads[p][i] = widen<W>(incoming.at[i]) * widen<W>(weights.at[i]);
                sum += values[p][i];
            }
        }
    }
    const W mean = warp_sum(sum) / W(columns);
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
        if ((int64(p) * 32 + lane) * N < columns)
#pragma unroll
            for (int i = 0; i < N; ++i) {
                values[p][i] -= mean;
                squares += values[p][i] * values[p][i];
                first += grads[p][i];
                second += grads[p][i] * values[p][i];
            }
    const W scale = inverse_root(warp_sum(squares) / W(columns) + W(eps));
    first = warp_sum(first) / W(columns);
    second = warp_sum(second) / W(columns) * scale * scale;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int64 at = (int64(p) * 32 + lane) * N;
        if (at < columns) {
            Pack<T, N> pack;
#pragma unroll
            for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>((grads[p][i] - first - values[p][i] * second) * scale);
            store_pack<T, N>(out + begin + at, pack);
        }
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(512)
layer_norm_backward_long(const T* grad, const T* a, const T* weight, T* out, int64 columns, double eps) {
    using W = typename Wide<T>::type;
    __shared__ W scratch[4][32];
    const int64 begin = int64(blockIdx.x) * columns, packs = columns / N;  // the host picks an N that divides the columns
    W sum = 0, squares = 0, first = 0, second = 0;
    for (int64 p = threadIdx.x; p < packs; p += blockDim.x) {
        const Pack<T, N> pack = load_pack<T, N>(a + begin + p * N);
#pragma unroll
        for (int i = 0; i < N; ++i) sum += widen<W>(pack.at[i]);
    }
    const W mean = block_sum(sum, scratch[0]) / W(columns);
    for (int64 p = threadIdx.x; p < packs; p += blockDim.x) {
        const Pack<T, N> pack = load_pack<T, N>(a + begin + p * N), incoming = load_pack<T, N>(grad + begin + p * N);
        const Pack<T, N> weights = load_pack<T, N>(weight + p * N);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const W value = widen<W>(pack.at[i]) - mean, weighted = widen<W>(incoming.at[i]) * widen<W>(weights.at[i]);
            squares += value * value;
            first += weighted;
            second += weighted * value;
        }
    }
    const W scale = inverse_root(block_sum(squares, scratch[1]) / W(columns) + W(eps));
    first = block_sum(first, scratch[2]) / W(columns);
    second = block_sum(second, scratch[3]) / W(columns) * scale * scale;
    for (int64 p = threadIdx.x; p < packs; p += blockDim.x) {
        const Pack<T, N> pack = load_pack<T, N>(a + begin + p * N), incoming = load_pack<T, N>(grad + begin + p * N);
        const Pack<T, N> weights = load_pack<T, N>(weight + p * N);
        Pack<T, N> stored;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const W value = widen<W>(pack.at[i]) - mean, weighted = widen<W>(incoming.at[i]) * widen<W>(weights.at[i]);
            stored.at[i] = narrow<T>((weighted - first - value * second) * scale);
        }
        store_pack<T, N>(out + begin + p * N, stored);
    }
}
