// Shared by the kernels over lists of arrays: the tables they walk, and 16-byte accesses for arrays at any address.
//
// One block takes one chunk of one tensor. Both tables are in device memory, so one launch takes lists of any length.
// Most lists of a tensor begin the same number of elements past a 16-byte boundary. Chunks start at that boundary,
// before element 0 (`origin`). A list that begins elsewhere has its bit of the template argument OFF set. Its packs lie
// across two aligned 16-byte granules: a load reads both and shifts them, and the second one hits the level-1 cache; a
// store passes the end of each lane's pack to the next lane. Accessing single elements instead would cost a 16-bit list
// eight times the accesses.

#pragma once

#include "element.cuh"

constexpr int kThreads = 256;

// One tensor: the address of its element 0 in each of K lists (0: the list is missing), the number of elements, the
// element that chunk 0 begins at (0, or negative if the lists begin past a boundary), the number of chunks, and the
// first chunk.
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

// The position of a thread's pack: it starts at element `first` of a tensor, which has the pack's elements from `begin`
// up to `end`, and `after` more elements behind the pack (counted up to N). A pack is whole if the tensor has all N
// elements, and followed if the next pack is whole as well.
template <int N> struct Place {
    int64 first;
    int begin, end, after;
    __device__ bool whole() const { return begin == 0 && end == N; }
    __device__ bool followed() const { return begin == 0 && after == N; }
    __device__ bool has(int i) const { return i >= begin && i < end; }
};

// The `u`-th pack of this thread in a chunk with PACKS packs a thread. Neighbouring threads access neighbouring packs.
template <int N, int PACKS, int K>
__device__ __forceinline__ Place<N> place(const Tensor<K>& tensor, const Chunk& chunk, int u) {
    const int64 first = tensor.origin + (int64(chunk.index) * PACKS + u) * (kThreads * N) + int(threadIdx.x) * N;
    const int64 left = tensor.n - first;
    const int until = left < 2 * N ? (left < 0 ? 0 : int(left)) : 2 * N;
    return {first, first < 0 ? int(-first) : 0, until < N ? until : N, until < N ? 0 : until - N};
}

template <int NBYTES> struct Unsigned;
template <> struct Unsigned<2> { using type = uint16; };
template <> struct Unsigned<4> { using type = uint32; };
template <> struct Unsigned<8> { using type = uint64; };

// N elements as the whole words that are loaded and stored. For a Pack of 16-bit elements the compiler uses one
// register for each element at the load. It then waited for one list before it loaded the next, and Adam on bfloat16
// ran at 3.6 TB/s instead of 4.2 on an H200.
template <typename T, int N> struct Words {
    static constexpr int kCount = N * sizeof(T) / 4;
    using Raw = typename ::Raw<4 * kCount>::type;
    using Bits = typename Unsigned<sizeof(T)>::type;
    uint32 word[kCount];

    __device__ __forceinline__ Bits bits(int i) const {
        if constexpr (sizeof(T) == 2) return Bits(word[i / 2] >> 16 * (i % 2));
        else if constexpr (sizeof(T) == 4) return word[i];
        else return Bits(word[2 * i + 1]) << 32 | word[2 * i];
    }
    __device__ __forceinline__ void put_bits(int i, Bits bits) {
        if constexpr (sizeof(T) == 2) word[i / 2] = word[i / 2] & (i % 2 ? 0xffffu : ~0xffffu) | uint32(bits) << 16 * (i % 2);
        else if constexpr (sizeof(T) == 4) word[i] = bits;
        else word[2 * i] = uint32(bits), word[2 * i + 1] = uint32(bits >> 32);
    }
    __device__ __forceinline__ T at(int i) const { return reinterpreted<T>(bits(i)); }
    __device__ __forceinline__ void put(int i, T value) { put_bits(i, reinterpreted<Bits>(value)); }
};

template <typename T, int N> __device__ __forceinline__ Words<T, N> load_words(const void* from) {
    union Both { typename Words<T, N>::Raw raw; Words<T, N> words; __device__ Both() {} } both;
    both.raw = __ldca(static_cast<const typename Words<T, N>::Raw*>(from));
    return both.words;
}

template <typename T, int N> __device__ __forceinline__ void store_words(void* to, const Words<T, N>& words) {
    union Both { typename Words<T, N>::Raw raw; Words<T, N> words; __device__ Both() {} } both;
    both.words = words;
    __stwb(static_cast<typename Words<T, N>::Raw*>(to), both.raw);
}

template <typename T, int N> __device__ __forceinline__ int misaligned(const T* at) {
    return int(reinterpret_cast<uint64>(at) % sizeof(Words<T, N>));
}

// The words that begin `shift` bytes after the start of a, and continue into b; 0 <= shift < sizeof(a).
template <typename T, int N>
__device__ __forceinline__ Words<T, N> shifted(const Words<T, N>& a, const Words<T, N>& b, int shift) {
    constexpr int K = Words<T, N>::kCount;
    uint32 words[2 * K];
#pragma unroll
    for (int i = 0; i < 2 * K; ++i) words[i] = i < K ? a.word[i] : b.word[i - K];
#pragma unroll
    for (int step = K / 2; step; step /= 2) {
        if (shift & (4 * step)) {
#pragma unroll
            for (int i = 0; i + step < 2 * K; ++i) words[i] = words[i + step];
        }
    }
    Words<T, N> result;
#pragma unroll
    for (int i = 0; i < K; ++i) result.word[i] = __funnelshift_r(words[i], words[i + 1], 8 * (shift & 3));
    return result;
}

// Loads the element at `from`, or 0 if `is` is false. It uses a predicate: with a branch for each element the compiler
// spills.
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

// A pack with those elements that the tensor has, loaded one by one. The allocation may end inside the tensor's last
// granule. Reading the whole granule would be harmless, but memory checkers report it as an error.
template <typename T, int N> __device__ __forceinline__ Words<T, N> load_some(const T* a, const Place<N>& at) {
    Words<T, N> words{};
#pragma unroll
    for (int i = 0; i < N; ++i) {
        typename Words<T, N>::Bits bits;
        load_if(at.has(i), a + at.first + i, bits);
        words.put_bits(i, bits);
    }
    return words;
}

// A pack whose load was issued: its granule, or the two granules it lies across and its offset in bytes from the first
// one.
template <bool OFF, typename T, int N> struct Flight {
    Words<T, N> granule[OFF ? 2 : 1];
    int shift;
};

// Issues the load of a pack; elements that the tensor does not have become 0. `whole` is known at compile time where
// this is called: the pack is whole, and if the list is OFF, so is the next one. Bytes before it in the granule may be
// another array's.
template <bool OFF, typename T, int N>
__device__ __forceinline__ Flight<OFF, T, N> load(const T* a, const Place<N>& at, bool whole) {
    Flight<OFF, T, N> flight;
    flight.shift = OFF && whole ? misaligned<T, N>(a + at.first) : 0;
    if (whole) {
        const char* const granule = reinterpret_cast<const char*>(a + at.first) - flight.shift;
        flight.granule[0] = load_words<T, N>(granule);
        if constexpr (OFF) flight.granule[1] = load_words<T, N>(granule + sizeof(T) * N);
    } else {
        flight.granule[0] = load_some<T, N>(a, at);
    }
    return flight;
}

template <bool OFF, typename T, int N>
__device__ __forceinline__ Words<T, N> landed(const Flight<OFF, T, N>& flight) {
    if constexpr (!OFF) return flight.granule[0];
    else return shifted(flight.granule[0], flight.granule[1], flight.shift);
}

// Calls `act(whole)` for the loads of all lists. There is one branch for all of them, so no list is waited for inside
// it.
template <int OFF, int N, typename Act> __device__ __forceinline__ void loads(const Place<N>& at, Act act) {
    if (OFF ? at.followed() : at.whole()) act(true);
    else act(false);
}

// The whole warp stores 32 consecutive packs. The later lane writes a granule that two lanes share. The warp shares its
// first and last granules with others, so it stores their elements one by one.
template <typename T, int N> __device__ __forceinline__ void store_anywhere(T* to, const Words<T, N>& words) {
    const int shift = misaligned<T, N>(to), lane = threadIdx.x % 32;
    if (!shift) {
        store_words<T, N>(to, words);
        return;
    }
    Words<T, N> former;
#pragma unroll
    for (int i = 0; i < words.kCount; ++i) former.word[i] = __shfl_up_sync(0xffffffffu, words.word[i], 1);
    if (lane) store_words<T, N>(reinterpret_cast<char*>(to) - shift, shifted(former, words, int(sizeof(words)) - shift));
    const int own = N - shift / int(sizeof(T));  // elements up to the end of the first granule
#pragma unroll
    for (int i = 0; i < N; ++i)
        if ((lane == 0 && i < own) || (lane == 31 && i >= own)) to[i] = words.at(i);
}

// Stores the elements of a pack that the tensor has. `whole` is known at compile time where this is called: the pack is
// whole, and if the list is OFF, so are all packs of the warp.
template <bool OFF, typename T, int N>
__device__ __forceinline__ void store(T* a, const Place<N>& at, const Words<T, N>& words, bool whole) {
    if (whole) {
        if constexpr (OFF) store_anywhere<T, N>(a + at.first, words);
        else store_words<T, N>(a + at.first, words);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i)
            if (at.has(i)) a[at.first + i] = words.at(i);
    }
}

// Calls `act(whole)` for the stores of all lists. There is one branch for all of them, so that their accesses are
// consecutive.
template <int OFF, int N, typename Act> __device__ __forceinline__ void stores(const Place<N>& at, Act act) {
    if (OFF ? __all_sync(0xffffffffu, at.whole()) : at.whole()) act(true);
    else act(false);
}

__device__ constexpr bool is_off(int off, int list) { return off >> list & 1; }

// Returns true to the last of `count` blocks that call it, which then sees what the others wrote before their calls.
// One thread of a block calls it. It resets the counter to 0.
__device__ __forceinline__ bool arrive(uint32* counter, int64 count) {
    if (count == 1) return true;
    __threadfence();
    const bool last = atomicInc(counter, uint32(count - 1)) == uint32(count - 1);
    __threadfence();
    return last;
}
