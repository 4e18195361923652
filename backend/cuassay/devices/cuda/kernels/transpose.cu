// out[..., j, i] = a[..., i, j] in memory: copies elements whose neighbours in `out` are far apart in `a`.
//
// Source: own; the tile in shared memory is as in M. Harris, "An efficient matrix transpose in CUDA C/C++". An
//         elementwise copy between such layouts ran at 1.1 TB/s on an H200, as that of torch does.
// Shapes: `rows` elements are neighbours in out, `columns` are neighbours in a, with any strides otherwise; up to 6
//         further axes with any strides. PACK > 1: extents, strides and addresses are multiples of PACK elements.
// Launch: a block of THREADS threads for each tile of TILE x TILE elements, along one axis of the grid. Each thread
//         loads TILE * TILE / THREADS elements before it stores the first.
// Caller: devices/cuda/ops/transposed.py.
// OpSpecs: cuassay/testing/specs/storage.py, `copy`; suites/nvidia/ops/test_transposed.py tests every layout.

#include "element.cuh"

constexpr int THREADS = 256;
constexpr int OUTER_AXES = 6;

struct Transposition {
    int64 rows, columns;
    int64 row_stride;     // between neighbours of out, in a
    int64 column_stride;  // between neighbours of a, in out
    int64 axes;
    int64 extent[OUTER_AXES], origin[OUTER_AXES], to[OUTER_AXES];
};

template <typename Word, int PACK>
__global__ void __launch_bounds__(THREADS)
transpose(const Word* __restrict__ a, Word* __restrict__ out, const Transposition place) {
    constexpr int TILE = sizeof(Word) < 8 ? 64 : 32;
    constexpr int LANES = TILE / PACK, LINES = THREADS / LANES, TURNS = TILE / LINES;
    // The row is one element longer than a tile, so that the elements of a column are in different banks.
    __shared__ Word tile[TILE][TILE + 1];

    const int64 row_tiles = (place.rows + TILE - 1) / TILE, column_tiles = (place.columns + TILE - 1) / TILE;
    int64 rest = blockIdx.x;
    const int64 column = rest % column_tiles * TILE;
    rest /= column_tiles;
    const int64 row = rest % row_tiles * TILE;
    rest /= row_tiles;
    for (int axis = 0; axis < place.axes; ++axis) {
        const int64 index = rest % place.extent[axis];
        rest /= place.extent[axis];
        a += index * place.origin[axis];
        out += index * place.to[axis];
    }
    a += row * place.row_stride + column;
    out += column * place.column_stride + row;

    const int lane = threadIdx.x % LANES * PACK, line = threadIdx.x / LANES;
    Pack<Word, PACK> held[TURNS];
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int at = line + turn * LINES;
        if (row + at < place.rows && column + lane < place.columns) {
            held[turn] = load_pack<Word, PACK>(a + at * place.row_stride + lane);
        }
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
#pragma unroll
        for (int i = 0; i < PACK; ++i) tile[line + turn * LINES][lane + i] = held[turn].at[i];
    }
    __syncthreads();
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int at = line + turn * LINES;
        Pack<Word, PACK> pack;
#pragma unroll
        for (int i = 0; i < PACK; ++i) pack.at[i] = tile[lane + i][at];
        if (column + at < place.columns && row + lane < place.rows) {
            store_pack<Word, PACK>(out + at * place.column_stride + lane, pack);
        }
    }
}
