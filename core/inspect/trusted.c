#include "core/inspect/trusted.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/findings.h"
#include "core/base/limits.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/format/densify.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

/* Whether the group's indices and values may be loaded; the data that is read raises
 * what the command may take, as in a conversion. */
static bool may_load(const struct tc_reader *reader, const struct tc_densify *densify) {
    uint64_t limit = reader->options->limits.memory;
    bool named = limit && limit != TC_LIMIT_BY_FILE;
    tc_memory_earn_data(densify->nbytes < reader->size ? densify->nbytes : reader->size);
    return !(named && densify->memory > limit) && tc_memory_fits(densify->memory);
}

/* What was not checked is reported: it is neither right nor wrong. */
static void note_unchecked(struct tc_reader *reader, struct tc_text parent, const char *why) {
    tc_findings_note(reader->options->findings, "sparse", NULL, parent,
                     "its indices were not checked: %s", why);
}

/* Checks all indices of one sparse tensor. */
static bool check_group(struct tc_reader *reader, const struct tc_sparse *sparse,
                        struct tc_error *error) {
    struct tc_arena arena;
    tc_arena_init(&arena, reader->options->limits.memory);
    struct tc_densify *densify = tc_densify_make(reader, sparse, &arena, error);
    bool ok = densify != NULL;
    if (ok && !may_load(reader, densify))
        note_unchecked(reader, sparse->parent, "they need more memory than --max-memory allows");
    else
        ok = ok && tc_densify_check(densify, error);
    tc_arena_release(&arena);
    return ok;
}

/* Checks each sparse tensor once, when `tensor` is the first part of its layout. */
static bool check_sparse(struct tc_reader *reader, const struct tc_tensor *tensor,
                         struct tc_error *error) {
    struct tc_sparse sparse;
    if (!tc_sparse_parent(tensor->metadata))
        return true;
    if (!tc_sparse_of(&reader->table, tensor, &sparse)) {
        tc_findings_add(reader->options->findings, "sparse", NULL, tensor->name,
                        "other parts of the sparse tensor that it belongs to are not there");
        return true;
    }
    if (tc_sparse_part(&reader->table, &sparse, 0) != tensor ||
        check_group(reader, &sparse, error) || error->class == TC_IO)
        return error->class == TC_OK;
    /* That a tensor cannot be made dense for another reason is no damage. */
    if (error->class == TC_INVALID)
        tc_findings_add_error(reader->options->findings, error);
    else
        note_unchecked(reader, sparse.parent, error->message);
    *error = (struct tc_error){0};
    return true;
}

/* Reads the number of a dimension from metadata; false where it is not below
 * `rank`. */
static bool read_axis(const struct tc_text *text, unsigned rank, unsigned *axis) {
    char digits[8] = {0};
    if (!text || text->length == 0 || text->length >= sizeof digits)
        return false;
    memcpy(digits, text->bytes, text->length);
    if (digits[strspn(digits, "0123456789")])
        return false;
    *axis = (unsigned)strtoul(digits, NULL, 10);
    return *axis < rank;
}

/* NAME.scales and NAME.zero_points must have one element for each index on the axis. */
static bool check_parameter(struct tc_reader *reader, const struct tc_tensor *tensor, unsigned axis,
                            const char *ending, struct tc_error *error) {
    struct tc_buffer name = {0};
    tc_buffer_add_text(&name, tensor->name);
    tc_buffer_add_string(&name, ending);
    if (!tc_buffer_ok(&name, error))
        return false;
    const struct tc_tensor *found =
        tc_table_find(&reader->table, (struct tc_text){name.bytes, name.length});
    tc_buffer_release(&name);
    uint64_t wanted = tensor->shape[axis];
    if (!found)
        tc_findings_add(reader->options->findings, "quantisation", NULL, tensor->name,
                        "it is quantised along axis %u, but there is no tensor of its name and %s",
                        axis, ending);
    else if (found->rank != 1 || found->shape[0] != wanted)
        tc_findings_add(reader->options->findings, "quantisation", NULL, found->name,
                        "its shape does not fit axis %u of what it scales (expected [%llu])", axis,
                        (unsigned long long)wanted);
    return true;
}

static bool check_quantised(struct tc_reader *reader, const struct tc_tensor *tensor,
                            struct tc_error *error) {
    const struct tc_text *scheme = tc_metadata_find(tensor->metadata, TC_TEXT("quant.scheme"));
    const struct tc_text *text = tc_metadata_find(tensor->metadata, TC_TEXT("quant.axis"));
    bool channels = scheme && tc_text_starts(*scheme, TC_TEXT("per_channel"));
    unsigned axis;
    if (!channels && !text)
        return true;
    if (!read_axis(text, tensor->rank, &axis)) {
        tc_findings_add(reader->options->findings, "quantisation", NULL, tensor->name,
                        "it is quantised along an axis that it does not have");
        return true;
    }
    return check_parameter(reader, tensor, axis, ".scales", error) &&
           check_parameter(reader, tensor, axis, ".zero_points", error);
}

/* The part of a parameter's name after the last dot, such as "weight". */
static struct tc_text last_word(struct tc_text name) {
    const char *dot = memrchr(name.bytes, '.', name.length);
    size_t before = dot ? (size_t)(dot + 1 - name.bytes) : 0;
    return (struct tc_text){name.bytes + before, name.length - before};
}

static bool is_name(struct tc_text text) {
    for (size_t i = 0; i < text.length; i++)
        if ((unsigned char)text.bytes[i] <= ' ')
            return false;
    return text.length > 0;
}

/* A pair such as "lm_head.weight": "embed.weight" says that one is an alias of the
 * other. A setting may look like that too, so both must have the same last word.
 * Valid aliases became tensors when the file was opened. */
static void check_aliases(struct tc_reader *reader) {
    const struct tc_metadata *metadata = &reader->table.metadata;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct tc_pair *pair = &metadata->pairs[i];
        struct tc_text word = last_word(pair->key);
        if (!memchr(pair->key.bytes, '.', pair->key.length) || !is_name(pair->value) ||
            !is_name(pair->key) || word.length == 0 ||
            !tc_text_equal(word, last_word(pair->value)) ||
            tc_table_find(&reader->table, pair->value) || tc_table_find(&reader->table, pair->key))
            continue;
        tc_findings_add(reader->options->findings, "alias", NULL, pair->key,
                        "it is an alias of \"%.*s\", which is not there",
                        tc_text_shown(pair->value, 300), pair->value.bytes);
    }
}

bool tc_trusted_check(struct tc_reader *reader, struct tc_error *error) {
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        if (tensor->metadata &&
            (!check_sparse(reader, tensor, error) || !check_quantised(reader, tensor, error)))
            return false;
    }
    check_aliases(reader);
    return true;
}
