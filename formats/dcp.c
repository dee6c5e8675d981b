/*
 * torch.distributed.checkpoint: a folder with
 *     .metadata           a pickle: which tensors there are, in which pieces, and where those are
 *     __RANK_FILE.distcp  the pieces and other values, each as a whole file of torch.save
 * Without collectives each rank writes a table of its own, __RANK.metadata. The input is the
 * table; a folder is opened by it (model_folder.c).
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "formats/dcp/dcp.h"
#include "formats/pickle/opcodes.h"
#include "formats/pickle/option.h"

/* In a checkpoint of so few pieces all items are looked at when it is opened, so that damage shows
 * before anything is written. It takes 20 to 50 microseconds each; in others they are looked at
 * when they are read. */
#define EAGER_PIECES 4096u

/* A pickle that begins with the name of its class: as text behind the opcodes of protocol 4, or in
 * a line as protocol 2 has it. */
static int probe(const struct tc_probe *probe) {
    static const char module[] = "torch.distributed.checkpoint.metadata";
    static const char class[] = "Metadata";
    if (probe->length < 2 || probe->head[0] != OP_PROTO || probe->head[1] > PICKLE_PROTOCOL)
        return 0;
    const unsigned char *found =
        memmem(probe->head, probe->length < 80 ? probe->length : 80, module, sizeof module - 1);
    if (!found)
        return 0;
    const unsigned char *behind = found + sizeof module - 1;
    size_t left = (size_t)(probe->head + probe->length - behind);
    return memmem(behind, left < 16 ? left : 16, class, sizeof class - 1) ? 90 : 0;
}

/* Runs no pickle that does not begin as a table does. */
static bool check_start(struct tc_input *input, struct tc_error *error) {
    struct tc_probe start = {.input = input};
    start.length = input->size < sizeof start.head ? (size_t)input->size : sizeof start.head;
    return tc_input_read(input, 0, start.head, start.length, error) &&
           (probe(&start) || tc_fail(error, TC_INVALID, "dcp-table",
                                     "this is no table of a distributed checkpoint"));
}

/* Opens the file of items with this number. */
static bool open_file(struct dcp *dcp, uint32_t number, struct tc_error *error) {
    if (dcp->inputs[number])
        return true;
    const struct tc_reader *reader = dcp->reader;
    const char *table = reader->input->path;
    struct tc_buffer path = {0};
    tc_buffer_add(&path, table, (size_t)(tc_path_name(table) - table));
    tc_buffer_add_text(&path, dcp->files.entries[number].name);
    if (tc_buffer_ok(&path, error))
        dcp->inputs[number] = tc_reader_open_beside(reader, path.bytes, &dcp->pool, error);
    tc_buffer_release(&path);
    /* A table that names a pipe or a device would have the reader wait or act. */
    if (error->class == TC_IO && error->reason == TC_REASON_NOT_A_FILE)
        error->class = TC_UNSAFE;
    return dcp->inputs[number] != NULL;
}

static bool open_files_of(struct dcp *dcp, const struct dcp_entry *entry, struct tc_error *error) {
    if (!entry->tensor)
        return !entry->placed || open_file(dcp, entry->item.file, error);
    for (size_t i = 0; i < entry->pieces.count; i++)
        if (!open_file(dcp, entry->sources[i].item.file, error))
            return false;
    return true;
}

/* Opens the files that hold what the user selected, and no others. */
static bool open_files(struct dcp *dcp, struct tc_error *error) {
    struct tc_reader *reader = dcp->reader;
    dcp->inputs =
        tc_arena_array(&reader->arena, dcp->files.count, sizeof(struct tc_input *), error);
    if (!dcp->inputs)
        return false;
    reader->companions = dcp->inputs;
    reader->companion_count = dcp->files.count;
    for (size_t i = 0; i < dcp->count; i++) {
        const struct dcp_entry *entry = &dcp->entries[i];
        if (dcp_wants(dcp, entry) && !open_files_of(dcp, entry, error))
            return tc_error_in_tensor(error, entry->name.bytes, entry->name.length);
    }
    for (size_t i = 0; i < dcp->files.count; i++)
        reader->size += dcp->inputs[i] ? dcp->inputs[i]->size : 0;
    return true;
}

/* Adds a tensor to the reader's table, whose shape of F4 counts elements and not pairs. */
static bool add_tensor(struct dcp *dcp, size_t position, struct tc_error *error) {
    const struct dcp_entry *entry = &dcp->entries[position];
    struct tc_tensor tensor = {.name = entry->name,
                               .shape = entry->shape,
                               .nbytes = entry->nbytes,
                               .offset = position,
                               .cookie = (uint32_t)position,
                               .dtype = (uint8_t)entry->dtype,
                               .rank = (uint8_t)entry->rank};
    if (entry->dtype == TC_F4) {
        uint64_t *elements =
            tc_arena_array(&dcp->reader->arena, entry->rank, sizeof *elements, error);
        if (!elements)
            return false;
        memcpy(elements, entry->shape, entry->rank * sizeof *elements);
        elements[entry->rank - 1] *= 2;
        tensor.shape = elements;
    }
    for (size_t i = 0; i < entry->pieces.count; i++)
        tensor.sequential |= entry->sources[i].item.packed;
    return tc_table_add(&dcp->reader->table, &tensor, error);
}

/* Looks at the items of all tensors that are wanted, where they are few. */
static bool resolve_few(struct dcp *dcp, struct tc_error *error) {
    uint64_t pieces = 0;
    for (size_t i = 0; i < dcp->count; i++)
        pieces += dcp_wants(dcp, &dcp->entries[i]) ? dcp->entries[i].pieces.count : 0;
    if (pieces > EAGER_PIECES || dcp->reader->options->findings)
        return true; /* a check finds each damage when it reads the tensor */
    for (size_t i = 0; i < dcp->count; i++) {
        struct dcp_entry *entry = &dcp->entries[i];
        if (!entry->tensor || !dcp_wants(dcp, entry))
            continue;
        if (!dcp_resolve(dcp, entry, error))
            return false;
        struct tc_tensor *tensor = tc_table_find(&dcp->reader->table, entry->name);
        tensor->sequential |= !entry->raw && entry->nbytes;
    }
    return true;
}

bool dcp_list_items(struct dcp *dcp, struct tc_reader *reader, struct tc_error *error) {
    *dcp = (struct dcp){.reader = reader, .options = *reader->options, .listing = true};
    tc_name_map_init(&dcp->names, &reader->arena);
    tc_name_map_init(&dcp->files, &reader->arena);
    return check_start(reader->input, error) && dcp_read_table(dcp, error);
}

void dcp_list_release(struct dcp *dcp) {
    tc_name_map_release(&dcp->names);
    tc_name_map_release(&dcp->files);
}

static bool open_dcp(struct tc_reader *reader, struct tc_error *error) {
    struct dcp *dcp = reader->state;
    dcp->reader = reader;
    dcp->options = *reader->options;
    dcp->options.part = true;
    dcp->options.select = NULL;
    dcp->options.findings = NULL;
    tc_name_map_init(&dcp->names, &reader->arena);
    tc_name_map_init(&dcp->files, &reader->arena);
    tc_input_pool_init(&dcp->pool);
    pthread_mutex_init(&dcp->lock, NULL);
    dcp->ready = true;
    reader->checksum = true;
    reader->beyond = "the pieces of a distributed checkpoint";
    if (!check_start(reader->input, error) || !dcp_read_table(dcp, error) ||
        !open_files(dcp, error))
        return false;
    for (size_t i = 0; i < dcp->count; i++)
        if (dcp->entries[i].tensor && !dcp->entries[i].left_out && !add_tensor(dcp, i, error))
            return false;
    return dcp_read_values(dcp, error) && resolve_few(dcp, error);
}

/* The value that a tensor lies in; NULL: it is an entry of its own. */
static struct tc_reader *value_of(const struct dcp *dcp, const struct tc_tensor *tensor) {
    return tensor->cookie < dcp->count ? NULL : dcp->values[tensor->cookie - dcp->count];
}

static bool read_dcp(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                     void *buffer, size_t length, struct tc_error *error) {
    struct dcp *dcp = reader->state;
    struct tc_reader *value = value_of(dcp, tensor);
    if (!value)
        return dcp_read(dcp, &dcp->entries[tensor->cookie], offset, buffer, length, error);
    pthread_mutex_lock(&dcp->lock);
    bool ok =
        tc_reader_read(value, &value->table.tensors[tensor->offset], offset, buffer, length, error);
    pthread_mutex_unlock(&dcp->lock);
    return ok;
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    struct dcp *dcp = reader->state;
    return !value_of(dcp, tensor) && dcp_extent(dcp, &dcp->entries[tensor->cookie], extent);
}

static bool check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    struct dcp *dcp = reader->state;
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        struct tc_reader *value = value_of(dcp, tensor);
        if (wanted && !wanted[i])
            continue;
        bool ok = value ? value->backend->check_sums(value, NULL, error)
                        : dcp_check_sums(dcp, &dcp->entries[tensor->cookie], error);
        if (ok)
            continue;
        tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
        if (!tc_reader_forgive(reader, error))
            return false;
    }
    return true;
}

static void close_dcp(struct tc_reader *reader) {
    struct dcp *dcp = reader->state;
    if (!dcp->ready)
        return;
    dcp_release_spools(dcp);
    for (size_t i = 0; i < dcp->value_count; i++)
        tc_reader_close(dcp->values[i]);
    free(dcp->values);
    for (size_t i = 0; dcp->inputs && i < dcp->files.count; i++)
        tc_input_close(dcp->inputs[i]);
    tc_name_map_release(&dcp->names);
    tc_name_map_release(&dcp->files);
    tc_input_pool_release(&dcp->pool);
    pthread_mutex_destroy(&dcp->lock);
}

const struct tc_backend tc_backend_dcp = {
    .name = "dcp",
    .summary = "PyTorch distributed checkpoint",
    .extensions = (const char *const[]){".metadata", NULL},
    .mime = "application/octet-stream",
    .framework = "pt",
    .caps = TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA | TC_CAN_LOAD_LAZILY,
    .options = (const struct tc_format_option *const[]){&pickle_mode_option, NULL},
    .probe = probe,
    .reader_size = sizeof(struct dcp),
    .open = open_dcp,
    .read = read_dcp,
    .extent = extent,
    .check_sums = check_sums,
    .close = close_dcp,
};
