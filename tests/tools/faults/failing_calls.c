/* A library for LD_PRELOAD that counts the calls of a process below a directory, and has one of them fail.

   fault_arm(directory, kind, number, error): from now on calls are counted, and the call of that number (from 1) of the kind fails with
   the error, or, where the error is negative, kills the process. Number 0 only counts. fault_count(kind) returns the number of calls so far. The kinds are in the order of `enum kind`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN, READ, WRITE, RENAME, LINK, MKDIR, SYNC, KINDS };

static char under[4096];
static size_t under_length;
static int failing_kind = -1, failing_error;
static long failing_number, counts[KINDS];

void fault_arm(const char *directory, int kind, long number, int error) {
    snprintf(under, sizeof under, "%s", directory);
    failing_kind = kind;
    failing_number = number;
    failing_error = error;
    memset(counts, 0, sizeof counts);
    under_length = strlen(under);
}

long fault_count(int kind) { return counts[kind]; }

/* Whether the call, whose path is below the directory, is the one that fails; errno is then set. */
static int fails(int kind, const char *path) {
    if (!under_length || !path || strncmp(path, under, under_length) || (path[under_length] != '/' && path[under_length])) return 0;
    if (__atomic_add_fetch(&counts[kind], 1, __ATOMIC_SEQ_CST) != failing_number || kind != failing_kind) return 0;
    if (failing_error < 0) kill(getpid(), SIGKILL);
    errno = failing_error;
    return 1;
}

static const char *path_of(int descriptor, char *buffer, size_t size) {
    char link[64];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, buffer, size - 1);
    errno = before;
    if (length < 0) return NULL;
    buffer[length] = 0;
    return buffer;
}

static int fails_of(int kind, int descriptor) {
    char buffer[4096];
    return under_length && fails(kind, path_of(descriptor, buffer, sizeof buffer));
}

static int fails_at(int kind, int directory, const char *path) {
    char buffer[4096];
    if (!under_length) return 0;
    if (!path || *path == '/' || directory == AT_FDCWD || !path_of(directory, buffer, sizeof buffer)) return fails(kind, path);
    size_t length = strlen(buffer);
    snprintf(buffer + length, sizeof buffer - length, "/%s", path);
    return fails(kind, buffer);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags) return fails(OPEN, path) ? -1 : NEXT(open)(path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return fails(OPEN, path) ? -1 : NEXT(open64)(path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return fails_at(OPEN, at, path) ? -1 : NEXT(openat)(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) {
    MODE(flags) return fails_at(OPEN, at, path) ? -1 : NEXT(openat64)(at, path, flags, mode);
}
DIR *opendir(const char *path) { return fails(OPEN, path) ? NULL : NEXT(opendir)(path); }

ssize_t read(int fd, void *to, size_t size) { return fails_of(READ, fd) ? -1 : NEXT(read)(fd, to, size); }
ssize_t pread(int fd, void *to, size_t size, off_t at) { return fails_of(READ, fd) ? -1 : NEXT(pread)(fd, to, size, at); }
ssize_t pread64(int fd, void *to, size_t size, off64_t at) { return fails_of(READ, fd) ? -1 : NEXT(pread64)(fd, to, size, at); }
ssize_t readv(int fd, const struct iovec *to, int count) { return fails_of(READ, fd) ? -1 : NEXT(readv)(fd, to, count); }

ssize_t write(int fd, const void *from, size_t size) { return fails_of(WRITE, fd) ? -1 : NEXT(write)(fd, from, size); }
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { return fails_of(WRITE, fd) ? -1 : NEXT(pwrite)(fd, from, size, at); }
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) { return fails_of(WRITE, fd) ? -1 : NEXT(pwrite64)(fd, from, size, at); }
ssize_t writev(int fd, const struct iovec *from, int count) { return fails_of(WRITE, fd) ? -1 : NEXT(writev)(fd, from, count); }

int rename(const char *from, const char *to) { return fails(RENAME, to) ? -1 : NEXT(rename)(from, to); }
int renameat(int of, const char *from, int at, const char *to) { return fails_at(RENAME, at, to) ? -1 : NEXT(renameat)(of, from, at, to); }
int renameat2(int of, const char *from, int at, const char *to, unsigned flags) {
    return fails_at(RENAME, at, to) ? -1 : NEXT(renameat2)(of, from, at, to, flags);
}
int link(const char *from, const char *to) { return fails(LINK, to) ? -1 : NEXT(link)(from, to); }
int linkat(int of, const char *from, int at, const char *to, int flags) {
    return fails_at(LINK, at, to) ? -1 : NEXT(linkat)(of, from, at, to, flags);
}
int mkdir(const char *path, mode_t mode) { return fails(MKDIR, path) ? -1 : NEXT(mkdir)(path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return fails_at(MKDIR, at, path) ? -1 : NEXT(mkdirat)(at, path, mode); }
int fsync(int fd) { return fails_of(SYNC, fd) ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return fails_of(SYNC, fd) ? -1 : NEXT(fdatasync)(fd); }
