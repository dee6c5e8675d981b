#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format.h"
#include "core/select.h"

/* The file's name without its folder and its last extension. */
static struct tc_text stem_of(const char *path) {
    if (strcmp(path, "-") == 0)
        return TC_TEXT("stdin");
    const char *name = tc_path_name(path);
    const char *dot = strrchr(name, '.');
    return (struct tc_text){name, dot && dot != name ? (size_t)(dot - name) : strlen(name)};
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
    reader->stem = stem_of(input->path);
    tc_arena_init(&reader->arena, options->limits.memory);
    tc_table_init(&reader->table, &reader->arena, options->limits.tensors);
    if (!backend->open(reader, error)) {
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
    tc_buffer_release(&reader->warnings);
    tc_buffer_release(&reader->losses);
    tc_buffer_release(&reader->skipped);
    tc_input_close(reader->sidecar);
    tc_input_close(reader->input);
    free(reader->state);
    free(reader);
}

bool tc_reader_has_beside(const struct tc_reader *reader, const char *path) {
    const struct tc_publish *unpublished = reader->options->unpublished;
    return unpublished ? tc_publish_find(unpublished, tc_path_name(path)) != NULL
                       : access(path, F_OK) == 0;
}

struct tc_input *tc_reader_open_beside(const struct tc_reader *reader, const char *path,
                                       struct tc_input_pool *pool, struct tc_error *error) {
    const struct tc_publish *unpublished = reader->options->unpublished;
    if (!unpublished)
        return tc_input_open(path, pool, error);
    const struct tc_outfile *out = tc_publish_find(unpublished, tc_path_name(path));
    if (out)
        return tc_outfile_reopen(out, pool, error);
    tc_fail_errno(error, ENOENT, "open", "cannot open");
    tc_error_in_file(error, path);
    return NULL;
}

bool tc_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                    void *buffer, size_t length, struct tc_error *error) {
    if (length == 0 || reader->backend->read(reader, tensor, offset, buffer, length, error))
        return true;
    tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
    return tc_error_in_file(error, reader->input->path);
}

bool tc_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                      struct tc_extent *extent) {
    return reader->backend->extent && reader->backend->extent(reader, tensor, extent);
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
        if (input)
            return input;
    }
    return NULL;
}

bool tc_reader_check_target(const struct tc_reader *reader, struct tc_publish *publish,
                            const char *name, struct tc_error *error) {
    struct tc_input *input;
    for (size_t at = 0; (input = tc_reader_next_file(reader, &at));)
        if (!tc_publish_check(publish, name, &input, 1, error))
            return false;
    return true;
}

bool tc_reader_unchanged(struct tc_reader *reader, struct tc_error *error) {
    struct tc_input *input;
    for (size_t at = 0; (input = tc_reader_next_file(reader, &at));)
        if (!tc_input_unchanged(input, error))
            return false;
    return true;
}

struct tc_verify {
    struct tc_reader *const *readers;
    bool *const *wanted;
    size_t count;
    pthread_t thread;
    struct tc_error error;
};

static void *run_verify(void *argument) {
    struct tc_verify *verify = argument;
    for (size_t i = 0; i < verify->count; i++) {
        struct tc_reader *reader = verify->readers[i];
        if (reader->backend->verify &&
            !reader->backend->verify(reader, verify->wanted ? verify->wanted[i] : NULL,
                                     &verify->error)) {
            tc_error_in_file(&verify->error, reader->input->path);
            break;
        }
    }
    return NULL;
}

struct tc_verify *tc_verify_start(struct tc_reader *const *readers, bool *const *wanted,
                                  size_t count, struct tc_error *error) {
    struct tc_verify *verify = calloc(1, sizeof *verify);
    if (!verify) {
        tc_fail_memory(error);
        return NULL;
    }
    verify->readers = readers;
    verify->wanted = wanted;
    verify->count = count;
    if (!tc_thread_start(&verify->thread, run_verify, verify, error)) {
        free(verify);
        return NULL;
    }
    return verify;
}

bool tc_verify_join(struct tc_verify *verify, struct tc_error *error) {
    if (!verify)
        return true;
    pthread_join(verify->thread, NULL);
    bool ok = verify->error.class == TC_OK;
    if (!ok && error->class == TC_OK)
        *error = verify->error;
    free(verify);
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

/* A line of its own, whatever the names in it hold. */
static void add_line(struct tc_buffer *lines, const char *format, va_list args) {
    char line[512];
    vsnprintf(line, sizeof line, format, args);
    for (char *at = line; *at; at++)
        if (*at == '\n')
            *at = ' ';
    tc_buffer_addf(lines, "%s\n", line);
}

void tc_reader_warn(struct tc_reader *reader, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_line(&reader->warnings, format, args);
    va_end(args);
}

void tc_reader_lose(struct tc_reader *reader, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_line(&reader->losses, format, args);
    va_end(args);
}

bool tc_reader_wants(const struct tc_reader *reader, struct tc_text name) {
    const struct tc_select *select = reader->options->select;
    struct tc_error ignored = {0};
    bool taken;
    /* Where the match itself fails the plan will say so: until then it is wanted. */
    return !select || !tc_select_takes(select, name, &taken, &ignored) || taken;
}

bool tc_reader_skip(struct tc_reader *reader, struct tc_text name, enum tc_skip what,
                    struct tc_error *error, const char *reason, ...) {
    char text[512];
    va_list args;
    if (!tc_reader_wants(reader, name))
        return true;
    va_start(args, reason);
    vsnprintf(text, sizeof text, reason, args);
    va_end(args);
    if (reader->skipped.length)
        tc_buffer_add_string(&reader->skipped, ", ");
    tc_buffer_add_text(&reader->skipped, name);
    tc_buffer_addf(&reader->skipped, " (%s)", text);
    reader->skipped_pickle |= what == TC_SKIP_PICKLE;
    return tc_buffer_ok(&reader->skipped, error);
}

bool tc_reader_check_expansion(struct tc_reader *reader, uint64_t expanded,
                               struct tc_error *error) {
    uint64_t limit = reader->options->limits.made;
    uint64_t free_bytes;
    if (__builtin_mul_overflow(reader->input->size, (uint64_t)TC_FREE_EXPANSION, &free_bytes))
        return true;
    if (expanded <= free_bytes || expanded - free_bytes <= limit)
        return true;
    tc_fail(error, TC_UNSAFE, "size-limit",
            "%llu bytes of data from a file of %llu bytes: this looks like a decompression bomb "
            "(limit %llu bytes beyond %u times the file)",
            (unsigned long long)expanded, (unsigned long long)reader->input->size,
            (unsigned long long)limit, TC_FREE_EXPANSION);
    return tc_error_hint(error, "raise the limit with --max-size if you trust this file");
}

void *tc_reader_load(struct tc_reader *reader, uint64_t offset, uint64_t length,
                     struct tc_error *error) {
    return tc_arena_charge(&reader->arena, length, error)
               ? tc_input_load(reader->input, offset, length, error)
               : NULL;
}

uint64_t tc_reader_header_limit(const struct tc_reader *reader, uint64_t standard) {
    return reader->options->limits.header ? reader->options->limits.header : standard;
}
