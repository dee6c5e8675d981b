#include "core/format/reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/checked.h"
#include "core/base/findings.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/io/cores.h"
#include "core/io/thread_pool.h"
#include "core/remote/address.h"
#include "core/remote/remote.h"
#include "core/tensor/select.h"

/* Where there was no memory for a note, fails as the arena does when its budget is
 * spent, rather than go on without the note. */
static bool check_notes(struct tc_reader *reader, struct tc_error *error) {
    return !reader->note_refused || tc_arena_charge(&reader->arena, UINT64_MAX, error);
}

/* The size to which a file may be decompressed before --max-size counts. */
static uint64_t free_expansion(uint64_t size) {
    uint64_t bytes;
    return tc_mul(size, TC_FREE_EXPANSION, &bytes) ? bytes : UINT64_MAX;
}

/* The bytes of all tensors, or only of those that --include and --exclude take.
 * Data that tensors share is counted once where the first of them is taken. */
static uint64_t data_of(const struct tc_reader *reader, bool wanted) {
    const struct tc_table *table = &reader->table;
    uint64_t data = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct tc_tensor *source = &table->tensors[tc_table_source(table, i)];
        const struct tc_tensor *tensor = &table->tensors[i];
        if (tensor != source && (!wanted || tc_reader_wants(reader, source->name)))
            continue;
        if (wanted && !tc_reader_wants(reader, tensor->name))
            continue;
        if (!tc_add(data, tensor->nbytes, &data))
            return UINT64_MAX;
    }
    return data;
}

/* Refuses tensors that have far more data than the files, whatever the format: many
 * tensors may be views of the same bytes, which are then read many times. */
static bool check_data(struct tc_reader *reader, struct tc_error *error) {
    uint64_t data = data_of(reader, false);
    uint64_t files = 0;
    struct tc_input *input;
    for (size_t at = 0; (input = tc_reader_next_file(reader, &at));)
        if (!tc_add(files, input->size, &files))
            files = UINT64_MAX;
    uint64_t most;
    uint64_t made = tc_made_limit(reader->options->limits.made, files);
    if (!tc_add(files, made, &most))
        most = UINT64_MAX;
    uint64_t free_of_charge = free_expansion(files);
    uint64_t allowed = most > free_of_charge ? most : free_of_charge;
    /* Matching names takes time, so it is done only where all tensors are too many. */
    if (data <= allowed || (data = data_of(reader, true)) <= allowed)
        return true;
    tc_fail(error, TC_UNSAFE, "size-limit",
            "its tensors have %llu bytes in all, its files %llu (limit %llu beyond that)",
            (unsigned long long)data, (unsigned long long)files, (unsigned long long)made);
    return tc_error_hint(error, "raise the limit with --max-size if you trust this file");
}

struct tc_reader *tc_reader_open(const struct tc_backend *backend, struct tc_input *input,
                                 const struct tc_format_options *options, struct tc_error *error) {
    struct tc_reader *reader = calloc(1, sizeof *reader);
    void *state = calloc(1, backend->reader_size ? backend->reader_size : 1);
    if (!reader || !state) {
        free(reader);
        free(state);
        tc_fail_memory(error);
        tc_error_in_file(error, input->path);
        tc_input_close(input);
        return NULL;
    }
    reader->backend = backend;
    reader->input = input;
    reader->options = options;
    reader->state = state;
    reader->size = input->size;
    reader->framework = backend->framework;
    reader->stem = tc_path_stem(input->path);
    tc_arena_init(&reader->arena, options->limits.memory);
    tc_table_init(&reader->table, &reader->arena, options->limits.tensors);
    tc_notes_init(&reader->notes, &reader->arena);
    tc_notes_init(&reader->tree_notes, &reader->arena);
    bool ok =
        backend->open(reader, error) && check_data(reader, error) && check_notes(reader, error);
    /* What was found out about a file of which a part could not be read does not count. */
    if (input->failure->errnum && error->class != TC_IO) {
        *error = (struct tc_error){0};
        ok = tc_input_sound(input, error);
    }
    if (!ok) {
        tc_error_in_file(error, input->path);
        tc_reader_close(reader);
        return NULL;
    }
    return reader;
}

void tc_reader_close(struct tc_reader *reader) {
    if (!reader)
        return;
    reader->backend->close(reader);
    tc_table_release(&reader->table);
    tc_arena_release(&reader->arena);
    tc_input_close(reader->sidecar);
    tc_input_close(reader->input);
    free(reader->state);
    free(reader);
}

struct tc_input *tc_reader_input(const struct tc_format_options *options, const char *path,
                                 struct tc_input_pool *pool, struct tc_error *error) {
    return options->remote && tc_address_is(path) ? tc_remote_open(options->remote, path, error)
                                                  : tc_input_open(path, pool, error);
}

/* Whether what lies beside the reader's file is read by the network too. */
static bool is_remote(const struct tc_reader *reader) {
    return reader->options->remote && tc_address_is(reader->input->path);
}

/* The address of a file beside the reader's own; from malloc. */
static char *address_beside(const struct tc_reader *reader, const char *path,
                            struct tc_error *error) {
    const char *own = reader->input->path;
    return tc_remote_beside(path, (size_t)(tc_path_name(own) - own), error);
}

/* Whether the file of this address is there. */
static bool has_remote(const struct tc_reader *reader, const char *path, bool *has,
                       struct tc_error *error) {
    char *address = address_beside(reader, path, error);
    bool ok = address && tc_remote_has(reader->options->remote, address, has, error);
    free(address);
    return ok;
}

bool tc_reader_has_beside(const struct tc_reader *reader, const char *path, bool *has,
                          struct tc_error *error) {
    const struct tc_publish *unpublished = reader->options->unpublished;
    if (!unpublished && is_remote(reader))
        return has_remote(reader, path, has, error);
    *has = unpublished ? tc_publish_find(unpublished, tc_path_name(path)) != NULL
                       : access(path, F_OK) == 0;
    if (*has || unpublished || tc_path_missing(errno))
        return true;
    tc_fail_errno(error, errno, "open", "cannot find out whether this file is there");
    return tc_error_in_file(error, path);
}

struct tc_input *tc_reader_open_beside(const struct tc_reader *reader, const char *path,
                                       struct tc_input_pool *pool, struct tc_error *error) {
    const struct tc_publish *unpublished = reader->options->unpublished;
    if (!unpublished && is_remote(reader)) {
        char *address = address_beside(reader, path, error);
        struct tc_input *input =
            address ? tc_remote_open(reader->options->remote, address, error) : NULL;
        free(address);
        return input;
    }
    /* Only a user's "-" is standard input; a file of that name may exist. */
    if (!unpublished)
        return tc_input_open(strcmp(path, "-") == 0 ? "./-" : path, pool, error);
    const struct tc_outfile *out = tc_publish_find(unpublished, tc_path_name(path));
    if (out)
        return tc_outfile_reopen(out, pool, error);
    tc_fail_errno(error, ENOENT, "open", "cannot open");
    tc_error_in_file(error, path);
    return NULL;
}

bool tc_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                    void *buffer, size_t length, struct tc_error *error) {
    struct tc_extent extent;
    if (reader->options->remote && tc_reader_extent(reader, tensor, &extent))
        tc_input_expect(extent.input, extent.offset, tensor->nbytes);
    if (length == 0 || reader->backend->read(reader, tensor, offset, buffer, length, error))
        return true;
    tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
    return tc_error_in_file(error, reader->input->path);
}

bool tc_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                      struct tc_extent *extent) {
    return reader->backend->extent && reader->backend->extent(reader, tensor, extent);
}

bool tc_reader_strided(struct tc_reader *reader, const struct tc_tensor *tensor,
                       struct tc_strided *strided) {
    return reader->backend->strided && reader->backend->strided(reader, tensor, strided);
}

struct tc_input *tc_reader_next_file(const struct tc_reader *reader, size_t *at) {
    size_t shards = 1 + reader->shard_count;
    size_t companions = shards + reader->companion_count;
    while (*at <= companions) {
        size_t i = (*at)++;
        struct tc_input *input = i == 0           ? reader->input
                                 : i < shards     ? reader->shard_inputs[i - 1]
                                 : i < companions ? reader->companions[i - shards]
                                                  : reader->sidecar;
        if (input && !input->is_list)
            return input;
    }
    return NULL;
}

bool tc_reader_check_target(const struct tc_reader *reader, struct tc_publish *publish,
                            const char *name, struct tc_error *error) {
    struct tc_input *input;
    for (size_t at = 0; (input = tc_reader_next_file(reader, &at));) {
        if (!tc_publish_check(publish, name, &input, 1, error))
            return false;
        tc_publish_limit(publish, input);
    }
    return true;
}

bool tc_reader_unchanged(struct tc_reader *reader, struct tc_error *error) {
    struct tc_input *input;
    for (size_t at = 0; (input = tc_reader_next_file(reader, &at));)
        if (!tc_input_unchanged(input, error))
            return false;
    return true;
}

struct tc_checksum_thread {
    struct tc_reader *const *readers;
    bool *const *wanted;
    size_t count;
    size_t granted; /* by tc_cores_begin */
    bool running;   /* there is a thread for it */
    pthread_t thread;
    struct tc_error error;
};

bool tc_reader_check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    if (!reader->backend->check_sums)
        return true;
    tc_input_check(reader->input, TC_CHECKING_BEGINS);
    bool ok = reader->backend->check_sums(reader, wanted, error);
    tc_input_check(reader->input, TC_CHECKING_ENDS);
    return ok;
}

bool tc_reader_in_step(const struct tc_reader *reader) {
    return reader->input->source && reader->backend->check_sums && !reader->options->unverified;
}

static void *check_all(void *argument) {
    struct tc_checksum_thread *thread = argument;
    for (size_t i = 0; i < thread->count; i++) {
        struct tc_reader *reader = thread->readers[i];
        if (!reader->options->unverified &&
            !tc_reader_check_sums(reader, thread->wanted ? thread->wanted[i] : NULL,
                                  &thread->error)) {
            tc_error_in_file(&thread->error, reader->input->path);
            break;
        }
    }
    return NULL;
}

struct tc_checksum_thread *tc_checksum_thread_start(struct tc_reader *const *readers,
                                                    bool *const *wanted, size_t count,
                                                    struct tc_error *error) {
    struct tc_checksum_thread *thread = calloc(1, sizeof *thread);
    if (!thread) {
        tc_fail_memory(error);
        return NULL;
    }
    thread->readers = readers;
    thread->wanted = wanted;
    thread->count = count;
    /* Without a thread, the sums are checked at the end. */
    struct tc_error ignored = {0};
    bool any = false;
    bool in_step = false; /* at the end, all would be fetched again */
    for (size_t i = 0; i < count; i++) {
        any |= readers[i]->backend->check_sums != NULL;
        in_step |= tc_reader_in_step(readers[i]);
    }
    thread->granted = any ? tc_cores_begin(2) : 1;
    thread->running = (thread->granted > 1 || in_step) &&
                      tc_thread_start(&thread->thread, check_all, thread, &ignored);
    return thread;
}

bool tc_checksum_thread_join(struct tc_checksum_thread *thread, struct tc_error *error) {
    if (!thread)
        return true;
    struct tc_input *input;
    for (size_t i = 0; i < thread->count; i++)
        for (size_t at = 0; (input = tc_reader_next_file(thread->readers[i], &at));)
            tc_input_check(input, TC_CHECKING_ALONE);
    if (thread->running)
        pthread_join(thread->thread, NULL);
    else if (error->class == TC_OK)
        check_all(thread);
    tc_cores_end(thread->granted);
    bool ok = thread->error.class == TC_OK;
    if (!ok && error->class == TC_OK)
        *error = thread->error;
    free(thread);
    return ok;
}

bool tc_reader_forgive(struct tc_reader *reader, struct tc_error *error) {
    struct tc_findings *findings = reader->options->findings;
    if (!findings || error->class != TC_INVALID)
        return false;
    tc_error_in_file(error, reader->input->path);
    tc_findings_add_error(findings, error);
    *error = (struct tc_error){0};
    return true;
}

bool tc_reader_note(struct tc_reader *reader, enum tc_severity severity, enum tc_kind kind,
                    struct tc_text name, struct tc_error *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    bool ok = tc_notes_add_list(&reader->notes, severity, kind, name, error, format, args);
    va_end(args);
    return ok;
}

/* Adds a note for a caller that has no error to fill. */
static void add_note(struct tc_reader *reader, enum tc_severity severity, const char *format,
                     va_list args) {
    struct tc_error refused = {0};
    if (!tc_notes_add_list(&reader->notes, severity, TC_KIND_INPUT, (struct tc_text){0}, &refused,
                           format, args))
        reader->note_refused = true;
}

void tc_reader_warn(struct tc_reader *reader, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_note(reader, TC_WARNING, format, args);
    va_end(args);
}

void tc_reader_lose(struct tc_reader *reader, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_note(reader, TC_LOSS, format, args);
    va_end(args);
}

bool tc_reader_wants(const struct tc_reader *reader, struct tc_text name) {
    const struct tc_select *select = reader->options->select;
    struct tc_error ignored = {0};
    bool taken;
    /* Where matching itself fails, the plan will report that; here it counts as
     * wanted. */
    return !select || !tc_select_takes(select, name, &taken, &ignored) || taken;
}

bool tc_reader_skip(struct tc_reader *reader, struct tc_text name, enum tc_skip what,
                    struct tc_error *error, const char *reason, ...) {
    va_list args;
    if (!tc_reader_wants(reader, name))
        return true;
    reader->skipped_pickle |= what == TC_SKIP_PICKLE;
    va_start(args, reason);
    bool ok =
        tc_notes_add_list(&reader->notes, TC_LOSS, TC_KIND_SKIPPED, name, error, reason, args);
    va_end(args);
    return ok;
}

bool tc_reader_refuse_rest(const struct tc_reader *reader, struct tc_error *error) {
    enum tc_class class = reader->skipped_pickle ? TC_UNSAFE : TC_UNSUPPORTED;
    size_t count = tc_notes_count(&reader->notes, TC_LOSS, TC_KIND_SKIPPED);
    const struct tc_note_group *group = reader->notes.groups;
    while (group->kind != TC_KIND_SKIPPED)
        group++;
    tc_fail(error, class, "nothing-left", "no tensor is left: %zu %s skipped (%s)", count,
            count == 1 ? "member is" : "members are", group->detail);
    if (group->name_count)
        tc_error_in_tensor(error, group->names[0].bytes, group->names[0].length);
    return tc_error_in_file(error, reader->input->path);
}

uint64_t tc_made_limit(uint64_t limit, uint64_t size) {
    if (limit != TC_LIMIT_BY_FILE)
        return limit;
    uint64_t sum;
    return tc_add(free_expansion(size), TC_LEAST_MADE, &sum) && sum < TC_MOST_MADE ? sum
                                                                                   : TC_MOST_MADE;
}

uint64_t tc_reader_made_limit(const struct tc_reader *reader) {
    return tc_made_limit(reader->options->limits.made, reader->size);
}

bool tc_reader_charge_made(struct tc_reader *reader, uint64_t bytes, struct tc_error *error) {
    uint64_t limit = tc_reader_made_limit(reader);
    if (tc_add(reader->made, bytes, &reader->made) && reader->made <= limit)
        return true;
    tc_fail(error, TC_UNSAFE, "size-limit",
            "its tensors have over %llu bytes that the file does not have: values, views or "
            "packed data that repeat (limit %llu)",
            (unsigned long long)limit, (unsigned long long)limit);
    return tc_error_hint(error, "raise the limit with --max-size if you trust this file");
}

bool tc_reader_cut_short(const struct tc_reader *reader, uint64_t expected, bool at_least,
                         struct tc_error *error) {
    uint64_t size = reader->input->size;
    uint64_t missing = expected - size;
    tc_fail(error, TC_INVALID, "truncated",
            "the file is cut short: %s%llu byte%s missing (it has %llu of %llu)",
            at_least ? "at least " : "", (unsigned long long)missing,
            missing == 1 ? " is" : "s are", (unsigned long long)size, (unsigned long long)expected);
    tc_error_because(error, TC_REASON_CUT_SHORT);
    return tc_error_hint(error, "a download or copy that was not finished? get the file again");
}

bool tc_reader_check_expansion(struct tc_reader *reader, uint64_t expanded,
                               struct tc_error *error) {
    uint64_t size = reader->input->size;
    uint64_t limit = reader->options->limits.made;
    uint64_t free_bytes = free_expansion(size);
    uint64_t beyond = expanded > free_bytes ? expanded - free_bytes : 0;
    if (limit == TC_LIMIT_BY_FILE)
        limit = TC_LEAST_MADE;
    if (beyond <= limit)
        return tc_reader_charge_made(reader, beyond, error);
    tc_fail(error, TC_UNSAFE, "size-limit",
            "%llu bytes of data from a file of %llu bytes: this looks like a decompression bomb "
            "(limit %llu bytes beyond %u times the file)",
            (unsigned long long)expanded, (unsigned long long)size, (unsigned long long)limit,
            TC_FREE_EXPANSION);
    return tc_error_hint(error, "raise the limit with --max-size if you trust this file");
}

void *tc_reader_load(struct tc_reader *reader, uint64_t offset, uint64_t length,
                     struct tc_error *error) {
    if (!tc_arena_charge(&reader->arena, length, error))
        return NULL;
    return tc_input_load(reader->input, offset, length, error);
}

bool tc_reader_check_header(const struct tc_reader *reader, const char *what, uint64_t length,
                            uint64_t standard, struct tc_error *error) {
    uint64_t limit = tc_reader_header_limit(reader, standard);
    if (length <= limit)
        return true;
    tc_fail(error, TC_UNSAFE, "header-limit", "the %s is too long (%llu bytes, limit %llu)", what,
            (unsigned long long)length, (unsigned long long)limit);
    return tc_error_hint(error, "raise the limit with --max-header if you trust this file");
}

uint64_t tc_reader_header_limit(const struct tc_reader *reader, uint64_t standard) {
    return reader->options->limits.header ? reader->options->limits.header : standard;
}
