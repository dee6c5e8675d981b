#include "cmd/ledger.h"

#include <inttypes.h>
#include <string.h>

#include "cmd/report.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/densify.h"
#include "core/plan/ties.h"
#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

/* What converting takes beside the tables: chunks on their way, a write buffer. */
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

static void add_item_json(struct tc_buffer *out, const struct tc_plan *plan,
                          const struct tc_item *item, bool done) {
    const struct tc_item *kept = tc_ties_kept(plan, item);
    const struct tc_densify *densify = item->densify;
    uint64_t read = densify ? densify->nbytes : item->taken;
    tc_buffer_add_string(out, "{\"name\":");
    tc_buffer_add_json(out, item->name, TC_ESCAPE_DISPLAY);
    if (!tc_text_equal(item->name, item->tensor->name)) {
        tc_buffer_add_string(out, ",\"source\":");
        tc_buffer_add_json(out, item->tensor->name, TC_ESCAPE_DISPLAY);
    }
    tc_buffer_addf(out, ",\"dtype\":\"%s\",\"as\":\"%s\",\"lossless\":%s,\"shape\":",
                   tc_dtype_name(item->tensor->dtype), tc_dtype_name(item->dtype),
                   item->lossy ? "false" : "true");
    tc_shape_print(out, item->shape, item->rank);
    tc_buffer_addf(out, ",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64, kept ? 0 : read,
                   kept ? 0 : item->nbytes);
    if (kept) {
        tc_buffer_add_string(out, ",\"tied_to\":");
        tc_buffer_add_json(out, kept->name, TC_ESCAPE_DISPLAY);
    }
    /* Known once the values were seen; a dry run sees none. */
    const struct tc_cast_report *report = item->report;
    if (report && done)
        tc_buffer_addf(out,
                       ",\"error\":{\"changed\":%" PRIu64 ",\"max_abs\":%.17g,\"max_rel\":%.17g,"
                       "\"overflow\":%" PRIu64 ",\"underflow\":%" PRIu64 ",\"nan\":%" PRIu64 "}",
                       report->inexact, report->max_abs, report->max_rel, report->overflow,
                       report->underflow, report->nan_made);
    tc_buffer_add_string(out, "}");
}

static void ledger_json(struct tc_buffer *out, const struct tc_plan *plan, const char *output,
                        bool done) {
    tc_buffer_add_string(out, "{\"input\":");
    tc_buffer_add_json(out, tc_text_of(plan->readers[0]->input->path), TC_ESCAPE_DISPLAY);
    if (plan->reader_count > 1) {
        tc_buffer_add_string(out, ",\"inputs\":[");
        for (size_t r = 0; r < plan->reader_count; r++) {
            tc_buffer_add_string(out, r ? "," : "");
            tc_buffer_add_json(out, tc_text_of(plan->readers[r]->input->path), TC_ESCAPE_DISPLAY);
        }
        tc_buffer_add_string(out, "]");
    }
    tc_buffer_add_string(out, ",\"output\":");
    tc_buffer_add_json(out, tc_text_of(output), TC_ESCAPE_DISPLAY);
    tc_buffer_addf(out, ",\"format\":\"%s\",\"tensors\":[", plan->target->name);
    for (size_t i = 0; i < plan->count; i++) {
        tc_buffer_add_string(out, i ? "," : "");
        add_item_json(out, plan, &plan->items[i], done);
    }
    tc_buffer_add_string(out, "],\"changes\":[");
    tc_notes_print(out, &plan->notes, TC_CHANGE);
    tc_buffer_add_string(out, "],\"losses\":[");
    tc_notes_print(out, &plan->notes, TC_LOSS);
    if (tc_notes_count(&plan->notes, TC_WARNING, TC_KINDS)) {
        tc_buffer_add_string(out, "],\"warnings\":[");
        tc_notes_print(out, &plan->notes, TC_WARNING);
    }
    tc_buffer_addf(out,
                   "],\"files\":%zu,\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64
                   ",\"memory\":%" PRIu64 "}\n",
                   count_files(plan), plan->bytes_in, plan->bytes_out, memory_needed(plan));
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
