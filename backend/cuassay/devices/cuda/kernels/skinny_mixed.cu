// out[j, i] = activation(sum_k scale[i, k / group] * weights[i, k] * inputs[j, k] + bias[i]), for few j: tokens
//
// The twin of skinny_narrow.cu for weights of 8 or 4 bits: it reads a half or a quarter of the bytes. Numbers of 8 and 4
// bits are exact in both 16-bit types, so tensor cores multiply them as they are, and the scales multiply float32 sums.
// A lane reads 16 consecutive bytes of a row, which are its numbers of several instructions: the order of the terms of a
// sum is free, as long as inputs are taken in the same order. So weights go from memory to registers, and nothing waits
// for other warps until the sums are added. What limits this kernel is the number of instructions for each byte.
//
// Shapes: weights: (rows, depth * BITS / 8) bytes, signed; of 4 bits two in a byte, the first in the low half;
//         inputs: (tokens, depth); out: (tokens, rows), the rows of a token contiguous; bias: (rows,);
//         scales: (rows,), or (rows, depth / group) if GROUPED, the group a multiple of a line of weights (64 bytes).
//         The addresses and strides of weights and inputs are multiples of 16 bytes.
// Launch: one block for each ROWS * WARPS rows, of 32 * WARPS * SLICES threads; each of the SLICES groups of warps takes
//         every SLICES-th line of a row, and has DEPTH lines under way. Compute capability 9.0. Dynamic shared memory:
//         SLICES * TOKENS lines of ROWS * WARPS + 4 floats.
// Caller: devices/cuda/blas/mixed.py. OpSpecs: cuassay/testing/specs/scaled.py.

#include "skinny.cuh"
#include "skinny_warps.cuh"

constexpr int kLine = 64;  // bytes of weights that four lanes read of a row

#if __CUDA_ARCH__ >= 900
// Two 16-bit numbers each, of a word of weights. A number is put into the last bits of a power of two, so that it needs
// no conversion, and the power is subtracted.
template <typename T> struct Sixteen;
template <> struct Sixteen<bfloat16> {
    static __device__ __forceinline__ unsigned minus(unsigned a, unsigned b) {
        return reinterpreted<unsigned>(__hsub2(reinterpreted<__nv_bfloat162>(a), reinterpreted<__nv_bfloat162>(b)));
    }
    // bfloat16 stores 7 bits after the leading one, so the sign bit of a byte lands in the exponent. The other 7 bits m
    // become 128 + m, from which 128 is subtracted, or 256 if the sign is set.
    template <int SELECT> static __device__ __forceinline__ unsigned of_bytes(unsigned word) {
        const unsigned both = __byte_perm(word, 0x43434343, SELECT);
        return minus(both & 0xff7fff7f, both & 0xff80ff80);
    }
    static __device__ __forceinline__ unsigned of_nibbles(unsigned word) {
        return minus((word & 0x000f000f) ^ 0x43084308, 0x43084308);
    }
};
template <> struct Sixteen<float16> {
    static __device__ __forceinline__ unsigned minus(unsigned a, unsigned b) {
        return reinterpreted<unsigned>(__hsub2(reinterpreted<__half2>(a), reinterpreted<__half2>(b)));
    }
    template <int SELECT> static __device__ __forceinline__ unsigned of_bytes(unsigned word) {
        return minus(__byte_perm(word ^ 0x80808080, 0x64646464, SELECT), 0x64806480);
    }
    static __device__ __forceinline__ unsigned of_nibbles(unsigned word) {
        return minus((word & 0x000f000f) ^ 0x64086408, 0x64086408);
    }
};

// The two pairs of numbers of a word of weights that one instruction multiplies: a word of 4 bits has two such parts, as
// number i and number i + 4 are taken out together. `pairs_of` takes the inputs of the same terms.
template <typename T, int BITS> struct Terms;
template <typename T> struct Terms<T, 8> {
    static constexpr int kParts = 1;
    static __device__ __forceinline__ void of(unsigned word, int, unsigned& first, unsigned& second) {
        first = Sixteen<T>::template of_bytes<0x4140>(word), second = Sixteen<T>::template of_bytes<0x4342>(word);
    }
    static __device__ __forceinline__ void pairs_of(const unsigned* inputs, int, unsigned& first, unsigned& second) {
        first = inputs[0], second = inputs[1];
    }
};
template <typename T> struct Terms<T, 4> {
    static constexpr int kParts = 2;
    static __device__ __forceinline__ void of(unsigned word, int part, unsigned& first, unsigned& second) {
        first = Sixteen<T>::of_nibbles(word >> 8 * part), second = Sixteen<T>::of_nibbles(word >> (8 * part + 4));
    }
    static __device__ __forceinline__ void pairs_of(const unsigned* inputs, int part, unsigned& first, unsigned& second) {
        first = __byte_perm(inputs[part], inputs[2 + part], 0x5410), second = __byte_perm(inputs[part], inputs[2 + part], 0x7632);
    }
};


// Weights are read once: they stay out of the level-1 cache, where the inputs are, and leave level 2 first.
__device__ __forceinline__ void read_once(unsigned (&to)[4], const uint4* from, uint64 policy) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from), "l"(policy));
}
__device__ __forceinline__ void read_again(unsigned (&to)[4], const uint4* from) {
    const uint4 value = __ldca(from);
    to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
}
#endif

// BLOCKS fit on a multiprocessor. `inverse` is 2^32 / (lines of a group), rounded up, or 0 for one line. A product with
// it divides exactly, because a row has at most 2^16 lines.
template <typename T, typename S, int BITS, bool GROUPED, int TOKENS, int ROWS, int WARPS, int SLICES, int DEPTH,
          int BLOCKS>
__global__ void __launch_bounds__(32 * WARPS * SLICES, BLOCKS)
skinny_mixed(const uint8* weights, const T* inputs, const S* scales, T* out, const T* bias, Extents extents, int groups,
             unsigned inverse, int activation) {
#if __CUDA_ARCH__ >= 900
    constexpr int kThreads = 32 * WARPS * SLICES, kRows = ROWS * WARPS, kTerms = kLine * 8 / BITS, kPieces = kTerms / 32;
    constexpr int kTiles = ROWS / 16, kGroups = TOKENS / 8;
    extern __shared__ __align__(16) float parts[];

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, quarter = lane % 4;
    const int slice = warp / WARPS, first_row = warp % WARPS * ROWS, tile_row = blockIdx.x * kRows;
    const int row_bytes = extents.depth / 8 * BITS, lines = (row_bytes + kLine - 1) / kLine;
    const Result<T> result = {nullptr, out, bias, {1, 0, activation}};
    const uint64 once = used_once();

    // Rows and tokens outside the extents read those of the last one; their sums are not stored.
    // Offsets are counted in pieces of 16 bytes, in 32 bits, because there are no registers to spare; the caller checks
    // that they fit.
    const uint4* pieces = reinterpret_cast<const uint4*>(weights);
    unsigned rows[kTiles][2];
    int scales_of[kTiles][2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = min(tile_row + first_row + t * 16 + half * 8 + lane / 4, extents.rows - 1);
            rows[t][half] = row * unsigned(extents.weights_leading / 16) + quarter;
            scales_of[t][half] = row * groups;
        }
    const uint4* inputs_of = reinterpret_cast<const uint4*>(inputs);
    int tokens[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
        tokens[g] = min(g * 8 + lane / 4, extents.tokens - 1) * int(extents.inputs_leading / 8) + quarter * kPieces;

#pragma unroll
    for (int t = 0; t < kTiles; ++t)  // the first lines, one cache line for each access
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (lane % 2 == 0 && slice * kLine < row_bytes) prefetch(pieces + (rows[t][half] - quarter + slice * 4));
    await_the_former_kernel();

    unsigned w[DEPTH][kTiles][2][4];
    float scale[DEPTH][kTiles][2];
    auto load = [&](int slot, int line) {
        const bool is_inside = line * kLine + quarter * 16 < row_bytes;
        const int group = GROUPED && inverse ? __umulhi(line, inverse) : line;
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (is_inside) {
                    read_once(w[slot][t][half], pieces + (rows[t][half] + line * 4), once);
                    if (GROUPED) scale[slot][t][half] = widen<float>(scales[scales_of[t][half] + group]);
                } else {
#pragma unroll
                    for (int i = 0; i < 4; ++i) w[slot][t][half][i] = 0;
                    scale[slot][t][half] = 0;
                }
            }
    };
    // Inputs come from level 2: those of the next line are read as soon as the same of this line have been multiplied.
    unsigned x[kGroups][kPieces][4];
    auto load_inputs = [&](int piece, int line) {
        const bool is_inside = line * kLine + quarter * 16 < row_bytes;
#pragma unroll
        for (int g = 0; g < kGroups; ++g)
            if (is_inside) read_again(x[g][piece], inputs_of + (tokens[g] + line * (kTerms / 8) + piece));
            else
#pragma unroll
                for (int i = 0; i < 4; ++i) x[g][piece][i] = 0;
    };
#pragma unroll
    for (int slot = 0; slot < DEPTH; ++slot) load(slot, slice + slot * SLICES);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) load_inputs(piece, slice);

    float sums[kTiles][kGroups][4] = {};
    for (int start = slice; start < lines; start += DEPTH * SLICES) {
#pragma unroll
        for (int slot = 0; slot < DEPTH; ++slot) {
            const int line = start + slot * SLICES;
            float own[kTiles][kGroups][4] = {};
            auto& to = GROUPED ? own : sums;
#pragma unroll
            for (int word = 0; word < 4; ++word) {
                const int piece = word * kPieces / 4;  // of inputs: eight, for a word in 4 bits or for two in 8
#pragma unroll
                for (int part = 0; part < Terms<T, BITS>::kParts; ++part) {
                    unsigned a[kTiles][4];
#pragma unroll
                    for (int t = 0; t < kTiles; ++t)
#pragma unroll
                        for (int half = 0; half < 2; ++half)
                            Terms<T, BITS>::of(w[slot][t][half][word], part, a[t][half], a[t][2 + half]);
#pragma unroll
                    for (int g = 0; g < kGroups; ++g) {
                        unsigned b[2];
                        Terms<T, BITS>::pairs_of(x[g][piece] + (BITS == 8 ? word % 2 * 2 : 0), part, b[0], b[1]);
#pragma unroll
                        for (int t = 0; t < kTiles; ++t) Warp<T>::add(to[t][g], a[t], b[0], b[1]);
                    }
                }
                if ((word + 1) * kPieces / 4 > piece) load_inputs(piece, line + SLICES);
            }
            if (GROUPED) {
#pragma unroll
                for (int t = 0; t < kTiles; ++t)
#pragma unroll
                    for (int g = 0; g < kGroups; ++g)
#pragma unroll
                        for (int i = 0; i < 4; ++i) sums[t][g][i] += scale[slot][t][i / 2] * own[t][g][i];
            }
            load(slot, line + DEPTH * SLICES);
        }
    }
    add_up<TOKENS, kRows, SLICES, kThreads>(parts, sums, slice, first_row, extents.tokens,
                                            [&](const float (&total)[4], int row, int token) {
        const int global_row = tile_row + row;
        if (global_row >= extents.rows) return;
        float scaled[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            scaled[i] = GROUPED ? total[i] : total[i] * widen<float>(scales[min(global_row + i, extents.rows - 1)]);
        store_rows(result, scaled, global_row, token, extents);
    });
#endif
}
