// What a GPU that is not there holds: memory, streams, events. Every call is made under one lock.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
#define LOCKED std::lock_guard<std::recursive_mutex> locked(big)
#define TRY(call) do { if (int status_ = (call)) return status_; } while (0)

enum Status {
    OK, INVALID_VALUE, OUT_OF_MEMORY, INVALID_DIRECTION = 21, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT, INVALID_HANDLE = 400, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, OUT_OF_RESOURCES,
    LAUNCH_FAILED = 719
};
// A Hopper of two, as NVIDIA's tables have it.
constexpr int CAPABILITY[] = {9, 0}, MULTIPROCESSORS = 132, REGISTERS = 65536, VERSION = 13000, GPUS = 2;
constexpr size_t SHARED = 48 << 10, OPT_IN_SHARED = 227 << 10, DEVICE_BYTES = 141ull << 30;
constexpr unsigned char POISON = 0xFF;  // NaN as float32, -1 as an integer

std::recursive_mutex big;
thread_local int current = 0, last_error = OK;
thread_local bool has_context = false;
int sticky = OK;  // what a failed kernel leaves behind: all that follows fails, too

bool asked(const char *name) {
    const char *given = getenv(name);
    return given && *given == '1';
}
const bool late = asked("FAKE_LATE");  // streams work as late as waiting for them allows
const bool dry = asked("FAKE_DRY");    // all is checked, nothing is done: for sizes that take a CPU hours

// Say why on stderr; return the status.
int refuse(int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "[fake CUDA, status %d] ", status);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return last_error = status;
}

// End the process: what nobody has called so far has no answer that could be right.
[[noreturn]] void missing(const std::string &what) {
    fprintf(stderr, "[fake CUDA] %s is not there\n", what.c_str());
    abort();
}

struct Block { size_t size; bool pinned; int device; };
std::map<uintptr_t, Block> blocks;
size_t allocated[GPUS];

// Return the memory that holds these bytes, GPU's or pinned, null for any other.
const Block *block_of(const void *at, size_t size = 1) {
    auto next = blocks.upper_bound((uintptr_t)at);
    if (next == blocks.begin()) return nullptr;
    auto &[first, block] = *--next;
    return (uintptr_t)at + size <= first + block.size ? &block : nullptr;
}
bool on_gpu(const void *at, size_t size = 1, int device = -1) {
    const Block *found = block_of(at, size);
    return found && !found->pinned && (device < 0 || found->device == device);
}

typedef std::function<void()> Work;
enum StreamNumber { LEGACY = 1, PER_THREAD };
struct Stream {
    int device;
    bool non_blocking;
    std::deque<Work> waiting = {};
    size_t done = 0;

    size_t given() const { return done + waiting.size(); }
    void flush(size_t until = SIZE_MAX) {
        while (!waiting.empty() && done < until) {
            Work work = std::move(waiting.front());
            waiting.pop_front();
            ++done;
            work();
        }
    }
    void give(Work work) {
        if (dry) work = [] {};
        waiting.push_back(std::move(work));
        if (!late || !non_blocking) flush();
    }
};
struct Event {
    int device;
    Stream *stream = nullptr;
    size_t until = 0;
};
// Streams, events, and cuBLAS's handles that are destroyed leave their sets and are not freed, so
// that nothing else gets their numbers.
std::set<Stream *> streams;
std::set<Event *> events;

void flush_all() {
    for (Stream *stream : std::set<Stream *>(streams)) stream->flush();
}


// 0 and the numbers that the runtime gives its default streams.
bool is_default(void *handle) { return (uintptr_t)handle <= PER_THREAD; }
// Find a stream. On the default one CuPy may work, this package never: it would not wait for that of its streams.
int find(void *handle, Stream *&found, const char *who) {
    if (sticky) return last_error = sticky;
    found = (Stream *)handle;
    if (is_default(handle)) return refuse(INVALID_HANDLE, "%s: work on the default stream", who);
    if (!streams.count(found)) return refuse(INVALID_HANDLE, "%s: unknown stream %p", who, handle);
    return OK;
}
int find(void *handle, Event *&found, const char *who) {
    found = (Event *)handle;
    return events.count(found) ? OK : refuse(INVALID_HANDLE, "%s: unknown event %p", who, handle);
}
#define FIND(handle) Stream *stream; TRY(find(handle, stream, __func__))
#define FIND_EVENT(handle) Event *event; TRY(find(handle, event, __func__))
