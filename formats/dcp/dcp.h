/*
 * torch.distributed.checkpoint: the table of a folder (metadata.c), its items (item.c), and the
 * tensors that are put together of them (tensor.c). dcp.c opens a checkpoint by its table; hf.c
 * reads the safetensors files of DCP's writer for Hugging Face, which have no table.
 */
#ifndef TCONV_FORMATS_DCP_DCP_H
#define TCONV_FORMATS_DCP_DCP_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/spool.h"
#include "core/tensor/dtype.h"
#include "formats/pieces.h"
#include "formats/torch/object.h"

/* A range of a file that is a whole file of torch's. */
struct dcp_item {
    uint32_t file;
    bool packed; /* it is one frame of zstd */
    uint64_t offset;
    uint64_t length;
};

/* A piece's item, and once that was looked at where the piece's bytes are. */
struct dcp_source {
    struct dcp_item item;
    struct torch_raw raw;
    uint64_t spooled; /* where they are in the tensor's spool, where they do not lie raw */
};

/* One name of the table: a tensor, or a value that is none. */
struct dcp_entry {
    struct tc_text name;
    bool tensor;
    bool placed; /* the table says where the value's item is */
    struct dcp_item item;
    enum tc_dtype dtype;
    unsigned rank;
    uint64_t nbytes;
    const uint64_t *shape; /* as torch has it */
    struct pieces pieces;  /* without the empty ones; a piece's source is a position in `sources` */
    struct dcp_source *sources;
    _Atomic bool resolved; /* it is known where all bytes are, */
    bool raw;              /* and they lie raw in the files */
    bool left_out;         /* it is damaged, and the user did not select it */
};

/* Tensors whose bytes do not lie raw are put together in a temporary file. Few are read at the
 * same time: a weight and its scales, for instance. */
#define DCP_SPOOLS 4

struct dcp_spool {
    const struct dcp_entry *entry; /* NULL: not in use */
    uint64_t used;                 /* the time of its last use */
    struct tc_spool spool;
};

struct dcp {
    struct tc_reader *reader;
    bool listing;           /* keep all items that the table has, */
    struct dcp_item *items; /* here, also those that nothing needs */
    size_t item_count;
    struct tc_text outside; /* a file outside the folder that it names, which is refused */
    struct tc_format_options options; /* for items */
    struct tc_name_map names;         /* of entries */
    struct dcp_entry *entries;
    size_t count;
    struct tc_name_map files;
    struct tc_input **inputs; /* by file; NULL: nothing in it is needed */
    struct tc_input_pool pool;
    /* Values that have tensors in them. The cookie of such a tensor is the value's position here,
     * behind the positions of the entries; its offset is that in the value's table. */
    struct tc_reader **values;
    size_t value_count;
    pthread_mutex_t lock; /* for what follows, for resolving, and for reading values */
    struct dcp_spool spools[DCP_SPOOLS];
    uint64_t clock;
    bool ready;
};

/* metadata.c: reads the table, and checks it. */
bool dcp_read_table(struct dcp *dcp, struct tc_error *error);

/* dcp.c: reads the table of `reader`, and no other file, for whoever looks into every item. It is
 * released in any case. */
bool dcp_list_items(struct dcp *dcp, struct tc_reader *reader, struct tc_error *error);
void dcp_list_release(struct dcp *dcp);

/* item.c: opens an item, which may unpack to at most `most` bytes. */
struct tc_reader *dcp_item_open(struct dcp *dcp, const struct dcp_item *item, uint64_t most,
                                struct tc_error *error);
/* Opens the item of a piece, and checks that it holds what the table says: its only tensor is the
 * reader's. */
struct tc_reader *dcp_piece_open(struct dcp *dcp, const struct dcp_entry *entry,
                                 const struct piece *piece, struct tc_error *error);
/* Whether a selection takes an entry; of a value also whether it takes one of the first items in
 * it, which the table does not name. */
bool dcp_wants(const struct dcp *dcp, const struct dcp_entry *entry);
/* Reads the items of values that are no tensors. */
bool dcp_read_values(struct dcp *dcp, struct tc_error *error);

/* tensor.c: finds out where a tensor's bytes are. */
bool dcp_resolve(struct dcp *dcp, struct dcp_entry *entry, struct tc_error *error);
bool dcp_read(struct dcp *dcp, struct dcp_entry *entry, uint64_t offset, void *buffer,
              size_t length, struct tc_error *error);
bool dcp_extent(struct dcp *dcp, struct dcp_entry *entry, struct tc_extent *extent);
/* Checks the checksums that reading does not check. */
bool dcp_check_sums(struct dcp *dcp, struct dcp_entry *entry, struct tc_error *error);
void dcp_release_spools(struct dcp *dcp);

#endif
