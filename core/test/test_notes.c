#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/notes.h"
#include "core/base/text.h"

static struct tc_arena arena;
static struct tc_notes notes;
static struct tc_error error;

static void setup(void) {
    error = (struct tc_error){0};
    tc_arena_init(&arena, 0);
    tc_notes_init(&notes, &arena);
}

static void teardown(void) {
    tc_arena_release(&arena);
}

TestSuite(notes, .init = setup, .fini = teardown);

static const struct tc_text nobody = {NULL, 0};

static void expect_print(enum tc_severity severity, const char *expected) {
    struct tc_buffer text = {0};
    struct tc_buffer wanted = {0};
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_DISPLAY};
    tc_notes_print(&json, NULL, &notes, severity);
    tc_buffer_addf(&wanted, "[%s]", expected);
    cr_assert_str_eq(text.bytes, wanted.bytes);
    tc_buffer_release(&wanted);
    tc_buffer_release(&text);
}

Test(notes, every_kind_has_a_name_of_its_own) {
    for (enum tc_kind a = 0; a < TC_KINDS; a++) {
        cr_assert_not_null(tc_kind_name(a), "kind %d", (int)a);
        for (enum tc_kind b = 0; b < a; b++)
            cr_assert_str_neq(tc_kind_name(a), tc_kind_name(b));
    }
}

Test(notes, one_severity_kind_and_detail_are_one_group) {
    cr_assert(tc_notes_add(&notes, TC_LOSS, TC_KIND_NAME, TC_TEXT("a"), &error, "no %s", "names"));
    cr_assert(tc_notes_add(&notes, TC_LOSS, TC_KIND_NAME, TC_TEXT("b"), &error, "no names"));
    cr_assert_eq(notes.count, 1);
    cr_assert_eq(notes.groups[0].count, 2);
    cr_assert(tc_text_equal(notes.groups[0].names[1], TC_TEXT("b")));
    /* A note that differs in severity, kind or detail is in another group. */
    cr_assert(tc_notes_add(&notes, TC_CHANGE, TC_KIND_NAME, TC_TEXT("a"), &error, "no names"));
    cr_assert(tc_notes_add(&notes, TC_LOSS, TC_KIND_DTYPE, TC_TEXT("a"), &error, "no names"));
    cr_assert(tc_notes_add(&notes, TC_LOSS, TC_KIND_NAME, TC_TEXT("a"), &error, "no name"));
    cr_assert_eq(notes.count, 4);
    cr_assert_eq(tc_notes_count(&notes, TC_LOSS, TC_KIND_NAME), 3);
    cr_assert_eq(tc_notes_count(&notes, TC_LOSS, TC_KINDS), 4);
    cr_assert_eq(tc_notes_count(&notes, TC_WARNING, TC_KINDS), 0);
    cr_assert(tc_notes_tell(&notes, TC_LOSS, "no name"));
    cr_assert(tc_notes_tell(&notes, TC_LOSS, "b"), "a name");
    cr_assert_not(tc_notes_tell(&notes, TC_CHANGE, "b"));
}

Test(notes, json_has_every_name_and_the_count_beyond) {
    cr_assert(tc_notes_add(&notes, TC_LOSS, TC_KIND_SKIPPED, TC_TEXT("x\n"), &error, "text"));
    for (int i = 0; i < 3; i++)
        cr_assert(tc_notes_add(&notes, TC_LOSS, TC_KIND_METADATA, nobody, &error, "lost"));
    cr_assert(tc_notes_add(&notes, TC_LOSS, TC_KIND_INPUT, nobody, &error, "once"));
    expect_print(TC_LOSS, "{\"kind\":\"skipped\",\"tensor\":\"x\\n\",\"detail\":\"text\"},"
                          "{\"kind\":\"metadata\",\"detail\":\"lost\",\"count\":3},"
                          "{\"kind\":\"input\",\"detail\":\"once\"}");
    expect_print(TC_CHANGE, "");
}

Test(notes, names_are_copied) {
    char name[] = "gone";
    cr_assert(
        tc_notes_add(&notes, TC_LOSS, TC_KIND_SKIPPED, tc_text_of(name), &error, "an object"));
    memset(name, '?', sizeof name - 1);
    cr_assert(tc_text_equal(notes.groups[0].names[0], TC_TEXT("gone")));
}

Test(notes, names_have_a_bound_and_the_count_goes_on) {
    for (size_t i = 0; i < TC_MAX_NOTE_NAMES + 7; i++) {
        char name[24];
        snprintf(name, sizeof name, "t%zu", i);
        cr_assert(
            tc_notes_add(&notes, TC_LOSS, TC_KIND_SKIPPED, tc_text_of(name), &error, "an object"));
    }
    cr_assert_eq(notes.count, 1);
    cr_assert_eq(notes.groups[0].name_count, TC_MAX_NOTE_NAMES);
    cr_assert_eq(notes.groups[0].count, TC_MAX_NOTE_NAMES + 7);
    struct tc_buffer text = {0};
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_DISPLAY};
    tc_notes_print(&json, NULL, &notes, TC_LOSS);
    cr_assert(strstr(text.bytes, "\"detail\":\"an object\",\"count\":7}"));
    tc_buffer_release(&text);
}

Test(notes, groups_have_a_bound_and_the_rest_is_one_of_each_kind) {
    for (unsigned i = 0; i < 3 * TC_MAX_NOTE_GROUPS; i++)
        for (enum tc_kind kind = 0; kind < TC_KINDS; kind++)
            cr_assert(tc_notes_add(&notes, TC_LOSS, kind, nobody, &error, "text %u", i));
    cr_assert_leq(notes.count, TC_MAX_NOTE_GROUPS + TC_KINDS);
    for (enum tc_kind kind = 0; kind < TC_KINDS; kind++)
        cr_assert_eq(tc_notes_count(&notes, TC_LOSS, kind), 3 * TC_MAX_NOTE_GROUPS);
    size_t sum = 0;
    for (size_t i = 0; i < notes.count; i++)
        sum += notes.groups[i].count;
    cr_assert_eq(sum, 3 * TC_MAX_NOTE_GROUPS * TC_KINDS, "nothing is forgotten");
}

Test(notes, bytes_have_a_bound) {
    static char name[2 * TC_MAX_NOTE_NAME_BYTES];
    memset(name, 'n', sizeof name);
    for (int i = 0; i < 1000; i++)
        cr_assert(tc_notes_add(&notes, TC_LOSS, TC_KIND_SKIPPED,
                               (struct tc_text){name, sizeof name}, &error, "text %d", i));
    cr_assert_leq(notes.kept, TC_MAX_NOTE_BYTES + TC_NOTE_DETAIL);
    cr_assert_lt(arena.used, 2 * TC_MAX_NOTE_BYTES);
    cr_assert_eq(notes.groups[0].names[0].length, TC_MAX_NOTE_NAME_BYTES, "cut");
    cr_assert_eq(tc_notes_count(&notes, TC_LOSS, TC_KIND_SKIPPED), 1000);
}

/* All memory is the arena's, and so counts against --max-memory. */
Test(notes, memory_is_charged) {
    arena.budget = 256 << 10;
    bool ok = true;
    size_t added = 0;
    for (; ok && added < 100000; added++) {
        char name[256];
        snprintf(name, sizeof name, "%0200zu", added);
        ok = tc_notes_add(&notes, TC_LOSS, TC_KIND_SKIPPED, tc_text_of(name), &error, "of %zu",
                          added % 50);
    }
    cr_assert_not(ok);
    cr_assert_lt(added, 2000);
    cr_assert_str_eq(error.code, "memory-limit");
    cr_assert_leq(arena.used, arena.budget);
}

Test(notes, merging_keeps_counts_and_names) {
    struct tc_notes other;
    tc_notes_init(&other, &arena);
    cr_assert(tc_notes_add(&notes, TC_LOSS, TC_KIND_NAME, TC_TEXT("a"), &error, "same"));
    cr_assert(tc_notes_add(&other, TC_LOSS, TC_KIND_NAME, TC_TEXT("b"), &error, "same"));
    cr_assert(tc_notes_add(&other, TC_LOSS, TC_KIND_NAME, nobody, &error, "same"));
    cr_assert(tc_notes_add(&other, TC_WARNING, TC_KIND_INPUT, nobody, &error, "warned"));
    cr_assert(tc_notes_merge(&notes, &other, TC_WARNING, &error));
    cr_assert_eq(notes.count, 1);
    cr_assert_eq(notes.groups[0].count, 3);
    cr_assert_eq(notes.groups[0].name_count, 2);
    cr_assert_eq(tc_notes_count(&notes, TC_LOSS, TC_KIND_NAME), 3);
    cr_assert(tc_notes_merge(&notes, &other, TC_SEVERITIES, &error));
    cr_assert_eq(tc_notes_count(&notes, TC_WARNING, TC_KIND_INPUT), 1);
}
