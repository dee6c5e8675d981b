#include "core/tensor/select.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/jansson.h"
#include "core/base/json.h"
#include "core/io/input.h"
#include "core/tensor/table.h"

#define MAP_LIMIT UINT64_C(100000000)

void tc_select_init(struct tc_select *select) {
    *select = (struct tc_select){0};
    tc_arena_init(&select->arena, 0);
    tc_name_map_init(&select->map, &select->arena);
}

void tc_select_release(struct tc_select *select) {
    for (size_t i = 0; i < select->include_count; i++)
        tc_regex_release(&select->include[i].regex);
    for (size_t i = 0; i < select->exclude_count; i++)
        tc_regex_release(&select->exclude[i].regex);
    for (size_t i = 0; i < select->dropped_count; i++)
        tc_regex_release(&select->dropped[i].regex);
    for (size_t i = 0; i < select->rename_count; i++)
        tc_regex_release(&select->renames[i].pattern.regex);
    free(select->include);
    free(select->exclude);
    free(select->dropped);
    free(select->renames);
    free(select->mapped);
    free(select->rows);
    tc_name_map_release(&select->map);
    tc_arena_release(&select->arena);
    *select = (struct tc_select){0};
}

/* Makes room for one more element in a list from malloc; NULL without memory. */
static void *grow(void *list, size_t count, size_t size, struct tc_error *error) {
    void *grown = reallocarray(list, count + 1, size);
    if (!grown)
        tc_fail_memory(error);
    return grown;
}

static bool add_pattern(struct tc_pattern **list, size_t *count, const char *text,
                        struct tc_error *error) {
    struct tc_pattern *grown = grow(*list, *count, sizeof **list, error);
    if (!grown)
        return false;
    *list = grown;
    grown[*count] = (struct tc_pattern){.text = text};
    if (!tc_regex_compile(&grown[*count].regex, tc_text_of(text), false, error))
        return false;
    ++*count;
    return true;
}

bool tc_select_include(struct tc_select *select, const char *pattern, struct tc_error *error) {
    return add_pattern(&select->include, &select->include_count, pattern, error);
}

bool tc_select_exclude(struct tc_select *select, const char *pattern, struct tc_error *error) {
    return add_pattern(&select->exclude, &select->exclude_count, pattern, error);
}

bool tc_select_drop_metadata(struct tc_select *select, const char *pattern,
                             struct tc_error *error) {
    return add_pattern(&select->dropped, &select->dropped_count, pattern, error);
}

/* The end of one part of s/…/…/: the next delimiter without a backslash before it. */
static const char *part_end(const char *at, char delimiter) {
    while (*at && *at != delimiter)
        at += at[0] == '\\' && at[1] ? 2 : 1;
    return *at ? at : NULL;
}

/* Translates a replacement from sed's form to PCRE2's. */
static void translate(struct tc_buffer *to, const char *from, const char *end, char delimiter) {
    for (; from < end; from++) {
        char next = from + 1 < end ? from[1] : '\0';
        if (*from == '$') {
            tc_buffer_add_string(to, "$$");
        } else if (*from == '&') {
            tc_buffer_add_string(to, "$0");
        } else if (*from != '\\') {
            tc_buffer_add(to, from, 1);
        } else if (next >= '0' && next <= '9') {
            tc_buffer_addf(to, "${%c}", next);
            from++;
        } else if (next == '&' || next == delimiter) {
            tc_buffer_add(to, &next, 1);
            from++;
        } else {
            /* PCRE2's extended form takes a backslash as an escape, too. */
            tc_buffer_add_string(to, "\\\\");
            from += next == '\\';
        }
    }
}

static bool bad_rule(const char *rule, struct tc_error *error) {
    tc_fail(error, TC_USAGE, "rename", "not a renaming rule: %s", rule);
    return tc_error_hint(error, "write it as 's/PATTERN/REPLACEMENT/', with g for all places");
}

bool tc_select_rename(struct tc_select *select, const char *rule, struct tc_error *error) {
    char delimiter = rule[0] == 's' ? rule[1] : '\0';
    if (!delimiter || delimiter == '\\' || (delimiter & 0x80) || !tc_utf8_valid(tc_text_of(rule)))
        return bad_rule(rule, error);
    const char *pattern = rule + 2;
    const char *middle = part_end(pattern, delimiter);
    const char *last = middle ? part_end(middle + 1, delimiter) : NULL;
    if (!last || middle == pattern)
        return bad_rule(rule, error);
    bool all = false;
    bool ignore_case = false;
    for (const char *flag = last + 1; *flag; flag++) {
        if (*flag != 'g' && *flag != 'i')
            return bad_rule(rule, error);
        all |= *flag == 'g';
        ignore_case |= *flag == 'i';
    }
    struct tc_rename *grown = grow(select->renames, select->rename_count, sizeof *grown, error);
    if (!grown)
        return false;
    select->renames = grown;
    struct tc_rename *rename = &grown[select->rename_count];
    struct tc_buffer replacement = {0};
    translate(&replacement, middle + 1, last, delimiter);
    *rename = (struct tc_rename){.pattern = {.text = rule}, .all = all};
    rename->replacement =
        tc_buffer_ok(&replacement, error)
            ? tc_arena_copy(&select->arena, replacement.bytes, replacement.length, error)
            : NULL;
    tc_buffer_release(&replacement);
    if (!rename->replacement ||
        !tc_regex_compile(&rename->pattern.regex,
                          (struct tc_text){pattern, (size_t)(middle - pattern)}, ignore_case,
                          error))
        return false;
    select->rename_count++;
    return true;
}

/* Copies the names, since the document is released once it is read. */
static bool read_map(struct tc_select *select, const struct tc_document *document) {
    struct tc_document_member member = {0};
    size_t count = 0;
    if (!tc_document_expect(document, document->root, TC_JSON_OBJECT))
        return false;
    while (tc_document_next(document->root, &member))
        count++;
    select->mapped = calloc(count ? count : 1, sizeof *select->mapped);
    if (!select->mapped)
        return tc_fail_memory(document->error);
    while (tc_document_next(document->root, &member)) {
        struct tc_mapped *mapped = &select->mapped[select->map.count];
        struct tc_text old_name = member.key;
        if (!tc_document_text(document, member.value, &mapped->name) ||
            !tc_document_keep(document, &mapped->name, &select->arena) ||
            !tc_document_keep(document, &old_name, &select->arena) ||
            !tc_name_add(&select->map, old_name, (uint32_t)select->map.count, TC_MAX_NAMES,
                         document->error))
            return false;
    }
    return true;
}

static bool parse_map(struct tc_select *select, struct tc_input *input, struct tc_error *error) {
    struct tc_document document = {0};
    char *text = tc_input_load(input, 0, input->size, error);
    bool ok = text && tc_document_parse(&document, (struct tc_text){text, input->size}, 0, error);
    document.code = "map";
    ok = ok && read_map(select, &document);
    tc_document_release(&document);
    free(text);
    return ok;
}

bool tc_select_map(struct tc_select *select, const char *path, struct tc_error *error) {
    struct tc_input *input = tc_input_open(path, NULL, error);
    if (!input)
        return false;
    bool ok = !select->has_map || tc_fail(error, TC_USAGE, "map", "--map may be given once");
    if (ok && input->size > MAP_LIMIT) {
        ok = tc_fail(error, TC_UNSAFE, "map", "the map is over %llu bytes",
                     (unsigned long long)MAP_LIMIT);
        tc_error_hint(error, "this limit is fixed: rules with --rename need less room");
    }
    ok = ok && parse_map(select, input, error);
    select->has_map = true;
    if (!ok)
        tc_error_in_file(error, path);
    tc_input_close(input);
    return ok;
}

/* Parses a number that ends at `stop` and may have a minus; where there is none,
 * *row keeps its default. */
static bool parse_row(const char *text, const char *stop, uint64_t *row, bool *from_end) {
    if (text == stop)
        return true;
    char *end;
    errno = 0;
    *from_end = *text == '-';
    text += *from_end;
    if (*text < '0' || *text > '9')
        return false;
    *row = strtoull(text, &end, 10);
    return errno == 0 && end == stop;
}

bool tc_rows_parse(const char *text, struct tc_rows *rows) {
    const char *stop = text + strlen(text);
    const char *colon = strchr(text, ':');
    rows->first = 0;
    rows->end = UINT64_MAX;
    rows->first_from_end = rows->end_from_end = false;
    rows->one = !colon;
    if (text == stop || !parse_row(text, colon ? colon : stop, &rows->first, &rows->first_from_end))
        return false;
    if (colon) {
        if (!parse_row(colon + 1, stop, &rows->end, &rows->end_from_end))
            return false;
        /* Where both count from the same end, their order can be checked now. */
        return rows->first_from_end != rows->end_from_end ||
               (rows->first_from_end ? rows->first >= rows->end : rows->first <= rows->end);
    }
    rows->end = rows->first + 1;
    return rows->first < UINT64_MAX && !(rows->first_from_end && rows->first == 0);
}

static bool no_such_row(const struct tc_rows *rows, uint64_t count, struct tc_error *error) {
    return tc_fail(error, TC_USAGE, "rows", "there is no row %s%llu (the tensor has %llu)",
                   rows->first_from_end ? "-" : "", (unsigned long long)rows->first,
                   (unsigned long long)count);
}

/* The index from the start of a row that may be counted from the tensor's end. */
static uint64_t from_start(uint64_t row, bool from_end, uint64_t count) {
    return !from_end ? row : row < count ? count - row : 0;
}

bool tc_rows_clip(const struct tc_rows *rows, const uint64_t *shape, unsigned rank, uint64_t *first,
                  uint64_t *end, struct tc_error *error) {
    if (rank == 0)
        return tc_fail(error, TC_USAGE, "rows", "a scalar has no rows");
    uint64_t count = shape[0];
    if (rows->one && rows->first_from_end && rows->first > count)
        return no_such_row(rows, count, error);
    uint64_t from = from_start(rows->first, rows->first_from_end, count);
    uint64_t to = rows->one ? from + 1 : from_start(rows->end, rows->end_from_end, count);
    if (from > to)
        return tc_fail(error, TC_USAGE, "rows",
                       "the first row wanted, %llu, comes after the last (the tensor has %llu)",
                       (unsigned long long)from, (unsigned long long)count);
    if (from >= count && from < to && from > 0)
        return no_such_row(rows, count, error);
    *end = to < count ? to : count;
    *first = from < *end ? from : *end;
    return true;
}

bool tc_select_rows(struct tc_select *select, const char *rule, struct tc_error *error) {
    const char *equals = strrchr(rule, '=');
    struct tc_rows *grown = grow(select->rows, select->row_count, sizeof *grown, error);
    if (!grown)
        return false;
    select->rows = grown;
    struct tc_rows *rows = &grown[select->row_count];
    if (!equals || equals == rule || !tc_rows_parse(equals + 1, rows)) {
        tc_fail(error, TC_USAGE, "rows", "not a choice of rows: %s", rule);
        return tc_error_hint(
            error, "write it as NAME=A:B, for rows A to B-1 of that tensor; NAME=-N: for the "
                   "last N");
    }
    rows->name = (struct tc_text){rule, (size_t)(equals - rule)};
    rows->used = false;
    if (tc_select_find_rows(select, rows->name))
        return tc_fail(error, TC_USAGE, "rows", "rows of one tensor are asked for twice: %s", rule);
    select->row_count++;
    return true;
}

struct tc_rows *tc_select_find_rows(const struct tc_select *select, struct tc_text name) {
    for (size_t i = 0; i < select->row_count; i++)
        if (tc_text_equal(select->rows[i].name, name))
            return &select->rows[i];
    return NULL;
}

bool tc_select_renames(const struct tc_select *select) {
    return select->has_map || select->rename_count || select->prefix.length ||
           select->strip_prefix.length;
}

/* A pattern that has matched nothing yet is tried even where another matches, so
 * that `used` is right. */
static bool any_matches(struct tc_pattern *list, size_t count, struct tc_text name, bool *matches,
                        struct tc_error *error) {
    *matches = false;
    for (size_t i = 0; i < count; i++) {
        bool this_one = false;
        if (*matches && list[i].used)
            continue;
        if (!tc_regex_matches(&list[i].regex, name, &this_one, error))
            return false;
        list[i].used |= this_one;
        *matches |= this_one;
    }
    return true;
}

bool tc_select_excludes(const struct tc_select *select, struct tc_text name, bool *excluded,
                        struct tc_error *error) {
    return any_matches(select->exclude, select->exclude_count, name, excluded, error);
}

bool tc_select_drops(const struct tc_select *select, struct tc_text key, bool *dropped,
                     struct tc_error *error) {
    return any_matches(select->dropped, select->dropped_count, key, dropped, error);
}

bool tc_select_takes(const struct tc_select *select, struct tc_text name, bool *taken,
                     struct tc_error *error) {
    bool excluded = false;
    *taken = true;
    if (select->only.bytes)
        *taken = tc_text_equal(select->only, name);
    if (*taken && select->include_count &&
        !any_matches(select->include, select->include_count, name, taken, error))
        return false;
    if (!tc_select_excludes(select, name, &excluded, error))
        return false;
    *taken = *taken && !excluded;
    return true;
}

static bool rename_text(struct tc_rename *rename, struct tc_arena *arena, struct tc_text *name,
                        struct tc_error *error) {
    struct tc_text before = *name;
    if (!tc_regex_replace(&rename->pattern.regex, before, rename->replacement, rename->all, arena,
                          name, error))
        return false;
    rename->pattern.used |= name->bytes != before.bytes;
    return true;
}

static bool put_before(struct tc_text prefix, struct tc_arena *arena, struct tc_text *name,
                       struct tc_error *error) {
    char *joined = tc_arena_alloc(arena, prefix.length + name->length, error);
    if (!joined)
        return false;
    memcpy(joined, prefix.bytes, prefix.length);
    memcpy(joined + prefix.length, name->bytes, name->length);
    *name = (struct tc_text){joined, prefix.length + name->length};
    return true;
}

bool tc_select_name(struct tc_select *select, struct tc_text name, struct tc_arena *arena,
                    struct tc_text *result, struct tc_error *error) {
    const uint32_t *entry = select->has_map ? tc_name_map_find(&select->map, name) : NULL;
    *result = name;
    if (entry) {
        *result = select->mapped[*entry].name;
        select->mapped[*entry].used = true;
    }
    for (size_t i = 0; i < select->rename_count && !entry; i++)
        if (!rename_text(&select->renames[i], arena, result, error))
            return false;
    if (select->strip_prefix.length && tc_text_starts(*result, select->strip_prefix)) {
        result->bytes += select->strip_prefix.length;
        result->length -= select->strip_prefix.length;
        select->strip_prefix_used = true;
    }
    select->prefix_used = true;
    return !select->prefix.length || put_before(select->prefix, arena, result, error);
}

bool tc_select_apply(struct tc_select *select, struct tc_text name, struct tc_arena *arena,
                     bool *taken, struct tc_text *new_name, struct tc_error *error) {
    if (!tc_select_takes(select, name, taken, error))
        return false;
    return !*taken || tc_select_name(select, name, arena, new_name, error);
}

static bool note_pattern(struct tc_notes *notes, const char *option,
                         const struct tc_pattern *pattern, const char *what,
                         struct tc_error *error) {
    return pattern->used ||
           tc_notes_add(notes, TC_WARNING, TC_KIND_SELECTION, (struct tc_text){0}, error,
                        "%s '%s' matches no %s", option, pattern->text, what);
}

static bool note_map(const struct tc_select *select, struct tc_notes *notes,
                     struct tc_error *error) {
    size_t used = 0;
    for (size_t i = 0; i < select->map.count; i++)
        used += select->mapped[i].used;
    if (select->has_map && !used)
        return tc_notes_add(notes, TC_WARNING, TC_KIND_SELECTION, (struct tc_text){0}, error,
                            "--map names no tensor that is there");
    for (size_t i = 0; i < select->map.count; i++)
        if (!select->mapped[i].used &&
            !tc_notes_add(notes, TC_WARNING, TC_KIND_SELECTION, select->map.entries[i].name, error,
                          "--map names tensors that are not there"))
            return false;
    return true;
}

static bool note_prefix(struct tc_notes *notes, const char *option, struct tc_text prefix,
                        bool used, struct tc_error *error) {
    return used || !prefix.length ||
           tc_notes_add(notes, TC_WARNING, TC_KIND_SELECTION, (struct tc_text){0}, error,
                        "%s '%.*s' changes no name", option, tc_text_shown(prefix, 300),
                        prefix.bytes);
}

bool tc_select_note_unused(const struct tc_select *select, struct tc_notes *notes,
                           struct tc_error *error) {
    for (size_t i = 0; i < select->include_count; i++)
        if (!note_pattern(notes, "--include", &select->include[i], "tensor", error))
            return false;
    for (size_t i = 0; i < select->exclude_count; i++)
        if (!note_pattern(notes, "--exclude", &select->exclude[i], "tensor", error))
            return false;
    for (size_t i = 0; i < select->rename_count; i++)
        if (!note_pattern(notes, "--rename", &select->renames[i].pattern, "tensor", error))
            return false;
    return note_map(select, notes, error) &&
           note_prefix(notes, "--strip-prefix", select->strip_prefix, select->strip_prefix_used,
                       error) &&
           note_prefix(notes, "--prefix", select->prefix, select->prefix_used, error);
}

bool tc_select_note_not_dropped(const struct tc_select *select, struct tc_notes *notes,
                                struct tc_error *error) {
    for (size_t i = 0; i < select->dropped_count; i++)
        if (!note_pattern(notes, "--drop-metadata", &select->dropped[i], "key", error))
            return false;
    return true;
}
