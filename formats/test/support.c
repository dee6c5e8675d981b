#include "formats/test/support.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/digest.h"

const struct tc_format_options test_options = {.limits = TC_LIMITS_DEFAULT, .npy_void = TC_NONE};
struct tc_error test_error;

static char folder[64];

void test_folder_make(void) {
    snprintf(folder, sizeof folder, "/tmp/tconv-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

void test_folder_remove(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

const char *test_path(const char *name) {
    static char paths[8][256];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

void test_write(const char *path, const void *bytes, size_t length) {
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

enum tc_class test_convert(const char *from, const char *to, const struct tc_backend *target,
                           const struct tc_plan_options *options, size_t *promoted) {
    static const struct tc_plan_options plain = {.write = {.checksum = true}};
    test_error = (struct tc_error){0};
    struct tc_reader *reader = test_open(from);
    struct tc_plan plan;
    struct tc_convert_options run = {.publish = {.no_sync = true}};
    if (tc_plan_make(&plan, &reader, 1, target, to, options ? options : &plain, &test_error))
        tc_convert(&plan, to, &run, &test_error);
    if (promoted) {
        *promoted = 0;
        for (size_t i = 0; i < plan.entry_count; i++)
            *promoted += strcmp(plan.entries[i].kind, "dtype") == 0;
    }
    tc_plan_release(&plan);
    tc_reader_close(reader);
    return test_error.class;
}

static size_t walk(const char *path, test_visitor *each, void *context) {
    DIR *handle = opendir(path);
    size_t count = 0;
    struct dirent *entry;
    while (handle && (entry = readdir(handle))) {
        char inner[512];
        struct stat status;
        if (entry->d_name[0] == '.')
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
