// Shared by kernels that work on rows: reductions over a warp or a block, and exponentials relative to a maximum.

#pragma once

#include "element.cuh"

constexpr unsigned kAllLanes = 0xffffffffu;

template <typename W> __device__ __forceinline__ W warp_sum(W value) {
#pragma unroll
    for (int lane = 16; lane; lane /= 2) value += __shfl_xor_sync(kAllLanes, value, lane);
    return value;
}

template <typename W> __device__ __forceinline__ W warp_max(W value) {
#pragma unroll
    for (int lane = 16; lane; lane /= 2) value = nan_maximum(value, __shfl_xor_sync(kAllLanes, value, lane));
    return value;
}

// Every thread gets the sum over the block. Each warp adds the sums of all warps itself, which saves a second barrier
// before the result can be used. `scratch` (32 entries) may be written again only after another barrier.
template <typename W> __device__ __forceinline__ W block_sum(W value, W* scratch) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : W(0));
}

// Every thread gets the maximum over the block; `scratch` is used as in `block_sum`.
template <typename W> __device__ __forceinline__ W block_max(W value, W* scratch) {
    value = warp_max(value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_max(scratch[threadIdx.x % 32 < blockDim.x / 32 ? threadIdx.x % 32 : 0]);
}

// exp(value - maximum) with the hardware's power of two. The difference is computed before the scaling by log2(e). A
// fused multiply-add of the scaled numbers would round a large maximum (a mask of -1e10, or the lowest number), and
// that rounding error alone could be a large exponent. The errors are those of expf: about 1 ulp for each unit of the
// difference.
template <typename W> __device__ __forceinline__ W exponential_below(W value, W maximum);
template <> __device__ __forceinline__ float exponential_below<float>(float value, float maximum) {
    float power;
    const float exponent = (value - maximum) * 1.44269504088896340736f;  // log2(e)
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(exponent));  // subnormal results are kept
    return power;
}
template <> __device__ __forceinline__ double exponential_below<double>(double value, double maximum) {
    return exp(value - maximum);
}

template <typename W> __device__ __forceinline__ W minus_infinity();
template <> __device__ __forceinline__ float minus_infinity<float>() { return __int_as_float(0xff800000); }
template <> __device__ __forceinline__ double minus_infinity<double>() { return __longlong_as_double(0xfff0000000000000ll); }

// -inf - -inf would be NaN, but exp(-inf) = 0 is wanted: the row so far is empty or all -inf.
template <typename W> __device__ __forceinline__ W shift_of(W maximum) {
    return maximum == minus_infinity<W>() ? W(0) : maximum;
}

__device__ __forceinline__ float logarithm(float value) { return logf(value); }
__device__ __forceinline__ double logarithm(double value) { return log(value); }

// log(sum(exp(a))) of a row, as two numbers to subtract one after the other: their sum would be rounded to the
// maximum's last place. An infinite maximum is itself the logarithm; the sum of exponentials relative to it would be
// NaN.
template <typename W> struct Level {
    W shift, rest;
    __device__ __forceinline__ Level(W maximum, W sum) {
        const bool is_infinite = maximum == minus_infinity<W>() || maximum == -minus_infinity<W>();
        shift = is_infinite ? W(0) : maximum;
        rest = is_infinite ? maximum : logarithm(sum);
    }
};

// The sum of squared deviations from the mean, in one pass: B. P. Welford, "Note on a method for calculating corrected
// sums of squares and products", 1962; merged as in T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a
// pairwise algorithm for computing sample variances", 1979. E[x^2] - E[x]^2 would cancel where the mean is large.
template <typename W> struct Variance {
    W count, mean, squares;

    __device__ __forceinline__ void clear() { count = mean = squares = 0; }
    // `number` is the count of values including this one, and `inverse` is 1 / number.
    __device__ __forceinline__ void add(W value, W number, W inverse) {
        const W step = value - mean;
        mean += step * inverse;
        squares += step * (value - mean);
        count = number;
    }
    __device__ __forceinline__ void merge(const Variance& other) {
        if (other.count == 0) return;
        const W number = count + other.count, step = other.mean - mean, share = other.count / number;
        mean += step * share;
        squares += other.squares + step * (count * share) * step;  // in this order: 0 times a square that overflowed is NaN
        count = number;
    }
    __device__ __forceinline__ W result(double divisor) const { return squares / W(divisor); }
};
