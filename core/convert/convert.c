#include "core/convert/convert.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/convert/stale_shards.h"
#include "core/format/backend.h"
#include "core/format/densify.h"
#include "core/format/dequantise.h"
#include "core/format/reader.h"
#include "core/format/source.h"
#include "core/io/chunk_pipe.h"
#include "core/io/publish_compare.h"
#include "core/io/sha256.h"
#include "core/plan/dtype_policy.h"
#include "core/plan/kept_metadata.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"

#define SCRATCH_BYTES (16 * TC_CHUNK_BYTES)
/* Copies from file to file are made in steps, so that progress can be reported. */
#define COPY_STEP (UINT64_C(64) << 20)

/* One output file while it is written. A visit is one of its items that has data. */
struct job {
    struct tc_plan *plan;
    const struct tc_convert_options *options;
    const struct tc_output_file *file;
    size_t *visits; /* the items' positions in the plan, in the order in which they are written */
    size_t visit_count;
    bool *direct; /* by visit: copied from file to file, not through the pipe */
    struct tc_pipe pipe;
    bool piping;
    uint64_t done;
    struct tc_read_back *read_back; /* gets the tensors' hashes; NULL: they are not needed */
};

struct item_source {
    struct tc_source base; /* must be first: writers get a pointer to it */
    struct job *job;
    const struct tc_item *item;
    size_t visit;
    uint64_t left; /* bytes that the writer has not taken yet */
    struct tc_extent extent;
};

static void advance(void *context, uint64_t bytes) {
    struct job *job = context;
    job->done += bytes;
    /* Verification reads everything a second time. */
    uint64_t total = job->plan->bytes_out * (job->read_back ? 2 : 1);
    if (job->options->progress)
        job->options->progress(job->options->context, job->done < total ? job->done : total, total);
}

static bool read_item(const struct tc_item *item, uint64_t offset, void *buffer, size_t length,
                      struct tc_error *error) {
    if (item->densify)
        return tc_densify_read(item->densify, offset, buffer, length, error);
    if (item->dequantise)
        return tc_dequantise_read(item->dequantise, offset, buffer, length, error);
    return tc_reader_read(item->reader, item->tensor, offset, buffer, length, error);
}

/* Fills a chunk with an item's bytes as they are written, from `at` on, by casting. */
static bool read_cast(const struct tc_plan *plan, const struct tc_item *item, uint64_t at,
                      struct tc_chunk *chunk, unsigned char *scratch, struct tc_error *error) {
    enum tc_dtype from = item->tensor->dtype;
    size_t to = tc_dtype_bits(item->dtype) / 8;
    size_t count = chunk->length / to;
    uint64_t skip = at / to / tc_dtype_block_elements(from) * tc_dtype_block_bytes(from);
    if (!read_item(item, item->skip + skip, scratch, tc_dtype_span(from, count), error))
        return false;
    tc_cast(item->tensor->dtype, item->dtype, scratch, chunk->bytes, count, item->report);
    return tc_policy_check(plan, item, error) || tc_error_in_file(error, item->reader->input->path);
}

/* Where only some rows of a compressed tensor are taken, reads the rest, since its
 * checksum is checked only at its end. */
static bool read_rest(const struct tc_item *item, unsigned char *scratch, struct tc_error *error) {
    uint64_t at = item->skip + item->taken;
    while (item->tensor->sequential && at < item->tensor->nbytes) {
        uint64_t left = item->tensor->nbytes - at;
        size_t step = left < TC_CHUNK_BYTES ? left : TC_CHUNK_BYTES;
        if (!tc_reader_read(item->reader, item->tensor, at, scratch, step, error))
            return false;
        at += step;
    }
    return true;
}

/* Reads an item and sends it through the pipe; `hash` gets all that is sent, and may
 * be NULL. */
static bool produce_item(struct job *job, size_t visit, unsigned char *scratch,
                         struct tc_sha256 *hash, struct tc_error *error) {
    const struct tc_item *item = &job->plan->items[job->visits[visit]];
    for (uint64_t at = 0; at < item->nbytes;) {
        struct tc_chunk *chunk;
        if (tc_pipe_take(&job->pipe, &chunk, error) != TC_NEXT_CHUNK)
            return false;
        uint64_t left = item->nbytes - at;
        /* TC_CHUNK_BYTES is a multiple of every element's size, and of 256 elements, the most that
         * a block of a block dtype has. */
        chunk->length = left < TC_CHUNK_BYTES ? left : TC_CHUNK_BYTES;
        chunk->item = visit;
        bool ok = item->dtype == item->tensor->dtype
                      ? read_item(item, item->skip + at, chunk->bytes, chunk->length, error)
                      : read_cast(job->plan, item, at, chunk, scratch, error);
        if (!ok) {
            tc_chunk_release(chunk);
            return false;
        }
        at += chunk->length;
        if (hash)
            tc_sha256_update(hash, chunk->bytes, chunk->length);
        tc_pipe_send(&job->pipe, chunk);
    }
    return read_rest(item, scratch, error);
}

/* Data that is copied from file to file does not pass through the pipe, so it is
 * read once more for its hash. */
static bool hash_direct(const struct tc_item *item, unsigned char *scratch, struct tc_sha256 *hash,
                        struct tc_error *error) {
    for (uint64_t at = 0; at < item->nbytes;) {
        uint64_t left = item->nbytes - at;
        size_t step = left < TC_CHUNK_BYTES ? left : TC_CHUNK_BYTES;
        if (!read_item(item, item->skip + at, scratch, step, error))
            return false;
        tc_sha256_update(hash, scratch, step);
        at += step;
    }
    return true;
}

static bool produce_visit(struct job *job, size_t visit, unsigned char *scratch,
                          struct tc_error *error) {
    const struct tc_item *item = &job->plan->items[job->visits[visit]];
    struct tc_sha256 hash;
    if (!job->read_back)
        return job->direct[visit] || produce_item(job, visit, scratch, NULL, error);
    if (!tc_sha256_init(&hash, error))
        return false;
    bool ok = job->direct[visit] ? hash_direct(item, scratch, &hash, error)
                                 : produce_item(job, visit, scratch, &hash, error);
    tc_sha256_finish(&hash, job->read_back->sums[job->visits[visit]]);
    return ok;
}

/* A narrowing cast reads more bytes than it sends: up to 16 for one. Small models need less. */
static size_t scratch_bytes(const struct job *job) {
    uint64_t most = 1;
    for (size_t visit = 0; visit < job->visit_count && most < SCRATCH_BYTES; visit++) {
        const struct tc_item *item = &job->plan->items[job->visits[visit]];
        most = item->tensor->nbytes > most ? item->tensor->nbytes : most;
        most = item->nbytes > most ? item->nbytes : most;
    }
    return most < SCRATCH_BYTES ? most : SCRATCH_BYTES;
}

static bool produce(struct tc_pipe *pipe, void *context, struct tc_error *error) {
    (void)pipe;
    struct job *job = context;
    unsigned char *scratch = malloc(scratch_bytes(job));
    if (!scratch)
        return tc_fail_memory(error);
    bool ok = true;
    for (size_t visit = 0; visit < job->visit_count && ok; visit++) {
        const struct tc_item *item = &job->plan->items[job->visits[visit]];
        ok = produce_visit(job, visit, scratch, error);
        if (item->densify)
            tc_densify_unload(item->densify);
        if (item->dequantise)
            tc_dequantise_unload(item->dequantise);
    }
    free(scratch);
    return ok;
}

static enum tc_next next_chunk(struct tc_source *base, struct tc_chunk **chunk,
                               struct tc_error *error) {
    struct item_source *source = (struct item_source *)base;
    *chunk = NULL;
    if (source->left == 0)
        return TC_NEXT_END;
    enum tc_next next = tc_pipe_next(&source->job->pipe, chunk, error);
    if (next == TC_NEXT_END)
        tc_fail(error, TC_INTERNAL, "flow", "the stream of data ended early");
    if (next != TC_NEXT_CHUNK)
        return TC_NEXT_FAILED;
    if ((*chunk)->item != source->visit || (*chunk)->length > source->left) {
        tc_chunk_release(*chunk);
        *chunk = NULL;
        tc_fail(error, TC_INTERNAL, "flow", "the stream of data is out of step");
        return TC_NEXT_FAILED;
    }
    source->left -= (*chunk)->length;
    advance(source->job, (*chunk)->length);
    return TC_NEXT_CHUNK;
}

static bool copy_direct(struct item_source *source, struct tc_outfile *out,
                        struct tc_error *error) {
    uint64_t offset = source->extent.offset + source->item->skip;
    while (source->left) {
        uint64_t step = source->left < COPY_STEP ? source->left : COPY_STEP;
        if (!tc_outfile_copy(out, source->extent.input, offset, step, error))
            return false;
        offset += step;
        source->left -= step;
        advance(source->job, step);
    }
    return true;
}

static bool write_chunks(struct tc_source *base, struct tc_outfile *out, struct tc_error *error) {
    struct item_source *source = (struct item_source *)base;
    if (source->job->direct[source->visit])
        return copy_direct(source, out, error);
    struct tc_chunk *chunk;
    enum tc_next next;
    while ((next = next_chunk(base, &chunk, error)) == TC_NEXT_CHUNK) {
        bool ok = tc_outfile_write(out, chunk->bytes, chunk->length, error);
        tc_chunk_release(chunk);
        if (!ok)
            return false;
    }
    return next == TC_NEXT_END;
}

static int by_place(const void *a, const void *b, void *items) {
    const struct tc_item *list = items;
    size_t x = list[*(const size_t *)a].place;
    size_t y = list[*(const size_t *)b].place;
    return (x > y) - (x < y);
}

/* Sets the order in which items are written: the source's where the writer takes any
 * order, so that files are read forwards and compressed ones only once. */
static bool order_visits(struct job *job, const struct tc_writer *writer, struct tc_error *error) {
    size_t count = job->file->count;
    job->visits = malloc((count ? count : 1) * sizeof *job->visits);
    job->direct = calloc(count ? count : 1, sizeof *job->direct);
    if (!job->visits || !job->direct)
        return tc_fail_memory(error);
    job->visit_count = 0;
    for (size_t i = 0; i < count; i++)
        if (!job->plan->items[job->file->first + i].tied)
            job->visits[job->visit_count++] = job->file->first + i;
    if (writer->backend->caps & TC_WRITES_ANY_ORDER && tc_outfile_seekable(writer->out))
        qsort_r(job->visits, job->visit_count, sizeof *job->visits, by_place, job->plan->items);
    return true;
}

static bool needs_pipe(struct job *job, const struct tc_writer *writer) {
    bool pipe = false;
    for (size_t visit = 0; visit < job->visit_count; visit++) {
        const struct tc_item *item = &job->plan->items[job->visits[visit]];
        struct tc_extent extent;
        job->direct[visit] = !writer->sees_bytes && !item->densify && !item->dequantise &&
                             item->dtype == item->tensor->dtype &&
                             tc_reader_extent(item->reader, item->tensor, &extent);
        pipe |= job->read_back || (!job->direct[visit] && item->nbytes);
    }
    return pipe;
}

/* Waits for the producer, which may still find damage behind the last byte taken. */
static bool end_pipe(struct job *job, struct tc_error *error) {
    struct tc_chunk *chunk;
    enum tc_next next = tc_pipe_next(&job->pipe, &chunk, error);
    if (next != TC_NEXT_CHUNK)
        return next == TC_NEXT_END;
    tc_chunk_release(chunk);
    return tc_fail(error, TC_INTERNAL, "flow", "more data than the plan has");
}

static bool put_item(struct tc_writer *writer, size_t item, struct tc_source *source,
                     struct tc_error *error) {
    const struct tc_backend *target = writer->backend;
    return target->put ? target->put(writer, item, source, error)
                       : tc_source_write(source, writer->out, error);
}

static bool put_all(struct job *job, struct tc_writer *writer, struct tc_error *error) {
    if (needs_pipe(job, writer)) {
        if (!tc_pipe_start(&job->pipe, produce, job, error))
            return false;
        job->piping = true;
    }
    for (size_t visit = 0; visit < job->visit_count; visit++) {
        size_t position = job->visits[visit];
        const struct tc_item *item = &job->plan->items[position];
        struct item_source source = {.base = {write_chunks, next_chunk},
                                     .job = job,
                                     .item = item,
                                     .visit = visit,
                                     .left = item->nbytes};
        if (job->direct[visit])
            tc_reader_extent(item->reader, item->tensor, &source.extent);
        if (!put_item(writer, position - job->file->first, &source.base, error))
            return tc_error_in_tensor(error, item->tensor->name.bytes, item->tensor->name.length);
        if (source.left)
            return tc_fail(error, TC_INTERNAL, "put", "%s did not take all of a tensor",
                           writer->backend->name);
    }
    return !job->piping || end_pipe(job, error);
}

static bool write_file(struct job *job, struct tc_outfile *out, struct tc_outfile *companion,
                       struct tc_error *error) {
    const struct tc_backend *target = job->plan->target;
    struct tc_writer writer = {.backend = target,
                               .plan = job->plan,
                               .file = job->file,
                               .out = out,
                               .companion = companion};
    tc_arena_init(&writer.arena, 0);
    writer.state = calloc(1, target->writer_size ? target->writer_size : 1);
    bool ok = writer.state ? target->begin(&writer, error) : tc_fail_memory(error);
    ok = ok && order_visits(job, &writer, error) && put_all(job, &writer, error);
    /* The writer's hashing thread may still hold chunks of the pipe, so finish or
     * abort comes before the pipe ends. */
    if (ok)
        ok = !target->finish || target->finish(&writer, error);
    else if (writer.state && target->abort)
        target->abort(&writer);
    if (job->piping)
        tc_pipe_end(&job->pipe);
    job->piping = false;
    free(job->visits);
    free(job->direct);
    job->visits = NULL;
    job->direct = NULL;
    free(writer.state);
    tc_arena_release(&writer.arena);
    return ok;
}

/* The small files beside the output: a sidecar, or the names of a folder's tensors. */
static bool write_texts(const struct tc_plan *plan, struct tc_publish *publish,
                        struct tc_error *error) {
    struct tc_buffer text = {0};
    bool ok = true;
    if (plan->sidecar_name)
        ok = tc_sidecar_encode(&plan->metadata, plan->items, plan->count, plan->sidecar_names,
                               &text, error) &&
             tc_publish_text(publish, plan->sidecar_name, &text, error);
    else if (plan->names_name)
        ok = tc_names_encode(plan, &text, error) &&
             tc_publish_text(publish, plan->names_name, &text, error);
    tc_buffer_release(&text);
    return ok;
}

static bool write_files(struct job *job, struct tc_publish *publish, struct tc_error *error) {
    struct tc_plan *plan = job->plan;
    for (size_t p = 0; p < plan->file_count; p++) {
        job->file = &plan->files[p];
        struct tc_outfile *out = tc_outfile_open(publish, job->file->name, error);
        struct tc_outfile *companion = out && job->file->companion
                                           ? tc_outfile_open(publish, job->file->companion, error)
                                           : NULL;
        if (!out || (job->file->companion && !companion))
            return false;
        /* Not for a compressed output, which may need less. */
        if (p == 0 && !plan->options->write.compress &&
            !tc_outfile_reserve(companion ? companion : out, plan->bytes_out, error))
            return false;
        if (!write_file(job, out, companion, error) ||
            (companion && !tc_outfile_seal(companion, error)) || !tc_outfile_seal(out, error))
            return false;
    }
    if (plan->index_name) {
        struct tc_outfile *out = tc_outfile_open(publish, plan->index_name, error);
        if (!out || !plan->target->sharding->write_index(plan, out, error) ||
            !tc_outfile_seal(out, error))
            return false;
    }
    return write_texts(plan, publish, error);
}

/* Lists all files of the readers; the output gets no more permissions than they have. */
static bool list_inputs(struct tc_conversion *conversion, struct tc_error *error) {
    const struct tc_plan *plan = conversion->plan;
    size_t capacity = 0;
    for (size_t r = 0; r < plan->reader_count; r++)
        capacity += 2 + plan->readers[r]->shard_count + plan->readers[r]->companion_count;
    struct tc_input **inputs = calloc(capacity, sizeof(struct tc_input *));
    if (!inputs)
        return tc_fail_memory(error);
    size_t count = 0;
    for (size_t r = 0; r < plan->reader_count; r++) {
        struct tc_input *input;
        for (size_t at = 0; (input = tc_reader_next_file(plan->readers[r], &at));)
            tc_publish_limit(&conversion->publish, inputs[count++] = input);
        if (r == 0)
            conversion->own_count = count;
    }
    conversion->inputs = inputs;
    conversion->input_count = count;
    return true;
}

static bool check_name(struct tc_conversion *conversion, const char *name, struct tc_error *error) {
    size_t own = conversion->options->in_place ? conversion->own_count : 0;
    return !name || tc_publish_check(&conversion->publish, name, conversion->inputs + own,
                                     conversion->input_count - own, error);
}

/* Refuses a pipe, device or standard output for what can't be written to it. */
static bool check_stream(struct tc_conversion *conversion, const char *name,
                         struct tc_error *error) {
    const struct tc_plan *plan = conversion->plan;
    bool needs_seek = plan->target->caps & TC_NEEDS_SEEK;
    bool several =
        plan->file_count > 1 || plan->index_name || plan->sidecar_name || plan->files[0].companion;
    bool read_back = conversion->options->read_back;
    bool stream;
    if (!tc_publish_is_stream(&conversion->publish, name, &stream, error))
        return false;
    /* Standard output is a single file, and is not open for reading. */
    bool whole = !stream && !conversion->publish.standard_output;
    if (whole || (!several && !read_back && !(needs_seek && stream)))
        return true;
    tc_fail(error, TC_USAGE, "seek",
            several                ? "%s in several files cannot be written to %s"
            : needs_seek && stream ? "%s cannot be written to %s"
                                   : "%s that went into %s cannot be verified",
            plan->target->name, stream ? "a pipe" : "standard output");
    tc_error_hint(error, stream && !several && !read_back
                             ? "name a file, or redirect standard output to one with >, not >>"
                             : "name a file");
    return tc_error_in_file(error, conversion->publish.path);
}

static bool check_targets(struct tc_conversion *conversion, struct tc_error *error) {
    const struct tc_plan *plan = conversion->plan;
    for (size_t p = 0; p < plan->file_count; p++)
        if (!check_name(conversion, plan->files[p].name, error) ||
            !check_name(conversion, plan->files[p].companion, error) ||
            !check_stream(conversion, plan->files[p].name, error))
            return false;
    return check_name(conversion, plan->index_name, error) &&
           check_name(conversion, plan->names_name, error) &&
           check_name(conversion, plan->sidecar_name, error);
}

/* Reads the sealed files again and compares. */
static bool check_output(struct tc_conversion *conversion, struct job *job,
                         struct tc_error *error) {
    const struct tc_convert_options *options = conversion->options;
    struct tc_watch watch = {.step = advance, .context = job};
    if (!options->read_back)
        return true;
    if (options->disturb)
        options->disturb(&conversion->publish);
    return tc_read_back_check(&conversion->read_back, conversion->plan, &conversion->publish,
                              options->open, &watch, error);
}

/* The head is the file that is opened to read the whole output: the index, or the
 * only file. */
static bool set_head(struct tc_conversion *conversion, struct tc_error *error) {
    const struct tc_plan *plan = conversion->plan;
    const char *head = plan->index_name   ? plan->index_name
                       : plan->file_count ? plan->files[0].name
                                          : NULL;
    return !head || plan->options->folder || tc_publish_set_head(&conversion->publish, head, error);
}

bool tc_conversion_write(struct tc_conversion *conversion, struct tc_plan *plan, const char *output,
                         const struct tc_convert_options *options, struct tc_error *error) {
    *conversion = (struct tc_conversion){.plan = plan, .options = options};
    struct job job = {.plan = plan,
                      .options = options,
                      .read_back = options->read_back ? &conversion->read_back : NULL};
    struct tc_checksum_thread *checksums = NULL;
    bool ok =
        tc_publish_begin(&conversion->publish, output, plan->options->folder, options->publish,
                         error) &&
        set_head(conversion, error) && list_inputs(conversion, error) &&
        check_targets(conversion, error) &&
        (!job.read_back || tc_read_back_init(&conversion->read_back, plan, options->keep, error));
    if (ok)
        checksums = tc_checksum_thread_start(plan->readers, plan->taken, plan->reader_count, error);
    ok = ok && checksums && write_files(&job, &conversion->publish, error);
    ok = tc_checksum_thread_join(checksums, error) && ok;
    for (size_t i = 0; i < conversion->input_count && ok; i++)
        ok = tc_input_unchanged(conversion->inputs[i], error);
    return ok && check_output(conversion, &job, error);
}

/* Lists the outputs that are to be published: all, or those that differ from what is there. */
static bool list_changed(struct tc_conversion *conversion, struct tc_publish *others, size_t count,
                         struct tc_publish **list, size_t *listed, struct tc_error *error) {
    for (size_t i = 0; i <= count; i++) {
        struct tc_publish *publish = i ? &others[i - 1] : &conversion->publish;
        bool same = false;
        if (conversion->options->if_changed && publish->files &&
            !tc_publish_is_same(publish, &same, error))
            return false;
        if (!same)
            list[(*listed)++] = publish;
        else if (i == 0)
            conversion->unchanged = true;
    }
    return true;
}

bool tc_conversion_commit_with(struct tc_conversion *conversion, struct tc_publish *others,
                               size_t count, struct tc_error *error) {
    struct tc_publish **list = calloc(count + 1, sizeof(struct tc_publish *));
    size_t listed = 0;
    if (!list)
        return tc_fail_memory(error);
    const char *stale = conversion->plan->stale_name;
    bool ok = (!stale || tc_publish_remove(&conversion->publish, stale, error)) &&
              tc_stale_shards(conversion->plan, &conversion->publish, conversion->inputs,
                              conversion->input_count, conversion->options->prune, error) &&
              list_changed(conversion, others, count, list, &listed, error) &&
              (listed == 0 || tc_publish_commit_all(list, listed, error));
    free(list);
    return ok;
}

bool tc_conversion_commit(struct tc_conversion *conversion, struct tc_error *error) {
    return tc_conversion_commit_with(conversion, NULL, 0, error);
}

void tc_conversion_end(struct tc_conversion *conversion) {
    tc_publish_end(&conversion->publish);
    tc_read_back_release(&conversion->read_back);
    free(conversion->inputs);
}

bool tc_convert(struct tc_plan *plan, const char *output, const struct tc_convert_options *options,
                struct tc_error *error) {
    struct tc_conversion conversion;
    bool ok = tc_conversion_write(&conversion, plan, output, options, error) &&
              tc_conversion_commit(&conversion, error);
    tc_conversion_end(&conversion);
    return ok;
}
