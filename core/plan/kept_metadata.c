#include "core/plan/kept_metadata.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/json_writer.h"
#include "core/base/notes.h"
#include "core/base/path.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/restore_metadata.h"
#include "core/format/tree.h"
#include "core/plan/index_metadata.h"
#include "core/plan/metadata_types.h"
#include "core/plan/nesting.h"
#include "core/plan/ties.h"
#include "core/tensor/metadata_json.h"
#include "core/tensor/select.h"

/* The name under which whoever reads the output finds the item's tensor. */
static struct tc_text name_in_output(const struct tc_item *item) {
    return item->written.bytes ? item->written : item->name;
}

static int by_name(const void *a, const void *b) {
    const struct tc_item *x = *(const struct tc_item *const *)a;
    const struct tc_item *y = *(const struct tc_item *const *)b;
    return tc_text_compare(name_in_output(x), name_in_output(y));
}

/* Writes {name: {key: value}} for the items that have metadata. */
static bool add_tensor_maps(struct tc_json_writer *json, const char *key,
                            const struct tc_item *items, size_t count, struct tc_error *error) {
    const struct tc_item **sorted = calloc(count ? count : 1, sizeof(struct tc_item *));
    if (!sorted)
        return tc_fail_memory(error);
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (items[i].metadata && items[i].metadata->count)
            sorted[used++] = &items[i];
    qsort(sorted, used, sizeof(struct tc_item *), by_name);
    tc_json_open_object(json, key);
    for (size_t i = 0; i < used; i++) {
        tc_json_add_key(json, name_in_output(sorted[i]));
        tc_metadata_write(json, NULL, sorted[i]->metadata);
    }
    tc_json_close(json);
    free(sorted);
    return tc_buffer_ok(json->out, error);
}

bool tc_tensor_metadata_encode(const struct tc_item *items, size_t count, struct tc_buffer *text,
                               struct tc_error *error) {
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_SERDE};
    for (size_t i = 0; i < count; i++)
        if (items[i].metadata && items[i].metadata->count)
            return add_tensor_maps(&json, NULL, items, count, error);
    return true;
}

bool tc_sidecar_encode(const struct tc_metadata *metadata, const struct tc_item *items,
                       size_t count, bool names, struct tc_buffer *text, struct tc_error *error) {
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    tc_metadata_write(&json, "metadata", metadata);
    if (names) {
        tc_json_open_array(&json, "names");
        for (size_t i = 0; i < count; i++)
            tc_json_add_text(&json, NULL, items[i].name);
        tc_json_close(&json);
    }
    if (!add_tensor_maps(&json, "tensors", items, count, error))
        return false;
    tc_json_end_line(&json);
    return tc_buffer_ok(text, error);
}

bool tc_names_encode(const struct tc_plan *plan, struct tc_buffer *text, struct tc_error *error) {
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    tc_json_open_object(&json, "names");
    for (size_t i = 0; i < plan->file_count; i++) {
        struct tc_text name = plan->items[plan->files[i].first].name;
        if (!memchr(name.bytes, '/', name.length))
            continue;
        tc_json_add_key(&json, tc_text_of(plan->files[i].name));
        tc_json_add_text(&json, NULL, name);
    }
    tc_json_close(&json);
    tc_json_end_line(&json);
    return tc_buffer_ok(text, error);
}

bool tc_plan_file_metadata(struct tc_plan *plan, struct tc_output_file *file,
                           struct tc_error *error) {
    unsigned caps = plan->target->caps;
    if (!(caps & TC_CAN_FILE_METADATA))
        return true;
    const struct tc_metadata *own = tc_metadata_copy(&plan->metadata, &plan->arena, error);
    if (!own)
        return false;
    file->metadata = *own;
    if (plan->nests && !tc_nesting_leave_out(plan, &file->metadata, error))
        return false;
    if (caps & TC_CAN_TENSOR_METADATA)
        return true;
    struct tc_buffer text = {0};
    bool ok = tc_tensor_metadata_encode(plan->items + file->first, file->count, &text, error);
    if (ok && text.length) {
        char *copy = tc_arena_copy(&plan->arena, text.bytes, text.length, error);
        ok = copy && tc_metadata_set(&file->metadata, &plan->arena, TC_TEXT(TC_TENSOR_METADATA_KEY),
                                     (struct tc_text){copy, text.length}, error);
    }
    tc_buffer_release(&text);
    return ok;
}

/* The framework of the inputs' tensors, where a format implies one; else NULL. */
static const char *find_framework(const struct tc_plan *plan) {
    const char *framework = NULL;
    for (size_t r = 0; r < plan->reader_count && !framework; r++)
        framework = plan->readers[r]->framework;
    return framework;
}

/* transformers wants to know the framework of a safetensors file's tensors, also
 * after a detour through another format, which therefore keeps it as metadata. */
static bool name_framework(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_backend *target = plan->target;
    const char *framework = find_framework(plan);
    struct tc_text key = TC_TEXT("format");
    bool held =
        target->caps & TC_CAN_FILE_METADATA || plan->options->keep_metadata == TC_KEEP_SIDECAR;
    if (!framework || !held || target->framework || plan->options->keep_metadata == TC_KEEP_DROP ||
        tc_metadata_find(&plan->metadata, key))
        return true;
    return tc_metadata_set(&plan->metadata, &plan->arena, key, tc_text_of(framework), error);
}

/* A reader's metadata; of a checkpoint without the values that --exclude matches. */
static const struct tc_metadata *
input_metadata(struct tc_plan *plan, const struct tc_reader *reader, struct tc_error *error) {
    const struct tc_select *select = plan->options->select;
    bool excludes = reader->leaves && select && select->exclude_count;
    bool tree = tc_metadata_find(&reader->table.metadata, TC_TEXT(TC_TREE_KEY)) != NULL;
    if (!excludes && !tree)
        return &reader->table.metadata;
    struct tc_metadata *kept = tc_metadata_copy(&reader->table.metadata, &plan->arena, error);
    if (!kept)
        return NULL;
    tc_metadata_remove(kept, TC_TEXT(TC_TREE_KEY)); /* tc_nesting_plan decides about it */
    if (!excludes)
        return kept;
    size_t count = kept->count;
    kept->count = 0;
    for (size_t i = 0; i < count; i++) {
        bool excluded;
        if (!tc_select_excludes(select, kept->pairs[i].key, &excluded, error))
            return NULL;
        if (!excluded)
            kept->pairs[kept->count++] = kept->pairs[i];
        else if (!tc_plan_note(plan, TC_WARNING, TC_KIND_METADATA, kept->pairs[i].key, error,
                               "values that --exclude matches are left out, too"))
            return NULL;
    }
    return kept;
}

/* The union of the inputs' metadata; where they disagree the first one wins. */
static bool join_metadata(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_metadata **maps =
        tc_arena_array(&plan->arena, plan->reader_count, sizeof *maps, error);
    size_t *conflicts = tc_arena_array(&plan->arena, plan->reader_count, sizeof *conflicts, error);
    if (!maps || !conflicts)
        return false;
    for (size_t r = 0; r < plan->reader_count; r++)
        if (!(maps[r] = input_metadata(plan, plan->readers[r], error)))
            return false;
    if (!tc_metadata_join(&plan->metadata, maps, plan->reader_count, &plan->arena, conflicts,
                          error))
        return false;
    for (size_t r = 0; r < plan->reader_count; r++)
        if (conflicts[r] &&
            !tc_plan_note(plan, TC_LOSS, TC_KIND_METADATA, (struct tc_text){0}, error,
                          "the inputs disagree on %zu key%s; the first one's are kept",
                          conflicts[r], conflicts[r] == 1 ? "" : "s"))
            return false;
    return true;
}

/* Leaves out the keys that --drop-metadata matches. */
static bool drop_metadata(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_select *select = plan->options->select;
    struct tc_metadata *metadata = &plan->metadata;
    size_t kept = 0;
    if (!select || !select->dropped_count)
        return true;
    for (size_t i = 0; i < metadata->count; i++) {
        bool dropped;
        if (!tc_select_drops(select, metadata->pairs[i].key, &dropped, error))
            return false;
        if (!dropped)
            metadata->pairs[kept++] = metadata->pairs[i];
    }
    metadata->count = kept;
    return tc_select_note_not_dropped(select, &plan->notes, error);
}

static bool collect_metadata(struct tc_plan *plan, struct tc_error *error) {
    bool drop = plan->options->keep_metadata == TC_KEEP_DROP;
    if ((!drop && !join_metadata(plan, error)) || !tc_index_metadata_update(plan, error) ||
        !name_framework(plan, error) || !tc_nesting_plan(plan, error) ||
        !drop_metadata(plan, error))
        return false;
    const struct tc_metadata *extra = plan->options->extra_metadata;
    for (size_t i = 0; extra && i < extra->count; i++)
        if (!tc_metadata_set(&plan->metadata, &plan->arena, extra->pairs[i].key,
                             extra->pairs[i].value, error))
            return false;
    return tc_metadata_types_plan(plan, error);
}

/* Whether an item has metadata that the target itself cannot express. */
static bool has_unheld_metadata(const struct tc_plan *plan, const struct tc_item *item) {
    const struct tc_backend *target = plan->target;
    return item->metadata && item->metadata->count &&
           !(target->holds_metadata && target->holds_metadata(item));
}

static bool note_lost_metadata(struct tc_plan *plan, struct tc_error *error) {
    for (size_t i = 0; i < plan->metadata.count; i++)
        if (!tc_plan_note(plan, TC_LOSS, TC_KIND_METADATA, (struct tc_text){0}, error,
                          "%s holds no metadata; the file's is lost", plan->target->name))
            return false;
    for (size_t i = 0; i < plan->count; i++)
        if (has_unheld_metadata(plan, &plan->items[i]) &&
            !tc_plan_note(plan, TC_LOSS, TC_KIND_METADATA, plan->items[i].name, error,
                          "%s holds no metadata; that of tensors is lost", plan->target->name))
            return false;
    return true;
}

static bool has_metadata(const struct tc_plan *plan) {
    if (plan->metadata.count)
        return true;
    for (size_t i = 0; i < plan->count; i++)
        if (has_unheld_metadata(plan, &plan->items[i]))
            return true;
    return false;
}

/* A sidecar that is there from before is then replaced instead of removed. */
bool tc_plan_sidecar(struct tc_plan *plan, struct tc_error *error) {
    if (!plan->sidecar_name && !plan->stale_name)
        return tc_fail(error, TC_UNSUPPORTED, "sidecar",
                       "a sidecar goes beside a file, not a folder or a pipe");
    plan->sidecar_name = plan->sidecar_name ? plan->sidecar_name : plan->stale_name;
    plan->stale_name = NULL;
    return true;
}

bool tc_plan_metadata(struct tc_plan *plan, const char *output, struct tc_error *error) {
    bool beside_file = !plan->options->folder && strcmp(output, "-") != 0;
    struct tc_buffer name = {0};
    if (!collect_metadata(plan, error) || !tc_ties_plan(plan, error))
        return false;
    if (plan->target->caps & TC_CAN_FILE_METADATA)
        return true;
    tc_buffer_addf(&name, "%s.tconv.json", tc_path_name(output));
    const char *sidecar = tc_plan_keep(plan, &name, error);
    if (!sidecar)
        return false;
    plan->stale_name = beside_file ? sidecar : NULL;
    if (!has_metadata(plan))
        return true;
    return plan->options->keep_metadata == TC_KEEP_SIDECAR ? tc_plan_sidecar(plan, error)
                                                           : note_lost_metadata(plan, error);
}
