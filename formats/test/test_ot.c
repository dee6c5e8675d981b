#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/plan/make_plan.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "formats/registry.h"
#include "formats/test/make_zip.h"
#include "formats/test/support.h"

TestSuite(ot, .init = test_folder_make, .fini = test_folder_remove);

#define P(literal) (literal), sizeof(literal) - 1
static enum tc_class write_ot(const char *header, const void *data, size_t nbytes) {
    return test_convert(test_make_safetensors(header, data, nbytes), test_path("out.ot"),
                        tc_registry_named("ot"), NULL, NULL);
}

static void expect_member(const char *zip, size_t length, const char *name, const void *bytes,
                          size_t expected) {
    size_t size;
    const char *member = test_zip_find(zip, length, name, &size);
    cr_assert_not_null(member, "there is no %s", name);
    cr_assert_eq(size, expected, "%s has %zu bytes: %.*s", name, size, (int)size, member);
    cr_assert_arr_eq(member, bytes, size, "%s", name);
}

static void expect_names(struct tc_reader *reader, const char *const *names, size_t count) {
    cr_assert_eq(reader->table.count, count);
    for (size_t i = 0; i < count; i++)
        cr_assert(tc_text_equal(reader->table.tensors[i].name, tc_text_of(names[i])),
                  "\"%.*s\" is not \"%s\"", (int)reader->table.tensors[i].name.length,
                  reader->table.tensors[i].name.bytes, names[i]);
}

/* The archive of two tensors, as libtorch needs to see it. */
Test(ot, a_module_of_parameters) {
    static const char pickle[] =
        "\200\2c__torch__\nModule\n)\201}(X\6\0\0\0fc|a|bctorch._utils\n_rebuild_tensor_v2\nq\0"
        "((X\7\0\0\0storageq\1ctorch\nByteStorage\nq\2X\1\0\0\0"
        "0X\3\0\0\0cpuq\3K\2tQK\0K\2\205"
        "K\1\205\211ccollections\nOrderedDict\nq\4)RtR"
        "X\1\0\0\0zh\0((h\1h\2X\1\0\0\0"
        "1h\3K\1tQK\0))\211h\4)RtRub.";
    static const char source[] = "class Module(Module):\n"
                                 "  __parameters__ = [\"fc|a|b\", \"z\", ]\n"
                                 "  __buffers__ = []\n"
                                 "  __annotations__ = []\n"
                                 "  __annotations__[\"fc|a|b\"] = Tensor\n"
                                 "  __annotations__[\"z\"] = Tensor\n";
    size_t length;
    cr_assert_eq(write_ot("{" TEST_ENTRY("fc.a.b", "U8", "[2]",
                                         "[0,2]") "," TEST_ENTRY("z", "U8", "[]", "[2,3]") "}",
                          "\1\2\3", 3),
                 TC_OK, "%s", test_error.message);
    char *zip = test_load(test_path("out.ot"), &length);
    expect_member(zip, length, "archive/data.pkl", P(pickle));
    expect_member(zip, length, "archive/code/__torch__.py", P(source));
    expect_member(zip, length, "archive/constants.pkl", P("\200\2)."));
    expect_member(zip, length, "archive/version", P("3\n"));
    expect_member(zip, length, "archive/byteorder", P("little"));
    expect_member(zip, length, "archive/data/0", "\1\2", 2);
    expect_member(zip, length, "archive/data/1", "\3", 1);
    cr_assert_eq(test_zip_count(zip, length, ""), 7);
    free(zip);
    struct tc_reader *reader = test_open(test_path("out.ot"));
    cr_assert_str_eq(reader->backend->name, "ot");
    expect_names(reader, (const char *const[]){"fc.a.b", "z"}, 2);
    tc_reader_close(reader);
}

/* Names are text of a program: no name ends its string or its line. */
Test(ot, names_are_quoted_in_the_source) {
    static const char source[] = "class Module(Module):\n"
                                 "  __parameters__ = [\"a\\\"]\\\\\\012\\177\303\244\", ]\n"
                                 "  __buffers__ = []\n"
                                 "  __annotations__ = []\n"
                                 "  __annotations__[\"a\\\"]\\\\\\012\\177\303\244\"] = Tensor\n";
    size_t length;
    cr_assert_eq(
        write_ot("{" TEST_ENTRY("a\\\"]\\\\\\n\177\303\244", "U8", "[1]", "[0,1]") "}", "x", 1),
        TC_OK, "%s", test_error.message);
    char *zip = test_load(test_path("out.ot"), &length);
    expect_member(zip, length, "archive/code/__torch__.py", P(source));
    free(zip);
    struct tc_reader *reader = test_open(test_path("out.ot"));
    expect_names(reader, (const char *const[]){"a\"]\\\n\177\303\244"}, 1);
    tc_reader_close(reader);
}

static size_t count_losses(const struct tc_plan *plan) {
    return tc_notes_count(&plan->notes, TC_LOSS, TC_KIND_NAME);
}

/* A bar comes back as a dot, which the ledger tells. */
Test(ot, a_bar_of_its_own_is_a_loss) {
    static const struct tc_plan_options options = {.write = {.checksum = true}};
    struct tc_plan plan;
    struct tc_error error = {0};
    const char *header =
        "{" TEST_ENTRY("a|b", "U8", "[1]", "[0,1]") "," TEST_ENTRY("c.d", "U8", "[1]", "[1,2]") "}";
    struct tc_reader *reader = test_open(test_make_safetensors(header, "xy", 2));
    cr_assert(tc_plan_make(&plan, &reader, 1, tc_registry_named("ot"), test_path("out.ot"),
                           &options, &error),
              "%s", error.message);
    cr_assert_eq(count_losses(&plan), 1);
    tc_plan_release(&plan);
    tc_reader_close(reader);
    cr_assert_eq(write_ot(header, "xy", 2), TC_OK, "%s", test_error.message);
    reader = test_open(test_path("out.ot"));
    expect_names(reader, (const char *const[]){"a.b", "c.d"}, 2);
    tc_reader_close(reader);
}

Test(ot, names_that_would_be_one_are_refused) {
    static const char *const headers[] = {
        "{" TEST_ENTRY("a|b", "U8", "[1]", "[0,1]") "," TEST_ENTRY("a.b", "U8", "[1]", "[1,2]") "}",
        "{" TEST_ENTRY("a.b", "U8", "[1]", "[0,1]") "," TEST_ENTRY("a|b", "U8", "[1]", "[1,2]") "}",
        "{" TEST_ENTRY("a|b.c", "U8", "[1]", "[0,1]") "," TEST_ENTRY("a.b|c", "U8", "[1]",
                                                                     "[1,2]") "}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        cr_assert_eq(write_ot(headers[i], "xy", 2), TC_INVALID, "%s", headers[i]);
        cr_assert_str_eq(test_error.code, "duplicate-name");
        cr_assert(test_error.has_tensor);
    }
    cr_assert_eq(write_ot("{" TEST_ENTRY("a|b", "U8", "[1]",
                                         "[0,1]") "," TEST_ENTRY("ab", "U8", "[1]", "[1,2]") "}",
                          "xy", 2),
                 TC_OK, "%s", test_error.message);
}

/* What tch wrote has dots, whatever the file is called. */
Test(ot, names_of_tch_have_dots) {
    struct tc_reader *reader = test_open(TESTDATA "/ot/tch.ot");
    cr_assert_str_eq(reader->backend->name, "ot");
    size_t dots = 0;
    for (size_t i = 0; i < reader->table.count; i++) {
        struct tc_text name = reader->table.tensors[i].name;
        cr_assert_null(memchr(name.bytes, '|', name.length));
        dots += memchr(name.bytes, '.', name.length) != NULL;
    }
    cr_assert_gt(dots, 0);
    struct tc_error error = {0};
    struct tc_reader *other =
        tc_registry_open(TESTDATA "/ot/tch.ot", tc_registry_named("pt"), &test_options, &error);
    cr_assert_not_null(other, "%s", error.message);
    cr_assert_eq(other->table.count, reader->table.count);
    for (size_t i = 0; i < other->table.count; i++)
        cr_assert(tc_text_equal(other->table.tensors[i].name, reader->table.tensors[i].name));
    tc_reader_close(other);
    tc_reader_close(reader);
}

#define SCRIPT                                                                                     \
    "\200\2c__torch__.a\nModule\n)\201}(Vp|q\nctorch._utils\n_rebuild_tensor_v2\n((Vstorage\n"     \
    "ctorch\nByteStorage\nV0\nVcpu\nK\2tQK\0K\2\205K\1\205\211}tRVtraining\n\210ub."
static const struct test_member script[] = {{"x/data.pkl", P(SCRIPT), false},
                                            {"x/version", "3\n", 2, false},
                                            {"x/data/0", "\1\2", 2, false},
                                            {"x/constants.pkl", "\200\2).", 4, false}};

/* Classes of TorchScript are known where there are constants. */
Test(ot, script_classes_need_constants) {
    const char *path = test_path("x.ot");
    struct tc_error error = {0};
    test_write_zip(path, script, 4);
    struct tc_reader *reader = test_open(path);
    cr_assert_str_eq(reader->backend->name, "ot");
    expect_names(reader, (const char *const[]){"p.q"}, 1);
    unsigned char *values = test_read(reader, &reader->table.tensors[0]);
    cr_assert_arr_eq(values, "\1\2", 2);
    free(values);
    tc_reader_close(reader);
    test_write_zip(path, script, 3);
    cr_assert_eq(test_file_class(path), TC_UNSAFE, "%s", test_error.message);
    cr_assert_null(tc_registry_open(path, tc_registry_named("ot"), &test_options, &error));
    cr_assert_eq(error.class, TC_UNSAFE, "%s", error.message);
    /* Without the code of a bare module it need not be tch's: bars stay. */
    test_write_zip(test_path("x.pt"), script, 4);
    reader = test_open(test_path("x.pt"));
    cr_assert_str_eq(reader->backend->name, "pt");
    expect_names(reader, (const char *const[]){"p|q"}, 1);
    tc_reader_close(reader);
}

Test(ot, an_archive_without_constants_is_none) {
    static const struct test_member members[] = {{"x/data.pkl", "\200\2}.", 4, false},
                                                 {"x/version", "3\n", 2, false}};
    struct tc_error error = {0};
    test_write_zip(test_path("x.ot"), members, 2);
    cr_assert_null(
        tc_registry_open(test_path("x.ot"), tc_registry_named("ot"), &test_options, &error));
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert(strstr(error.message, "constants.pkl"), "%s", error.message);
}

Test(ot, constants_are_checked_and_read) {
    struct test_member members[5];
    memcpy(members, script, sizeof script);
    static const struct {
        const char *pickle;
        size_t length;
        enum tc_class class;
    } bad[] = {
        {P("\200\2]."), TC_INVALID},
        {P("\200\2cos\nsystem\n\205."), TC_UNSAFE},
        {P("\200\2(Vstorage\nctorch\nByteStorage\nV0\nVcpu\nK\1tQ\205."), TC_INVALID},
        {P("\200\2).x"), TC_INVALID},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        members[3].bytes = bad[i].pickle;
        members[3].length = bad[i].length;
        test_write_zip(test_path("x.ot"), members, 4);
        cr_assert_eq(test_file_class(test_path("x.ot")), bad[i].class, "case %zu: %s", i,
                     test_error.message);
    }
    members[3].bytes = bad[2].pickle;
    members[3].length = bad[2].length;
    members[4] = (struct test_member){"x/constants/0", "c", 1, false};
    test_write_zip(test_path("x.ot"), members, 5);
    struct tc_reader *reader = test_open(test_path("x.ot"));
    expect_names(reader, (const char *const[]){"p.q", "CONSTANTS.c0"}, 2);
    unsigned char *values = test_read(reader, &reader->table.tensors[1]);
    cr_assert_eq(values[0], 'c');
    free(values);
    tc_reader_close(reader);
}

/* tch knows fewer dtypes than Python does: others are promoted or refused. */
Test(ot, dtypes_of_tch) {
    size_t promoted;
    cr_assert_eq(test_convert(test_make_safetensors("{" TEST_ENTRY("w", "U16", "[1]", "[0,2]") "}",
                                                    "\1\2", 2),
                              test_path("out.ot"), tc_registry_named("ot"), NULL, &promoted),
                 TC_OK);
    cr_assert_eq(promoted, 1);
    struct tc_reader *reader = test_open(test_path("out.ot"));
    cr_assert_eq(reader->table.tensors[0].dtype, TC_I32);
    unsigned char *value = test_read(reader, &reader->table.tensors[0]);
    cr_assert_arr_eq(value, "\1\2\0\0", 4);
    free(value);
    tc_reader_close(reader);
    cr_assert_eq(write_ot("{" TEST_ENTRY("w", "U64", "[1]", "[0,8]") "}", "\1\2\3\4\5\6\7", 8),
                 TC_UNSUPPORTED);
}

/* An archive whose directory is longer than what a probe sees of its end. */
Test(ot, many_tensors_are_recognised) {
    struct tc_buffer header = {0};
    for (unsigned i = 0; i < 3000; i++)
        tc_buffer_addf(&header, "%s" TEST_ENTRY("a.%04u", "U8", "[0]", "[0,0]"), i ? "," : "{", i);
    tc_buffer_add(&header, "}", 2);
    cr_assert_eq(write_ot(header.bytes, NULL, 0), TC_OK, "%s", test_error.message);
    tc_buffer_release(&header);
    struct tc_reader *reader = test_open(test_path("out.ot"));
    cr_assert_eq(reader->table.count, 3000);
    cr_assert_str_eq(reader->backend->name, "ot");
    cr_assert(tc_text_equal(reader->table.tensors[2999].name, TC_TEXT("a.2999")));
    tc_reader_close(reader);
}
