#include <criterion/criterion.h>
#include <string.h>

#include "core/base/fold.h"
#include "core/base/text.h"

static bool meet(const char *a, const char *b) {
    struct tc_buffer one = {0};
    struct tc_buffer other = {0};
    tc_fold(tc_text_of(a), &one);
    tc_fold(tc_text_of(b), &other);
    bool same = one.length == other.length && memcmp(one.bytes, other.bytes, one.length) == 0;
    tc_buffer_release(&one);
    tc_buffer_release(&other);
    return same;
}

Test(fold, case_does_not_count) {
    cr_assert(meet("Weight", "wEIGHT"));
    cr_assert(meet("\u00c9", "\u00e9"));
    cr_assert(meet("STRASSE", "stra\u00dfe"));
    cr_assert(meet("\u03a3", "\u03c2"), "both are a sigma");
    cr_assert(meet("\U00010400", "\U00010428"), "Deseret");
}

Test(fold, composition_does_not_count) {
    cr_assert(meet("\u00e9", "e\u0301"));
    cr_assert(meet("\u1eb7", "a\u0306\u0323"), "two marks, the lower one first");
    cr_assert(meet("a\u0323\u0302", "a\u0302\u0323"), "marks of different classes");
    cr_assert_not(meet("a\u0300\u0301", "a\u0301\u0300"), "marks of one class");
    cr_assert(meet("\ud55c\uae00", "\u1112\u1161\u11ab\u1100\u1173\u11af"), "Hangul");
    cr_assert(meet("\uac00", "\u1100\u1161"), "a syllable without an end");
    cr_assert(meet("\u212b", "\u00e5"), "the sign for angstrom");
}

Test(fold, others_stay_apart) {
    cr_assert_not(meet("a", "b"));
    cr_assert_not(meet("a", "a."));
    cr_assert_not(meet("", "a"));
    cr_assert_not(meet("e", "\u00e9"));
    cr_assert_not(meet("\u0131", "i"), "a dotless i has no dot in any case");
    cr_assert_not(meet("\xff", "\xfe"));
}

Test(fold, many_marks_are_no_trouble) {
    char many[2 * 200 + 2] = "a";
    for (size_t i = 0; i < 200; i++)
        memcpy(many + 1 + 2 * i, i % 2 ? "\u0302" : "\u0323", 2);
    cr_assert(meet(many, many));
}
