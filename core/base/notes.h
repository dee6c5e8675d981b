/*
 * Everything that is told beside a result: what a reader warns of and had to
 * leave out, and a plan's ledger of what changes or is lost.
 *
 * Notes of one severity, kind and detail are one group with a count, so that a
 * million tensors of one fate are one line. A group keeps the names of its
 * first notes. What is kept is bounded and charged to the owner's arena, the
 * counts go on: a file can't make us spend by being odd.
 */
#ifndef TCONV_CORE_BASE_NOTES_H
#define TCONV_CORE_BASE_NOTES_H

#include <stdarg.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"

enum tc_severity {
    TC_WARNING, /* worth knowing; nothing of the data differs */
    TC_CHANGE,  /* written in another way, with nothing lost */
    TC_LOSS,
    TC_SEVERITIES,
};

enum tc_kind {
    TC_KIND_INPUT,     /* something in the file, and no more is known of it */
    TC_KIND_SKIPPED,   /* a member that is no tensor tconv can hold */
    TC_KIND_MEMBER,    /* a file in an archive that is none of its format's */
    TC_KIND_DTYPE,     /* stored as another one */
    TC_KIND_METADATA,  /* of the file or a tensor */
    TC_KIND_NAME,      /* a tensor's */
    TC_KIND_SPARSE,    /* a sparse tensor's parts */
    TC_KIND_ORDER,     /* of the tensors */
    TC_KIND_TIES,      /* tensors that share their data */
    TC_KIND_STRUCTURE, /* nesting and containers */
    TC_KIND_DEQUANTISED,
    TC_KIND_SELECTION, /* a choice of the user's that chose nothing */
    TC_KIND_OPTION,    /* an option that had nothing to do */
    TC_KIND_OUTPUT,    /* files beside the output */
    TC_KINDS,
};
/* As the ledger has it, "dtype". */
const char *tc_kind_name(enum tc_kind kind);

/* The most that is kept: kinds of notes with a detail of their own, names of
 * one of them, bytes of one name, and bytes of all names and details. */
#define TC_MAX_NOTE_GROUPS 1000u
#define TC_MAX_NOTE_NAMES 10000u
#define TC_MAX_NOTE_NAME_BYTES 65536u
#define TC_MAX_NOTE_BYTES (UINT64_C(8) << 20)
/* Bytes of a detail; what is longer is cut. */
#define TC_NOTE_DETAIL 1024

struct tc_note_group {
    enum tc_severity severity;
    enum tc_kind kind;
    const char *detail;    /* for people; unescaped names inside */
    size_t count;          /* notes, of which */
    struct tc_text *names; /* these concern a tensor or member: the first of them */
    size_t name_count;
    size_t name_capacity;
};

struct tc_notes {
    struct tc_arena *arena;
    struct tc_note_group *groups; /* as they were first met */
    size_t count;
    size_t capacity;
    uint32_t *slots; /* the hash index: position + 1, or 0 */
    size_t slot_count;
    size_t totals[TC_SEVERITIES][TC_KINDS];
    uint64_t kept; /* bytes of names and details */
    uint8_t hash_key[16];
};

/* What it takes is the arena's, and goes with it. */
void tc_notes_init(struct tc_notes *notes, struct tc_arena *arena);

/* Copies the name; its bytes are NULL where the note concerns none. */
bool tc_notes_add(struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind,
                  struct tc_text name, struct tc_error *error, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
bool tc_notes_add_list(struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind,
                       struct tc_text name, struct tc_error *error, const char *format,
                       va_list args) __attribute__((format(printf, 6, 0)));
/* Adds all notes of another store, but for those of one severity where that is
 * not TC_SEVERITIES. */
bool tc_notes_merge(struct tc_notes *notes, const struct tc_notes *from, enum tc_severity without,
                    struct tc_error *error);

/* How many there are; TC_KINDS: of any kind. */
size_t tc_notes_count(const struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind);
/* Whether a group of this severity has these words in its detail or a name. */
bool tc_notes_tell(const struct tc_notes *notes, enum tc_severity severity, const char *words);

/* [{"kind","tensor"?,"detail"}, …]: one for each name that is kept, and one with
 * a "count" for all the others of its group where they are more than one. */
void tc_notes_print(struct tc_json_writer *json, const char *key, const struct tc_notes *notes,
                    enum tc_severity severity);

#endif
