#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/deflate.h"
#include "core/plan/make_plan.h"
#include "core/plan/plan.h"
#include "core/tensor/table.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(tfrecord, .init = test_folder_make, .fini = test_folder_remove);

#define LIST TESTDATA "/tfrecord/list.tfrecord"
/* Where its records start, and where the file ends. */
static const size_t starts[] = {0, 54, 132, 234, 360};

static void add_little(struct tc_buffer *file, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        tc_buffer_add(file, &(char){(char)(value >> 8 * i)}, 1);
}

static uint32_t masked(uint32_t crc) {
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void add_record(struct tc_buffer *file, const void *data, size_t length) {
    size_t start = file->length;
    add_little(file, length, 8);
    add_little(file, masked(tc_crc32c(0, file->bytes + start, 8)), 4);
    tc_buffer_add(file, data, length);
    add_little(file, masked(tc_crc32c(0, data, length)), 4);
}

static enum tc_class open_record(const void *data, size_t length) {
    struct tc_buffer file = {0};
    add_record(&file, data, length);
    enum tc_class class = test_open_class("x.tfrecord", file.bytes, file.length);
    tc_buffer_release(&file);
    return class;
}

Test(tfrecord, tensors_are_numbered) {
    struct tc_reader *reader = test_open(LIST);
    cr_assert_eq(reader->table.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        struct tc_extent extent;
        cr_assert_eq(tensor->name.length, 1);
        cr_assert_eq(tensor->name.bytes[0], (char)('0' + i));
        cr_assert_eq(tensor->shape[0], i + 1);
        cr_assert(tc_reader_extent(reader, tensor, &extent));
        cr_assert_eq(extent.offset + tensor->nbytes + 4, starts[i + 1]);
    }
    cr_assert(reader->checksum);
    tc_reader_close(reader);
}

Test(tfrecord, a_cut_between_records_is_a_shorter_list) {
    size_t length;
    char *bytes = test_load(LIST, &length);
    cr_assert_eq(length, starts[4]);
    for (size_t cut = 1, whole = 1; cut < length; cut++) {
        enum tc_class class = test_open_class("cut.tfrecord", bytes, cut);
        bool between = cut == starts[whole];
        cr_assert_eq(class, between ? TC_OK : TC_INVALID, "%zu: %s", cut, test_error.message);
        whole += between;
    }
    free(bytes);
}

Test(tfrecord, every_bit_is_covered) {
    size_t length;
    char *bytes = test_load(LIST, &length);
    for (size_t at = 0; at < length; at++) {
        bytes[at] ^= 0x10;
        cr_assert_eq(test_open_class("x.tfrecord", bytes, length), TC_INVALID, "byte %zu: %s", at,
                     test_error.message);
        bytes[at] ^= 0x10;
    }
    free(bytes);
}

Test(tfrecord, only_what_is_wanted_is_verified) {
    size_t length;
    char *bytes = test_load(LIST, &length);
    bytes[starts[2] + 40] ^= 1;
    test_write(test_path("x.tfrecord"), bytes, length);
    struct tc_reader *reader = test_open(test_path("x.tfrecord"));
    for (unsigned set = 0; set < 16; set++) {
        bool wanted[4] = {set & 1, set & 2, set & 4, set & 8};
        bool *lists[] = {wanted};
        struct tc_error error = {0};
        struct tc_checksum_thread *checksums = tc_checksum_thread_start(&reader, lists, 1, &error);
        cr_assert_eq(tc_checksum_thread_join(checksums, &error), !wanted[2], "set %u", set);
        cr_assert(!wanted[2] || strcmp(error.code, "crc") == 0);
    }
    tc_reader_close(reader);
    free(bytes);
}

Test(tfrecord, records_of_other_kinds) {
    cr_assert_eq(open_record("\x08\x01\x12\0\x22\4\0\0\0", 10), TC_OK);
    cr_assert_eq(open_record("", 0), TC_INVALID);
    cr_assert_eq(open_record("hello", 5), TC_INVALID);
    cr_assert_eq(open_record("\x0a\x02\x0a\0", 4), TC_UNSUPPORTED, "a tf.train.Example");
    cr_assert_eq(open_record("\x08\7\x12\4\x12\2\x08\1\x42\1a", 11), TC_UNSUPPORTED, "a string");
    cr_assert_eq(open_record("\x08\x01\x12\x09\x12\7\x08\x80\x80\x80\x80\x80\x20", 13), TC_UNSAFE);
}

Test(tfrecord, lengths_are_not_believed) {
    struct tc_buffer file = {0};
    static const uint64_t lengths[] = {11, 1 << 20, UINT64_MAX, UINT64_MAX - 15, INT64_MAX};
    add_record(&file, "\x08\x01\x12\0\x22\4\0\0\0", 10);
    cr_assert_eq(test_open_class("x.tfrecord", file.bytes, file.length), TC_OK);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct tc_buffer lie = {0};
        add_little(&lie, lengths[i], 8);
        add_little(&lie, masked(tc_crc32c(0, lie.bytes, 8)), 4);
        tc_buffer_add(&lie, file.bytes + 12, file.length - 12);
        cr_assert_eq(test_open_class("x.tfrecord", lie.bytes, lie.length), TC_INVALID, "%s",
                     test_error.message);
        tc_buffer_release(&lie);
    }
    tc_buffer_release(&file);
}

/* Splats of two records count together. */
Test(tfrecord, what_is_made_is_a_sum) {
    struct tc_buffer file = {0};
    struct tc_format_options options = test_options;
    struct tc_error error = {0};
    for (int i = 0; i < 2; i++)
        add_record(&file, "\x08\x01\x12\5\x12\3\x08\xe8\7", 9);
    test_write(test_path("x.tfrecord"), file.bytes, file.length);
    options.limits.made = 7999;
    cr_assert_null(tc_registry_open(test_path("x.tfrecord"), NULL, &options, &error));
    cr_assert_eq(error.class, TC_UNSAFE);
    tc_buffer_release(&file);
}

Test(tfrecord, writes_what_tensorflow_writes) {
    const char *out = test_path("out.tfrecord");
    cr_assert_eq(test_convert(LIST, out, tc_registry_named("tfrecord"), NULL, NULL), TC_OK);
    cr_assert(test_same_bytes(LIST, out));
}

static size_t count_losses(const char *from, const char *to, enum tc_keep keep) {
    const struct tc_plan_options options = {.keep_metadata = keep};
    struct tc_convert_options run = {.publish = {.no_sync = true}};
    struct tc_error error = {0};
    struct tc_reader *reader = test_open(from);
    struct tc_plan plan;
    cr_assert(tc_plan_make(&plan, &reader, 1, tc_registry_named("tfrecord"), to, &options, &error));
    cr_assert(tc_convert(&plan, to, &run, &error));
    size_t losses = tc_notes_count(&plan.notes, TC_LOSS, TC_KIND_NAME);
    tc_plan_release(&plan);
    tc_reader_close(reader);
    return losses;
}

Test(tfrecord, names_are_lost_or_kept_beside_it) {
    const char *out = test_path("out.tfrecord");
    const char *sidecar = test_path("out.tfrecord.tconv.json");
    const char *source = TESTDATA "/npz/stored.npz";
    cr_assert_eq(count_losses(source, out, TC_KEEP_AUTO), 5);
    cr_assert_eq(count_losses(LIST, out, TC_KEEP_AUTO), 0);
    cr_assert_eq(count_losses(source, out, TC_KEEP_SIDECAR), 0);
    char *first = test_digest(source);
    char *second = test_digest(out);
    cr_assert_str_eq(first, second);
    free(first);
    free(second);
    /* One that does not fit is told, not believed. */
    const char *short_list = "{\"metadata\":{},\"names\":[\"a\"]}";
    test_write(sidecar, short_list, strlen(short_list));
    struct tc_reader *reader = test_open(out);
    cr_assert(tc_text_equal(reader->table.tensors[0].name, TC_TEXT("0")));
    cr_assert(tc_notes_tell(&reader->notes, TC_LOSS, "names for 1 tensors"));
    tc_reader_close(reader);
    static const char *const bad[] = {"{\"names\":[\"a\",\"b\",\"c\",\"d\",\"a\"]}",
                                      "{\"names\":[\"a\",\"b\",\"c\",\"d\",\"\\u0000\"]}",
                                      "{\"names\":[\"a\",\"b\",\"c\",\"d\",1]}",
                                      "{\"names\":[],\"names\":[]}",
                                      "{\"tensors\":{},\"names\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}",
                                      "{\"names\":{}}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_write(sidecar, bad[i], strlen(bad[i]));
        cr_assert_eq(test_file_class(out), TC_INVALID, "%s", bad[i]);
    }
    /* A format with names has no use for them. */
    cr_assert_eq(test_convert(source, test_path("out.npz"), tc_registry_named("npz"), NULL, NULL),
                 TC_OK);
    test_write(test_path("out.npz.tconv.json"), bad[4], strlen(bad[4]));
    cr_assert_eq(test_file_class(test_path("out.npz")), TC_INVALID);
}
