#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/format/restore_metadata.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/gguf/gguf.h"

/* The least bytes that a pair of metadata and the entry of a tensor take. */
#define LEAST_PAIR 13u
#define LEAST_TENSOR 24u
#define LONGEST_KEY 65535u

static const int8_t numbers[TC_DTYPES] = {
    [TC_F32] = 1 + 0,      [TC_F16] = 1 + 1,     [TC_I8] = 1 + 24,      [TC_I16] = 1 + 25,
    [TC_I32] = 1 + 26,     [TC_I64] = 1 + 27,    [TC_F64] = 1 + 28,     [TC_BF16] = 1 + 30,
    [TC_Q4_0] = 1 + 2,     [TC_Q4_1] = 1 + 3,    [TC_Q5_0] = 1 + 6,     [TC_Q5_1] = 1 + 7,
    [TC_Q8_0] = 1 + 8,     [TC_Q2_K] = 1 + 10,   [TC_Q3_K] = 1 + 11,    [TC_Q4_K] = 1 + 12,
    [TC_Q5_K] = 1 + 13,    [TC_Q6_K] = 1 + 14,   [TC_IQ2_XXS] = 1 + 16, [TC_IQ2_XS] = 1 + 17,
    [TC_IQ3_XXS] = 1 + 18, [TC_IQ1_S] = 1 + 19,  [TC_IQ4_NL] = 1 + 20,  [TC_IQ3_S] = 1 + 21,
    [TC_IQ2_S] = 1 + 22,   [TC_IQ4_XS] = 1 + 23, [TC_IQ1_M] = 1 + 29,   [TC_TQ1_0] = 1 + 34,
    [TC_TQ2_0] = 1 + 35,   [TC_MXFP4] = 1 + 39,  [TC_NVFP4] = 1 + 40,   [TC_Q1_0] = 1 + 41,
    [TC_Q2_0] = 1 + 42,
};

int gguf_number_of(enum tc_dtype dtype) {
    return numbers[dtype] - 1;
}

enum tc_dtype gguf_dtype_of(uint32_t number) {
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++)
        if (numbers[dtype] && (uint32_t)(numbers[dtype] - 1) == number)
            return dtype;
    return TC_NONE;
}

bool gguf_refuse_dtype(uint32_t number, struct tc_error *error) {
    static const struct {
        uint8_t first, last;
        const char *what;
    } known[] = {
        {4, 5, "Q4_2 or Q4_3, which ggml gave up in 2023"},
        {9, 9, "Q8_1, which is for computing and not for files"},
        {15, 15, "Q8_K, which is for computing and not for files"},
        {31, 33, "Q4_0 for some processors only, which ggml gave up in 2024"},
        {36, 38, "IQ4_NL for some processors only, which ggml gave up in 2024"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (number >= known[i].first && number <= known[i].last)
            return tc_fail(error, TC_UNSUPPORTED, "dtype", "its dtype has ggml's number %u: %s",
                           number, known[i].what);
    return tc_fail(error, TC_UNSUPPORTED, "dtype",
                   "its dtype has ggml's number %u, which tconv does not know", number);
}

struct header {
    uint64_t tensors;
    uint64_t pairs;
    uint64_t alignment;
    uint64_t end; /* of all tensors, each with its padding, from the start of the data */
    bool aligned; /* general.alignment was there */
};

static bool read_start(struct gguf_cursor *cursor, struct header *header, struct tc_error *error) {
    unsigned char magic[4];
    uint64_t version;
    if (!gguf_take(cursor, magic, sizeof magic, error))
        return false;
    if (memcmp(magic, GGUF_MAGIC, sizeof magic) != 0)
        return tc_fail(error, TC_INVALID, "magic", "this is no GGUF file: it does not start so");
    if (!gguf_take_number(cursor, 4, &version, error))
        return false;
    if (version && (version & 0xFFFF) == 0)
        return tc_fail(error, TC_UNSUPPORTED, "byte-order", "a big-endian GGUF file");
    if (version == 0)
        return tc_fail(error, TC_INVALID, "version", "there is no version 0 of GGUF");
    if (version == 1)
        return tc_fail(error, TC_UNSUPPORTED, "version",
                       "version 1 of GGUF, which was in use for some weeks of 2023");
    if (version > 3)
        return tc_fail(error, TC_UNSUPPORTED, "version",
                       "version %llu of GGUF; tconv reads 2 and 3", (unsigned long long)version);
    return gguf_take_number(cursor, 8, &header->tensors, error) &&
           gguf_take_number(cursor, 8, &header->pairs, error) &&
           gguf_check_count(cursor, header->tensors, LEAST_TENSOR, "tensors", error) &&
           gguf_check_count(cursor, header->pairs, LEAST_PAIR, "pairs of metadata", error);
}

static bool take_alignment(struct header *header, const struct gguf_value *value,
                           struct tc_error *error) {
    uint64_t number = 0;
    for (size_t i = 0; i < value->text.length && strcmp(value->type, "U32") == 0; i++)
        number = number * 10 + (uint64_t)(value->text.bytes[i] - '0');
    header->alignment = number;
    if (number == 0 || (number & (number - 1)) != 0)
        return tc_fail(error, TC_INVALID, "alignment",
                       GGUF_KEY_ALIGNMENT " is no power of two of type U32 (got %.*s, %s)",
                       tc_text_shown((struct tc_text){value->text.bytes, value->text.length}, 40),
                       value->text.bytes ? value->text.bytes : "",
                       value->type[0] ? value->type : "a string");
    return true;
}

static bool check_key(struct tc_text key, struct tc_error *error) {
    if (key.length == 0 || key.length > LONGEST_KEY)
        return tc_fail(error, TC_INVALID, "key", "a key of the metadata is %s",
                       key.length ? "longer than 65535 bytes" : "empty");
    if (!tc_utf8_valid(key) || memchr(key.bytes, 0, key.length))
        return tc_fail(error, TC_INVALID, "key",
                       "a key of the metadata is no valid UTF-8 or has a NUL in it");
    return true;
}

/* Adds a pair to the table's metadata, and its type where it is no string. */
static bool keep_pair(struct tc_reader *reader, struct tc_text key, const struct gguf_value *value,
                      struct tc_error *error) {
    if (value->not_text)
        return tc_reader_note(reader, TC_LOSS, TC_KIND_METADATA, key, error,
                              "metadata that is no valid UTF-8 is left out");
    if (value->mixed && !tc_reader_note(reader, TC_LOSS, TC_KIND_METADATA, key, error,
                                        "arrays of several types in one array: what type each "
                                        "has is not kept"))
        return false;
    char *text = tc_arena_copy(&reader->arena, value->text.bytes, value->text.length, error);
    char *type =
        text ? tc_arena_copy(&reader->arena, value->type, strlen(value->type), error) : NULL;
    return type &&
           tc_metadata_add(&reader->table.metadata, &reader->arena, key,
                           (struct tc_text){text, value->text.length}, error) &&
           (!type[0] ||
            tc_metadata_add(&reader->metadata_types, &reader->arena, key, tc_text_of(type), error));
}

static bool read_pairs(struct gguf_cursor *cursor, struct tc_reader *reader, struct header *header,
                       struct tc_error *error) {
    struct gguf_value value = {0};
    struct tc_name_map keys;
    bool ok = true;
    tc_name_map_init(&keys, &reader->arena);
    for (uint64_t i = 0; i < header->pairs && ok; i++) {
        struct tc_text key;
        uint64_t start = cursor->at;
        ok = gguf_take_string(cursor, &reader->arena, &key, error) && check_key(key, error);
        if (ok && tc_name_map_find(&keys, key))
            ok = tc_fail(error, TC_INVALID, "duplicate-key", "metadata key \"%.*s\" occurs twice",
                         tc_text_shown(key, 200), key.bytes);
        ok = ok && tc_name_map_add(&keys, key, 0, error) &&
             gguf_value_read(cursor, &value, error) &&
             (!tc_text_equal(key, TC_TEXT(GGUF_KEY_ALIGNMENT)) ||
              take_alignment(header, &value, error)) &&
             keep_pair(reader, key, &value, error);
        if (!ok)
            tc_error_at(error, start);
    }
    tc_name_map_release(&keys);
    tc_buffer_release(&value.text);
    return ok && tc_metadata_sort(&reader->table.metadata, error) &&
           tc_metadata_sort(&reader->metadata_types, error);
}

/* The dimensions, innermost first in the file. */
static bool read_shape(struct gguf_cursor *cursor, struct tc_reader *reader,
                       struct tc_tensor *tensor, struct tc_error *error) {
    uint64_t rank;
    if (!gguf_take_number(cursor, 4, &rank, error))
        return false;
    if (rank > GGUF_MAX_RANK)
        return tc_fail(error, TC_UNSUPPORTED, "rank", "it has %llu dimensions; GGUF has at most %u",
                       (unsigned long long)rank, GGUF_MAX_RANK);
    uint64_t *shape = tc_arena_array(&reader->arena, rank, sizeof *shape, error);
    if (!shape)
        return false;
    for (uint64_t i = rank; i-- > 0;)
        if (!gguf_take_number(cursor, 8, &shape[i], error))
            return false;
    tensor->shape = shape;
    tensor->rank = (uint8_t)rank;
    return true;
}

/* A tensor starts where the padding of the one before ends. */
static bool check_offset(struct header *header, const struct tc_tensor *tensor,
                         struct tc_error *error) {
    if (tensor->offset != header->end) {
        bool overlaps = tensor->offset < header->end;
        return tc_fail(error, TC_INVALID, overlaps ? "overlap" : "hole",
                       "its data starts at %llu of the data section, expected %llu, behind the "
                       "tensor before it",
                       (unsigned long long)tensor->offset, (unsigned long long)header->end);
    }
    return (tc_add(header->end, tensor->nbytes, &header->end) &&
            tc_align_up(header->end, header->alignment, &header->end)) ||
           tc_fail(error, TC_INVALID, "size-overflow", "the sizes of the tensors overflow");
}

static bool read_tensor(struct gguf_cursor *cursor, struct tc_reader *reader, struct header *header,
                        struct tc_error *error) {
    struct tc_tensor tensor = {0};
    uint64_t number;
    uint64_t count;
    if (!gguf_take_string(cursor, &reader->arena, &tensor.name, error) ||
        !tc_name_check(tensor.name, error))
        return false;
    if (!read_shape(cursor, reader, &tensor, error) ||
        !gguf_take_number(cursor, 4, &number, error) ||
        !gguf_take_number(cursor, 8, &tensor.offset, error))
        return tc_error_in_tensor(error, tensor.name.bytes, tensor.name.length);
    enum tc_dtype dtype = gguf_dtype_of((uint32_t)number);
    tensor.dtype = (uint8_t)dtype;
    if ((dtype == TC_NONE && !gguf_refuse_dtype((uint32_t)number, error)) ||
        !tc_shape_measure(dtype, tensor.shape, tensor.rank, &count, &tensor.nbytes, error) ||
        !check_offset(header, &tensor, error) || !tc_table_add(&reader->table, &tensor, error))
        return tc_error_in_tensor(error, tensor.name.bytes, tensor.name.length);
    return true;
}

/* The data must all be there; only the padding behind the last tensor may be missing. */
static bool check_data(struct tc_reader *reader, const struct header *header, uint64_t end,
                       struct tc_error *error) {
    struct gguf_reader *gguf = reader->state;
    const struct tc_table *table = &reader->table;
    uint64_t needed = 0;
    if (table->count) {
        const struct tc_tensor *last = &table->tensors[table->count - 1];
        needed = last->offset + last->nbytes;
    }
    if (!tc_align_up(end, header->alignment, &gguf->data) || !tc_add(gguf->data, needed, &needed))
        return tc_fail(error, TC_INVALID, "size-overflow", "the size of the data overflows");
    if (needed > reader->input->size && header->end)
        return tc_reader_cut_short(reader, needed, false, error);
    uint64_t whole;
    if (tc_add(gguf->data, header->end, &whole) && reader->input->size > whole) {
        reader->behind = reader->input->size - whole;
        tc_reader_lose(reader, "%llu bytes behind the last tensor are left out",
                       (unsigned long long)reader->behind);
    }
    return true;
}

static bool read_header(struct gguf_cursor *cursor, struct tc_reader *reader,
                        struct tc_error *error) {
    struct header header = {.alignment = GGUF_ALIGNMENT};
    if (!read_start(cursor, &header, error) || !read_pairs(cursor, reader, &header, error))
        return false;
    for (uint64_t i = 0; i < header.tensors; i++) {
        uint64_t start = cursor->at;
        if (!read_tensor(cursor, reader, &header, error))
            return tc_error_at(error, start);
    }
    return check_data(reader, &header, cursor->at, error);
}

bool gguf_open(struct tc_reader *reader, struct tc_error *error) {
    struct gguf_cursor cursor = {0};
    bool ok = gguf_cursor_init(&cursor, reader, error) && read_header(&cursor, reader, error);
    gguf_cursor_release(&cursor);
    return ok && gguf_open_splits(reader, error) && tc_tensor_metadata_restore(reader, error);
}
