#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/tensor/select.h"
#include "core/test/temporary.h"

static struct tc_select chosen;
static struct tc_arena arena;
static struct tc_error error;

static void setup(void) {
    tc_select_init(&chosen);
    tc_arena_init(&arena, 0);
    error = (struct tc_error){0};
}

static void teardown(void) {
    tc_select_release(&chosen);
    tc_arena_release(&arena);
}

TestSuite(select, .init = setup, .fini = teardown);

/* The name a tensor gets, or NULL where it is left out. */
static const char *apply(const char *name) {
    bool taken;
    struct tc_text result;
    cr_assert(tc_select_apply(&chosen, tc_text_of(name), &arena, &taken, &result, &error), "%s",
              error.message);
    return taken ? tc_arena_copy(&arena, result.bytes, result.length, &error) : NULL;
}

Test(select, include_then_exclude) {
    cr_assert_str_eq(apply("a"), "a");
    cr_assert(tc_select_include(&chosen, "^layers\\.", &error));
    cr_assert(tc_select_include(&chosen, "head$", &error));
    cr_assert(tc_select_exclude(&chosen, "bias", &error));
    cr_assert_str_eq(apply("layers.0.weight"), "layers.0.weight");
    cr_assert_str_eq(apply("lm_head"), "lm_head");
    cr_assert_null(apply("layers.0.bias"));
    cr_assert_null(apply("embed"));
}

Test(select, renames_as_sed_does) {
    static const struct {
        const char *rule, *name, *expected;
    } cases[] = {
        {"s/a/b/", "aaa", "baa"},
        {"s/a/b/g", "aaa", "bbb"},
        {"s/A/b/gi", "aAa", "bbb"},
        {"s/(\\d+)\\.(\\w+)/\\2.\\1/", "x.12.w", "x.w.12"},
        {"s/^.*$/[&]/", "name", "[name]"},
        {"s/a/\\&/", "a", "&"},
        {"s#a/b#c/d#", "a/b", "c/d"},
        {"s/a\\/b/c\\/d/", "a/b", "c/d"},
        {"s/x/$1${0}/", "x", "$1${0}"},
        {"s/a/\\\\/", "a", "\\"},
        {"s/none/x/", "name", "name"},
        {"s/(a)|(b)/<\\2>/g", "ab", "<><b>"},
        {"s/\xC3\xA9/e/", "caf\xC3\xA9", "cafe"},
        {"s/a//g", "banana", "bnn"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        teardown();
        setup();
        cr_assert(tc_select_rename(&chosen, cases[i].rule, &error), "%s: %s", cases[i].rule,
                  error.message);
        cr_assert_str_eq(apply(cases[i].name), cases[i].expected, "%s", cases[i].rule);
    }
}

Test(select, bad_rules_are_usage_errors) {
    static const char *const bad[] = {"",       "s",        "s/",       "s/a",
                                      "s/a/b",  "s//b/",    "s/a/b/x",  "y/a/b/",
                                      "s/(/b/", "s/a/b/g/", "s\\a\\b\\"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error = (struct tc_error){0};
        cr_assert_not(tc_select_rename(&chosen, bad[i], &error), "%s", bad[i]);
        cr_assert_eq(error.class, TC_USAGE, "%s", bad[i]);
    }
    error = (struct tc_error){0};
    cr_assert_not(tc_select_include(&chosen, "[", &error));
    cr_assert_eq(error.class, TC_USAGE);
}

Test(select, the_order_of_renaming) {
    char path[TEST_PATH_MAX];
    int fd = test_temporary_file(path);
    const char map[] = "{\"model.a\":\"model.z\",\"q\":\"model.\\u00e9\"}";
    cr_assert_eq(write(fd, map, strlen(map)), (ssize_t)strlen(map));
    close(fd);
    cr_assert(tc_select_map(&chosen, path, &error), "%s", error.message);
    unlink(path);
    cr_assert(tc_select_rename(&chosen, "s/model/net/", &error));
    cr_assert(tc_select_rename(&chosen, "s/net\\.b/model.c/", &error));
    chosen.strip_prefix = TC_TEXT("model.");
    chosen.prefix = TC_TEXT("p/");
    cr_assert_str_eq(apply("model.a"), "p/z", "the map's name is not renamed again");
    cr_assert_str_eq(apply("q"), "p/\xC3\xA9");
    cr_assert_str_eq(apply("model.b"), "p/c", "rules apply in turn");
    cr_assert_str_eq(apply("model.x"), "p/net.x");
}

/* Rows of a tensor that has ten, as Python would slice them; first > end means that an
 * error is expected. */
Test(select, rows) {
    static const struct {
        const char *text;
        bool ok;
        uint64_t first, end;
    } cases[] = {{"2:5", true, 2, 5},
                 {":5", true, 0, 5},
                 {"2:", true, 2, 10},
                 {"7", true, 7, 8},
                 {":", true, 0, 10},
                 {"5:99", true, 5, 10},
                 {"3:3", true, 3, 3},
                 {"-3:", true, 7, 10},
                 {":-3", true, 0, 7},
                 {"-3:-1", true, 7, 9},
                 {"-1", true, 9, 10},
                 {"-10", true, 0, 1},
                 {"-99:", true, 0, 10},
                 {"8:-1", true, 8, 9},
                 {"-4:8", true, 6, 8},
                 {"10", true, 1, 0},
                 {"11:", true, 1, 0},
                 {"-11", true, 1, 0},
                 {"9:-3", true, 1, 0},
                 {"-1:2", true, 1, 0},
                 {"-1:-3", false, 0, 0},
                 {"-0", false, 0, 0},
                 {"--1:", false, 0, 0},
                 {"-:", false, 0, 0},
                 {"+1:", false, 0, 0},
                 {" 1:", false, 0, 0},
                 {"", false, 0, 0},
                 {"a:b", false, 0, 0},
                 {"5:2", false, 0, 0},
                 {"1:2:3", false, 0, 0},
                 {"99999999999999999999", false, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tc_rows rows = {0};
        struct tc_error clipped = {0};
        uint64_t shape[] = {10, 2};
        uint64_t first = 1;
        uint64_t end = 0;
        cr_assert_eq(tc_rows_parse(cases[i].text, &rows), cases[i].ok, "%s", cases[i].text);
        if (!cases[i].ok)
            continue;
        bool ok = tc_rows_clip(&rows, shape, 2, &first, &end, &clipped);
        cr_assert_eq(ok, cases[i].first <= cases[i].end, "%s", cases[i].text);
        if (ok)
            cr_assert(first == cases[i].first && end == cases[i].end, "%s", cases[i].text);
        else
            cr_assert_str_eq(clipped.code, "rows");
    }
    cr_assert(tc_select_rows(&chosen, "a=b=1:2", &error), "names may hold an equals sign");
    cr_assert_not_null(tc_select_find_rows(&chosen, TC_TEXT("a=b")));
    cr_assert_not(tc_select_rows(&chosen, "a=b=3:4", &error));
    cr_assert_eq(error.class, TC_USAGE);
}

/* An expression that would take for ever on a hostile name is cut off. */
Test(select, catastrophic_backtracking_is_bounded, .timeout = 600) {
    bool taken;
    struct tc_text result;
    char name[4096];
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '!';
    cr_assert(tc_select_include(&chosen, "^(a|aa)+$", &error));
    cr_assert_not(tc_select_apply(&chosen, (struct tc_text){name, sizeof name}, &arena, &taken,
                                  &result, &error));
    cr_assert_eq(error.class, TC_UNSAFE);
}

/* The texts of rules that matched nothing; "" behind the last. */
static void expect_unused(const char *const *texts) {
    struct tc_notes notes;
    tc_notes_init(&notes, &arena);
    cr_assert(tc_select_note_unused(&chosen, &notes, &error));
    size_t count = 0;
    for (; texts[count][0]; count++)
        cr_assert(count < notes.count && strcmp(notes.groups[count].detail, texts[count]) == 0,
                  "%s, got %s", texts[count],
                  count < notes.count ? notes.groups[count].detail : "nothing");
    cr_assert_eq(notes.count, count);
    cr_assert_eq(tc_notes_count(&notes, TC_WARNING, TC_KIND_SELECTION),
                 tc_notes_count(&notes, TC_WARNING, TC_KINDS));
}

Test(select, rules_that_match_nothing_are_reported) {
    expect_unused((const char *const[]){""});
    cr_assert(tc_select_include(&chosen, ".", &error));
    cr_assert(tc_select_include(&chosen, "^a", &error));
    cr_assert(tc_select_include(&chosen, "zz", &error));
    cr_assert(tc_select_exclude(&chosen, "^b", &error));
    cr_assert(tc_select_exclude(&chosen, "b", &error));
    cr_assert(tc_select_exclude(&chosen, "yy", &error));
    cr_assert(tc_select_rename(&chosen, "s/a/c/", &error));
    cr_assert(tc_select_rename(&chosen, "s/c/d/", &error));
    cr_assert(tc_select_rename(&chosen, "s/x/x/", &error));
    chosen.strip_prefix = TC_TEXT("m.");
    chosen.prefix = TC_TEXT("n.");
    /* "a" matches the first two --include patterns, "b" the first two of --exclude. */
    cr_assert_str_eq(apply("a"), "n.d");
    cr_assert_null(apply("b"));
    expect_unused((const char *const[]){
        "--include 'zz' matches no tensor", "--exclude 'yy' matches no tensor",
        "--rename 's/x/x/' matches no tensor", "--strip-prefix 'm.' changes no name", ""});
    cr_assert_str_eq(apply("m.x"), "n.x");
    expect_unused((const char *const[]){"--include 'zz' matches no tensor",
                                        "--exclude 'yy' matches no tensor", ""});
}
