/* Outputs that are read again before they appear: what was damaged on the way
 * to the disk is never published. Walks the registry. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/convert/read_back.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/inspect/digest.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"
#include "core/plan/make_plan.h"
#include "core/plan/plan.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(read_back, .init = test_folder_make, .fini = test_folder_remove);

static off_t flip_at; /* -1: nowhere */
static off_t flip_size;
static const char *flip_file; /* NULL: the first */

static void flip(const struct tc_publish *publish) {
    const struct tc_outfile *out = flip_file ? tc_publish_find(publish, flip_file) : publish->files;
    cr_assert_not_null(out);
    char *path = tc_outfile_path(out);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    free(path);
    unsigned char byte;
    cr_assert(fd >= 0);
    flip_size = lseek(fd, 0, SEEK_END);
    if (flip_at >= 0) {
        cr_assert_eq(pread(fd, &byte, 1, flip_at), 1);
        byte ^= 1;
        cr_assert_eq(pwrite(fd, &byte, 1, flip_at), 1);
    }
    close(fd);
}

static enum tc_class convert(const char *from, const char *to, const struct tc_backend *target,
                             const struct tc_plan_options *options) {
    static const struct tc_plan_options plain = {.write = {.checksum = true}};
    struct tc_convert_options run = {.publish = {.no_sync = true},
                                     .read_back = true,
                                     .keep = true,
                                     .open = tc_registry_open_input,
                                     .disturb = flip};
    test_error = (struct tc_error){0};
    struct tc_reader *reader = test_open(from);
    struct tc_plan plan;
    struct tc_conversion conversion;
    cr_assert(tc_plan_make(&plan, &reader, 1, target, to, options ? options : &plain, &test_error),
              "%s: %s", to, test_error.message);
    if (tc_conversion_write(&conversion, &plan, to, &run, &test_error)) {
        char digest[2 * TC_SHA256_BYTES + 1];
        char total[2 * TC_SHA256_BYTES + 1];
        cr_assert(tc_read_back_digest(&conversion.read_back, digest, &test_error));
        cr_assert(tc_conversion_commit(&conversion, &test_error));
        if (!plan.sharded) {
            char *lines = test_digest(to);
            struct tc_buffer text = {.bytes = lines, .length = strlen(lines)};
            cr_assert(tc_digest_total(&text, total, &test_error));
            cr_assert_str_eq(digest, total, "%s: the digest is that of the published file", to);
            free(lines);
        }
    }
    tc_conversion_end(&conversion);
    tc_plan_release(&plan);
    tc_reader_close(reader);
    return test_error.class;
}

static void write_source(const char *path) {
    static const char header[] =
        "{\"first\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"second\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]}} ";
    char file[8 + sizeof header - 1 + 32] = {(char)(sizeof header - 1)};
    memcpy(file + 8, header, sizeof header - 1);
    for (size_t i = 0; i < 32; i++)
        file[8 + sizeof header - 1 + i] = (char)(i * 7 + 1);
    test_write(path, file, sizeof file);
}

/* Whatever byte is damaged: the target stays as it was, or holds what was meant. */
Test(read_back, no_damaged_output_appears, .timeout = 600) {
    const char *source = test_path("source.safetensors");
    write_source(source);
    char *meant = test_digest(source);
    for (size_t f = 0; tc_registry[f]; f++) {
        const struct tc_backend *target = tc_registry[f];
        if (!(target->caps & TC_CAN_WRITE) || !(target->caps & TC_CAN_HOLD_MANY) ||
            !(target->caps & TC_CAN_NAME))
            continue;
        char name[64];
        snprintf(name, sizeof name, "target%s", target->extensions[0]);
        const char *path = test_path(name);
        size_t caught = 0;
        flip_at = -1;
        cr_assert_eq(convert(source, path, target, NULL), TC_OK, "%s: %s", target->name,
                     test_error.message);
        for (off_t at = 0; at < flip_size; at++) {
            flip_at = at;
            test_write(path, "old", 3);
            if (convert(source, path, target, NULL) == TC_OK) {
                char *got = test_digest(path);
                cr_assert_str_eq(got, meant, "%s: byte %lld", target->name, (long long)at);
                free(got);
            } else {
                size_t length;
                char *old = test_load(path, &length);
                cr_assert_eq(test_error.class, TC_IO, "%s", test_error.message);
                cr_assert(strstr(test_error.message, "verification failed") != NULL);
                cr_assert(length == 3 && memcmp(old, "old", 3) == 0, "the target is untouched");
                free(old);
                caught++;
            }
        }
        cr_assert_geq(caught, 32, "%s: every byte of data counts", target->name);
    }
    free(meant);
}

Test(read_back, shards_and_their_index) {
    static const struct tc_plan_options options = {.write = {.checksum = false}, .shard_size = 16};
    for (size_t f = 0; tc_registry[f]; f++) {
        const struct tc_backend *target = tc_registry[f];
        if (!(target->caps & TC_CAN_WRITE) || !target->sharding)
            continue;
        const char *source = test_path("source.safetensors");
        char name[64];
        char shard[64];
        write_source(source);
        snprintf(name, sizeof name, "m%s", target->extensions[0]);
        snprintf(shard, sizeof shard, "m-00002-of-%0*d%s", target->sharding->count_digits, 2,
                 target->extensions[0]);
        flip_at = -1;
        flip_file = shard;
        cr_assert_eq(convert(source, test_path(name), target, &options), TC_OK, "%s: %s",
                     target->name, test_error.message);
        size_t length;
        char *bytes = test_load(test_path(shard), &length);
        const char data[] = {113, 120}; /* where the second tensor starts */
        const char *at = memmem(bytes, length, data, sizeof data);
        cr_assert_not_null(at);
        flip_at = at - bytes;
        cr_assert_eq(convert(source, test_path(name), target, &options), TC_IO, "%s", target->name);
        cr_assert_str_eq(test_error.tensor, "second");
        free(bytes);
    }
    flip_file = NULL;
}

Test(read_back, a_pipe_cannot_be_verified) {
    const char *source = test_path("source.safetensors");
    write_source(source);
    cr_assert_eq(convert(source, "-", tc_registry_named("safetensors"), NULL), TC_USAGE);
}
