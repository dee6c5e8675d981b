#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/choose.h"
#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/table.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata_json.h"
#include "core/tensor/select.h"
#include "core/tensor/shape.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

#define LONGEST_VALUE 2000u /* bytes of metadata that are shown without -v */
#define LARGEST_ALIGNMENT 4096u

struct info {
    struct common common;
    struct choose choose;
};

/* The tensors that are shown, and their sums. A tensor that shares the data of another
 * that is shown does not count among the parameters, but its size does. */
struct shown {
    struct chosen chosen;
    uint64_t nbytes;
    uint64_t parameters;
};

/* The first of the tensors that share this one's data; NULL where it is the first. */
static const struct tc_tensor *tied_to(const struct tc_table *table,
                                       const struct tc_tensor *tensor) {
    size_t position = (size_t)(tensor - table->tensors);
    size_t source = tc_table_source(table, position);
    return source == position ? NULL : &table->tensors[source];
}

/* None where a tensor that is shown too has the same data. */
static uint64_t parameters_of(const struct tc_table *table, const struct chosen *chosen, size_t i) {
    const struct tc_tensor *first = tied_to(table, chosen->tensors[i]);
    return first && chosen->wanted[first - table->tensors]
               ? 0
               : tc_shape_count(chosen->tensors[i]->shape, chosen->tensors[i]->rank);
}

static bool choose(const struct info *info, const struct tc_reader *reader, struct shown *shown,
                   struct tc_error *error) {
    const struct chosen *chosen = &shown->chosen;
    if (!choose_tensors(&info->choose, reader, NULL, 0, &shown->chosen, error))
        return false;
    for (size_t i = 0; i < chosen->count; i++) {
        shown->nbytes += chosen->tensors[i]->nbytes;
        shown->parameters += parameters_of(&reader->table, chosen, i);
    }
    return true;
}

/* The largest power of two that divides all offsets of raw data; 0: none is raw. */
static uint64_t alignment(struct tc_reader *reader, const struct shown *shown) {
    uint64_t offsets = 0;
    bool raw = false;
    for (size_t i = 0; i < shown->chosen.count; i++) {
        struct tc_extent extent;
        if (!shown->chosen.tensors[i]->nbytes ||
            !tc_reader_extent(reader, shown->chosen.tensors[i], &extent))
            continue;
        offsets |= extent.offset;
        raw = true;
    }
    uint64_t lowest = offsets & (~offsets + 1);
    return !raw ? 0 : lowest && lowest < LARGEST_ALIGNMENT ? lowest : LARGEST_ALIGNMENT;
}

static const char *format_name(const struct tc_reader *reader) {
    return reader->shard_backend ? reader->shard_backend->name : reader->backend->name;
}

static void add_sparse_json(struct tc_json_writer *json, const struct tc_sparse *sparse) {
    tc_json_open_object(json, "sparse");
    tc_json_add_text(json, "layout", sparse->layout);
    tc_json_add_text(json, "parent", sparse->parent);
    tc_json_add_text(json, "role", sparse->role);
    tc_json_close(json);
}

static double bits_per_weight(enum tc_dtype dtype) {
    return 8.0 * tc_dtype_block_bytes(dtype) / tc_dtype_block_elements(dtype);
}

static void add_tensor_json(struct tc_json_writer *json, struct tc_reader *reader,
                            const struct tc_tensor *tensor) {
    struct tc_extent extent;
    struct tc_sparse sparse;
    tc_json_open_object(json, NULL);
    tc_json_add_text(json, "name", tensor->name);
    tc_json_add_string(json, "dtype", tc_dtype_name(tensor->dtype));
    tc_json_add_numbers(json, "shape", tensor->shape, tensor->rank);
    tc_json_add_number(json, "nbytes", tensor->nbytes);
    if (tc_dtype_is_block(tensor->dtype))
        tc_json_add_real(json, "bits_per_weight", bits_per_weight(tensor->dtype));
    if (tc_reader_extent(reader, tensor, &extent))
        tc_json_add_number(json, "offset", extent.offset);
    if (reader->shard_count)
        tc_json_add_string(json, "shard", reader->shards[tensor->cookie]);
    if (tensor->metadata && tensor->metadata->count)
        tc_metadata_write(json, "metadata", tensor->metadata);
    const struct tc_tensor *tied = tied_to(&reader->table, tensor);
    if (tied)
        tc_json_add_text(json, "tied_to", tied->name);
    if (tc_sparse_of(&reader->table, tensor, &sparse))
        add_sparse_json(json, &sparse);
    tc_json_close(json);
}

static void info_json(struct tc_buffer *out, struct tc_reader *reader, const struct shown *shown,
                      const char *path) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "file", path);
    tc_json_add_string(&json, "format", format_name(reader));
    tc_json_add_number(&json, "size", reader->size);
    if (reader->checksum)
        tc_json_add_boolean(&json, "checksum", true);
    if (reader->compressed)
        tc_json_add_boolean(&json, "compressed", true);
    if (reader->shard_count) {
        tc_json_open_array(&json, "shards");
        for (size_t i = 0; i < reader->shard_count; i++)
            tc_json_add_string(&json, NULL, reader->shards[i]);
        tc_json_close(&json);
    }
    tc_metadata_write(&json, "metadata", &reader->table.metadata);
    tc_json_open_array(&json, "tensors");
    for (size_t i = 0; i < shown->chosen.count; i++)
        add_tensor_json(&json, reader, shown->chosen.tensors[i]);
    tc_json_close(&json);
    report_skipped(&json, "skipped", reader, NULL);
    tc_json_end_line(&json);
}

struct rows {
    const struct tc_reader *reader;
    const struct shown *shown;
    bool shards; /* the shard of each tensor is shown */
};

/* "1,234,567" */
static void add_grouped(struct tc_buffer *out, uint64_t number) {
    char text[32];
    size_t at = sizeof text;
    for (unsigned digits = 0; digits == 0 || number; digits++) {
        if (digits && digits % 3 == 0)
            text[--at] = ',';
        text[--at] = (char)('0' + number % 10);
        number /= 10;
    }
    tc_buffer_add(out, text + at, sizeof text - at);
}

/* "4.5 bits a weight" */
static void add_bits(struct tc_buffer *out, enum tc_dtype dtype) {
    tc_buffer_addf(out, "%.4g bits a weight", bits_per_weight(dtype));
}

/* The last column: the shard, with -v; the bits a weight takes, of a block dtype; whose data the
 * tensor shares; the sparse tensor that it is a part of. */
static void add_remarks(struct tc_buffer *cell, const struct rows *rows,
                        const struct tc_tensor *tensor) {
    const struct tc_table *table = &rows->reader->table;
    const struct tc_tensor *first = tied_to(table, tensor);
    struct tc_sparse sparse;
    size_t start = cell->length;
    if (rows->shards)
        tc_buffer_add_visible(cell, tc_text_of(rows->reader->shards[tensor->cookie]));
    if (tc_dtype_is_block(tensor->dtype)) {
        tc_buffer_add_string(cell, cell->length > start ? "  " : "");
        add_bits(cell, tensor->dtype);
    }
    if (first) {
        tc_buffer_add_string(cell, cell->length > start ? "  tied to " : "tied to ");
        tc_buffer_add_visible(cell, first->name);
    }
    if (tc_sparse_of(table, tensor, &sparse)) {
        tc_buffer_add_string(cell, cell->length > start ? "  of sparse " : "of sparse ");
        tc_buffer_add_visible(cell, sparse.parent);
        tc_buffer_addf(cell, " (%.*s)", (int)sparse.layout.length, sparse.layout.bytes);
    }
}

/* The last row sums up. */
static void add_total(struct tc_buffer *cell, const struct shown *shown, int column) {
    if (column == 0)
        tc_buffer_add_string(cell, "total");
    else if (column == 3)
        add_grouped(cell, shown->parameters);
    else if (column == 4)
        report_size(cell, shown->nbytes);
}

static void add_cell(struct tc_buffer *cell, const void *context, size_t row, int column) {
    const struct rows *rows = context;
    if (row == rows->shown->chosen.count) {
        add_total(cell, rows->shown, column);
        return;
    }
    const struct tc_tensor *tensor = rows->shown->chosen.tensors[row];
    if (column == 0)
        tc_buffer_add_visible(cell, tensor->name);
    else if (column == 1)
        tc_buffer_add_string(cell, tc_dtype_name(tensor->dtype));
    else if (column == 2)
        tc_shape_print(cell, tensor->shape, tensor->rank);
    else if (column == 3)
        add_grouped(cell, tc_shape_count(tensor->shape, tensor->rank));
    else if (column == 4)
        report_size(cell, tensor->nbytes);
    else
        add_remarks(cell, rows, tensor);
}

static const struct table_column columns[] = {{"name", false},  {"dtype", false},
                                              {"shape", false}, {"parameters", true},
                                              {"size", true},   {"", false}};

/* Whether any tensor has an entry in the last column. */
static bool has_remarks(const struct rows *rows) {
    struct tc_sparse sparse;
    for (size_t i = 0; i < rows->shown->chosen.count; i++) {
        const struct tc_tensor *tensor = rows->shown->chosen.tensors[i];
        if (rows->shards || tc_dtype_is_block(tensor->dtype) ||
            tied_to(&rows->reader->table, tensor) ||
            tc_sparse_of(&rows->reader->table, tensor, &sparse))
            return true;
    }
    return false;
}

/* "F32: 3 tensors, 10 parameters, 40 B", where there are several. */
static void add_totals(struct tc_buffer *out, const struct tc_table *table,
                       const struct shown *shown) {
    struct {
        size_t count;
        uint64_t parameters;
        uint64_t nbytes;
    } totals[TC_DTYPES] = {0};
    size_t kinds = 0;
    for (size_t i = 0; i < shown->chosen.count; i++) {
        const struct tc_tensor *tensor = shown->chosen.tensors[i];
        kinds += totals[tensor->dtype].count++ == 0;
        totals[tensor->dtype].parameters += parameters_of(table, &shown->chosen, i);
        totals[tensor->dtype].nbytes += tensor->nbytes;
    }
    for (enum tc_dtype dtype = 0; kinds > 1 && dtype < TC_DTYPES; dtype++) {
        size_t count = totals[dtype].count;
        if (!count)
            continue;
        tc_buffer_addf(out, "%s: %zu tensor%s, ", tc_dtype_name(dtype), count,
                       count == 1 ? "" : "s");
        add_grouped(out, totals[dtype].parameters);
        tc_buffer_add_string(out, totals[dtype].parameters == 1 ? " parameter, " : " parameters, ");
        report_size(out, totals[dtype].nbytes);
        if (tc_dtype_is_block(dtype)) {
            tc_buffer_add_string(out, ", ");
            add_bits(out, dtype);
        }
        tc_buffer_add_string(out, "\n");
    }
}

/* A long value, such as the vocabulary of a GGUF model, is cut, unless all is asked for. */
static void add_value(struct tc_buffer *out, struct tc_text value, bool whole) {
    struct tc_text shown = {value.bytes, LONGEST_VALUE};
    if (whole || value.length <= LONGEST_VALUE) {
        tc_buffer_add_visible(out, value);
        return;
    }
    /* Not in the middle of a character. */
    while (shown.length && ((unsigned char)value.bytes[shown.length] & 0xC0) == 0x80)
        shown.length--;
    tc_buffer_add_visible(out, shown);
    tc_buffer_addf(out, "… (%zu bytes, -v shows all)", value.length);
}

static void info_text(struct tc_buffer *out, struct tc_reader *reader, const struct shown *shown,
                      const char *path, bool verbose) {
    const struct tc_table *table = &reader->table;
    tc_buffer_add_visible(out, tc_text_of(path));
    tc_buffer_addf(out, ": %s, ", format_name(reader));
    report_size(out, reader->size);
    tc_buffer_addf(out, ", %zu tensor%s of ", shown->chosen.count,
                   shown->chosen.count == 1 ? "" : "s");
    report_size(out, shown->nbytes);
    tc_buffer_add_string(out, ", ");
    add_grouped(out, shown->parameters);
    tc_buffer_add_string(out, shown->parameters == 1 ? " parameter" : " parameters");
    if (reader->shard_count)
        tc_buffer_addf(out, ", %zu shard%s", reader->shard_count,
                       reader->shard_count == 1 ? "" : "s");
    tc_buffer_add_string(out, reader->compressed ? ", compressed" : "");
    tc_buffer_add_string(out, reader->checksum ? ", with checksum\n" : "\n");
    for (size_t i = 0; i < table->metadata.count; i++) {
        tc_buffer_add_string(out, i ? "  " : "metadata:\n  ");
        tc_buffer_add_visible(out, table->metadata.pairs[i].key);
        tc_buffer_add_string(out, " = ");
        add_value(out, table->metadata.pairs[i].value, verbose);
        tc_buffer_add_string(out, "\n");
    }
    struct rows rows = {reader, shown, verbose && reader->shard_count};
    int shape = sizeof columns / sizeof *columns - (has_remarks(&rows) ? 0 : 1);
    if (shown->chosen.count)
        table_print(out, columns, shape, shown->chosen.count + (shown->chosen.count > 1), add_cell,
                    &rows);
    add_totals(out, table, shown);
    if (verbose && alignment(reader, shown))
        tc_buffer_addf(out, "data is aligned to %" PRIu64 " bytes\n", alignment(reader, shown));
}

static bool info_file(void *context, struct tc_reader *reader, const char *path,
                      struct tc_error *error) {
    const struct info *info = context;
    struct tc_buffer out = {0};
    struct shown shown = {0};
    bool ok = choose(info, reader, &shown, error);
    if (ok && info->common.json)
        info_json(&out, reader, &shown, path);
    else if (ok)
        info_text(&out, reader, &shown, path, info->common.verbose);
    ok = ok && tc_buffer_ok(&out, error);
    report_out(&out);
    chosen_release(&shown.chosen);
    return ok;
}

int cmd_info(int argc, char **argv) {
    struct info info = {.common = COMMON_DEFAULTS};
    struct option_table table;
    options_init(&table);
    choose_add_options(&table, &info.choose);
    common_add_options(&table, &info.common);
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    tc_select_init(&info.choose.select);
    info.common.format.select = &info.choose.select;
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && !info.common.help && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no file given");
    if (!ok)
        code = report_error(&error, info.common.json);
    else if (info.common.help)
        help_print(info.common.help, "tconv info [options] FILE...",
                   "Prints format, size, metadata and the table of tensors, with -v the shard of\n"
                   "each too. Reads headers only, so it is quick whatever the file's size.",
                   &table);
    else
        code = common_each_file(&info.common, &arguments, info_file, &info);
    choose_end(&info.choose, &info.common, code);
    arguments_release(&arguments);
    options_release(&table);
    return code;
}
