// out[row] = a[row] b[row] c[row] ...: the rows of several arrays side by side, as words of any type.
//
// Source: own. One copy for each array took three times as long on an H200: each copy was slow by itself and waited for
//         the last one.
// Shapes: each array `rows` x its words, contiguous; to: `rows` x `columns`, rows `step` words apart. No overlap.
// Launch: 256 threads, one word a thread; up to eight arrays, or up to 64.
// Caller: devices/cuda/ops/joining.py. OpSpecs: cuassay/testing/specs/joining.py.

#include "element.cuh"

constexpr int kFew = 8, kMany = 64;

template <int N> struct Parts {
    int64 n;        // rows * columns
    int64 columns;  // words of a row, over all arrays
    int64 step;
    int64 end[N];   // where each array's words end in a row; missing arrays have the last end
};

// The element's row and column.
template <int N> __device__ __forceinline__ void place(const Parts<N>& parts, int64 index, int64& row, int64& column) {
    if ((index | parts.columns) >> 31) {
        row = index / parts.columns, column = index % parts.columns;
    } else {  // a 64-bit division is several times a 32-bit one
        row = uint32(index) / uint32(parts.columns), column = uint32(index) % uint32(parts.columns);
    }
}

// Each array is a separate argument, where a captured graph can find and replace the address of an input.
template <typename Word>
__global__ void join_few(const Word* a, const Word* b, const Word* c, const Word* d, const Word* e, const Word* f,
                         const Word* g, const Word* h, Word* to, const __grid_constant__ Parts<kFew> parts) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= parts.n) return;
    int64 row, column;
    place(parts, index, row, column);
    const Word* const all[kFew] = {a, b, c, d, e, f, g, h};
    const Word* from = a;
    int64 begin = 0, end = parts.end[0];
#pragma unroll
    for (int next = 1; next < kFew; ++next) {
        if (column >= parts.end[next - 1]) from = all[next], begin = parts.end[next - 1], end = parts.end[next];
    }
    to[row * parts.step + column] = from[row * (end - begin) + column - begin];
}

struct Sources { const void* at[kMany]; };

template <typename Word>
__global__ void join_many(const __grid_constant__ Sources sources, Word* to, const __grid_constant__ Parts<kMany> parts) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= parts.n) return;
    int64 row, column;
    place(parts, index, row, column);
    int chosen = 0;  // the first array whose words end beyond the column
#pragma unroll
    for (int half = kMany / 2; half > 0; half /= 2)
        if (column >= parts.end[chosen + half - 1]) chosen += half;
    const int64 begin = chosen ? parts.end[chosen - 1] : 0, width = parts.end[chosen] - begin;
    to[row * parts.step + column] = static_cast<const Word*>(sources.at[chosen])[row * width + column - begin];
}
