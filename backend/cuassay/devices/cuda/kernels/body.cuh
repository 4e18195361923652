// The kernel around a body (an expression of the user): packs, strides, the types of its template, and the functions of
// <cmath>.
//
// Formula: the user's. Shapes: `out` and operands of up to 8 axes, strides in elements, 0 where broadcast.
// Launch: 256 threads; contiguous arrays: one pack of N elements a thread; others: one element a thread.
// Caller: devices/cuda/ops/bodies.py, which writes the kernel for each text. OpSpecs: those of the body's operation.

#pragma once

#include "element.cuh"

#ifdef __CUDACC_RTC__
// NVRTC provides the functions of <cmath> without the header, but not its macros or the names of <cstdint>.
namespace std {
using ::abs; using ::acos; using ::acosh; using ::asin; using ::asinh; using ::atan; using ::atan2; using ::atanh;
using ::cbrt; using ::ceil; using ::copysign; using ::cos; using ::cosh; using ::erf; using ::exp; using ::exp2;
using ::expm1; using ::fabs; using ::fdim; using ::floor; using ::fma; using ::fmax; using ::fmin; using ::fmod;
using ::hypot; using ::isfinite; using ::isinf; using ::isnan; using ::log; using ::log10; using ::log1p; using ::log2;
using ::max; using ::min; using ::nearbyint; using ::pow; using ::rint; using ::round; using ::signbit; using ::sin;
using ::sinh; using ::sqrt; using ::tan; using ::tanh; using ::trunc;
}  // namespace std

// An integer counts as a double, as in <cmath>; NVRTC has no functions of integers and takes such a call as ambiguous.
template <typename A> struct Integer {};
#define INTEGER(A) template <> struct Integer<A> { using wide = double; }
INTEGER(bool); INTEGER(char); INTEGER(signed char); INTEGER(short); INTEGER(int); INTEGER(long); INTEGER(long long);
INTEGER(unsigned char); INTEGER(unsigned short); INTEGER(unsigned); INTEGER(unsigned long); INTEGER(unsigned long long);
namespace std {
#define OF_ONE(f) template <typename A, typename W = typename Integer<A>::wide> auto f(A a) { return ::f(W(a)); }
OF_ONE(acos) OF_ONE(acosh) OF_ONE(asin) OF_ONE(asinh) OF_ONE(atan) OF_ONE(atanh) OF_ONE(cbrt) OF_ONE(ceil) OF_ONE(cos)
OF_ONE(cosh) OF_ONE(erf) OF_ONE(exp) OF_ONE(exp2) OF_ONE(expm1) OF_ONE(fabs) OF_ONE(floor) OF_ONE(isfinite)
OF_ONE(isinf) OF_ONE(isnan) OF_ONE(log) OF_ONE(log10) OF_ONE(log1p) OF_ONE(log2) OF_ONE(nearbyint) OF_ONE(rint)
OF_ONE(round) OF_ONE(rsqrt) OF_ONE(signbit) OF_ONE(sin) OF_ONE(sinh) OF_ONE(sqrt) OF_ONE(tan) OF_ONE(tanh)
OF_ONE(trunc)
#define OF_TWO(f)                                                                                      \
    template <typename A, typename B, typename W = typename Integer<A>::wide, typename = typename Integer<B>::wide> \
    auto f(A a, B b) { return ::f(W(a), W(b)); }
OF_TWO(atan2) OF_TWO(copysign) OF_TWO(fdim) OF_TWO(fmax) OF_TWO(fmin) OF_TWO(fmod) OF_TWO(hypot) OF_TWO(pow)
template <typename A, typename W = typename Integer<A>::wide>
W copysign(A a, float b) { return ::copysign(W(a), W(b)); }
template <typename B, typename W = typename Integer<B>::wide>
W copysign(float a, B b) { return ::copysign(W(a), W(b)); }
template <typename A, typename B, typename C, typename W = typename Integer<A>::wide,
          typename = typename Integer<B>::wide, typename = typename Integer<C>::wide>
auto fma(A a, B b, C c) { return ::fma(W(a), W(b), W(c)); }
}  // namespace std
#undef INTEGER  // a body may use these names
#undef OF_ONE
#undef OF_TWO
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define M_E 2.71828182845904523536
#define M_PI 3.14159265358979323846
#define M_SQRT2 1.41421356237309504880
#define FLT_EPSILON 1.19209290e-07f
#define FLT_MAX 3.40282347e+38f
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_MAX 1.7976931348623157e+308
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#endif

// exp in a body of 16-bit arrays, in fewer instructions. It is off by 2 + 1.2 |a| units of float at most, of which 16
// bits show nothing. It is 1 for 0, infinite and NaN where exp is, and gives subnormal numbers.
__device__ __forceinline__ float short_exp(float a) { return __expf(a); }
template <typename A> __device__ __forceinline__ auto short_exp(A a) { return std::exp(a); }
namespace std { using ::short_exp; }

// The parts of a real number, which is float if the number is.
template <typename A> struct RealOf { using type = double; };
template <> struct RealOf<float> { using type = float; };
namespace std {
template <typename A> __device__ __forceinline__ typename RealOf<A>::type real(A value) { return value; }
template <typename A> __device__ __forceinline__ typename RealOf<A>::type imag(A) { return 0; }
template <typename A> __device__ __forceinline__ typename RealOf<A>::type conj(A value) { return value; }
template <typename A> __device__ __forceinline__ typename RealOf<A>::type arg(A value) {
    const typename RealOf<A>::type number = value;
    return atan2(decltype(number)(0), number);
}
}  // namespace std

// Converts an operand to the type that the body computes in.
template <typename W, typename A> __device__ __forceinline__ W operand(A value) {
    return static_cast<W>(widen<typename Wide<A>::type>(value));
}

constexpr int kMaxAxes = 8;

// Extents from the innermost axis outwards, and the strides of each of K arrays along them, in elements.
template <int K> struct Layout {
    int64 n;
    int64 axes;
    int64 extent[kMaxAxes];
    int64 stride[K][kMaxAxes];
};

// Computes the offset of element `index` in each array.
template <int K> __device__ __forceinline__ void locate(const Layout<K>& layout, int64 index, int64 (&at)[K]) {
#pragma unroll
    for (int array = 0; array < K; ++array) at[array] = 0;
#pragma unroll
    for (int axis = 0; axis < kMaxAxes; ++axis) {
        if (axis >= layout.axes) break;
        const int64 extent = layout.extent[axis];
        int64 quotient, position;
        if ((index | extent) >> 31) {
            quotient = index / extent, position = index % extent;
        } else {  // a 64-bit division is several times a 32-bit one
            quotient = uint32(index) / uint32(extent), position = uint32(index) % uint32(extent);
        }
        index = quotient;
#pragma unroll
        for (int array = 0; array < K; ++array) at[array] += position * layout.stride[array][axis];
    }
}
