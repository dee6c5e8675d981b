/*
 * Everything that is reported in addition to a result: a reader's warnings and
 * what it had to leave out, and a plan's ledger, which lists what a conversion
 * changes or loses.
 *
 * Notes of one severity, kind and detail form one group with a count, so that a
 * million tensors with the same change are one line. A group keeps the names of
 * its first notes. What is kept is bounded and counts against the owner's arena,
 * so that no file can cost memory by causing many notes; the counts stay exact.
 * One thread at a time may add notes.
 */
#ifndef TCONV_CORE_BASE_NOTES_H
#define TCONV_CORE_BASE_NOTES_H

#include <stdarg.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"

enum tc_severity {
    TC_WARNING, /* worth knowing; the data is the same */
    TC_CHANGE,  /* written differently, with nothing lost */
    TC_LOSS,
    TC_SEVERITIES,
};

enum tc_kind {
    TC_KIND_INPUT,     /* something in the input file that fits no other kind */
    TC_KIND_SKIPPED,   /* a member that is not a tensor tconv can hold */
    TC_KIND_MEMBER,    /* a file in an archive that does not belong to its format */
    TC_KIND_DTYPE,     /* a tensor is stored in another dtype */
    TC_KIND_METADATA,  /* metadata of the file or a tensor */
    TC_KIND_NAME,      /* a tensor's name */
    TC_KIND_SPARSE,    /* the parts of a sparse tensor */
    TC_KIND_ORDER,     /* the order of the tensors */
    TC_KIND_TIES,      /* tensors that share their data */
    TC_KIND_STRUCTURE, /* nesting and containers */
    TC_KIND_DEQUANTISED,
    TC_KIND_KEPT,      /* a tensor that looks as if it would be left out */
    TC_KIND_SELECTION, /* a selection by the user that matched nothing */
    TC_KIND_OPTION,    /* an option that had no effect */
    TC_KIND_OUTPUT,    /* files next to the output */
    TC_KINDS,
};
/* The kind as printed in the ledger, such as "dtype". */
const char *tc_kind_name(enum tc_kind kind);

/* The most that is kept: groups, names of one group, bytes of one name, and
 * bytes of all names and details together. */
#define TC_MAX_NOTE_GROUPS 1000u
#define TC_MAX_NOTE_NAMES 10000u
#define TC_MAX_NOTE_NAME_BYTES 65536u
#define TC_MAX_NOTE_BYTES (UINT64_C(8) << 20)
/* Bytes of a detail; a longer one is cut. */
#define TC_NOTE_DETAIL 1024

struct tc_note_group {
    enum tc_severity severity;
    enum tc_kind kind;
    const char *detail;    /* for people; unescaped names inside */
    size_t count;          /* of notes */
    struct tc_text *names; /* of tensors or members that the first notes concern */
    size_t name_count;
    size_t name_capacity;
};

struct tc_notes {
    struct tc_arena *arena;
    struct tc_note_group *groups; /* in the order of their first notes */
    size_t count;
    size_t capacity;
    uint32_t *slots; /* the hash index: position + 1, or 0 */
    size_t slot_count;
    size_t totals[TC_SEVERITIES][TC_KINDS];
    uint64_t kept; /* bytes of names and details */
    uint8_t hash_key[16];
};

/* All memory is the arena's, so there is nothing to release. */
void tc_notes_init(struct tc_notes *notes, struct tc_arena *arena);

/* Copies the name; its bytes are NULL where the note concerns no name. */
bool tc_notes_add(struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind,
                  struct tc_text name, struct tc_error *error, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
bool tc_notes_add_list(struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind,
                       struct tc_text name, struct tc_error *error, const char *format,
                       va_list args) __attribute__((format(printf, 6, 0)));
/* Adds all notes of another store except those of severity `without`;
 * TC_SEVERITIES: without exception. */
bool tc_notes_merge(struct tc_notes *notes, const struct tc_notes *from, enum tc_severity without,
                    struct tc_error *error);

/* How many notes there are of this severity and kind; TC_KINDS: of any kind. */
size_t tc_notes_count(const struct tc_notes *notes, enum tc_severity severity, enum tc_kind kind);
/* Whether a group of this severity has these words in its detail or a name. */
bool tc_notes_tell(const struct tc_notes *notes, enum tc_severity severity, const char *words);

/* [{"kind","tensor"?,"detail"}, …]: one entry for each name that is kept, and one
 * for the other notes of its group, with a "count" where they are more than one. */
void tc_notes_print(struct tc_json_writer *json, const char *key, const struct tc_notes *notes,
                    enum tc_severity severity);

#endif
