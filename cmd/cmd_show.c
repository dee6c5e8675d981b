#include <stdlib.h>
#include <string.h>

#include "cmd/array.h"
#include "cmd/choose.h"
#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "core/base/digits.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/select.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "core/tensor/unpack.h"

#define BLOCK 4096        /* elements at a time */
#define MOST_IN_BLOCK 256 /* elements of a block of a block dtype */

struct show {
    struct common common;
    struct choose choose;
    struct tc_rows rows;
    bool has_rows;
    bool full;
};

/* What is shown of one tensor: some rows of it. */
struct showing {
    struct tc_reader *reader;
    const struct tc_tensor *tensor;
    uint64_t first; /* element */
    struct array array;
    enum tc_dtype wide; /* what the elements are converted to */
};

static void choose_kind(struct showing *showing) {
    enum tc_dtype dtype = tc_unpacked(showing->tensor->dtype);
    struct array *array = &showing->array;
    array->precision = dtype == TC_F64 || dtype == TC_C128  ? TC_PRECISION_F64
                       : dtype == TC_F16 || dtype == TC_C32 ? TC_PRECISION_F16
                                                            : TC_PRECISION_F32;
    array->is_signed = dtype != TC_U64;
    if (dtype == TC_BOOL)
        array->kind = ARRAY_TRUTH;
    else if (tc_dtype_is_integer(dtype))
        array->kind = ARRAY_INTEGER;
    else if (tc_dtype_is_complex(dtype))
        array->kind = ARRAY_COMPLEX;
    else
        array->kind = ARRAY_REAL;
    showing->wide = array->kind == ARRAY_COMPLEX ? TC_C128
                    : array->kind == ARRAY_REAL  ? TC_F64
                    : array->is_signed           ? TC_I64
                                                 : TC_U64;
}

static bool take_rows(struct showing *showing, const struct tc_rows *rows, struct tc_error *error) {
    struct array *array = &showing->array;
    uint64_t end;
    if (!tc_rows_clip(rows, array->shape, array->rank, &showing->first, &end, error))
        return false;
    array->shape[0] = end - showing->first;
    /* The whole shape was measured: no product of its axes overflows. */
    for (unsigned i = 1; i < array->rank; i++)
        showing->first *= array->shape[i];
    return true;
}

/* Takes memory for the kept elements, within the command's budget. */
static bool make_room(struct showing *showing, struct tc_error *error) {
    struct array *array = &showing->array;
    uint64_t stored = showing->reader->size;
    tc_memory_earn_data(showing->tensor->nbytes < stored ? showing->tensor->nbytes : stored);
    uint64_t limit = tc_memory_allowed();
    size_t parts = array->kind == ARRAY_COMPLEX ? 2 : 1;
    if (limit && array->count > limit / sizeof(double) / parts) {
        tc_fail(error, TC_UNSAFE, "memory-limit", "%zu values need more memory than %llu bytes",
                array->count, (unsigned long long)limit);
        return tc_error_hint(error, "choose some with --rows, or raise --max-memory");
    }
    size_t count = array->count + 1;
    if (array->kind <= ARRAY_INTEGER)
        array->integers = calloc(count, sizeof *array->integers);
    else
        array->reals = calloc(count, sizeof *array->reals);
    if (array->kind == ARRAY_COMPLEX)
        array->imaginaries = calloc(count, sizeof *array->imaginaries);
    bool ok = (array->integers || array->reals) && (parts == 1 || array->imaginaries);
    return ok || tc_fail_memory(error);
}

static void store(struct array *array, const void *wide, size_t at, size_t count) {
    const double *pairs = wide;
    if (array->kind <= ARRAY_INTEGER)
        memcpy(array->integers + at, wide, count * sizeof *array->integers);
    else if (array->kind == ARRAY_REAL)
        memcpy(array->reals + at, wide, count * sizeof *array->reals);
    else
        for (size_t i = 0; i < count; i++) {
            array->reals[at + i] = pairs[2 * i];
            array->imaginaries[at + i] = pairs[2 * i + 1];
        }
}

/* Loads elements [first, first + count) of the tensor to place `at` of the array.
 * Packed elements are read in whole bytes and blocks. */
static bool load(struct showing *showing, uint64_t first, uint64_t count, size_t at,
                 struct tc_error *error) {
    const struct tc_tensor *tensor = showing->tensor;
    enum tc_dtype dtype = tensor->dtype;
    size_t group = tc_dtype_block_elements(dtype);
    unsigned char bytes[16 * BLOCK];
    float unpacked[BLOCK + 2 * MOST_IN_BLOCK];
    double wide[2 * BLOCK];
    while (count) {
        size_t before = (size_t)(first % group);
        size_t step = count < BLOCK ? (size_t)count : BLOCK;
        size_t whole = (before + step + group - 1) / group * group;
        size_t length = tc_dtype_span(dtype, whole);
        const unsigned char *elements = bytes;
        if (length > sizeof bytes ||
            !tc_reader_read(showing->reader, tensor,
                            (first - before) / group * tc_dtype_block_bytes(dtype), bytes, length,
                            error))
            return false;
        if (tc_dtype_packed(dtype)) {
            enum tc_dtype small = tc_unpacked(dtype);
            tc_unpack(dtype, bytes, unpacked, whole);
            elements = (const unsigned char *)unpacked + before * (tc_dtype_bits(small) / 8);
            tc_cast(small, showing->wide, elements, wide, step, NULL);
        } else {
            tc_cast(dtype, showing->wide, elements, wide, step, NULL);
        }
        store(&showing->array, wide, at, step);
        first += step;
        count -= step;
        at += step;
    }
    return true;
}

/* Loads the kept elements in runs that lie together in the tensor: behind the last
 * axis that is abbreviated every axis is whole. */
static bool load_kept(struct showing *showing, struct tc_error *error) {
    const struct array *array = &showing->array;
    uint64_t item[TC_MAX_RANK] = {0};
    uint64_t run = 1;
    unsigned axes = array->rank; /* those that the runs are counted along */
    while (axes && array->kept[axes - 1] == array->shape[axes - 1])
        run *= array->shape[--axes];
    for (size_t at = 0; at < array->count; at += run) {
        uint64_t first = 0;
        for (unsigned i = 0; i < axes; i++) {
            bool cut = array->kept[i] < array->shape[i] && item[i] >= ARRAY_EDGE;
            uint64_t index = cut ? array->shape[i] - array->kept[i] + item[i] : item[i];
            first = first * array->shape[i] + index;
        }
        if (!load(showing, showing->first + first * run, run, at, error))
            return false;
        for (unsigned i = axes; i > 0 && ++item[i - 1] == array->kept[i - 1]; i--)
            item[i - 1] = 0;
    }
    return true;
}

static void keep(struct tc_buffer *text) {
    (void)text;
}

static bool print(const struct show *show, const struct showing *showing, const char *path,
                  struct tc_error *error) {
    const struct array *array = &showing->array;
    struct tc_buffer text = {0}, out = {0};
    array_print(array, show->common.json ? keep : report_out, &text);
    bool ok = tc_buffer_ok(&text, error);
    if (ok && show->common.json) {
        struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_DISPLAY};
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "file", path);
        tc_json_add_text(&json, "name", showing->tensor->name);
        tc_json_add_string(&json, "dtype", tc_dtype_name(showing->tensor->dtype));
        tc_json_add_numbers(&json, "shape", array->shape, array->rank);
        tc_json_add_text(&json, "text", (struct tc_text){text.bytes, text.length - 1});
        report_skipped(&json, "skipped", showing->reader, NULL);
        tc_json_end_line(&json);
        ok = tc_buffer_ok(&out, error);
    }
    if (ok)
        report_out(show->common.json ? &out : &text);
    tc_buffer_release(&text);
    tc_buffer_release(&out);
    return ok;
}

/* Which tensor it is, where several are shown. */
static void print_title(const struct tc_tensor *tensor, bool first) {
    struct tc_buffer title = {0};
    tc_buffer_add_string(&title, first ? "" : "\n");
    tc_buffer_add_visible(&title, tensor->name);
    tc_buffer_addf(&title, "  %s  ", tc_dtype_name(tensor->dtype));
    tc_shape_print(&title, tensor->shape, tensor->rank);
    tc_buffer_add_string(&title, "\n");
    report_out(&title);
}

static bool show_tensor(const struct show *show, struct tc_reader *reader, const char *path,
                        const struct tc_tensor *tensor, struct tc_error *error) {
    struct showing showing = {.reader = reader, .tensor = tensor};
    struct array *array = &showing.array;
    choose_kind(&showing);
    array->rank = tensor->rank;
    if (array->rank)
        memcpy(array->shape, tensor->shape, array->rank * sizeof *array->shape);
    bool ok = !show->has_rows || take_rows(&showing, &show->rows, error);
    if (ok && !array_plan(array, show->full))
        ok = tc_fail(error, TC_INTERNAL, "shape", "a shape that was not measured");
    ok = ok && make_room(&showing, error) && load_kept(&showing, error) &&
         print(show, &showing, path, error);
    free(array->integers);
    free(array->reals);
    free(array->imaginaries);
    return ok ? true : tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
}

static bool show_tensors(const struct show *show, const char *path, const char *const *names,
                         size_t count, struct tc_error *error) {
    struct chosen chosen = {0};
    struct tc_reader *reader = common_open(&show->common, path, error);
    bool ok = reader && choose_tensors(&show->choose, reader, names, count, &chosen, error) &&
              chosen_some(&chosen, reader, error);
    for (size_t i = 0; i < chosen.count && ok; i++) {
        if (chosen.count > 1 && !show->common.json)
            print_title(chosen.tensors[i], i == 0);
        ok = show_tensor(show, reader, path, chosen.tensors[i], error);
    }
    chosen_release(&chosen);
    tc_reader_close(reader);
    return ok ? true : tc_error_in_file(error, path);
}

/* Every tensor of a large model is more than anybody wants to read. */
static bool check_arguments(const struct show *show, const struct arguments *arguments,
                            struct tc_error *error) {
    if (arguments->count > 1 || (arguments->count && show->choose.select.include_count))
        return true;
    tc_fail(error, TC_USAGE, "usage", "a file and a tensor's name are needed");
    return tc_error_hint(error,
                         "tconv list prints the names; --include REGEX shows all that match");
}

int cmd_show(int argc, char **argv) {
    struct show show = {.common = COMMON_DEFAULTS};
    struct option_table table;
    const struct option rows[] = {
        ROWS_OPTION("rows", &show.rows, .argument = "A:B", .given = &show.has_rows,
                    .help = "rows A to B-1 of the first axis; A:, :B, or -N: for the last N"),
        FLAG_OPTION("full", &show.full, .help = "every value, however many there are"),
    };
    options_init(&table);
    options_add(&table, "Showing:", rows, OPTION_COUNT(rows));
    choose_add_options(&table, &show.choose);
    common_add_options(&table, &show.common);
    struct tc_error error = {0};
    struct arguments arguments = {0};
    tc_select_init(&show.choose.select);
    show.common.format.select = &show.choose.select;
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && show.common.help)
        help_print(
            show.common.help, "tconv show [options] FILE NAME...",
            "Prints tensors' values as numpy's str() does: of more than 1000 the first and\n"
            "last three of each axis. Only what is shown is read, so no checksum is checked.",
            &table);
    else if (ok)
        ok = check_arguments(&show, &arguments, &error) &&
             common_confine(&show.common, arguments.names, 1, &error) &&
             show_tensors(&show, arguments.names[0], arguments.names + 1, arguments.count - 1,
                          &error);
    int code = ok ? 0 : report_error(&error, show.common.json);
    arguments_release(&arguments);
    options_release(&table);
    choose_end(&show.choose, &show.common, code);
    return code;
}
