// out: one step of Adam on every tensor of a list, in one launch. With g the gradient and t the tensor's step count:
//     m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  p -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)
//
// D. P. Kingma, J. Ba, "Adam", arXiv 1412.6980; decoupled decay: I. Loshchilov, F. Hutter, arXiv 1711.05101; amsgrad (v
// is its running maximum): S. J. Reddi, S. Kale, S. Kumar, arXiv 1904.09237. Stochastic rounding derives its bits from
// (seed, step, tensor, element), so results do not depend on the grid. On request the same pass multiplies the
// gradients by a factor (clip / scale), and stores them back or zeroes them. If *found_inf is set, the kernel changes
// nothing else, and the step count stays the same.
// Shapes: contiguous tensors of any length and alignment; the tables are defined in multi_tensor.cuh.
// Launch: one block of 256 threads a chunk, one pack of each list a thread. On an H200 a full grid was faster than a
//         persistent one: 4.2 against 4.0 TB/s.
// Caller: devices/cuda/ops/optim.py. OpSpecs: cuassay/testing/specs/optim.py.

#include "multi_tensor.cuh"
#include "philox.cuh"

// The positions of a tensor's lists in its row of the table.
enum { kParam, kGrad, kExpAvg, kExpAvgSq, kMaxExpAvgSq, kMaster, kLists };

enum { kLeft, kWritten, kZeroed };  // what the step does with a gradient

// Passed by value from the host; devices/cuda/ops/optim.py declares the same structure.
struct Hyper {
    double lr, beta1, beta2, one_minus_beta1, one_minus_beta2, log_beta1, log_beta2, eps, weight_decay, max_norm;
    uint64 seed;
    int32 decoupled, maximize, lr_is_double, unused;
};

// Scalars in device memory; a missing one is null.
struct Cells {
    const void* lr;
    const float* grad_scale;
    const float* found_inf;
    const float* norm;
};

// Values that all elements of a tensor share in one step.
template <typename W> struct Step {
    W decay, shrink, sign, factor;  // decay adds to the slope, shrink reduces p
    W beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inverse_root, eps;
    float count;
    bool skipped;
};

__device__ __forceinline__ float minus_expm1(float x) { return -expm1f(x); }
__device__ __forceinline__ double minus_expm1(double x) { return -expm1(x); }
__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
__device__ __forceinline__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return fma(a, b, c); }

// m / (sqrt(v) * inverse_root + eps). In float this uses the hardware's approximate square root (error of at most
// 2^-23) and reciprocal (2 ulp). Such errors are acceptable in an update, which is added to a larger number. The IEEE
// versions take four times as many instructions, and their slow path is a call that needs registers which loads in
// flight use. The approximation returns 0 for divisors above 2^126, but this divisor cannot be that large.
__device__ __forceinline__ float ratio(float m, float v, float inverse_root, float eps) {
    float root;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v));
    return __fdividef(m, fmaf(root, inverse_root, eps));
}
__device__ __forceinline__ double ratio(double m, double v, double inverse_root, double eps) {
    return m / fma(sqrt(v), inverse_root, eps);
}

template <typename W> __device__ Step<W> begin_step(const Hyper& hyper, const Cells& cells, float count) {
    Step<W> step;
    step.count = count;
    step.skipped = cells.found_inf && *cells.found_inf != 0.0f;
    double lr = hyper.lr;
    if (cells.lr) lr = hyper.lr_is_double ? *static_cast<const double*>(cells.lr) : *static_cast<const float*>(cells.lr);
    // expm1 computes 1 - b^t: in float the plain difference would lose four digits for b = 0.999.
    const W correction1 = minus_expm1(W(count * hyper.log_beta1)), correction2 = minus_expm1(W(count * hyper.log_beta2));
    step.decay = hyper.decoupled ? W(0) : W(hyper.weight_decay);
    step.shrink = hyper.decoupled ? W(lr * hyper.weight_decay) : W(0);
    step.sign = hyper.maximize ? W(-1) : W(1);
    step.beta1 = W(hyper.beta1), step.one_minus_beta1 = W(hyper.one_minus_beta1);
    step.beta2 = W(hyper.beta2), step.one_minus_beta2 = W(hyper.one_minus_beta2);
    step.eps = W(hyper.eps);
    step.step_size = W(lr) / correction1;
    step.inverse_root = W(1) / root(correction2);
    step.factor = W(1);
    if (cells.grad_scale) step.factor /= W(*cells.grad_scale);
    if (cells.norm) {
        const W clip = W(hyper.max_norm) / (W(*cells.norm) + W(1e-6));
        step.factor *= clip < W(1) || is_nan(clip) ? clip : W(1);
    }
    return step;
}

// Rounds a float to bfloat16 up or down; it rounds up with a probability equal to the discarded fraction. `bits` are 16
// random bits.
__device__ __forceinline__ bfloat16 stochastic(float value, uint32 bits) {
    uint32 word = __float_as_uint(value);
    if ((word & 0x7f800000u) != 0x7f800000u) word += bits;
    return __ushort_as_bfloat16(static_cast<unsigned short>(word >> 16));
}

// 16 random bits for each of N elements from `first` on: one call of Philox serves eight neighbours.
template <int N> struct Bits {
    uint32 word[4];
    bool upper;
    Bits() = default;
    __device__ __forceinline__ Bits(uint64 seed, float count, int32 tensor, int64 first, int list) {
        const uint64 group = uint64(uint32(tensor)) << 40 | uint64(first) / 8;
        const uint4 drawn = philox(Philox{seed, uint64(count) * kLists}, group, list);
        word[0] = drawn.x, word[1] = drawn.y, word[2] = drawn.z, word[3] = drawn.w;
        upper = first & 4;
    }
    __device__ __forceinline__ uint32 of(int i) const {
        const uint32 both = N < 8 && upper ? word[i / 2 + 2] : word[i / 2];
        return i % 2 ? both >> 16 : both & 0xffffu;
    }
};

// How the new values of a pack are rounded: to nearest, or stochastically if the caller asks for it and the list is
// bfloat16.
template <bool STOCHASTIC, int N> struct Rounding {
    Bits<N> bits[kLists];
    __device__ __forceinline__ Rounding(uint64 seed, float count, int32 tensor, int64 first) {
#pragma unroll
        for (int list = 0; list < kLists; ++list) bits[list] = Bits<N>(seed, count, tensor, first, list);
    }
    template <typename T, typename W> __device__ __forceinline__ T of(W value, int list, int i) const {
        if constexpr (sizeof(T) == 2) return stochastic(value, bits[list].of(i));
        else return narrow<T>(value);
    }
};
template <int N> struct Rounding<false, N> {
    __device__ __forceinline__ Rounding(uint64, float, int32, int64) {}
    template <typename T, typename W> __device__ __forceinline__ T of(W value, int, int) const { return narrow<T>(value); }
};

// BLOCKS a multiprocessor measured best on an H200. The same count needs more registers on other architectures.
#if __CUDA_ARCH__ == 900
constexpr bool kMeasured = true;
#else
constexpr bool kMeasured = false;
#endif

template <bool FIRST, typename A, typename B> struct Choose { using type = A; };
template <typename A, typename B> struct Choose<false, A, B> { using type = B; };

template <typename P, typename G, typename S, bool MASTER> struct Length {
    static constexpr int kPair = sizeof(P) > sizeof(S) ? sizeof(P) : sizeof(S);
    static constexpr int kMost = sizeof(G) > kPair ? sizeof(G) : kPair;
    static constexpr int N = 16 / (MASTER && kMost < 4 ? 4 : kMost);
};

template <typename P, typename G, typename S, bool MASTER, bool AMSGRAD, int GRADS, bool STOCHASTIC, int OFF, int BLOCKS>
__global__ void __launch_bounds__(kThreads, kMeasured || BLOCKS < 3 ? BLOCKS : BLOCKS - 2)
adam(const Tensor<kLists>* __restrict__ tensors, const Chunk* __restrict__ chunks, float* steps, uint32* arrivals,
     const __grid_constant__ Hyper hyper, const __grid_constant__ Cells cells) {
    using W = typename Wide<P>::type;
    using Weight = typename Choose<MASTER, W, P>::type;  // the weight that the step updates
    constexpr int N = Length<P, G, S, MASTER>::N;
    const Chunk chunk = chunks[blockIdx.x];
    const Tensor<kLists>& tensor = tensors[chunk.tensor];
    P* const params = list<P>(tensor, kParam);
    G* const grads = list<G>(tensor, kGrad);
    S* const exp_avgs = list<S>(tensor, kExpAvg);
    S* const exp_avg_sqs = list<S>(tensor, kExpAvgSq);
    S* const maxima = AMSGRAD ? list<S>(tensor, kMaxExpAvgSq) : nullptr;
    constexpr int kWeight = MASTER ? kMaster : kParam;
    Weight* const weights = list<Weight>(tensor, kWeight);

    const Place<N> at = place<N, 1>(tensor, chunk, 0);
    Flight<is_off(OFF, kGrad), G, N> grad_asked;
    Flight<is_off(OFF, kWeight), Weight, N> weight_asked;
    Flight<is_off(OFF, kExpAvg), S, N> exp_avg_asked;
    Flight<is_off(OFF, kExpAvgSq), S, N> exp_avg_sq_asked;
    Flight<is_off(OFF, kMaxExpAvgSq), S, N> maximum_asked;
    loads<OFF>(at, [&](bool whole) {
        grad_asked = load<is_off(OFF, kGrad), G, N>(grads, at, whole);
        weight_asked = load<is_off(OFF, kWeight), Weight, N>(weights, at, whole);
        exp_avg_asked = load<is_off(OFF, kExpAvg), S, N>(exp_avgs, at, whole);
        exp_avg_sq_asked = load<is_off(OFF, kExpAvgSq), S, N>(exp_avg_sqs, at, whole);
        if (AMSGRAD) maximum_asked = load<is_off(OFF, kMaxExpAvgSq), S, N>(maxima, at, whole);
    });

    __shared__ Step<W> step;
    if (threadIdx.x == 0) step = begin_step<W>(hyper, cells, steps[chunk.tensor] + 1.0f);
    __syncthreads();
    if (step.skipped) {
        if (GRADS == kZeroed) {
            stores<OFF>(at, [&](bool whole) { store<is_off(OFF, kGrad), G, N>(grads, at, Words<G, N>{}, whole); });
        }
        return;
    }
    // Every block of a tensor reads its step count, and the last block that has read it increments it. No fence is
    // needed: a block uses the count before it takes a ticket, so the count cannot be read afterwards. A fence would
    // flush the level-1 cache, which cost 7 % of the kernel's time on an H200.
    uint32 ticket = 0;
    if (threadIdx.x == 0 && tensor.chunks > 1) ticket = atomicInc(arrivals + chunk.tensor, uint32(tensor.chunks - 1));

    Words<P, N> param;
    Words<G, N> grad = landed(grad_asked);
    Words<Weight, N> weight = landed(weight_asked);
    Words<S, N> exp_avg = landed(exp_avg_asked), exp_avg_sq = landed(exp_avg_sq_asked), maximum;
    if (AMSGRAD) maximum = landed(maximum_asked);
    const Rounding<STOCHASTIC, N> rounding(hyper.seed, step.count, chunk.tensor, at.first);
#pragma unroll
    for (int i = 0; i < N; ++i) {  // round one by one: results in W would take a third of the registers
        const W g = widen<W>(grad.at(i)) * step.factor;
        W p = widen<W>(weight.at(i));
        const W slope = fused(step.decay, p, step.sign * g);
        const W m = fused(step.beta1, widen<W>(exp_avg.at(i)), step.one_minus_beta1 * slope);
        const W v = fused(step.beta2, widen<W>(exp_avg_sq.at(i)), step.one_minus_beta2 * slope * slope);
        const W x = AMSGRAD ? nan_maximum(widen<W>(maximum.at(i)), v) : v;
        p = fused(-step.shrink, p, p);
        p = fused(-step.step_size, ratio(m, x, step.inverse_root, step.eps), p);
        param.put(i, MASTER ? narrow<P>(p) : rounding.template of<P>(p, kParam, i));
        exp_avg.put(i, rounding.template of<S>(m, kExpAvg, i));
        exp_avg_sq.put(i, rounding.template of<S>(v, kExpAvgSq, i));
        if (AMSGRAD) maximum.put(i, rounding.template of<S>(x, kMaxExpAvgSq, i));
        if (MASTER) weight.put(i, narrow<Weight>(p));
        if (GRADS == kWritten) grad.put(i, narrow<G>(g));
        if (GRADS == kZeroed) grad.put(i, narrow<G>(0.0f));
    }
    stores<OFF>(at, [&](bool whole) {
        store<is_off(OFF, kParam), P, N>(params, at, param, whole);
        store<is_off(OFF, kExpAvg), S, N>(exp_avgs, at, exp_avg, whole);
        store<is_off(OFF, kExpAvgSq), S, N>(exp_avg_sqs, at, exp_avg_sq, whole);
        if (AMSGRAD) store<is_off(OFF, kMaxExpAvgSq), S, N>(maxima, at, maximum, whole);
        if (MASTER) store<is_off(OFF, kWeight), Weight, N>(weights, at, weight, whole);
        if (GRADS != kLeft) store<is_off(OFF, kGrad), G, N>(grads, at, grad, whole);
    });
    if (threadIdx.x == 0 && ticket == uint32(tensor.chunks - 1)) steps[chunk.tensor] = step.count;
}
