/*
 * How many threads of this process may work at once.
 *
 * Whoever starts threads asks for them with tc_cores_begin, and gives them back with tc_cores_end
 * when they have ended. The thread that asks counts as one of them, so that at least one is always
 * granted. Where make's jobserver is obeyed, each of the others needs one of its tokens, which is
 * taken without waiting.
 *
 * The number is the process's. Any thread may call these functions, except that the first
 * three are for the start of a command.
 */
#ifndef TCONV_CORE_IO_CORES_H
#define TCONV_CORE_IO_CORES_H

#include <stddef.h>

/* More are never used at once: each needs buffers, and memory is bounded. */
#define TC_MOST_CORES 16u

/* -j: the most threads; 0: what affinity and the control group's quota allow, at most 8. */
void tc_cores_set(size_t threads);
/* So many processes share the cores, unless the user says how many threads each has. Call it before
 * tc_cores_set. */
void tc_cores_share(size_t processes);
/* Opens the jobserver that MAKEFLAGS names. Where make did not hand it down, there is one thread,
 * unless the user gave a number. NULL: there is none. */
void tc_cores_obey(const char *makeflags);
/* The most threads that tc_cores_begin may grant. */
size_t tc_cores(void);
/* Grants 1 to `wanted` threads, of which the caller's is one. */
size_t tc_cores_begin(size_t wanted);
void tc_cores_end(size_t granted);
/* Gives all tokens back, as the process is about to end. It may run in a signal handler. */
void tc_cores_abandon(void);

#endif
