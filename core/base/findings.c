#include "core/base/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tc_findings_init(struct tc_findings *findings) {
    *findings = (struct tc_findings){0};
    pthread_mutex_init(&findings->lock, NULL);
    tc_arena_init(&findings->arena, 0);
}

void tc_findings_release(struct tc_findings *findings) {
    pthread_mutex_destroy(&findings->lock);
    tc_arena_release(&findings->arena);
    free(findings->list);
    *findings = (struct tc_findings){0};
}

/* Copies the texts, since files are closed before findings are shown. */
static void add(struct tc_findings *findings, struct tc_finding finding) {
    struct tc_error ignored = {0};
    pthread_mutex_lock(&findings->lock);
    if (findings->count == findings->capacity) {
        size_t capacity = findings->capacity ? 2 * findings->capacity : 16;
        struct tc_finding *grown = reallocarray(findings->list, capacity, sizeof *grown);
        if (grown) {
            findings->list = grown;
            findings->capacity = capacity;
        }
    }
    struct tc_arena *arena = &findings->arena;
    finding.message = tc_arena_copy(arena, finding.message, strlen(finding.message), &ignored);
    if (finding.file)
        finding.file = tc_arena_copy(arena, finding.file, strlen(finding.file), &ignored);
    if (finding.tensor.bytes)
        finding.tensor.bytes =
            tc_arena_copy(arena, finding.tensor.bytes, finding.tensor.length, &ignored);
    finding.order = findings->count;
    findings->failures += !finding.note;
    if (findings->count == findings->capacity || ignored.class != TC_OK)
        findings->failed = true;
    else
        findings->list[findings->count++] = finding;
    pthread_mutex_unlock(&findings->lock);
}

void tc_findings_add_error(struct tc_findings *findings, const struct tc_error *error) {
    struct tc_finding finding = {.code = error->code,
                                 .file = error->file[0] ? error->file : NULL,
                                 .message = error->message,
                                 .has_offset = error->has_offset,
                                 .offset = error->offset};
    if (error->has_tensor)
        finding.tensor = tc_text_of(error->tensor);
    add(findings, finding);
}

static void add_formatted(struct tc_findings *findings, struct tc_finding finding,
                          const char *format, va_list args) {
    char message[768];
    vsnprintf(message, sizeof message, format, args);
    finding.message = message;
    add(findings, finding);
}

void tc_findings_add(struct tc_findings *findings, const char *code, const char *file,
                     struct tc_text tensor, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_formatted(findings, (struct tc_finding){.code = code, .file = file, .tensor = tensor},
                  format, args);
    va_end(args);
}

void tc_findings_note(struct tc_findings *findings, const char *code, const char *file,
                      struct tc_text tensor, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_formatted(findings,
                  (struct tc_finding){.code = code, .file = file, .tensor = tensor, .note = true},
                  format, args);
    va_end(args);
}

static int compare_findings(const void *x, const void *y) {
    const struct tc_finding *a = x;
    const struct tc_finding *b = y;
    int order = a->note - b->note;
    if (order == 0)
        order = strcmp(a->file ? a->file : "", b->file ? b->file : "");
    if (order == 0 && a->has_offset && b->has_offset)
        order = (a->offset > b->offset) - (a->offset < b->offset);
    if (order == 0)
        order = a->has_offset - b->has_offset;
    if (order == 0)
        order = strcmp(a->code, b->code);
    return order ? order : (a->order > b->order) - (a->order < b->order);
}

void tc_findings_sort(struct tc_findings *findings) {
    if (findings->count)
        qsort(findings->list, findings->count, sizeof *findings->list, compare_findings);
}

bool tc_findings_ok(const struct tc_findings *findings, struct tc_error *error) {
    return findings->failed ? tc_fail_memory(error) : true;
}
