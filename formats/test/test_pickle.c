/* The pickle machine by itself: values, containers, the memo, and what bounds them. Calls are in
 * test_pickle_calls.c, and what is told to others in test_pickle_scan.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/test/pickle_run.h"
#include "formats/test/support.h"

TestSuite(pickle, .init = test_folder_make, .fini = test_folder_remove);

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
