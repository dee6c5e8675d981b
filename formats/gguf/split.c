/*
 * A model in several files, STEM-00001-of-00003.gguf and so on: each is a whole GGUF file, and the
 * first has the metadata. There is no index: opening the first file opens them all.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"
#include "formats/gguf/gguf.h"
#include "formats/shards.h"

#define DIGITS 5u

struct split {
    uint64_t number; /* from 0 */
    uint64_t count;
    uint64_t tensors; /* of all files */
    bool counted;     /* `tensors` was there */
};

/* The number that a key holds, where it is an integer. */
static bool find_number(const struct tc_reader *reader, const char *key, uint64_t *number) {
    const struct tc_text *text = tc_metadata_find(&reader->table.metadata, tc_text_of(key));
    if (!text || !tc_metadata_find(&reader->metadata_types, tc_text_of(key)) || !text->length ||
        text->length > 10)
        return false;
    *number = 0;
    for (size_t i = 0; i < text->length; i++) {
        if (text->bytes[i] < '0' || text->bytes[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(text->bytes[i] - '0');
    }
    return true;
}

static bool find_split(const struct tc_reader *reader, struct split *split) {
    *split = (struct split){0};
    if (!find_number(reader, GGUF_KEY_SPLIT_NO, &split->number) ||
        !find_number(reader, GGUF_KEY_SPLIT_COUNT, &split->count) || split->count < 2)
        return false;
    split->counted = find_number(reader, GGUF_KEY_SPLIT_TENSORS, &split->tensors);
    return true;
}

/* The name's part before "-00001-of-00003.gguf"; false where the name is none of this kind. */
static bool find_stem(const struct tc_reader *reader, const struct split *split,
                      struct tc_text *stem) {
    char ending[64];
    struct tc_text name = tc_text_of(tc_path_name(reader->input->path));
    snprintf(ending, sizeof ending, "-%05llu-of-%05llu.gguf", (unsigned long long)split->number + 1,
             (unsigned long long)split->count);
    if (!tc_text_ends(name, tc_text_of(ending)))
        return false;
    *stem = (struct tc_text){name.bytes, name.length - strlen(ending)};
    return true;
}

/* What a file says of its place is of no use once the model is whole. */
static void forget_place(struct tc_reader *reader) {
    tc_metadata_remove_prefix(&reader->table.metadata, TC_TEXT(GGUF_SPLIT_PREFIX));
    tc_metadata_remove_prefix(&reader->metadata_types, TC_TEXT(GGUF_SPLIT_PREFIX));
}

static bool add_files(struct tc_reader *reader, const struct split *split, struct tc_text stem,
                      struct tc_error *error) {
    struct gguf_reader *gguf = reader->state;
    for (uint64_t i = 0; i < split->count; i++) {
        struct tc_buffer name = {0};
        uint32_t position;
        tc_buffer_add_text(&name, stem);
        tc_buffer_addf(&name, "-%05llu-of-%05llu.gguf", (unsigned long long)i + 1,
                       (unsigned long long)split->count);
        char *copy = tc_buffer_ok(&name, error)
                         ? tc_arena_copy(&reader->arena, name.bytes, name.length, error)
                         : NULL;
        tc_buffer_release(&name);
        if (!copy || !shards_add_file(&gguf->shards, tc_text_of(copy), &position, error))
            return false;
    }
    return true;
}

static bool open_all(struct tc_reader *reader, const struct split *split, struct tc_text stem,
                     struct tc_error *error) {
    struct gguf_reader *gguf = reader->state;
    gguf->split = true;
    shards_init(&gguf->shards, reader);
    gguf->shards.without_index = gguf->shards.own = true;
    /* This file is read again as the first of the shards. */
    tc_table_release(&reader->table);
    tc_table_init(&reader->table, &reader->arena, reader->options->limits.tensors);
    reader->metadata_types = (struct tc_metadata){0};
    reader->size = 0;
    if (!add_files(reader, split, stem, error) || !shards_open(&gguf->shards, reader, false, error))
        return false;
    /* It is the reader's own input already. */
    reader->shard_inputs[0] = NULL;
    if (!split->counted || split->tensors == reader->table.count ||
        shards_incomplete(&gguf->shards))
        return true;
    tc_fail(error, TC_INVALID, "missing-tensor",
            "the files have %zu tensors, the first says there are %llu", reader->table.count,
            (unsigned long long)split->tensors);
    return tc_reader_forgive(reader, error);
}

/* A part is opened by a name that says where it belongs: what it says itself must be the same, or
 * files of two models, or of two ways to split one, lie side by side. */
static bool check_place(struct tc_reader *reader, const struct split *split,
                        struct tc_error *error) {
    struct tc_text stem;
    if (!find_stem(reader, split, &stem))
        return tc_fail(error, TC_INVALID, "split",
                       "it says that it is file %llu of %llu, which its name does not",
                       (unsigned long long)split->number + 1, (unsigned long long)split->count);
    forget_place(reader);
    return true;
}

bool gguf_open_splits(struct tc_reader *reader, struct tc_error *error) {
    struct split split;
    struct tc_text stem;
    if (!find_split(reader, &split))
        return true;
    if (reader->options->part)
        return check_place(reader, &split, error);
    if (split.number == 0 && find_stem(reader, &split, &stem))
        return open_all(reader, &split, stem, error);
    if (split.number == 0)
        tc_reader_warn(reader,
                       "it says that it is the first of %llu files, but its name does not: only "
                       "this one is read",
                       (unsigned long long)split.count);
    else
        tc_reader_warn(reader,
                       "it is file %llu of %llu of a model, and only it is read: open the first "
                       "for all of them",
                       (unsigned long long)split.number + 1, (unsigned long long)split.count);
    return true;
}
