// out: for every tensor a of a list: a = operation(a, b); or a's norm; or the norm of the whole list. One launch.
//
// The norm adds squares in double, where the squares of finite floats cannot overflow. So a sum that is not finite
// shows that some element was not finite. Each block writes the sum of its chunk. The last block of a tensor, or of the
// list, adds these sums in the order of the chunks, so every run gives the same bits.
// Shapes: contiguous tensors of any length and alignment; the tables are defined in multi_tensor.cuh.
// Launch: one block of 256 threads a chunk; PACKS packs a thread, which norms load four at a time.
// Caller: devices/cuda/ops/multi_tensor.py. OpSpecs: cuassay/testing/specs/multi_tensor.py.

#include "multi_tensor.cuh"
#include "rows.cuh"

// ------------------------------------------------------------------------------------------------ elementwise

struct Add { template <typename W> __device__ static W of(W a, W b, W alpha) { return a + alpha * b; } };
struct Mul { template <typename W> __device__ static W of(W a, W b, W) { return a * b; } };
struct Copy { template <typename W> __device__ static W of(W, W b, W) { return b; } };
struct Zero { template <typename W> __device__ static W of(W, W, W) { return W(0); } };
// Exact at both ends, as in torch.
struct Lerp {
    template <typename W> __device__ static W of(W a, W b, W weight) {
        return weight < W(0.5) ? a + weight * (b - a) : b - (b - a) * (W(1) - weight);
    }
};

template <typename T> struct Reads { static constexpr bool a = true; };
template <> struct Reads<Copy> { static constexpr bool a = false; };
template <> struct Reads<Zero> { static constexpr bool a = false; };

// b is a list or a number. A number is passed by value, or is read from the device if `cell` is given. The same holds
// for the operation's own scalar (alpha, weight). At most one of the two is in a cell.
struct Scalars {
    const void* cell;
    double b, scalar;
};

template <typename A, typename B> struct Common { static constexpr int N = 16 / (sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B)); };

template <typename Operation, typename A, typename B, bool LIST, int OFF, int PACKS>
__global__ void __launch_bounds__(kThreads)
pointwise(const Tensor<2>* __restrict__ tensors, const Chunk* __restrict__ chunks, const __grid_constant__ Scalars scalars) {
    using W = typename Wide<B>::type;  // B is the source of a cast; otherwise A is B
    constexpr int N = Common<A, B>::N;
    const Chunk chunk = chunks[blockIdx.x];
    const Tensor<2>& tensor = tensors[chunk.tensor];
    A* const as = list<A>(tensor, 0);
    const B* const bs = list<B>(tensor, 1);
    Flight<is_off(OFF, 0), A, N> as_asked[PACKS];
    Flight<is_off(OFF, 1), B, N> bs_asked[PACKS];
#pragma unroll
    for (int u = 0; u < PACKS; ++u) {
        const Place<N> at = place<N, PACKS>(tensor, chunk, u);
        loads<OFF>(at, [&](bool whole) {
            if (Reads<Operation>::a) as_asked[u] = load<is_off(OFF, 0), A, N>(as, at, whole);
            if (LIST) bs_asked[u] = load<is_off(OFF, 1), B, N>(bs, at, whole);
        });
    }
    W other = W(scalars.b), scalar = W(scalars.scalar);
    if (scalars.cell) (LIST ? scalar : other) = *static_cast<const W*>(scalars.cell);
#pragma unroll
    for (int u = 0; u < PACKS; ++u) {
        const Place<N> at = place<N, PACKS>(tensor, chunk, u);
        Words<A, N> a;
        Words<B, N> b;
        if (Reads<Operation>::a) a = landed(as_asked[u]);
        if (LIST) b = landed(bs_asked[u]);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const W left = Reads<Operation>::a ? widen<W>(a.at(i)) : W(0);
            a.put(i, narrow<A>(Operation::of(left, LIST ? widen<W>(b.at(i)) : other, scalar)));
        }
        stores<OFF & 1>(at, [&](bool whole) { store<is_off(OFF, 0), A, N>(as, at, a, whole); });
    }
}

// grads *= inv_scale. Sets found_inf to 1 if an element was not finite before the product.
template <typename T, int PACKS>
__global__ void __launch_bounds__(kThreads)
unscale(const Tensor<1>* __restrict__ tensors, const Chunk* __restrict__ chunks, float* found_inf, const float* inv_scale) {
    using W = typename Wide<T>::type;
    constexpr int N = 16 / sizeof(T);
    const Chunk chunk = chunks[blockIdx.x];
    const Tensor<1>& tensor = tensors[chunk.tensor];
    T* const grads = list<T>(tensor, 0);
    Flight<false, T, N> asked[PACKS];
#pragma unroll
    for (int u = 0; u < PACKS; ++u) {
        const Place<N> at = place<N, PACKS>(tensor, chunk, u);
        loads<0>(at, [&](bool whole) { asked[u] = load<false, T, N>(grads, at, whole); });
    }
    const W factor = W(*inv_scale);
    bool finite = true;
#pragma unroll
    for (int u = 0; u < PACKS; ++u) {
        const Place<N> at = place<N, PACKS>(tensor, chunk, u);
        Words<T, N> pack = landed(asked[u]);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const W value = widen<W>(pack.at(i));
            finite = finite && isfinite(value);
            pack.put(i, narrow<T>(value * factor));
        }
        stores<0>(at, [&](bool whole) { store<false, T, N>(grads, at, pack, whole); });
    }
    if (!finite) *found_inf = 1.0f;  // a benign race: all threads write the same value
}

// ------------------------------------------------------------------------------------------------ norms

struct SumOfSquares {
    __device__ static double of(double total, double x) { return fma(x, x, total); }
    __device__ static double merge(double a, double b) { return a + b; }
    __device__ static double block(double value, double* scratch) { return block_sum(value, scratch); }
    __device__ static double end(double total) { return sqrt(total); }
};
struct Largest {
    __device__ static double of(double total, double x) { return nan_maximum(total, fabs(x)); }
    __device__ static double merge(double a, double b) { return nan_maximum(a, b); }
    __device__ static double block(double value, double* scratch) { return block_max(value, scratch); }
    __device__ static double end(double total) { return total; }
};

constexpr int kInFlight = 4;  // packs that a thread loads before it uses the first

template <typename Order, typename T, int PACKS>
__device__ __forceinline__ double of_chunk(const Tensor<1>& tensor, const Chunk& chunk) {
    constexpr int N = 16 / sizeof(T);
    const T* const a = list<T>(tensor, 0);
    double total = 0.0;
    for (int u = 0; u < PACKS; u += kInFlight) {
        Flight<false, T, N> asked[kInFlight];
        if (place<N, PACKS>(tensor, chunk, u).first - int(threadIdx.x) * N >= tensor.n) break;
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) {
            const Place<N> at = place<N, PACKS>(tensor, chunk, u + f);
            loads<0>(at, [&](bool whole) { asked[f] = load<false, T, N>(a, at, whole); });
        }
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) {
            const Words<T, N> pack = landed(asked[f]);
#pragma unroll
            for (int i = 0; i < N; ++i) total = Order::of(total, widen<double>(pack.at(i)));
        }
    }
    return total;
}

// The total of this block's tensor, or with GLOBAL of the list. The block that arrives last returns it, in thread 0.
template <bool GLOBAL, typename Order, typename T, int PACKS>
__device__ bool total_of(const Tensor<1>* tensors, const Chunk& chunk, double* parts, uint32* arrivals, double& total) {
    __shared__ double scratch[32];
    __shared__ bool last;
    const Tensor<1>& tensor = tensors[chunk.tensor];
    const double mine = Order::block(of_chunk<Order, T, PACKS>(tensor, chunk), scratch);
    const int64 first = GLOBAL ? 0 : tensor.first, count = GLOBAL ? int64(gridDim.x) : tensor.chunks;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = mine;
        last = arrive(arrivals + (GLOBAL ? 0 : chunk.tensor), count);
    }
    __syncthreads();
    if (!last) return false;
    double sum = 0.0;
    for (int64 part = threadIdx.x; part < count; part += kThreads) sum = Order::merge(sum, __ldcg(parts + first + part));
    __syncthreads();  // the scratch is used again
    total = Order::block(sum, scratch);
    return threadIdx.x == 0;
}

template <typename Order, typename T, typename Out, int PACKS>
__global__ void __launch_bounds__(kThreads, 4)
norms(const Tensor<1>* __restrict__ tensors, const Chunk* __restrict__ chunks, double* parts, uint32* arrivals, Out* out) {
    const Chunk chunk = chunks[blockIdx.x];
    double total;
    if (total_of<false, Order, T, PACKS>(tensors, chunk, parts, arrivals, total)) out[chunk.tensor] = Out(Order::end(total));
}

// Either result may be null. `accumulate` continues from the norm and the flag of a previous list.
template <typename T, int PACKS>
__global__ void __launch_bounds__(kThreads, 4)
global_norm(const Tensor<1>* __restrict__ tensors, const Chunk* __restrict__ chunks, double* parts, uint32* arrivals,
            float* norm, float* found_inf, const float* grad_scale, bool accumulate) {
    double total;
    if (!total_of<true, SumOfSquares, T, PACKS>(tensors, chunks[blockIdx.x], parts, arrivals, total)) return;
    if (found_inf) *found_inf = !isfinite(total) || (accumulate && *found_inf != 0.0f) ? 1.0f : 0.0f;
    double mine = sqrt(total);
    if (grad_scale) mine /= *grad_scale;
    if (accumulate && norm) mine = sqrt(mine * mine + double(*norm) * double(*norm));
    if (norm) *norm = float(mine);
}
