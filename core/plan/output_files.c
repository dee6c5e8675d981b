#include "core/plan/output_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/arena.h"
#include "core/base/fold.h"
#include "core/base/limits.h"
#include "core/base/notes.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/restore_metadata.h"
#include "core/plan/measure.h"
#include "core/tensor/select.h"
#include "core/tensor/sparse_group.h"

/* The default of Hugging Face and deathtensors. */
#define DEFAULT_SHARD_SIZE (UINT64_C(5) << 30)

/* Removes an ending from a name, in any case; false where the name does not have it. */
static bool strip(struct tc_text *name, const char *ending) {
    size_t length = strlen(ending);
    if (name->length <= length ||
        strncasecmp(name->bytes + name->length - length, ending, length) != 0)
        return false;
    name->length -= length;
    return true;
}

/* OUT without its folder and the format's extension. */
struct output_name {
    struct tc_text stem;
    const char *extension; /* with its dot; the canonical one where OUT has none */
    bool is_index;         /* OUT named the index itself */
};

static struct output_name output_name(const struct tc_backend *target, const char *output) {
    struct output_name name = {.stem = tc_text_of(tc_path_name(output)),
                               .extension = target->extensions[0]};
    name.is_index = strip(&name.stem, ".index.json");
    for (const char *const *extension = target->extensions; *extension; extension++)
        if (strip(&name.stem, *extension)) {
            name.extension = *extension;
            break;
        }
    return name;
}

/* Whether an item follows another part of the same sparse tensor: all its parts go
 * to one shard. */
static bool continues_group(const struct tc_plan *plan, size_t item) {
    const struct tc_text *own = tc_sparse_parent(plan->items[item].metadata);
    const struct tc_text *before = item ? tc_sparse_parent(plan->items[item - 1].metadata) : NULL;
    return own && before && tc_text_equal(*own, *before);
}

/* What an item adds to a shard's data: nothing where it shares data of an earlier
 * item in the shard. */
static uint64_t added_bytes(const struct tc_plan *plan, size_t item, size_t first) {
    size_t tied = plan->items[item].tied;
    size_t kept = tied ? plan->by_place[tied - 1] : item;
    return kept >= first && kept < item ? 0 : plan->items[item].nbytes;
}

/* How a plan is divided into shards. A group is a tensor, or all parts of a sparse
 * tensor, which stay together. */
struct cutting {
    struct tc_plan *plan;
    struct tc_measure measure;
    size_t *ends; /* by group: one past its last item */
    size_t count;
    size_t shards; /* how many there will be, as shards may record it */
};

/* The size of groups [from, to) as one shard. */
static bool shard_bytes(struct cutting *cutting, size_t from, size_t to, size_t index,
                        uint64_t *bytes, struct tc_error *error) {
    size_t first = from ? cutting->ends[from - 1] : 0;
    return tc_measure_shard(&cutting->measure, first, cutting->ends[to - 1] - first, index,
                            cutting->shards, bytes, error);
}

/* A number of groups between two that were measured, at which the size should be
 * reached; every other time the middle of the two, so that the search ends. */
static size_t guess_between(size_t fits, uint64_t fits_bytes, size_t over, uint64_t over_bytes,
                            uint64_t size, unsigned turn) {
    double share = (double)(size - fits_bytes) / (double)(over_bytes - fits_bytes);
    size_t gap = over - fits;
    size_t step = turn % 2 || over_bytes == UINT64_MAX ? gap / 2 : (size_t)(share * (double)gap);
    return fits + (step < 1 ? 1 : step >= gap ? gap - 1 : step);
}

/* How many groups from `from` on fill a shard: as many as fit, but at least one. */
static bool fill_shard(struct cutting *cutting, size_t from, size_t index, size_t *taken,
                       struct tc_error *error) {
    uint64_t size = cutting->plan->shard_size;
    size_t fits = 1;
    size_t over = cutting->count - from + 1; /* too many: does not fit, or does not exist */
    uint64_t fits_bytes;
    uint64_t over_bytes = UINT64_MAX;
    *taken = 1;
    if (!shard_bytes(cutting, from, from + 1, index, &fits_bytes, error))
        return false;
    for (unsigned turn = 0; fits_bytes <= size && over - fits > 1; turn++) {
        uint64_t bytes;
        /* Until some number is known to be too large, tries at most four times what
         * fits, so that the effort stays in proportion. */
        size_t most = fits * 4 < over ? fits * 4 : over - 1;
        double each = (double)fits_bytes / (double)fits;
        size_t wanted = (size_t)((double)size / (each > 1 ? each : 1)) + 1;
        size_t guess = over_bytes != UINT64_MAX
                           ? guess_between(fits, fits_bytes, over, over_bytes, size, turn)
                       : wanted <= fits ? fits + 1
                       : wanted < most  ? wanted
                                        : most;
        if (!shard_bytes(cutting, from, from + guess, index, &bytes, error))
            return false;
        if (bytes <= size) {
            fits = guess;
            fits_bytes = bytes;
        } else {
            over = guess;
            over_bytes = bytes;
        }
    }
    *taken = fits;
    return true;
}

/* Greedy, in order: a shard takes tensors until the next would make its file
 * larger than the size; a tensor that is larger alone has a shard of its own. */
static bool cut(struct cutting *cutting, struct tc_error *error) {
    struct tc_plan *plan = cutting->plan;
    plan->file_count = 0;
    for (size_t group = 0; group < cutting->count;) {
        struct tc_output_file *file = &plan->files[plan->file_count];
        size_t taken;
        if (!fill_shard(cutting, group, plan->file_count, &taken, error))
            return false;
        *file = (struct tc_output_file){.first = group ? cutting->ends[group - 1] : 0};
        group += taken;
        file->count = cutting->ends[group - 1] - file->first;
        for (size_t i = file->first; i < file->first + file->count; i++)
            file->nbytes += added_bytes(plan, i, file->first);
        plan->file_count++;
    }
    return true;
}

static size_t digits(size_t number) {
    size_t count = 1;
    while (number /= 10)
        count++;
    return count;
}

static bool split_shards(struct tc_plan *plan, struct tc_error *error) {
    struct cutting cutting = {.plan = plan, .shards = 1};
    plan->files =
        tc_arena_array(&plan->arena, plan->count ? plan->count : 1, sizeof *plan->files, error);
    cutting.ends = calloc(plan->count + 1, sizeof *cutting.ends);
    bool ok = cutting.ends || tc_fail_memory(error);
    ok = ok && plan->files && tc_plan_list_places(plan, error) &&
         tc_measure_init(&cutting.measure, plan, error);
    for (size_t i = 0; i < plan->count && ok; i++)
        if (i + 1 == plan->count || !continues_group(plan, i + 1))
            cutting.ends[cutting.count++] = i + 1;
    ok = ok && cut(&cutting, error);
    /* Where shards record how many there are, another digit takes another byte. */
    while (ok && plan->target->sharding->shard_metadata &&
           digits(plan->file_count) > digits(cutting.shards)) {
        cutting.shards = plan->file_count;
        ok = cut(&cutting, error);
    }
    tc_measure_release(&cutting.measure);
    free(cutting.ends);
    return ok;
}

/* The shard of the input that an item comes from. */
static size_t input_shard(const struct tc_plan *plan, const struct tc_item *item) {
    return plan->readers[0]->table.tensors[item->place].cookie;
}

static int by_input_shard(const void *a, const void *b, void *context) {
    const struct tc_item *x = a;
    const struct tc_item *y = b;
    size_t left = input_shard(context, x);
    size_t right = input_shard(context, y);
    return left != right ? (left > right) - (left < right)
                         : (x->place > y->place) - (x->place < y->place);
}

/* One shard for each of the input's, with the same tensors. Shards of which nothing is
 * taken are left out. */
static bool split_as_input(struct tc_plan *plan, struct tc_error *error) {
    plan->files =
        tc_arena_array(&plan->arena, plan->count ? plan->count : 1, sizeof *plan->files, error);
    if (!plan->files)
        return false;
    /* A tensor that has the data of another stands behind all others in the table. */
    qsort_r(plan->items, plan->count, sizeof *plan->items, by_input_shard, plan);
    if (!tc_plan_list_places(plan, error))
        return false;
    for (size_t i = 0; i < plan->count; i++) {
        struct tc_output_file *file = &plan->files[plan->file_count];
        if (i && input_shard(plan, &plan->items[i]) == input_shard(plan, &plan->items[i - 1]))
            file--;
        else
            plan->file_count++;
        file->first = file->count ? file->first : i;
        file->count++;
        file->nbytes += added_bytes(plan, i, file->first);
    }
    return true;
}

/* The name of a shard: the input's, or one made from the output's. */
static const char *shard_name(struct tc_plan *plan, const struct output_name *out, size_t shard,
                              struct tc_error *error) {
    struct tc_buffer name = {0};
    if (plan->options->as_input == TC_SHARDS_NAMED_AS_INPUT)
        tc_buffer_add_string(
            &name,
            plan->readers[0]->shards[input_shard(plan, &plan->items[plan->files[shard].first])]);
    else {
        tc_buffer_add_text(&name, out->stem);
        tc_buffer_addf(&name, "-%05zu-of-%0*zu%s", shard + 1, plan->target->sharding->count_digits,
                       plan->file_count, out->extension);
    }
    return tc_plan_keep(plan, &name, error);
}

/* STEM.EXTENSION.index.json, of a variant STEM.EXTENSION.index.VARIANT.json; or the
 * output's own name where it names the index. */
static const char *index_name(struct tc_plan *plan, const struct output_name *out,
                              const char *output, struct tc_error *error) {
    struct tc_text ending = tc_text_of(plan->target->sharding->index_ending);
    struct tc_text stem = out->stem;
    const char *variant = plan->options->variant;
    struct tc_buffer name = {0};
    if (plan->options->as_input == TC_SHARDS_NAMED_AS_INPUT) {
        tc_buffer_add_string(&name, tc_path_name(output));
        return tc_plan_keep(plan, &name, error);
    }
    bool is_variant = variant && ending.length && strip(&stem, variant);
    stem.length -= is_variant; /* the dot before it */
    tc_buffer_add_text(&name, stem);
    tc_buffer_add_string(&name, out->extension);
    if (is_variant && strip(&ending, ".json"))
        tc_buffer_addf(&name, "%.*s.%s.json", (int)ending.length, ending.bytes, variant);
    else
        tc_buffer_add_text(&name, ending);
    return tc_plan_keep(plan, &name, error);
}

static bool plan_shards(struct tc_plan *plan, const char *output, struct tc_error *error) {
    const struct tc_sharding *sharding = plan->target->sharding;
    bool as_input = !plan->shard_size;
    if (!sharding) {
        tc_fail(error, TC_UNSUPPORTED, "shards", "%s has no sharded form", plan->target->name);
        return as_input ? tc_error_hint(error, "--merge writes one file") : false;
    }
    if (!(as_input ? split_as_input(plan, error) : split_shards(plan, error)))
        return false;
    if (plan->file_count > TC_MAX_SHARDS)
        return tc_fail(error, TC_USAGE, "shards", "%zu shards are too many (limit %u)",
                       plan->file_count, TC_MAX_SHARDS);
    struct output_name out = output_name(plan->target, output);
    if (out.is_index && !sharding->index_ending)
        return tc_fail(error, TC_UNSUPPORTED, "shards", "%s has no index of shards",
                       plan->target->name);
    if (!as_input && plan->file_count <= 1 && sharding->single && !out.is_index) {
        plan->file_count = 1;
        plan->files[0].name = tc_path_name(output);
        return true;
    }
    plan->in_shards = true;
    for (size_t i = 0; i < plan->file_count; i++)
        if (!(plan->files[i].name = shard_name(plan, &out, i, error)))
            return false;
    if (!sharding->index_ending)
        return true;
    plan->index_name = index_name(plan, &out, output, error);
    return plan->index_name != NULL;
}

/*
 * Makes a file name of a tensor's name: '/' becomes '.'. A name that would leave the
 * folder, or that some file systems don't take, is refused, not repaired.
 */
static bool file_name(struct tc_text name, const char *extension, struct tc_buffer *file,
                      struct tc_error *error) {
    bool hostile = name.length == 0 || name.bytes[0] == '/';
    size_t start = 0;
    for (size_t i = 0; i <= name.length && !hostile; i++) {
        char c = i < name.length ? name.bytes[i] : '/';
        if (c == '/') {
            size_t length = i - start;
            hostile = length == 0 || (length == 1 && name.bytes[start] == '.') ||
                      (length == 2 && memcmp(name.bytes + start, "..", 2) == 0);
            start = i + 1;
        } else {
            hostile = (unsigned char)c < 0x20 || c == 0x7F || c == '\\' || c == ':';
        }
    }
    if (hostile)
        return tc_fail(error, TC_UNSAFE, "file-name", "the name cannot be a file's name");
    if (name.length + strlen(extension) > 200)
        return tc_fail(error, TC_UNSAFE, "file-name", "the name is too long for a file's");
    for (size_t i = 0; i < name.length; i++)
        tc_buffer_add(file, name.bytes[i] == '/' ? "." : name.bytes + i, 1);
    tc_buffer_add_string(file, extension);
    return tc_buffer_ok(file, error);
}

/* Whether the user asked for one tensor by its name, and so knows which tensor the
 * output holds. */
static bool takes_one(const struct tc_plan *plan) {
    const struct tc_select *select = plan->options->select;
    return select && select->only.bytes;
}

static bool is_number(struct tc_text name, size_t number) {
    char text[24];
    snprintf(text, sizeof text, "%zu", number);
    return tc_text_equal(name, tc_text_of(text));
}

struct name_key {
    struct tc_text key;
    size_t file;
};

static int name_key_order(const void *a, const void *b) {
    struct tc_text one = ((const struct name_key *)a)->key;
    struct tc_text other = ((const struct name_key *)b)->key;
    return tc_text_compare(one, other);
}

static bool make_name_keys(struct tc_plan *plan, struct name_key *keys, struct tc_error *error) {
    for (size_t i = 0; i < plan->file_count; i++) {
        struct tc_buffer key = {0};
        tc_fold(tc_text_of(plan->files[i].name), &key);
        size_t length = key.length;
        keys[i] = (struct name_key){.key = {tc_plan_keep(plan, &key, error), length}, .file = i};
        if (!keys[i].key.bytes)
            return false;
    }
    return true;
}

/* Names that differ only in case or in how an accent is written collide too, since some file
 * systems take them for one. */
static bool check_file_names(struct tc_plan *plan, struct tc_error *error) {
    struct name_key *keys = calloc(plan->file_count ? plan->file_count : 1, sizeof *keys);
    if (!keys)
        return tc_fail_memory(error);
    bool ok = make_name_keys(plan, keys, error);
    if (ok)
        qsort(keys, plan->file_count, sizeof *keys, name_key_order);
    for (size_t i = 1; i < plan->file_count && ok; i++) {
        if (!tc_text_equal(keys[i - 1].key, keys[i].key))
            continue;
        struct tc_text first = plan->items[plan->files[keys[i - 1].file].first].name;
        struct tc_text second = plan->items[plan->files[keys[i].file].first].name;
        ok = tc_fail(error, TC_INVALID, "file-name-collision",
                     "its file name is also that of \"%.*s\"", tc_text_shown(first, 300),
                     first.bytes);
        tc_error_in_tensor(error, second.bytes, second.length);
    }
    free(keys);
    return ok;
}

static bool plan_folder(struct tc_plan *plan, struct tc_error *error) {
    plan->files = tc_arena_array(&plan->arena, plan->count, sizeof *plan->files, error);
    if (!plan->files)
        return false;
    for (size_t i = 0; i < plan->count; i++) {
        struct tc_output_file *file = &plan->files[plan->file_count++];
        struct tc_item *item = &plan->items[i];
        *file = (struct tc_output_file){.first = i, .count = 1, .nbytes = item->nbytes};
        struct tc_buffer name = {0};
        if (!file_name(item->name, plan->target->extensions[0], &name, error)) {
            tc_buffer_release(&name);
            return tc_error_in_tensor(error, item->name.bytes, item->name.length);
        }
        file->name = tc_plan_keep(plan, &name, error);
        if (!file->name)
            return false;
        bool changed = memchr(item->name.bytes, '/', item->name.length);
        if (changed)
            plan->names_name = TC_NAMES_FILE;
        if (changed && !tc_plan_note(plan, TC_LOSS, TC_KIND_NAME, item->name, error,
                                     "\"/\" in a name becomes \".\" in its file's name; only tconv "
                                     "reads the name back"))
            return false;
    }
    /* An earlier output's would give its names to the new tensors. */
    plan->stale_name = plan->names_name ? NULL : TC_NAMES_FILE;
    return check_file_names(plan, error);
}

/* Whether each tensor already has the number as its name that the format implies. */
static bool are_numbers(const struct tc_plan *plan) {
    for (size_t p = 0; p < plan->file_count; p++)
        for (size_t i = 0; i < plan->files[p].count; i++)
            if (!is_number(plan->items[plan->files[p].first + i].name, i))
                return false;
    return true;
}

/* Where the target numbers its tensors, their names go to the sidecar or are lost. */
static bool number_items(struct tc_plan *plan, struct tc_error *error) {
    if (are_numbers(plan) || takes_one(plan))
        return true;
    plan->sidecar_names = plan->options->keep_metadata == TC_KEEP_SIDECAR;
    for (size_t i = 0; i < plan->count && !plan->sidecar_names; i++)
        if (!tc_plan_note(plan, TC_LOSS, TC_KIND_NAME, plan->items[i].name, error,
                          "%s holds no names; numbers take their place", plan->target->name))
            return false;
    return true;
}

static bool plan_single(struct tc_plan *plan, const char *output, struct tc_error *error) {
    plan->files = tc_arena_alloc(&plan->arena, sizeof *plan->files, error);
    if (!plan->files)
        return false;
    plan->file_count = 1;
    plan->files[0] = (struct tc_output_file){
        .name = tc_path_name(output), .count = plan->count, .nbytes = plan->bytes_out};
    if (plan->target->caps & (TC_CAN_NAME | TC_CAN_HOLD_MANY) || plan->count == 0)
        return true;
    struct tc_item *item = &plan->items[0];
    struct tc_text stem = tc_path_stem(output);
    if (tc_text_equal(item->name, stem))
        return true;
    item->written = stem;
    return takes_one(plan) ||
           tc_plan_note(plan, TC_LOSS, TC_KIND_NAME, item->name, error,
                        "%s holds no name; the file's takes its place", plan->target->name);
}

void tc_output_files_choose(struct tc_plan *plan, const char *output) {
    const struct tc_plan_options *options = plan->options;
    bool as_input = options->as_input && !options->shard_size && plan->reader_count == 1 &&
                    plan->readers[0]->shard_count && plan->count;
    plan->shard_size = options->shard_size;
    if (!plan->shard_size && !options->folder && !as_input &&
        output_name(plan->target, output).is_index)
        plan->shard_size = DEFAULT_SHARD_SIZE;
    plan->sharded = plan->shard_size || as_input;
}

bool tc_output_files_make(struct tc_plan *plan, const char *output, struct tc_error *error) {
    bool ok = plan->options->folder ? plan_folder(plan, error)
              : plan->sharded       ? plan_shards(plan, output, error)
                                    : plan_single(plan, output, error);
    return ok && (!tc_backend_numbers(plan->target) || number_items(plan, error));
}
