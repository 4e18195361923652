// out[i] = operation(a[i], b[i]) for arrays with any strides, one struct for each operation; also casts, comparisons,
// selection, gather and scatter.
//
// gelu: D. Hendrycks, K. Gimpel, "Gaussian error linear units", arXiv 1606.08415.
// Shapes: `dense_*`: n elements, contiguous. `strided`: up to 8 axes, strides in elements, 0 where broadcast.
// Launch: dense: 256 threads, one pack of N elements a thread (on an H200 a full grid of 16-byte accesses ran at the
//         copy rate; a grid-stride loop was 5 % slower). strided: 256 threads, one element a thread. packed: 256
//         threads, one pack a thread.
// Caller: devices/cuda/ops/elementwise.py. OpSpecs: cuassay/testing/specs/elementwise.py.

#include "element.cuh"

struct Add { template <typename W> __device__ static W of(W a, W b) { return a + b; } };
struct Mul { template <typename W> __device__ static W of(W a, W b) { return a * b; } };
struct Sub { template <typename W> __device__ static W of(W a, W b) { return a - b; } };
struct Div { template <typename W> __device__ static W of(W a, W b) { return a / b; } };
struct Neg { template <typename W> __device__ static W of(W a) { return -a; } };
struct Maximum { template <typename W> __device__ static W of(W a, W b) { return nan_maximum(a, b); } };
struct Minimum { template <typename W> __device__ static W of(W a, W b) { return nan_minimum(a, b); } };
struct Sign { template <typename W> __device__ static W of(W a) { return W(a > W(0)) - W(a < W(0)); } };
struct Reciprocal { template <typename W> __device__ static W of(W a) { return W(1) / a; } };
struct Abs {
    template <typename W> __device__ static W of(W a) { return a < W(0) ? -a : a; }
    __device__ static float of(float a) { return fabsf(a); }  // maps -0 to 0
    __device__ static double of(double a) { return fabs(a); }
};
struct Equal { template <typename W> __device__ static bool of(W a, W b) { return a == b; } };
struct LessEqual { template <typename W> __device__ static bool of(W a, W b) { return a <= b; } };
struct NotEqual { template <typename W> __device__ static bool of(W a, W b) { return a != b; } };
struct Less { template <typename W> __device__ static bool of(W a, W b) { return a < b; } };
struct Greater { template <typename W> __device__ static bool of(W a, W b) { return a > b; } };
struct GreaterEqual { template <typename W> __device__ static bool of(W a, W b) { return a >= b; } };
struct LogicalAnd { template <typename W> __device__ static bool of(W a, W b) { return a != W(0) && b != W(0); } };
struct LogicalOr { template <typename W> __device__ static bool of(W a, W b) { return a != W(0) || b != W(0); } };
struct LogicalXor { template <typename W> __device__ static bool of(W a, W b) { return (a != W(0)) != (b != W(0)); } };
// For a Python scalar on the left: the kernel receives the scalar as its second operand.
template <typename Operation> struct Swapped {
    template <typename W> __device__ static W of(W a, W b) { return Operation::of(b, a); }
};
struct Sqrt {
    __device__ static float of(float a) { return sqrtf(a); }
    __device__ static double of(double a) { return sqrt(a); }
};
struct Rsqrt {
    __device__ static float of(float a) { return rsqrtf(a); }
    __device__ static double of(double a) { return rsqrt(a); }
};
struct Expm1 {
    __device__ static float of(float a) { return expm1f(a); }
    __device__ static double of(double a) { return expm1(a); }
};
struct Log1P {
    __device__ static float of(float a) { return log1pf(a); }
    __device__ static double of(double a) { return log1p(a); }
};
struct Sin {
    __device__ static float of(float a) { return sinf(a); }
    __device__ static double of(double a) { return sin(a); }
};
struct Cos {
    __device__ static float of(float a) { return cosf(a); }
    __device__ static double of(double a) { return cos(a); }
};
struct Erf {
    __device__ static float of(float a) { return erff(a); }
    __device__ static double of(double a) { return erf(a); }
};
struct Pow {
    __device__ static float of(float a, float b) { return powf(a, b); }
    __device__ static double of(double a, double b) { return pow(a, b); }
};
struct Log {
    __device__ static float of(float a) { return logf(a); }
    __device__ static double of(double a) { return log(a); }
};
struct Tanh {
    __device__ static float of(float a) { return tanhf(a); }
    __device__ static double of(double a) { return tanh(a); }
};
// Uses an exponential of a nonpositive number, which cannot overflow.
struct Sigmoid {
    __device__ static float of(float a) {
        const float small = expf(-fabsf(a));
        return (a < 0.0f ? small : 1.0f) / (1.0f + small);
    }
    __device__ static double of(double a) {
        const double small = exp(-fabs(a));
        return (a < 0.0 ? small : 1.0) / (1.0 + small);
    }
};
struct Silu { template <typename W> __device__ static W of(W a) { return a * Sigmoid::of(a); } };
struct Exp {
    __device__ static float of(float a) { return expf(a); }
    __device__ static double of(double a) { return exp(a); }
};
struct Relu { template <typename W> __device__ static W of(W a) { return is_nan(a) || a > W(0) ? a : W(0); } };

// The hardware's approximations of 2^x and 1 / x: errors of at most 2 ulp in float; subnormal results become 0.
__device__ __forceinline__ float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
__device__ __forceinline__ float inverse(float x) {
    float quotient;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(quotient) : "f"(x));
    return quotient;
}

// gelu(a) = a Phi(a). In float, Phi(-|a|) = falling P(t) with falling = exp(-a^2 / 2) and t = 1 / (1 + 0.27
// |a|), a form of C. Hastings, "Approximations for digital computers", 1955. P minimizes the relative error: 6e-8 up to
// |a| = 14. The relative error of the result is about 1e-6 even where 1 + erf(a / sqrt(2)) would cancel. With erff,
// bfloat16 ran at 70 % of the copy rate on an H200, where each element has time for about 29 instructions. A polynomial
// with fewer terms for the 16-bit types gained little and rounded wrongly near ties.
__device__ __forceinline__ float normal_tail(float a, float falling) {
    const float t = inverse(fmaf(0.27f, fabsf(a), 1.0f));
    float p = 0.028961103f;
    p = fmaf(p, t, -0.12648587f);
    p = fmaf(p, t, 0.16978619f);
    p = fmaf(p, t, -0.06921081f);
    p = fmaf(p, t, 0.10782567f);
    p = fmaf(p, t, 0.07204959f);
    p = fmaf(p, t, 0.10181061f);
    p = fmaf(p, t, 0.10754287f);
    p = fmaf(p, t, 0.10772066f);
    return p * t * falling;
}
struct Gelu {
    __device__ static float of(float a) {
        const float tail = normal_tail(a, power_of_two(-0.72134752f * a * a));  // log2(e) / 2
        return a * (a < 0.0f ? tail : 1.0f - tail);
    }
    __device__ static double of(double a) { return 0.5 * a * (1.0 + erf(a * 0.70710678118654752440)); }
};
// a (1 + tanh(u)) / 2 = a / (1 + exp(-2 u)) with u = sqrt(2 / pi) (a + 0.044715 a^3). The second form avoids the
// cancellation in 1 + tanh.
struct GeluTanh {
    __device__ static float of(float a) {
        const float u = a * fmaf(0.044715f, a * a, 1.0f);
        return a * inverse(1.0f + power_of_two(-2.3022082f * u));  // 2 log2(e) sqrt(2 / pi)
    }
    __device__ static double of(double a) { return 0.5 * a * (1.0 + tanh(0.79788456080286535588 * (a + 0.044715 * a * a * a))); }
};

// grad (Phi(a) + a Phi'(a)), with Phi computed as in gelu. Beyond |a| = 40 the second term is 0, but its factors would
// overflow.
struct GeluBackward {
    __device__ static float of(float grad, float a) {
        const float near = fminf(fmaxf(a, -40.0f), 40.0f);
        const float falling = power_of_two(-0.72134752f * a * a), beyond = normal_tail(a, falling);
        return grad * ((a < 0.0f ? beyond : 1.0f - beyond) + near * falling * 0.39894228040143268f);
    }
    __device__ static double of(double grad, double a) {
        const double near = fmin(fmax(a, -40.0), 40.0);
        return grad * (normcdf(a) + near * exp(-0.5 * near * near) * 0.39894228040143267794);
    }
};
// With s = (1 + tanh(u)) / 2: grad (s + 2 a s (1 - s) u'), u' = sqrt(2 / pi) (1 + 3 * 0.044715 a^2). 1 - s cancels
// where s is near 1, so s (1 - s) is computed as e / (1 + e)^2 with e = exp(-2 |u|). min and max drop NaN, so NaN is
// tested separately.
struct GeluTanhBackward {
    __device__ static float of(float grad, float a) {
        const float near = is_nan(a) ? a : fminf(fmaxf(a, -40.0f), 40.0f), square = near * near;
        const float small = power_of_two(-2.3022082f * fabsf(near) * fmaf(0.044715f, square, 1.0f));
        const float larger = inverse(1.0f + small), smaller = small * larger;
        const float slope = 1.5957691216057308f * near * (larger * smaller) * fmaf(0.134145f, square, 1.0f);
        return grad * ((near < 0.0f ? smaller : larger) + slope);
    }
    __device__ static double of(double grad, double a) {
        const double near = is_nan(a) ? a : fmin(fmax(a, -40.0), 40.0), square = near * near;
        const double small = exp(-1.59576912160573071176 * fabs(near) * fma(0.044715, square, 1.0));
        const double larger = 1.0 / (1.0 + small), smaller = small * larger;
        const double slope = 1.59576912160573071176 * near * (larger * smaller) * fma(0.134145, square, 1.0);
        return grad * ((near < 0.0 ? smaller : larger) + slope);
    }
};

// Functions for results that are rounded to 16 bits. They use the hardware's approximations, with relative errors of
// 2e-5: 0.005 of a bfloat16 ulp and 0.04 of a float16 ulp. The precise functions ran at 75 to 92 % of the copy rate on
// an H200.
__device__ __forceinline__ float kept_power_of_two(float x) {
    float power;
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(x));  // subnormal results are kept
    return power;
}
struct RoughSigmoid {
    __device__ static float of(float a) {
        const float small = kept_power_of_two(-1.4426950f * fabsf(a));
        return (a < 0.0f ? small : 1.0f) * inverse(1.0f + small);
    }
};
struct RoughSilu { __device__ static float of(float a) { return a * RoughSigmoid::of(a); } };
// Uses the power series where the other form would cancel.
struct RoughTanh {
    __device__ static float of(float a) {
        const float small = power_of_two(-2.8853901f * fabsf(a));
        const float far = copysignf((1.0f - small) * inverse(1.0f + small), a);
        return fabsf(a) < 0.0625f ? a * fmaf(-0.33333333f * a, a, 1.0f) : far;
    }
};
// Not used for float16: the approximation is not accurate enough next to 1.
struct RoughLog {
    __device__ static float of(float a) {
        float found;
        asm("lg2.approx.f32 %0, %1;" : "=f"(found) : "f"(a));
        return 0.69314718f * found;
    }
};
struct RoughSqrt {
    __device__ static float of(float a) {
        float found;
        asm("sqrt.approx.f32 %0, %1;" : "=f"(found) : "f"(a));
        return found;
    }
};
template <typename Operation, typename T> struct Rounded { using type = Operation; };
template <> struct Rounded<Sqrt, float16> { using type = RoughSqrt; };
template <> struct Rounded<Sqrt, bfloat16> { using type = RoughSqrt; };
template <> struct Rounded<Sigmoid, float16> { using type = RoughSigmoid; };
template <> struct Rounded<Sigmoid, bfloat16> { using type = RoughSigmoid; };
template <> struct Rounded<Silu, float16> { using type = RoughSilu; };
template <> struct Rounded<Silu, bfloat16> { using type = RoughSilu; };
template <> struct Rounded<Tanh, float16> { using type = RoughTanh; };
template <> struct Rounded<Tanh, bfloat16> { using type = RoughTanh; };
template <> struct Rounded<Log, bfloat16> { using type = RoughLog; };

// One pack a thread; the last pack may be incomplete. `compute(i)` gives element i of the pack as W.
template <typename T, int N, typename Compute>
__device__ __forceinline__ void store(T* out, int64 first, int64 n, Compute compute) {
    if (first + N <= n) {
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>(compute(i));
        store_pack<T, N>(out + first, pack);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i)  // constant indices: a loop to n - first would put the pack into local memory
            if (first + i < n) out[first + i] = narrow<T>(compute(i));
    }
}

template <typename T, int N> __device__ __forceinline__ Pack<T, N> load(const T* a, int64 first, int64 n) {
    if (first + N <= n) return load_pack<T, N>(a + first);
    Pack<T, N> pack = {};
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (first + i < n) pack.at[i] = a[first + i];
    return pack;
}

template <typename Operation, typename T, int N>
__global__ void dense_unary(const T* a, T* out, int64 n) {
    using W = typename Wide<T>::type;
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    const Pack<T, N> left = load<T, N>(a, first, n);
    store<T, N>(out, first, n, [&](int i) { return Rounded<Operation, T>::type::of(widen<W>(left.at[i])); });
}

template <typename Operation, typename T, int N>
__global__ void dense_binary(const T* a, const T* b, T* out, int64 n) {
    using W = typename Wide<T>::type;
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    const Pack<T, N> left = load<T, N>(a, first, n), right = load<T, N>(b, first, n);
    store<T, N>(out, first, n, [&](int i) { return Operation::of(widen<W>(left.at[i]), widen<W>(right.at[i])); });
}

// The other operand is a number that is already in W: a Python scalar is not rounded to 16 bits first.
template <typename Operation, typename T, int N>
__global__ void dense_scalar(const T* a, typename Wide<T>::type b, T* out, int64 n) {
    using W = typename Wide<T>::type;
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    const Pack<T, N> left = load<T, N>(a, first, n);
    store<T, N>(out, first, n, [&](int i) { return Operation::of(widen<W>(left.at[i]), b); });
}

// The type a cast passes through, so that it rounds once: widen is exact, and narrow rounds to nearest.
template <typename T, typename A> struct Middle { using type = typename Wide<T>::type; };
template <> struct Middle<float16, float64> { using type = double; };
template <> struct Middle<bfloat16, float64> { using type = double; };

template <typename T, typename A, int N>
__global__ void dense_cast(const A* a, T* out, int64 n) {
    using W = typename Middle<T, A>::type;
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    const Pack<A, N> from = load<A, N>(a, first, n);
    store<T, N>(out, first, n, [&](int i) { return widen<W>(from.at[i]); });
}

constexpr int kMaxAxes = 8;

// Extents from the innermost axis outwards, and each array's strides along these axes, in elements.
struct Layout {
    int64 n;
    int64 axes;
    int64 extent[kMaxAxes];
    int64 stride[4][kMaxAxes];  // out, a, b, c
};

struct Offsets { int64 out, a, b, c; };

__device__ __forceinline__ Offsets offsets(const Layout& layout, int64 index) {
    Offsets at = {0, 0, 0, 0};
#pragma unroll
    for (int axis = 0; axis < kMaxAxes; ++axis) {
        if (axis >= layout.axes) break;
        const int64 extent = layout.extent[axis];
        int64 quotient, position;
        if ((index | extent) >> 31) {
            quotient = index / extent, position = index % extent;
        } else {  // a 64-bit division takes several times as long as a 32-bit one
            quotient = uint32(index) / uint32(extent), position = uint32(index) % uint32(extent);
        }
        index = quotient;
        at.out += position * layout.stride[0][axis];
        at.a += position * layout.stride[1][axis];
        at.b += position * layout.stride[2][axis];
        at.c += position * layout.stride[3][axis];
    }
    return at;
}

template <typename Operation, typename T>
__global__ void strided_unary(const T* a, T* out, const __grid_constant__ Layout layout) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    out[at.out] = narrow<T>(Rounded<Operation, T>::type::of(widen<typename Wide<T>::type>(a[at.a])));
}

template <typename T, typename A>
__global__ void strided_cast(const A* a, T* out, const __grid_constant__ Layout layout) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    out[at.out] = narrow<T>(widen<typename Middle<T, A>::type>(a[at.a]));
}

template <typename Operation, typename T, typename A, typename B>
__global__ void strided_binary(const A* a, const B* b, T* out, const __grid_constant__ Layout layout) {
    using W = typename Wide<T>::type;
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    out[at.out] = narrow<T>(Operation::of(widen<W>(a[at.a]), widen<W>(b[at.b])));
}

// A pack of consecutive elements, or, with stride 0, of one element that is broadcast along the innermost axis.
template <typename T, int N> __device__ __forceinline__ Pack<T, N> along(const T* a, int64 stride) {
    if (stride) return load_pack<T, N>(a);
    Pack<T, N> pack;
    const T one = *a;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = one;
    return pack;
}

// Like strided_binary, for arrays whose innermost axis is contiguous or broadcast, such as a bias added to rows. The
// layout counts packs along that axis.
template <typename Operation, typename T, int N>
__global__ void packed_binary(const T* a, const T* b, T* out, const __grid_constant__ Layout layout) {
    using W = typename Wide<T>::type;
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    const Pack<T, N> left = along<T, N>(a + at.a, layout.stride[1][0]), right = along<T, N>(b + at.b, layout.stride[2][0]);
    store<T, N>(out + at.out, 0, N, [&](int i) { return Operation::of(widen<W>(left.at[i]), widen<W>(right.at[i])); });
}

template <typename Operation, typename T>
__global__ void strided_scalar(const T* a, typename Wide<T>::type b, T* out, const __grid_constant__ Layout layout) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    out[at.out] = narrow<T>(Operation::of(widen<typename Wide<T>::type>(a[at.a]), b));
}

// Limits a to [low, high]; NaN stays NaN.
template <typename W> __device__ __forceinline__ W clamped(W a, W low, W high) {
    return nan_minimum(nan_maximum(a, low), high);
}

template <typename T, int N>
__global__ void dense_clamp(const T* a, typename Wide<T>::type low, typename Wide<T>::type high, T* out, int64 n) {
    using W = typename Wide<T>::type;
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    const Pack<T, N> left = load<T, N>(a, first, n);
    store<T, N>(out, first, n, [&](int i) { return clamped(widen<W>(left.at[i]), low, high); });
}

template <typename T>
__global__ void strided_clamp(const T* a, typename Wide<T>::type low, typename Wide<T>::type high, T* out,
                              const __grid_constant__ Layout layout) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    out[at.out] = narrow<T>(clamped(widen<typename Wide<T>::type>(a[at.a]), low, high));
}

// Truth values of comparisons in W, the dtype that both operands promote to.
template <typename Operation, typename W, typename A, typename B>
__global__ void strided_comparison(const A* a, const B* b, uint8* out, const __grid_constant__ Layout layout) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    out[at.out] = Operation::of(widen<W>(a[at.a]), widen<W>(b[at.b]));
}

// Compares with a number on the right.
template <typename Operation, typename W, typename A>
__global__ void strided_comparison_scalar(const A* a, W number, uint8* out, const __grid_constant__ Layout layout) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    out[at.out] = Operation::of(widen<W>(a[at.a]), number);
}

template <typename Operation, typename W, typename A, int N>
__global__ void dense_comparison_scalar(const A* a, W number, uint8* out, int64 n) {
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    const Pack<A, N> left = load<A, N>(a, first, n);
    store<uint8, N>(out, first, n, [&](int i) { return uint8(Operation::of(widen<W>(left.at[i]), number)); });
}

// Compares contiguous arrays of the same type.
template <typename Operation, typename T, int N>
__global__ void dense_comparison(const T* a, const T* b, uint8* out, int64 n) {
    using W = typename Wide<T>::type;
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    const Pack<T, N> left = load<T, N>(a, first, n), right = load<T, N>(b, first, n);
    store<uint8, N>(out, first, n, [&](int i) {
        return uint8(Operation::of(widen<W>(left.at[i]), widen<W>(right.at[i])));
    });
}

// T is an unsigned integer of the elements' size, as the kernel only moves bits. Where a or b is null, number_a or
// number_b replaces it.
template <typename T>
__global__ void strided_where(const uint8* condition, const T* a, const T* b, T number_a, T number_b, T* out,
                              const __grid_constant__ Layout layout) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    if (condition[at.a]) {
        out[at.out] = a ? a[at.b] : number_a;
    } else {
        out[at.out] = b ? b[at.c] : number_b;
    }
}

// Like strided_where, for arrays whose innermost axis is contiguous or broadcast, such as a mask for all heads. The
// layout counts packs along that axis.
template <typename T, int N>
__global__ void packed_where(const uint8* condition, const T* a, const T* b, T number_a, T number_b, T* out,
                             const __grid_constant__ Layout layout) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    const Pack<uint8, N> chosen = along<uint8, N>(condition + at.a, layout.stride[1][0]);
    Pack<T, N> left, right;
    if (a) left = along<T, N>(a + at.b, layout.stride[2][0]);
    if (b) right = along<T, N>(b + at.c, layout.stride[3][0]);
    store<T, N>(out + at.out, 0, N, [&](int i) {
        return chosen.at[i] ? (a ? left.at[i] : number_a) : (b ? right.at[i] : number_b);
    });
}

// For contiguous arrays. The kernel reads both arrays whatever the condition is, because neighbours seldom have the
// same condition.
template <typename T, int N>
__global__ void dense_where(const uint8* condition, const T* a, const T* b, T number_a, T number_b, T* out, int64 n) {
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    const Pack<uint8, N> chosen = load<uint8, N>(condition, first, n);
    Pack<T, N> left, right;
    if (a) left = load<T, N>(a, first, n);
    if (b) right = load<T, N>(b, first, n);
    store<T, N>(out, first, n, [&](int i) {
        return chosen.at[i] ? (a ? left.at[i] : number_a) : (b ? right.at[i] : number_b);
    });
}

// out[..., i, ...] = a[..., index[..., i, ...], ...] along one axis of `extent` elements, which are `step` apart in a.
// The layout describes out, index and a, with a stride of 0 for a along that axis. U is the same as T above; an index
// out of range gives all ones.
template <typename U, typename I>
__global__ void strided_gather(const U* a, const I* index, U* out, int64 extent, int64 step,
                               const __grid_constant__ Layout layout) {
    const int64 place = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (place >= layout.n) return;
    const Offsets at = offsets(layout, place);
    const int64 from = int64(index[at.a]);
    out[at.out] = from >= 0 && from < extent ? a[at.b + from * step] : U(~U(0));
}

// The sum of those elements of a, along one axis, whose index equals the position in out. The layout describes out, a
// and index. Along that axis a and index have strides of 0, and a stride of 1 in the fourth place gives the position
// itself.
template <typename T, typename I>
__global__ void strided_scatter_sum(const T* a, const I* index, T* out, int64 length, int64 step, int64 index_step,
                                    const __grid_constant__ Layout layout) {
    using W = typename Wide<T>::type;
    const int64 place = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (place >= layout.n) return;
    const Offsets at = offsets(layout, place);
    W total = W(0);
    for (int64 k = 0; k < length; ++k)
        if (int64(index[at.b + k * index_step]) == at.c) total += widen<W>(a[at.a + k * step]);
    out[at.out] = narrow<T>(total);
}
