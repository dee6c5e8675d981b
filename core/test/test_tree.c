#include "core/format/tree.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/base64.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

static struct tc_arena arena;
static struct tc_table table;
static struct tc_tree tree;
static struct tc_error error;

static void setup(void) {
    tc_arena_init(&arena, 0);
    tc_table_init(&table, &arena, 100);
    error = (struct tc_error){0};
}

static void teardown(void) {
    tc_table_release(&table);
    tc_arena_release(&arena);
}

TestSuite(tree, .init = setup, .fini = teardown);

static bool parse(const char *text) {
    return tc_tree_parse(&tree, tc_text_of(text), &arena, &error);
}

static void add(const char *name, enum tc_dtype dtype, uint64_t rows) {
    uint64_t *shape = tc_arena_array(&arena, 1, sizeof *shape, &error);
    shape[0] = rows;
    struct tc_tensor tensor = {.name = tc_text_of(name),
                               .dtype = (uint8_t)dtype,
                               .shape = shape,
                               .rank = 1,
                               .nbytes = rows * tc_dtype_bits(dtype) / 8};
    cr_assert(tc_table_add(&table, &tensor, &error), "%s", error.message);
}

static void refused(const char *text, enum tc_class class, const char *code) {
    error = (struct tc_error){0};
    bool ok = parse(text) && tc_tree_match(&tree, &table, NULL, &arena, &error);
    cr_assert_not(ok, "%s", text);
    cr_assert_eq(error.class, class, "%s: %s", text, error.message);
    cr_assert_str_eq(error.code, code, "%s: %s", text, error.message);
}

Test(tree, nodes_are_in_the_order_of_the_text) {
    cr_assert(
        parse("{\"v\":1,\"root\":{\"e\":3,\"l\":[\"l\",0.5,[\"u\"],null],\"m\":[\"O\",{\"w\":[]},"
              "{\"_metadata\":true}]}}"),
        "%s", error.message);
    static const unsigned kinds[] = {
        TC_TREE_DICT,  TC_TREE_TEXT,   TC_TREE_INT,  TC_TREE_TEXT, TC_TREE_LIST,
        TC_TREE_FLOAT, TC_TREE_TUPLE,  TC_TREE_NONE, TC_TREE_TEXT, TC_TREE_ORDERED_DICT,
        TC_TREE_TEXT,  TC_TREE_TENSOR, TC_TREE_TEXT, TC_TREE_BOOL};
    cr_assert_eq(tree.count, sizeof kinds / sizeof *kinds);
    for (size_t i = 0; i < tree.count; i++)
        cr_assert_eq(tree.nodes[i].kind, kinds[i], "node %zu", i);
    cr_assert_eq(tree.nodes[0].count, 6);
    cr_assert_eq(tree.nodes[0].end, tree.count);
    cr_assert_eq(tree.nodes[4].end, 8);
    cr_assert_eq(tree.nodes[9].count, 2);
    cr_assert_eq(tree.nodes[9].attributes, 2);
    cr_assert(tc_text_equal(tree.nodes[11].tensor->name, TC_TEXT("m.w")));
}

Test(tree, names_are_paths) {
    cr_assert(
        parse(
            "{\"v\":1,\"root\":[\"d\",1,[],\"1\",[\"t\",\"1~1\"],[\"u\",2],[\"l\",[]],-3,{\"\":[]},"
            "[\"x\",\"7aCA\"],[]]}"),
        "%s", error.message);
    static const char *const names[] = {"1", "1~1", "?2.0", "-3.", "?"};
    size_t found = 0;
    for (size_t i = 0; i < tree.count; i++) {
        if (tree.nodes[i].kind != TC_TREE_TENSOR)
            continue;
        const struct tc_tree_tensor *tensor = tree.nodes[i].tensor;
        cr_assert(tc_text_equal(tensor->name, tc_text_of(names[found])), "%s", names[found]);
        cr_assert(tc_text_equal(tensor->path, tc_text_of(names[found])), "%s", names[found]);
        found++;
    }
    cr_assert_eq(found, 5);
    cr_assert(parse("{\"root\":[],\"v\":1}"));
    cr_assert(tc_text_equal(tree.nodes[0].tensor->name, TC_TEXT("tensor")));
}

Test(tree, values) {
    cr_assert(
        parse("{\"v\":1,\"root\":[\"l\",-9223372036854775808,-0.0,[\"f\",\"nan:7ff800000000beef\"],"
              "[\"f\",\"-inf\"],[\"c\",1.5,[\"f\",\"inf\"]],[\"i\",\"-9223372036854775809\"],"
              "[\"b\",\"AAH/\"],[\"z\",2,0],[\"dt\",\"bfloat16\"],[\"dv\",\"cuda:12\"]]}"),
        "%s", error.message);
    const struct tc_tree_node *nodes = tree.nodes + 1;
    cr_assert_eq(nodes[0].integer, INT64_MIN);
    cr_assert(signbit(nodes[1].real) && nodes[1].real == 0);
    uint64_t bits;
    memcpy(&bits, &nodes[2].real, sizeof bits);
    cr_assert_eq(bits, UINT64_C(0x7ff800000000beef));
    cr_assert_eq(nodes[3].real, -INFINITY);
    cr_assert_eq(nodes[4].imaginary, INFINITY);
    cr_assert_eq(nodes[5].kind, TC_TREE_LONG);
    cr_assert(nodes[6].length == 3 && memcmp(nodes[6].text, "\0\1\377", 3) == 0);
    cr_assert_eq(nodes[7].kind, TC_TREE_SIZE);
    cr_assert_eq(nodes[7].count, 2);
}

Test(tree, a_tree_has_every_tensor_once) {
    add("a.w", TC_F32, 6);
    add("a.v", TC_F32, 2);
    cr_assert(parse(
        "{\"v\":1,\"root\":{\"a\":{\"v\":[\"t\",null,{\"v\":[\"a.w\",1,[3]]}],\"w\":[\"p\"]}}}"));
    cr_assert(tc_tree_match(&tree, &table, NULL, &arena, &error), "%s", error.message);
    const struct tc_tree_tensor *view = tree.nodes[4].tensor;
    cr_assert_eq(view->position[0], 1);
    cr_assert_eq(view->shares, tree.nodes[6].tensor);
    refused("{\"v\":1,\"root\":{\"a\":{\"w\":[]}}}", TC_UNSUPPORTED, "stale-tree");
    refused("{\"v\":1,\"root\":{\"a\":{\"w\":[],\"v\":[],\"x\":[]}}}", TC_UNSUPPORTED,
            "stale-tree");
    refused("{\"v\":1,\"root\":{\"a\":{\"w\":[],\"v\":[\"t\",null,{\"v\":[\"a.w\",3,[3]]}]}}}",
            TC_UNSUPPORTED, "stale-tree");
    refused("{\"v\":1,\"root\":{\"a\":{\"w\":[],\"v\":[],\"v\":[]}}}", TC_INVALID, "tree");
    refused("{\"v\":1,\"root\":{\"a\":{\"w\":[\"no\"]}}}", TC_INVALID, "tree");
}

Test(tree, keys_are_equal_as_in_python) {
    static const char *const equal[] = {
        "1,1,1.0,1",
        "0,1,false,1",
        "0.0,1,-0.0,1",
        "\"a\",1,\"a\",1",
        "[\"u\",1],1,[\"u\",true],1",
        "[\"z\",1],1,[\"u\",1],1",
        "[\"c\",2.0,0.0],1,2,1",
        "[\"i\",\"9223372036854775808\"],1,9223372036854775808.0,1"};
    static const char *const others[] = {"1,1,\"1\",1", "[\"f\",\"nan\"],1,[\"f\",\"nan\"],1",
                                         "\"a\",1,[\"b\",\"YQ==\"],1", "0.5,1,1,1",
                                         "null,1,false,1"};
    for (size_t i = 0; i < sizeof equal / sizeof *equal + sizeof others / sizeof *others; i++) {
        bool same = i < sizeof equal / sizeof *equal;
        const char *pairs = same ? equal[i] : others[i - sizeof equal / sizeof *equal];
        struct tc_buffer text = {0};
        tc_buffer_addf(&text, "{\"v\":1,\"root\":[\"d\",%s]}", pairs);
        error = (struct tc_error){0};
        cr_assert_eq(
            tc_tree_parse(&tree, (struct tc_text){text.bytes, text.length}, &arena, &error), !same,
            "%s: %s", pairs, error.message);
        tc_buffer_release(&text);
    }
}

Test(tree, strides_worth_keeping) {
    cr_assert(tc_tree_is_dense((const uint64_t[]){3, 4}, (const uint64_t[]){1, 3}, 2));
    cr_assert(tc_tree_is_dense((const uint64_t[]){6, 5}, (const uint64_t[]){8, 1}, 2));
    cr_assert_not(tc_tree_is_dense((const uint64_t[]){6, 5}, (const uint64_t[]){80, 1}, 2));
    cr_assert_not(tc_tree_is_dense((const uint64_t[]){4, 5}, (const uint64_t[]){0, 1}, 2));
    cr_assert_not(tc_tree_is_dense((const uint64_t[]){3, 3}, (const uint64_t[]){1, 1}, 2));
    cr_assert_not(tc_tree_is_dense((const uint64_t[]){0, 3}, (const uint64_t[]){3, 1}, 2));
}

Test(tree, base64) {
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct tc_buffer text = {0};
        char bytes[16];
        size_t length;
        tc_buffer_add_base64(&text, pairs[i][0], strlen(pairs[i][0]));
        cr_assert(
            tc_text_equal((struct tc_text){text.bytes, text.length}, tc_text_of(pairs[i][1])));
        cr_assert(tc_base64_decode(tc_text_of(pairs[i][1]), bytes, &length));
        cr_assert(tc_text_equal((struct tc_text){bytes, length}, tc_text_of(pairs[i][0])));
        tc_buffer_release(&text);
    }
    static const char *const bad[] = {"Zg", "Zg=", "Z===", "Zg==Zg==", "Zm9*", "=m9v", "Zm 9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char bytes[16];
        size_t length;
        cr_assert_not(tc_base64_decode(tc_text_of(bad[i]), bytes, &length), "%s", bad[i]);
    }
}
