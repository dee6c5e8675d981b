#include "cmd/choose.h"

#include <stdlib.h>

#include "cmd/report.h"
#include "core/base/arena.h"
#include "core/base/notes.h"
#include "core/base/text.h"

void choose_add_options(struct option_table *table, struct choose *choose) {
    static const char *const sorts[] = {"file", "name", "size", "dtype", NULL};
    const struct option rows[] = {
        SELECT_OPTION("include", &choose->select, tc_select_include, .argument = "REGEX",
                      .help = "only tensors whose names match; may be given again"),
        SELECT_OPTION("exclude", &choose->select, tc_select_exclude, .argument = "REGEX",
                      .help = "without tensors whose names match; may be given again"),
        SELECT_OPTION("filter", &choose->select, tc_select_include, .argument = "REGEX",
                      .help = "the same as --include"),
        CHOICE_OPTION("sort", &choose->sort, sorts, .argument = "file|name|size|dtype",
                      .help =
                          "their order: as in the file, or by name, size (largest first), dtype"),
    };
    options_add(table, "Choosing tensors:", rows, OPTION_COUNT(rows));
}

int choose_compare(const struct tc_tensor *a, const struct tc_tensor *b, enum choose_sort sort) {
    int order = sort == SORT_NAME    ? tc_text_compare(a->name, b->name)
                : sort == SORT_SIZE  ? (a->nbytes < b->nbytes) - (a->nbytes > b->nbytes)
                : sort == SORT_DTYPE ? (a->dtype > b->dtype) - (a->dtype < b->dtype)
                                     : 0;
    return order ? order : (a > b) - (a < b); /* the file's order */
}

static int compare_listed(const void *a, const void *b, void *sort) {
    return choose_compare(*(const struct tc_tensor *const *)a, *(const struct tc_tensor *const *)b,
                          *(const enum choose_sort *)sort);
}

void choose_order(const struct tc_tensor **tensors, size_t count, enum choose_sort sort) {
    if (sort != SORT_FILE)
        qsort_r(tensors, count, sizeof *tensors, compare_listed, &sort);
}

static bool mark_named(const struct tc_reader *reader, const char *const *names, size_t name_count,
                       bool *wanted, struct tc_error *error) {
    for (size_t i = 0; i < name_count; i++) {
        const struct tc_tensor *tensor = common_find(reader, names[i], error);
        if (!tensor)
            return false;
        wanted[tensor - reader->table.tensors] = true;
    }
    return true;
}

bool choose_tensors(const struct choose *choose, const struct tc_reader *reader,
                    const char *const *names, size_t name_count, struct chosen *chosen,
                    struct tc_error *error) {
    const struct tc_table *table = &reader->table;
    *chosen = (struct chosen){0};
    chosen->wanted = calloc(table->count + 1, sizeof *chosen->wanted);
    chosen->tensors = calloc(table->count + 1, sizeof(struct tc_tensor *));
    if (!chosen->wanted || !chosen->tensors)
        return tc_fail_memory(error);
    if (!mark_named(reader, names, name_count, chosen->wanted, error))
        return false;
    for (size_t i = 0; i < table->count; i++) {
        bool taken = false;
        if (name_count && !chosen->wanted[i])
            continue;
        if (!tc_select_takes(&choose->select, table->tensors[i].name, &taken, error))
            return false;
        chosen->wanted[i] = taken;
        if (taken)
            chosen->tensors[chosen->count++] = &table->tensors[i];
    }
    choose_order(chosen->tensors, chosen->count, choose->sort);
    return true;
}

void chosen_release(struct chosen *chosen) {
    free(chosen->tensors);
    free(chosen->wanted);
    *chosen = (struct chosen){0};
}

void choose_end(struct choose *choose, const struct common *common, int code) {
    struct tc_arena arena;
    struct tc_notes notes;
    struct tc_error error = {0};
    bool asked = code <= TC_DIFFERENT && !common->help && !common->quiet;
    tc_arena_init(&arena, 0);
    tc_notes_init(&notes, &arena);
    if (asked && tc_select_note_unused(&choose->select, &notes, &error))
        report_notes(&notes);
    tc_arena_release(&arena);
    tc_select_release(&choose->select);
}

bool chosen_some(const struct chosen *chosen, const struct tc_reader *reader,
                 struct tc_error *error) {
    if (chosen->count || !reader->table.count)
        return true;
    tc_fail(error, TC_USAGE, "nothing-selected", "no tensor is left after --include and --exclude");
    return tc_error_hint(error, "tconv list prints the names");
}
