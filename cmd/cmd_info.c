#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "cmd/table.h"
#include "core/metadata.h"
#include "core/regex.h"

#define LARGEST_ALIGNMENT 4096u

enum info_sort { SORT_FILE, SORT_NAME, SORT_SIZE, SORT_DTYPE };

struct info {
    struct common common;
    int sort; /* enum info_sort */
    const char *filter;
    struct tc_regex regex;
};

/* The tensors that are shown, in the order wanted. */
struct shown {
    const struct tc_tensor **tensors;
    size_t count;
    uint64_t nbytes;
};

static int compare_shown(const void *a, const void *b, void *context) {
    const struct tc_tensor *x = *(const struct tc_tensor *const *)a;
    const struct tc_tensor *y = *(const struct tc_tensor *const *)b;
    int sort = *(const int *)context;
    int order = sort == SORT_NAME    ? tc_text_compare(x->name, y->name)
                : sort == SORT_SIZE  ? (x->nbytes < y->nbytes) - (x->nbytes > y->nbytes)
                : sort == SORT_DTYPE ? (x->dtype > y->dtype) - (x->dtype < y->dtype)
                                     : 0;
    return order ? order : (x > y) - (x < y); /* else as in the file: they are one list */
}

static bool choose(const struct info *info, const struct tc_table *table, struct shown *shown,
                   struct tc_error *error) {
    shown->tensors = calloc(table->count + 1, sizeof(struct tc_tensor *));
    if (!shown->tensors)
        return tc_fail_memory(error);
    for (size_t i = 0; i < table->count; i++) {
        bool matches = true;
        if (info->filter &&
            !tc_regex_matches(&info->regex, table->tensors[i].name, &matches, error))
            return false;
        if (!matches)
            continue;
        shown->tensors[shown->count++] = &table->tensors[i];
        shown->nbytes += table->tensors[i].nbytes;
    }
    if (info->sort)
        qsort_r(shown->tensors, shown->count, sizeof(struct tc_tensor *), compare_shown,
                (void *)(uintptr_t)&info->sort);
    return true;
}

/* The largest power of two that divides where all raw data starts; 0: none is
 * raw. */
static uint64_t alignment(struct tc_reader *reader, const struct shown *shown) {
    uint64_t offsets = 0;
    bool raw = false;
    for (size_t i = 0; i < shown->count; i++) {
        struct tc_extent extent;
        if (!shown->tensors[i]->nbytes || !tc_reader_extent(reader, shown->tensors[i], &extent))
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

/* The first of the tensors that share its data; NULL where it is that one. */
static const struct tc_tensor *tied_to(const struct tc_table *table,
                                       const struct tc_tensor *tensor) {
    size_t position = (size_t)(tensor - table->tensors);
    size_t source = tc_table_source(table, position);
    return source == position ? NULL : &table->tensors[source];
}

static void add_sparse_json(struct tc_buffer *out, const struct tc_sparse *sparse) {
    tc_buffer_add_string(out, ",\"sparse\":{\"layout\":");
    tc_buffer_add_json(out, sparse->layout, TC_ESCAPE_DISPLAY);
    tc_buffer_add_string(out, ",\"parent\":");
    tc_buffer_add_json(out, sparse->parent, TC_ESCAPE_DISPLAY);
    tc_buffer_add_string(out, ",\"role\":");
    tc_buffer_add_json(out, sparse->role, TC_ESCAPE_DISPLAY);
    tc_buffer_add_string(out, "}");
}

static void add_tensor_json(struct tc_buffer *out, struct tc_reader *reader,
                            const struct tc_tensor *tensor) {
    struct tc_extent extent;
    struct tc_sparse sparse;
    tc_buffer_add_string(out, "{\"name\":");
    tc_buffer_add_json(out, tensor->name, TC_ESCAPE_DISPLAY);
    tc_buffer_addf(out, ",\"dtype\":\"%s\",\"shape\":", tc_dtype_name(tensor->dtype));
    tc_shape_print(out, tensor->shape, tensor->rank);
    tc_buffer_addf(out, ",\"nbytes\":%" PRIu64, tensor->nbytes);
    if (tc_reader_extent(reader, tensor, &extent))
        tc_buffer_addf(out, ",\"offset\":%" PRIu64, extent.offset);
    if (reader->shard_count) {
        tc_buffer_add_string(out, ",\"shard\":");
        tc_buffer_add_json(out, tc_text_of(reader->shards[tensor->cookie]), TC_ESCAPE_DISPLAY);
    }
    if (tensor->metadata && tensor->metadata->count) {
        tc_buffer_add_string(out, ",\"metadata\":");
        tc_metadata_write(out, tensor->metadata, TC_ESCAPE_DISPLAY);
    }
    if (tied_to(&reader->table, tensor)) {
        tc_buffer_add_string(out, ",\"tied_to\":");
        tc_buffer_add_json(out, tied_to(&reader->table, tensor)->name, TC_ESCAPE_DISPLAY);
    }
    if (tc_sparse_of(&reader->table, tensor, &sparse))
        add_sparse_json(out, &sparse);
    tc_buffer_add_string(out, "}");
}

static void info_json(struct tc_buffer *out, struct tc_reader *reader, const struct shown *shown,
                      const char *path) {
    tc_buffer_add_string(out, "{\"file\":");
    tc_buffer_add_json(out, tc_text_of(path), TC_ESCAPE_DISPLAY);
    tc_buffer_addf(out, ",\"format\":\"%s\",\"size\":%" PRIu64, format_name(reader), reader->size);
    if (reader->checksum)
        tc_buffer_add_string(out, ",\"checksum\":true");
    if (reader->compressed)
        tc_buffer_add_string(out, ",\"compressed\":true");
    for (size_t i = 0; i < reader->shard_count; i++) {
        tc_buffer_add_string(out, i ? "," : ",\"shards\":[");
        tc_buffer_add_json(out, tc_text_of(reader->shards[i]), TC_ESCAPE_DISPLAY);
    }
    tc_buffer_add_string(out, reader->shard_count ? "],\"metadata\":" : ",\"metadata\":");
    tc_metadata_write(out, &reader->table.metadata, TC_ESCAPE_DISPLAY);
    tc_buffer_add_string(out, ",\"tensors\":[");
    for (size_t i = 0; i < shown->count; i++) {
        tc_buffer_add_string(out, i ? "," : "");
        add_tensor_json(out, reader, shown->tensors[i]);
    }
    tc_buffer_add_string(out, "]");
    report_skipped(out, reader, NULL);
    tc_buffer_add_string(out, "}\n");
}

struct rows {
    const struct tc_table *table;
    const struct shown *shown;
};

/* The size, and what else there is to say of a tensor. */
static void add_size(struct tc_buffer *cell, const struct tc_table *table,
                     const struct tc_tensor *tensor) {
    const struct tc_tensor *first = tied_to(table, tensor);
    struct tc_sparse sparse;
    report_size(cell, tensor->nbytes);
    if (first) {
        tc_buffer_add_string(cell, "  tied to ");
        tc_buffer_add_visible(cell, first->name);
    }
    if (tc_sparse_of(table, tensor, &sparse)) {
        tc_buffer_add_string(cell, "  of sparse ");
        tc_buffer_add_visible(cell, sparse.parent);
        tc_buffer_addf(cell, " (%.*s)", (int)sparse.layout.length, sparse.layout.bytes);
    }
}

static void add_cell(struct tc_buffer *cell, const void *context, size_t row, int column) {
    const struct rows *rows = context;
    const struct tc_tensor *tensor = rows->shown->tensors[row];
    if (column == 0)
        tc_buffer_add_visible(cell, tensor->name);
    else if (column == 1)
        tc_buffer_add_string(cell, tc_dtype_name(tensor->dtype));
    else if (column == 2)
        tc_shape_print(cell, tensor->shape, tensor->rank);
    else
        add_size(cell, rows->table, tensor);
}

static const struct table_column columns[] = {
    {"name", false}, {"dtype", false}, {"shape", false}, {"size", false}};

/* "F32: 3 tensors of 40 B", where there are several. */
static void add_totals(struct tc_buffer *out, const struct shown *shown) {
    uint64_t nbytes[TC_DTYPES] = {0};
    size_t counts[TC_DTYPES] = {0};
    size_t kinds = 0;
    for (size_t i = 0; i < shown->count; i++) {
        kinds += counts[shown->tensors[i]->dtype]++ == 0;
        nbytes[shown->tensors[i]->dtype] += shown->tensors[i]->nbytes;
    }
    for (enum tc_dtype dtype = 0; kinds > 1 && dtype < TC_DTYPES; dtype++) {
        if (!counts[dtype])
            continue;
        tc_buffer_addf(out, "%s: %zu tensor%s of ", tc_dtype_name(dtype), counts[dtype],
                       counts[dtype] == 1 ? "" : "s");
        report_size(out, nbytes[dtype]);
        tc_buffer_add_string(out, "\n");
    }
}

static void info_text(struct tc_buffer *out, struct tc_reader *reader, const struct shown *shown,
                      const char *path, bool verbose) {
    const struct tc_table *table = &reader->table;
    tc_buffer_add_visible(out, tc_text_of(path));
    tc_buffer_addf(out, ": %s, ", format_name(reader));
    report_size(out, reader->size);
    tc_buffer_addf(out, ", %zu tensor%s of ", shown->count, shown->count == 1 ? "" : "s");
    report_size(out, shown->nbytes);
    if (reader->shard_count)
        tc_buffer_addf(out, ", %zu shards", reader->shard_count);
    tc_buffer_add_string(out, reader->compressed ? ", compressed" : "");
    tc_buffer_add_string(out, reader->checksum ? ", with checksum\n" : "\n");
    for (size_t i = 0; i < table->metadata.count; i++) {
        tc_buffer_add_string(out, i ? "  " : "metadata:\n  ");
        tc_buffer_add_visible(out, table->metadata.pairs[i].key);
        tc_buffer_add_string(out, " = ");
        tc_buffer_add_visible(out, table->metadata.pairs[i].value);
        tc_buffer_add_string(out, "\n");
    }
    if (shown->count)
        table_print(out, columns, sizeof columns / sizeof *columns, shown->count, add_cell,
                    &(struct rows){table, shown});
    add_totals(out, shown);
    if (verbose && alignment(reader, shown))
        tc_buffer_addf(out, "data is aligned to %" PRIu64 " bytes\n", alignment(reader, shown));
}

static bool info_file(void *context, struct tc_reader *reader, const char *path,
                      struct tc_error *error) {
    const struct info *info = context;
    struct tc_buffer out = {0};
    struct shown shown = {0};
    bool ok = choose(info, &reader->table, &shown, error);
    if (ok && info->common.json)
        info_json(&out, reader, &shown, path);
    else if (ok)
        info_text(&out, reader, &shown, path, info->common.verbose);
    ok = ok && tc_buffer_ok(&out, error);
    report_out(&out);
    free(shown.tensors);
    return ok;
}

int cmd_info(int argc, char **argv) {
    struct info info = {.common = COMMON_DEFAULTS};
    static const char *const sorts[] = {"file", "name", "size", "dtype", NULL};
    const struct option options[] = {
        {.type = OPTION_HEADING, .help = "The table:"},
        {.name = "sort",
         .type = OPTION_CHOICE,
         .value = &info.sort,
         .argument = "file|name|size|dtype",
         .help = "order of the tensors; size: the largest first (default: as in the file)",
         .choices = sorts},
        {.name = "filter",
         .type = OPTION_TEXT,
         .value = &info.filter,
         .argument = "REGEX",
         .help = "only tensors whose name matches"},
        COMMON_OPTIONS(&info.common),
        {.type = OPTION_END}};
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    bool ok = options_parse(options, argc, argv, &arguments, &error);
    if (ok && !info.common.help && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no file given");
    if (ok && info.filter)
        ok = tc_regex_compile(&info.regex, tc_text_of(info.filter), false, &error);
    if (!ok)
        code = report_error(&error, info.common.json);
    else if (info.common.help)
        options_print_help("tconv info [options] FILE...",
                           "Prints format, size, metadata and the table of tensors. Reads\n"
                           "headers only, so it is quick whatever the file's size.",
                           options);
    else
        code = common_each_file(&info.common, &arguments, info_file, &info);
    tc_regex_release(&info.regex);
    free(arguments.names);
    return code;
}
