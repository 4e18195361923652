// CUDA C++ on the host: enough of the language, of its intrinsics and of a launch for our kernels.
//
// The threads of a block are fibers of one thread of the operating system. One runs until it comes to a barrier or a
// shuffle, then another one does, in an order that is drawn anew for each block: a result that depends on the order
// differs from launch to launch. In half of the blocks a warp runs as far as it can before the next one begins. The blocks
// of a cluster run together in the same way. Shared memory holds no former
// values, ends in a guard, and is another one in each block. What would hang or be undefined on a GPU ends the launch
// with a message: threads at different barriers, a shuffle among lanes that do not take part, a write past shared
// memory, an index outside of an array of a thread, a vector whose address is not aligned, a load beyond an array, a
// read of the memory of a block that has ended.
//
// compiler.py translates `__shared__` and PTX to what is declared here; runtime.cpp runs the threads.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// After the toolkit's headers: they would take the device's branches.
#define __CUDA_ARCH__ 900

struct Index { unsigned x, y, z; };
extern Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

struct Config { unsigned grid[3], block[3], shared, unused; std::uint64_t stream; void* attributes; unsigned count; };

void wait_at(int barrier);                                           // which of the text's barriers
void* shared_at(const void* variable, std::size_t nbytes);           // where a variable lies in this block's memory
void* dynamic_memory();
unsigned thread();                                                   // number of the running thread in its block
std::uint64_t exchange(unsigned mask, std::uint64_t given, unsigned from);  // what lane `from` gave
unsigned rank();                                                     // of the block in its cluster
unsigned cluster_size();
unsigned offset_of(const void* local);                               // in the block's shared memory
const void* at_offset(unsigned rank, unsigned offset);
void arrive();                                                       // at the barrier of the cluster
void wait_for_cluster();
const void* in_rank(unsigned rank, const void* local);               // the same variable of another block
void check_load(const void* from, std::size_t nbytes);               // of an array, and of nothing next to it
void fault(const char* message);
const char* launch(const Config* config, void** arguments, void (*body)(void**), std::size_t cluster);

// ------------------------------------------------------------------------------------------------ shared memory

template <typename T, int VARIABLE> struct Tag { static constexpr char value = 0; };

template <typename T, int VARIABLE> T& shared() {
    return *static_cast<T*>(shared_at(&Tag<T, VARIABLE>::value, sizeof(T)));
}

template <typename T> T* dynamic_shared() { return static_cast<T*>(dynamic_memory()); }

// ------------------------------------------------------------------------------------------------ shuffles

// Every lane of `mask` gives `value`; gets what lane `from` gave, or keeps its own where the mask does not name that.
template <typename T> T exchanged(unsigned mask, T value, unsigned from) {
    static_assert(sizeof(T) <= 8, "a shuffle of at most 64 bits");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = exchange(mask, bits, from);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

inline unsigned lane() { return thread() % 32; }

inline unsigned ballot(unsigned mask, bool one) {
    unsigned all = 0;
    for (unsigned other = 0; other < 32; ++other)
        if (mask >> other & 1) all |= unsigned(exchanged<int>(mask, one, other)) << other;
    return all;
}

// ------------------------------------------------------------------------------------------------ a launch

// What a kernel is called by: its parameters come as the driver takes them, an address each.
template <typename Function> struct Entry;
template <typename... Parameters> struct Entry<void (*)(Parameters...)> {
    static constexpr int count = sizeof...(Parameters);
    static constexpr int sizes[sizeof...(Parameters) + 1] = {int(sizeof(Parameters))...};
    template <void (*KERNEL)(Parameters...)> static void call(void** given) {
        spread<KERNEL>(given, std::make_index_sequence<sizeof...(Parameters)>());
    }
    template <void (*KERNEL)(Parameters...), size_t... I> static void spread(void** given, std::index_sequence<I...>) {
        KERNEL(*static_cast<std::remove_const_t<Parameters>*>(given[I])...);
    }
};

}  // namespace host

#define HOST_KERNEL(CLUSTER, ...)                                                                          \
    using Entry_ = host::Entry<decltype(&__VA_ARGS__)>;                                                    \
    extern "C" int host_count() { return Entry_::count; }                                                  \
    extern "C" const int* host_sizes() { return Entry_::sizes; }                                           \
    extern "C" const char* host_launch(const host::Config* config, void** given) {                         \
        return host::launch(config, given, &Entry_::call<&__VA_ARGS__>, CLUSTER);                          \
    }

// ------------------------------------------------------------------------------------------------ intrinsics

#define __syncthreads() host::wait_at(__COUNTER__)
inline void __syncwarp(unsigned mask = 0xffffffffu) { host::exchanged<int>(mask, 0, 0); }
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int lanes) {
    return host::exchanged(mask, value, host::lane() ^ lanes);
}
template <typename T> T __shfl_up_sync(unsigned mask, T value, unsigned by) {
    return host::exchanged(mask, value, host::lane() < by ? host::lane() : host::lane() - by);
}
template <typename T> T __shfl_sync(unsigned mask, T value, int from) { return host::exchanged(mask, value, from & 31); }
inline unsigned __ballot_sync(unsigned mask, bool one) { return host::ballot(mask, one); }
inline bool __all_sync(unsigned mask, bool one) { return host::ballot(mask, one) == mask; }
inline bool __any_sync(unsigned mask, bool one) { return host::ballot(mask, one) != 0; }

inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __popc(unsigned int bits) { return __builtin_popcount(bits); }
inline void __threadfence() {}
template <typename T, typename U> T atomicAdd(T* at, U more) { const T old = *at; *at = old + T(more); return old; }
inline unsigned atomicInc(unsigned* at, unsigned last) { const unsigned old = *at; *at = old >= last ? 0 : old + 1; return old; }

template <typename T> T host_load(const T* from) {
    if (reinterpret_cast<std::uintptr_t>(from) % sizeof(T)) host::fault("a load whose address is not a multiple of its size");
    host::check_load(from, sizeof(T));
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}
template <typename T> T __ldca(const T* from) { return host_load(from); }
template <typename T> T __ldcg(const T* from) { return host_load(from); }
template <typename T> T __ldg(const T* from) { return host_load(from); }
template <typename T> void __stwb(T* to, T value) {
    if (reinterpret_cast<std::uintptr_t>(to) % sizeof(T)) host::fault("a store whose address is not a multiple of its size");
    std::memcpy(to, &value, sizeof(T));
}

template <typename To, typename From> To host_bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from, "of one size");
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline float __int_as_float(int bits) { return host_bits<float>(bits); }
inline float __uint_as_float(unsigned bits) { return host_bits<float>(bits); }
inline int __float_as_int(float value) { return host_bits<int>(value); }
inline unsigned __float_as_uint(float value) { return host_bits<unsigned>(value); }
inline double __longlong_as_double(long long bits) { return host_bits<double>(bits); }
inline long long __double_as_longlong(double value) { return host_bits<long long>(value); }

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned select) {
    const std::uint64_t both = std::uint64_t(high) << 32 | low;
    unsigned found = 0;
    for (int i = 0; i < 4; ++i) found |= unsigned(both >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
    return found;
}
inline size_t __cvta_generic_to_shared(const void* at) { return host::offset_of(at); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(static_cast<unsigned long long>(a) * b >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    by &= 31;
    return by ? low >> by | high << (32 - by) : low;
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline double normcdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
inline double sinpi_within_half(double x) { return double(std::sin(3.14159265358979323846L * x)); }
inline void sincospi(double x, double* s, double* c) {
    const double turn = std::remainder(x, 2.0), of_half = std::fabs(turn);  // all differences below are exact
    *s = std::copysign(sinpi_within_half(of_half > 0.5 ? 1.0 - of_half : of_half), turn);
    *c = sinpi_within_half(0.5 - of_half);
}
inline void sincospif(float x, float* s, float* c) {
    double sine, cosine;
    sincospi(x, &sine, &cosine);
    *s = float(sine), *c = float(cosine);
}
using std::isfinite;
using std::isnan;
using std::isinf;
template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T max(T a, T b) { return a < b ? b : a; }
inline long long clock64() { return 0; }

// ------------------------------------------------------------------------------------------------ PTX

inline float ptx_ftz(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }
inline void ptx_max_nan(float& out, float a, float b) { out = a != a || b != b ? NAN : a > b ? a : b; }
inline void ptx_sqrt(float& out, float x) { out = std::sqrt(x); }
inline void ptx_exp2(float& out, float x) { out = std::exp2(x); }
inline void ptx_log2(float& out, float x) { out = std::log2(x); }
inline void ptx_exp2_ftz(float& out, float x) { out = ptx_ftz(std::exp2(ptx_ftz(x))); }
inline void ptx_log2_ftz(float& out, float x) { out = std::log2(ptx_ftz(x)); }
inline void ptx_rcp(float& out, float x) { out = 1.0f / x; }
inline void ptx_rcp_ftz(float& out, float x) { out = ptx_ftz(1.0f / ptx_ftz(x)); }
template <typename Out, typename Address> void ptx_load_if(Out& out, Address from, int asked) {
    out = 0;
    if (!asked) return;
    host::check_load(reinterpret_cast<const void*>(from), sizeof out);
    std::memcpy(&out, reinterpret_cast<const void*>(from), sizeof out);
}
inline void ptx_mul_wide(unsigned& low, unsigned& high, unsigned a, unsigned b) {
    const unsigned long long whole = static_cast<unsigned long long>(a) * b;
    low = unsigned(whole), high = unsigned(whole >> 32);
}
inline void ptx_cluster_rank(unsigned& rank) { rank = host::rank(); }
inline void ptx_cluster_arrive() { host::arrive(); }
inline void ptx_cluster_wait() { host::wait_for_cluster(); }
inline void ptx_in_block(unsigned long long& address, unsigned rank) {
    address = reinterpret_cast<unsigned long long>(host::in_rank(rank, reinterpret_cast<const void*>(address)));
}
inline void ptx_cluster_size(unsigned& size) { size = host::cluster_size(); }
inline void ptx_cluster_barrier() { host::arrive(), host::wait_for_cluster(); }
// A 32-bit address of shared memory: the rank of its block, then its offset there.
inline void ptx_shared_of_block(unsigned& address, unsigned local, unsigned rank) { address = rank << 20 | local; }
inline void ptx_load_shared(float& x, float& y, float& z, float& w, unsigned address) {
    const float* from = static_cast<const float*>(host::at_offset(address >> 20, address & 0xfffff));
    x = from[0], y = from[1], z = from[2], w = from[3];
}
template <typename From>
void ptx_load_once(unsigned& x, unsigned& y, unsigned& z, unsigned& w, const From* from, std::uint64_t) {
    const uint4 value = host_load(reinterpret_cast<const uint4*>(from));
    x = value.x, y = value.y, z = value.z, w = value.w;
}
template <typename... Any> void ptx_hint(const Any&...) {}
template <typename... Any> void ptx_absent(const Any&...) { host::fault("an asynchronous copy: the host has none"); }

// Adds the product of 16 rows of 16 terms and 16 terms of 8 columns, as the lanes of a warp hold them: PTX ISA, "Matrix
// fragments for mma.m16n8k16".
inline float half_of(const char* type, unsigned pair, int which) {
    const auto bits = static_cast<unsigned short>(pair >> 16 * which);
    return type[0] == 'b' ? __uint_as_float(unsigned(bits) << 16) : __half2float(host_bits<__half>(bits));
}
inline void ptx_multiply(const char* type, float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1,
                         unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    const unsigned all = 0xffffffffu, row = host::lane() / 4, column = host::lane() % 4 * 2;
    const auto both = [](unsigned low, unsigned high) { return std::uint64_t(high) << 32 | low; };
    float* sums[2][2] = {{&c0, &c1}, {&c2, &c3}};
    for (unsigned k = 0; k < 4; ++k) {  // the lanes that hold terms 2k, 2k + 1, 2k + 8 and 2k + 9
        const std::uint64_t of_rows[2] = {host::exchanged(all, both(a0, a2), row * 4 + k),
                                          host::exchanged(all, both(a1, a3), row * 4 + k)};
        for (unsigned j = 0; j < 2; ++j) {
            const std::uint64_t of_column = host::exchanged(all, both(b0, b1), (column + j) * 4 + k);
            for (int half = 0; half < 2; ++half)
                for (int word = 0; word < 2; ++word)
                    for (int which = 0; which < 2; ++which)
                        *sums[half][j] += half_of(type, unsigned(of_rows[half] >> 32 * word), which) *
                                          half_of(type, unsigned(of_column >> 32 * word), which);
        }
    }
}
