#include "core/inspect/digest.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/io/chunk_pipe.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

#define MAX_WORKERS 4
#define STEP ((size_t)1 << 18)

struct digests {
    struct tc_reader *reader;
    unsigned char (*sums)[TC_SHA256_BYTES];
    const bool *read;   /* by table position: its bytes are hashed; NULL: all are */
    atomic_size_t next; /* the next tensor to hash */
    atomic_bool stop;
    size_t workers;
    atomic_uint_fast64_t done;    /* bytes, of which the watch was not told yet */
    const struct tc_watch *watch; /* NULL: nobody asks */
};

struct worker {
    struct digests *digests;
    pthread_t thread;
    bool is_caller; /* in the thread that wants the digest */
    struct tc_error error;
};

static bool hash_tensor(struct worker *worker, const struct tc_tensor *tensor,
                        unsigned char *buffer, unsigned char *sum, struct tc_error *error) {
    struct digests *digests = worker->digests;
    struct tc_sha256 hash;
    if (!tc_sha256_init(&hash, error))
        return false;
    for (uint64_t at = 0; at < tensor->nbytes;) {
        uint64_t left = tensor->nbytes - at;
        size_t step = left < STEP ? left : STEP;
        if (!tc_reader_read(digests->reader, tensor, at, buffer, step, error)) {
            tc_sha256_release(&hash);
            return false;
        }
        tc_sha256_update(&hash, buffer, step);
        at += step;
        if (digests->watch) {
            atomic_fetch_add(&digests->done, step);
            if (worker->is_caller)
                digests->watch->step(digests->watch->context, atomic_exchange(&digests->done, 0));
        }
    }
    tc_sha256_finish(&hash, sum);
    return true;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct digests *digests = worker->digests;
    struct tc_table *table = &digests->reader->table;
    unsigned char *buffer = malloc(STEP);
    bool ok = buffer || tc_fail_memory(&worker->error);
    while (ok && !atomic_load(&digests->stop)) {
        size_t i = atomic_fetch_add(&digests->next, 1);
        if (i >= table->count)
            break;
        if (tc_table_source(table, i) != i || (digests->read && !digests->read[i]))
            continue;
        ok = hash_tensor(worker, &table->tensors[i], buffer, digests->sums[i], &worker->error);
    }
    if (!ok)
        atomic_store(&digests->stop, true);
    free(buffer);
    return NULL;
}

/* One worker where any tensor must be read in sequence. */
static size_t count_workers(const struct tc_table *table) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t workers = cores < 1 ? 1 : cores > MAX_WORKERS ? MAX_WORKERS : (size_t)cores;
    return workers < table->count && !tc_table_is_sequential(table) ? workers : 1;
}

static bool hash_all(struct digests *digests, struct tc_error *error) {
    struct worker *workers = calloc(digests->workers, sizeof *workers);
    if (!workers)
        return tc_fail_memory(error);
    size_t started = 1; /* this thread is the first worker */
    for (size_t i = 0; i < digests->workers; i++)
        workers[i].digests = digests;
    workers[0].is_caller = true;
    while (started < digests->workers &&
           tc_thread_start(&workers[started].thread, work, &workers[started], error))
        started++;
    if (error->class != TC_OK)
        atomic_store(&digests->stop, true);
    work(&workers[0]);
    for (size_t i = 1; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < started; i++)
        if (workers[i].error.class != TC_OK && error->class == TC_OK)
            *error = workers[i].error;
    free(workers);
    return error->class == TC_OK;
}

static int by_name(const void *a, const void *b, void *tensors) {
    const struct tc_tensor *list = tensors;
    return tc_text_compare(list[*(const size_t *)a].name, list[*(const size_t *)b].name);
}

static bool sort_names(struct tc_digest *digest, const struct tc_table *table, const bool *wanted,
                       struct tc_error *error) {
    digest->order = malloc((table->count ? table->count : 1) * sizeof *digest->order);
    if (!digest->order)
        return tc_fail_memory(error);
    for (size_t i = 0; i < table->count; i++)
        if (!wanted || wanted[i])
            digest->order[digest->count++] = i;
    qsort_r(digest->order, digest->count, sizeof *digest->order, by_name, table->tensors);
    return true;
}

bool tc_digest_make(struct tc_digest *digest, struct tc_reader *reader, struct tc_error *error) {
    return tc_digest_make_watched(digest, reader, NULL, NULL, error);
}

/* What shares its data with a tensor that is wanted is read for it. From malloc. */
static bool *list_read(const struct tc_table *table, const bool *wanted, struct tc_error *error) {
    bool *read = calloc(table->count + 1, sizeof *read);
    if (!read)
        tc_fail_memory(error);
    for (size_t i = 0; i < table->count && read; i++)
        if (wanted[i])
            read[i] = read[tc_table_source(table, i)] = true;
    return read;
}

bool tc_digest_make_watched(struct tc_digest *digest, struct tc_reader *reader, const bool *wanted,
                            const struct tc_watch *watch, struct tc_error *error) {
    size_t count = reader->table.count;
    *digest = (struct tc_digest){.sums = calloc(count ? count : 1, sizeof *digest->sums)};
    bool *read = wanted ? list_read(&reader->table, wanted, error) : NULL;
    if (!digest->sums || (wanted && !read)) {
        free(read);
        return tc_fail_memory(error);
    }
    struct digests digests = {.reader = reader,
                              .sums = digest->sums,
                              .read = read,
                              .workers = count_workers(&reader->table),
                              .watch = watch};
    struct tc_verify *verify = tc_verify_start(&reader, read ? &read : NULL, 1, error);
    bool ok = verify && hash_all(&digests, error);
    ok = tc_verify_join(verify, error) && ok;
    for (size_t i = 0; i < count && ok; i++)
        if (tc_table_source(&reader->table, i) != i)
            memcpy(digest->sums[i], digest->sums[tc_table_source(&reader->table, i)],
                   TC_SHA256_BYTES);
    free(read);
    ok = ok && tc_reader_unchanged(reader, error) &&
         sort_names(digest, &reader->table, wanted, error);
    return ok ? true : tc_error_in_file(error, reader->input->path);
}

void tc_digest_release(struct tc_digest *digest) {
    free(digest->sums);
    free(digest->order);
    *digest = (struct tc_digest){0};
}

void tc_digest_add_line(struct tc_buffer *text, const unsigned char sum[TC_SHA256_BYTES],
                        enum tc_dtype dtype, const uint64_t *shape, unsigned rank,
                        struct tc_text name) {
    char hex[2 * TC_SHA256_BYTES + 1];
    tc_hex(sum, TC_SHA256_BYTES, hex);
    tc_buffer_addf(text, "%s  %s  ", hex, tc_dtype_name(dtype));
    tc_shape_print(text, shape, rank);
    tc_buffer_add(text, "  ", 2);
    tc_buffer_add_json(text, name, TC_ESCAPE_DISPLAY);
    tc_buffer_add(text, "\n", 1);
}

bool tc_digest_print(const struct tc_digest *digest, const struct tc_reader *reader,
                     struct tc_buffer *text, struct tc_error *error) {
    const struct tc_table *table = &reader->table;
    for (size_t i = 0; i < digest->count; i++) {
        const struct tc_tensor *tensor = &table->tensors[digest->order[i]];
        tc_digest_add_line(text, digest->sums[digest->order[i]], tensor->dtype, tensor->shape,
                           tensor->rank, tensor->name);
    }
    return tc_buffer_ok(text, error);
}

bool tc_digest_total(const struct tc_buffer *text, char hex[2 * TC_SHA256_BYTES + 1],
                     struct tc_error *error) {
    unsigned char sum[TC_SHA256_BYTES];
    if (!tc_sha256_of(text->bytes, text->length, sum, error))
        return false;
    tc_hex(sum, sizeof sum, hex);
    return true;
}
