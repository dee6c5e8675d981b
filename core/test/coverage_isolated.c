/* The counts of a parser in a process of its own (core/io/isolate). */
#include <unistd.h>

#include "core/test/coverage.h"

pid_t __real_getppid(void);
pid_t __wrap_getppid(void);

/* The parser asks for its parent before it gives up anything. */
pid_t __wrap_getppid(void) {
    coverage_share();
    return __real_getppid();
}
