#include "core/tensor/sparse_group.h"

const struct tc_sparse_layout tc_sparse_layouts[TC_SPARSE_KINDS] = {
    [TC_SPARSE_COO] = {.name = "coo", .roles = {"indices", "values", "shape"}, .parts = 3},
    [TC_SPARSE_CSR] = {.name = "csr",
                       .roles = {"crow_indices", "col_indices", "values", "shape"},
                       .parts = 4,
                       .compressed = true},
    [TC_SPARSE_CSC] = {.name = "csc",
                       .roles = {"ccol_indices", "row_indices", "values", "shape"},
                       .parts = 4,
                       .compressed = true,
                       .by_column = true},
    [TC_SPARSE_BSR] = {.name = "bsr",
                       .roles = {"crow_indices", "col_indices", "values", "shape"},
                       .parts = 4,
                       .compressed = true,
                       .blocks = true},
    [TC_SPARSE_BSC] = {.name = "bsc",
                       .roles = {"ccol_indices", "row_indices", "values", "shape"},
                       .parts = 4,
                       .compressed = true,
                       .by_column = true,
                       .blocks = true},
};

const struct tc_sparse_layout *tc_sparse_layout(struct tc_text name) {
    for (size_t i = 0; i < TC_SPARSE_KINDS; i++)
        if (tc_text_equal(name, tc_text_of(tc_sparse_layouts[i].name)))
            return &tc_sparse_layouts[i];
    return NULL;
}

const struct tc_text *tc_sparse_parent(const struct tc_metadata *metadata) {
    return tc_metadata_find(metadata, TC_SPARSE_PARENT);
}

static bool is_of(const struct tc_tensor *tensor, struct tc_text parent) {
    const struct tc_text *of = tc_sparse_parent(tensor->metadata);
    return of && tc_text_equal(*of, parent);
}

/* The part called PARENT.ROLE, whatever role its metadata gives it; or NULL. */
static const struct tc_tensor *find_named(const struct tc_table *table, struct tc_text parent,
                                          const char *role) {
    struct tc_buffer name = {0};
    tc_buffer_add_text(&name, parent);
    tc_buffer_addf(&name, ".%s", role);
    const struct tc_tensor *part =
        name.failed ? NULL : tc_table_find(table, (struct tc_text){name.bytes, name.length});
    tc_buffer_release(&name);
    return part && is_of(part, parent) ? part : NULL;
}

/* The part that has this role by name and by metadata, or NULL. */
static const struct tc_tensor *find_part(const struct tc_table *table, struct tc_text parent,
                                         const char *role) {
    const struct tc_tensor *part = find_named(table, parent, role);
    const struct tc_text *found = part ? tc_metadata_find(part->metadata, TC_SPARSE_ROLE) : NULL;
    return found && tc_text_equal(*found, tc_text_of(role)) ? part : NULL;
}

const struct tc_tensor *tc_sparse_first(const struct tc_table *table, struct tc_text parent) {
    const struct tc_tensor *found = NULL;
    for (size_t i = 0; i < TC_SPARSE_KINDS && !found; i++)
        found = find_named(table, parent, tc_sparse_layouts[i].roles[0]);
    return found;
}

const struct tc_tensor *tc_sparse_part(const struct tc_table *table, const struct tc_sparse *sparse,
                                       unsigned index) {
    const struct tc_sparse_layout *layout = tc_sparse_layout(sparse->layout);
    return layout && index < layout->parts ? find_part(table, sparse->parent, layout->roles[index])
                                           : NULL;
}

bool tc_sparse_of(const struct tc_table *table, const struct tc_tensor *tensor,
                  struct tc_sparse *sparse) {
    const struct tc_text *parent = tc_sparse_parent(tensor->metadata);
    const struct tc_text *role = tc_metadata_find(tensor->metadata, TC_SPARSE_ROLE);
    const struct tc_text *named = tc_metadata_find(tensor->metadata, TC_SPARSE_LAYOUT);
    if (!parent || !role)
        return false;
    for (size_t i = 0; i < TC_SPARSE_KINDS; i++) {
        const struct tc_sparse_layout *layout = &tc_sparse_layouts[i];
        if (named && !tc_text_equal(*named, tc_text_of(layout->name)))
            continue;
        bool mine = false;
        bool complete = true;
        for (unsigned r = 0; r < layout->parts && complete; r++) {
            mine |= tc_text_equal(*role, tc_text_of(layout->roles[r]));
            complete = find_part(table, *parent, layout->roles[r]) != NULL;
        }
        if (mine && complete) {
            *sparse = (struct tc_sparse){*parent, *role, tc_text_of(layout->name)};
            return true;
        }
    }
    return false;
}

struct tc_text tc_sparse_name(struct tc_arena *arena, const struct tc_sparse_layout *layout,
                              struct tc_text parent, unsigned part, struct tc_error *error) {
    struct tc_buffer name = {0};
    tc_buffer_add_text(&name, parent);
    tc_buffer_addf(&name, ".%s", layout->roles[part]);
    struct tc_text kept = {NULL, name.length};
    if (tc_buffer_ok(&name, error))
        kept.bytes = tc_arena_copy(arena, name.bytes, name.length, error);
    tc_buffer_release(&name);
    return kept;
}

struct tc_metadata *tc_sparse_metadata(struct tc_arena *arena,
                                       const struct tc_sparse_layout *layout, struct tc_text parent,
                                       unsigned part, struct tc_error *error) {
    struct tc_metadata *metadata = tc_arena_alloc(arena, sizeof *metadata, error);
    bool ok =
        metadata &&
        tc_metadata_add(metadata, arena, TC_SPARSE_LAYOUT, tc_text_of(layout->name), error) &&
        tc_metadata_add(metadata, arena, TC_SPARSE_PARENT, parent, error) &&
        tc_metadata_add(metadata, arena, TC_SPARSE_ROLE, tc_text_of(layout->roles[part]), error);
    return ok ? metadata : NULL;
}
