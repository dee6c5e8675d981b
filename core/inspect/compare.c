#include "core/inspect/compare.h"

#include <stdlib.h>
#include <string.h>

#include "core/io/chunk_pipe.h"
#include "core/io/thread_pool.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"

static bool is_taken(const struct tc_compare *compare, struct tc_text name, bool *taken,
                     struct tc_error *error) {
    const struct tc_select *select = compare->options->select;
    *taken = true;
    return !select || tc_select_takes(select, name, taken, error);
}

static bool add_metadata(struct tc_compare *compare, const struct tc_metadata_diff *diff,
                         struct tc_error *error) {
    if (compare->metadata_count == compare->metadata_capacity) {
        size_t capacity = compare->metadata_capacity ? 2 * compare->metadata_capacity : 16;
        struct tc_metadata_diff *grown =
            reallocarray(compare->metadata, capacity, sizeof *compare->metadata);
        if (!grown)
            return tc_fail_memory(error);
        compare->metadata = grown;
        compare->metadata_capacity = capacity;
    }
    compare->metadata[compare->metadata_count++] = *diff;
    return true;
}

/* Both are sorted, or NULL. */
static bool compare_metadata(struct tc_compare *compare, struct tc_text tensor,
                             const struct tc_metadata *a, const struct tc_metadata *b,
                             struct tc_error *error) {
    size_t i = 0;
    size_t j = 0;
    size_t a_count = a ? a->count : 0;
    size_t b_count = b ? b->count : 0;
    while (i < a_count || j < b_count) {
        int order = i == a_count   ? 1
                    : j == b_count ? -1
                                   : tc_text_compare(a->pairs[i].key, b->pairs[j].key);
        const struct tc_pair *in_a = order <= 0 ? &a->pairs[i++] : NULL;
        const struct tc_pair *in_b = order >= 0 ? &b->pairs[j++] : NULL;
        const struct tc_pair *shown = order <= 0 ? in_a : in_b;
        if (order == 0 && tc_text_equal(in_a->value, in_b->value))
            continue;
        /* This key records a dtype, which does not count in a numeric comparison. */
        if (compare->options->tolerance.numeric &&
            tc_text_equal(shown->key, TC_TEXT(TC_SOURCE_DTYPE_KEY)))
            continue;
        struct tc_metadata_diff diff = {.tensor = tensor,
                                        .key = shown->key,
                                        .a = in_a ? &in_a->value : NULL,
                                        .b = in_b ? &in_b->value : NULL};
        if (!add_metadata(compare, &diff, error))
            return false;
    }
    return true;
}

/* Where both tensors share the data of others that are a pair themselves: 1 + that
 * pair. `pair_of` has 1 + the pair, by position in the first table. */
static uint32_t find_like(const struct tc_compare *compare, const struct tc_compared *pair,
                          const uint32_t *pair_of) {
    const struct tc_table *a = &compare->readers[0]->table;
    const struct tc_table *b = &compare->readers[1]->table;
    if (!pair->a->tie || !pair->b->tie)
        return 0;
    uint32_t like = pair_of[pair->a->tie - 1];
    if (!like || pair->a == &a->tensors[pair->a->tie - 1])
        return 0;
    return compare->pairs[like - 1].b == &b->tensors[pair->b->tie - 1] ? like : 0;
}

static bool add_pair(struct tc_compare *compare, const struct tc_tensor *a,
                     const struct tc_tensor *b, uint32_t *pair_of, struct tc_error *error) {
    struct tc_compared *pair = &compare->pairs[compare->pair_count];
    *pair = (struct tc_compared){.a = a,
                                 .b = b,
                                 .shape = !tc_shape_equal(a->shape, a->rank, b->shape, b->rank),
                                 .dtype = a->dtype != b->dtype};
    pair->comparable = !pair->shape && tc_values_comparable(a->dtype, b->dtype,
                                                            compare->options->tolerance.numeric);
    pair->like = pair->comparable ? find_like(compare, pair, pair_of) : 0;
    compare->pair_count++;
    pair_of[a - compare->readers[0]->table.tensors] = (uint32_t)compare->pair_count;
    if (pair->comparable && !pair->like)
        compare->bytes += a->nbytes;
    return compare->options->ignore_metadata ||
           compare_metadata(compare, a->name, a->metadata, b->metadata, error);
}

/* Goes through one file's tensors: adds pairs (only with `pairs`) and lists those
 * that only this file has. */
static bool walk_table(struct tc_compare *compare, int side, bool pairs, uint32_t *pair_of,
                       struct tc_error *error) {
    const struct tc_table *table = &compare->readers[side]->table;
    const struct tc_table *other = &compare->readers[!side]->table;
    const struct tc_tensor **alone = side ? compare->added : compare->removed;
    size_t *count = side ? &compare->added_count : &compare->removed_count;
    for (size_t i = 0; i < table->count; i++) {
        const struct tc_tensor *tensor = &table->tensors[i];
        const struct tc_tensor *match = tc_table_find(other, tensor->name);
        bool taken;
        if (match && !pairs)
            continue;
        if (!is_taken(compare, tensor->name, &taken, error))
            return false;
        if (!taken)
            continue;
        if (!match)
            alone[(*count)++] = tensor;
        else if (!add_pair(compare, side ? match : tensor, side ? tensor : match, pair_of, error))
            return false;
    }
    return true;
}

static bool compare_tables(struct tc_compare *compare, struct tc_error *error) {
    const struct tc_table *a = &compare->readers[0]->table;
    const struct tc_table *b = &compare->readers[1]->table;
    compare->removed = tc_arena_array(&compare->arena, a->count, sizeof(void *), error);
    compare->added = tc_arena_array(&compare->arena, b->count, sizeof(void *), error);
    compare->pairs = tc_arena_array(&compare->arena, a->count, sizeof *compare->pairs, error);
    uint32_t *pair_of = calloc(a->count ? a->count : 1, sizeof *pair_of);
    if (!compare->removed || !compare->added || !compare->pairs || !pair_of) {
        free(pair_of);
        return tc_fail_memory(error);
    }
    /* Pairs are read in the order of a file that can only be read in sequence. */
    int lead = !tc_table_is_sequential(a) && tc_table_is_sequential(b);
    bool ok = (compare->options->ignore_metadata ||
               compare_metadata(compare, (struct tc_text){0}, &a->metadata, &b->metadata, error)) &&
              walk_table(compare, lead, true, pair_of, error) &&
              walk_table(compare, !lead, false, pair_of, error);
    free(pair_of);
    return ok;
}

static bool is_read(const struct tc_compared *pair) {
    return pair->comparable && !pair->like && pair->a->nbytes;
}

static uint64_t count_elements(const struct tc_tensor *tensor) {
    return tensor->nbytes / tc_dtype_block_bytes(tensor->dtype) *
           tc_dtype_block_elements(tensor->dtype);
}

static size_t elements_in_chunk(const struct tc_tensor *tensor) {
    return TC_CHUNK_BYTES / tc_dtype_block_bytes(tensor->dtype) *
           tc_dtype_block_elements(tensor->dtype);
}

/* Elements per chunk, the same on both sides: whole blocks of either, of which none has more than
 * 256 elements, or another number than a power of two. */
static size_t chunk_elements(const struct tc_compared *pair) {
    size_t a = elements_in_chunk(pair->a);
    size_t b = elements_in_chunk(pair->b);
    return (a < b ? a : b) / 256 * 256;
}

struct side {
    const struct tc_compare *compare;
    int number;
    struct tc_pipe pipe;
};

static bool send_tensor(struct side *side, const struct tc_compared *pair, struct tc_error *error) {
    const struct tc_tensor *tensor = side->number ? pair->b : pair->a;
    size_t most = tc_dtype_span(tensor->dtype, chunk_elements(pair));
    for (uint64_t at = 0; at < tensor->nbytes;) {
        uint64_t left = tensor->nbytes - at;
        struct tc_chunk *chunk;
        if (tc_pipe_take(&side->pipe, &chunk, error) != TC_NEXT_CHUNK)
            return false;
        chunk->length = left < most ? left : most;
        if (!tc_reader_read(side->compare->readers[side->number], tensor, at, chunk->bytes,
                            chunk->length, error)) {
            tc_chunk_release(chunk);
            return false;
        }
        at += chunk->length;
        tc_pipe_send(&side->pipe, chunk);
    }
    return true;
}

static bool send_tensors(struct tc_pipe *pipe, void *context, struct tc_error *error) {
    (void)pipe;
    struct side *side = context;
    const struct tc_compare *compare = side->compare;
    for (size_t i = 0; i < compare->pair_count; i++)
        if (is_read(&compare->pairs[i]) && !send_tensor(side, &compare->pairs[i], error))
            return false;
    return true;
}

/* Compares the next chunks of both sides. Both send as many elements as the pair has, so an end
 * here is a bug. */
static bool compare_chunks(struct tc_compare *compare, const struct tc_compared *pair,
                           struct side *sides, size_t count, uint64_t at,
                           struct tc_value_diff *diff, struct tc_error *error) {
    struct tc_chunk *a = NULL;
    struct tc_chunk *b = NULL;
    bool ok = tc_pipe_next(&sides[0].pipe, &a, error) == TC_NEXT_CHUNK &&
              tc_pipe_next(&sides[1].pipe, &b, error) == TC_NEXT_CHUNK;
    if (ok) {
        tc_values_compare(&compare->options->tolerance, pair->a->dtype, pair->b->dtype, a->bytes,
                          b->bytes, count, at, diff);
        compare->done += a->length;
        tc_chunk_release(b);
    }
    if (a)
        tc_chunk_release(a);
    return ok || tc_fail(error, TC_INTERNAL, "compare", "a tensor's data ended early");
}

static bool compare_pair(struct tc_compare *compare, struct tc_compared *pair, struct side *sides,
                         struct tc_error *error) {
    struct tc_value_diff diff = {0};
    uint64_t count = count_elements(pair->a);
    uint64_t most = chunk_elements(pair);
    for (uint64_t at = 0; at < count;) {
        size_t step = count - at < most ? count - at : most;
        if (!compare_chunks(compare, pair, sides, step, at, &diff, error))
            return false;
        at += step;
        if (compare->options->progress)
            compare->options->progress(compare->options->context, compare->done, compare->bytes);
    }
    if (diff.differing) {
        pair->values = tc_arena_alloc(&compare->arena, sizeof diff, error);
        if (!pair->values)
            return false;
        *pair->values = diff;
    }
    return true;
}

static bool compare_pairs(struct tc_compare *compare, struct side *sides, struct tc_error *error) {
    for (size_t i = 0; i < compare->pair_count; i++) {
        struct tc_compared *pair = &compare->pairs[i];
        if (pair->like)
            pair->values = compare->pairs[pair->like - 1].values;
        if (!is_read(pair))
            continue;
        if (!compare_pair(compare, pair, sides, error))
            return false;
    }
    return true;
}

/* What the threads share that compare pieces of tensors, whole steps of both sides. */
struct pieces {
    struct tc_compare *compare;
    size_t next; /* the pair of the next piece, and its first element */
    uint64_t next_at;
    pthread_mutex_t merging; /* guards the pairs' values, and the arena */
    struct tc_progress_sum progress;
};

struct piece {
    struct tc_compared *pair;
    uint64_t at; /* elements */
    uint64_t end;
};

/* A step of both sides fits a core's own cache; a piece is what a thread takes at once. */
#define STEP ((size_t)1 << 17)
#define PIECE_STEPS 32u

/* The elements of a step: whole blocks, as in chunk_elements. */
static size_t step_elements(const struct tc_compared *pair) {
    return chunk_elements(pair) / (TC_CHUNK_BYTES / STEP) / 256 * 256;
}

static bool next_piece(void *context, void *job) {
    struct pieces *pieces = context;
    struct tc_compare *compare = pieces->compare;
    while (pieces->next < compare->pair_count && !is_read(&compare->pairs[pieces->next]))
        pieces->next++;
    if (pieces->next == compare->pair_count)
        return false;
    struct tc_compared *pair = &compare->pairs[pieces->next];
    uint64_t count = count_elements(pair->a);
    uint64_t left = count - pieces->next_at;
    uint64_t most = PIECE_STEPS * step_elements(pair);
    uint64_t length = left < most ? left : most;
    *(struct piece *)job = (struct piece){pair, pieces->next_at, pieces->next_at + length};
    pieces->next_at += length;
    if (length == left) {
        pieces->next++;
        pieces->next_at = 0;
    }
    return true;
}

/* Adds what was found in a piece; the result does not depend on the order of the pieces. */
static void add_diff(struct tc_value_diff *sum, const struct tc_value_diff *part) {
    if (!part->differing)
        return;
    bool worse = !sum->differing || part->max_abs > sum->max_abs ||
                 (part->max_abs == sum->max_abs && part->worst < sum->worst);
    sum->first = !sum->differing || part->first < sum->first ? part->first : sum->first;
    sum->worst = worse ? part->worst : sum->worst;
    sum->max_abs = part->max_abs > sum->max_abs ? part->max_abs : sum->max_abs;
    sum->max_rel = part->max_rel > sum->max_rel ? part->max_rel : sum->max_rel;
    sum->differing += part->differing;
    sum->bits_only += part->bits_only;
    sum->nan += part->nan;
}

static bool keep_diff(struct pieces *pieces, struct tc_compared *pair,
                      const struct tc_value_diff *diff, struct tc_error *error) {
    if (!diff->differing)
        return true;
    pthread_mutex_lock(&pieces->merging);
    if (!pair->values &&
        (pair->values = tc_arena_alloc(&pieces->compare->arena, sizeof *diff, error)))
        *pair->values = (struct tc_value_diff){0};
    bool ok = pair->values != NULL;
    if (ok)
        add_diff(pair->values, diff);
    pthread_mutex_unlock(&pieces->merging);
    return ok;
}

static bool compare_piece(void *context, struct tc_pool_worker *worker, const void *job,
                          struct tc_error *error) {
    struct pieces *pieces = context;
    struct tc_compare *compare = pieces->compare;
    const struct piece *piece = job;
    const struct tc_tensor *sides[2] = {piece->pair->a, piece->pair->b};
    unsigned char *bytes[2] = {worker->memory, (unsigned char *)worker->memory + STEP};
    struct tc_value_diff diff = {0};
    size_t most = step_elements(piece->pair);
    for (uint64_t at = piece->at; at < piece->end && !tc_pool_stopped(worker);) {
        size_t step = piece->end - at < most ? piece->end - at : most;
        for (int i = 0; i < 2; i++) {
            enum tc_dtype dtype = sides[i]->dtype;
            uint64_t offset = at / tc_dtype_block_elements(dtype) * tc_dtype_block_bytes(dtype);
            uint64_t left = sides[i]->nbytes - offset;
            uint64_t span = tc_dtype_span(dtype, step);
            if (!tc_reader_read(compare->readers[i], sides[i], offset, bytes[i],
                                left < span ? left : span, error))
                return false;
        }
        tc_values_compare(&compare->options->tolerance, sides[0]->dtype, sides[1]->dtype, bytes[0],
                          bytes[1], step, at, &diff);
        at += step;
        tc_progress_add(&pieces->progress, tc_dtype_span(sides[0]->dtype, step));
        if (worker->is_caller)
            tc_progress_report(&pieces->progress);
    }
    return keep_diff(pieces, piece->pair, &diff, error);
}

static bool compare_in_pieces(struct tc_compare *compare, struct tc_error *error) {
    struct pieces pieces = {.compare = compare,
                            .progress = {.call = compare->options->progress,
                                         .context = compare->options->context,
                                         .total = compare->bytes}};
    const struct tc_pool_work work = {.context = &pieces,
                                      .next = next_piece,
                                      .job_size = sizeof(struct piece),
                                      .run = compare_piece,
                                      .memory_size = 2 * STEP};
    bool in_step = tc_reader_in_step(compare->readers[0]) || tc_reader_in_step(compare->readers[1]);
    uint64_t useful = in_step ? 1 : compare->bytes / STEP + 1;
    size_t threads = tc_thread_count() < useful ? tc_thread_count() : (size_t)useful;
    pthread_mutex_init(&pieces.merging, NULL);
    bool ok = tc_pool_run(&work, threads, error);
    pthread_mutex_destroy(&pieces.merging);
    for (size_t i = 0; i < compare->pair_count && ok; i++)
        if (compare->pairs[i].like)
            compare->pairs[i].values = compare->pairs[compare->pairs[i].like - 1].values;
    return ok;
}

/* Where a file can only be read in sequence, each is read by a thread of its own. */
static bool compare_data(struct tc_compare *compare, struct tc_error *error) {
    if (!tc_table_is_sequential(&compare->readers[0]->table) &&
        !tc_table_is_sequential(&compare->readers[1]->table))
        return compare_in_pieces(compare, error);
    struct side sides[2] = {{.compare = compare, .number = 0}, {.compare = compare, .number = 1}};
    bool ok = tc_pipe_start(&sides[0].pipe, send_tensors, &sides[0], error) &&
              tc_pipe_start(&sides[1].pipe, send_tensors, &sides[1], error) &&
              compare_pairs(compare, sides, error);
    tc_pipe_end(&sides[0].pipe);
    tc_pipe_end(&sides[1].pipe);
    return ok;
}

/* Which tensors of one file are read, so that their checksums are verified. */
static bool *wanted_of(const struct tc_compare *compare, int side, struct tc_error *error) {
    const struct tc_table *table = &compare->readers[side]->table;
    bool *wanted = calloc(table->count ? table->count : 1, sizeof *wanted);
    if (!wanted) {
        tc_fail_memory(error);
        return NULL;
    }
    for (size_t i = 0; i < compare->pair_count; i++)
        if (is_read(&compare->pairs[i]))
            wanted[(side ? compare->pairs[i].b : compare->pairs[i].a) - table->tensors] = true;
    return wanted;
}

/* Checks the sums while the data is compared. The data of both files is read at once, and so are
 * their checksums where one comes by the network: one after the other, the second file's would be
 * fetched for them again. */
static bool compare_checked(struct tc_compare *compare, bool *const wanted[2],
                            struct tc_error *error) {
    bool in_step = tc_reader_in_step(compare->readers[0]) || tc_reader_in_step(compare->readers[1]);
    size_t each = in_step ? 1 : 2;
    struct tc_checksum_thread *checksums[2] = {NULL, NULL};
    bool ok = true;
    for (size_t i = 0; i < 2 && ok; i += each) {
        checksums[i] = tc_checksum_thread_start(compare->readers + i, wanted + i, each, error);
        ok = checksums[i] != NULL;
    }
    ok = ok && compare_data(compare, error);
    for (size_t i = 0; i < 2; i++)
        ok = tc_checksum_thread_join(checksums[i], error) && ok;
    return ok;
}

static bool read_both(struct tc_compare *compare, struct tc_error *error) {
    bool *wanted[2] = {wanted_of(compare, 0, error), wanted_of(compare, 1, error)};
    bool ok = wanted[0] && wanted[1] && compare_checked(compare, wanted, error);
    free(wanted[0]);
    free(wanted[1]);
    return ok && tc_reader_unchanged(compare->readers[0], error) &&
           tc_reader_unchanged(compare->readers[1], error);
}

/* Pairs with a NaN on one side come first, since no number measures that error. */
static int by_severity(const void *x, const void *y) {
    const struct tc_compared *a = *(struct tc_compared *const *)x;
    const struct tc_compared *b = *(struct tc_compared *const *)y;
    if ((a->values->nan > 0) != (b->values->nan > 0))
        return a->values->nan ? -1 : 1;
    if (a->values->max_abs != b->values->max_abs)
        return a->values->max_abs > b->values->max_abs ? -1 : 1;
    if (a->values->differing != b->values->differing)
        return a->values->differing > b->values->differing ? -1 : 1;
    return tc_text_compare(a->a->name, b->a->name);
}

/* As the first file's table has them; pairs are in the order in which they are read. */
static int by_position(const void *x, const void *y) {
    const struct tc_tensor *a = (*(struct tc_compared *const *)x)->a;
    const struct tc_tensor *b = (*(struct tc_compared *const *)y)->a;
    return (a > b) - (a < b);
}

static bool judge(struct tc_compare *compare, struct tc_error *error) {
    compare->equal = !compare->removed_count && !compare->added_count && !compare->metadata_count;
    size_t count = 0;
    for (size_t i = 0; i < compare->pair_count; i++)
        count += compare->pairs[i].values != NULL;
    compare->worst = tc_arena_array(&compare->arena, count, sizeof *compare->worst, error);
    compare->listed = tc_arena_array(&compare->arena, compare->pair_count, sizeof(void *), error);
    for (size_t i = 0; i < compare->pair_count && compare->listed; i++)
        compare->listed[i] = &compare->pairs[i];
    if (!compare->worst || !compare->listed)
        return false;
    if (compare->pair_count)
        qsort(compare->listed, compare->pair_count, sizeof *compare->listed, by_position);
    for (size_t i = 0; i < compare->pair_count; i++) {
        struct tc_compared *pair = &compare->pairs[i];
        if (pair->values)
            compare->worst[compare->worst_count++] = pair;
        if (pair->shape || pair->values || (pair->dtype && !pair->comparable))
            compare->equal = false;
    }
    if (count)
        qsort(compare->worst, count, sizeof *compare->worst, by_severity);
    return true;
}

bool tc_compare_run(struct tc_compare *compare, struct tc_reader *a, struct tc_reader *b,
                    const struct tc_compare_options *options, struct tc_error *error) {
    *compare = (struct tc_compare){.options = options, .readers = {a, b}};
    tc_arena_init(&compare->arena, a->options->limits.memory);
    return compare_tables(compare, error) && read_both(compare, error) && judge(compare, error);
}

void tc_compare_release(struct tc_compare *compare) {
    free(compare->metadata);
    tc_arena_release(&compare->arena);
    *compare = (struct tc_compare){0};
}
