// Element types and packs of them, which every elementwise and reducing kernel loads, computes with and stores.
//
// A kernel loads T, computes in Wide<T>::type (float for the 16-bit types, T otherwise) and rounds once when it stores.
// This is cuassay's rule for 16-bit types on every device.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using int8 = signed char;
using uint8 = unsigned char;
using int16 = short;
using uint16 = unsigned short;
using int32 = int;
using uint32 = unsigned int;
using int64 = long long;
using uint64 = unsigned long long;
using float16 = __half;
using bfloat16 = __nv_bfloat16;
using float32 = float;
using float64 = double;

// The real and the imaginary part, in NumPy's memory layout. A real number becomes one without being named.
template <typename T> struct alignas(2 * sizeof(T)) Complex {
    T real, imaginary;
    Complex() = default;
    __device__ __forceinline__ Complex(T real, T imaginary) : real(real), imaginary(imaginary) {}
    template <typename A> __device__ __forceinline__ Complex(A value) : real(static_cast<T>(value)), imaginary(0) {}
    template <typename A> __device__ __forceinline__ Complex(const Complex<A>& value)
        : real(static_cast<T>(value.real)), imaginary(static_cast<T>(value.imaginary)) {}
};
template <typename T> __device__ __forceinline__ Complex<T> operator+(Complex<T> a, Complex<T> b) {
    return {a.real + b.real, a.imaginary + b.imaginary};
}
template <typename T> __device__ __forceinline__ Complex<T> operator-(Complex<T> a, Complex<T> b) {
    return {a.real - b.real, a.imaginary - b.imaginary};
}
template <typename T> __device__ __forceinline__ Complex<T> operator*(Complex<T> a, Complex<T> b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}
using complex64 = Complex<float>;
using complex128 = Complex<double>;

template <typename T> struct Wide { using type = T; };
template <> struct Wide<float16> { using type = float; };
template <> struct Wide<bfloat16> { using type = float; };

template <typename W, typename T> __device__ __forceinline__ W widen(T value) { return static_cast<W>(value); }
template <> __device__ __forceinline__ float widen<float, float16>(float16 value) { return __half2float(value); }
template <> __device__ __forceinline__ float widen<float, bfloat16>(bfloat16 value) { return __bfloat162float(value); }
template <> __device__ __forceinline__ double widen<double, float16>(float16 value) { return __half2float(value); }
template <> __device__ __forceinline__ double widen<double, bfloat16>(bfloat16 value) { return __bfloat162float(value); }

template <typename T, typename W> __device__ __forceinline__ T narrow(W value) { return static_cast<T>(value); }
template <> __device__ __forceinline__ float16 narrow<float16, float>(float value) { return __float2half_rn(value); }
template <> __device__ __forceinline__ bfloat16 narrow<bfloat16, float>(float value) { return __float2bfloat16_rn(value); }
template <> __device__ __forceinline__ float16 narrow<float16, double>(double value) { return __double2half(value); }
template <> __device__ __forceinline__ bfloat16 narrow<bfloat16, double>(double value) { return __double2bfloat16(value); }

// N elements that one instruction loads or stores; N * sizeof(T) is at most 16 bytes.
template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };

// The type of an access of a given size, for intrinsics. When a Pack, or a uint4, is assigned through a pointer, the
// compiler may move its members one by one. It did: a store of 8 bfloat16 became 8 stores, and softmax of rows of
// 50,257 ran at 17 % of the copy rate.
template <int NBYTES> struct Raw;
template <> struct Raw<16> { using type = uint4; };
template <> struct Raw<8> { using type = uint2; };
template <> struct Raw<4> { using type = unsigned int; };
template <> struct Raw<2> { using type = unsigned short; };
template <> struct Raw<1> { using type = unsigned char; };

template <typename T, int N> __device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
    using R = typename Raw<sizeof(T) * N>::type;
    union Both { R raw; Pack<T, N> pack; __device__ Both() {} } both;
    both.raw = __ldca(reinterpret_cast<const R*>(from));
    return both.pack;
}

template <typename T, int N> __device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& pack) {
    using R = typename Raw<sizeof(T) * N>::type;
    union Both { R raw; Pack<T, N> pack; __device__ Both() {} } both;
    both.pack = pack;
    __stwb(reinterpret_cast<R*>(to), both.raw);
}

// The number of elements of a row before the first address that is a multiple of a pack's size, limited to `elements`.
template <typename T, int N> __device__ __forceinline__ int64 before_packs(const T* row, int64 elements) {
    const int64 misaligned = int64(reinterpret_cast<unsigned long long>(row) / sizeof(T) % N);
    const int64 before = misaligned ? N - misaligned : 0;
    return before < elements ? before : elements;
}

// Reinterprets the bits as another type of the same size.
template <typename To, typename From> __device__ __forceinline__ To reinterpreted(From from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    union Both { From from; To to; __device__ Both() {} } both;
    both.from = from;
    return both.to;
}

template <typename T> __device__ __forceinline__ bool is_nan(T value) { return value != value; }

// NaN wins over any number, as in NumPy and torch.
template <typename T> __device__ __forceinline__ T nan_maximum(T a, T b) { return is_nan(a) || a > b ? a : b; }
template <typename T> __device__ __forceinline__ T nan_minimum(T a, T b) { return is_nan(a) || a < b ? a : b; }
#if __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ float nan_maximum<float>(float a, float b) {
    float both;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(both) : "f"(a), "f"(b));
    return both;
}
#endif
