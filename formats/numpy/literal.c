#include "formats/numpy/literal.h"

#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"

bool npy_bad(struct npy_scanner *scanner, const char *what) {
    tc_fail(scanner->error, TC_INVALID, "npy-header", "bad header: %s", what);
    return tc_error_at(scanner->error, scanner->base + scanner->at);
}

char npy_peek(struct npy_scanner *scanner) {
    while (scanner->at < scanner->length &&
           (scanner->text[scanner->at] == ' ' || scanner->text[scanner->at] == '\n'))
        scanner->at++;
    return scanner->at < scanner->length ? scanner->text[scanner->at] : '\0';
}

bool npy_take(struct npy_scanner *scanner, char c) {
    if (npy_peek(scanner) != c)
        return false;
    scanner->at++;
    return true;
}

bool npy_scan_word(struct npy_scanner *scanner, const char *word) {
    size_t length = strlen(word);
    npy_peek(scanner);
    if (scanner->length - scanner->at < length ||
        memcmp(scanner->text + scanner->at, word, length) != 0)
        return false;
    scanner->at += length;
    return true;
}

bool npy_scan_bool(struct npy_scanner *scanner, bool *value) {
    *value = npy_scan_word(scanner, "True");
    return *value || npy_scan_word(scanner, "False") || npy_bad(scanner, "expected True or False");
}

bool npy_scan_string(struct npy_scanner *scanner, struct tc_text *string) {
    char quote = npy_peek(scanner);
    if (quote != '\'' && quote != '"')
        return npy_bad(scanner, "expected a string");
    size_t start = ++scanner->at;
    while (scanner->at < scanner->length && scanner->text[scanner->at] != quote) {
        unsigned char c = (unsigned char)scanner->text[scanner->at];
        if (c < 0x20 || c == '\\')
            return npy_bad(scanner, "an escape or control character in a string");
        scanner->at++;
    }
    if (scanner->at == scanner->length)
        return npy_bad(scanner, "a string does not end");
    *string = (struct tc_text){scanner->text + start, scanner->at++ - start};
    return true;
}

static bool scan_hex(struct npy_scanner *scanner, unsigned digits, uint32_t *value) {
    *value = 0;
    for (unsigned i = 0; i < digits; i++) {
        char c = scanner->at < scanner->length ? scanner->text[scanner->at++] : '\0';
        if (!c || !strchr("0123456789abcdef", c))
            return npy_bad(scanner, "a bad escape in a name");
        *value = *value * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

static void add_character(struct tc_buffer *name, uint32_t c) {
    const char bytes[4] = {(char)(c < 0x80      ? c
                                  : c < 0x800   ? 0xC0 | c >> 6
                                  : c < 0x10000 ? 0xE0 | c >> 12
                                                : 0xF0 | c >> 18),
                           (char)(0x80 | (c < 0x800     ? c & 0x3F
                                          : c < 0x10000 ? c >> 6 & 0x3F
                                                        : c >> 12 & 0x3F)),
                           (char)(0x80 | (c < 0x10000 ? c & 0x3F : c >> 6 & 0x3F)),
                           (char)(0x80 | (c & 0x3F))};
    tc_buffer_add(name, bytes, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
}

/* Scans what follows a backslash: the escapes that Python's repr writes. */
static bool scan_escape(struct npy_scanner *scanner, struct tc_buffer *name, size_t *surrogates) {
    static const char plain[] = "\\'\"ntr";
    static const char meant[] = "\\'\"\n\t\r";
    char c = scanner->at < scanner->length ? scanner->text[scanner->at++] : '\0';
    const char *found = c ? strchr(plain, c) : NULL;
    uint32_t code;
    if (found) {
        tc_buffer_add(name, &meant[found - plain], 1);
        return true;
    }
    if (c != 'x' && c != 'u' && c != 'U')
        return npy_bad(scanner, "a bad escape in a name");
    if (!scan_hex(scanner, c == 'x' ? 2 : c == 'u' ? 4 : 8, &code))
        return false;
    if (code > 0x10FFFF)
        return npy_bad(scanner, "a bad escape in a name");
    if (code >= 0xD800 && code <= 0xDFFF) {
        tc_buffer_addf(name, "\\u%04x", code);
        ++*surrogates;
    } else {
        add_character(name, code);
    }
    return true;
}

bool npy_scan_name(struct npy_scanner *scanner, struct tc_buffer *name, size_t *surrogates) {
    char quote = npy_peek(scanner);
    size_t start = name->length;
    if (quote != '\'' && quote != '"')
        return npy_bad(scanner, "expected a string");
    scanner->at++;
    while (scanner->at < scanner->length && scanner->text[scanner->at] != quote) {
        unsigned char c = (unsigned char)scanner->text[scanner->at++];
        if (c < 0x20)
            return npy_bad(scanner, "a control character in a string");
        if (c == '\\') {
            if (!scan_escape(scanner, name, surrogates))
                return false;
        } else if (c < 0x80 || scanner->version > 2) {
            tc_buffer_add(name, &c, 1);
        } else {
            add_character(name, c); /* before version 3 headers are in Latin-1 */
        }
    }
    if (!tc_buffer_ok(name, scanner->error))
        return false;
    if (name->length > start &&
        !tc_utf8_valid((struct tc_text){name->bytes + start, name->length - start}))
        return npy_bad(scanner, "a name is not valid UTF-8");
    return npy_take(scanner, quote) || npy_bad(scanner, "a string does not end");
}

static bool scan_integer(struct npy_scanner *scanner, uint64_t *value) {
    char c = npy_peek(scanner);
    if (c < '0' || c > '9')
        return npy_bad(scanner, "expected a non-negative integer");
    size_t start = scanner->at;
    uint64_t sum = 0;
    while (scanner->at < scanner->length) {
        c = scanner->text[scanner->at];
        if (c < '0' || c > '9')
            break;
        if (!tc_mul(sum, 10, &sum) || !tc_add(sum, (uint64_t)(c - '0'), &sum))
            return npy_bad(scanner, "an integer is too large");
        scanner->at++;
    }
    if (scanner->at - start > 1 && scanner->text[start] == '0')
        return npy_bad(scanner, "an integer with a leading zero");
    /* Python 2 wrote long integers with an L. */
    if (scanner->version <= 2 && scanner->at < scanner->length && scanner->text[scanner->at] == 'L')
        scanner->at++;
    *value = sum;
    return true;
}

bool npy_scan_shape(struct npy_scanner *scanner, struct npy_shape *shape) {
    bool comma = true;
    bool empty = false;
    uint64_t product = 1; /* of the sizes that are not 0: a 0 must not hide an overflow */
    shape->rank = 0;
    if (!npy_take(scanner, '('))
        return npy_bad(scanner, "the shape is no tuple");
    while (!npy_take(scanner, ')')) {
        uint64_t size = 0;
        if (!comma)
            return npy_bad(scanner, "expected ',' or ')' in the shape");
        if (!scan_integer(scanner, &size))
            return false;
        if (size > INT64_MAX || (size && !tc_mul(product, size, &product)))
            return npy_bad(scanner, "the shape's size overflows");
        empty |= size == 0;
        if (shape->rank < NPY_MAX_RANK)
            shape->sizes[shape->rank] = size;
        shape->rank++;
        comma = npy_take(scanner, ',');
    }
    shape->count = empty ? 0 : product;
    return shape->rank != 1 || comma || npy_bad(scanner, "the shape is no tuple");
}
