/*
 * What a check found, all of it: where a file is looked over as a whole, damage
 * is noted here and passed over instead of ending the work. Adding is safe from
 * several threads.
 */
#ifndef TCONV_CORE_BASE_FINDINGS_H
#define TCONV_CORE_BASE_FINDINGS_H

#include <pthread.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"

struct tc_finding {
    const char *code; /* a stable slug, a string literal */
    const char *file; /* where it was found; NULL: in the file as a whole */
    const char *message;
    struct tc_text tensor; /* bytes are NULL where it concerns none */
    uint64_t offset;       /* absolute in its file */
    size_t order;          /* as they were added */
    bool has_offset;
    bool note; /* worth knowing, but nothing is wrong */
};

struct tc_findings {
    pthread_mutex_t lock;
    struct tc_arena arena;
    struct tc_finding *list;
    size_t count;
    size_t capacity;
    size_t failures; /* without the notes */
    bool failed;     /* there was no memory for one */
};

void tc_findings_init(struct tc_findings *findings);
void tc_findings_release(struct tc_findings *findings);

/* With what an error says: file, tensor, offset, message. */
void tc_findings_add_error(struct tc_findings *findings, const struct tc_error *error);
/* `file` may be NULL, and tensor.bytes. */
void tc_findings_add(struct tc_findings *findings, const char *code, const char *file,
                     struct tc_text tensor, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void tc_findings_note(struct tc_findings *findings, const char *code, const char *file,
                      struct tc_text tensor, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Failures before notes, by file and place, whatever thread found them. */
void tc_findings_sort(struct tc_findings *findings);
bool tc_findings_ok(const struct tc_findings *findings, struct tc_error *error);

#endif
