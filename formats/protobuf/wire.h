/*
 * A scanner over protobuf's wire format: it goes from field to field, hands
 * out where their bytes lie, and unpacks nothing. A message inside a message
 * is a scanner of its own over a range of the file, so a caller keeps a stack
 * of them and nothing recurses. All scanners of a source belong to one thread.
 *
 *     wire_source_init(&source, input);
 *     struct wire wire = wire_open(&source, start, end);
 *     while (wire_next(&wire, &field, error)) { … wire_inside(&wire, &field) … }
 *     if (error->class != TC_OK) …
 *     wire_source_release(&source);
 *
 * It is as strict as protobuf's own parsers: a number has at most ten bytes, a tag
 * or a length at most five; there are no groups and no field 0; a field ends within
 * its message.
 */
#ifndef TCONV_FORMATS_PROTOBUF_WIRE_H
#define TCONV_FORMATS_PROTOBUF_WIRE_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* The file, with a buffer of its bytes that all its scanners share. The caller owns
 * the input. */
struct wire_source {
    struct tc_input *input;
    unsigned char *window;
    uint64_t window_at;
    size_t window_size;
};

struct wire {
    struct wire_source *source;
    uint64_t at;
    uint64_t end;
};

struct wire_field {
    uint32_t number;
    uint8_t type;    /* enum wire_type */
    uint64_t at;     /* of its tag */
    uint64_t value;  /* of a number */
    uint64_t offset; /* where its value's bytes lie in the file, also those of a number */
    uint64_t length; /* of those bytes */
};

void wire_source_init(struct wire_source *source, struct tc_input *input);
void wire_source_release(struct wire_source *source);

struct wire wire_open(struct wire_source *source, uint64_t start, uint64_t end);
/* The next field. False at the end, or with the error filled. */
bool wire_next(struct wire *wire, struct wire_field *field, struct tc_error *error);
/* A scanner over the message that a field's bytes are. */
struct wire wire_inside(const struct wire *wire, const struct wire_field *field);

/* The next number of a packed list: a varint, or a little-endian number of 4 or 8
 * bytes. False at the end, or with the error filled. */
bool wire_varint(struct wire *wire, uint64_t *value, struct tc_error *error);
bool wire_fixed(struct wire *wire, unsigned bytes, uint64_t *value, struct tc_error *error);
/* A field of bytes as UTF-8 text in the arena; one longer than `limit` is refused. */
bool wire_text(const struct wire *wire, const struct wire_field *field, uint64_t limit,
               struct tc_arena *arena, struct tc_text *text, struct tc_error *error);

/* For writing: appends a varint in its shortest form; the length of that form. */
void wire_add_varint(struct tc_buffer *text, uint64_t value);
uint64_t wire_varint_size(uint64_t value);

/* Fails, and returns false, where the field has another type. */
bool wire_expect(const struct wire_field *field, enum wire_type type, const char *what,
                 struct tc_error *error);
/* Fails, at this offset of the file, because the message is damaged. */
bool wire_bad(struct tc_error *error, uint64_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
