// Kernels, compiled twice: by NVRTC, whose verdict and whose count of registers and shared memory hold, and by g++ with
// `cuda_shim.h`, to run. What CuPy takes for machine code is the source with that count.
#pragma once
#include "state.h"
#include <dlfcn.h>

void *real_nvrtc = nullptr;
void *(*real_dlsym)(void *, const char *) = nullptr;

struct Program { void *real; std::string source, image; };

API int fake_nvrtcCreateProgram(
    Program **made, const char *source, const char *name, int n, const char **headers, const char **names) {
    *made = new Program{nullptr, source, ""};
    auto create = (int (*)(void **, const char *, const char *, int, const char **, const char **))real_dlsym(
        real_nvrtc, "nvrtcCreateProgram");
    return create(&(*made)->real, source, name, n, headers, names);
}
API int fake_nvrtcDestroyProgram(Program **program) {
    auto destroy = (int (*)(void **))real_dlsym(real_nvrtc, "nvrtcDestroyProgram");
    int status = destroy(&(*program)->real);
    delete *program;
    *program = nullptr;
    return status;
}
#define FORWARDED(name, type)                                                         \
    API int fake_##name(Program *program, type out) {                                 \
        return ((int (*)(void *, type))real_dlsym(real_nvrtc, #name))(program->real, out); \
    }
FORWARDED(nvrtcGetProgramLogSize, size_t *)
FORWARDED(nvrtcGetProgramLog, char *)
FORWARDED(nvrtcGetPTXSize, size_t *)
FORWARDED(nvrtcGetPTX, char *)

API int fake_nvrtcCompileProgram(Program *program, int n, const char **given) {
    static const std::regex used(R"(Compiling entry function '(\w+)'[\s\S]*?Used (\d+) registers([^\n]*))");
    static const std::regex shared(R"((\d+) bytes smem)");
    std::vector<const char *> options(given, given + n);
    std::string kept;
    bool code = false;
    for (const char *option : options) {
        if (!strncmp(option, "-D", 2) || !strncmp(option, "-I", 2)) kept += std::string(option) + " ";
        code |= strstr(option, "arch=sm_") != nullptr;
    }
    if (code) options.push_back("--ptxas-options=-v");
    auto compile = (int (*)(void *, int, const char **))real_dlsym(real_nvrtc, "nvrtcCompileProgram");
    TRY(compile(program->real, (int)options.size(), options.data()));
    size_t size = 0;
    fake_nvrtcGetProgramLogSize(program, &size);
    std::string log(size, ' '), usage;
    fake_nvrtcGetProgramLog(program, log.data());
    for (std::sregex_iterator at(log.begin(), log.end(), used), end; at != end; ++at) {
        std::string rest = (*at)[3].str();
        std::smatch found;
        std::string bytes = std::regex_search(rest, found, shared) ? found[1].str() : "0";
        usage += (*at)[1].str() + " " + (*at)[2].str() + " " + bytes + "\n";
    }
    char first[80];
    snprintf(first, sizeof first, "fake %zu %zu %zu\n", kept.size(), program->source.size(), usage.size());
    program->image = first + kept + program->source + usage;
    return OK;
}
API int fake_nvrtcGetCUBINSize(Program *program, size_t *size) {
    *size = program->image.size() + 1;
    return OK;
}
API int fake_nvrtcGetCUBIN(Program *program, char *image) {
    memcpy(image, program->image.c_str(), program->image.size() + 1);
    return OK;
}

typedef const char *(*Launcher)(const unsigned *, unsigned, unsigned, void **, unsigned);
enum FunctionAttribute { STATIC_SHARED = 1, REGISTERS_OF_A_THREAD = 4, MOST_DYNAMIC_SHARED = 8 };
struct Usage { int registers; size_t shared; };
struct Function {
    std::string name;
    Launcher run;
    std::vector<int> sizes;
    Usage usage;
    int device;
    size_t most_shared = SHARED;
};
struct Module {
    void *library;
    int device;
    std::map<std::string, Usage> usage;
    std::map<std::string, Function> made = {};
};
std::set<Module *> modules;
std::set<Function *> functions;

// The sizes of a kernel's arguments, below zero for pointers.
const char *EXPORT = R"(
template <class... A> int describe(void (*)(A...), int *sizes) {
    int i = 0;
    ((sizes[i++] = std::is_pointer_v<A> ? -(int)sizeof(A) : (int)sizeof(A)), ...);
    return i;
}
#define EXPORT(kernel) SHIM_EXPORT(kernel) extern "C" int sizes_##kernel(int *at) { return describe(kernel, at); }
)";

// Return the library that g++ has made of a source with these kernels, found again by its hash, or nothing.
std::string compiled(const std::string &source, const std::string &options, const std::map<std::string, Usage> &usage) {
    std::string text = std::string("#include \"cuda_shim.h\"\n") + EXPORT + "#line 1 \"kernels.cu\"\n" + source + "\n";
    for (auto &[name, unused] : usage) text += "EXPORT(" + name + ")\n";
    std::string folder = getenv("FAKE_FOLDER");
    std::string library = folder + "/" + std::to_string(std::hash<std::string>()(text + options)) + ".so";
    if (access(library.c_str(), R_OK) == 0) return library;
    std::string mine = library + "." + std::to_string(getpid());
    FILE *file = fopen((mine + ".cpp").c_str(), "w");
    fputs(text.c_str(), file);
    fclose(file);
    std::string command = "env -u LD_PRELOAD g++ -std=c++17 -Og -fPIC -shared -fno-strict-aliasing -ffp-contract=off ";
    command += "-w -U_FORTIFY_SOURCE -I " + folder + "/include " + options + mine + ".cpp -o " + mine;
    if (system(command.c_str()) != 0) return "";
    unlink((mine + ".cpp").c_str());
    rename(mine.c_str(), library.c_str());
    return library;
}

API int cuGetErrorName(int status, const char **text) {
    *text = cudaGetErrorName(status);
    return OK;
}
API int cuGetErrorString(int status, const char **text) {
    *text = cudaGetErrorString(status);
    return OK;
}
API int cuModuleLoadData(Module **made, const char *image) {
    LOCKED;
    if (!has_context) return refuse(INVALID_CONTEXT, __func__);
    int n_options, n_source, n_usage, at, n;
    if (sscanf(image, "fake %d %d %d\n%n", &n_options, &n_source, &n_usage, &at) != 3)
        return refuse(INVALID_IMAGE, __func__);
    image += at;
    std::string told(image + n_options + n_source, n_usage);
    std::map<std::string, Usage> usage;
    char name[512];
    int registers, shared;
    const char *rest = told.c_str();
    for (; sscanf(rest, "%511s %d %d\n%n", name, &registers, &shared, &n) == 3; rest += n)
        usage[name] = {registers, (size_t)shared};
    std::string library = compiled(std::string(image + n_options, n_source), std::string(image, n_options), usage);
    void *loaded = library.empty() ? nullptr : dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!loaded) return refuse(INVALID_IMAGE, "a kernel does not compile for the CPU");
    modules.insert(*made = new Module{loaded, current, usage});
    return OK;
}
API int cuModuleUnload(Module *module) {
    LOCKED;
    if (!modules.erase(module)) return refuse(INVALID_HANDLE, __func__);
    flush_all();
    for (auto &[name, function] : module->made) functions.erase(&function);
    delete module;  // its library stays: launches may wait
    return OK;
}
API int cuModuleGetFunction(Function **made, Module *module, const char *name) {
    LOCKED;
    if (!modules.count(module)) return refuse(INVALID_HANDLE, __func__);
    auto used = module->usage.find(name);
    if (used == module->usage.end()) return refuse(NOT_FOUND, "NVRTC tells nothing of a kernel %s", name);
    auto run = (Launcher)real_dlsym(module->library, ("shim_" + std::string(name)).c_str());
    auto sizes = (int (*)(int *))real_dlsym(module->library, ("sizes_" + std::string(name)).c_str());
    int found[64], n = sizes(found);
    Function &function = module->made[name];
    function = {name, run, {found, found + n}, used->second, module->device};
    functions.insert(*made = &function);
    return OK;
}
API int cuFuncGetAttribute(int *value, int attribute, Function *function) {
    LOCKED;
    if (!functions.count(function)) return refuse(INVALID_HANDLE, __func__);
    switch (attribute) {
        case STATIC_SHARED: *value = (int)function->usage.shared; return OK;
        case REGISTERS_OF_A_THREAD: *value = function->usage.registers; return OK;
    }
    missing(std::string(__func__) + " of " + std::to_string(attribute));
}
API int cuFuncSetAttribute(Function *function, int attribute, int value) {
    LOCKED;
    if (!functions.count(function)) return refuse(INVALID_HANDLE, __func__);
    if (attribute != MOST_DYNAMIC_SHARED) missing(std::string(__func__) + " of " + std::to_string(attribute));
    if (value < 0 || value + function->usage.shared > OPT_IN_SHARED)
        return refuse(INVALID_VALUE, "%s: %d bytes of shared memory", function->name.c_str(), value);
    function->most_shared = std::max(SHARED, (size_t)value);
    return OK;
}
// The map as `cuda_shim.h` reads it, of what is used: bfloat16, three dimensions, rows of a box 128 bytes.
API int cuTensorMapEncodeTiled(uint64_t *made, int type, unsigned rank, void *address, const uint64_t *sizes,
                               const uint64_t *strides, const unsigned *box, const unsigned *apart, int interleave,
                               int swizzle, int, int outside) {
    LOCKED;
    bool known = type == 9 && rank == 3 && interleave == 0 && swizzle == 3 && outside == 0 && box[0] == 64;
    if (!known) missing(std::string(__func__) + " of another kind");
    size_t n_bytes = 2 * sizes[0] + strides[0] * (sizes[1] - 1) + strides[1] * (sizes[2] - 1);
    if ((uintptr_t)made % 64 || (uintptr_t)address % 16 || strides[0] % 16 || strides[1] % 16 || box[1] > 256 ||
        box[2] > 256 || apart[0] != 1 || apart[1] != 1 || apart[2] != 1 || !on_gpu(address, n_bytes))
        return refuse(INVALID_VALUE, __func__);
    uint64_t words[16] = {
        (uint64_t)address, sizes[0], sizes[1], sizes[2], strides[0], strides[1], box[0], box[1], box[2]};
    memcpy(made, words, sizeof words);
    return OK;
}
API int cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void *on, void **given, void **extra) {
    LOCKED;
    if (!has_context) return refuse(INVALID_CONTEXT, "a launch by a thread without a context");
    if (!functions.count(function)) return refuse(INVALID_HANDLE, "a launch of an unknown kernel");
    FIND(on);
    const auto &[name, run, sizes, usage, device, most_shared] = *function;
    if (stream->device != device) return refuse(INVALID_HANDLE, "%s on a stream of another GPU", name.c_str());
    if (!gx || !gy || gx > 2147483647u || gy > 65535 || gz != 1 || by != 1 || bz != 1 || !bx || bx > 1024 || extra)
        return refuse(INVALID_VALUE, "%s: grid %u, %u, %u, block %u, %u, %u", name.c_str(), gx, gy, gz, bx, by, bz);
    if (shared + usage.shared > most_shared)
        return refuse(INVALID_VALUE, "%s: %u + %zu bytes of shared memory", name.c_str(), shared, usage.shared);
    int warps = (bx + 31) / 32, registers = (usage.registers * 32 + 255) / 256 * 256;
    if (warps * registers > REGISTERS)
        return refuse(OUT_OF_RESOURCES, "%s: %u threads of %d registers", name.c_str(), bx, usage.registers);
    std::vector<std::vector<char>> values;
    for (size_t i = 0; i < sizes.size(); ++i) {
        values.emplace_back((char *)given[i], (char *)given[i] + abs(sizes[i]));
        void *pointer = sizes[i] < 0 ? *(void **)given[i] : nullptr;
        if (pointer && !on_gpu(pointer, 1, device))
            return sticky = refuse(ILLEGAL_ADDRESS, "%s: argument %zu is not its GPU's", name.c_str(), i);
    }
    stream->give([=, run = run, name = name] {
        std::vector<void *> pointers;
        for (auto &value : values) pointers.push_back((void *)value.data());
        unsigned grid[] = {gx, gy};
        // The launcher runs whole warps. So are our kernels launched; CuPy's own do nothing beyond their n.
        const char *failure = run(grid, 32 * warps, shared, pointers.data(), 0);
        if (failure) sticky = refuse(LAUNCH_FAILED, "%s: %s", name.c_str(), failure);
    });
    return OK;
}
