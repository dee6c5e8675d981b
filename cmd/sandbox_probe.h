/*
 * For tests of the sandbox, in builds that have TCONV_TEST_HOOKS, and nothing at
 * all in what is installed.
 *
 *     TCONV_TEST_SANDBOX="WHAT[=PATH]"     what to try once the sandbox is
 *         complete, one a line; standard error gets a line for each: `sandbox: WHAT: EPERM`,
 *         or `allowed`
 *     TCONV_TEST_LANDLOCK=N                the kernel has this ABI, if it has more
 *     TCONV_TEST_SECCOMP=0                 the kernel has no seccomp
 */
#ifndef TCONV_CMD_SANDBOX_PROBE_H
#define TCONV_CMD_SANDBOX_PROBE_H

#include <stdbool.h>

void sandbox_probe(void);
int sandbox_probe_abi(int abi);
bool sandbox_probe_seccomp(void);

#endif
