// out[i, k] = scale[i, k / group] * weights[i, k], of weights in 8 or 4 bits; if LOW, what rounding to T removed from it
//
// Shapes: weights: `bytes` bytes, `line` in a row, signed; of 4 bits two in a byte, the first in the low half;
//         scales: (rows, groups), or null for ones; out: (rows, line * 8 / BITS), contiguous.
// Launch: one thread for each UNIT bytes, which divide `line`. The address of weights is a multiple of UNIT.
// Caller: devices/cuda/blas/mixed.py. OpSpecs: cuassay/testing/specs/scaled.py.

#include "element.cuh"

template <int BITS> __device__ __forceinline__ int number_of(unsigned byte, int which) {
    return BITS == 8 ? int(int8(byte)) : int((byte >> 4 * which & 15) ^ 8) - 8;
}

template <typename T, int BITS, int UNIT, bool LOW>
__global__ void dequantize(const uint8* weights, const typename Wide<T>::type* scales, T* out, int64 bytes, int64 line,
                           int64 group, int64 groups) {
    using W = typename Wide<T>::type;
    constexpr int kNumbers = 8 / BITS, kPack = UNIT * kNumbers * sizeof(T) > 16 ? 16 / sizeof(T) : UNIT * kNumbers;
    const int64 at = (int64(blockIdx.x) * blockDim.x + threadIdx.x) * UNIT;
    if (at >= bytes) return;
    const int64 row = at / line, first = (at - row * line) * kNumbers;
    const Pack<uint8, UNIT> pack = load_pack<uint8, UNIT>(weights + at);
#pragma unroll
    for (int start = 0; start < UNIT * kNumbers; start += kPack) {
        Pack<T, kPack> numbers;
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
            const int which = start + i;
            W number = number_of<BITS>(pack.at[which / kNumbers], which % kNumbers);
            if (scales) number *= scales[row * groups + (first + which) / group];
            numbers.at[i] = narrow<T>(LOW ? number - widen<W>(narrow<T>(number)) : number);
        }
        store_pack<T, kPack>(out + at * kNumbers + start, numbers);
    }
}
