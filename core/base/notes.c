#include "core/base/notes.h"

#include <stdio.h>
#include <string.h>

#include "core/base/sodium.h"

static const char *const kind_names[TC_KINDS] = {
    [TC_KIND_INPUT] = "input",         [TC_KIND_SKIPPED] = "skipped",
    [TC_KIND_MEMBER] = "member",       [TC_KIND_DTYPE] = "dtype",
    [TC_KIND_METADATA] = "metadata",   [TC_KIND_NAME] = "name",
    [TC_KIND_SPARSE] = "sparse",       [TC_KIND_ORDER] = "order",
    [TC_KIND_TIES] = "ties",           [TC_KIND_STRUCTURE] = "structure",
    [TC_KIND_SELECTION] = "selection", [TC_KIND_DEQUANTISED] = "dequantised",
    [TC_KIND_KEPT] = "kept",           [TC_KIND_OPTION] = "option",
    [TC_KIND_OUTPUT] = "output",
};

/* The detail of all further notes where there are too many groups. */
static const char rest[] = "others, too many to list one by one";

const char *tc_kind_name(enum tc_kind kind) {
    return kind_names[kind];
}

void tc_notes_init(struct tc_notes *notes, struct tc_arena *arena) {
    *notes = (struct tc_notes){.arena = arena};
    /* As in core/base/name_map.c, the key is secret, so that no file can choose
     * texts whose hashes collide. */
    tc_random(notes->hash_key, sizeof notes->hash_key);
}

static uint64_t hash_group(const struct tc_notes *notes, enum tc_severity severity,
                           enum tc_kind kind, const char *detail) {
    char key[2 + TC_NOTE_DETAIL];
    size_t length = strlen(detail);
    key[0] = (char)severity;
    key[1] = (char)kind;
    memcpy(key + 2, detail, length);
    return tc_shorthash(notes->hash_key, key, 2 + length);
}

/* The group's slot, or the free one where it would be. */
static size_t find_slot(const struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind,
                        const char *detail) {
    size_t mask = notes->slot_count - 1;
    size_t slot = (size_t)hash_group(notes, severity, kind, detail) & mask;
    for (; notes->slots[slot]; slot = (slot + 1) & mask) {
        const struct tc_note_group *group = &notes->groups[notes->slots[slot] - 1];
        if (group->severity == severity && group->kind == kind &&
            strcmp(group->detail, detail) == 0)
            break;
    }
    return slot;
}

/* Makes room for one more group, and keeps the index at most half full. */
static bool grow(struct tc_notes *notes, struct tc_error *error) {
    if (notes->count < notes->capacity)
        return true;
    size_t capacity = notes->capacity ? notes->capacity * 2 : 8;
    struct tc_note_group *groups = tc_arena_array(notes->arena, capacity, sizeof *groups, error);
    uint32_t *slots =
        groups ? tc_arena_array(notes->arena, 2 * capacity, sizeof *slots, error) : NULL;
    if (!slots)
        return false;
    if (notes->count)
        memcpy(groups, notes->groups, notes->count * sizeof *groups);
    notes->groups = groups;
    notes->capacity = capacity;
    notes->slots = slots;
    notes->slot_count = 2 * capacity;
    for (size_t i = 0; i < notes->count; i++) {
        const struct tc_note_group *group = &groups[i];
        slots[find_slot(notes, group->severity, group->kind, group->detail)] = (uint32_t)i + 1;
    }
    return true;
}

static struct tc_note_group *find_group(struct tc_notes *notes, enum tc_severity severity,
                                        enum tc_kind kind, const char *detail,
                                        struct tc_error *error) {
    if (!grow(notes, error))
        return NULL;
    size_t slot = find_slot(notes, severity, kind, detail);
    bool full = notes->count >= TC_MAX_NOTE_GROUPS || notes->kept >= TC_MAX_NOTE_BYTES;
    if (!notes->slots[slot] && full && detail != rest)
        return find_group(notes, severity, kind, rest, error);
    if (!notes->slots[slot]) {
        size_t length = strlen(detail);
        char *copy = tc_arena_copy(notes->arena, detail, length, error);
        if (!copy)
            return NULL;
        notes->kept += length;
        notes->groups[notes->count++] =
            (struct tc_note_group){.severity = severity, .kind = kind, .detail = copy};
        notes->slots[slot] = (uint32_t)notes->count;
    }
    return &notes->groups[notes->slots[slot] - 1];
}

/* Keeps a name, unless the group has enough of them. */
static bool add_name(struct tc_notes *notes, struct tc_note_group *group, struct tc_text name,
                     struct tc_error *error) {
    size_t length = name.length < TC_MAX_NOTE_NAME_BYTES ? name.length : TC_MAX_NOTE_NAME_BYTES;
    if (group->name_count >= TC_MAX_NOTE_NAMES || notes->kept + length > TC_MAX_NOTE_BYTES)
        return true;
    if (group->name_count == group->name_capacity) {
        size_t capacity = group->name_capacity ? group->name_capacity * 2 : 4;
        struct tc_text *names = tc_arena_array(notes->arena, capacity, sizeof *names, error);
        if (!names)
            return false;
        if (group->name_count)
            memcpy(names, group->names, group->name_count * sizeof *names);
        group->names = names;
        group->name_capacity = capacity;
    }
    char *copy = tc_arena_copy(notes->arena, name.bytes, length, error);
    if (!copy)
        return false;
    notes->kept += length;
    group->names[group->name_count++] = (struct tc_text){copy, length};
    return true;
}

bool tc_notes_add_list(struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind,
                       struct tc_text name, struct tc_error *error, const char *format,
                       va_list args) {
    char detail[TC_NOTE_DETAIL];
    vsnprintf(detail, sizeof detail, format, args);
    struct tc_note_group *group = find_group(notes, severity, kind, detail, error);
    if (!group)
        return false;
    group->count++;
    notes->totals[severity][kind]++;
    return !name.bytes || add_name(notes, group, name, error);
}

bool tc_notes_add(struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind,
                  struct tc_text name, struct tc_error *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    bool ok = tc_notes_add_list(notes, severity, kind, name, error, format, args);
    va_end(args);
    return ok;
}

bool tc_notes_merge(struct tc_notes *notes, const struct tc_notes *from, enum tc_severity without,
                    struct tc_error *error) {
    for (size_t i = 0; i < from->count; i++) {
        const struct tc_note_group *other = &from->groups[i];
        if (other->severity == without)
            continue;
        struct tc_note_group *group =
            find_group(notes, other->severity, other->kind, other->detail, error);
        if (!group)
            return false;
        group->count += other->count;
        notes->totals[other->severity][other->kind] += other->count;
        for (size_t n = 0; n < other->name_count; n++)
            if (!add_name(notes, group, other->names[n], error))
                return false;
    }
    return true;
}

size_t tc_notes_count(const struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind) {
    size_t count = 0;
    if (kind != TC_KINDS)
        return notes->totals[severity][kind];
    for (size_t i = 0; i < TC_KINDS; i++)
        count += notes->totals[severity][i];
    return count;
}

static bool contains(struct tc_text text, const char *words) {
    return text.length && memmem(text.bytes, text.length, words, strlen(words));
}

bool tc_notes_tell(const struct tc_notes *notes, enum tc_severity severity, const char *words) {
    for (size_t i = 0; i < notes->count; i++) {
        const struct tc_note_group *group = &notes->groups[i];
        if (group->severity != severity)
            continue;
        if (contains(tc_text_of(group->detail), words))
            return true;
        for (size_t n = 0; n < group->name_count; n++)
            if (contains(group->names[n], words))
                return true;
    }
    return false;
}

static void print_note(struct tc_json_writer *json, const struct tc_note_group *group,
                       const struct tc_text *name, size_t count) {
    tc_json_open_object(json, NULL);
    tc_json_add_string(json, "kind", kind_names[group->kind]);
    if (name)
        tc_json_add_text(json, "tensor", *name);
    tc_json_add_string(json, "detail", group->detail);
    if (count > 1)
        tc_json_add_number(json, "count", count);
    tc_json_close(json);
}

void tc_notes_print(struct tc_json_writer *json, const char *key, const struct tc_notes *notes,
                    enum tc_severity severity) {
    tc_json_open_array(json, key);
    for (size_t i = 0; i < notes->count; i++) {
        const struct tc_note_group *group = &notes->groups[i];
        if (group->severity != severity)
            continue;
        for (size_t n = 0; n <= group->name_count; n++) {
            const struct tc_text *name = n < group->name_count ? &group->names[n] : NULL;
            size_t count = name ? 1 : group->count - group->name_count;
            if (count)
                print_note(json, group, name, count);
        }
    }
    tc_json_close(json);
}
