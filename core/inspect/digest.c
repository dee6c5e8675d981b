#include "core/inspect/digest.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/io/thread_pool.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

#define STEP ((size_t)1 << 18)

/* What the threads share. A job is a tensor's position in the table. */
struct hashing {
    struct tc_reader *reader;
    unsigned char (*sums)[TC_SHA256_BYTES];
    const bool *read;             /* by table position: its bytes are hashed; NULL: all are */
    size_t next;                  /* the position from which the next job is looked for */
    atomic_uint_fast64_t done;    /* bytes that were not reported to the watch yet */
    const struct tc_watch *watch; /* NULL: none */
};

static bool is_hashed(const struct hashing *hashing, size_t position) {
    return tc_table_source(&hashing->reader->table, position) == position &&
           (!hashing->read || hashing->read[position]);
}

static bool next_tensor(void *context, void *job) {
    struct hashing *hashing = context;
    size_t count = hashing->reader->table.count;
    while (hashing->next < count && !is_hashed(hashing, hashing->next))
        hashing->next++;
    *(size_t *)job = hashing->next;
    return hashing->next++ < count;
}

static void report(struct hashing *hashing, const struct tc_pool_worker *worker, size_t step) {
    if (!hashing->watch)
        return;
    atomic_fetch_add(&hashing->done, step);
    if (worker->is_caller)
        hashing->watch->step(hashing->watch->context, atomic_exchange(&hashing->done, 0));
}

static bool hash_tensor(void *context, struct tc_pool_worker *worker, const void *job,
                        struct tc_error *error) {
    struct hashing *hashing = context;
    size_t position = *(const size_t *)job;
    const struct tc_tensor *tensor = &hashing->reader->table.tensors[position];
    struct tc_sha256 hash;
    if (!tc_sha256_init(&hash, error))
        return false;
    for (uint64_t at = 0; at < tensor->nbytes && !tc_pool_stopped(worker);) {
        uint64_t left = tensor->nbytes - at;
        size_t step = left < STEP ? left : STEP;
        if (!tc_reader_read(hashing->reader, tensor, at, worker->memory, step, error)) {
            tc_sha256_release(&hash);
            return false;
        }
        tc_sha256_update(&hash, worker->memory, step);
        at += step;
        report(hashing, worker, step);
    }
    tc_sha256_finish(&hash, hashing->sums[position]);
    return true;
}

/* One where any tensor must be read in sequence, and no more than there are tensors to hash. */
static size_t count_threads(const struct hashing *hashing) {
    const struct tc_table *table = &hashing->reader->table;
    size_t most = tc_table_is_sequential(table) ? 1 : tc_thread_count();
    size_t threads = 0;
    for (size_t i = 0; i < table->count && threads < most; i++)
        threads += is_hashed(hashing, i);
    return threads;
}

static bool hash_all(struct hashing *hashing, struct tc_error *error) {
    const struct tc_pool_work work = {.context = hashing,
                                      .next = next_tensor,
                                      .job_size = sizeof(size_t),
                                      .run = hash_tensor,
                                      .memory_size = STEP};
    return tc_pool_run(&work, count_threads(hashing), error);
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

/* The wanted tensors and, for each that shares its data, the first that has the data. From
 * malloc. */
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
    struct hashing hashing = {.reader = reader, .sums = digest->sums, .read = read, .watch = watch};
    struct tc_checksum_thread *checksums =
        tc_checksum_thread_start(&reader, read ? &read : NULL, 1, error);
    bool ok = checksums && hash_all(&hashing, error);
    ok = tc_checksum_thread_join(checksums, error) && ok;
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
