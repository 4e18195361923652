// out[o, i] = reduction over r of a[o, r, i]; sum, product, mean, maximum and minimum, for arrays seen as (outer, reduced, inner).
//
// The kernels differ in which elements are neighbours in memory. Each may reduce only a *part* of the axis, [part *
// length, (part + 1) * length), into out[o, part, i] in the accumulator's type. A second launch then reduces the parts;
// the blocks of a cluster reduce their own parts. The host cuts the parts by the shape alone, so a result does not
// depend on the GPU's number of multiprocessors, and two runs give the same bits.
// Shapes: reduce_rows: a (outer, reduced), inner 1. reduce_columns: a (outer, reduced, inner), inner contiguous.
// Launch: reduce_rows: grid (parts, outer), one block of 256 threads a part of a row. reduce_short_rows: a warp a row.
//         reduce_columns: grid (tiles * parts, outer), 256 or 512 threads, N neighbouring columns a thread.
// Caller: devices/cuda/ops/reduction.py. OpSpecs: cuassay/testing/specs/reduction.py.

#include "cluster.cuh"
#include "element.cuh"

// The accumulator type: float for 16- and 32-bit floats, 64 bits for sums of integers, the element type for a maximum.
struct Whole {
    template <typename A> __device__ static A finish(A total, int64) { return total; }
};
struct Sum : Whole {
    template <typename A> __device__ static A identity() { return A(0); }
    template <typename A> __device__ static A of(A a, A b) { return a + b; }
};
struct Mean : Sum {  // only if one launch reduces everything
    template <typename A> __device__ static A finish(A total, int64 reduced) { return total / A(reduced); }
};
struct Max : Whole {
    template <typename A> __device__ static A identity();
    template <typename A> __device__ static A of(A a, A b) { return nan_maximum(a, b); }
};
template <> __device__ float Max::identity<float>() { return __int_as_float(0xff800000); }
template <> __device__ double Max::identity<double>() { return __longlong_as_double(0xfff0000000000000ll); }
template <> __device__ int64 Max::identity<int64>() { return int64(1) << 63; }
template <> __device__ uint64 Max::identity<uint64>() { return 0; }

struct Min : Whole {
    template <typename A> __device__ static A identity();
    template <typename A> __device__ static A of(A a, A b) { return nan_minimum(a, b); }
};
template <> __device__ float Min::identity<float>() { return __int_as_float(0x7f800000); }
template <> __device__ double Min::identity<double>() { return __longlong_as_double(0x7ff0000000000000ll); }
template <> __device__ int64 Min::identity<int64>() { return ~(int64(1) << 63); }
template <> __device__ uint64 Min::identity<uint64>() { return ~uint64(0); }
struct Prod : Whole {
    template <typename A> __device__ static A identity() { return A(1); }
    template <typename A> __device__ static A of(A a, A b) { return a * b; }
};

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

constexpr int kInFlight = 4;  // packs that a thread loads before it uses the first

template <typename Reduction, typename T, typename A, typename Out, int N>
__global__ void reduce_rows(const T* a, Out* out, int64 outer, int64 reduced, int64 length) {
    // grid.y is at most 65,535, so blocks walk over rows
    for (int64 row = blockIdx.y; row < outer; row += gridDim.y) {
        const int64 begin = blockIdx.x * length, end = begin + length < reduced ? begin + length : reduced;
        const T* from = a + row * reduced;
        A totals[N];
#pragma unroll
        for (int i = 0; i < N; ++i) totals[i] = Reduction::template identity<A>();
        const int64 head = begin < end ? before_packs<T, N>(from + begin, end - begin) : 0;
        if (threadIdx.x < head) totals[0] = widen<A>(from[begin + threadIdx.x]);
        int64 at = begin + head + int64(threadIdx.x) * N;
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
        if (!threadIdx.x) out[row * gridDim.x + blockIdx.x] = narrow<Out>(Reduction::finish(total, reduced));
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
    const int64 lane = threadIdx.x % 32, head = before_packs<T, N>(from, reduced);
    if (lane < head) total = widen<A>(from[lane]);
    int64 at = head + lane * N;
    for (; at + N <= reduced; at += 32 * N) {
        const Pack<T, N> pack = load_pack<T, N>(from + at);
        A partial = widen<A>(pack.at[0]);
#pragma unroll
        for (int i = 1; i < N; ++i) partial = Reduction::of(partial, widen<A>(pack.at[i]));
        total = Reduction::of(total, partial);
    }
    for (; at < reduced; ++at) total = Reduction::of(total, widen<A>(from[at]));
    total = reduce_warp<Reduction>(total);
    if (threadIdx.x % 32 == 0) out[row] = narrow<Out>(Reduction::finish(total, reduced));
}

// A tile has lanes * N columns; lanes = 2^shift, up to 32, is the number of neighbouring threads in a line. With n
// lines, a line takes every n-th row. The totals of the warps are combined in dynamic shared memory of warps * lanes *
// N accumulators. With CLUSTER > 1, the first block of a cluster combines the totals of CLUSTER parts in order, and out
// has parts / CLUSTER of them.
template <typename Reduction, typename T, typename A, typename Out, int N, int CLUSTER>
__global__ void CLUSTER_OF(CLUSTER) __launch_bounds__(512, sizeof(A) == 8 ? 1 : 3)
reduce_columns(const T* a, Out* out, int64 outer, int64 reduced, int64 inner, int64 length, int64 parts,
               int64 shift) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    A* shared = reinterpret_cast<A*>(shared_bytes);  // [warp][column of the tile]
    const int lanes = 1 << shift, tile = N << shift, lane = threadIdx.x & (lanes - 1), warps = blockDim.x / 32;
    const uint32 part = blockIdx.x % uint32(parts);  // a 64-bit division would cost a microsecond
    const int64 first = int64(blockIdx.x / uint32(parts)) * tile, column = first + lane * N;
    const int lines = blockDim.x >> shift;
    const int64 begin = part * length, end = begin + length < reduced ? begin + length : reduced;
    for (int64 row = blockIdx.y; row < outer; row += gridDim.y) {
        A totals[N];
#pragma unroll
        for (int i = 0; i < N; ++i) totals[i] = Reduction::template identity<A>();
        if (column < inner) {  // the host chooses an N that divides inner
            int64 at = begin + (threadIdx.x >> shift);
            const T* from = a + (row * reduced + at) * inner + column;
            const int64 step = lines * inner;
            for (; at + (kInFlight - 1) * lines < end; at += kInFlight * lines) {
                Pack<T, N> flight[kInFlight];
#pragma unroll
                for (int f = 0; f < kInFlight; ++f, from += step) flight[f] = load_pack<T, N>(from);
#pragma unroll
                for (int f = 0; f < kInFlight; ++f)
#pragma unroll
                    for (int i = 0; i < N; ++i) totals[i] = Reduction::of(totals[i], widen<A>(flight[f].at[i]));
            }
            for (; at < end; at += lines, from += step) {
                const Pack<T, N> pack = load_pack<T, N>(from);
#pragma unroll
                for (int i = 0; i < N; ++i) totals[i] = Reduction::of(totals[i], widen<A>(pack.at[i]));
            }
        }
#pragma unroll
        for (int line = 16; line; line /= 2) {
            if (line < lanes) break;
#pragma unroll
            for (int i = 0; i < N; ++i)
                totals[i] = Reduction::of(totals[i], __shfl_xor_sync(0xffffffffu, totals[i], line));
        }
        if (threadIdx.x % 32 < lanes) {
#pragma unroll
            for (int i = 0; i < N; ++i) shared[threadIdx.x / 32 * tile + lane * N + i] = totals[i];
        }
        __syncthreads();
        Out* to = out + (row * (parts / CLUSTER) + part / CLUSTER) * inner + first;
        for (int i = threadIdx.x; i < tile; i += blockDim.x) {
            A total = shared[i];
#pragma unroll 8
            for (int warp = 1; warp < warps; ++warp) total = Reduction::of(total, shared[warp * tile + i]);
            if (CLUSTER > 1) shared[i] = total;
            else if (first + i < inner) to[i] = narrow<Out>(Reduction::finish(total, reduced));
        }
#if __CUDA_ARCH__ >= 900
        if (CLUSTER > 1) {
            cluster_arrive();
            cluster_wait();
            for (int i = threadIdx.x; cluster_rank() == 0 && i < tile && first + i < inner; i += blockDim.x) {
                A total = shared[i];
#pragma unroll
                for (int other = 1; other < CLUSTER; ++other) total = Reduction::of(total, *in_block(other, shared + i));
                to[i] = narrow<Out>(Reduction::finish(total, reduced));
            }
            cluster_arrive();
            cluster_wait();
        }
#endif
        __syncthreads();  // the next row uses the same shared memory
    }
}
