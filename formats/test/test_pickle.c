/*
 * The pickle machine by itself, on strings of bytes. Each runs from memory and
 * from a file, and does the same in both. What it makes is compared as text:
 * 1, 1L (beyond 64 bits), 1f, 'text', s'text that stood as bytes', b'bytes',
 * [list], (tuple), {dict}, <set>, module.name, module.name(call)|state.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/test/support.h"

TestSuite(pickle, .init = test_folder_make, .fini = test_folder_remove);

#define P(literal) (literal), sizeof(literal) - 1

static struct tc_limits limits = TC_LIMITS_DEFAULT;

struct run {
    struct tc_arena arena;
    struct tc_error error;
    struct pickle pickle;
    struct pickle_node *root;
};

static void run_begin(struct run *run, const void *bytes, size_t length, bool file) {
    *run = (struct run){0};
    tc_arena_init(&run->arena, 0);
    pickle_init(&run->pickle, &run->arena, &limits, &run->error);
    if (file) {
        const char *path = test_path("x.pkl");
        test_write(path, bytes, length);
        run->pickle.input = tc_input_open(path, NULL, &run->error);
        cr_assert_not_null(run->pickle.input);
    } else {
        run->pickle.memory = bytes;
    }
    run->pickle.end = length;
}

static void run_end(struct run *run) {
    struct tc_input *input = run->pickle.input;
    pickle_release(&run->pickle);
    if (input)
        tc_input_close(input);
    tc_arena_release(&run->arena);
}

static void show_text(struct tc_buffer *out, const char *quote, const struct pickle_node *node) {
    tc_buffer_add_string(out, quote);
    for (size_t i = 0; i < node->length; i++) {
        unsigned char c = (unsigned char)node->text[i];
        if (c < 0x20 || c == '\'' || c == '\\' || c > 0x7E)
            tc_buffer_addf(out, "\\x%02x", c);
        else
            tc_buffer_add(out, &c, 1);
    }
    tc_buffer_add_string(out, "'");
}

static void show(struct tc_buffer *out, const struct pickle_node *node, int depth);

static void show_items(struct tc_buffer *out, const struct pickle_node *node, const char *brackets,
                       int depth) {
    tc_buffer_add(out, brackets, 1);
    for (size_t i = 0; i < node->count; i++) {
        bool value = node->kind == PICKLE_DICT && i % 2;
        tc_buffer_add_string(out, i == 0 ? "" : value ? ": " : ", ");
        show(out, node->items[i], depth + 1);
    }
    tc_buffer_add(out, brackets + 1, 1);
}

static void show_call(struct tc_buffer *out, const struct pickle_node *node, int depth) {
    tc_buffer_add_string(out, node->kind == PICKLE_OBJECT ? "new " : "");
    show(out, node->callable, depth + 1);
    show(out, node->arguments, depth + 1);
    if (node->state) {
        tc_buffer_add_string(out, "|");
        show(out, node->state, depth + 1);
    }
    if (node->kind == PICKLE_OBJECT && node->content) {
        tc_buffer_add_string(out, "&");
        show(out, node->content, depth + 1);
    }
}

static void show(struct tc_buffer *out, const struct pickle_node *node, int depth) {
    if (depth > 4) {
        tc_buffer_add_string(out, "...");
        return;
    }
    switch ((enum pickle_kind)node->kind) {
    case PICKLE_NONE:
        tc_buffer_add_string(out, "None");
        return;
    case PICKLE_BOOL:
        tc_buffer_add_string(out, node->value ? "True" : "False");
        return;
    case PICKLE_INT:
        tc_buffer_addf(out, "%lld", (long long)node->integer);
        return;
    case PICKLE_LONG:
        tc_buffer_add_text(out, pickle_text(node));
        tc_buffer_add_string(out, "L");
        return;
    case PICKLE_FLOAT:
        tc_buffer_addf(out, "%.17gf", node->real);
        return;
    case PICKLE_TEXT:
        show_text(out, node->raw ? "s'" : "'", node);
        return;
    case PICKLE_BYTES:
        show_text(out, "b'", node);
        return;
    case PICKLE_LIST:
        show_items(out, node, "[]", depth);
        return;
    case PICKLE_TUPLE:
        show_items(out, node, "()", depth);
        return;
    case PICKLE_DICT:
        show_items(out, node, "{}", depth);
        return;
    case PICKLE_SET:
        show_items(out, node, "<>", depth);
        return;
    case PICKLE_GLOBAL:
        tc_buffer_add_text(out, pickle_text(node));
        return;
    case PICKLE_CALL:
    case PICKLE_OBJECT:
        show_call(out, node, depth);
        return;
    case PICKLE_STORAGE:
        tc_buffer_addf(out, "#%llu", (unsigned long long)node->index);
        return;
    }
}

static void expect_shown(const struct pickle_node *node, const char *expected) {
    struct tc_buffer shown = {0};
    show(&shown, node, 0);
    tc_buffer_add(&shown, "", 1);
    cr_assert(!shown.failed);
    cr_assert_str_eq(shown.bytes, expected);
    tc_buffer_release(&shown);
}

static void expect_mode(const void *bytes, size_t length, enum pickle_mode mode, bool script,
                        const char *expected) {
    for (int file = 0; file < 2; file++) {
        struct run run;
        run_begin(&run, bytes, length, file);
        run.pickle.mode = mode;
        run.pickle.script = script;
        cr_assert(pickle_load(&run.pickle, &run.root), "%s: %s", expected, run.error.message);
        expect_shown(run.root, expected);
        cr_assert_eq(run.pickle.at, length, "%s: it stands at %llu", expected,
                     (unsigned long long)run.pickle.at);
        run_end(&run);
    }
}

static void expect(const void *bytes, size_t length, const char *expected) {
    expect_mode(bytes, length, PICKLE_STRICT, false, expected);
}

/* Refused with this class, with these words in the message; only a file's
 * error has a place in the file. */
static void refused_mode(const void *bytes, size_t length, enum pickle_mode mode,
                         enum tc_class class, const char *words) {
    for (int file = 0; file < 2; file++) {
        struct run run;
        run_begin(&run, bytes, length, file);
        run.pickle.mode = mode;
        cr_assert_not(pickle_load(&run.pickle, &run.root), "not refused: %s", words);
        cr_assert_eq(run.error.class, class, "class %d: %s", (int)run.error.class,
                     run.error.message);
        cr_assert(strstr(run.error.message, words), "\"%s\" is not \"%s\"", run.error.message,
                  words);
        cr_assert(run.error.code && run.error.code[0]);
        cr_assert_eq(run.error.has_offset, file == 1, "%s: an offset %s", words,
                     file ? "is missing" : "of no file");
        run_end(&run);
    }
}

static void refused(const void *bytes, size_t length, enum tc_class class, const char *words) {
    refused_mode(bytes, length, PICKLE_STRICT, class, words);
}

/* Numbers */

Test(pickle, integers) {
    expect(P("K\0."), "0");
    expect(P("K\377."), "255");
    expect(P("M\377\377."), "65535");
    expect(P("M\1\2."), "513");
    expect(P("J\377\377\377\377."), "-1");
    expect(P("J\0\0\0\200."), "-2147483648");
    expect(P("J\377\377\377\177."), "2147483647");
    expect(P("I12\n."), "12");
    expect(P("I-3\n."), "-3");
    expect(P("I00\n."), "False");
    expect(P("I01\n."), "True");
    expect(P("I0\n."), "0");
    expect(P("I1\n."), "1");
    expect(P("L12L\n."), "12");
    expect(P("L-7\n."), "-7");
    expect(P("I9223372036854775807\n."), "9223372036854775807");
    expect(P("L-9223372036854775808L\n."), "-9223372036854775808");
    expect(P("L9223372036854775808L\n."), "9223372036854775808L");
    expect(P("L-9223372036854775809L\n."), "-9223372036854775809L");
    expect(P("N."), "None");
    expect(P("\210."), "True");
    expect(P("\211."), "False");
    static const char *const none[] = {"I\n.",    "I-\n.",    "IL\n.", "I1x\n.",
                                       "L1.5\n.", "I0x10\n.", "I 1\n."};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        refused(none[i], strlen(none[i]), TC_INVALID, "a number that is none");
}

/* A sign that says nothing is no digit; only INT has truth values. */
Test(pickle, text_numbers_are_as_python_reads_them) {
    expect(P("I+99999999999999999999\n."), "99999999999999999999L");
    expect(P("L+99999999999999999999L\n."), "99999999999999999999L");
    expect(P("L00\n."), "0");
}

Test(pickle, longs_of_known_value) {
    expect(P("\212\0."), "0");
    expect(P("\212\1\377."), "-1");
    expect(P("\212\2\377\0."), "255");
    expect(P("\213\2\0\0\0\0\377."), "-256");
    expect(P("\212\10\0\0\0\0\0\0\0\200."), "-9223372036854775808");
    expect(P("\212\10\377\377\377\377\377\377\377\177."), "9223372036854775807");
    /* Nine bytes may still be a number of 64 bits. */
    expect(P("\212\11\5\0\0\0\0\0\0\0\0."), "5");
    expect(P("\212\11\377\377\377\377\377\377\377\377\377."), "-1");
    expect(P("\212\11\0\0\0\0\0\0\0\200\377."), "-9223372036854775808");
    expect(P("\212\11\0\0\0\0\0\0\0\200\0."), "9223372036854775808L");
    expect(P("\212\11\377\377\377\377\377\377\377\177\377."), "-9223372036854775809L");
    expect(P("\212\11\0\0\0\0\0\0\0\0\1."), "18446744073709551616L");
    expect(P("\212\11\0\0\0\0\0\0\0\0\377."), "-18446744073709551616L");
    expect(P("\212\11\377\377\377\377\377\377\377\377\177."), "2361183241434822606847L");
    expect(P("\212\11\0\0\0\0\0\0\0\0\200."), "-2361183241434822606848L");
    /* Torch's magic number; and ±10^27, whose groups of digits are all zero. */
    expect(P("\212\12\154\374\234\106\371\40\152\250\120\31."), "119547037146038801333356L");
    expect(P("\212\14\0\0\0\350\74\200\320\237\74\56\73\3."), "1000000000000000000000000000L");
    expect(P("\212\14\0\0\0\30\303\177\57\140\303\321\304\374."), "-1000000000000000000000000000L");
    refused(P("\213\377\377\377\377."), TC_INVALID, "negative length");
    refused(P("\213\1\0\0\200."), TC_INVALID, "negative length");
    refused(P("\212\3\1\2"), TC_INVALID, "cut short");
}

/* What decimal digits, or two's complement, are modulo a prime. */
static uint64_t digits_modulo(struct tc_text digits, uint64_t prime) {
    bool negative = digits.bytes[0] == '-';
    uint64_t value = 0;
    for (size_t i = negative; i < digits.length; i++)
        value = (value * 10 + (uint64_t)(digits.bytes[i] - '0')) % prime;
    return negative && value ? prime - value : value;
}

static uint64_t bytes_modulo(const unsigned char *bytes, size_t length, uint64_t prime) {
    uint64_t value = 0;
    uint64_t power = 1;
    for (size_t i = 0; i < length; i++) {
        value = (value + bytes[i] * power) % prime;
        power = power * 256 % prime;
    }
    return bytes[length - 1] & 0x80 ? (value + prime - power) % prime : value;
}

Test(pickle, longs_of_every_length) {
    static const uint64_t primes[] = {1000000007, 998244353, 2147483647};
    unsigned char bytes[5 + 1024 + 1] = {0213};
    uint32_t state = 7;
    for (size_t length = 9; length <= 1024; length++) {
        bytes[1] = (unsigned char)(length & 0xFF);
        bytes[2] = (unsigned char)(length >> 8);
        for (size_t i = 0; i < length; i++)
            bytes[5 + i] = (unsigned char)((state = state * 1664525 + 1013904223) >> 24);
        bytes[4 + length] = length % 2 ? 0x81 : 0x7E; /* of either sign */
        bytes[5 + length] = '.';
        struct run run;
        run_begin(&run, bytes, length + 6, false);
        cr_assert(pickle_load(&run.pickle, &run.root), "%zu bytes: %s", length, run.error.message);
        cr_assert_eq(run.root->kind, PICKLE_LONG);
        cr_assert_eq(run.root->text[0] == '-', length % 2);
        size_t sign = length % 2;
        cr_assert_neq(run.root->text[sign], '0');
        const unsigned char *top = bytes + 3 + length;
        double high = fabs((double)(int16_t)(top[1] << 8 | top[0]));
        double digits = floor(log10(high) + 8 * (double)(length - 2) * log10(2)) + 1;
        cr_assert_eq((double)(run.root->length - sign), digits, "%zu bytes", length);
        for (size_t p = 0; p < 3; p++)
            cr_assert_eq(digits_modulo(pickle_text(run.root), primes[p]),
                         bytes_modulo(bytes + 5, length, primes[p]), "%zu bytes", length);
        run_end(&run);
    }
    /* -2^8191, the longest: 2,466 digits. */
    memset(bytes + 5, 0, 1023);
    bytes[5 + 1023] = 0x80;
    struct run run;
    run_begin(&run, bytes, sizeof bytes, false);
    cr_assert(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.root->length, 2467);
    cr_assert_arr_eq(run.root->text, "-54537406780970796", 18);
    cr_assert_str_eq(run.root->text + 2467 - 15, "832737857896448");
    run_end(&run);
}

Test(pickle, a_number_has_1024_bytes_at_most) {
    unsigned char bytes[5 + 1025 + 1] = {0213, 1, 4};
    bytes[sizeof bytes - 1] = '.';
    refused(bytes, sizeof bytes, TC_UNSAFE, "digits in a number");
    char digits[5000] = "I";
    memset(digits + 1, '1', sizeof digits - 3);
    memcpy(digits + sizeof digits - 2, "\n.", 2);
    refused(digits, sizeof digits, TC_UNSAFE, "lines");
}

Test(pickle, floats) {
    expect(P("G?\360\0\0\0\0\0\0."), "1f");
    expect(P("G\300\4\0\0\0\0\0\0."), "-2.5f");
    expect(P("G\177\360\0\0\0\0\0\0."), "inff");
    expect(P("G\0\0\0\0\0\0\0\1."), "4.9406564584124654e-324f");
    expect(P("F2.5\n."), "2.5f");
    expect(P("F-1e300\n."), "-1.0000000000000001e+300f");
    expect(P("Finf\n."), "inff");
    expect(P("F-inf\n."), "-inff");
    expect(P("F7\n."), "7f");
    static const char *const none[] = {"F\n.", "F1.5x\n.", "F0x1p3\n.", "F 1\n.", "F1,5\n."};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        refused(none[i], strlen(none[i]), TC_INVALID, "a number that is none");
    refused(P("F1\0\n."), TC_INVALID, "a number that is none");
}

/* Text and bytes */

Test(pickle, text_and_bytes) {
    expect(P("X\3\0\0\0a\303\244."), "'a\\xc3\\xa4'");
    expect(P("\214\2ab."), "'ab'");
    expect(P("\215\2\0\0\0\0\0\0\0ab."), "'ab'");
    expect(P("X\0\0\0\0."), "''");
    expect(P("C\2\0\377."), "b'\\x00\\xff'");
    expect(P("B\1\0\0\0a."), "b'a'");
    expect(P("\216\1\0\0\0\0\0\0\0a."), "b'a'");
    expect(P("\226\1\0\0\0\0\0\0\0a."), "b'a'");
    /* Python 2's strings are text where they can be. */
    expect(P("U\2ab."), "s'ab'");
    expect(P("T\2\0\0\0ab."), "s'ab'");
    expect(P("U\2\377\1."), "b'\\xff\\x01'");
    refused(P("X\1\0\0\0\377."), TC_INVALID, "not valid UTF-8");
    refused(P("T\0\0\0\200."), TC_INVALID, "negative length");
    refused(P("\215\0\0\0\0\0\0\0\200."), TC_INVALID, "63 bits");
    refused(P("\216\377\377\377\377\377\377\377\377."), TC_INVALID, "63 bits");
    refused(P("X\5\0\0\0ab."), TC_INVALID, "cut short");
    refused(P("B\377\377\377\377ab."), TC_INVALID, "cut short");
}

Test(pickle, escapes_of_protocol_0) {
    expect(P("S'abc'\n."), "s'abc'");
    expect(P("S\"it's\"\n."), "s'it\\x27s'");
    expect(P("S''\n."), "s''");
    expect(P("S'\\\\ \\' \\n\\t\\r\\a\\b\\f\\v'\n."),
           "s'\\x5c \\x27 \\x0a\\x09\\x0d\\x07\\x08\\x0c\\x0b'");
    expect(P("S'\\x41\\101\\0\\78'\n."), "s'AA\\x00\\x078'");
    expect(P("S'\\xff'\n."), "b'\\xff'");
    expect(P("S'\\q'\n."), "s'\\x5cq'"); /* no escape: it stays */
    expect(P("Vabc\n."), "'abc'");
    expect(P("V\\u00e4\\U0001F600\n."), "'\\xc3\\xa4\\xf0\\x9f\\x98\\x80'");
    expect(P("V\344\n."), "'\\xc3\\xa4'"); /* Latin-1 */
    expect(P("V\\u000a\\u005c\n."), "'\\x0a\\x5c'");
    expect(P("V\\n\n."), "'\\x5cn'");
    static const char *const unquoted[] = {"Sabc\n.", "S'abc\n.", "S'\n.", "S\n.", "S'abc\"\n."};
    for (size_t i = 0; i < sizeof unquoted / sizeof *unquoted; i++)
        refused(unquoted[i], strlen(unquoted[i]), TC_INVALID, "without quotes");
    refused(P("S'\\x4'\n."), TC_INVALID, "inside an escape");
    refused(P("S'\\'\n."), TC_INVALID, "inside an escape");
    refused(P("V\\u12\n."), TC_INVALID, "broken escape");
    refused(P("V\\U00110000\n."), TC_INVALID, "broken escape");
    refused(P("Vabc"), TC_INVALID, "cut short");
}

/* Bytes over 4 KiB stay where they are, and don't count against the limit. */
Test(pickle, long_bytes_stay_in_the_file) {
    static char bytes[5 + 5000 + 1] = "B\210\23";
    memset(bytes + 5, 'x', 5000);
    bytes[5 + 4999] = 'y';
    bytes[5 + 5000] = '.';
    limits.pickle = 100;
    for (int file = 0; file < 2; file++) {
        struct run run;
        run_begin(&run, bytes, sizeof bytes, file);
        cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
        cr_assert_eq(run.root->kind, PICKLE_BYTES);
        cr_assert_eq(run.root->length, 5000);
        cr_assert_eq(run.root->offset, 5);
        cr_assert_eq(run.root->text, file ? NULL : bytes + 5);
        cr_assert_eq(run.pickle.own_budget.text, 6);
        run_end(&run);
    }
    bytes[1] = 0;
    bytes[2] = 16; /* 4,096 are taken, and count */
    bytes[5 + 4096] = '.';
    refused(bytes, 5 + 4097, TC_UNSAFE, "longer than 100 bytes");
    limits.pickle = 5000;
    struct run run;
    run_begin(&run, bytes, 5 + 4097, true);
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    cr_assert(run.root->text && run.root->text[0] == 'x');
    run_end(&run);
}

/* Text longer than the window, and lines across its edge. */
Test(pickle, text_longer_than_the_window) {
    size_t length = 200000;
    char *bytes = malloc(length + 20);
    memcpy(bytes, "]X\100\15\3\0", 6);
    memset(bytes + 6, 'a', length);
    bytes[6 + length - 1] = 'z';
    memcpy(bytes + 6 + length, "aVend\na.", 8);
    for (int file = 0; file < 2; file++) {
        struct run run;
        run_begin(&run, bytes, length + 14, file);
        cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
        cr_assert_eq(run.root->count, 2);
        cr_assert_eq(run.root->items[0]->length, length);
        cr_assert_arr_eq(run.root->items[0]->text, bytes + 6, length);
        cr_assert(tc_text_equal(pickle_text(run.root->items[1]), TC_TEXT("end")));
        run_end(&run);
    }
    memset(bytes, 'b', length);
    bytes[0] = 'V';
    memcpy(bytes + length, "\n.", 2);
    for (int file = 0; file < 2; file++) {
        struct run run;
        run_begin(&run, bytes, length + 2, file);
        cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
        cr_assert_eq(run.root->length, length - 1);
        cr_assert_arr_eq(run.root->text, bytes + 1, length - 1);
        run_end(&run);
    }
    free(bytes);
}

/* Containers, marks and the memo */

Test(pickle, containers) {
    expect(P("]."), "[]");
    expect(P(")."), "()");
    expect(P("}."), "{}");
    expect(P("\217."), "<>");
    expect(P("(K\1K\2l."), "[1, 2]");
    expect(P("(K\1K\2t."), "(1, 2)");
    expect(P("(K\1K\2d."), "{1: 2}");
    expect(P("(K\1K\2\221."), "<1, 2>");
    expect(P("(l."), "[]");
    expect(P("(t."), "()");
    expect(P("(d."), "{}");
    expect(P("K\1\205."), "(1)");
    expect(P("K\1K\2\206."), "(1, 2)");
    expect(P("K\1K\2K\3\207."), "(1, 2, 3)");
    expect(P("]K\1a."), "[1]");
    expect(P("](K\1K\2e(e."), "[1, 2]");
    expect(P("}K\1K\2s."), "{1: 2}");
    expect(P("}(K\1K\2K\1K\3u."), "{1: 2, 1: 3}");
    expect(P("\217(K\1K\2\220."), "<1, 2>");
    expect(P("K\1K\2\2060K\5."), "5");
    expect(P("K\1\62\206."), "(1, 1)");
}

Test(pickle, items_go_only_where_they_fit) {
    static const struct {
        const char *bytes;
        const char *words;
    } bad[] = {
        {")K\1a.", "no list"},      {"}K\1a.", "no list"},       {"NK\1a.", "no list"},
        {"](K\1\220.", "no set"},   {")(K\1e.", "no list"},      {"}(K\1e.", "no list"},
        {"]K\1K\2s.", "no dict"},   {")K\1K\2s.", "no dict"},    {"](K\1K\2u.", "no dict"},
        {"\217(K\1e.", "no list"},  {"}(K\1\220.", "no set"},    {"K\1K\2K\3s.", "no dict"},
        {"(K\1d.", "without a va"}, {"}(K\1u.", "without a va"}, {"\217K\1a.", "no list"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i].bytes, strlen(bad[i].bytes), TC_INVALID, bad[i].words);
}

Test(pickle, marks_and_pops) {
    expect(P("N(0."), "None"); /* POP takes a mark */
    expect(P("(0N."), "None");
    expect(P("K\1K\0020."), "1");
    expect(P("K\1(K\2K\0031."), "1");
    expect(P("K\1((K\0021K\3t\206."), "(1, (3))");
    static const struct {
        const char *bytes;
        const char *words;
    } bad[] = {
        {"0.", "nothing on the stack"},
        {"2.", "nothing on the stack"},
        {"N(2.", "nothing on the stack"},
        {"N(\205.", "nothing on the stack"},
        {"](K\1(a.", "nothing on the st"},
        {"]K\1(a.", "nothing on the stack"},
        {"N\206.", "nothing on the stack"},
        {"N(K\1\206.", "nothing on the stack"},
        {"N(q\1.", "nothing on the stack"},
        {"q\1.", "nothing on the stack"},
        {"(e.", "nothing on the stack"},
        {"a.", "nothing on the stack"},
        {"N1.", "no mark"},
        {"t.", "no mark"},
        {"l.", "no mark"},
        {"Nd.", "no mark"},
        {"]e.", "no mark"},
        {"}u.", "no mark"},
        {"N(.", "a mark is left"},
        {"NN.", "values are left"},
        {".", "empty stack"},
        {"", "cut short"},
        {"N", "cut short"},
        {"K", "cut short"},
        {"X\1", "cut short"},
        {"cos\nsystem", "cut short"},
        {"\377.", "no such opcode"},
        {"N\231.", "no such opcode"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i].bytes, strlen(bad[i].bytes), TC_INVALID, bad[i].words);
}

Test(pickle, marks_are_bounded) {
    char bytes[1002];
    memset(bytes, '(', sizeof bytes);
    refused(bytes, sizeof bytes, TC_UNSAFE, "nested marks");
    memset(bytes, '0', sizeof bytes); /* a thousand are not too many */
    memset(bytes, '(', 500);
    bytes[1000] = 'N';
    bytes[1001] = '.';
    expect(bytes, sizeof bytes, "None");
}

Test(pickle, the_memo_holds_references) {
    expect(P("]q\0h\0\206."), "([], [])");
    /* The list is changed through one name and seen through the other. */
    expect(P("]q\0000h\0K\1a0h\0\205."), "([1])");
    expect(P("]q\0h\0K\1a\206."), "([1], [1])");
}

Test(pickle, a_later_change_is_seen_through_an_alias) {
    /* (d, [d]), then SETITEMS on d, which both show. */
    expect(P("}q\0]h\0a\206q\0010(h\0(K\1K\2uh\1t."), "({1: 2}, ({1: 2}, [{1: 2}]))");
    /* A list that holds itself. */
    expect(P("]q\0h\0a."), "[[[[[...]]]]]");
    struct run run;
    run_begin(&run, P("]q\0h\0h\0\207."), false);
    cr_assert(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.root->items[0], run.root->items[1]);
    cr_assert_eq(run.root->items[0], run.root->items[2]);
    run_end(&run);
}

Test(pickle, memo_keys) {
    expect(P("K\5q\3000h\300."), "5");
    expect(P("K\5r\0\0\1\0000j\0\0\1\0."), "5");
    expect(P("K\5r\377\377\377\3770j\377\377\377\377."), "5");
    expect(P("K\5p12\n0g12\n."), "5");
    expect(P("K\5p12\n0h\14."), "5"); /* one memo, whatever the opcode */
    expect(P("K\5p4294967295\n0j\377\377\377\377."), "5");
    expect(P("K\1q\0000K\2q\0000h\0."), "2");           /* the last one counts */
    expect(P("K\5\2240K\6\2240h\0h\1\206."), "(5, 6)"); /* MEMOIZE counts */
    expect(P("K\5q\1110K\6\2240h\1h\111\206."), "(6, 5)");
    refused(P("h\0."), TC_INVALID, "not there");
    refused(P("Nq\0000h\1."), TC_INVALID, "not there");
    refused(P("Nr\0\0\1\0000j\1\0\1\0."), TC_INVALID, "not there");
    refused(P("g1\n."), TC_INVALID, "not there");
    refused(P("Np\n."), TC_INVALID, "no number");
    refused(P("Np-1\n."), TC_INVALID, "no number");
    refused(P("Np1x\n."), TC_INVALID, "no number");
    refused(P("Np99999999999\n."), TC_INVALID, "no number");
}

/* A key that is put twice is one entry, also where the second time it goes to
 * the list of keys in sequence: MEMOIZE then has the number that Python's own
 * machine gives. */
Test(pickle, memoize_counts_keys_not_puts) {
    struct tc_buffer bytes = {0};
    tc_buffer_add(&bytes, P("K\1r\54\1\0\0000")); /* 300, far out of sequence */
    for (int key = 0; key < 200; key++)
        tc_buffer_add(&bytes, (char[]){'K', 0, 'q', (char)key, '0'}, 5);
    tc_buffer_add(&bytes, P("K\2r\54\1\0\0000"));
    tc_buffer_add(&bytes, P("K\3\2240")); /* the 202nd key: 201 */
    tc_buffer_add(&bytes, P("h\311j\54\1\0\0\206."));
    expect(bytes.bytes, bytes.length, "(3, 2)");
    tc_buffer_release(&bytes);
}

Test(pickle, a_memo_of_many_keys) {
    struct tc_buffer bytes = {0};
    /* Up and down, near and far: each is found again. */
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t key = i % 3 == 0 ? i : i % 3 == 1 ? 100000 - i : i * 65537;
        tc_buffer_add(&bytes, (char[]){'M', (char)(i & 0xFF), (char)(i >> 8), 'r'}, 4);
        for (int b = 0; b < 4; b++)
            tc_buffer_add(&bytes, &(char){(char)(key >> 8 * b & 0xFF)}, 1);
        tc_buffer_add(&bytes, "0", 1);
    }
    tc_buffer_add(&bytes, "](", 2);
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t key = i % 3 == 0 ? i : i % 3 == 1 ? 100000 - i : i * 65537;
        tc_buffer_add(&bytes, "j", 1);
        for (int b = 0; b < 4; b++)
            tc_buffer_add(&bytes, &(char){(char)(key >> 8 * b & 0xFF)}, 1);
    }
    tc_buffer_add(&bytes, "e.", 2);
    struct run run;
    run_begin(&run, bytes.bytes, bytes.length, true);
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    cr_assert_eq(run.root->count, 3000);
    for (uint32_t i = 0; i < 3000; i++)
        cr_assert_eq(run.root->items[i]->integer, i);
    run_end(&run);
    tc_buffer_release(&bytes);
}

/* Protocols and frames */

Test(pickle, protocols_and_frames) {
    expect(P("\200\2N."), "None");
    expect(P("\200\5N."), "None");
    expect(P("\200\4\225\2\0\0\0\0\0\0\0N."), "None");
    expect(P("\200\4\225\1\0\0\0\0\0\0\0N\225\1\0\0\0\0\0\0\0."), "None");
    expect(P("\200\4\225\1\0\0\0\0\0\0\0N."), "None"); /* STOP outside of a frame */
    refused(P("\200\6N."), TC_UNSUPPORTED, "protocol 6");
    refused(P("\200\377N."), TC_UNSUPPORTED, "protocol 255");
    refused(P("N\200\2."), TC_INVALID, "not at its start");
    refused(P("\200\2\200\2N."), TC_INVALID, "not at its start");
    /* As Python has it: an argument may start where the frame ends. */
    expect(P("\225\1\0\0\0\0\0\0\0K\1."), "1");
    refused(P("\225\2\0\0\0\0\0\0\0M\1\2."), TC_INVALID, "crosses");
    refused(P("\225\4\0\0\0\0\0\0\0X\5\0\0\0abcde."), TC_INVALID, "crosses");
    refused(P("\225\24\0\0\0\0\0\0\0\225\1\0\0\0\0\0\0\0NNNNNNNNNNN."), TC_INVALID,
            "a frame inside a frame");
    refused(P("\225\3\0\0\0\0\0\0\0N."), TC_INVALID, "passes the pickle's end");
    refused(P("\225\3\0\0\0\0\0\0\0N.N"), TC_INVALID, "ends before its frame");
    refused(P("\225\377\377\377\377\377\377\377\377N."), TC_INVALID, "63 bits");
    refused(P("\225\377\377\377\377\377\377\377\177N."), TC_INVALID, "passes the pickle's end");
}

Test(pickle, pickles_in_a_row) {
    struct run run;
    run_begin(&run, P("\200\2K\1q\0.\200\4]\224.K\3.h\0."), true);
    static const char *const expected[] = {"1", "[]", "3"};
    for (size_t i = 0; i < 3; i++) {
        cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
        expect_shown(run.root, expected[i]);
    }
    cr_assert_eq(run.pickle.at, 15);
    /* The memo is a pickle's own. */
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert(strstr(run.error.message, "not there"));
    cr_assert_eq(run.error.offset, 15);
    run_end(&run);
}

Test(pickle, the_limit_is_that_of_all_pickles) {
    limits.pickle = 8;
    struct run run;
    run_begin(&run, P("K\1.K\2.K\3."), true);
    cr_assert(pickle_load(&run.pickle, &run.root));
    cr_assert(pickle_load(&run.pickle, &run.root));
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.error.class, TC_UNSAFE);
    cr_assert_str_eq(run.error.code, "pickle-limit");
    cr_assert(strstr(run.error.hint, "--max-pickle"));
    run_end(&run);
}

Test(pickle, the_arena_bounds_what_is_made) {
    struct run run;
    run_begin(&run, P("](K\1K\2K\3e."), false);
    tc_arena_release(&run.arena);
    tc_arena_init(&run.arena, 64);
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.error.class, TC_UNSAFE);
    cr_assert(strstr(run.error.hint, "--max-memory"));
    run_end(&run);
}

/* Globals and calls */

Test(pickle, globals_are_names) {
    expect(P("ccollections\nOrderedDict\n."), "collections.OrderedDict");
    expect(P("\214\13collections\214\13OrderedDict\223."), "collections.OrderedDict");
    expect(P("c__builtin__\nset\n."), "__builtin__.set");
    expect(P("ctorch\nFloatStorage\n."), "torch.FloatStorage");
    expect(P("ctorch.cuda\nFloatStorage\n."), "torch.cuda.FloatStorage");
    struct run run;
    run_begin(&run,
              P("(ctorch\nfloat8_e5m2\nctorch.cuda\nHalfStorage\nctorch.storage\n"
                "UntypedStorage\nctorch\nper_channel_affine\nctorch\nSize\nt."),
              false);
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    static const struct {
        enum pickle_global global;
        unsigned value;
    } expected[] = {{PICKLE_DTYPE, TC_F8_E5M2},
                    {PICKLE_STORAGE_CLASS, TC_F16},
                    {PICKLE_STORAGE_CLASS, TC_NONE},
                    {PICKLE_QSCHEME, 1},
                    {PICKLE_SIZE, 0}};
    cr_assert_eq(run.root->count, 5);
    for (size_t i = 0; i < 5; i++) {
        cr_assert_eq(run.root->items[i]->global, expected[i].global);
        cr_assert_eq(run.root->items[i]->value, expected[i].value);
    }
    run_end(&run);
    static const char *const unknown[] = {
        "cos\nsystem\n.",
        "cposix\nsystem\n.",
        "c__builtin__\neval\n.",
        "cbuiltins\ngetattr\n.",
        "ctorch\nload\n.",
        "ctorch._utils\n_rebuild_tensor_v9\n.",
        "ctorch._utils\n\n.",
        "c\nset\n.",
        "c__torch__\nModule\n.",
        "ctorch.jit\nScriptModule\n.",
        "ccollections\nOrderedDict.x\n.",
        "ctorch.jit._pickle\nbuild_intlist\n.",
        "ctorch.cuda\nfloat32\n.",
        "ccollections.OrderedDict\n__reduce__\n.",
        "cBuiltins\nset\n.",
    };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        refused(unknown[i], strlen(unknown[i]), TC_UNSAFE, "not on the list");
    refused(P("\214\2os\214\6system\223."), TC_UNSAFE, "\"os.system\"");
    refused(P("\214\2osK\1\223."), TC_INVALID, "no string");
    refused(P("c\377\nset\n."), TC_INVALID, "not valid UTF-8");
    refused(P("\202\1."), TC_UNSAFE, "extension 1");
    refused(P("\203\1\2."), TC_UNSAFE, "extension 513");
    refused(P("\204\1\0\0\0."), TC_UNSAFE, "extension 1");
    char line[5000];
    memset(line, 'a', sizeof line);
    line[0] = 'c';
    memcpy(line + 4990, "\nset\n.", 6);
    refused(line, 4996, TC_UNSAFE, "lines");
}

Test(pickle, calls_that_make_data) {
    expect(P("ccollections\nOrderedDict\n)R."), "{}");
    expect(P("ccollections\nOrderedDict\n]]K\1aK\2aa\205R."), "{1: 2}");
    expect(P("ccollections\nOrderedDict\n(K\1K\2\206l\205R."), "{1: 2}");
    expect(P("ccollections\nCounter\n}K\1K\2s\205R."), "{1: 2}");
    expect(P("ccollections\ndefaultdict\nc__builtin__\nlist\n\205R."), "{}");
    expect(P("ccollections\ndefaultdict\nN}K\1K\2s\206R."), "{1: 2}");
    expect(P("c__builtin__\nset\n]K\1a\205R."), "<1>");
    expect(P("cbuiltins\nfrozenset\n)R."), "<>");
    expect(P("cbuiltins\nlist\n)\201."), "[]");
    expect(P("cbuiltins\ndict\n)R."), "{}");
    expect(P("ctorch\nSize\n(K\2K\3l\205R."), "(2, 3)");
    expect(P("ctorch\nSize\n(K\2K\3t\205R."), "(2, 3)");
    expect(P("c_codecs\nencode\nX\3\0\0\0a\303\277X\6\0\0\0latin1\206R."), "b'a\\xff'");
    expect(P("c_codecs\nencode\nX\0\0\0\0X\6\0\0\0latin1\206R."), "b''");
    expect(P("cbuiltins\nbytearray\n)R."), "b''");
    expect(P("cbuiltins\nbytearray\nC\1a\205R."), "b'a'");
    expect(P("cbuiltins\nbytearray\nX\1\0\0\0aX\7\0\0\0latin-1\206R."), "b'a'");
    /* Others are noted, for whoever reads them. */
    expect(P("cbuiltins\ncomplex\nG?\360\0\0\0\0\0\0G\0\0\0\0\0\0\0\0\206R."),
           "builtins.complex(1f, 0f)");
    expect(P("ctorch\ndevice\nX\3\0\0\0cpu\205R."), "torch.device('cpu')");
    expect(P("ctorch._utils\n_rebuild_parameter\nN\210N\207R."),
           "torch._utils._rebuild_parameter(None, True, None)");
    static const char *const wrong[] = {
        "ccollections\nOrderedDict\nK\1\205R.",
        "ccollections\nOrderedDict\n]K\1a\205R.",
        "ccollections\nOrderedDict\n]]K\1aa\205R.",
        "ccollections\nOrderedDict\n]]\206R.",
        "ccollections\ndefaultdict\nK\1\205R.",
        "cbuiltins\nset\nK\1\205R.",
        "cbuiltins\nset\n]]\206R.",
        "ctorch\nSize\n)R.",
        "ctorch\nSize\nK\1\205R.",
        "ctorch\nSize\n]Na\205R.",
        "c_codecs\nencode\nVa\nVutf8\n\206R.",
        "c_codecs\nencode\nV\\u0100\nVlatin1\n\206R.",
        "c_codecs\nencode\nVa\n\205R.",
        "c_codecs\nencode\nK\1Vlatin1\n\206R.",
        "cbuiltins\nbytearray\nK\1\205R.",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(wrong[i], strlen(wrong[i]), TC_INVALID, "arguments that it does not take");
}

/* Where the real class does something else with its arguments, or its own state, than keep
 * them, the file is refused. */
Test(pickle, data_is_as_the_real_classes_make_it) {
    expect(P("cbuiltins\nlist\n)\201."), "[]");
    refused(P("cbuiltins\nlist\n(K\1\205t\201."), TC_INVALID, "is made with arguments");
    refused(P("ccollections\nOrderedDict\n}\205\201."), TC_INVALID, "is made with arguments");
    expect(P("cbuiltins\nfrozenset\nK\1\205\205\201."), "<1>");
    expect(P("ccollections\ndeque\n(](K\1K\2eK\2tR."), "[1, 2]");
    refused(P("ccollections\ndeque\n(](K\1K\2eK\1tR."), TC_INVALID, "does not take");
    refused(P("ccollections\ndeque\n)K\1\206R(K\1K\2e."), TC_INVALID, "more items");
    refused(P("ccollections\ndeque\n)J\377\377\377\377\206R."), TC_INVALID, "does not take");
    expect(P("ccollections\nCounter\n}K\1K\2s\205R."), "{1: 2}");
    refused(P("ccollections\nCounter\n]K\1K\2\206a\205R."), TC_INVALID, "does not take");
    refused(P("ccollections\ndefaultdict\n)R}b."), TC_UNSAFE, "has none");
    refused(P("cbuiltins\nlist\n\217\205R."), TC_INVALID, "does not take");
    refused(P("cargparse\nNamespace\nN\205R."), TC_INVALID, "does not take");
    refused(P("ccopyreg\n_reconstructor\n(cbuiltins\nset\ncbuiltins\nobject\nNtR."), TC_INVALID,
            "does not take");
    refused(P("ccopyreg\n_reconstructor\n(ccollections\nOrderedDict\n"
              "ccollections\nOrderedDict\n}tR."),
            TC_INVALID, "does not take");
}

Test(pickle, objects_of_protocol_0) {
#define RECONSTRUCTOR "ccopyreg\n_reconstructor\n("
    expect(P(RECONSTRUCTOR "ccollections\nOrderedDict\ncbuiltins\ndict\n}K\1NstR."), "{1: None}");
    expect(P(RECONSTRUCTOR "cargparse\nNamespace\ncbuiltins\nobject\nNtR."),
           "new argparse.Namespace()");
    expect_mode(P(RECONSTRUCTOR "cm\nf\ncbuiltins\nobject\nNtR."), PICKLE_INERT, false,
                "new m.f()");
    expect_mode(P(RECONSTRUCTOR "cm\nf\ncbuiltins\ndict\n}K\1NstR."), PICKLE_INERT, false,
                "new m.f()&{1: None}");
}

/* What Python takes for one key or member is there once, with the last value. */
Test(pickle, equal_keys_are_one) {
    static const struct {
        const char *items; /* two of them */
        size_t length;
        bool equal;
    } pairs[] = {
        {P("K\1\210"), true},
        {P("K\1G\77\360\0\0\0\0\0\0"), true},
        {P("F0.5\nF0.5\n"), true},
        {P("F1e300\nF1e300\n"), true},
        {P("F1e18\nL1000000000000000000\n"), true},
        {P("Fnan\nFnan\n"), false},
        {P("Va\nU\1a"), true},
        {P("Va\nC\1a"), false},
        {P("K\1\205\210\205"), true},
        {P("K\1\205K\2\205"), false},
        {P("X\3\0\0\0\355\240\200X\6\0\0\0\\ud800"), false},
        {P("X\3\0\0\0\355\240\200V\\ud800\n"), true},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char bytes[64] = "(";
        struct run run;
        memcpy(bytes + 1, pairs[i].items, pairs[i].length);
        memcpy(bytes + 1 + pairs[i].length, "\221.", 2);
        run_begin(&run, bytes, pairs[i].length + 3, false);
        cr_assert(pickle_load(&run.pickle, &run.root), "%zu: %s", i, run.error.message);
        cr_assert(pickle_settle(run.root, &run.arena, &run.error));
        cr_expect_eq(run.root->count, pairs[i].equal ? 1 : 2, "pair %zu", i);
        run_end(&run);
    }
}

Test(pickle, paths_are_as_pathlib_shows_them) {
    static const struct {
        const char *parts;
        const char *path;
    } paths[] = {
        {"", "'.'"},           {"V\n", "'.'"},      {"Va\nVb\n", "'a/b'"}, {"Va//b/./\n", "'a/b'"},
        {"Va\nV/b\n", "'/b'"}, {"V//a\n", "'//a'"}, {"V///a\n", "'/a'"},   {"V/\nVa\n", "'/a'"},
        {"V./..\n", "'..'"},
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char bytes[64];
        int length = snprintf(bytes, sizeof bytes, "cpathlib\nPosixPath\n(%stR.", paths[i].parts);
        expect(bytes, (size_t)length, paths[i].path);
    }
    refused(P("cpathlib\nPosixPath\nX\3\0\0\0\355\240\200\205R."), TC_INVALID, "does not take");
}

/* What Python can't hash is no key, and frozen sets are none here either. */
Test(pickle, keys_and_members_have_a_hash) {
    static const char *const keys[] = {"]",
                                       "}",
                                       "\217",
                                       "(\221",
                                       "]\205",
                                       "K\1}\206\205",
                                       "cargparse\nNamespace\n)R",
                                       "cbuiltins\nbytearray\n)R"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char bytes[64];
        int length = snprintf(bytes, sizeof bytes, "}%sNs.", keys[i]);
        refused(bytes, (size_t)length, TC_INVALID, "a dict's key that can be none");
        length = snprintf(bytes, sizeof bytes, "(%s\221.", keys[i]);
        refused(bytes, (size_t)length, TC_INVALID, "a set's member that can be none");
        length = snprintf(bytes, sizeof bytes, "\217(%s\220.", keys[i]);
        refused(bytes, (size_t)length, TC_INVALID, "a set's member that can be none");
    }
    refused(P("(\221(N\220."), TC_INVALID, "frozenset");
    expect(P("}K\1K\2\206Ns."), "{(1, 2): None}");
}

Test(pickle, truth_values_are_no_numbers) {
    refused(P("I+1\n."), TC_INVALID, "a truth value for some");
    refused(P("I-0\n."), TC_INVALID, "a truth value for some");
    expect(P("L+1\n."), "1");
    refused(P("I12L\n."), TC_INVALID, "a number that is none");
    expect(P("I+2\n."), "2");
    expect(P("I-1\n."), "-1");
}

Test(pickle, only_the_word_is_infinite) {
    expect(P("Finf\n."), "inff");
    expect(P("F-Infinity\n."), "-inff");
    refused(P("F1e999\n."), TC_INVALID, "too large");
    refused(P("F-1e999\n."), TC_INVALID, "too large");
    expect(P("F1e-999\n."), "0f");
}

Test(pickle, a_line_ends_in_its_frame) {
    expect(P("\200\4\225\5\0\0\0\0\0\0\0Vid\n."), "'id'");
    refused(P("\200\4\225\3\0\0\0\0\0\0\0Vid\n."), TC_INVALID, "crosses its frame");
}

Test(pickle, nothing_else_is_called) {
    refused(P("]]R."), TC_UNSAFE, "no known function");
    refused(P("K\1)R."), TC_UNSAFE, "no known function");
    refused(P("ccollections\nOrderedDict\n]R."), TC_INVALID, "no tuple");
    refused(P("ccollections\nOrderedDict\nNR."), TC_INVALID, "no tuple");
    refused(P("ctorch\nfloat32\n)R."), TC_UNSAFE, "nothing to call");
    refused(P("ctorch\nFloatStorage\n)R."), TC_UNSAFE, "nothing to call");
    refused(P("cbuiltins\nint\n)R."), TC_UNSAFE, "nothing to call");
    refused(P("(ccollections\nOrderedDict\no."), TC_UNSAFE, "an object of a class");
    refused(P("(icollections\nOrderedDict\n."), TC_UNSAFE, "an object of a class");
    refused(P("(ios\nsystem\n."), TC_UNSAFE, "os.system");
    refused(P("(o."), TC_INVALID, "no class");
    refused(P("ccollections\nOrderedDict\n)}\222."), TC_UNSAFE, "keyword");
    refused(P("Pid\n."), TC_UNSAFE, "persistent id of protocol 0");
    refused(P("NQ."), TC_INVALID, "persistent id");
    refused(P("\227."), TC_UNSUPPORTED, "buffers");
    refused(P("N\230."), TC_UNSUPPORTED, "buffers");
    refused(P("\230."), TC_INVALID, "nothing on the stack");
    refused(P("R."), TC_INVALID, "nothing on the stack");
    refused(P(")R."), TC_INVALID, "nothing on the stack");
    refused(P("ccollections\nOrderedDict\n()R."), TC_INVALID, "nothing on the stack");
}

Test(pickle, state_goes_to_what_has_some) {
    expect(P("cnumpy\ndtype\nVf4\n\205R(K\3V<\ntb."), "numpy.dtype('f4')|(3, '<')");
    expect(P("cnumpy.core.multiarray\n_reconstruct\n)R(K\1tb."),
           "numpy.core.multiarray._reconstruct()|(1)");
    expect(P("ccollections\nOrderedDict\n)R}Va\nK\1sb."), "{}"); /* attributes of a dict */
    refused(P("ccollections\nOrderedDict\n)RN}\206b."), TC_UNSAFE,
            "the state of a value that has none");
    refused(P("}}b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("]}b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("K\1}b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("}K\1b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("ccollections\nOrderedDict\n}b."), TC_UNSAFE, "the state of a value that has none");
    refused(P("ctorch._utils\n_rebuild_parameter\n)R}b."), TC_UNSAFE,
            "the state of a value that has none");
    refused(P("Nb."), TC_INVALID, "nothing on the stack");
}

Test(pickle, inert_objects_hold_what_is_put_into_them) {
    static const struct {
        const char *bytes;
        const char *expected;
    } cases[] = {
        {"cmy\nNet\n.", "my.Net"},
        {"cmy\nNet\n)R.", "new my.Net()"},
        {"cmy\nNet\n)\201.", "new my.Net()"},
        {"cmy\nNet\nK\1\205\201}Va\nK\2sb.", "new my.Net(1)|{'a': 2}"},
        {"cmy\nList\n)\201K\1a.", "new my.List()&[1]"},
        {"cmy\nList\n)\201(K\1K\2e.", "new my.List()&[1, 2]"},
        {"cmy\nDict\n)\201K\1K\2s(K\3K\4u.", "new my.Dict()&{1: 2, 3: 4}"},
        {"cmy\nSet\n)\201(K\1\220.", "new my.Set()&<1>"},
        {"cmy\nNet\n)}\222.", "new my.Net({})"},
        {"(imy\nNet\n.", "new my.Net()"},
        {"(K\1imy\nNet\n.", "new my.Net(1)"},
        {"(cmy\nNet\nK\1o.", "new my.Net(1)"},
        {"ctorch\nfloat32\n)R.", "new torch.float32()"},
        {"ccollections\nOrderedDict\n)R.", "{}"},
        {"ctorch._utils\n_rebuild_nested_tensor\n)R.", "new torch._utils._rebuild_nested_tensor()"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_mode(cases[i].bytes, strlen(cases[i].bytes), PICKLE_INERT, false, cases[i].expected);
    refused_mode(P("cmy\nList\n)\201K\1aK\1K\2s."), PICKLE_INERT, TC_INVALID, "no dict");
    refused_mode(P("cmy\nNet\nK\1a."), PICKLE_INERT, TC_INVALID, "no list");
}

Test(pickle, a_scan_goes_on) {
    static const struct {
        const char *bytes;
        const char *expected;
    } cases[] = {
        {"cos\nsystem\nVls\n\205R.", "new os.system('ls')"},
        {"\202\1.", "copyreg.extension"},
        {"cmy\nname\n)RVx\n\223.", "?.?"}, /* a name that only running it would tell */
        {"Pid\n.", "#0"},
        {"NQ.", "#0"},
        {"\227.", "b''"},
        {"N\230.", "None"},
        {"]}b.", "[]"},
        {"cos\nsystem\n)R)R.", "new new os.system()()"},
        {"h\1.", "'?'"}, /* a memo entry that is not there; what comes behind is told */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_mode(cases[i].bytes, strlen(cases[i].bytes), PICKLE_SCAN, false, cases[i].expected);
    refused_mode(P("N"), PICKLE_SCAN, TC_INVALID, "cut short");
    refused_mode(P("]K\1K\2s."), PICKLE_SCAN, TC_INVALID, "no dict");
    refused_mode(P("K\1K\2\223."), PICKLE_SCAN, TC_INVALID, "no string");
}

/* Python's strings may have surrogates by themselves, and write them as if they
 * were characters. */
Test(pickle, lone_surrogates_are_escaped_and_said) {
    static const struct {
        const char *bytes;
        const char *text;
    } cases[] = {{"X\5\0\0\0a\355\240\200b.", "a\\ud800b"},
                 {"\214\6\355\240\275\355\270\200.", "\\ud83d\\ude00"},
                 {"Va\\udfff\n.", "a\\udfff"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        size_t length = i == 0 ? 11 : strlen(cases[i].bytes);
        run_begin(&run, cases[i].bytes, length, false);
        cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
        cr_assert_eq(run.root->kind, PICKLE_TEXT);
        cr_assert(run.root->surrogates);
        cr_assert(tc_text_equal(pickle_text(run.root), tc_text_of(cases[i].text)), "%s",
                  run.root->text);
        run_end(&run);
    }
    expect(P("V\\\\ud800\n."), "'\\x5c\\x5cud800'"); /* escaped: no surrogate */
    refused(P("X\2\0\0\0\355\240."), TC_INVALID, "not valid UTF-8");
    refused(P("X\3\0\0\0\355\240A."), TC_INVALID, "not valid UTF-8");
}

Test(pickle, classes_of_torchscript) {
    expect_mode(P("c__torch__.a.b\nNet\n)\201}Vx\nK\1sb."), PICKLE_STRICT, true,
                "new __torch__.a.b.Net()|{'x': 1}");
    expect_mode(P("ctorch.jit._pickle\nbuild_intlist\n]K\1a\205R."), PICKLE_STRICT, true, "[1]");
    expect_mode(P("ctorch.jit._pickle\nrestore_type_tag\n}VDict\n\206R."), PICKLE_STRICT, true,
                "{}");
    struct run run;
    run_begin(&run, P("c__torch__\nNet\n)R."), false);
    run.pickle.script = true;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.error.class, TC_UNSAFE);
    cr_assert(strstr(run.error.message, "calls a class of TorchScript"), "%s", run.error.message);
    run_end(&run);
    run_begin(&run, P("c__torch__x\nNet\n."), false);
    run.pickle.script = true;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.error.class, TC_UNSAFE);
    run_end(&run);
}

/* Callbacks */

struct seen {
    struct tc_buffer text;
    bool refuse;
};

static bool see_global(void *context, const struct pickle_node *global, struct tc_error *error) {
    struct seen *seen = context;
    show(&seen->text, global, 0);
    tc_buffer_addf(&seen->text, "@%llu\n", (unsigned long long)global->at);
    return !seen->refuse || tc_fail(error, TC_INVALID, "test", "no global is wanted");
}

static bool see_call(void *context, const struct pickle_node *callable,
                     const struct pickle_node *arguments, uint64_t at, struct tc_error *error) {
    struct seen *seen = context;
    show(&seen->text, callable, 0);
    show(&seen->text, arguments, 0);
    tc_buffer_addf(&seen->text, "@%llu\n", (unsigned long long)at);
    return !seen->refuse || tc_fail(error, TC_INVALID, "test", "no call is wanted");
}

static bool see_id(void *context, const struct pickle_node *id, struct pickle_node **node,
                   struct tc_error *error) {
    struct seen *seen = context;
    show(&seen->text, id, 0);
    (*node)->index = 7;
    return !seen->refuse || tc_fail(error, TC_INVALID, "test", "no id is wanted");
}

Test(pickle, callbacks_see_names_and_calls) {
    static const char bytes[] = "cos\nsystem\nVls\n\205R0\214\2my\214\3Net\223)\201.";
    struct seen seen = {0};
    struct run run;
    run_begin(&run, bytes, sizeof bytes - 1, true);
    run.pickle.mode = PICKLE_INERT;
    run.pickle.context = &seen;
    run.pickle.on_global = see_global;
    run.pickle.on_call = see_call;
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    tc_buffer_add(&seen.text, "", 1);
    cr_assert_str_eq(seen.text.bytes, "os.system@0\nos.system('ls')@16\nmy.Net@27\nmy.Net()@29\n");
    tc_buffer_release(&seen.text);
    run_end(&run);
}

/* What is refused is seen first: a scan and a refusal tell the same names. */
Test(pickle, callbacks_come_before_refusals) {
    struct seen seen = {0};
    struct run run;
    run_begin(&run, P("cos\nsystem\n."), false);
    run.pickle.context = &seen;
    run.pickle.on_global = see_global;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.error.class, TC_UNSAFE);
    tc_buffer_add(&seen.text, "", 1);
    cr_assert_str_eq(seen.text.bytes, "os.system@0\n");
    tc_buffer_release(&seen.text);
    run_end(&run);
}

Test(pickle, a_callback_can_refuse) {
    static const struct {
        const char *bytes;
        const char *message;
    } cases[] = {{"ctorch\nfloat32\n.", "no global is wanted"},
                 {"]]R.", "no call is wanted"},
                 {"NQ.", "no id is wanted"}};
    for (size_t i = 0; i < 3; i++) {
        struct seen seen = {.refuse = true};
        struct run run;
        run_begin(&run, cases[i].bytes, strlen(cases[i].bytes), true);
        run.pickle.context = &seen;
        run.pickle.on_global = see_global;
        run.pickle.on_call = see_call;
        run.pickle.persistent = see_id;
        cr_assert_not(pickle_load(&run.pickle, &run.root));
        cr_assert_str_eq(run.error.message, cases[i].message);
        tc_buffer_release(&seen.text);
        run_end(&run);
    }
}

Test(pickle, a_persistent_id_becomes_what_the_callback_makes) {
    struct seen seen = {0};
    struct run run;
    run_begin(&run, P("(Va\nK\1tQq\0h\0\206."), false);
    run.pickle.context = &seen;
    run.pickle.persistent = see_id;
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    expect_shown(run.root, "(#7, #7)");
    tc_buffer_add(&seen.text, "", 1);
    cr_assert_str_eq(seen.text.bytes, "('a', 1)");
    tc_buffer_release(&seen.text);
    run_end(&run);
}

/* Every prefix of a pickle that has all kinds of opcodes is cut short, and no
 * byte of it is read that is not there. */
Test(pickle, cut_anywhere_it_is_invalid) {
    static const char bytes[] =
        "\200\4\225\167\0\0\0\0\0\0\0(K\1M\1\2J\1\0\0\0\212\1\5\213\1\0\0\0\5G?\360\0\0\0\0\0\0"
        "X\1\0\0\0a\214\1a\215\1\0\0\0\0\0\0\0aC\1aB\1\0\0\0aU\1aT\1\0\0\0aI1\nL1\nF1\nS'a'\nVa\n"
        "ctorch\nSize\nq\1r\2\0\0\0p3\nh\1j\1\0\0\0g1\n\224t.";
    char copy[sizeof bytes];
    memcpy(copy, bytes, sizeof bytes);
    copy[3] = (char)(sizeof bytes - 1 - 11);
    expect(copy, sizeof bytes - 1,
           "(1, 513, 1, 5, 5, 1f, 'a', 'a', 'a', b'a', b'a', s'a', s'a', 1, 1, 1f, s'a', 'a', "
           "torch.Size, torch.Size, torch.Size, torch.Size)");
    for (size_t length = 0; length < sizeof bytes - 1; length++) {
        char *cut = malloc(length + 1); /* its end is watched by ASan */
        char *exact = realloc(cut, length ? length : 1);
        memcpy(exact, copy, length);
        if (length >= 11)
            exact[3] = (char)(length - 11);
        refused(exact, length, TC_INVALID, length < 11 ? "" : "cut short");
        free(exact);
    }
}

/* A scan goes on where one of Python's machines does. What it finds is told to
 * these. */

static bool see_misuse(void *context, const char *what, struct tc_text name, uint64_t at,
                       struct tc_error *error) {
    struct seen *seen = context;
    tc_buffer_addf(&seen->text, "%s: %.*s@%llu\n", what, (int)name.length, name.bytes,
                   (unsigned long long)at);
    return !seen->refuse || tc_fail(error, TC_INVALID, "test", "no misuse is wanted");
}

static bool see_name(void *context, const struct pickle_node *global, struct tc_error *error) {
    struct seen *seen = context;
    (void)error;
    tc_buffer_addf(&seen->text, "%.*s ", (int)global->length, global->text);
    return true;
}

static void scan_begin(struct run *run, struct seen *seen, const void *bytes, size_t length,
                       bool file) {
    *seen = (struct seen){0};
    run_begin(run, bytes, length, file);
    run->pickle.mode = PICKLE_SCAN;
    run->pickle.context = seen;
}

static void scan_names(const void *bytes, size_t length, const char *expected) {
    for (int file = 0; file < 2; file++) {
        struct seen seen;
        struct run run;
        scan_begin(&run, &seen, bytes, length, file);
        run.pickle.on_global = see_name;
        pickle_load(&run.pickle, &run.root);
        tc_buffer_add(&seen.text, "", 1);
        cr_assert_str_eq(seen.text.bytes, expected);
        cr_assert_eq(run.pickle.named, expected[0] != 0);
        tc_buffer_release(&seen.text);
        run_end(&run);
    }
}

Test(pickle, a_scan_reads_numbers_as_python_does) {
    static const char *const taken[] = {
        "I0x10\n",  "I 1\n",        "I1_0\n",     "I+1\n",     "I010\n",  "I0b1\n",
        "I1 \n",    "L0x10L\n",     "L1_0L\n",    "L 1L\n",    "F1_0\n",  "F 1\n",
        "FNaN\n",   "F-Infinity\n", "F1e999\n",   "Np+1\n",    "Np 1\n",  "Np1_0\n",
        "Np0007\n", "Np-0\n",       "S'\\777'\n", "V\\\\u1\n", "U\1\377", "\213\1\10\0\0",
    };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct tc_buffer bytes = {0};
        bool longer = taken[i][0] == '\213';
        tc_buffer_add(&bytes, taken[i], longer ? 5 : strlen(taken[i]));
        for (int n = 0; longer && n < 0x801; n++)
            tc_buffer_add(&bytes, "x", 1);
        tc_buffer_add_string(&bytes, "0cm\nn\n.");
        scan_names(bytes.bytes, bytes.length, "m.n ");
        tc_buffer_release(&bytes);
    }
    static const char *const stop[] = {"I1__0\n", "I_1\n",   "I08\n",   "I0x\n",        "I\n",
                                       "I1x\n",   "L010L\n", "F0x1\n",  "F\n",          "Np-1\n",
                                       "Np0x1\n", "S'a\n",   "V\\u1\n", "X\1\0\0\0\377"};
    for (size_t i = 0; i < sizeof stop / sizeof *stop; i++) {
        struct tc_buffer bytes = {0};
        tc_buffer_add(&bytes, stop[i], stop[i][0] == 'X' ? 6 : strlen(stop[i]));
        tc_buffer_add_string(&bytes, "0cm\nn\n.");
        scan_names(bytes.bytes, bytes.length, "");
        tc_buffer_release(&bytes);
    }
    scan_names(P("I\0x\n0cm\nn\n."), "m.n ");
    scan_names(P("I1\0x\n0cm\nn\n."), "m.n ");
}

/* From memory Python's machine passes over a frame's end, from a file it loses
 * the rest of the frame: both readings count. */
Test(pickle, a_scan_reads_frames_in_both_ways) {
    scan_names(P("\225\3\0\0\0\0\0\0\0X\4\0\0\0\0\0cm\nn\n."), "m.n ");
    scan_names(P("\225\3\0\0\0\0\0\0\0cosa\nb\n."), "osa.b a.b ");
    scan_names(P("\225\2\0\0\0\0\0\0\0Ncm\nn\n."), "m.n ");
    scan_names(P("\225\377\0\0\0\0\0\0\0cm\nn\n."), "m.n ");
    scan_names(P("\225\13\0\0\0\0\0\0\0\225\2\0\0\0\0\0\0\0NNcm\nn\n."), "m.n ");
    struct run run;
    struct seen seen;
    scan_begin(&run, &seen, P("\225\4\0\0\0\0\0\0\0N.NNN."), true);
    cr_assert(pickle_load(&run.pickle, &run.root));
    cr_assert_eq(run.pickle.at, 11);
    cr_assert_eq(run.pickle.also_at, 13); /* a file's reader is behind the frame */
    cr_assert(run.pickle.tolerated);
    run_end(&run);
}

Test(pickle, a_scan_takes_what_a_file_ends_with_for_a_line) {
    scan_names(P("cos\nsystemX"), "os.system ");
    scan_names(P("cos\n"), "");
    scan_names(P("\200\7cm\nn\n."), "m.n "); /* an odd protocol */
    scan_names(P("N\200\2cm\nn\n."), "m.n ");
}

/* pickle.py takes the end of the file for a name, too, and imports the module. */
Test(pickle, a_scan_of_a_file_takes_a_missing_line_for_an_empty_one) {
    static const char *const ends[] = {"Ncos\n", "Ncosx", "(ios\n"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int whole = 0; whole < 2; whole++) {
            struct seen seen;
            struct run run;
            scan_begin(&run, &seen, ends[i], strlen(ends[i]), false);
            run.pickle.on_global = see_name;
            run.pickle.whole = whole;
            cr_assert_not(pickle_load(&run.pickle, &run.root));
            tc_buffer_add(&seen.text, "", 1);
            cr_expect_str_eq(seen.text.bytes, whole ? "os. " : "", "%s", ends[i]);
            tc_buffer_release(&seen.text);
            run_end(&run);
        }
}

/* Python's lists take truth values and slices as indices. */
Test(pickle, a_scan_sets_items_of_lists) {
    scan_names(P("]Na\211Nscm\nn\n."), "m.n ");
    scan_names(P("]cm\nf\n)RNscm\nn\n."), "m.f m.n ");
    scan_names(P("]Na\210Nscm\nn\n."), "");
    /* 2,000 bytes that are zero are 0. */
    char longer[2100] = "]Na\213\320\7";
    static const char rest[] = "Nscm\nn\n.";
    memcpy(longer + 8 + 2000, rest, sizeof rest - 1);
    scan_names(longer, 8 + 2000 + sizeof rest - 1, "m.n ");
}

Test(pickle, an_unpickler_that_goes_on_keeps_its_memo) {
    struct seen seen;
    struct run run;
    scan_begin(&run, &seen, P("Vm\nq\0.h\0Vn\n\223."), false);
    run.pickle.on_global = see_name;
    cr_assert(pickle_load(&run.pickle, &run.root));
    cr_assert(pickle_load(&run.pickle, &run.root));
    tc_buffer_add(&seen.text, "", 1);
    cr_assert_str_eq(seen.text.bytes, "m.n ");
    cr_assert(run.pickle.tolerated);
    tc_buffer_release(&seen.text);
    run_end(&run);
}

#define STORAGE "(Vstorage\nctorch\nFloatStorage\nVk\nVcpu\nK\1tQ"
#define SIZES "K\0K\1\205K\1\205"
#define HOOKS "ccollections\nOrderedDict\n)R"
#define TENSOR "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE SIZES "\211" HOOKS "tR"
#define DTYPE(descr, state) "cnumpy\ndtype\n(V" descr "\n\211\210tR(" state "tb"
#define F4 DTYPE("f4", "K\3V<\nNNNJ\377\377\377\377J\377\377\377\377K\0")
#define OBJECTS DTYPE("O8", "K\3V|\nNNNJ\377\377\377\377J\377\377\377\377K\77")
#define RECONSTRUCT "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\205C\1btR"

/* What honest files do with the names of the list. */
Test(pickle, honest_use_is_no_misuse) {
    static const struct {
        const char *bytes;
        size_t length;
    } honest[] = {
        {P(TENSOR ".")},
        {P("ctorch._utils\n_rebuild_parameter\n(" TENSOR "\210" HOOKS "tR.")},
        {P("ctorch._utils\n_rebuild_parameter_with_state\n(" TENSOR "\210" HOOKS
           "}Vmine\nK\1stR.")},
        {P("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
           "ctorch.nn.parameter\nParameter\n(" STORAGE SIZES "\211" HOOKS "t}tR.")},
        {P(RECONSTRUCT "(K\1K\1\205" F4 "\211C\4abcdtb.")},
        {P(RECONSTRUCT "(K\1K\1\205" OBJECTS "\211]Natb.")},
        {P("cnumpy.core.multiarray\nscalar\n" F4 "C\4abcd\206R.")},
        {P(DTYPE("V4", "K\3V|\nN(Va\nt}Va\n(" F4 "K\0tsK\4K\1K\20") ".")},
        {P(DTYPE("U3", "K\3V<\nNNNK\14K\4K\10") ".")},
        {P("ccollections\ndefaultdict\ncbuiltins\nlist\n\205R.")},
        {P(HOOKS "}V_metadata\n}sb.")},
        {P("cargparse\nNamespace\n)\201}Vlr\nK\1sb.")},
        {P("ccopy_reg\n_reconstructor\n(cargparse\nNamespace\nc__builtin__\nobject\nNtR}Va\nNsb.")},
        {P("ctypes\nSimpleNamespace\n)R}Va\nNsb.")},
        {P("clightning.fabric.utilities.data\nAttributeDict\n)\201(Vlr\nK\1u.")},
        {P("ccollections\ndeque\n]K\2\206R(K\1K\2e.")},
        {P("cpathlib\nPosixPath\n(V/\nVa\ntR.")},
        {P("ctorch.torch_version\nTorchVersion\nV2.1\n\205\201.")},
    };
    for (size_t i = 0; i < sizeof honest / sizeof *honest; i++) {
        struct seen seen;
        struct run run;
        scan_begin(&run, &seen, honest[i].bytes, honest[i].length, false);
        run.pickle.on_misuse = see_misuse;
        cr_assert(pickle_load(&run.pickle, &run.root), "%zu: %s", i, run.error.message);
        cr_assert_eq(seen.text.length, 0, "%zu: %.*s", i, (int)seen.text.length, seen.text.bytes);
        cr_assert_null(run.pickle.tolerated);
        run_end(&run);
    }
}

Test(pickle, other_use_is_misuse) {
    static const struct {
        const char *bytes;
        size_t length;
        const char *words;
    } wrong[] = {
        {P("ccollections\nOrderedDict\n}Va\nK\1sb."), "state of a value that has none"},
        {P("ctorch._utils\n_rebuild_tensor_v2\nN}\206b."), "state of a value that has none"},
        {P("}}b."), "state of a value that has none"},
        {P(TENSOR "}b."), "state of a value that has none"},
        {P(HOOKS "}V__setstate__\nNsb."), "names that Python calls"},
        {P(HOOKS "}V__reduce_ex__\nNsb."), "names that Python calls"},
        {P(HOOKS "}Vextend\nNsb."), "names that Python calls"},
        {P(HOOKS "N}\206b."), "names that Python calls"},
        {P("cargparse\nNamespace\n)\201}V__del__\nNsb."), "names that Python calls"},
        {P("clightning.fabric.utilities.data\nAttributeDict\n)\201V__setstate__\nNs."),
         "a name that Python calls"},
        {P("ctorch._utils\n_rebuild_tensor_v2\n)R."), "arguments that it does not take"},
        {P("ctorch._utils\n_rebuild_tensor_v2\n]R."), "arguments that are no tuple"},
        {P("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE SIZES "\211}K\1NstR."),
         "arguments that it does not take"},
        {P("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE SIZES "\211}q\0tRh\0K\1Ns."),
         "hooks of a tensor are added later"},
        {P("ctorch._tensor\n_rebuild_from_type_v2\n(c_codecs\nencode\nctorch\nTensor\n)}tR."),
         "arguments that it does not take"},
        {P("c_codecs\nencode\nVa\nVrot13\n\206R."), "arguments that it does not take"},
        {P("cbuiltins\nbytearray\nK\1\205R."), "arguments that it does not take"},
        {P("ccollections\ndefaultdict\ncnumpy\ndtype\n\205R."), "arguments that it does not take"},
        {P("ctorch\nFloatStorage\nK\1\205R."), "arguments that it does not take"},
        {P("ctorch\nfloat32\n)\201."), "what is no class"},
        {P("cnumpy\nndarray\n)\201."), "what is no class"},
        {P("ccollections\nOrderedDict\n)}K\1Ns\222."), "keyword arguments"},
        {P("ccollections\nOrderedDict\nNa."), "items that it does not take"},
        {P(TENSOR "K\1K\2s."), "items that it does not take"},
        {P(TENSOR "(K\1\220."), "items that it does not take"},
        {P("Pid\n."), "not that of a storage"},
        {P("NQ."), "not that of a storage"},
        {P("(Vmodule\nctorch\nTensor\nVf\nVs\ntQ."), "not that of a storage"},
        {P("(Vstorage\ncmy\nStorage\nVk\nVcpu\nK\1tQ."), "not that of a storage"},
        {P("cnumpy\ndtype\n(Vf4,O\n\211\210tR."), "a dtype of no kind"},
        {P(DTYPE("O8", "K\3V|\nNNNJ\377\377\377\377J\377\377\377\377K\0") "."),
         "a state that numpy"},
        {P(DTYPE("f8", "K\3V|\nNNNJ\377\377\377\377J\377\377\377\377K\77") "."),
         "a state that numpy"},
        {P(DTYPE("V8", "K\3V|\nN(Va\nt}Va\n(" OBJECTS "K\0tsK\10K\1K\20") "."),
         "a state that numpy"},
        {P(DTYPE("V4", "K\3V|\nN(Va\nt}Va\n(" F4 "K\2tsK\4K\1K\20") "."), "a state that numpy"},
        {P(DTYPE("V4", "K\3V|\n" F4 "K\2\206NNK\4K\1K\0") "."), "a state that numpy"},
        {P(F4 "(K\3V<\nNNNJ\377\377\377\377J\377\377\377\377K\0tb."), "a state that numpy"},
        {P(RECONSTRUCT "(K\1K\2\205" F4 "\211C\4abcdtb."), "an array has a state"},
        {P(RECONSTRUCT "(K\1K\1\205" OBJECTS "\211C\10abcdefghtb."), "an array has a state"},
        {P("cnumpy.core.multiarray\nscalar\n" OBJECTS "C\1a\206R."),
         "arguments that it does not take"},
        {P("cnumpy.core.multiarray\n_reconstruct\n(ctorch\nTensor\nK\0\205C\1btR."),
         "arguments that it does not take"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct seen seen;
        struct run run;
        scan_begin(&run, &seen, wrong[i].bytes, wrong[i].length, false);
        run.pickle.on_misuse = see_misuse;
        pickle_load(&run.pickle, &run.root);
        tc_buffer_add(&seen.text, "", 1);
        cr_assert(strstr(seen.text.bytes, wrong[i].words), "%zu: \"%s\" is not \"%s\"; %s", i,
                  seen.text.bytes, wrong[i].words, run.error.message);
        tc_buffer_release(&seen.text);
        run_end(&run);
        /* Without anybody to tell it to, it is no clean pickle either. */
        scan_begin(&run, &seen, wrong[i].bytes, wrong[i].length, false);
        bool ok = pickle_load(&run.pickle, &run.root);
        cr_assert(!ok || run.pickle.tolerated, "%zu", i);
        run_end(&run);
    }
}

Test(pickle, plain_containers_are_data) {
    expect(P("ccollections\ndeque\n(K\1K\2lK\5\206R."), "[1, 2]");
    expect(P("cpathlib\nPosixPath\n(V/\nVa\nVb\ntR."), "'/a/b'");
    expect(P("ctorch.torch_version\nTorchVersion\nV2.1\n\205\201."), "'2.1'");
    expect(P("clightning.fabric.utilities.data\nAttributeDict\n)\201Vlr\nK\1s."), "{'lr': 1}");
    expect(P("cargparse\nNamespace\n)\201}Vlr\nK\1sb."), "new argparse.Namespace()|{'lr': 1}");
    expect(P("ccopyreg\n_reconstructor\n(cargparse\nNamespace\ncbuiltins\nobject\nNtR."),
           "new argparse.Namespace()");
    refused(P("ccopyreg\n_reconstructor\n(ctorch\nfloat32\ncbuiltins\nobject\nNtR."), TC_INVALID,
            "arguments that it does not take");
    refused(P("cjoblib.numpy_pickle\nNumpyArrayWrapper\n."), TC_UNSAFE, "not on the list");
    refused(P("ctorch.storage\n_load_from_bytes\n."), TC_UNSAFE, "dangerous");
}

#define WRAPPER                                                                                    \
    "cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\201}(Vsubclass\ncnumpy\nndarray\nVshape\nK\2\205"  \
    "Vorder\nVC\nVdtype\n" F4 "Vnumpy_array_alignment_bytes\nK\20ub"

/* joblib's arrays stand behind their wrapper, in the stream. Any other loader
 * takes them for opcodes. */
Test(pickle, arrays_of_joblib) {
    struct run run;
    run_begin(&run, P("]" WRAPPER "\3\377\377\377abcdefgha."), true);
    run.pickle.joblib = true;
    cr_assert(pickle_load(&run.pickle, &run.root), "%s", run.error.message);
    const struct pickle_node *object = pickle_item(run.root, 0);
    cr_assert_eq(object->kind, PICKLE_OBJECT);
    cr_assert_eq(object->callable->global, PICKLE_JOBLIB_ARRAY);
    cr_assert_eq(object->content->length, 8);
    cr_assert_eq(object->content->offset, run.pickle.end - 10);
    run_end(&run);
    scan_names(P(WRAPPER "\0abcdefgh."),
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype ");
    scan_names(P(WRAPPER "\60cm\nn\nNN."),
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype "
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype m.n ");
    scan_names(P(WRAPPER
                 "Ncm\nn\n..0123456789012345678901234567890123456789012345678901234567890123"
                 "456789012345."),
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype "
               "joblib.numpy_pickle.NumpyArrayWrapper numpy.ndarray numpy.dtype m.n ");
}

Test(pickle, names_that_can_be_imported) {
    static const char *const names[] = {"os.system", "a.b", "_x.Y_1", "torch.nn.Linear",
                                        "m\303\244.n"};
    static const char *const none[] = {"os",    "",       ".a",        "a.",          "a..b",
                                       "1a.b",  "a.1",    "a b.c",     "os\r.system", "a.b\1",
                                       "a-b.c", "\377.a", "\302\200.a"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert(pickle_is_importable(tc_text_of(names[i])), "%s", names[i]);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        cr_assert_not(pickle_is_importable(tc_text_of(none[i])), "%s", none[i]);
}

Test(pickle, names_that_are_dangerous) {
    static const char *const names[] = {"os.system",
                                        "posix.system",
                                        "builtins.eval",
                                        "__builtin__.reduce",
                                        "builtins.getattr",
                                        "torch.os.system",
                                        "numpy.f2py.x",
                                        "subprocess.Popen",
                                        "copy_reg.add_extension",
                                        "StringIO.open",
                                        "functools.partial",
                                        "a.__class__.b",
                                        "?.?",
                                        "collections.OrderedDict.__init__",
                                        "torch.load",
                                        "nt.system"};
    static const char *const others[] = {"builtins.slice",
                                         "builtins.bytearray",
                                         "builtins.range",
                                         "my.Net",
                                         "osmnx.graph",
                                         "collections.OrderedDict",
                                         "__torch__.___torch_mangle_0.Net",
                                         "torch.nn.Linear",
                                         "uuid.UUID",
                                         "datetime.datetime",
                                         "builtins.print",
                                         "system.os"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert(pickle_is_dangerous(tc_text_of(names[i])), "%s", names[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_assert_not(pickle_is_dangerous(tc_text_of(others[i])), "%s", others[i]);
}

/* A budget that several machines share is one. */
Test(pickle, machines_share_a_budget) {
    struct pickle_budget budget = {0};
    limits.pickle = 8;
    for (int i = 0; i < 3; i++) {
        struct run run;
        run_begin(&run, P("K\1."), false);
        run.pickle.budget = &budget;
        cr_assert_eq(pickle_load(&run.pickle, &run.root), i < 2);
        cr_assert_eq(run.error.class, i < 2 ? TC_OK : TC_UNSAFE);
        run_end(&run);
    }
    cr_assert_eq(budget.steps, 6);
    budget = (struct pickle_budget){.items = UINT64_C(64) << 20};
    struct run run;
    run_begin(&run, P("]Na."), false);
    run.pickle.budget = &budget;
    limits.pickle = 100;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_str_eq(run.error.code, "pickle-limit");
    run_end(&run);
}

/* What a machine takes from the system it gives back to the arena's count. */
Test(pickle, memory_of_the_machine_is_charged_and_given_back) {
    struct run run;
    struct tc_buffer bytes = {0};
    for (int i = 0; i < 5000; i++)
        tc_buffer_add(&bytes, "(N\224", 3);
    run_begin(&run, bytes.bytes, bytes.length, false);
    run.pickle.mode = PICKLE_SCAN;
    cr_assert_not(pickle_load(&run.pickle, &run.root));
    cr_assert_geq(run.pickle.charged, 5000 * (8 + 8 + 8));
    uint64_t before = run.arena.used;
    uint64_t charged = run.pickle.charged;
    pickle_release(&run.pickle);
    cr_assert_eq(run.arena.used, before - charged);
    run_end(&run);
    tc_buffer_release(&bytes);
}
