/* Weights with scales of their own: which are recognised, and their values against formulas that
 * give one element at a time, in double precision. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cpu.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/block_scales.h"
#include "core/format/dequantise.h"
#include "core/format/quant_config.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "core/test/made_reader.h"

#define PARTS MADE_TENSORS

TestSuite(dequantise, .init = made_setup, .fini = made_teardown);

struct part {
    const char *name;
    enum tc_dtype dtype;
    unsigned rank;
    uint64_t shape[4];
    const void *bytes;
};

static void add_parts(const struct part *parts) {
    tc_table_release(&reader->table);
    tc_table_init(&reader->table, &reader->arena, 100);
    for (uint32_t i = 0; i < PARTS && parts[i].name; i++) {
        uint64_t count;
        struct tc_tensor tensor = {.name = tc_text_of(parts[i].name),
                                   .shape = parts[i].shape,
                                   .rank = (uint8_t)parts[i].rank,
                                   .dtype = (uint8_t)parts[i].dtype,
                                   .cookie = i};
        cr_assert(tc_shape_measure(parts[i].dtype, parts[i].shape, parts[i].rank, &count,
                                   &tensor.nbytes, &error));
        made_data[i] = parts[i].bytes;
        cr_assert(tc_table_add(&reader->table, &tensor, &error), "%s", error.message);
    }
}

/* What the tensor at a position of the table is. */
static bool find(const struct part *parts, size_t position, enum tc_scaled_role *role,
                 struct tc_scaled *scaled) {
    struct tc_block_scales scales;
    error = (struct tc_error){0};
    add_parts(parts);
    cr_assert(tc_block_scales_init(&scales, &reader, 1, &arena, &error), "%s", error.message);
    return tc_block_scales_find(&scales, 0, &reader->table.tensors[position], role, scaled, &error);
}

static double e2m1(unsigned code) {
    static const double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -sizes[code & 7] : sizes[code & 7];
}

static double e2m3(unsigned code) {
    int exponent = code >> 3 & 3;
    double size = exponent ? ldexp(8 + (code & 7), exponent - 4) : ldexp(code & 7, -3);
    return code & 32 ? -size : size;
}

static double e4m3(unsigned code) {
    int exponent = code >> 3 & 15;
    double size = exponent ? ldexp(8 + (code & 7), exponent - 10) : ldexp(code & 7, -9);
    return (code & 127) == 127 ? (double)NAN : code & 128 ? -size : size;
}

/* The bits of a number in the result's dtype: F32 holds all of the products here exactly. */
static uint32_t bits_of(double value, enum tc_dtype dtype) {
    float single = (float)value;
    uint32_t bits = 0;
    uint16_t narrow = 0;
    if (dtype == TC_F32) {
        memcpy(&bits, &single, sizeof bits);
        return bits;
    }
    tc_cast(TC_F32, dtype, &single, &narrow, 1, NULL);
    return narrow;
}

/* Reads the result in windows of many sizes, with each set of instructions. */
static void expect(const struct part *parts, enum tc_dtype dtype, unsigned rank,
                   const uint64_t *shape, const double *values) {
    static const char *const cpus[] = {"plain", "avx2"};
    static const size_t steps[] = {1, 2, 3, 7, 31, 64, 1000};
    struct tc_scaled scaled;
    enum tc_scaled_role role;
    for (size_t c = 0; c < sizeof cpus / sizeof *cpus; c++) {
        if (!tc_cpu_use(cpus[c]))
            continue;
        cr_assert(find(parts, 0, &role, &scaled), "%s", error.message);
        cr_assert_eq(role, TC_ROLE_WEIGHT);
        struct tc_dequantise *made = tc_dequantise_make(&scaled, dtype, &arena, &error);
        cr_assert_not_null(made, "%s", error.message);
        cr_assert_eq(made->tensor.rank, rank);
        cr_assert_arr_eq(made->tensor.shape, shape, rank * sizeof *shape);
        size_t each = tc_dtype_bits(dtype) / 8;
        size_t count = made->tensor.nbytes / each;
        unsigned char *bytes = malloc(made->tensor.nbytes);
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
            memset(bytes, 0xAA, made->tensor.nbytes);
            for (size_t at = 0; at < count; at += steps[s]) {
                size_t step = count - at < steps[s] ? count - at : steps[s];
                cr_assert(
                    tc_dequantise_read(made, at * each, bytes + at * each, step * each, &error),
                    "%s", error.message);
            }
            for (size_t i = 0; i < count; i++) {
                uint32_t got = 0;
                memcpy(&got, bytes + i * each, each);
                if (!isnan(values[i]))
                    cr_assert_eq(got, bits_of(values[i], dtype),
                                 "%s, steps of %zu, element %zu: %x", cpus[c], steps[s], i, got);
            }
        }
        free(bytes);
        tc_dequantise_unload(made);
    }
    tc_cpu_use("plain");
}

static void fill(unsigned char *bytes, size_t count, unsigned seed) {
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)((seed + i * 2654435761u) >> 13 ^ i * 37);
}

Test(dequantise, ragged_blocks) {
    /* 130 x 140 in blocks of 128: the last ones have two rows and twelve columns. */
    enum { ROWS = 130, COLUMNS = 140 };
    static unsigned char codes[ROWS * COLUMNS];
    static double values[ROWS * COLUMNS];
    static const float scales[4] = {0.5F, -3, 0.0078125F, 1.5F};
    fill(codes, sizeof codes, 1);
    for (size_t i = 0; i < sizeof codes; i++)
        values[i] = e4m3(codes[i]) * (double)scales[i / COLUMNS / 128 * 2 + i % COLUMNS / 128];
    const struct part parts[PARTS] = {{"a.weight", TC_F8_E4M3, 2, {ROWS, COLUMNS}, codes},
                                      {"a.weight_scale_inv", TC_F32, 2, {2, 2}, scales}};
    expect(parts, TC_BF16, 2, (uint64_t[]){ROWS, COLUMNS}, values);
    expect(parts, TC_F32, 2, (uint64_t[]){ROWS, COLUMNS}, values);
}

/* Every exponent with every code, also those whose product is subnormal or too large. */
Test(dequantise, powers_of_two) {
    enum { ROWS = 255 };
    static unsigned char codes[ROWS * 16];
    static unsigned char exponents[ROWS];
    static double values[ROWS * 32];
    fill(codes, sizeof codes, 2);
    for (size_t row = 0; row < ROWS; row++) {
        exponents[row] = (unsigned char)row;
        for (size_t i = 0; i < 32; i++) {
            unsigned code = codes[row * 16 + i / 2] >> (i % 2 ? 4 : 0) & 15;
            values[row * 32 + i] = ldexp(e2m1(code), (int)row - 127);
        }
    }
    const struct part parts[PARTS] = {{"a.weight_packed", TC_U8, 2, {ROWS, 16}, codes},
                                      {"a.weight_scale", TC_U8, 2, {ROWS, 1}, exponents}};
    expect(parts, TC_BF16, 2, (uint64_t[]){ROWS, 32}, values);
    expect(parts, TC_F32, 2, (uint64_t[]){ROWS, 32}, values);
}

Test(dequantise, blocks_that_are_transposed) {
    enum { MATRICES = 2, ROWS = 300, GROUPS = 3 };
    static unsigned char codes[MATRICES * ROWS * GROUPS * 16];
    static unsigned char exponents[MATRICES * ROWS * GROUPS];
    static double values[sizeof codes * 2];
    fill(codes, sizeof codes, 3);
    for (size_t i = 0; i < sizeof exponents; i++)
        exponents[i] = (unsigned char)(i % 3 ? 100 + i % 50 : i % 255);
    for (size_t m = 0; m < MATRICES; m++)
        for (size_t column = 0; column < GROUPS * 32; column++)
            for (size_t row = 0; row < ROWS; row++) {
                size_t block = (m * ROWS + row) * GROUPS + column / 32;
                size_t i = column % 32;
                unsigned code = codes[block * 16 + i / 2] >> (i % 2 ? 4 : 0) & 15;
                values[(m * GROUPS * 32 + column) * ROWS + row] =
                    ldexp(e2m1(code), exponents[block] - 127);
            }
    const struct part parts[PARTS] = {
        {"m.p_blocks", TC_U8, 4, {MATRICES, ROWS, GROUPS, 16}, codes},
        {"m.p_scales", TC_U8, 3, {MATRICES, ROWS, GROUPS}, exponents}};
    expect(parts, TC_BF16, 3, (uint64_t[]){MATRICES, GROUPS * 32, ROWS}, values);
}

Test(dequantise, six_bits) {
    enum { ROWS = 3, COLUMNS = 64 };
    static unsigned char codes[ROWS * COLUMNS * 3 / 4];
    static const unsigned char exponents[ROWS * 2] = {127, 120, 0, 130, 3, 200};
    static double values[ROWS * COLUMNS];
    fill(codes, sizeof codes, 4);
    for (size_t i = 0; i < ROWS * COLUMNS; i++) {
        const unsigned char *at = codes + i / 4 * 3;
        unsigned word = at[0] | (unsigned)at[1] << 8 | (unsigned)at[2] << 16;
        values[i] = ldexp(e2m3(word >> 6 * (i % 4) & 63), exponents[i / 32] - 127);
    }
    const struct part parts[PARTS] = {{"a.weight_packed", TC_U8, 2, {ROWS, COLUMNS * 3 / 4}, codes},
                                      {"a.weight_scale", TC_U8, 2, {ROWS, 2}, exponents}};
    expect(parts, TC_BF16, 2, (uint64_t[]){ROWS, COLUMNS}, values);
}

/* The scale of a block divided by, or times, that of the tensor; the first keeps -0. */
Test(dequantise, two_scales) {
    static unsigned char codes[4 * 16];
    static const unsigned char scales[4 * 2] = {0x38, 0x40, 0x01, 0x77, 0xB8, 0, 0x30, 0x39};
    static const float global = 3;
    static double divided[4 * 32];
    static double times[4 * 32];
    fill(codes, sizeof codes, 5);
    codes[0] = 0x88;
    for (size_t i = 0; i < 4 * 32; i++) {
        unsigned code = codes[i / 2] >> (i % 2 ? 4 : 0) & 15;
        float scale = (float)e4m3(scales[i / 16]);
        divided[i] = e2m1(code) * (double)(scale / global);
        times[i] = (code == 8 ? 0 : e2m1(code)) * (double)(scale * global);
    }
    const struct part compressed[PARTS] = {{"a.weight_packed", TC_U8, 2, {4, 16}, codes},
                                           {"a.weight_scale", TC_F8_E4M3, 2, {4, 2}, scales},
                                           {"a.weight_global_scale", TC_F32, 1, {1}, &global}};
    expect(compressed, TC_BF16, 2, (uint64_t[]){4, 32}, divided);
    const struct part second[PARTS] = {{"a.weight", TC_U8, 2, {4, 16}, codes},
                                       {"a.weight_scale", TC_F8_E4M3, 2, {4, 2}, scales},
                                       {"a.weight_scale_2", TC_F32, 0, {0}, &global}};
    expect(second, TC_BF16, 2, (uint64_t[]){4, 32}, times);
}

Test(dequantise, an_exponent_that_means_several_things) {
    static unsigned char codes[16];
    static const unsigned char exponents[1] = {255};
    struct tc_scaled scaled;
    enum tc_scaled_role role;
    unsigned char out[64];
    const struct part parts[PARTS] = {{"a.weight_packed", TC_U8, 2, {1, 16}, codes},
                                      {"a.weight_scale", TC_U8, 2, {1, 1}, exponents}};
    cr_assert(find(parts, 0, &role, &scaled));
    struct tc_dequantise *made = tc_dequantise_make(&scaled, TC_BF16, &arena, &error);
    cr_assert(!tc_dequantise_read(made, 0, out, sizeof out, &error));
    cr_assert_str_eq(error.code, "scale-value");
    tc_dequantise_unload(made);
}

Test(dequantise, what_does_not_fit) {
    static const struct bad {
        struct part parts[PARTS];
        const char *code;
    } all[] = {
        {{{"a.weight", TC_F8_E4M3, 2, {130, 140}, ""},
          {"a.weight_scale_inv", TC_F32, 2, {1, 2}, ""}},
         "scale-shape"},
        {{{"a.weight", TC_F8_E4M3, 2, {130, 140}, ""},
          {"a.weight_scale_inv", TC_F32, 3, {1, 2, 2}, ""}},
         "scale-shape"},
        {{{"a.weight_packed", TC_U8, 2, {4, 24}, ""},
          {"a.weight_scale", TC_F8_E4M3, 2, {4, 4}, ""},
          {"a.weight_global_scale", TC_F32, 1, {1}, ""}},
         "scale-shape"},
        {{{"m.p_blocks", TC_U8, 4, {1, 2, 3, 15}, ""}, {"m.p_scales", TC_U8, 3, {1, 2, 3}, ""}},
         "scale-shape"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct tc_scaled scaled;
        enum tc_scaled_role role;
        cr_assert(!find(all[i].parts, 0, &role, &scaled), "%zu", i);
        cr_assert_str_eq(error.code, all[i].code, "%zu: %s", i, error.code);
    }
}

Test(dequantise, names_that_only_look_alike) {
    static const struct part parts[PARTS] = {{"hc_attn_scale", TC_F32, 1, {3}, ""},
                                             {"x.scale", TC_F32, 1, {3}, ""},
                                             {"x.weight", TC_BF16, 1, {3}, ""},
                                             {"lm_head_blocks", TC_F32, 1, {3}, ""}};
    for (size_t i = 0; i < PARTS; i++) {
        struct tc_scaled scaled;
        enum tc_scaled_role role;
        cr_assert(find(parts, i, &role, &scaled), "%s", error.message);
        cr_assert(role == TC_ROLE_NONE || role == TC_ROLE_LOOKALIKE, "%s", parts[i].name);
    }
}

Test(dequantise, a_configuration_without_it) {
    static const char *const all[][2] = {
        {"{}", "{}"},
        {"{\"quantization_config\":{}}", "{}"},
        {"{ \"quantization_config\" : [1] , \"a\" : 2 }\n", "{ \"a\" : 2 }\n"},
        {"{\"a\":1,\n \"quantization_config\":null\n}", "{\"a\":1\n}"},
        {"{\"a\":{\"b\":\",\",\"quantization_config\":1},\"c\":3}",
         "{\"a\":{\"b\":\",\"},\"c\":3}"},
        {"{\"quantization\\u005fconfig\":1,\"\\\"\":{}}", "{\"\\\"\":{}}"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct tc_buffer out = {0};
        cr_assert(tc_quant_config_drop(tc_text_of(all[i][0]), &out, &error), "%s", error.message);
        cr_assert(tc_text_equal((struct tc_text){out.bytes, out.length}, tc_text_of(all[i][1])),
                  "%s gave %.*s", all[i][0], (int)out.length, out.bytes);
        tc_buffer_release(&out);
    }
    struct tc_buffer out = {0};
    cr_assert(!tc_quant_config_drop(TC_TEXT("{\"a\":1} x"), &out, &error));
    tc_buffer_release(&out);
}
