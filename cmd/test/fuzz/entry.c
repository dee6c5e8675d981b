/* What a fuzzing engine calls. FUZZ_ENTRY is the target's function, given by the build. */
#include <stddef.h>
#include <stdint.h>

#include "cmd/test/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    fuzz_run(FUZZ_ENTRY, bytes, length);
    return 0;
}
