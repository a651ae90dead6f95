/* System calls that fail, for `benchmarks.faults`: loaded before the C library, whose functions these call.

   A call counts if its file is in the folder of `faults_arm`. The n-th one fails with `error`, or, if that is 0 and it
   reads or writes, does half of what was asked. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long left = -1;
static int fault;
static char what[PATH_MAX + 64];

void faults_arm(const char *path, long n, int error) {
    snprintf(folder, sizeof folder, "%s", path);
    fault = error;
    what[0] = 0;
    left = n;
}

/* Return what failed, "" if nothing did, and count no more. */
const char *faults_disarm(void) {
    left = -1;
    return what;
}

static int due(const char *call, const char *path, int partial) {
    if (left < 0 || strncmp(path, folder, strlen(folder)) || (!fault && !partial) || left--)
        return 0;
    snprintf(what, sizeof what, "%s %s", call, path + strlen(folder));
    errno = fault;
    return 1;
}

static const char *of_link(const char *link, const char *name) {
    static char found[2 * PATH_MAX];
    ssize_t size = readlink(link, found, PATH_MAX - 1);
    snprintf(found + (size < 0 ? 0 : size), PATH_MAX, "%s%s", *name ? "/" : "", name);
    return found;
}

static const char *of_descriptor(int fd, const char *name) {
    char link[64];
    int opened, end = 0;
    if (sscanf(name, "/proc/self/fd/%d%n/%n", &opened, &end, &end) == 1)
        return of_descriptor(opened, name + end);
    if (*name == '/')
        return name;
    if (fd == AT_FDCWD)
        return of_link("/proc/self/cwd", name);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return of_link(link, name);
}

#define REAL(type, name, declared)                                                                                     \
    static type(*real) declared;                                                                                       \
    if (!real)                                                                                                         \
    real = (type(*) declared)dlsym(RTLD_NEXT, #name)

#define FAILING(type, name, at, path, declared, ...)                                                                   \
    type name declared {                                                                                               \
        REAL(type, name, declared);                                                                                    \
        if (left >= 0 && due(#name, of_descriptor(at, path), 0))                                                       \
            return (type)-1;                                                                                           \
        return real(__VA_ARGS__);                                                                                      \
    }

#define OPENING(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = va_arg(more, mode_t);                                                                            \
        va_end(more);                                                                                                  \
        REAL(int, name, (const char *, int, ...));                                                                     \
        if (left >= 0 && due("open", of_descriptor(AT_FDCWD, path), 0))                                                \
            return -1;                                                                                                 \
        return real(path, flags, mode);                                                                                \
    }

#define OPENING_AT(name)                                                                                               \
    int name(int at, const char *path, int flags, ...) {                                                               \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = va_arg(more, mode_t);                                                                            \
        va_end(more);                                                                                                  \
        REAL(int, name, (int, const char *, int, ...));                                                                \
        if (left >= 0 && due("openat", of_descriptor(at, path), 0))                                                    \
            return -1;                                                                                                 \
        return real(at, path, flags, mode);                                                                            \
    }

/* Fail, or do half. */
#define MOVING(name, buffer)                                                                                           \
    ssize_t name(int fd, buffer data, size_t size) {                                                                   \
        REAL(ssize_t, name, (int, buffer, size_t));                                                                    \
        if (left >= 0 && due(#name, of_descriptor(fd, ""), size > 1)) {                                                \
            if (fault)                                                                                                 \
                return -1;                                                                                             \
            size /= 2;                                                                                                 \
        }                                                                                                              \
        return real(fd, data, size);                                                                                   \
    }

OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)
MOVING(read, void *)
MOVING(write, const void *)
FAILING(int, fsync, fd, "", (int fd), fd)
FAILING(int, flock, fd, "", (int fd, int operation), fd, operation)
FAILING(int, fstat, fd, "", (int fd, struct stat *state), fd, state)
FAILING(int, fstat64, fd, "", (int fd, struct stat64 *state), fd, state)
FAILING(int, stat, AT_FDCWD, path, (const char *path, struct stat *state), path, state)
FAILING(int, stat64, AT_FDCWD, path, (const char *path, struct stat64 *state), path, state)
FAILING(int, lstat, AT_FDCWD, path, (const char *path, struct stat *state), path, state)
FAILING(int, lstat64, AT_FDCWD, path, (const char *path, struct stat64 *state), path, state)
FAILING(int, mkdir, AT_FDCWD, path, (const char *path, mode_t mode), path, mode)
FAILING(int, rmdir, AT_FDCWD, path, (const char *path), path)
FAILING(int, unlink, AT_FDCWD, path, (const char *path), path)
FAILING(int, unlinkat, at, path, (int at, const char *path, int flags), at, path, flags)
FAILING(int, rename, AT_FDCWD, old, (const char *old, const char *new), old, new)
FAILING(int, renameat, at, old, (int at, const char *old, int to, const char *new), at, old, to, new)
FAILING(int, renameat2, at, old, (int at, const char *old, int to, const char *new, unsigned flags), at, old, to, new, flags)
FAILING(void *, mmap, fd, "", (void *at, size_t size, int access, int flags, int fd, off_t from), at, size, access, flags, fd, from)
FAILING(void *, mmap64, fd, "", (void *at, size_t size, int access, int flags, int fd, off64_t from), at, size, access, flags, fd, from)

DIR *opendir(const char *path) {
    REAL(DIR *, opendir, (const char *));
    return left >= 0 && due("opendir", of_descriptor(AT_FDCWD, path), 0) ? NULL : real(path);
}

DIR *fdopendir(int fd) {
    REAL(DIR *, fdopendir, (int));
    return left >= 0 && due("fdopendir", of_descriptor(fd, ""), 0) ? NULL : real(fd);
}

size_t fread(void *data, size_t size, size_t n, FILE *file) {
    REAL(size_t, fread, (void *, size_t, size_t, FILE *));
    if (left >= 0 && due("fread", of_descriptor(fileno(file), ""), 0)) {
        file->_flags |= 0x20; /* of glibc: what ferror() asks for */
        return 0;
    }
    return real(data, size, n, file);
}

size_t fwrite(const void *data, size_t size, size_t n, FILE *file) {
    REAL(size_t, fwrite, (const void *, size_t, size_t, FILE *));
    if (left >= 0 && due("fwrite", of_descriptor(fileno(file), ""), 0)) {
        file->_flags |= 0x20;
        return 0;
    }
    return real(data, size, n, file);
}
