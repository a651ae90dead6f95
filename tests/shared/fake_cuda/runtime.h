// The runtime's functions: devices, memory, copies, streams, events.
#pragma once
#include "state.h"

// Of cudart's numbers those that it is asked for.
enum DeviceAttribute {
    CLOCK_RATE = 13, OVERLAP = 15, MULTIPROCESSOR_COUNT, TIMEOUT, COMPUTE_MODE = 20, MEMORY_CLOCK_RATE = 36,
    LINEAR_TEXTURE = 69, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR, DOUBLE_RATIO = 87, MULTI_DEVICE = 96,
    MEMORY_POOLS = 115
};
enum MemoryType { UNREGISTERED, HOST, DEVICE };
enum CopyKind { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };
enum StreamFlag { BLOCKING, NON_BLOCKING };

API int cudaGetLastError() {
    int was = last_error;
    last_error = OK;
    return was;
}
API const char *cudaGetErrorName(int status) {
    static thread_local char text[40];
    snprintf(text, sizeof text, status == OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : "cudaError%d", status);
    return text;
}
API const char *cudaGetErrorString(int status) { return status == OUT_OF_MEMORY ? "out of memory" : "see stderr"; }
API int cudaDriverGetVersion(int *version) {
    *version = VERSION;
    return OK;
}
API int cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
API int cudaGetDeviceCount(int *count) {
    *count = GPUS;
    return OK;
}
API int cudaGetDevice(int *device) {
    *device = current;
    return OK;
}
API int cudaSetDevice(int device) {
    if (device < 0 || device >= GPUS) return refuse(INVALID_DEVICE, "%s(%d)", __func__, device);
    has_context = true;
    current = device;
    return OK;
}
API int cudaDeviceSynchronize() {
    LOCKED;
    flush_all();
    return sticky;
}
API int cudaDeviceGetAttribute(int *value, int attribute, int) {
    switch (attribute) {
        case MULTIPROCESSOR_COUNT: *value = MULTIPROCESSORS; return OK;
        case CAPABILITY_MAJOR: *value = CAPABILITY[0]; return OK;
        case CAPABILITY_MINOR: *value = CAPABILITY[1]; return OK;
        case MEMORY_POOLS: *value = 1; return OK;
        case CLOCK_RATE: case OVERLAP: case TIMEOUT: case COMPUTE_MODE: case MEMORY_CLOCK_RATE: case LINEAR_TEXTURE:
        case DOUBLE_RATIO: case MULTI_DEVICE: *value = 0; return OK;
    }
    missing(std::string(__func__) + " of " + std::to_string(attribute));
}
struct Properties {  // the first members of cudaDeviceProp
    char name[256], uuid[16], luid[8];
    unsigned node;
    size_t total, shared;
    int registers, warp;
    size_t pitch;
    int threads, block[3], grid[3];
    size_t constant;
    int major, minor;
    size_t alignment, pitch_alignment;
    int multiprocessors;
};
API int cudaGetDeviceProperties(Properties *given, int device) {
    if (device < 0 || device >= GPUS) return refuse(INVALID_DEVICE, "%s(%d)", __func__, device);
    *given = {"fake H200", {}, {}, 0, DEVICE_BYTES, SHARED, REGISTERS, 32, 1 << 30, 1024, {1024, 1024, 64},
              {2147483647, 65535, 65535}, 65536, CAPABILITY[0], CAPABILITY[1], 512, 32, MULTIPROCESSORS};
    return OK;
}

int take(void **at, size_t size, bool pinned) {
    LOCKED;
    if (sticky) return sticky;
    has_context = true;
    *at = nullptr;
    if (!size) return OK;
    if (!pinned && allocated[current] + size > DEVICE_BYTES) return last_error = OUT_OF_MEMORY;
    size_t taken = (size + 511) / 512 * 512;
    if (!(*at = aligned_alloc(512, taken))) return last_error = OUT_OF_MEMORY;
    if (!dry) memset(*at, POISON, taken);
    blocks[(uintptr_t)*at] = {size, pinned, current};
    if (!pinned) allocated[current] += size;
    return OK;
}
int give_back(void *at, bool pinned, const char *who) {
    LOCKED;
    if (!at) return OK;
    auto found = blocks.find((uintptr_t)at);
    if (found == blocks.end() || found->second.pinned != pinned)
        return refuse(INVALID_VALUE, "%s of %p, which is no such memory", who, at);
    flush_all();
    if (!pinned) allocated[found->second.device] -= found->second.size;
    blocks.erase(found);
    free(at);
    return OK;
}
API int cudaMalloc(void **at, size_t size) { return take(at, size, false); }
API int cudaHostAlloc(void **at, size_t size, unsigned) { return take(at, size, true); }
API int cudaFree(void *at) { return give_back(at, false, __func__); }
API int cudaFreeHost(void *at) { return give_back(at, true, __func__); }
API int cudaMemGetInfo(size_t *free, size_t *total) {
    LOCKED;
    has_context = true;
    *total = DEVICE_BYTES, *free = DEVICE_BYTES - allocated[current];
    return sticky;
}
struct Attributes { int type, device; void *of_gpu, *of_host; long reserved[8]; };
API int cudaPointerGetAttributes(Attributes *given, void *at) {
    LOCKED;
    const Block *found = block_of(at);
    *given = {!found ? UNREGISTERED : found->pinned ? HOST : DEVICE, found ? found->device : -2, at, nullptr, {}};
    return OK;
}
API int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *handle) {
    LOCKED;
    FIND(handle);
    if (kind < HOST_TO_HOST || kind > BY_ADDRESS) return refuse(INVALID_DIRECTION, "%s: kind %d", __func__, kind);
    bool to_gpu = kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE;
    bool from_gpu = kind == DEVICE_TO_HOST || kind == DEVICE_TO_DEVICE;
    if (kind != BY_ADDRESS && (on_gpu(to, size) != to_gpu || on_gpu(from, size) != from_gpu))
        return refuse(INVALID_VALUE, "%s from %p to %p is not of kind %d", __func__, from, to, kind);
    if (dry) return OK;
    if (!block_of(from)) {  // the driver keeps a copy before it returns
        auto kept = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + size);
        stream->give([=] { memcpy(to, kept->data(), size); });
    } else {
        stream->give([=] { memmove(to, from, size); });
        if (!block_of(to)) stream->flush();
    }
    return sticky;
}
API int cudaMemsetAsync(void *to, int value, size_t size, void *handle) {
    LOCKED;
    FIND(handle);
    if (!on_gpu(to, size)) return refuse(INVALID_VALUE, "%s of memory that is not the GPU's", __func__);
    stream->give([=] { memset(to, value, size); });
    return OK;
}

API int cudaStreamCreateWithPriority(void **handle, unsigned flags, int) {
    LOCKED;
    streams.insert((Stream *)(*handle = new Stream{current, flags == NON_BLOCKING}));
    return OK;
}
API int cudaStreamDestroy(void *handle) {
    LOCKED;
    FIND(handle);
    stream->flush();
    streams.erase(stream);
    return OK;
}
API int cudaStreamSynchronize(void *handle) {
    LOCKED;
    FIND(handle);
    stream->flush();
    return sticky;
}
API int cudaEventCreateWithFlags(void **handle, unsigned) {
    LOCKED;
    events.insert((Event *)(*handle = new Event{current}));
    return OK;
}
API int cudaEventDestroy(void *handle) {
    LOCKED;
    FIND_EVENT(handle);
    events.erase(event);
    return OK;
}
API int cudaEventRecord(void *handle, void *on) {
    LOCKED;
    FIND_EVENT(handle);
    FIND(on);
    if (event->device != stream->device) return refuse(INVALID_HANDLE, "%s on a stream of another GPU", __func__);
    event->stream = stream, event->until = stream->given();
    return OK;
}
API int cudaEventSynchronize(void *handle) {
    LOCKED;
    FIND_EVENT(handle);
    if (streams.count(event->stream)) event->stream->flush(event->until);
    return sticky;
}
API int cudaEventElapsedTime(float *milliseconds, void *first, void *last) {
    LOCKED;
    for (void *handle : {first, last}) {
        FIND_EVENT(handle);
        if (!event->stream) return refuse(INVALID_HANDLE, "%s of an event that was not recorded", __func__);
    }
    *milliseconds = 1e-3f;
    return OK;
}
API int cudaStreamWaitEvent(void *handle, void *of, unsigned) {
    LOCKED;
    FIND_EVENT(of);
    FIND(handle);
    Stream *other = event->stream;
    if (!other) return OK;
    size_t until = event->until;
    stream->give([=] { if (streams.count(other)) other->flush(until); });
    return OK;
}

API int cudaStreamIsCapturing(void *, int *state) {
    *state = 0;
    return OK;
}
