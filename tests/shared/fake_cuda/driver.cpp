// CUDA that is not there, for the real CuPy: what it calls of the runtime, the driver, NVRTC, cuBLAS and Thrust.
//
// Preloaded by `tests/real_cupy.py`. CuPy's wheels contain the runtime and Thrust, so that their functions are turned
// to those here as soon as CuPy's libraries are loaded; other libraries find them by name. What the real ones refuse is
// refused, with a line on stderr that says why; what nobody has called so far ends the process.
//
// For Linux on x86-64, CUDA 13 and g++: by the machine code that is written, the numbers and structures, the kernels.
#if !defined(__x86_64__) || !defined(__linux__)
#error "CUDA that is not there is for Linux on x86-64 alone"
#endif
#include "runtime.h"

#include "kernels.h"
#include "libraries.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define STUB(name) API void name() { missing(#name); }
#include "stubs.h"

// Write over the beginning of a function: a jump to another one.
constexpr size_t JUMP = 14;  // bytes
void turn(char *at, const void *to) {
    char *page = (char *)((uintptr_t)at & ~4095ull);
    mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(at, "\xFF\x25\0\0\0", 6);  // to the address that follows
    memcpy(at + 6, &to, 8);
    mprotect(page, 8192, PROT_READ | PROT_EXEC);
}
[[noreturn]] void missing_function(const char *name) { missing(name); }
// Return code that calls `missing_function(name)`.
const void *complaint(const char *name) {
    static char *room = nullptr, *end = nullptr;
    constexpr int all = PROT_READ | PROT_WRITE | PROT_EXEC, size = 32, page = 1 << 16;
    if (room == end) room = (char *)mmap(nullptr, page, all, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), end = room + page;
    const char *kept = strdup(name);
    const void *to = (const void *)missing_function;
    memcpy(room, "\x48\xBF", 2), memcpy(room + 2, &kept, 8);  // the first argument
    memcpy(room + 10, "\x48\xB8", 2), memcpy(room + 12, &to, 8), memcpy(room + 20, "\xFF\xE0", 2);
    room += size;
    return room - size;
}
void *self() {
    Dl_info info;
    dladdr((void *)self, &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

// Turn functions that a library of CuPy contains to those here; one without any would ask for a GPU.
void adopt(const std::string &path, char *base) {
    int file = open(path.c_str(), O_RDONLY);
    struct stat found;
    if (file < 0 || fstat(file, &found)) missing(path);
    char *raw = (char *)mmap(nullptr, found.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (raw == MAP_FAILED) missing(path);
    close(file);
    size_t turned = 0;
    void *here = self();
    auto *header = (Elf64_Ehdr *)raw;
    auto *sections = (Elf64_Shdr *)(raw + header->e_shoff);
    for (auto *section = sections; section < sections + header->e_shnum; ++section) {
        if (section->sh_type != SHT_SYMTAB) continue;
        auto *symbols = (Elf64_Sym *)(raw + section->sh_offset);
        const char *names = raw + sections[section->sh_link].sh_offset;
        for (size_t i = 0; i < section->sh_size / sizeof *symbols; ++i) {
            const char *name = names + symbols[i].st_name;
            bool runtime = !strncmp(name, "cuda", 4) && isupper(name[4]);
            bool thrust = !strncmp(name, "_Z11thrust_sort", 15);
            if (ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC || !symbols[i].st_value || !(runtime || thrust)) continue;
            if (symbols[i].st_size < JUMP) missing("room for a jump in " + std::string(name));
            void *ours = real_dlsym(here, name);
            ++turned;
            turn(base + symbols[i].st_value, ours ? ours : complaint(name));
        }
    }
    munmap(raw, found.st_size);
    if (!turned) missing("a function to turn in " + path);
}

API void *dlsym(void *handle, const char *name) {
    if (!real_dlsym) real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void *found = real_dlsym(handle, name);
    if (!found || strncmp(name, "nvrtc", 5)) return found;
    void *ours = real_dlsym(self(), ("fake_" + std::string(name)).c_str());
    if (ours) real_nvrtc = handle;
    return ours ? ours : found;
}
API void *dlopen(const char *path, int flags) {
    static auto real = (void *(*)(const char *, int))dlvsym(RTLD_NEXT, "dlopen", "GLIBC_2.2.5");
    static std::set<void *> known;
    if (!real_dlsym) dlsym(nullptr, "dlopen");
    if (!path) return real(path, flags);
    std::string name = path;
    Dl_info caller;
    bool by_nvrtc = dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "libnvrtc");
    if (by_nvrtc && name.find("libcuda.so") == 0) return nullptr;  // of which it asks what is not documented
    if (by_nvrtc && name.find('/') == std::string::npos) {  // the loader would look beside the caller, which is we
        std::string beside = caller.dli_fname;
        name = beside.substr(0, beside.rfind('/') + 1) + name;
    }
    void *handle = real(name.c_str(), flags);
    LOCKED;
    bool cupys = strstr(name.c_str(), "cuda/api/runtime.") || strstr(name.c_str(), "cupy/cuda/thrust.");
    if (handle && cupys && known.insert(handle).second) adopt(name, (char *)((link_map *)handle)->l_addr);
    return handle;
}
