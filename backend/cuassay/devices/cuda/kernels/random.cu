// out[i] = a random number of (seed, offset, i): uniform, normal, integers, masks, dropout; a permutation of indices.
//
// Source: philox.cuh. cuassay/arrays/philox.py defines which words an element uses and how they become a number; this
// kernel gives the same bits, except for normals. Permutation: a Feistel network, iterated until the result is below n
// (J. Black, P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, section 4), as R. Mitchell et al., arXiv
// 2106.06161, shuffle on GPUs.
// Shapes: n elements, contiguous, `a` like `out`; for strided arrays the caller draws into a temporary and copies.
// Launch: 256 threads, full grid. A group is 16 bytes of the output, or the elements of one Philox call if these are
//         more; it is stored in accesses of L elements. A thread makes as many groups as take four calls, one block
//         width apart. On an H200 a GiB of float32 uniforms took 0.340 ms with one call a thread, 0.293 with two, 0.279
//         with four or eight, and a fill took 0.256: with one call, a third of the instructions compute the key
//         schedule.
// Caller: devices/cuda/ops/random.py. OpSpecs: cuassay/testing/specs/random.py.

#include "philox.cuh"

template <typename T> __device__ __forceinline__ T narrow_down(typename Wide<T>::type value) { return value; }
template <> __device__ __forceinline__ float16 narrow_down<float16>(float value) { return __float2half_rd(value); }
template <> __device__ __forceinline__ bfloat16 narrow_down<bfloat16>(float value) { return __float2bfloat16_rd(value); }

// Rounds twice, as NumPy does. A fused multiply-add would differ from the host in the last bit.
__device__ __forceinline__ float affine(float low, float step, float k) { return __fadd_rn(low, __fmul_rn(step, k)); }
__device__ __forceinline__ double affine(double low, double step, double k) { return __dadd_rn(low, __dmul_rn(step, k)); }

// ------------------------------------------------------------------------------------------------ distributions
//
// Each struct has kPerCall, the number of elements that one Philox call serves, and `make`, which computes them from
// four words.

// In [low, last], where `last` is the largest T below the upper bound: 16-bit results are rounded down, so they never
// reach the bound.
template <typename T> struct Uniform {
    using W = typename Wide<T>::type;
    static constexpr int kPerCall = 16 / sizeof(T);
    W low, step, last;
    __device__ __forceinline__ T at(W k) const { return narrow_down<T>(min(affine(low, step, k), last)); }
    __device__ __forceinline__ void make(uint4 words, T* to) const { fill(words, to); }
    __device__ __forceinline__ void fill(uint4 words, float* to) const {
        to[0] = at(whole(words.x)), to[1] = at(whole(words.y)), to[2] = at(whole(words.z)), to[3] = at(whole(words.w));
    }
    __device__ __forceinline__ void fill(uint4 words, double* to) const {
        to[0] = at(whole(words.x, words.y)), to[1] = at(whole(words.z, words.w));
    }
    template <typename H> __device__ __forceinline__ void fill(uint4 words, H* to) const {
        const uint32 each[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
            to[2 * i] = at(float(each[i] & 0xFFFFu)), to[2 * i + 1] = at(float(each[i] >> 16));
    }
};

template <typename T> struct Normal {
    static constexpr int kPerCall = 4;
    float mean, std;
    __device__ __forceinline__ void make(uint4 words, T* to) const {
        const float4 z = normals(words);
        to[0] = narrow<T>(fmaf(std, z.x, mean)), to[1] = narrow<T>(fmaf(std, z.y, mean));
        to[2] = narrow<T>(fmaf(std, z.z, mean)), to[3] = narrow<T>(fmaf(std, z.w, mean));
    }
};
template <> struct Normal<double> {
    static constexpr int kPerCall = 2;
    double mean, std;
    __device__ __forceinline__ void make(uint4 words, double* to) const {
        const double2 z = wide_normals(words);
        to[0] = fma(std, z.x, mean), to[1] = fma(std, z.y, mean);
    }
};

// low + floor(range * x) for x of 64 random bits: the relative error of each value's probability is at most 2^-32.
template <typename T> struct Integers {
    static constexpr int kPerCall = 2;
    uint64 range, low;
    __device__ __forceinline__ void make(uint4 words, T* to) const {
        to[0] = T(low + __umul64hi(uint64(words.y) << 32 | words.x, range));
        to[1] = T(low + __umul64hi(uint64(words.w) << 32 | words.z, range));
    }
};

// The same for ranges above 2^32, with x of 128 bits; a range of 0 means 2^64.
template <typename T> struct LongIntegers {
    static constexpr int kPerCall = 1;
    uint64 range, low;
    __device__ __forceinline__ void make(uint4 words, T* to) const {
        const uint64 upper = uint64(words.w) << 32 | words.z, lower = uint64(words.y) << 32 | words.x;
        const uint64 product = upper * range, carried = product + __umul64hi(lower, range);
        to[0] = T(low + (range ? __umul64hi(upper, range) + (carried < product) : upper));
    }
};

// 1 for an element to keep, 0 for an element to drop.
template <typename T> struct Keep {
    static constexpr int kPerCall = 4;
    uint64 dropped;  // how many of the 2^32 words drop their element
    __device__ __forceinline__ void make(uint4 words, T* to) const {
        to[0] = words.x >= dropped, to[1] = words.y >= dropped, to[2] = words.z >= dropped, to[3] = words.w >= dropped;
    }
};

// Computes an output element from an input element and a random word.
template <typename T> struct Dropout {
    using W = typename Wide<T>::type;
    uint64 dropped;
    W scale;
    __device__ __forceinline__ T of(T a, uint32 word) const {
        return word >= dropped ? narrow<T>(widen<W>(a) * scale) : narrow<T>(W(0));
    }
};
template <typename T> struct Bernoulli {
    uint64 unused;  // a structure without members cannot be a kernel argument
    __device__ __forceinline__ T of(T p, uint32 word) const {
        return narrow<T>(typename Wide<T>::type(double(word) < widen<double>(p) * 0x1p32));
    }
};

// ------------------------------------------------------------------------------------------------ groups

__host__ __device__ constexpr int at_least(int size, int least) { return size > least ? size : least; }

// The share of one thread. devices/cuda/ops/random.py computes the number of blocks with the same arithmetic.
template <typename T, int PER_CALL> struct Share {
    static constexpr int kGroup = at_least(16 / sizeof(T), PER_CALL), kCalls = kGroup / PER_CALL;
    static constexpr int kGroups = at_least(4 / kCalls, 1);

    __device__ __forceinline__ static int64 start() { return int64(blockIdx.x) * (kGroups * blockDim.x) + threadIdx.x; }
    // Whether everything that the block makes lies within n elements: one comparison then serves all of its stores.
    __device__ __forceinline__ static bool is_whole(int64 n) {
        return (int64(blockIdx.x) + 1) * (kGroups * kGroup * blockDim.x) <= n;
    }

    // The words of groups start, start + blockDim.x, ...
    __device__ __forceinline__ static void draw(Philox from, int64 start, uint4 (&words)[kGroups * kCalls]) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g)
#pragma unroll
            for (int call = 0; call < kCalls; ++call)
                words[g * kCalls + call] = counter(from, (start + g * int64(blockDim.x)) * kCalls + call);
        philox(from, words);
    }
};

// WHOLE: the group lies within the n elements, so nothing is compared.
template <bool WHOLE, typename T, int L, int G>
__device__ __forceinline__ void store_group(T* out, int64 first, int64 n, const T* values) {
#pragma unroll
    for (int from = 0; from < G; from += L) {
        if (WHOLE || first + from + L <= n) {
            Pack<T, L> pack;
#pragma unroll
            for (int i = 0; i < L; ++i) pack.at[i] = values[from + i];
            store_pack<T, L>(out + first + from, pack);
        } else {
#pragma unroll
            for (int i = 0; i < L; ++i)  // constant indices: a loop to n - first would put the values into local memory
                if (first + from + i < n) out[first + from + i] = values[from + i];
        }
    }
}

template <bool WHOLE, typename T, int L, int G>
__device__ __forceinline__ void load_group(const T* a, int64 first, int64 n, T* values) {
#pragma unroll
    for (int from = 0; from < G; from += L) {
        Pack<T, L> pack = {};
        if (WHOLE || first + from + L <= n) {
            pack = load_pack<T, L>(a + first + from);
        } else {
#pragma unroll
            for (int i = 0; i < L; ++i)
                if (first + from + i < n) pack.at[i] = a[first + from + i];
        }
#pragma unroll
        for (int i = 0; i < L; ++i) values[from + i] = pack.at[i];
    }
}

template <bool WHOLE, typename Draw, typename T, int L>
__device__ __forceinline__ void fill(T* out, int64 start, int64 n, Philox from, const Draw& draw) {
    using S = Share<T, Draw::kPerCall>;
    uint4 words[S::kGroups * S::kCalls];
    S::draw(from, start, words);
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) {
        T values[S::kGroup];
#pragma unroll
        for (int call = 0; call < S::kCalls; ++call) draw.make(words[g * S::kCalls + call], values + call * Draw::kPerCall);
        store_group<WHOLE, T, L, S::kGroup>(out, (start + g * int64(blockDim.x)) * S::kGroup, n, values);
    }
}

template <typename Draw, typename T, int L, bool IN_CELL>
__global__ void random_fill(T* out, int64 n, const PhiloxState drawn, const Draw draw) {
    using S = Share<T, Draw::kPerCall>;
    const int64 start = S::start();
    if (S::is_whole(n)) fill<true, Draw, T, L>(out, start, n, begin<IN_CELL>(drawn), draw);
    else fill<false, Draw, T, L>(out, start, n, begin<IN_CELL>(drawn), draw);
}

template <bool WHOLE, typename Draw, typename T, int L>
__device__ __forceinline__ void map(const T* a, T* out, int64 start, int64 n, Philox from, const Draw& draw) {
    using S = Share<T, 4>;
    T values[S::kGroups][S::kGroup];
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g)  // before the words are computed, because the loads take longer
        load_group<WHOLE, T, L, S::kGroup>(a, (start + g * int64(blockDim.x)) * S::kGroup, n, values[g]);
    uint4 words[S::kGroups * S::kCalls];
    S::draw(from, start, words);
#pragma unroll
    for (int g = 0; g < S::kGroups; ++g) {
#pragma unroll
        for (int call = 0; call < S::kCalls; ++call) {
            const uint4 w = words[g * S::kCalls + call];
            T* to = values[g] + 4 * call;
            to[0] = draw.of(to[0], w.x), to[1] = draw.of(to[1], w.y), to[2] = draw.of(to[2], w.z), to[3] = draw.of(to[3], w.w);
        }
        store_group<WHOLE, T, L, S::kGroup>(out, (start + g * int64(blockDim.x)) * S::kGroup, n, values[g]);
    }
}

template <typename Draw, typename T, int L, bool IN_CELL>
__global__ void random_map(const T* a, T* out, int64 n, const PhiloxState drawn, const Draw draw) {
    using S = Share<T, 4>;
    const int64 start = S::start();
    if (S::is_whole(n)) map<true, Draw, T, L>(a, out, start, n, begin<IN_CELL>(drawn), draw);
    else map<false, Draw, T, L>(a, out, start, n, begin<IN_CELL>(drawn), draw);
}

// ------------------------------------------------------------------------------------------------ permutation

constexpr int kRounds = 24, kKeyCalls = 7;  // the word after the rounds' keys decides the parity

__device__ __forceinline__ uint32 mixed(uint32 value, uint32 key) {  // the finalizer of MurmurHash3
    value += key;
    value = (value ^ value >> 16) * 0x85EBCA6Bu;
    value = (value ^ value >> 13) * 0xC2B2AE35u;
    return value ^ value >> 16;
}

// A permutation of 0 .. 2^bits - 1. A Feistel network with at least two bits on each side is an even permutation. To
// reach odd permutations too, the last step swaps 0 and 1 with probability 1/2.
__device__ __forceinline__ uint64 permuted(uint64 index, int bits, const uint32* keys) {
    const int right_bits = bits / 2;
    const uint32 left_mask = uint32((uint64(1) << (bits - right_bits)) - 1), right_mask = uint32((uint64(1) << right_bits) - 1);
    uint32 left = uint32(index >> right_bits), right = uint32(index) & right_mask;
#pragma unroll 4
    for (int round = 0; round < kRounds; round += 2) {
        left ^= mixed(right, keys[round]) & left_mask;
        right ^= mixed(left, keys[round + 1]) & right_mask;
    }
    const uint64 found = uint64(left) << right_bits | right;
    return found < 2 ? found ^ (keys[kRounds] & 1) : found;
}

template <typename T, int L, bool IN_CELL>
__global__ void random_permutation(T* out, int64 n, const PhiloxState drawn, int64 bits) {
    __shared__ uint4 keys[kKeyCalls];
    if (threadIdx.x < kKeyCalls) keys[threadIdx.x] = philox(begin<IN_CELL>(drawn), threadIdx.x);
    __syncthreads();
    const int64 first = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * L;
    if (first >= n) return;
    T values[L];
#pragma unroll
    for (int i = 0; i < L; ++i) {
        uint64 index = uint64(first + i);
        if (first + i < n) do index = permuted(index, int(bits), &keys[0].x); while (index >= uint64(n));
        values[i] = T(index);
    }
    store_group<false, T, L, L>(out, first, n, values);
}

// ------------------------------------------------------------------------------------------------ captured graphs

// Stores the state that the calls of a graph draw from, before each replay. One thread.
__global__ void random_renew(const PhiloxState drawn) {
    uint64* cell = const_cast<uint64*>(drawn.cell);
    cell[0] = drawn.seed, cell[1] = drawn.offset;
}
