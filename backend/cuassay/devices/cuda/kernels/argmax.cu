// out[o, i] = the r for which a[o, r, i] is largest; the first of equal ones; NaN counts as larger than all numbers.
//
// A row may be cut into parts, whose winners go to `places`. Another launch then chooses among them.
// Shapes: a (outer, reduced, inner), inner 1 for argmax_rows; places (outer, parts, inner).
// Launch: argmax_rows: grid (parts, outer), 256 threads a part. argmax_short_rows: a warp a row. argmax_columns: grid
//         (tiles, parts, outer), a tile of 32 columns for 256 threads, eight rows at a time. argmax_parts: a warp a
//         result, eight results a block.
// Caller: devices/cuda/ops/reduction.py. OpSpecs: cuassay/testing/specs/statistics.py.

#include "element.cuh"

// A value in the type in which values are compared, and its index; -1 if there is no value yet.
template <typename A> struct Best { A value; int64 at; };

template <typename A> __device__ __forceinline__ Best<A> better(Best<A> one, Best<A> other) {
    if (other.at < 0) return one;
    if (one.at < 0) return other;
    const bool equal = is_nan(one.value) ? is_nan(other.value) : one.value == other.value;
    if (equal) return one.at < other.at ? one : other;
    return is_nan(one.value) || one.value > other.value ? one : other;  // if other were NaN, neither test would hold
}

template <typename A> __device__ __forceinline__ Best<A> best_of_warp(Best<A> best) {
#pragma unroll
    for (int lane = 16; lane; lane /= 2) {
        const Best<A> other = {__shfl_xor_sync(0xffffffffu, best.value, lane), __shfl_xor_sync(0xffffffffu, best.at, lane)};
        best = better(best, other);
    }
    return best;
}

// Takes a value from later in the row, which must be larger to replace the best one.
template <typename A> __device__ __forceinline__ void advance(Best<A>& best, A value, int64 at) {
    if (best.at < 0 || value > best.value || (is_nan(value) && !is_nan(best.value))) best.value = value, best.at = at;
}

// Takes a whole pack: few packs have a larger element than the best so far, and only these are searched for its index.
template <typename A, typename T, int N>
__device__ __forceinline__ void advance(Best<A>& best, const Pack<T, N>& pack, int64 at) {
    A top = widen<A>(pack.at[0]);
#pragma unroll
    for (int i = 1; i < N; ++i) top = nan_maximum(top, widen<A>(pack.at[i]));
    if (best.at >= 0 && !(top > best.value) && (!is_nan(top) || is_nan(best.value))) return;
    int first = N - 1;
#pragma unroll
    for (int i = N - 2; i >= 0; --i) {
        const A value = widen<A>(pack.at[i]);
        if (is_nan(top) ? is_nan(value) : value == top) first = i;
    }
    best.value = top, best.at = at + first;
}

// LANES threads search the row together; this is one of them.
template <typename A, typename T, int N, int LANES>
__device__ __forceinline__ Best<A> best_of_row(const T* row, int64 begin, int64 end) {
    Best<A> best = {A(0), -1};
    const int64 lane = threadIdx.x % LANES, head = begin < end ? before_packs<T, N>(row + begin, end - begin) : 0;
    if (lane < head) advance(best, widen<A>(row[begin + lane]), begin + lane);
    int64 at = begin + head + lane * N;
#pragma unroll 4
    for (; at + N <= end; at += LANES * N) advance<A, T, N>(best, load_pack<T, N>(row + at), at);
    for (; at < end; ++at) advance(best, widen<A>(row[at]), at);
    return best;
}

// Combines 8 warps of 32 lanes; `values` and `found` have eight entries.
template <typename A> __device__ __forceinline__ Best<A> best_of_block(Best<A> best, A* values, int64* found) {
    best = best_of_warp(best);
    if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = best.value, found[threadIdx.x / 32] = best.at;
    __syncthreads();
    for (int warp = 0; threadIdx.x == 0 && warp < 8; ++warp) {
        const Best<A> other = {values[warp], found[warp]};
        best = better(best, other);
    }
    return best;
}

template <typename T, typename A, int N>
__global__ void argmax_rows(const T* a, int64* places, int64 outer, int64 reduced, int64 length) {
    __shared__ A values[8];
    __shared__ int64 found[8];
    for (int64 row = blockIdx.y; row < outer; row += gridDim.y) {  // grid.y stops at 65,535
        const int64 begin = blockIdx.x * length, end = begin + length < reduced ? begin + length : reduced;
        const T* from = a + row * reduced;
        Best<A> best = best_of_row<A, T, N, 256>(from, begin, end);
        best = best_of_block(best, values, found);
        if (threadIdx.x == 0) places[row * gridDim.x + blockIdx.x] = best.at;
        __syncthreads();  // the next row uses the same shared memory
    }
}

template <typename T, typename A, int N>
__global__ void argmax_short_rows(const T* a, int64* out, int64 outer, int64 reduced) {
    const int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= outer) return;
    const Best<A> best = best_of_warp(best_of_row<A, T, N, 32>(a + row * reduced, 0, reduced));
    if (threadIdx.x % 32 == 0) out[row] = best.at;
}

template <typename T, typename A>
__global__ void argmax_parts(const T* a, const int64* places, int64* out, int64 outer, int64 reduced, int64 inner,
                             int64 parts) {
    const int64 result = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (result >= outer * inner) return;
    const int64 row = result / inner, column = result % inner;
    Best<A> best = {A(0), -1};
    for (int64 part = threadIdx.x % 32; part < parts; part += 32) {
        const int64 at = places[(row * parts + part) * inner + column];
        const Best<A> here = {at < 0 ? A(0) : widen<A>(a[(row * reduced + at) * inner + column]), at};
        best = better(best, here);
    }
    best = best_of_warp(best);
    if (threadIdx.x % 32 == 0) out[result] = best.at;
}

template <typename T, typename A>
__global__ void argmax_columns(const T* a, int64* places, int64 outer, int64 reduced, int64 inner, int64 length) {
    __shared__ A values[8][32];
    __shared__ int64 found[8][32];
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    const int64 column = int64(blockIdx.x) * 32 + lane;
    const int64 begin = blockIdx.y * length, end = begin + length < reduced ? begin + length : reduced;
    for (int64 row = blockIdx.z; row < outer; row += gridDim.z) {  // grid.z stops at 65,535
        Best<A> best = {A(0), -1};
        if (column < inner) {
            const T* from = a + row * reduced * inner + column;
#pragma unroll 4
            for (int64 at = begin + line; at < end; at += 8) advance(best, widen<A>(from[at * inner]), at);
        }
        values[line][lane] = best.value, found[line][lane] = best.at;
        __syncthreads();
        if (line == 0 && column < inner) {
            for (int other = 1; other < 8; ++other) {
                const Best<A> one = {values[other][lane], found[other][lane]};
                best = better(best, one);
            }
            places[(row * gridDim.y + blockIdx.y) * inner + column] = best.at;
        }
        __syncthreads();  // the next row uses the same shared memory
    }
}
