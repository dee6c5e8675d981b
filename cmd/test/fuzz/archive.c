/*
 * The fuzz target of what lies inside archives, without their CRCs in the way: the input's parts
 * (parts.h) become members of a zip with right checksums, which is opened, scanned and verified.
 * Every other one is deflated where the input's length is odd.
 */
#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "cmd/test/fuzz/parts.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "formats/pickle/option.h"
#include "formats/scan/scan.h"
#include "formats/test/make_zip.h"

static void scan_archive(const char *path, bool ok, const struct tc_error *refused) {
    struct tc_error error = {0};
    struct scan scan;
    fuzz_restart_clock();
    scan_init(&scan, &fuzz_options);
    bool scanned = scan_file(&scan, path, &error);
    fuzz_check_outcome(scanned, &error);
    bool clean = scanned && scan_verdict(&scan, SCAN_ALLOWED) == SCAN_CLEAN;
    FUZZ_CHECK(!clean || ok || strcmp(refused->code, "pickle-unsafe") != 0,
               "clean, but reading refuses it: %s", refused->message);
    scan_release(&scan);
}

void fuzz_archive(const unsigned char *bytes, size_t length) {
    struct part parts[PARTS_MOST];
    struct test_member members[PARTS_MOST];
    struct tc_error error = {0};
    struct tc_buffer zip = {0};
    const struct tc_option_setting inert[] = {{&pickle_mode_option, {.choice = length >> 1 & 1}}};
    struct tc_format_options options = fuzz_options;
    options.settings = (struct tc_option_settings){inert, 1};
    size_t count = parts_split(bytes, length, parts);
    for (size_t i = 0; i < count; i++)
        members[i] = (struct test_member){parts[i].name, parts[i].bytes, parts[i].length,
                                          length & 1 && i & 1};
    FUZZ_CHECK(test_make_zip(&zip, members, count), "the archive can't be made");
    const char *path = fuzz_file((const unsigned char *)zip.bytes, zip.length);
    tc_buffer_release(&zip);
    bool ok = fuzz_digest_and_verify(path, NULL, &options, &error);
    scan_archive(path, ok, &error);
}
