/*
 * The fuzz target of a format: opens a file as that format and reads all of
 * it. FORMAT is the backend's variable, given by the build. Whatever the
 * bytes, the outcome is an error or values, within the limits.
 */

#include "formats/test/fuzz.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/inspect/digest.h"
#include "core/tensor/dtype.h"
#include "formats/numpy/options.h"
#include "formats/pickle/option.h"
#include "formats/registry.h"

extern const struct tc_backend FORMAT;

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    const struct tc_option_setting settings[] = {{&npy_void_option, {.dtype = TC_BF16}},
                                                 {&pickle_mode_option, {.choice = length & 1}}};
    const struct tc_format_options options = {.limits = FUZZ_LIMITS, .settings = {settings, 2}};
    struct tc_reader *reader =
        tc_registry_open(fuzz_file(bytes, length), &FORMAT, &options, &error);
    if (reader) {
        struct tc_digest digest = {0};
        struct tc_buffer text = {0};
        if (tc_digest_make(&digest, reader, &error))
            tc_digest_print(&digest, reader, &text, &error);
        tc_buffer_release(&text);
        tc_digest_release(&digest);
        tc_reader_close(reader);
    }
    /* A failure says why. */
    if (error.class != TC_OK && (!error.code || !error.message[0]))
        abort();
    return 0;
}
