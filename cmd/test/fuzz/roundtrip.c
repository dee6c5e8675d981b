/*
 * The fuzz target of conversions: a file that opens is converted to every format that is written.
 * Either the output holds the same tensors, as far as the ledger does not say otherwise, or there
 * is an error that says why not. A file whose data is damaged gives no output at all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/make_plan.h"
#include "core/plan/plan.h"
#include "core/tensor/table.h"
#include "formats/registry.h"

/* Larger files take long and show nothing new. */
#define MOST_BYTES (UINT64_C(1) << 20)
#define MOST_TENSORS 100

static bool is_small(const struct tc_table *table) {
    uint64_t sum = 0;
    for (size_t i = 0; i < table->count && sum <= MOST_BYTES; i++)
        sum += table->tensors[i].nbytes < MOST_BYTES ? table->tensors[i].nbytes : MOST_BYTES + 1;
    return table->count <= MOST_TENSORS && sum <= MOST_BYTES;
}

static size_t told(const struct tc_plan *plan, enum tc_kind kind) {
    return tc_notes_count(&plan->notes, TC_CHANGE, kind) +
           tc_notes_count(&plan->notes, TC_LOSS, kind);
}

static int compare_lines(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The lines of `tconv hash` without the tensors' names, sorted. */
static void forget_names(const struct tc_buffer *text, struct tc_buffer *nameless) {
    struct tc_buffer copy = {0};
    tc_buffer_add(&copy, text->bytes, text->length);
    tc_buffer_add(&copy, "", 1);
    char **lines = malloc((text->length + 1) * sizeof *lines);
    size_t count = 0;
    FUZZ_CHECK(lines && !copy.failed, "no memory");
    for (char *line = strtok(copy.bytes, "\n"); line; line = strtok(NULL, "\n")) {
        char *name = strstr(line, "]  \"");
        FUZZ_CHECK(name, "a line of hash without a name: %s", line);
        name[1] = '\0';
        lines[count++] = line;
    }
    qsort(lines, count, sizeof *lines, compare_lines);
    for (size_t i = 0; i < count; i++)
        tc_buffer_addf(nameless, "%s\n", lines[i]);
    free(lines);
    tc_buffer_release(&copy);
}

static void expect_same(const struct tc_buffer *a, const struct tc_buffer *b, const char *target) {
    FUZZ_CHECK(
        tc_text_equal((struct tc_text){a->bytes, a->length}, (struct tc_text){b->bytes, b->length}),
        "%s holds other tensors:\n%.*s\nin place of\n%.*s", target, (int)b->length,
        b->length ? b->bytes : "", (int)a->length, a->length ? a->bytes : "");
}

/* Compares the output's tensors with the input's, as far as the ledger has nothing about them. */
static void check_output(const struct tc_plan *plan, const char *path,
                         const struct tc_buffer *before) {
    struct tc_error error = {0};
    struct tc_buffer after = {0};
    fuzz_restart_clock();
    FUZZ_CHECK(fuzz_digest(path, NULL, &fuzz_options, &after, &error), "the output as %s: %s",
               plan->target->name, error.message);
    if (told(plan, TC_KIND_DTYPE) + told(plan, TC_KIND_DEQUANTISED) + told(plan, TC_KIND_SPARSE) ==
        0) {
        if (plan->target->caps & TC_CAN_NAME && told(plan, TC_KIND_NAME) == 0) {
            expect_same(before, &after, plan->target->name);
        } else {
            struct tc_buffer nameless[2] = {0};
            forget_names(before, &nameless[0]);
            forget_names(&after, &nameless[1]);
            expect_same(&nameless[0], &nameless[1], plan->target->name);
            tc_buffer_release(&nameless[0]);
            tc_buffer_release(&nameless[1]);
        }
    }
    tc_buffer_release(&after);
}

/* `before` is the text of `tconv hash`; NULL: the input is damaged. */
static void convert(struct tc_reader *reader, const struct tc_backend *target, size_t variant,
                    const struct tc_buffer *before) {
    struct tc_error error = {0};
    struct tc_plan plan;
    char name[32];
    const bool compress = variant & 1 && target->caps & TC_CAN_COMPRESS;
    const struct tc_plan_options options = {
        .keep_metadata = variant & 2 ? TC_KEEP_SIDECAR : TC_KEEP_AUTO,
        .order = variant & 4 ? TC_ORDER_NAME : TC_ORDER_TARGET,
        .write = {.checksum = !(variant & 8), .compress = compress ? TC_COMPRESS_DEFAULT : 0}};
    const struct tc_convert_options run = {
        .publish = {.no_sync = true}, .read_back = true, .open = tc_registry_open_input};
    snprintf(name, sizeof name, "out%s", target->extensions[0]);
    const char *output = fuzz_path(name);
    fuzz_restart_clock();
    bool ok = tc_plan_make(&plan, &reader, 1, target, output, &options, &error) &&
              tc_convert(&plan, output, &run, &error);
    fuzz_check_outcome(ok, &error);
    FUZZ_CHECK(!ok || before, "a damaged file became %s", target->name);
    FUZZ_CHECK(ok || error.class == TC_INVALID || error.class == TC_UNSUPPORTED ||
                   error.class == TC_UNSAFE,
               "converting to %s: %s: %s", target->name, error.code, error.message);
    if (ok)
        check_output(&plan, output, before);
    else
        FUZZ_CHECK(access(output, F_OK) != 0, "there is an output in spite of an error");
    tc_plan_release(&plan);
}

/* Whether conversions must fail for this error of reading all of a file: it is about a tensor, or
 * about the file as a whole, and not about a member that is left out anyway. */
static bool is_damage(const struct tc_reader *reader, const struct tc_error *error) {
    return error->class == TC_INVALID &&
           (!error->has_tensor || tc_table_find(&reader->table, tc_text_of(error->tensor)));
}

void fuzz_roundtrip(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    struct tc_error damage = {0};
    struct tc_buffer before = {0};
    fuzz_empty_folder();
    fuzz_write("in", bytes, length);
    struct tc_reader *reader = tc_registry_open(fuzz_path("in"), NULL, &fuzz_options, &error);
    fuzz_check_outcome(reader != NULL, &error);
    if (reader && is_small(&reader->table)) {
        bool whole = fuzz_digest(fuzz_path("in"), NULL, &fuzz_options, &before, &damage);
        for (size_t i = 0; tc_registry[i]; i++)
            if (tc_registry[i]->caps & TC_CAN_WRITE && (whole || is_damage(reader, &damage)))
                convert(reader, tc_registry[i], length, whole ? &before : NULL);
    }
    tc_reader_close(reader);
    tc_buffer_release(&before);
}
