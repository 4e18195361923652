// out[r, c] = (a[r, c] - mean_c a[r]) / sqrt(var_c a[r] + eps) * weight[c] + bias[c], var the biased variance.
//
// J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization", arXiv 1607.06450. One pass over memory: a row is read
// once and kept on the chip. The variance is the mean of squared deviations from the mean, computed from the kept row:
// the difference E[x^2] - E[x]^2 would cancel where the mean is large.
// Shapes: a, out: (rows, columns), contiguous; weight, bias: (columns,).
// Launch: layer_norm_short: 256 threads, a warp a row, columns <= 32 * N * PACKS.
//         layer_norm_long: one block of 128 to 1,024 threads a row; KEEP: dynamic shared memory for the whole row;
//         otherwise the row is read three times, often from the level-2 cache.
// Caller: devices/cuda/ops/normalization.py. OpSpecs: cuassay/testing/specs/reduction.py.

#include "rows.cuh"

template <typename T, int N, typename W>
__device__ __forceinline__ void store_normal(T* to, const W* centred, W scale, const T* weight, const T* bias) {
    const Pack<T, N> weights = load_pack<T, N>(weight), biases = load_pack<T, N>(bias);
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>(centred[i] * scale * widen<W>(weights.at[i]) + widen<W>(biases.at[i]));
    store_pack<T, N>(to, pack);
}

__device__ __forceinline__ float inverse_root(float x) { return 1.0f / sqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return 1.0 / sqrt(x); }

template <typename T, int N, int PACKS>
__global__ void __launch_bounds__(256)
layer_norm_short(const T* a, const T* weight, const T* bias, T* out, int64 rows, int64 columns, double eps) {
    using W = typename Wide<T>::type;
    const int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    const T* from = a + row * columns;
    W values[PACKS][N], sum = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int64 at = (int64(p) * 32 + lane) * N;
        if (at < columns) {  // the host picks an N that divides the columns
            const Pack<T, N> pack = load_pack<T, N>(from + at);
#pragma unroll
            for (int i = 0; i < N; ++i) values[p][i] = widen<W>(pack.at[i]);
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i) values[p][i] = 0;
        }
    }
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
        for (int i = 0; i < N; ++i) sum += values[p][i];
    const W mean = warp_sum(sum) / W(columns);
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const bool inside = (int64(p) * 32 + lane) * N < columns;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            values[p][i] -= mean;
            if (inside) squares += values[p][i] * values[p][i];
        }
    }
    const W scale = inverse_root(warp_sum(squares) / W(columns) + W(eps));
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int64 at = (int64(p) * 32 + lane) * N;
        if (at < columns) store_normal<T, N, W>(out + row * columns + at, values[p], scale, weight + at, bias + at);
    }
}

template <typename T, int N, bool KEEP>
__global__ void __launch_bounds__(1024, 1)
layer_norm_long(const T* a, const T* weight, const T* bias, T* out, int64 columns, double eps) {
    using W = typename Wide<T>::type;
    constexpr int kInFlight = 4;  // packs that a thread loads before it uses the first
    extern __shared__ __align__(16) unsigned char kept_bytes[];
    __shared__ W sums[32], squares[32];
    Pack<T, N>* kept = reinterpret_cast<Pack<T, N>*>(kept_bytes);  // each thread reads only its own writes: no barrier
    const T* from = a + int64(blockIdx.x) * columns;
    const int64 packs = columns / N, stride = blockDim.x;  // the host picks an N that divides the columns

    W sum = 0;
    int64 p = threadIdx.x;
    for (; p + (kInFlight - 1) * stride < packs; p += kInFlight * stride) {
        Pack<T, N> flight[kInFlight];
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) flight[f] = load_pack<T, N>(from + (p + f * stride) * N);
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) {
            if (KEEP) kept[p + f * stride] = flight[f];
#pragma unroll
            for (int i = 0; i < N; ++i) sum += widen<W>(flight[f].at[i]);
        }
    }
    for (; p < packs; p += stride) {
        const Pack<T, N> pack = load_pack<T, N>(from + p * N);
        if (KEEP) kept[p] = pack;
#pragma unroll
        for (int i = 0; i < N; ++i) sum += widen<W>(pack.at[i]);
    }
    const W mean = block_sum(sum, sums) / W(columns);

    W square = 0;
    for (p = threadIdx.x; p < packs; p += stride) {
        const Pack<T, N> pack = KEEP ? kept[p] : load_pack<T, N>(from + p * N);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const W centred = widen<W>(pack.at[i]) - mean;
            square += centred * centred;
        }
    }
    const W scale = inverse_root(block_sum(square, squares) / W(columns) + W(eps));

    for (p = threadIdx.x; p < packs; p += stride) {
        const Pack<T, N> pack = KEEP ? kept[p] : load_pack<T, N>(from + p * N);
        W centred[N];
#pragma unroll
        for (int i = 0; i < N; ++i) centred[i] = widen<W>(pack.at[i]) - mean;
        store_normal<T, N, W>(out + int64(blockIdx.x) * columns + p * N, centred, scale, weight + p * N, bias + p * N);
    }
}
