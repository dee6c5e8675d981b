/*
 * The fetcher: a process of its own that alone has the network, and the token of the
 * Hub. It is forked before the command gives up its rights, loads libcurl, and then
 * serves the command over a socket (core/remote/protocol.h) until that is closed.
 *
 * It fetches what the user named and what lies beside that, and nothing else: a
 * command that was taken over by a file can't have it talk to others. It writes no
 * file and starts no program.
 */
#ifndef TCONV_CORE_REMOTE_FETCHER_H
#define TCONV_CORE_REMOTE_FETCHER_H

#include "core/remote/protocol.h"

/* Runs in the forked process, and does not return. */
_Noreturn void tc_fetcher_run(int fd, const struct tc_fetcher_options *options);

#endif
