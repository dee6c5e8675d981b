#include "formats/protobuf/typed.h"

#include <stdlib.h>
#include <string.h>

#include "core/tensor/dtype.h"

#define STEP_BYTES ((size_t)1 << 16)

void typed_reader_init(struct typed_reader *reader, struct wire_source *source) {
    *reader = (struct typed_reader){.source = source};
}

void typed_reader_release(struct typed_reader *reader) {
    tc_spool_release(&reader->spool);
    reader->current = NULL;
}

/* How many bytes of the tensor a number of the list becomes. */
static unsigned unit_bytes(const struct typed *typed) {
    return tc_dtype_packed(typed->dtype) ? 1 : tc_dtype_component(typed->dtype);
}

/* Whether a varint is a value of this dtype: an integer in its range, or the bits of
 * any other element. */
static bool in_range(enum tc_dtype dtype, unsigned bytes, uint64_t value) {
    switch (dtype) {
    case TC_BOOL:
        return value <= 1;
    case TC_I8:
    case TC_I16:
    case TC_I32: {
        int64_t limit = dtype == TC_I8 ? 1 << 7 : dtype == TC_I16 ? 1 << 15 : INT64_C(1) << 31;
        return (int64_t)value >= -limit && (int64_t)value < limit;
    }
    case TC_I64:
    case TC_U64:
        return true;
    default:
        return bytes == 8 || value >> 8 * bytes == 0;
    }
}

struct decoding {
    const struct typed *typed;
    struct tc_spool *spool; /* NULL: values are only counted */
    uint64_t outside;       /* values out of range, which wrapped */
    unsigned unit;          /* unit_bytes */
    uint64_t left;          /* bytes of the tensor that have no value yet */
    unsigned char *step;
    size_t filled;
    unsigned char tail[16]; /* the last element's bytes */
};

static bool flush(struct decoding *decoding, struct tc_error *error) {
    bool ok =
        !decoding->spool || tc_spool_add(decoding->spool, decoding->step, decoding->filled, error);
    decoding->filled = 0;
    return ok;
}

/* Makes a value that is out of range one that fits: its low bits are stored. A bool
 * that is not 0 is true. One whose low eight bits are 0 is refused, since some readers
 * look at these alone. */
static bool wrap(const struct typed *typed, uint64_t *value) {
    if (!typed->wraps || (typed->dtype == TC_BOOL && *value && (*value & 0xFF) == 0))
        return false;
    if (typed->dtype == TC_BOOL)
        *value = 1;
    return true;
}

static bool add_value(struct decoding *decoding, uint64_t value, uint64_t at,
                      struct tc_error *error) {
    const struct typed *typed = decoding->typed;
    if (decoding->left < decoding->unit)
        return wire_bad(error, at, "more values than the tensor has elements");
    uint64_t given = value;
    if (typed->element == WIRE_VARINT && typed->int32)
        value = (uint64_t)(int64_t)(int32_t)(uint32_t)value;
    if (typed->element == WIRE_VARINT &&
        (value != given || !in_range(typed->dtype, decoding->unit, value))) {
        if (!wrap(typed, &value))
            return wire_bad(error, at, "a value is out of range for %s",
                            tc_dtype_name(typed->dtype));
        decoding->outside++;
    }
    for (unsigned i = 0; i < decoding->unit; i++)
        decoding->step[decoding->filled++] = (unsigned char)(value >> 8 * i);
    decoding->left -= decoding->unit;
    /* The last element is kept: the list may have to go on with it. */
    memmove(decoding->tail, decoding->tail + decoding->unit,
            sizeof decoding->tail - decoding->unit);
    memcpy(decoding->tail + sizeof decoding->tail - decoding->unit,
           decoding->step + decoding->filled - decoding->unit, decoding->unit);
    return decoding->filled + 16 <= STEP_BYTES || flush(decoding, error);
}

static bool add_packed(struct decoding *decoding, const struct wire *wire,
                       const struct wire_field *field, struct tc_error *error) {
    struct wire inside = wire_inside(wire, field);
    unsigned fixed = decoding->typed->element == WIRE_FIXED32   ? 4
                     : decoding->typed->element == WIRE_FIXED64 ? 8
                     : decoding->typed->element == WIRE_BYTES   ? 1
                                                                : 0;
    if (fixed && field->length % fixed)
        return wire_bad(error, field->at, "a packed list ends inside a number");
    while (inside.at < inside.end) {
        uint64_t at = inside.at;
        uint64_t value;
        if (!(fixed ? wire_fixed(&inside, fixed, &value, error)
                    : wire_varint(&inside, &value, error)) ||
            !add_value(decoding, value, at, error))
            return false;
    }
    return true;
}

static bool decode(struct decoding *decoding, struct wire_source *source, struct tc_error *error) {
    const struct typed *typed = decoding->typed;
    struct wire wire = wire_open(source, typed->start, typed->end);
    struct wire_field field;
    while (wire_next(&wire, &field, error)) {
        if (field.number != typed->field)
            continue;
        if (field.type == WIRE_BYTES ? !add_packed(decoding, &wire, &field, error)
                                     : !wire_expect(&field, typed->element, "a value", error) ||
                                           !add_value(decoding, field.value, field.at, error))
            return false;
    }
    return error->class == TC_OK && flush(decoding, error);
}

bool typed_count_outside(struct wire_source *source, const struct typed *typed, uint64_t *count,
                         struct tc_error *error) {
    struct decoding decoding = {.typed = typed,
                                .unit = unit_bytes(typed),
                                .left = typed->nbytes,
                                .step = malloc(STEP_BYTES)};
    bool ok = decoding.step ? decode(&decoding, source, error) : tc_fail_memory(error);
    free(decoding.step);
    *count = decoding.outside;
    return ok;
}

/* Decodes a tensor into the spool, without the repetitions of its last value. */
static bool start(struct typed_reader *reader, const struct typed *typed, struct tc_error *error) {
    typed_reader_release(reader);
    struct decoding decoding = {.typed = typed,
                                .spool = &reader->spool,
                                .unit = unit_bytes(typed),
                                .left = typed->nbytes,
                                .step = malloc(STEP_BYTES)};
    /* The list is not longer than its message, where a varint of one byte may become
     * eight. Anything beyond is repetition. */
    uint64_t most = (typed->end - typed->start) * 8;
    uint64_t size = typed->nbytes < most ? typed->nbytes : most;
    bool ok = decoding.step ? tc_spool_open(&reader->spool, size, error) : tc_fail_memory(error);
    ok = ok && decode(&decoding, reader->source, error);
    free(decoding.step);
    reader->decoded = typed->nbytes - decoding.left;
    unsigned element = tc_dtype_packed(typed->dtype) ? 1 : tc_dtype_bits(typed->dtype) / 8;
    if (ok && decoding.left && !typed->repeats)
        ok = wire_bad(error, typed->start, "fewer values than the tensor has elements");
    if (ok && reader->decoded % element)
        ok = wire_bad(error, typed->start, "an element lacks its second half");
    memcpy(reader->last, decoding.tail + sizeof decoding.tail - element, element);
    if (!ok) {
        typed_reader_release(reader);
        return false;
    }
    reader->current = typed;
    return true;
}

bool typed_read(struct typed_reader *reader, const struct typed *typed, uint64_t offset,
                void *buffer, size_t length, struct tc_error *error) {
    if (reader->current != typed && !start(reader, typed, error))
        return false;
    unsigned char *to = buffer;
    if (offset < reader->decoded) {
        uint64_t held = reader->decoded - offset;
        size_t step = held < length ? held : length;
        if (!tc_spool_read(&reader->spool, offset, to, step, error))
            return false;
        to += step;
        offset += step;
        length -= step;
    }
    unsigned element = tc_dtype_packed(typed->dtype) ? 1 : tc_dtype_bits(typed->dtype) / 8;
    for (; length; length--, offset++)
        *to++ = reader->last[offset % element];
    return true;
}
