/*
 * JSON documents that people and services write (a schema, a map of names, a
 * receipt) as a tree, by jansson.
 *
 *     struct tc_document document;
 *     struct tc_document_member member = {0};
 *     if (!tc_document_parse(&document, text, 0, error)) …
 *     while (tc_document_next(document.root, &member)) …
 *     tc_document_release(&document);
 *
 * The scanner of core/base/json.h checks the text first: so the rules are the
 * same as for headers (RFC 8259 to the letter, valid UTF-8), messages name the
 * offset, and nothing is nested deeper than TC_MAX_JSON_DEPTH, which bounds the
 * recursion inside jansson. Beyond that, no object may have a key twice, no
 * string may hold a NUL, and an integer has at most 63 bits.
 *
 * A tree takes some 17 times its text in memory, which counts against the
 * command's budget. The caller limits the text's size before it is read. For
 * headers, indexes and sidecars, which may have 100 MB, there is the scanner
 * alone.
 */
#ifndef TCONV_CORE_BASE_JANSSON_H
#define TCONV_CORE_BASE_JANSSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/text.h"

/* A value, which lives as long as its document. */
struct tc_document_value;

struct tc_document {
    const struct tc_document_value *root;
    struct tc_text text; /* not owned: it must live as long as the document */
    uint64_t base;       /* where the text lies in its file */
    const char *code;    /* of the error where what it says is wrong, and not its JSON; "json"
                          * unless the caller sets another */
    struct tc_error *error;
    struct tc_arena arena; /* of the values */
};

/* `error` is kept: the functions below fill it when they fail. Call
 * tc_document_release also where this fails. */
bool tc_document_parse(struct tc_document *document, struct tc_text text, uint64_t base,
                       struct tc_error *error);
void tc_document_release(struct tc_document *document);

enum tc_json_kind tc_document_kind(const struct tc_document_value *value);
/* Each of these fails where the value is of another kind. */
bool tc_document_expect(const struct tc_document *document, const struct tc_document_value *value,
                        enum tc_json_kind kind);
bool tc_document_text(const struct tc_document *document, const struct tc_document_value *value,
                      struct tc_text *text);
/* A non-negative integer. */
bool tc_document_unsigned(const struct tc_document *document, const struct tc_document_value *value,
                          uint64_t *number);
bool tc_document_boolean(const struct tc_document *document, const struct tc_document_value *value,
                         bool *flag);

/* Replaces *text, a string or key, by a copy that outlives the document. */
bool tc_document_keep(const struct tc_document *document, struct tc_text *text,
                      struct tc_arena *arena);

/* How many items an array has; 0 for any other value. */
size_t tc_document_count(const struct tc_document_value *array);
const struct tc_document_value *tc_document_item(const struct tc_document_value *array,
                                                 size_t index);

/* Walks the members of an object in their order. Start with a zeroed member;
 * behind the last one it is zeroed again. */
struct tc_document_member {
    struct tc_text key;
    const struct tc_document_value *value;
    void *position;
};
bool tc_document_next(const struct tc_document_value *object, struct tc_document_member *member);

/* For a caller's own checks: fails with the offset of the value. (The offset of
 * true, false and null is not known: jansson has only one of each.) */
bool tc_document_fail(const struct tc_document *document, const struct tc_document_value *value,
                      const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
