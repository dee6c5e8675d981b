/* The scanner of protobuf's wire format, and the numbers in repeated fields. */

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "formats/protobuf/typed.h"
#include "formats/protobuf/wire.h"
#include "formats/test/support.h"

static struct tc_input *input;
static struct wire_source source;
static struct tc_error error;

static void prepare(void) {
    test_folder_make();
    input = NULL;
    error = (struct tc_error){0};
}

static void clean(void) {
    wire_source_release(&source);
    if (input)
        tc_input_close(input);
    test_folder_remove();
}

TestSuite(wire, .init = prepare, .fini = clean, .timeout = 600);
TestSuite(typed, .init = prepare, .fini = clean, .timeout = 600);

#define P(literal) (literal), sizeof(literal) - 1

/* A scanner over these bytes, with nothing read yet and no error. */
static struct wire start(const void *bytes, size_t length) {
    wire_source_release(&source);
    if (input)
        tc_input_close(input);
    error = (struct tc_error){0};
    test_write(test_path("message"), bytes, length);
    input = tc_input_open(test_path("message"), NULL, &error);
    cr_assert_not_null(input);
    wire_source_init(&source, input);
    return wire_open(&source, 0, length);
}

static void expect_end(struct wire *wire) {
    struct wire_field field;
    cr_assert(!wire_next(wire, &field, &error));
    cr_assert_eq(error.class, TC_OK, "%s", error.message);
}

static void expect_bad(const void *bytes, size_t length, const char *message, uint64_t at) {
    struct wire wire = start(bytes, length);
    struct wire_field field;
    while (wire_next(&wire, &field, &error))
        ;
    cr_assert_eq(error.class, TC_INVALID, "%s: class %d", message, (int)error.class);
    cr_assert_str_eq(error.code, "protobuf");
    cr_assert(strstr(error.message, message), "%s (expected %s)", error.message, message);
    cr_assert(error.has_offset && error.offset == at, "at %llu", (unsigned long long)error.offset);
}

Test(wire, an_empty_message_has_no_field) {
    struct wire wire = start("", 0);
    expect_end(&wire);
}

Test(wire, every_type_of_field) {
    struct wire wire = start(P("\10\226\1"
                               "\21\1\2\3\4\5\6\7\10"
                               "\32\3abc"
                               "\45\1\2\3\4"
                               "\370\377\377\377\17\0"));
    static const struct wire_field expected[] = {
        {.number = 1, .type = WIRE_VARINT, .at = 0, .value = 150, .offset = 1, .length = 2},
        {2, WIRE_FIXED64, 3, UINT64_C(0x0807060504030201), 4, 8},
        {.number = 3, .type = WIRE_BYTES, .at = 12, .offset = 14, .length = 3},
        {4, WIRE_FIXED32, 17, 0x04030201, 18, 4},
        {.number = 0x1FFFFFFF,
         .type = WIRE_VARINT,
         .at = 22,
         .value = 0,
         .offset = 27,
         .length = 1},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct wire_field field;
        cr_assert(wire_next(&wire, &field, &error), "%s", error.message);
        cr_assert_eq(field.number, expected[i].number);
        cr_assert_eq(field.type, expected[i].type);
        cr_assert_eq(field.at, expected[i].at);
        cr_assert_eq(field.value, expected[i].value);
        cr_assert_eq(field.offset, expected[i].offset);
        cr_assert_eq(field.length, expected[i].length);
    }
    expect_end(&wire);
}

Test(wire, numbers_of_every_length) {
    static const struct {
        const char *bytes;
        size_t length;
        uint64_t value;
    } numbers[] = {
        {P("\0"), 0},
        {P("\177"), 127},
        {P("\200\1"), 128},
        {P("\377\177"), 16383},
        {P("\377\377\377\377\17"), UINT32_MAX},
        {P("\377\377\377\377\377\377\377\377\177"), INT64_MAX},
        {P("\200\200\200\200\200\200\200\200\200\1"), UINT64_C(1) << 63},
        {P("\377\377\377\377\377\377\377\377\377\1"), UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct wire wire = start(numbers[i].bytes, numbers[i].length);
        uint64_t value;
        cr_assert(wire_varint(&wire, &value, &error), "%s", error.message);
        cr_assert_eq(value, numbers[i].value);
        cr_assert_eq(wire.at, wire.end);
        cr_assert(!wire_varint(&wire, &value, &error));
        cr_assert_eq(error.class, TC_OK, "the end is none");
    }
}

Test(wire, numbers_that_are_none) {
    expect_bad(P("\10\200\200\200\200\200\200\200\200\200\200\1"), "does not end", 1);
}

/* As protobuf's own parsers have it. */
Test(wire, numbers_longer_than_they_need_be) {
    static const struct {
        const char *bytes;
        size_t length;
        uint64_t value;
    } cases[] = {
        {P("\10\200\0"), 0},
        {P("\10\201\200\0"), 1},
        {P("\10\201\200\200\200\200\200\200\200\200\0"), 1},
        {P("\10\201\200\200\200\200\200\200\200\200\1"), (UINT64_C(1) << 63) + 1},
        {P("\10\201\200\200\200\200\200\200\200\200\2"), 1},
        {P("\10\377\377\377\377\377\377\377\377\377\177"), UINT64_MAX},
        {P("\210\0\5"), 5},
        {P("\210\200\200\200\0\5"), 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wire wire = start(cases[i].bytes, cases[i].length);
        struct wire_field field;
        cr_assert(wire_next(&wire, &field, &error), "case %zu: %s", i, error.message);
        cr_assert(field.number == 1 && field.value == cases[i].value, "case %zu", i);
    }
    expect_bad(P("\210\200\200\200\200\0\5"), "more than 5 bytes", 0);
    expect_bad(P("\12\201\200\200\200\200\0a"), "more than 5 bytes", 1);
}

Test(wire, tags_that_are_none) {
    expect_bad(P("\0\1"), "field 0", 0);
    expect_bad(P("\2\0"), "field 0", 0);
    expect_bad(P("\200\200\200\200\20\1"), "is none", 0); /* 2^29 */
    expect_bad(P("\377\377\377\377\377\377\377\377\377\1\1"), "more than 5 bytes", 0);
    static const unsigned char types[] = {3, 4, 6, 7};
    for (size_t i = 0; i < sizeof types; i++) {
        const unsigned char field[] = {0x10, 1, (unsigned char)(8 | types[i]), 0, 0};
        expect_bad(field, sizeof field, "wire type", 2);
    }
}

Test(wire, a_field_reaches_no_further_than_its_message) {
    expect_bad(P("\12\1"), "field 1 has 1 bytes, its message has 0 left", 0);
    expect_bad(P("\10\1\22\4abc"), "field 2 has 4 bytes, its message has 3 left", 2);
    expect_bad(P("\12\377\377\377\377\177"), "left", 0);                      /* 2^35 - 1 */
    expect_bad(P("\12\377\377\377\377\377\377\377\377\377\1"), "5 bytes", 1); /* 2^64 - 1 */
    /* A part that is longer than its whole, though the file goes on. */
    struct wire wire = start(P("\12\3\12\2a\20\1"));
    struct wire_field field;
    cr_assert(wire_next(&wire, &field, &error));
    struct wire inside = wire_inside(&wire, &field);
    cr_assert(!wire_next(&inside, &field, &error));
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert_eq(error.offset, 2);
}

Test(wire, a_message_cut_anywhere_is_bad) {
    static const char message[] =
        "\10\226\1\21\1\2\3\4\5\6\7\10\32\3abc\45\1\2\3\4\370\377\377\377\17\0";
    static const size_t whole[] = {0, 3, 12, 17, 22, 28};
    for (size_t cut = 0, next = 0; cut <= sizeof message - 1; cut++) {
        struct wire wire = start(message, cut);
        struct wire_field field;
        while (wire_next(&wire, &field, &error))
            ;
        bool complete = cut == whole[next];
        cr_assert_eq(error.class, complete ? TC_OK : TC_INVALID, "cut at %zu: %s", cut,
                     error.message);
        next += complete;
    }
    /* Likewise where the file goes on and the message does not. */
    struct wire wire = start(P(message));
    struct wire_field field;
    wire.end = 9;
    cr_assert(wire_next(&wire, &field, &error));
    cr_assert(!wire_next(&wire, &field, &error));
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert(strstr(error.message, "cut short"), "%s", error.message);
}

/* Larger than the window, fields across its edges, parts read out of turn. */
Test(wire, messages_in_messages_of_any_size) {
    enum { PARTS = 40000 };
    struct tc_buffer outer = {0};
    for (unsigned i = 0; i < PARTS; i++) {
        char part[16] = {10, 5, 9, (char)(i & 0x7F), (char)(i >> 7 & 0x7F), (char)(i >> 14), 'x'};
        tc_buffer_add(&outer, part, 7);
    }
    struct wire wire = start(outer.bytes, outer.length);
    tc_buffer_release(&outer);
    struct wire_field field;
    struct wire_field first = {0};
    unsigned count = 0;
    while (wire_next(&wire, &field, &error)) {
        unsigned char bytes[5];
        cr_assert_eq(field.at, 7 * count);
        cr_assert(tc_input_read(input, field.offset, bytes, 5, &error));
        cr_assert_eq(bytes[1] | bytes[2] << 7 | bytes[3] << 14, (int)count);
        if (count++ == 0)
            first = field;
        if (count % 1000 == 0) { /* back to the first, which moves the window */
            struct wire inside = wire_inside(&wire, &first);
            uint64_t value;
            cr_assert(wire_varint(&inside, &value, &error) && value == 9);
        }
    }
    cr_assert_eq(error.class, TC_OK, "%s", error.message);
    cr_assert_eq(count, PARTS);
}

Test(wire, fixed_numbers) {
    struct wire wire = start(P("\1\0\0\200\377\376\375\374\373\372\371\370\1"));
    uint64_t value;
    cr_assert(wire_fixed(&wire, 4, &value, &error) && value == 0x80000001);
    cr_assert(wire_fixed(&wire, 8, &value, &error) && value == UINT64_C(0xF8F9FAFBFCFDFEFF));
    cr_assert(!wire_fixed(&wire, 4, &value, &error));
    cr_assert_eq(error.class, TC_INVALID);
    wire = start(P("\1\0\0\0"));
    cr_assert(wire_fixed(&wire, 4, &value, &error) && value == 1);
    cr_assert(!wire_fixed(&wire, 4, &value, &error));
}

Test(wire, texts) {
    struct tc_arena arena;
    struct tc_text text;
    struct wire_field field;
    tc_arena_init(&arena, 0);
    struct wire wire = start(P("\12\3\303\274x\12\0\12\2\303x\20\1"));
    cr_assert(wire_next(&wire, &field, &error));
    cr_assert(wire_text(&wire, &field, 3, &arena, &text, &error), "%s", error.message);
    cr_assert(tc_text_equal(text, TC_TEXT("\303\274x")));
    cr_assert(!wire_text(&wire, &field, 2, &arena, &text, &error));
    cr_assert_eq(error.class, TC_UNSAFE);
    error = (struct tc_error){0};
    cr_assert(wire_next(&wire, &field, &error));
    cr_assert(wire_text(&wire, &field, 3, &arena, &text, &error) && text.length == 0);
    cr_assert(wire_next(&wire, &field, &error));
    cr_assert(!wire_text(&wire, &field, 3, &arena, &text, &error));
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert(strstr(error.message, "UTF-8"), "%s", error.message);
    error = (struct tc_error){0};
    cr_assert(wire_next(&wire, &field, &error));
    cr_assert(!wire_text(&wire, &field, 3, &arena, &text, &error), "a number is no text");
    cr_assert_eq(error.class, TC_INVALID);
    tc_arena_release(&arena);
}

/* Numbers in a repeated field */

static struct typed_reader reader;

/* Reads the elements of field 1 of a message; the error's class. */
static enum tc_class decode(const void *message, size_t length, struct typed typed, void *buffer) {
    struct wire wire = start(message, length);
    typed.start = wire.at;
    typed.end = wire.end;
    typed.field = 1;
    typed_reader_init(&reader, &source);
    bool ok = typed_read(&reader, &typed, 0, buffer, typed.nbytes, &error);
    cr_assert_eq(ok, error.class == TC_OK);
    /* Once more, from the end. */
    for (uint64_t at = typed.nbytes; ok && at > 0; at--) {
        unsigned char byte;
        cr_assert(typed_read(&reader, &typed, at - 1, &byte, 1, &error), "%s", error.message);
        cr_assert_eq(byte, ((unsigned char *)buffer)[at - 1]);
    }
    typed_reader_release(&reader);
    return error.class;
}

#define DECODE(message, kind, type, result, ...)                                                   \
    decode(P(message),                                                                             \
           (struct typed){.element = kind, .dtype = type, .nbytes = sizeof result, __VA_ARGS__},   \
           result)

Test(typed, one_by_one_packed_and_mixed_are_the_same) {
    static const char *const messages[] = {"\10\1\10\2\10\254\2", "\12\4\1\2\254\2",
                                           "\10\1\12\3\2\254\2", "\12\1\1\10\2\12\2\254\2"};
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        int32_t values[3];
        cr_assert_eq(decode(messages[i], strlen(messages[i]),
                            (struct typed){.element = WIRE_VARINT, .dtype = TC_I32, .nbytes = 12},
                            values),
                     TC_OK, "case %zu: %s", i, error.message);
        cr_assert_arr_eq(values, ((int32_t[]){1, 2, 300}), 12, "case %zu", i);
    }
    float floats[3];
    cr_assert_eq(DECODE("\12\10\0\0\200\77\0\0\0\100\15\0\0\100\300", WIRE_FIXED32, TC_F32, floats),
                 TC_OK, "%s", error.message);
    cr_assert_arr_eq(floats, ((float[]){1, 2, -3}), 12);
    double doubles[2];
    cr_assert_eq(
        DECODE("\11\0\0\0\0\0\0\360\77\12\10\0\0\0\0\0\0\0\300", WIRE_FIXED64, TC_F64, doubles),
        TC_OK, "%s", error.message);
    cr_assert_arr_eq(doubles, ((double[]){1, -2}), 16);
}

Test(typed, other_fields_are_passed_over) {
    uint8_t bytes[2];
    cr_assert_eq(DECODE("\20\7\12\0\10\1\32\1x\12\1\2\45\1\1\1\1", WIRE_VARINT, TC_U8, bytes),
                 TC_OK, "%s", error.message);
    cr_assert_arr_eq(bytes, "\1\2", 2);
}

/* The least and the largest, and one beyond each. */
Test(typed, ranges) {
#define MINUS(last) "\10" last "\377\377\377\377\377\377\377\377\1"
    static const struct {
        enum tc_dtype dtype;
        unsigned bytes;
        const char *good[2];
        const char *bad[2];
    } cases[] = {
        {TC_BOOL, 1, {"\10\1", NULL}, {"\10\2", MINUS("\377")}},
        {TC_U8, 1, {"\10\377\1", NULL}, {"\10\200\2", MINUS("\377")}},
        {TC_I8,
         1,
         {"\10\177", "\10\200\377\377\377\377\377\377\377\377\1"},
         {"\10\200\1", "\10\377\376\377\377\377\377\377\377\377\1"}},
        {TC_U16, 2, {"\10\377\377\3", NULL}, {"\10\200\200\4", MINUS("\377")}},
        {TC_I16,
         2,
         {"\10\377\377\1", "\10\200\200\376\377\377\377\377\377\377\1"},
         {"\10\200\200\2", "\10\377\377\375\377\377\377\377\377\377\1"}},
        {TC_U32, 4, {"\10\377\377\377\377\17", NULL}, {"\10\200\200\200\200\20", MINUS("\377")}},
        {TC_I32,
         4,
         {"\10\377\377\377\377\7", "\10\200\200\200\200\370\377\377\377\377\1"},
         {"\10\200\200\200\200\10", "\10\377\377\377\377\367\377\377\377\377\1"}},
        {TC_U64, 8, {"\10\377\377\377\377\377\377\377\377\377\1", NULL}, {NULL, NULL}},
        {TC_I64,
         8,
         {"\10\377\377\377\377\377\377\377\377\177", "\10\200\200\200\200\200\200\200\200\200\1"},
         {NULL, NULL}},
        {TC_F16, 2, {"\10\377\377\3", NULL}, {"\10\200\200\4", MINUS("\377")}},
        {TC_BF16, 2, {"\10\200\377\1", NULL}, {"\10\360\242\4", MINUS("\377")}},
        {TC_F8_E4M3, 1, {"\10\377\1", NULL}, {"\10\200\2", MINUS("\377")}},
        {TC_I4, 1, {"\10\377\1", NULL}, {"\10\200\2", MINUS("\377")}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int which = 0; which < 4; which++) {
            const char *message = which < 2 ? cases[i].good[which] : cases[i].bad[which - 2];
            unsigned char value[8];
            if (!message)
                continue;
            enum tc_class class = decode(message, strlen(message),
                                         (struct typed){.element = WIRE_VARINT,
                                                        .dtype = (uint8_t)cases[i].dtype,
                                                        .nbytes = cases[i].bytes},
                                         value);
            cr_assert_eq(class, which < 2 ? TC_OK : TC_INVALID, "%s, case %d: %s",
                         tc_dtype_name(cases[i].dtype), which, error.message);
        }
}

Test(typed, values_that_wrap) {
    uint8_t bytes[2];
    int32_t ints[2];
    cr_assert_eq(DECODE("\12\4\254\2\254\2", WIRE_VARINT, TC_U8, bytes, .wraps = true), TC_OK);
    cr_assert(bytes[0] == 44 && bytes[1] == 44);
    cr_assert_eq(DECODE("\12\2\2\0", WIRE_VARINT, TC_BOOL, bytes, .wraps = true), TC_OK);
    cr_assert(bytes[0] == 1 && bytes[1] == 0);
    cr_assert_eq(DECODE("\12\3\200\2\0", WIRE_VARINT, TC_BOOL, bytes, .wraps = true), TC_INVALID,
                 "256: some readers take it for true, others for false");
    /* 2^32 + 5, and -1 in five bytes. */
    cr_assert_eq(DECODE("\12\12\205\200\200\200\20\377\377\377\377\17", WIRE_VARINT, TC_I32, ints,
                        .int32 = true, .wraps = true),
                 TC_OK, "%s", error.message);
    cr_assert(ints[0] == 5 && ints[1] == -1);
}

Test(typed, negative_numbers) {
    int8_t bytes[2];
    cr_assert_eq(
        DECODE("\12\13\200\377\377\377\377\377\377\377\377\1\177", WIRE_VARINT, TC_I8, bytes),
        TC_OK, "%s", error.message);
    cr_assert(bytes[0] == -128 && bytes[1] == 127);
}

Test(typed, complex_numbers_are_pairs) {
    float pair[4];
    cr_assert_eq(
        DECODE("\12\20\0\0\200\77\0\0\0\100\0\0\100\100\0\0\200\100", WIRE_FIXED32, TC_C64, pair),
        TC_OK, "%s", error.message);
    cr_assert_arr_eq(pair, ((float[]){1, 2, 3, 4}), 16);
    cr_assert_eq(DECODE("\12\14\0\0\200\77\0\0\0\100\0\0\100\100", WIRE_FIXED32, TC_C64, pair),
                 TC_INVALID);
}

Test(typed, more_or_fewer_than_there_should_be) {
    uint8_t bytes[2];
    cr_assert_eq(DECODE("\12\1\1", WIRE_VARINT, TC_U8, bytes), TC_INVALID);
    cr_assert(strstr(error.message, "fewer"), "%s", error.message);
    cr_assert_eq(DECODE("\12\3\1\2\3", WIRE_VARINT, TC_U8, bytes), TC_INVALID);
    cr_assert(strstr(error.message, "more"), "%s", error.message);
    cr_assert_eq(DECODE("", WIRE_VARINT, TC_U8, bytes), TC_INVALID);
}

Test(typed, damaged_lists) {
    uint8_t bytes[2];
    float floats[2];
    cr_assert_eq(DECODE("\12\2\1\202", WIRE_VARINT, TC_U8, bytes), TC_INVALID, "ends in a number");
    cr_assert_eq(DECODE("\12\3\1\202\0", WIRE_VARINT, TC_U8, bytes), TC_OK, "overlong");
    cr_assert(bytes[0] == 1 && bytes[1] == 2);
    cr_assert_eq(DECODE("\12\7\0\0\200\77\0\0\0\25\0\0\0\0", WIRE_FIXED32, TC_F32, floats),
                 TC_INVALID, "ends in a float");
    cr_assert_eq(DECODE("\10\1\15\0\0\0\0", WIRE_VARINT, TC_U8, bytes), TC_INVALID, "another type");
    cr_assert_eq(DECODE("\15\0\0\0\0\10\1", WIRE_FIXED32, TC_F32, floats), TC_INVALID,
                 "another type");
}

/* As TensorFlow has them: the last value goes on, none means zeros. */
Test(typed, short_lists_that_repeat) {
    uint16_t values[5];
    cr_assert_eq(DECODE("\12\3\1\254\2", WIRE_VARINT, TC_U16, values, .repeats = true), TC_OK, "%s",
                 error.message);
    cr_assert_arr_eq(values, ((uint16_t[]){1, 300, 300, 300, 300}), 10);
    cr_assert_eq(DECODE("", WIRE_VARINT, TC_U16, values, .repeats = true), TC_OK, "%s",
                 error.message);
    cr_assert_arr_eq(values, ((uint16_t[5]){0}), 10);
    float pairs[6];
    cr_assert_eq(DECODE("\12\20\0\0\200\77\0\0\0\100\0\0\100\100\0\0\200\100", WIRE_FIXED32, TC_C64,
                        pairs, .repeats = true),
                 TC_OK, "%s", error.message);
    cr_assert_arr_eq(pairs, ((float[]){1, 2, 3, 4, 3, 4}), 24);
    cr_assert_eq(DECODE("\12\14\0\0\200\77\0\0\0\100\0\0\100\100", WIRE_FIXED32, TC_C64, pairs,
                        .repeats = true),
                 TC_INVALID, "half an element");
    double wide[4];
    cr_assert_eq(DECODE("\12\20\0\0\0\0\0\0\360\77\0\0\0\0\0\0\0\300", WIRE_FIXED64, TC_C128, wide,
                        .repeats = true),
                 TC_OK, "%s", error.message);
    cr_assert_arr_eq(wide, ((double[]){1, -2, 1, -2}), 32);
}

/* More than one step's worth, a tensor beside it, and back to the first. */
Test(typed, large_lists_and_several) {
    enum { COUNT = 100000 };
    struct tc_buffer message = {0};
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned char number[] = {8, (unsigned char)(0x80 | (i & 0x7F)),
                                  (unsigned char)(0x80 | (i >> 7 & 0x7F)),
                                  (unsigned char)(0x40 | i >> 14)};
        tc_buffer_add(&message, number, 4);
    }
    tc_buffer_add(&message, "\22\2\1\2", 4);
    struct wire wire = start(message.bytes, message.length);
    tc_buffer_release(&message);
    struct typed many = {.start = 0,
                         .end = wire.end,
                         .field = 1,
                         .element = WIRE_VARINT,
                         .dtype = TC_U32,
                         .nbytes = 4 * COUNT};
    struct typed few = {.start = 0,
                        .end = wire.end,
                        .field = 2,
                        .element = WIRE_VARINT,
                        .dtype = TC_U8,
                        .nbytes = 2};
    typed_reader_init(&reader, &source);
    for (int round = 0; round < 2; round++) {
        unsigned char bytes[2];
        for (unsigned i = 0; i < COUNT; i += 997) {
            uint32_t value;
            cr_assert(typed_read(&reader, &many, 4 * i, &value, 4, &error), "%s", error.message);
            cr_assert_eq(value, i | 0x40u << 14);
        }
        cr_assert(typed_read(&reader, &few, 0, bytes, 2, &error), "%s", error.message);
        cr_assert_arr_eq(bytes, "\1\2", 2);
    }
    typed_reader_release(&reader);
}

/* What could not be decoded is told again when it is asked for again. */
Test(typed, a_failure_does_not_stick_to_others) {
    struct wire wire = start(P("\10\1\20\200\2"));
    struct typed good = {.start = 0,
                         .end = wire.end,
                         .field = 1,
                         .element = WIRE_VARINT,
                         .dtype = TC_U8,
                         .nbytes = 1};
    struct typed bad = good;
    bad.field = 2;
    unsigned char byte;
    typed_reader_init(&reader, &source);
    for (int round = 0; round < 2; round++) {
        cr_assert(typed_read(&reader, &good, 0, &byte, 1, &error), "%s", error.message);
        cr_assert_eq(byte, 1);
        cr_assert(!typed_read(&reader, &bad, 0, &byte, 1, &error));
        cr_assert_eq(error.class, TC_INVALID);
        error = (struct tc_error){0};
    }
    typed_reader_release(&reader);
}
