// Runs CUDA C kernels on the CPU: what our kernels use of CUDA, and a launcher. Included before the unchanged source.
//
// Blocks run one after the other. A thread of a block is a fiber with a stack of its own; it runs until it waits at a
// barrier or ends. When all have, the warps whose threads all wait for their warp go on; if there is none, the block
// does, once all its threads wait for it; if they do not, the barrier is divergent and the launch fails. Shared memory
// is filled with rubbish before each block, and what is copied to it later arrives when its thread waits, no sooner.
// The blocks of a cluster run together; a barrier of the block is then one of the cluster.
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
#define __cluster_dims__(x, y, z) SHIM_CLUSTER(x)
#define SHIM_CLUSTER(x) __attribute__((section("clusters_of_" #x)))
#define __shared__ static __attribute__((section("shared_memory")))
#define DYNAMIC_SHARED(type, name) type *name = (type *)shim::dynamic_shared[shim::my_block()]

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };

extern "C" char __start_shared_memory[] __attribute__((weak));
extern "C" char __stop_shared_memory[] __attribute__((weak));
extern "C" char __start_clusters_of_2[] __attribute__((weak));
extern "C" char __stop_clusters_of_2[] __attribute__((weak));

namespace shim {
constexpr int MOST_THREADS = 1024, WARP = 32, STACK = 64 << 10, MOST_CLUSTER = 2;
constexpr unsigned SHARED = 48 << 10, MOST_SHARED = 227 << 10;
constexpr unsigned SHARED_BASE = 1040;  // the address of dynamic shared memory, in the window that blocks have
constexpr char RUBBISH = (char)0xCB;
enum Status { READY, AT_WARP, AT_EVENT, AT_PRODUCTS, AT_BLOCK, DONE };

// A place to go on at, by the compiler's own means: those of the C library take most of the time of a launch.
typedef void *Place[5];

struct Copy { void *to; const void *from; bool valid; int group; };
struct Product { float *sum; const unsigned *a; uint64_t b; bool keep_sum; int group; };

struct Fiber {
    ucontext_t first;
    Place here;
    char *stack = nullptr;
    bool begun = false;
    Status status = DONE;
    std::vector<Copy> copies;  // that it has begun
    std::vector<Product> products;
    int group = 0;
    bool fenced = false;  // may begin products
    const signed char *where;  // AT_EVENT: goes on when this is not `old` any more
    signed char old;
    unsigned shows = 0;  // to its warp, in turn in two places: while some read the last one, others fill the next
    unsigned fragments[2][6];  // of a product
};

static Fiber fibers[MOST_THREADS];
static uint64_t slots[2][MOST_THREADS];  // what a thread shows to its warp
static Place scheduler;
static int current = 0, n_threads = 0;
static void (*body)(void *) = nullptr;
static void *body_arguments = nullptr;
static const char *failure = nullptr;
static dim3 thread, block, block_size, grid_size;
static unsigned first_block = 0;  // of a cluster
static unsigned n_shared = 0;  // bytes of dynamic shared memory that the launch asked for
alignas(64) static char dynamic_shared[MOST_CLUSTER][MOST_SHARED];
static int cluster = 1;  // blocks that run together

inline int my_block() { return current / (int)block_size.x; }  // of the cluster

// What Hopper's copy engine has begun; it arrives when no thread can go on, no sooner.
struct Box { int block; unsigned to; const uint64_t *map; int at[3]; unsigned barrier; };
static std::vector<Box> boxes;
inline void arrive(const Box &box);

// Barriers by number: some threads wait, others arrive and go on.
struct Turn { int arrived; signed char parity; };
static Turn turns[MOST_CLUSTER][16];

// Not in the function that has noted a place: a compiler may take that for a jump inside of it.
[[noreturn]] __attribute__((noinline)) inline void go_on(Place place) { __builtin_longjmp(place, 1); }

__attribute__((noinline)) inline void wait(Status status) {
    Fiber &fiber = fibers[current];
    fiber.status = status;
    if (__builtin_setjmp(fiber.here) == 0) go_on(scheduler);
}

inline void wait_for(const signed char *where, signed char old) {
    Fiber &fiber = fibers[current];
    fiber.where = where, fiber.old = old;
    while (*where == old) wait(AT_EVENT);
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
    thread.x = i % block_size.x, block.x = first_block + i / block_size.x;
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
    bool any = false, late = false;
    int waiting = 0, done = 0;
    for (int first = 0; first < n_threads; first += WARP) {
        int at_warp = 0, alive = 0;
        for (int i = first; i < first + WARP; ++i) {
            alive += fibers[i].status != DONE;
            at_warp += fibers[i].status == AT_WARP;
            waiting += fibers[i].status == AT_BLOCK;
            if (fibers[i].status == AT_EVENT && *fibers[i].where != fibers[i].old) fibers[i].status = READY, any = true;
            done += fibers[i].status == DONE;
        }
        if (at_warp == 0 || at_warp < alive) continue;
        any = true;
        for (int i = first; i < first + WARP; ++i)
            if (fibers[i].status == AT_WARP) fibers[i].status = READY;
    }
    for (int i = 0; i < n_threads && !any; ++i) late |= fibers[i].status == AT_PRODUCTS;
    for (int i = 0; i < n_threads && late; ++i)
        if (fibers[i].status == AT_PRODUCTS) fibers[i].status = READY;
    any |= late;
    if (!any && !boxes.empty()) {
        Box first = boxes.front();
        boxes.erase(boxes.begin());
        arrive(first);
        return true;
    }
    if (any || waiting == 0) return any;
    if (waiting + done < n_threads) return false;
    for (int i = 0; i < n_threads; ++i)
        if (fibers[i].status == AT_BLOCK) fibers[i].status = READY;
    if (done > 0) failure = "a thread left before a barrier of its block";
    return true;
}

// Return what is left undone at the end of a block, or nothing.
inline const char *left_undone(unsigned room) {
    for (int i = 0; i < n_threads; ++i)
        if (!fibers[i].products.empty()) return "products that nobody waits for";
    for (int of = 0; of < cluster; ++of) {
        for (const Turn &turn : turns[of])
            if (turn.arrived) return "a turn is given and not taken";
        const char *beyond = dynamic_shared[of] + n_shared;  // all bytes are alike if each is like the next
        size_t n = room - n_shared;
        if (n && (*beyond != RUBBISH || memcmp(beyond, beyond + 1, n - 1) != 0))
            return "more shared memory is written than was asked for";
    }
    return boxes.empty() ? nullptr : "boxes that nobody waits for";
}

inline bool run_block(unsigned &seed) {
    static int order[MOST_THREADS];
    unsigned room = n_shared > SHARED ? MOST_SHARED : SHARED;
    for (int of = 0; of < cluster; ++of) memset(dynamic_shared[of], RUBBISH, room);
    memset(turns, 0, sizeof turns), boxes.clear();
    if (__start_shared_memory) memset(__start_shared_memory, RUBBISH, __stop_shared_memory - __start_shared_memory);
    for (int i = 0; i < n_threads; ++i) {
        fibers[i].status = READY, fibers[i].shows = 0, order[i] = i;
        fibers[i].copies.clear(), fibers[i].products.clear();
    }
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
            failure = left_undone(room);
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
    cluster = (char *)kernel >= __start_clusters_of_2 && (char *)kernel < __stop_clusters_of_2 ? 2 : 1;
    n_threads = threads * cluster, n_shared = shared, failure = nullptr;
    if (grid[0] % cluster || n_threads > MOST_THREADS || shared > MOST_SHARED) return "a launch that no GPU takes";
    unsigned n_blocks = grid[0] * grid[1];
    for (unsigned i = 0; i < n_blocks; i += cluster) {
        unsigned which = seed ? n_blocks - cluster - i : i;  // nothing may depend on the order of blocks
        block = {which % grid[0], which / grid[0], 0}, first_block = block.x;
        if (run_block(seed)) continue;
        for (Fiber &fiber : fibers) fiber.begun = false;  // what they were doing is over
        return failure;
    }
    return nullptr;
}

// Show `value` to the warp; return the place of what its lanes show, which lasts until this thread shows the next one.
template <class T>
const uint64_t *show(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves up to eight bytes");
    uint64_t *place = slots[++fibers[current].shows % 2];
    memcpy(&place[current], &value, sizeof(T));
    wait(AT_WARP);
    return place + current / WARP * WARP;
}
template <class T>
T shown(const uint64_t *place, int lane) {
    const Fiber &other = fibers[current / WARP * WARP + lane];
    if (other.shows < fibers[current].shows) failure = "a shuffle reads a lane that has left";
    T value;
    memcpy(&value, &place[lane], sizeof(T));
    return value;
}
}  // namespace shim

#define threadIdx shim::thread
#define blockIdx shim::block
#define blockDim shim::block_size
#define gridDim shim::grid_size

inline void __trap() { shim::failure = "a kernel has trapped"; }
inline void __syncthreads() { shim::wait(shim::AT_BLOCK); }
inline void __syncwarp() { shim::wait(shim::AT_WARP); }
template <class T> T __shfl_sync(unsigned, T value, int source) {
    return shim::shown<T>(shim::show(value), source & 31);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return __shfl_sync(0, value, (shim::current & 31) ^ mask);
}
inline unsigned __ballot_sync(unsigned, bool mine) {
    const uint64_t *place = shim::show(mine);
    unsigned bits = 0;
    for (int lane = 0; lane < 32; ++lane) bits |= (unsigned)shim::shown<bool>(place, lane) << lane;
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
// A thread goes on when all have loaded: it may write where another loads from.
template <class T> T loaded(const uint64_t *place, int lane, int at) { return shim::shown<const T *>(place, lane)[at]; }
inline void load_matrices(unsigned *x, const void *row) {
    int lane = shim::current % shim::WARP;
    if ((uintptr_t)row % 16 != 0) shim::failure = "a row of a matrix is not aligned";
    const uint64_t *place = shim::show(row);
    for (int m = 0; m < 4; ++m) x[m] = loaded<unsigned>(place, m * 8 + lane / 4, lane % 4);
    shim::wait(shim::AT_WARP);
}
inline void load_transposed(unsigned *x, const void *row) {
    int lane = shim::current % shim::WARP;
    if ((uintptr_t)row % 16 != 0) shim::failure = "a row of a matrix is not aligned";
    const uint64_t *place = shim::show(row);
    for (int m = 0; m < 4; ++m) {
        int first = m * 8 + lane % 4 * 2;
        x[m] = loaded<unsigned short>(place, first, lane / 4);
        x[m] |= (unsigned)loaded<unsigned short>(place, first + 1, lane / 4) << 16;
    }
    shim::wait(shim::AT_WARP);
}
inline void multiply(float *sum, const unsigned *a, const unsigned *b) {
    int lane = shim::current % shim::WARP;
    shim::Fiber *warp = shim::fibers + (shim::current - lane);
    unsigned turn = ++warp[lane].shows % 2;
    memcpy(warp[lane].fragments[turn], a, 16), memcpy(warp[lane].fragments[turn] + 4, b, 8);
    shim::wait(shim::AT_WARP);
    for (int at = 0; at < 4; ++at) {
        int row = lane / 4, column = lane % 4 * 2 + at % 2;
        for (int k = 0; k < 16; ++k) {
            int part = k / 8 * 2 + at / 2, of_a = row * 4 + k % 8 / 2, of_b = column * 4 + k % 8 / 2;
            unsigned x = warp[of_a].fragments[turn][part] >> k % 2 * 16;
            unsigned y = warp[of_b].fragments[turn][4 + k / 8] >> k % 2 * 16;
            sum[at] += __uint_as_float(x << 16) * __uint_as_float(y << 16);
        }
    }
}

// What `hopper.cu` writes in the instructions of the GPU. Products are computed when their
// thread waits for them and nothing else can go on.
namespace shim {
struct Barrier { short count, pending, bytes; signed char parity, made; };  // bytes: that are expected and not there
constexpr signed char MADE = 77;

inline char *shared_at(unsigned address, unsigned size, int of = my_block()) {
    if (address < SHARED_BASE || address + size > SHARED_BASE + n_shared || address % 8 != 0) {
        failure = "shared memory is used out of range, or not aligned";
        address = SHARED_BASE;
    }
    return dynamic_shared[of] + (address - SHARED_BASE);
}
inline Barrier &barrier_at(unsigned address, int of = my_block()) {
    Barrier &barrier = *(Barrier *)shared_at(address, 8, of);
    if (barrier.made != MADE) failure = "no barrier lies here";
    if (fibers[of * block_size.x].status == DONE) failure = "a barrier of a block that has left";
    return barrier;
}
inline void count(Barrier &barrier, int arrived, int bytes) {
    barrier.pending -= arrived, barrier.bytes += bytes;
    if (barrier.pending < 0) failure = "too many arrive at a barrier";
    if (barrier.pending == 0 && barrier.bytes == 0) barrier.pending = barrier.count, barrier.parity ^= 1;
}
inline unsigned swizzled(unsigned address) { return address ^ (address >> 7 & 7) << 4; }

// The words of a map: address, three sizes, two strides in bytes, the sizes of a box (driver.py).
inline void arrive(const Box &box) {
    const uint64_t *sizes = box.map + 1, *strides = box.map + 4, *of_box = box.map + 6;
    unsigned n_bytes = 128 * of_box[1] * of_box[2];
    char *to = shared_at(box.to, n_bytes, box.block);
    if (box.to % 1024 != 0) failure = "a box does not begin on 1024 bytes";
    for (unsigned row = 0; row < of_box[1] * of_box[2]; ++row)
        for (unsigned k = 0; k < 64; ++k) {
            uint64_t at[] = {box.at[0] + k, box.at[1] + row % of_box[1], box.at[2] + row / of_box[1]};
            unsigned short x = 0;
            if (at[0] < sizes[0] && at[1] < sizes[1] && at[2] < sizes[2])
                x = *(const unsigned short *)(box.map[0] + 2 * at[0] + strides[0] * at[1] + strides[1] * at[2]);
            memcpy(to + (swizzled(box.to + row * 128 + k * 2) - box.to), &x, 2);
        }
    count(barrier_at(box.barrier, box.block), 0, -(int)n_bytes);
}
inline float from_bits(unsigned bits) { return __uint_as_float(bits << 16); }
inline float of_matrix(uint64_t descriptor, int row, int k) {
    if (descriptor >> 46 != 1 << 16) failure = "a matrix with another swizzle, or offset";
    unsigned address = (descriptor & 0x3fff) << 4, apart = (descriptor >> 32 & 0x3fff) << 4;
    address = swizzled(address + row / 8 * apart + row % 8 * 128 + k * 2);
    return from_bits(*(const unsigned short *)(shared_at(address & ~7u, 8) + address % 8));
}
// A lane's part of product `which` of those that its warp has begun; other lanes hold the rest of A.
inline void compute(size_t which) {
    int lane = current % WARP, quad = current - lane % 4;
    const Product &mine = fibers[current].products[which];
    float a[2][16];
    for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 16; ++k) {
            unsigned pair = fibers[quad + k % 8 / 2].products[which].a[k / 8 * 2 + i];
            a[i][k] = from_bits(k % 2 ? pair >> 16 : pair & 0xffff);
        }
    for (int n = 0; n < 16; ++n)
        for (int c = 0; c < 2; ++c) {
            float b[16];
            for (int k = 0; k < 16; ++k) b[k] = of_matrix(mine.b, n * 8 + lane % 4 * 2 + c, k);
            for (int i = 0; i < 2; ++i) {
                float &sum = mine.sum[n * 4 + i * 2 + c];
                if (!mine.keep_sum) sum = 0.0f;
                for (int k = 0; k < 16; ++k) sum += a[i][k] * b[k];
            }
        }
}
}  // namespace shim

inline unsigned shared_address(const void *at) {
    return (unsigned)((const char *)at - shim::dynamic_shared[shim::my_block()]) + shim::SHARED_BASE;
}
inline float4 load_four(unsigned from) {
    float4 x;
    memcpy(&x, shim::shared_at(from, 16), 16);
    return x;
}
inline void store_eight(unsigned short *to, const unsigned *pairs, int at, int limit) {
    if (at >= limit) return;
    if ((uintptr_t)to % 16 != 0) shim::failure = "a store of 16 bytes is not aligned";
    memcpy(to, pairs, 16);
}
inline void keep(unsigned short *&) {}
inline void barrier_init(unsigned at, int count) {
    *(shim::Barrier *)shim::shared_at(at, 8) = {(short)count, (short)count, 0, 0, shim::MADE};
}
inline void barriers_are_made() {}
inline void barrier_wait(unsigned at, int parity) { shim::wait_for(&shim::barrier_at(at).parity, parity); }
inline void barrier_arrive(unsigned at, int block) { shim::count(shim::barrier_at(at, block), 1, 0); }
inline void barrier_expect(unsigned at, int bytes) { shim::count(shim::barrier_at(at), 1, bytes); }
inline void see_map(const unsigned long long *) {}
inline void fetch_box(unsigned to, const unsigned long long *map, int x, int y, int z, unsigned barrier) {
    const uint64_t *words = (const uint64_t *)map;
    for (int of = 0; of < shim::cluster; ++of) {  // from now on what lies there may be anything
        memset(shim::shared_at(to, 128 * words[7] * words[8], of), shim::RUBBISH, 128 * words[7] * words[8]);
        shim::boxes.push_back({of, to, words, {x, y, z}, barrier});
    }
}
inline void cluster_barrier() { shim::wait(shim::AT_BLOCK); }
inline int block_of_cluster() { return shim::my_block(); }
template <int threads> void turn_give(int which) {
    shim::Turn &turn = shim::turns[shim::my_block()][which];
    if (++turn.arrived == threads) turn.arrived = 0, turn.parity ^= 1;
}
template <int threads> void turn_wait(int which) {
    shim::Turn &turn = shim::turns[shim::my_block()][which];
    signed char parity = turn.parity;
    turn_give<threads>(which);
    shim::wait_for(&turn.parity, parity);
}
template <int n> void fewer_registers() {}
template <int n> void more_registers() {}
inline void products_begin() { shim::fibers[shim::current].fenced = true; }
inline void products_end() { ++shim::fibers[shim::current].group; }
inline void multiply_later(float *sum, const unsigned *a, unsigned long long b, int keep_sum) {
    shim::Fiber &mine = shim::fibers[shim::current];
    if (!mine.fenced) shim::failure = "products begin before registers are ready";
    mine.products.push_back({sum, a, b, keep_sum != 0, mine.group});
}
template <int groups> void products_wait() {
    shim::Fiber &mine = shim::fibers[shim::current];
    if (groups == 0) mine.fenced = false;
    size_t due = 0;
    while (due < mine.products.size() && mine.products[due].group < mine.group - groups) ++due;
    if (due) shim::wait(shim::AT_PRODUCTS);
    shim::wait(shim::AT_WARP);
    for (size_t which = 0; which < due; ++which) shim::compute(which);
    shim::wait(shim::AT_WARP);
    mine.products.erase(mine.products.begin(), mine.products.begin() + due);
}

#define SHIM_EXPORT(kernel)                                                                                          \
    extern "C" const char *shim_##kernel(const unsigned *grid, unsigned threads, unsigned shared, void **arguments, \
                                         unsigned seed) {                                                            \
        return shim::launch(kernel, grid, threads, shared, arguments, seed);                                         \
    }
