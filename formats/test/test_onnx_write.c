/* ONNX models as tconv writes them. */
#include <stdlib.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "formats/onnx/options.h"
#include "formats/protobuf/wire.h"
#include "formats/registry.h"
#include "formats/test/make_onnx.h"
#include "formats/test/messages.h"
#include "formats/test/support.h"

/* A lone tensor w of these dimensions, each byte its offset. */
static const char *make_tensor(unsigned data_type, const unsigned char *dims, size_t nbytes) {
    unsigned char data[1024];
    struct message tensor = {0};
    for (size_t i = 0; i < nbytes; i++)
        data[i] = (unsigned char)i;
    while (*dims)
        tensor = JOIN(tensor, DIM(*dims++));
    tensor = JOIN(tensor, TYPE(data_type), NAME("w"), bytes(9, data, nbytes));
    test_write(test_path("w.pb"), tensor.bytes, tensor.length);
    return test_path("w.pb");
}

static const char *convert(const char *from, const char *to, bool external) {
    const struct tc_option_setting setting = {&onnx_external_option, {.flag = external}};
    struct tc_plan_options options = {.write = {.settings = {&setting, 1}}};
    const char *out = test_path(to);
    cr_assert_eq(test_convert(from, out, tc_registry_named("onnx"), &options, NULL), TC_OK, "%s",
                 test_error.message);
    return out;
}

static const char *make_safetensors(const char *header, const void *data, size_t nbytes) {
    struct tc_buffer file = {0};
    uint64_t length = strlen(header);
    tc_buffer_add(&file, &length, 8);
    tc_buffer_add_string(&file, header);
    tc_buffer_add(&file, data, nbytes);
    test_write(test_path("x.safetensors"), file.bytes, file.length);
    tc_buffer_release(&file);
    return test_path("x.safetensors");
}
#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

Test(onnx, bytes_of_a_written_model) {
    const char *source =
        make_safetensors("{\"__metadata__\":{\"k\":\"v\"}," ENTRY(
                             "w", "F32", "[2]", "[0,8]") "," ENTRY("n", "U8", "[]", "[8,9]") "}",
                         P("\0\0\200\77\0\0\0\100\7"));
    const struct message expected = JOIN(
        number(1, 4), text(2, "tconv"), INSIDE(8, text(1, ""), number(2, 9)), PAIR(14, "k", "v"),
        GRAPH(text(2, "tensors"),
              INSIDE(12, text(1, "w"),
                     INSIDE(2, INSIDE(1, number(1, 1), INSIDE(2, INSIDE(1, number(1, 2)))))),
              INSIDE(12, text(1, "n"), INSIDE(2, INSIDE(1, number(1, 2), bytes(2, "", 0)))),
              INITIALIZER(DIM(2), TYPE(1), NAME("w"), RAW("\0\0\200\77\0\0\0\100")),
              INITIALIZER(TYPE(2), NAME("n"), RAW("\7"))));
    size_t length;
    char *written = test_load(convert(source, "out.onnx", false), &length);
    cr_assert_eq(length, expected.length);
    cr_assert_arr_eq(written, expected.bytes, length);
    free(written);
    /* The same with data beside it, of which there is none that is large enough. */
    cr_assert(test_same_bytes(convert(source, "beside.onnx", true), test_path("out.onnx")));
    cr_assert_neq(access(test_path("beside.onnx.data"), F_OK), 0);
}

/* Fields of a message that tconv wrote; those that repeat, by their turn. */
static struct wire_source written_source;
static struct tc_input *written_input;

static struct wire open_written(const char *path) {
    struct tc_error error = {0};
    if (written_input) {
        wire_source_release(&written_source);
        tc_input_close(written_input);
    }
    written_input = tc_input_open(path, NULL, &error);
    cr_assert_not_null(written_input);
    wire_source_init(&written_source, written_input);
    return wire_open(&written_source, 0, written_input->size);
}

static struct wire_field get(struct wire wire, uint32_t number_of_field, size_t turn) {
    struct tc_error error = {0};
    struct wire_field field;
    while (wire_next(&wire, &field, &error))
        if (field.number == number_of_field && turn-- == 0)
            return field;
    cr_assert_fail("there is no field %u", number_of_field);
    return field;
}

static struct wire get_inside(struct wire wire, uint32_t number_of_field, size_t turn) {
    struct wire_field field = get(wire, number_of_field, turn);
    return wire_inside(&wire, &field);
}

static void expect_text(struct wire wire, uint32_t number_of_field, const char *expected) {
    struct wire_field field = get(wire, number_of_field, 0);
    struct tc_error error = {0};
    char got[64] = {0};
    cr_assert_lt(field.length, sizeof got);
    cr_assert(tc_input_read(wire.source->input, field.offset, got, field.length, &error));
    cr_assert_str_eq(got, expected);
}

Test(onnx, the_lowest_versions_that_hold_the_dtypes) {
    for (size_t i = 0; i < KINDS; i++) {
        size_t nbytes = tc_dtype_bits(kinds[i].dtype) * 4 / 8;
        const char *out =
            convert(make_tensor(kinds[i].data_type, (const unsigned char[]){2, 2, 0}, nbytes),
                    "w.onnx", false);
        struct wire model = open_written(out);
        cr_assert_eq(get(model, 1, 0).value, kinds[i].ir, "%s", tc_dtype_name(kinds[i].dtype));
        cr_assert_eq(get(get_inside(model, 8, 0), 2, 0).value, kinds[i].opset, "%s",
                     tc_dtype_name(kinds[i].dtype));
        struct wire graph = get_inside(model, 7, 0);
        cr_assert_eq(get(get_inside(graph, 5, 0), 2, 0).value, kinds[i].data_type);
        struct wire output = get_inside(graph, 12, 0);
        expect_text(output, 1, "w");
        struct wire type = get_inside(get_inside(output, 2, 0), 1, 0);
        cr_assert_eq(get(type, 1, 0).value, kinds[i].data_type);
        for (size_t axis = 0; axis < 2; axis++)
            cr_assert_eq(get(get_inside(get_inside(type, 2, 0), 1, axis), 1, 0).value, 2);
        struct tc_reader *reader = test_open(out);
        cr_assert_eq(reader->table.tensors[0].dtype, kinds[i].dtype);
        tc_reader_close(reader);
    }
}

/* The highest of several counts. */
Test(onnx, versions_of_several_dtypes) {
    struct message mixed = MODEL(GRAPH(INITIALIZER(NAME("a"), DIM(2), TYPE(23), RAW("\1")),
                                       INITIALIZER(NAME("b"), DIM(1), TYPE(17), RAW("\1")),
                                       INITIALIZER(NAME("c"), DIM(1), TYPE(2), RAW("\1"))));
    test_write(test_path("x.onnx"), mixed.bytes, mixed.length);
    struct wire model = open_written(convert(test_path("x.onnx"), "out.onnx", false));
    cr_assert_eq(get(model, 1, 0).value, 11);
    cr_assert_eq(get(get_inside(model, 8, 0), 2, 0).value, 23);
}

static void expect_external(struct wire graph, size_t turn, const char *name, const char *offset,
                            const char *length) {
    struct wire tensor = get_inside(graph, 5, turn);
    expect_text(tensor, 8, name);
    cr_assert_eq(get(tensor, 14, 0).value, 1);
    const char *const pairs[][2] = {
        {"location", "out.onnx.data"}, {"offset", offset}, {"length", length}};
    for (size_t i = 0; i < 3; i++) {
        expect_text(get_inside(tensor, 13, i), 1, pairs[i][0]);
        expect_text(get_inside(tensor, 13, i), 2, pairs[i][1]);
    }
    struct tc_error error = {0};
    struct wire_field field;
    while (wire_next(&tensor, &field, &error))
        cr_assert_neq(field.number, 9, "no raw_data beside it");
}

/* From 1 KiB on data is beside the model, each tensor at a multiple of 64 KiB. */
Test(onnx, external_data_is_aligned) {
    enum { SMALL = 1023, LEAST = 1024, LARGE = 70000, LAST = 2000 };
    size_t total = SMALL + LEAST + LARGE + LAST;
    unsigned char *data = malloc(total);
    for (size_t i = 0; i < total; i++)
        data[i] = (unsigned char)(i % 251 + 1);
    const char *source = make_safetensors(
        "{" ENTRY("small", "U8", "[1023]", "[0,1023]") "," ENTRY(
            "least", "U8", "[1024]",
            "[1023,2047]") "," ENTRY("large", "U8", "[70000]",
                                     "[2047,72047]") "," ENTRY("last", "U8", "[2000]",
                                                               "[72047,74047]") "}",
        data, total);
    struct wire graph = get_inside(open_written(convert(source, "out.onnx", true)), 7, 0);
    cr_assert_eq(get(get_inside(graph, 5, 0), 9, 0).length, SMALL);
    expect_external(graph, 1, "least", "0", "1024");
    expect_external(graph, 2, "large", "65536", "70000");
    expect_external(graph, 3, "last", "196608", "2000");
    size_t length;
    char *beside = test_load(test_path("out.onnx.data"), &length);
    cr_assert_eq(length, 196608 + LAST);
    cr_assert_arr_eq(beside, data + SMALL, LEAST);
    cr_assert_arr_eq(beside + 65536, data + SMALL + LEAST, LARGE);
    cr_assert_arr_eq(beside + 196608, data + SMALL + LEAST + LARGE, LAST);
    for (size_t i = LEAST; i < 65536; i++)
        cr_assert_eq(beside[i], 0, "byte %zu", i);
    free(beside);
    free(data);
    char *first = test_digest(source);
    char *second = test_digest(test_path("out.onnx"));
    cr_assert_str_eq(first, second);
    free(first);
    free(second);
    /* And back into one file, the same as from the source. */
    cr_assert(test_same_bytes(convert(test_path("out.onnx"), "back.onnx", false),
                              convert(source, "plain.onnx", false)));
}

/* What would be written over is what is read. */
Test(onnx, the_inputs_own_data_is_not_written_over) {
    char data[2048] = "data";
    test_write(test_path("out.onnx.data"), data, sizeof data);
    struct message model = ONE(DIM(2048), TYPE(2), OUTSIDE, EXTERNAL("location", "out.onnx.data"));
    test_write(test_path("x.onnx"), model.bytes, model.length);
    struct tc_plan_options options = {.write = {.companion = true}};
    cr_assert_eq(test_convert(test_path("x.onnx"), test_path("out.onnx"), tc_registry_named("onnx"),
                              &options, NULL),
                 TC_USAGE, "%s", test_error.message);
    size_t length;
    char *left = test_load(test_path("out.onnx.data"), &length);
    cr_assert_eq(length, sizeof data);
    cr_assert_arr_eq(left, data, sizeof data);
    free(left);
}

Test(onnx, names_of_any_kind) {
    static const char *const names[] = {"a b", "\303\274.\346\227\245", "../x", "a/b:0", "\n",
                                        "\""};
    struct message model = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        model = JOIN(model, INITIALIZER(U8("\1"), NAME(names[i])));
    model = MODEL(inside(7, model));
    test_write(test_path("x.onnx"), model.bytes, model.length);
    struct tc_reader *reader = test_open(convert(test_path("x.onnx"), "out.onnx", false));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert(tc_text_equal(reader->table.tensors[i].name, tc_text_of(names[i])));
    tc_reader_close(reader);
}
