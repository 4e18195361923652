// Philox4x32-10: 128 random bits as a pure function of (seed, offset, subsequence); uniforms and normals made of them.
//
// Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11 (2011),
// section 4.3; its answers are checked against the vectors published with Random123.
//
// Key:      words 0, 1 are the lower and upper half of the seed.
// Counter:  words 0, 1 are the lower and upper half of offset / 4; words 2, 3 of the subsequence.
//
// The subsequence is an index among *elements* (element / how many elements one call serves), in C order of the logical
// array, never the number of a thread: numbers depend on nothing of the launch. The offset counts the words that every
// subsequence has given before; a kernel that makes `n` calls for a subsequence takes offset, offset + 4, ...,
// and the host moves the offset by 4 * n afterwards (`Generator.take`). The host's arithmetic of the same is
// cuassay/arrays/philox.py; the host's view of `PhiloxState` is `drawn` in devices/cuda/ops/random.py.

#pragma once

#include "element.cuh"

// Where a launch draws from, passed by value. Outside captures `cell` is null. In a captured graph it points at
// {seed, offset} in device memory, which every replay finds renewed, and `offset` counts from there: what earlier calls
// of the same graph take.
struct PhiloxState {
    uint64 seed;
    uint64 offset;
    const uint64* cell;
};

// One that was looked up. IN_CELL is a template parameter, because a seed that is known to be a kernel's parameter
// leaves the key schedule to the uniform datapath.
struct Philox {
    uint64 seed;
    uint64 call;  // offset / 4
};

template <bool IN_CELL> __device__ __forceinline__ Philox begin(const PhiloxState& drawn) {
    if (IN_CELL) return {drawn.cell[0], (drawn.cell[1] + drawn.offset) / 4};
    return {drawn.seed, drawn.offset / 4};
}

// Both halves of a product, by one instruction: written as uint64 * uint32 it came with two additions of zero, a tenth of
// all instructions of a uniform.
__device__ __forceinline__ uint2 product(uint32 a, uint32 b) {
    uint2 halves;
    asm("{ .reg .u64 whole; mul.wide.u32 whole, %2, %3; mov.b64 {%0, %1}, whole; }" : "=r"(halves.x), "=r"(halves.y) : "r"(a), "r"(b));
    return halves;
}

// The counter of the `call`-th four words (from 0) that a subsequence draws in this launch.
__device__ __forceinline__ uint4 counter(Philox from, uint64 subsequence, uint64 call = 0) {
    const uint64 low = from.call + call;
    return make_uint4(uint32(low), uint32(low >> 32), uint32(subsequence), uint32(subsequence >> 32));
}

// Each counter becomes its four words. Several at once share the key schedule, a third of the work of one alone.
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

// Whole numbers of as many bits as float, and double, hold exactly: 24 and 53. With more, those next to the upper end of an
// interval would round to it.
__device__ __forceinline__ float whole(uint32 word) { return float(word >> 8); }
__device__ __forceinline__ double whole(uint32 low, uint32 high) { return double((uint64(high) << 32 | low) >> 11); }

// ------------------------------------------------------------------------------------------------ normals
//
// Box and Muller's transform (Ann. Math. Stat. 29 (1958), 610-611) in float, by polynomials of our own: what they are given
// is exact, so that no argument has to be reduced and nothing special be looked for. Against float64 on the same words:
// radius 1.7, sine and cosine 1.5 units of 2^-24, a number 2.8 ulp over 10^9 of them. The polynomials are minimax fits.

// sqrt(-2 ln u), u = (word + 1/2) / 2^32, whichever of u and 1 - u is smaller rounded to float: to 6.7 far out, and
// precise where u is next to 1.
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

// Sine and cosine of the word's upper 26 bits, in turns.
__device__ __forceinline__ float2 sine_cosine(uint32 word) {
    const int angle = int(word >> 6), quarter = (angle + (1 << 23)) >> 24;
    const float f = float(angle - (quarter << 24)) * 0x1p-24f, t = f * f;  // f in quarters of a turn, -1/2 to 1/2, exact
    float s = -0.0046016579f;
    s = fmaf(s, t, 0.079680033f);
    s = fmaf(s, t, -0.64596346f);
    s = fmaf(s, t, -4.3711388e-8f);  // pi / 2 less its float
    s = fmaf(f, 1.57079637f, f * s);
    float c = 0.00090376650f;
    c = fmaf(c, t, -0.020860165f);
    c = fmaf(c, t, 0.25366923f);
    c = fmaf(c, t, -1.2337005f);
    c = fmaf(c, t, 1.0f);
    const float a = quarter & 1 ? c : s, b = quarter & 1 ? s : c;
    return make_float2(quarter & 2 ? -a : a, (quarter + 1) & 2 ? -b : b);
}

// Four of four words, two by two, the sine first.
__device__ __forceinline__ float4 normals(uint4 words) {
    const float first = radius(words.x), second = radius(words.z);
    const float2 a = sine_cosine(words.y), b = sine_cosine(words.w);
    return make_float4(first * a.x, first * a.y, second * b.x, second * b.y);
}

// Two of four words: u in (0, 1] of the first two.
__device__ __forceinline__ double2 wide_normals(uint4 words) {
    const double length = sqrt(-2.0 * log((whole(words.x, words.y) + 1.0) * 0x1p-53));
    double sine, cosine;
    sincospi(whole(words.z, words.w) * 0x1p-52, &sine, &cosine);
    return make_double2(length * sine, length * cosine);
}
