/*
 * DeepSpeed's ZeRO checkpoints, stages 1 to 3, as the weights in F32 that its own script
 * zero_to_fp32.py makes of them:
 *     ROOT/latest          the name of the folder of the newest checkpoint
 *     ROOT/TAG/…           its files (zero/files.c)
 * The input is `latest`, or a model file of a tag's folder; a folder is opened by one of the two
 * (model_folder.c). The files have no extension of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "formats/pickle/option.h"
#include "formats/pieces.h"
#include "formats/zero/zero.h"

/* What is cast at a time. */
#define CAST_STEP ((size_t)64 << 10)

/* global_step100, as DeepSpeed names a folder; any other name only in a file that is called
 * latest. */
static int probe(const struct tc_probe *probe) {
    static const char step[] = "global_step";
    struct tc_text tag;
    if (probe->input->size > sizeof probe->head ||
        !zero_is_tag((const char *)probe->head, probe->length, &tag))
        return 0;
    if (strcmp(tc_path_name(probe->input->path), "latest") == 0)
        return 40;
    if (!tc_text_starts(tag, TC_TEXT(step)) || tag.length == sizeof step - 1)
        return 0;
    for (size_t i = sizeof step - 1; i < tag.length; i++)
        if (tag.bytes[i] < '0' || tag.bytes[i] > '9')
            return 0;
    return 40;
}

static bool open_zero(struct tc_reader *reader, struct tc_error *error) {
    struct zero *zero = reader->state;
    zero->reader = reader;
    zero->options = *reader->options;
    zero->options.part = true;
    zero->options.select = NULL;
    zero->options.findings = NULL;
    tc_input_pool_init(&zero->pool);
    pthread_mutex_init(&zero->lock, NULL);
    zero->ready = true;
    reader->checksum = true;
    reader->beyond = "the state of a training";
    return zero_open_files(zero, error) && zero_make_table(zero, error);
}

static bool fetch(void *context, const struct piece *piece, uint64_t offset, void *buffer,
                  size_t length, struct tc_error *error) {
    const struct zero_tensor *tensor = context;
    const struct zero_source *source = &tensor->sources[piece->source];
    return tc_reader_read(source->reader, &source->reader->table.tensors[source->tensor],
                          source->start + offset, buffer, length, error);
}

/* Reads elements that become F32: whole ones, since a cast takes no parts of them. */
static bool read_cast(struct zero_tensor *tensor, uint64_t offset, unsigned char *buffer,
                      size_t length, struct tc_error *error) {
    size_t element = tensor->pieces.element;
    unsigned char *stored = malloc(CAST_STEP * element);
    float *cast = malloc(CAST_STEP * sizeof *cast);
    bool ok = (stored && cast) || tc_fail_memory(error);
    while (length && ok) {
        uint64_t first = offset / sizeof *cast;
        size_t skip = offset % sizeof *cast;
        uint64_t last = (offset + length + sizeof *cast - 1) / sizeof *cast;
        size_t count = last - first < CAST_STEP ? (size_t)(last - first) : CAST_STEP;
        size_t step = count * sizeof *cast - skip < length ? count * sizeof *cast - skip : length;
        ok = pieces_read(&tensor->pieces, first * element, stored, count * element, fetch, tensor,
                         error);
        if (ok) {
            tc_cast(tensor->stored, TC_F32, stored, cast, count, NULL);
            memcpy(buffer, (unsigned char *)cast + skip, step);
        }
        buffer += step;
        offset += step;
        length -= step;
    }
    free(stored);
    free(cast);
    return ok;
}

static bool read_zero(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                      void *buffer, size_t length, struct tc_error *error) {
    struct zero *zero = reader->state;
    struct zero_tensor *own = &zero->tensors[tensor->cookie];
    if (tensor->sequential)
        pthread_mutex_lock(&zero->lock);
    bool ok = own->stored == (enum tc_dtype)tensor->dtype
                  ? pieces_read(&own->pieces, offset, buffer, length, fetch, own, error)
                  : read_cast(own, offset, buffer, length, error);
    if (tensor->sequential)
        pthread_mutex_unlock(&zero->lock);
    return ok;
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    struct zero *zero = reader->state;
    const struct zero_tensor *own = &zero->tensors[tensor->cookie];
    if (own->pieces.count != 1 || own->stored != (enum tc_dtype)tensor->dtype)
        return false;
    const struct zero_source *source = &own->sources[0];
    if (!tc_reader_extent(source->reader, &source->reader->table.tensors[source->tensor], extent))
        return false;
    extent->offset += source->start;
    return true;
}

/* Checks the files' checksums of the tensors of these files that the wanted ones are made of. */
static bool check_files(struct zero *zero, const struct zero_files *files, const bool *wanted,
                        struct tc_error *error) {
    for (size_t i = 0; i < files->count; i++) {
        struct tc_reader *file = files->list[i].reader;
        bool *used = calloc(file->table.count + 1, sizeof *used);
        if (!used)
            return tc_fail_memory(error);
        for (size_t t = 0; t < zero->reader->table.count; t++) {
            const struct zero_tensor *own = &zero->tensors[zero->reader->table.tensors[t].cookie];
            for (size_t p = 0; (!wanted || wanted[t]) && p < own->pieces.count; p++)
                if (own->sources[p].reader == file)
                    used[own->sources[p].tensor] = true;
        }
        bool ok = file->backend->check_sums(file, used, error);
        free(used);
        if (ok)
            continue;
        tc_error_in_file(error, file->input->path);
        if (!tc_reader_forgive(zero->reader, error))
            return false;
    }
    return true;
}

static bool check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    struct zero *zero = reader->state;
    return check_files(zero, &zero->optimiser, wanted, error) &&
           check_files(zero, &zero->model, wanted, error);
}

static void close_zero(struct tc_reader *reader) {
    struct zero *zero = reader->state;
    if (!zero->ready)
        return;
    for (size_t i = 0; i < zero->optimiser.count; i++)
        tc_reader_close(zero->optimiser.list[i].reader);
    for (size_t i = 0; i < zero->model.count; i++)
        tc_reader_close(zero->model.list[i].reader);
    free(zero->tensors);
    free(zero->folder);
    tc_input_pool_release(&zero->pool);
    pthread_mutex_destroy(&zero->lock);
}

const struct tc_backend tc_backend_zero = {
    .name = "zero",
    .summary = "DeepSpeed ZeRO checkpoint",
    .extensions = (const char *const[]){".zero", NULL},
    .mime = "application/octet-stream",
    .framework = "pt",
    .caps = TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_LOAD_LAZILY | TC_CAN_TIE,
    .options = (const struct tc_format_option *const[]){&pickle_mode_option, NULL},
    .probe = probe,
    .reader_size = sizeof(struct zero),
    .open = open_zero,
    .read = read_zero,
    .extent = extent,
    .check_sums = check_sums,
    .close = close_zero,
};
