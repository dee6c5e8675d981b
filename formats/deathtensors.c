/*
 *     "DTLEGION", u32 version 1, u32 flags, u64 length of the header
 *     header: JSON, padded with NUL to a multiple of 8
 *     blob: the tensors, or one zstd frame of them (flag bit 0)
 *     SHA-256 of header, padding and blob as they lie in the file (flag bit 1)
 *
 * Offsets count from the start of the blob before compression. A model in
 * several files has an index: a file of this format without tensors whose
 * metadata lists the shards.
 */

#include "formats/deathtensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/sha256.h"
#include "core/io/spool.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/metadata_json.h"
#include "core/tensor/table.h"
#include "formats/shards.h"
#include "formats/tensor_entry.h"

#define STEP ((size_t)1 << 18)
#define DTYPES                                                                                     \
    (TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) | TC_SET(TC_BF16) | TC_SET(TC_F32) |       \
     TC_SET(TC_F64) | TC_SET(TC_C64) | TC_SET(TC_C128))

struct deathtensors_reader {
    char *header;
    uint64_t header_size;
    uint64_t blob; /* where the blob starts in the file */
    uint64_t blob_end;
    uint64_t blob_size; /* before compression */
    /* For a compressed blob: the decoder and its place in the blob, or, once a read
     * went backwards, a spool with the whole of it. */
    struct tc_zstd_decoder decoder;
    bool decoding;
    uint64_t position;
    struct tc_spool spool;
    bool broken; /* decoding failed: no more can be read */
    bool spared; /* the checksum is not looked at */
    struct shards shards;
};

static int probe(const struct tc_probe *probe) {
    return probe->length >= 8 && memcmp(probe->head, "DTLEGION", 8) == 0 ? 100 : 0;
}

/* Tensors need not fill the blob, but may not overlap, and it ends with the
 * last one. */
static bool check_blob(struct tc_reader *reader, struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    uint64_t end = 0;
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        if (tensor->nbytes == 0)
            continue;
        if (tensor->offset < end) {
            tc_fail(error, TC_INVALID, "overlap", "its data overlaps another tensor's");
            return tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
        }
        end = tensor->offset + tensor->nbytes; /* read_tensors checked that it does not overflow */
    }
    file->blob_size = end;
    for (size_t i = 0; i < reader->table.count; i++)
        if (reader->table.tensors[i].offset > end) {
            tc_fail(error, TC_INVALID, "size-mismatch", "it lies behind the end of the data");
            return tc_error_in_tensor(error, reader->table.tensors[i].name.bytes,
                                      reader->table.tensors[i].name.length);
        }
    if (reader->compressed)
        return tc_reader_check_expansion(reader, end, error);
    uint64_t size = reader->input->size;
    uint64_t footer = reader->checksum ? TC_SHA256_BYTES : 0;
    uint64_t whole;
    if (!tc_add(file->blob + footer, end, &whole))
        whole = UINT64_MAX;
    if (whole == size)
        return true;
    if (whole > size)
        return tc_reader_cut_short(reader, whole, false, error);
    return tc_fail(error, TC_INVALID, "trailing-data",
                   "the data is longer than the header says (got %llu bytes, expected %llu)",
                   (unsigned long long)(size - file->blob - footer), (unsigned long long)end);
}

static bool read_tensors(struct tc_json *json, struct tc_reader *reader) {
    struct tc_text name;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &name)) {
        if (name.length == 0 || name.length > NAME_LIMIT)
            return tc_json_fail(json, "a tensor's name has %zu bytes (1 to %u are allowed)",
                                name.length, NAME_LIMIT);
        if (!tensor_entry_read(json, reader, name, DTYPES, true))
            return false;
        struct tc_tensor *tensor = &reader->table.tensors[reader->table.count - 1];
        tensor->sequential = reader->compressed;
        uint64_t end;
        if (!tc_add(tensor->offset, tensor->nbytes, &end) || end > INT64_MAX)
            return tc_json_fail(json, "data_offsets overflow");
    }
    return !json->failed;
}

static bool read_format(struct tc_json *json) {
    struct tc_text format;
    return tc_json_string(json, &format) && (tc_text_equal(format, TC_TEXT("deathtensors")) ||
                                             tc_json_fail(json, "format is not \"deathtensors\""));
}

static bool read_version(struct tc_json *json) {
    uint64_t version;
    if (!tc_json_unsigned(json, &version))
        return false;
    return version == 1 ||
           tc_fail(json->error, TC_UNSUPPORTED, "version",
                   "header version %llu is not known (expected 1)", (unsigned long long)version);
}

static bool parse_header(struct tc_reader *reader, struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    static const char *const keys[] = {"format", "format_version", "created_by", "global_metadata",
                                       "tensors"};
    enum { FORMAT, VERSION, CREATED_BY, METADATA, TENSORS, KEYS };
    bool seen[KEYS] = {false};
    struct tc_json json;
    struct tc_text key;
    tc_json_init(&json, file->header, file->header_size, PREFIX_BYTES, &reader->arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        struct tc_text ignored;
        size_t which = 0;
        while (which < KEYS && !tc_text_equal(key, tc_text_of(keys[which])))
            which++;
        if (which < KEYS && seen[which])
            return tc_json_fail(&json, "\"%s\" occurs twice", keys[which]);
        if (which < KEYS)
            seen[which] = true;
        bool ok = which == FORMAT       ? read_format(&json)
                  : which == VERSION    ? read_version(&json)
                  : which == CREATED_BY ? tc_json_string(&json, &ignored)
                  : which == METADATA   ? tc_metadata_read(&json, &reader->table.metadata)
                  : which == TENSORS    ? read_tensors(&json, reader)
                                        : tc_json_skip(&json, &ignored);
        if (!ok)
            return false;
    }
    if (!tc_json_end(&json))
        return false;
    if (!seen[FORMAT] || !seen[VERSION] || !seen[TENSORS])
        return tc_json_fail(&json, "format, format_version or tensors is missing");
    return true;
}

static bool read_prefix(struct tc_reader *reader, struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    unsigned char prefix[PREFIX_BYTES];
    uint64_t size = reader->input->size;
    size_t first = size < sizeof prefix ? size : sizeof prefix;
    if (!tc_input_read(reader->input, 0, prefix, first, error))
        return false;
    if (first < 8 || memcmp(prefix, "DTLEGION", 8) != 0)
        return tc_fail(error, TC_INVALID, "magic", "this is no deathtensors file");
    if (first < sizeof prefix)
        return tc_reader_cut_short(reader, sizeof prefix, true, error);
    uint64_t version = tc_load(prefix + 8, 4);
    uint64_t flags = tc_load(prefix + 12, 4);
    if (version != 1)
        return tc_fail(error, TC_UNSUPPORTED, "version", "version %llu is not known (expected 1)",
                       (unsigned long long)version);
    if (flags & ~(uint64_t)(FLAG_ZSTD | FLAG_CHECKSUM))
        return tc_fail(error, TC_UNSUPPORTED, "flags", "%s (flags 0x%llx)",
                       flags & 4 ? "the file is encrypted" : "unknown flags",
                       (unsigned long long)flags);
    reader->compressed = flags & FLAG_ZSTD;
    reader->checksum = flags & FLAG_CHECKSUM;
    file->header_size = tc_load(prefix + 16, 8);
    return true;
}

static bool read_header(struct tc_reader *reader, struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    uint64_t size = reader->input->size;
    uint64_t footer = reader->checksum ? TC_SHA256_BYTES : 0;
    if (!tc_add(file->header_size, PREFIX_BYTES, &file->blob) ||
        !tc_align_up(file->blob, 8, &file->blob) || file->blob > UINT64_MAX - footer ||
        (file->blob > size && file->header_size > HEADER_LIMIT))
        return tc_fail(error, TC_INVALID, "truncated",
                       "the header is longer than the file (%llu bytes, the file has %llu)",
                       (unsigned long long)file->header_size, (unsigned long long)size);
    /* Only here is a cut file noticed in this way: a whole header says how long the
     * data is, unless it is compressed. */
    if (file->blob > size || (reader->compressed && size - file->blob < footer))
        return tc_reader_cut_short(reader, file->blob + footer, true, error);
    file->blob_end = size - file->blob < footer ? file->blob : size - footer;
    uint64_t limit = tc_reader_header_limit(reader, HEADER_LIMIT);
    if (file->header_size > limit) {
        tc_fail(error, TC_UNSAFE, "header-limit", "the header is too long (%llu bytes, limit %llu)",
                (unsigned long long)file->header_size, (unsigned long long)limit);
        return tc_error_hint(error, "raise the limit with --max-header if you trust this file");
    }
    file->header = tc_reader_load(reader, PREFIX_BYTES, file->blob - PREFIX_BYTES, error);
    if (!file->header)
        return false;
    for (uint64_t at = file->header_size; at < file->blob - PREFIX_BYTES; at++)
        if (file->header[at] != '\0') {
            tc_fail(error, TC_INVALID, "padding", "the padding behind the header is not zero");
            return tc_error_at(error, PREFIX_BYTES + at);
        }
    return true;
}

/* False where the text is not a plain number, which is then ignored: the size only
 * serves a check. */
static bool parse_bytes(struct tc_text text, uint64_t *bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < text.length; i++)
        if (text.bytes[i] < '0' || text.bytes[i] > '9' || !tc_mul(value, 10, &value) ||
            !tc_add(value, (uint64_t)(text.bytes[i] - '0'), &value))
            return false;
    *bytes = value;
    return text.length > 0;
}

/* An entry of the list: {"path": FILE, "tensors": [NAME, …], "bytes": N}. */
static bool read_shard(struct tc_json *json, struct shards *shards) {
    struct tc_text key;
    struct tc_text file = {0};
    /* The names may come before the path: they are read once it is known. */
    struct tc_json names = {0};
    bool sized = false;
    uint64_t bytes = 0;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        struct tc_text ignored;
        bool is_path = tc_text_equal(key, TC_TEXT("path"));
        bool is_list = tc_text_equal(key, TC_TEXT("tensors"));
        if ((is_path && file.bytes) || (is_list && names.bytes))
            return tc_json_fail(json, "a key occurs twice in the list of shards");
        if (is_path) {
            if (!tc_json_string(json, &file))
                return false;
        } else if (is_list) {
            tc_json_peek(json);
            names = *json;
            if (!tc_json_skip(json, &ignored))
                return false;
        } else if (!tc_json_skip(json, &ignored)) {
            return false;
        } else if (tc_text_equal(key, TC_TEXT("bytes"))) {
            sized = parse_bytes(ignored, &bytes);
        }
    }
    if (!json->failed && (!file.bytes || !names.bytes))
        return tc_json_fail(json, "path or tensors is missing in the list of shards");
    uint32_t position;
    if (json->failed || !shards_add_file(shards, file, &position, json->error))
        return false;
    if (sized)
        shards_add_size(shards, position, bytes);
    tc_json_begin(&names, TC_JSON_ARRAY);
    while (tc_json_element(&names)) {
        struct tc_text name;
        if (!tc_json_string(&names, &name) ||
            !shards_add_tensor(shards, name, position, json->error))
            return false;
    }
    return !names.failed;
}

static bool open_index(struct tc_reader *reader, struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    const struct tc_text *list = tc_metadata_find(&reader->table.metadata, TC_TEXT(KEY_SHARDS));
    if (!list)
        return tc_fail(error, TC_INVALID, "shard-list", "the index has no list of shards");
    if (reader->table.count)
        return tc_fail(error, TC_INVALID, "shard-list", "the index holds tensors of its own");
    struct tc_error inner = {0};
    struct tc_json json;
    tc_json_init(&json, list->bytes, list->length, 0, &reader->arena, &inner);
    shards_init(&file->shards, reader);
    bool ok = tc_json_begin(&json, TC_JSON_ARRAY);
    while (ok && tc_json_element(&json))
        ok = read_shard(&json, &file->shards);
    if (!ok || json.failed || !tc_json_end(&json)) {
        /* Its offset is one in the list's text, not in the file. */
        inner.has_offset = false;
        if (error->class == TC_OK)
            *error = inner;
        return false;
    }
    tc_metadata_remove_prefix(&reader->table.metadata, TC_TEXT(KEY_PREFIX));
    return shards_open(&file->shards, reader, false, error);
}

static bool verify_checksum(struct tc_reader *reader, struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    unsigned char expected[TC_SHA256_BYTES];
    unsigned char got[TC_SHA256_BYTES];
    struct tc_sha256 hash;
    unsigned char *buffer = malloc(STEP);
    if (!buffer)
        return tc_fail_memory(error);
    bool ok = tc_sha256_init(&hash, error);
    if (!ok) {
        free(buffer);
        return false;
    }
    for (uint64_t at = PREFIX_BYTES; at < file->blob_end && ok;) {
        uint64_t left = file->blob_end - at;
        size_t step = left < STEP ? left : STEP;
        ok = tc_input_read(reader->input, at, buffer, step, error);
        if (ok)
            tc_sha256_update(&hash, buffer, step);
        at += step;
    }
    free(buffer);
    tc_sha256_finish(&hash, got);
    ok = ok && tc_input_read(reader->input, file->blob_end, expected, sizeof expected, error);
    if (ok && memcmp(got, expected, sizeof got) != 0) {
        char texts[2][2 * TC_SHA256_BYTES + 1];
        tc_hex(got, sizeof got, texts[0]);
        tc_hex(expected, sizeof expected, texts[1]);
        tc_fail(error, TC_INVALID, "checksum",
                "SHA-256 mismatch: the file is damaged (got %s, expected %s)", texts[0], texts[1]);
        ok = tc_error_at(error, file->blob_end);
    }
    return ok;
}

/* A damaged header may look like one of a newer version. Where the checksum is
 * wrong, the error says that instead. */
static bool blame_damage(struct tc_reader *reader, struct tc_error *error) {
    struct tc_error damage = {0};
    bool cut = error->reason == TC_REASON_CUT_SHORT;
    /* Of a remote file no more is fetched than its header to say that it is wrong. */
    if (reader->checksum && !reader->input->source && error->class != TC_IO && !cut &&
        !verify_checksum(reader, &damage) && damage.class == TC_INVALID)
        *error = damage;
    return false;
}

/* The checksum is one of all data: to check it where one tensor of a remote file is wanted, all of
 * the file would have to be fetched. Of an index the shards have theirs. */
static void spare(struct tc_reader *reader) {
    struct deathtensors_reader *file = reader->state;
    bool index = file->shards.ready;
    if (!reader->options->sparing || !reader->input->source || !reader->checksum ||
        reader->table.count < 2 || (reader->compressed && !index))
        return;
    file->spared = !index;
    if (!reader->options->part)
        tc_reader_warn(reader, "the checksum is one of all data, and is not checked: only this "
                               "tensor is fetched (tconv verify checks it)");
}

static bool open_deathtensors(struct tc_reader *reader, struct tc_error *error) {
    if (!read_prefix(reader, error) || !read_header(reader, error))
        return false;
    if (!parse_header(reader, error) || !tc_table_sort(&reader->table, error) ||
        !check_blob(reader, error))
        return blame_damage(reader, error);
    const struct tc_text *sharded = tc_metadata_find(&reader->table.metadata, TC_TEXT(KEY_SHARDED));
    if (sharded && tc_text_equal(*sharded, TC_TEXT("true"))) {
        if (!open_index(reader, error))
            return false;
    } else {
        tc_metadata_remove_prefix(&reader->table.metadata, TC_TEXT(KEY_PREFIX));
        reader->data_offsets = true;
    }
    spare(reader);
    return true;
}

static bool restart(struct tc_reader *reader, struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    tc_zstd_decoder_release(&file->decoder);
    file->position = 0;
    file->decoding = true;
    return tc_zstd_decoder_init(&file->decoder, reader->input, file->blob, file->blob_end, error);
}

/* Decodes the next bytes of the blob. Behind the last one the frame must end. */
static bool decode_next(struct deathtensors_reader *file, void *buffer, size_t length,
                        struct tc_error *error) {
    if (!tc_zstd_decode(&file->decoder, buffer, length, error))
        return false;
    file->position += length;
    return file->position < file->blob_size || tc_zstd_decoder_end(&file->decoder, error);
}

/* Decodes up to `end`, into the spool if it is open. */
static bool decode_through(struct deathtensors_reader *file, uint64_t end, struct tc_error *error) {
    unsigned char *buffer = file->position < end ? malloc(STEP) : NULL;
    bool ok = file->position >= end || buffer || tc_fail_memory(error);
    while (ok && file->position < end) {
        uint64_t left = end - file->position;
        size_t step = left < STEP ? left : STEP;
        ok = decode_next(file, buffer, step, error) &&
             (!file->spool.open || tc_spool_add(&file->spool, buffer, step, error));
    }
    free(buffer);
    return ok;
}

static bool read_compressed(struct tc_reader *reader, uint64_t offset, void *buffer, size_t length,
                            struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    if (file->broken)
        return tc_fail(error, TC_INVALID, "zstd", "its data lies behind the damage in the frame");
    if (file->spool.open)
        return tc_spool_read(&file->spool, offset, buffer, length, error);
    if (!file->decoding && !restart(reader, error))
        return false;
    if (offset < file->position) {
        /* Decode all of it once, instead of again for each read that goes back. */
        if (!restart(reader, error) || !tc_spool_open(&file->spool, file->blob_size, error) ||
            !decode_through(file, file->blob_size, error)) {
            tc_spool_release(&file->spool);
            file->broken = true;
            return false;
        }
        tc_zstd_decoder_release(&file->decoder);
        return tc_spool_read(&file->spool, offset, buffer, length, error);
    }
    file->broken =
        !decode_through(file, offset, error) || !decode_next(file, buffer, length, error);
    return !file->broken;
}

static bool read_deathtensors(struct tc_reader *reader, const struct tc_tensor *tensor,
                              uint64_t offset, void *buffer, size_t length,
                              struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    if (file->shards.ready)
        return shards_read(&file->shards, tensor, offset, buffer, length, error);
    if (reader->compressed)
        return read_compressed(reader, tensor->offset + offset, buffer, length, error);
    return tc_input_read(reader->input, file->blob + tensor->offset + offset, buffer, length,
                         error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    struct deathtensors_reader *file = reader->state;
    if (file->shards.ready)
        return shards_extent(&file->shards, tensor, extent);
    *extent = (struct tc_extent){.input = reader->input, .offset = file->blob + tensor->offset};
    return !reader->compressed;
}

/* Checks a compressed blob of no bytes, whose end no read would ever reach. */
static bool verify_empty(struct tc_reader *reader, struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    struct tc_zstd_decoder decoder;
    bool ok = tc_zstd_decoder_init(&decoder, reader->input, file->blob, file->blob_end, error) &&
              tc_zstd_decoder_end(&decoder, error);
    tc_zstd_decoder_release(&decoder);
    return ok;
}

static bool any_wanted(const struct tc_reader *reader, const bool *wanted) {
    for (size_t i = 0; wanted && i < reader->table.count; i++)
        if (wanted[i])
            return true;
    return !wanted || reader->table.count == 0;
}

static bool check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    struct deathtensors_reader *file = reader->state;
    bool index = file->shards.ready;
    if (!index && !any_wanted(reader, wanted))
        return true;
    /* For an index, reader->checksum is also set where a shard has one. */
    bool checksum =
        index ? file->blob_end < reader->input->size : reader->checksum && !file->spared;
    bool compressed = !index && reader->compressed;
    if (checksum && !verify_checksum(reader, error) && !tc_reader_forgive(reader, error))
        return false;
    if (compressed && file->blob_size == 0 && !verify_empty(reader, error))
        return false;
    return !index || shards_verify(&file->shards, reader, wanted, error);
}

static void close_deathtensors(struct tc_reader *reader) {
    struct deathtensors_reader *file = reader->state;
    shards_release(&file->shards);
    tc_zstd_decoder_release(&file->decoder);
    tc_spool_release(&file->spool);
    free(file->header);
}

const struct tc_backend tc_backend_deathtensors = {
    .name = "deathtensors",
    .summary = "Death Legion deathtensors",
    .extensions = (const char *const[]){".deathtensors", ".dt", NULL},
    .mime = "application/x-deathtensors",
    .caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA |
            TC_CAN_TENSOR_METADATA | TC_CAN_COMPRESS | TC_CAN_CHECKSUM | TC_CAN_LOAD_LAZILY,
    .dtypes = DTYPES,
    .max_rank = TC_MAX_RANK,
    .max_name = NAME_LIMIT,
    .checksum = "a SHA-256 footer",
    .compression = "zstd",
    .default_level = TC_ZSTD_DEFAULT_LEVEL,
    .max_level = TC_ZSTD_MAX_LEVEL,
    .compress_memory = UINT64_C(110) << 20, /* zstd's workers and windows at level 3 */
    .probe = probe,
    .reader_size = sizeof(struct deathtensors_reader),
    .open = open_deathtensors,
    .read = read_deathtensors,
    .extent = extent,
    .check_sums = check_sums,
    .close = close_deathtensors,
    .writer_size = sizeof(struct deathtensors_writer),
    .check = deathtensors_check,
    .max_align = TC_MOST_ALIGNMENT,
    .shares_blocks = true,
    .begin = deathtensors_begin,
    .put = deathtensors_put,
    .finish = deathtensors_finish,
    .abort = deathtensors_abort,
    .sharding = &deathtensors_sharding,
};
