// Runs the threads of a kernel; see cuda.h.

#include "cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
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

enum class State { ready, at_barrier, at_shuffle, done };

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
    State state;
    unsigned mask;         // of the shuffle it waits for
    int barrier;           // which of the text it waits at
    unsigned parity;       // which of two sets of slots its next shuffle uses
    std::uint64_t given[2];
};

struct Block {
    std::vector<char> memory = std::vector<char>(kMostShared);
    size_t used = 0, dynamic_nbytes;
    std::map<const void*, size_t> statics;       // by variable
    std::vector<std::pair<size_t, size_t>> ends;  // of each variable: where its guard begins, and its length

    size_t take(size_t nbytes) {
        const size_t at = (used + 127) / 128 * 128;
        used = at + nbytes + kGuard;
        if (used > memory.size()) { std::fprintf(stderr, "too much shared memory\n"); std::abort(); }
        ends.emplace_back(at + nbytes, kGuard);
        return at;
    }
    void begin(size_t dynamic) {
        std::memset(memory.data(), kPoison, used ? used : memory.size());
        used = 0, dynamic_nbytes = dynamic;
        statics.clear(), ends.clear();
        take(dynamic);
    }
    bool is_whole() const {
        for (auto [at, nbytes] : ends)
            for (size_t i = at; i < at + nbytes; ++i)
                if (static_cast<unsigned char>(memory[i]) != kPoison) return false;
        return true;
    }
};

std::vector<Fiber> fibers;
Block block;
Fiber* current;
Context scheduler;
std::string trouble;
std::mt19937_64 order(2026);
void (*body)(void**);
void** arguments;

void pause(State state) {
    current->state = state;
    change(current->context, scheduler);
}

void enter() {
    body(arguments);
    pause(State::done);
}

void start(Fiber& fiber) {
    fiber.state = State::ready;
    fiber.parity = 0;
    if (fiber.stack.empty()) fiber.stack.resize(kStack);
    prepare(fiber.context, fiber.stack, enter);
}

// Lets the lanes of a warp go on from a shuffle once all that are named in its mask have come to it.
bool release_shuffles(size_t count) {
    bool any = false;
    for (size_t warp = 0; warp < count; warp += 32) {
        const size_t lanes = count - warp < 32 ? count - warp : 32;
        for (size_t lane = 0; lane < lanes; ++lane) {
            Fiber& one = fibers[warp + lane];
            if (one.state != State::at_shuffle) continue;
            if (!(one.mask >> lane & 1)) {
                trouble = "a lane takes part in a shuffle whose mask does not name it";
                return false;
            }
            bool all = true;
            for (size_t other = 0; other < 32; ++other) {
                if (!(one.mask >> other & 1)) continue;
                if (other >= lanes || fibers[warp + other].state == State::done) {
                    trouble = "a shuffle names a lane that has ended or does not exist";
                    return false;
                }
                const Fiber& its = fibers[warp + other];
                all = all && its.state == State::at_shuffle && its.mask == one.mask && its.parity == one.parity;
            }
            if (!all) continue;
            for (size_t other = 0; other < lanes; ++other)
                if (one.mask >> other & 1) fibers[warp + other].state = State::ready;
            any = true;
        }
    }
    return any;
}

bool release_barrier(size_t count) {
    bool any = false;
    int which = 0;
    for (size_t i = 0; i < count; ++i) {
        if (fibers[i].state == State::at_shuffle) return false;
        if (fibers[i].state != State::at_barrier) continue;
        if (any && fibers[i].barrier != which) {
            trouble = "threads of a block wait at different barriers";
            return false;
        }
        any = true, which = fibers[i].barrier;
    }
    for (size_t i = 0; any && i < count; ++i)
        if (fibers[i].state == State::at_barrier) fibers[i].state = State::ready;
    return any;
}

void run_block(size_t count, size_t dynamic) {
    block.begin(dynamic);
    if (fibers.size() < count) fibers.resize(count);
    std::vector<size_t> turns(count);
    for (size_t i = 0; i < count; ++i) {
        turns[i] = i;
        fibers[i].index = {unsigned(i % blockDim.x), unsigned(i / blockDim.x % blockDim.y),
                           unsigned(i / (size_t(blockDim.x) * blockDim.y))};
        start(fibers[i]);
    }
    const unsigned way = order() % 4;  // upwards, downwards, or drawn
    if (way == 1) std::reverse(turns.begin(), turns.end());
    if (way > 1) std::shuffle(turns.begin(), turns.end(), order);
    for (;;) {
        size_t done = 0;
        for (size_t i : turns) {
            if (fibers[i].state == State::ready) {
                current = &fibers[i];
                threadIdx = current->index;
                change(scheduler, current->context);
            }
            done += fibers[i].state == State::done;
        }
        if (done == count || !trouble.empty()) break;
        if (!release_shuffles(count) && trouble.empty() && !release_barrier(count) && trouble.empty())
            trouble = "threads wait for each other: a barrier or a shuffle that others do not come to";
        if (!trouble.empty()) break;
    }
    if (trouble.empty() && !block.is_whole()) trouble = "a write past a variable in shared memory";
}

}  // namespace

// ------------------------------------------------------------------------------------------------ what kernels call

void wait_at(int barrier) {
    current->barrier = barrier;
    pause(State::at_barrier);
}

void* shared_at(const void* variable, size_t nbytes) {
    auto found = block.statics.find(variable);
    if (found == block.statics.end()) found = block.statics.emplace(variable, block.take(nbytes)).first;
    return block.memory.data() + found->second;
}

void* dynamic_memory() { return block.memory.data(); }

unsigned thread() { return unsigned(current - fibers.data()); }

std::uint64_t exchange(unsigned mask, std::uint64_t given, unsigned from) {
    const unsigned parity = current->parity++ & 1, warp = thread() / 32 * 32;
    current->given[parity] = given;
    current->mask = mask;
    pause(State::at_shuffle);
    return from < 32 && mask >> from & 1 ? fibers[warp + from].given[parity] : given;
}

void fault(const char* message) { trouble = message; }

// ------------------------------------------------------------------------------------------------ a launch

const char* launch(const Config* config, void** given, void (*kernel)(void**)) {
    gridDim = {config->grid[0], config->grid[1], config->grid[2]};
    blockDim = {config->block[0], config->block[1], config->block[2]};
    arguments = given, body = kernel;
    trouble.clear();
    const size_t blocks = size_t(gridDim.x) * gridDim.y * gridDim.z;
    const size_t threads = size_t(blockDim.x) * blockDim.y * blockDim.z;
    const bool downwards = order() % 2;
    for (size_t i = 0; i < blocks && trouble.empty(); ++i) {
        const size_t at = downwards ? blocks - 1 - i : i;
        blockIdx = {unsigned(at % gridDim.x), unsigned(at / gridDim.x % gridDim.y),
                    unsigned(at / (size_t(gridDim.x) * gridDim.y))};
        run_block(threads, config->shared);
    }
    return trouble.empty() ? nullptr : trouble.c_str();
}

}  // namespace host
