#include "core/base/jansson.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/base/limits.h"
#include "core/base/memory.h"

/* jansson counts its references in the value itself, so its functions take no
 * const; none that is called here changes a value. */
static json_t *node(const struct tc_document_value *value) {
    return (json_t *)(uintptr_t)value;
}

static const struct tc_document_value *value_of(json_t *value) {
    return (const struct tc_document_value *)value;
}

/* Checks syntax, encoding and depth. */
static bool check_syntax(const struct tc_document *document) {
    struct tc_arena arena;
    struct tc_json json;
    struct tc_text whole;
    tc_arena_init(&arena, 0);
    tc_json_init(&json, document->text.bytes, document->text.length, document->base, &arena,
                 document->error);
    bool ok = tc_json_skip(&json, &whole) && tc_json_end(&json);
    tc_arena_release(&arena);
    return ok;
}

static bool fail_parse(const struct tc_document *document, const json_error_t *failure) {
    tc_fail(document->error, TC_INVALID,
            json_error_code(failure) == json_error_duplicate_key ? "duplicate-name" : "json", "%s",
            failure->text);
    return tc_error_at(document->error, document->base + (uint64_t)failure->position);
}

/*
 * jansson never learns that memory is lacking: where it can't grow the buffer of a string, it reads
 * and writes beyond the end of that buffer. So all that it takes comes from the document's arena,
 * and where that has no more, the call of jansson is left by longjmp. Its functions for memory take
 * no context: hence the pointer, which is set while a document is parsed.
 */
struct parsing {
    struct tc_document *document;
    jmp_buf out;
};
static _Thread_local struct parsing *parsing;

static void *take_memory(size_t size) {
    void *memory = tc_arena_alloc(&parsing->document->arena, size, parsing->document->error);
    if (!memory)
        longjmp(parsing->out, 1);
    return memory;
}

/* The arena goes as a whole. */
static void leave_memory(void *memory) {
    (void)memory;
}

static bool parse(struct parsing *own) {
    struct tc_document *document = own->document;
    json_error_t failure;
    if (setjmp(own->out))
        return false;
    document->root = value_of(json_loadb(document->text.bytes, document->text.length,
                                         JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &failure));
    return document->root ? true : fail_parse(document, &failure);
}

bool tc_document_parse(struct tc_document *document, struct tc_text text, uint64_t base,
                       struct tc_error *error) {
    struct parsing own = {.document = document};
    *document = (struct tc_document){.text = text, .base = base, .code = "json", .error = error};
    tc_arena_init(&document->arena, 0);
    if (!check_syntax(document))
        return false;
    tc_memory_earn(text.length);
    json_set_alloc_funcs(take_memory, leave_memory);
    parsing = &own;
    bool ok = parse(&own);
    parsing = NULL;
    if (!ok)
        tc_document_release(document);
    return ok;
}

void tc_document_release(struct tc_document *document) {
    tc_arena_release(&document->arena);
    document->root = NULL;
}

enum tc_json_kind tc_document_kind(const struct tc_document_value *value) {
    switch (json_typeof(node(value))) {
    case JSON_OBJECT:
        return TC_JSON_OBJECT;
    case JSON_ARRAY:
        return TC_JSON_ARRAY;
    case JSON_STRING:
        return TC_JSON_STRING;
    case JSON_INTEGER:
    case JSON_REAL:
        return TC_JSON_NUMBER;
    case JSON_TRUE:
        return TC_JSON_TRUE;
    case JSON_FALSE:
        return TC_JSON_FALSE;
    case JSON_NULL:
        return TC_JSON_NULL;
    }
    return TC_JSON_NOTHING;
}

/* How many values of the tree come before this one in the text, its parents
 * included. */
static size_t values_before(json_t *root, const json_t *wanted) {
    struct {
        json_t *value;
        void *position;
        size_t index;
    } levels[TC_MAX_JSON_DEPTH + 1] = {{root, NULL, 0}};
    size_t depth = 1;
    size_t before = 0;
    bool found = root == wanted;
    while (depth && !found) {
        json_t *value = levels[depth - 1].value;
        void **position = &levels[depth - 1].position;
        json_t *next;
        if (json_is_object(value)) {
            *position =
                *position ? json_object_iter_next(value, *position) : json_object_iter(value);
            next = json_object_iter_value(*position);
        } else {
            next = json_array_get(value, levels[depth - 1].index++);
        }
        if (!next) {
            depth--;
            continue;
        }
        before++;
        found = next == wanted;
        if (json_object_size(next) || json_array_size(next)) {
            levels[depth].value = next;
            levels[depth].position = NULL;
            levels[depth++].index = 0;
        }
    }
    return before;
}

/* The offset of the value that follows `before` others in the text. */
static bool find_offset(const struct tc_document *document, size_t before, uint64_t *offset) {
    struct tc_error ignored = {0};
    struct tc_arena arena;
    struct tc_json json;
    struct tc_text text;
    tc_arena_init(&arena, 0);
    tc_json_init(&json, document->text.bytes, document->text.length, 0, &arena, &ignored);
    for (size_t seen = 0; !json.failed;) {
        if (json.depth && !(json.stack[json.depth - 1] == TC_JSON_OBJECT ? tc_json_key(&json, &text)
                                                                         : tc_json_element(&json)))
            continue; /* the object or array has ended */
        enum tc_json_kind kind = tc_json_peek(&json);
        if (seen++ == before)
            break;
        if (kind == TC_JSON_OBJECT || kind == TC_JSON_ARRAY)
            tc_json_begin(&json, kind);
        else
            tc_json_skip(&json, &text);
    }
    *offset = document->base + json.at;
    tc_arena_release(&arena);
    return !json.failed;
}

bool tc_document_fail(const struct tc_document *document, const struct tc_document_value *value,
                      const char *format, ...) {
    char message[256];
    uint64_t offset;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    tc_fail(document->error, TC_INVALID, document->code, "%s", message);
    bool shared = json_is_boolean(node(value)) || json_is_null(node(value));
    if (!shared && find_offset(document, values_before(node(document->root), node(value)), &offset))
        tc_error_at(document->error, offset);
    return false;
}

static const char *kind_name(enum tc_json_kind kind) {
    return kind == TC_JSON_OBJECT   ? "an object"
           : kind == TC_JSON_ARRAY  ? "an array"
           : kind == TC_JSON_STRING ? "a string"
           : kind == TC_JSON_NUMBER ? "a number"
           : kind == TC_JSON_TRUE   ? "true"
           : kind == TC_JSON_FALSE  ? "false"
                                    : "null";
}

static bool fail_kind(const struct tc_document *document, const struct tc_document_value *value,
                      const char *expected) {
    return tc_document_fail(document, value, "a value of another kind (got %s, expected %s)",
                            kind_name(tc_document_kind(value)), expected);
}

bool tc_document_expect(const struct tc_document *document, const struct tc_document_value *value,
                        enum tc_json_kind kind) {
    return tc_document_kind(value) == kind || fail_kind(document, value, kind_name(kind));
}

bool tc_document_text(const struct tc_document *document, const struct tc_document_value *value,
                      struct tc_text *text) {
    if (!tc_document_expect(document, value, TC_JSON_STRING))
        return false;
    *text = (struct tc_text){json_string_value(node(value)), json_string_length(node(value))};
    return true;
}

bool tc_document_unsigned(const struct tc_document *document, const struct tc_document_value *value,
                          uint64_t *number) {
    if (!json_is_integer(node(value)) || json_integer_value(node(value)) < 0)
        return fail_kind(document, value, "a non-negative integer");
    *number = (uint64_t)json_integer_value(node(value));
    return true;
}

bool tc_document_boolean(const struct tc_document *document, const struct tc_document_value *value,
                         bool *flag) {
    *flag = json_is_true(node(value));
    return json_is_boolean(node(value)) || fail_kind(document, value, "true or false");
}

bool tc_document_keep(const struct tc_document *document, struct tc_text *text,
                      struct tc_arena *arena) {
    text->bytes = tc_arena_copy(arena, text->bytes, text->length, document->error);
    return text->bytes != NULL;
}

size_t tc_document_count(const struct tc_document_value *array) {
    return json_array_size(node(array));
}

const struct tc_document_value *tc_document_item(const struct tc_document_value *array,
                                                 size_t index) {
    return value_of(json_array_get(node(array), index));
}

bool tc_document_next(const struct tc_document_value *object, struct tc_document_member *member) {
    void *position = member->position ? json_object_iter_next(node(object), member->position)
                                      : json_object_iter(node(object));
    *member = (struct tc_document_member){.position = position};
    if (!position)
        return false;
    member->key =
        (struct tc_text){json_object_iter_key(position), json_object_iter_key_len(position)};
    member->value = value_of(json_object_iter_value(position));
    return true;
}
