// Philox4x32-10: 128 random bits as a pure function of (seed, offset, subsequence); uniforms and normals made of them.
//
// Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11
// (2011), section 4.3. Tests compare it with the vectors published with Random123.
//
// Key:      words 0, 1 are the lower and upper half of the seed.
// Counter:  words 0, 1 are the lower and upper half of offset / 4; words 2, 3 those of the subsequence.
//
// The subsequence is an index of *elements* (the element's index divided by the elements that one call serves), in C
// order of the logical array. It is never a thread's number, so the random numbers do not depend on the launch. The
// offset counts the words that every subsequence has used before. A kernel that makes `n` calls for a subsequence uses
// offset, offset + 4, ..., and the host then advances the offset by 4 * n (`Generator.take`). cuassay/arrays/philox.py
// does the same arithmetic on the host; `drawn` in devices/cuda/ops/random.py is the host's view of `PhiloxState`.

#pragma once

#include "element.cuh"

// The state that a launch draws from, passed by value. Outside of captures `cell` is null. In a captured graph it
// points to {seed, offset} in device memory, which is renewed before every replay, and `offset` is relative to that
// offset: it counts what earlier calls in the same graph use.
struct PhiloxState {
    uint64 seed;
    uint64 offset;
    const uint64* cell;
};

// A PhiloxState whose cell was read. IN_CELL is a template parameter because the key schedule runs on the uniform
// datapath only if the compiler knows that the seed is a kernel parameter.
struct Philox {
    uint64 seed;
    uint64 call;  // offset / 4
};

template <bool IN_CELL> __device__ __forceinline__ Philox begin(const PhiloxState& drawn) {
    if (IN_CELL) return {drawn.cell[0], (drawn.cell[1] + drawn.offset) / 4};
    return {drawn.seed, drawn.offset / 4};
}

// Both halves of a product from one instruction. Written as uint64 * uint32, the product came with two additions of
// zero, a tenth of all instructions of a uniform.
__device__ __forceinline__ uint2 product(uint32 a, uint32 b) {
    uint2 halves;
    asm("{ .reg .u64 whole; mul.wide.u32 whole, %2, %3; mov.b64 {%0, %1}, whole; }" : "=r"(halves.x), "=r"(halves.y) : "r"(a), "r"(b));
    return halves;
}

// The counter of this launch's `call`-th call (from 0) for a subsequence; a call gives four words.
__device__ __forceinline__ uint4 counter(Philox from, uint64 subsequence, uint64 call = 0) {
    const uint64 low = from.call + call;
    return make_uint4(uint32(low), uint32(low >> 32), uint32(subsequence), uint32(subsequence >> 32));
}

// Replaces each counter by its four random words. Several counters share the key schedule, which is a third of the work
// for one.
template <int M> __device__ __forceinline__ void philox(Philox from, uint4 (&words)[M]) {
    uint32 first = uint32(from.seed), second = uint32(from.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
#pragma unroll
        for (int i = 0; i < M; ++i) {
            const uint2 a = product(0xD2511F53u, words[i].x), b = product(0xCD9E8D57u, words[i].z);
            words[i] = make_uint4(b.y ^ words[i].y ^ first, b.x, a.y ^ words[i].w ^ second, a.x);
        }
        first += 0x9E3779B9u;   // the golden ratio
        second += 0xBB67AE85u;  // sqrt(3) - 1
    }
}

__device__ __forceinline__ uint4 philox(Philox from, uint64 subsequence, uint64 call = 0) {
    uint4 words[1] = {counter(from, subsequence, call)};
    philox(from, words);
    return words[0];
}

// ------------------------------------------------------------------------------------------------ uniforms

// Integers of 24 and 53 bits, which float and double represent exactly. With more bits, values next to the upper end of
// an interval would round to the end itself.
__device__ __forceinline__ float whole(uint32 word) { return float(word >> 8); }
__device__ __forceinline__ double whole(uint32 low, uint32 high) { return double((uint64(high) << 32 | low) >> 11); }

// ------------------------------------------------------------------------------------------------ normals
//
// The Box-Muller transform (Ann. Math. Stat. 29 (1958), 610-611) in float, with polynomials fitted for it. Their
// arguments are exact, so there is no argument reduction and no special case. Compared with float64 on the same words,
// the errors are: radius 1.7, sine and cosine 1.5 units of 2^-24, and a number 2.8 ulp over 10^9 of them. The
// polynomials are minimax fits.

// sqrt(-2 ln u), u = (word + 1/2) / 2^32. The smaller one of u and 1 - u is rounded to float, so the radius reaches up
// to 6.7 and is precise where u is near 1.
__device__ __forceinline__ float radius(uint32 word) {
    const bool near_one = word > 0xAAAAAAAAu;  // u above 2/3: ln(1 - x), x up to 1/3; else u = 2^e (1 + f), |f| up to 1/3
    const float x = fmaf(float(near_one ? ~word : word), 0x1p-32f, 0x1p-33f);
    const int bits = __float_as_int(x), exponent = near_one ? 0 : (bits - 0x3F2AAAAB) & 0xFF800000;
    const float f = near_one ? -x : __int_as_float(bits - exponent) - 1.0f;
    float p = -0.12948833f;
    p = fmaf(p, f, 0.14004762f);
    p = fmaf(p, f, -0.121671855f);
    p = fmaf(p, f, 0.1400116f);
    p = fmaf(p, f, -0.16682303f);
    p = fmaf(p, f, 0.20010747f);
    p = fmaf(p, f, -0.24999717f);
    p = fmaf(p, f, 0.3333321f);
    p = fmaf(p, f, -0.5f);
    const float log = fmaf(float(exponent), 0x1.62E43p-24f, fmaf(f * f, p, f));  // ln 2 / 2^23: the exponent is in place
    return sqrtf(-2.0f * log);
}

// Sine and cosine of the word's upper 26 bits, as a fraction of a turn.
__device__ __forceinline__ float2 sine_cosine(uint32 word) {
    const int angle = int(word >> 6), quarter = (angle + (1 << 23)) >> 24;
    const float f = float(angle - (quarter << 24)) * 0x1p-24f, t = f * f;  // f in quarters of a turn, -1/2 to 1/2, exact
    float s = -0.0046016579f;
    s = fmaf(s, t, 0.079680033f);
    s = fmaf(s, t, -0.64596346f);
    s = fmaf(s, t, -4.3711388e-8f);  // pi / 2 minus its float
    s = fmaf(f, 1.57079637f, f * s);
    float c = 0.00090376650f;
    c = fmaf(c, t, -0.020860165f);
    c = fmaf(c, t, 0.25366923f);
    c = fmaf(c, t, -1.2337005f);
    c = fmaf(c, t, 1.0f);
    const float a = quarter & 1 ? c : s, b = quarter & 1 ? s : c;
    return make_float2(quarter & 2 ? -a : a, (quarter + 1) & 2 ? -b : b);
}

// Four normals from four words: each pair of words gives the sine first, then the cosine.
__device__ __forceinline__ float4 normals(uint4 words) {
    const float first = radius(words.x), second = radius(words.z);
    const float2 a = sine_cosine(words.y), b = sine_cosine(words.w);
    return make_float4(first * a.x, first * a.y, second * b.x, second * b.y);
}

// Two normals in double from four words; the first two words give u in (0, 1].
__device__ __forceinline__ double2 wide_normals(uint4 words) {
    const double length = sqrt(-2.0 * log((whole(words.x, words.y) + 1.0) * 0x1p-53));
    double sine, cosine;
    sincospi(whole(words.z, words.w) * 0x1p-52, &sine, &cosine);
    return make_double2(length * sine, length * cosine);
}
