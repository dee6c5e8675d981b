/*
 * The fuzz target of tconv scan: whatever the bytes, it comes to a verdict. A file that it calls
 * clean is not one that opening refuses because of code in it.
 */

#include "formats/scan/scan.h"
#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/error.h"
#include "core/format/reader.h"
#include "formats/registry.h"

void fuzz_scan(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    struct scan scan;
    const char *path = fuzz_file(bytes, length);
    scan_init(&scan, &fuzz_options);
    bool ok = scan_file(&scan, path, &error);
    fuzz_check_outcome(ok, &error);
    bool clean = ok && scan_verdict(&scan, SCAN_ALLOWED) == SCAN_CLEAN;
    scan_release(&scan);
    if (clean) {
        struct tc_error refused = {0};
        fuzz_restart_clock();
        struct tc_reader *reader = tc_registry_open(path, NULL, &fuzz_options, &refused);
        FUZZ_CHECK(reader || strcmp(refused.code, "pickle-unsafe") != 0,
                   "clean, but opening refuses it: %s", refused.message);
        tc_reader_close(reader);
    }
}
