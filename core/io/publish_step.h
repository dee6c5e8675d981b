/*
 * tc_publish_step is called before every system call that gives an output its
 * name, so that tests can end the program, or let the call fail, at each of them.
 * In builds without tests it does nothing.
 */
#ifndef TCONV_CORE_IO_PUBLISH_STEP_H
#define TCONV_CORE_IO_PUBLISH_STEP_H

#include <stdbool.h>

#ifdef TCONV_TEST_HOOKS
/* 0, or -1 with errno set where the system call is to fail. TCONV_TEST_KILL=N ends
 * the program by SIGKILL at the Nth call, TCONV_TEST_FAIL=N lets it fail with EIO. */
int tc_publish_step(void);
/* Whether to behave as on a file system without unnamed files (TCONV_TEST_NAMED)
 * or without hard links (TCONV_TEST_NO_LINKS). */
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
