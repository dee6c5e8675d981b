#include "core/io/publish_step.h"

#ifdef TCONV_TEST_HOOKS
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

static long long number_of(const char *variable) {
    const char *text = getenv(variable);
    return text ? strtoll(text, NULL, 10) : 0;
}

int tc_publish_step(void) {
    static long long steps; /* the process's, as the variables are */
    steps++;
    if (number_of("TCONV_TEST_KILL") == steps)
        raise(SIGKILL);
    if (number_of("TCONV_TEST_FAIL") != steps)
        return 0;
    errno = EIO;
    return -1;
}

bool tc_publish_lacks(const char *variable) {
    return getenv(variable) != NULL;
}
#endif
