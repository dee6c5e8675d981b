/* The fuzz target of tconv scan: whatever the bytes, it comes to a verdict. */

#include "core/base/error.h"
#include "core/format/backend.h"
#include "formats/scan/scan.h"
#include "formats/test/fuzz.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    const struct tc_format_options options = {.limits = FUZZ_LIMITS};
    struct scan scan;
    scan_init(&scan, &options);
    bool ok = scan_file(&scan, fuzz_file(bytes, length), &error);
    if (ok != (error.class == TC_OK) || (!ok && (!error.code || !error.message[0])))
        abort();
    scan_release(&scan);
    return 0;
}
