#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/digits.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"
#include "formats/gguf/gguf.h"

static const struct type_row {
    const char *name;
    unsigned least; /* bytes that a value takes at least */
} types[GGUF_TYPES] = {
    [GGUF_U8] = {"U8", 1},        [GGUF_I8] = {"I8", 1},     [GGUF_U16] = {"U16", 2},
    [GGUF_I16] = {"I16", 2},      [GGUF_U32] = {"U32", 4},   [GGUF_I32] = {"I32", 4},
    [GGUF_F32] = {"F32", 4},      [GGUF_BOOL] = {"BOOL", 1}, [GGUF_STRING] = {"STRING", 8},
    [GGUF_ARRAY] = {"ARRAY", 12}, [GGUF_U64] = {"U64", 8},   [GGUF_I64] = {"I64", 8},
    [GGUF_F64] = {"F64", 8},
};

/* Integers below this are printed without an exponent. */
#define LARGE 1e15

/* Real numbers: integers as such, others with the fewest digits, as %g lays them out. */
static void add_real(struct tc_json_writer *json, double value, enum tc_precision precision) {
    struct tc_digits digits;
    if (!isfinite(value)) {
        tc_json_add_real(json, NULL, value);
        return;
    }
    if (value == trunc(value) && fabs(value) < LARGE) {
        tc_json_addf(json, NULL, "%.0f", value);
        return;
    }
    tc_digits_shortest(&digits, value, precision);
    int last = digits.count - 1;
    char text[64];
    int length = 0;
    if (digits.negative)
        text[length++] = '-';
    if (digits.exponent < -4 || digits.exponent > last) {
        length +=
            snprintf(text + length, sizeof text - (size_t)length, "%c%s%.*se%+03d", digits.digit[0],
                     last ? "." : "", last, digits.digit + 1, digits.exponent);
    } else if (digits.exponent < 0) {
        length += snprintf(text + length, sizeof text - (size_t)length, "0.%.*s%.*s",
                           -digits.exponent - 1, "000", digits.count, digits.digit);
    } else {
        length += snprintf(text + length, sizeof text - (size_t)length, "%.*s%s%.*s",
                           digits.exponent + 1, digits.digit, last > digits.exponent ? "." : "",
                           last - digits.exponent, digits.digit + digits.exponent + 1);
    }
    tc_json_add_raw(json, NULL, (struct tc_text){text, (size_t)length});
}

static bool add_number(struct gguf_cursor *cursor, enum gguf_type type, struct tc_json_writer *json,
                       struct tc_error *error) {
    unsigned bytes = types[type].least;
    uint64_t bits;
    float narrow;
    double wide;
    if (!gguf_take_number(cursor, bytes, &bits, error))
        return false;
    uint32_t low = (uint32_t)bits;
    switch (type) {
    case GGUF_BOOL:
        if (bits > 1) {
            tc_fail(error, TC_INVALID, "bool", "a truth value is %llu, neither 0 nor 1",
                    (unsigned long long)bits);
            return tc_error_at(error, cursor->at - 1);
        }
        tc_json_add_boolean(json, NULL, bits);
        return true;
    case GGUF_F32:
        memcpy(&narrow, &low, sizeof narrow);
        add_real(json, (double)narrow, TC_PRECISION_F32);
        return true;
    case GGUF_F64:
        memcpy(&wide, &bits, sizeof wide);
        add_real(json, wide, TC_PRECISION_F64);
        return true;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        /* Moved to the top and back again, so that the sign is copied down. */
        tc_json_addf(json, NULL, "%" PRId64,
                     (int64_t)(bits << (64 - 8 * bytes)) >> (64 - 8 * bytes));
        return true;
    default:
        tc_json_add_number(json, NULL, bits);
        return true;
    }
}

/* The bytes of a string, appended to the text as they are, or as an element of an array. */
static bool add_string(struct gguf_cursor *cursor, struct gguf_value *value,
                       struct tc_json_writer *json, struct tc_error *error) {
    uint64_t length;
    if (!gguf_take_number(cursor, 8, &length, error) ||
        !gguf_check_count(cursor, length, 1, "a string", error))
        return false;
    char *bytes = malloc(length + 1);
    if (!bytes)
        return tc_fail_memory(error);
    bool ok = gguf_take(cursor, bytes, length, error);
    struct tc_text string = {bytes, length};
    if (ok) {
        value->not_text |= !tc_utf8_valid(string);
        if (json->depth)
            tc_json_add_text(json, NULL, string);
        else
            tc_buffer_add_text(&value->text, string);
    }
    free(bytes);
    return ok && tc_buffer_ok(&value->text, error);
}

static bool check_type(const struct gguf_cursor *cursor, uint64_t type, struct tc_error *error) {
    if (type < GGUF_TYPES)
        return true;
    tc_fail(error, TC_INVALID, "value-type", "there is no type %llu of values",
            (unsigned long long)type);
    return tc_error_at(error, cursor->at - 4);
}

/* An array that is being read. */
struct level {
    enum gguf_type type; /* of its elements */
    uint64_t left;
};

struct levels {
    struct level list[GGUF_MAX_DEPTH];
    unsigned depth;
    unsigned deepest;
    enum gguf_type seen[GGUF_MAX_DEPTH]; /* by depth: the type of the first array's elements */
};

static bool open_array(struct gguf_cursor *cursor, struct gguf_value *value, struct levels *levels,
                       struct tc_json_writer *json, struct tc_error *error) {
    uint64_t type;
    uint64_t count;
    if (levels->depth == GGUF_MAX_DEPTH) {
        tc_fail(error, TC_UNSAFE, "nesting-limit", "arrays are nested more than %u deep",
                GGUF_MAX_DEPTH);
        tc_error_at(error, cursor->at);
        return tc_error_hint(error, TC_FIXED_LIMIT);
    }
    if (!gguf_take_number(cursor, 4, &type, error) || !check_type(cursor, type, error) ||
        !gguf_take_number(cursor, 8, &count, error) ||
        !gguf_check_count(cursor, count, types[type].least, "elements", error))
        return false;
    unsigned depth = levels->depth++;
    if (depth == levels->deepest)
        levels->seen[levels->deepest++] = (enum gguf_type)type;
    value->mixed |= levels->seen[depth] != (enum gguf_type)type;
    levels->list[depth] = (struct level){(enum gguf_type)type, count};
    tc_json_open_array(json, NULL);
    return true;
}

/* The word for the type: the innermost elements' in as many brackets as arrays are nested. */
static void name_type(struct gguf_value *value, const struct levels *levels) {
    size_t depth = levels->deepest;
    memset(value->type, '[', depth);
    int length = snprintf(value->type + depth, sizeof value->type - depth, "%s",
                          types[levels->seen[depth - 1]].name);
    memset(value->type + depth + length, ']', depth);
    value->type[2 * depth + (size_t)length] = '\0';
}

static bool read_array(struct gguf_cursor *cursor, struct gguf_value *value,
                       struct tc_json_writer *json, struct tc_error *error) {
    struct levels levels = {.depth = 0};
    bool ok = open_array(cursor, value, &levels, json, error);
    while (ok && levels.depth) {
        struct level *level = &levels.list[levels.depth - 1];
        if (level->left == 0) {
            levels.depth--;
            tc_json_close(json);
            continue;
        }
        level->left--;
        ok = level->type == GGUF_ARRAY    ? open_array(cursor, value, &levels, json, error)
             : level->type == GGUF_STRING ? add_string(cursor, value, json, error)
                                          : add_number(cursor, level->type, json, error);
    }
    if (ok && !value->mixed)
        name_type(value, &levels);
    return ok && tc_buffer_ok(&value->text, error);
}

bool gguf_value_read(struct gguf_cursor *cursor, struct gguf_value *value, struct tc_error *error) {
    uint64_t type;
    value->text.length = 0;
    value->type[0] = '\0';
    value->mixed = value->not_text = false;
    struct tc_json_writer json = {.out = &value->text, .escape = TC_ESCAPE_SERDE};
    if (!gguf_take_number(cursor, 4, &type, error) || !check_type(cursor, type, error))
        return false;
    if (type == GGUF_ARRAY)
        return read_array(cursor, value, &json, error);
    if (type == GGUF_STRING)
        return add_string(cursor, value, &json, error);
    snprintf(value->type, sizeof value->type, "%s", types[type].name);
    return add_number(cursor, (enum gguf_type)type, &json, error) &&
           tc_buffer_ok(&value->text, error);
}

static void write_number(struct tc_buffer *out, uint64_t number, unsigned bytes) {
    unsigned char buffer[8];
    tc_store(buffer, number, bytes);
    tc_buffer_add(out, buffer, bytes);
}

void gguf_string_write(struct tc_buffer *out, struct tc_text string) {
    write_number(out, string.length, 8);
    tc_buffer_add_text(out, string);
}

/* A number's bits, from its text; what does not fit shows when the bytes are read again. */
static uint64_t number_bits(struct tc_text text, enum gguf_type type) {
    char digits[64] = {0};
    uint64_t bits = 0;
    uint32_t low;
    if (text.length >= sizeof digits)
        return 0;
    memcpy(digits, text.bytes, text.length);
    const char *start = digits[0] == '"' ? digits + 1 : digits; /* "NaN", "Infinity" */
    if (type == GGUF_BOOL)
        return digits[0] == 't';
    if (type == GGUF_F32) {
        float narrow = strtof(start, NULL);
        memcpy(&low, &narrow, sizeof low);
        return low;
    }
    if (type == GGUF_F64) {
        double wide = strtod(start, NULL);
        memcpy(&bits, &wide, sizeof bits);
        return bits;
    }
    return digits[0] == '-' ? (uint64_t)strtoll(digits, NULL, 10) : strtoull(digits, NULL, 10);
}

/* What "[[U32]]" says: how many arrays are nested, and the type of the innermost elements. */
static bool parse_type(struct tc_text word, unsigned *depth, enum gguf_type *type) {
    *depth = 0;
    while (word.length >= 2 && word.bytes[0] == '[' && word.bytes[word.length - 1] == ']') {
        word = (struct tc_text){word.bytes + 1, word.length - 2};
        if (++*depth > GGUF_MAX_DEPTH)
            return false;
    }
    for (*type = 0; *type < GGUF_TYPES; (*type)++)
        if (tc_text_equal(word, tc_text_of(types[*type].name)))
            return *depth || *type != GGUF_ARRAY;
    return false;
}

static bool write_element(struct tc_json *json, struct tc_buffer *out, enum gguf_type type) {
    struct tc_text text;
    if (type == GGUF_STRING) {
        if (!tc_json_string(json, &text))
            return false;
        gguf_string_write(out, text);
        return true;
    }
    if (!tc_json_skip(json, &text))
        return false;
    write_number(out, number_bits(text, type), types[type].least);
    return true;
}

/* Nested arrays of the text become arrays whose counts are filled in when they end. */
static bool write_array(struct tc_json *json, struct tc_buffer *out, unsigned depth,
                        enum gguf_type type) {
    size_t counts[GGUF_MAX_DEPTH];
    uint64_t found[GGUF_MAX_DEPTH];
    unsigned open = 0;
    bool enter = true;
    while (enter || open) {
        if (enter) {
            if (open == depth || !tc_json_begin(json, TC_JSON_ARRAY))
                return false;
            write_number(out, open + 1 < depth ? (uint64_t)GGUF_ARRAY : (uint64_t)type, 4);
            counts[open] = out->length;
            found[open++] = 0;
            write_number(out, 0, 8);
            enter = false;
        }
        if (!tc_json_element(json)) {
            if (json->failed || out->failed)
                return false;
            open--;
            tc_store(out->bytes + counts[open], found[open], 8);
            continue;
        }
        found[open - 1]++;
        enter = open < depth;
        /* An array of arrays of which there is none has no innermost type. */
        if (!enter && (type == GGUF_ARRAY || !write_element(json, out, type)))
            return false;
    }
    return true;
}

/* Whether reading the bytes from `start` on gives this text and type. */
static bool reads_back(const struct tc_buffer *out, size_t start, struct tc_text text,
                       struct tc_text type) {
    size_t length = out->length - start;
    struct gguf_cursor cursor = {.size = length,
                                 .limit = UINT64_MAX,
                                 .window = (unsigned char *)out->bytes + start,
                                 .filled = length};
    struct gguf_value value = {0};
    struct tc_error *ignored = calloc(1, sizeof *ignored);
    bool same = ignored && gguf_value_read(&cursor, &value, ignored) && cursor.at == cursor.size &&
                !value.mixed && !value.not_text &&
                tc_text_equal((struct tc_text){value.text.bytes, value.text.length}, text) &&
                tc_text_equal(tc_text_of(value.type), type);
    tc_buffer_release(&value.text);
    free(ignored);
    return same;
}

bool gguf_value_write(struct tc_buffer *out, struct tc_text text, struct tc_text type) {
    size_t start = out->length;
    unsigned depth;
    enum gguf_type innermost;
    if (!parse_type(type, &depth, &innermost))
        return false;
    struct tc_arena arena;
    struct tc_error *ignored = calloc(1, sizeof *ignored);
    struct tc_json json;
    tc_arena_init(&arena, 0);
    tc_json_init(&json, text.bytes, text.length, 0, &arena, ignored);
    write_number(out, depth ? (uint64_t)GGUF_ARRAY : (uint64_t)innermost, 4);
    bool ok = ignored != NULL;
    if (depth)
        ok = ok && write_array(&json, out, depth, innermost) && tc_json_end(&json);
    else
        write_number(out, number_bits(text, innermost), types[innermost].least);
    ok = ok && !out->failed && reads_back(out, start, text, type);
    tc_arena_release(&arena);
    free(ignored);
    if (!ok)
        out->length = start;
    return ok;
}
