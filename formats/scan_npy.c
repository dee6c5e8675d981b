/*
 * .npy arrays, for a scan: what stands behind a header is numbers only where the
 * header says so in plain words. Anything else counts as Python objects, which
 * numpy loads by a pickle: the literal may be written in ways that only Python
 * reads as numpy does.
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *     {'descr': [('a', '<i4'), ('b', '<f8', (2,)), ('c', [('d', '|S3')])], …}
 */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/checked.h"
#include "formats/scan_walk.h"

/* numpy's own limit is 10,000 bytes, unless it is told to load pickles. */
#define MAX_HEADER ((uint64_t)1 << 20)
#define MAX_FIELD_DEPTH 16u

struct literal {
    const char *text;
    size_t length;
    size_t at;
};

static char peek(struct literal *literal) {
    while (literal->at < literal->length && literal->text[literal->at] == ' ')
        literal->at++;
    return literal->at < literal->length ? literal->text[literal->at] : '\0';
}

static bool take(struct literal *literal, char c) {
    if (peek(literal) != c)
        return false;
    literal->at++;
    return true;
}

static bool take_string(struct literal *literal, struct tc_text *string) {
    char quote = peek(literal);
    if (quote != '\'' && quote != '"')
        return false;
    size_t start = ++literal->at;
    while (literal->at < literal->length && literal->text[literal->at] != quote) {
        if ((unsigned char)literal->text[literal->at] < 0x20 || literal->text[literal->at] == '\\')
            return false;
        literal->at++;
    }
    *string = (struct tc_text){literal->text + start, literal->at - start};
    return take(literal, quote);
}

static bool take_number(struct literal *literal, uint64_t *number) {
    char c = peek(literal);
    *number = 0;
    if (c < '0' || c > '9')
        return false;
    while (literal->at < literal->length && literal->text[literal->at] >= '0' &&
           literal->text[literal->at] <= '9')
        if (!tc_mul(*number, 10, number) ||
            !tc_add(*number, (uint64_t)(literal->text[literal->at++] - '0'), number))
            return false;
    return true;
}

/* A tuple of numbers, or one by itself: what it multiplies. */
static bool take_shape(struct literal *literal, bool alone, uint64_t *product) {
    uint64_t number;
    *product = 1;
    if (alone && peek(literal) != '(')
        return take_number(literal, product);
    if (!take(literal, '('))
        return false;
    while (!take(literal, ')')) {
        if (!take_number(literal, &number) || !tc_mul(*product, number, product))
            return false;
        take(literal, 'L'); /* as Python 2 wrote long ones */
        if (!take(literal, ',') && peek(literal) != ')')
            return false;
    }
    return true;
}

static bool take_word(struct literal *literal, const char *word) {
    size_t length = strlen(word);
    peek(literal);
    if (literal->length - literal->at < length ||
        memcmp(literal->text + literal->at, word, length) != 0)
        return false;
    literal->at += length;
    return true;
}

/* Bytes of one value of a plain type: '<f4', '|S3', '<U8', '<M8[ns]', '|V2'. */
static bool plain_size(struct tc_text type, uint64_t *size) {
    struct literal literal = {type.bytes, type.length, 0};
    if (literal.length && strchr("<>|=", literal.text[0]))
        literal.at++;
    char kind = literal.at < literal.length ? literal.text[literal.at++] : '\0';
    if (!kind || !strchr("biufcSUVMm", kind) || literal.at == literal.length ||
        literal.text[literal.at] == ' ' || !take_number(&literal, size))
        return false;
    if (kind == 'U' && !tc_mul(*size, 4, size))
        return false;
    bool time = kind == 'M' || kind == 'm';
    if (time && literal.at < literal.length && literal.text[literal.at] == '[')
        return literal.text[literal.length - 1] == ']';
    return literal.at == literal.length;
}

/* A field's name, or its title and name. */
static bool take_name(struct literal *literal) {
    struct tc_text name;
    if (!take(literal, '('))
        return take_string(literal, &name);
    return take_string(literal, &name) && take(literal, ',') && take_string(literal, &name) &&
           take(literal, ')');
}

/* What follows a field's type. */
static bool end_field(struct literal *literal, uint64_t size, uint64_t *sum) {
    uint64_t times = 1;
    if (take(literal, ',') && peek(literal) != ')' && !take_shape(literal, true, &times))
        return false;
    take(literal, ',');
    if (!take(literal, ')') || !tc_mul(size, times, &size) || !tc_add(*sum, size, sum))
        return false;
    return take(literal, ',') || peek(literal) == ']';
}

/* A list of fields, which may hold lists: sums of the open ones in a stack. */
static bool take_fields(struct literal *literal, uint64_t *size) {
    uint64_t sums[MAX_FIELD_DEPTH] = {0};
    unsigned depth = 1;
    struct tc_text type;
    if (!take(literal, '['))
        return false;
    for (;;) {
        if (take(literal, ']')) {
            *size = sums[--depth];
            if (depth == 0)
                return true;
            if (!end_field(literal, *size, &sums[depth - 1]))
                return false;
            continue;
        }
        if (!take(literal, '(') || !take_name(literal) || !take(literal, ','))
            return false;
        if (take(literal, '[')) {
            if (depth == MAX_FIELD_DEPTH)
                return false;
            sums[depth++] = 0;
            continue;
        }
        if (!take_string(literal, &type) || !plain_size(type, size) ||
            !end_field(literal, *size, &sums[depth - 1]))
            return false;
    }
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };

/* Bytes of the array's data; false where it is not plainly an array without
 * objects. */
static bool data_size(struct literal *literal, uint64_t *size) {
    uint64_t item = 0;
    uint64_t count = 0;
    unsigned seen = 0;
    if (!take(literal, '{'))
        return false;
    while (!take(literal, '}')) {
        struct tc_text key;
        struct tc_text type;
        if (!take_string(literal, &key) || !take(literal, ':'))
            return false;
        unsigned which = tc_text_equal(key, TC_TEXT("descr"))           ? DESCR
                         : tc_text_equal(key, TC_TEXT("fortran_order")) ? ORDER
                         : tc_text_equal(key, TC_TEXT("shape"))         ? SHAPE
                                                                        : 0;
        bool ok = which == DESCR   ? peek(literal) == '['
                                         ? take_fields(literal, &item)
                                         : take_string(literal, &type) && plain_size(type, &item)
                    : which == ORDER ? take_word(literal, "True") || take_word(literal, "False")
                  : which == SHAPE ? take_shape(literal, false, &count)
                                   : false;
        if (!ok || seen & which || (!take(literal, ',') && peek(literal) != '}'))
            return false;
        seen |= which;
    }
    while (peek(literal) == '\n')
        literal->at++;
    return seen == ALL && peek(literal) == '\0' && literal->at == literal->length &&
           tc_mul(item, count, size);
}

/* Where the data starts, and whether the header's text says what it is. */
struct array {
    uint64_t data;
    uint64_t size;
    bool plain;
};

/* False in *seen where there is no header. */
static bool read_header(const struct scan_view *view, uint64_t at, struct array *array, bool *seen,
                        struct tc_error *error) {
    unsigned char prefix[12] = {0};
    uint64_t left = view->input->size - at;
    size_t shown = left < sizeof prefix ? left : sizeof prefix;
    if (!tc_input_read(view->input, at, prefix, shown, error))
        return false;
    *seen = shown >= 10 && memcmp(prefix, "\x93NUMPY", 6) == 0;
    if (!*seen)
        return true;
    unsigned start = prefix[6] == 1 ? 10 : 12;
    uint64_t length = tc_load(prefix + 8, start - 8);
    left = left < start ? 0 : left - start;
    array->data = at + start + (length < left ? length : left);
    if (length > left || length > MAX_HEADER || prefix[6] < 1 || prefix[6] > 3 || prefix[7])
        return true;
    char *text = tc_input_load(view->input, at + start, length, error);
    if (!text)
        return false;
    struct literal literal = {text, length, 0};
    array->plain = data_size(&literal, &array->size);
    free(text);
    return true;
}

bool scan_npy(const struct scan_view *view, uint64_t *behind, struct tc_error *error) {
    uint64_t end = view->input->size;
    bool seen = true;
    *behind = 0;
    while (*behind < end) {
        struct array array = {0};
        if (!read_header(view, *behind, &array, &seen, error))
            return false;
        if (!seen)
            break;
        if (array.plain && array.size <= end - array.data) {
            *behind = array.data + array.size;
            continue;
        }
        uint64_t pickled;
        if (!scan_pickles(view, array.data, &pickled, error))
            return false;
        /* No numbers and no pickle: nobody knows what it is. */
        if (pickled == array.data) {
            scan_note(view->scan, "npy", "an array of objects without a pickle, or cut short");
            *behind = 0;
            return true;
        }
        *behind = pickled;
    }
    return true;
}
