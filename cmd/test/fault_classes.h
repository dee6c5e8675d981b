/* The classes of calls that can fail (cmd/test/faults.h), and how a wrapped call asks. */
#ifndef TCONV_CMD_TEST_FAULT_CLASSES_H
#define TCONV_CMD_TEST_FAULT_CLASSES_H

#include <stdbool.h>
#include <stddef.h>

enum fault_class {
    FAULT_MEMORY, /* ours, and what libraries allocate for themselves */
    FAULT_OPEN,   /* files, folders, second descriptors of them */
    FAULT_READ,
    FAULT_LIST, /* entries of folders */
    FAULT_WRITE,
    FAULT_COPY, /* from file to file, by the kernel */
    FAULT_SYNC,
    FAULT_CLOSE,  /* the descriptor is gone all the same */
    FAULT_STATUS, /* size, time, mode, place of a file; the space of its disk */
    FAULT_RENAME, /* and links */
    FAULT_UNLINK,
    FAULT_MKDIR,
    FAULT_LOCK,
    FAULT_THREAD,
    FAULT_RANDOM,
    FAULT_SYSTEM, /* limits of the process, its sandbox, its children */
    FAULT_CLASSES,
};

/* Counts a call; true with errno set where it is to fail. */
bool fault_fails(enum fault_class class);
/* The same for a call that may transfer less than it was asked for: then *length is made smaller.
 */
bool fault_transfer(enum fault_class class, size_t *length);

#endif
