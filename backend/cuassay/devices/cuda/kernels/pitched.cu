// out[column][word] = in[column][word]: copies columns to a buffer whose columns are a different distance apart.
//
// Source: own. cudaMemcpy2DAsync copies columns that are not aligned to 16 bytes far more slowly than memory allows.
// Shapes: from: `columns` columns of `words` words, from_step words apart; to: the same, to_step words apart; no
//         overlap.
// Launch: a block of THREADS threads a column; each thread has UNROLL words in flight.
// Caller: devices/cuda/blas/padded.py.
// OpSpecs: cuassay/testing/specs/ has none, as this is not an op; suites/nvidia/blas/test_pitched.py tests it.

constexpr int THREADS = 256;
constexpr int UNROLL = 4;

template <typename Word>
__global__ void __launch_bounds__(THREADS)
copy_columns(const Word* __restrict__ from, long long from_step, Word* __restrict__ to, long long to_step,
             long long words) {
    from += blockIdx.x * from_step;
    to += blockIdx.x * to_step;
    for (long long first = threadIdx.x; first < words; first += THREADS * UNROLL) {
        Word held[UNROLL];
#pragma unroll
        for (int turn = 0; turn < UNROLL; ++turn) {
            if (first + turn * THREADS < words) held[turn] = from[first + turn * THREADS];
        }
#pragma unroll
        for (int turn = 0; turn < UNROLL; ++turn) {
            if (first + turn * THREADS < words) to[first + turn * THREADS] = held[turn];
        }
    }
}
