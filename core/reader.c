#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format.h"

/* The file's name without its folder and its last extension. */
static struct tc_text stem_of(const char *path) {
    if (strcmp(path, "-") == 0)
        return TC_TEXT("stdin");
    const char *name = tc_path_name(path);
    const char *dot = strrchr(name, '.');
    return (struct tc_text){name, dot && dot != name ? (size_t)(dot - name) : strlen(name)};
}

struct tc_reader *tc_reader_open(const struct tc_backend *backend, struct tc_input *input,
                                 const struct tc_format_options *options,
                                 struct tc_error *error) {
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
    tc_buffer_release(&reader->skipped);
    tc_input_close(reader->input);
    free(reader->state);
    free(reader);
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

struct tc_verify {
    struct tc_reader *reader;
    const bool *wanted;
    pthread_t thread;
    bool running;
    struct tc_error error;
};

static void *run_verify(void *argument) {
    struct tc_verify *verify = argument;
    struct tc_reader *reader = verify->reader;
    if (!reader->backend->verify(reader, verify->wanted, &verify->error))
        tc_error_in_file(&verify->error, reader->input->path);
    return NULL;
}

struct tc_verify *tc_verify_start(struct tc_reader *reader, const bool *wanted,
                                  struct tc_error *error) {
    struct tc_verify *verify = calloc(1, sizeof *verify);
    if (!verify) {
        tc_fail_memory(error);
        return NULL;
    }
    verify->reader = reader;
    verify->wanted = wanted;
    if (reader->backend->verify) {
        verify->running = tc_thread_start(&verify->thread, run_verify, verify, error);
        if (!verify->running) {
            free(verify);
            return NULL;
        }
    }
    return verify;
}

bool tc_verify_join(struct tc_verify *verify, struct tc_error *error) {
    if (!verify)
        return true;
    if (verify->running)
        pthread_join(verify->thread, NULL);
    bool ok = verify->error.class == TC_OK;
    if (!ok && error->class == TC_OK)
        *error = verify->error;
    free(verify);
    return ok;
}

void tc_reader_warn(struct tc_reader *reader, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tc_buffer_addf(&reader->warnings, "%s\n", line);
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

uint64_t tc_reader_header_limit(const struct tc_reader *reader, uint64_t standard) {
    return reader->options->limits.header ? reader->options->limits.header : standard;
}
