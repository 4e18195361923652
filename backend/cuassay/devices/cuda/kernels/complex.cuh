// Complex numbers in a body: operators between them and real numbers, and the functions of <complex>.
//
// Formulas: the operators are NumPy's, where a real operand becomes a complex number first, and division is Smith's
// (ACM Algorithm 116, 1962). sinh, tanh and sqrt are those of FreeBSD's msun, after Kahan, "Branch Cuts for Complex
// Elementary Functions" (1987). Functions other than pow lose no finite result to an overflow in between. Products of
// infinities are those of the plain formula, as in NumPy, and not those of C's Annex G.
// Shapes, launch, caller: those of body.cuh, where arrays are complex.

#pragma once

#include "body.cuh"

// The complex type in which an operator computes; there is none for two real operands.
template <typename A, typename B> struct Joint {};
template <typename A, typename B> struct Joint<Complex<A>, B> { using type = Complex<decltype(A() + B())>; };
template <typename A, typename B> struct Joint<A, Complex<B>> { using type = Complex<decltype(A() + B())>; };
template <typename A, typename B> struct Joint<Complex<A>, Complex<B>> { using type = Complex<decltype(A() + B())>; };
template <typename A, typename B> using Met = typename Joint<A, B>::type;

#define DEFINE(op) template <typename A, typename B> __device__ __forceinline__ Met<A, B> operator op(A a, B b)
DEFINE(+) { return Met<A, B>(a) + Met<A, B>(b); }
DEFINE(-) { return Met<A, B>(a) - Met<A, B>(b); }
DEFINE(*) { return Met<A, B>(a) * Met<A, B>(b); }
DEFINE(/) { return Met<A, B>(a) / Met<A, B>(b); }
#undef DEFINE

template <typename T> __device__ __forceinline__ Complex<T> operator+(Complex<T> a) { return a; }
template <typename T> __device__ __forceinline__ Complex<T> operator-(Complex<T> a) { return {-a.real, -a.imaginary}; }

template <typename T> __device__ __forceinline__ Complex<T> operator/(Complex<T> a, Complex<T> b) {
    if (fabs(b.real) >= fabs(b.imaginary)) {
        if (b.real == 0 && b.imaginary == 0) return {a.real / fabs(b.real), a.imaginary / fabs(b.real)};
        const T ratio = b.imaginary / b.real, scale = T(1) / (b.real + b.imaginary * ratio);
        return {(a.real + a.imaginary * ratio) * scale, (a.imaginary - a.real * ratio) * scale};
    }
    const T ratio = b.real / b.imaginary, scale = T(1) / (b.imaginary + b.real * ratio);
    return {(a.real * ratio + a.imaginary) * scale, (a.imaginary * ratio - a.real) * scale};
}

// Nothing but operators is in this namespace: a call in a body would find it before a function that the body defines.
template <typename A, typename B, typename M = Met<A, B>> __device__ __forceinline__ bool operator==(A a, B b) {
    const M x = a, y = b;
    return x.real == y.real && x.imaginary == y.imaginary;
}
template <typename A, typename B, typename M = Met<A, B>> __device__ __forceinline__ bool operator!=(A a, B b) {
    return !(a == b);
}

#define DEFINE(op) \
    template <typename T, typename B> __device__ __forceinline__ Complex<T>& operator op##=(Complex<T>& a, B b) { \
        return a = Complex<T>(a op b); \
    }
DEFINE(+) DEFINE(-) DEFINE(*) DEFINE(/)
#undef DEFINE

// Of a type: its largest and smallest normal numbers, and the argument from which tanh is 1.
template <typename T> struct Limits;
template <> struct Limits<float> {
    static constexpr float largest = 3.40282347e+38f, smallest = 1.17549435e-38f, one = 11;
};
template <> struct Limits<double> {
    static constexpr double largest = 1.7976931348623157e+308, smallest = 2.2250738585072014e-308, one = 22;
};

namespace std {

// A product that the compiler does not join with a sum.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

template <typename T> __device__ __forceinline__ T real(Complex<T> z) { return z.real; }
template <typename T> __device__ __forceinline__ T imag(Complex<T> z) { return z.imaginary; }
template <typename T> __device__ __forceinline__ Complex<T> conj(Complex<T> z) { return {z.real, -z.imaginary}; }
template <typename T> __device__ __forceinline__ T abs(Complex<T> z) { return hypot(z.real, z.imaginary); }
template <typename T> __device__ __forceinline__ T arg(Complex<T> z) { return atan2(z.imaginary, z.real); }

// e^x * factor, also where e^x alone overflows.
template <typename T> __device__ __forceinline__ T grown(T x, T factor) {
    const T whole = exp(x);
    if (whole <= Limits<T>::largest) return whole * factor;
    const T half = exp(x / 2);
    return half * factor * half;
}

template <typename T> __device__ Complex<T> exp(Complex<T> z) {
    if (z.imaginary == 0) return {exp(z.real), z.imaginary};
    return {grown(z.real, cos(z.imaginary)), grown(z.real, sin(z.imaginary))};
}

// log of the magnitude. Near 1 it is log1p(|z|^2 - 1) / 2, where squares and the larger minus 1 are exact sums of two.
template <typename T> __device__ T log_abs(Complex<T> z) {
    const T x = fabs(z.real), y = fabs(z.imaginary), m = x > y ? x : y, n = x > y ? y : x;
    if (m >= T(0.5) && m <= 2) {
        const T mm = product(m, m), nn = product(n, n), less = mm - 1, lost = mm - (less + 1);
        return log1p(less + nn + (lost + fma(m, m, -mm) + fma(n, n, -nn))) / 2;
    }
    if (m > 0 && m <= Limits<T>::largest && n >= 0) return log(m) + log1p((n / m) * (n / m)) / 2;
    return log(hypot(x, y));
}

template <typename T> __device__ Complex<T> log(Complex<T> z) { return {log_abs(z), arg(z)}; }
template <typename T> __device__ Complex<T> log10(Complex<T> z) {
    const T factor = T(0.43429448190325182765);
    return {log_abs(z) * factor, arg(z) * factor};
}

template <typename T> __device__ Complex<T> sqrt(Complex<T> z) {
    if (z.real == 0 && z.imaginary == 0) return {T(0), z.imaginary};
    if (isinf(z.imaginary)) return {fabs(z.imaginary), z.imaginary};
    if (isinf(z.real)) {
        const T rest = z.imaginary - z.imaginary;  // 0, or NaN
        return z.real > 0 ? Complex<T>(z.real, rest == 0 ? copysign(T(0), z.imaginary) : rest)
                          : Complex<T>(fabs(rest), copysign(z.real, z.imaginary));
    }
    const T m = fmax(fabs(z.real), fabs(z.imaginary));
    T factor = 1, scale = 1;  // against overflow and subnormal numbers in the sum below, and its inverse square root
    if (m >= Limits<T>::largest / 4) factor = T(0.0625), scale = 4;
    else if (m < Limits<T>::smallest * 16) factor = T(1ull << 54), scale = T(1) / (1 << 27);
    z = {z.real * factor, z.imaginary * factor};  // a product with a complex number would lose the sign of a zero
    const T root = sqrt((fabs(z.real) + hypot(z.real, z.imaginary)) / 2);
    if (z.real >= 0) return {root * scale, z.imaginary / (2 * root) * scale};
    return {fabs(z.imaginary) / (2 * root) * scale, copysign(root, z.imaginary) * scale};
}

template <typename T> __device__ Complex<T> sinh(Complex<T> z) {
    const T x = z.real, y = z.imaginary;
    if (y == 0) return {sinh(x), y};
    if (fabs(x) <= 2 * Limits<T>::one) return {sinh(x) * cos(y), cosh(x) * sin(y)};
    return {grown(fabs(x), copysign(T(0.5), x) * cos(y)), grown(fabs(x), sin(y) / 2)};
}
template <typename T> __device__ Complex<T> cosh(Complex<T> z) {
    const T x = z.real, y = z.imaginary;
    if (y == 0) return {cosh(x), x * y};
    if (fabs(x) <= 2 * Limits<T>::one) return {cosh(x) * cos(y), sinh(x) * sin(y)};
    return {grown(fabs(x), cos(y) / 2), grown(fabs(x), copysign(T(0.5), x) * sin(y))};
}
template <typename T> __device__ Complex<T> tanh(Complex<T> z) {
    const T x = z.real, y = z.imaginary;
    if (fabs(x) >= Limits<T>::one) {
        const T small = exp(-fabs(x));
        return {copysign(T(1), x), 4 * sin(y) * cos(y) * small * small};
    }
    const T t = tan(y), beta = 1 + t * t, s = sinh(x), rho = sqrt(1 + s * s);
    const T below = 1 + beta * s * s;
    return {beta * rho * s / below, t / below};
}

// sin, cos and tan are the hyperbolic functions of i z.
template <typename T> __device__ __forceinline__ Complex<T> turned(Complex<T> z) { return {-z.imaginary, z.real}; }
template <typename T> __device__ Complex<T> sin(Complex<T> z) {
    const Complex<T> found = sinh(turned(z));
    return {found.imaginary, -found.real};
}
template <typename T> __device__ Complex<T> cos(Complex<T> z) { return cosh(turned(z)); }
template <typename T> __device__ Complex<T> tan(Complex<T> z) {
    const Complex<T> found = tanh(turned(z));
    return {found.imaginary, -found.real};
}

// As NumPy: whole exponents below 100 by products, others by the logarithm.
template <typename T> __device__ Complex<T> power(Complex<T> a, Complex<T> b) {
    if (b.real == 0 && b.imaginary == 0) return T(1);
    if (a.real == 0 && a.imaginary == 0) {
        if (b.real > 0) return T(0);
        const T nan = a.real / a.real;
        return {nan, nan};
    }
    if (b.imaginary == 0 && b.real == trunc(b.real) && fabs(b.real) < 100) {
        int left = int(fabs(b.real));
        for (; !(left & 1); left >>= 1) a = a * a;
        Complex<T> found = a;
        while (left >>= 1) {
            a = a * a;
            if (left & 1) found = found * a;
        }
        return b.real < 0 ? Complex<T>(1) / found : found;
    }
    return exp(b * log(a));
}
template <typename A, typename B> __device__ __forceinline__ Met<A, B> pow(A a, B b) {
    return power(Met<A, B>(a), Met<A, B>(b));
}

}  // namespace std
