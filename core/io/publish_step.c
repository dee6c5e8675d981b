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
    static long long steps; /* counted since one of the variables was set */
    long long kill_at = number_of("TCONV_TEST_KILL");
    long long fail_at = number_of("TCONV_TEST_FAIL");
    steps = kill_at || fail_at ? steps + 1 : 0;
    if (steps && steps == kill_at)
        raise(SIGKILL);
    if (!steps || steps != fail_at)
        return 0;
    errno = EIO;
    return -1;
}

bool tc_publish_lacks(const char *variable) {
    return getenv(variable) != NULL;
}
#endif
