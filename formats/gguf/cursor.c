#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "formats/gguf/gguf.h"

#define WINDOW ((size_t)64 << 10)
/* Vocabularies take some 10 MB. */
#define HEADER_LIMIT (UINT64_C(1) << 30)

bool gguf_cursor_init(struct gguf_cursor *cursor, struct tc_reader *reader,
                      struct tc_error *error) {
    *cursor = (struct gguf_cursor){.input = reader->input, .size = reader->input->size};
    cursor->limit = tc_reader_header_limit(reader, HEADER_LIMIT);
    cursor->window = malloc(WINDOW);
    return cursor->window || tc_fail_memory(error);
}

void gguf_cursor_release(struct gguf_cursor *cursor) {
    if (cursor->input)
        free(cursor->window);
}

static bool cut_short(const struct gguf_cursor *cursor, struct tc_error *error) {
    tc_fail(error, TC_INVALID, "truncated", "the file ends inside its header (it has %llu bytes)",
            (unsigned long long)cursor->size);
    tc_error_because(error, TC_REASON_CUT_SHORT);
    return tc_error_at(error, cursor->at);
}

static bool too_long(const struct gguf_cursor *cursor, struct tc_error *error) {
    tc_fail(error, TC_UNSAFE, "header-limit", "the header is too long (limit %llu bytes)",
            (unsigned long long)cursor->limit);
    return tc_error_hint(error, "raise the limit with --max-header if you trust this file");
}

static bool refill(struct gguf_cursor *cursor, struct tc_error *error) {
    uint64_t left = cursor->size - cursor->at;
    cursor->start = cursor->at;
    cursor->filled = left < WINDOW ? left : WINDOW;
    tc_memory_earn(cursor->filled);
    return tc_input_read(cursor->input, cursor->start, cursor->window, cursor->filled, error);
}

bool gguf_take(struct gguf_cursor *cursor, void *to, size_t length, struct tc_error *error) {
    unsigned char *out = to;
    if (length > cursor->size - cursor->at)
        return cut_short(cursor, error);
    if (cursor->at > cursor->limit || length > cursor->limit - cursor->at)
        return too_long(cursor, error);
    while (length) {
        uint64_t end = cursor->start + cursor->filled;
        if (cursor->at == end && !refill(cursor, error))
            return false;
        size_t here = cursor->start + cursor->filled - cursor->at;
        size_t step = length < here ? length : here;
        memcpy(out, cursor->window + (cursor->at - cursor->start), step);
        cursor->at += step;
        out += step;
        length -= step;
    }
    return true;
}

bool gguf_take_number(struct gguf_cursor *cursor, unsigned bytes, uint64_t *number,
                      struct tc_error *error) {
    unsigned char buffer[8];
    if (!gguf_take(cursor, buffer, bytes, error))
        return false;
    *number = tc_load(buffer, bytes);
    return true;
}

bool gguf_check_count(const struct gguf_cursor *cursor, uint64_t count, unsigned least,
                      const char *what, struct tc_error *error) {
    uint64_t left = cursor->size - cursor->at;
    if (count <= left / least)
        return true;
    if (least == 1)
        tc_fail(error, TC_INVALID, "count", "%s of %llu bytes where %llu bytes are left", what,
                (unsigned long long)count, (unsigned long long)left);
    else
        tc_fail(error, TC_INVALID, "count",
                "%llu %s of at least %u bytes each cannot be in the %llu bytes that are left",
                (unsigned long long)count, what, least, (unsigned long long)left);
    return tc_error_at(error, cursor->at);
}

bool gguf_take_string(struct gguf_cursor *cursor, struct tc_arena *arena, struct tc_text *string,
                      struct tc_error *error) {
    uint64_t length;
    if (!gguf_take_number(cursor, 8, &length, error) ||
        !gguf_check_count(cursor, length, 1, "a string", error))
        return false;
    char *bytes = tc_arena_alloc(arena, length + 1, error);
    *string = (struct tc_text){bytes, length};
    return bytes && gguf_take(cursor, bytes, length, error);
}
