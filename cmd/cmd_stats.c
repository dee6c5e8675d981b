#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/choose.h"
#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/number.h"
#include "cmd/options.h"
#include "cmd/plot.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "cmd/stats_html.h"
#include "cmd/table.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/inspect/histogram.h"
#include "core/inspect/moments.h"
#include "core/inspect/stats.h"
#include "core/tensor/dtype.h"
#include "core/tensor/select.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

struct stats {
    struct common common;
    struct choose choose;
    bool plot;
    const char *html; /* NULL: no page */
};

/* Statistics by table position. */
struct results {
    struct chosen chosen;
    struct tc_stats *stats;
    struct tc_histogram *histograms; /* NULL: not asked for */
};

static void results_release(struct results *results) {
    chosen_release(&results->chosen);
    free(results->stats);
    free(results->histograms);
}

static void add_tensor_json(struct tc_json_writer *json, const struct tc_tensor *tensor,
                            const struct tc_stats *stats, const struct tc_histogram *histogram) {
    tc_json_open_object(json, NULL);
    tc_json_add_text(json, "name", tensor->name);
    tc_json_add_string(json, "dtype", tc_dtype_name(tensor->dtype));
    tc_json_add_numbers(json, "shape", tensor->shape, tensor->rank);
    tc_json_add_number(json, "count", stats->count);
    tc_json_add_number(json, "nbytes", tensor->nbytes);
    number_add_value_json(json, "min", &stats->min);
    number_add_value_json(json, "max", &stats->max);
    tc_json_add_real(json, "mean", stats->mean);
    tc_json_add_real(json, "stddev", stats->stddev);
    tc_json_add_number(json, "zeros", stats->zeros);
    tc_json_add_number(json, "nnz", stats->nonzeros);
    tc_json_add_number(json, "nan", stats->nan);
    tc_json_add_number(json, "inf", stats->inf);
    if (histogram)
        tc_json_add_numbers(json, "histogram", histogram->bins, TC_HISTOGRAM_BINS);
    tc_json_close(json);
}

static void add_json(struct tc_buffer *out, const struct stats *options,
                     const struct tc_reader *reader, const struct results *results,
                     const char *path) {
    const struct tc_table *table = &reader->table;
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "file", path);
    common_add_unverified(&json, &options->common);
    tc_json_open_array(&json, "tensors");
    for (size_t i = 0; i < results->chosen.count; i++) {
        size_t position = (size_t)(results->chosen.tensors[i] - table->tensors);
        add_tensor_json(&json, results->chosen.tensors[i], &results->stats[position],
                        results->histograms ? &results->histograms[position] : NULL);
    }
    tc_json_close(&json);
    report_skipped(&json, "skipped", reader, NULL);
    tc_json_end_line(&json);
}

struct rows {
    const struct tc_table *table;
    const struct results *results;
};

static void add_cell(struct tc_buffer *cell, const void *context, size_t row, int column) {
    const struct rows *rows = context;
    const struct tc_tensor *tensor = rows->results->chosen.tensors[row];
    const struct tc_stats *stats = &rows->results->stats[tensor - rows->table->tensors];
    switch (column) {
    case 0:
        tc_buffer_add_visible(cell, tensor->name);
        break;
    case 1:
        tc_buffer_add_string(cell, tc_dtype_name(tensor->dtype));
        break;
    case 2:
        tc_shape_print(cell, tensor->shape, tensor->rank);
        break;
    case 3:
    case 4:
        number_add_value_brief(cell, column == 3 ? &stats->min : &stats->max);
        break;
    case 5:
    case 6:
        number_add_brief(cell, column == 5 ? stats->mean : stats->stddev);
        break;
    default:
        tc_buffer_add_number(cell, column == 7   ? stats->count
                                   : column == 8 ? stats->zeros
                                   : column == 9 ? stats->nan
                                                 : stats->inf);
    }
}

static const struct table_column columns[] = {
    {"name", false}, {"dtype", false}, {"shape", false}, {"min", true},
    {"max", true},   {"mean", true},   {"stddev", true}, {"count", true},
    {"zeros", true}, {"NaN", true},    {"Inf", true},
};

static void add_text(struct tc_buffer *out, const struct tc_table *table,
                     const struct results *results) {
    table_print(out, columns, sizeof columns / sizeof *columns, results->chosen.count, add_cell,
                &(struct rows){table, results});
}

static void add_plots(struct tc_buffer *out, const struct tc_table *table,
                      const struct results *results) {
    for (size_t i = 0; i < results->chosen.count; i++) {
        size_t position = (size_t)(results->chosen.tensors[i] - table->tensors);
        tc_buffer_add_string(out, i ? "\n" : "");
        plot_add(out, results->chosen.tensors[i], &results->stats[position],
                 &results->histograms[position], report_width());
    }
}

static bool compute(const struct stats *options, struct tc_reader *reader, struct results *results,
                    struct tc_error *error) {
    size_t count = reader->table.count + 1;
    struct report_progress progress;
    results->stats = calloc(count, sizeof *results->stats);
    if (!results->stats)
        return tc_fail_memory(error);
    if ((options->plot || options->html) &&
        !(results->histograms = calloc(count, sizeof *results->histograms)))
        return tc_fail_memory(error);
    report_progress_start(&progress, NULL, options->common.quiet);
    bool ok = tc_stats_make(reader, results->chosen.wanted, results->stats, report_progress_step,
                            &progress, error);
    if (ok && results->histograms)
        ok = tc_histogram_make(reader, results->chosen.wanted, results->stats, results->histograms,
                               report_progress_step, &progress, error);
    report_progress_end(&progress, ok);
    return ok;
}

static bool print(const struct stats *options, const struct tc_reader *reader, const char *path,
                  const struct results *results, struct tc_error *error) {
    struct tc_buffer out = {0};
    if (options->common.json)
        add_json(&out, options, reader, results, path);
    else if (options->plot)
        add_plots(&out, &reader->table, results);
    else if (!options->html)
        add_text(&out, &reader->table, results);
    bool ok = tc_buffer_ok(&out, error);
    if (ok)
        report_out(&out);
    tc_buffer_release(&out);
    return ok;
}

static bool write_page(struct stats_html *html, const struct tc_reader *reader, const char *path,
                       const struct results *results, struct tc_error *error) {
    return stats_html_write(html, reader, path, results->chosen.wanted, results->stats,
                            results->histograms, error);
}

static bool stats_file(const struct stats *options, const char *const *arguments, size_t count,
                       struct tc_error *error) {
    const char *path = arguments[0];
    struct sandbox sandbox = common_sandbox(&options->common);
    sandbox_add_output(&sandbox, options->html);
    if (!sandbox_enter(&sandbox, &path, 1, error))
        return false;
    struct tc_reader *reader = common_open(&options->common, path, error);
    if (!reader)
        return tc_error_in_file(error, path);
    struct results results = {0};
    struct stats_html html;
    bool ok = choose_tensors(&options->choose, reader, arguments + 1, count - 1, &results.chosen,
                             error) &&
              chosen_some(&results.chosen, reader, error);
    bool page = ok && options->html;
    ok = ok && (!page || stats_html_begin(&html, options->html, reader, error)) &&
         compute(options, reader, &results, error) &&
         (!page || write_page(&html, reader, path, &results, error)) &&
         print(options, reader, path, &results, error);
    if (page)
        stats_html_end(&html);
    results_release(&results);
    tc_reader_close(reader);
    return ok ? true : tc_error_in_file(error, path);
}

int cmd_stats(int argc, char **argv) {
    struct stats stats = {.common = COMMON_DEFAULTS};
    struct option_table table;
    const struct option rows[] = {
        FLAG_OPTION("plot", &stats.plot,
                    .help = "draw a histogram of every tensor (the data is read twice)"),
        TEXT_OPTION("html", &stats.html, .argument = "OUT",
                    .help = "write a page instead: a table to sort, histograms, a map of sizes"),
    };
    options_init(&table);
    options_add(&table, "Showing:", rows, OPTION_COUNT(rows));
    common_add_no_verify(&table, &stats.common);
    choose_add_options(&table, &stats.choose);
    common_add_options(&table, &stats.common);
    struct tc_error error = {0};
    struct arguments arguments = {0};
    tc_select_init(&stats.choose.select);
    stats.common.format.select = &stats.choose.select;
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && stats.common.help)
        help_print(
            stats.common.help, "tconv stats [options] FILE [NAME...]",
            "Prints count, extremes, mean and standard deviation (of the population) of every\n"
            "tensor, or of those named. NaN and Inf are counted and left out of the rest;\n"
            "complex numbers count by their magnitude. Sums are exact, and rounded once.",
            &table);
    else if (ok && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no file given");
    else if (ok && stats.html && strcmp(stats.html, "-") == 0 && (stats.plot || stats.common.json))
        ok = tc_fail(&error, TC_USAGE, "usage", "standard output takes the page or the rest");
    else if (ok)
        ok = stats_file(&stats, arguments.names, arguments.count, &error);
    int code = ok ? 0 : report_error(&error, stats.common.json);
    arguments_release(&arguments);
    options_release(&table);
    choose_end(&stats.choose, &stats.common, code);
    return code;
}
