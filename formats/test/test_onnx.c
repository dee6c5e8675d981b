/* ONNX models: their nodes, sparse tensors, metadata, and what is refused. Their numbers are in
 * test_onnx_values.c, and writing them in test_onnx_write.c. */

#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "formats/registry.h"
#include "formats/test/make_onnx.h"
#include "formats/test/messages.h"
#include "formats/test/support.h"

TestSuite(onnx, .init = test_folder_make, .fini = test_folder_remove, .timeout = 600);

/* Nodes */

Test(onnx, constants) {
    struct tc_reader *reader = open_model(MODEL(GRAPH(
        NODE(OUTPUT("t"), NODE_NAME("not this"), OPERATOR("Constant"),
             ATTRIBUTE("value", INSIDE(5, DIM(1), TYPE(2), NAME("nor this"), RAW("\7")))),
        NODE(OUTPUT("f"), OPERATOR("Constant"), ATTRIBUTE("value_float", FLOAT(2, 1.5f))),
        NODE(OUTPUT("fs"), OPERATOR("Constant"),
             ATTRIBUTE("value_floats", FLOAT(7, 1), FLOAT(7, 2))),
        NODE(OUTPUT("i"), OPERATOR("Constant"), ATTRIBUTE("value_int", number(3, MINUS(3)))),
        NODE(OUTPUT("is"), OPERATOR("Constant"),
             ATTRIBUTE("value_ints", number(8, 4), PACKED(8, varint(5), varint(MINUS(6))))),
        NODE(ATTRIBUTE("value_ints", PACKED(8, varint(1))), OPERATOR("Constant"), OUTPUT("late")),
        NODE(OUTPUT("x"), OPERATOR("Conv"), ATTRIBUTE("kernel_shape", number(8, 3)),
             ATTRIBUTE("alpha", FLOAT(2, 1))),
        INITIALIZER(DIM(1), TYPE(2), NAME("w"), RAW("\1")))));
    expect_names(reader, NAMES("t", "f", "fs", "i", "is", "late", "w"));
    TEST_EXPECT(reader, "t", TC_U8, "[1]", uint8_t, 7);
    TEST_EXPECT(reader, "f", TC_F32, "[]", float, 1.5f);
    TEST_EXPECT(reader, "fs", TC_F32, "[2]", float, 1, 2);
    TEST_EXPECT(reader, "i", TC_I64, "[]", int64_t, -3);
    TEST_EXPECT(reader, "is", TC_I64, "[3]", int64_t, 4, 5, -6);
    TEST_EXPECT(reader, "late", TC_I64, "[1]", int64_t, 1);
    cr_assert(tc_notes_tell(&reader->notes, TC_WARNING, "graph of 7 nodes"));
    tc_reader_close(reader);
}

/* As helper.make_node writes it: a list of no numbers has its type and no field. */
Test(onnx, an_empty_constant) {
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(NODE(OUTPUT("none"), OPERATOR("Constant"), ATTRIBUTE("value_ints", number(20, 7))),
              NODE(OUTPUT("no"), OPERATOR("Constant"), ATTRIBUTE("value_floats", number(20, 6))))));
    expect_names(reader, NAMES("none", "no"));
    test_expect(reader, "none", TC_I64, "[0]", "", 0);
    test_expect(reader, "no", TC_F32, "[0]", "", 0);
    tc_reader_close(reader);
}

/* As onnx.numpy_helper reads them. */
Test(onnx, values_outside_the_range_wrap) {
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(INITIALIZER(DIM(1), TYPE(3), number(5, 300), NAME("i8")),
              INITIALIZER(DIM(1), TYPE(2), number(5, MINUS(1)), NAME("u8")),
              INITIALIZER(DIM(1), TYPE(10), number(5, 70000), NAME("f16")),
              INITIALIZER(DIM(1), TYPE(9), number(5, 2), NAME("bool")),
              INITIALIZER(DIM(1), TYPE(12), number(11, (UINT64_C(1) << 32) + 5), NAME("u32")),
              INITIALIZER(DIM(2), TYPE(21), number(5, 300), NAME("u4")),
              INITIALIZER(DIM(1), TYPE(6), number(5, (UINT64_C(1) << 32) + 5), NAME("i32")))));
    TEST_EXPECT(reader, "i8", TC_I8, "[1]", int8_t, 44);
    TEST_EXPECT(reader, "u8", TC_U8, "[1]", uint8_t, 255);
    TEST_EXPECT(reader, "f16", TC_F16, "[1]", uint16_t, 4464);
    TEST_EXPECT(reader, "bool", TC_BOOL, "[1]", uint8_t, 1);
    TEST_EXPECT(reader, "u32", TC_U32, "[1]", uint32_t, 5);
    TEST_EXPECT(reader, "u4", TC_U4, "[2]", uint8_t, 44);
    TEST_EXPECT(reader, "i32", TC_I32, "[1]", int32_t, 5);
    cr_assert(tc_notes_tell(&reader->notes, TC_WARNING, "7 tensors have values outside"));
    tc_reader_close(reader);
}

Test(onnx, constants_of_text_are_left_out_and_told) {
    struct tc_reader *reader = open_model(
        MODEL(GRAPH(INITIALIZER(TYPE(2), NAME("w"), RAW("\7")),
                    NODE(OUTPUT("t"), OPERATOR("Constant"),
                         ATTRIBUTE("value", INSIDE(5, DIM(1), TYPE(8), text(6, "text")))))));
    expect_names(reader, NAMES("w"));
    cr_assert_eq(tc_notes_count(&reader->notes, TC_LOSS, TC_KIND_SKIPPED), 1);
    cr_assert(tc_text_equal(reader->notes.groups[0].names[0], TC_TEXT("t")));
    /* Where nothing else was left it depends on what was. */
    for (int pickle = 0; pickle < 2; pickle++) {
        struct tc_error error = {0};
        reader->skipped_pickle = pickle;
        cr_assert_not(tc_reader_refuse_rest(reader, &error));
        cr_assert_eq(error.class, pickle ? TC_UNSAFE : TC_UNSUPPORTED);
        cr_assert_str_eq(error.code, "nothing-left");
        cr_assert_str_eq(error.tensor, "t");
    }
    tc_reader_close(reader);
}

#define TEXT(name) INITIALIZER(DIM(1), TYPE(8), text(6, "text"), NAME(name))

Test(onnx, text_is_left_out_and_told) {
    struct message kept = INITIALIZER(DIM(1), TYPE(2), RAW("\1"), NAME("kept"));
    const struct message odd[] = {
        NODE(OUTPUT("odd"), OPERATOR("Constant"),
             ATTRIBUTE("value", INSIDE(5, DIM(1), TYPE(8), text(6, "text")))),
        NODE(OUTPUT("odd"), OPERATOR("Constant"), ATTRIBUTE("value_string", text(4, "text"))),
        NODE(OUTPUT("odd"), OPERATOR("Constant"),
             ATTRIBUTE("value_strings", text(9, "a"), text(9, "b"))),
        TEXT("odd"),
        INITIALIZER(DIM(1), TYPE(99), NAME("odd")),
        INITIALIZER(DIM(1), TYPE(1), INSIDE(3, number(1, 0)), NAME("odd")),
        INITIALIZER(DIM(3), TYPE(21), RAW("\1\2"), NAME("odd")),
        INSIDE(15, INSIDE(1, DIM(1), TYPE(8), text(6, "t"), NAME("odd")), number(3, 1)),
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct tc_reader *reader = open_model(MODEL(GRAPH(odd[i], kept)));
        cr_assert_eq(reader->table.count, 1, "case %zu", i);
        cr_assert_eq(tc_notes_count(&reader->notes, TC_LOSS, TC_KIND_SKIPPED), 1, "case %zu", i);
        cr_assert(tc_notes_tell(&reader->notes, TC_LOSS, "odd"), "case %zu", i);
        tc_reader_close(reader);
        cr_assert_eq(
            test_open_class("x.onnx", MODEL(GRAPH(odd[i])).bytes, MODEL(GRAPH(odd[i])).length),
            TC_UNSUPPORTED, "case %zu: %s", i, test_error.message);
    }
}

Test(onnx, tensors_in_other_attributes) {
    struct tc_reader *reader = open_model(
        MODEL(GRAPH(NODE(OUTPUT("out"), NODE_NAME("scale"), OPERATOR("X"),
                         ATTRIBUTE("table", INSIDE(5, U8("\1"), NAME("inner")))),
                    NODE(OUTPUT("out2"), OPERATOR("Y"), ATTRIBUTE("table", INSIDE(5, U8("\2")))),
                    NODE(NODE_NAME("list"), OPERATOR("Z"),
                         ATTRIBUTE("tensors", INSIDE(10, U8("\3")), INSIDE(10, U8("\4")))))));
    expect_names(reader, NAMES("scale.table", "out2.table", "list.tensors.0", "list.tensors.1"));
    TEST_EXPECT(reader, "scale.table", TC_U8, "[1]", uint8_t, 1);
    TEST_EXPECT(reader, "list.tensors.1", TC_U8, "[1]", uint8_t, 4);
    tc_reader_close(reader);
}

Test(onnx, what_is_in_a_subgraph_has_its_path) {
    struct message constant =
        NODE(OUTPUT("c"), OPERATOR("Constant"), ATTRIBUTE("value_int", number(3, 5)));
    struct message inner = JOIN(INITIALIZER(U8("\2"), NAME("w")), constant);
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(INITIALIZER(U8("\1"), NAME("w")), constant,
              NODE(NODE_NAME("if"), OPERATOR("If"), OUTPUT("y"),
                   ATTRIBUTE("then_branch", INSIDE(6, inner)),
                   ATTRIBUTE("else_branch", INSIDE(6, INITIALIZER(U8("\3"), NAME("w")),
                                                   NODE(OPERATOR("Loop"), OUTPUT("z"),
                                                        ATTRIBUTE("body", INSIDE(6, inner)))))),
              NODE(NODE_NAME("many"), ATTRIBUTE("graphs", INSIDE(11, inner), INSIDE(11, inner))),
              INITIALIZER(U8("\4"), NAME("last")))));
    expect_names(reader,
                 NAMES("w", "c", "if.then_branch.w", "if.then_branch.c", "if.else_branch.w",
                       "if.else_branch.z.body.w", "if.else_branch.z.body.c", "many.graphs.0.w",
                       "many.graphs.0.c", "many.graphs.1.w", "many.graphs.1.c", "last"));
    TEST_EXPECT(reader, "if.else_branch.w", TC_U8, "[1]", uint8_t, 3);
    TEST_EXPECT(reader, "if.else_branch.z.body.c", TC_I64, "[]", int64_t, 5);
    tc_reader_close(reader);
}

Test(onnx, functions) {
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(text(2, "g"), INITIALIZER(U8("\1"), NAME("w"))),
        INSIDE(25, text(1, "Gelu"), text(10, "local"),
               INSIDE(7, OUTPUT("half"), OPERATOR("Constant"),
                      ATTRIBUTE("value_float", FLOAT(2, 0.5f))),
               INSIDE(7, OUTPUT("o"), NODE_NAME("if"),
                      ATTRIBUTE("then_branch", INSIDE(6, INITIALIZER(U8("\2"), NAME("w"))))))));
    expect_names(reader, NAMES("w", "Gelu.half", "Gelu.if.then_branch.w"));
    TEST_EXPECT(reader, "Gelu.half", TC_F32, "[]", float, 0.5f);
    tc_reader_close(reader);
}

Test(onnx, training_is_left_out_and_told) {
    struct tc_reader *reader =
        open_model(MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w"))),
                         INSIDE(20, INSIDE(1, INITIALIZER(U8("\1"), NAME("other"))))));
    expect_names(reader, NAMES("w"));
    cr_assert(tc_notes_tell(&reader->notes, TC_LOSS, "training"));
    tc_reader_close(reader);
}

Test(onnx, names_twice_or_none) {
    refused(MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w")), INITIALIZER(U8("\2"), NAME("w")))),
            TC_INVALID, "duplicate-name", "");
    refused(MODEL(GRAPH(INITIALIZER(U8("\1")))), TC_INVALID, "protobuf", "no name");
    refused(MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("")))), TC_INVALID, "protobuf", "no name");
    refused(MODEL(GRAPH(INITIALIZER(U8("\1"), bytes(8, "\xFF", 1)))), TC_INVALID, "protobuf",
            "UTF-8");
    refused(MODEL(GRAPH(INITIALIZER(U8("\1"), bytes(8, "a\0b", 3)))), TC_INVALID, "name-nul", "");
    refused(
        MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("c")),
                    NODE(OUTPUT("c"), OPERATOR("Constant"), ATTRIBUTE("value_int", number(3, 5))))),
        TC_INVALID, "duplicate-name", "");
}

/* Sparse tensors */

static void expect_sparse(struct tc_reader *reader, const char *parent) {
    char name[64];
    const struct {
        const char *role;
        enum tc_dtype dtype;
        const char *shape;
        const void *bytes;
        size_t nbytes;
    } parts[] = {{"indices", TC_I64, "[2,3]", (int64_t[]){0, 1, 1, 1, 0, 2}, 48},
                 {"values", TC_F32, "[3]", (float[]){1, 2, 3}, 12},
                 {"shape", TC_I64, "[2]", (int64_t[]){2, 3}, 16}};
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", parent, parts[i].role);
        test_expect(reader, name, parts[i].dtype, parts[i].shape, parts[i].bytes, parts[i].nbytes);
        const struct tc_tensor *tensor = test_find(reader, name);
        test_expect_metadata(tensor->metadata, "sparse_role", parts[i].role);
        test_expect_metadata(tensor->metadata, "sparse_parent", parent);
        test_expect_metadata(tensor->metadata, "sparse_layout", "coo");
        struct tc_sparse sparse;
        cr_assert(tc_sparse_of(&reader->table, tensor, &sparse));
    }
}

Test(onnx, sparse_initializers) {
    struct tc_reader *reader = open_model(
        MODEL(GRAPH(INSIDE(15, VALUES, COORDINATES, SHAPE), INITIALIZER(U8("\1"), NAME("w")))));
    expect_names(reader, NAMES("s.indices", "s.values", "s.shape", "w"));
    expect_sparse(reader, "s");
    tc_reader_close(reader);
    reader = open_model(MODEL(GRAPH(INSIDE(15, PACKED(3, varint(2), varint(3)), LINEAR, VALUES))));
    expect_sparse(reader, "s");
    tc_reader_close(reader);
}

Test(onnx, sparse_constants_and_attributes) {
    struct message sparse = JOIN(VALUES, LINEAR, SHAPE);
    struct tc_reader *reader = open_model(MODEL(GRAPH(
        NODE(OUTPUT("c"), OPERATOR("Constant"), ATTRIBUTE("sparse_value", INSIDE(22, sparse))),
        NODE(NODE_NAME("n"), ATTRIBUTE("a", INSIDE(23, sparse), INSIDE(23, sparse)),
             ATTRIBUTE("g", INSIDE(6, INSIDE(15, sparse)))))));
    cr_assert_eq(reader->table.count, 12);
    expect_sparse(reader, "c");
    expect_sparse(reader, "n.a.0");
    expect_sparse(reader, "n.a.1");
    expect_sparse(reader, "n.g.s");
    tc_reader_close(reader);
}

/* Indices in a typed list, several sparse tensors read in turn. */
Test(onnx, sparse_indices_in_a_list) {
    struct message indices = INSIDE(2, DIM(3), TYPE(7), PACKED(7, varint(1), varint(3), varint(5)));
    struct message graph =
        INSIDE(6, INSIDE(15, VALUES, indices, SHAPE), INSIDE(1, text(1, "unused")));
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(INSIDE(15, VALUES, indices, SHAPE), NODE(NODE_NAME("n"), ATTRIBUTE("g", graph)))));
    for (int round = 0; round < 2; round++) {
        expect_sparse(reader, "s");
        expect_sparse(reader, "n.g.s");
    }
    tc_reader_close(reader);
}

Test(onnx, sparse_with_nothing_in_it) {
    struct tc_reader *reader =
        open_model(MODEL(GRAPH(INSIDE(15, INSIDE(1, NAME("s"), DIM(0), TYPE(1), RAW("")),
                                      INSIDE(2, DIM(0), DIM(2), TYPE(7), RAW("")), SHAPE))));
    test_expect(reader, "s.indices", TC_I64, "[2,0]", "", 0);
    test_expect(reader, "s.values", TC_F32, "[0]", "", 0);
    tc_reader_close(reader);
}

Test(onnx, sparse_that_does_not_fit) {
    static const char *const fit = "do not fit";
#define SPARSE(...) MODEL(GRAPH(INSIDE(15, __VA_ARGS__)))
    refused(SPARSE(VALUES, SHAPE), TC_INVALID, "protobuf", "lacks");
    refused(SPARSE(LINEAR, SHAPE), TC_INVALID, "protobuf", "lacks");
    refused(SPARSE(VALUES, VALUES, LINEAR, SHAPE), TC_INVALID, "protobuf", "twice");
    refused(SPARSE(VALUES, LINEAR, COORDINATES, SHAPE), TC_INVALID, "protobuf", "twice");
    refused(SPARSE(VALUES, COORDINATES, number(3, 2)), TC_INVALID, "protobuf", fit);
    refused(SPARSE(VALUES, INSIDE(2, DIM(2), TYPE(7), I64S(1, 3)), SHAPE), TC_INVALID, "protobuf",
            fit);
    refused(SPARSE(VALUES, INSIDE(2, DIM(3), TYPE(6), RAW("\1\0\0\0\2\0\0\0\3\0\0\0")), SHAPE),
            TC_INVALID, "protobuf", fit);
    refused(SPARSE(INSIDE(1, NAME("s"), DIM(3), DIM(1), TYPE(2), RAW("\1\2\3")), LINEAR, SHAPE),
            TC_INVALID, "protobuf", fit);
    refused(SPARSE(VALUES, LINEAR, number(3, MINUS(1))), TC_INVALID, "protobuf", "dimension");
    refused(SPARSE(INSIDE(1, DIM(3), TYPE(2), RAW("\1\2\3")), LINEAR, SHAPE), TC_INVALID,
            "protobuf", "no name");
}

/* An index that lies outside is told when the tensor is made dense, and stays so. */
Test(onnx, sparse_indices_outside) {
    static const int64_t outside[][3] = {{1, 3, 6}, {1, 3, -1}, {1, 3, INT64_MAX}};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        struct tc_plan_options options = {.densify = true};
        struct message model =
            SPARSE(VALUES, INSIDE(2, DIM(3), TYPE(7), bytes(9, outside[i], 24)), SHAPE);
        test_write(test_path("x.onnx"), model.bytes, model.length);
        cr_assert_eq(test_convert(test_path("x.onnx"), test_path("out.npz"),
                                  tc_registry_named("npz"), &options, NULL),
                     TC_INVALID, "case %zu: %s", i, test_error.message);
    }
}

/* Metadata */

Test(onnx, metadata_of_the_model_and_of_tensors) {
    struct tc_reader *reader = open_model(
        MODEL(PAIR(14, "k", "v"), GRAPH(INITIALIZER(U8("\1"), NAME("w"), PAIR(16, "unit", "m"))),
              PAIR(14, "", "empty"), PAIR(14, "b", "")));
    cr_assert_eq(reader->table.metadata.count, 3);
    test_expect_metadata(&reader->table.metadata, "k", "v");
    test_expect_metadata(&reader->table.metadata, "", "empty");
    test_expect_metadata(&reader->table.metadata, "b", "");
    test_expect_metadata(test_find(reader, "w")->metadata, "unit", "m");
    tc_reader_close(reader);
    struct message graph = GRAPH(INITIALIZER(U8("\1"), NAME("w")));
    struct message twice = MODEL(graph, PAIR(14, "k", "v"), PAIR(14, "k", "w"));
    cr_assert_eq(test_open_class("x.onnx", twice.bytes, twice.length), TC_INVALID);
    twice = ONE(U8("\1"), PAIR(16, "k", "v"), PAIR(16, "k", "v"));
    cr_assert_eq(test_open_class("x.onnx", twice.bytes, twice.length), TC_INVALID);
    refused(MODEL(graph, PAIR(14, "k", "\xFF")), TC_INVALID, "protobuf", "UTF-8");
}

/* Per-tensor metadata goes under one key and comes back. */
Test(onnx, metadata_comes_back) {
    struct message model =
        MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w"), PAIR(16, "unit", "m"))), PAIR(14, "k", "v"));
    test_write(test_path("x.onnx"), model.bytes, model.length);
    const char *out = test_path("out.onnx");
    cr_assert_eq(test_convert(test_path("x.onnx"), out, tc_registry_named("onnx"), NULL, NULL),
                 TC_OK, "%s", test_error.message);
    struct tc_reader *reader = test_open(out);
    cr_assert_eq(reader->table.metadata.count, 1);
    test_expect_metadata(&reader->table.metadata, "k", "v");
    test_expect_metadata(test_find(reader, "w")->metadata, "unit", "m");
    tc_reader_close(reader);
}

/* A text of protobuf may hold any character. */
Test(onnx, metadata_with_a_nul) {
    struct message model = MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w"))),
                                 INSIDE(14, bytes(1, "a\0b", 3), bytes(2, "c\0d", 3)));
    test_write(test_path("x.onnx"), model.bytes, model.length);
    for (int round = 0; round < 2; round++) {
        struct tc_reader *reader = test_open(test_path(round ? "out.onnx" : "x.onnx"));
        const struct tc_metadata *metadata = &reader->table.metadata;
        cr_assert_eq(metadata->count, 1);
        cr_assert(tc_text_equal(metadata->pairs[0].key, TC_TEXT("a\0b")), "round %d", round);
        cr_assert(tc_text_equal(metadata->pairs[0].value, TC_TEXT("c\0d")), "round %d", round);
        tc_reader_close(reader);
        cr_assert_eq(test_convert(test_path("x.onnx"), test_path("out.onnx"),
                                  tc_registry_named("onnx"), NULL, NULL),
                     TC_OK, "%s", test_error.message);
    }
}

/* Hostile models */

/* As ONNX's own serializer orders them: versions, graph, opset. */
Test(onnx, a_model_cut_anywhere_is_invalid) {
    struct message model =
        MODEL(text(2, "maker"),
              GRAPH(NODE(OUTPUT("c"), OPERATOR("Constant"), ATTRIBUTE("value_ints", number(8, 1))),
                    text(2, "graph"), INITIALIZER(DIM(1), TYPE(1), FLOAT(4, 1), NAME("w")),
                    INSIDE(15, VALUES, LINEAR, SHAPE)));
    struct tc_reader *reader = open_model(model);
    cr_assert_eq(reader->table.count, 5);
    tc_reader_close(reader);
    for (size_t cut = 0; cut < model.length; cut++)
        cr_assert_eq(test_open_class("cut.onnx", model.bytes, cut), TC_INVALID, "cut at %zu: %s",
                     cut, test_error.message);
}

/* What lacks its opset was cut short. */
Test(onnx, an_opset_is_there) {
    struct message bare = JOIN(number(1, 3), GRAPH(INITIALIZER(U8("\1"), NAME("w"))));
    struct message whole = JOIN(bare, OPSET);
    cr_assert_eq(test_open_class("x.onnx", bare.bytes, bare.length), TC_INVALID);
    cr_assert_eq(test_open_class("x.onnx", whole.bytes, whole.length), TC_OK);
}

Test(onnx, two_models_in_a_row) {
    struct message model = ONE(U8("\1"));
    refused(JOIN(model, model), TC_INVALID, "protobuf", "two graphs");
    refused(JOIN(model, ONE(U8("\1"), PAIR(16, "k", "v"))), TC_INVALID, "protobuf", "two graphs");
    refused(JOIN(model, OPSET, number(1, 8), model), TC_INVALID, "protobuf", "");
}

Test(onnx, a_model_without_a_graph) {
    struct message model = JOIN(number(1, 8), OPSET, text(2, "maker"));
    cr_assert_eq(test_open_class("x.onnx", model.bytes, model.length), TC_INVALID);
    refused(JOIN(number(1, 8), OPSET, number(7, 1)), TC_INVALID, "protobuf", "");
}

static struct message nested(int depth) {
    struct message graph = INITIALIZER(U8("\1"), NAME("w"));
    for (int i = 0; i < depth; i++)
        graph = NODE(INSIDE(5, INSIDE(6, graph)));
    return MODEL(GRAPH(graph));
}

Test(onnx, graphs_in_graphs) {
    struct tc_reader *reader = open_model(nested(100));
    cr_assert_eq(reader->table.count, 1);
    tc_reader_close(reader);
    refused(nested(101), TC_UNSAFE, "depth-limit", "100 deep");
}

Test(onnx, damage_at_any_depth) {
    static const struct {
        const char *bytes;
        size_t length;
    } damages[] = {
        {P("\0\1")},
        {P("\13")},
        {P("\14")},
        {P("\16")},
        {P("\17")},
        {P("\12\144a")},
        {P("\12\377\377\377\377\377\377\377\377\377\1")},
        {P("\10\200\200\200\200\200\200\200\200\200\200\1")},
        {P("\11\1\2\3")},
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct message bad = plain(damages[i].bytes, damages[i].length);
        struct message tensor = INITIALIZER(U8("\1"), NAME("w"));
        const struct message models[] = {
            JOIN(number(1, 8), OPSET, GRAPH(tensor), bad),
            MODEL(GRAPH(tensor, bad)),
            MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w"), bad))),
            MODEL(GRAPH(tensor, NODE(bad))),
            MODEL(GRAPH(tensor, NODE(ATTRIBUTE("a", bad)))),
            MODEL(GRAPH(tensor, NODE(ATTRIBUTE("a", INSIDE(6, bad))))),
            MODEL(GRAPH(tensor, NODE(ATTRIBUTE("a", INSIDE(5, U8("\1"), bad))))),
            MODEL(GRAPH(INSIDE(15, VALUES, LINEAR, SHAPE, bad))),
            MODEL(GRAPH(tensor), INSIDE(14, bad)),
            MODEL(GRAPH(tensor), INSIDE(25, bad)),
        };
        for (size_t m = 0; m < sizeof models / sizeof *models; m++)
            cr_assert_eq(test_open_class("x.onnx", models[m].bytes, models[m].length), TC_INVALID,
                         "damage %zu in model %zu: %s", i, m, test_error.message);
    }
}

Test(onnx, fields_of_another_type) {
    struct message tensor = INITIALIZER(U8("\1"), NAME("w"));
    const struct message models[] = {
        JOIN(number(1, 8), OPSET, GRAPH(tensor), number(7, 1)),
        MODEL(GRAPH(number(5, 1))),
        MODEL(GRAPH(number(1, 1))),
        MODEL(GRAPH(number(15, 1))),
        MODEL(GRAPH(NODE(number(5, 1)))),
        MODEL(GRAPH(NODE(number(2, 1)))),
        MODEL(GRAPH(NODE(number(4, 1)))),
        MODEL(GRAPH(NODE(ATTRIBUTE("a", number(5, 1))))),
        MODEL(GRAPH(NODE(ATTRIBUTE("a", number(6, 1))))),
        MODEL(
            GRAPH(NODE(OPERATOR("Constant"), OUTPUT("c"), ATTRIBUTE("value_float", number(2, 1))))),
        MODEL(GRAPH(NODE(OPERATOR("Constant"), OUTPUT("c"), ATTRIBUTE("value_int", FLOAT(3, 1))))),
        MODEL(GRAPH(INSIDE(15, VALUES, number(2, 1), SHAPE))),
        MODEL(GRAPH(INSIDE(15, VALUES, LINEAR, FLOAT(3, 1)))),
        MODEL(GRAPH(tensor), number(14, 1)),
        MODEL(GRAPH(tensor), INSIDE(14, number(1, 1))),
        MODEL(GRAPH(tensor), number(25, 1)),
        ONE(U8("\1"), number(8, 1)),
        ONE(DIM(1), TYPE(2), number(9, 1)),
        ONE(DIM(1), text(2, "\2"), RAW("\1")),
        ONE(FLOAT(1, 1), TYPE(2), RAW("\1")),
        ONE(U8("\1"), number(13, 1)),
        ONE(U8("\1"), text(14, "")),
        ONE(U8("\1"), number(16, 1)),
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        cr_assert_eq(test_open_class("x.onnx", models[i].bytes, models[i].length), TC_INVALID,
                     "case %zu: %s", i, test_error.message);
}

/* Every byte changed in turn: it opens or is refused, and nothing breaks. */
Test(onnx, flipped_bytes) {
    struct message model =
        MODEL(PAIR(14, "k", "v"),
              GRAPH(NODE(OUTPUT("c"), OPERATOR("Constant"),
                         ATTRIBUTE("value_ints", number(8, 1), number(8, 2))),
                    INITIALIZER(DIM(2), TYPE(6), number(5, 1), number(5, 2), NAME("w")),
                    INITIALIZER(DIM(2), TYPE(2), OUTSIDE, EXTERNAL("location", "y"), NAME("e")),
                    INSIDE(15, VALUES, COORDINATES, SHAPE)));
    test_write(test_path("y"), "ab", 2);
    for (size_t at = 0; at < model.length; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            struct message changed = model;
            changed.bytes[at] ^= (unsigned char)(1u << bit);
            enum tc_class class = test_open_class("x.onnx", changed.bytes, changed.length);
            cr_assert(class <= TC_IO && class != TC_DIFFERENT && class != TC_USAGE,
                      "byte %zu: class %d", at, (int)class);
            cr_assert(class != TC_IO || strstr(test_error.file, "x.onnx") == NULL, "byte %zu: %s",
                      at, test_error.message);
        }
}

/* Told from other files */

Test(onnx, told_by_content) {
    struct message model = ONE(U8("\7"));
    static const char *const names[] = {"x", "x.pb", "x.bin", "x.ot", "x.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        test_write(test_path(names[i]), model.bytes, model.length);
        struct tc_reader *reader = test_open(test_path(names[i]));
        cr_assert_str_eq(reader->backend->name, i == 3 ? "ot" : "onnx", "%s", names[i]);
        TEST_EXPECT(reader, "w", TC_U8, "[1]", uint8_t, 7);
        tc_reader_close(reader);
    }
    /* With fields in any order, and with ones that are not known. */
    struct message late = JOIN(GRAPH(INITIALIZER(U8("\7"), NAME("w"))), text(60, "new"), OPSET,
                               number(62, 1), number(1, 14));
    test_write(test_path("x"), late.bytes, late.length);
    struct tc_reader *reader = test_open(test_path("x"));
    cr_assert_str_eq(reader->backend->name, "onnx");
    tc_reader_close(reader);
}
