/*
 * Which tensors a conversion takes, under which names, and which of their
 * rows. Names are matched as the input has them. A new name comes about in
 * this order: the map's, where it has one; else each --rename in turn; then
 * --strip-prefix and --prefix.
 */
#ifndef TCONV_CORE_SELECT_H
#define TCONV_CORE_SELECT_H

#include "core/regex.h"
#include "core/table.h"

struct tc_rows {
    struct tc_text name;
    uint64_t first;
    uint64_t end; /* one past the last; UINT64_MAX: all */
    bool used;
};

struct tc_rename {
    struct tc_regex regex;
    char *replacement; /* PCRE2's form, the arena's */
    bool all;
};

struct tc_select {
    struct tc_arena arena;
    struct tc_text only; /* exactly this one, where bytes is not NULL */
    struct tc_regex *include;
    size_t include_count;
    struct tc_regex *exclude;
    size_t exclude_count;
    struct tc_rename *renames;
    size_t rename_count;
    struct tc_table map;    /* old names */
    struct tc_text *mapped; /* new names, by an entry's cookie */
    bool has_map;
    struct tc_text prefix;
    struct tc_text strip_prefix;
    struct tc_rows *rows;
    size_t row_count;
};

void tc_select_init(struct tc_select *select);
void tc_select_release(struct tc_select *select);

bool tc_select_include(struct tc_select *select, const char *pattern, struct tc_error *error);
bool tc_select_exclude(struct tc_select *select, const char *pattern, struct tc_error *error);
/* s/PATTERN/REPLACEMENT/[gi], with any character for the slash; \1 and & as
 * in sed. */
bool tc_select_rename(struct tc_select *select, const char *rule, struct tc_error *error);
/* A JSON object {old name: new name}. */
bool tc_select_map(struct tc_select *select, const char *path, struct tc_error *error);
/* NAME=A:B; the last equals sign counts, since names may hold some. */
bool tc_select_rows(struct tc_select *select, const char *rule, struct tc_error *error);
/* "A:B", "A:", ":B" or "A" (one row). */
bool tc_rows_parse(const char *text, uint64_t *first, uint64_t *end);
/* Those of a tensor's that there are: [*first, *end). A first row that it has
 * not is an error, and so are rows of a scalar. */
bool tc_rows_clip(const struct tc_rows *rows, const uint64_t *shape, unsigned rank, uint64_t *first,
                  uint64_t *end, struct tc_error *error);

/* Whether anything changes names, so that they may collide. */
bool tc_select_renames(const struct tc_select *select);
/* Whether a tensor is taken at all. */
bool tc_select_takes(const struct tc_select *select, struct tc_text name, bool *taken,
                     struct tc_error *error);
/* Decides about one tensor; the new name is the arena's, or the old one. */
bool tc_select_apply(const struct tc_select *select, struct tc_text name, struct tc_arena *arena,
                     bool *taken, struct tc_text *new_name, struct tc_error *error);
/* The new name alone, whether or not the tensor would be taken. */
bool tc_select_name(const struct tc_select *select, struct tc_text name, struct tc_arena *arena,
                    struct tc_text *new_name, struct tc_error *error);
/* The rows asked for of this tensor, or NULL. */
struct tc_rows *tc_select_find_rows(const struct tc_select *select, struct tc_text name);

#endif
