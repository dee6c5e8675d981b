#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/name_map.h"
#include "core/base/regex.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/inspect/schema.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

#define STEP ((size_t)1 << 18)
#define BLOCK 1024u

struct check {
    const struct tc_schema *schema;
    struct tc_reader *reader;
    struct tc_findings *findings;
    bool *used;   /* by rule: it applied to a tensor */
    bool *finite; /* by table position: its values must be finite, so it is read */
    bool reads;   /* any of them is set */
};

static void check_dtype(const struct check *check, const struct tc_schema_rule *rule,
                        const struct tc_tensor *tensor) {
    if (!rule->dtypes || rule->dtypes & TC_SET(tensor->dtype))
        return;
    struct tc_buffer wanted = {0};
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++)
        if (rule->dtypes & TC_SET(dtype))
            tc_buffer_addf(&wanted, "%s%s", wanted.length ? " or " : "", tc_dtype_name(dtype));
    tc_findings_add(check->findings, "dtype", NULL, tensor->name, "its dtype is %s (expected %s)",
                    tc_dtype_name(tensor->dtype), wanted.failed ? "another" : wanted.bytes);
    tc_buffer_release(&wanted);
}

static void check_shape(const struct check *check, const struct tc_schema_rule *rule,
                        const struct tc_tensor *tensor) {
    bool fits = rule->rank == tensor->rank;
    for (unsigned axis = 0; fits && axis < rule->rank; axis++)
        fits = rule->shape[axis] == TC_SCHEMA_ANY || rule->shape[axis] == tensor->shape[axis];
    if (!rule->has_shape || fits)
        return;
    struct tc_buffer text = {0};
    tc_buffer_add_string(&text, "its shape is ");
    tc_shape_print(&text, tensor->shape, tensor->rank);
    tc_buffer_add_string(&text, " (expected [");
    for (unsigned axis = 0; axis < rule->rank; axis++) {
        tc_buffer_add_string(&text, axis ? "," : "");
        if (rule->shape[axis] == TC_SCHEMA_ANY)
            tc_buffer_add_string(&text, "null");
        else
            tc_buffer_add_number(&text, rule->shape[axis]);
    }
    tc_buffer_add_string(&text, "])");
    tc_findings_add(check->findings, "shape", NULL, tensor->name, "%s",
                    text.failed ? "its shape differs" : text.bytes);
    tc_buffer_release(&text);
}

static void check_keys(const struct check *check, const struct tc_text *keys, size_t count,
                       const struct tc_metadata *metadata, struct tc_text tensor) {
    for (size_t i = 0; i < count; i++)
        if (!metadata || !tc_metadata_find(metadata, keys[i]))
            tc_findings_add(check->findings, "metadata-key", NULL, tensor,
                            "%s metadata has no key \"%.*s\"", tensor.bytes ? "its" : "the file's",
                            tc_text_shown(keys[i], 500), keys[i].bytes);
}

static void apply(struct check *check, size_t number, size_t position) {
    const struct tc_schema_rule *rule = &check->schema->rules[number];
    const struct tc_tensor *tensor = &check->reader->table.tensors[position];
    check->used[number] = true;
    check_dtype(check, rule, tensor);
    check_shape(check, rule, tensor);
    check_keys(check, rule->keys, rule->key_count, tensor->metadata, tensor->name);
    if (rule->finite)
        check->finite[position] = check->reads = true;
}

static bool check_tensor(struct check *check, size_t position, struct tc_error *error) {
    const struct tc_schema *schema = check->schema;
    const struct tc_tensor *tensor = &check->reader->table.tensors[position];
    const uint32_t *entry = tc_name_map_find(&schema->names, tensor->name);
    if (entry && !schema->rules[*entry].is_regex) {
        apply(check, *entry, position);
        return true;
    }
    bool any = false;
    for (size_t i = 0; i < schema->count; i++) {
        bool matches = false;
        if (!schema->rules[i].is_regex)
            continue;
        if (!tc_regex_matches(&schema->rules[i].regex, tensor->name, &matches, error))
            return tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
        if (matches)
            apply(check, i, position);
        any |= matches;
    }
    if (!any && !schema->allow_extra)
        tc_findings_add(check->findings, "extra-tensor", NULL, tensor->name,
                        "the schema does not have it");
    return true;
}

static void check_used(const struct check *check) {
    for (size_t i = 0; i < check->schema->count; i++) {
        const struct tc_schema_rule *rule = &check->schema->rules[i];
        if (check->used[i] || rule->optional)
            continue;
        if (rule->is_regex)
            tc_findings_add(check->findings, "no-match", NULL, (struct tc_text){0},
                            "no tensor matches %.*s", tc_text_shown(rule->name, 600),
                            rule->name.bytes);
        else
            tc_findings_add(check->findings, "missing-tensor", NULL, rule->name,
                            "the file does not have it");
    }
}

/* The dtype of its components; TC_NONE where every value is finite. Block dtypes may have a scale
 * that is not. */
static enum tc_dtype component_of(enum tc_dtype dtype) {
    if (tc_dtype_is_block(dtype))
        return dtype;
    if (tc_dtype_packed(dtype) || !(tc_dtype_is_float(dtype) || tc_dtype_is_complex(dtype)))
        return TC_NONE;
    return dtype == TC_C32 ? TC_F16 : dtype == TC_C64 ? TC_F32 : dtype == TC_C128 ? TC_F64 : dtype;
}

static size_t count_f64(const unsigned char *bytes, size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
        found += (bits >> 52 & 0x7FF) == 0x7FF;
    }
    return found;
}

/* How many of `count` components, at most BLOCK, are NaN or infinite. Widening to F32
 * does not change that. */
static size_t count_not_finite(enum tc_dtype dtype, const unsigned char *bytes, size_t count) {
    uint32_t singles[BLOCK];
    size_t found = 0;
    if (dtype == TC_F64)
        return count_f64(bytes, count);
    if (dtype == TC_F32)
        memcpy(singles, bytes, count * sizeof *singles);
    else
        tc_cast(dtype, TC_F32, bytes, singles, count, NULL);
    for (size_t i = 0; i < count; i++)
        found += (singles[i] >> 23 & 0xFF) == 0xFF;
    return found;
}

/* The place of the first component that is not finite, of `count`, at most BLOCK. */
static size_t first_not_finite(enum tc_dtype dtype, const unsigned char *bytes, size_t count) {
    uint64_t wide[BLOCK];
    size_t each = dtype == TC_F64 ? sizeof(double) : sizeof(float);
    enum tc_dtype as = dtype == TC_F64 ? TC_F64 : TC_F32;
    if (dtype == as)
        memcpy(wide, bytes, count * each);
    else
        tc_cast(dtype, as, bytes, wide, count, NULL);
    size_t i = 0;
    while (i < count && !count_not_finite(as, (const unsigned char *)wide + i * each, 1))
        i++;
    return i;
}

static bool check_finite(const struct check *check, const struct tc_tensor *tensor,
                         unsigned char *buffer, struct tc_error *error) {
    enum tc_dtype component = component_of(tensor->dtype);
    if (component == TC_NONE)
        return true;
    size_t most = STEP / tc_dtype_block_bytes(component) * tc_dtype_block_bytes(component);
    uint64_t total = 0;
    uint64_t first = 0; /* in components */
    uint64_t before = 0;
    for (uint64_t at = 0; at < tensor->nbytes;) {
        size_t step = tensor->nbytes - at < most ? tensor->nbytes - at : most;
        if (!tc_reader_read(check->reader, tensor, at, buffer, step, error))
            return false;
        at += step;
        const unsigned char *bytes = buffer;
        for (size_t left =
                 step / tc_dtype_block_bytes(component) * tc_dtype_block_elements(component);
             left;) {
            size_t count = left < BLOCK ? left : BLOCK;
            size_t found = count_not_finite(component, bytes, count);
            if (found && !total)
                first = before + first_not_finite(component, bytes, count);
            total += found;
            before += count;
            bytes += tc_dtype_span(component, count);
            left -= count;
        }
    }
    unsigned parts = tc_dtype_is_complex(tensor->dtype) ? 2 : 1;
    if (total)
        tc_findings_add(check->findings, "not-finite", NULL, tensor->name,
                        "%" PRIu64 " of its numbers are NaN or infinite, the first in element "
                        "%" PRIu64,
                        total, first / parts);
    return true;
}

static bool read_tensors(const struct check *check, struct tc_error *error) {
    const struct tc_table *table = &check->reader->table;
    struct tc_reader *reader = check->reader;
    bool *wanted = check->finite;
    unsigned char *buffer = malloc(STEP);
    if (!buffer)
        return tc_fail_memory(error);
    struct tc_checksum_thread *checksums = tc_checksum_thread_start(&reader, &wanted, 1, error);
    bool ok = checksums != NULL;
    for (size_t i = 0; i < table->count && ok; i++)
        ok = !wanted[i] || check_finite(check, &table->tensors[i], buffer, error);
    ok = tc_checksum_thread_join(checksums, error) && ok && tc_reader_unchanged(reader, error);
    free(buffer);
    return ok;
}

bool tc_schema_check(const struct tc_schema *schema, struct tc_reader *reader,
                     struct tc_findings *findings, struct tc_error *error) {
    struct check check = {.schema = schema, .reader = reader, .findings = findings};
    check.used = calloc(schema->count + 1, sizeof *check.used);
    check.finite = calloc(reader->table.count + 1, sizeof *check.finite);
    bool ok = (check.used && check.finite) || tc_fail_memory(error);
    for (size_t i = 0; i < reader->table.count && ok; i++)
        ok = check_tensor(&check, i, error);
    if (ok) {
        check_used(&check);
        check_keys(&check, schema->keys, schema->key_count, &reader->table.metadata,
                   (struct tc_text){0});
    }
    ok = ok && (!check.reads || read_tensors(&check, error));
    free(check.used);
    free(check.finite);
    return ok && tc_findings_ok(findings, error);
}
