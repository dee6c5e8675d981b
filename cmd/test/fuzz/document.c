/*
 * The fuzz target of JSON documents as trees. The scanner accepts every text that becomes a tree,
 * and the tree has as many values as the scanner finds; every way to ask a value for what it is
 * not ends in an error.
 */
#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/jansson.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/text.h"

/* Asks a value for everything that a value may be: exactly one of the answers is right. */
static void ask(const struct tc_document *document, const struct tc_document_value *value) {
    struct tc_error errors[4] = {0};
    struct tc_document asked = *document;
    struct tc_text text = {0};
    uint64_t number;
    bool flag;
    enum tc_json_kind kind = tc_document_kind(value);
    asked.error = &errors[0];
    bool is_text = tc_document_text(&asked, value, &text);
    asked.error = &errors[1];
    bool is_number = tc_document_unsigned(&asked, value, &number);
    asked.error = &errors[2];
    bool is_flag = tc_document_boolean(&asked, value, &flag);
    asked.error = &errors[3];
    bool is_object = tc_document_expect(&asked, value, TC_JSON_OBJECT);
    fuzz_check_outcome(is_text, &errors[0]);
    fuzz_check_outcome(is_number, &errors[1]);
    fuzz_check_outcome(is_flag, &errors[2]);
    fuzz_check_outcome(is_object, &errors[3]);
    FUZZ_CHECK(is_text == (kind == TC_JSON_STRING), "a string is none");
    FUZZ_CHECK(!is_number || kind == TC_JSON_NUMBER, "a number is none");
    FUZZ_CHECK(is_flag == (kind == TC_JSON_TRUE || kind == TC_JSON_FALSE), "a boolean is none");
    FUZZ_CHECK(is_object == (kind == TC_JSON_OBJECT), "an object is none");
    FUZZ_CHECK(!is_text || tc_utf8_valid(text), "a string is no UTF-8");
    for (int i = 0; i < 4; i++)
        FUZZ_CHECK(!errors[i].has_offset || errors[i].offset <= document->text.length,
                   "an offset lies behind the text");
}

struct level {
    const struct tc_document_value *value;
    struct tc_document_member member;
    size_t index;
};

/* The next value inside that of a level; NULL behind the last. */
static const struct tc_document_value *next_inside(struct level *level) {
    if (tc_document_kind(level->value) == TC_JSON_OBJECT)
        return tc_document_next(level->value, &level->member) ? level->member.value : NULL;
    return level->index < tc_document_count(level->value)
               ? tc_document_item(level->value, level->index++)
               : NULL;
}

/* Walks the whole tree and counts its values. Finding a value's offset takes a walk of its own, so
 * only the first ones are asked. */
static size_t walk_tree(const struct tc_document *document) {
    struct level levels[TC_MAX_JSON_DEPTH + 1] = {{.value = document->root}};
    unsigned depth = 1;
    size_t count = 1;
    ask(document, document->root);
    while (depth) {
        const struct tc_document_value *value = next_inside(&levels[depth - 1]);
        if (!value) {
            depth--;
            continue;
        }
        if (count++ < 50)
            ask(document, value);
        enum tc_json_kind kind = tc_document_kind(value);
        if (kind == TC_JSON_OBJECT || kind == TC_JSON_ARRAY) {
            FUZZ_CHECK(depth <= TC_MAX_JSON_DEPTH, "the tree is too deep");
            levels[depth++] = (struct level){.value = value};
        }
    }
    return count;
}

/* How many values the scanner finds; 0 where it refuses the text. */
static size_t scan_values(struct tc_text text) {
    struct tc_error error = {0};
    struct tc_arena arena;
    struct tc_json json;
    size_t count = 0;
    tc_arena_init(&arena, 0);
    tc_json_init(&json, text.bytes, text.length, 0, &arena, &error);
    do {
        struct tc_text ignored;
        if (json.depth &&
            !(json.stack[json.depth - 1] == TC_JSON_OBJECT ? tc_json_key(&json, &ignored)
                                                           : tc_json_element(&json)))
            continue;
        enum tc_json_kind kind = tc_json_peek(&json);
        count++;
        if (kind == TC_JSON_OBJECT || kind == TC_JSON_ARRAY)
            tc_json_begin(&json, kind);
        else
            tc_json_skip(&json, &ignored);
    } while (json.depth && !json.failed);
    bool ok = tc_json_end(&json);
    tc_arena_release(&arena);
    return ok ? count : 0;
}

void fuzz_document(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    struct tc_document document;
    const struct tc_text text = {(const char *)bytes, length};
    bool ok = tc_document_parse(&document, text, 0, &error);
    fuzz_check_outcome(ok, &error);
    if (ok) {
        size_t in_text = scan_values(text);
        size_t in_tree = walk_tree(&document);
        FUZZ_CHECK(in_text == in_tree, "%zu values in the text, %zu in the tree", in_text, in_tree);
    }
    tc_document_release(&document);
}
