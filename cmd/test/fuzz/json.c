/*
 * The fuzz target of the JSON scanner. A text is walked value by value, written anew by the JSON
 * writer, and walked again: the second walk must find what the first one found. Skipping over a
 * text must come to the same verdict as walking it.
 */
#include "core/base/json.h"

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"

/* What the walk hands on from one value to the next. */
struct walk {
    struct tc_json json;
    struct tc_json_writer writer;
    bool shallow; /* the writer has room for every level */
};

static void copy_number(struct walk *walk) {
    struct tc_json ahead = walk->json;
    struct tc_error ignored = {0};
    uint64_t number;
    struct tc_text text;
    ahead.error = &ignored;
    if (tc_json_unsigned(&ahead, &number)) {
        walk->json.at = ahead.at;
        tc_json_add_number(&walk->writer, NULL, number);
    } else if (tc_json_skip(&walk->json, &text)) {
        tc_json_add_raw(&walk->writer, NULL, text);
    }
}

static void copy_scalar(struct walk *walk, enum tc_json_kind kind) {
    struct tc_text text;
    if (kind == TC_JSON_STRING && tc_json_string(&walk->json, &text))
        tc_json_add_text(&walk->writer, NULL, text);
    else if (kind == TC_JSON_NUMBER)
        copy_number(walk);
    else if (kind == TC_JSON_NULL && tc_json_null(&walk->json))
        tc_json_add_null(&walk->writer, NULL);
    else if (kind != TC_JSON_STRING && kind != TC_JSON_NULL && tc_json_skip(&walk->json, &text))
        tc_json_add_raw(&walk->writer, NULL, text);
}

/* Copies the next value, or where it is an object or array its beginning. */
static void copy_value(struct walk *walk) {
    enum tc_json_kind kind = tc_json_peek(&walk->json);
    if (kind != TC_JSON_OBJECT && kind != TC_JSON_ARRAY) {
        copy_scalar(walk, kind);
        return;
    }
    if (!tc_json_begin(&walk->json, kind))
        return;
    walk->shallow = walk->shallow && walk->json.depth <= TC_JSON_LEVELS;
    if (walk->shallow && kind == TC_JSON_OBJECT)
        tc_json_open_object(&walk->writer, NULL);
    else if (walk->shallow)
        tc_json_open_array(&walk->writer, NULL);
}

/* Walks a text and writes it to `out`; false where it is no JSON. */
static bool copy(struct tc_text text, struct tc_buffer *out, bool *shallow,
                 struct tc_error *error) {
    struct tc_arena arena;
    struct walk walk = {.writer = {.out = out, .escape = TC_ESCAPE_SERDE}, .shallow = true};
    tc_arena_init(&arena, 0);
    tc_json_init(&walk.json, text.bytes, text.length, 0, &arena, error);
    copy_value(&walk);
    while (walk.json.depth && !walk.json.failed && walk.shallow) {
        struct tc_text key;
        bool object = walk.json.stack[walk.json.depth - 1] == TC_JSON_OBJECT;
        if (object ? tc_json_key(&walk.json, &key) : tc_json_element(&walk.json)) {
            if (object)
                tc_json_add_key(&walk.writer, key);
            copy_value(&walk);
        } else if (!walk.json.failed) {
            tc_json_close(&walk.writer);
        }
    }
    bool ok = walk.shallow ? tc_json_end(&walk.json) : !walk.json.failed;
    tc_arena_release(&arena);
    *shallow = walk.shallow;
    return ok;
}

static bool skip(struct tc_text text, struct tc_error *error) {
    struct tc_arena arena;
    struct tc_json json;
    struct tc_text whole;
    tc_arena_init(&arena, 0);
    tc_json_init(&json, text.bytes, text.length, 0, &arena, error);
    bool ok = tc_json_skip(&json, &whole) && tc_json_end(&json);
    FUZZ_CHECK(!ok || whole.length <= text.length, "a value is longer than its text");
    tc_arena_release(&arena);
    return ok;
}

void fuzz_json(const unsigned char *bytes, size_t length) {
    const struct tc_text text = {(const char *)bytes, length};
    struct tc_error walked = {0};
    struct tc_error skipped = {0};
    struct tc_buffer once = {0};
    struct tc_buffer twice = {0};
    bool shallow;
    bool skips = skip(text, &skipped);
    fuzz_check_outcome(skips, &skipped);
    bool walks = copy(text, &once, &shallow, &walked);
    fuzz_check_outcome(walks, &walked);
    if (shallow) {
        FUZZ_CHECK(walks == skips, "walking says %s, skipping %s", walked.message, skipped.message);
        struct tc_error error = {0};
        const struct tc_text written = {once.bytes, once.length};
        if (walks) {
            FUZZ_CHECK(copy(written, &twice, &shallow, &error), "what was written is no JSON: %s",
                       error.message);
            FUZZ_CHECK(tc_text_equal(written, (struct tc_text){twice.bytes, twice.length}),
                       "what was written reads as something else");
        }
    }
    tc_buffer_release(&once);
    tc_buffer_release(&twice);
}
