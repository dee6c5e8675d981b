/* The fuzz target of zip archives: what ours and libzip both accept, they see alike. */

#include "core/format/backend.h"
#include "formats/test/fuzz.h"
#include "formats/test/second_opinion.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length) {
    const struct tc_format_options options = {.limits = FUZZ_LIMITS};
    char what[SECOND_OPINION_TEXT];
    if (second_opinion(fuzz_file(bytes, length), bytes, length, &options, what) ==
        SECOND_OPINION_DIFFERS) {
        fprintf(stderr, "libzip has another opinion: %s\n", what);
        abort();
    }
    return 0;
}
