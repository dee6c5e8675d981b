#include "core/plan/sparse_items.h"

#include <string.h>

#include "core/base/limits.h"
#include "core/base/memory.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/densify.h"
#include "core/tensor/metadata.h"
#include "core/tensor/select.h"

bool tc_sparse_rename(struct tc_plan *plan, struct tc_item *item, struct tc_error *error) {
    struct tc_sparse sparse;
    if (!item->metadata || tc_text_equal(item->name, item->tensor->name) ||
        !tc_sparse_of(&item->reader->table, item->tensor, &sparse))
        return true;
    size_t tail = sparse.role.length + 1;
    bool follows = item->name.length > tail && item->name.bytes[item->name.length - tail] == '.' &&
                   memcmp(item->name.bytes + item->name.length - sparse.role.length,
                          sparse.role.bytes, sparse.role.length) == 0;
    struct tc_metadata *metadata = tc_metadata_copy(item->metadata, &plan->arena, error);
    if (!metadata)
        return false;
    struct tc_text parent = {item->name.bytes, item->name.length - (follows ? tail : 0)};
    if (follows && !tc_metadata_set(metadata, &plan->arena, TC_SPARSE_PARENT, parent, error))
        return false;
    if (!follows)
        tc_metadata_remove_prefix(metadata, TC_SPARSE_KEYS);
    item->metadata = metadata;
    return follows || tc_plan_note(plan, TC_LOSS, TC_KIND_SPARSE, item->name, error,
                                   "its new name does not end in its role; it is no longer part "
                                   "of a sparse tensor");
}

bool tc_sparse_note_broken(struct tc_plan *plan, struct tc_error *error) {
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        const struct tc_table *table = &item->reader->table;
        const struct tc_tensor *part;
        struct tc_sparse sparse;
        bool whole = true;
        if (!tc_sparse_of(table, item->tensor, &sparse))
            continue;
        for (unsigned p = 0; (part = tc_sparse_part(table, &sparse, p)); p++)
            whole &= plan->taken[item->source][part - table->tensors];
        if (!whole && !tc_plan_note(plan, TC_LOSS, TC_KIND_SPARSE, item->name, error,
                                    "other parts of the sparse tensor are left out"))
            return false;
    }
    return true;
}

bool tc_sparse_find_group(const struct tc_plan *plan, const struct tc_table *table,
                          const struct tc_tensor *tensor, struct tc_sparse *sparse, bool *whole,
                          const struct tc_tensor **first, struct tc_error *error) {
    const struct tc_select *select = plan->options->select;
    const struct tc_tensor *part;
    bool mine = false;
    bool ok = true;
    *whole = plan->options->densify && tc_sparse_of(table, tensor, sparse);
    *first = tensor;
    for (unsigned p = 0; *whole && ok && (part = tc_sparse_part(table, sparse, p)); p++) {
        mine |= part == tensor;
        *first = part < *first ? part : *first;
        ok = !select || tc_select_takes(select, part->name, whole, error);
    }
    /* An alias of a part has the part's metadata, but is not a part itself. */
    *whole &= mine;
    return ok;
}

bool tc_sparse_note_dense(struct tc_plan *plan, const struct tc_item *item,
                          struct tc_error *error) {
    const struct tc_densify *densify = item->densify;
    const struct tc_tensor *others[] = {densify->first, densify->plain, densify->shape};
    uint64_t limit = plan->arena.budget;
    bool lost = false;
    bool named = limit && limit != TC_LIMIT_BY_FILE;
    uint64_t size = item->reader->size;
    tc_memory_earn_data(densify->nbytes < size ? densify->nbytes : size);
    if ((named && (plan->arena.used > limit || densify->memory > limit - plan->arena.used)) ||
        !tc_memory_fits(densify->memory)) {
        tc_fail(error, TC_UNSAFE, "memory-limit",
                "its indices and values would take %llu bytes of memory (limit %llu)",
                (unsigned long long)densify->memory,
                (unsigned long long)(named ? limit : tc_memory_allowed()));
        return tc_error_hint(error, "raise the limit with --max-memory if you trust this file");
    }
    if (densify->memory > plan->densify_memory)
        plan->densify_memory = densify->memory;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (size_t m = 0; others[i] && others[i]->metadata && m < others[i]->metadata->count; m++)
            lost |= !tc_text_starts(others[i]->metadata->pairs[m].key, TC_SPARSE_KEYS);
    if (lost && plan->options->keep_metadata != TC_KEEP_DROP &&
        !tc_plan_note(plan, TC_LOSS, TC_KIND_METADATA, item->name, error,
                      "made dense; metadata of a sparse tensor's indices and shape is lost"))
        return false;
    return (item->taken <= densify->nbytes ||
            tc_plan_charge(plan, item->taken - densify->nbytes, error)) &&
           tc_plan_note(plan, TC_CHANGE, TC_KIND_SPARSE, item->name, error, "made dense");
}

bool tc_sparse_is_all(const struct tc_plan *plan) {
    const struct tc_sparse_layout *coo = &tc_sparse_layouts[TC_SPARSE_COO];
    struct tc_sparse first;
    if (plan->reader_count != 1 || plan->count != coo->parts ||
        !tc_sparse_of(&plan->readers[0]->table, plan->items[0].tensor, &first) ||
        (first.layout.length && tc_sparse_layout(first.layout) != coo))
        return false;
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        struct tc_sparse sparse;
        if (item->densify || item->dequantise || item->dtype != item->tensor->dtype ||
            item->taken != item->tensor->nbytes ||
            !tc_sparse_of(&plan->readers[0]->table, item->tensor, &sparse) ||
            !tc_text_equal(sparse.parent, first.parent))
            return false;
    }
    return true;
}
