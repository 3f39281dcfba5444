/* A disk that fails, for a program that this library is preloaded into: while the file that
 * FAILING_DISK names exists, its first letter says what fails for regular files:
 * "E": fsync, with EIO; "N": writing, with ENOSPC. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char what(int file) {
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
    const char *name = getenv("FAILING_DISK");
    int saved = errno, asked = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    char letter = 0;
    if (asked >= 0) {
        if (read(asked, &letter, 1) != 1) letter = 0;
        close(asked);
    }
    errno = saved;
    return letter;
}

static int fail(int error) {
    errno = error;
    return -1;
}

int fsync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return what(file) == 'E' ? fail(EIO) : real(file);
}

int fdatasync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return what(file) == 'E' ? fail(EIO) : real(file);
}

ssize_t write(int file, const void *data, size_t length) {
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    return what(file) == 'N' ? fail(ENOSPC) : real(file, data, length);
}

ssize_t pwrite(int file, const void *data, size_t length, off_t at) {
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    return what(file) == 'N' ? fail(ENOSPC) : real(file, data, length, at);
}

ssize_t pwrite64(int file, const void *data, size_t length, off64_t at) {
    ssize_t (*real)(int, const void *, size_t, off64_t) =
        (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    return what(file) == 'N' ? fail(ENOSPC) : real(file, data, length, at);
}
