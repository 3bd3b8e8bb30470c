/* Preloaded: writes down what a process does to files below a folder, call by call, with all data.
   A record: kind, lengths of two paths, offset, size (native), the paths, then data if any was written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* calls and their records, one at a time */
static int trace = -1;
static char root[PATH_MAX];

static void put(const void *data, size_t size)
{
    REAL(write);
    for (const char *at = data; size > 0;) {
        ssize_t done = real(trace, at, size);
        if (done <= 0) _exit(99);
        at += done;
        size -= done;
    }
}

static int below(const char *path)
{
    size_t size = strlen(root);
    return trace >= 0 && !strncmp(path, root, size) && (path[size] == '/' || !path[size]);
}

static void note(char kind, const char *path, const char *other, int64_t place, int64_t size, const void *data)
{
    struct { int64_t kind, path, other, place, size; } head = {kind, strlen(path), strlen(other), place, size};
    put(&head, sizeof head);
    put(path, head.path);
    put(other, head.other);
    if (data) put(data, size);
}

static int named(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size < 0 ? 0 : size] = 0;
    return size > 0 && below(path);
}

static const char *joined(int folder, const char *name, char *path)
{
    if (name[0] == '/' || folder == AT_FDCWD) return name;
    char above[PATH_MAX];
    named(folder, above);
    snprintf(path, PATH_MAX, "%.2000s/%.2000s", above, name);
    return path;
}

void record(const char *folder, const char *into)
{
    snprintf(root, sizeof root, "%s", folder);
    trace = open(into, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

void mark(const char *words)
{
    pthread_mutex_lock(&turn);
    note('m', words, "", 0, 0, NULL);
    pthread_mutex_unlock(&turn);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
        if (!below(path)) return real(path, flags, mode); \
        pthread_mutex_lock(&turn); \
        int there = access(path, F_OK) == 0, file = real(path, flags, mode); \
        if (file >= 0 && !there) note('c', path, "", 0, 0, NULL); \
        else if (file >= 0 && (flags & O_TRUNC)) note('t', path, "", 0, 0, NULL); \
        pthread_mutex_unlock(&turn); \
        return file; }
#define ON_FILE(result, name, parameters, values, good, kind, place, size, data) \
    result name parameters { \
        REAL(name); char path[PATH_MAX]; \
        if (!named(file, path)) return real values; \
        pthread_mutex_lock(&turn); \
        result done = real values; \
        if (good) note(kind, path, "", place, size, data); \
        pthread_mutex_unlock(&turn); \
        return done; }
#define ON_PATHS(name, parameters, values, kind, from, to) \
    int name parameters { \
        REAL(name); char one[PATH_MAX], two[PATH_MAX]; (void)one; (void)two; \
        const char *first = from, *second = to; \
        if (!below(first)) return real values; \
        pthread_mutex_lock(&turn); \
        int done = real values; \
        if (!done) note(kind, first, second, 0, 0, NULL); \
        pthread_mutex_unlock(&turn); \
        return done; }

OPEN(open)
OPEN(open64)
ON_FILE(ssize_t, write, (int file, const void *data, size_t size), (file, data, size),
        done > 0, 'w', lseek(file, 0, SEEK_CUR) - done, done, data)
ON_FILE(ssize_t, pwrite, (int file, const void *data, size_t size, off_t place), (file, data, size, place),
        done > 0, 'w', place, done, data)
ON_FILE(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t place), (file, data, size, place),
        done > 0, 'w', place, done, data)
ON_FILE(int, ftruncate, (int file, off_t size), (file, size), !done, 't', 0, size, NULL)
ON_FILE(int, ftruncate64, (int file, off64_t size), (file, size), !done, 't', 0, size, NULL)
ON_FILE(int, posix_fallocate, (int file, off_t place, off_t size), (file, place, size),
        !done, 'a', 0, place + size, NULL)
ON_FILE(int, posix_fallocate64, (int file, off64_t place, off64_t size), (file, place, size),
        !done, 'a', 0, place + size, NULL)
ON_FILE(int, fsync, (int file), (file), !done, 's', 0, 0, NULL)
ON_FILE(int, fdatasync, (int file), (file), !done, 's', 0, 0, NULL)
ON_PATHS(rename, (const char *old, const char *new), (old, new), 'r', old, new)
ON_PATHS(unlink, (const char *path), (path), 'u', path, "")
ON_PATHS(rmdir, (const char *path), (path), 'u', path, "")
ON_PATHS(unlinkat, (int folder, const char *path, int flags), (folder, path, flags), 'u', joined(folder, path, one), "")
ON_PATHS(mkdir, (const char *path, mode_t mode), (path, mode), 'd', path, "")
