/*
 * For tests of the sandbox, in builds that have TCONV_TEST_HOOKS, and nothing at
 * all in what is installed.
 *
 *     TCONV_TEST_SANDBOX="WHAT[=PATH]"     what to try once the sandbox is
 *         complete, one a line; standard error gets a line for each: `sandbox: WHAT: EPERM`,
 *         or `allowed`
 *     TCONV_TEST_FETCHER=…                 the same in the process that fetches, whose lines
 *         begin with `fetcher:`
 *     TCONV_TEST_ALLOW=FOLDER              outputs of the build go here: figures of
 *         coverage. What TCONV_TEST_CODES names is one, too
 *     TCONV_TEST_LANDLOCK=N                the kernel has this ABI, if it has more
 *     TCONV_TEST_SECCOMP=0                 the kernel has no seccomp
 */
#ifndef TCONV_CMD_SANDBOX_PROBE_H
#define TCONV_CMD_SANDBOX_PROBE_H

#include <stdbool.h>
#include <stddef.h>

void sandbox_probe(void);
void sandbox_probe_fetcher(void);
/* Outputs of the tests, by their numbers from 0 on; NULL behind the last. */
const char *sandbox_probe_output(size_t number);
int sandbox_probe_abi(int abi);
bool sandbox_probe_seccomp(void);

#endif
