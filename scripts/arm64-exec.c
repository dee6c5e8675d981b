/*
 * Criterion runs each test in a process of its own, by starting the test program anew. Under
 * qemu-user the kernel would have to know arm64 programs for that, which takes root and changes the
 * machine for everybody. Instead scripts/test-arm64 preloads this library: it starts the program by
 * way of qemu once more. Only Criterion calls this execve; system() has the C library's own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_ARGUMENTS 64

static char preload[4096];

/* Programs of this machine, which the tests start too, can't load it. */
__attribute__((constructor)) static void forget_preload(void) {
    const char *library = getenv("LD_PRELOAD");
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library ? library : "");
    unsetenv("LD_PRELOAD");
}

int execve(const char *path, char *const arguments[], char *const environment[]) {
    const char *qemu = getenv("TCONV_QEMU");
    const char *sysroot = getenv("TCONV_SYSROOT");
    const char *all[MOST_ARGUMENTS + 1] = {qemu, "-E", preload, "-L", sysroot, path};
    size_t count = 6;
    if (!qemu || !sysroot) {
        errno = ENOEXEC;
        return -1;
    }
    for (size_t i = 1; arguments[0] && arguments[i]; i++) {
        if (count == MOST_ARGUMENTS) {
            errno = E2BIG;
            return -1;
        }
        all[count++] = arguments[i];
    }
    return (int)syscall(SYS_execve, qemu, all, environment);
}
