/*
 * "\x93NUMPY", major, minor, header length (u16 in version 1, u32 in 2 and 3),
 * then a Python dict literal with exactly the keys descr, fortran_order and
 * shape, padded with spaces to a multiple of 64 and closed by a newline. The
 * literal is scanned, never evaluated.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "formats/npy.h"

#define HEADER_LIMIT (UINT64_C(64) << 10)
#define LITERAL_DEPTH 32

struct scanner {
    const char *text;
    size_t length;
    size_t at;
    uint64_t base;
    unsigned version;
    struct tc_error *error;
};

static bool bad(struct scanner *scanner, const char *what) {
    tc_fail(scanner->error, TC_INVALID, "npy-header", "bad header: %s", what);
    return tc_error_at(scanner->error, scanner->base + scanner->at);
}

static char peek(struct scanner *scanner) {
    while (scanner->at < scanner->length &&
           (scanner->text[scanner->at] == ' ' || scanner->text[scanner->at] == '\n'))
        scanner->at++;
    return scanner->at < scanner->length ? scanner->text[scanner->at] : '\0';
}

static bool take(struct scanner *scanner, char c) {
    if (peek(scanner) != c)
        return false;
    scanner->at++;
    return true;
}

/* A quoted string without escapes. */
static bool scan_string(struct scanner *scanner, struct tc_text *string) {
    char quote = peek(scanner);
    if (quote != '\'' && quote != '"')
        return bad(scanner, "expected a string");
    size_t start = ++scanner->at;
    while (scanner->at < scanner->length && scanner->text[scanner->at] != quote) {
        unsigned char c = (unsigned char)scanner->text[scanner->at];
        if (c < 0x20 || c == '\\')
            return bad(scanner, "an escape or control character in a string");
        scanner->at++;
    }
    if (scanner->at == scanner->length)
        return bad(scanner, "a string does not end");
    *string = (struct tc_text){scanner->text + start, scanner->at++ - start};
    return true;
}

static bool scan_word(struct scanner *scanner, const char *word) {
    size_t length = strlen(word);
    peek(scanner);
    if (scanner->length - scanner->at < length ||
        memcmp(scanner->text + scanner->at, word, length) != 0)
        return false;
    scanner->at += length;
    return true;
}

static bool scan_bool(struct scanner *scanner, bool *value) {
    *value = scan_word(scanner, "True");
    return *value || scan_word(scanner, "False") || bad(scanner, "expected True or False");
}

static bool scan_integer(struct scanner *scanner, uint64_t *value) {
    char c = peek(scanner);
    if (c < '0' || c > '9')
        return bad(scanner, "expected a non-negative integer");
    size_t start = scanner->at;
    uint64_t sum = 0;
    while (scanner->at < scanner->length) {
        c = scanner->text[scanner->at];
        if (c < '0' || c > '9')
            break;
        if (!tc_mul(sum, 10, &sum) || !tc_add(sum, (uint64_t)(c - '0'), &sum))
            return bad(scanner, "an integer is too large");
        scanner->at++;
    }
    if (scanner->at - start > 1 && scanner->text[start] == '0')
        return bad(scanner, "an integer with a leading zero");
    /* Python 2 wrote long integers with an L. */
    if (scanner->version <= 2 && scanner->at < scanner->length && scanner->text[scanner->at] == 'L')
        scanner->at++;
    *value = sum;
    return true;
}

static bool scan_shape(struct scanner *scanner, uint64_t *shape, unsigned *rank) {
    if (!take(scanner, '('))
        return bad(scanner, "the shape is no tuple");
    *rank = 0;
    bool comma = true;
    while (!take(scanner, ')')) {
        if (!comma)
            return bad(scanner, "expected ',' or ')' in the shape");
        uint64_t dimension;
        if (!scan_integer(scanner, &dimension))
            return false;
        if (*rank == NPY_MAX_RANK) {
            tc_fail(scanner->error, TC_UNSUPPORTED, "rank", "more than %u dimensions",
                    NPY_MAX_RANK);
            return tc_error_at(scanner->error, scanner->base + scanner->at);
        }
        shape[(*rank)++] = dimension;
        comma = take(scanner, ',');
    }
    return *rank != 1 || comma || bad(scanner, "the shape is no tuple");
}

static bool is_object(struct tc_text descr) {
    size_t start = descr.length && strchr("|<>=", descr.bytes[0]) ? 1 : 0;
    return descr.length > start && descr.bytes[start] == 'O';
}

static bool refuse_object(struct scanner *scanner) {
    tc_fail(scanner->error, TC_UNSAFE, "npy-object",
            "an array of Python objects carries a pickle, which could run code");
    tc_error_at(scanner->error, scanner->base + scanner->at);
    return tc_error_hint(scanner->error, "save it again as an array of numbers");
}

/* A list means named fields. Passes over it to tell why it is refused. */
static bool refuse_structured(struct scanner *scanner) {
    char closers[LITERAL_DEPTH];
    unsigned commas[LITERAL_DEPTH] = {0}; /* a field is (name, type, …) */
    unsigned depth = 0;
    bool object = false;
    do {
        char c = peek(scanner);
        if (c == '[' || c == '(') {
            if (depth == LITERAL_DEPTH)
                return bad(scanner, "nested too deeply");
            commas[depth] = 0;
            closers[depth++] = c == '[' ? ']' : ')';
            scanner->at++;
        } else if (c == ']' || c == ')') {
            if (c != closers[depth - 1])
                return bad(scanner, "brackets do not match");
            depth--;
            scanner->at++;
        } else if (c == '\'' || c == '"') {
            struct tc_text string;
            if (!scan_string(scanner, &string))
                return false;
            object |= commas[depth - 1] > 0 && is_object(string);
        } else if (c == ',') {
            commas[depth - 1]++;
            scanner->at++;
        } else {
            uint64_t ignored;
            if (!scan_integer(scanner, &ignored))
                return false;
        }
    } while (depth);
    return object ? refuse_object(scanner)
                  : tc_fail(scanner->error, TC_UNSUPPORTED, "npy-structured",
                            "a structured array (with named fields) is not a tensor");
}

static const struct {
    const char *code;
    enum tc_dtype dtype;
} codes[] = {
    {"b1", TC_BOOL}, {"u1", TC_U8},  {"i1", TC_I8},  {"u2", TC_U16},   {"i2", TC_I16},
    {"u4", TC_U32},  {"i4", TC_I32}, {"u8", TC_U64}, {"i8", TC_I64},   {"f2", TC_F16},
    {"f4", TC_F32},  {"f8", TC_F64}, {"c8", TC_C64}, {"c16", TC_C128},
};

/* What ml_dtypes saves: the bytes of an extension type, without its name. */
static enum tc_dtype void_dtype(struct tc_text code, enum tc_dtype named) {
    if (named == TC_NONE || tc_dtype_packed(named))
        return TC_NONE;
    char expected[16];
    snprintf(expected, sizeof expected, "V%u", tc_dtype_bits(named) / 8);
    bool matches = tc_text_equal(code, tc_text_of(expected)) ||
                   (tc_dtype_bits(named) == 8 && tc_text_equal(code, TC_TEXT("f1")));
    return matches ? named : TC_NONE;
}

static bool find_dtype(struct scanner *scanner, struct tc_text descr, enum tc_dtype named_void,
                       struct npy_header *header) {
    if (is_object(descr))
        return refuse_object(scanner);
    bool ordered = descr.length && strchr("|<>=", descr.bytes[0]);
    struct tc_text code = {descr.bytes + (ordered ? 1 : 0), descr.length - (ordered ? 1 : 0)};
    enum tc_dtype dtype = void_dtype(code, named_void);
    for (size_t i = 0; i < sizeof codes / sizeof *codes && dtype == TC_NONE; i++)
        if (tc_text_equal(code, tc_text_of(codes[i].code)))
            dtype = codes[i].dtype;
    if (dtype == TC_NONE) {
        tc_fail(scanner->error, TC_UNSUPPORTED, "dtype", "dtype '%.*s' is not supported",
                tc_text_shown(descr, 40), descr.bytes);
        if (tc_text_equal(code, TC_TEXT("V2")) || tc_text_equal(code, TC_TEXT("V1")) ||
            tc_text_equal(code, TC_TEXT("f1")))
            tc_error_hint(scanner->error, "name the type it holds, e.g. --npy-void %s",
                          code.bytes[1] == '2' ? "BF16" : "F8_E4M3");
        return tc_error_at(scanner->error, scanner->base + scanner->at);
    }
    header->dtype = (uint8_t)dtype;
    header->swap = ordered && descr.bytes[0] == '>' && tc_dtype_component(dtype) > 1;
    return true;
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };

static bool scan_dict(struct scanner *scanner, enum tc_dtype named_void, struct npy_header *header,
                      uint64_t *shape, unsigned *rank) {
    struct tc_text descr = {0};
    unsigned seen = 0;
    bool comma = true;
    if (!take(scanner, '{'))
        return bad(scanner, "no dict literal");
    while (!take(scanner, '}')) {
        struct tc_text key;
        if (!comma)
            return bad(scanner, "expected ',' or '}'");
        if (!scan_string(scanner, &key))
            return false;
        if (!take(scanner, ':'))
            return bad(scanner, "expected ':'");
        unsigned which = tc_text_equal(key, TC_TEXT("descr"))           ? DESCR
                         : tc_text_equal(key, TC_TEXT("fortran_order")) ? ORDER
                         : tc_text_equal(key, TC_TEXT("shape"))         ? SHAPE
                                                                        : 0;
        if (!which || seen & which)
            return bad(scanner, which ? "a key occurs twice" : "an unknown key");
        seen |= which;
        if (which == DESCR && peek(scanner) == '[')
            return refuse_structured(scanner);
        if (!(which == DESCR   ? scan_string(scanner, &descr)
              : which == ORDER ? scan_bool(scanner, &header->fortran)
                               : scan_shape(scanner, shape, rank)))
            return false;
        comma = take(scanner, ',');
    }
    if (seen != ALL)
        return bad(scanner, "a key is missing");
    if (peek(scanner) != '\0' || scanner->at != scanner->length)
        return bad(scanner, "something follows the dict");
    return find_dtype(scanner, descr, named_void, header);
}

/* The literal's text, from malloc, and where it starts and ends. */
static char *load_text(struct tc_reader *reader, tc_fetch *fetch, void *context, uint64_t size,
                       struct scanner *scanner) {
    unsigned char prefix[12] = {0};
    struct tc_error *error = scanner->error;
    size_t first = size < sizeof prefix ? size : sizeof prefix;
    if (!fetch(context, 0, prefix, first, error))
        return NULL;
    if (first < 10 || memcmp(prefix, "\x93NUMPY", 6) != 0) {
        tc_fail(error, TC_INVALID, "npy-magic",
                size == 0 ? "the file is empty" : "this is no .npy file");
        tc_error_at(error, scanner->base);
        return NULL;
    }
    scanner->version = prefix[6];
    if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0) {
        tc_fail(error, TC_UNSUPPORTED, "npy-version", "version %u.%u of .npy is not known",
                prefix[6], prefix[7]);
        return NULL;
    }
    scanner->at = prefix[6] == 1 ? 10 : 12;
    uint64_t length = prefix[8] | (uint64_t)prefix[9] << 8;
    if (prefix[6] > 1)
        length |= (uint64_t)prefix[10] << 16 | (uint64_t)prefix[11] << 24;
    if (size < scanner->at || length > size - scanner->at) {
        tc_fail(error, TC_INVALID, "truncated",
                "the header is longer than the file (got %llu bytes)", (unsigned long long)length);
        return NULL;
    }
    uint64_t limit = tc_reader_header_limit(reader, HEADER_LIMIT);
    if (length > limit) {
        tc_fail(error, TC_UNSAFE, "header-limit", "the header is too long (%llu bytes, limit %llu)",
                (unsigned long long)length, (unsigned long long)limit);
        tc_error_hint(error, "raise the limit with --max-header if you trust this file");
        return NULL;
    }
    tc_memory_earn(length);
    char *text = malloc(scanner->at + length);
    if (!text) {
        tc_fail_memory(error);
        return NULL;
    }
    if (!fetch(context, 0, text, scanner->at + length, error)) {
        free(text);
        return NULL;
    }
    scanner->text = text;
    scanner->length = scanner->at + length;
    return text;
}

bool npy_header_read(struct tc_reader *reader, tc_fetch *fetch, void *context, uint64_t size,
                     uint64_t base, struct npy_header *header, struct tc_error *error) {
    struct scanner scanner = {.base = base, .error = error};
    uint64_t shape[NPY_MAX_RANK];
    unsigned rank = 0;
    uint64_t count;
    *header = (struct npy_header){0};
    char *text = load_text(reader, fetch, context, size, &scanner);
    if (!text)
        return false;
    header->data = scanner.length;
    bool ok = scan_dict(&scanner, reader->options->npy_void, header, shape, &rank) &&
              tc_shape_measure(header->dtype, shape, rank, &count, &header->nbytes, error);
    free(text);
    if (!ok)
        return false;
    header->rank = (uint8_t)rank;
    if (size - header->data != header->nbytes)
        return tc_fail(
            error, TC_INVALID, size - header->data < header->nbytes ? "truncated" : "trailing-data",
            "the data is %s than its shape says (got %llu bytes, expected %llu)",
            size - header->data < header->nbytes ? "shorter" : "longer",
            (unsigned long long)(size - header->data), (unsigned long long)header->nbytes);
    /* With at most one axis longer than 1 both orders are the same bytes. */
    unsigned long_axes = 0;
    for (unsigned i = 0; i < rank; i++)
        long_axes += shape[i] != 1;
    header->fortran = header->fortran && long_axes > 1 && header->nbytes > 0;
    uint64_t *copy = tc_arena_array(&reader->arena, rank, sizeof *copy, error);
    if (!copy)
        return false;
    memcpy(copy, shape, rank * sizeof *copy);
    header->shape = copy;
    return true;
}

bool npy_header_write(struct tc_buffer *text, enum tc_dtype dtype, const uint64_t *shape,
                      unsigned rank, struct tc_error *error) {
    struct tc_buffer dict = {0};
    const char *code = "";
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].dtype == dtype)
            code = codes[i].code;
    tc_buffer_addf(&dict, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                   tc_dtype_component(dtype) > 1 ? '<' : '|', code);
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
    size_t prefix = 10;
    size_t total = prefix + dict.length + 1;
    total += 64 - total % 64; /* 64 more when it fits already, as numpy does */
    bool wide = total - prefix > UINT16_MAX;
    if (wide) {
        prefix = 12;
        total = prefix + dict.length + 1;
        total += 64 - total % 64;
    }
    size_t length = total - prefix;
    const char head[12] = {'\x93',
                           'N',
                           'U',
                           'M',
                           'P',
                           'Y',
                           wide ? 2 : 1,
                           0,
                           (char)(length & 0xFF),
                           (char)(length >> 8 & 0xFF),
                           (char)(length >> 16 & 0xFF),
                           (char)(length >> 24 & 0xFF)};
    tc_buffer_add(text, head, prefix);
    tc_buffer_add(text, dict.bytes, dict.failed ? 0 : dict.length);
    tc_buffer_addf(text, "%*s\n", (int)(total - prefix - dict.length - 1), "");
    text->failed |= dict.failed;
    tc_buffer_release(&dict);
    return tc_buffer_ok(text, error);
}

/* Reverses each whole component in place. */
static void swap_components(unsigned char *bytes, size_t length, unsigned component) {
    for (size_t at = 0; at + component <= length; at += component)
        for (unsigned low = 0, high = component - 1; low < high; low++, high--) {
            unsigned char byte = bytes[at + low];
            bytes[at + low] = bytes[at + high];
            bytes[at + high] = byte;
        }
}

static bool stream_raw(struct npy_stream *stream, const struct npy_header *header, tc_fetch *fetch,
                       void *context, uint64_t offset, void *buffer, size_t length,
                       struct tc_error *error) {
    if (!header->fortran)
        return fetch(context, offset, buffer, length, error);
    if (!stream->gathering) {
        struct tc_view view = {.rank = header->rank,
                               .element = tc_dtype_bits(header->dtype) / 8,
                               .storage = header->nbytes};
        uint64_t stride = view.element;
        for (unsigned i = 0; i < header->rank; i++) {
            view.shape[i] = header->shape[i];
            view.stride[i] = stride;
            stride *= header->shape[i];
        }
        if (!tc_gather_init(&stream->gather, &view, fetch, context, error)) {
            tc_gather_release(&stream->gather);
            return false;
        }
        stream->gathering = true;
    }
    return tc_gather_read(&stream->gather, offset, buffer, length, error);
}

bool npy_stream_read(struct npy_stream *stream, const struct npy_header *header, tc_fetch *fetch,
                     void *context, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error) {
    unsigned component = header->swap ? tc_dtype_component(header->dtype) : 1;
    unsigned char *to = buffer;
    /* A read that starts or ends inside a component takes the whole of it. */
    while (length && component > 1 && (offset % component || length < component)) {
        unsigned char whole[16];
        size_t skip = offset % component;
        size_t step = component - skip < length ? component - skip : length;
        if (!stream_raw(stream, header, fetch, context, offset - skip, whole, component, error))
            return false;
        swap_components(whole, component, component);
        memcpy(to, whole + skip, step);
        to += step;
        offset += step;
        length -= step;
    }
    size_t whole = length / component * component;
    if (whole && !stream_raw(stream, header, fetch, context, offset, to, whole, error))
        return false;
    if (component > 1)
        swap_components(to, whole, component);
    if (whole == length)
        return true;
    return npy_stream_read(stream, header, fetch, context, offset + whole, to + whole,
                           length - whole, error);
}

void npy_stream_release(struct npy_stream *stream) {
    if (stream->gathering)
        tc_gather_release(&stream->gather);
    stream->gathering = false;
}
