// Runs CUDA C kernels on the CPU: what our kernels use of CUDA, and a launcher. Included before the unchanged source.
//
// Blocks run one after the other. A thread of a block is a fiber with a stack of its own; it runs until it waits at a
// barrier or ends. When all have, the warps whose threads all wait for their warp go on; if there is none, the block
// does, once all its threads wait for it; if they do not, the barrier is divergent and the launch fails. Shared memory
// is filled with rubbish before each block, and what is copied to it later arrives when its thread waits, no sooner.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("shared_memory")))
#define DYNAMIC_SHARED(type, name) type *name = (type *)shim::dynamic_shared

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };

extern "C" char __start_shared_memory[] __attribute__((weak));
extern "C" char __stop_shared_memory[] __attribute__((weak));

namespace shim {
constexpr int MOST_THREADS = 1024, WARP = 32, STACK = 64 << 10, MOST_SHARED = 48 << 10;
constexpr char RUBBISH = (char)0xCB;
enum Status { READY, AT_WARP, AT_BLOCK, DONE };

// A place to go on at, by the compiler's own means: those of the C library take most of the time of a launch.
typedef void *Place[5];

struct Copy { void *to; const void *from; bool valid; int group; };

struct Fiber {
    ucontext_t first;
    Place here;
    char *stack = nullptr;
    bool begun = false;
    Status status = DONE;
    std::vector<Copy> copies;  // that it has begun
    int group = 0;
    unsigned shown[6];  // fragments of a product
};

static Fiber fibers[MOST_THREADS];
static uint64_t slots[MOST_THREADS];  // what a thread shows to its warp
static Place scheduler;
static int current = 0, n_threads = 0;
static void (*body)(void *) = nullptr;
static void *body_arguments = nullptr;
static const char *failure = nullptr;
static dim3 thread, block, block_size, grid_size;
static unsigned n_shared = 0;  // bytes of dynamic shared memory that the launch asked for
alignas(64) static char dynamic_shared[MOST_SHARED];

// Not in the function that has noted a place: a compiler may take that for a jump inside of it.
[[noreturn]] __attribute__((noinline)) inline void go_on(Place place) { __builtin_longjmp(place, 1); }

__attribute__((noinline)) inline void wait(Status status) {
    Fiber &fiber = fibers[current];
    fiber.status = status;
    if (__builtin_setjmp(fiber.here) == 0) go_on(scheduler);
}

inline void live() {
    for (;;) {  // a block each
        body(body_arguments);
        wait(DONE);
    }
}

__attribute__((noinline)) inline void resume(int i) {
    Fiber &fiber = fibers[i];
    current = i;
    thread.x = i;
    if (__builtin_setjmp(scheduler) != 0) return;
    if (fiber.begun) go_on(fiber.here);
    fiber.begun = true;
    if (!fiber.stack) fiber.stack = (char *)malloc(STACK);
    getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = fiber.stack;
    fiber.first.uc_stack.ss_size = STACK;
    fiber.first.uc_link = nullptr;
    makecontext(&fiber.first, live, 0);
    setcontext(&fiber.first);
}

// Let waiting threads go on; return whether any can.
inline bool release() {
    bool any = false;
    int waiting = 0, done = 0;
    for (int first = 0; first < n_threads; first += WARP) {
        int at_warp = 0, alive = 0;
        for (int i = first; i < first + WARP; ++i) {
            alive += fibers[i].status != DONE;
            at_warp += fibers[i].status == AT_WARP;
            waiting += fibers[i].status == AT_BLOCK;
            done += fibers[i].status == DONE;
        }
        if (at_warp == 0 || at_warp < alive) continue;
        any = true;
        for (int i = first; i < first + WARP; ++i)
            if (fibers[i].status == AT_WARP) fibers[i].status = READY;
    }
    if (any || waiting == 0) return any;
    if (waiting + done < n_threads) return false;
    for (int i = 0; i < n_threads; ++i)
        if (fibers[i].status == AT_BLOCK) fibers[i].status = READY;
    if (done > 0) failure = "a thread left before a barrier of its block";
    return true;
}

inline bool run_block(unsigned &seed) {
    static int order[MOST_THREADS];
    memset(dynamic_shared, RUBBISH, sizeof dynamic_shared);
    if (__start_shared_memory) memset(__start_shared_memory, RUBBISH, __stop_shared_memory - __start_shared_memory);
    for (int i = 0; i < n_threads; ++i) fibers[i].status = READY, fibers[i].copies.clear(), order[i] = i;
    for (;;) {
        if (seed)
            for (int i = n_threads - 1; i > 0; --i) {
                seed = seed * 1664525u + 1013904223u;
                std::swap(order[i], order[(seed >> 8) % (i + 1)]);
            }
        for (int at = 0; at < n_threads && !failure; ++at)
            if (fibers[order[at]].status == READY) resume(order[at]);
        bool more = release(), all_done = true;
        for (int i = 0; i < n_threads; ++i) all_done = all_done && fibers[i].status == DONE;
        if (failure) return false;
        if (all_done) {
            const char *beyond = dynamic_shared + n_shared;  // all bytes are alike if each is like the next
            size_t n = MOST_SHARED - n_shared;
            if (n && (*beyond != RUBBISH || memcmp(beyond, beyond + 1, n - 1) != 0))
                failure = "more shared memory is written than was asked for";
            return !failure;
        }
        if (!more) {
            failure = "divergent barrier";
            return false;
        }
    }
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(*(std::remove_reference_t<A> *)arguments[I]...);
}

template <class... A>
const char *launch(void (*kernel)(A...), const unsigned *grid, unsigned threads, unsigned shared, void **arguments,
                   unsigned seed) {
    struct Bound { void (*kernel)(A...); void **arguments; } bound{kernel, arguments};
    body = [](void *given) {
        Bound *bound = (Bound *)given;
        call(bound->kernel, bound->arguments, std::index_sequence_for<A...>{});
    };
    body_arguments = &bound;
    grid_size = {grid[0], grid[1], 1}, block_size = {threads, 1, 1};
    n_threads = threads, n_shared = shared, failure = nullptr;
    unsigned n_blocks = grid[0] * grid[1];
    for (unsigned i = 0; i < n_blocks; ++i) {
        unsigned which = seed ? n_blocks - 1 - i : i;  // nothing may depend on the order of blocks
        block = {which % grid[0], which / grid[0], 0};
        if (run_block(seed)) continue;
        for (Fiber &fiber : fibers) fiber.begun = false;  // what they were doing is over
        return failure;
    }
    return nullptr;
}

// Show `value` to the warp and return what lane `source` shows.
template <class T>
T exchange(T value, int source) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves up to eight bytes");
    memcpy(&slots[current], &value, sizeof(T));
    int from = current / WARP * WARP + (source & (WARP - 1));
    if (fibers[from].status == DONE) failure = "a shuffle reads a lane that has left";
    wait(AT_WARP);
    T got;
    memcpy(&got, &slots[from], sizeof(T));
    wait(AT_WARP);
    return got;
}
}  // namespace shim

#define threadIdx shim::thread
#define blockIdx shim::block
#define blockDim shim::block_size
#define gridDim shim::grid_size

inline void __trap() { shim::failure = "a kernel has trapped"; }
inline void __syncthreads() { shim::wait(shim::AT_BLOCK); }
inline void __syncwarp() { shim::wait(shim::AT_WARP); }
template <class T> T __shfl_sync(unsigned, T value, int source) { return shim::exchange(value, source); }
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return shim::exchange(value, (shim::current & 31) ^ mask);
}
inline unsigned __ballot_sync(unsigned, bool mine) {
    unsigned bits = 0;
    for (int lane = 0; lane < 32; ++lane) bits |= (unsigned)shim::exchange(mine, lane) << lane;
    return bits;
}
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <class T> T atomicAdd(T *at, T value) {
    T old = *at;
    *at += value;
    return old;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

// What `tensor_cores.cu` writes in the instructions of the GPU, by their description in NVIDIA's PTX manual.
inline void copy_later(void *to, const void *from, bool valid) {
    shim::Fiber &mine = shim::fibers[shim::current];
    if ((uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0) shim::failure = "a copy of 16 bytes is not aligned";
    mine.copies.push_back({to, from, valid, mine.group});
}
inline void copy_shared_later(void *to, const void *from, bool valid) { copy_later(to, from, valid); }
inline void bring_near(const void *) {}
inline void end_of_copies() { ++shim::fibers[shim::current].group; }
template <int groups> void wait_for_copies() {
    shim::Fiber &mine = shim::fibers[shim::current];
    std::vector<shim::Copy> open;
    for (const shim::Copy &copy : mine.copies) {
        if (copy.group >= mine.group - groups) open.push_back(copy);
        else if (copy.valid) memcpy(copy.to, copy.from, 16);
        else memset(copy.to, 0, 16);
    }
    mine.copies.swap(open);
}
inline void load_matrices(unsigned *x, const void *row) {
    int lane = shim::current % shim::WARP;
    if ((uintptr_t)row % 16 != 0) shim::failure = "a row of a matrix is not aligned";
    for (int m = 0; m < 4; ++m) x[m] = ((const unsigned *)shim::exchange(row, m * 8 + lane / 4))[lane % 4];
}
inline void load_transposed(unsigned *x, const void *row) {
    int lane = shim::current % shim::WARP;
    if ((uintptr_t)row % 16 != 0) shim::failure = "a row of a matrix is not aligned";
    for (int m = 0; m < 4; ++m) {
        x[m] = ((const unsigned short *)shim::exchange(row, m * 8 + lane % 4 * 2))[lane / 4];
        x[m] |= (unsigned)((const unsigned short *)shim::exchange(row, m * 8 + lane % 4 * 2 + 1))[lane / 4] << 16;
    }
}
inline void multiply(float *sum, const unsigned *a, const unsigned *b) {
    int lane = shim::current % shim::WARP;
    shim::Fiber *warp = shim::fibers + (shim::current - lane);
    memcpy(warp[lane].shown, a, 16), memcpy(warp[lane].shown + 4, b, 8);
    shim::wait(shim::AT_WARP);
    for (int at = 0; at < 4; ++at) {
        int row = lane / 4, column = lane % 4 * 2 + at % 2;
        for (int k = 0; k < 16; ++k) {
            int part = k / 8 * 2 + at / 2, of_a = row * 4 + k % 8 / 2, of_b = column * 4 + k % 8 / 2;
            unsigned x = warp[of_a].shown[part] >> k % 2 * 16, y = warp[of_b].shown[4 + k / 8] >> k % 2 * 16;
            sum[at] += __uint_as_float(x << 16) * __uint_as_float(y << 16);
        }
    }
    shim::wait(shim::AT_WARP);
}

#define SHIM_EXPORT(kernel)                                                                                          \
    extern "C" const char *shim_##kernel(const unsigned *grid, unsigned threads, unsigned shared, void **arguments, \
                                         unsigned seed) {                                                            \
        return shim::launch(kernel, grid, threads, shared, arguments, seed);                                         \
    }
