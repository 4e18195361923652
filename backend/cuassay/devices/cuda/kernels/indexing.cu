// out[i, :] = weight[index[i], :], rows that an array of whole numbers names; and the sums of rows by such an array.
//
// segment_sum: out[o, r, :] = start[o, r, :] + the sum of source[o, k, :] over
// the k with index[k] == r, in their order, so that two runs give the same bits. A block looks through the whole index, 256
// numbers at a time, and mostly finds none of its row: for 50,257 rows and 8,192 numbers that is 1.6 million steps.
// Shapes: weight (V, D), index (n), out (n, D); source (outer, K, inner), index (K), start and out (outer, rows, inner).
// Launch: gather_rows: 256 threads, one pack of N elements a thread. segment_sum: grid (outer * rows, tiles of 256 columns).
// Caller: devices/cuda/ops/indexing.py. OpSpecs: cuassay/testing/specs/indexing.py.

#include "element.cuh"

// U is an unsigned integer of the elements' size. An index outside gives bits of ones, which are NaN of a float.
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

template <typename T, typename I, bool FROM_START>
__global__ void segment_sum(const T* source, const I* index, const T* start, T* out, int64 rows, int64 length,
                            int64 inner) {
    using W = typename Wide<T>::type;
    __shared__ uint32 found[2][8];  // two, so that one barrier a step is enough
    const int64 row = blockIdx.x % rows, outer = blockIdx.x / rows;
    const int64 column = int64(blockIdx.y) * blockDim.x + threadIdx.x;
    const int64 to = (outer * rows + row) * inner + column;
    W total = W(0);
    if (FROM_START && column < inner) total = widen<W>(start[to]);
    for (int64 base = 0, step = 0; base < length; base += blockDim.x, ++step) {
        const int64 k = base + threadIdx.x;
        const uint32 mine = __ballot_sync(0xffffffffu, k < length && int64(index[k]) == row);
        if (threadIdx.x % 32 == 0) found[step % 2][threadIdx.x / 32] = mine;
        __syncthreads();
        if (column >= inner) continue;
        for (int warp = 0; warp < 8; ++warp) {
            for (uint32 left = found[step % 2][warp]; left; left &= left - 1) {
                const int64 from = outer * length + base + warp * 32 + __ffs(left) - 1;
                total += widen<W>(source[from * inner + column]);
            }
        }
    }
    if (column < inner) out[to] = narrow<T>(total);
}
