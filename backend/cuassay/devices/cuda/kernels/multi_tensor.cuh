// What kernels over lists of arrays share: the tables they walk, and accesses of 16 bytes wherever an array begins.
//
// One block takes one chunk of one tensor; both tables lie in device memory, so that one launch takes lists of any length.
// Most lists of a tensor begin the same number of elements past a 16-byte boundary: chunks start there, before element 0
// (`origin`). The packs of a list that begins elsewhere (its bit of the template argument OFF is set) are read as the two
// aligned granules they lie across and shifted, the second one a hit in the level-1 cache; written by handing the end of
// each lane's pack to the next lane. One element at a time would cost a 16-bit list eight times the accesses.

#pragma once

#include "element.cuh"

constexpr int kThreads = 256;

// One tensor: where its element 0 lies in each of K lists (0: the list is missing), elements, the element that chunk 0
// begins at (0, or as far before 0 as the lists begin past a boundary), chunks, first chunk.
template <int K> struct alignas(8) Tensor {
    uint64 address[K];
    int64 n;
    int64 origin;
    int64 chunks;
    int64 first;
};

struct alignas(8) Chunk { int32 tensor, index; };

template <typename T, int K> __device__ __forceinline__ T* list(const Tensor<K>& tensor, int place) {
    return reinterpret_cast<T*>(tensor.address[place]);
}

// Where a pack of a thread lies: at element `first` of a tensor, which has those from `begin` up to `end` of its N, and
// `after` more behind them, counted up to N.
template <int N> struct Place {
    int64 first;
    int begin, end, after;
    __device__ bool some() const { return end > begin; }
    __device__ bool whole() const { return begin == 0 && end == N; }
    __device__ bool has(int i) const { return i >= begin && i < end; }
};

// The `u`-th pack of this thread in a chunk of PACKS a thread: a block's accesses lie one beside another.
template <int N, int PACKS, int K>
__device__ __forceinline__ Place<N> place(const Tensor<K>& tensor, const Chunk& chunk, int u) {
    const int64 first = tensor.origin + (int64(chunk.index) * PACKS + u) * (kThreads * N) + int(threadIdx.x) * N;
    const int64 left = tensor.n - first;
    const int until = left < 2 * N ? (left < 0 ? 0 : int(left)) : 2 * N;
    return {first, first < 0 ? int(-first) : 0, until < N ? until : N, until < N ? 0 : until - N};
}

template <typename T, int N> __device__ __forceinline__ int misaligned(const T* at) {
    return int(reinterpret_cast<uint64>(at) % sizeof(Pack<T, N>));
}

// Bytes [shift, shift + 4 K) of 2 K words, 0 <= shift < 4 K, moved to the front.
template <int K> __device__ __forceinline__ void shifted(uint32 (&words)[2 * K], int shift) {
#pragma unroll
    for (int step = K / 2; step; step /= 2) {
        if (shift & (4 * step)) {
#pragma unroll
            for (int i = 0; i + step < 2 * K; ++i) words[i] = words[i + step];
        }
    }
    if (shift & 3) {
#pragma unroll
        for (int i = 0; i + 1 < 2 * K; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], 8 * (shift & 3));
    }
}

template <typename T, int N> union Words {
    static constexpr int kCount = N * sizeof(T) / 4;
    uint32 word[2 * kCount];
    Pack<T, N> pack[2];
    __device__ Words() {}
};

// The element at `from`, or 0 where there is none. By predicate: of a branch for each, the compiler spills registers.
__device__ __forceinline__ void load_if(bool is, const void* from, uint16& to) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; mov.b16 %0, 0; @p ld.global.b16 %0, [%1]; }"
                 : "=h"(to) : "l"(from), "r"(int(is)) : "memory");
}
__device__ __forceinline__ void load_if(bool is, const void* from, uint32& to) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; mov.b32 %0, 0; @p ld.global.b32 %0, [%1]; }"
                 : "=r"(to) : "l"(from), "r"(int(is)) : "memory");
}
__device__ __forceinline__ void load_if(bool is, const void* from, uint64& to) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; mov.b64 %0, 0; @p ld.global.b64 %0, [%1]; }"
                 : "=l"(to) : "l"(from), "r"(int(is)) : "memory");
}
template <int NBYTES> struct Unsigned;
template <> struct Unsigned<2> { using type = uint16; };
template <> struct Unsigned<4> { using type = uint32; };
template <> struct Unsigned<8> { using type = uint64; };

// A pack with those elements that the tensor has, one by one. An allocation may end inside the granule that the tensor ends
// in; reading all of it would do no harm, but is an error to tools that watch accesses.
template <typename T, int N> __device__ __forceinline__ Pack<T, N> load_some(const T* a, const Place<N>& at) {
    using B = typename Unsigned<sizeof(T)>::type;
    union Both { Pack<B, N> bits; Pack<T, N> pack; __device__ Both() {} } both;
#pragma unroll
    for (int i = 0; i < N; ++i) load_if(at.has(i), a + at.first + i, both.bits.at[i]);
    return both.pack;
}

// A pack at an address of any alignment that T has, where the tensor has all of both granules but for what lies before it.
template <typename T, int N> __device__ __forceinline__ Pack<T, N> load_anywhere(const T* a, const Place<N>& at) {
    const T* const from = a + at.first;
    const int shift = misaligned<T, N>(from), own = N - shift / int(sizeof(T));  // elements in the first granule
    if (!at.whole() || (shift && at.after < own)) return load_some<T, N>(a, at);
    if (!shift) return load_pack<T, N>(from);
    const T* const granule = reinterpret_cast<const T*>(reinterpret_cast<uint64>(from) - shift);
    Words<T, N> both;
    both.pack[0] = load_pack<T, N>(granule);
    both.pack[1] = load_pack<T, N>(granule + N);
    shifted<Words<T, N>::kCount>(both.word, shift);
    return both.pack[0];
}

// The whole warp stores 32 packs one after another. Granules between two lanes are written by the later one; the warp's
// first and last elements, whose granules are not its own, one by one.
template <typename T, int N> __device__ __forceinline__ void store_anywhere(T* to, const Pack<T, N>& pack) {
    constexpr int kWords = Words<T, N>::kCount;
    const int shift = misaligned<T, N>(to), lane = threadIdx.x % 32;
    if (!shift) {
        store_pack<T, N>(to, pack);
        return;
    }
    Words<T, N> both;
    both.pack[1] = pack;
#pragma unroll
    for (int i = 0; i < kWords; ++i) both.word[i] = __shfl_up_sync(0xffffffffu, both.word[kWords + i], 1);
    shifted<kWords>(both.word, int(sizeof(Pack<T, N>)) - shift);
    if (lane) store_pack<T, N>(reinterpret_cast<T*>(reinterpret_cast<uint64>(to) - shift), both.pack[0]);
    const int own = N - shift / int(sizeof(T));  // elements up to the end of the first granule
#pragma unroll
    for (int i = 0; i < N; ++i)
        if ((lane == 0 && i < own) || (lane == 31 && i >= own)) to[i] = pack.at[i];
}

// A pack that has some elements; the others are 0.
template <bool OFF, typename T, int N> __device__ __forceinline__ Pack<T, N> load(const T* a, const Place<N>& at) {
    if constexpr (OFF) return load_anywhere<T, N>(a, at);
    else return at.whole() ? load_pack<T, N>(a + at.first) : load_some<T, N>(a, at);
}

// Stores the elements that a pack has; `whole`, which the compiler knows where it is called: all of them, and where a list
// is OFF, of all packs of the warp.
template <bool OFF, typename T, int N>
__device__ __forceinline__ void store(T* a, const Place<N>& at, const Pack<T, N>& pack, bool whole) {
    if (whole) {
        if constexpr (OFF) store_anywhere<T, N>(a + at.first, pack);
        else store_pack<T, N>(a + at.first, pack);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i)
            if (at.has(i)) a[at.first + i] = pack.at[i];
    }
}

// `act(whole)` for the stores of all lists. One branch: their accesses then follow each other.
template <int OFF, int N, typename Act> __device__ __forceinline__ void stores(const Place<N>& at, Act act) {
    if (OFF ? __all_sync(0xffffffffu, at.whole()) : at.whole()) act(true);
    else act(false);
}

__device__ constexpr bool is_off(int off, int list) { return off >> list & 1; }

// The last of `count` blocks to come here gets true, and sees what the others wrote before they came. One thread a block.
// The counter is 0 again afterwards.
__device__ __forceinline__ bool arrive(uint32* counter, int64 count) {
    if (count == 1) return true;
    __threadfence();
    const bool last = atomicInc(counter, uint32(count - 1)) == uint32(count - 1);
    __threadfence();
    return last;
}
