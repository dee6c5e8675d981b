#include "cmd/stats_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/base/json_writer.h"
#include "core/base/path.h"
#include "core/format/backend.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

/* Text with what could mislead a reader (control characters and the like) escaped. */
static void add_text(struct tc_json_writer *json, const char *key, struct tc_text text) {
    struct tc_buffer visible = {0};
    tc_buffer_add_visible(&visible, text);
    tc_json_add_text(json, key, (struct tc_text){visible.bytes, visible.length});
    json->out->failed |= visible.failed;
    tc_buffer_release(&visible);
}

static void add_number(struct tc_json_writer *json, double value) {
    if (isfinite(value))
        tc_json_add_real(json, NULL, value);
    else
        tc_json_add_null(json, NULL);
}

/* An integer as text: a script's numbers have 53 bits. */
static void add_value(struct tc_json_writer *json, const struct tc_value *value) {
    char digits[24];
    if (!value->integer) {
        add_number(json, value->real);
        return;
    }
    snprintf(digits, sizeof digits, "%s%" PRIu64, value->negative ? "-" : "", value->magnitude);
    tc_json_add_string(json, NULL, digits);
}

static void add_tensor(struct tc_json_writer *json, const struct tc_table *table, size_t position,
                       const struct tc_stats *stats, const struct tc_histogram *histogram) {
    const struct tc_tensor *tensor = &table->tensors[position];
    tc_json_open_array(json, NULL);
    add_text(json, NULL, tensor->name);
    tc_json_add_string(json, NULL, tc_dtype_name(tensor->dtype));
    tc_json_add_numbers(json, NULL, tensor->shape, tensor->rank);
    tc_json_add_number(json, NULL, stats->count);
    tc_json_add_number(json, NULL, tensor->nbytes);
    add_value(json, &stats->min);
    add_value(json, &stats->max);
    add_number(json, stats->mean);
    add_number(json, stats->stddev);
    tc_json_add_number(json, NULL, stats->zeros);
    tc_json_add_number(json, NULL, stats->nan);
    tc_json_add_number(json, NULL, stats->inf);
    bool finite = stats->zeros + stats->nonzeros > 0;
    tc_json_add_numbers(json, NULL, histogram->bins, finite ? TC_HISTOGRAM_BINS : 0);
    if (tc_table_source(table, position) != position)
        add_text(json, NULL, table->tensors[tc_table_source(table, position)].name);
    tc_json_close(json);
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
    struct tc_buffer text = {0};
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_ASCII};
    bool ok = tc_outfile_write(out, stats_page_before.bytes, stats_page_before.length, error);
    tc_json_open_object(&json, NULL);
    add_text(&json, "file", tc_text_of(path));
    tc_json_add_string(&json, "format", format->name);
    tc_json_add_number(&json, "size", reader->size);
    json.style = TC_JSON_LINES; /* a tensor a line */
    tc_json_open_array(&json, "tensors");
    json.style = TC_JSON_COMPACT;
    for (size_t i = 0; i < reader->table.count && ok; i++)
        if (wanted[i]) {
            add_tensor(&json, &reader->table, i, &stats[i], &histograms[i]);
            ok = write_json(out, &text, error);
        }
    tc_json_close(&json);
    tc_json_close(&json);
    ok = ok && write_json(out, &text, error) &&
         tc_outfile_write(out, stats_page_behind.bytes, stats_page_behind.length, error);
    tc_buffer_release(&text);
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
