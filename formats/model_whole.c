#include "formats/model_whole.h"

#include "core/format/restore_metadata.h"
#include "formats/model_name.h"
#include "formats/registry.h"

/* Which files belong to a model, by their endings. */
static const struct kind {
    struct tc_text endings[2];
    const char *needed; /* a file without which they say nothing; NULL: none */
    const char *problem;
} kinds[] = {
    {{TC_TEXT(".distcp")},
     ".metadata",
     "a distributed checkpoint without its table, .metadata: was saving it cut short?"},
    {{TC_TEXT("_optim_states.pt"), TC_TEXT("_model_states.pt")}, NULL, NULL},
};

static bool has_ending(const struct kind *kind, struct tc_text name) {
    for (size_t i = 0; i < sizeof kind->endings / sizeof *kind->endings; i++)
        if (kind->endings[i].length && tc_text_ends(name, kind->endings[i]))
            return true;
    return false;
}

static const struct kind *kind_of(const struct tc_listing *listing) {
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < listing->count; i++)
            /* The first ending is that of a file which no single model has. */
            if (tc_text_ends(listing->entries[i].name, kinds[k].endings[0]))
                return &kinds[k];
    return NULL;
}

static bool is_array(struct tc_text name) {
    struct model_name parsed = model_name_parse(name, (struct tc_text){0});
    return name.bytes[0] != '.' && !parsed.is_index && parsed.backend == tc_registry_for_one();
}

/* Whether the folder has the true names of tensors, and no weights but arrays. */
static bool are_arrays(const struct tc_listing *listing) {
    size_t arrays = 0;
    if (!tc_listing_find(listing, TC_TEXT(TC_NAMES_FILE)))
        return false;
    for (size_t i = 0; i < listing->count; i++) {
        const struct tc_entry *entry = &listing->entries[i];
        struct model_name name = model_name_parse(entry->name, (struct tc_text){0});
        bool weights = name.backend && entry->kind != TC_ENTRY_FOLDER &&
                       entry->name.bytes[0] != '.' && !model_name_is_training(entry->name);
        if (weights && !is_array(entry->name))
            return false;
        arrays += weights;
    }
    return arrays > 0;
}

static bool belongs(const struct kind *kind, struct tc_text name) {
    return kind ? has_ending(kind, name) : is_array(name);
}

struct model_whole model_whole_find(const struct tc_listing *listing) {
    const struct kind *kind = kind_of(listing);
    struct model_whole whole = {.found = kind || are_arrays(listing)};
    if (kind && kind->needed && !tc_listing_find(listing, tc_text_of(kind->needed)))
        whole = (struct model_whole){true, 0, kind->problem, TC_INVALID};
    for (size_t i = 0; i < listing->count && whole.found; i++) {
        const struct tc_entry *entry = &listing->entries[i];
        struct model_name name = model_name_parse(entry->name, (struct tc_text){0});
        if (belongs(kind, entry->name))
            whole.size += entry->size;
        else if (name.family && entry->kind == TC_ENTRY_FILE && !whole.problem) {
            /* Who opens the folder would read that file. */
            whole.problem = "a checkpoint in several files, in a folder that has other models too";
            whole.class = TC_UNSUPPORTED;
        }
    }
    return whole;
}

bool model_whole_has(const struct tc_listing *listing, struct tc_text name) {
    return belongs(kind_of(listing), name);
}
