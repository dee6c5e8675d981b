/* Numbers and strings of pickles: the text forms of protocol 0, LONG1 and LONG4. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/text.h"
#include "formats/pickle/machine.h"
#include "formats/pickle/pickle.h"

static struct pickle_node *integer_node(struct pickle *pickle, int64_t value) {
    return pickle_small(pickle, value);
}

/* A node for a number that 64 bits can't hold; its digits are in the arena. */
static struct pickle_node *long_node(struct pickle *pickle, const char *text, size_t length) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_LONG);
    if (node) {
        node->text = text;
        node->length = length;
    }
    return node;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Cuts the text at a NUL, as for a C string, and strips white space. */
static struct tc_text strip(struct tc_text text) {
    text.length = strnlen(text.bytes, text.length);
    while (text.length && is_space(text.bytes[text.length - 1]))
        text.length--;
    while (text.length && is_space(text.bytes[0])) {
        text.bytes++;
        text.length--;
    }
    return text;
}

/* The base that a literal's prefix says; removes the prefix. Python tries C's strtol
 * first for INT, in which a leading 0 alone means octal. */
static unsigned take_base(struct tc_text *digits, bool octal) {
    static const struct {
        char letter;
        unsigned base;
    } prefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    if (digits->length < 2 || digits->bytes[0] != '0')
        return 10;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if ((digits->bytes[1] | 0x20) == prefixes[i].letter) {
            bool line = digits->length > 2 && digits->bytes[2] == '_';
            digits->bytes += 2 + line;
            digits->length -= 2 + line;
            return prefixes[i].base;
        }
    return octal ? 8 : 10;
}

/* Reads digits, with single underscores between them. *large: 63 bits can't hold it. */
static bool read_digits(struct tc_text digits, unsigned base, uint64_t *value, bool *large) {
    bool line = true; /* none may come first */
    *value = 0;
    *large = false;
    for (size_t i = 0; i < digits.length; i++) {
        bool again = line;
        line = digits.bytes[i] == '_';
        if (line && again)
            return false;
        if (line)
            continue;
        int digit = tc_hex_digit(digits.bytes[i]);
        if (digit < 0 || (unsigned)digit >= base)
            return false;
        *large |= *value > (INT64_MAX - (uint64_t)digit) / base;
        *value = *large ? 0 : *value * base + (uint64_t)digit;
    }
    return !line;
}

/* A decimal number that starts with 0 must be zero, as in Python. */
static bool is_zero_or_plain(struct tc_text digits, unsigned base, uint64_t value, bool large) {
    return base != 10 || digits.bytes[0] != '0' || (value == 0 && !large);
}

bool pickle_read_integer(struct tc_text text, unsigned base, bool octal, bool *negative,
                         uint64_t *value, bool *large) {
    text = strip(text);
    *negative = text.length && text.bytes[0] == '-';
    if (text.length && (text.bytes[0] == '-' || text.bytes[0] == '+')) {
        text.bytes++;
        text.length--;
    }
    struct tc_text digits = text;
    unsigned by = base ? base : take_base(&digits, false);
    if (digits.length && read_digits(digits, by, value, large) &&
        (base || is_zero_or_plain(digits, by, *value, *large)))
        return true;
    digits = text;
    return octal && digits.length && take_base(&digits, true) == 8 &&
           read_digits(digits, 8, value, large);
}

/* Reads an integer as pickle.py or Python's C machine does, whichever accepts it. */
static struct pickle_node *scanned_integer(struct pickle *pickle, struct tc_text line, bool octal) {
    bool negative;
    bool large;
    uint64_t value;
    /* For strtol a line that starts with a NUL is an empty string, which is 0. */
    if (octal && line.length && line.bytes[0] == 0)
        return integer_node(pickle, 0);
    if (!pickle_read_integer(line, 0, octal, &negative, &value, &large)) {
        pickle_bad(pickle, "a number that is none");
        return NULL;
    }
    return large ? long_node(pickle, line.bytes, line.length)
                 : integer_node(pickle, negative ? -(int64_t)value : (int64_t)value);
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
    size_t length = digits.length;
    bool ended = length && digits.bytes[length - 1] == 'L'; /* only LONG ends so */
    if (ended && (!booleans || pickle->mode == PICKLE_SCAN))
        digits.length--;
    if (pickle->mode == PICKLE_SCAN)
        return scanned_integer(pickle, digits, booleans);
    size_t sign = digits.length && (digits.bytes[0] == '-' || digits.bytes[0] == '+');
    bool ok = digits.length > sign;
    bool zero = true; /* 010 is 8 for some machines, and an error for others */
    for (size_t i = sign; i < digits.length && ok; i++) {
        ok = digits.bytes[i] >= '0' && digits.bytes[i] <= '9';
        zero &= digits.bytes[i] == '0';
    }
    if (!ok || (digits.bytes[sign] == '0' && digits.length > sign + 1 && !zero)) {
        pickle_bad(pickle, "a number that is none");
        return NULL;
    }
    if (digits.bytes[0] == '+') {
        digits.bytes++;
        digits.length--;
    }
    errno = 0;
    long long value = strtoll(digits.bytes, NULL, 10);
    /* Python's C machine takes "+1" and "-0" for truth values too, since they are as long
     * as "01". */
    if (booleans && sign && length == 2 && (value == 0 || value == 1)) {
        pickle_bad(pickle, "a number that is a truth value for some");
        return NULL;
    }
    return errno ? long_node(pickle, digits.bytes, digits.length)
                 : integer_node(pickle, (int64_t)value);
}

#define LIMBS 300 /* of nine decimal digits each: 1,024 bytes are up to 2,467 digits */

/* Reads a little-endian number in two's complement, of up to 1,024 bytes. */
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
    /* Computes the magnitude, for a negative number the complement, to which one is
     * added below. It takes four bytes at a time, from the highest, which may be fewer. */
    for (size_t i = length; i > 0;) {
        size_t taken = i % 4 ? i % 4 : 4;
        uint64_t carry = 0;
        for (size_t b = i; b > i - taken; b--)
            carry = carry << 8 | (negative ? (uint8_t)~bytes[b - 1] : bytes[b - 1]);
        i -= taken;
        for (size_t l = 0; l < used || carry; l++) {
            carry += (uint64_t)limbs[l] << 8 * taken;
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

/* Makes a plain number of a text that some machine accepts: pickle.py accepts white
 * space around it and underscores between digits, Python's C machine a NUL behind it.
 * The copy is in the arena. */
static bool plain_real(struct pickle *pickle, struct tc_text *digits) {
    *digits = strip(*digits);
    char *copy = tc_arena_copy(pickle->arena, digits->bytes, digits->length, pickle->error);
    if (!copy)
        return false;
    size_t kept = 0;
    for (size_t i = 0; i < digits->length; i++) {
        bool between = i && i + 1 < digits->length && tc_hex_digit(digits->bytes[i - 1]) >= 0 &&
                       tc_hex_digit(digits->bytes[i + 1]) >= 0;
        if (digits->bytes[i] != '_' || !between)
            copy[kept++] = digits->bytes[i];
    }
    copy[kept] = 0;
    *digits = (struct tc_text){copy, kept};
    return true;
}

/* strtod reads "." as the decimal point, since the program never sets a locale. */
struct pickle_node *pickle_real(struct pickle *pickle, struct tc_text digits) {
    char *end;
    if (pickle->mode == PICKLE_SCAN && !plain_real(pickle, &digits))
        return NULL;
    double value = strtod(digits.bytes, &end);
    bool plain = digits.length > 0;
    for (size_t i = 0; i < digits.length && plain; i++)
        plain = digits.bytes[i] && strchr("0123456789+-.eEinfatyINFATY", digits.bytes[i]);
    if (!plain || end != digits.bytes + digits.length) {
        pickle_bad(pickle, "a number that is none");
        return NULL;
    }
    /* What is too large is infinite for pickle.py, and an error for Python's C machine. */
    bool digit = digits.length && strpbrk(digits.bytes, "0123456789");
    if (isinf(value) && digit && pickle->mode != PICKLE_SCAN) {
        pickle_bad(pickle, "a number that is too large");
        return NULL;
    }
    struct pickle_node *node = pickle_node(pickle, PICKLE_FLOAT);
    if (node)
        node->real = value;
    return node;
}

/* Reads `count` hexadecimal digits at `at`; false where there are fewer. */
static bool read_hex(struct tc_text line, size_t at, size_t count, uint32_t *value) {
    *value = 0;
    if (count > line.length || at > line.length - count)
        return false;
    for (size_t i = 0; i < count; i++) {
        int digit = tc_hex_digit(line.bytes[at + i]);
        if (digit < 0)
            return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

/* Appends a lone surrogate, which UTF-8 can't hold, as Python's escape of it. */
static void add_surrogate(struct tc_buffer *text, uint32_t c, uint64_t *halves) {
    tc_buffer_addf(text, "\\u%04x", c);
    ++*halves;
}

static void add_utf8(struct tc_buffer *text, uint32_t c, uint64_t *halves) {
    char bytes[4];
    size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    if (c >= 0xD800 && c <= 0xDFFF) {
        add_surrogate(text, c, halves);
        return;
    }
    for (size_t i = length; i > 1; i--) {
        bytes[i - 1] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    bytes[0] = (char)(lead[length] | c);
    tc_buffer_add(text, bytes, length);
}

/* The surrogate at this place, encoded as if UTF-8 allowed it; 0: there is none. */
static uint32_t surrogate_at(struct tc_text text, size_t at) {
    const unsigned char *bytes = (const unsigned char *)text.bytes + at;
    bool there = text.length - at >= 3 && bytes[0] == 0xED && bytes[1] >= 0xA0 &&
                 bytes[1] <= 0xBF && bytes[2] >= 0x80 && bytes[2] <= 0xBF;
    return there ? 0xD000u | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3Fu) : 0;
}

/* A node with a copy of the buffer: text if it is valid UTF-8, else bytes. */
static struct pickle_node *keep(struct pickle *pickle, struct tc_buffer *text, bool raw) {
    struct pickle_node *node = NULL;
    char *copy = tc_buffer_ok(text, pickle->error)
                     ? tc_arena_copy(pickle->arena, text->bytes, text->length, pickle->error)
                     : NULL;
    bool valid = copy && tc_utf8_valid((struct tc_text){copy, text->length});
    if (copy && (node = pickle_node(pickle, valid ? PICKLE_TEXT : PICKLE_BYTES))) {
        node->text = copy;
        node->length = text->length;
        node->raw = raw;
    }
    tc_buffer_release(text);
    return node;
}

/* Text of the binary opcodes: UTF-8, in which Python allows surrogates. */
struct pickle_node *pickle_unicode(struct pickle *pickle, struct tc_text bytes) {
    struct pickle_node *node = NULL;
    if (tc_utf8_valid(bytes)) {
        node = pickle_node(pickle, PICKLE_TEXT);
        if (node) {
            node->text = bytes.bytes;
            node->length = bytes.length;
        }
        return node;
    }
    struct tc_buffer text = {0};
    uint64_t halves = 0;
    for (size_t at = 0; at < bytes.length;) {
        uint32_t c;
        size_t length = tc_utf8_length(bytes.bytes + at, bytes.length - at, &c);
        if (length) {
            tc_buffer_add(&text, bytes.bytes + at, length);
        } else if ((c = surrogate_at(bytes, at))) {
            add_surrogate(&text, c, &halves);
            length = 3;
        } else {
            pickle_bad(pickle, "a string is not valid UTF-8");
            tc_buffer_release(&text);
            return NULL;
        }
        at += length;
    }
    node = keep(pickle, &text, false);
    if (node) {
        node->surrogates = halves > 0;
        node->count = (uint32_t)halves;
    }
    return node;
}

/* Appends what an escape stands for, `at` being behind its backslash; returns how many
 * characters it has. */
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
        tc_buffer_add(text, "\\", 1); /* not an escape: the backslash stays */
    return used;
}

/* A string of Python 2, written as its repr. */
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

/* Python's raw-unicode-escape: Latin-1, with \uXXXX and \UXXXXXXXX. Any other
 * character behind a backslash stays, a second backslash too. */
struct pickle_node *pickle_escaped(struct pickle *pickle, struct tc_text line) {
    struct tc_buffer text = {0};
    uint64_t halves = 0;
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
        } else if (code == '\\' && i + 1 < line.length) {
            tc_buffer_add_string(&text, "\\");
            code = (unsigned char)next;
            i++;
        }
        add_utf8(&text, code, &halves);
    }
    struct pickle_node *node = keep(pickle, &text, false);
    if (node) {
        node->surrogates = halves > 0;
        node->count = (uint32_t)halves;
    }
    return node;
}

/* Decodes bytes as Latin-1; the text is in the arena. */
bool pickle_latin1(struct pickle *pickle, struct tc_text bytes, struct tc_text *text) {
    struct tc_buffer made = {0};
    uint64_t halves = 0;
    for (size_t i = 0; i < bytes.length; i++)
        add_utf8(&made, (unsigned char)bytes.bytes[i], &halves);
    struct pickle_node *node = keep(pickle, &made, false);
    if (node)
        *text = pickle_text(node);
    return node != NULL;
}
