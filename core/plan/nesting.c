#include "core/plan/nesting.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/densify.h"
#include "core/format/reader.h"
#include "core/format/sparse_check.h"
#include "core/format/tree.h"
#include "core/plan/dtype_policy.h"
#include "core/tensor/select.h"
#include "core/tensor/table.h"

#define FLAT "lists, dicts and objects in one another are written flat, their keys joined with dots"
#define LEFT_OUT "the checkpoint tree (" TC_TREE_KEY ") is left out"

static const struct tc_text *find_tree(const struct tc_reader *reader) {
    return tc_metadata_find(&reader->table.metadata, TC_TEXT(TC_TREE_KEY));
}

/* Remembers what the ledger says, since what readers have noted comes first. */
static bool note(struct tc_plan *plan, enum tc_severity severity, const char *text,
                 const char *reason, struct tc_error *error) {
    struct tc_buffer detail = {0};
    tc_buffer_addf(&detail, "%s%s", text, reason ? reason : "");
    plan->structure_severity = severity;
    return (plan->structure = tc_plan_keep(plan, &detail, error)) != NULL;
}

/* Whether the user asked for something that the tree can't be true of: other tensors or other names
 * than it has, several inputs, none of the metadata. */
static bool is_given_up(const struct tc_plan *plan) {
    const struct tc_plan_options *options = plan->options;
    const struct tc_select *select = options->select;
    bool chosen = select && (select->include_count || select->exclude_count || select->row_count ||
                             tc_select_renames(select));
    return options->trees == TC_TREES_NEVER || options->keep_metadata == TC_KEEP_DROP || chosen ||
           options->densify || options->dequantise || plan->reader_count > 1;
}

static bool is_held(const struct tc_plan *plan) {
    return !plan->options->folder && (plan->target->caps & TC_CAN_FILE_METADATA ||
                                      plan->options->keep_metadata == TC_KEEP_SIDECAR);
}

/* Adds the losses of what only a tree holds. */
static bool lose_values(struct tc_plan *plan, struct tc_error *error) {
    for (size_t r = 0; r < plan->reader_count; r++)
        if (!tc_notes_merge(&plan->notes, &plan->readers[r]->tree_notes, TC_WARNING, error))
            return false;
    return true;
}

/* What the tensors of the only input will be: as they are written or, `first`, as they were before
 * an earlier conversion changed them, which is what they can be again. */
static const uint8_t *list_dtypes(struct tc_plan *plan, bool first, struct tc_error *error) {
    const struct tc_table *table = &plan->readers[0]->table;
    uint8_t *dtypes = tc_arena_array(&plan->arena, table->count, sizeof *dtypes, error);
    for (size_t i = 0; dtypes && i < table->count; i++)
        dtypes[i] = table->tensors[i].dtype;
    for (size_t i = 0; dtypes && i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        dtypes[item->tensor - table->tensors] =
            first ? (uint8_t)tc_policy_first_dtype(item) : item->dtype;
    }
    return dtypes;
}

static bool match(struct tc_plan *plan, struct tc_tree *tree, bool first, struct tc_error *error) {
    const uint8_t *dtypes = list_dtypes(plan, first, error);
    return dtypes && tc_tree_match(tree, &plan->readers[0]->table, dtypes, &plan->arena, error);
}

/* Whether the parts of each sparse tensor have shapes that belong together, and indices that lie in
 * them: torch would not load it otherwise. */
static bool check_sparse(struct tc_plan *plan, const struct tc_tree *tree, struct tc_error *error) {
    struct tc_reader *reader = plan->readers[0];
    for (size_t i = 0; i < tree->count; i++) {
        const struct tc_tree_node *node = &tree->nodes[i];
        const struct tc_tensor *parts[4] = {NULL};
        if (node->kind != TC_TREE_SPARSE)
            continue;
        for (unsigned p = 0; p < node->tensor->parts; p++)
            parts[p] = &reader->table.tensors[node->tensor->position[p]];
        const struct tc_densify *measured = tc_densify_measure(
            reader, node->tensor->layout, parts, node->tensor->name, &plan->arena, error);
        if (measured && tc_sparse_check(measured, node->tensor->coalesced, error))
            continue;
        bool unfit = error->reason == TC_REASON_SPARSE;
        if (unfit)
            *error = (struct tc_error){0};
        return unfit &&
               tc_fail(error, TC_UNSUPPORTED, "stale-tree", "\"%.*s\" is no sparse tensor any more",
                       tc_text_shown(node->tensor->name, 200), node->tensor->name.bytes);
    }
    return true;
}

/* A tree that was in the file's metadata may be anything: it is an aid, and not the data. */
static bool read_given(struct tc_plan *plan, const struct tc_reader *reader, struct tc_text text,
                       struct tc_tree *tree, bool *fits, struct tc_error *error) {
    struct tc_error *problem = tc_arena_alloc(&plan->arena, sizeof *problem, error);
    if (!problem)
        return false;
    *fits = tc_tree_parse(tree, text, &plan->arena, problem) && match(plan, tree, true, problem) &&
            check_sparse(plan, tree, problem);
    if (*fits)
        return true;
    if (problem->class != TC_INVALID && problem->class != TC_UNSUPPORTED) {
        *error = *problem;
        return tc_error_in_file(error, reader->input->path);
    }
    bool stale = problem->class == TC_UNSUPPORTED;
    if (!stale) {
        struct tc_error *told = tc_arena_alloc(&plan->arena, sizeof *told, error);
        if (!told)
            return false;
        tc_fail(told, TC_INVALID, "tree", "the checkpoint tree (" TC_TREE_KEY ") is none: %s",
                problem->message);
        tc_error_in_file(told, reader->input->path);
        plan->tree_problem = told;
    }
    return note(plan, TC_LOSS,
                stale ? "the checkpoint tree (" TC_TREE_KEY
                        ") is not that of these tensors, and is left out: "
                      : "the checkpoint tree (" TC_TREE_KEY ") is none, and is left out: ",
                problem->message, error);
}

/* Makes the tree of a checkpoint. *why is NULL where there is one. */
static bool make_own(struct tc_plan *plan, struct tc_reader *reader, struct tc_tree *tree,
                     const char **why, struct tc_error *error) {
    struct tc_buffer text = {0};
    struct tc_error *problem = tc_arena_alloc(&plan->arena, sizeof *problem, error);
    if (!problem || !reader->backend->tree(reader, &text, why, error)) {
        tc_buffer_release(&text);
        return problem ? tc_error_in_file(error, reader->input->path) : false;
    }
    size_t length = text.length;
    const char *copy = *why ? NULL : tc_plan_keep(plan, &text, error);
    tc_buffer_release(&text);
    if (*why || !copy)
        return *why != NULL;
    if (tc_tree_parse(tree, (struct tc_text){copy, length}, &plan->arena, problem) &&
        tc_tree_match(tree, &reader->table, NULL, &plan->arena, problem)) {
        tree->own = true;
        if (match(plan, tree, true, problem))
            return true;
        *why = problem->message; /* the dtypes that the user asks for do not fit it */
    } else
        *why = "it holds something that no tree can";
    if (problem->class == TC_INVALID || problem->class == TC_UNSUPPORTED)
        return true;
    *error = *problem;
    return false;
}

static bool keep(struct tc_plan *plan, struct tc_tree *tree, struct tc_error *error) {
    plan->tree = tree;
    return tc_metadata_set(&plan->metadata, &plan->arena, TC_TEXT(TC_TREE_KEY), tree->text, error);
}

void tc_nesting_expect(struct tc_plan *plan) {
    const struct tc_select *select = plan->options->select;
    plan->resumes = !is_given_up(plan) && is_held(plan) && !(select && select->only.bytes) &&
                    find_tree(plan->readers[0]) != NULL;
}

bool tc_nesting_plan(struct tc_plan *plan, struct tc_error *error) {
    bool nested = false;
    bool given = false;
    for (size_t r = 0; r < plan->reader_count; r++) {
        nested |= plan->readers[r]->nested;
        given |= find_tree(plan->readers[r]) != NULL;
    }
    struct tc_reader *reader = plan->readers[0];
    const struct tc_select *select = plan->options->select;
    const struct tc_text *text = find_tree(reader);
    const char *why = NULL;
    bool fits = false;
    /* Where one tensor is selected by its name, no structure can be lost. */
    if (select && select->only.bytes)
        return true;
    bool wanted = text || (reader->backend->tree &&
                           (!reader->plain || plan->options->trees == TC_TREES_ALWAYS));
    if (is_given_up(plan) || !wanted)
        return (!nested || note(plan, TC_CHANGE, FLAT, NULL, error)) &&
               (nested || !given || note(plan, TC_CHANGE, LEFT_OUT, NULL, error));
    struct tc_tree *tree = tc_arena_alloc(&plan->arena, sizeof *tree, error);
    if (!tree)
        return false;
    if (text) {
        if (!read_given(plan, reader, *text, tree, &fits, error))
            return false;
        if (fits && is_held(plan))
            return keep(plan, tree, error);
        return !fits || note(plan, TC_LOSS,
                             "the output has no place for the checkpoint tree (" TC_TREE_KEY ")",
                             NULL, error);
    }
    if (!make_own(plan, reader, tree, &why, error))
        return false;
    if (!why && is_held(plan))
        return keep(plan, tree, error);
    struct tc_buffer reason = {0};
    tc_buffer_addf(&reason, "%s%s", why ? "; no tree can hold the file: " : "; ",
                   why ? why : "the output has no place for their nesting");
    bool ok = tc_buffer_ok(&reason, error);
    if (ok && nested) {
        tc_buffer_add(&reason, "", 1);
        ok = tc_buffer_ok(&reason, error) && note(plan, TC_LOSS, FLAT, reason.bytes, error);
    }
    tc_buffer_release(&reason);
    return ok;
}

/* Whoever reads a nested output finds each tensor by its path. */
static bool name_by_path(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_table *table = &plan->readers[0]->table;
    const struct tc_tree_tensor **users =
        tc_arena_array(&plan->arena, table->count, sizeof *users, error);
    if (!users)
        return false;
    for (size_t i = 0; i < plan->tree->count; i++) {
        const struct tc_tree_node *node = &plan->tree->nodes[i];
        if (node->kind >= TC_TREE_TENSOR && node->tensor->parts == 1)
            users[node->tensor->position[0]] = node->tensor;
    }
    for (size_t i = 0; i < plan->count; i++) {
        struct tc_item *item = &plan->items[i];
        const struct tc_tree_tensor *user = users[item->tensor - table->tensors];
        if (user && !tc_text_equal(user->path, item->name))
            item->written = user->path;
    }
    return true;
}

/* The objects that an output would nest are made of what is written: where dtypes were asked for
 * that make some of them impossible, it is not nested. */
static bool check_written(struct tc_plan *plan, struct tc_error *error) {
    struct tc_error *problem = tc_arena_alloc(&plan->arena, sizeof *problem, error);
    if (!problem)
        return false;
    if (match(plan, plan->tree, false, problem))
        return true;
    if (problem->class != TC_UNSUPPORTED) {
        *error = *problem;
        return false;
    }
    struct tc_buffer reason = {0};
    plan->tree = NULL;
    plan->nests = false;
    tc_metadata_remove(&plan->metadata, TC_TEXT(TC_TREE_KEY));
    tc_buffer_addf(&reason, "; no tree can hold them: %s", problem->message);
    tc_buffer_add(&reason, "", 1);
    bool ok = tc_buffer_ok(&reason, error) && note(plan, TC_LOSS, FLAT, reason.bytes, error);
    tc_buffer_release(&reason);
    return ok;
}

bool tc_nesting_settle(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_text *kept = tc_metadata_find(&plan->metadata, TC_TEXT(TC_TREE_KEY));
    bool nested = plan->readers[0]->nested;
    bool dropped = false;
    /* The user may have dropped it, or a value that is in it, or given another. */
    if (plan->tree && !tc_nesting_is_dropped(plan, &dropped, error))
        return false;
    if (plan->tree && (dropped || !kept || kept->bytes != plan->tree->text.bytes)) {
        if (dropped && kept && kept->bytes == plan->tree->text.bytes)
            tc_metadata_remove(&plan->metadata, TC_TEXT(TC_TREE_KEY));
        plan->tree = NULL;
        if ((nested || dropped) && !note(plan, TC_CHANGE, nested ? FLAT : LEFT_OUT, NULL, error))
            return false;
    }
    plan->nests =
        plan->tree && plan->target->caps & TC_CAN_NEST && plan->file_count == 1 && !plan->in_shards;
    if (plan->nests && !check_written(plan, error))
        return false;
    if (plan->tree && nested && !plan->nests &&
        !note(plan, TC_CHANGE, FLAT, "; " TC_TREE_KEY " in the metadata says how they were nested",
              error))
        return false;
    const struct tc_select *select = plan->options->select;
    if (!plan->tree && !(select && select->only.bytes) && !lose_values(plan, error))
        return false;
    if (plan->structure && !tc_plan_note(plan, plan->structure_severity, TC_KIND_STRUCTURE,
                                         (struct tc_text){NULL, 0}, error, "%s", plan->structure))
        return false;
    return !plan->nests || name_by_path(plan, error);
}
