// out[r, c] = exp(a[r, c] - max_c a[r]) / sum_c exp(a[r, c] - max_c a[r]); LOG: its logarithm; logsumexp: the sum's
// logarithm.
//
// One pass over memory: a row is read once, kept on the chip, and written once. The maximum and the sum are computed
// together while the row arrives (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", arXiv
// 1805.02867). The result is NaN for a row that is all -inf or contains NaN or +inf, as in torch.
// Shapes: a, out: (rows, columns), contiguous; logsumexp: out (rows,).
// Launch: softmax_short: 256 threads, a warp a row, columns <= 32 * N * PACKS. softmax_long: one block of 128 to 1,024
//         threads a row (float64: 512, because exp needs the registers). KEEP: dynamic shared memory of 16 bytes for
//         each pack of the row; otherwise the row is read twice, often from the level-2 cache. softmax_cluster (compute
//         capability 9.0): a cluster of CLUSTER blocks of 256 threads a row, each block with its share of the row in
//         shared memory. It serves rows so long that two do not fit on a multiprocessor: a block alone cannot load a
//         row while it computes another. Clusters that walk over rows and prefetch the next one were slower.
//         logsumexp_rows: LANES threads a row: 32 with eight rows a block, or all 256.
// Caller: devices/cuda/ops/normalization.py. OpSpecs: cuassay/testing/specs/reduction.py, statistics.py.

#include "cluster.cuh"
#include "rows.cuh"

template <typename T, int N, int PACKS, bool LOG = false>
__global__ void __launch_bounds__(256) softmax_short(const T* a, T* out, int64 rows, int64 columns) {
    using W = typename Wide<T>::type;
    const int64 row = int64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32;
    const T* from = a + row * columns;
    W values[PACKS][N], maximum = minus_infinity<W>(), sum = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {  // issue all loads before the first use
        const int64 at = (int64(p) * 32 + lane) * N;
        if (at < columns) {  // the host picks an N that divides the columns
            const Pack<T, N> pack = load_pack<T, N>(from + at);
#pragma unroll
            for (int i = 0; i < N; ++i) values[p][i] = widen<W>(pack.at[i]);
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i) values[p][i] = minus_infinity<W>();
        }
    }
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
        for (int i = 0; i < N; ++i) maximum = nan_maximum(maximum, values[p][i]);
    maximum = warp_max(maximum);
    // Unlike below, the shift is not guarded: a row of -inf becomes NaN here. Lanes past the end of the row must not
    // become NaN, so they hold -inf, whose exponential is 0 for every maximum except -inf.
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const W exponential = exponential_below(values[p][i], maximum);
            sum += exponential;
            if (!LOG) values[p][i] = exponential;
        }
    sum = warp_sum(sum);
    const W scale = W(1) / sum;
    const Level<W> level(maximum, sum);
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int64 at = (int64(p) * 32 + lane) * N;
        if (at < columns) {
            Pack<T, N> pack;
#pragma unroll
            for (int i = 0; i < N; ++i)
                pack.at[i] = narrow<T>(LOG ? values[p][i] - level.shift - level.rest : values[p][i] * scale);
            store_pack<T, N>(out + row * columns + at, pack);
        }
    }
}

// The running maximum, and the sum of exponentials below it.
template <typename T> struct Running {
    using W = typename Wide<T>::type;
    W maximum = minus_infinity<W>(), sum = 0;

    __device__ __forceinline__ void merge(W other_maximum, W other_sum) {
        const W both = nan_maximum(maximum, other_maximum), shift = shift_of(both);
        sum = sum * exponential_below(maximum, shift) + other_sum * exponential_below(other_maximum, shift);
        maximum = both;
    }
    // Adds several packs at once, so that the sum is rescaled to the new maximum only once, not once for each pack.
    template <int N, int COUNT> __device__ __forceinline__ void add(const Pack<T, N> (&packs)[COUNT]) {
        W top = widen<W>(packs[0].at[0]);
#pragma unroll
        for (int c = 0; c < COUNT; ++c)
#pragma unroll
            for (int i = 0; i < N; ++i) top = nan_maximum(top, widen<W>(packs[c].at[i]));
        const W both = nan_maximum(maximum, top), shift = shift_of(both);
        W added = 0;
#pragma unroll
        for (int c = 0; c < COUNT; ++c)
#pragma unroll
            for (int i = 0; i < N; ++i) added += exponential_below(widen<W>(packs[c].at[i]), shift);
        sum = sum * exponential_below(maximum, shift) + added;
        maximum = both;
    }
    __device__ __forceinline__ void add_one(T element) {
        const Pack<T, 1> pack[1] = {{element}};
        add(pack);
    }
    __device__ __forceinline__ void merge_warp() {
#pragma unroll
        for (int lane = 16; lane; lane /= 2)
            merge(__shfl_xor_sync(kAllLanes, maximum, lane), __shfl_xor_sync(kAllLanes, sum, lane));
    }
    __device__ __forceinline__ void merge_block() {
        __shared__ W maxima[32], sums[32];
        const int lane = threadIdx.x % 32;
        merge_warp();
        if (!lane) { maxima[threadIdx.x / 32] = maximum; sums[threadIdx.x / 32] = sum; }
        __syncthreads();
        maximum = lane < blockDim.x / 32 ? maxima[lane] : minus_infinity<W>();
        sum = lane < blockDim.x / 32 ? sums[lane] : W(0);
        merge_warp();
    }
};

// Rows of odd lengths begin at odd addresses. The elements before the first whole cache line are handled separately, so
// that a warp's accesses cover whole lines (16-byte alignment alone would touch a quarter more lines). Up to N - 1
// elements remain at the end. These extra elements are fewer than the threads of a block, so the first threads take one
// each.
template <typename T> constexpr int kLine = 128 / sizeof(T);

template <typename T, int N, bool KEEP, bool LOG = false>
__global__ void __launch_bounds__(sizeof(T) == 8 ? 512 : 1024, 1) softmax_long(const T* a, T* out, int64 columns) {
    using W = typename Wide<T>::type;
    constexpr int kInFlight = 4;  // packs that a thread loads before it uses the first: 64 bytes
    extern __shared__ __align__(16) unsigned char kept_bytes[];
    Pack<T, N>* kept = reinterpret_cast<Pack<T, N>*>(kept_bytes);  // each thread reads only its own writes: no barrier
    const T* from = a + int64(blockIdx.x) * columns;
    T* to = out + int64(blockIdx.x) * columns;

    const int64 misaligned = int64(reinterpret_cast<unsigned long long>(from) / sizeof(T) % kLine<T>);
    const int64 peeled = misaligned ? kLine<T> - misaligned : 0;
    const int64 head = peeled < columns ? peeled : columns;
    const int64 packs = (columns - head) / N, extras = columns - packs * N;
    const int64 extra = threadIdx.x < head ? int64(threadIdx.x) : packs * N + threadIdx.x;
    const T* body = from + head;

    Running<T> running;
    Pack<T, 1> odd[1];
    if (threadIdx.x < extras) {
        odd[0] = load_pack<T, 1>(from + extra);
        running.add(odd);
    }
    int64 p = threadIdx.x;
    for (; p + (kInFlight - 1) * int64(blockDim.x) < packs; p += kInFlight * int64(blockDim.x)) {
        Pack<T, N> flight[kInFlight];
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) flight[f] = load_pack<T, N>(body + (p + f * int64(blockDim.x)) * N);
#pragma unroll
        for (int f = 0; f < kInFlight; ++f)
            if (KEEP) kept[p + f * int64(blockDim.x)] = flight[f];
        running.add(flight);
    }
    for (; p < packs; p += blockDim.x) {
        const Pack<T, N> pack[1] = {load_pack<T, N>(body + p * N)};
        if (KEEP) kept[p] = pack[0];
        running.add(pack);
    }
    running.merge_block();

    const W maximum = running.maximum, scale = W(1) / running.sum;
    const Level<W> level(maximum, running.sum);
    const auto result = [&](T element) {
        const W value = widen<W>(element);
        return narrow<T>(LOG ? value - level.shift - level.rest : exponential_below(value, maximum) * scale);
    };
    if (threadIdx.x < extras) to[extra] = result(odd[0].at[0]);
    for (p = threadIdx.x; p < packs; p += blockDim.x) {
        Pack<T, N> pack = KEEP ? kept[p] : load_pack<T, N>(body + p * N);
#pragma unroll
        for (int i = 0; i < N; ++i) pack.at[i] = result(pack.at[i]);
        store_pack<T, N>(to + head + p * N, pack);
    }
}

// What a block keeps of its share of the row. For float it keeps the exponentials, so that each is computed once. For
// 16-bit types it keeps the elements, which take half the space: computing a fast exponential again costs less than the
// extra shared memory traffic.
template <typename T> struct Kept { using type = float; static constexpr bool exponentials = true; };
template <> struct Kept<float16> { using type = float16; static constexpr bool exponentials = false; };
template <> struct Kept<bfloat16> { using type = bfloat16; static constexpr bool exponentials = false; };

// Each block computes exponentials relative to the maximum of its own share. The blocks exchange (maximum, sum) once,
// and each block scales its exponentials by exp(own maximum - maximum) / sum.
template <typename T, int N, int CLUSTER, bool LOG = false>
__global__ void CLUSTER_OF(CLUSTER) __launch_bounds__(256)
softmax_cluster(const T* a, T* out, int64 columns) {
#if __CUDA_ARCH__ >= 900
    using K = typename Kept<T>::type;
    constexpr bool kExponentials = Kept<T>::exponentials && !LOG;
    constexpr int kInFlight = sizeof(T) == 4 ? 4 : 2;
    extern __shared__ __align__(16) unsigned char kept_bytes[];
    __shared__ float scratch[2][32], block_maximum, block_total;
    Pack<K, N>* kept = reinterpret_cast<Pack<K, N>*>(kept_bytes);  // each thread reads only its own writes
    const unsigned rank = cluster_rank();
    const int64 row = blockIdx.x / CLUSTER;
    const T* from = a + row * columns;
    T* to = out + row * columns;

    const int64 misaligned = int64(reinterpret_cast<unsigned long long>(from) / sizeof(T) % kLine<T>);
    const int64 peeled = misaligned ? kLine<T> - misaligned : 0;
    const int64 head = peeled < columns ? peeled : columns;
    const int64 packs = (columns - head) / N, extras = columns - packs * N;
    const int64 extra = threadIdx.x < head ? int64(threadIdx.x) : packs * N + threadIdx.x;
    const bool has_extra = rank == 0 && threadIdx.x < extras;
    const int64 share = (packs / CLUSTER + 8) / 8 * 8, begin = rank * share;  // whole lines; more than packs / CLUSTER
    const int count = int(begin + share < packs ? share : (begin < packs ? packs - begin : 0)), stride = blockDim.x;
    const T* body = from + head + begin * N;

    float odd = minus_infinity<float>(), maximum = odd;
    if (has_extra) maximum = odd = widen<float>(from[extra]);
    for (int p = threadIdx.x; p < count; p += kInFlight * stride) {
        Pack<T, N> flight[kInFlight];
#pragma unroll
        for (int f = 0; f < kInFlight; ++f)
            if (p + f * stride < count) flight[f] = load_pack<T, N>(body + int64(p + f * stride) * N);
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) {
            if (p + f * stride >= count) break;
            Pack<K, N> pack;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                maximum = nan_maximum(maximum, widen<float>(flight[f].at[i]));
                pack.at[i] = static_cast<K>(flight[f].at[i]);
            }
            kept[p + f * stride] = pack;
        }
    }
    maximum = block_max(maximum, scratch[0]);

    const float shift = shift_of(maximum);
    float sum = 0;
    if (has_extra) sum = exponential_below(odd, shift);
    for (int p = threadIdx.x; p < count; p += stride) {
        Pack<K, N> pack = kept[p];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float exponential = exponential_below(widen<float>(pack.at[i]), shift);
            sum += exponential;
            if (kExponentials) pack.at[i] = static_cast<K>(exponential);
        }
        if (kExponentials) kept[p] = pack;
    }
    sum = block_sum(sum, scratch[1]);

    if (!threadIdx.x) block_maximum = maximum, block_total = sum;
    cluster_arrive();
    cluster_wait();
    float top = minus_infinity<float>(), total = 0;
#pragma unroll
    for (int other = 0; other < CLUSTER; ++other) top = nan_maximum(top, *in_block(other, &block_maximum));
    const float top_shift = shift_of(top);
#pragma unroll
    for (int other = 0; other < CLUSTER; ++other)
        total += *in_block(other, &block_total) * exponential_below(*in_block(other, &block_maximum), top_shift);
    cluster_arrive();  // no block reads another's variables after this; a block may end once all arrive
    const float scale = exponential_below(maximum, top_shift) / total;  // a row of -inf: 0 / 0
    const Level<float> level(top, total);
    const auto result = [&](float value, bool is_exponential) {
        if (LOG) return narrow<T>(value - level.shift - level.rest);
        return narrow<T>((is_exponential ? value : exponential_below(value, shift)) * scale);
    };

    if (has_extra) to[extra] = result(odd, false);
    for (int p = threadIdx.x; p < count; p += stride) {
        const Pack<K, N> own = kept[p];
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; ++i) pack.at[i] = result(widen<float>(own.at[i]), kExponentials);
        store_pack<T, N>(to + head + begin * N + int64(p) * N, pack);
    }
    cluster_wait();
#endif
}

template <typename T, int N, int LANES>
__global__ void __launch_bounds__(256) logsumexp_rows(const T* a, T* out, int64 rows, int64 columns) {
    const int64 row = int64(blockIdx.x) * (blockDim.x / LANES) + threadIdx.x / LANES;
    if (row >= rows) return;
    constexpr int kInFlight = 4;
    const T* from = a + row * columns;
    const int64 lane = threadIdx.x % LANES, head = before_packs<T, N>(from, columns);
    Running<T> running;
    if (lane < head) running.add_one(from[lane]);
    int64 at = head + lane * N;
    for (; at + (kInFlight - 1) * LANES * N + N <= columns; at += kInFlight * LANES * N) {
        Pack<T, N> flight[kInFlight];
#pragma unroll
        for (int f = 0; f < kInFlight; ++f) flight[f] = load_pack<T, N>(from + at + f * LANES * N);
        running.add(flight);
    }
    for (; at + N <= columns; at += LANES * N) {
        const Pack<T, N> pack[1] = {load_pack<T, N>(from + at)};
        running.add(pack);
    }
    for (; at < columns; ++at) running.add_one(from[at]);
    if (LANES == 32) running.merge_warp();
    else running.merge_block();
    const Level<typename Wide<T>::type> level(running.maximum, running.sum);
    if (threadIdx.x % LANES == 0) out[row] = narrow<T>(level.shift + level.rest);
}
