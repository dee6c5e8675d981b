/*
 * Signals that end the program: a handler removes temporary files first, and the
 * signals are blocked while the list of those files is being changed.
 */
#ifndef TCONV_CORE_IO_SIGNALS_H
#define TCONV_CORE_IO_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Installs the handler for each such signal that the parent process does not
 * ignore. Also ignores SIGXFSZ, so that a file which grows beyond its limit is an
 * ordinary write error. */
void tc_signals_handle(void (*handler)(int number));
/* Blocks them while the list of temporary files does not match the files. */
void tc_signals_block(sigset_t *old);
void tc_signals_unblock(const sigset_t *old);
/* write() until all is written. A reader that has gone away is a failure, and not the
 * program's end: SIGPIPE is blocked meanwhile, and taken where the write caused it. */
bool tc_write_quietly(int fd, const void *bytes, size_t length);

#endif
