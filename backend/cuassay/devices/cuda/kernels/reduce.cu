// out[o, i] = reduction over r of a[o, r, i]; sum and maximum, for arrays seen as (outer, reduced, inner).
//
// Two kernels, by what lies next to what in memory. Each may reduce only a *part* of the axis, [part * length,
// (part + 1) * length), into out[o, part, i] of the accumulator's type; a second launch then reduces the parts. Parts
// are cut by the host from the shape alone, so a result does not depend on the card or the number of its
// multiprocessors, and two runs give the same bits.
// Shapes: reduce_rows: a (outer, reduced), inner 1. reduce_columns: a (outer, reduced, inner), inner contiguous.
// Launch: reduce_rows: grid (parts, outer), one block of 256 threads a part of a row. reduce_columns: grid (inner tiles,
//         parts, outer), x * y = 256 threads, N neighbouring columns a thread.
// Caller: devices/cuda/reduction.py. OpSpecs: cuassay/testing/specs/reduction.py.

#include "element.cuh"

// The accumulator: float for 16- and 32-bit floats, 64 bits for integers summed; the element itself for a maximum.
struct Sum {
    template <typename A> __device__ static A identity() { return A(0); }
    template <typename A> __device__ static A of(A a, A b) { return a + b; }
};
struct Max {
    template <typename A> __device__ static A identity();
    template <typename A> __device__ static A of(A a, A b) { return nan_maximum(a, b); }
};
template <> __device__ float Max::identity<float>() { return __int_as_float(0xff800000); }
template <> __device__ double Max::identity<double>() { return __longlong_as_double(0xfff0000000000000ll); }
template <> __device__ int64 Max::identity<int64>() { return int64(1) << 63; }
template <> __device__ uint64 Max::identity<uint64>() { return 0; }

template <typename Reduction, typename A> __device__ __forceinline__ A reduce_warp(A value) {
#pragma unroll
    for (int lane = 16; lane; lane /= 2) value = Reduction::of(value, __shfl_xor_sync(0xffffffffu, value, lane));
    return value;
}

template <typename Reduction, typename A> __device__ A reduce_block(A value) {
    __shared__ A shared[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    value = reduce_warp<Reduction>(value);
    if (!lane) shared[warp] = value;
    __syncthreads();
    if (warp == 0) {
        value = lane < blockDim.x / 32 ? shared[lane] : Reduction::template identity<A>();
        value = reduce_warp<Reduction>(value);
    }
    return value;
}

constexpr int kInFlight = 4;  // packs a thread asks for before it uses the first

template <typename Reduction, typename T, typename A, typename Out, int N>
__global__ void reduce_rows(const T* a, Out* out, int64 outer, int64 reduced, int64 length) {
    // grid.y stops at 65,535, so rows are walked
    for (int64 row = blockIdx.y; row < outer; row += gridDim.y) {
        const int64 begin = blockIdx.x * length, end = begin + length < reduced ? begin + length : reduced;
        const T* from = a + row * reduced;
        A totals[N];
#pragma unroll
        for (int i = 0; i < N; ++i) totals[i] = Reduction::template identity<A>();
        int64 at = begin + int64(threadIdx.x) * N;
        const int64 step = int64(blockDim.x) * N;
        for (; at + (kInFlight - 1) * step + N <= end; at += kInFlight * step) {
            Pack<T, N> flight[kInFlight];
#pragma unroll
            for (int f = 0; f < kInFlight; ++f) flight[f] = load_pack<T, N>(from + at + f * step);
#pragma unroll
            for (int f = 0; f < kInFlight; ++f)
#pragma unroll
                for (int i = 0; i < N; ++i) totals[i] = Reduction::of(totals[i], widen<A>(flight[f].at[i]));
        }
        for (; at + N <= end; at += step) {
            const Pack<T, N> pack = load_pack<T, N>(from + at);
#pragma unroll
            for (int i = 0; i < N; ++i) totals[i] = Reduction::of(totals[i], widen<A>(pack.at[i]));
        }
        for (; at < end; ++at) totals[0] = Reduction::of(totals[0], widen<A>(from[at]));
#pragma unroll
        for (int i = 1; i < N; ++i) totals[0] = Reduction::of(totals[0], totals[i]);
        const A total = reduce_block<Reduction>(totals[0]);
        if (!threadIdx.x) out[row * gridDim.x + blockIdx.x] = narrow<Out>(total);
        __syncthreads();  // the next row uses the same shared memory
    }
}

// Short rows: one warp a row, eight rows a block.
template <typename Reduction, typename T, typename A, typename Out, int N>
__global__ void reduce_short_rows(const T* a, Out* out, int64 outer, int64 reduced) {
    const int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= outer) return;
    const T* from = a + row * reduced;
    A total = Reduction::template identity<A>();
    int64 at = int64(threadIdx.x % 32) * N;
    for (; at + N <= reduced; at += 32 * N) {
        const Pack<T, N> pack = load_pack<T, N>(from + at);
        A partial = widen<A>(pack.at[0]);
#pragma unroll
        for (int i = 1; i < N; ++i) partial = Reduction::of(partial, widen<A>(pack.at[i]));
        total = Reduction::of(total, partial);
    }
    for (; at < reduced; ++at) total = Reduction::of(total, widen<A>(from[at]));
    total = reduce_warp<Reduction>(total);
    if (threadIdx.x % 32 == 0) out[row] = narrow<Out>(total);
}

template <typename Reduction, typename T, typename A, typename Out, int N>
__global__ void reduce_columns(const T* a, Out* out, int64 outer, int64 reduced, int64 inner, int64 length) {
    __shared__ A shared[256 * N];
    A* mine = shared + (threadIdx.y * blockDim.x + threadIdx.x) * N;
    const int64 column = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    const int64 begin = blockIdx.y * length, end = begin + length < reduced ? begin + length : reduced;
    for (int64 row = blockIdx.z; row < outer; row += gridDim.z) {
        const T* from = a + row * reduced * inner + column;
        A totals[N];
#pragma unroll
        for (int i = 0; i < N; ++i) totals[i] = Reduction::template identity<A>();
        if (column < inner) {  // the host picks an N that divides inner
            for (int64 at = begin + threadIdx.y; at < end; at += blockDim.y) {
                const Pack<T, N> pack = load_pack<T, N>(from + at * inner);
#pragma unroll
                for (int i = 0; i < N; ++i) totals[i] = Reduction::of(totals[i], widen<A>(pack.at[i]));
            }
        }
#pragma unroll
        for (int i = 0; i < N; ++i) mine[i] = totals[i];
        __syncthreads();
        if (threadIdx.y == 0 && column < inner) {
#pragma unroll
            for (int i = 0; i < N; ++i) {
                A total = mine[i];
                for (int y = 1; y < blockDim.y; ++y) total = Reduction::of(total, mine[y * blockDim.x * N + i]);
                out[(row * gridDim.y + blockIdx.y) * inner + column + i] = narrow<Out>(total);
            }
        }
        __syncthreads();
    }
}
