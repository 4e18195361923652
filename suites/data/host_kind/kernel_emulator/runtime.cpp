// Runs the threads of a kernel; see cuda.h.

#include "cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

Index threadIdx, blockIdx, blockDim, gridDim;

namespace host {
namespace {

constexpr unsigned char kPoison = 0xff;  // NaN in every float
constexpr size_t kGuard = 256, kStack = 128 << 10, kMostShared = 256 << 10;

enum class State { ready, at_barrier, at_shuffle, at_cluster, done };

// Where a fiber, or the scheduler, goes on. ucontext asks the kernel at each switch: 20 times as long.
#if defined(__x86_64__)
using Context = void*;
extern "C" void host_switch(void** from, void* to);
void change(Context& from, Context& to) { host_switch(&from, to); }
void prepare(Context& context, std::vector<char>& stack, void (*enter)()) {
    auto top = reinterpret_cast<std::uintptr_t>(stack.data() + stack.size()) & ~std::uintptr_t(15);
    void** slots = reinterpret_cast<void**>(top) - 4;  // where it returns to is a multiple of 16, as after a call
    slots[0] = reinterpret_cast<void*>(enter);
    context = slots - 6;  // six registers, of which none has a value yet
}
asm(".text\nhost_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#else
using Context = ucontext_t;
void change(Context& from, Context& to) { swapcontext(&from, &to); }
void prepare(Context& context, std::vector<char>& stack, void (*enter)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack.data();
    context.uc_stack.ss_size = stack.size();
    makecontext(&context, enter, 0);
}
#endif

struct Fiber {
    Context context;
    std::vector<char> stack;
    Index index;
    unsigned rank;         // of its block in the cluster
    State state;
    unsigned mask;         // of the shuffle it waits for
    unsigned parity;       // which of two slots its next shuffle uses
    std::uint64_t given[2];
    int barrier;           // which of the text it waits at
    unsigned arrivals;     // at the barrier of the cluster
};

// Shared memory of the blocks of a cluster. A variable lies at the same place in each.
struct Shared {
    std::vector<std::vector<char>> blocks;
    std::map<const void*, size_t> places;  // by variable
    std::vector<size_t> guards;            // where each begins
    size_t used = 0;

    size_t take(size_t nbytes) {
        const size_t at = (used + 127) / 128 * 128;
        used = at + nbytes + kGuard;
        if (used > kMostShared) { std::fprintf(stderr, "too much shared memory\n"); std::abort(); }
        guards.push_back(at + nbytes);
        return at;
    }
    void begin(size_t count, size_t dynamic) {
        if (blocks.size() < count) blocks.resize(count);
        for (auto& block : blocks) {
            if (block.empty()) block.assign(kMostShared, char(kPoison));
            std::memset(block.data(), kPoison, used);
        }
        used = 0;
        places.clear(), guards.clear();
        take(dynamic);
    }
    bool is_whole() const {
        for (const auto& block : blocks)
            for (size_t at : guards)
                for (size_t i = at; i < at + kGuard; ++i)
                    if (static_cast<unsigned char>(block[i]) != kPoison) return false;
        return true;
    }
};

std::vector<Fiber> fibers;  // of one cluster, block after block
Shared memory;
Fiber* current;
Context scheduler;
std::string trouble;
std::mt19937_64 order(2026);
void (*body)(void**);
void** arguments;
size_t threads, together;  // in a block; blocks in a cluster

// The arrays of the host, in order, and how many bytes around each are its guards.
struct Extent { std::uintptr_t begin, length; };
std::vector<Extent> arrays;
size_t around;

void pause(State state) {
    current->state = state;
    change(current->context, scheduler);
}

void enter() {
    body(arguments);
    pause(State::done);
}

void start(size_t i) {
    const size_t thread = i % threads;
    Fiber& fiber = fibers[i];
    fiber.rank = unsigned(i / threads);
    fiber.index = {unsigned(thread % blockDim.x), unsigned(thread / blockDim.x % blockDim.y),
                   unsigned(thread / (size_t(blockDim.x) * blockDim.y))};
    fiber.state = State::ready;
    fiber.parity = fiber.arrivals = 0;
    if (fiber.stack.empty()) fiber.stack.resize(kStack);
    prepare(fiber.context, fiber.stack, enter);
}

// Whether all lanes that the mask of `one` names have come to the same shuffle.
bool is_complete(const Fiber& one, const Fiber* warp, size_t lanes) {
    bool all = true;
    for (size_t other = 0; other < 32; ++other) {
        if (!(one.mask >> other & 1)) continue;
        if (other >= lanes || warp[other].state == State::done) {
            trouble = "a shuffle names a lane that has ended or does not exist";
            return false;
        }
        const Fiber& its = warp[other];
        all = all && its.state == State::at_shuffle && its.mask == one.mask && its.parity == one.parity;
    }
    return all;
}

bool release_shuffles(Fiber* warp, size_t lanes) {
    bool any = false;
    for (size_t lane = 0; lane < lanes && trouble.empty(); ++lane) {
        if (warp[lane].state != State::at_shuffle) continue;
        const unsigned mask = warp[lane].mask;
        if (!(mask >> lane & 1)) trouble = "a lane takes part in a shuffle whose mask does not name it";
        else if (is_complete(warp[lane], warp, lanes)) {
            for (size_t other = 0; other < lanes; ++other)
                if (mask >> other & 1) warp[other].state = State::ready;
            any = true;
        }
    }
    return any;
}

// Lets a block go on from its barrier once all threads that have not ended have come to it.
bool release_barrier(Fiber* block) {
    const Fiber* first = nullptr;
    for (size_t i = 0; i < threads; ++i) {
        if (block[i].state == State::done) continue;
        if (block[i].state != State::at_barrier) return false;
        if (first == nullptr) first = block + i;
        if (block[i].barrier != first->barrier) {
            trouble = "threads of a block wait at different barriers";
            return false;
        }
    }
    for (size_t i = 0; i < threads; ++i)
        if (block[i].state == State::at_barrier) block[i].state = State::ready;
    return first != nullptr;
}

// Lets threads go on that wait until all of the cluster have arrived as often as they have; who has ended has arrived.
bool release_cluster() {
    unsigned least = ~0u;
    for (size_t i = 0; i < threads * together; ++i)
        if (fibers[i].state != State::done) least = std::min(least, fibers[i].arrivals);
    bool any = false;
    for (size_t i = 0; i < threads * together; ++i) {
        if (fibers[i].state != State::at_cluster || fibers[i].arrivals > least) continue;
        fibers[i].state = State::ready;
        any = true;
    }
    return any;
}

bool release() {
    bool any = false;
    for (size_t rank = 0; rank < together; ++rank)
        for (size_t warp = 0; warp < threads; warp += 32)
            any = release_shuffles(&fibers[rank * threads + warp], std::min<size_t>(threads - warp, 32)) || any;
    for (size_t rank = 0; rank < together && trouble.empty(); ++rank)
        any = release_barrier(&fibers[rank * threads]) || any;
    return release_cluster() || any;
}

Index block_at(size_t number) {
    return {unsigned(number % gridDim.x), unsigned(number / gridDim.x % gridDim.y),
            unsigned(number / (size_t(gridDim.x) * gridDim.y))};
}

// The numbers below `count` upwards, downwards, or in an order that is drawn.
std::vector<size_t> ordered(size_t count, unsigned way) {
    std::vector<size_t> turns(count);
    for (size_t i = 0; i < count; ++i) turns[i] = way == 1 ? count - 1 - i : i;
    if (way > 1) std::shuffle(turns.begin(), turns.end(), order);
    return turns;
}

void run(size_t fiber, size_t first) {
    current = &fibers[fiber];
    if (current->state != State::ready) return;
    threadIdx = current->index, blockIdx = block_at(first + current->rank);
    change(scheduler, current->context);
}

// Runs a block without the others of its cluster: each warp as far as it comes, before the next one begins.
void run_alone(size_t rank, unsigned way, size_t first) {
    Fiber* block = &fibers[rank * threads];
    const std::vector<size_t> warps = ordered((threads + 31) / 32, way), lanes = ordered(32, way);
    do {
        for (size_t warp : warps) {
            const size_t begin = warp * 32, count = std::min<size_t>(threads - begin, 32);
            do {
                for (size_t lane : lanes)
                    if (lane < count) run(rank * threads + begin + lane, first);
            } while (trouble.empty() && release_shuffles(block + begin, count));
        }
    } while (trouble.empty() && release_barrier(block));
}

// Runs the blocks of one cluster, of which `first` is the number of the first one: threads either take turns at each
// barrier and shuffle, or warps and blocks run one after another as far as they can.
void run_cluster(size_t first, size_t dynamic) {
    const size_t count = threads * together;
    memory.begin(together, dynamic);
    if (fibers.size() < count) fibers.resize(count);
    for (size_t i = 0; i < count; ++i) start(i);
    const unsigned way = order() % 4;
    const bool by_turns = order() % 2;
    const std::vector<size_t> turns = ordered(by_turns ? count : together, way);
    for (;;) {
        for (size_t turn : turns) by_turns ? run(turn, first) : run_alone(turn, way, first);
        size_t done = 0;
        for (size_t i = 0; i < count; ++i) done += fibers[i].state == State::done;
        if (done == count || !trouble.empty()) break;
        if (!release() && trouble.empty())
            trouble = "threads wait for each other: a barrier or a shuffle that others do not come to";
        if (!trouble.empty()) break;
    }
    if (trouble.empty() && !memory.is_whole()) trouble = "a write past a variable in shared memory";
}

// What the compiler says of an array.
struct Described { std::uint16_t kind, info; char name[1]; };
struct Indexed { const char* file; std::uint32_t line, column; const Described* array; };

}  // namespace

// ------------------------------------------------------------------------------------------------ what kernels call

// Comes in place of an access outside of an array whose length the compiler knows: of a thread's own, or a shared one.
extern "C" void __ubsan_handle_out_of_bounds(const Indexed* at, std::uintptr_t index) {
    trouble = "index " + std::to_string(std::intptr_t(index)) + " is outside of an array of type " + at->array->name;
    pause(State::done);
}

void wait_at(int barrier) {
    current->barrier = barrier;
    pause(State::at_barrier);
}

void* shared_at(const void* variable, size_t nbytes) {
    auto found = memory.places.find(variable);
    if (found == memory.places.end()) found = memory.places.emplace(variable, memory.take(nbytes)).first;
    return memory.blocks[current->rank].data() + found->second;
}

void* dynamic_memory() { return memory.blocks[current->rank].data(); }

unsigned thread() { return unsigned(current - &fibers[current->rank * threads]); }

std::uint64_t exchange(unsigned mask, std::uint64_t given, unsigned from) {
    const Fiber* warp = &fibers[current->rank * threads + thread() / 32 * 32];
    const unsigned parity = current->parity++ & 1;
    current->given[parity] = given;
    current->mask = mask;
    pause(State::at_shuffle);
    return from < 32 && mask >> from & 1 ? warp[from].given[parity] : given;
}

unsigned rank() { return current->rank; }

unsigned cluster_size() { return unsigned(together); }

unsigned offset_of(const void* local) {
    return unsigned(static_cast<const char*>(local) - memory.blocks[current->rank].data());
}

const void* at_offset(unsigned rank, unsigned offset) {
    return in_rank(rank, memory.blocks[current->rank].data() + offset);
}

void arrive() { ++current->arrivals; }

void wait_for_cluster() { pause(State::at_cluster); }

const void* in_rank(unsigned rank, const void* local) {
    if (rank >= together) fault("a block that the cluster does not have");
    const Fiber* block = &fibers[rank % together * threads];
    bool has_ended = true;
    for (size_t i = 0; i < threads; ++i) has_ended = has_ended && block[i].state == State::done;
    if (has_ended) fault("a read of shared memory of a block that has ended");
    return memory.blocks[rank % together].data() + (static_cast<const char*>(local) - memory.blocks[current->rank].data());
}

void check_load(const void* from, size_t nbytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(from);
    auto next = std::upper_bound(arrays.begin(), arrays.end(), at, [](auto a, const Extent& b) { return a < b.begin; });
    bool next_to_it = next != arrays.end() && at + nbytes > next->begin - around;
    if (next != arrays.begin()) {
        const Extent& array = *std::prev(next);
        const auto place = at - array.begin;
        if (place + nbytes <= array.length) return;
        next_to_it = next_to_it || place < array.length + around;
    }
    if (next_to_it) fault("a load goes beyond its array");
}

// What the compiler puts before each load of a kernel.
#define CHECKED_LOAD(NBYTES) \
    extern "C" void __asan_load##NBYTES##_noabort(const void* from) { check_load(from, NBYTES); }
CHECKED_LOAD(1) CHECKED_LOAD(2) CHECKED_LOAD(4) CHECKED_LOAD(8) CHECKED_LOAD(16)
extern "C" void __asan_loadN_noabort(const void* from, size_t nbytes) { check_load(from, nbytes); }
extern "C" void __asan_handle_no_return() {}

// Here the handle of a conditional node is the address of its value.
extern "C" void cudaGraphSetConditional(unsigned long long handle, unsigned value) {
    *reinterpret_cast<unsigned*>(handle) = value;
}

void fault(const char* message) { trouble = message; }

// ------------------------------------------------------------------------------------------------ a launch

extern "C" void host_arrays(const Extent* given, size_t count, size_t guard) {
    arrays.assign(given, given + count);
    std::sort(arrays.begin(), arrays.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    around = guard;
}

const char* launch(const Config* config, void** given, void (*kernel)(void**), size_t cluster) {
    gridDim = {config->grid[0], config->grid[1], config->grid[2]};
    blockDim = {config->block[0], config->block[1], config->block[2]};
    arguments = given, body = kernel, together = cluster;
    threads = size_t(blockDim.x) * blockDim.y * blockDim.z;
    trouble.clear();
    if (gridDim.x % cluster) trouble = "a grid that is not a whole number of clusters";
    const size_t clusters = size_t(gridDim.x) * gridDim.y * gridDim.z / cluster;
    const bool downwards = order() % 2;
    for (size_t i = 0; i < clusters && trouble.empty(); ++i)
        run_cluster((downwards ? clusters - 1 - i : i) * cluster, config->shared);
    return trouble.empty() ? nullptr : trouble.c_str();
}

}  // namespace host
