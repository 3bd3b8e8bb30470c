/* Preloaded: from its n-th call that changes files on, the disk fails; or the process is killed before
   that call, when it writes with half of the bytes written. Calls of all threads and libraries count
   together. A full disk fails calls that need room, a broken one (EIO) all of them, and reads.
   Or only the n-th call fails, with half of the bytes written; or it writes half of them and says so.
   Armed by `arm` from within, or from outside through the file that DYING names: three longs, `calls`,
   `limit` (negative: nothing happens) and `failure`, which all processes share. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static struct { long calls, limit, failure; } own = {0, -1, 0}; /* failure: errno, or 0 to be killed */
static volatile __typeof__(own) *state = &own;
static int once, shorten;

void arm(long number, int code)
{
    once = shorten = 0;
    state->calls = 0; state->failure = code; state->limit = number;
}
void arm_once(long number, int code) { arm(number, code); once = 1; }
void arm_short(long number) { arm(number, 0); shorten = 1; }
long called(void) { return state->calls; }

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("DYING");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return;
    void *shared = mmap(0, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) state = shared;
    close(file);
}

static int due(int takes_room)
{
    long limit = state->limit;
    if (limit < 0) return 0;
    long number = __atomic_fetch_add(&state->calls, 1, __ATOMIC_SEQ_CST), failure = state->failure;
    if (!failure) return number == limit;
    return (once ? number == limit : number >= limit) && (takes_room || failure != ENOSPC);
}

static int fails(int takes_room) { return due(takes_room) && !shorten; }
static int broken(void)
{
    return state->failure == EIO && !once && state->limit >= 0 && state->calls > state->limit;
}

static int end(void)
{
    if (!state->failure) for (kill(getpid(), SIGKILL);;) pause();
    errno = (int)state->failure;
    return -1;
}

static int on_disk(int file)
{
    struct stat status;
    return fstat(file, &status) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define PATH(name, room, parameters, values) \
    int name parameters { REAL(name); return fails(room) ? end() : real values; }
#define FILE_CALL(name, parameters, values) \
    int name parameters { REAL(name); return on_disk(file) && fails(0) ? end() : real values; }
#define ALLOCATE(name, type) \
    int name(int file, type place, type size) { \
        REAL(name); return on_disk(file) && fails(1) ? (end(), errno) : real(file, place, size); }
#define WRITE(name, more_parameters, ...) \
    ssize_t name(int file, const void *data, size_t size more_parameters) { \
        REAL(name); \
        if (!on_disk(file) || !due(1)) return real(file, data, size __VA_ARGS__); \
        if (shorten) return real(file, data, (size + 1) / 2 __VA_ARGS__); \
        if (!state->failure || once) real(file, data, size / 2 __VA_ARGS__); \
        return end(); }
#define READ(name, more_parameters, ...) \
    ssize_t name(int file, void *data, size_t size more_parameters) { \
        REAL(name); return broken() && on_disk(file) ? end() : real(file, data, size __VA_ARGS__); }
#define COMMA ,
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
        return (flags & (O_CREAT | O_TRUNC)) && fails(1) ? end() : real(path, flags, mode); }

OPEN(open)
OPEN(open64)
WRITE(write, )
WRITE(pwrite, COMMA off_t place, COMMA place)
WRITE(pwrite64, COMMA off64_t place, COMMA place)
READ(read, )
READ(pread, COMMA off_t place, COMMA place)
READ(pread64, COMMA off64_t place, COMMA place)
FILE_CALL(fsync, (int file), (file))
FILE_CALL(fdatasync, (int file), (file))
FILE_CALL(ftruncate, (int file, off_t size), (file, size))
FILE_CALL(ftruncate64, (int file, off64_t size), (file, size))
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)
PATH(rename, 0, (const char *from, const char *to), (from, to))
PATH(unlink, 0, (const char *path), (path))
FILE_CALL(unlinkat, (int file, const char *path, int flags), (file, path, flags))
PATH(rmdir, 0, (const char *path), (path))
PATH(mkdir, 1, (const char *path, mode_t mode), (path, mode))
