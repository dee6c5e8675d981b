/* The fuzz target of the headers of numpy's arrays, without any data behind them. */
#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "formats/numpy/npy.h"
#include "formats/numpy/options.h"

/* The header lies at the start of a member so large that data of any honest size fits. */
#define MEMBER_BYTES (UINT64_C(1) << 50)

static bool fetch(void *context, uint64_t offset, void *buffer, size_t length,
                  struct tc_error *error) {
    const struct tc_text *text = context;
    (void)error;
    memset(buffer, ' ', length);
    if (offset < text->length) {
        size_t left = text->length - (size_t)offset;
        memcpy(buffer, text->bytes + offset, length < left ? length : left);
    }
    return true;
}

static void check_field(const struct npy_header *header, const struct npy_field *field) {
    uint64_t count = 1;
    FUZZ_CHECK(field->rank <= NPY_MAX_RANK, "a rank of %u", field->rank);
    for (unsigned i = 0; i < field->rank; i++)
        FUZZ_CHECK(!__builtin_mul_overflow(count, field->shape[i], &count), "a shape overflows");
    FUZZ_CHECK(field->dtype != TC_NONE, "a field without a dtype");
    FUZZ_CHECK(header->count == 0 || (field->column <= header->itemsize &&
                                      field->span <= header->itemsize - field->column),
               "a field reaches out of its record");
    FUZZ_CHECK(field->name.length == 0 || tc_utf8_valid(field->name), "a name is no UTF-8");
}

void fuzz_npy_header(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    struct tc_text text = {(const char *)bytes, length};
    const struct tc_option_setting settings[] = {{&npy_void_option, {.dtype = TC_BF16}},
                                                 {&npy_strings_option, {.choice = length & 1}}};
    struct tc_format_options options = fuzz_options;
    options.settings = (struct tc_option_settings){settings, 2};
    struct tc_reader reader = {.options = &options};
    struct npy_header header = {0};
    tc_arena_init(&reader.arena, 0);
    tc_notes_init(&reader.notes, &reader.arena);
    bool ok = npy_header_read(&reader, fetch, &text, MEMBER_BYTES, 0, &header, &error);
    fuzz_check_outcome(ok, &error);
    if (ok) {
        FUZZ_CHECK(header.unmeasured || header.data + header.nbytes <= MEMBER_BYTES,
                   "the data reaches out of the member");
        for (size_t i = 0; i < header.field_count; i++)
            if (!header.fields[i].skipped)
                check_field(&header, &header.fields[i]);
    }
    tc_arena_release(&reader.arena);
}
