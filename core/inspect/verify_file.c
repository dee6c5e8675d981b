#include "core/inspect/verify_file.h"

#include <stdlib.h>

#include "core/base/findings.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/inspect/trusted.h"
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

static bool read_tensor(struct tc_reader *reader, const struct tc_tensor *tensor,
                        unsigned char *buffer, struct tc_error *error) {
    struct truths truths = {0};
    for (uint64_t at = 0; at < tensor->nbytes;) {
        uint64_t left = tensor->nbytes - at;
        size_t step = left < STEP ? left : STEP;
        if (!tc_reader_read(reader, tensor, at, buffer, step, error))
            return false;
        if (tensor->dtype == TC_BOOL)
            check_truths(&truths, buffer, step, at);
        at += step;
    }
    if (truths.count)
        tc_findings_add(reader->options->findings, "bool-value", NULL, tensor->name,
                        "%llu of its truth values are neither 0 nor 1, the first is element %llu",
                        (unsigned long long)truths.count, (unsigned long long)truths.first);
    return true;
}

static bool read_tensors(struct tc_reader *reader, const struct tc_verify_file_options *options,
                         struct tc_error *error) {
    const struct tc_table *table = &reader->table;
    unsigned char *buffer = malloc(STEP);
    if (!buffer)
        return tc_fail_memory(error);
    uint64_t done = 0;
    uint64_t total = 0;
    for (size_t i = 0; i < table->count; i++)
        total += table->tensors[i].nbytes;
    bool ok = true;
    for (size_t i = 0; i < table->count && ok; i++) {
        const struct tc_tensor *tensor = &table->tensors[i];
        bool alias = tc_table_source(table, i) != i;
        ok =
            alias || read_tensor(reader, tensor, buffer, error) || tc_reader_forgive(reader, error);
        done += tensor->nbytes;
        if (options->progress)
            options->progress(options->context, done, total);
    }
    free(buffer);
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
