#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "core/metadata.h"

#define WIDEST_NAME 60

static const char *format_name(const struct tc_reader *reader) {
    return reader->shard_backend ? reader->shard_backend->name : reader->backend->name;
}

/* The first of the tensors that share its data; NULL where it is that one. */
static const struct tc_tensor *tied_to(const struct tc_table *table,
                                       const struct tc_tensor *tensor) {
    const struct tc_tensor *first = tensor->tie ? &table->tensors[tensor->tie - 1] : tensor;
    return first == tensor ? NULL : first;
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

static void info_json(struct tc_buffer *out, struct tc_reader *reader, const char *path) {
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
    for (size_t i = 0; i < reader->table.count; i++) {
        tc_buffer_add_string(out, i ? "," : "");
        add_tensor_json(out, reader, &reader->table.tensors[i]);
    }
    tc_buffer_add_string(out, "]}\n");
}

/* What a terminal shows of a text: characters, not bytes. */
static size_t display_width(const struct tc_buffer *text) {
    size_t width = 0;
    for (size_t i = 0; i < text->length; i++)
        width += (text->bytes[i] & 0xC0) != 0x80;
    return width;
}

static void add_padded(struct tc_buffer *out, const struct tc_buffer *text, size_t width) {
    tc_buffer_add(out, text->bytes, text->length);
    for (size_t used = display_width(text); used < width; used++)
        tc_buffer_add(out, " ", 1);
}

static void print_cell(struct tc_buffer *cell, const struct tc_tensor *tensor, int column) {
    cell->length = 0;
    if (column == 0)
        tc_buffer_add_visible(cell, tensor->name);
    else if (column == 1)
        tc_buffer_add_string(cell, tc_dtype_name(tensor->dtype));
    else if (column == 2)
        tc_shape_print(cell, tensor->shape, tensor->rank);
    else
        report_size(cell, tensor->nbytes);
}

static void info_table(struct tc_buffer *out, const struct tc_table *table) {
    static const char *const titles[] = {"name", "dtype", "shape", "size"};
    size_t widths[4] = {0}; /* the last column needs none */
    struct tc_buffer cell = {0};
    for (int column = 0; column < 3; column++) {
        widths[column] = strlen(titles[column]);
        for (size_t i = 0; i < table->count && widths[column] < WIDEST_NAME; i++) {
            print_cell(&cell, &table->tensors[i], column);
            size_t width = display_width(&cell);
            if (width > widths[column])
                widths[column] = width < WIDEST_NAME ? width : WIDEST_NAME;
        }
    }
    for (int column = 0; column < 4; column++) {
        cell.length = 0;
        tc_buffer_add_string(&cell, titles[column]);
        tc_buffer_add_string(out, column ? "  " : "");
        add_padded(out, &cell, widths[column]);
    }
    tc_buffer_add_string(out, "\n");
    for (size_t i = 0; i < table->count; i++) {
        for (int column = 0; column < 4; column++) {
            print_cell(&cell, &table->tensors[i], column);
            tc_buffer_add_string(out, column ? "  " : "");
            add_padded(out, &cell, widths[column]);
        }
        const struct tc_tensor *first = tied_to(table, &table->tensors[i]);
        if (first) {
            tc_buffer_add_string(out, "  tied to ");
            tc_buffer_add_visible(out, first->name);
        }
        tc_buffer_add_string(out, "\n");
    }
    out->failed |= cell.failed;
    tc_buffer_release(&cell);
}

static void info_text(struct tc_buffer *out, const struct tc_reader *reader, const char *path) {
    const struct tc_table *table = &reader->table;
    uint64_t total = 0;
    for (size_t i = 0; i < table->count; i++)
        total += table->tensors[i].nbytes;
    tc_buffer_add_visible(out, tc_text_of(path));
    tc_buffer_addf(out, ": %s, ", format_name(reader));
    report_size(out, reader->size);
    tc_buffer_addf(out, ", %zu tensor%s of ", table->count, table->count == 1 ? "" : "s");
    report_size(out, total);
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
    if (table->count)
        info_table(out, table);
}

static bool info_file(void *context, struct tc_reader *reader, const char *path,
                      struct tc_error *error) {
    const struct common *common = context;
    struct tc_buffer out = {0};
    if (common->json)
        info_json(&out, reader, path);
    else
        info_text(&out, reader, path);
    bool ok = tc_buffer_ok(&out, error);
    report_out(&out);
    return ok;
}

int cmd_info(int argc, char **argv) {
    struct common common = COMMON_DEFAULTS;
    const struct option options[] = {COMMON_OPTIONS(&common), {.type = OPTION_END}};
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    bool ok = options_parse(options, argc, argv, &arguments, &error);
    if (ok && !common.help && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no file given");
    if (!ok)
        code = report_error(&error, common.json);
    else if (common.help)
        options_print_help("tconv info [options] FILE...",
                           "Prints format, size, metadata and the table of tensors. Reads\n"
                           "headers only, so it is quick whatever the file's size.",
                           options);
    else
        code = common_each_file(&common, &arguments, info_file, &common);
    free(arguments.names);
    return code;
}
