#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/restore_metadata.h"
#include "core/format/source.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"
#include "formats/gguf/gguf.h"

#define LONGEST_KEY 65535u

static const char *const versions[] = {"3", "2", NULL};
const struct tc_format_option gguf_version_option = {
    .name = "gguf-version",
    .use = TC_FOR_WRITING,
    .type = TC_OPTION_CHOICE,
    .choices = versions,
    .argument = "N",
    .help = "version of GGUF that is written: 3 (default), or 2 for programs of 2023",
    .target = "GGUF file",
};

/* The types of keys that ggml itself reads, whatever the metadata came from. */
static const struct known_key {
    const char *key;
    const char *type;
} known_keys[] = {
    {GGUF_KEY_ALIGNMENT, "U32"},
    {GGUF_KEY_SPLIT_NO, "U16"},
    {GGUF_KEY_SPLIT_COUNT, "U16"},
    {GGUF_KEY_SPLIT_TENSORS, "I32"},
};

/* The type in which a key is written; empty for a string. */
static struct tc_text type_of(const struct tc_plan *plan, struct tc_text key) {
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++)
        if (tc_text_equal(key, tc_text_of(known_keys[i].key)))
            return tc_text_of(known_keys[i].type);
    const struct tc_text *type = tc_metadata_find(&plan->metadata_types, key);
    return type ? *type : TC_TEXT("");
}

/* The alignment that the metadata asks for; 0 where it is none. */
static uint64_t find_alignment(const struct tc_metadata *metadata) {
    const struct tc_text *text = tc_metadata_find(metadata, TC_TEXT(GGUF_KEY_ALIGNMENT));
    uint64_t number = 0;
    if (!text)
        return GGUF_ALIGNMENT;
    for (size_t i = 0; i < text->length; i++) {
        if (text->bytes[i] < '0' || text->bytes[i] > '9' || number > UINT32_MAX)
            return 0;
        number = number * 10 + (uint64_t)(text->bytes[i] - '0');
    }
    bool power = number && (number & (number - 1)) == 0 && number <= UINT32_MAX;
    return power && text->bytes[0] != '0' ? number : 0;
}

static bool is_split_key(struct tc_text key) {
    return tc_text_starts(key, TC_TEXT(GGUF_SPLIT_PREFIX));
}

static bool check_pair(struct tc_plan *plan, const struct tc_pair *pair, struct tc_error *error) {
    struct tc_text type = type_of(plan, pair->key);
    struct tc_buffer bytes = {0};
    if (pair->key.length == 0 || pair->key.length > LONGEST_KEY) {
        tc_fail(error, TC_UNSUPPORTED, "metadata", "GGUF holds keys of 1 to %u bytes (one has %zu)",
                LONGEST_KEY, pair->key.length);
        return tc_error_hint(error, "leave the metadata out with --keep-metadata=drop");
    }
    if (is_split_key(pair->key))
        return tc_plan_note(plan, TC_CHANGE, TC_KIND_METADATA, pair->key, error,
                            "left out: it said which of several files this was");
    bool fits = !type.length || gguf_value_write(&bytes, pair->value, type);
    tc_buffer_release(&bytes);
    return fits || tc_plan_note(plan, TC_CHANGE, TC_KIND_METADATA, pair->key, error,
                                "its value is no %.*s; it is written as a string",
                                tc_text_shown(type, 40), type.bytes);
}

bool gguf_check(struct tc_plan *plan, struct tc_error *error) {
    for (size_t i = 0; i < plan->metadata.count; i++)
        if (!check_pair(plan, &plan->metadata.pairs[i], error))
            return false;
    if (!find_alignment(&plan->metadata))
        return tc_fail(error, TC_UNSUPPORTED, "alignment",
                       "metadata key " GGUF_KEY_ALIGNMENT " is no power of two");
    if (tc_metadata_find(&plan->metadata, TC_TEXT(TC_TENSOR_METADATA_KEY))) {
        tc_fail(error, TC_UNSUPPORTED, "metadata",
                "metadata key \"%s\" means something of its own here", TC_TENSOR_METADATA_KEY);
        return tc_error_hint(error, "leave the metadata out with --keep-metadata=drop");
    }
    for (size_t i = 0; i < plan->count; i++)
        if (plan->items[i].name.length >= GGUF_GGML_NAME &&
            !tc_plan_note(plan, TC_WARNING, TC_KIND_NAME, plan->items[i].name, error,
                          "llama.cpp reads no names of %u bytes and more", GGUF_GGML_NAME))
            return false;
    return true;
}

static void add_number(struct tc_buffer *text, uint64_t number, unsigned bytes) {
    unsigned char buffer[8];
    tc_store(buffer, number, bytes);
    tc_buffer_add(text, buffer, bytes);
}

/* Whether the file's metadata has this key in the output: split keys only where it is one of
 * several files. */
static bool is_written(const struct tc_writer *writer, struct tc_text key) {
    return !is_split_key(key) || writer->plan->in_shards;
}

static void add_pairs(struct tc_buffer *text, const struct tc_writer *writer) {
    const struct tc_metadata *metadata = &writer->file->metadata;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct tc_pair *pair = &metadata->pairs[i];
        if (!is_written(writer, pair->key))
            continue;
        struct tc_text type = type_of(writer->plan, pair->key);
        gguf_string_write(text, pair->key);
        if (!type.length || !gguf_value_write(text, pair->value, type)) {
            add_number(text, GGUF_STRING, 4);
            gguf_string_write(text, pair->value);
        }
    }
}

/* Adds the entries of the tensors, and fills in where each has its data, from the start of the
 * data section. */
static bool add_tensors(struct tc_buffer *text, const struct tc_writer *writer,
                        struct tc_error *error) {
    const struct gguf_writer *gguf = writer->state;
    uint64_t offset = 0;
    for (size_t i = 0; i < writer->file->count; i++) {
        const struct tc_item *item = &writer->plan->items[writer->file->first + i];
        gguf_string_write(text, item->name);
        add_number(text, item->rank, 4);
        for (unsigned axis = item->rank; axis-- > 0;)
            add_number(text, item->shape[axis], 8);
        add_number(text, (uint64_t)gguf_number_of(item->dtype), 4);
        add_number(text, offset, 8);
        gguf->offsets[i] = offset;
        if (!tc_add(offset, item->nbytes, &offset) ||
            !tc_align_up(offset, gguf->alignment, &offset))
            return tc_fail(error, TC_UNSUPPORTED, "size-overflow", "the tensors' sizes overflow");
    }
    return true;
}

bool gguf_begin(struct tc_writer *writer, struct tc_error *error) {
    struct gguf_writer *gguf = writer->state;
    const struct tc_output_file *file = writer->file;
    unsigned version =
        tc_option_choice(&writer->plan->options->write.settings, &gguf_version_option) ? 2 : 3;
    struct tc_buffer text = {0};
    size_t pairs = 0;
    gguf->alignment = find_alignment(&file->metadata);
    gguf->offsets = tc_arena_array(&writer->arena, file->count, sizeof(uint64_t), error);
    if (!gguf->offsets)
        return false;
    for (size_t i = 0; i < file->metadata.count; i++)
        pairs += is_written(writer, file->metadata.pairs[i].key);
    tc_buffer_add(&text, GGUF_MAGIC, 4);
    add_number(&text, version, 4);
    add_number(&text, file->count, 8);
    add_number(&text, pairs, 8);
    add_pairs(&text, writer);
    bool ok = add_tensors(&text, writer, error) && tc_buffer_ok(&text, error) &&
              tc_outfile_write(writer->out, text.bytes, text.length, error);
    uint64_t data = text.length;
    tc_buffer_release(&text);
    if (!ok || !file->count)
        return ok;
    if (!tc_align_up(data, gguf->alignment, &data))
        return tc_fail(error, TC_UNSUPPORTED, "alignment", "the alignment is too large");
    for (size_t i = 0; i < file->count; i++)
        gguf->offsets[i] += data;
    return true;
}

/* Zeros up to the next multiple of the alignment. */
static bool pad(struct tc_writer *writer, struct tc_error *error) {
    static const char zeros[4096];
    const struct gguf_writer *gguf = writer->state;
    uint64_t left = -writer->out->position & (gguf->alignment - 1);
    while (left) {
        size_t step = left < sizeof zeros ? left : sizeof zeros;
        if (!tc_outfile_write(writer->out, zeros, step, error))
            return false;
        left -= step;
    }
    return true;
}

/* The padding before the first tensor is written with it, that behind a tensor at once. */
static bool move_to(struct tc_writer *writer, size_t item, struct tc_error *error) {
    const struct gguf_writer *gguf = writer->state;
    if (item == 0 && !tc_outfile_seekable(writer->out) && !pad(writer, error))
        return false;
    writer->out->position = gguf->offsets[item];
    return true;
}

bool gguf_put(struct tc_writer *writer, size_t item, struct tc_source *source,
              struct tc_error *error) {
    return move_to(writer, item, error) && tc_source_write(source, writer->out, error) &&
           pad(writer, error);
}

static bool leave_room(struct tc_writer *writer, size_t item, struct tc_error *error) {
    const struct gguf_writer *gguf = writer->state;
    writer->out->position = gguf->offsets[item];
    tc_outfile_skip(writer->out, writer->plan->items[writer->file->first + item].nbytes);
    return pad(writer, error);
}

static bool set_number(struct tc_metadata *metadata, struct tc_arena *arena, const char *key,
                       size_t value, struct tc_error *error) {
    char text[24];
    int length = snprintf(text, sizeof text, "%zu", value);
    char *copy = tc_arena_copy(arena, text, (size_t)length, error);
    return copy && tc_metadata_set(metadata, arena, tc_text_of(key), tc_text_of(copy), error);
}

/* As llama.cpp's own tool divides: the first file has the metadata, the others only what they
 * need to be read. */
static bool shard_metadata(struct tc_plan *plan, struct tc_output_file *file, size_t index,
                           struct tc_error *error) {
    struct tc_metadata *metadata = &file->metadata;
    if (index) {
        struct tc_metadata kept = {0};
        for (size_t i = 0; i < metadata->count; i++) {
            const struct tc_pair *pair = &metadata->pairs[i];
            if ((tc_text_equal(pair->key, TC_TEXT(GGUF_KEY_ALIGNMENT)) ||
                 tc_text_equal(pair->key, TC_TEXT(TC_TENSOR_METADATA_KEY))) &&
                !tc_metadata_add(&kept, &plan->arena, pair->key, pair->value, error))
                return false;
        }
        *metadata = kept;
    }
    return set_number(metadata, &plan->arena, GGUF_KEY_SPLIT_NO, index, error) &&
           set_number(metadata, &plan->arena, GGUF_KEY_SPLIT_COUNT, plan->file_count, error) &&
           set_number(metadata, &plan->arena, GGUF_KEY_SPLIT_TENSORS, plan->count, error);
}

const struct tc_sharding gguf_sharding = {
    .count_digits = 5,
    .shard_metadata = shard_metadata,
    .leave_room = leave_room,
    .single = true,
};
