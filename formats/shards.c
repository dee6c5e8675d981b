#include "formats/shards.h"

#include "core/io/thread_pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/findings.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/notes.h"
#include "core/base/path.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "formats/dcp/hf.h"
#include "formats/registry.h"

void shards_init(struct shards *shards, struct tc_reader *reader) {
    tc_input_pool_init(&shards->pool);
    tc_name_map_init(&shards->places, &reader->arena);
    tc_name_map_init(&shards->listed, &reader->arena);
    shards->most_tensors = reader->options->limits.tensors;
    shards->options = *reader->options;
    shards->options.part = true;
    shards->ready = true;
}

/* Room for one file more. */
static bool grow_files(struct shards *shards, struct tc_error *error) {
    size_t capacity = shards->file_capacity ? 2 * shards->file_capacity : 16;
    if (shards->places.count < shards->file_capacity)
        return true;
    struct shard_file *files = reallocarray(shards->files, capacity, sizeof *files);
    if (!files)
        return tc_fail_memory(error);
    shards->files = files;
    shards->file_capacity = capacity;
    return true;
}

bool shards_add_file(struct shards *shards, struct tc_text file, uint32_t *position,
                     struct tc_error *error) {
    if (!tc_path_is_plain(file) ||
        (!shards->without_index && memchr(file.bytes, '\\', file.length))) {
        tc_fail(error, TC_UNSAFE, "shard-path",
                "the index names a shard outside its folder: \"%.*s\"", tc_text_shown(file, 200),
                file.bytes);
        tc_error_because(error, TC_REASON_OUTSIDE);
        return tc_error_hint(error, "shards must be files beside their index");
    }
    const uint32_t *present = tc_name_map_find(&shards->places, file);
    if (present) {
        *position = *present;
        return true;
    }
    /* Without an index they may be arrays, of which a folder can have more. */
    unsigned most = shards->without_index ? TC_MAX_FOLDER_ENTRIES : TC_MAX_SHARDS;
    if (shards->places.count >= most) {
        tc_fail(error, TC_UNSAFE, "shard-limit", "the model has more than %u shards", most);
        return tc_error_hint(error, TC_FIXED_LIMIT);
    }
    *position = (uint32_t)shards->places.count;
    if (!grow_files(shards, error) || !tc_name_add(&shards->places, file, *position, most, error))
        return false;
    shards->files[*position] = (struct shard_file){.name = file, .position = *position};
    return true;
}

bool shards_add_tensor(struct shards *shards, struct tc_text name, uint32_t shard,
                       struct tc_error *error) {
    return tc_name_add(&shards->listed, name, shard, shards->most_tensors, error);
}

void shards_name_tensor(struct shards *shards, uint32_t shard, struct tc_text name) {
    shards->files[shard].tensor = name;
}

void shards_add_size(struct shards *shards, uint32_t shard, uint64_t bytes) {
    shards->files[shard].nbytes = bytes;
    shards->files[shard].sized = true;
}

static int by_file_name(const void *a, const void *b) {
    return tc_text_compare(((const struct shard_file *)a)->name,
                           ((const struct shard_file *)b)->name);
}

/* The path of a shard: the index's folder and the shard's name; from malloc. */
static char *shard_path(const struct tc_reader *reader, const char *name, struct tc_error *error) {
    const char *index = reader->input->path;
    size_t folder = (size_t)(tc_path_name(index) - index);
    struct tc_buffer path = {0};
    tc_buffer_add(&path, index, folder);
    tc_buffer_add_string(&path, name);
    if (!tc_buffer_ok(&path, error)) {
        tc_buffer_release(&path);
        return NULL;
    }
    return path.bytes;
}

static struct tc_reader *open_shard(struct shards *shards, struct tc_reader *reader,
                                    const char *name, struct tc_error *error) {
    char *path = shard_path(reader, name, error);
    struct tc_input *input =
        path ? tc_reader_open_beside(reader, path, &shards->pool, error) : NULL;
    free(path);
    if (!input)
        return NULL;
    const struct tc_backend *backend = tc_registry_probe(input, error);
    if (!backend) {
        tc_error_in_file(error, input->path);
        tc_input_close(input);
        return NULL;
    }
    if (!shards->own && input->device == reader->input->device &&
        input->inode == reader->input->inode)
        tc_fail(error, TC_INVALID, "shard-index", "the index names itself as a shard");
    else if (tc_registry_is_index(backend))
        tc_fail(error, TC_INVALID, "shard-index", "a shard is itself an index");
    if (error->class != TC_OK) {
        tc_error_in_file(error, input->path);
        tc_input_close(input);
        return NULL;
    }
    struct tc_reader *shard = tc_reader_open(backend, input, &shards->options, error);
    if (shard && shard->shard_count) {
        tc_fail(error, TC_INVALID, "shard-index", "a shard is itself an index");
        tc_error_in_file(error, shard->input->path);
        tc_reader_close(shard);
        return NULL;
    }
    return shard;
}

/* Whether the index lists the tensor in this shard: by its own name, or by that of
 * the sparse tensor that it belongs to. */
static bool is_listed(const struct shards *shards, const struct tc_tensor *tensor,
                      uint32_t position) {
    const struct tc_text *parent = tc_sparse_parent(tensor->metadata);
    const uint32_t *listed = tc_name_map_find(&shards->listed, tensor->name);
    if (!listed && parent)
        listed = tc_name_map_find(&shards->listed, *parent);
    return listed && *listed == position;
}

/* Adds a shard's tensors to the table. Where findings are collected, a tensor that
 * another shard has too becomes a finding and is left out. From there on positions
 * in the two tables differ, so that it is no longer kept which tensors of the shard
 * share their data (tc_tensor.tie). */
static bool merge_tensors(struct shards *shards, struct tc_reader *reader, uint32_t position,
                          struct tc_error *error) {
    struct tc_findings *findings = reader->options->findings;
    struct tc_reader *shard = shards->readers[position];
    size_t before = reader->table.count;
    uint32_t storages = shards->storages; /* of the shards before */
    const struct tc_text *name = &shards->files[position].tensor;
    bool named = name->bytes && shard->table.count == 1 && !(shard->backend->caps & TC_CAN_NAME);
    bool whole = true;
    for (size_t i = 0; i < shard->table.count; i++) {
        struct tc_tensor tensor = shard->table.tensors[i];
        tensor.name = named ? *name : tensor.name;
        bool listed = shards->without_index || is_listed(shards, &tensor, position);
        tensor.cookie = position;
        tensor.offset = i;
        if (tensor.storage) {
            tensor.storage += storages;
            shards->storages =
                tensor.storage > shards->storages ? tensor.storage : shards->storages;
        }
        tensor.tie = whole && tensor.tie ? tensor.tie + (uint32_t)before : 0;
        if (!tc_table_add(&reader->table, &tensor, error)) {
            tc_error_in_file(error, shard->input->path);
            if (!tc_reader_forgive(reader, error))
                return false;
            whole = false;
            continue;
        }
        if (!listed && findings)
            tc_findings_add(findings, "unlisted-tensor", shard->input->path, tensor.name,
                            "the index does not list it in this shard");
        else if (!listed && !tc_reader_note(reader, TC_WARNING, TC_KIND_INPUT, tensor.name, error,
                                            "tensors that the index does not list in their shard"))
            return false;
    }
    return true;
}

static void check_size(const struct shards *shards, const struct tc_reader *reader,
                       uint32_t position) {
    const struct tc_reader *shard = shards->readers[position];
    const struct shard_file *file = &shards->files[position];
    uint64_t total = 0;
    for (size_t i = 0; i < shard->table.count; i++)
        total += shard->table.tensors[i].nbytes;
    if (file->sized && reader->options->findings && file->nbytes != total)
        tc_findings_add(reader->options->findings, "shard-size", shard->input->path,
                        (struct tc_text){0},
                        "the index says it holds %llu bytes of tensors, it has %llu",
                        (unsigned long long)file->nbytes, (unsigned long long)total);
}

static bool merge_shard(struct shards *shards, struct tc_reader *reader, uint32_t position,
                        struct tc_error *error) {
    struct tc_reader *shard = shards->readers[position];
    tc_metadata_remove(&shard->table.metadata, TC_TEXT(DCP_HF_SHARDING));
    tc_metadata_remove(&shard->table.metadata, TC_TEXT(DCP_HF_VERSION));
    if (!merge_tensors(shards, reader, position, error))
        return false;
    check_size(shards, reader, position);
    reader->size += shard->size;
    if (!tc_reader_charge_made(reader, shard->made, error))
        return tc_error_in_file(error, shard->input->path);
    reader->checksum |= shard->checksum;
    reader->compressed |= shard->compressed;
    bool streams = shard->streams || !tc_table_is_sequential(&shard->table);
    reader->streams = streams && (position == 0 || reader->streams);
    reader->leaves |= shard->leaves;
    reader->shards_differ |= shard->backend != reader->shard_backend;
    reader->beyond = reader->beyond ? reader->beyond : shard->beyond;
    reader->skipped_pickle |= shard->skipped_pickle;
    return tc_notes_merge(&reader->notes, &shard->notes, TC_SEVERITIES, error);
}

/* Joins the metadata of all shards. Where they disagree, the first one's is kept. */
static bool join_metadata(const struct shards *shards, struct tc_reader *reader,
                          struct tc_error *error) {
    const struct tc_metadata **maps = calloc(shards->count + 1, sizeof *maps);
    size_t *conflicts = calloc(shards->count + 1, sizeof *conflicts);
    size_t *type_conflicts = calloc(shards->count + 1, sizeof *type_conflicts);
    static const struct tc_metadata none;
    for (size_t i = 0; maps && i < shards->count; i++)
        maps[i] = shards->readers[i] ? &shards->readers[i]->table.metadata : &none;
    bool ok = maps && conflicts && type_conflicts
                  ? tc_metadata_join(&reader->table.metadata, maps, shards->count, &reader->arena,
                                     conflicts, error)
                  : tc_fail_memory(error);
    for (size_t i = 0; maps && i < shards->count; i++)
        maps[i] = shards->readers[i] ? &shards->readers[i]->metadata_types : &none;
    ok = ok && tc_metadata_join(&reader->metadata_types, maps, shards->count, &reader->arena,
                                type_conflicts, error);
    for (size_t i = 0; ok && i < shards->count; i++)
        ok = !conflicts[i] ||
             tc_reader_note(reader, TC_LOSS, TC_KIND_INPUT, tc_text_of(shards->names[i]), error,
                            "shards disagree with earlier ones on metadata, which is kept as those "
                            "have it");
    free(conflicts);
    free(type_conflicts);
    free(maps);
    return ok;
}

/* The tensor of this name, or the first of those that make up the sparse tensor of
 * this name. */
static const struct tc_tensor *find_listed(const struct tc_reader *reader, struct tc_text name) {
    const struct tc_tensor *found = tc_table_find(&reader->table, name);
    return found ? found : tc_sparse_first(&reader->table, name);
}

/* The names of values that were left out of the shards. *all: they are all known;
 * notes keep only so many names. */
static bool list_skipped(const struct tc_reader *reader, struct tc_name_map *skipped, bool *all,
                         struct tc_error *error) {
    *all = true;
    for (size_t i = 0; i < reader->notes.count; i++) {
        const struct tc_note_group *group = &reader->notes.groups[i];
        if (group->kind != TC_KIND_SKIPPED)
            continue;
        *all &= group->name_count == group->count;
        for (size_t n = 0; n < group->name_count; n++) {
            struct tc_text name = group->names[n];
            if (tc_utf8_valid(name) && !tc_name_map_find(skipped, name) &&
                !tc_name_add(skipped, name, 0, TC_MAX_NAMES, error))
                return false;
        }
    }
    return true;
}

/* A tensor that the index lists must be in its shard, unless it was left out for a
 * reported reason or the user did not select it. */
static bool check_listed(const struct shards *shards, struct tc_reader *reader,
                         struct tc_error *error) {
    struct tc_name_map skipped;
    bool all;
    tc_name_map_init(&skipped, &reader->arena);
    bool ok = list_skipped(reader, &skipped, &all, error);
    for (size_t i = 0; i < shards->listed.count && ok; i++) {
        const struct tc_named_number *listed = &shards->listed.entries[i];
        const struct tc_reader *shard = shards->readers[listed->number];
        if (!shard || find_listed(shard, listed->name) || !all ||
            tc_name_map_find(&skipped, listed->name) || !tc_reader_wants(reader, listed->name))
            continue;
        tc_fail(error, TC_INVALID, "missing-tensor",
                "the index lists it in %s, which does not hold it", shards->names[listed->number]);
        tc_error_in_tensor(error, listed->name.bytes, listed->name.length);
        ok = tc_reader_forgive(reader, error);
    }
    tc_name_map_release(&skipped);
    return ok;
}

/* Sorts the files by name, and renumbers them in `listed`. */
static bool sort_files(struct shards *shards, struct tc_arena *arena, struct tc_error *error) {
    size_t count = shards->places.count;
    uint32_t *moved = tc_arena_array(arena, count, sizeof *moved, error);
    if (!moved)
        return false;
    if (count)
        qsort(shards->files, count, sizeof *shards->files, by_file_name);
    for (size_t i = 0; i < count; i++)
        moved[shards->files[i].position] = (uint32_t)i;
    for (size_t i = 0; i < shards->listed.count; i++)
        shards->listed.entries[i].number = moved[shards->listed.entries[i].number];
    return true;
}

/* Turns the failure to open a shard into a finding, where findings are collected. */
static bool forgive_shard(struct tc_reader *reader, struct tc_error *error) {
    if (reader->options->findings && error->errnum == ENOENT) {
        error->class = TC_INVALID;
        error->code = "missing-shard";
    }
    return tc_reader_forgive(reader, error);
}

bool shards_open(struct shards *shards, struct tc_reader *reader, bool by_name,
                 struct tc_error *error) {
    size_t count = shards->places.count;
    if (by_name && !sort_files(shards, &reader->arena, error))
        return false;
    shards->readers = tc_arena_array(&reader->arena, count, sizeof(struct tc_reader *), error);
    shards->names = tc_arena_array(&reader->arena, count, sizeof(char *), error);
    shards->inputs = tc_arena_array(&reader->arena, count, sizeof(struct tc_input *), error);
    if (!shards->readers || !shards->names || !shards->inputs)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct tc_text file = shards->files[i].name;
        shards->names[i] = tc_arena_copy(&reader->arena, file.bytes, file.length, error);
        if (!shards->names[i])
            return false;
        shards->readers[i] = open_shard(shards, reader, shards->names[i], error);
        if (!shards->readers[i] && !forgive_shard(reader, error))
            return false;
        shards->count++;
        if (!shards->readers[i])
            continue;
        if (!reader->shard_backend) {
            reader->shard_backend = shards->readers[i]->backend;
            reader->framework = shards->readers[i]->framework;
        }
        shards->inputs[i] = shards->readers[i]->input;
        if (!merge_shard(shards, reader, i, error))
            return false;
    }
    reader->shards = shards->names;
    reader->shard_inputs = shards->inputs;
    reader->shard_count = count;
    return join_metadata(shards, reader, error) && check_listed(shards, reader, error);
}

bool shards_incomplete(const struct shards *shards) {
    for (size_t i = 0; i < shards->count; i++)
        if (!shards->readers[i])
            return true;
    return false;
}

static const struct tc_tensor *in_shard(const struct shards *shards,
                                        const struct tc_tensor *tensor) {
    return &shards->readers[tensor->cookie]->table.tensors[tensor->offset];
}

bool shards_read(struct shards *shards, const struct tc_tensor *tensor, uint64_t offset,
                 void *buffer, size_t length, struct tc_error *error) {
    return tc_reader_read(shards->readers[tensor->cookie], in_shard(shards, tensor), offset, buffer,
                          length, error);
}

bool shards_extent(struct shards *shards, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    return tc_reader_extent(shards->readers[tensor->cookie], in_shard(shards, tensor), extent);
}

bool shards_strided(struct shards *shards, const struct tc_tensor *tensor,
                    struct tc_strided *strided) {
    return tc_reader_strided(shards->readers[tensor->cookie], in_shard(shards, tensor), strided);
}

/* What the threads share that check shards. A job is a shard. */
struct checking {
    const struct shards *shards;
    const bool *wanted; /* NULL: all tensors */
    size_t next;
    size_t at; /* the table holds the shards' tensors one after the other */
};

struct check {
    struct tc_reader *shard;
    const bool *wanted;
};

static bool next_check(void *context, void *job) {
    struct checking *checking = context;
    const struct shards *shards = checking->shards;
    while (checking->next < shards->count && !shards->readers[checking->next])
        checking->next++;
    if (checking->next == shards->count)
        return false;
    struct tc_reader *shard = shards->readers[checking->next++];
    *(struct check *)job =
        (struct check){shard, checking->wanted ? checking->wanted + checking->at : NULL};
    checking->at += shard->table.count;
    return true;
}

static bool check_shard(void *context, struct tc_pool_worker *worker, const void *job,
                        struct tc_error *error) {
    const struct check *check = job;
    struct tc_reader *shard = check->shard;
    (void)context;
    (void)worker;
    if (tc_reader_check_sums(shard, check->wanted, error))
        return true;
    tc_error_in_file(error, shard->input->path);
    return tc_reader_forgive(shard, error);
}

static bool verify_each(struct shards *shards, const bool *wanted, struct tc_error *error) {
    struct checking checking = {.shards = shards, .wanted = wanted};
    const struct tc_pool_work work = {.context = &checking,
                                      .next = next_check,
                                      .job_size = sizeof(struct check),
                                      .run = check_shard};
    size_t threads = tc_thread_count();
    return tc_pool_run(&work, threads < shards->count ? threads : shards->count, error);
}

bool shards_verify(struct shards *shards, const struct tc_reader *reader, const bool *wanted,
                   struct tc_error *error) {
    const struct tc_table *table = &reader->table;
    size_t own = 0;
    if (!wanted)
        return verify_each(shards, NULL, error);
    for (size_t i = 0; i < shards->count; i++)
        own += shards->readers[i] ? shards->readers[i]->table.count : 0;
    if (own > table->count)
        return tc_fail(error, TC_INTERNAL, "shards", "the shards' tables are out of step");
    if (own == table->count)
        return verify_each(shards, wanted, error);
    /* Behind the shards' tensors come aliases, which share the data of one of them:
     * where the alias is wanted, that tensor's data is. */
    bool *all = malloc(own ? own : 1);
    if (!all)
        return tc_fail_memory(error);
    memcpy(all, wanted, own);
    for (size_t i = own; i < table->count; i++)
        all[table->tensors[i].tie - 1] |= wanted[i];
    bool ok = verify_each(shards, all, error);
    free(all);
    return ok;
}

bool shards_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                        void *buffer, size_t length, struct tc_error *error) {
    return shards_read(reader->state, tensor, offset, buffer, length, error);
}

bool shards_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                          struct tc_extent *extent) {
    return shards_extent(reader->state, tensor, extent);
}

bool shards_reader_strided(struct tc_reader *reader, const struct tc_tensor *tensor,
                           struct tc_strided *strided) {
    return shards_strided(reader->state, tensor, strided);
}

bool shards_reader_check_sums(struct tc_reader *reader, const bool *wanted,
                              struct tc_error *error) {
    return shards_verify(reader->state, reader, wanted, error);
}

void shards_release(struct shards *shards) {
    if (!shards->ready)
        return;
    for (size_t i = 0; i < shards->count; i++)
        tc_reader_close(shards->readers[i]);
    free(shards->files);
    tc_name_map_release(&shards->places);
    tc_name_map_release(&shards->listed);
    tc_input_pool_release(&shards->pool);
    shards->ready = false;
}

struct placed {
    struct tc_text name;
    const char *file;
};

static int by_name(const void *a, const void *b) {
    return tc_text_compare(((const struct placed *)a)->name, ((const struct placed *)b)->name);
}

/* Writes total_size at its place in the alphabetical order of the other keys. */
static void print_metadata(struct tc_json_writer *json, const struct tc_metadata *metadata,
                           uint64_t total) {
    struct tc_text size = TC_TEXT("total_size");
    bool printed = false;
    tc_json_open_object(json, "metadata");
    for (size_t i = 0; i <= metadata->count; i++) {
        const struct tc_pair *pair = i < metadata->count ? &metadata->pairs[i] : NULL;
        if (!printed && (!pair || tc_text_compare(size, pair->key) < 0)) {
            tc_json_add_number(json, size.bytes, total);
            printed = true;
        }
        if (!pair)
            break;
        tc_json_add_key(json, pair->key);
        tc_json_add_raw(json, NULL, pair->value);
    }
    tc_json_close(json);
}

/* As transformers writes it: json.dumps(…, indent=2, sort_keys=True). */
static void print_index(struct tc_buffer *text, struct placed *placed, size_t count,
                        const struct tc_plan *plan) {
    struct tc_json_writer json = {
        .out = text, .escape = TC_ESCAPE_ASCII, .style = TC_JSON_INDENTED};
    qsort(placed, count, sizeof *placed, by_name);
    tc_json_open_object(&json, NULL);
    print_metadata(&json, &plan->index_metadata, plan->bytes_out);
    tc_json_open_object(&json, "weight_map");
    for (size_t i = 0; i < count; i++) {
        tc_json_add_key(&json, placed[i].name);
        tc_json_add_string(&json, NULL, placed[i].file);
    }
    tc_json_end_line(&json);
}

/* Every name that the index lists, with its file. */
static bool place_names(const struct tc_plan *plan, struct placed *placed, size_t *count,
                        struct tc_arena *arena, struct tc_error *error) {
    for (size_t p = 0; p < plan->file_count; p++) {
        const struct tc_output_file *file = &plan->files[p];
        struct tc_text *names = tc_arena_array(arena, file->count, sizeof *names, error);
        if (!names)
            return false;
        for (size_t i = 0; i < file->count; i++)
            names[i] = plan->items[file->first + i].name;
        if (plan->target->sharding->listed &&
            !plan->target->sharding->listed(plan, file, arena, names, error))
            return false;
        for (size_t i = 0; i < file->count; i++)
            if (names[i].bytes)
                placed[(*count)++] = (struct placed){names[i], file->name};
    }
    return true;
}

bool shards_write_index(const struct tc_plan *plan, struct tc_outfile *out,
                        struct tc_error *error) {
    struct placed *placed = malloc((plan->count ? plan->count : 1) * sizeof *placed);
    struct tc_arena arena;
    size_t count = 0;
    tc_arena_init(&arena, 0);
    bool ok = placed ? place_names(plan, placed, &count, &arena, error) : tc_fail_memory(error);
    struct tc_buffer text = {0};
    if (ok)
        print_index(&text, placed, count, plan);
    ok = ok && tc_buffer_ok(&text, error) && tc_outfile_write(out, text.bytes, text.length, error);
    tc_buffer_release(&text);
    tc_arena_release(&arena);
    free(placed);
    return ok;
}
