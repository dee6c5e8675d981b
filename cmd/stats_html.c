#include "cmd/stats_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cmd/number.h"
#include "core/format/backend.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

/* Text that is safe to look at, as JSON. */
static void add_text(struct tc_buffer *out, struct tc_text text) {
    struct tc_buffer visible = {0};
    tc_buffer_add_visible(&visible, text);
    tc_buffer_add_json(out, (struct tc_text){visible.bytes, visible.length}, TC_ESCAPE_ASCII);
    out->failed |= visible.failed;
    tc_buffer_release(&visible);
}

static void add_number(struct tc_buffer *out, double value) {
    if (isfinite(value))
        number_add_json(out, value);
    else
        tc_buffer_add_string(out, "null");
}

/* An integer as text: a script's numbers have 53 bits. */
static void add_value(struct tc_buffer *out, const struct tc_value *value) {
    if (!value->integer) {
        add_number(out, value->real);
        return;
    }
    tc_buffer_add_string(out, "\"");
    number_add_value_json(out, value);
    tc_buffer_add_string(out, "\"");
}

static void add_tensor(struct tc_buffer *out, const struct tc_table *table, size_t position,
                       const struct tc_stats *stats, const struct tc_histogram *histogram) {
    const struct tc_tensor *tensor = &table->tensors[position];
    tc_buffer_add_string(out, "[");
    add_text(out, tensor->name);
    tc_buffer_addf(out, ",\"%s\",", tc_dtype_name(tensor->dtype));
    tc_shape_print(out, tensor->shape, tensor->rank);
    tc_buffer_addf(out, ",%" PRIu64 ",%" PRIu64 ",", stats->count, tensor->nbytes);
    add_value(out, &stats->min);
    tc_buffer_add_string(out, ",");
    add_value(out, &stats->max);
    tc_buffer_add_string(out, ",");
    add_number(out, stats->mean);
    tc_buffer_add_string(out, ",");
    add_number(out, stats->stddev);
    tc_buffer_addf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",[", stats->zeros, stats->nan,
                   stats->inf);
    for (int i = 0; i < TC_HISTOGRAM_BINS && stats->zeros + stats->nonzeros; i++)
        tc_buffer_addf(out, "%s%" PRIu64, i ? "," : "", histogram->bins[i]);
    tc_buffer_add_string(out, "]");
    if (tc_table_source(table, position) != position) {
        tc_buffer_add_string(out, ",");
        add_text(out, table->tensors[tc_table_source(table, position)].name);
    }
    tc_buffer_add_string(out, "]");
}

/* JSON inside a page: what could end the element it lies in, or begin another,
 * occurs in strings only, where it can be escaped. */
static bool write_json(struct tc_outfile *out, struct tc_buffer *json, struct tc_error *error) {
    struct tc_buffer safe = {0};
    for (size_t i = 0; i < json->length; i++) {
        char byte = json->bytes[i];
        if (byte == '<' || byte == '>' || byte == '&')
            tc_buffer_addf(&safe, "\\u%04x", (unsigned)byte);
        else
            tc_buffer_add(&safe, &byte, 1);
    }
    safe.failed |= json->failed;
    json->length = 0;
    bool ok = tc_buffer_ok(&safe, error) &&
              (!safe.length || tc_outfile_write(out, safe.bytes, safe.length, error));
    tc_buffer_release(&safe);
    return ok;
}

static bool write_page(struct tc_outfile *out, const struct tc_reader *reader, const char *path,
                       const bool *wanted, const struct tc_stats *stats,
                       const struct tc_histogram *histograms, struct tc_error *error) {
    const struct tc_backend *format =
        reader->shard_backend ? reader->shard_backend : reader->backend;
    struct tc_buffer json = {0};
    const char *before = "";
    bool ok = tc_outfile_write(out, stats_page_before.bytes, stats_page_before.length, error);
    tc_buffer_add_string(&json, "{\"file\":");
    add_text(&json, tc_text_of(path));
    tc_buffer_addf(&json, ",\"format\":\"%s\",\"size\":%" PRIu64 ",\"tensors\":[", format->name,
                   reader->size);
    for (size_t i = 0; i < reader->table.count && ok; i++)
        if (wanted[i]) {
            tc_buffer_add_string(&json, before);
            add_tensor(&json, &reader->table, i, &stats[i], &histograms[i]);
            ok = write_json(out, &json, error);
            before = ",\n";
        }
    tc_buffer_add_string(&json, "]}");
    ok = ok && write_json(out, &json, error) &&
         tc_outfile_write(out, stats_page_behind.bytes, stats_page_behind.length, error);
    tc_buffer_release(&json);
    return ok;
}

bool stats_html_begin(struct stats_html *html, const char *target, const struct tc_reader *reader,
                      struct tc_error *error) {
    html->target = target;
    return tc_publish_begin(&html->publish, target, false, (struct tc_publish_options){0}, error) &&
           tc_reader_check_target(reader, &html->publish, tc_path_name(target), error);
}

bool stats_html_write(struct stats_html *html, const struct tc_reader *reader, const char *path,
                      const bool *wanted, const struct tc_stats *stats,
                      const struct tc_histogram *histograms, struct tc_error *error) {
    struct tc_outfile *out = tc_outfile_open(&html->publish, tc_path_name(html->target), error);
    return out && write_page(out, reader, path, wanted, stats, histograms, error) &&
           tc_outfile_seal(out, error) && tc_publish_commit(&html->publish, error);
}

void stats_html_end(struct stats_html *html) {
    tc_publish_end(&html->publish);
}
