/*
 * Everything that a check found. Where a file is checked as a whole, each damage
 * is added here and reading goes on, instead of ending at the first. Several
 * threads may add at the same time. The findings own copies of all texts.
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
    struct tc_text tensor; /* bytes are NULL where it concerns no tensor */
    uint64_t offset;       /* absolute in its file */
    size_t order;          /* how many were added before it */
    bool has_offset;
    bool note; /* worth knowing, but nothing is wrong */
};

struct tc_findings {
    pthread_mutex_t lock;
    struct tc_arena arena;
    struct tc_finding *list;
    size_t count;
    size_t capacity;
    size_t failures; /* findings that are not notes */
    bool failed;     /* there was no memory to keep one of them */
};

void tc_findings_init(struct tc_findings *findings);
void tc_findings_release(struct tc_findings *findings);

/* Adds a finding with the code, file, tensor, offset and message of an error. */
void tc_findings_add_error(struct tc_findings *findings, const struct tc_error *error);
/* `file` and tensor.bytes may be NULL. */
void tc_findings_add(struct tc_findings *findings, const char *code, const char *file,
                     struct tc_text tensor, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void tc_findings_note(struct tc_findings *findings, const char *code, const char *file,
                      struct tc_text tensor, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Sorts failures before notes, then by file and offset, so that the order does
 * not depend on threads. */
void tc_findings_sort(struct tc_findings *findings);
/* Fails where there was no memory to keep a finding. */
bool tc_findings_ok(const struct tc_findings *findings, struct tc_error *error);

#endif
