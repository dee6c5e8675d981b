/* tconv diff A B: what differs between two files, whatever their formats. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/choose.h"
#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/number.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/inspect/compare.h"
#include "core/inspect/compare_values.h"
#include "core/tensor/dtype.h"
#include "core/tensor/select.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

struct diff {
    struct common common;
    struct choose choose;
    struct tc_compare_options options;
};

/* Compares two tensors that both files have, by what A says of them. */
static int compare_pairs(const void *a, const void *b, void *sort) {
    return choose_compare((*(const struct tc_compared *const *)a)->a,
                          (*(const struct tc_compared *const *)b)->a,
                          *(const enum choose_sort *)sort);
}

/* Without --sort tensors stay in the files' order, and values the worst first. */
static void order_lists(struct tc_compare *compare, enum choose_sort sort) {
    if (sort == SORT_FILE)
        return;
    choose_order(compare->added, compare->added_count, sort);
    choose_order(compare->removed, compare->removed_count, sort);
    qsort_r(compare->worst, compare->worst_count, sizeof *compare->worst, compare_pairs, &sort);
    qsort_r(compare->listed, compare->pair_count, sizeof *compare->listed, compare_pairs, &sort);
}

/* Where an element lies: its index on each axis. */
static void find_index(const struct tc_tensor *tensor, uint64_t element,
                       uint64_t index[TC_MAX_RANK]) {
    for (unsigned axis = tensor->rank; axis > 0; axis--) {
        index[axis - 1] = element % tensor->shape[axis - 1];
        element /= tensor->shape[axis - 1];
    }
}

static void add_index(struct tc_buffer *out, const struct tc_tensor *tensor, uint64_t element) {
    uint64_t index[TC_MAX_RANK];
    find_index(tensor, element, index);
    tc_shape_print(out, index, tensor->rank);
}

static void add_index_json(struct tc_json_writer *json, const char *key,
                           const struct tc_tensor *tensor, uint64_t element) {
    uint64_t index[TC_MAX_RANK];
    find_index(tensor, element, index);
    tc_json_add_numbers(json, key, index, tensor->rank);
}

static void add_names_json(struct tc_json_writer *json, const char *key,
                           const struct tc_tensor *const *tensors, size_t count) {
    tc_json_open_array(json, key);
    for (size_t i = 0; i < count; i++)
        tc_json_add_text(json, NULL, tensors[i]->name);
    tc_json_close(json);
}

static void add_shapes_json(struct tc_json_writer *json, const struct tc_compare *compare) {
    tc_json_open_array(json, "shape");
    for (size_t i = 0; i < compare->pair_count; i++) {
        const struct tc_compared *pair = compare->listed[i];
        if (!pair->shape)
            continue;
        tc_json_open_object(json, NULL);
        tc_json_add_text(json, "name", pair->a->name);
        tc_json_add_numbers(json, "a", pair->a->shape, pair->a->rank);
        tc_json_add_numbers(json, "b", pair->b->shape, pair->b->rank);
        tc_json_close(json);
    }
    tc_json_close(json);
}

static void add_dtypes_json(struct tc_json_writer *json, const struct tc_compare *compare) {
    tc_json_open_array(json, "dtype");
    for (size_t i = 0; i < compare->pair_count; i++) {
        const struct tc_compared *pair = compare->listed[i];
        if (!pair->dtype)
            continue;
        tc_json_open_object(json, NULL);
        tc_json_add_text(json, "name", pair->a->name);
        tc_json_add_string(json, "a", tc_dtype_name(pair->a->dtype));
        tc_json_add_string(json, "b", tc_dtype_name(pair->b->dtype));
        tc_json_close(json);
    }
    tc_json_close(json);
}

/* Packed elements have no errors: they are compared as bits alone. */
static void add_error_json(struct tc_json_writer *json, const char *key,
                           const struct tc_compared *pair, double error) {
    if (tc_dtype_packed(pair->a->dtype) && !tc_dtype_is_block(pair->a->dtype))
        tc_json_add_null(json, key);
    else
        tc_json_add_real(json, key, error);
}

static void add_values_json(struct tc_json_writer *json, const struct tc_compare *compare) {
    tc_json_open_array(json, "values");
    for (size_t i = 0; i < compare->worst_count; i++) {
        const struct tc_compared *pair = compare->worst[i];
        const struct tc_value_diff *values = pair->values;
        tc_json_open_object(json, NULL);
        tc_json_add_text(json, "name", pair->a->name);
        tc_json_add_number(json, "elements", tc_shape_count(pair->a->shape, pair->a->rank));
        tc_json_add_number(json, "differing", values->differing);
        add_error_json(json, "max_abs", pair, values->max_abs);
        add_error_json(json, "max_rel", pair, values->max_rel);
        tc_json_add_number(json, "nan", values->nan);
        tc_json_add_number(json, "bits_only", values->bits_only);
        add_index_json(json, "first", pair->a, values->first);
        add_index_json(json, "worst", pair->a, values->worst);
        tc_json_close(json);
    }
    tc_json_close(json);
}

static void add_text_json(struct tc_json_writer *json, const char *key,
                          const struct tc_text *text) {
    if (text)
        tc_json_add_text(json, key, *text);
    else
        tc_json_add_null(json, key);
}

static void add_metadata_json(struct tc_json_writer *json, const struct tc_compare *compare) {
    tc_json_open_array(json, "metadata");
    for (size_t i = 0; i < compare->metadata_count; i++) {
        const struct tc_metadata_diff *diff = &compare->metadata[i];
        tc_json_open_object(json, NULL);
        tc_json_add_text(json, "key", diff->key);
        if (diff->tensor.bytes)
            tc_json_add_text(json, "tensor", diff->tensor);
        add_text_json(json, "a", diff->a);
        add_text_json(json, "b", diff->b);
        tc_json_close(json);
    }
    tc_json_close(json);
}

static void diff_json(struct tc_buffer *out, const struct diff *diff,
                      const struct tc_compare *compare, const struct tc_reader *a,
                      const struct tc_reader *b) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_boolean(&json, "equal", compare->equal);
    common_add_unverified(&json, &diff->common);
    add_names_json(&json, "added", compare->added, compare->added_count);
    add_names_json(&json, "removed", compare->removed, compare->removed_count);
    add_shapes_json(&json, compare);
    add_dtypes_json(&json, compare);
    add_values_json(&json, compare);
    add_metadata_json(&json, compare);
    report_skipped(&json, "skipped", a, b);
    tc_json_end_line(&json);
}

static void add_alone_text(struct tc_buffer *out, const char *what,
                           const struct tc_tensor *const *tensors, size_t count) {
    for (size_t i = 0; i < count; i++) {
        tc_buffer_add_string(out, what);
        tc_buffer_add_visible(out, tensors[i]->name);
        tc_buffer_addf(out, "  %s ", tc_dtype_name(tensors[i]->dtype));
        tc_shape_print(out, tensors[i]->shape, tensors[i]->rank);
        tc_buffer_add_string(out, "\n");
    }
}

static void add_tables_text(struct tc_buffer *out, const struct tc_compare *compare) {
    for (size_t i = 0; i < compare->pair_count; i++) {
        const struct tc_compared *pair = compare->listed[i];
        if (!pair->shape)
            continue;
        tc_buffer_add_string(out, "shape     ");
        tc_buffer_add_visible(out, pair->a->name);
        tc_buffer_add_string(out, "  ");
        tc_shape_print(out, pair->a->shape, pair->a->rank);
        tc_buffer_add_string(out, " -> ");
        tc_shape_print(out, pair->b->shape, pair->b->rank);
        tc_buffer_add_string(out, "\n");
    }
    for (size_t i = 0; i < compare->pair_count; i++) {
        const struct tc_compared *pair = compare->listed[i];
        if (!pair->dtype)
            continue;
        tc_buffer_add_string(out, "dtype     ");
        tc_buffer_add_visible(out, pair->a->name);
        tc_buffer_addf(out, "  %s -> %s\n", tc_dtype_name(pair->a->dtype),
                       tc_dtype_name(pair->b->dtype));
    }
}

static void add_values_text(struct tc_buffer *out, const struct tc_compare *compare) {
    for (size_t i = 0; i < compare->worst_count; i++) {
        const struct tc_compared *pair = compare->worst[i];
        const struct tc_value_diff *values = pair->values;
        tc_buffer_add_string(out, "values    ");
        tc_buffer_add_visible(out, pair->a->name);
        tc_buffer_addf(out, "  %" PRIu64 " of %" PRIu64 " differ, the first at ", values->differing,
                       tc_shape_count(pair->a->shape, pair->a->rank));
        add_index(out, pair->a, values->first);
        if (values->max_abs > 0) {
            tc_buffer_add_string(out, "; max abs ");
            number_add_brief(out, values->max_abs);
            tc_buffer_add_string(out, " at ");
            add_index(out, pair->a, values->worst);
            tc_buffer_add_string(out, ", max rel ");
            number_add_brief(out, values->max_rel);
        }
        if (values->nan)
            tc_buffer_addf(out, "; %" PRIu64 " NaN on one side only", values->nan);
        if (values->bits_only)
            tc_buffer_addf(out, "; %" PRIu64 " in bits only", values->bits_only);
        tc_buffer_add_string(out, "\n");
    }
}

static void add_metadata_text(struct tc_buffer *out, const struct tc_compare *compare) {
    for (size_t i = 0; i < compare->metadata_count; i++) {
        const struct tc_metadata_diff *diff = &compare->metadata[i];
        tc_buffer_add_string(out, "metadata  ");
        if (diff->tensor.bytes) {
            tc_buffer_add_visible(out, diff->tensor);
            tc_buffer_add_string(out, ": ");
        }
        tc_buffer_add_visible(out, diff->key);
        for (int side = 0; side < 2; side++) {
            const struct tc_text *value = side ? diff->b : diff->a;
            tc_buffer_add_string(out, side ? " -> " : "  ");
            if (value)
                tc_buffer_add_json(out, *value, TC_ESCAPE_DISPLAY);
            else
                tc_buffer_add_string(out, "nothing");
        }
        tc_buffer_add_string(out, "\n");
    }
}

static void diff_text(struct tc_buffer *out, const struct tc_compare *compare, bool quiet) {
    add_alone_text(out, "removed   ", compare->removed, compare->removed_count);
    add_alone_text(out, "added     ", compare->added, compare->added_count);
    add_tables_text(out, compare);
    add_values_text(out, compare);
    add_metadata_text(out, compare);
    if (!compare->equal || quiet)
        return;
    tc_buffer_addf(out, "equal: %zu tensor%s of ", compare->pair_count,
                   compare->pair_count == 1 ? "" : "s");
    report_size(out, compare->bytes);
    tc_buffer_add_string(out, "\n");
}

/* Where patterns leave nothing, equal would mean nothing. */
static bool check_some(const struct tc_compare *compare, struct tc_error *error) {
    if (compare->pair_count || compare->added_count || compare->removed_count ||
        !(compare->readers[0]->table.count || compare->readers[1]->table.count))
        return true;
    tc_fail(error, TC_USAGE, "nothing-selected", "no tensor is left after --include and --exclude");
    return tc_error_hint(error, "tconv list prints the names");
}

static bool compare_files(struct diff *diff, const char *const *paths, bool *equal,
                          struct tc_error *error) {
    struct tc_compare compare = {0};
    struct tc_buffer out = {0};
    struct report_progress progress;
    if (strcmp(paths[0], "-") == 0 && strcmp(paths[1], "-") == 0)
        return tc_fail(error, TC_USAGE, "usage", "only one of the two can be standard input");
    struct tc_reader *a = common_open(&diff->common, paths[0], error);
    struct tc_reader *b = a ? common_open(&diff->common, paths[1], error) : NULL;
    report_progress_start(&progress, NULL, diff->common.quiet);
    diff->options.select = &diff->choose.select;
    diff->options.progress = report_progress_step;
    diff->options.context = &progress;
    bool ok =
        b && tc_compare_run(&compare, a, b, &diff->options, error) && check_some(&compare, error);
    report_progress_end(&progress, ok);
    diff->options.context = NULL;
    if (ok)
        order_lists(&compare, diff->choose.sort);
    if (ok && diff->common.json)
        diff_json(&out, diff, &compare, a, b);
    else if (ok)
        diff_text(&out, &compare, diff->common.quiet);
    ok = ok && tc_buffer_ok(&out, error);
    *equal = compare.equal;
    if (ok)
        report_out(&out);
    tc_buffer_release(&out);
    tc_compare_release(&compare);
    tc_reader_close(b);
    tc_reader_close(a);
    return ok && report_flush(error);
}

static int run(struct diff *diff, struct option_table *table, int argc, char **argv) {
    struct tc_error error = {0};
    struct arguments arguments = {0};
    bool equal = true;
    bool ok = options_parse(table, argc, argv, &arguments, &error);
    if (ok && diff->common.help)
        help_print(
            diff->common.help, "tconv diff [options] A B",
            "Says what differs between two files, of whatever formats: tensors that one of\n"
            "them lacks, shapes, dtypes, values (the worst first), metadata. Exits with 0\n"
            "where nothing differs and with 1 where something does. Values are compared bit\n"
            "by bit; with --atol or --rtol as numbers, across dtypes too, and then a dtype\n"
            "alone is no difference: |a - b| <= atol + rtol * |b|, and NaN equals NaN.",
            table);
    else if (ok && arguments.count != 2)
        ok = tc_fail(&error, TC_USAGE, "usage", "two files are needed");
    else if (ok)
        ok = common_confine(&diff->common, arguments.names, arguments.count, &error) &&
             compare_files(diff, arguments.names, &equal, &error);
    arguments_release(&arguments);
    if (!ok)
        return report_error(&error, diff->common.json);
    return equal ? TC_OK : TC_DIFFERENT;
}

int cmd_diff(int argc, char **argv) {
    struct diff diff = {.common = COMMON_DEFAULTS};
    tc_select_init(&diff.choose.select);
    diff.common.format.select = &diff.choose.select;
    struct tc_tolerance *tolerance = &diff.options.tolerance;
    struct option_table table;
    const struct option rows[] = {
        REAL_OPTION("atol", &tolerance->absolute, .argument = "X", .given = &tolerance->numeric,
                    .help = "compare numbers; they may differ by X (0 with --rtol alone)"),
        REAL_OPTION("rtol", &tolerance->relative, .argument = "X", .given = &tolerance->numeric,
                    .help =
                        "compare numbers; they may differ by X times B's (0 with --atol alone)"),
        FLAG_OPTION("ignore-metadata", &diff.options.ignore_metadata,
                    .help = "metadata of files and tensors may differ"),
    };
    options_init(&table);
    options_add(&table, "Comparing:", rows, OPTION_COUNT(rows));
    common_add_no_verify(&table, &diff.common);
    choose_add_options(&table, &diff.choose);
    common_add_options(&table, &diff.common);
    int code = run(&diff, &table, argc, argv);
    options_release(&table);
    choose_end(&diff.choose, &diff.common, code);
    return code;
}
