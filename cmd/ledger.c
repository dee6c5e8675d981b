#include "cmd/ledger.h"

#include <inttypes.h>
#include <string.h>

#include "cmd/report.h"
#include "core/base/json_writer.h"
#include "core/base/notes.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/densify.h"
#include "core/format/dequantise.h"
#include "core/plan/ties.h"
#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

/* What converting takes in addition to the tables: chunks between the threads, and
 * the buffer of small writes. */
#define STREAM_MEMORY (UINT64_C(20) << 20)

static uint64_t memory_needed(const struct tc_plan *plan) {
    uint64_t bytes = STREAM_MEMORY + plan->arena.used + plan->densify_memory;
    for (size_t r = 0; r < plan->reader_count; r++)
        bytes += plan->readers[r]->arena.used +
                 plan->readers[r]->table.capacity * sizeof(struct tc_tensor);
    return bytes + (plan->options->write.compress ? plan->target->compress_memory : 0);
}

static size_t count_files(const struct tc_plan *plan) {
    size_t count = plan->file_count + (plan->index_name != NULL) + (plan->sidecar_name != NULL);
    for (size_t p = 0; p < plan->file_count; p++)
        count += plan->files[p].companion != NULL;
    return count;
}

/* The errors of a cast; a dry run converts no values and has none. */
static void add_report_json(struct tc_json_writer *json, const struct tc_cast_report *report) {
    tc_json_open_object(json, "error");
    tc_json_add_number(json, "changed", report->inexact);
    tc_json_add_real(json, "max_abs", report->max_abs);
    tc_json_add_real(json, "max_rel", report->max_rel);
    tc_json_add_number(json, "overflow", report->overflow);
    tc_json_add_number(json, "underflow", report->underflow);
    tc_json_add_number(json, "nan", report->nan_made);
    tc_json_close(json);
}

static void add_item_json(struct tc_json_writer *json, const struct tc_plan *plan,
                          const struct tc_item *item, bool done) {
    const struct tc_item *kept = tc_ties_kept(plan, item);
    const struct tc_densify *densify = item->densify;
    const struct tc_dequantise *dequantise = item->dequantise;
    uint64_t read = densify ? densify->nbytes : dequantise ? dequantise->nbytes : item->taken;
    tc_json_open_object(json, NULL);
    tc_json_add_text(json, "name", item->name);
    if (!tc_text_equal(item->name, item->tensor->name))
        tc_json_add_text(json, "source", item->tensor->name);
    tc_json_add_string(json, "dtype", tc_dtype_name(item->tensor->dtype));
    tc_json_add_string(json, "as", tc_dtype_name(item->dtype));
    tc_json_add_boolean(json, "lossless", !item->lossy);
    tc_json_add_numbers(json, "shape", item->shape, item->rank);
    tc_json_add_number(json, "bytes_in", kept ? 0 : read);
    tc_json_add_number(json, "bytes_out", kept ? 0 : item->nbytes);
    if (kept)
        tc_json_add_text(json, "tied_to", kept->name);
    if (item->report && done)
        add_report_json(json, item->report);
    tc_json_close(json);
}

static void add_inputs_json(struct tc_json_writer *json, const struct tc_plan *plan) {
    tc_json_add_string(json, "input", plan->readers[0]->input->path);
    if (plan->reader_count == 1)
        return;
    tc_json_open_array(json, "inputs");
    for (size_t r = 0; r < plan->reader_count; r++)
        tc_json_add_string(json, NULL, plan->readers[r]->input->path);
    tc_json_close(json);
}

/* The path of one of the output's files. */
static void add_path(struct tc_buffer *path, const char *output, const char *name) {
    tc_buffer_add(path, output, (size_t)(tc_path_name(output) - output));
    tc_buffer_add_string(path, name);
}

/* Which files a model in shards is written to: not one that is called as the output. */
static void add_shards_json(struct tc_json_writer *json, const struct tc_plan *plan,
                            const char *output) {
    if (!plan->in_shards)
        return;
    struct tc_buffer path = {0};
    if (plan->index_name) {
        add_path(&path, output, plan->index_name);
        tc_json_add_text(json, "index", (struct tc_text){path.bytes, path.length});
    }
    tc_json_open_array(json, "shards");
    for (size_t p = 0; p < plan->file_count; p++) {
        path.length = 0;
        add_path(&path, output, plan->files[p].name);
        tc_json_add_text(json, NULL, (struct tc_text){path.bytes, path.length});
    }
    tc_json_close(json);
    json->out->failed |= path.failed;
    tc_buffer_release(&path);
}

static void add_shards_text(struct tc_buffer *out, const struct tc_plan *plan, const char *output) {
    struct tc_buffer path = {0};
    if (plan->index_name) {
        add_path(&path, output, plan->index_name);
        tc_buffer_add_visible(out, (struct tc_text){path.bytes, path.length});
        tc_buffer_add_string(out, " and ");
        path.length = 0;
    }
    add_path(&path, output, plan->files[0].name);
    tc_buffer_addf(out, "%zu shard%s, ", plan->file_count, plan->file_count == 1 ? "" : "s");
    tc_buffer_add_visible(out, (struct tc_text){path.bytes, path.length});
    tc_buffer_add_string(out, plan->file_count == 1 ? "" : " and so on");
    out->failed |= path.failed;
    tc_buffer_release(&path);
}

static void ledger_json(struct tc_buffer *out, const struct tc_plan *plan, const char *output,
                        bool done) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    add_inputs_json(&json, plan);
    tc_json_add_string(&json, "output", output);
    add_shards_json(&json, plan, output);
    tc_json_add_string(&json, "format", plan->target->name);
    tc_json_open_array(&json, "tensors");
    for (size_t i = 0; i < plan->count; i++)
        add_item_json(&json, plan, &plan->items[i], done);
    tc_json_close(&json);
    tc_notes_print(&json, "changes", &plan->notes, TC_CHANGE);
    tc_notes_print(&json, "losses", &plan->notes, TC_LOSS);
    if (tc_notes_count(&plan->notes, TC_WARNING, TC_KINDS))
        tc_notes_print(&json, "warnings", &plan->notes, TC_WARNING);
    tc_json_add_number(&json, "files", count_files(plan));
    tc_json_add_number(&json, "bytes_in", plan->bytes_in);
    tc_json_add_number(&json, "bytes_out", plan->bytes_out);
    tc_json_add_number(&json, "memory", memory_needed(plan));
    tc_json_end_line(&json);
}

static void ledger_text(struct tc_buffer *out, const struct tc_plan *plan, const char *output) {
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        tc_buffer_add_visible(out, item->name);
        if (!tc_text_equal(item->name, item->tensor->name)) {
            tc_buffer_add_string(out, " (was ");
            tc_buffer_add_visible(out, item->tensor->name);
            tc_buffer_add_string(out, ")");
        }
        tc_buffer_addf(out, "  %s", tc_dtype_name(item->tensor->dtype));
        if (item->dtype != item->tensor->dtype)
            tc_buffer_addf(out, " -> %s", tc_dtype_name(item->dtype));
        tc_buffer_add_string(out, "  ");
        tc_shape_print(out, item->shape, item->rank);
        tc_buffer_add_string(out, "  ");
        report_size(out, item->nbytes);
        if (item->tied) {
            tc_buffer_add_string(out, "  tied to ");
            tc_buffer_add_visible(out, tc_ties_kept(plan, item)->name);
        }
        tc_buffer_add_string(out, "\n");
    }
    tc_buffer_addf(out, "%zu tensor%s to ", plan->count, plan->count == 1 ? "" : "s");
    if (plan->in_shards)
        add_shards_text(out, plan, output);
    else
        tc_buffer_add_visible(out, tc_text_of(output));
    tc_buffer_addf(out, " (%s): ", plan->target->name);
    report_size(out, plan->bytes_in);
    tc_buffer_add_string(out, " in, ");
    report_size(out, plan->bytes_out);
    tc_buffer_add_string(out, " out, about ");
    report_size(out, memory_needed(plan));
    tc_buffer_add_string(out, " of memory\n");
}

bool ledger_print(const struct tc_plan *plan, const char *output, bool json, bool done,
                  struct tc_error *error) {
    struct tc_buffer out = {0};
    if (json)
        ledger_json(&out, plan, output, done);
    else
        ledger_text(&out, plan, output);
    bool ok = tc_buffer_ok(&out, error);
    report_out(&out);
    return ok;
}
