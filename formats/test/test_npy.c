#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/numpy/options.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(npy, .init = test_folder_make, .fini = test_folder_remove);

/* A version 1 file with this dict and this much data. */
static enum tc_class open_dict(const char *dict, size_t data) {
    char file[1024] = "\x93NUMPY\1";
    size_t length = strlen(dict) + 1;
    file[8] = (char)(length & 0xFF);
    file[9] = (char)(length >> 8);
    snprintf(file + 10, sizeof file - 10, "%s\n", dict);
    return test_open_class("x.npy", file, 10 + length + data);
}

#define DICT(shape) "{'descr': '<f4', 'fortran_order': False, 'shape': " shape ", }"

Test(npy, literals_only) {
    cr_assert_eq(open_dict(DICT("(2, 3)"), 24), TC_OK);
    cr_assert_eq(open_dict(DICT("(3L,)"), 12), TC_OK, "as Python 2 wrote it");
    cr_assert_eq(open_dict(DICT("()"), 4), TC_OK);
    cr_assert_eq(open_dict("{\"shape\":(2,),'fortran_order':True,'descr':'|u1'}", 2), TC_OK);
    static const char *const bad[] = {
        DICT("(3)"),
        DICT("[3]"),
        DICT("(-1,)"),
        DICT("(True,)"),
        DICT("(1.0,)"),
        DICT("(0x10,)"),
        DICT("(1_0,)"),
        DICT("(3,,)"),
        DICT("(,)"),
        DICT("(2*3,)"),
        DICT("(1,)+(2,)"),
        DICT("(9223372036854775808,)"),
        DICT("(4294967296, 4294967296)"),
        DICT("(03,)"),
        "{'descr': '<' 'f4', 'fortran_order': False, 'shape': (), }",
        "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (), }",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (), }",
        "{'descr': '<f4', 'fortran_order': False, }",
        "{'descr': '<f4', 'descr': '|O', 'fortran_order': False, 'shape': (), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1, }",
        "__import__('os').system('x')",
        "",
        "{",
        "{'descr': '<f4'"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(open_dict(bad[i], 4), TC_INVALID, "%s", bad[i]);
}

Test(npy, dtypes_are_told_apart) {
    static const struct {
        const char *descr;
        enum tc_class class;
        size_t data;
    } cases[] = {{"'|O'", TC_UNSAFE, 4},
                 {"'O'", TC_UNSAFE, 4},
                 {"'|T16'", TC_UNSAFE, 4},
                 {"'<U10'", TC_UNSUPPORTED, 40},
                 {"'<U10'", TC_INVALID, 39},
                 {"'<M8[ns]'", TC_UNSUPPORTED, 8},
                 {"'<f16'", TC_UNSUPPORTED, 16},
                 {"'<f12'", TC_UNSUPPORTED, 12},
                 {"'V7'", TC_UNSUPPORTED, 7},
                 {"'<V2'", TC_UNSUPPORTED, 2},
                 {"'quaternion'", TC_UNSUPPORTED, 5},
                 {"[('a', '<f4')]", TC_OK, 4},
                 {"[('a', '<f4')]", TC_INVALID, 5},
                 {"[('a', '<U1')]", TC_UNSUPPORTED, 4},
                 {"[('a', 'quaternion'), ('b', '<f4')]", TC_UNSUPPORTED, 4},
                 {"[]", TC_UNSUPPORTED, 0},
                 {"[('a', '|u1'), ('a', '|u1')]", TC_INVALID, 2},
                 {"[('a', '|O')]", TC_UNSAFE, 4},
                 {"[('a', [('b', '|O')])]", TC_UNSAFE, 4},
                 {"[('a', [('b', '|O')], (0,)), ('c', '<f4')]", TC_UNSAFE, 4},
                 {"[('a', '<f4', (9223372036854775807,))]", TC_INVALID, 4},
                 {"[('a', '<f4', (4294967296, 4294967296, 0))]", TC_INVALID, 0},
                 {"[('a', '<f4',, )]", TC_INVALID, 4},
                 {"[['a', '<f4']]", TC_INVALID, 4},
                 {"[('a\\qb', '<f4')]", TC_INVALID, 4},
                 {"[('a\\U00110000', '<f4')]", TC_INVALID, 4},
                 {"[[[[", TC_INVALID, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dict[256];
        snprintf(dict, sizeof dict, "{'descr': %s, 'fortran_order': False, 'shape': (), }",
                 cases[i].descr);
        cr_assert_eq(open_dict(dict, cases[i].data), cases[i].class, "%s: %s", dict,
                     test_error.message);
    }
}

/* What a file's tables say, as lines of NAME DTYPE SHAPE. */
static void check_table(const char *dict, size_t data, const char *expected) {
    struct tc_error error = {0};
    struct tc_buffer lines = {0};
    cr_assert_eq(open_dict(dict, data), TC_OK, "%s: %s", dict, test_error.message);
    struct tc_reader *reader = tc_registry_open(test_path("x.npy"), NULL, &test_options, &error);
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        tc_buffer_add_text(&lines, tensor->name);
        tc_buffer_addf(&lines, " %s ", tc_dtype_name(tensor->dtype));
        tc_shape_print(&lines, tensor->shape, tensor->rank);
        tc_buffer_add_string(&lines, "\n");
    }
    tc_buffer_add(&lines, "", 1);
    cr_assert_str_eq(lines.bytes, expected);
    tc_buffer_release(&lines);
    tc_reader_close(reader);
}

#define FIELDS(fields, shape)                                                                      \
    "{'descr': [" fields "], 'fortran_order': False, 'shape': " shape ", }"

Test(npy, fields_are_tensors) {
    check_table(FIELDS("('a', '|u1'), ('', '|V3'), ('b', '<f4', (2,))", "(3,)"), 36,
                "x.a U8 [3]\nx.b F32 [3,2]\n");
    check_table(FIELDS("(('title', 'a'), '>i2'), ('s', '|S4')", "()"), 6, "x.a I16 []\n");
    check_table(FIELDS("('r', [('p', '<f8'), ('q', '|i1', (2,))], (3, 1))", "(2,)"), 60,
                "x.r.p F64 [2,3,1]\nx.r.q I8 [2,3,1,2]\n");
    check_table(FIELDS("('a.b', '|u1'), ('a', [('b', '|u1')])", "(1,)"), 2,
                "x.a.b U8 [1]\nx.a.b~1 U8 [1]\n");
    check_table(FIELDS("('\\n\\x41\\ud800', '|u1')", "(1,)"), 1, "x.\nA\\ud800 U8 [1]\n");
    check_table(FIELDS("('\xe9', '|u1')", "(1,)"), 1, "x.\xc3\xa9 U8 [1]\n");
}

Test(npy, the_data_fits_the_shape) {
    cr_assert_eq(open_dict(DICT("(3,)"), 11), TC_INVALID);
    cr_assert_eq(open_dict(DICT("(3,)"), 13), TC_INVALID);
    cr_assert_str_eq(test_error.code, "trailing-data");
}

Test(npy, a_void_type_must_be_named) {
    struct tc_format_options options = test_options;
    struct tc_error error = {0};
    open_dict("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", 4);
    cr_assert(strstr(test_error.hint, "--npy-void BF16"));
    const struct tc_option_setting bf16 = {&npy_void_option, {.dtype = TC_BF16}};
    options.settings = (struct tc_option_settings){&bf16, 1};
    struct tc_reader *reader = tc_registry_open(test_path("x.npy"), NULL, &options, &error);
    cr_assert_not_null(reader);
    cr_assert_eq(reader->table.tensors[0].dtype, TC_BF16);
    tc_reader_close(reader);
}

/* Reading vectors of np.save and writing them again gives the same bytes. */
static void rewrite(const char *path, void *context) {
    size_t *same = context;
    /* Of several arrays, and of fields, each is written to a file of its own. */
    if (test_file_class(path) != TC_OK || strstr(path, "structured") || strstr(path, "several"))
        return;
    const char *out = test_path("out.npy");
    cr_assert_eq(test_convert(path, out, tc_registry_named("npy"), NULL, NULL), TC_OK);
    const char *name = strrchr(path, '/') + 1;
    bool other = strncmp(name, "be_", 3) == 0 || strncmp(name, "fortran", 7) == 0 ||
                 strcmp(name, "version2.npy") == 0 || strcmp(name, "version3.npy") == 0;
    if (!other) {
        cr_assert(test_same_bytes(path, out), "%s", path);
        (*same)++;
    }
}

Test(npy, writes_what_np_save_writes) {
    size_t same = 0;
    test_each_file("npy", rewrite, &same);
    cr_assert_geq(same, 15);
}
