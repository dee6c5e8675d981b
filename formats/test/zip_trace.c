/*
 * Reads zip archives from standard input and prints what is in them, for
 * cmd/test/test_zip_proof.py, which compares that with Python's zipfile.
 *
 * The line of an archive is `!` and why where it is refused; otherwise for each member a
 * tab, its name in hexadecimal digits, a space, and its bytes in hexadecimal digits, or `!`
 * and why where the member is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "formats/test/trace.h"
#include "formats/zip/directory.h"
#include "formats/zip/read.h"

/* Members of up to this size are loaded. */
#define MAX_MEMORY (64u << 20)

/* The path of a file that holds these bytes; it is the same file for all archives. */
static const char *file_of(const unsigned char *bytes, size_t length) {
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("archive", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, bytes, length, 0) != (ssize_t)length)
        abort();
    return path;
}

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
    const struct tc_format_options options = {.limits = {.tensors = 10000, .memory = MAX_MEMORY}};
    struct tc_reader reader = {.options = &options};
    struct tc_error error = {0};
    struct zip zip = {0};
    tc_arena_init(&reader.arena, options.limits.memory);
    reader.input = tc_input_open(file_of(bytes, length), NULL, &error);
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
    return trace_all(trace_archive);
}
