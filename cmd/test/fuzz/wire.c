/*
 * The fuzz target of protobuf's wire format: goes through all fields, into those that can be
 * messages, and reads every list of numbers in all ways. A varint that is written again reads as
 * the same number.
 */
#include "formats/protobuf/wire.h"

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"

#define DEEPEST 16
/* Fields in all: every level reads the bytes of those inside once more. */
#define MOST_FIELDS 20000

static void check_varint(uint64_t value) {
    struct tc_buffer text = {0};
    wire_add_varint(&text, value);
    FUZZ_CHECK(text.length == wire_varint_size(value), "%zu bytes for a varint of %llu",
               text.length, (unsigned long long)wire_varint_size(value));
    uint64_t again = 0;
    for (size_t i = 0; i < text.length; i++)
        again |= (uint64_t)((unsigned char)text.bytes[i] & 0x7F) << 7 * i;
    FUZZ_CHECK(again == value, "a varint is written as another number");
    tc_buffer_release(&text);
}

static void read_numbers(const struct wire *wire, const struct wire_field *field) {
    for (unsigned way = 0; way < 3; way++) {
        struct tc_error error = {0};
        struct wire list = wire_inside(wire, field);
        uint64_t value;
        uint64_t before = list.at;
        while (way == 0 ? wire_varint(&list, &value, &error)
                        : wire_fixed(&list, way * 4, &value, &error)) {
            FUZZ_CHECK(list.at > before && list.at <= list.end, "a number of no bytes");
            before = list.at;
        }
        fuzz_check_outcome(error.class == TC_OK, &error);
    }
}

static void read_text(const struct wire *wire, const struct wire_field *field) {
    struct tc_error error = {0};
    struct tc_arena arena;
    struct tc_text text;
    tc_arena_init(&arena, 0);
    bool ok = wire_text(wire, field, 1000, &arena, &text, &error);
    fuzz_check_outcome(ok, &error);
    FUZZ_CHECK(!ok || (tc_utf8_valid(text) && text.length == field->length), "a text is none");
    tc_arena_release(&arena);
}

void fuzz_wire(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    struct tc_input *input = tc_input_open(fuzz_file(bytes, length), NULL, &error);
    fuzz_check_outcome(input != NULL, &error);
    struct wire_source source;
    struct wire levels[DEEPEST];
    unsigned depth = 1;
    wire_source_init(&source, input);
    levels[0] = wire_open(&source, 0, length);
    for (unsigned fields = 0; depth && fields < MOST_FIELDS; fields++) {
        struct wire *wire = &levels[depth - 1];
        struct wire_field field;
        struct tc_error bad = {0};
        uint64_t before = wire->at;
        if (!wire_next(wire, &field, &bad)) {
            fuzz_check_outcome(bad.class == TC_OK, &bad);
            depth--;
            continue;
        }
        FUZZ_CHECK(field.number && field.at == before && wire->at > before &&
                       wire->at <= wire->end && field.offset <= wire->end &&
                       field.length <= wire->end - field.offset,
                   "a field reaches out of its message");
        if (field.type == WIRE_VARINT)
            check_varint(field.value);
        if (field.type != WIRE_BYTES)
            continue;
        read_numbers(wire, &field);
        read_text(wire, &field);
        if (depth < DEEPEST) {
            levels[depth] = wire_inside(wire, &field);
            depth++;
        }
    }
    wire_source_release(&source);
    tc_input_close(input);
}
