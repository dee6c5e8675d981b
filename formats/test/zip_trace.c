/*
 * Reads zip archives from standard input and prints what is in them, for
 * cmd/test/test_zip_proof.py, which compares that with Python's zipfile.
 *
 *     input:   for each archive its length, 4 bytes little-endian, and its bytes
 *     output:  a line for each archive: `!` and why where it is refused; otherwise for each
 *              member a tab, its name in hexadecimal digits, a space, and its bytes in
 *              hexadecimal digits, or `!` and why where the member is refused
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "formats/test/fuzz.h"
#include "formats/zip/read.h"

#define MAX_ARCHIVE (1u << 24)

static void add_hex(struct tc_buffer *out, const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++)
        tc_buffer_addf(out, "%02x", (unsigned char)bytes[i]);
}

static void add_members(struct tc_buffer *out, struct tc_reader *reader, const struct zip *zip) {
    for (size_t i = 0; i < zip->count; i++) {
        const struct zip_member *member = &zip->members[i];
        struct tc_error error = {0};
        const char *bytes = zip_load(reader, member, &error);
        tc_buffer_add_string(out, "\t");
        add_hex(out, member->name.bytes, member->name.length);
        tc_buffer_add_string(out, " ");
        if (bytes)
            add_hex(out, bytes, member->size);
        else
            tc_buffer_addf(out, "!%s", error.message);
    }
}

static void trace_archive(const unsigned char *bytes, size_t length, struct tc_buffer *line) {
    const struct tc_format_options options = {.limits = FUZZ_LIMITS};
    struct tc_reader reader = {.options = &options};
    struct tc_error error = {0};
    struct zip zip = {0};
    line->length = 0;
    tc_arena_init(&reader.arena, options.limits.memory);
    reader.input = tc_input_open(fuzz_file(bytes, length), NULL, &error);
    if (reader.input && zip_open_archive(&zip, &reader, &error))
        add_members(line, &reader, &zip);
    else
        tc_buffer_addf(line, "!%s", error.message);
    tc_buffer_add_string(line, "\n");
    zip_release(&zip);
    tc_arena_release(&reader.arena);
    tc_input_close(reader.input);
}

int main(void) {
    struct tc_buffer line = {0};
    unsigned char head[4];
    bool ok = true;
    while (ok && fread(head, 1, sizeof head, stdin) == sizeof head) {
        size_t length = (size_t)tc_load(head, sizeof head);
        unsigned char *bytes = length <= MAX_ARCHIVE ? malloc(length ? length : 1) : NULL;
        ok = bytes && fread(bytes, 1, length, stdin) == length;
        if (ok) {
            trace_archive(bytes, length, &line);
            ok = !line.failed && fwrite(line.bytes, 1, line.length, stdout) == line.length;
        }
        free(bytes);
    }
    tc_buffer_release(&line);
    return ok && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
