// out[i, j] = activation(alpha * sum_k a[i, k] * b[k, j] + beta * c[i, j] + bias[j]), float32 on bfloat16 tensor cores
//
// Each float32 number is split into a sum of two or three bfloat16 numbers, largest first: x = x0 + x1 (+ x2). The
// products of the parts are exact, and the PRODUCTS largest ones are added (G. Henry, P. T. P. Tang, A. Heinecke,
// "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations", ARITH 2019). The tensor
// cores of compute capability 9.0 truncate every sum, so the kernel keeps their sums short: after CHAIN chunks of 64
// terms it adds them to separate float32 sums, rounded to nearest (H. Ootomo, R. Yokota, "Recovering single precision
// accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", IJHPCA 36, 2022). Within a chunk
// the small products come first, while the sum is small.
// Shapes: a: (batch, rows, depth), b: (batch, depth, columns), out and c: (batch, rows, columns), any strides; bias: (columns,).
// Launch: split_parts: 256 threads; one block for each tile of 128 rows (of b: columns) and 64 terms; first the tiles
//         of a, then b's. multiply_parts: 384 threads: two warpgroups multiply 64 rows each, and one thread of the
//         third loads; one block a multiprocessor, which walks over tiles of 128 x 128; `emulation.Form.shared` gives
//         the dynamic shared memory. Both need sm_90a: no other architecture has these multiply and load instructions.
// Caller: devices/cuda/blas/emulation.py. OpSpecs: cuassay/testing/specs/linalg.py.

#include "element.cuh"

constexpr int ROWS = 128, DEPTH = 64;           // a tile has 128 bytes a row, as one swizzled row of wgmma
constexpr int PLANE_NBYTES = ROWS * DEPTH * 2;  // one part of a tile
constexpr int FLAG_NBYTES = 16;                 // a flag after the parts: the tile has a number that is not finite

// The size of a tile in device memory, rounded up to 128 bytes.
__device__ constexpr int image_nbytes(int parts) { return parts * PLANE_NBYTES + 128; }

// ------------------------------------------------------------------------------------------------ splitting

__device__ __forceinline__ uint32 bits_of(bfloat16 x) { return __bfloat16_as_ushort(x); }

// The largest finite numbers would round to infinity. They are truncated instead, and the next part holds the
// difference.
__device__ __forceinline__ bfloat16 leading_part(float x) {
    const bfloat16 nearest = __float2bfloat16_rn(x);
    return isinf(__bfloat162float(nearest)) && isfinite(x) ? __float2bfloat16_rz(x) : nearest;
}

// Stores eight consecutive terms of a row, part by part. If a number is not finite, its further parts are 0.
template <int PARTS> __device__ __forceinline__ void store_parts(const float (&x)[8], uint8* to) {
    float rest[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) rest[i] = x[i];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        uint32 packed[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const bfloat16 found = leading_part(rest[i]);
            packed[i] = bits_of(found);
            rest[i] = isfinite(rest[i]) ? rest[i] - __bfloat162float(found) : 0.0f;
        }
        *reinterpret_cast<uint4*>(to + part * PLANE_NBYTES) =
            make_uint4(packed[0] | packed[1] << 16, packed[2] | packed[3] << 16, packed[4] | packed[5] << 16,
                       packed[6] | packed[7] << 16);
    }
}

// An operand to split: rows of `depth` terms, with any strides.
struct Operand {
    const float* x;
    uint8* images;
    int64 rows, batch_stride, row_stride, depth_stride;
    int row_tiles, tiles;  // the number in one matrix, and in all matrices to split
};

// Each tile is written in the layout it will have in shared memory: rows of 128 bytes whose 16-byte pieces are permuted
// by the row number (the 128-byte swizzle), with zeros beyond the matrix. So one bulk copy loads a tile, without a
// tensor map.
template <int PARTS> __global__ void __launch_bounds__(256, 4) split_parts(Operand a, Operand b, int64 depth) {
    constexpr int PIECES = ROWS * DEPTH / 8 / 256;
    __shared__ __align__(16) float turned[DEPTH * ROWS + DEPTH / 8 * 4];
    const int chunks = int((depth + DEPTH - 1) / DEPTH), chunk = blockIdx.x % chunks, index = blockIdx.x / chunks;
    const Operand of = index < a.tiles ? a : b;
    const int tile = index < a.tiles ? index : index - a.tiles;
    const int64 rows = of.rows, row_stride = of.row_stride, depth_stride = of.depth_stride;
    const int64 first_row = int64(tile % of.row_tiles) * ROWS, first = int64(chunk) * DEPTH;
    const float* from = of.x + tile / of.row_tiles * of.batch_stride + first_row * row_stride + first * depth_stride;
    uint8* image = of.images + (int64(tile) * chunks + chunk) * image_nbytes(PARTS);
    const bool whole = first_row + ROWS <= rows && first + DEPTH <= depth;
    float values[PIECES][8];
    if (row_stride == 1 && depth_stride != 1) {  // contiguous along the rows: transpose in shared memory
        // Four words of padding after every eight terms: eight lanes that read eight terms each then use different
        // banks.
        auto place = [&](int k, int row) { return turned + k * ROWS + k / 8 * 4 + row; };
        if (whole && reinterpret_cast<uint64>(from) % 16 == 0 && depth_stride % 4 == 0) {
#pragma unroll
            for (int at = threadIdx.x * 4; at < DEPTH * ROWS; at += 1024)
                *reinterpret_cast<float4*>(place(at / ROWS, at % ROWS)) =
                    *reinterpret_cast<const float4*>(from + at / ROWS * depth_stride + at % ROWS);
        } else {
            for (int at = threadIdx.x; at < DEPTH * ROWS; at += 256) {
                const int k = at / ROWS, row = at % ROWS;
                *place(k, row) = first_row + row < rows && first + k < depth ? from[row + k * depth_stride] : 0.0f;
            }
        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            const int at = p * 256 + threadIdx.x;
#pragma unroll
            for (int i = 0; i < 8; ++i) values[p][i] = *place(at % 8 * 8 + i, at / 8);
        }
    } else if (whole && depth_stride == 1 && reinterpret_cast<uint64>(from) % 16 == 0 && row_stride % 4 == 0) {
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            const int at = p * 256 + threadIdx.x;
            const float4* place = reinterpret_cast<const float4*>(from + at / 8 * row_stride + at % 8 * 8);
            const float4 low = place[0], high = place[1];
            values[p][0] = low.x, values[p][1] = low.y, values[p][2] = low.z, values[p][3] = low.w;
            values[p][4] = high.x, values[p][5] = high.y, values[p][6] = high.z, values[p][7] = high.w;
        }
    } else {
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            const int at = p * 256 + threadIdx.x, row = at / 8;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int k = at % 8 * 8 + i;
                const bool inside = first_row + row < rows && first + k < depth;
                values[p][i] = inside ? from[row * row_stride + k * depth_stride] : 0.0f;
            }
        }
    }
    bool special = false;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
        const int at = p * 256 + threadIdx.x, row = at / 8, piece = at % 8;
#pragma unroll
        for (int i = 0; i < 8; ++i) special |= !isfinite(values[p][i]);
        store_parts<PARTS>(values[p], image + row * 128 + (piece ^ row % 8) * 16);
    }
    special = __syncthreads_or(special);
    if (threadIdx.x == 0) *reinterpret_cast<uint4*>(image + PARTS * PLANE_NBYTES) = make_uint4(special, 0, 0, 0);
}

// ------------------------------------------------------------------------------------------------ instructions

__device__ __forceinline__ uint32 shared_address(const void* at) { return uint32(__cvta_generic_to_shared(at)); }

__device__ __forceinline__ void barrier_init(uint32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void barrier_arrive(uint32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32 barrier, int nbytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(nbytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32 barrier, int phase) {
    uint32 done = 0;
    while (!done) {
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(barrier), "r"(phase)
            : "memory");
    }
}
// memcheck treats pages mapped side by side as separate allocations, and reports a copy that crosses from one to the
// next.
__device__ __forceinline__ void bulk_load(uint32 to, const void* from, int nbytes, uint32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(nbytes), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void multipliers_meet() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
// The accumulators of an asynchronous wgmma may not be read before the wait or written after the start, which the
// compiler cannot know.
template <int N> __device__ __forceinline__ void hold(float (&sum)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

// The descriptor of a matrix with rows of 128 bytes and the 128-byte swizzle: groups of eight rows are 1,024 bytes
// apart (PTX ISA, "Matrix descriptor"). An offset of sixteen terms is 32 bytes.
__device__ __forceinline__ uint64 descriptor(uint32 address) {
    return uint64((address & 0x3ffff) >> 4) | uint64(1) << 16 | uint64(1024 >> 4) << 32 | uint64(1) << 62;
}

#define SUMS4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SUMS16(i) SUMS4(i), SUMS4(i + 4), SUMS4(i + 8), SUMS4(i + 12)
#define SUMS64(i) SUMS16(i), SUMS16(i + 16), SUMS16(i + 32), SUMS16(i + 48)
#define NAMES64                                                                                                         \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"     \
    "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"    \
    "%58,%59,%60,%61,%62,%63"
// sum (64, 128) += a (64, 16) b (128, 16)^T, computed by a warpgroup in which each thread holds 64 sums; `keep` = 0
// overwrites sum.
__device__ __forceinline__ void wgmma(float (&sum)[64], uint64 a, uint64 b, int keep) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES64
                 "}, %64, %65, p, 1, 1, 0, 0; }"
                 : SUMS64(0)
                 : "l"(a), "l"(b), "r"(keep));
}

// ------------------------------------------------------------------------------------------------ multiplying

// The products to add, the smallest first: (part of a, part of b).
template <int PRODUCTS> struct Terms;
template <> struct Terms<3> { static constexpr int a[] = {1, 0, 0}, b[] = {0, 1, 0}; };
template <> struct Terms<6> { static constexpr int a[] = {2, 0, 1, 1, 0, 0}, b[] = {0, 2, 1, 0, 1, 0}; };
template <> struct Terms<9> { static constexpr int a[] = {2, 2, 1, 2, 0, 1, 1, 0, 0}, b[] = {2, 1, 2, 0, 2, 1, 0, 1, 0}; };

// How results are stored: a warp stores its 16 rows in groups of 32 columns, so that neighbouring elements are stored
// together. Padding between the rows in shared memory puts the lanes' pairs in different banks.
constexpr int STORED_ROWS = 16, STORED_COLUMNS = 32, PITCH = STORED_COLUMNS + 8;

struct Layout {
    int64 batch, row, column;  // strides in elements
};

struct Epilogue {
    float* out;
    const float* c;     // or null
    const float* bias;  // or null
    Layout out_layout, c_layout;
    int64 rows, columns;
    float alpha, beta;
    int activation;  // 0 none, 1 relu, 2 gelu, tanh form

    __device__ __forceinline__ float activated(float x) const {
        if (activation == 1) return isnan(x) || x > 0.0f ? x : 0.0f;
        if (activation == 2) return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
        return x;
    }
    // Stores one column of STORED_ROWS rows, which are PITCH apart in `found`.
    __device__ __forceinline__ void store(const float* found, int64 batch, int64 row, int64 column) const {
        if (column >= columns) return;
        float* at = out + batch * out_layout.batch + row * out_layout.row + column * out_layout.column;
        const float* third = c ? c + batch * c_layout.batch + row * c_layout.row + column * c_layout.column : nullptr;
        const float added = bias ? bias[column] : 0.0f;
        for (int first = 0; first < STORED_ROWS; first += 4) {
            float x[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const bool inside = row + first + i < rows;
                x[i] = alpha * found[(first + i) * PITCH];
                if (c && inside) x[i] += beta * third[(first + i) * c_layout.row];
                if (bias) x[i] += added;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (row + first + i < rows) at[(first + i) * out_layout.row] = activated(x[i]);
        }
    }
};

// The position of tile `index`. Tiles that run at the same time form a block, so that the level-2 cache holds what they
// read.
struct Place {
    int batch, row, column;
    __device__ __forceinline__ Place(int index, int row_tiles, int column_tiles) {
        constexpr int GROUP = 12;
        batch = index / (row_tiles * column_tiles);
        index -= batch * row_tiles * column_tiles;
        const int group = index / (GROUP * column_tiles), height = min(GROUP, row_tiles - group * GROUP);
        index -= group * GROUP * column_tiles;
        row = group * GROUP + index % height;
        column = index / height;
    }
};

// 256 threads replace numbers that are not finite by 0 in a plane, because infinity times a part that is zero would be
// NaN.
__device__ __forceinline__ void drop_specials(uint8* plane, int thread) {
    for (int at = thread * 4; at < PLANE_NBYTES; at += 1024) {
        uint32 pair = *reinterpret_cast<uint32*>(plane + at);
        if ((pair & 0x7f80u) == 0x7f80u) pair &= 0xffff0000u;
        if ((pair & 0x7f800000u) == 0x7f800000u) pair &= 0xffffu;
        *reinterpret_cast<uint32*>(plane + at) = pair;
    }
}

template <int PARTS, int PRODUCTS, int STAGES, int CHAIN>
__global__ void __launch_bounds__(384, 1)
    multiply_parts(const uint8* a, const uint8* b, Epilogue to, int chunks, int batch, bool same_a, bool same_b) {
    constexpr int IMAGE = image_nbytes(PARTS), LOADED = PARTS * PLANE_NBYTES + FLAG_NBYTES, SUMS = 64;
    constexpr int OPERAND_NBYTES = PARTS * PLANE_NBYTES + 1024;  // planes begin at multiples of 1,024 bytes
    using Sum = Terms<PRODUCTS>;
    extern __shared__ uint8 memory[];
    __shared__ __align__(8) uint64 barriers[2 * STAGES];
    __shared__ __align__(8) float staged[8][STORED_ROWS * PITCH];
    uint8* const stages = memory + (1024 - shared_address(memory) % 1024) % 1024;
    const int row_tiles = int((to.rows + ROWS - 1) / ROWS), column_tiles = int((to.columns + ROWS - 1) / ROWS);
    const int tiles = batch * row_tiles * column_tiles;
    const uint32 full = shared_address(barriers), empty = full + 8 * STAGES;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // marks it as uniform

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, 8);  // one arrival from each warp that multiplies
        }
        asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
    }
    __syncthreads();

    int stage = 0, phase = 0;
    auto advance = [&] {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    };
    if (warp >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");  // 24 + 2 * 240 = 3 * 168 registers
        if (threadIdx.x != 256) return;
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const Place place(tile, row_tiles, column_tiles);
            const uint8* left = a + (int64(same_a ? 0 : place.batch) * row_tiles + place.row) * chunks * IMAGE;
            const uint8* right = b + (int64(same_b ? 0 : place.batch) * column_tiles + place.column) * chunks * IMAGE;
            for (int chunk = 0; chunk < chunks; ++chunk, advance()) {
                const uint32 at = shared_address(stages) + stage * 2 * OPERAND_NBYTES, loaded = full + 8 * stage;
                barrier_wait(empty + 8 * stage, phase ^ 1);
                barrier_expect(loaded, 2 * LOADED);
                bulk_load(at, left + int64(chunk) * IMAGE, LOADED, loaded);
                bulk_load(at + OPERAND_NBYTES, right + int64(chunk) * IMAGE, LOADED, loaded);
            }
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const Place place(tile, row_tiles, column_tiles);
        float sum[SUMS], chain[SUMS];
#pragma unroll
        for (int i = 0; i < SUMS; ++i) sum[i] = 0.0f;
        auto take = [&] {
#pragma unroll
            for (int i = 0; i < SUMS; ++i) sum[i] += chain[i];
        };
        for (int chunk = 0; chunk < chunks; ++chunk, advance()) {
            barrier_wait(full + 8 * stage, phase);
            uint8 *const held_a = stages + stage * 2 * OPERAND_NBYTES, *const held_b = held_a + OPERAND_NBYTES;
            const uint64 left = descriptor(shared_address(held_a) + warp / 4 * PLANE_NBYTES / 2);
            const uint64 right = descriptor(shared_address(held_b));
            auto add = [&](int term, int keep) {
#pragma unroll
                for (int k = 0; k < DEPTH / 16; ++k)
                    wgmma(chain, left + (Sum::a[term] * PLANE_NBYTES + k * 32) / 16,
                          right + (Sum::b[term] * PLANE_NBYTES + k * 32) / 16, keep || k);
            };
            const uint32 special = *reinterpret_cast<volatile uint32*>(held_a + PARTS * PLANE_NBYTES) |
                                   *reinterpret_cast<volatile uint32*>(held_b + PARTS * PLANE_NBYTES);
            const int keep = chunk % CHAIN;
            if (__any_sync(~0u, special)) {  // only the product of the leading parts keeps infinities and NaN
                wgmma_begin();
                add(PRODUCTS - 1, keep);
                wgmma_commit();
                wgmma_wait();
                hold(chain);
                take();
                multipliers_meet();
                drop_specials(held_a, threadIdx.x);
                drop_specials(held_b, threadIdx.x);
                asm volatile("fence.proxy.async;" ::: "memory");
                multipliers_meet();
                wgmma_begin();
#pragma unroll
                for (int term = 0; term < PRODUCTS - 1; ++term) add(term, term);
                wgmma_commit();
                wgmma_wait();
            } else {
                wgmma_begin();
#pragma unroll
                for (int term = 0; term < PRODUCTS; ++term) add(term, keep || term);
                wgmma_commit();
                wgmma_wait();
            }
            hold(chain);
            if (lane == 0) barrier_arrive(empty + 8 * stage);
            if (chunk + 1 == chunks || chunk % CHAIN == CHAIN - 1) take();
        }
        const int64 row = int64(place.row) * ROWS + warp * STORED_ROWS, column = int64(place.column) * ROWS + lane;
        float* const left_top = staged[warp] + lane / 4 * PITCH + lane % 4 * 2;
#pragma unroll
        for (int first = 0; first < ROWS; first += STORED_COLUMNS) {
#pragma unroll
            for (int i = 0; i < STORED_COLUMNS; i += 8) {  // in every 8 columns a lane holds two neighbours in two rows
                const float* found = sum + (first + i) / 2;
                *reinterpret_cast<float2*>(left_top + i) = make_float2(found[0], found[1]);
                *reinterpret_cast<float2*>(left_top + i + 8 * PITCH) = make_float2(found[2], found[3]);
            }
            __syncwarp();
            to.store(staged[warp] + lane, place.batch, row, column + first);
            __syncwarp();
        }
    }
}
