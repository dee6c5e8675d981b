/*
 * Tensors of pieces. Where the bytes of all pieces lie raw in the files, they are read from there,
 * each range where it belongs. Where one piece's do not (its item is packed, or its tensor has
 * strides), all pieces of the tensor are decoded into a temporary file, one behind the other.
 */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/spool.h"
#include "formats/dcp/dcp.h"
#include "formats/pieces.h"
#include "formats/torch/object.h"
#include "formats/zip/directory.h"
#include "formats/zip/read.h"

#define DECODE_STEP ((size_t)1 << 20)

/* Finds out where one piece's bytes are. */
static bool resolve_piece(struct dcp *dcp, struct dcp_entry *entry, const struct piece *piece,
                          struct tc_error *error) {
    struct dcp_source *source = &entry->sources[piece->source];
    if (source->item.packed) {
        entry->raw = false;
        return true;
    }
    struct tc_reader *item = dcp_piece_open(dcp, entry, piece, error);
    if (item)
        entry->raw &= torch_object_raw(item, &item->table.tensors[0], &source->raw);
    tc_reader_close(item);
    return item != NULL;
}

bool dcp_resolve(struct dcp *dcp, struct dcp_entry *entry, struct tc_error *error) {
    if (atomic_load(&entry->resolved))
        return true;
    pthread_mutex_lock(&dcp->lock);
    bool ok = true;
    if (!atomic_load(&entry->resolved)) {
        entry->raw = true;
        for (size_t i = 0; i < entry->pieces.count && ok; i++)
            ok = resolve_piece(dcp, entry, &entry->pieces.list[i], error);
        if (ok)
            atomic_store(&entry->resolved, true);
    }
    pthread_mutex_unlock(&dcp->lock);
    return ok;
}

struct fetch {
    struct dcp *dcp;
    const struct dcp_entry *entry;
    const struct tc_spool *spool;
};

static bool fetch_raw(void *context, const struct piece *piece, uint64_t offset, void *buffer,
                      size_t length, struct tc_error *error) {
    const struct fetch *fetch = context;
    const struct dcp_source *source = &fetch->entry->sources[piece->source];
    struct tc_input *input = fetch->dcp->inputs[source->item.file];
    return tc_input_read(input, source->raw.data + offset, buffer, length, error) ||
           tc_error_in_file(error, input->path);
}

static bool fetch_spooled(void *context, const struct piece *piece, uint64_t offset, void *buffer,
                          size_t length, struct tc_error *error) {
    const struct fetch *fetch = context;
    const struct dcp_source *source = &fetch->entry->sources[piece->source];
    return tc_spool_read(fetch->spool, source->spooled + offset, buffer, length, error);
}

/* Decodes one piece to the end of the spool. */
static bool decode_piece(struct dcp *dcp, struct dcp_entry *entry, const struct piece *piece,
                         struct tc_spool *spool, unsigned char *buffer, struct tc_error *error) {
    uint64_t bytes = pieces_bytes(&entry->pieces, piece);
    struct tc_reader *item = dcp_piece_open(dcp, entry, piece, error);
    bool ok = item && item->backend->check_sums(item, NULL, error);
    entry->sources[piece->source].spooled = spool->filled;
    for (uint64_t at = 0; at < bytes && ok;) {
        size_t step = bytes - at < DECODE_STEP ? (size_t)(bytes - at) : DECODE_STEP;
        ok = tc_reader_read(item, &item->table.tensors[0], at, buffer, step, error) &&
             tc_spool_add(spool, buffer, step, error);
        at += step;
    }
    tc_reader_close(item);
    return ok;
}

static void empty_spool(struct dcp_spool *spool) {
    if (spool->entry)
        tc_spool_release(&spool->spool);
    *spool = (struct dcp_spool){0};
}

/* The spool that holds the tensor, in the place of the one that was not used for longest. */
static struct dcp_spool *find_spool(struct dcp *dcp, struct dcp_entry *entry,
                                    struct tc_error *error) {
    struct dcp_spool *oldest = &dcp->spools[0];
    for (size_t i = 0; i < DCP_SPOOLS; i++) {
        if (dcp->spools[i].entry == entry)
            return &dcp->spools[i];
        if (dcp->spools[i].used < oldest->used)
            oldest = &dcp->spools[i];
    }
    empty_spool(oldest);
    unsigned char *buffer = malloc(DECODE_STEP);
    if (!buffer) {
        tc_fail_memory(error);
        return NULL;
    }
    bool ok = tc_spool_open(&oldest->spool, entry->nbytes, error);
    if (ok)
        oldest->entry = entry;
    for (size_t i = 0; i < entry->pieces.count && ok; i++)
        ok = decode_piece(dcp, entry, &entry->pieces.list[i], &oldest->spool, buffer, error);
    free(buffer);
    if (ok)
        return oldest;
    empty_spool(oldest);
    return NULL;
}

bool dcp_read(struct dcp *dcp, struct dcp_entry *entry, uint64_t offset, void *buffer,
              size_t length, struct tc_error *error) {
    struct fetch fetch = {dcp, entry, NULL};
    if (!dcp_resolve(dcp, entry, error))
        return false;
    if (entry->raw)
        return pieces_read(&entry->pieces, offset, buffer, length, fetch_raw, &fetch, error);
    pthread_mutex_lock(&dcp->lock);
    struct dcp_spool *spool = find_spool(dcp, entry, error);
    if (spool) {
        spool->used = ++dcp->clock;
        fetch.spool = &spool->spool;
    }
    bool ok =
        spool && pieces_read(&entry->pieces, offset, buffer, length, fetch_spooled, &fetch, error);
    pthread_mutex_unlock(&dcp->lock);
    return ok;
}

bool dcp_extent(struct dcp *dcp, struct dcp_entry *entry, struct tc_extent *extent) {
    struct tc_error ignored = {0};
    if (entry->pieces.count != 1 || !dcp_resolve(dcp, entry, &ignored) || !entry->raw)
        return false;
    *extent = (struct tc_extent){.input = dcp->inputs[entry->sources[0].item.file],
                                 .offset = entry->sources[0].raw.data};
    return true;
}

bool dcp_check_sums(struct dcp *dcp, struct dcp_entry *entry, struct tc_error *error) {
    if (!dcp_resolve(dcp, entry, error))
        return false;
    for (size_t i = 0; i < entry->pieces.count && entry->raw; i++) {
        const struct dcp_source *source = &entry->sources[entry->pieces.list[i].source];
        struct tc_input *input = dcp->inputs[source->item.file];
        const struct zip_member member = {.name = entry->name,
                                          .data = source->raw.start,
                                          .stored = source->raw.length,
                                          .size = source->raw.length,
                                          .crc = source->raw.crc};
        if (!zip_verify_stored(input, &member, error))
            return tc_error_in_file(error, input->path);
    }
    return true;
}

void dcp_release_spools(struct dcp *dcp) {
    for (size_t i = 0; i < DCP_SPOOLS; i++)
        empty_spool(&dcp->spools[i]);
}
