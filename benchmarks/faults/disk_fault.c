/* Simulates a failing disk for the files under one folder; loaded before libc (LD_PRELOAD).

   DISK_FAULT_UNDER: the folder. DISK_FAULT_FILE: a file that contains `quota`, `readonly` or `sync` during a fault.
   quota: writes and new files fail with EDQUOT; readonly: every change fails with EROFS; sync: fsync, fdatasync and
   syncfs fail with EIO. Nothing fails while the file is missing or empty. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, CREATE = 2, CHANGE = 4, SYNC = 8 };

static int code_of(int what) {
    char word = 0;
    const char *file = getenv("DISK_FAULT_FILE");
    int descriptor = file ? (int)syscall(SYS_openat, AT_FDCWD, file, O_RDONLY) : -1;
    if (descriptor < 0) return 0;
    if (syscall(SYS_read, descriptor, &word, 1) != 1) word = 0;
    syscall(SYS_close, descriptor);
    if (word == 'q' && (what & (WRITE | CREATE))) return EDQUOT;
    if (word == 'r' && (what & (WRITE | CREATE | CHANGE))) return EROFS;
    if (word == 's' && (what & SYNC)) return EIO;
    return 0;
}

static int under(const char *path) {
    const char *folder = getenv("DISK_FAULT_UNDER");
    return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

static int fails_path(const char *path, int what) {
    int code = under(path) ? code_of(what) : 0;
    if (code) errno = code;
    return code;
}

static int fails(int descriptor, int what) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return fails_path(path, what);
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t n) { return fails(fd, WRITE) ? -1 : REAL(write)(fd, data, n); }
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    return fails(fd, WRITE) ? -1 : REAL(pwrite)(fd, data, n, at);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    return fails(fd, WRITE) ? -1 : REAL(pwrite64)(fd, data, n, at);
}
ssize_t pwritev(int fd, const struct iovec *pieces, int n, off_t at) {
    return fails(fd, WRITE) ? -1 : REAL(pwritev)(fd, pieces, n, at);
}
ssize_t pwritev64(int fd, const struct iovec *pieces, int n, off64_t at) {
    return fails(fd, WRITE) ? -1 : REAL(pwritev64)(fd, pieces, n, at);
}
ssize_t pwritev2(int fd, const struct iovec *pieces, int n, off_t at, int flags) {
    return fails(fd, WRITE) ? -1 : REAL(pwritev2)(fd, pieces, n, at, flags);
}
ssize_t pwritev64v2(int fd, const struct iovec *pieces, int n, off64_t at, int flags) {
    return fails(fd, WRITE) ? -1 : REAL(pwritev64v2)(fd, pieces, n, at, flags);
}
int ftruncate64(int fd, off64_t n) { return fails(fd, CHANGE) ? -1 : REAL(ftruncate64)(fd, n); }
int fsync(int fd) { return fails(fd, SYNC) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails(fd, SYNC) ? -1 : REAL(fdatasync)(fd); }
int syncfs(int fd) { return fails(fd, SYNC) ? -1 : REAL(syncfs)(fd); }
int mkdir(const char *path, mode_t mode) { return fails_path(path, CREATE) ? -1 : REAL(mkdir)(path, mode); }
int rename(const char *from, const char *to) { return fails_path(to, CHANGE) ? -1 : REAL(rename)(from, to); }
int unlink(const char *path) { return fails_path(path, CHANGE) ? -1 : REAL(unlink)(path); }

static int changes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

static int fails_open(const char *path, int flags) {
    int what = changes(flags) ? CHANGE : 0;
    if ((flags & O_CREAT) && syscall(SYS_faccessat, AT_FDCWD, path, F_OK)) what |= CREATE;
    return what ? fails_path(path, what) : 0;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return fails_open(path, flags) ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return fails_open(path, flags) ? -1 : REAL(open64)(path, flags, mode);
}
