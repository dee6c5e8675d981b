/*
 * Landlock: a process gives up access to files, for ever and with all that it
 * starts. Each set of rules is a layer, and what is done must be allowed by all
 * layers.
 *
 *     tc_landlock_begin(&layer, rights, abi)   which rights nobody has from now on
 *     tc_landlock_allow(&layer, fd, rights)    but below this folder, or for this file
 *     tc_landlock_enforce(&layer)              from here on
 *
 * The kernel's header is not needed: what it lacks of newer kernels is here, and
 * what the running kernel does not know is left out (its version is the ABI).
 */
#ifndef TCONV_CORE_IO_LANDLOCK_H
#define TCONV_CORE_IO_LANDLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* The bits are the kernel's. */
#define TC_LANDLOCK_EXECUTE (UINT64_C(1) << 0)
#define TC_LANDLOCK_WRITE_FILE (UINT64_C(1) << 1)
#define TC_LANDLOCK_READ_FILE (UINT64_C(1) << 2)
#define TC_LANDLOCK_READ_DIR (UINT64_C(1) << 3)
#define TC_LANDLOCK_REMOVE_DIR (UINT64_C(1) << 4)
#define TC_LANDLOCK_REMOVE_FILE (UINT64_C(1) << 5)
#define TC_LANDLOCK_MAKE_CHAR (UINT64_C(1) << 6)
#define TC_LANDLOCK_MAKE_DIR (UINT64_C(1) << 7)
#define TC_LANDLOCK_MAKE_REG (UINT64_C(1) << 8)
#define TC_LANDLOCK_MAKE_SOCK (UINT64_C(1) << 9)
#define TC_LANDLOCK_MAKE_FIFO (UINT64_C(1) << 10)
#define TC_LANDLOCK_MAKE_BLOCK (UINT64_C(1) << 11)
#define TC_LANDLOCK_MAKE_SYM (UINT64_C(1) << 12)
/* Moves and links from one folder to another. Where a layer does not list it,
 * the kernel denies it: so does every kernel of ABI 1. */
#define TC_LANDLOCK_REFER (UINT64_C(1) << 13)
#define TC_LANDLOCK_TRUNCATE (UINT64_C(1) << 14)
#define TC_LANDLOCK_IOCTL_DEV (UINT64_C(1) << 15)

#define TC_LANDLOCK_READ (TC_LANDLOCK_READ_FILE | TC_LANDLOCK_READ_DIR)
/* All that changes something, or runs it. */
#define TC_LANDLOCK_CHANGE                                                                         \
    (((TC_LANDLOCK_IOCTL_DEV << 1) - 1) & ~(TC_LANDLOCK_READ | TC_LANDLOCK_REFER))

/* The versions at which the kernel learned something. */
enum tc_landlock_abi {
    TC_LANDLOCK_NONE = 0,
    TC_LANDLOCK_HAS_REFER = 2,
    TC_LANDLOCK_HAS_TRUNCATE = 3,
    TC_LANDLOCK_HAS_NETWORK = 4,
    TC_LANDLOCK_HAS_IOCTL = 5,
    TC_LANDLOCK_HAS_SCOPES = 6, /* signals, and sockets without a path */
};

struct tc_landlock {
    int fd;
    uint64_t rights; /* of those that were asked for the ones that the kernel knows */
};

/* Of the running kernel; TC_LANDLOCK_NONE where it has no Landlock. */
int tc_landlock_abi(void);

/* These return 0, or the errno. */

/* Takes away `rights`; `isolate` also the network, signals to processes outside
 * and their sockets, as far as the ABI has that. */
int tc_landlock_begin(struct tc_landlock *layer, uint64_t rights, bool isolate, int abi);
/* `fd` may be opened with O_PATH. Rights that only a folder has are left out for
 * a file. What has no place in the file system (a pipe) needs no rule. */
int tc_landlock_allow(const struct tc_landlock *layer, int fd, uint64_t rights);
/* Needs PR_SET_NO_NEW_PRIVS; ends the layer in any case. */
int tc_landlock_enforce(struct tc_landlock *layer);

#endif
