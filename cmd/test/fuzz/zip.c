/* The fuzz target of zip archives: what ours and libzip both accept, they see alike. */
#include "cmd/test/fuzz/fuzz.h"
#include "formats/test/second_opinion.h"

void fuzz_zip(const unsigned char *bytes, size_t length) {
    char what[SECOND_OPINION_TEXT];
    FUZZ_CHECK(second_opinion(fuzz_file(bytes, length), bytes, length, &fuzz_options, what) !=
                   SECOND_OPINION_DIFFERS,
               "libzip has another opinion: %s", what);
}
