/*
 * Every system call by which an output gets its name is announced here, so that
 * tests can end the program, or have the call fail, at each of them. In what is
 * installed this does nothing.
 */
#ifndef TCONV_CORE_IO_PUBLISH_STEP_H
#define TCONV_CORE_IO_PUBLISH_STEP_H

#include <stdbool.h>

#ifdef TCONV_TEST_HOOKS
/* 0, or -1 with errno where the call is to fail. TCONV_TEST_KILL=N ends the
 * program by SIGKILL at the Nth of them, TCONV_TEST_FAIL=N has it fail with EIO. */
int tc_publish_step(void);
/* Whether the file system is to be taken for one without unnamed files
 * (TCONV_TEST_NAMED) or without hard links (TCONV_TEST_NO_LINKS). */
bool tc_publish_lacks(const char *variable);
#else
static inline int tc_publish_step(void) {
    return 0;
}
static inline bool tc_publish_lacks(const char *variable) {
    (void)variable;
    return false;
}
#endif

#endif
