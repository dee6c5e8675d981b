#include "core/inspect/digest.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cpu.h"
#include "core/io/crc_combine.h"
#include "core/io/sha256_lanes.h"
#include "core/io/thread_pool.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

/* What a thread reads before it hashes, of one tensor or of several together. */
#define STEP ((size_t)1 << 18)

/* Without a hash, tensors are read in pieces of this size, by several threads. */
#define PIECE (UINT64_C(4) << 20)

/* What the threads share. A job is a tensor, or a piece of it. */
struct hashing {
    struct tc_reader *reader;
    const struct tc_digest *digest; /* whose lists are filled in, except by `order` */
    const bool *read;               /* by table position: its bytes are hashed; NULL: all are */
    size_t next;                    /* the position from which the next job is looked for */
    uint64_t next_at;               /* where it starts in that tensor */
    atomic_uint_fast64_t done;      /* bytes that were not reported to the watch yet */
    const struct tc_watch *watch;   /* NULL: none */
    size_t lanes;                   /* how many jobs a thread does at once */
};

struct piece {
    size_t position;
    uint64_t at;
    uint64_t end;
};

/* A job that a thread is at. */
struct lane {
    bool busy;
    struct piece piece; /* what is left of it */
    uint64_t job;
    bool hashes;           /* `hash` is begun */
    struct tc_sha256 hash; /* where it is asked for */
    uint64_t sum;          /* the same */
};

/* What a thread keeps. Each lane has its part of the bytes. */
struct own {
    struct lane lanes[TC_SHA256_LANES];
    unsigned char bytes[STEP];
};

static bool is_hashed(const struct hashing *hashing, size_t position) {
    return tc_table_source(&hashing->reader->table, position) == position &&
           (!hashing->read || hashing->read[position]);
}

static bool next_piece(void *context, void *job) {
    struct hashing *hashing = context;
    const struct tc_table *table = &hashing->reader->table;
    while (hashing->next < table->count && !is_hashed(hashing, hashing->next))
        hashing->next++;
    if (hashing->next == table->count)
        return false;
    const struct tc_tensor *tensor = &table->tensors[hashing->next];
    uint64_t left = tensor->nbytes - hashing->next_at;
    bool whole = hashing->digest->sums || tensor->sequential || left <= PIECE;
    uint64_t length = whole ? left : PIECE;
    *(struct piece *)job =
        (struct piece){hashing->next, hashing->next_at, hashing->next_at + length};
    hashing->next_at = whole ? 0 : hashing->next_at + length;
    hashing->next += whole;
    return true;
}

static void report(struct hashing *hashing, const struct tc_pool_worker *worker, size_t step) {
    if (!hashing->watch)
        return;
    atomic_fetch_add(&hashing->done, step);
    if (worker->is_caller)
        hashing->watch->step(hashing->watch->context, atomic_exchange(&hashing->done, 0));
}

/* Reads the next bytes of a job; *length is how many. */
static bool read_step(struct hashing *hashing, struct tc_pool_worker *worker, struct lane *lane,
                      unsigned char *bytes, size_t *length, struct tc_error *error) {
    const struct tc_tensor *tensor = &hashing->reader->table.tensors[lane->piece.position];
    uint64_t left = lane->piece.end - lane->piece.at;
    size_t step = left < STEP / hashing->lanes ? left : STEP / hashing->lanes;
    if (hashing->digest->sums && !lane->hashes)
        lane->hashes = tc_sha256_init(&lane->hash, error);
    *length = step;
    if ((hashing->digest->sums && !lane->hashes) ||
        (step && !tc_reader_read(hashing->reader, tensor, lane->piece.at, bytes, step, error)))
        return false;
    if (hashing->digest->checks)
        lane->sum = tc_sum_add(lane->sum, bytes, step);
    lane->piece.at += step;
    report(hashing, worker, step);
    return true;
}

/* The job is done, or given up. */
static void end_lane(struct hashing *hashing, struct lane *lane, bool done) {
    const struct tc_digest *digest = hashing->digest;
    size_t position = lane->piece.position;
    if (lane->hashes && done)
        tc_sha256_finish(&lane->hash, digest->sums[position]);
    else if (lane->hashes)
        tc_sha256_release(&lane->hash);
    if (digest->checks && done) {
        uint64_t behind = hashing->reader->table.tensors[position].nbytes - lane->piece.end;
        atomic_fetch_xor(&digest->checks[position], tc_sum_moved(lane->sum, behind));
    }
    lane->busy = false;
}

/* Takes a step in each job. Of those that fail the first counts, whose error is then in *error;
 * those behind it are given up. Returns whether some are left. */
static bool step_all(struct hashing *hashing, struct tc_pool_worker *worker, uint64_t *failed,
                     struct tc_error *error) {
    struct own *own = worker->memory;
    struct tc_sha256_piece pieces[TC_SHA256_LANES];
    size_t count = 0;
    bool left = false;
    for (size_t i = 0; i < hashing->lanes; i++) {
        struct lane *lane = &own->lanes[i];
        unsigned char *bytes = own->bytes + i * (STEP / hashing->lanes);
        struct tc_error inner = {0};
        size_t length;
        worker->job = lane->job;
        if (lane->busy && (lane->job > *failed || tc_pool_stopped(worker))) {
            end_lane(hashing, lane, false);
        } else if (lane->busy && read_step(hashing, worker, lane, bytes, &length, &inner)) {
            pieces[count++] = (struct tc_sha256_piece){&lane->hash, bytes, length};
        } else if (lane->busy) {
            end_lane(hashing, lane, false);
            *failed = lane->job;
            *error = inner;
        }
    }
    if (hashing->digest->sums)
        tc_sha256_update_several(pieces, count);
    for (size_t i = 0; i < hashing->lanes; i++) {
        struct lane *lane = &own->lanes[i];
        if (lane->busy && lane->piece.at == lane->piece.end)
            end_lane(hashing, lane, true);
        left |= lane->busy;
    }
    return left;
}

static void begin_lane(struct own *own, size_t number, const struct tc_pool_worker *worker,
                       const struct piece *piece) {
    own->lanes[number] = (struct lane){.busy = true, .piece = *piece, .job = worker->job};
}

/* Does the job, and others beside it. */
static bool hash_piece(void *context, struct tc_pool_worker *worker, const void *job,
                       struct tc_error *error) {
    struct hashing *hashing = context;
    struct own *own = worker->memory;
    struct piece piece;
    uint64_t failed = UINT64_MAX;
    begin_lane(own, 0, worker, job);
    do {
        for (size_t i = 0; i < hashing->lanes && failed == UINT64_MAX; i++)
            if (!own->lanes[i].busy && tc_pool_take(worker, &piece))
                begin_lane(own, i, worker, &piece);
    } while (step_all(hashing, worker, &failed, error));
    worker->job = failed;
    return failed == UINT64_MAX;
}

/* One where tensors must be read one after the other, and no more than there are pieces. */
static size_t count_threads(const struct hashing *hashing) {
    const struct tc_table *table = &hashing->reader->table;
    bool in_turn = tc_table_is_sequential(table) && !hashing->reader->streams;
    size_t most = in_turn || tc_reader_in_step(hashing->reader) ? 1 : tc_thread_count();
    size_t threads = 0;
    for (size_t i = 0; i < table->count && threads < most; i++) {
        uint64_t pieces = hashing->digest->sums ? 1 : table->tensors[i].nbytes / PIECE + 1;
        if (is_hashed(hashing, i))
            threads += pieces < most ? (size_t)pieces : most;
    }
    return threads < most ? threads : most;
}

/* As many as leave some for each thread. What is read in sequence or fetched is not mixed, and
 * without the CPU's instructions nothing is gained. */
static size_t count_lanes(const struct hashing *hashing, size_t threads) {
    const struct tc_table *table = &hashing->reader->table;
    size_t lanes = 0;
    if (!hashing->digest->sums || !tc_cpu_sha() || tc_table_is_sequential(table) ||
        hashing->reader->input->source)
        return 1;
    for (size_t i = 0; i < table->count && lanes < TC_SHA256_LANES * threads; i++)
        lanes += is_hashed(hashing, i);
    return lanes > threads ? lanes / threads : 1;
}

static bool hash_all(struct hashing *hashing, struct tc_error *error) {
    size_t threads = count_threads(hashing);
    const struct tc_pool_work work = {.context = hashing,
                                      .next = next_piece,
                                      .job_size = sizeof(struct piece),
                                      .run = hash_piece,
                                      .memory_size = sizeof(struct own)};
    hashing->lanes = count_lanes(hashing, threads);
    return tc_pool_run(&work, threads, error);
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

/* Tensors that share the data of another have its sums. */
static void copy_shared(struct tc_digest *digest, const struct tc_table *table) {
    for (size_t i = 0; i < table->count; i++) {
        size_t source = tc_table_source(table, i);
        if (source != i && digest->sums)
            memcpy(digest->sums[i], digest->sums[source], TC_SHA256_BYTES);
        if (source != i && digest->checks)
            digest->checks[i] = digest->checks[source];
    }
}

/* Fills the lists that the digest has. */
static bool fill(struct tc_digest *digest, struct tc_reader *reader, const bool *wanted,
                 const struct tc_watch *watch, struct tc_error *error) {
    bool *read = wanted ? list_read(&reader->table, wanted, error) : NULL;
    if (wanted && !read)
        return false;
    struct hashing hashing = {.reader = reader, .digest = digest, .read = read, .watch = watch};
    struct tc_checksum_thread *checksums =
        tc_checksum_thread_start(&reader, read ? &read : NULL, 1, error);
    bool ok = checksums && hash_all(&hashing, error);
    if (watch) /* what other threads read last */
        watch->step(watch->context, hashing.done);
    ok = tc_checksum_thread_join(checksums, error) && ok;
    copy_shared(digest, &reader->table);
    free(read);
    ok = ok && tc_reader_unchanged(reader, error) &&
         sort_names(digest, &reader->table, wanted, error);
    return ok ? true : tc_error_in_file(error, reader->input->path);
}

bool tc_digest_make_watched(struct tc_digest *digest, struct tc_reader *reader, const bool *wanted,
                            const struct tc_watch *watch, struct tc_error *error) {
    *digest = (struct tc_digest){.sums = calloc(reader->table.count + 1, sizeof *digest->sums)};
    return digest->sums ? fill(digest, reader, wanted, watch, error) : tc_fail_memory(error);
}

bool tc_digest_make_checks(struct tc_digest *digest, struct tc_reader *reader, bool hashes,
                           const struct tc_watch *watch, struct tc_error *error) {
    size_t count = reader->table.count + 1;
    *digest = (struct tc_digest){.sums = hashes ? calloc(count, sizeof *digest->sums) : NULL,
                                 .checks = calloc(count, sizeof *digest->checks)};
    return digest->checks && (digest->sums || !hashes) ? fill(digest, reader, NULL, watch, error)
                                                       : tc_fail_memory(error);
}

void tc_digest_release(struct tc_digest *digest) {
    free(digest->sums);
    free(digest->checks);
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
