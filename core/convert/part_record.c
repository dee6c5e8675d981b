/* Reading the records of shards that jobs have written (core/convert/shard_part.h). */
#include <inttypes.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/convert/shard_part.h"
#include "core/io/sha256.h"
#include "core/tensor/dtype.h"

/* Ranks are bounded by what any format holds. */
#define MOST_RANK 64u

static bool is(struct tc_text key, const char *name) {
    return tc_text_equal(key, tc_text_of(name));
}

static bool read_sum(struct tc_json *json, unsigned char sum[TC_SHA256_BYTES], bool *has) {
    struct tc_text hex;
    *has = tc_json_string(json, &hex) && tc_unhex(hex.bytes, hex.length, sum, TC_SHA256_BYTES);
    return *has || json->failed || tc_json_fail(json, "sha256 is not 64 hexadecimal digits");
}

static bool read_shape(struct tc_json *json, struct tc_part_tensor *tensor) {
    uint64_t shape[MOST_RANK];
    tensor->rank = 0;
    tc_json_begin(json, TC_JSON_ARRAY);
    while (tc_json_element(json)) {
        if (tensor->rank == MOST_RANK)
            return tc_json_fail(json, "a shape has over %u dimensions", MOST_RANK);
        if (!tc_json_unsigned(json, &shape[tensor->rank++]))
            return false;
    }
    tensor->shape = tc_arena_array(json->arena, tensor->rank + 1, sizeof *shape, json->error);
    if (!tensor->shape || json->failed)
        return false;
    memcpy(tensor->shape, shape, tensor->rank * sizeof *shape);
    return true;
}

/* Each key occurs once: the bit of one that is known is taken note of in `seen`. */
static bool take_key(struct tc_json *json, const char *const *keys, struct tc_text key,
                     unsigned *seen) {
    unsigned bit = 1;
    for (; *keys && !is(key, *keys); keys++)
        bit <<= 1;
    if (!*keys)
        return tc_json_fail(json, "the record has an unknown key");
    if (*seen & bit)
        return tc_json_fail(json, "a key occurs twice in the record");
    *seen |= bit;
    return true;
}

static bool read_tensor(struct tc_json *json, struct tc_part_tensor *tensor) {
    static const char *const keys[] = {"name", "dtype", "shape", "sha256", NULL};
    struct tc_text key;
    struct tc_text text;
    unsigned seen = 0;
    *tensor = (struct tc_part_tensor){.dtype = TC_NONE};
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key) && take_key(json, keys, key, &seen)) {
        if (is(key, "name")) {
            tc_json_string(json, &tensor->name);
        } else if (is(key, "dtype")) {
            if (tc_json_string(json, &text))
                tensor->dtype = tc_dtype_find(text);
        } else if (is(key, "shape")) {
            read_shape(json, tensor);
        } else {
            read_sum(json, tensor->sum, &tensor->has_sum);
        }
    }
    if (!json->failed && (!tensor->name.bytes || tensor->dtype == TC_NONE || !tensor->shape))
        return tc_json_fail(json, "a tensor of the record lacks name, dtype or shape");
    return !json->failed;
}

static bool read_input(struct tc_json *json, struct tc_part_input *input) {
    static const char *const keys[] = {"path", "size", NULL};
    struct tc_text key;
    unsigned seen = 0;
    *input = (struct tc_part_input){0};
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key) && take_key(json, keys, key, &seen))
        if (is(key, "path"))
            tc_json_string(json, &input->path);
        else
            tc_json_unsigned(json, &input->size);
    if (!json->failed && !input->path.bytes)
        return tc_json_fail(json, "an input of the record lacks its path");
    return !json->failed;
}

/* How many elements the array has that comes next, up to one that can't be read; the scanner stays
 * where it is. That one is read as well, and says what is wrong: so arrays have room for one more.
 */
static size_t count_elements(const struct tc_json *json) {
    struct tc_json ahead = *json;
    struct tc_error ignored = {0};
    struct tc_text element;
    size_t count = 0;
    ahead.error = &ignored;
    tc_json_begin(&ahead, TC_JSON_ARRAY);
    while (tc_json_element(&ahead) && tc_json_skip(&ahead, &element))
        count++;
    return count;
}

static bool read_tensors(struct tc_json *json, struct tc_part_record *record) {
    size_t count = count_elements(json);
    record->tensors = tc_arena_array(json->arena, count + 1, sizeof *record->tensors, json->error);
    if (!record->tensors)
        return false;
    tc_json_begin(json, TC_JSON_ARRAY);
    while (record->tensor_count <= count && tc_json_element(json))
        if (!read_tensor(json, &record->tensors[record->tensor_count++]))
            return false;
    return !json->failed;
}

static bool read_inputs(struct tc_json *json, struct tc_part_record *record) {
    size_t count = count_elements(json);
    record->inputs = tc_arena_array(json->arena, count + 1, sizeof *record->inputs, json->error);
    if (!record->inputs)
        return false;
    tc_json_begin(json, TC_JSON_ARRAY);
    while (record->input_count <= count && tc_json_element(json))
        if (!read_input(json, &record->inputs[record->input_count++]))
            return false;
    return !json->failed;
}

/* A name that is no UTF-8. */
static bool read_hex(struct tc_json *json, struct tc_text *name) {
    struct tc_text hex;
    if (!tc_json_string(json, &hex))
        return false;
    char *bytes = tc_arena_array(json->arena, hex.length / 2 + 1, 1, json->error);
    if (!bytes)
        return false;
    if (hex.length == 0 || hex.length % 2 ||
        !tc_unhex(hex.bytes, hex.length, (unsigned char *)bytes, hex.length / 2))
        return tc_json_fail(json, "a name is not in hexadecimal digits");
    *name = (struct tc_text){bytes, hex.length / 2};
    return true;
}

/* A file has a size, a folder has permissions. */
static bool read_file(struct tc_json *json, struct tc_part_file *file) {
    static const char *const keys[] = {"name", "size", "mode", "sha256", "hex", NULL};
    unsigned char sum[TC_SHA256_BYTES];
    struct tc_text key;
    unsigned seen = 0;
    *file = (struct tc_part_file){0};
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key) && take_key(json, keys, key, &seen)) {
        if (is(key, "name") && !file->name.bytes)
            tc_json_string(json, &file->name);
        else if (is(key, "hex") && !file->name.bytes)
            read_hex(json, &file->name);
        else if (is(key, "size"))
            tc_json_unsigned(json, &file->size);
        else if (is(key, "mode"))
            tc_json_unsigned(json, &file->mode);
        else if (!is(key, "sha256"))
            tc_json_fail(json, "a file of the record has two names");
        else if (read_sum(json, sum, &file->has_sum))
            tc_hex(sum, sizeof sum, file->sum);
    }
    if (json->failed)
        return false;
    file->is_folder = (seen & 4u) != 0;
    if (!file->name.bytes || file->is_folder == ((seen & 2u) != 0) ||
        (file->is_folder && file->has_sum) || file->mode > 0777)
        return tc_json_fail(json, "a file of the record lacks its name, or has no size or mode");
    return tc_path_is_inside(file->name) ||
           tc_fail(json->error, TC_UNSAFE, "part",
                   "a name in the record leads out of the model's folder");
}

static bool read_files(struct tc_json *json, struct tc_part_record *record) {
    size_t count = count_elements(json);
    record->files = tc_arena_array(json->arena, count + 1, sizeof *record->files, json->error);
    if (!record->files)
        return false;
    tc_json_begin(json, TC_JSON_ARRAY);
    while (record->file_count <= count && tc_json_element(json))
        if (!read_file(json, &record->files[record->file_count++]))
            return false;
    return !json->failed;
}

static bool read_member(struct tc_json *json, struct tc_text key, struct tc_part_record *record) {
    unsigned char sum[TC_SHA256_BYTES];
    struct tc_text ignored;
    uint64_t number;
    if (is(key, "plan"))
        return tc_json_string(json, &record->plan);
    if (is(key, "format"))
        return tc_json_string(json, &record->format);
    if (is(key, "index"))
        return tc_json_string(json, &record->index);
    if (is(key, "name"))
        return tc_json_string(json, &record->name);
    if (is(key, "shard"))
        return tc_json_unsigned(json, &record->shard);
    if (is(key, "shards"))
        return tc_json_unsigned(json, &record->shards);
    if (is(key, "size"))
        return tc_json_unsigned(json, &record->size);
    if (is(key, "options"))
        return tc_json_skip(json, &record->options);
    if (is(key, "inputs"))
        return read_inputs(json, record);
    if (is(key, "tensors"))
        return read_tensors(json, record);
    if (is(key, "folder"))
        return tc_json_unsigned(json, &number) &&
               ((record->folder = number == 1) || tc_json_fail(json, "folder is 1, or not there"));
    if (is(key, "mode"))
        return tc_json_unsigned(json, &record->mode);
    if (is(key, "files"))
        return read_files(json, record);
    if (is(key, "tconv"))
        return tc_json_string(json, &ignored);
    if (!read_sum(json, sum, &record->has_sum))
        return false;
    tc_hex(sum, sizeof sum, record->sum);
    return true;
}

static bool check_record(struct tc_json *json, const struct tc_part_record *record) {
    if (record->plan.length != TC_PLAN_DIGEST || !record->format.bytes || !record->index.bytes ||
        !record->name.bytes || !record->options.bytes || !record->tensors || !record->inputs)
        return tc_json_fail(json, "the record lacks a key");
    if (!tc_path_is_plain(record->index) || !tc_path_is_plain(record->name))
        return tc_fail(json->error, TC_UNSAFE, "part",
                       "a name in the record is not a plain file name");
    if (record->shards == 0 || record->shards > TC_MAX_SHARDS || record->shard > record->shards ||
        (record->shard == 0) != (record->files && record->folder))
        return tc_json_fail(json, "shard %" PRIu64 " of %" PRIu64 " can't be", record->shard,
                            record->shards);
    if (record->mode > 0777 || (record->files && record->tensor_count))
        return tc_json_fail(json, "the record of copied files has tensors, or other permissions");
    return true;
}

bool tc_part_record_read(struct tc_part_record *record, struct tc_text text, struct tc_arena *arena,
                         struct tc_error *error) {
    static const char *const keys[] = {
        "tconv_part", "tconv",  "plan",    "format", "index",  "name", "shard", "shards", "size",
        "options",    "inputs", "tensors", "sha256", "folder", "mode", "files", NULL};
    struct tc_json json;
    struct tc_text key;
    uint64_t version = 0;
    unsigned seen = 0;
    *record = (struct tc_part_record){0};
    tc_json_init(&json, text.bytes, text.length, 0, arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key) && take_key(&json, keys, key, &seen)) {
        if (is(key, "tconv_part") ? !tc_json_unsigned(&json, &version)
                                  : !read_member(&json, key, record))
            return false;
        if (version != 1)
            return tc_json_fail(&json, "this is no record of a shard");
    }
    return tc_json_end(&json) && check_record(&json, record);
}
