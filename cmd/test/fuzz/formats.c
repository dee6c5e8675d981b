/*
 * The fuzz target of each format: opens a file as that format and reads all of it. Whatever the
 * bytes, the outcome is an error or values, within the limits.
 */

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/tensor/dtype.h"
#include "formats/numpy/options.h"
#include "formats/pickle/option.h"
#include "formats/registry.h"

static void read_as(const struct tc_backend *backend, const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    /* Both values of the options that change how a file is read, by the input's length. */
    const struct tc_option_setting settings[] = {{&npy_void_option, {.dtype = TC_BF16}},
                                                 {&npy_strings_option, {.choice = length >> 1 & 1}},
                                                 {&pickle_mode_option, {.choice = length & 1}}};
    struct tc_format_options options = fuzz_options;
    options.settings = (struct tc_option_settings){settings, sizeof settings / sizeof *settings};
    const char *path = fuzz_file(bytes, length);
    if (length & 4)
        fuzz_digest_and_verify(path, backend, &options, &error);
    else
        fuzz_digest(path, backend, &options, NULL, &error);
}

#define TC_FORMAT(name)                                                                            \
    void fuzz_##name(const unsigned char *bytes, size_t length) {                                  \
        read_as(tc_registry_named(#name), bytes, length);                                          \
    }
#include "formats/registry.def"
#undef TC_FORMAT
