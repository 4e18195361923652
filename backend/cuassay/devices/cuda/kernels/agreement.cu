// out, for each block: max over its elements of |got - expected| - relative * |expected|; sum of expected^2; their
// number.
//
// The kernel measures how far a result is from one that is known to be right, and how large the right one is. Equal
// elements, such as equal infinities, have no difference. Elements that are NaN in both arrays belong to gaps that
// nobody writes; they count in neither sum. If only one of the two is NaN, the excess is infinite. Infinities count in
// neither sum either.
// Shapes: got, expected: (count,), a complex number as two; found: (3, blocks) float64.
// Launch: 256 threads a block, any number of blocks.
// Caller: devices/cuda/blas/agreement.py.
// OpSpecs: cuassay/testing/specs/ has none, as this is not an op; suites/nvidia/blas/test_agreement.py tests it.

#include "element.cuh"

constexpr int BLOCK = 256;

struct Largest { __device__ double operator()(double a, double b) const { return fmax(a, b); } };
struct Together { __device__ double operator()(double a, double b) const { return a + b; } };

template <typename F> __device__ double of_block(double value, F combine) {
    __shared__ double of_threads[BLOCK];
    __syncthreads();
    of_threads[threadIdx.x] = value;
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            of_threads[threadIdx.x] = combine(of_threads[threadIdx.x], of_threads[threadIdx.x + half]);
    }
    return of_threads[0];
}

template <typename T>
__global__ void compare(const T* got, const T* expected, double* found, int64 count, double relative) {
    double excess = 0, squares = 0, elements = 0;
    const int64 stride = static_cast<int64>(gridDim.x) * BLOCK;
    for (int64 i = static_cast<int64>(blockIdx.x) * BLOCK + threadIdx.x; i < count; i += stride) {
        const double is = widen<double>(got[i]), right = widen<double>(expected[i]);
        if (is_nan(is) && is_nan(right)) continue;
        const double away = is == right ? 0 : fabs(is - right) - relative * fabs(right);
        excess = fmax(excess, is_nan(away) ? __longlong_as_double(0x7ff0000000000000) : away);
        if (!isfinite(right)) continue;  // otherwise any difference would be small relative to the sum
        squares += right * right;
        elements += 1;
    }
    excess = of_block(excess, Largest());
    squares = of_block(squares, Together());
    elements = of_block(elements, Together());
    if (threadIdx.x == 0) {
        found[blockIdx.x] = excess;
        found[gridDim.x + blockIdx.x] = squares;
        found[2 * gridDim.x + blockIdx.x] = elements;
    }
}
