/*
 * The files of a checkpoint. ROOT/latest has the name of the tag's folder, such as global_step100.
 * That has for each rank
 *     [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt
 * and mp_rank_00_model_states.pt, or with stage 3 zero_pp_rank_R_mp_rank_00_model_states.pt.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/listing.h"
#include "formats/model_open.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/object.h"
#include "formats/torch/torch.h"
#include "formats/zero/zero.h"

#define OPTIMISER "_optim_states.pt"
#define MODEL "_model_states.pt"
#define RANK "zero_pp_rank_"

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool zero_is_tag(const char *text, size_t length, struct tc_text *tag) {
    while (length && is_space(text[length - 1]))
        length--;
    while (length && is_space(*text)) {
        text++;
        length--;
    }
    *tag = (struct tc_text){text, length};
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return length > 0 && length <= 255 && tc_utf8_valid(*tag);
}

/* The tag's folder: the one that `latest` names, or that of a file of the checkpoint. */
static bool find_folder(struct zero *zero, struct tc_error *error) {
    struct tc_input *input = zero->reader->input;
    struct tc_buffer folder = {0};
    char text[ZERO_TAG];
    struct tc_text tag = {NULL, 0};
    size_t length = input->size < sizeof text ? (size_t)input->size : sizeof text;
    tc_buffer_add(&folder, input->path, (size_t)(tc_path_name(input->path) - input->path));
    if (!tc_input_read(input, 0, text, length, error))
        return false;
    if (length < 2 || memcmp(text, "PK", 2) != 0) {
        if (input->size > sizeof text || !zero_is_tag(text, length, &tag))
            tc_fail(error, TC_INVALID, "zero-latest",
                    "it does not name the folder of a checkpoint");
        else if (!tc_path_is_plain(tag)) {
            tc_fail(error, TC_UNSAFE, "shard-path", "it names a folder elsewhere: \"%.*s\"",
                    tc_text_shown(tag, 200), tag.bytes);
            tc_error_because(error, TC_REASON_OUTSIDE);
        }
        tc_buffer_add_text(&folder, tag);
        tc_buffer_add_string(&folder, "/");
    } else if (folder.length == 0)
        tc_buffer_add_string(&folder, "./");
    tc_buffer_add(&folder, "", 1);
    if (error->class == TC_OK && tc_buffer_ok(&folder, error)) {
        zero->folder = folder.bytes;
        return true;
    }
    tc_buffer_release(&folder);
    return false;
}

/* Takes a number off the start. */
static bool take_number(struct tc_text *text, uint64_t *number) {
    size_t at = 0;
    *number = 0;
    while (at < text->length && at < 9 && text->bytes[at] >= '0' && text->bytes[at] <= '9')
        *number = *number * 10 + (uint64_t)(text->bytes[at++] - '0');
    text->bytes += at;
    text->length -= at;
    return at > 0;
}

static bool take_word(struct tc_text *text, const char *word) {
    struct tc_text prefix = tc_text_of(word);
    if (!tc_text_starts(*text, prefix))
        return false;
    text->bytes += prefix.length;
    text->length -= prefix.length;
    return true;
}

/* Reads [bf16_]zero_pp_rank_R_mp_rank_00_… or mp_rank_00_… */
static bool parse_name(struct tc_text name, const char *ending, uint64_t *rank, uint64_t *other) {
    struct tc_text rest = name;
    *rank = 0;
    take_word(&rest, "bf16_");
    if (take_word(&rest, RANK) && (!take_number(&rest, rank) || !take_word(&rest, "_")))
        return false;
    return take_word(&rest, "mp_rank_") && take_number(&rest, other) &&
           tc_text_equal(rest, tc_text_of(ending));
}

static int by_rank(const void *a, const void *b) {
    const struct zero_file *x = a;
    const struct zero_file *y = b;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1) : tc_text_compare(x->name, y->name);
}

/* Lists the files with this ending, by rank. */
static bool list_files(struct zero *zero, const struct tc_listing *listing, const char *ending,
                       struct zero_files *files, struct tc_error *error) {
    struct tc_arena *arena = &zero->reader->arena;
    files->list = tc_arena_array(arena, listing->count, sizeof *files->list, error);
    if (!files->list)
        return false;
    for (size_t i = 0; i < listing->count; i++) {
        struct tc_text name = listing->entries[i].name;
        uint64_t other = 0;
        struct zero_file *file = &files->list[files->count];
        if (!tc_text_ends(name, tc_text_of(ending)))
            continue;
        if (!parse_name(name, ending, &file->rank, &other) || other != 0)
            return tc_fail(error, TC_UNSUPPORTED, "zero-parallel", "%.*s: %s",
                           tc_text_shown(name, 200), name.bytes,
                           other ? "models that are cut by tensor parallelism are not supported"
                                 : "a file of experts or of another kind that is not supported");
        file->name.bytes = tc_arena_copy(arena, name.bytes, name.length, error);
        file->name.length = name.length;
        if (!file->name.bytes)
            return false;
        files->count++;
    }
    if (files->count)
        qsort(files->list, files->count, sizeof *files->list, by_rank);
    return true;
}

static bool open_file(struct zero *zero, struct zero_file *file, struct tc_error *error) {
    struct tc_buffer path = {0};
    tc_buffer_add_string(&path, zero->folder);
    tc_buffer_add_text(&path, file->name);
    struct tc_input *input =
        tc_buffer_ok(&path, error)
            ? tc_reader_open_beside(zero->reader, path.bytes, &zero->pool, error)
            : NULL;
    tc_buffer_release(&path);
    file->reader = input ? torch_object_open(input, &zero->options, error) : NULL;
    if (!file->reader)
        return false;
    zero->inputs[zero->input_count++] = file->reader->input;
    zero->reader->size += file->reader->size;
    file->root = torch_object_root(file->reader);
    return pickle_is(file->root, PICKLE_DICT) ||
           tc_fail(error, TC_INVALID, "zero-file", "it is no file of a ZeRO checkpoint") ||
           tc_error_in_file(error, file->reader->input->path);
}

/* Opens all of them: ranks 0 to count - 1, each once. */
static bool open_ranks(struct zero *zero, struct zero_files *files, struct tc_error *error) {
    for (size_t i = 0; i < files->count; i++) {
        if (files->list[i].rank != i)
            return tc_fail(error, TC_INVALID, "missing-shard",
                           "the file of rank %zu is missing, or there are two of one rank", i);
        if (!open_file(zero, &files->list[i], error))
            return false;
    }
    return true;
}

/* An integer that is not negative. */
static bool number(const struct pickle_node *node, uint64_t *value) {
    if (!pickle_is(node, PICKLE_INT) || node->integer < 0)
        return false;
    *value = (uint64_t)node->integer;
    return true;
}

/* partition_count: a number, or a list of them of which the highest counts. */
static bool read_partitions(const struct pickle_node *node, uint64_t *count) {
    *count = 0;
    if (!pickle_is(node, PICKLE_LIST) && !pickle_is(node, PICKLE_TUPLE))
        return number(node, count);
    for (size_t i = 0; i < node->count; i++) {
        uint64_t each;
        if (!number(node->items[i], &each))
            return false;
        *count = each > *count ? each : *count;
    }
    return node->count > 0;
}

/* What each rank says of the stage and of the number of ranks. */
static bool check_rank(struct zero *zero, const struct zero_file *file, struct tc_error *error) {
    const struct pickle_node *state = torch_find_key(file->root, "optimizer_state_dict");
    const struct pickle_node *stage = torch_find_key(state, "zero_stage");
    uint64_t count;
    uint64_t own;
    if (!stage)
        return tc_fail(error, TC_INVALID, "zero-file", "it is no file of a ZeRO checkpoint");
    if (!number(stage, &own) || own < 1 || own > 3)
        return tc_fail(error, TC_UNSUPPORTED, "zero-stage",
                       "ZeRO of another stage than 1, 2 and 3");
    if (file->rank == 0)
        zero->stage = own;
    if (own != zero->stage)
        return tc_fail(error, TC_INVALID, "zero-stage", "its stage is %llu, that of rank 0 is %llu",
                       (unsigned long long)own, (unsigned long long)zero->stage);
    if (!read_partitions(torch_find_key(state, "partition_count"), &count))
        return tc_fail(error, TC_INVALID, "zero-file", "partition_count is no number");
    if (count != zero->optimiser.count)
        return tc_fail(error, TC_INVALID, "missing-shard",
                       "it is one of %llu files, and there are %zu", (unsigned long long)count,
                       zero->optimiser.count);
    return true;
}

/* Stages 1 and 2 have one model file, stage 3 one a rank. */
static bool check_files(struct zero *zero, struct tc_error *error) {
    if (zero->optimiser.count == 0)
        return tc_fail(error, TC_INVALID, "missing-shard",
                       "the checkpoint has no file whose name ends in %s", OPTIMISER);
    for (size_t i = 0; i < zero->optimiser.count; i++)
        if (!check_rank(zero, &zero->optimiser.list[i], error))
            return tc_error_in_file(error, zero->optimiser.list[i].reader->input->path);
    size_t expected = zero->stage == 3 ? zero->optimiser.count : 1;
    if (zero->model.count != expected)
        return tc_fail(error, TC_INVALID, "missing-shard",
                       "there are %zu files whose names end in %s (expected %zu)",
                       zero->model.count, MODEL, expected);
    return true;
}

bool zero_open_files(struct zero *zero, struct tc_error *error) {
    struct tc_reader *reader = zero->reader;
    struct tc_listing listing;
    if (!find_folder(zero, error))
        return false;
    tc_listing_init(&listing);
    bool ok = model_list(&listing, zero->folder, reader->options, error) &&
              list_files(zero, &listing, OPTIMISER, &zero->optimiser, error) &&
              list_files(zero, &listing, MODEL, &zero->model, error);
    tc_listing_release(&listing);
    size_t files = zero->optimiser.count + zero->model.count;
    zero->inputs =
        ok ? tc_arena_array(&reader->arena, files, sizeof(struct tc_input *), error) : NULL;
    if (!zero->inputs)
        return tc_error_in_file(error, zero->folder);
    /* The input itself is one of the files, unless it is `latest`. */
    if (tc_text_ends(tc_text_of(reader->input->path), TC_TEXT(MODEL)))
        reader->size = 0;
    ok = (open_ranks(zero, &zero->optimiser, error) && open_ranks(zero, &zero->model, error) &&
          check_files(zero, error)) ||
         tc_error_in_file(error, zero->folder);
    reader->companions = zero->inputs;
    reader->companion_count = zero->input_count;
    return ok;
}
