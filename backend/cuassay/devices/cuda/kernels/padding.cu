// out[i, j, ...] = a[i - before_i, j - before_j, ...] if that index lies inside a, else value.
//
// Source: own. Filling out and then copying a into it would write most elements twice.
// Shapes: out: contiguous, up to 8 axes; a: any strides. T is an unsigned integer of the elements' size: bits are moved.
// Launch: 256 threads, one pack of N elements of out a thread.
// Caller: devices/cuda/ops/padding.py. OpSpecs: cuassay/testing/specs/storage.py.

#include "element.cuh"

constexpr int kMaxAxes = 8;

// Axes are listed from the innermost one outwards.
struct Padding {
    int64 n;
    int64 axes;
    int64 extent[kMaxAxes];  // of out
    int64 before[kMaxAxes];
    int64 length[kMaxAxes];  // of a
    int64 stride[kMaxAxes];  // of a, in elements
};

// The element of a that an element of out comes from, and its position along the innermost axis.
struct Place {
    int64 from, position;
    bool is_inside;
};

__device__ __forceinline__ Place place_of(const Padding& padding, int64 index) {
    Place place = {0, 0, true};
#pragma unroll
    for (int axis = 0; axis < kMaxAxes; ++axis) {
        if (axis >= padding.axes) break;
        const int64 extent = padding.extent[axis];
        int64 position;
        if ((index | extent) >> 31) {
            position = index % extent, index /= extent;
        } else {  // a 64-bit division is several times a 32-bit one
            position = uint32(index) % uint32(extent), index = uint32(index) / uint32(extent);
        }
        if (axis == 0) place.position = position;
        position -= padding.before[axis];
        place.is_inside = place.is_inside && position >= 0 && position < padding.length[axis];
        place.from += position * padding.stride[axis];
    }
    return place;
}

// WHOLE: a pack lies entirely inside a or entirely outside. The innermost axis is then counted in packs.
template <typename T, int N, bool WHOLE>
__global__ void pad(const T* a, T value, T* out, const __grid_constant__ Padding padding) {
    const int64 index = int64(blockIdx.x) * blockDim.x + threadIdx.x;
    Pack<T, N> pack;
    if (WHOLE) {
        if (index >= padding.n) return;
        const Place place = place_of(padding, index);
#pragma unroll
        for (int i = 0; i < N; ++i) pack.at[i] = value;
        if (place.is_inside) pack = load_pack<T, N>(a + place.from);
        store_pack<T, N>(out + index * N, pack);
        return;
    }
    const int64 first = index * N;
    if (first >= padding.n) return;
    // Along a row only the position in the row changes.
    const Place place = place_of(padding, first);
    const Place row = place_of(padding, first - place.position + padding.before[0]);  // the row's first element in a
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int64 along = place.position + i - padding.before[0];
        Place here = {row.from + along * padding.stride[0], 0, row.is_inside && along >= 0 && along < padding.length[0]};
        if (place.position + i >= padding.extent[0]) here = place_of(padding, first + i);
        pack.at[i] = here.is_inside && first + i < padding.n ? a[here.from] : value;
    }
    if (first + N <= padding.n) {
        store_pack<T, N>(out + first, pack);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (first + i < padding.n) out[first + i] = pack.at[i];
}
