/*
 * A parser in a process of its own, for code that is not ours.
 *
 * The process is forked, and so sees all memory as it was, but what it does
 * there stays with it. It has one descriptor, a socket to us, over which it asks
 * for bytes of its input and sends its answer; it has a limit of memory, one of
 * processor time and one of time; it can open no file and make no system call
 * but those that take memory, read, write and end. What it sends is as little to
 * be trusted as the file it reads: an answer is some bytes, no more than were
 * allowed, for the caller to check.
 *
 * Whatever becomes of it (a signal, an exit, a limit, an answer that is none) is
 * the input's fault: TC_INVALID with the code "parser".
 */
#ifndef TCONV_CORE_IO_ISOLATE_H
#define TCONV_CORE_IO_ISOLATE_H

#include "core/base/error.h"
#include "core/base/text.h"

/* The other side, as the parser sees it. */
struct tc_isolate_host {
    int fd;
    bool broken; /* it does not answer any more */
};

struct tc_isolate {
    /* Runs in the process of its own: fills the answer, or the error. */
    bool (*parse)(void *context, struct tc_isolate_host *host, struct tc_buffer *answer,
                  struct tc_error *error);
    void *context;
    /* Runs here: fills `bytes` with a range of the input, whose bounds the parser
     * chose; NULL: there is nothing to be read. */
    bool (*read)(void *input, uint64_t offset, void *bytes, size_t length, struct tc_error *error);
    void *input;
    uint64_t memory;       /* bytes that it may take beside what is in use already; 0: no limit */
    unsigned cpu_seconds;  /* of its processor time; 0: no limit */
    unsigned wall_seconds; /* from its start to its end; 0: no limit */
    size_t most;           /* bytes of the answer */
    bool require;          /* fails where the kernel can't confine it */
};

/* Most bytes that tc_isolate_read takes at once. */
#define TC_ISOLATE_READ ((size_t)1 << 20)

/* Runs the parser to its end. On success the answer, which must be empty, holds
 * what it sent. The caller's other threads go on meanwhile. */
bool tc_isolate_run(const struct tc_isolate *isolate, struct tc_buffer *answer,
                    struct tc_error *error);

/* For the parser: a range of the input. */
bool tc_isolate_read(struct tc_isolate_host *host, uint64_t offset, void *bytes, size_t length,
                     struct tc_error *error);

#endif
