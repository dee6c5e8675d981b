/* What the reader (deathtensors.c) and the writer (deathtensors_write.c) of
 * deathtensors files share: the layout's constants and the writer's callbacks. */
#ifndef TCONV_FORMATS_DEATHTENSORS_H
#define TCONV_FORMATS_DEATHTENSORS_H

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/source.h"
#include "core/io/chunk_pipe.h"
#include "core/io/zstd.h"
#include "core/plan/plan.h"

#define PREFIX_BYTES 24u
#define HEADER_LIMIT (UINT64_C(256) << 20)
#define NAME_LIMIT 4096u

#define FLAG_ZSTD 1u
#define FLAG_CHECKSUM 2u

/* Keys that describe a shard or the index, not the model. */
#define KEY_PREFIX "deathtensors.shard"
#define KEY_SHARDED "deathtensors.sharded"
#define KEY_SHARDS "deathtensors.shards"
#define KEY_COUNT "deathtensors.shard.count"
#define KEY_INDEX "deathtensors.shard.index"

struct deathtensors_writer {
    struct tc_hash_thread hashing; /* computes the checksum */
    bool is_hashing;
    struct tc_zstd_encoder encoder;
    bool encoding;
    uint64_t end; /* of the blob so far */
};

bool deathtensors_check(struct tc_plan *plan, struct tc_error *error);
bool deathtensors_begin(struct tc_writer *writer, struct tc_error *error);
bool deathtensors_put(struct tc_writer *writer, size_t item, struct tc_source *source,
                      struct tc_error *error);
bool deathtensors_finish(struct tc_writer *writer, struct tc_error *error);
void deathtensors_abort(struct tc_writer *writer);
extern const struct tc_sharding deathtensors_sharding;

#endif
