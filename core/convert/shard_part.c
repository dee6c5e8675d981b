#include "core/convert/shard_part.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/json_writer.h"
#include "core/base/path.h"
#include "core/base/version.h"
#include "core/convert/file_sums.h"
#include "core/convert/read_back.h"
#include "core/format/reader.h"
#include "core/io/publish.h"

/* The index as it will be, in a temporary file. */
static struct tc_input *make_index(const struct tc_plan *plan, struct tc_error *error) {
    struct tc_publish nowhere = {.path = (char *)plan->index_name, .folder_fd = -1};
    struct tc_outfile out = {.publish = &nowhere, .fd = tc_tempfile(error)};
    uint64_t size = 0;
    if (out.fd < 0)
        return NULL;
    bool ok = plan->target->sharding->write_index(plan, &out, error) &&
              tc_outfile_count(&out, &size, error);
    free(out.buffer);
    if (ok)
        return tc_input_adopt(out.fd, plan->index_name, size, NULL, error);
    close(out.fd);
    return NULL;
}

static struct tc_text written_name(const struct tc_item *item) {
    return item->written.bytes ? item->written : item->name;
}

static void add_tensor(struct tc_json_writer *json, struct tc_text name, enum tc_dtype dtype,
                       const uint64_t *shape, unsigned rank, const unsigned char *sum) {
    tc_json_open_object(json, NULL);
    tc_json_add_text(json, "name", name);
    tc_json_add_string(json, "dtype", tc_dtype_name(dtype));
    tc_json_add_numbers(json, "shape", shape, rank);
    if (sum) {
        char hex[2 * TC_SHA256_BYTES + 1];
        tc_hex(sum, TC_SHA256_BYTES, hex);
        tc_json_add_string(json, "sha256", hex);
    }
    tc_json_close(json);
}

/* Everything that the jobs must agree on and that the index does not say. Inputs are known by
 * their names, sizes and times: hashing them would read all of them in every job. */
static void add_agreement(struct tc_json_writer *json, const struct tc_plan *plan,
                          struct tc_text options, const char *index_sum) {
    tc_json_add_string(json, "format", plan->target->name);
    tc_json_add_raw(json, "options", options);
    tc_json_add_string(json, "index", plan->index_name);
    tc_json_add_string(json, "sha256", index_sum);
    tc_json_open_array(json, "inputs");
    for (size_t r = 0; r < plan->reader_count; r++) {
        struct tc_input *input;
        for (size_t at = 0; (input = tc_reader_next_file(plan->readers[r], &at)) != NULL;) {
            tc_json_open_object(json, NULL);
            tc_json_add_string(json, "name", tc_path_name(input->path));
            tc_json_add_number(json, "size", input->size);
            tc_json_addf(json, "modified", "%lld.%09ld", (long long)input->modified.tv_sec,
                         input->modified.tv_nsec);
            tc_json_close(json);
        }
    }
    tc_json_close(json);
}

static bool digest_of(const struct tc_plan *plan, struct tc_input *index, struct tc_text options,
                      char digest[TC_PLAN_DIGEST + 1], struct tc_error *error) {
    char index_sum[2 * TC_SHA256_BYTES + 1];
    unsigned char sum[TC_SHA256_BYTES];
    struct tc_buffer text = {0};
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_SERDE};
    struct tc_sha256 hash;
    if (!tc_input_sum(index, index_sum, error) || !tc_sha256_init(&hash, error))
        return false;
    tc_json_open_object(&json, NULL);
    add_agreement(&json, plan, options, index_sum);
    tc_json_open_array(&json, "files");
    for (size_t p = 0; p < plan->file_count; p++) {
        const struct tc_output_file *file = &plan->files[p];
        tc_json_open_array(&json, NULL);
        for (size_t i = file->first; i < file->first + file->count; i++) {
            const struct tc_item *item = &plan->items[i];
            add_tensor(&json, written_name(item), (enum tc_dtype)item->dtype, item->shape,
                       item->rank, NULL);
            /* The writer does not look back, so that the text need not be kept. */
            tc_sha256_update(&hash, text.bytes, text.length);
            text.length = 0;
        }
        tc_json_close(&json);
    }
    tc_json_end_line(&json);
    bool ok = tc_buffer_ok(&text, error);
    if (ok) {
        tc_sha256_update(&hash, text.bytes, text.length);
        tc_sha256_finish(&hash, sum);
        tc_hex(sum, sizeof sum, digest);
    } else {
        tc_sha256_release(&hash);
    }
    tc_buffer_release(&text);
    return ok;
}

bool tc_plan_digest(const struct tc_plan *plan, struct tc_text options,
                    char digest[TC_PLAN_DIGEST + 1], struct tc_error *error) {
    struct tc_input *index = make_index(plan, error);
    bool ok = index && digest_of(plan, index, options, digest, error);
    tc_input_close(index);
    return ok;
}

static bool check_choice(const struct tc_plan *plan, const struct tc_shard_choice *choice,
                         struct tc_error *error) {
    if (!choice->number && !choice->folder) {
        tc_fail(error, TC_USAGE, "shard", "shard 0 is for a model folder that becomes another");
        return tc_error_hint(error, "shards are counted from 1");
    }
    if (plan->in_shards && !plan->index_name) {
        tc_fail(error, TC_UNSUPPORTED, "shard",
                "shards of %s have no index that would join those of several runs",
                plan->target->name);
        return tc_error_hint(error, "leave out --shard: one run writes all of them");
    }
    if (!plan->index_name || plan->file_count != choice->count) {
        tc_fail(error, TC_USAGE, "shard", "the output has %zu shard%s (expected %" PRIu64 ")",
                plan->index_name ? plan->file_count : 0, plan->file_count == 1 ? "" : "s",
                choice->count);
        return tc_error_hint(error, "tconv batch --jobs prints a line for each shard there is");
    }
    return true;
}

/* Which tensors of the inputs are still needed, for their checksums. */
static void mark_taken(struct tc_plan *plan) {
    for (size_t i = 0; i < plan->count; i++)
        if (plan->items[i].densify || plan->items[i].dequantise)
            return;
    size_t before = 0;
    for (size_t r = 0; r < plan->reader_count; r++) {
        size_t count = plan->readers[r]->table.count;
        if (plan->taken && plan->taken[r]) {
            memset(plan->taken[r], 0, count * sizeof **plan->taken);
            for (size_t i = 0; i < plan->count; i++)
                if (plan->items[i].source == r)
                    plan->taken[r][plan->items[i].place - before] = true;
        }
        before += count;
    }
}

static bool keep_shard(struct tc_plan *plan, size_t number, struct tc_error *error) {
    struct tc_output_file *file = &plan->files[number];
    plan->items += file->first;
    plan->count = file->count;
    file->first = 0;
    plan->files = file;
    plan->file_count = 1;
    plan->index_name = NULL;
    plan->bytes_out = file->nbytes;
    plan->bytes_in = 0;
    for (size_t i = 0; i < plan->count; i++)
        plan->bytes_in += plan->items[i].tied ? 0 : plan->items[i].taken;
    mark_taken(plan);
    return tc_plan_list_places(plan, error);
}

/* Nothing of the weights is written: they were needed for the plan's digest. */
static bool keep_none(struct tc_plan *plan, struct tc_error *error) {
    plan->count = 0;
    plan->file_count = 0;
    plan->index_name = NULL;
    plan->bytes_out = 0;
    plan->bytes_in = 0;
    return tc_plan_list_places(plan, error);
}

bool tc_shard_part_take(struct tc_shard_part *part, struct tc_plan *plan,
                        const struct tc_shard_choice *choice, struct tc_text options,
                        struct tc_error *error) {
    *part = (struct tc_shard_part){
        .index_name = plan->index_name, .choice = *choice, .options = options};
    if (!check_choice(plan, choice, error))
        return false;
    part->index = make_index(plan, error);
    if (!part->index || !digest_of(plan, part->index, options, part->digest, error))
        return false;
    if (choice->plan && strcmp(choice->plan, part->digest) != 0) {
        tc_fail(error, TC_INVALID, "plan",
                "the plan is another than when the jobs were listed (got %s, expected %s)",
                part->digest, choice->plan);
        return tc_error_hint(error, "an input has changed, or an option has: list the jobs again");
    }
    return choice->number ? keep_shard(plan, (size_t)choice->number - 1, error)
                          : keep_none(plan, error);
}

void tc_shard_part_end(struct tc_shard_part *part) {
    tc_input_close(part->index);
    part->index = NULL;
}

static void add_tensors(struct tc_json_writer *json, const struct tc_conversion *conversion) {
    const struct tc_plan *plan = conversion->plan;
    const struct tc_read_back *read_back = &conversion->read_back;
    tc_json_open_array(json, "tensors");
    for (size_t i = 0; i < read_back->count; i++) {
        const struct tc_read_back_tensor *tensor = &read_back->tensors[i];
        add_tensor(json, tensor->name, (enum tc_dtype)tensor->dtype, tensor->shape, tensor->rank,
                   tensor->sum);
    }
    for (size_t i = 0; i < plan->count && !read_back->count; i++)
        add_tensor(json, written_name(&plan->items[i]), (enum tc_dtype)plan->items[i].dtype,
                   plan->items[i].shape, plan->items[i].rank, NULL);
    tc_json_close(json);
}

static bool add_file(struct tc_json_writer *json, const struct tc_conversion *conversion,
                     struct tc_error *error) {
    const struct tc_outfile *out = conversion->publish.files;
    char hex[2 * TC_SHA256_BYTES + 1];
    struct tc_input *input = tc_outfile_reopen(out, NULL, error);
    bool ok = input && (!conversion->options->read_back || tc_input_sum(input, hex, error));
    if (ok) {
        tc_json_add_string(json, "name", out->name);
        tc_json_add_number(json, "size", input->size);
        if (conversion->options->read_back)
            tc_json_add_string(json, "sha256", hex);
    }
    tc_input_close(input);
    return ok;
}

/* What the records of one run have in common, and the shard's number. */
static void begin_record(struct tc_json_writer *json, const struct tc_shard_part *part,
                         const struct tc_plan *plan) {
    tc_json_open_object(json, NULL);
    tc_json_add_number(json, "tconv_part", 1);
    tc_json_add_string(json, "tconv", TC_VERSION);
    tc_json_add_string(json, "plan", part->digest);
    tc_json_add_string(json, "format", plan->target->name);
    tc_json_add_string(json, "index", part->index_name);
    tc_json_add_number(json, "shard", part->choice.number);
    tc_json_add_number(json, "shards", part->choice.count);
    if (part->choice.folder)
        tc_json_add_number(json, "folder", 1);
}

static bool add_copied(struct tc_json_writer *json, const struct tc_part_file *file,
                       struct tc_error *error) {
    char *hex = NULL;
    if (!tc_utf8_valid(file->name) && !(hex = malloc(2 * file->name.length + 1)))
        return tc_fail_memory(error);
    tc_json_open_object(json, NULL);
    if (hex) {
        tc_hex((const unsigned char *)file->name.bytes, file->name.length, hex);
        tc_json_add_string(json, "hex", hex);
    } else {
        tc_json_add_text(json, "name", file->name);
    }
    if (file->is_folder)
        tc_json_add_number(json, "mode", file->mode);
    else
        tc_json_add_number(json, "size", file->size);
    if (file->has_sum)
        tc_json_add_string(json, "sha256", file->sum);
    tc_json_close(json);
    free(hex);
    return true;
}

bool tc_shard_part_print_files(struct tc_buffer *text, const struct tc_shard_part *part,
                               const struct tc_plan *plan, const struct tc_part_file *files,
                               size_t count, uint64_t mode, struct tc_error *error) {
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_DISPLAY};
    uint64_t size = 0;
    struct tc_buffer name = {0};
    bool ok = true;
    for (size_t i = 0; i < count; i++)
        size += files[i].is_folder ? 0 : files[i].size;
    begin_record(&json, part, plan);
    tc_buffer_addf(&name, "%s" TC_PARTS_FILES_ENDING, part->index_name);
    tc_json_add_text(&json, "name", (struct tc_text){name.bytes, name.length});
    tc_json_add_number(&json, "size", size);
    tc_json_add_raw(&json, "options", part->options);
    tc_json_open_array(&json, "inputs");
    tc_json_close(&json);
    tc_json_open_array(&json, "tensors");
    tc_json_close(&json);
    tc_json_add_number(&json, "mode", mode);
    tc_json_open_array(&json, "files");
    for (size_t i = 0; i < count && ok; i++)
        ok = add_copied(&json, &files[i], error);
    tc_json_close(&json);
    tc_json_end_line(&json);
    ok = ok && tc_buffer_ok(&name, error) && tc_buffer_ok(text, error);
    tc_buffer_release(&name);
    return ok;
}

static bool print_record(struct tc_buffer *text, const struct tc_shard_part *part,
                         const struct tc_conversion *conversion, struct tc_error *error) {
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_DISPLAY};
    begin_record(&json, part, conversion->plan);
    if (!add_file(&json, conversion, error))
        return false;
    tc_json_add_raw(&json, "options", part->options);
    tc_json_open_array(&json, "inputs");
    for (size_t i = 0; i < conversion->input_count; i++) {
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "path", conversion->inputs[i]->path);
        tc_json_add_number(&json, "size", conversion->inputs[i]->size);
        tc_json_close(&json);
    }
    tc_json_close(&json);
    add_tensors(&json, conversion);
    tc_json_end_line(&json);
    return tc_buffer_ok(text, error);
}

static bool write_index(const struct tc_shard_part *part, struct tc_publish *publish,
                        struct tc_error *error) {
    struct tc_buffer name = {0};
    tc_buffer_addf(&name, "%s" TC_PART_INDEX_ENDING, part->index_name);
    struct tc_outfile *out =
        tc_buffer_ok(&name, error) ? tc_outfile_open(publish, name.bytes, error) : NULL;
    bool ok = out && tc_outfile_copy(out, part->index, 0, part->index->size, error) &&
              tc_outfile_seal(out, error);
    tc_buffer_release(&name);
    return ok;
}

bool tc_shard_part_write(const struct tc_shard_part *part, struct tc_conversion *conversion,
                         struct tc_error *error) {
    struct tc_publish *publish = &conversion->publish;
    struct tc_buffer name = {0};
    struct tc_buffer text = {0};
    tc_buffer_addf(&name, "%s" TC_PART_ENDING, publish->files->name);
    bool ok =
        tc_buffer_ok(&name, error) && print_record(&text, part, conversion, error) &&
        (part->choice.number != 1 || write_index(part, publish, error)) &&
        tc_publish_check(publish, name.bytes, conversion->inputs, conversion->input_count, error) &&
        tc_publish_text(publish, name.bytes, &text, error);
    tc_buffer_release(&text);
    tc_buffer_release(&name);
    return ok;
}
