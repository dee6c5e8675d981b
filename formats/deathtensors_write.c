/* The writer of deathtensors files; deathtensors.c has their layout. */

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/format/backend.h"
#include "core/format/source.h"
#include "core/io/chunk_pipe.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"
#include "core/io/zstd.h"
#include "core/plan/layout.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/metadata_json.h"
#include "formats/deathtensors.h"

#define METADATA_LIMIT (UINT64_C(1) << 20)

/* Where an item's data lies in the blob, behind an item that ends at `end`. */
static uint64_t place_behind(const struct tc_plan *plan, uint64_t end) {
    uint64_t step = tc_layout_step(plan);
    return (end + step - 1) / step * step;
}

/* The header as serde_json's pretty printer writes it. */
static void add_header(struct tc_buffer *text, const struct tc_metadata *metadata,
                       const struct tc_plan *plan, const struct tc_item *items, size_t count) {
    struct tc_json_writer json = {
        .out = text, .escape = TC_ESCAPE_SERDE, .style = TC_JSON_INDENTED};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "format", "deathtensors");
    tc_json_add_number(&json, "format_version", 1);
    tc_json_add_string(&json, "created_by", "tconv " TC_VERSION);
    tc_metadata_write(&json, "global_metadata", metadata);
    tc_json_open_object(&json, "tensors");
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tc_item *item = &items[i];
        offset = place_behind(plan, offset);
        const uint64_t offsets[2] = {offset, offset + item->nbytes};
        tc_json_add_key(&json, item->name);
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "dtype", tc_dtype_name(item->dtype));
        tc_json_add_numbers(&json, "shape", item->shape, item->rank);
        tc_json_add_numbers(&json, "data_offsets", offsets, 2);
        tc_metadata_write(&json, "metadata", item->metadata);
        tc_json_close(&json);
        offset += item->nbytes;
    }
    tc_json_close(&json);
    tc_json_close(&json);
}

bool deathtensors_check(struct tc_plan *plan, struct tc_error *error) {
    for (size_t i = 0; i < plan->metadata.count; i++)
        if (tc_text_starts(plan->metadata.pairs[i].key, TC_TEXT(KEY_PREFIX))) {
            struct tc_text key = plan->metadata.pairs[i].key;
            tc_fail(error, TC_UNSUPPORTED, "metadata",
                    "metadata key \"%.*s\" means something of its own in deathtensors",
                    tc_text_shown(key, 200), key.bytes);
            return tc_error_hint(error, "leave the metadata out with --keep-metadata=drop");
        }
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        uint64_t bytes = 0;
        for (size_t m = 0; item->metadata && m < item->metadata->count; m++)
            bytes +=
                item->metadata->pairs[m].key.length + item->metadata->pairs[m].value.length + 8;
        if (bytes > METADATA_LIMIT) {
            tc_fail(error, TC_UNSUPPORTED, "metadata",
                    "its metadata takes %llu bytes, deathtensors holds %llu a tensor",
                    (unsigned long long)bytes, (unsigned long long)METADATA_LIMIT);
            return tc_error_in_tensor(error, item->name.bytes, item->name.length);
        }
    }
    return true;
}

/* Writes the prefix, and the header in `text` with its padding. */
static bool write_head(struct tc_outfile *out, struct tc_buffer *text, uint64_t flags,
                       struct tc_error *error) {
    unsigned char prefix[PREFIX_BYTES] = "DTLEGION\1";
    tc_store(prefix + 12, flags, 4);
    tc_store(prefix + 16, text->length, 8);
    static const char zeros[8];
    tc_buffer_add(text, zeros, -text->length & 7);
    if (!tc_buffer_ok(text, error))
        return false;
    if (text->length > HEADER_LIMIT) {
        tc_fail(error, TC_UNSUPPORTED, "header-limit", "the header would be %zu bytes (limit %llu)",
                text->length, (unsigned long long)HEADER_LIMIT);
        return tc_error_because(error, TC_REASON_HEADER_SIZE);
    }
    return tc_outfile_write(out, prefix, sizeof prefix, error) &&
           tc_outfile_write(out, text->bytes, text->length, error);
}

static bool emit_compressed(void *context, const void *bytes, size_t length,
                            struct tc_error *error) {
    struct tc_writer *writer = context;
    struct deathtensors_writer *file = writer->state;
    if (file->is_hashing)
        tc_hash_thread_bytes(&file->hashing, bytes, length);
    return tc_outfile_write(writer->out, bytes, length, error);
}

bool deathtensors_begin(struct tc_writer *writer, struct tc_error *error) {
    struct deathtensors_writer *file = writer->state;
    const struct tc_write_options *options = &writer->plan->options->write;
    const struct tc_item *items = writer->plan->items + writer->file->first;
    struct tc_buffer text = {0};
    writer->sees_bytes = options->compress || options->checksum;
    add_header(&text, &writer->file->metadata, writer->plan, items, writer->file->count);
    uint64_t data = PREFIX_BYTES + ((text.length + 7) & ~UINT64_C(7));
    uint64_t start = tc_layout_start(writer, data);
    /* A header that is longer than it must be ends in spaces, behind its last brace. */
    if (start > data)
        tc_buffer_add_spaces(&text, start - PREFIX_BYTES - text.length);
    bool ok = write_head(
        writer->out, &text,
        (options->compress ? FLAG_ZSTD : 0) | (options->checksum ? FLAG_CHECKSUM : 0), error);
    if (ok && options->checksum) {
        ok = file->is_hashing = tc_hash_thread_start(&file->hashing, error);
        if (ok)
            tc_hash_thread_bytes(&file->hashing, text.bytes, text.length);
    }
    tc_buffer_release(&text);
    if (ok && options->compress) {
        int level =
            options->compress == TC_COMPRESS_DEFAULT ? TC_ZSTD_DEFAULT_LEVEL : options->compress;
        file->encoding = true;
        ok = tc_zstd_encoder_init(&file->encoder, level, emit_compressed, writer, error);
    }
    return ok;
}

/* Zeros up to where an item's data begins. */
static bool fill_gap(struct tc_writer *writer, size_t item, struct tc_error *error) {
    static const char zeros[4096];
    struct deathtensors_writer *file = writer->state;
    uint64_t place = place_behind(writer->plan, file->end);
    bool ok = true;
    for (uint64_t left = place - file->end; ok && left;) {
        size_t step = left < sizeof zeros ? left : sizeof zeros;
        if (file->is_hashing && !file->encoding)
            tc_hash_thread_bytes(&file->hashing, zeros, step);
        ok = file->encoding ? tc_zstd_encode(&file->encoder, zeros, step, error)
                            : tc_outfile_write(writer->out, zeros, step, error);
        left -= step;
    }
    file->end = place + writer->plan->items[writer->file->first + item].nbytes;
    return ok;
}

bool deathtensors_put(struct tc_writer *writer, size_t item, struct tc_source *source,
                      struct tc_error *error) {
    struct deathtensors_writer *file = writer->state;
    if (!fill_gap(writer, item, error))
        return false;
    if (!writer->sees_bytes)
        return tc_source_write(source, writer->out, error);
    struct tc_chunk *chunk;
    bool ok = true;
    enum tc_next next = TC_NEXT_FAILED;
    while (ok && (next = tc_source_next(source, &chunk, error)) == TC_NEXT_CHUNK) {
        if (file->encoding) {
            ok = tc_zstd_encode(&file->encoder, chunk->bytes, chunk->length, error);
        } else {
            tc_hash_thread_chunk(&file->hashing, chunk);
            ok = tc_outfile_write(writer->out, chunk->bytes, chunk->length, error);
        }
        tc_chunk_release(chunk);
    }
    return ok && next == TC_NEXT_END;
}

static void release(struct deathtensors_writer *file) {
    if (file->is_hashing)
        tc_hash_thread_abort(&file->hashing);
    if (file->encoding)
        tc_zstd_encoder_release(&file->encoder);
    file->is_hashing = file->encoding = false;
}

bool deathtensors_finish(struct tc_writer *writer, struct tc_error *error) {
    struct deathtensors_writer *file = writer->state;
    bool ok = !file->encoding || tc_zstd_encoder_finish(&file->encoder, error);
    if (ok && file->is_hashing) {
        unsigned char digest[TC_SHA256_BYTES];
        tc_hash_thread_finish(&file->hashing, digest);
        file->is_hashing = false;
        ok = tc_outfile_write(writer->out, digest, sizeof digest, error);
    }
    release(file);
    return ok;
}

void deathtensors_abort(struct tc_writer *writer) {
    release(writer->state);
}

static bool set_number(struct tc_metadata *metadata, struct tc_arena *arena, const char *key,
                       size_t value, struct tc_error *error) {
    struct tc_buffer text = {0};
    tc_buffer_addf(&text, "%zu", value);
    char *copy =
        tc_buffer_ok(&text, error) ? tc_arena_copy(arena, text.bytes, text.length, error) : NULL;
    tc_buffer_release(&text);
    return copy && tc_metadata_set(metadata, arena, tc_text_of(key), tc_text_of(copy), error);
}

static bool shard_metadata(struct tc_plan *plan, struct tc_output_file *file, size_t index,
                           struct tc_error *error) {
    struct tc_metadata *metadata = &file->metadata;
    return set_number(metadata, &plan->arena, KEY_INDEX, index, error) &&
           set_number(metadata, &plan->arena, KEY_COUNT, plan->file_count, error);
}

/* The list of shards as Python's json.dumps prints it. */
static void add_shard_list(struct tc_buffer *text, const struct tc_plan *plan) {
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_ASCII, .style = TC_JSON_SPACED};
    tc_json_open_array(&json, NULL);
    for (size_t p = 0; p < plan->file_count; p++) {
        const struct tc_output_file *file = &plan->files[p];
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "path", file->name);
        tc_json_open_array(&json, "tensors");
        for (size_t i = 0; i < file->count; i++)
            tc_json_add_text(&json, NULL, plan->items[file->first + i].name);
        tc_json_close(&json);
        tc_json_add_number(&json, "bytes", file->nbytes);
        tc_json_close(&json);
    }
    tc_json_close(&json);
}

/* The index is never compressed. */
static bool write_index(const struct tc_plan *plan, struct tc_outfile *out,
                        struct tc_error *error) {
    struct tc_arena arena;
    struct tc_buffer list = {0};
    struct tc_buffer text = {0};
    tc_arena_init(&arena, 0);
    struct tc_metadata *metadata = tc_metadata_copy(&plan->metadata, &arena, error);
    add_shard_list(&list, plan);
    bool ok = metadata && tc_buffer_ok(&list, error) &&
              tc_metadata_set(metadata, &arena, TC_TEXT(KEY_SHARDED), TC_TEXT("true"), error) &&
              set_number(metadata, &arena, KEY_COUNT, plan->file_count, error) &&
              tc_metadata_set(metadata, &arena, TC_TEXT(KEY_SHARDS),
                              (struct tc_text){list.bytes, list.length}, error);
    if (ok) {
        bool checksum = plan->options->write.checksum;
        add_header(&text, metadata, plan, NULL, 0);
        unsigned char digest[TC_SHA256_BYTES];
        ok = write_head(out, &text, checksum ? FLAG_CHECKSUM : 0, error) &&
             (!checksum || (tc_sha256_of(text.bytes, text.length, digest, error) &&
                            tc_outfile_write(out, digest, sizeof digest, error)));
    }
    tc_buffer_release(&text);
    tc_buffer_release(&list);
    tc_arena_release(&arena);
    return ok;
}

static bool leave_room(struct tc_writer *writer, size_t item, struct tc_error *error) {
    bool ok = fill_gap(writer, item, error);
    tc_outfile_skip(writer->out, writer->plan->items[writer->file->first + item].nbytes);
    return ok;
}

const struct tc_sharding deathtensors_sharding = {
    .count_digits = 4,
    .index_ending = "",
    .shard_metadata = shard_metadata,
    .leave_room = leave_room,
    .write_index = write_index,
};
