#include "core/convert/convert.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/convert/fill.h"
#include "core/convert/side_by_side.h"
#include "core/convert/stale_shards.h"
#include "core/convert/view_copy.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/source.h"
#include "core/io/chunk_pipe.h"
#include "core/io/flow.h"
#include "core/io/publish_compare.h"
#include "core/plan/kept_metadata.h"

/* Copies from file to file are made in steps, so that progress can be reported. */
#define COPY_STEP (UINT64_C(64) << 20)

/* One output file while it is written. A visit is one of its items that has data. */
struct job {
    struct tc_plan *plan;
    const struct tc_output_file *file;
    size_t *visits; /* the items' positions in the plan, in the order in which they are written */
    size_t visit_count;
    bool *direct; /* by visit: copied from file to file, not through the flow */
    size_t threads;
    struct tc_fill fill;
    struct tc_flow flow;
    bool flowing;
    bool any_order; /* chunks come in any order, and are written at their places */
    struct tc_progress_sum *progress;
    bool reports;                   /* this is the main thread, which reports progress */
    struct tc_read_back *read_back; /* gets the tensors' sums; NULL: they are not needed */
};

struct item_source {
    struct tc_source base; /* must be first: writers get a pointer to it */
    struct job *job;
    const struct tc_item *item;
    size_t visit;
    uint64_t left; /* bytes that the writer has not taken yet */
    struct tc_extent extent;
};

static void advance(struct job *job, uint64_t bytes) {
    tc_progress_add(job->progress, bytes);
    if (job->reports)
        tc_progress_report(job->progress);
}

static enum tc_next next_chunk(struct tc_source *base, struct tc_chunk **chunk,
                               struct tc_error *error) {
    struct item_source *source = (struct item_source *)base;
    *chunk = NULL;
    if (source->left == 0)
        return TC_NEXT_END;
    enum tc_next next = tc_flow_next(&source->job->flow, chunk, error);
    if (next == TC_NEXT_END)
        tc_fail(error, TC_INTERNAL, "flow", "the stream of data ended early");
    if (next != TC_NEXT_CHUNK)
        return TC_NEXT_FAILED;
    if ((*chunk)->item != source->visit || (*chunk)->unpacked > source->left) {
        tc_chunk_release(*chunk);
        *chunk = NULL;
        tc_fail(error, TC_INTERNAL, "flow", "the stream of data is out of step");
        return TC_NEXT_FAILED;
    }
    source->left -= (*chunk)->unpacked;
    advance(source->job, (*chunk)->unpacked);
    return TC_NEXT_CHUNK;
}

/* Whether an item is copied in blocks, since its elements lie in a file in another order. */
static bool is_strided(const struct job *job, const struct tc_writer *writer,
                       const struct tc_item *item) {
    struct tc_strided strided;
    /* What is read back needs the sum of the stream. */
    return !job->read_back && tc_outfile_seekable(writer->out) && !item->skip &&
           item->nbytes == item->tensor->nbytes &&
           tc_reader_strided(item->reader, item->tensor, &strided) &&
           tc_view_copy_pays(&strided, item->nbytes, job->threads);
}

static bool copy_strided(struct item_source *source, struct tc_outfile *out,
                         struct tc_error *error) {
    const struct tc_item *item = source->item;
    const struct job *job = source->job;
    struct tc_strided strided;
    source->left = 0;
    return tc_reader_strided(item->reader, item->tensor, &strided) &&
           tc_view_copy(&strided, item->nbytes, out, job->threads, job->progress, job->reports,
                        error);
}

static bool copy_direct(struct item_source *source, struct tc_outfile *out,
                        struct tc_error *error) {
    if (!tc_reader_extent(source->item->reader, source->item->tensor, &source->extent))
        return copy_strided(source, out, error);
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

/* Decides which items are copied from file to file. */
static void find_direct(struct job *job, const struct tc_writer *writer) {
    for (size_t visit = 0; visit < job->visit_count; visit++) {
        const struct tc_item *item = &job->plan->items[job->visits[visit]];
        struct tc_extent extent;
        job->direct[visit] = !writer->sees_bytes && !item->densify && !item->dequantise &&
                             item->dtype == item->tensor->dtype &&
                             (tc_reader_extent(item->reader, item->tensor, &extent) ||
                              is_strided(job, writer, item));
    }
}

/* Whether items that are read in sequence are best read side by side, and written as they come. */
static bool takes_any_order(const struct job *job, const struct tc_writer *writer) {
    size_t count = 0;
    if (!writer->backend->place || writer->sees_bytes || !tc_outfile_seekable(writer->out))
        return false;
    for (size_t visit = 0; visit < job->visit_count; visit++) {
        const struct tc_item *item = &job->plan->items[job->visits[visit]];
        count += item->tensor->sequential && item->reader->streams;
    }
    return count > 1;
}

static bool start_flow(struct job *job, const struct tc_writer *writer, struct tc_error *error) {
    job->fill = (struct tc_fill){.plan = job->plan,
                                 .visits = job->visits,
                                 .direct = job->direct,
                                 .visit_count = job->visit_count,
                                 .read_back = job->read_back,
                                 .wants_crc = writer->wants_crc,
                                 .deflate_level = writer->deflate_level};
    job->flowing = tc_fill_needed(&job->fill);
    job->any_order = takes_any_order(job, writer);
    if (job->flowing && !tc_fill_start(&job->fill, &job->flow, job->threads, job->any_order, error))
        job->flowing = false;
    return job->flowing || error->class == TC_OK;
}

/* Waits for the other threads, which may still find damage behind the last byte taken. */
static bool end_flow(struct job *job, struct tc_error *error) {
    struct tc_chunk *chunk;
    enum tc_next next = tc_flow_next(&job->flow, &chunk, error);
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

/* Writes chunks as they come, each at its place, and copies the other items. */
static bool put_pieces(struct job *job, struct tc_writer *writer, struct tc_error *error) {
    struct tc_chunk *chunk;
    enum tc_next next;
    for (size_t visit = 0; visit < job->visit_count; visit++) {
        size_t position = job->visits[visit];
        const struct tc_item *item = &job->plan->items[position];
        struct item_source source = {
            .job = job, .item = item, .visit = visit, .left = item->nbytes};
        if (!job->direct[visit])
            continue;
        writer->out->position = writer->backend->place(writer, position - job->file->first);
        if (!copy_direct(&source, writer->out, error))
            return tc_error_in_tensor(error, item->tensor->name.bytes, item->tensor->name.length);
    }
    while ((next = tc_flow_next(&job->flow, &chunk, error)) == TC_NEXT_CHUNK) {
        size_t item = job->visits[chunk->item] - job->file->first;
        uint64_t at = writer->backend->place(writer, item) + chunk->offset;
        bool ok = tc_outfile_write_at(writer->out, at, chunk->bytes, chunk->length, error);
        advance(job, chunk->length);
        tc_chunk_release(chunk);
        if (!ok)
            return false;
    }
    return next == TC_NEXT_END;
}

static bool put_all(struct job *job, struct tc_writer *writer, struct tc_error *error) {
    find_direct(job, writer);
    if (!start_flow(job, writer, error))
        return false;
    if (job->any_order)
        return put_pieces(job, writer, error);
    for (size_t visit = 0; visit < job->visit_count; visit++) {
        size_t position = job->visits[visit];
        const struct tc_item *item = &job->plan->items[position];
        struct item_source source = {.base = {write_chunks, next_chunk},
                                     .job = job,
                                     .item = item,
                                     .visit = visit,
                                     .left = item->nbytes};
        if (!put_item(writer, position - job->file->first, &source.base, error)) {
            /* A copy of several tensors as one that fails is no matter of the last of them. */
            bool several = job->direct[visit] && error->class == TC_IO;
            if (!several)
                tc_error_in_tensor(error, item->tensor->name.bytes, item->tensor->name.length);
            return false;
        }
        if (source.left)
            return tc_fail(error, TC_INTERNAL, "put", "%s did not take all of a tensor",
                           writer->backend->name);
    }
    return !job->flowing || end_flow(job, error);
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
    /* The writer's hashing thread may still hold chunks of the flow, so finish or
     * abort comes before the flow ends. */
    if (ok)
        ok = !target->finish || target->finish(&writer, error);
    else if (writer.state && target->abort)
        target->abort(&writer);
    if (job->flowing)
        tc_fill_end(&job->fill, &job->flow);
    job->flowing = false;
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

/* What all files of an output have in common while they are written. */
struct writing {
    struct tc_plan *plan;
    struct tc_publish *publish;
    struct tc_read_back *read_back; /* NULL: sums are not needed */
    struct tc_progress_sum *progress;
    struct tc_file_sums *sums; /* that follow the files; NULL: none */
};

static bool open_file(void *context, size_t number, struct tc_open_file *open,
                      struct tc_error *error) {
    const struct writing *writing = context;
    const struct tc_plan *plan = writing->plan;
    const struct tc_output_file *file = &plan->files[number];
    open->out = tc_outfile_open(writing->publish, file->name, error);
    open->companion = open->out && file->companion
                          ? tc_outfile_open(writing->publish, file->companion, error)
                          : NULL;
    if (!open->out || (file->companion && !open->companion))
        return false;
    if (writing->sums)
        tc_file_sums_follow(writing->sums, open->out);
    if (writing->sums && open->companion)
        tc_file_sums_follow(writing->sums, open->companion);
    /* Not for an output that may need less: a compressed one, or one that shares blocks. */
    return number || plan->options->write.compress ||
           plan->options->write.align == TC_ALIGN_SHARE ||
           tc_outfile_reserve(open->companion ? open->companion : open->out, plan->bytes_out,
                              error);
}

static bool write_opened(void *context, size_t number, const struct tc_open_file *open,
                         size_t threads, bool is_main, struct tc_error *error) {
    const struct writing *writing = context;
    struct job *job = malloc(sizeof *job); /* too large for a small stack */
    if (!job)
        return tc_fail_memory(error);
    *job = (struct job){.plan = writing->plan,
                        .file = &writing->plan->files[number],
                        .threads = threads,
                        .progress = writing->progress,
                        .reports = is_main,
                        .read_back = writing->read_back};
    bool ok = write_file(job, open->out, open->companion, error) &&
              (!open->companion || tc_outfile_seal(open->companion, error)) &&
              tc_outfile_seal(open->out, error);
    free(job);
    return ok;
}

static void report_progress(void *context) {
    const struct writing *writing = context;
    tc_progress_report(writing->progress);
}

static bool write_files(struct writing *writing, struct tc_error *error) {
    struct tc_plan *plan = writing->plan;
    const struct tc_files_work work = {
        .context = writing, .open = open_file, .write = write_opened, .report = report_progress};
    if (!tc_files_write(&work, plan->file_count, tc_plan_side_by_side(plan), error))
        return false;
    if (plan->index_name) {
        struct tc_outfile *out = tc_outfile_open(writing->publish, plan->index_name, error);
        if (!out || !plan->target->sharding->write_index(plan, out, error) ||
            !tc_outfile_seal(out, error))
            return false;
    }
    return write_texts(plan, writing->publish, error);
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

/* Opens the files that were written and not opened yet. */
static bool open_outputs(struct tc_conversion *conversion, struct tc_error *error) {
    size_t count = 0;
    size_t number = 0;
    for (const struct tc_outfile *out = conversion->publish.files; out; out = out->next)
        count++;
    struct tc_input **outputs = reallocarray(conversion->outputs, count + 1, sizeof *outputs);
    if (!outputs)
        return tc_fail_memory(error);
    conversion->outputs = outputs;
    for (const struct tc_outfile *out = conversion->publish.files; out; out = out->next) {
        if (number++ < conversion->output_count)
            continue;
        outputs[number - 1] = tc_outfile_reopen(out, &conversion->pool, error);
        if (!outputs[number - 1])
            return false;
        conversion->output_count++;
    }
    return true;
}

/* Has the sums taken of those outputs that were not followed while they were written. */
static bool add_output_sums(struct tc_conversion *conversion, struct tc_error *error) {
    if (!open_outputs(conversion, error))
        return false;
    size_t count = conversion->output_count;
    struct tc_file_sum **list = reallocarray(conversion->output_sums, count + 1, sizeof *list);
    if (!list)
        return tc_fail_memory(error);
    conversion->output_sums = list;
    size_t number = 0;
    for (struct tc_outfile *out = conversion->publish.files; out; out = out->next, number++) {
        if (number < conversion->output_sum_count)
            continue;
        list[number] = tc_file_sums_followed(&conversion->sums, out);
        if (!list[number])
            list[number] = tc_file_sums_add(&conversion->sums, conversion->outputs[number], error);
        if (!list[number])
            return false;
        conversion->output_sum_count++;
    }
    return true;
}

bool tc_conversion_sums(struct tc_conversion *conversion, struct tc_error *error) {
    struct tc_file_sums *sums = &conversion->sums;
    return (sums->begun ||
            tc_file_sums_start(sums, conversion->inputs, conversion->input_count, error)) &&
           add_output_sums(conversion, error) && tc_file_sums_finish(sums, error);
}

/* Reads the sealed files again and compares. */
static bool check_output(struct tc_conversion *conversion, struct tc_progress_sum *progress,
                         struct tc_error *error) {
    const struct tc_convert_options *options = conversion->options;
    struct tc_watch watch = {.step = tc_progress_step, .context = progress};
    if (!options->read_back)
        return true;
    if (options->disturb)
        options->disturb(&conversion->publish);
    if (options->sums && !add_output_sums(conversion, error))
        return false;
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
    tc_input_pool_init(&conversion->pool);
    /* Verification reads everything a second time. */
    struct tc_progress_sum progress = {.call = options->progress,
                                       .context = options->context,
                                       .total = plan->bytes_out * (options->read_back ? 2 : 1)};
    struct writing writing = {.plan = plan,
                              .publish = &conversion->publish,
                              .read_back = options->read_back ? &conversion->read_back : NULL,
                              .progress = &progress,
                              .sums = options->sums ? &conversion->sums : NULL};
    struct tc_checksum_thread *checksums = NULL;
    bool ok = tc_publish_begin(&conversion->publish, output, plan->options->folder,
                               options->publish, error) &&
              set_head(conversion, error) && list_inputs(conversion, error) &&
              check_targets(conversion, error) &&
              (!writing.read_back ||
               tc_read_back_init(&conversion->read_back, plan, options->keep, error));
    ok = ok && (!options->sums || tc_file_sums_start(&conversion->sums, conversion->inputs,
                                                     conversion->input_count, error));
    if (ok)
        checksums = tc_checksum_thread_start(plan->readers, plan->taken, plan->reader_count, error);
    ok = ok && checksums && write_files(&writing, error);
    ok = tc_checksum_thread_join(checksums, error) && ok;
    for (size_t i = 0; i < conversion->input_count && ok; i++)
        ok = tc_input_unchanged(conversion->inputs[i], error);
    return ok && check_output(conversion, &progress, error);
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
    tc_file_sums_release(&conversion->sums);
    free(conversion->output_sums);
    for (size_t i = 0; i < conversion->output_count; i++)
        tc_input_close(conversion->outputs[i]);
    free(conversion->outputs);
    tc_input_pool_release(&conversion->pool);
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
