#include "core/convert/fill.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/convert/view_copy.h"
#include "core/format/backend.h"
#include "core/format/densify.h"
#include "core/format/dequantise.h"
#include "core/format/reader.h"
#include "core/io/chunk_pipe.h"
#include "core/io/crc_combine.h"
#include "core/io/deflate.h"
#include "core/plan/dtype_policy.h"
#include "core/tensor/cast.h"
#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"

/* What a cast reads at once: it stays in a core's own cache until it is cast. */
#define SCRATCH_BYTES ((size_t)1 << 18)
/* Below this many bytes in all, or in each item, other threads cost more than they help. */
#define LEAST_BYTES (UINT64_C(2) << 20)
#define LEAST_ITEM (UINT64_C(1) << 15)

/* A job: a chunk of an item from `at` on; or, where `last` is behind it, all of the items up to
 * there, one after the other. */
struct job {
    size_t visit;
    size_t last;
    uint64_t at;
    uint64_t rest; /* of an item that is read as a whole: bytes behind it that were read */
};

/* What a thread keeps: room for what it casts, its own state of dequantising an item and, where
 * chunks are deflated, its packer and the bytes that it packs, with the window before them. */
struct own {
    unsigned char *scratch;
    unsigned char *view_scratch;
    const struct tc_item *item; /* that `dequantise` is of; NULL: none */
    struct tc_dequantise dequantise;
    struct tc_deflater deflater;
    unsigned char *unpacked; /* TC_DEFLATE_WINDOW and TC_DEFLATE_PIECE bytes */
    size_t packed_visit;     /* 1 + the visit that they are of; 0: none */
    uint64_t packed_to;      /* where they end in that item */
    size_t packed_length;
};

static const struct tc_item *item_of(const struct tc_fill *fill, size_t visit) {
    return &fill->plan->items[fill->visits[visit]];
}

/* Whether only one thread may read the item, from its start to its end. */
static bool is_whole(const struct tc_item *item) {
    return item->densify || (!item->dequantise && item->tensor->sequential);
}

/* Whether no other item may be read meanwhile that is_whole, too. */
static bool is_alone(const struct tc_item *item) {
    return is_whole(item) && (item->densify || !item->reader->streams);
}

/* Whether a thread reads all of the item at once, and needs no stream for that. */
static bool is_small_view(const struct tc_item *item) {
    struct tc_strided strided;
    return is_whole(item) && !item->densify && item->dtype == item->tensor->dtype && !item->skip &&
           item->taken == item->tensor->nbytes &&
           tc_reader_strided(item->reader, item->tensor, &strided) &&
           tc_view_read_pays(&strided, item->nbytes);
}

/* Bytes of the tensor behind those that are taken, which are read all the same. */
static uint64_t rest_of(const struct tc_item *item) {
    bool is_read = is_whole(item) && !item->densify;
    return is_read ? item->tensor->nbytes - item->skip - item->taken : 0;
}

static bool is_visited(const struct tc_fill *fill, size_t visit) {
    const struct tc_item *item = item_of(fill, visit);
    return (!fill->direct[visit] || fill->read_back) && (item->nbytes || rest_of(item));
}

static size_t next_visit(const struct tc_fill *fill, size_t visit) {
    while (visit < fill->visit_count && !is_visited(fill, visit))
        visit++;
    return visit;
}

/* How many bytes a chunk is made of. Either is a multiple of every element's size, and of 256
 * elements, the most that a block of a block dtype has. */
static size_t piece_bytes(const struct tc_fill *fill) {
    return fill->deflate_level ? TC_DEFLATE_PIECE : TC_CHUNK_BYTES;
}

static bool next_job(void *context, void *description) {
    struct tc_fill *fill = context;
    fill->visit = next_visit(fill, fill->visit);
    if (fill->visit == fill->visit_count)
        return false;
    const struct tc_item *item = item_of(fill, fill->visit);
    struct job *job = description;
    *job = (struct job){.visit = fill->visit, .at = fill->at};
    if (fill->chained || (is_whole(item) && !fill->views[fill->visit])) {
        fill->visit = job->last = fill->chained ? fill->visit_count : fill->visit + 1;
        return true;
    }
    fill->at += piece_bytes(fill);
    if (fill->at >= item->nbytes) {
        fill->visit++;
        fill->at = 0;
    }
    return true;
}

/* The thread's own state of dequantising this item. */
static struct tc_dequantise *own_dequantise(struct own *own, const struct tc_item *item) {
    if (own->item != item) {
        if (own->item)
            tc_dequantise_unload(&own->dequantise);
        own->dequantise = *item->dequantise;
        own->item = item;
    }
    return &own->dequantise;
}

static bool read_item(struct own *own, const struct tc_item *item, uint64_t offset, void *buffer,
                      size_t length, struct tc_error *error) {
    if (item->densify)
        return tc_densify_read(item->densify, offset, buffer, length, error);
    if (item->dequantise)
        return tc_dequantise_read(own_dequantise(own, item), offset, buffer, length, error);
    return tc_reader_read(item->reader, item->tensor, offset, buffer, length, error);
}

static void add_report(struct tc_cast_report *sum, const struct tc_cast_report *part) {
    sum->overflow += part->overflow;
    sum->underflow += part->underflow;
    sum->nan_made += part->nan_made;
    sum->inexact += part->inexact;
    sum->max_abs = part->max_abs > sum->max_abs ? part->max_abs : sum->max_abs;
    sum->max_rel = part->max_rel > sum->max_rel ? part->max_rel : sum->max_rel;
}

/* The most elements that are cast at once: what the scratch holds of them, and whole blocks of
 * block dtypes, of which none has more than 256 elements. */
static size_t cast_step(const struct tc_fill *fill, const struct tc_item *item) {
    enum tc_dtype from = item->tensor->dtype;
    size_t fits = fill->scratch_bytes / tc_dtype_block_bytes(from) * tc_dtype_block_elements(from);
    return fits >= 256 ? fits / 256 * 256 : fits;
}

/* Gives an item's bytes as they are written, from `at` on, by casting. What the user does not allow
 * shows in each chunk by itself, so that the error does not depend on the order. `again`: they were
 * given before, and do not count in the report. */
static bool read_cast(struct tc_fill *fill, struct own *own, const struct tc_item *item,
                      uint64_t at, unsigned char *bytes, size_t length, bool again,
                      struct tc_error *error) {
    enum tc_dtype from = item->tensor->dtype;
    size_t to = tc_dtype_bits(item->dtype) / 8;
    size_t most = cast_step(fill, item);
    struct tc_cast_report report = {0};
    struct tc_item part = *item;
    part.report = item->report ? &report : NULL;
    for (size_t done = 0; done < length;) {
        size_t left = (length - done) / to;
        size_t count = left < most ? left : most;
        uint64_t first = (at + done) / to;
        uint64_t skip = first / tc_dtype_block_elements(from) * tc_dtype_block_bytes(from);
        if (!read_item(own, item, item->skip + skip, own->scratch, tc_dtype_span(from, count),
                       error))
            return false;
        tc_cast(from, item->dtype, own->scratch, bytes + done, count, part.report);
        done += count * to;
    }
    if (!tc_policy_check(fill->plan, &part, error))
        return tc_error_in_file(error, item->reader->input->path);
    if (item->report && !again) {
        pthread_mutex_lock(&fill->reporting);
        add_report(item->report, &report);
        pthread_mutex_unlock(&fill->reporting);
    }
    return true;
}

/* Where only some rows of a compressed tensor are taken, the rest is read as well, since its
 * checksum is checked only at its end: a piece a step. */
static bool read_rest(const struct tc_item *item, struct job *job, struct tc_chunk *chunk,
                      struct tc_error *error) {
    uint64_t at = item->skip + item->taken + job->rest;
    uint64_t left = item->tensor->nbytes - at;
    size_t length = left < TC_CHUNK_BYTES ? left : TC_CHUNK_BYTES;
    job->rest += length;
    return tc_reader_read(item->reader, item->tensor, at, chunk->bytes, length, error);
}

static void add_sum(const struct tc_fill *fill, const struct job *job, const unsigned char *bytes,
                    size_t length) {
    uint64_t behind = item_of(fill, job->visit)->nbytes - job->at - length;
    uint64_t sum = tc_sum_moved(tc_sum_of(bytes, length), behind);
    atomic_fetch_xor(&fill->read_back->sums[fill->visits[job->visit]], sum);
}

static bool read_bytes(struct tc_fill *fill, struct own *own, const struct tc_item *item,
                       uint64_t at, unsigned char *bytes, size_t length, bool again,
                       struct tc_error *error) {
    return item->dtype == item->tensor->dtype
               ? read_item(own, item, item->skip + at, bytes, length, error)
               : read_cast(fill, own, item, at, bytes, length, again, error);
}

static bool read_view(struct own *own, const struct tc_item *item, unsigned char *bytes,
                      struct tc_error *error) {
    struct tc_strided strided;
    if (!own->view_scratch && !(own->view_scratch = malloc(tc_view_read_scratch())))
        return tc_fail_memory(error);
    return tc_reader_strided(item->reader, item->tensor, &strided) &&
           tc_view_read(&strided, bytes, own->view_scratch, error);
}

/* Puts the window before the bytes that are to be packed: what this thread packed last, where they
 * follow that; else it is read again. Only an item that may be read at any place comes to that. */
static bool load_window(struct tc_fill *fill, struct own *own, const struct job *job,
                        struct tc_error *error) {
    const struct tc_item *item = item_of(fill, job->visit);
    if (job->at == 0)
        return true;
    if (own->packed_visit == job->visit + 1 && own->packed_to == job->at) {
        memmove(own->unpacked, own->unpacked + own->packed_length, TC_DEFLATE_WINDOW);
        return true;
    }
    return read_bytes(fill, own, item, job->at - TC_DEFLATE_WINDOW, own->unpacked,
                      TC_DEFLATE_WINDOW, true, error);
}

/* Where the bytes go before they are packed; NULL without memory. */
static unsigned char *room_to_pack(struct tc_fill *fill, struct own *own, struct tc_error *error) {
    if (!own->unpacked) {
        if (!tc_deflater_init(&own->deflater, fill->deflate_level, error))
            return NULL;
        own->unpacked = malloc(TC_DEFLATE_WINDOW + TC_DEFLATE_PIECE);
        if (!own->unpacked)
            tc_fail_memory(error);
    }
    return own->unpacked ? own->unpacked + TC_DEFLATE_WINDOW : NULL;
}

/* Fills the chunk from the item's `at` on. */
static bool fill_chunk(struct tc_fill *fill, struct own *own, struct job *job,
                       struct tc_chunk *chunk, struct tc_error *error) {
    const struct tc_item *item = item_of(fill, job->visit);
    uint64_t left = item->nbytes - job->at;
    size_t length = left < piece_bytes(fill) ? left : piece_bytes(fill);
    bool packs = fill->deflate_level && !fill->direct[job->visit];
    unsigned char *bytes = packs ? room_to_pack(fill, own, error) : chunk->bytes;
    if (!bytes || (packs && !load_window(fill, own, job, error)) ||
        !(fill->views[job->visit]
              ? read_view(own, item, bytes, error)
              : read_bytes(fill, own, item, job->at, bytes, length, false, error)))
        return false;
    if (fill->read_back)
        add_sum(fill, job, bytes, length);
    if (fill->wants_crc)
        chunk->crc = tc_crc32(0, bytes, length);
    chunk->item = job->visit;
    chunk->offset = job->at;
    chunk->unpacked = length;
    chunk->length = fill->direct[job->visit] ? 0 : length;
    if (packs && !tc_deflate_piece(&own->deflater, bytes, job->at ? TC_DEFLATE_WINDOW : 0, length,
                                   chunk->bytes, &chunk->length, error))
        return false;
    job->at += length;
    own->packed_visit = job->visit + 1;
    own->packed_to = job->at;
    own->packed_length = length;
    return true;
}

static enum tc_step step(void *context, struct tc_flow_worker *worker, void *description,
                         struct tc_chunk *chunk, struct tc_error *error) {
    struct tc_fill *fill = context;
    struct own *own = worker->memory;
    struct job *job = description;
    const struct tc_item *item = item_of(fill, job->visit);
    if (!own->scratch && fill->scratch_bytes && !(own->scratch = malloc(fill->scratch_bytes))) {
        tc_fail_memory(error);
        return TC_STEP_FAILED;
    }
    if (!(job->at < item->nbytes ? fill_chunk(fill, own, job, chunk, error)
                                 : read_rest(item, job, chunk, error)))
        return TC_STEP_FAILED;
    if (!job->last)
        return TC_STEP_DONE;
    if (job->at < item->nbytes || job->rest < rest_of(item))
        return TC_STEP_MORE;
    if (item->densify)
        tc_densify_unload(item->densify);
    *job = (struct job){.visit = next_visit(fill, job->visit + 1), .last = job->last};
    return job->visit < job->last ? TC_STEP_MORE : TC_STEP_DONE;
}

static void release_own(void *context, void *memory) {
    struct own *own = memory;
    (void)context;
    if (own->item)
        tc_dequantise_unload(&own->dequantise);
    tc_deflater_release(&own->deflater);
    free(own->unpacked);
    free(own->view_scratch);
    free(own->scratch);
}

bool tc_fill_needed(const struct tc_fill *fill) {
    for (size_t visit = 0; visit < fill->visit_count; visit++)
        if (is_visited(fill, visit))
            return true;
    return false;
}

/* How many threads are worth while. */
static size_t useful_threads(const struct tc_fill *fill, size_t threads) {
    uint64_t bytes = 0;
    size_t count = 0;
    for (size_t visit = 0; visit < fill->visit_count; visit++)
        if (is_visited(fill, visit)) {
            const struct tc_item *item = item_of(fill, visit);
            bytes += item->nbytes > item->tensor->nbytes ? item->nbytes : item->tensor->nbytes;
            count++;
        }
    uint64_t useful = count && bytes / count >= LEAST_ITEM ? bytes / LEAST_BYTES + 1 : 1;
    return threads < useful ? threads : (size_t)useful;
}

/* Small models need less than usual. */
static size_t scratch_bytes(const struct tc_fill *fill) {
    uint64_t most = 0;
    for (size_t visit = 0; visit < fill->visit_count && most < SCRATCH_BYTES; visit++) {
        const struct tc_item *item = item_of(fill, visit);
        if (item->dtype != item->tensor->dtype && item->tensor->nbytes > most)
            most = item->tensor->nbytes;
    }
    return most < SCRATCH_BYTES ? most : SCRATCH_BYTES;
}

bool tc_fill_start(struct tc_fill *fill, struct tc_flow *flow, size_t threads, bool any_order,
                   struct tc_error *error) {
    fill->work = (struct tc_flow_work){.context = fill,
                                       .next = next_job,
                                       .job_size = sizeof(struct job),
                                       .step = step,
                                       .memory_size = sizeof(struct own),
                                       .release = release_own,
                                       .any_order = any_order};
    fill->scratch_bytes = scratch_bytes(fill);
    fill->visit = 0;
    fill->at = 0;
    fill->views = calloc(fill->visit_count + 1, sizeof *fill->views);
    if (!fill->views)
        return tc_fail_memory(error);
    fill->chained = false;
    for (size_t visit = 0; visit < fill->visit_count; visit++)
        fill->chained |= is_visited(fill, visit) && is_alone(item_of(fill, visit)) &&
                         !(fill->views[visit] = is_small_view(item_of(fill, visit)));
    pthread_mutex_init(&fill->reporting, NULL);
    if (tc_flow_start(flow, &fill->work, useful_threads(fill, threads), error))
        return true;
    pthread_mutex_destroy(&fill->reporting);
    free(fill->views);
    return false;
}

void tc_fill_end(struct tc_fill *fill, struct tc_flow *flow) {
    tc_flow_end(flow);
    for (size_t visit = 0; visit < fill->visit_count; visit++)
        if (item_of(fill, visit)->densify)
            tc_densify_unload(item_of(fill, visit)->densify);
    pthread_mutex_destroy(&fill->reporting);
    free(fill->views);
}
