// out[o, i] = the r for which a[o, r, i] is largest, the first of several; NaN is larger than all numbers.
//
// A row may be cut into parts, whose winners go to `places`; another launch then chooses among them.
// Shapes: argmax_rows: a (outer, reduced). argmax_parts: places (outer, parts). argmax_columns: a (outer, reduced, inner).
// Launch: argmax_rows: grid (parts, outer), 256 threads a part. argmax_parts: a warp a row, eight rows a block.
//         argmax_columns: one thread a column.
// Caller: devices/cuda/ops/reduction.py. OpSpecs: cuassay/testing/specs/statistics.py.

#include "element.cuh"

// A value in the type it is compared in, and where it is; -1 where there is none.
template <typename A> struct Best { A value; int64 at; };

template <typename A> __device__ __forceinline__ Best<A> better(Best<A> one, Best<A> other) {
    if (other.at < 0) return one;
    if (one.at < 0) return other;
    const bool equal = is_nan(one.value) ? is_nan(other.value) : one.value == other.value;
    if (equal) return one.at < other.at ? one : other;
    return is_nan(one.value) || one.value > other.value ? one : other;  // were other NaN, neither would hold
}

template <typename A> __device__ __forceinline__ Best<A> best_of_warp(Best<A> best) {
#pragma unroll
    for (int lane = 16; lane; lane /= 2) {
        const Best<A> other = {__shfl_xor_sync(0xffffffffu, best.value, lane), __shfl_xor_sync(0xffffffffu, best.at, lane)};
        best = better(best, other);
    }
    return best;
}

template <typename T, typename A>
__global__ void argmax_rows(const T* a, int64* places, int64 outer, int64 reduced, int64 length) {
    __shared__ A values[8];
    __shared__ int64 found[8];
    for (int64 row = blockIdx.y; row < outer; row += gridDim.y) {  // grid.y stops at 65,535
        const int64 begin = blockIdx.x * length, end = begin + length < reduced ? begin + length : reduced;
        Best<A> best = {A(0), -1};
        for (int64 at = begin + threadIdx.x; at < end; at += blockDim.x) {
            const Best<A> here = {widen<A>(a[row * reduced + at]), at};
            best = better(best, here);
        }
        best = best_of_warp(best);
        if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = best.value, found[threadIdx.x / 32] = best.at;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int warp = 1; warp < 8; ++warp) {
                const Best<A> other = {values[warp], found[warp]};
                best = better(best, other);
            }
            places[row * gridDim.x + blockIdx.x] = best.at;
        }
        __syncthreads();  // the next row uses the same shared memory
    }
}

template <typename T, typename A>
__global__ void argmax_parts(const T* a, const int64* places, int64* out, int64 outer, int64 reduced, int64 parts) {
    const int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= outer) return;
    Best<A> best = {A(0), -1};
    for (int64 part = threadIdx.x % 32; part < parts; part += 32) {
        const int64 at = places[row * parts + part];
        const Best<A> here = {at < 0 ? A(0) : widen<A>(a[row * reduced + at]), at};
        best = better(best, here);
    }
    best = best_of_warp(best);
    if (threadIdx.x % 32 == 0) out[row] = best.at;
}

template <typename T, typename A>
__global__ void argmax_columns(const T* a, int64* out, int64 outer, int64 reduced, int64 inner) {
    const int64 column = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= outer * inner) return;
    const T* from = a + column / inner * reduced * inner + column % inner;
    Best<A> best = {A(0), -1};
    for (int64 at = 0; at < reduced; ++at) {
        const Best<A> here = {widen<A>(from[at * inner]), at};
        best = better(best, here);
    }
    out[column] = best.at;
}
