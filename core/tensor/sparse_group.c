#include "core/tensor/sparse_group.h"

static const struct tc_sparse_layout layouts[] = {
    {"coo", {"indices", "values", "shape"}, 3},
    {"csr", {"crow_indices", "col_indices", "values", "shape"}, 4},
    {"csc", {"ccol_indices", "row_indices", "values", "shape"}, 4},
    {"bsr", {"crow_indices", "col_indices", "values", "shape"}, 4},
    {"bsc", {"ccol_indices", "row_indices", "values", "shape"}, 4},
};

const struct tc_sparse_layout *tc_sparse_layout(struct tc_text name) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (tc_text_equal(name, tc_text_of(layouts[i].name)))
            return &layouts[i];
    return NULL;
}

static const struct tc_text *role_of(const struct tc_tensor *tensor, struct tc_text parent) {
    const struct tc_text *of = tc_metadata_find(tensor->metadata, TC_TEXT("sparse_parent"));
    if (!of || !tc_text_equal(*of, parent))
        return NULL;
    return tc_metadata_find(tensor->metadata, TC_TEXT("sparse_role"));
}

/* The part of a sparse tensor in this role, or NULL. */
static const struct tc_tensor *find_part(const struct tc_table *table, struct tc_text parent,
                                         const char *role) {
    struct tc_buffer name = {0};
    tc_buffer_add_text(&name, parent);
    tc_buffer_addf(&name, ".%s", role);
    const struct tc_tensor *part =
        name.failed ? NULL : tc_table_find(table, (struct tc_text){name.bytes, name.length});
    tc_buffer_release(&name);
    const struct tc_text *found = part ? role_of(part, parent) : NULL;
    return found && tc_text_equal(*found, tc_text_of(role)) ? part : NULL;
}

const struct tc_tensor *tc_sparse_part(const struct tc_table *table, const struct tc_sparse *sparse,
                                       unsigned index) {
    const struct tc_sparse_layout *layout = tc_sparse_layout(sparse->layout);
    return layout && index < layout->parts ? find_part(table, sparse->parent, layout->roles[index])
                                           : NULL;
}

bool tc_sparse_of(const struct tc_table *table, const struct tc_tensor *tensor,
                  struct tc_sparse *sparse) {
    const struct tc_text *parent = tc_metadata_find(tensor->metadata, TC_TEXT("sparse_parent"));
    const struct tc_text *role = tc_metadata_find(tensor->metadata, TC_TEXT("sparse_role"));
    const struct tc_text *named = tc_metadata_find(tensor->metadata, TC_TEXT("sparse_layout"));
    if (!parent || !role)
        return false;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct tc_sparse_layout *layout = &layouts[i];
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

struct tc_metadata *tc_sparse_metadata(struct tc_arena *arena, const char *layout,
                                       struct tc_text parent, const char *role,
                                       struct tc_error *error) {
    struct tc_metadata *metadata = tc_arena_alloc(arena, sizeof *metadata, error);
    bool ok =
        metadata &&
        tc_metadata_add(metadata, arena, TC_TEXT("sparse_layout"), tc_text_of(layout), error) &&
        tc_metadata_add(metadata, arena, TC_TEXT("sparse_parent"), parent, error) &&
        tc_metadata_add(metadata, arena, TC_TEXT("sparse_role"), tc_text_of(role), error);
    return ok ? metadata : NULL;
}
