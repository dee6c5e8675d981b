#include "formats/model_folder.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/limits.h"
#include "core/base/path.h"
#include "formats/registry.h"
#include "formats/zero/zero.h"

#define DCP_TABLE ".metadata"
/* Files of a distributed checkpoint, which say nothing without its table. */
#define DCP_EXTENSION ".distcp"
/* Endings of the files of DeepSpeed's ZeRO, which have parts of the weights. */
#define ZERO_MODEL "_model_states.pt"
#define ZERO_OPTIMISER "_optim_states.pt"

/* How many names an error or a note lists. */
#define MOST_LISTED 12

/* What transformers and diffusers look for, in their order. */
static const struct {
    const char *stem;
    const char *extension;
    bool is_index;
} first_names[] = {
    {"model", ".safetensors", false},
    {"model", ".safetensors", true},
    {"pytorch_model", ".bin", false},
    {"pytorch_model", ".bin", true},
    {"diffusion_pytorch_model", ".safetensors", false},
    {"diffusion_pytorch_model", ".safetensors", true},
    {"diffusion_pytorch_model", ".bin", false},
    {"diffusion_pytorch_model", ".bin", true},
};
#define FIRST_NAMES (sizeof first_names / sizeof *first_names)

/* Files that may be part of a model, with what their names say. */
struct candidate {
    struct model_name name;
    struct tc_text file;
    uint64_t size;
    const struct tc_backend *backend;
    bool by_content;
};

struct search {
    struct model_folder *folder;
    const struct tc_listing *listing;
    const struct model_wanted *wanted;
    struct candidate *candidates;
    size_t count;
    bool zero; /* the folder has files of ZeRO's optimiser, and its other files belong to them */
};

static unsigned place_of(const struct model_name *name) {
    for (unsigned i = 0; i < FIRST_NAMES; i++)
        if (!name->is_shard && name->is_index == first_names[i].is_index &&
            tc_text_equal(name->stem, tc_text_of(first_names[i].stem)) &&
            tc_text_equal(name->extension, tc_text_of(first_names[i].extension)))
            return i;
    return FIRST_NAMES + (name->family == MODEL_FAMILY_NONE);
}

/* Formats that are data alone come first, and pickles last. */
static unsigned order_of(const struct tc_backend *backend) {
    unsigned order = 2;
    if (backend == &tc_backend_safetensors || backend == &tc_backend_deathtensors)
        return backend == &tc_backend_deathtensors;
    while (tc_registry[order - 2] != backend)
        order++;
    return backend == &tc_backend_pt ? UINT32_MAX : order;
}

/* Whether a variant that nobody asked for. */
static bool is_other_variant(const struct model_wanted *wanted, const struct model_name *name) {
    return !wanted->variant && name->variant.bytes;
}

static int compare_numbers(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int by_preference(const void *a, const void *b, void *context) {
    const struct model *x = a;
    const struct model *y = b;
    const struct model_wanted *wanted = context;
    int order = is_other_variant(wanted, &x->name) - is_other_variant(wanted, &y->name);
    order = order ? order : (x->form == MODEL_ARRAYS) - (y->form == MODEL_ARRAYS);
    order = order ? order : compare_numbers(place_of(&x->name), place_of(&y->name));
    order = order ? order : compare_numbers(order_of(x->backend), order_of(y->backend));
    /* Of shards those that are all there, and a file before shards. */
    order = order ? order : (x->missing != 0) - (y->missing != 0);
    order = order ? order : (int)x->form - (int)y->form;
    order = order ? order : (int)y->name.is_index - (int)x->name.is_index;
    order = order ? order : compare_numbers(y->size, x->size);
    return order ? order : tc_text_compare(x->files[0], y->files[0]);
}

static bool variant_fits(const struct search *search, const struct model_name *name) {
    const char *variant = search->wanted->variant;
    return !variant || (name->variant.bytes && tc_text_equal(name->variant, tc_text_of(variant)));
}

static bool format_fits(const struct search *search, const struct model_name *name,
                        const struct tc_backend *backend) {
    const struct tc_backend *format = search->wanted->format;
    return !format || format == backend || (name->is_index && tc_registry_is_index(format));
}

static void add_candidate(struct search *search, const struct tc_entry *entry,
                          const struct model_name *name, const struct tc_backend *content) {
    search->candidates[search->count++] =
        (struct candidate){.name = *name,
                           .file = entry->name,
                           .size = entry->size,
                           .backend = content ? content : name->backend,
                           .by_content = content && content != name->backend};
}

/* What may be a file of weights at all: no hidden file, nothing of a training. */
static bool is_eligible(const struct tc_entry *entry) {
    return entry->kind == TC_ENTRY_FILE && entry->name.bytes[0] != '.' &&
           !tc_text_ends(entry->name, TC_TEXT(DCP_EXTENSION)) &&
           !tc_text_ends(entry->name, TC_TEXT(ZERO_OPTIMISER)) &&
           !model_name_is_training(entry->name);
}

/* Whether it is a file of the model in a folder of a ZeRO checkpoint. */
static bool is_zero(const struct search *search, const struct tc_entry *entry) {
    return search->zero && tc_text_ends(entry->name, TC_TEXT(ZERO_MODEL));
}

static bool has_optimiser(const struct search *search) {
    for (size_t i = 0; i < search->listing->count; i++)
        if (tc_text_ends(search->listing->entries[i].name, TC_TEXT(ZERO_OPTIMISER)))
            return true;
    return false;
}

static struct model_name parse(const struct search *search, struct tc_text file) {
    const char *variant = search->wanted->variant;
    return model_name_parse(file, variant ? tc_text_of(variant) : (struct tc_text){0});
}

static void list_by_name(struct search *search) {
    for (size_t i = 0; i < search->listing->count; i++) {
        const struct tc_entry *entry = &search->listing->entries[i];
        struct model_name name = parse(search, entry->name);
        if (is_eligible(entry) && !is_zero(search, entry) && name.backend &&
            variant_fits(search, &name) && format_fits(search, &name, name.backend))
            add_candidate(search, entry, &name, NULL);
    }
}

/* Sets the format that a file's content shows; NULL where it shows none, or where the file is
 * refused, as a link that leads out of the folder is. Fails where the file can't be read, since it
 * may be the model. */
static bool look_at(const struct search *search, struct tc_text file,
                    const struct tc_backend **backend, struct tc_error *error) {
    struct tc_error failure = {0};
    struct tc_input *input = search->wanted->open(search->wanted->context, file.bytes, &failure);
    *backend = NULL;
    bool ok = input && tc_registry_recognise(input, backend, &failure);
    tc_input_close(input);
    if (!ok && failure.class == TC_IO) {
        *error = failure;
        return false;
    }
    return true;
}

/* Texts that stand beside every model; some begin as an index does. */
static bool is_text(struct tc_text file) {
    static const char *const endings[] = {".json", ".jsonl", ".txt",  ".md",   ".py",
                                          ".yaml", ".yml",   ".toml", ".html", ".csv"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (tc_text_ends(file, tc_text_of(endings[i])))
            return true;
    return false;
}

/* Files whose names say nothing, but whose content does. */
static bool list_by_content(struct search *search, struct tc_error *error) {
    for (size_t i = 0; i < search->listing->count; i++) {
        const struct tc_entry *entry = &search->listing->entries[i];
        struct model_name name = parse(search, entry->name);
        if (!is_eligible(entry) || is_zero(search, entry) || is_text(entry->name) ||
            !variant_fits(search, &name))
            continue;
        const struct tc_backend *backend;
        if (!look_at(search, entry->name, &backend, error))
            return false;
        if (backend && format_fits(search, &name, backend))
            add_candidate(search, entry, &name, backend);
    }
    return true;
}

/* What may be the table of a checkpoint in several files, of which format. Others have files of
 * these names, too: the content decides, except for the model file of a folder that has files of
 * ZeRO's optimiser. */
static const struct tc_backend *table_of(const struct search *search, struct tc_text file) {
    if (tc_text_equal(file, TC_TEXT(DCP_TABLE)))
        return &tc_backend_dcp;
    if (tc_text_equal(file, TC_TEXT("latest")))
        return &tc_backend_zero;
    if (!tc_text_equal(file, TC_TEXT("mp_rank_00" ZERO_MODEL)) &&
        !tc_text_equal(file, TC_TEXT("zero_pp_rank_0_mp_rank_00" ZERO_MODEL)))
        return NULL;
    return search->zero ? &tc_backend_zero : NULL;
}

/* Whether a file `latest` is one of DeepSpeed's: it names a folder that lies beside it. Where
 * nothing else is there to be read, what is wrong with its text is for its reader to say. */
static bool names_folder(const struct search *search, struct tc_text file) {
    char text[ZERO_TAG];
    struct tc_text tag;
    struct tc_error ignored = {0};
    if (!search->count)
        return true;
    struct tc_input *input = search->wanted->open(search->wanted->context, file.bytes, &ignored);
    bool read = input && input->size <= sizeof text &&
                tc_input_read(input, 0, text, (size_t)input->size, &ignored) &&
                zero_is_tag(text, (size_t)input->size, &tag);
    bool found = false;
    for (size_t i = 0; read && i < search->listing->count && !found; i++)
        found = search->listing->entries[i].kind == TC_ENTRY_FOLDER &&
                tc_text_equal(search->listing->entries[i].name, tag);
    tc_input_close(input);
    return found;
}

/* What is made of a checkpoint in several files has the usual name of a model. */
static bool list_tables(struct search *search, struct tc_error *error) {
    for (size_t i = 0; i < search->listing->count; i++) {
        const struct tc_entry *entry = &search->listing->entries[i];
        struct model_name name = {.stem = TC_TEXT("model"),
                                  .family = MODEL_FAMILY_TRANSFORMERS,
                                  .is_weights = true,
                                  .is_table = true};
        name.backend = table_of(search, entry->name);
        const struct tc_backend *backend = name.backend;
        if (!backend || entry->kind != TC_ENTRY_FILE || search->wanted->variant ||
            !format_fits(search, &name, backend))
            continue;
        if (!tc_text_ends(entry->name, TC_TEXT(ZERO_MODEL)) &&
            !look_at(search, entry->name, &backend, error))
            return false;
        bool fits = backend == name.backend && (!tc_text_equal(entry->name, TC_TEXT("latest")) ||
                                                names_folder(search, entry->name));
        if (fits)
            add_candidate(search, entry, &name, NULL);
    }
    return true;
}

/* Leaves out files of no usual name whose content is no model's: a .bin or .pkl may
 * be anything. */
static bool check_content(struct search *search, struct tc_error *error) {
    size_t kept = 0;
    for (size_t i = 0; i < search->count; i++) {
        struct candidate *candidate = &search->candidates[i];
        const struct tc_backend *backend = candidate->backend;
        if (!candidate->name.is_index && !look_at(search, candidate->file, &backend, error))
            return false;
        if (backend)
            search->candidates[kept++] = *candidate;
    }
    search->count = kept;
    return true;
}

static int compare_groups(const struct candidate *a, const struct candidate *b) {
    int order = tc_text_compare(a->name.stem, b->name.stem);
    order = order ? order : tc_text_compare(a->name.variant, b->name.variant);
    order = order ? order : tc_text_compare(a->name.extension, b->name.extension);
    order = order ? order : (int)b->name.is_index - (int)a->name.is_index;
    order = order ? order : (int)a->name.is_shard - (int)b->name.is_shard;
    return order ? order : compare_numbers(a->name.total, b->name.total);
}

static int by_group(const void *a, const void *b) {
    const struct candidate *x = a;
    const struct candidate *y = b;
    int order = compare_groups(x, y);
    order = order ? order : compare_numbers(x->name.number, y->name.number);
    return order ? order : tc_text_compare(x->file, y->file);
}

/* Adds candidates [from, to) as one model. */
static bool add_model(struct search *search, enum model_form form, size_t from, size_t to,
                      struct tc_error *error) {
    struct model_folder *folder = search->folder;
    struct model *model = &folder->models[folder->count];
    const struct candidate *first = &search->candidates[from];
    *model = (struct model){.form = form,
                            .name = first->name,
                            .backend = first->backend,
                            .by_content = first->by_content,
                            .count = to - from};
    model->files = tc_arena_array(&folder->arena, model->count, sizeof *model->files, error);
    if (!model->files)
        return false;
    for (size_t i = from; i < to; i++) {
        model->files[i - from] = search->candidates[i].file;
        model->size += search->candidates[i].size;
    }
    if (form == MODEL_SHARDS && model->count < first->name.total)
        model->missing = first->name.total - (uint32_t)model->count;
    folder->count++;
    return true;
}

/* Whether candidates [from, to) are shards 1 to M of M, or 0 to M - 1, some of which
 * may be missing; else each of them is a file of its own. */
static bool are_shards(const struct search *search, size_t from, size_t to) {
    const struct candidate *list = search->candidates;
    uint32_t total = list[from].name.total;
    uint32_t first = list[from].name.number == 0 ? 0 : 1;
    if (!list[from].name.is_shard || total == 0 || total > TC_MAX_SHARDS ||
        list[to - 1].name.number - first >= total)
        return false;
    for (size_t i = from + 1; i < to; i++)
        if (list[i].name.number == list[i - 1].name.number)
            return false;
    return true;
}

/* Whether the file is an index: one that is called so, or may be one, since in its
 * format an index has the name of a single file. */
static bool may_be_index(const struct candidate *candidate) {
    const struct tc_sharding *sharding = candidate->backend->sharding;
    return candidate->name.is_index ||
           (sharding && sharding->index_ending && !sharding->index_ending[0]);
}

/* Whether the two are files of one stem, variant and extension. */
static bool belong_together(const struct candidate *a, const struct candidate *b) {
    return tc_text_equal(a->name.stem, b->name.stem) &&
           tc_text_equal(a->name.variant, b->name.variant) &&
           tc_text_equal(a->name.extension, b->name.extension);
}

/* Puts arrays to the end of the list, where there are several; returns where they
 * begin. */
static size_t part_arrays(struct search *search, struct tc_error *error) {
    struct candidate *arrays = calloc(search->count ? search->count : 1, sizeof *arrays);
    size_t kept = 0;
    size_t found = 0;
    if (!arrays) {
        tc_fail_memory(error);
        return 0;
    }
    for (size_t i = 0; i < search->count; i++)
        if (search->candidates[i].backend == tc_registry_for_one() &&
            !search->candidates[i].name.is_index)
            arrays[found++] = search->candidates[i];
        else
            search->candidates[kept++] = search->candidates[i];
    if (found)
        memcpy(search->candidates + kept, arrays, found * sizeof *arrays);
    free(arrays);
    return kept;
}

static int by_file(const void *a, const void *b) {
    return tc_text_compare(((const struct candidate *)a)->file,
                           ((const struct candidate *)b)->file);
}

static bool is_piece(const struct candidate *candidate) {
    return candidate->name.is_piece && candidate->backend == &tc_backend_safetensors;
}

/* Files of pieces come last, by their names. */
static int by_piece(const void *a, const void *b) {
    int order = is_piece(a) - is_piece(b);
    return order ? order : by_file(a, b);
}

/* Adds files with pieces of tensors as one model; the other ones are the first *count then. */
static bool add_pieces(struct search *search, size_t *count, struct tc_error *error) {
    size_t all = *count;
    if (all)
        qsort(search->candidates, all, sizeof *search->candidates, by_piece);
    while (*count && is_piece(&search->candidates[*count - 1]))
        --*count;
    return *count == all || add_model(search, MODEL_PIECES, *count, all, error);
}

static bool group_models(struct search *search, struct tc_error *error) {
    size_t arrays = part_arrays(search, error);
    size_t plain = arrays; /* neither arrays nor pieces */
    bool ok = error->class == TC_OK && add_pieces(search, &plain, error);
    struct candidate *list = search->candidates;
    const struct candidate *index = NULL;
    if (plain)
        qsort(list, plain, sizeof *list, by_group);
    for (size_t from = 0; from < plain && ok;) {
        size_t to = from + 1;
        while (to < plain && compare_groups(&list[from], &list[to]) == 0)
            to++;
        bool shards = are_shards(search, from, to);
        if (!shards && may_be_index(&list[from]))
            index = &list[from];
        for (size_t i = from; i < to && ok && !shards; i++)
            ok = add_model(search, MODEL_FILE, i, i + 1, error);
        if (shards && !(index && belong_together(index, &list[from])))
            ok = ok && add_model(search, MODEL_SHARDS, from, to, error);
        from = to;
    }
    if (ok && arrays < search->count) {
        qsort(search->candidates + arrays, search->count - arrays, sizeof *search->candidates,
              by_file);
        ok = add_model(search, MODEL_ARRAYS, arrays, search->count, error);
    }
    return ok;
}

/* What the folder holds instead: folders with a slash, other things with their kind. */
static void add_names(const struct tc_listing *listing, struct tc_buffer *text) {
    static const char *const kinds[] = {"", "/", " (no file)", " (a broken link)"};
    size_t shown = listing->count < MOST_LISTED ? listing->count : MOST_LISTED;
    for (size_t i = 0; i < shown; i++) {
        const struct tc_entry *entry = &listing->entries[i];
        tc_buffer_addf(text, "%s%.*s%s", i ? ", " : "", tc_text_shown(entry->name, 40),
                       entry->name.bytes, kinds[entry->kind]);
    }
    if (shown < listing->count)
        tc_buffer_addf(text, " and %zu more", listing->count - shown);
}

static bool fail_nothing(const struct search *search, struct tc_error *error) {
    const struct model_wanted *wanted = search->wanted;
    const struct tc_listing *listing = search->listing;
    struct tc_buffer names = {0};
    struct tc_buffer what = {0};
    add_names(listing, &names);
    tc_buffer_addf(&what, "%s%smodel%s%s", wanted->format ? wanted->format->name : "",
                   wanted->format ? " " : "", wanted->variant ? " of variant " : "",
                   wanted->variant ? wanted->variant : "");
    if (!tc_buffer_ok(&names, error) || !tc_buffer_ok(&what, error))
        ;
    else if (listing->count == 0)
        tc_fail(error, TC_IO, "not-a-file", "this is a folder without a model: it is empty");
    else
        tc_fail(error, TC_IO, "not-a-file", "this is a folder without a %.*s; it holds %.*s",
                (int)what.length, what.bytes, (int)names.length, names.bytes);
    tc_error_because(error, TC_REASON_NO_FORMAT);
    tc_buffer_release(&names);
    tc_buffer_release(&what);
    for (size_t i = 0; i < listing->count; i++)
        if (tc_text_ends(listing->entries[i].name, TC_TEXT(DCP_EXTENSION)))
            return tc_error_hint(error, "a distributed checkpoint without its table, " DCP_TABLE
                                        ": was saving it cut short?");
    for (size_t i = 0; i < listing->count; i++)
        if (listing->entries[i].kind == TC_ENTRY_FOLDER)
            return tc_error_hint(error, "name one of its folders, or a file");
    return false;
}

static bool check_variant(const char *variant, struct tc_error *error) {
    if (!variant || (tc_path_is_plain(tc_text_of(variant)) && strlen(variant) <= 64))
        return true;
    return tc_fail(error, TC_USAGE, "variant", "a variant is a word, such as fp16 (got \"%s\")",
                   variant);
}

/* Whether names alone decide: there is a file of a usual name. */
static bool is_decided(const struct search *search) {
    for (size_t i = 0; i < search->count; i++)
        if (search->candidates[i].name.family)
            return true;
    return false;
}

bool model_folder_find(struct model_folder *folder, const struct tc_listing *listing,
                       const struct model_wanted *wanted, struct tc_error *error) {
    struct search search = {.folder = folder, .listing = listing, .wanted = wanted};
    search.zero = has_optimiser(&search);
    *folder = (struct model_folder){0};
    tc_arena_init(&folder->arena, 0);
    if (!check_variant(wanted->variant, error))
        return false;
    search.candidates = calloc(listing->count ? listing->count : 1, sizeof *search.candidates);
    folder->models = tc_arena_array(&folder->arena, listing->count ? listing->count : 1,
                                    sizeof *folder->models, error);
    bool ok = folder->models && (search.candidates || tc_fail_memory(error));
    if (ok) {
        list_by_name(&search);
        ok = !wanted->open || list_tables(&search, error);
        if (ok && wanted->open && search.count > 1 && !is_decided(&search))
            ok = check_content(&search, error);
        if (ok && wanted->open && !search.count)
            ok = list_by_content(&search, error);
        ok = ok && group_models(&search, error) && (folder->count || fail_nothing(&search, error));
    }
    if (ok)
        qsort_r(folder->models, folder->count, sizeof *folder->models, by_preference,
                (void *)(uintptr_t)wanted);
    free(search.candidates);
    return ok;
}

void model_folder_release(struct model_folder *folder) {
    tc_arena_release(&folder->arena);
    *folder = (struct model_folder){0};
}

/* What a model is called in a note: its file, or what its files are. */
static void add_model_name(const struct model *model, struct tc_buffer *text) {
    if (model->form == MODEL_ARRAYS && model->count > 1)
        tc_buffer_addf(text, "%zu %s files", model->count, model->backend->extensions[0]);
    else if (model->form == MODEL_SHARDS || model->form == MODEL_PIECES)
        tc_buffer_addf(text, "the %zu shards from %.*s on", model->count,
                       tc_text_shown(model->files[0], 100), model->files[0].bytes);
    else
        tc_buffer_addf(text, "%.*s", tc_text_shown(model->files[0], 100), model->files[0].bytes);
}

void model_folder_tell(const struct model_folder *folder, struct tc_buffer *text) {
    const struct model *chosen = &folder->models[0];
    size_t shown = folder->count < MOST_LISTED ? folder->count : MOST_LISTED;
    if (folder->count < 2)
        return;
    add_model_name(chosen, text);
    tc_buffer_add_string(text, chosen->form == MODEL_FILE ? " is read, not " : " are read, not ");
    for (size_t i = 1; i < shown; i++) {
        tc_buffer_add_string(text, i > 1 ? ", " : "");
        add_model_name(&folder->models[i], text);
    }
    if (shown < folder->count)
        tc_buffer_addf(text, " and %zu more", folder->count - shown);
    tc_buffer_add_string(text, "; -f, --variant or the file's own name choose another");
}
