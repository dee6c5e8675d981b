/*
 * A schema, which says what a file of tensors must be like:
 *     {"tensors": {"NAME or /REGEX/": {"dtype": "F32" | ["F16", "BF16"],
 *                                      "shape": [768, null], "metadata_keys": ["…"],
 *                                      "finite": true, "optional": true}},
 *      "allow_extra": false, "metadata_keys": ["…"]}
 * Every key may be left out; an unknown one is an error. A tensor must satisfy the
 * rule of its name or, where there is none, those of all expressions that match it;
 * without any it is extra. Unless a rule is optional, a tensor of its name must be
 * there, or one that its expression matches.
 */
#ifndef TCONV_CORE_INSPECT_SCHEMA_H
#define TCONV_CORE_INSPECT_SCHEMA_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/name_map.h"
#include "core/base/regex.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

#define TC_SCHEMA_ANY UINT64_MAX /* null in a shape */

struct tc_schema_rule {
    struct tc_text name; /* as it stands in the schema, with its slashes */
    struct tc_regex regex;
    bool is_regex;
    bool finite;
    bool optional;
    bool has_shape;
    tc_dtype_set dtypes; /* 0: any */
    unsigned rank;
    uint64_t *shape;
    struct tc_text *keys;
    size_t key_count;
};

struct tc_schema {
    struct tc_arena arena;
    struct tc_name_map names; /* of all rules; the number is the rule's */
    struct tc_schema_rule *rules;
    size_t count;
    struct tc_text *keys; /* of the file's metadata */
    size_t key_count;
    bool allow_extra;
};

/* Call tc_schema_release also where this fails. */
bool tc_schema_load(struct tc_schema *schema, const char *path, struct tc_error *error);
void tc_schema_release(struct tc_schema *schema);

/* Adds each violation to the findings; false only where the file could not be
 * read. Data is read for rules that want finite values, and its checksums are
 * verified. */
bool tc_schema_check(const struct tc_schema *schema, struct tc_reader *reader,
                     struct tc_findings *findings, struct tc_error *error);

/* Writes the schema that describes exactly this table. */
void tc_schema_write(struct tc_buffer *text, const struct tc_table *table);

#endif
