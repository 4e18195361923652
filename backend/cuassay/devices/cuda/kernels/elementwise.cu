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
__device__ __forceinline__ float binary_logarithm(float x) {
    float found;
    asm("lg2.approx.f32 %0, %1;" : "=f"(found) : "f"(x));
    return found;
}
__device__ __forceinline__ float normal_logarithm(float x) {
    float found;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(x));
    return found;
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
struct RoughLog { __device__ static float of(float a) { return 0.69314718f * binary_logarithm(a); } };
struct RoughSqrt {
    __device__ static float of(float a) {
        float found;
        asm("sqrt.approx.f32 %0, %1;" : "=f"(found) : "f"(a));
        return found;
    }
};
// The logarithm has an absolute error of 2^-22, and 1 + a is rounded: next to 0 a P(a) is used, with a relative error of
// 8e-8.
struct RoughLog1P {
    __device__ static float of(float a) {
        float p = -0.14677006f;
        p = fmaf(p, a, 0.16420193f);
        p = fmaf(p, a, -0.16524065f);
        p = fmaf(p, a, 0.19884735f);
        p = fmaf(p, a, -0.2500322f);
        p = fmaf(p, a, 0.33335072f);
        p = fmaf(p, a, -0.49999985f);
        const float near = a * fmaf(p, a, 1.0f);
        return fabsf(a) < 0.3f ? near : 0.69314718f * normal_logarithm(1.0f + a);
    }
};
// The approximation is wrong by at most 2^-23 of the result. A quotient 1 / a of a number of 11 bits is at least 2^-22
// away from where rounding to 11 bits changes, so the results are those of a division.
struct RoughReciprocal {
    __device__ static float of(float a) {
        float quotient;
        asm("rcp.approx.f32 %0, %1;" : "=f"(quotient) : "f"(a));  // subnormal numbers are kept
        return quotient;
    }
};
// A float16 and its reciprocal are normal in float.
struct NormalReciprocal { __device__ static float of(float a) { return inverse(a); } };
// erf(a) = a P(a^2 - limit^2 / 2) up to a limit, beyond which the result rounds to 1: 2.6 in float16, 2.2 in bfloat16. P
// minimizes the relative error: 7e-8 and 4e-8. nan_maximum keeps NaN.
struct ErfToFloat16 {
    __device__ static float of(float a) {
        const float near = nan_maximum(-fabsf(a), -2.6f), t = fmaf(near, near, -3.38f);
        float p = 8.2022006e-10f;
        p = fmaf(p, t, -1.0035576e-08f);
        p = fmaf(p, t, 8.413275e-08f);
        p = fmaf(p, t, -7.918906e-07f);
        p = fmaf(p, t, 7.069619e-06f);
        p = fmaf(p, t, -5.5284156e-05f);
        p = fmaf(p, t, 0.00038507968f);
        p = fmaf(p, t, -0.0024019482f);
        p = fmaf(p, t, 0.01358502f);
        p = fmaf(p, t, -0.07402959f);
        p = fmaf(p, t, 0.5388576f);
        return copysignf(near * p, a);
    }
};
struct ErfToBfloat16 {
    __device__ static float of(float a) {
        const float near = nan_maximum(-fabsf(a), -2.2f), t = fmaf(near, near, -2.42f);
        float p = -2.029663e-08f;
        p = fmaf(p, t, 2.1994948e-07f);
        p = fmaf(p, t, -1.8257347e-06f);
        p = fmaf(p, t, 1.5356356e-05f);
        p = fmaf(p, t, -0.00011689086f);
        p = fmaf(p, t, 0.0007791243f);
        p = fmaf(p, t, -0.004543103f);
        p = fmaf(p, t, 0.023226613f);
        p = fmaf(p, t, -0.10839091f);
        p = fmaf(p, t, 0.6249494f);
        return copysignf(near * p, a);
    }
};

// Operations with a short form for usual numbers. `of` clears `usual` if its result is not valid, and `mended` replaces
// such results. A thread tests its whole pack once: with a branch for each element, as in powf and sinf, the compiler
// computes one element after the other.
template <typename...> using Void = void;
template <typename Operation, typename = void> struct Mends { static constexpr bool value = false; };
template <typename Operation> struct Mends<Operation, Void<typename Operation::mends>> {
    static constexpr bool value = true;
};

// Adding it to a number rounds the number to an integer, which the lowest bits of the sum hold.
constexpr float kRounder = 12582912.0f;  // 3 * 2^22

// sin(r + turns pi) with turns in the lowest bits of `rounded`: up to |r| = pi / 2, with a relative error of 6e-9.
__device__ __forceinline__ float turned_sine(float r, float rounded) {
    const float square = r * r;
    float p = fmaf(2.6053997e-6f, square, -1.9809439e-4f);
    p = fmaf(p, square, 8.333065e-3f);
    p = fmaf(p, square, -0.1666666f);
    const float sine = r * fmaf(p, square, 1.0f);  // keeps -0
    return reinterpreted<float>(reinterpreted<uint32>(sine) + (reinterpreted<uint32>(rounded) << 31));
}
// a - turns pi, with pi in three parts; the products are exact.
__device__ __forceinline__ float less_turns(float a, float turns) {
    return fmaf(turns, -1.0780606e-14f, fmaf(turns, -1.5099579e-7f, fmaf(turns, -3.1415925f, a)));
}
constexpr float kMostTurned = 65536.0f;
struct NormalSin {  // no float16 is beyond the limit
    __device__ static float of(float a) {
        const float rounded = fmaf(a, 0.31830989f, kRounder);
        return turned_sine(less_turns(a, rounded - kRounder), rounded);
    }
};
struct NormalCos {  // sin(a + pi / 2)
    __device__ static float of(float a) {
        const float rounded = fmaf(a, 0.31830989f, 0.5f) + kRounder;
        return turned_sine(less_turns(a, (rounded - kRounder) - 0.5f), rounded);
    }
};
struct RoughSin {
    using mends = void;
    __device__ static float of(float a, bool& usual) {
        usual &= fabsf(a) < kMostTurned;
        return NormalSin::of(a);
    }
    __device__ static float mended(float found, float a) { return fabsf(a) < kMostTurned ? found : sinf(a); }
};
struct RoughCos {
    using mends = void;
    __device__ static float of(float a, bool& usual) {
        usual &= fabsf(a) < kMostTurned;
        return NormalCos::of(a);
    }
    __device__ static float mended(float found, float a) { return fabsf(a) < kMostTurned ? found : cosf(a); }
};

// a = 2^exponent m with m in [sqrt(1/2), sqrt(2)); u = 2 (m - 1) / (m + 1), so that log2(m) = u P(u^2).
struct Split {
    float exponent, above, inverse_sum;  // exponent * 2^23, m - 1 and 1 / (m + 1)
    __device__ __forceinline__ explicit Split(float a) {
        const int32 bits = reinterpreted<int32>(a), shift = int32(uint32(bits) - 0x3f3504f3u) & int32(0xff800000);
        const float m = reinterpreted<float>(bits - shift);
        exponent = float(shift), above = m - 1.0f, inverse_sum = inverse(m + 1.0f);
    }
};
// Whether a is in [2^-125.5, 2^125.5), and 2^power is normal. The exponents of 0, infinities and NaN are larger.
__device__ __forceinline__ bool is_normal(float exponent, float power) {
    return (fabsf(exponent) < 1056964608.0f) & (fabsf(power) < 126.0f);
}
__device__ __forceinline__ bool is_normal(float a) { return a >= 1.17549435e-38f && a <= 3.40282347e+38f; }
// a^b = 2^power = 2^(b log2(a)) for results of 16 bits: log2 with a relative error of 2^-22. Squares are exact, because
// many of them lie half-way between two results.
struct RoughPower {
    float exponent, power, square;
    bool is_square;
    __device__ __forceinline__ RoughPower(float a, float b) {
        const Split of_a(a);
        const float u = of_a.above * of_a.inverse_sum, v = u * u;
        const float p = u * fmaf(fmaf(0.59578250f, v, 0.96158826f), v, 2.8853905f);
        exponent = of_a.exponent, power = b * fmaf(exponent, 1.1920929e-7f, p);
        is_square = b == 2.0f, square = a * a;
    }
    __device__ __forceinline__ float value() const { return is_square ? square : power_of_two(power); }
    __device__ __forceinline__ bool is_usual() const { return is_normal(exponent, power); }
    // Tests the numbers themselves: eight exponents and powers would stay in registers.
    __device__ static bool is_valid(float found, float a, float) { return is_normal(a) && is_normal(found); }
};
// a^b, with log2 in two parts: the formula of CUDA's powf for usual numbers. The compiler must not join the products
// with the sums that compute their rounding errors: __fmul_rn.
struct ExactPower {
    float exponent, power, rest;  // the rest of the product
    __device__ __forceinline__ ExactPower(float a, float b) {
        const Split of_a(a);
        const float above = of_a.above, whole = of_a.exponent * 1.1920929e-7f;
        const float u = __fmul_rn(of_a.inverse_sum, above + above), square = u * u, left = above - u;
        const float lower = of_a.inverse_sum * fmaf(above, -u, left + left);
        float p = fmaf(square, reinterpreted<float>(0x3a2c32e4), reinterpreted<float>(0x3b52e7db));
        p = fmaf(square, p, reinterpreted<float>(0x3c93bb73));
        p = square * fmaf(square, p, reinterpreted<float>(0x3df6384f));
        const float high = fmaf(u, 1.4426950f, whole);
        float low = fmaf(u, 1.4426950f, whole - high);
        low = fmaf(u, 1.9251366e-8f, fmaf(lower, 1.4426950f, low));
        low = fmaf(u, p, fmaf(lower, 3.0f * p, low));
        const float logarithm = high + low, lost = low - (logarithm - high);
        exponent = of_a.exponent, power = __fmul_rn(b, logarithm);
        rest = fmaf(b, lost, fmaf(b, logarithm, -power));
    }
    __device__ __forceinline__ float value() const {
        const float rounded = power + kRounder, r = rest + (power - (rounded - kRounder));
        float e = fmaf(r, reinterpreted<float>(0x391fcb8e), reinterpreted<float>(0x3aaf85ed));
        e = fmaf(r, e, reinterpreted<float>(0x3c1d9856));
        e = fmaf(r, e, reinterpreted<float>(0x3d6357bb));
        e = fmaf(r, e, reinterpreted<float>(0x3e75fdec));
        e = fmaf(r, fmaf(r, e, reinterpreted<float>(0x3f317218)), 1.0f);
        return reinterpreted<float>(reinterpreted<uint32>(e) + (reinterpreted<uint32>(rounded) << 23));
    }
    __device__ __forceinline__ bool is_usual() const { return is_normal(exponent, power); }
    __device__ static bool is_valid(float, float a, float b) { return ExactPower(a, b).is_usual(); }
};
// Usual: a is positive and normal, the result is normal. Of a negative a, the power of |a| gets its sign.
template <typename Power> struct QuickPow {
    using mends = void;
    __device__ static float of(float a, float b, bool& usual) {
        const Power found(fabsf(a), b);
        usual &= found.is_usual() & (a > 0.0f);
        return found.value();
    }
    __device__ static float mended(float found, float a, float b) {
        const bool has_parity = fabsf(b) < 4194304.0f;  // kRounder finds it
        if (!(Power::is_valid(found, fabsf(a), b) & (a > 0.0f | has_parity))) return powf(a, b);
        if (a > 0.0f) return found;  // as in a pack of usual numbers
        const float rounded = b + kRounder;
        if (rounded - kRounder != b) return reinterpreted<float>(0x7fffffff);  // not an integer
        return reinterpreted<float>(reinterpreted<uint32>(found) + (reinterpreted<uint32>(rounded) << 31));
    }
};
template <typename Power> struct SwappedPow {
    using mends = void;
    __device__ static float of(float a, float b, bool& usual) { return QuickPow<Power>::of(b, a, usual); }
    __device__ static float mended(float found, float a, float b) { return QuickPow<Power>::mended(found, b, a); }
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
template <> struct Rounded<Log1P, float16> { using type = RoughLog1P; };
template <> struct Rounded<Log1P, bfloat16> { using type = RoughLog1P; };
template <> struct Rounded<Reciprocal, float16> { using type = NormalReciprocal; };
template <> struct Rounded<Reciprocal, bfloat16> { using type = RoughReciprocal; };
template <> struct Rounded<Erf, float16> { using type = ErfToFloat16; };
template <> struct Rounded<Erf, bfloat16> { using type = ErfToBfloat16; };
template <> struct Rounded<Sin, float16> { using type = NormalSin; };
template <> struct Rounded<Sin, bfloat16> { using type = RoughSin; };
template <> struct Rounded<Cos, float16> { using type = NormalCos; };
template <> struct Rounded<Cos, bfloat16> { using type = RoughCos; };
template <> struct Rounded<Pow, float16> { using type = QuickPow<RoughPower>; };
template <> struct Rounded<Pow, bfloat16> { using type = QuickPow<RoughPower>; };
template <> struct Rounded<Pow, float32> { using type = QuickPow<ExactPower>; };
template <> struct Rounded<Swapped<Pow>, float16> { using type = SwappedPow<RoughPower>; };
template <> struct Rounded<Swapped<Pow>, bfloat16> { using type = SwappedPow<RoughPower>; };
template <> struct Rounded<Swapped<Pow>, float32> { using type = SwappedPow<ExactPower>; };

// N results of an operation in the dtype T.
template <typename Operation, typename T, typename W, int N, typename... Operands>
__device__ __forceinline__ void compute(W (&found)[N], const Operands (&...given)[N]) {
    using Form = typename Rounded<Operation, T>::type;
    if constexpr (Mends<Form>::value) {
        bool usual = true;
#pragma unroll
        for (int i = 0; i < N; ++i) found[i] = Form::of(given[i]..., usual);
        if (usual) return;
#pragma unroll
        for (int i = 0; i < N; ++i) found[i] = Form::mended(found[i], given[i]...);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) found[i] = Form::of(given[i]...);
    }
}

// One pack a thread; the last pack may be incomplete. `compute(i)` gives element i of the pack as W.
template <typename T, int N, typename Compute>
__device__ __forceinline__ void store(T* out, int64 first, int64 n, Compute compute) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>(compute(i));
    if (first + N <= n) {
        store_pack<T, N>(out + first, pack);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i)  // constant indices: a loop to n - first would put the pack into local memory
            if (first + i < n) out[first + i] = pack.at[i];
    }
}

// An incomplete pack is filled up with zeros. Pairs of 16-bit elements stay in one register: the compiler took each
// number out of its register only to join the two ways here, which were 8 more instructions for 8 elements.
template <typename T, int N> __device__ __forceinline__ Pack<T, N> load(const T* a, int64 first, int64 n) {
    if constexpr (sizeof(T) == 2 && N > 1) {
        union Both { uint32 pairs[N / 2]; Pack<T, N> pack; __device__ Both() {} } both;
        if (first + N <= n) {
            both.pack = load_pack<T, N>(a + first);
        } else {
#pragma unroll
            for (int i = 0; i < N; i += 2) {
                const uint32 low = first + i < n ? reinterpreted<uint16>(a[first + i]) : 0;
                const uint32 high = first + i + 1 < n ? reinterpreted<uint16>(a[first + i + 1]) : 0;
                both.pairs[i / 2] = low | high << 16;
            }
        }
        return both.pack;
    }
    if (first + N <= n) return load_pack<T, N>(a + first);
    Pack<T, N> pack = {};
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (first + i < n) pack.at[i] = a[first + i];
    return pack;
}

// The elements of a pack in the type of the computation.
template <typename W, typename T, int N>
__device__ __forceinline__ void widen_all(W (&wide)[N], const Pack<T, N>& pack) {
#pragma unroll
    for (int i = 0; i < N; ++i) wide[i] = widen<W>(pack.at[i]);
}

template <typename Operation, typename T, int N>
__global__ void dense_unary(const T* a, T* out, int64 n) {
    using W = typename Wide<T>::type;
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    W left[N], found[N];
    widen_all(left, load<T, N>(a, first, n));
    compute<Operation, T>(found, left);
    store<T, N>(out, first, n, [&](int i) { return found[i]; });
}

template <typename Operation, typename T, int N>
__global__ void dense_binary(const T* a, const T* b, T* out, int64 n) {
    using W = typename Wide<T>::type;
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    W left[N], right[N], found[N];
    const Pack<T, N> from_a = load<T, N>(a, first, n), from_b = load<T, N>(b, first, n);
    widen_all(left, from_a);
    widen_all(right, from_b);
    compute<Operation, T>(found, left, right);
    store<T, N>(out, first, n, [&](int i) { return found[i]; });
}

// The other operand is a number that is already in W: a Python scalar is not rounded to 16 bits first.
template <typename Operation, typename T, int N>
__global__ void dense_scalar(const T* a, typename Wide<T>::type b, T* out, int64 n) {
    using W = typename Wide<T>::type;
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= n) return;
    W left[N], right[N], found[N];
    widen_all(left, load<T, N>(a, first, n));
#pragma unroll
    for (int i = 0; i < N; ++i) right[i] = b;
    compute<Operation, T>(found, left, right);
    store<T, N>(out, first, n, [&](int i) { return found[i]; });
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
    using W = typename Wide<T>::type;
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    const W left[1] = {widen<W>(a[at.a])};
    W found[1];
    compute<Operation, T>(found, left);
    out[at.out] = narrow<T>(found[0]);
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
    const W left[1] = {widen<W>(a[at.a])}, right[1] = {widen<W>(b[at.b])};
    W found[1];
    compute<Operation, T>(found, left, right);
    out[at.out] = narrow<T>(found[0]);
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
    W left[N], right[N], found[N];
    widen_all(left, along<T, N>(a + at.a, layout.stride[1][0]));
    widen_all(right, along<T, N>(b + at.b, layout.stride[2][0]));
    compute<Operation, T>(found, left, right);
    store<T, N>(out + at.out, 0, N, [&](int i) { return found[i]; });
}

template <typename Operation, typename T>
__global__ void strided_scalar(const T* a, typename Wide<T>::type b, T* out, const __grid_constant__ Layout layout) {
    using W = typename Wide<T>::type;
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= layout.n) return;
    const Offsets at = offsets(layout, index);
    const W left[1] = {widen<W>(a[at.a])}, right[1] = {b};
    W found[1];
    compute<Operation, T>(found, left, right);
    out[at.out] = narrow<T>(found[0]);
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
