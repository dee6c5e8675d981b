#include "core/plan/items.h"

#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/name_map.h"
#include "core/base/near.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/block_scales.h"
#include "core/format/densify.h"
#include "core/format/dequantise.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/plan/dtype_policy.h"
#include "core/plan/sparse_items.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/select.h"
#include "core/tensor/shape.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

static struct tc_text no_tensor(void) {
    return (struct tc_text){NULL, 0};
}

/* Takes rows [first, end) of the tensor's first axis. */
static bool take_rows(struct tc_item *item, const struct tc_rows *chosen, struct tc_arena *arena,
                      struct tc_error *error) {
    const struct tc_tensor *tensor = item->tensor;
    uint64_t first;
    uint64_t end;
    if (!tc_rows_clip(chosen, tensor->shape, tensor->rank, &first, &end, error))
        return false;
    enum tc_dtype dtype = tensor->dtype;
    uint64_t rows = tensor->shape[0];
    uint64_t elements = rows ? tc_shape_count(tensor->shape + 1, tensor->rank - 1u) : 0;
    uint64_t group = tc_dtype_block_elements(dtype);
    if (first * elements % group != 0 || end * elements % group != 0 ||
        (!tc_dtype_is_block(dtype) && elements % group != 0))
        return tc_fail(error, TC_UNSUPPORTED, "rows",
                       tc_dtype_is_block(dtype) ? "these rows of %s do not fill whole blocks"
                                                : "rows of %s do not fill whole bytes",
                       tc_dtype_name(dtype));
    uint64_t *shape = tc_arena_array(arena, tensor->rank, sizeof *shape, error);
    if (!shape)
        return false;
    memcpy(shape, tensor->shape, tensor->rank * sizeof *shape);
    shape[0] = end - first;
    item->shape = shape;
    item->skip = first * elements / group * tc_dtype_block_bytes(dtype);
    item->taken = (end - first) * elements / group * tc_dtype_block_bytes(dtype);
    return true;
}

static bool item_fits(const struct tc_plan *plan, const struct tc_item *item,
                      struct tc_error *error) {
    const struct tc_backend *target = plan->target;
    if (!tc_name_check(item->name, error))
        return false;
    if (item->rank > target->max_rank)
        return tc_fail(error, TC_UNSUPPORTED, "rank", "%s holds at most %u dimensions (got %u)",
                       target->name, target->max_rank, item->rank);
    if (item->name.length > target->max_name)
        return tc_fail(error, TC_UNSUPPORTED, "name",
                       "%s holds names of at most %zu bytes (got %zu)", target->name,
                       target->max_name, item->name.length);
    if (item->name.length == 0 && !target->empty_name)
        return tc_fail(error, TC_UNSUPPORTED, "name", "%s cannot hold an empty name", target->name);
    return true;
}

/* What an item's data comes from, where that is not the tensor of a table. */
struct origin {
    struct tc_densify *densify;
    struct tc_dequantise *dequantise;
};

static bool add_item(struct tc_plan *plan, size_t source, const struct tc_tensor *tensor,
                     struct origin origin, struct tc_text name, size_t place,
                     struct tc_error *error) {
    struct tc_reader *reader = plan->readers[source];
    struct tc_item *item = &plan->items[plan->count++];
    *item = (struct tc_item){.reader = reader,
                             .tensor = tensor,
                             .densify = origin.densify,
                             .dequantise = origin.dequantise,
                             .name = name,
                             .shape = tensor->shape,
                             .rank = tensor->rank,
                             .taken = tensor->nbytes,
                             .metadata = tensor->metadata,
                             .source = source,
                             .place = place};
    struct tc_select *select = plan->options->select;
    struct tc_rows *rows = select ? tc_select_find_rows(select, tensor->name) : NULL;
    if (rows)
        rows->used = true;
    if (plan->options->keep_metadata == TC_KEEP_DROP)
        item->metadata = NULL;
    if ((rows && !take_rows(item, rows, &plan->arena, error)) || !item_fits(plan, item, error) ||
        !tc_policy_apply(plan, item, error) || !tc_sparse_rename(plan, item, error)) {
        tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
        return tc_error_in_file(error, reader->input->path);
    }
    /* The readers' tables were measured one by one; their sum may still wrap. */
    uint64_t read = origin.densify      ? origin.densify->nbytes
                    : origin.dequantise ? origin.dequantise->nbytes
                                        : item->taken;
    if (!tc_add(plan->bytes_in, read, &plan->bytes_in) ||
        !tc_add(plan->bytes_out, item->nbytes, &plan->bytes_out) || plan->bytes_out > INT64_MAX)
        return tc_fail(error, TC_INVALID, "size-overflow", "the tensors' sizes overflow 63 bits");
    return true;
}

/* Adds one dense item in place of the parts of a sparse tensor, under its name. */
static bool add_dense(struct tc_plan *plan, size_t source, const struct tc_sparse *sparse,
                      size_t place, struct tc_error *error) {
    struct tc_reader *reader = plan->readers[source];
    struct tc_select *select = plan->options->select;
    struct tc_text name = sparse->parent;
    struct tc_densify *densify = tc_densify_make(reader, sparse, &plan->arena, error);
    if (densify && (!select || tc_select_name(select, name, &plan->arena, &name, error)) &&
        add_item(plan, source, &densify->tensor, (struct origin){.densify = densify}, name, place,
                 error) &&
        tc_sparse_note_dense(plan, &plan->items[plan->count - 1], error))
        return true;
    tc_error_in_tensor(error, sparse->parent.bytes, sparse->parent.length);
    return tc_error_in_file(error, reader->input->path);
}

/* Adds the tensor that a weight and its scales stand for, under the result's name. */
static bool add_scaled(struct tc_plan *plan, size_t source, const struct tc_scaled *scaled,
                       size_t place, struct tc_error *error) {
    struct tc_reader *reader = plan->readers[source];
    struct tc_select *select = plan->options->select;
    struct tc_text name = scaled->name;
    enum tc_dtype dtype;
    struct tc_dequantise *dequantise =
        tc_policy_dequantised(plan, scaled->name, scaled->dtype, &dtype, error)
            ? tc_dequantise_make(scaled, dtype, &plan->arena, error)
            : NULL;
    if (dequantise && (!select || tc_select_name(select, name, &plan->arena, &name, error)) &&
        add_item(plan, source, &dequantise->tensor, (struct origin){.dequantise = dequantise}, name,
                 place, error) &&
        tc_plan_note(plan, TC_CHANGE, TC_KIND_DEQUANTISED, name, error, "%s dequantised to %s",
                     scaled->kind, tc_dtype_name(dtype))) {
        plan->dequantised = true;
        return true;
    }
    tc_error_in_tensor(error, scaled->name.bytes, scaled->name.length);
    return tc_error_in_file(error, reader->input->path);
}

/* Fails where an earlier input has a scale of this name: which one is meant nobody knows, and no
 * item shows that there are two. */
static bool is_only_scale(const struct tc_plan *plan, size_t source, const struct tc_tensor *scale,
                          struct tc_error *error) {
    for (size_t r = 0; r < source; r++) {
        if (!tc_table_find(&plan->readers[r]->table, scale->name))
            continue;
        const char *second = plan->readers[source]->input->path;
        tc_fail(error, TC_INVALID, "duplicate-name", "this scale is there twice, in %s and in %s",
                plan->readers[r]->input->path, second);
        tc_error_because(error, TC_REASON_DUPLICATE_NAME);
        tc_error_in_tensor(error, scale->name.bytes, scale->name.length);
        return tc_error_in_file(error, second);
    }
    return true;
}

/* What becomes of a tensor where weights lose their scales: *done where nothing is left to do. */
static bool take_scaled(struct tc_plan *plan, const struct tc_block_scales *scales, size_t source,
                        const struct tc_tensor *tensor, bool taken, size_t place, bool *done,
                        struct tc_error *error) {
    enum tc_scaled_role role;
    struct tc_scaled scaled;
    *done = false;
    if (!plan->options->dequantise)
        return true;
    if (!tc_block_scales_find(scales, source, tensor, &role, &scaled, error))
        return false;
    *done = role == TC_ROLE_SCALE || (role == TC_ROLE_WEIGHT && taken);
    if (role == TC_ROLE_WEIGHT && taken)
        return add_scaled(plan, source, &scaled, place, error);
    if (role == TC_ROLE_SCALE && taken)
        return is_only_scale(plan, source, tensor, error) &&
               tc_plan_note(plan, TC_CHANGE, TC_KIND_DEQUANTISED, tensor->name, error,
                            "scales are left out");
    if (role == TC_ROLE_SPARED && taken)
        return tc_plan_note(plan, TC_WARNING, TC_KIND_KEPT, tensor->name, error,
                            "the config says that these are not quantised: kept as they are");
    return role != TC_ROLE_LOOKALIKE || !taken ||
           tc_plan_note(plan, TC_WARNING, TC_KIND_KEPT, tensor->name, error,
                        "no scales of a quantised weight, whatever their names say: kept as they "
                        "are");
}

/* What the item's tensor is called in its file. */
static struct tc_text source_name(const struct tc_item *item) {
    const struct tc_dequantise *dequantise = item->dequantise;
    return dequantise ? dequantise->scaled.weight.tensor->name : item->tensor->name;
}

/* Refuses two items of one name, which come from two inputs or from renaming. A
 * reader's own table never has a name twice. */
static bool check_unique(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_select *select = plan->options->select;
    if (plan->reader_count == 1 && !(select && tc_select_renames(select)) &&
        !plan->options->densify && !plan->options->dequantise)
        return true;
    struct tc_name_map names;
    tc_name_map_init(&names, &plan->arena);
    bool ok = true;
    for (size_t i = 0; i < plan->count && ok; i++) {
        const struct tc_item *item = &plan->items[i];
        const uint32_t *present = tc_name_map_find(&names, item->name);
        if (present) {
            const struct tc_item *other = &plan->items[*present];
            struct tc_text first = source_name(other);
            struct tc_text second = source_name(item);
            ok = tc_fail(error, TC_INVALID, "duplicate-name",
                         "the name is taken twice, by \"%.*s\" of %s and \"%.*s\" of %s",
                         tc_text_shown(first, 100), first.bytes, other->reader->input->path,
                         tc_text_shown(second, 100), second.bytes, item->reader->input->path);
            tc_error_because(error, TC_REASON_DUPLICATE_NAME);
            tc_error_in_tensor(error, item->name.bytes, item->name.length);
            tc_error_in_file(error, item->reader->input->path);
        } else {
            ok = tc_name_map_add(&names, item->name, (uint32_t)i, error);
        }
    }
    tc_name_map_release(&names);
    return ok;
}

/* Keeps the reason why a tensor can't be written: the first becomes the error, others
 * go to plan->problems, so that all are reported at once. False where there is no
 * point in going on. */
static bool note_problem(struct tc_plan *plan, const struct tc_error *problem,
                         struct tc_error *error) {
    if (error->class == TC_OK)
        *error = *problem;
    else if (!tc_notes_add(&plan->problems, TC_WARNING, TC_KIND_INPUT,
                           problem->has_tensor ? tc_text_of(problem->tensor) : no_tensor(), error,
                           "%s", problem->message))
        return false;
    return problem->class == TC_UNSUPPORTED || problem->class == TC_INVALID;
}

/* Whether a later input has a tensor of this name, which replaces it. */
static bool is_replaced(const struct tc_plan *plan, size_t source, struct tc_text name) {
    for (size_t r = source + 1; plan->options->replace && r < plan->reader_count; r++)
        if (tc_table_find(&plan->readers[r]->table, name))
            return true;
    return false;
}

static bool select_items(struct tc_plan *plan, struct tc_error *problem, struct tc_error *error) {
    struct tc_select *select = plan->options->select;
    struct tc_block_scales scales = {0};
    size_t place = 0;
    if (plan->options->dequantise &&
        !tc_block_scales_init(&scales, plan->readers, plan->reader_count, &plan->arena, error))
        return false;
    for (size_t r = 0; r < plan->reader_count; r++) {
        struct tc_reader *reader = plan->readers[r];
        for (size_t i = 0; i < reader->table.count; i++, place++) {
            const struct tc_tensor *tensor = &reader->table.tensors[i];
            const struct tc_tensor *first;
            struct tc_text name = tensor->name;
            struct tc_sparse sparse;
            bool taken = !is_replaced(plan, r, name);
            bool dense = false;
            if ((select && taken &&
                 !tc_select_apply(select, tensor->name, &plan->arena, &taken, &name, error)) ||
                (taken && !tc_sparse_find_group(plan, &reader->table, tensor, &sparse, &dense,
                                                &first, error)))
                return tc_error_in_file(error, reader->input->path);
            bool done = dense && first != tensor;
            bool ok = done || take_scaled(plan, &scales, r, tensor, taken, place, &done, problem);
            if (ok && (!taken || done))
                continue;
            if (!ok ||
                !(dense ? add_dense(plan, r, &sparse, place, problem)
                        : add_item(plan, r, tensor, (struct origin){0}, name, place, problem))) {
                if (!note_problem(plan, problem, error))
                    return false;
                *problem = (struct tc_error){0};
            }
        }
    }
    return error->class == TC_OK;
}

/* Adds a hint with the most similar name of all inputs. */
static bool hint_tensor(const struct tc_plan *plan, struct tc_text name, struct tc_error *error) {
    struct tc_near near;
    tc_near_init(&near, name);
    for (size_t r = 0; r < plan->reader_count; r++)
        for (size_t i = 0; i < plan->readers[r]->table.count; i++)
            tc_near_try(&near, plan->readers[r]->table.tensors[i].name);
    return tc_near_hint(&near, error, "tconv list prints the names");
}

/* Fails where something that the user asked for by name is not there, or no tensor
 * is left. */
static bool check_selection(const struct tc_plan *plan, struct tc_error *error) {
    const struct tc_select *select = plan->options->select;
    if (!select)
        return true;
    /* The selection matched only members that are no tensors. */
    for (size_t r = 0; r < plan->reader_count && plan->count == 0; r++)
        if (tc_notes_count(&plan->readers[r]->notes, TC_LOSS, TC_KIND_SKIPPED))
            return tc_reader_refuse_rest(plan->readers[r], error);
    if (select->only.bytes && plan->count == 0) {
        tc_fail(error, TC_USAGE, "no-such-tensor", "there is no such tensor");
        tc_error_in_tensor(error, select->only.bytes, select->only.length);
        hint_tensor(plan, select->only, error);
        return tc_error_in_file(error, plan->readers[0]->input->path);
    }
    for (size_t i = 0; i < select->row_count; i++)
        if (!select->rows[i].used) {
            tc_fail(error, TC_USAGE, "no-such-tensor",
                    "--rows names a tensor that is not there or left out");
            tc_error_in_tensor(error, select->rows[i].name.bytes, select->rows[i].name.length);
            return hint_tensor(plan, select->rows[i].name, error);
        }
    bool filtered = select->include_count || select->exclude_count;
    if (filtered && plan->count == 0) {
        tc_fail(error, TC_USAGE, "nothing-selected",
                "no tensor is left after --include and "
                "--exclude");
        return tc_error_in_file(error, plan->readers[0]->input->path);
    }
    return true;
}

static bool has_tie(const struct tc_plan *plan) {
    for (size_t i = 0; i < plan->count; i++)
        if (plan->items[i].tensor->tie || plan->items[i].tensor->storage)
            return true;
    return false;
}

static bool has_dense(const struct tc_plan *plan) {
    for (size_t i = 0; i < plan->count; i++)
        if (plan->items[i].densify)
            return true;
    return false;
}

/* Marks what an item is read from; parts of a weight may be of other inputs than its own. */
static void mark_scaled(const struct tc_plan *plan, const struct tc_scaled *scaled) {
    const struct tc_scaled_part parts[] = {scaled->weight, scaled->scale, scaled->global};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        for (size_t r = 0; parts[p].tensor && r < plan->reader_count; r++)
            if (plan->readers[r] == parts[p].reader)
                plan->taken[r][parts[p].tensor - parts[p].reader->table.tensors] = true;
}

static bool note_option(struct tc_plan *plan, bool unused, const char *text,
                        struct tc_error *error) {
    return !unused ||
           tc_plan_note(plan, TC_WARNING, TC_KIND_OPTION, no_tensor(), error, "%s", text);
}

/* Adds warnings for format options that the target does not have. */
static bool note_settings(struct tc_plan *plan, const struct tc_option_settings *settings,
                          struct tc_error *error) {
    for (size_t i = 0; i < settings->count; i++) {
        const struct tc_format_option *option = settings->list[i].option;
        if (tc_option_is_changed(&settings->list[i]) &&
            !tc_backend_declares(plan->target, option) &&
            !tc_plan_note(plan, TC_WARNING, TC_KIND_OPTION, no_tensor(), error,
                          "--%s has nothing to do: the output is no %s", option->name,
                          option->target))
            return false;
    }
    return true;
}

/* Asks of --exclude also about the values of checkpoints that are kept as metadata
 * (core/plan/kept_metadata.c), so that a rule which matches one of them counts as
 * used. */
static bool match_leaves(const struct tc_plan *plan, struct tc_error *error) {
    const struct tc_select *select = plan->options->select;
    for (size_t r = 0; select && select->exclude_count && r < plan->reader_count; r++) {
        const struct tc_metadata *metadata = &plan->readers[r]->table.metadata;
        bool excluded;
        for (size_t i = 0; plan->readers[r]->leaves && i < metadata->count; i++)
            if (!tc_select_excludes(select, metadata->pairs[i].key, &excluded, error))
                return false;
    }
    return true;
}

/* Adds warnings for options that have no effect. */
static bool note_unused(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_plan_options *options = plan->options;
    bool tied = options->tied == TC_TIED_KEEP || options->tied == TC_TIED_COPY;
    bool holds = plan->target->caps & TC_CAN_FILE_METADATA;
    return match_leaves(plan, error) &&
           (!options->select || tc_select_note_unused(options->select, &plan->notes, error)) &&
           tc_policy_note_unused(plan, error) &&
           note_option(plan, tied && !has_tie(plan),
                       options->tied == TC_TIED_KEEP
                           ? "--tied=keep has nothing to do: no tensors share their data"
                           : "--tied=copy has nothing to do: no tensors share their data",
                       error) &&
           note_option(plan, options->densify && !has_dense(plan),
                       "--densify has nothing to do: no sparse tensor is taken whole", error) &&
           note_option(plan, options->dequantise && !plan->dequantised,
                       "--dequantize has nothing to do: no weight has scales of its own", error) &&
           note_option(plan, options->keep_metadata == TC_KEEP_SIDECAR && holds,
                       "--keep-metadata=sidecar has nothing to do: the output holds metadata",
                       error) &&
           note_settings(plan, &options->write.settings, error);
}

/* Which tensors of each reader have an item. */
static bool list_taken(struct tc_plan *plan, struct tc_error *error) {
    plan->taken = tc_arena_array(&plan->arena, plan->reader_count, sizeof(bool *), error);
    if (!plan->taken)
        return false;
    for (size_t r = 0; r < plan->reader_count; r++) {
        size_t count = plan->readers[r]->table.count;
        plan->taken[r] = tc_arena_array(&plan->arena, count, sizeof(bool), error);
        if (!plan->taken[r])
            return false;
    }
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        const struct tc_densify *densify = item->densify;
        if (item->dequantise) {
            mark_scaled(plan, &item->dequantise->scaled);
            continue;
        }
        const struct tc_tensor *parts[] = {item->tensor, NULL, NULL, NULL};
        if (densify) {
            parts[0] = densify->first, parts[1] = densify->values, parts[2] = densify->shape;
            parts[3] = densify->plain;
        }
        for (size_t p = 0; p < 4 && parts[p]; p++)
            plan->taken[item->source][parts[p] - item->reader->table.tensors] = true;
    }
    return true;
}

bool tc_plan_collect_items(struct tc_plan *plan, struct tc_error *error) {
    uint64_t total = 0;
    for (size_t r = 0; r < plan->reader_count; r++)
        total += plan->readers[r]->table.count;
    plan->items = tc_arena_array(&plan->arena, total, sizeof *plan->items, error);
    /* In the arena, since an error is too large for a small stack. */
    struct tc_error *problem = tc_arena_alloc(&plan->arena, sizeof *problem, error);
    if (!plan->items || !problem || !select_items(plan, problem, error) ||
        !check_selection(plan, error) || !check_unique(plan, error) || !list_taken(plan, error) ||
        !tc_sparse_note_broken(plan, error) || !note_unused(plan, error))
        return false;
    bool one = !(plan->target->caps & TC_CAN_HOLD_MANY) && !plan->options->folder &&
               !(plan->target->caps & TC_CAN_HOLD_SPARSE && tc_sparse_is_all(plan));
    if (one && plan->count > 1) {
        tc_fail(error, TC_UNSUPPORTED, "many-tensors", "%s holds one tensor, the input has %zu",
                plan->target->name, plan->count);
        const char *many = plan->target->many;
        return tc_error_hint(error,
                             "write %s%s%sa folder (DIR/ -t %s, in a batch --per-tensor), or use "
                             "tconv get",
                             many ? "-t " : "", many ? many : "", many ? ", or " : "",
                             plan->target->name);
    }
    if (one && plan->count == 0)
        return tc_fail(error, TC_UNSUPPORTED, "no-tensor",
                       "%s holds one tensor, the input has none", plan->target->name);
    return true;
}
