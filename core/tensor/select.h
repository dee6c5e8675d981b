/*
 * Which tensors a conversion takes, under which names, and which of their rows.
 * Names are matched as the input has them. A new name is made in this order: the
 * one in the map, where it has one; else each --rename in turn; then
 * --strip-prefix and --prefix. One thread at a time may use a selection, since it
 * records which rules matched.
 */
#ifndef TCONV_CORE_TENSOR_SELECT_H
#define TCONV_CORE_TENSOR_SELECT_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/notes.h"
#include "core/base/regex.h"
#include "core/base/text.h"

struct tc_rows {
    struct tc_text name;
    uint64_t first;
    uint64_t end;        /* one past the last; UINT64_MAX: all */
    bool first_from_end; /* counted backwards from the tensor's end */
    bool end_from_end;
    bool one; /* a single row was asked for, which must exist */
    bool used;
};

/* `used` says whether a rule matched a tensor: the user is warned of rules without
 * effect. */
struct tc_pattern {
    struct tc_regex regex;
    const char *text; /* as the user wrote it; not owned */
    bool used;
};

struct tc_rename {
    struct tc_pattern pattern; /* its text is the whole rule */
    char *replacement;         /* in PCRE2's form; in the arena */
    bool all;                  /* replaces every match, not only the first */
};

struct tc_mapped {
    struct tc_text name; /* the new name */
    bool used;
};

struct tc_select {
    struct tc_arena arena;
    struct tc_text only; /* takes exactly this tensor; bytes are NULL: no such choice */
    struct tc_pattern *include;
    size_t include_count;
    struct tc_pattern *exclude;
    size_t exclude_count;
    struct tc_pattern *dropped; /* keys of the file's metadata that are left out */
    size_t dropped_count;
    struct tc_rename *renames;
    size_t rename_count;
    struct tc_name_map map; /* old names, each with its index in `mapped` */
    struct tc_mapped *mapped;
    bool has_map;
    struct tc_text prefix;
    struct tc_text strip_prefix;
    bool prefix_used;
    bool strip_prefix_used;
    struct tc_rows *rows;
    size_t row_count;
};

void tc_select_init(struct tc_select *select);
void tc_select_release(struct tc_select *select);

bool tc_select_include(struct tc_select *select, const char *pattern, struct tc_error *error);
bool tc_select_exclude(struct tc_select *select, const char *pattern, struct tc_error *error);
bool tc_select_drop_metadata(struct tc_select *select, const char *pattern, struct tc_error *error);
/* s/PATTERN/REPLACEMENT/[gi], with any character for the slash; \1 and & as
 * in sed. */
bool tc_select_rename(struct tc_select *select, const char *rule, struct tc_error *error);
/* A JSON object {old name: new name}. */
bool tc_select_map(struct tc_select *select, const char *path, struct tc_error *error);
/* NAME=A:B; the last equals sign counts, since names may hold some. */
bool tc_select_rows(struct tc_select *select, const char *rule, struct tc_error *error);
/* "A:B", "A:", ":B" or "A" (one row); a negative number counts from the end, so
 * that "-3:" is the last three. Does not set the name. */
bool tc_rows_parse(const char *text, struct tc_rows *rows);
/* The rows [*first, *end) that a tensor of this shape has of those asked for. It
 * is an error where the first row does not exist, or the tensor is a scalar; "-3:"
 * of two rows gives both. */
bool tc_rows_clip(const struct tc_rows *rows, const uint64_t *shape, unsigned rank, uint64_t *first,
                  uint64_t *end, struct tc_error *error);

/* Whether any rule changes names, so that two may become the same. */
bool tc_select_renames(const struct tc_select *select);
/* Whether --include, --exclude and `only` take a tensor of this name. Also asked
 * about members of a file that are no tensors, so that a rule which matches one
 * counts as used. */
bool tc_select_takes(const struct tc_select *select, struct tc_text name, bool *taken,
                     struct tc_error *error);
/* Whether --exclude matches a name, of a value in a checkpoint for instance. */
bool tc_select_excludes(const struct tc_select *select, struct tc_text name, bool *excluded,
                        struct tc_error *error);
/* Whether a key of the file's metadata is left out. */
bool tc_select_drops(const struct tc_select *select, struct tc_text key, bool *dropped,
                     struct tc_error *error);
/* Whether a tensor is taken, and its new name, which is in the arena or the old
 * name itself. */
bool tc_select_apply(struct tc_select *select, struct tc_text name, struct tc_arena *arena,
                     bool *taken, struct tc_text *new_name, struct tc_error *error);
/* The new name alone, whether or not the tensor would be taken. */
bool tc_select_name(struct tc_select *select, struct tc_text name, struct tc_arena *arena,
                    struct tc_text *new_name, struct tc_error *error);
/* The rows asked for of this tensor, or NULL. */
struct tc_rows *tc_select_find_rows(const struct tc_select *select, struct tc_text name);

/* Adds a warning for each rule that matched no tensor, or no key of metadata. Call it
 * after all of them were asked about. */
bool tc_select_note_unused(const struct tc_select *select, struct tc_notes *notes,
                           struct tc_error *error);
bool tc_select_note_not_dropped(const struct tc_select *select, struct tc_notes *notes,
                                struct tc_error *error);

#endif
