/*
 * Signals that end the program: what is temporary is removed first, and they are
 * held back while that could not be done right.
 */
#ifndef TCONV_CORE_IO_SIGNALS_H
#define TCONV_CORE_IO_SIGNALS_H

#include <signal.h>

/* Calls the handler for each of them that the caller of the program does not
 * ignore. A file that grows beyond its limit becomes an ordinary write error. */
void tc_signals_handle(void (*handler)(int number));
/* For as long as files and the notes on them do not agree. */
void tc_signals_block(sigset_t *old);
void tc_signals_unblock(const sigset_t *old);

#endif
