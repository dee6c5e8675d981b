/*
 * The fuzz target of selections: which tensors are taken, under which names, which of their rows
 * and in which dtype. The input has a rule or a name a line, behind a letter:
 *     i RE  x RE  s s/RE/NEW/  r NAME=A:B  d [RE=]DTYPE  p PREFIX  t PREFIX  n NAME
 * and behind a line "m" the map of names, to the end.
 */

#include <stdlib.h>
#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/regex.h"
#include "core/base/text.h"
#include "core/plan/dtype_policy.h"
#include "core/tensor/select.h"

/* So that expressions that take all the steps they may do not add up to much time. */
#define MOST_LINES 24
#define LONGEST_LINE 400

struct choice {
    struct tc_select select;
    struct tc_policy policy;
    const char *names[MOST_LINES];
    size_t count;
};

static void add_rule(struct choice *choice, char letter, const char *text) {
    struct tc_error error = {0};
    struct tc_select *select = &choice->select;
    bool ok = letter == 'i'   ? tc_select_include(select, text, &error)
              : letter == 'x' ? tc_select_exclude(select, text, &error)
              : letter == 's' ? tc_select_rename(select, text, &error)
              : letter == 'r' ? tc_select_rows(select, text, &error)
              : letter == 'd' ? tc_policy_add(&choice->policy, text, &error)
                              : true;
    fuzz_check_outcome(ok, &error);
    FUZZ_CHECK(ok || error.class == TC_USAGE, "a rule that is wrong is no mistake of the user");
    if (letter == 'p')
        select->prefix = tc_text_of(text);
    if (letter == 't')
        select->strip_prefix = tc_text_of(text);
    if (letter == 'n')
        choice->names[choice->count++] = text;
}

static void add_map(struct choice *choice, const char *text, size_t length) {
    struct tc_error error = {0};
    const char *path = fuzz_file((const unsigned char *)text, length);
    fuzz_check_outcome(tc_select_map(&choice->select, path, &error), &error);
}

static void apply(struct choice *choice, struct tc_text name) {
    static const uint64_t shape[] = {5, 2};
    struct tc_error error = {0};
    struct tc_arena arena;
    struct tc_text renamed = {0};
    bool taken = false;
    tc_arena_init(&arena, 0);
    bool ok = tc_select_apply(&choice->select, name, &arena, &taken, &renamed, &error);
    fuzz_check_outcome(ok, &error);
    FUZZ_CHECK(!ok || !taken || renamed.bytes || renamed.length == 0, "a tensor without a name");
    const struct tc_rows *rows = tc_select_find_rows(&choice->select, name);
    uint64_t first;
    uint64_t end;
    struct tc_error no_rows = {0};
    if (rows) {
        bool clipped = tc_rows_clip(rows, shape, 2, &first, &end, &no_rows);
        fuzz_check_outcome(clipped, &no_rows);
        FUZZ_CHECK(!clipped || (first <= end && end <= shape[0]), "rows beyond the tensor");
    }
    for (size_t i = 0; i < choice->policy.count; i++) {
        struct tc_error unmatched = {0};
        bool matches;
        if (!choice->policy.rules[i].everything)
            fuzz_check_outcome(
                tc_regex_matches(&choice->policy.rules[i].regex, name, &matches, &unmatched),
                &unmatched);
    }
    tc_arena_release(&arena);
}

/* Takes the text apart, whose lines become strings. */
static void read_lines(struct choice *choice, char *text, size_t length) {
    char *end = text + length;
    for (unsigned lines = 0; text < end && lines < MOST_LINES; lines++) {
        char *next = memchr(text, '\n', (size_t)(end - text));
        next = next ? next : end;
        if (*text == 'm') {
            char *map = next < end ? next + 1 : end;
            add_map(choice, map, (size_t)(end - map));
            return;
        }
        *next = '\0';
        if (next - text > 2 && next - text < LONGEST_LINE)
            add_rule(choice, *text, text + 2);
        text = next + 1;
    }
}

void fuzz_select(const unsigned char *bytes, size_t length) {
    struct choice choice = {0};
    struct tc_error error = {0};
    struct tc_notes notes;
    struct tc_arena arena;
    char *text = malloc(length + 1);
    FUZZ_CHECK(text, "no memory");
    memcpy(text, bytes, length);
    text[length] = '\0';
    tc_arena_init(&arena, 0);
    tc_notes_init(&notes, &arena);
    tc_select_init(&choice.select);
    read_lines(&choice, text, length);
    for (size_t i = 0; i < choice.count; i++)
        if (tc_utf8_valid(tc_text_of(choice.names[i])))
            apply(&choice, tc_text_of(choice.names[i]));
    fuzz_check_outcome(tc_select_note_unused(&choice.select, &notes, &error), &error);
    tc_select_release(&choice.select);
    tc_policy_release(&choice.policy);
    tc_arena_release(&arena);
    free(text);
}
