/* The receipt of a model that tconv index joins from what jobs have written. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/index/parts.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/convert/file_sums.h"
#include "core/convert/receipt.h"
#include "core/convert/shard_part.h"
#include "core/format/reader.h"
#include "core/inspect/digest.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"
#include "formats/registry.h"

struct line {
    const struct tc_part_tensor *tensor;
};

static int by_name(const void *a, const void *b) {
    return tc_text_compare(((const struct line *)a)->tensor->name,
                           ((const struct line *)b)->tensor->name);
}

bool index_make_digest(struct joined *model, struct tc_reader *reader, struct tc_error *error) {
    struct tc_buffer text = {0};
    struct tc_digest digest = {0};
    struct line *lines = calloc(model->tensors + 1, sizeof *lines);
    size_t count = 0;
    bool known = reader->table.count == model->tensors;
    bool ok = lines || tc_fail_memory(error);
    for (size_t r = 0; r < model->count && ok; r++)
        for (size_t i = 0; i < model->records[r].tensor_count; i++) {
            lines[count++].tensor = &model->records[r].tensors[i];
            known = known && model->records[r].tensors[i].has_sum;
        }
    if (ok && known) {
        qsort(lines, count, sizeof *lines, by_name);
        for (size_t i = 0; i < count; i++)
            tc_digest_add_line(&text, lines[i].tensor->sum, lines[i].tensor->dtype,
                               lines[i].tensor->shape, lines[i].tensor->rank,
                               lines[i].tensor->name);
        ok = tc_buffer_ok(&text, error);
    } else if (ok) {
        ok = tc_digest_make(&digest, reader, error) &&
             tc_digest_print(&digest, reader, &text, error);
    }
    ok = ok && tc_digest_total(&text, model->digest, error);
    tc_digest_release(&digest);
    tc_buffer_release(&text);
    free(lines);
    return ok;
}

/* Adds a file of the output. `path` is from malloc and freed here, NULL where there was no memory
 * for it; `sum` is the hash that is known of it, or NULL. */
static bool add_file(struct tc_json_writer *json, char *path, struct tc_text name, const char *sum,
                     struct tc_error *error) {
    char hex[2 * TC_SHA256_BYTES + 1];
    struct tc_input *input = path ? tc_input_open(path, NULL, error) : NULL;
    bool ok = input != NULL;
    if (!path)
        tc_fail_memory(error);
    if (ok && sum)
        memcpy(hex, sum, sizeof hex);
    else
        ok = ok && tc_input_sum(input, hex, error);
    if (ok) {
        tc_json_open_object(json, NULL);
        tc_json_add_text(json, "name", name);
        tc_json_add_number(json, "size", input->size);
        tc_json_add_string(json, "sha256", hex);
        tc_json_close(json);
    }
    tc_input_close(input);
    free(path);
    return ok;
}

static bool add_output(struct tc_json_writer *json, const struct joined *model, struct tc_text name,
                       const char *ending, const struct tc_part_record *record,
                       struct tc_error *error) {
    return add_file(json, index_path_of(model, name, ending), name,
                    record && record->has_sum ? record->sum : NULL, error);
}

/* A file that was copied into a model folder; a name that is no UTF-8 stands in no receipt. */
static bool add_copied(struct tc_json_writer *json, const struct joined *model,
                       struct tc_text copies, const struct tc_part_file *file,
                       struct tc_error *error) {
    struct tc_buffer name = {0};
    if (file->is_folder || !tc_utf8_valid(file->name))
        return true;
    tc_buffer_add_text(&name, copies);
    tc_buffer_add_text(&name, file->name);
    char *path = tc_buffer_ok(&name, error)
                     ? index_path_of(model, (struct tc_text){name.bytes, name.length}, "")
                     : NULL;
    tc_buffer_release(&name);
    return add_file(json, path, file->name, file->has_sum ? file->sum : NULL, error);
}

/* The inputs are those of the jobs, on whatever machines these ran: known by size, not by hash. */
static bool print_receipt(struct tc_buffer *file, const struct joined *model,
                          struct tc_error *error) {
    struct tc_text copies = TC_TEXT(TC_PARTS_FILES "/");
    struct tc_buffer text = {0};
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_DISPLAY};
    const struct tc_part_record *first = &model->records[0];
    tc_json_open_object(&json, NULL);
    tc_json_add_number(&json, "tconv_receipt", 1);
    tc_json_add_string(&json, "tconv", TC_VERSION);
    tc_json_open_array(&json, "inputs");
    tc_json_close(&json);
    tc_json_open_array(&json, "sources");
    for (size_t i = 0; i < first->input_count; i++) {
        tc_json_open_object(&json, NULL);
        tc_json_add_text(&json, "path", first->inputs[i].path);
        tc_json_add_number(&json, "size", first->inputs[i].size);
        tc_json_close(&json);
    }
    tc_json_close(&json);
    tc_json_add_text(&json, "output", model->index);
    tc_json_add_text(&json, "format", first->format);
    tc_json_open_array(&json, "outputs");
    bool ok = add_output(&json, model, model->index, TC_PART_INDEX_ENDING, NULL, error);
    for (size_t i = 0; i < model->count && ok; i++)
        ok = add_output(&json, model, model->records[i].name, "", &model->records[i], error);
    for (size_t i = 0; model->files && i < model->files->file_count && ok; i++)
        ok = add_copied(&json, model, copies, &model->files->files[i], error);
    tc_json_close(&json);
    tc_json_add_string(&json, "digest", model->digest);
    tc_json_add_text(&json, "plan", first->plan);
    tc_json_add_raw(&json, "options", first->options);
    tc_json_close(&json);
    ok = ok && tc_buffer_ok(&text, error) && tc_receipt_wrap(file, &text, NULL, error);
    tc_buffer_release(&text);
    return ok;
}

bool index_add_receipt(const struct join *join, const struct joined *model, const char *path,
                       struct tc_publish *publish, struct tc_error *error) {
    struct tc_publish_options options = {.no_sync = join->no_sync};
    struct tc_buffer text = {0};
    char *beside = NULL;
    char indexed[PATH_MAX];
    if (!join->receipt && !join->receipts)
        return true;
    /* Beside model.safetensors.index.json it is the receipt of model.safetensors. */
    bool index = !model->is_folder && tc_registry_indexed_path(path, indexed, sizeof indexed);
    if (!join->receipt && asprintf(&beside, "%s.receipt.json", index ? indexed : path) < 0)
        return tc_fail_memory(error);
    const char *receipt = join->receipt ? join->receipt : beside;
    bool ok = print_receipt(&text, model, error) &&
              tc_publish_begin(publish, receipt, false, options, error) &&
              tc_publish_check(publish, tc_path_name(receipt), NULL, 0, error) &&
              tc_publish_text(publish, tc_path_name(receipt), &text, error);
    tc_buffer_release(&text);
    free(beside);
    return ok;
}
