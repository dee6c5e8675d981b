#include "core/convert/read_back.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/limits.h"
#include "core/format/aliases.h"
#include "core/format/restore_metadata.h"
#include "core/format/tree.h"
#include "core/inspect/digest.h"
#include "core/plan/ties.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

bool tc_read_back_init(struct tc_read_back *read_back, const struct tc_plan *plan, bool keep,
                       struct tc_error *error) {
    *read_back = (struct tc_read_back){.keep = keep};
    tc_arena_init(&read_back->arena, 0);
    read_back->sums = calloc(plan->count ? plan->count : 1, sizeof *read_back->sums);
    return read_back->sums || tc_fail_memory(error);
}

void tc_read_back_release(struct tc_read_back *read_back) {
    free(read_back->sums);
    free(read_back->tensors);
    tc_arena_release(&read_back->arena);
    *read_back = (struct tc_read_back){0};
}

/* One file of the output, or its index, while it is read again. */
struct reread {
    struct tc_read_back *read_back;
    const struct tc_plan *plan;
    struct tc_reader *reader;
    struct tc_digest digest;
    bool *seen; /* by table position: it belongs to an item */
    size_t first;
    size_t count;
    const struct tc_outfile *last; /* the file before this one */
};

static bool differ(const struct tc_item *item, struct tc_error *error, const char *what) {
    tc_fail(error, TC_IO, "verification", "%s", what);
    return tc_error_in_tensor(error, item->name.bytes, item->name.length);
}

/* Finds an item's tensor by the name that it has in the file or, in a format without
 * names, by its position. */
static const struct tc_tensor *find_item(const struct reread *reread, size_t position) {
    const struct tc_plan *plan = reread->plan;
    const struct tc_table *table = &reread->reader->table;
    const struct tc_item *item = &plan->items[position];
    size_t turn = position - reread->first;
    if (plan->target->caps & TC_CAN_NAME)
        return tc_table_find(table, item->written.bytes ? item->written : item->name);
    return turn < table->count ? &table->tensors[turn] : NULL;
}

static bool differ_in(struct tc_text key, struct tc_error *error) {
    return tc_fail(error, TC_IO, "verification", "the metadata of key \"%.*s\" differs",
                   tc_text_shown(key, 200), key.bytes);
}

/* Whether all pairs of `meant` are in `got`. With `table`, aliases and types are left out, which
 * were taken out of the metadata when the output was read, and the tree, which a nested output has
 * in itself. */
static bool compare_metadata(const struct tc_metadata *meant, const struct tc_metadata *got,
                             const struct tc_table *table, struct tc_error *error) {
    for (size_t i = 0; meant && i < meant->count; i++) {
        const struct tc_pair *pair = &meant->pairs[i];
        const struct tc_text *value = tc_metadata_find(got, pair->key);
        bool taken = table && (tc_text_equal(pair->key, TC_TEXT(TC_ALIASES_KEY)) ||
                               tc_text_equal(pair->key, TC_TEXT(TC_METADATA_TYPES_KEY)) ||
                               tc_text_equal(pair->key, TC_TEXT(TC_TREE_KEY)) ||
                               tc_table_find(table, pair->key));
        if (!taken && !(value && tc_text_equal(*value, pair->value)))
            return differ_in(pair->key, error);
    }
    return true;
}

/* Whether the output keeps metadata, in its own files or in a sidecar. */
static bool holds_metadata(const struct tc_plan *plan) {
    return plan->options->keep_metadata != TC_KEEP_DROP &&
           (plan->target->caps & TC_CAN_FILE_METADATA || plan->sidecar_name);
}

static bool compare_item(struct reread *reread, size_t position, struct tc_error *error) {
    const struct tc_plan *plan = reread->plan;
    const struct tc_table *table = &reread->reader->table;
    const struct tc_item *item = &plan->items[position];
    const struct tc_item *kept = tc_ties_kept(plan, item);
    const struct tc_tensor *tensor = find_item(reread, position);
    if (!tensor)
        return differ(item, error, "the tensor is not there");
    size_t at = (size_t)(tensor - table->tensors);
    reread->seen[at] = true;
    if (tensor->dtype != item->dtype)
        return differ(item, error, "its dtype differs");
    if (!tc_shape_equal(tensor->shape, tensor->rank, item->shape, item->rank))
        return differ(item, error, "its shape differs");
    uint64_t meant = reread->read_back->sums[kept ? (size_t)(kept - plan->items) : position];
    if (reread->digest.checks[at] != meant)
        return differ(item, error, "its bytes are others (checksum mismatch)");
    return !holds_metadata(plan) ||
           compare_metadata(item->metadata, tensor->metadata, NULL, error) ||
           tc_error_in_tensor(error, item->name.bytes, item->name.length);
}

/* Tensors that belong to no item may only be aliases of some that do. */
static bool check_others(const struct reread *reread, struct tc_error *error) {
    const struct tc_table *table = &reread->reader->table;
    for (size_t i = 0; i < table->count; i++) {
        const struct tc_tensor *tensor = &table->tensors[i];
        if (reread->seen[i] || (tensor->tie && reread->seen[tensor->tie - 1]))
            continue;
        tc_fail(error, TC_IO, "verification", "the output has a tensor that was not written");
        return tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
    }
    return true;
}

static bool keep_tensors(struct reread *reread, struct tc_error *error) {
    struct tc_read_back *read_back = reread->read_back;
    const struct tc_table *table = &reread->reader->table;
    struct tc_read_back_tensor *tensors =
        reallocarray(read_back->tensors, read_back->count + table->count + 1, sizeof *tensors);
    if (!tensors)
        return tc_fail_memory(error);
    read_back->tensors = tensors;
    for (size_t i = 0; i < table->count; i++) {
        const struct tc_tensor *tensor = &table->tensors[i];
        struct tc_read_back_tensor *kept = &tensors[read_back->count++];
        size_t bytes = tensor->rank * sizeof *tensor->shape;
        *kept = (struct tc_read_back_tensor){.dtype = tensor->dtype, .rank = tensor->rank};
        memcpy(kept->sum, reread->digest.sums[i], TC_SHA256_BYTES);
        char *name =
            tc_arena_copy(&read_back->arena, tensor->name.bytes, tensor->name.length, error);
        uint64_t *shape = tc_arena_array(&read_back->arena, tensor->rank, sizeof *shape, error);
        if (!name || !shape)
            return false;
        if (bytes)
            memcpy(shape, tensor->shape, bytes);
        kept->name = (struct tc_text){name, tensor->name.length};
        kept->shape = shape;
    }
    return true;
}

static bool compare(struct reread *reread, const struct tc_watch *watch, struct tc_error *error) {
    size_t count = reread->reader->table.count;
    reread->seen = calloc(count ? count : 1, sizeof *reread->seen);
    if (!reread->seen)
        return tc_fail_memory(error);
    bool ok = tc_digest_make_checks(&reread->digest, reread->reader, reread->read_back->keep, watch,
                                    error);
    for (size_t i = 0; i < reread->count && ok; i++)
        ok = compare_item(reread, reread->first + i, error);
    if (ok && holds_metadata(reread->plan))
        ok = compare_metadata(&reread->plan->metadata, &reread->reader->table.metadata,
                              &reread->reader->table, error);
    ok = ok && check_others(reread, error) &&
         (!reread->read_back->keep || keep_tensors(reread, error));
    tc_digest_release(&reread->digest);
    free(reread->seen);
    return ok;
}

/* Limits are for untrusted files, so they do not apply to our own output. */
static struct tc_format_options own_options(const struct tc_publish *publish) {
    struct tc_format_options options = {.limits = TC_LIMITS_DEFAULT, .unpublished = publish};
    options.limits.made = INT64_MAX;
    options.limits.tensors = UINT32_MAX - 2;
    return options;
}

/* Files are checked in the order in which they were written, so the search goes on
 * behind the last one: a folder may have millions. */
static const struct tc_outfile *next_file(struct reread *reread, const struct tc_publish *publish,
                                          const char *name) {
    const struct tc_outfile *out = reread->last ? reread->last->next : publish->files;
    while (out && strcmp(out->name, name) != 0)
        out = out->next;
    reread->last = out;
    return out;
}

static bool check_file(struct reread *reread, const struct tc_publish *publish, const char *name,
                       const struct tc_backend *backend, tc_opener *open,
                       const struct tc_watch *watch, struct tc_error *error) {
    struct tc_format_options options = own_options(publish);
    const struct tc_outfile *out = next_file(reread, publish, name);
    struct tc_input *input = out ? tc_outfile_reopen(out, NULL, error) : NULL;
    if (!out)
        tc_fail(error, TC_INTERNAL, "verification", "a file of the output is not there");
    reread->reader = input ? open(input, backend, &options, error) : NULL;
    bool ok = reread->reader && compare(reread, watch, error);
    tc_reader_close(reread->reader);
    reread->reader = NULL;
    return ok;
}

static int by_name(const void *a, const void *b) {
    return tc_text_compare(((const struct tc_read_back_tensor *)a)->name,
                           ((const struct tc_read_back_tensor *)b)->name);
}

bool tc_read_back_check(struct tc_read_back *read_back, const struct tc_plan *plan,
                        const struct tc_publish *publish, tc_opener *open,
                        const struct tc_watch *watch, struct tc_error *error) {
    /* A separate error, since only its text is used; it is too large for a small
     * stack. */
    struct tc_error *inner = calloc(1, sizeof *inner);
    if (!inner)
        return tc_fail_memory(error);
    struct reread reread = {.read_back = read_back, .plan = plan, .count = plan->count};
    bool ok = true;
    /* Shards are read as the whole that they make up. */
    if (plan->index_name)
        ok = check_file(&reread, publish, plan->index_name, NULL, open, watch, inner);
    else if (plan->in_shards)
        ok = check_file(&reread, publish, plan->files[0].name, plan->target, open, watch, inner);
    for (size_t p = 0; p < plan->file_count && !plan->in_shards && ok; p++) {
        reread.first = plan->files[p].first;
        reread.count = plan->files[p].count;
        ok = check_file(&reread, publish, plan->files[p].name, plan->target, open, watch, inner);
    }
    if (ok && read_back->count)
        qsort(read_back->tensors, read_back->count, sizeof *read_back->tensors, by_name);
    if (!ok) {
        tc_fail(error, TC_IO, "verification", "verification failed, nothing is published: %s",
                inner->message);
        error->errnum = inner->errnum;
        tc_error_in_file(error, inner->file[0] ? inner->file : publish->path);
        if (inner->has_tensor)
            tc_error_in_tensor(error, inner->tensor, strlen(inner->tensor));
    }
    free(inner);
    return ok;
}

bool tc_read_back_digest(const struct tc_read_back *read_back, char hex[2 * TC_SHA256_BYTES + 1],
                         struct tc_error *error) {
    struct tc_buffer text = {0};
    for (size_t i = 0; i < read_back->count; i++) {
        const struct tc_read_back_tensor *tensor = &read_back->tensors[i];
        tc_digest_add_line(&text, tensor->sum, (enum tc_dtype)tensor->dtype, tensor->shape,
                           tensor->rank, tensor->name);
    }
    bool ok = tc_buffer_ok(&text, error) && tc_digest_total(&text, hex, error);
    tc_buffer_release(&text);
    return ok;
}
