/*
 * seccomp: a process gives up system calls, for ever and with all that it
 * starts. The filters are small programs that the kernel runs before each call;
 * they are made here and not by libseccomp, since a list of numbers and six
 * looks at arguments are all that is needed.
 *
 * All need PR_SET_NO_NEW_PRIVS, and the calling thread to be the only one.
 * They return 0 or the errno; ENOSYS where the architecture has no filter here.
 * A call of another architecture (32 bits, x32) kills the process.
 */
#ifndef TCONV_CORE_IO_SECCOMP_H
#define TCONV_CORE_IO_SECCOMP_H

#include <stdbool.h>

/* For a command: no programs, sockets, tracing, kernel interfaces or signals to
 * others, no new memory that can be executed, no change of files that Landlock does
 * not know of, by their path or by a descriptor that may be read, and no limit
 * changed: EPERM. Calls that are newer than this program look as if the kernel had
 * none: ENOSYS. With `children` it may make processes (core/io/isolate.h), end them,
 * talk to them and limit them; with `outputs` it may say who reads and writes its files. */
int tc_seccomp_command(bool children, bool outputs);
/* For the process that alone has the network (core/remote/fetcher.h): as for a
 * command, but with sockets that connect, and with libraries that are loaded late, as
 * the C library does to look up names. */
int tc_seccomp_fetcher(void);
/* For a parser in a process of its own: to take memory, to read and write
 * descriptors that are open, and to end. All else: EPERM. */
int tc_seccomp_parser(void);

#endif
