/*
 * "\x93NUMPY", major, minor, header length (u16 in version 1, u32 in 2 and 3),
 * then a Python dict literal with exactly the keys descr, fortran_order and
 * shape, padded with spaces to a multiple of 64 and closed by a newline. The
 * literal is scanned, never evaluated.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/layout.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/strided_view.h"
#include "formats/numpy/literal.h"
#include "formats/numpy/npy.h"

#define HEADER_LIMIT (UINT64_C(64) << 10)
#define PREFIX_BYTES 12u
#define WRITTEN_PREFIX 10u

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };

/* What the dict says. */
struct facts {
    struct npy_descr descr;
    struct npy_shape shape;
    bool fortran;
};

static bool scan_dict(struct npy_scanner *scanner, const struct tc_format_options *options,
                      struct facts *facts) {
    unsigned seen = 0;
    bool comma = true;
    if (!npy_take(scanner, '{'))
        return npy_bad(scanner, "no dict literal");
    while (!npy_take(scanner, '}')) {
        struct tc_text key;
        if (!comma)
            return npy_bad(scanner, "expected ',' or '}'");
        if (!npy_scan_string(scanner, &key))
            return false;
        if (!npy_take(scanner, ':'))
            return npy_bad(scanner, "expected ':'");
        unsigned which = tc_text_equal(key, TC_TEXT("descr"))           ? DESCR
                         : tc_text_equal(key, TC_TEXT("fortran_order")) ? ORDER
                         : tc_text_equal(key, TC_TEXT("shape"))         ? SHAPE
                                                                        : 0;
        if (!which || seen & which)
            return npy_bad(scanner, which ? "a key occurs twice" : "an unknown key");
        seen |= which;
        if (!(which == DESCR   ? npy_scan_descr(scanner, options, &facts->descr)
              : which == ORDER ? npy_scan_bool(scanner, &facts->fortran)
                               : npy_scan_shape(scanner, &facts->shape)))
            return false;
        comma = npy_take(scanner, ',');
    }
    if (seen != ALL)
        return npy_bad(scanner, "a key is missing");
    return (npy_peek(scanner) == '\0' && scanner->at == scanner->length) ||
           npy_bad(scanner, "something follows the dict");
}

/* Reads version and length of the literal; scanner->at is then its start. */
static bool read_prefix(struct npy_scanner *scanner, const unsigned char *prefix, size_t first,
                        uint64_t size, uint64_t *length) {
    struct tc_error *error = scanner->error;
    if (first < 10 || memcmp(prefix, "\x93NUMPY", 6) != 0) {
        if (first >= 6 && memcmp(prefix, "\x93NUMPY", 6) == 0)
            tc_fail(error, TC_INVALID, "truncated", "the file is cut short inside its header");
        else
            tc_fail(error, TC_INVALID, "npy-magic",
                    size == 0 ? "the file is empty" : "this is no .npy file");
        return tc_error_at(error, scanner->base);
    }
    scanner->version = prefix[6];
    if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0)
        return tc_fail(error, TC_UNSUPPORTED, "npy-version", "version %u.%u of .npy is not known",
                       prefix[6], prefix[7]);
    scanner->at = prefix[6] == 1 ? 10 : 12;
    *length = prefix[8] | (uint64_t)prefix[9] << 8;
    if (prefix[6] > 1)
        *length |= (uint64_t)prefix[10] << 16 | (uint64_t)prefix[11] << 24;
    uint64_t end = scanner->at + *length;
    return size >= end ||
           tc_fail(error, TC_INVALID, "truncated",
                   "the header is longer than the file (got %llu bytes): %llu bytes are missing",
                   (unsigned long long)*length, (unsigned long long)(end - size));
}

/* The whole header's text, from malloc. It is read forwards, since it may be packed. */
static char *load_text(struct tc_reader *reader, tc_fetch *fetch, void *context, uint64_t size,
                       struct npy_scanner *scanner) {
    unsigned char prefix[PREFIX_BYTES] = {0};
    struct tc_error *error = scanner->error;
    size_t first = size < sizeof prefix ? size : sizeof prefix;
    uint64_t length = 0;
    if (!fetch(context, 0, prefix, first, error) ||
        !read_prefix(scanner, prefix, first, size, &length))
        return NULL;
    uint64_t limit = tc_reader_header_limit(reader, HEADER_LIMIT);
    if (length > limit) {
        tc_fail(error, TC_UNSAFE, "header-limit", "the header is too long (%llu bytes, limit %llu)",
                (unsigned long long)length, (unsigned long long)limit);
        tc_error_hint(error, "raise the limit with --max-header if you trust this file");
        return NULL;
    }
    size_t end = scanner->at + length;
    tc_memory_earn(length);
    char *text = malloc(end > sizeof prefix ? end : sizeof prefix);
    if (!text) {
        tc_fail_memory(error);
        return NULL;
    }
    memcpy(text, prefix, sizeof prefix);
    if (end > first && !fetch(context, first, text + first, end - first, error)) {
        free(text);
        return NULL;
    }
    scanner->text = text;
    scanner->length = end;
    return text;
}

/* Computes the data's size, and checks that the file or member has as much. */
static bool measure(const struct facts *facts, uint64_t size, struct npy_header *header,
                    struct tc_error *error) {
    header->count = facts->shape.count;
    header->itemsize = facts->descr.itemsize;
    header->structured = facts->descr.structured;
    header->objects = facts->descr.objects;
    header->unmeasured = facts->descr.unmeasured || header->objects;
    if (header->unmeasured)
        return true;
    if (!tc_mul(header->count, header->itemsize, &header->nbytes) || header->nbytes > INT64_MAX)
        return tc_fail(error, TC_INVALID, "size-overflow", "the array's size overflows");
    uint64_t held = size - header->data;
    return held >= header->nbytes ||
           tc_fail(error, TC_INVALID, "truncated",
                   "the data is shorter than its shape says (got %llu bytes, expected %llu): the "
                   "file is cut short, %llu bytes are missing",
                   (unsigned long long)held, (unsigned long long)header->nbytes,
                   (unsigned long long)(header->nbytes - held));
}

static bool keep_text(struct tc_reader *reader, const char *bytes, size_t length,
                      struct tc_text *text, struct tc_error *error) {
    char *copy = tc_arena_copy(&reader->arena, bytes, length, error);
    *text = (struct tc_text){copy, length};
    return copy != NULL;
}

/* Sets the field's shape: the dimensions of the array, then the leaf's own. */
static bool place_shape(struct tc_reader *reader, const struct facts *facts,
                        const struct npy_leaf *leaf, struct npy_field *field,
                        struct tc_error *error) {
    uint64_t outer = facts->shape.rank;
    uint64_t rank = outer + leaf->shape.rank;
    uint64_t count;
    if (rank > NPY_MAX_RANK) {
        field->skipped = "more than 64 dimensions are not supported";
        return true;
    }
    uint64_t *shape = tc_arena_array(&reader->arena, rank, sizeof *shape, error);
    uint64_t *stride = tc_arena_array(&reader->arena, leaf->shape.rank, sizeof *stride, error);
    if (!shape || !stride)
        return false;
    memcpy(shape, facts->shape.sizes, outer * sizeof *shape);
    memcpy(shape + outer, leaf->shape.sizes, leaf->shape.rank * sizeof *shape);
    memcpy(stride, leaf->stride, leaf->shape.rank * sizeof *stride);
    field->shape = shape;
    field->stride = stride;
    field->rank = (uint8_t)rank;
    return tc_shape_measure(field->dtype, shape, field->rank, &count, &field->nbytes, error);
}

static bool place_field(struct tc_reader *reader, const struct facts *facts,
                        const struct npy_leaf *leaf, struct npy_field *field,
                        struct tc_error *error) {
    struct tc_text reason;
    *field = (struct npy_field){.hint = leaf->hint,
                                .column = leaf->column,
                                .span = leaf->span,
                                .start = leaf->start,
                                .dtype = leaf->dtype,
                                .swap = leaf->swap,
                                .strided = leaf->strided};
    if (!keep_text(reader, leaf->name, leaf->name_length, &field->name, error) ||
        !keep_text(reader, leaf->descr, strlen(leaf->descr), &field->descr, error))
        return false;
    if (!leaf->skipped[0])
        return place_shape(reader, facts, leaf, field, error);
    if (!keep_text(reader, leaf->skipped, strlen(leaf->skipped), &reason, error))
        return false;
    field->skipped = reason.bytes;
    return true;
}

static bool place_fields(struct tc_reader *reader, const struct facts *facts,
                         struct npy_header *header, struct tc_error *error) {
    const struct npy_shape *shape = &facts->shape;
    bool held = shape->rank <= NPY_MAX_RANK;
    uint64_t *sizes = tc_arena_array(&reader->arena, held ? shape->rank : 0, sizeof *sizes, error);
    header->fields =
        tc_arena_array(&reader->arena, facts->descr.count, sizeof *header->fields, error);
    if (!sizes || !header->fields)
        return false;
    if (held) {
        memcpy(sizes, shape->sizes, shape->rank * sizeof *sizes);
        header->rank = (unsigned)shape->rank;
    }
    header->shape = sizes;
    for (size_t i = 0; i < facts->descr.count; i++)
        if (!place_field(reader, facts, &facts->descr.leaves[i],
                         &header->fields[header->field_count++], error))
            return false;
    /* With at most one axis longer than 1, C and Fortran order are the same bytes. */
    unsigned long_axes = 0;
    for (unsigned i = 0; i < header->rank; i++)
        long_axes += sizes[i] != 1;
    header->fortran = facts->fortran && long_axes > 1 && header->nbytes > 0;
    return true;
}

bool npy_header_read(struct tc_reader *reader, tc_fetch *fetch, void *context, uint64_t size,
                     uint64_t base, struct npy_header *header, struct tc_error *error) {
    struct npy_scanner scanner = {.base = base, .error = error};
    struct facts *facts = calloc(1, sizeof *facts);
    *header = (struct npy_header){0};
    if (!facts)
        return tc_fail_memory(error);
    char *text = load_text(reader, fetch, context, size, &scanner);
    header->data = scanner.length;
    bool ok = text && scan_dict(&scanner, reader->options, facts) &&
              measure(facts, size, header, error) && place_fields(reader, facts, header, error);
    if (ok && facts->descr.surrogates)
        tc_reader_warn(reader, "%zu field%s a name with half a surrogate pair, which stays escaped",
                       facts->descr.surrogates, facts->descr.surrogates == 1 ? " has" : "s have");
    free(text);
    npy_descr_release(&facts->descr);
    free(facts);
    return ok;
}

/* The text type of bytes that were an array of text, from the tensor's metadata. NULL
 * where they were not, or shape or dtype no longer fit. */
static const struct tc_text *text_descr(const struct tc_item *item) {
    const struct tc_text *descr =
        item->metadata ? tc_metadata_find(item->metadata, TC_TEXT(NPY_DESCR_KEY)) : NULL;
    uint64_t bytes;
    bool fits = descr && item->dtype == TC_U8 && item->rank && npy_text_size(*descr, &bytes) &&
                item->shape[item->rank - 1] == bytes;
    return fits ? descr : NULL;
}

bool npy_holds_metadata(const struct tc_item *item) {
    return text_descr(item) && item->metadata->count == 1;
}

static void add_descr(struct tc_buffer *dict, const struct tc_item *item) {
    const struct tc_text *text = text_descr(item);
    tc_buffer_add_string(dict, "{'descr': '");
    if (text)
        tc_buffer_add_text(dict, *text);
    else
        tc_buffer_addf(dict, "%c%s", tc_dtype_component(item->dtype) > 1 ? '<' : '|',
                       npy_dtype_code(item->dtype));
    tc_buffer_add_string(dict, "', 'fortran_order': False, 'shape': (");
}

bool npy_header_write(struct tc_buffer *text, const struct tc_item *item,
                      const struct tc_writer *writer, struct tc_error *error) {
    struct tc_buffer dict = {0};
    const uint64_t *shape = item->shape;
    unsigned rank = item->rank - (text_descr(item) ? 1u : 0u);
    add_descr(&dict, item);
    for (unsigned i = 0; i < rank; i++)
        tc_buffer_addf(&dict, i ? " %llu%s" : "%llu%s", (unsigned long long)shape[i],
                       i + 1 < rank || rank == 1 ? "," : "");
    tc_buffer_add_string(&dict, "), }");
    /* numpy leaves room for the first dimension to grow to 21 digits. */
    char digits[24];
    if (rank)
        tc_buffer_addf(&dict, "%*s",
                       21 - snprintf(digits, sizeof digits, "%llu", (unsigned long long)shape[0]),
                       "");
    /* Version 1.0: 64 dimensions are far from what its 16 bits can say. */
    size_t total = WRITTEN_PREFIX + dict.length + 1;
    total += 64 - total % 64; /* 64 more when it fits already, as numpy does */
    if (writer)
        total = tc_layout_start(writer, total);
    size_t length = total - WRITTEN_PREFIX;
    const char head[WRITTEN_PREFIX] = {
        '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(length & 0xFF), (char)(length >> 8)};
    tc_buffer_add(text, head, sizeof head);
    tc_buffer_add(text, dict.bytes, dict.failed ? 0 : dict.length);
    tc_buffer_addf(text, "%*s\n", (int)(length - dict.length - 1), "");
    text->failed |= dict.failed;
    tc_buffer_release(&dict);
    return tc_buffer_ok(text, error);
}
