#include "formats/test/support.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/inspect/digest.h"
#include "core/io/input.h"
#include "core/plan/make_plan.h"
#include "core/tensor/shape.h"
#include "core/test/temporary.h"
#include "formats/registry.h"
#include "formats/test/second_opinion.h"

struct tc_format_options test_options = {.limits = TC_LIMITS_DEFAULT};
struct tc_error test_error;

static char folder[TEST_PATH_MAX];

void test_folder_make(void) {
    test_temporary_folder(folder);
}

void test_folder_remove(void) {
    test_remove_folder(folder);
}

const char *test_path(const char *name) {
    static char paths[8][TEST_PATH_MAX + 64];
    static unsigned next;
    char *path = paths[next++ % 8];
    int length = snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    cr_assert(length < (int)sizeof paths[0], "%s", name);
    return path;
}

void test_write(const char *path, const void *bytes, size_t length) {
    unlink(path); /* a file that is emptied and filled anew is flushed to disk */
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, length, file), length);
    cr_assert_eq(fclose(file), 0);
}

char *test_load(const char *path, size_t *length) {
    struct tc_error error = {0};
    struct tc_input *input = tc_input_open(path, NULL, &error);
    cr_assert_not_null(input, "%s: %s", path, error.message);
    *length = input->size;
    char *bytes = tc_input_load(input, 0, input->size, &error);
    tc_input_close(input);
    return bytes;
}

bool test_same_bytes(const char *a, const char *b) {
    size_t first_length;
    size_t second_length;
    char *first = test_load(a, &first_length);
    char *second = test_load(b, &second_length);
    bool same = first_length == second_length && memcmp(first, second, first_length) == 0;
    free(first);
    free(second);
    return same;
}

struct tc_reader *test_open(const char *path) {
    struct tc_error error = {0};
    struct tc_reader *reader = tc_registry_open(path, NULL, &test_options, &error);
    cr_assert_not_null(reader, "%s: %s", path, error.message);
    return reader;
}

enum tc_class test_file_class(const char *path) {
    test_error = (struct tc_error){0};
    struct tc_reader *reader = tc_registry_open(path, NULL, &test_options, &test_error);
    if (reader) {
        struct tc_digest digest = {0};
        tc_digest_make(&digest, reader, &test_error);
        tc_digest_release(&digest);
        tc_reader_close(reader);
    }
    return test_error.class;
}

enum tc_class test_open_class(const char *name, const void *bytes, size_t length) {
    const char *path = test_path(name);
    test_write(path, bytes, length);
    return test_file_class(path);
}

unsigned char *test_read(struct tc_reader *reader, const struct tc_tensor *tensor) {
    struct tc_error error = {0};
    unsigned char *bytes = malloc(tensor->nbytes + 1);
    cr_assert(tc_reader_read(reader, tensor, 0, bytes, tensor->nbytes, &error), "%s",
              error.message);
    return bytes;
}

const struct tc_tensor *test_find(struct tc_reader *reader, const char *name) {
    const struct tc_tensor *tensor = tc_table_find(&reader->table, tc_text_of(name));
    cr_assert_not_null(tensor, "there is no %s", name);
    return tensor;
}

void test_expect(struct tc_reader *reader, const char *name, enum tc_dtype dtype, const char *shape,
                 const void *bytes, size_t nbytes) {
    const struct tc_tensor *tensor = test_find(reader, name);
    struct tc_buffer text = {0};
    tc_shape_print(&text, tensor->shape, tensor->rank);
    tc_buffer_add(&text, "", 1);
    cr_assert_str_eq(text.bytes, shape, "%s", name);
    tc_buffer_release(&text);
    cr_assert_eq(tensor->dtype, dtype, "%s is %s", name, tc_dtype_name(tensor->dtype));
    cr_assert_eq(tensor->nbytes, nbytes, "%s", name);
    unsigned char *values = test_read(reader, tensor);
    if (nbytes)
        cr_assert_arr_eq(values, bytes, nbytes, "%s", name);
    free(values);
    for (size_t at = nbytes; at > 0; at--) {
        struct tc_error error = {0};
        unsigned char byte;
        cr_assert(tc_reader_read(reader, tensor, at - 1, &byte, 1, &error), "%s", error.message);
        cr_assert_eq(byte, ((const unsigned char *)bytes)[at - 1], "%s, byte %zu", name, at - 1);
    }
}

void test_expect_metadata(const struct tc_metadata *metadata, const char *key, const char *value) {
    const struct tc_text *found = metadata ? tc_metadata_find(metadata, tc_text_of(key)) : NULL;
    cr_assert_not_null(found, "there is no %s", key);
    cr_assert(tc_text_equal(*found, tc_text_of(value)), "%s is %.*s", key, (int)found->length,
              found->bytes);
}

char *test_digest(const char *path) {
    struct tc_error error = {0};
    struct tc_digest digest = {0};
    struct tc_buffer text = {0};
    struct tc_reader *reader = test_open(path);
    cr_assert(tc_digest_make(&digest, reader, &error) &&
                  tc_digest_print(&digest, reader, &text, &error),
              "%s: %s", path, error.message);
    tc_digest_release(&digest);
    tc_reader_close(reader);
    return text.bytes ? text.bytes : strdup("");
}

/* Every zip archive that is written is read by libzip too. */
static void check_archive(const char *path) {
    char what[SECOND_OPINION_TEXT];
    size_t length;
    char *bytes = test_load(path, &length);
    if (length >= 4 && memcmp(bytes, "PK", 2) == 0)
        cr_assert_eq(second_opinion(path, bytes, length, &test_options, what), SECOND_OPINION_SAME,
                     "%s: %s", path, what);
    free(bytes);
}

static void check_archives(const struct tc_plan *plan, const char *to) {
    for (size_t i = 0; i < plan->file_count; i++) {
        struct tc_buffer path = {0};
        tc_buffer_add(&path, to, (size_t)(tc_path_name(to) - to));
        tc_buffer_add_string(&path, plan->files[i].name);
        tc_buffer_add(&path, "", 1);
        check_archive(path.bytes);
        tc_buffer_release(&path);
    }
}

enum tc_class test_convert(const char *from, const char *to, const struct tc_backend *target,
                           const struct tc_plan_options *options, size_t *promoted) {
    static const struct tc_plan_options plain = {.write = {.checksum = true}};
    test_error = (struct tc_error){0};
    struct tc_reader *reader = test_open(from);
    struct tc_plan plan;
    struct tc_convert_options run = {.publish = {.no_sync = true}};
    if (tc_plan_make(&plan, &reader, 1, target, to, options ? options : &plain, &test_error))
        if (tc_convert(&plan, to, &run, &test_error))
            check_archives(&plan, to);
    if (promoted)
        *promoted = 0;
    for (size_t i = 0; promoted && i < plan.count; i++)
        *promoted += plan.items[i].dtype != plan.items[i].tensor->dtype;
    tc_plan_release(&plan);
    tc_reader_close(reader);
    return test_error.class;
}

void test_write_zip(const char *path, const struct test_member *members, size_t count) {
    struct tc_buffer zip = {0};
    cr_assert(test_make_zip(&zip, members, count));
    test_write(path, zip.bytes, zip.length);
    tc_buffer_release(&zip);
}

static size_t take_little(const char *at, unsigned bytes) {
    size_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (size_t)(unsigned char)at[i] << 8 * i;
    return value;
}

/* The directory's entry behind this one; NULL at the end. */
static const char *next_entry(const char *zip, size_t length, const char *entry) {
    const char *end = zip + length - 22;
    cr_assert_arr_eq(end, "PK\5\6", 4);
    entry = entry ? entry + 46 + take_little(entry + 28, 2) + take_little(entry + 30, 2)
                  : zip + take_little(end + 16, 4);
    return memcmp(entry, "PK\1\2", 4) == 0 ? entry : NULL;
}

const char *test_zip_find(const char *zip, size_t length, const char *name, size_t *size) {
    const char *entry = NULL;
    while ((entry = next_entry(zip, length, entry)))
        if (take_little(entry + 28, 2) == strlen(name) &&
            memcmp(entry + 46, name, strlen(name)) == 0) {
            const char *local = zip + take_little(entry + 42, 4);
            cr_assert_eq(take_little(entry + 10, 2), 0, "%s is not stored", name);
            *size = take_little(entry + 24, 4);
            return local + 30 + take_little(local + 26, 2) + take_little(local + 28, 2);
        }
    return NULL;
}

size_t test_zip_count(const char *zip, size_t length, const char *prefix) {
    const char *entry = NULL;
    size_t count = 0;
    while ((entry = next_entry(zip, length, entry)))
        count += take_little(entry + 28, 2) >= strlen(prefix) &&
                 memcmp(entry + 46, prefix, strlen(prefix)) == 0;
    return count;
}

static size_t walk(const char *path, test_visitor *each, void *context) {
    DIR *handle = opendir(path);
    size_t count = 0;
    struct dirent *entry;
    while (handle && (entry = readdir(handle))) {
        char inner[512];
        struct stat status;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (stat(inner, &status) == 0 && S_ISDIR(status.st_mode)) {
            count += walk(inner, each, context);
        } else {
            each(inner, context);
            count++;
        }
    }
    if (handle)
        closedir(handle);
    return count;
}

size_t test_each_file(const char *name, test_visitor *each, void *context) {
    char path[256];
    snprintf(path, sizeof path, TESTDATA "/%s", name);
    return walk(path, each, context);
}

const char *test_make_safetensors(const char *header, const void *data, size_t nbytes) {
    const char *path = test_path("in.safetensors");
    struct tc_buffer file = {0};
    size_t length = strlen(header);
    unsigned char prefix[8];
    tc_store(prefix, length, sizeof prefix);
    tc_buffer_add(&file, prefix, sizeof prefix);
    tc_buffer_add_string(&file, header);
    tc_buffer_add(&file, data, nbytes);
    test_write(path, file.bytes, file.length);
    tc_buffer_release(&file);
    return path;
}
