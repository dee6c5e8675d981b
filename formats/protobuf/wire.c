#include "formats/protobuf/wire.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/memory.h"

#define WINDOW_BYTES ((size_t)1 << 16)
/* How much is read after a jump over data, where often only a short header follows. */
#define JUMP_BYTES ((size_t)1 << 12)
/* A number may have more bytes than it needs, up to this many; bits beyond the 64th
 * are dropped. protobuf's own parsers do the same, and some writers write that. */
#define LONGEST_VARINT 10u
/* The same for tags and lengths, which are numbers of 32 bits. */
#define LONGEST_SHORT 5u

bool wire_bad(struct tc_error *error, uint64_t at, const char *format, ...) {
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    tc_fail(error, TC_INVALID, "protobuf", "%s", what);
    return tc_error_at(error, at);
}

void wire_source_init(struct wire_source *source, struct tc_input *input) {
    *source = (struct wire_source){.input = input};
}

void wire_source_release(struct wire_source *source) {
    free(source->window);
    *source = (struct wire_source){0};
}

struct wire wire_open(struct wire_source *source, uint64_t start, uint64_t end) {
    return (struct wire){.source = source, .at = start, .end = end};
}

struct wire wire_inside(const struct wire *wire, const struct wire_field *field) {
    return wire_open(wire->source, field->offset, field->offset + field->length);
}

/* The next bytes: ten, or as many as the message has left. */
static const unsigned char *look(struct wire *wire, size_t *length, struct tc_error *error) {
    struct wire_source *source = wire->source;
    uint64_t left = wire->end - wire->at;
    *length = left < LONGEST_VARINT ? left : LONGEST_VARINT;
    if (wire->at >= source->window_at &&
        wire->at - source->window_at + *length <= source->window_size)
        return source->window + (wire->at - source->window_at);
    size_t room = source->input->size < WINDOW_BYTES ? source->input->size : WINDOW_BYTES;
    if (!source->window && !(source->window = malloc(room))) {
        tc_fail_memory(error);
        return NULL;
    }
    /* The window may reach beyond this message: the next one is likely to follow. */
    uint64_t rest = source->input->size - wire->at;
    bool goes_on =
        wire->at >= source->window_at && wire->at - source->window_at <= source->window_size;
    size_t most = goes_on ? WINDOW_BYTES : JUMP_BYTES;
    size_t size = rest < most ? rest : most;
    source->window_size = 0;
    if (!tc_input_read(source->input, wire->at, source->window, size, error))
        return NULL;
    tc_memory_earn(size);
    source->window_at = wire->at;
    source->window_size = size;
    return source->window;
}

bool wire_varint(struct wire *wire, uint64_t *value, struct tc_error *error) {
    size_t length;
    if (wire->at == wire->end)
        return false;
    const unsigned char *bytes = look(wire, &length, error);
    if (!bytes)
        return false;
    uint64_t result = 0;
    for (size_t i = 0; i < length; i++) {
        result |= (uint64_t)(bytes[i] & 0x7F) << 7 * i;
        if (bytes[i] & 0x80)
            continue;
        wire->at += i + 1;
        *value = result;
        return true;
    }
    return wire_bad(error, wire->at,
                    length == LONGEST_VARINT ? "a number that does not end"
                                             : "the message is cut short");
}

bool wire_fixed(struct wire *wire, unsigned bytes, uint64_t *value, struct tc_error *error) {
    size_t length;
    const unsigned char *from = look(wire, &length, error);
    if (!from)
        return false;
    if (length < bytes)
        return wire_bad(error, wire->at, "the message is cut short");
    *value = tc_load(from, bytes);
    wire->at += bytes;
    return true;
}

static bool short_varint(struct wire *wire, uint64_t *value, struct tc_error *error) {
    uint64_t start = wire->at;
    return wire_varint(wire, value, error) &&
           (wire->at - start <= LONGEST_SHORT ||
            wire_bad(error, start, "a tag or length of more than %u bytes", LONGEST_SHORT));
}

bool wire_next(struct wire *wire, struct wire_field *field, struct tc_error *error) {
    uint64_t tag = 0;
    *field = (struct wire_field){.at = wire->at};
    if (!short_varint(wire, &tag, error))
        return false;
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return wire_bad(error, field->at, "field %llu is none", (unsigned long long)(tag >> 3));
    field->number = (uint32_t)(tag >> 3);
    field->type = tag & 7;
    field->offset = wire->at;
    bool ok = field->type == WIRE_FIXED64   ? wire_fixed(wire, 8, &field->value, error)
              : field->type == WIRE_FIXED32 ? wire_fixed(wire, 4, &field->value, error)
              : field->type == WIRE_VARINT  ? wire_varint(wire, &field->value, error)
              : field->type == WIRE_BYTES
                  ? short_varint(wire, &field->length, error)
                  : wire_bad(error, field->at, "field %u has wire type %u, which is not used",
                             field->number, field->type);
    if (!ok)
        return error->class == TC_OK ? wire_bad(error, field->at, "the message is cut short")
                                     : false;
    if (field->type != WIRE_BYTES) {
        field->length = wire->at - field->offset;
        return true;
    }
    if (field->length > wire->end - wire->at)
        return wire_bad(error, field->at, "field %u has %llu bytes, its message has %llu left",
                        field->number, (unsigned long long)field->length,
                        (unsigned long long)(wire->end - wire->at));
    field->offset = wire->at;
    wire->at += field->length;
    return true;
}

bool wire_expect(const struct wire_field *field, enum wire_type type, const char *what,
                 struct tc_error *error) {
    return field->type == type || wire_bad(error, field->at, "%s has wire type %u (expected %d)",
                                           what, field->type, (int)type);
}

bool wire_text(const struct wire *wire, const struct wire_field *field, uint64_t limit,
               struct tc_arena *arena, struct tc_text *text, struct tc_error *error) {
    if (!wire_expect(field, WIRE_BYTES, "a text", error))
        return false;
    if (field->length > limit) {
        tc_fail(error, TC_UNSAFE, "name-limit", "a text is too long (%llu bytes, limit %llu)",
                (unsigned long long)field->length, (unsigned long long)limit);
        tc_error_hint(error, TC_FIXED_LIMIT);
        return tc_error_at(error, field->at);
    }
    char *copy = tc_arena_alloc(arena, field->length + 1, error);
    if (!copy || !tc_input_read(wire->source->input, field->offset, copy, field->length, error))
        return false;
    *text = (struct tc_text){copy, field->length};
    return tc_utf8_valid(*text) || wire_bad(error, field->at, "a text is not valid UTF-8");
}

void wire_add_varint(struct tc_buffer *text, uint64_t value) {
    do {
        unsigned char byte = (unsigned char)(value & 0x7F) | (value > 0x7F ? 0x80 : 0);
        tc_buffer_add(text, &byte, 1);
        value >>= 7;
    } while (value);
}

uint64_t wire_varint_size(uint64_t value) {
    uint64_t size = 1;
    while (value >>= 7)
        size++;
    return size;
}
