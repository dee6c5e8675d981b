#include "core/plan/ties.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/aliases.h"
#include "core/format/backend.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/sparse_group.h"

enum handling { SHARE, RECORD, COPY };

struct ties {
    struct tc_plan *plan;
    enum handling handling;
    /* By reader and the table position of the first tensor that has the data: 1 + the
     * position of the item that is written with it. */
    size_t **kept;
    struct tc_metadata aliases;
};

static bool same_metadata(const struct tc_metadata *a, const struct tc_metadata *b) {
    size_t count = a ? a->count : 0;
    if (a == b)
        return true;
    if (count != (b ? b->count : 0))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!tc_text_equal(a->pairs[i].key, b->pairs[i].key) ||
            !tc_text_equal(a->pairs[i].value, b->pairs[i].value))
            return false;
    return true;
}

/* Whether both items have the same bytes, dtype and shape in the output. */
static bool same_data(const struct tc_item *a, const struct tc_item *b) {
    return a->dtype == b->dtype && a->skip == b->skip && a->taken == b->taken &&
           tc_shape_equal(a->shape, a->rank, b->shape, b->rank);
}

static bool copy_item(struct tc_plan *plan, const struct tc_item *item, const char *why,
                      struct tc_error *error) {
    if (tc_plan_charge(plan, item->nbytes, error))
        return tc_plan_note(plan, TC_CHANGE, TC_KIND_TIES, item->name, error, "%s", why);
    tc_error_in_tensor(error, item->tensor->name.bytes, item->tensor->name.length);
    return tc_error_in_file(error, item->reader->input->path);
}

/* Records the item's name as an alias instead of writing its data. */
static bool record_item(struct ties *ties, const struct tc_item *item, const struct tc_item *kept,
                        struct tc_error *error) {
    return tc_metadata_add(&ties->aliases, &ties->plan->arena, item->name, kept->name, error) &&
           tc_plan_note(ties->plan, TC_CHANGE, TC_KIND_TIES, item->name, error,
                        "not written; the metadata has its name and that of the tensor whose "
                        "data it shares") &&
           (same_metadata(item->metadata, kept->metadata) ||
            tc_plan_note(ties->plan, TC_LOSS, TC_KIND_METADATA, item->name, error,
                         "not written as its data is another tensor's; its own metadata is lost"));
}

static bool refuse_item(const struct tc_item *item, const struct tc_item *kept,
                        struct tc_error *error) {
    tc_fail(error, TC_UNSUPPORTED, "ties", "it shares its data with \"%.*s\" (--tied=error)",
            tc_text_shown(kept->tensor->name, 300), kept->tensor->name.bytes);
    tc_error_in_tensor(error, item->tensor->name.bytes, item->tensor->name.length);
    return tc_error_in_file(error, item->reader->input->path);
}

static bool refuse_target(const struct tc_plan *plan, const struct tc_item *item,
                          struct tc_error *error) {
    tc_fail(error, TC_UNSUPPORTED, "ties",
            "--tied=keep: %s has no place for the name of a tensor that is not written",
            plan->target->name);
    tc_error_hint(error,
                  plan->options->folder
                      ? "in a folder every tensor has a file of its own: leave --tied=keep out"
                      : "keep it beside the file: --keep-metadata=sidecar");
    return tc_error_in_tensor(error, item->tensor->name.bytes, item->tensor->name.length);
}

static bool can_record(const struct tc_plan *plan) {
    return plan->target->caps & TC_CAN_FILE_METADATA ||
           (plan->options->keep_metadata == TC_KEEP_SIDECAR && !plan->options->folder);
}

/* Decides about an item that shares its data with an earlier one; *written is
 * whether it stays in the plan. */
static bool tie_item(struct ties *ties, struct tc_item *item, const struct tc_item *kept,
                     bool *written, struct tc_error *error) {
    struct tc_plan *plan = ties->plan;
    *written = true;
    if (plan->options->tied == TC_TIED_ERROR)
        return refuse_item(item, kept, error);
    if (ties->handling == COPY || !same_data(item, kept))
        return copy_item(plan, item,
                         "shares its data with another tensor in the input; written with data of "
                         "its own",
                         error);
    /* A part of a sparse tensor can't be an alias, since it needs its own metadata. */
    if (ties->handling == RECORD &&
        (!tc_alias_key(item->name) || tc_metadata_find(&plan->metadata, item->name) ||
         tc_sparse_parent(item->metadata)))
        return copy_item(plan, item,
                         "shares its data with another tensor in the input, but cannot be a key "
                         "of the metadata; written with data of its own",
                         error);
    if (ties->handling == RECORD && !can_record(plan))
        return refuse_target(plan, item, error);
    plan->bytes_in -= item->taken;
    plan->bytes_out -= item->nbytes;
    if (ties->handling == RECORD) {
        *written = false;
        return record_item(ties, item, kept, error);
    }
    item->tied = kept->place + 1;
    item->report = kept->report;
    return true;
}

/* Decides about all items, and removes those that became aliases. */
static bool tie_items(struct ties *ties, struct tc_error *error) {
    struct tc_plan *plan = ties->plan;
    size_t count = 0;
    for (size_t i = 0; i < plan->count; i++) {
        struct tc_item *item = &plan->items[i];
        size_t *kept = item->tensor->tie ? &ties->kept[item->source][item->tensor->tie - 1] : NULL;
        bool written = true;
        if (kept && *kept == 0)
            *kept = count + 1;
        else if (kept && !tie_item(ties, item, &plan->items[*kept - 1], &written, error))
            return false;
        if (written)
            plan->items[count++] = *item;
    }
    plan->count = count;
    return true;
}

static bool any_tie(const struct tc_plan *plan) {
    for (size_t i = 0; i < plan->count; i++)
        if (plan->items[i].tensor->tie)
            return true;
    return false;
}

/* Whether a text may be the name of a tensor. Names that are no keys of aliases may be the values
 * of some: an empty one, or "format". */
static bool may_be_name(struct tc_text text) {
    return text.length <= TC_MAX_NAME_BYTES && tc_utf8_valid(text);
}

/* Lists each key and value of the metadata once; its number is 1 where it is the
 * name of a tensor that is written, else 0. */
static bool list_texts(struct tc_name_map *texts, const struct tc_plan *plan,
                       struct tc_error *error) {
    for (size_t i = 0; i < 2 * plan->metadata.count; i++) {
        const struct tc_pair *pair = &plan->metadata.pairs[i / 2];
        struct tc_text text = i % 2 ? pair->key : pair->value;
        bool listed = i % 2 ? tc_alias_key(text) : may_be_name(text);
        if (listed && !tc_name_map_find(texts, text) && !tc_name_map_add(texts, text, 0, error))
            return false;
    }
    for (size_t i = 0; texts->count && i < plan->count; i++) {
        uint32_t *found = tc_name_map_find(texts, plan->items[i].name);
        if (found)
            *found = 1;
    }
    return true;
}

static bool is_written(const struct tc_name_map *texts, struct tc_text text) {
    const uint32_t *found = tc_name_map_find(texts, text);
    return found && *found;
}

/* Adds the list of aliases to the metadata where a reader would otherwise take an
 * alias for other metadata, or the reverse. */
static bool mark_aliases(struct tc_plan *plan, const struct tc_metadata *aliases,
                         struct tc_error *error) {
    struct tc_name_map texts;
    struct tc_buffer list = {0};
    struct tc_json_writer json = {.out = &list, .escape = TC_ESCAPE_SERDE};
    size_t mistaken = 0;
    tc_name_map_init(&texts, &plan->arena);
    bool ok = list_texts(&texts, plan, error);
    tc_json_open_array(&json, NULL);
    for (size_t i = 0; i < plan->metadata.count && ok; i++) {
        const struct tc_pair *pair = &plan->metadata.pairs[i];
        bool alias = tc_metadata_find(aliases, pair->key) != NULL;
        bool taken = tc_alias_looks_recorded(pair->key) && is_written(&texts, pair->value) &&
                     !is_written(&texts, pair->key);
        mistaken += alias != taken;
        if (alias)
            tc_json_add_text(&json, NULL, pair->key);
    }
    tc_json_close(&json);
    tc_name_map_release(&texts);
    if (ok && mistaken) {
        size_t length = list.length;
        const char *text = tc_plan_keep(plan, &list, error);
        ok = text && tc_metadata_set(&plan->metadata, &plan->arena, TC_TEXT(TC_ALIASES_KEY),
                                     (struct tc_text){text, length}, error);
    }
    tc_buffer_release(&list);
    return ok;
}

static bool tie_groups(struct ties *ties, struct tc_error *error) {
    struct tc_plan *plan = ties->plan;
    enum tc_tied tied = plan->options->tied;
    size_t conflicts; /* always 0: an item whose name is a key already is no alias */
    ties->handling = tied == TC_TIED_COPY              ? COPY
                     : plan->target->caps & TC_CAN_TIE ? SHARE
                     : tied == TC_TIED_KEEP            ? RECORD
                                                       : COPY;
    ties->kept = tc_arena_array(&plan->arena, plan->reader_count, sizeof(size_t *), error);
    for (size_t r = 0; ties->kept && r < plan->reader_count; r++) {
        size_t count = plan->readers[r]->table.count;
        ties->kept[r] = tc_arena_array(&plan->arena, count, sizeof(size_t), error);
        if (!ties->kept[r])
            return false;
    }
    return ties->kept && tie_items(ties, error) && tc_metadata_sort(&ties->aliases, error) &&
           tc_metadata_merge(&plan->metadata, &ties->aliases, &plan->arena, &conflicts, error);
}

/* Adds a change for different views of one storage, which no target can keep. */
static bool note_views(struct tc_plan *plan, struct tc_error *error) {
    for (size_t r = 0; r < plan->reader_count; r++) {
        uint32_t last = 0;
        for (size_t i = 0; i < plan->count; i++)
            if (plan->items[i].source == r && plan->items[i].tensor->storage > last)
                last = plan->items[i].tensor->storage;
        uint32_t *shown = tc_arena_array(&plan->arena, (uint64_t)last + 1, sizeof *shown, error);
        if (!shown)
            return false;
        for (size_t i = 0; last && i < plan->count; i++)
            if (plan->items[i].source == r && !plan->items[i].tied)
                shown[plan->items[i].tensor->storage]++;
        for (size_t i = 0; last && i < plan->count; i++) {
            const struct tc_item *item = &plan->items[i];
            uint32_t storage = item->source == r ? item->tensor->storage : 0;
            if (storage && shown[storage] > 1 &&
                !tc_plan_note(plan, TC_CHANGE, TC_KIND_TIES, item->name, error,
                              "a view of a storage that other tensors show too; written with data "
                              "of its own"))
                return false;
        }
    }
    return true;
}

bool tc_ties_plan(struct tc_plan *plan, struct tc_error *error) {
    struct ties ties = {.plan = plan};
    bool nests = plan->tree && plan->target->caps & TC_CAN_NEST; /* views stay views */
    if ((any_tie(plan) && !tie_groups(&ties, error)) || (!nests && !note_views(plan, error)))
        return false;
    return plan->target->caps & TC_CAN_TIE || !can_record(plan) ||
           mark_aliases(plan, &ties.aliases, error);
}

bool tc_ties_split(struct tc_plan *plan, struct tc_error *error) {
    bool any = false;
    for (size_t i = 0; i < plan->count && !any; i++)
        any = plan->items[i].tied != 0;
    if (!any)
        return true;
    if (!tc_plan_list_places(plan, error))
        return false;
    for (size_t p = 0; p < plan->file_count; p++) {
        struct tc_output_file *file = &plan->files[p];
        file->nbytes = 0;
        for (size_t i = file->first; i < file->first + file->count; i++) {
            struct tc_item *item = &plan->items[i];
            size_t kept = item->tied ? plan->by_place[item->tied - 1] : i;
            if (kept < file->first || kept >= file->first + file->count) {
                item->tied = 0;
                plan->bytes_in += item->taken;
                plan->bytes_out += item->nbytes;
                if (!copy_item(plan, item,
                               "the tensor whose data it shares goes to another file; written "
                               "with data of its own",
                               error))
                    return false;
            }
            file->nbytes += item->tied ? 0 : item->nbytes;
        }
    }
    return true;
}

const struct tc_item *tc_ties_kept(const struct tc_plan *plan, const struct tc_item *item) {
    return item->tied ? &plan->items[plan->by_place[item->tied - 1]] : NULL;
}
