/* Preloaded into a process, this counts every call that changes files below one folder, over all threads, and kills
 * the process just before the call with a chosen number: a crash at an exact point. Linux only. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static size_t folder_length;
static atomic_long calls;
static long fatal_call;

/* From the test: watch `path`; die at call `number` (0: only count). */
void watch_writes(const char *path, long number) {
    folder_length = strlen(path);
    memcpy(folder, path, folder_length + 1);
    fatal_call = number;
    atomic_store(&calls, 0);
}

long watched_writes(void) { return atomic_load(&calls); }

static void count(void) {
    if (atomic_fetch_add(&calls, 1) + 1 == fatal_call) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
}

static void at_path(const char *path) {
    if (folder_length && path && !strncmp(path, folder, folder_length)) count();
}

static void at_descriptor(int descriptor) {
    char link[64], path[PATH_MAX];
    if (!folder_length) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        at_path(path);
    }
}

static void at(int base, const char *path) {
    if (base == AT_FDCWD || (path && *path == '/')) at_path(path);
    else at_descriptor(base);
}

#define NEXT(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

ssize_t write(int d, const void *b, size_t n) { at_descriptor(d); return NEXT(write, d, b, n); }
ssize_t pwrite(int d, const void *b, size_t n, off_t o) { at_descriptor(d); return NEXT(pwrite, d, b, n, o); }
ssize_t pwrite64(int d, const void *b, size_t n, off64_t o) { at_descriptor(d); return NEXT(pwrite64, d, b, n, o); }
ssize_t writev(int d, const struct iovec *v, int n) { at_descriptor(d); return NEXT(writev, d, v, n); }
ssize_t sendfile(int d, int s, off_t *o, size_t n) { at_descriptor(d); return NEXT(sendfile, d, s, o, n); }
ssize_t copy_file_range(int s, off64_t *so, int d, off64_t *o, size_t n, unsigned f) {
    at_descriptor(d);
    return NEXT(copy_file_range, s, so, d, o, n, f);
}
int ftruncate(int d, off_t n) { at_descriptor(d); return NEXT(ftruncate, d, n); }
int ftruncate64(int d, off64_t n) { at_descriptor(d); return NEXT(ftruncate64, d, n); }
int fsync(int d) { at_descriptor(d); return NEXT(fsync, d); }
int fdatasync(int d) { at_descriptor(d); return NEXT(fdatasync, d); }
int rename(const char *a, const char *b) { at_path(b); return NEXT(rename, a, b); }
int renameat(int x, const char *a, int y, const char *b) { at(y, b); return NEXT(renameat, x, a, y, b); }
int renameat2(int x, const char *a, int y, const char *b, unsigned f) { at(y, b); return NEXT(renameat2, x, a, y, b, f); }
int link(const char *a, const char *b) { at_path(b); return NEXT(link, a, b); }
int linkat(int x, const char *a, int y, const char *b, int f) { at(y, b); return NEXT(linkat, x, a, y, b, f); }
int unlink(const char *p) { at_path(p); return NEXT(unlink, p); }
int unlinkat(int x, const char *p, int f) { at(x, p); return NEXT(unlinkat, x, p, f); }
int rmdir(const char *p) { at_path(p); return NEXT(rmdir, p); }
int mkdir(const char *p, mode_t m) { at_path(p); return NEXT(mkdir, p, m); }
int mkdirat(int x, const char *p, mode_t m) { at(x, p); return NEXT(mkdirat, x, p, m); }

#define MODE(flags, mode) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
#define CREATES(flags) ((flags) & (O_CREAT | O_TRUNC))

int open(const char *p, int f, ...) { MODE(f, m) if (CREATES(f)) at_path(p); return NEXT(open, p, f, m); }
int open64(const char *p, int f, ...) { MODE(f, m) if (CREATES(f)) at_path(p); return NEXT(open64, p, f, m); }
int openat(int x, const char *p, int f, ...) { MODE(f, m) if (CREATES(f)) at(x, p); return NEXT(openat, x, p, f, m); }
int openat64(int x, const char *p, int f, ...) { MODE(f, m) if (CREATES(f)) at(x, p); return NEXT(openat64, x, p, f, m); }
