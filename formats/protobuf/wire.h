/*
 * A scanner over protobuf's wire format: it goes from field to field, hands
 * out where their bytes lie, and unpacks nothing. A message inside a message
 * is a scanner of its own over a part of the file, so a caller keeps a stack
 * of them and nothing recurses.
 *
 *     wire_source_init(&source, input);
 *     struct wire wire = wire_open(&source, start, end);
 *     while (wire_next(&wire, &field, error)) { … wire_inside(&wire, &field) … }
 *     if (error->class != TC_OK) …
 *     wire_source_release(&source);
 *
 * Strict, as far as protobuf's own parsers are: numbers of at most ten bytes, tags
 * and lengths of five, no groups, no field 0, no part that is longer than its whole.
 */
#ifndef TCONV_FORMATS_PROTOBUF_WIRE_H
#define TCONV_FORMATS_PROTOBUF_WIRE_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* The file, with a window that all its scanners share. */
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
    uint64_t offset; /* where its bytes lie, those of a number too */
    uint64_t length;
};

void wire_source_init(struct wire_source *source, struct tc_input *input);
void wire_source_release(struct wire_source *source);

struct wire wire_open(struct wire_source *source, uint64_t start, uint64_t end);
/* False at the end, or with the error filled. */
bool wire_next(struct wire *wire, struct wire_field *field, struct tc_error *error);
/* The bytes of a field, as a message. */
struct wire wire_inside(const struct wire *wire, const struct wire_field *field);

/* A varint by itself, for packed lists. False at the end, or with the error
 * filled. */
bool wire_varint(struct wire *wire, uint64_t *value, struct tc_error *error);
/* Likewise a little-endian number of 4 or 8 bytes. */
bool wire_fixed(struct wire *wire, unsigned bytes, uint64_t *value, struct tc_error *error);
/* A field of bytes as UTF-8 text, the arena's; longer than `limit` is refused. */
bool wire_text(const struct wire *wire, const struct wire_field *field, uint64_t limit,
               struct tc_arena *arena, struct tc_text *text, struct tc_error *error);

/* Writing: a number in its shortest form, and how long that is. */
void wire_add_varint(struct tc_buffer *text, uint64_t value);
uint64_t wire_varint_size(uint64_t value);

/* Fails, and returns false, where the field has another type. */
bool wire_expect(const struct wire_field *field, enum wire_type type, const char *what,
                 struct tc_error *error);
bool wire_bad(struct tc_error *error, uint64_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
