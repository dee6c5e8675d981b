#include "core/inspect/verify_file.h"

#include <stdlib.h>

#include "core/base/findings.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/inspect/trusted.h"
#include "core/io/thread_pool.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

#define STEP ((size_t)1 << 18)
/* The alignment that direct I/O and vector instructions work best with. */
#define BEST_ALIGNMENT 64u

struct truths {
    uint64_t count; /* bytes that are neither 0 nor 1 */
    uint64_t first; /* index of the first of them */
};

static void check_truths(struct truths *truths, const unsigned char *bytes, size_t length,
                         uint64_t at) {
    unsigned seen = 0;
    for (size_t i = 0; i < length; i++)
        seen |= bytes[i];
    if (seen <= 1)
        return;
    for (size_t i = 0; i < length; i++)
        if (bytes[i] > 1 && truths->count++ == 0)
            truths->first = at + i;
}

/* What the threads share. A job is a tensor. What was found in it is kept by position, and added
 * in the order of the table. */
struct reading {
    struct tc_reader *reader;
    size_t next;
    struct truths *truths;    /* by table position */
    struct tc_error **errors; /* by table position, from malloc; NULL: none */
    struct tc_progress_sum progress;
};

static bool next_tensor(void *context, void *job) {
    struct reading *reading = context;
    const struct tc_table *table = &reading->reader->table;
    while (reading->next < table->count && tc_table_source(table, reading->next) != reading->next) {
        tc_progress_add(&reading->progress, table->tensors[reading->next].nbytes);
        reading->next++;
    }
    *(size_t *)job = reading->next;
    return reading->next++ < table->count;
}

/* Damage does not end the reading, where findings are collected. */
static bool keep_damage(struct reading *reading, size_t position, struct tc_error *error) {
    if (error->class != TC_INVALID)
        return false;
    reading->errors[position] = malloc(sizeof *error);
    if (!reading->errors[position]) {
        *error = (struct tc_error){0};
        return tc_fail_memory(error);
    }
    *reading->errors[position] = *error;
    *error = (struct tc_error){0};
    return true;
}

static bool read_tensor(void *context, struct tc_pool_worker *worker, const void *job,
                        struct tc_error *error) {
    struct reading *reading = context;
    size_t position = *(const size_t *)job;
    const struct tc_tensor *tensor = &reading->reader->table.tensors[position];
    for (uint64_t at = 0; at < tensor->nbytes && !tc_pool_stopped(worker);) {
        uint64_t left = tensor->nbytes - at;
        size_t step = left < STEP ? left : STEP;
        if (!tc_reader_read(reading->reader, tensor, at, worker->memory, step, error))
            return keep_damage(reading, position, error);
        if (tensor->dtype == TC_BOOL)
            check_truths(&reading->truths[position], worker->memory, step, at);
        at += step;
        tc_progress_add(&reading->progress, step);
        if (worker->is_caller)
            tc_progress_report(&reading->progress);
    }
    return true;
}

/* Adds what was found in each tensor. */
static bool add_found(struct reading *reading, struct tc_error *error) {
    struct tc_reader *reader = reading->reader;
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct truths *truths = &reading->truths[i];
        if (reading->errors[i] && !tc_reader_forgive(reader, reading->errors[i])) {
            *error = *reading->errors[i];
            return false;
        }
        if (truths->count)
            tc_findings_add(
                reader->options->findings, "bool-value", NULL, reader->table.tensors[i].name,
                "%llu of its truth values are neither 0 nor 1, the first is element %llu",
                (unsigned long long)truths->count, (unsigned long long)truths->first);
    }
    return true;
}

static bool read_tensors(struct tc_reader *reader, const struct tc_verify_file_options *options,
                         struct tc_error *error) {
    const struct tc_table *table = &reader->table;
    struct reading reading = {.reader = reader,
                              .truths = calloc(table->count + 1, sizeof *reading.truths),
                              .errors = calloc(table->count + 1, sizeof(struct tc_error *)),
                              .progress = {.call = options->progress, .context = options->context}};
    const struct tc_pool_work work = {.context = &reading,
                                      .next = next_tensor,
                                      .job_size = sizeof(size_t),
                                      .run = read_tensor,
                                      .memory_size = STEP};
    for (size_t i = 0; i < table->count; i++)
        reading.progress.total += table->tensors[i].nbytes;
    bool in_turn = tc_table_is_sequential(table) && !reader->streams;
    uint64_t useful = in_turn || tc_reader_in_step(reader) ? 1 : reading.progress.total / STEP + 1;
    size_t threads = tc_thread_count() < useful ? tc_thread_count() : (size_t)useful;
    bool ok = reading.truths && reading.errors
                  ? tc_pool_run(&work, threads, error) && add_found(&reading, error)
                  : tc_fail_memory(error);
    for (size_t i = 0; reading.errors && i < table->count; i++)
        free(reading.errors[i]);
    free(reading.errors);
    free(reading.truths);
    return ok;
}

/* Adds one note for all tensors whose data does not start at a multiple of
 * `alignment` or, where that is 0, of the size of their elements. */
static void note_alignment(struct tc_reader *reader, unsigned alignment) {
    const struct tc_tensor *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        unsigned component = tc_dtype_component(tensor->dtype);
        unsigned multiple = alignment ? alignment : component ? component : 1;
        struct tc_extent extent;
        if (tensor->nbytes == 0 || !tc_reader_extent(reader, tensor, &extent) ||
            extent.offset % multiple == 0)
            continue;
        if (count++ == 0)
            first = tensor;
    }
    if (count && alignment)
        tc_findings_note(reader->options->findings, "alignment-64", NULL, first->name,
                         "%zu tensor%s, of which this is the first, start%s at no multiple of %u "
                         "bytes",
                         count, count == 1 ? "" : "s", count == 1 ? "s" : "", alignment);
    else if (count)
        tc_findings_note(reader->options->findings, "alignment", NULL, first->name,
                         "%zu tensor%s, of which this is the first, start%s at no multiple of "
                         "their elements' size: mapped into memory they are slow or of no use",
                         count, count == 1 ? "" : "s", count == 1 ? "s" : "");
}

/* How many names of a group are listed one by one. */
#define MOST_NAMED 20u

static void note_group(struct tc_findings *findings, const struct tc_note_group *group) {
    bool left_out = group->kind == TC_KIND_SKIPPED || group->kind == TC_KIND_MEMBER;
    const char *code = group->severity == TC_WARNING ? "warning" : left_out ? "skipped" : "loss";
    size_t named = group->name_count < MOST_NAMED ? group->name_count : MOST_NAMED;
    size_t others = group->count - named;
    for (size_t n = 0; n < named; n++)
        tc_findings_note(findings, code, NULL, group->names[n], "%s", group->detail);
    if (others == 1 && !named)
        tc_findings_note(findings, code, NULL, (struct tc_text){0}, "%s", group->detail);
    else if (others)
        tc_findings_note(findings, code, NULL, (struct tc_text){0}, "%zu%s: %s", others,
                         named ? " more" : " times", group->detail);
}

/* Adds the reader's own notes, except changes, which only concern conversions. */
static void add_reader_notes(struct tc_reader *reader) {
    for (size_t i = 0; i < reader->notes.count; i++)
        if (reader->notes.groups[i].severity != TC_CHANGE)
            note_group(reader->options->findings, &reader->notes.groups[i]);
}

bool tc_verify_file(struct tc_reader *reader, const struct tc_verify_file_options *options,
                    struct tc_error *error) {
    struct tc_checksum_thread *checksums = tc_checksum_thread_start(&reader, NULL, 1, error);
    bool ok = checksums && read_tensors(reader, options, error);
    struct tc_error damage = {0};
    if (!tc_checksum_thread_join(checksums, &damage) && !tc_reader_forgive(reader, &damage) && ok) {
        *error = damage;
        ok = false;
    }
    ok = ok && tc_trusted_check(reader, error);
    note_alignment(reader, 0);
    if (options->verbose)
        note_alignment(reader, BEST_ALIGNMENT);
    add_reader_notes(reader);
    return ok && tc_reader_unchanged(reader, error) &&
           tc_findings_ok(reader->options->findings, error);
}
