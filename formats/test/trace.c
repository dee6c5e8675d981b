#include "formats/test/trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/base/little_endian.h"

#define MAX_LENGTH (1u << 24)

int trace_all(trace_input *trace) {
    struct tc_buffer line = {0};
    unsigned char head[4];
    bool ok = true;
    while (ok && fread(head, 1, sizeof head, stdin) == sizeof head) {
        size_t length = (size_t)tc_load(head, sizeof head);
        /* As long as the input is, so that a sanitizer sees what passes its end. */
        unsigned char *bytes = length <= MAX_LENGTH ? malloc(length ? length : 1) : NULL;
        ok = bytes && fread(bytes, 1, length, stdin) == length;
        if (ok) {
            line.length = 0;
            trace(bytes, length, &line);
            ok = !line.failed && fwrite(line.bytes, 1, line.length, stdout) == line.length;
        }
        free(bytes);
    }
    tc_buffer_release(&line);
    return ok && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
