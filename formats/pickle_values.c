/* Numbers and strings of pickles, as protocol 0 writes them and as LONG does. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/pickle.h"

static struct pickle_node *integer_node(struct pickle *pickle, int64_t value) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_INT);
    if (node)
        node->integer = value;
    return node;
}

/* Digits of a number that 64 bits can't hold; `text` is the arena's. */
static struct pickle_node *long_node(struct pickle *pickle, const char *text, size_t length) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_LONG);
    if (node) {
        node->text = text;
        node->length = length;
    }
    return node;
}

/* "12", "-3", "12L"; INT has "00" and "01" for False and True. */
struct pickle_node *pickle_integer(struct pickle *pickle, struct tc_text digits, bool booleans) {
    if (booleans &&
        (tc_text_equal(digits, TC_TEXT("00")) || tc_text_equal(digits, TC_TEXT("01")))) {
        struct pickle_node *node = pickle_node(pickle, PICKLE_BOOL);
        if (node)
            node->value = digits.bytes[1] == '1';
        return node;
    }
    if (digits.length && digits.bytes[digits.length - 1] == 'L')
        digits.length--;
    size_t sign = digits.length && (digits.bytes[0] == '-' || digits.bytes[0] == '+');
    bool ok = digits.length > sign;
    for (size_t i = sign; i < digits.length && ok; i++)
        ok = digits.bytes[i] >= '0' && digits.bytes[i] <= '9';
    if (!ok) {
        pickle_bad(pickle, "a number that is none");
        return NULL;
    }
    if (digits.bytes[0] == '+') {
        digits.bytes++;
        digits.length--;
    }
    errno = 0;
    long long value = strtoll(digits.bytes, NULL, 10);
    return errno ? long_node(pickle, digits.bytes, digits.length)
                 : integer_node(pickle, (int64_t)value);
}

#define LIMBS 300 /* of nine decimal digits: 1,024 bytes have 2,467 */

/* Two's complement, little-endian, of any length up to 1,024 bytes. */
struct pickle_node *pickle_long(struct pickle *pickle, const unsigned char *bytes, size_t length) {
    bool negative = length && bytes[length - 1] & 0x80;
    if (length <= 8) {
        uint64_t value = negative ? UINT64_MAX : 0;
        for (size_t i = length; i > 0; i--)
            value = value << 8 | bytes[i - 1];
        return integer_node(pickle, (int64_t)value);
    }
    uint32_t limbs[LIMBS] = {0};
    size_t used = 0;
    /* The magnitude: for a negative number the complement, plus one below. */
    for (size_t i = length; i > 0; i--) {
        uint64_t carry = negative ? (uint8_t)~bytes[i - 1] : bytes[i - 1];
        for (size_t l = 0; l < used || carry; l++) {
            carry += (uint64_t)limbs[l] << 8;
            limbs[l] = (uint32_t)(carry % 1000000000);
            carry /= 1000000000;
            used = l + 1 > used ? l + 1 : used;
        }
    }
    for (size_t l = 0; negative; l++) {
        used = l + 1 > used ? l + 1 : used;
        limbs[l] = (limbs[l] + 1) % 1000000000;
        if (limbs[l])
            break;
    }
    struct tc_buffer text = {0};
    tc_buffer_addf(&text, "%s%u", negative ? "-" : "", used ? limbs[used - 1] : 0);
    for (size_t l = used; l > 1; l--)
        tc_buffer_addf(&text, "%09u", limbs[l - 2]);
    char *copy = tc_buffer_ok(&text, pickle->error)
                     ? tc_arena_copy(pickle->arena, text.bytes, text.length, pickle->error)
                     : NULL;
    struct pickle_node *node =
        copy ? pickle_integer(pickle, (struct tc_text){copy, text.length}, false) : NULL;
    tc_buffer_release(&text);
    return node;
}

/* Decimal points are points: the program never sets a locale. */
struct pickle_node *pickle_real(struct pickle *pickle, struct tc_text digits) {
    char *end;
    double value = strtod(digits.bytes, &end);
    bool plain = digits.length > 0;
    for (size_t i = 0; i < digits.length && plain; i++)
        plain = strchr("0123456789+-.eEinfatyINFATY", digits.bytes[i]) != NULL;
    if (!plain || end != digits.bytes + digits.length) {
        pickle_bad(pickle, "a number that is none");
        return NULL;
    }
    struct pickle_node *node = pickle_node(pickle, PICKLE_FLOAT);
    if (node)
        node->real = value;
    return node;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* `count` hexadecimal digits at `at`; false where there are fewer. */
static bool read_hex(struct tc_text line, size_t at, size_t count, uint32_t *value) {
    *value = 0;
    if (count > line.length || at > line.length - count)
        return false;
    for (size_t i = 0; i < count; i++) {
        int digit = hex_digit(line.bytes[at + i]);
        if (digit < 0)
            return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

static void add_utf8(struct tc_buffer *text, uint32_t c) {
    char bytes[4];
    size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length; i > 1; i--) {
        bytes[i - 1] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    bytes[0] = (char)(lead[length] | c);
    tc_buffer_add(text, bytes, length);
}

/* Keeps a buffer as a node of the arena; text where it is UTF-8. */
static struct pickle_node *keep(struct pickle *pickle, struct tc_buffer *text, bool raw) {
    struct pickle_node *node = NULL;
    char *copy = tc_buffer_ok(text, pickle->error)
                     ? tc_arena_copy(pickle->arena, text->bytes, text->length, pickle->error)
                     : NULL;
    if (copy && (node = pickle_node(pickle, PICKLE_TEXT))) {
        node->text = copy;
        node->length = text->length;
        node->raw = raw;
        if (!tc_utf8_valid(pickle_text(node)))
            node->kind = PICKLE_BYTES;
    }
    tc_buffer_release(text);
    return node;
}

/* One escape of a quoted string behind its backslash; how much it takes. */
static size_t unescape(struct tc_text line, size_t at, struct tc_buffer *text) {
    static const char names[] = "\\'\"abfnrtv";
    static const char values[] = "\\'\"\a\b\f\n\r\t\v";
    char c = line.bytes[at];
    const char *name = c ? strchr(names, c) : NULL;
    uint32_t code = 0;
    if (name) {
        tc_buffer_add(text, &values[name - names], 1);
        return 1;
    }
    if (c == 'x') {
        if (!read_hex(line, at + 1, 2, &code))
            return 0;
        tc_buffer_add(text, &(char){(char)code}, 1);
        return 3;
    }
    size_t used = 0;
    while (used < 3 && at + used < line.length && line.bytes[at + used] >= '0' &&
           line.bytes[at + used] <= '7')
        code = code * 8 + (uint32_t)(line.bytes[at + used++] - '0');
    if (used)
        tc_buffer_add(text, &(char){(char)code}, 1);
    else
        tc_buffer_add(text, "\\", 1); /* no escape: the backslash is one */
    return used;
}

/* A Python 2 string, as its repr. */
struct pickle_node *pickle_quoted(struct pickle *pickle, struct tc_text line) {
    char quote = line.length >= 2 ? line.bytes[0] : 0;
    if ((quote != '\'' && quote != '"') || line.bytes[line.length - 1] != quote) {
        pickle_bad(pickle, "a string without quotes");
        return NULL;
    }
    struct tc_text inner = {line.bytes + 1, line.length - 2};
    struct tc_buffer text = {0};
    for (size_t i = 0; i < inner.length; i++) {
        if (inner.bytes[i] != '\\') {
            tc_buffer_add(&text, inner.bytes + i, 1);
            continue;
        }
        size_t used = i + 1 < inner.length ? unescape(inner, i + 1, &text) : 0;
        if (used == 0 && (i + 1 == inner.length || inner.bytes[i + 1] == 'x')) {
            pickle_bad(pickle, "a string ends inside an escape");
            tc_buffer_release(&text);
            return NULL;
        }
        i += used;
    }
    return keep(pickle, &text, true);
}

/* Python's raw-unicode-escape: Latin-1, with \uXXXX and \UXXXXXXXX. */
struct pickle_node *pickle_escaped(struct pickle *pickle, struct tc_text line) {
    struct tc_buffer text = {0};
    for (size_t i = 0; i < line.length; i++) {
        uint32_t code = (unsigned char)line.bytes[i];
        char next = i + 1 < line.length ? line.bytes[i + 1] : 0;
        if (code == '\\' && (next == 'u' || next == 'U')) {
            size_t digits = next == 'u' ? 4 : 8;
            if (!read_hex(line, i + 2, digits, &code) || code > 0x10FFFF) {
                pickle_bad(pickle, "a string has a broken escape");
                tc_buffer_release(&text);
                return NULL;
            }
            i += digits + 1;
        }
        add_utf8(&text, code);
    }
    struct pickle_node *node = keep(pickle, &text, false);
    if (node && node->kind == PICKLE_BYTES) {
        pickle_bad(pickle, "a string is not valid Unicode");
        return NULL;
    }
    return node;
}
