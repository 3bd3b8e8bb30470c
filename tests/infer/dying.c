/* Preloaded: the process is killed before its n-th call that changes files; when the call writes, with
   half of the bytes written. Calls of all threads and libraries count together. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long calls, limit = -1;

void arm(long number) { calls = 0; limit = number; }
long called(void) { return calls; }

static int due(void) { return limit >= 0 && __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) == limit; }

static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

static int on_disk(int file)
{
    struct stat status;
    return fstat(file, &status) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define PATH(name, parameters, values) \
    int name parameters { REAL(name); if (due()) die(); return real values; }
#define FILE_CALL(name, parameters, values) \
    int name parameters { REAL(name); if (on_disk(file) && due()) die(); return real values; }
#define WRITE(name, more_parameters, ...) \
    ssize_t name(int file, const void *data, size_t size more_parameters) { \
        REAL(name); \
        if (on_disk(file) && due()) { real(file, data, size / 2 __VA_ARGS__); die(); } \
        return real(file, data, size __VA_ARGS__); }
#define COMMA ,
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
        if ((flags & (O_CREAT | O_TRUNC)) && due()) die(); \
        return real(path, flags, mode); }

OPEN(open)
OPEN(open64)
WRITE(write, )
WRITE(pwrite, COMMA off_t place, COMMA place)
WRITE(pwrite64, COMMA off64_t place, COMMA place)
FILE_CALL(fsync, (int file), (file))
FILE_CALL(fdatasync, (int file), (file))
FILE_CALL(ftruncate, (int file, off_t size), (file, size))
FILE_CALL(ftruncate64, (int file, off64_t size), (file, size))
FILE_CALL(posix_fallocate, (int file, off_t place, off_t size), (file, place, size))
FILE_CALL(posix_fallocate64, (int file, off64_t place, off64_t size), (file, place, size))
PATH(rename, (const char *from, const char *to), (from, to))
PATH(unlink, (const char *path), (path))
FILE_CALL(unlinkat, (int file, const char *path, int flags), (file, path, flags))
PATH(rmdir, (const char *path), (path))
PATH(mkdir, (const char *path, mode_t mode), (path, mode))
