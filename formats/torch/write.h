/*
 * Writing torch's archives: what torch.save makes of a state dict, and what
 * libtorch makes of a module that has only parameters (tch's .ot). A zip of
 * stored members, aligned to 64 bytes, with a pickle of protocol 2: torch 1.13
 * and later load it, also with weights_only and mmap.
 *
 * ".format_version" and ".storage_alignment" are left out on purpose: with
 * them torch computes where storages lie instead of looking, and is wrong for
 * archives without data descriptors.
 */
#ifndef TCONV_FORMATS_TORCH_WRITE_H
#define TCONV_FORMATS_TORCH_WRITE_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/source.h"
#include "core/plan/plan.h"
#include "formats/zip/write.h"

struct torch_slot;

/* The writer's state: writer_size of a backend is its size. */
struct torch_writer {
    struct zip_writer zip;
    struct torch_slot *slots; /* by item of the file */
    size_t *places;           /* with a tree: 1 + the item, by position in the input's table */
    bool script;
};

bool torch_write_begin(struct tc_writer *writer, bool script, struct tc_error *error);
bool torch_write_put(struct tc_writer *writer, size_t index, struct tc_source *source,
                     struct tc_error *error);
bool torch_write_leave_room(struct tc_writer *writer, size_t index, struct tc_error *error);
bool torch_write_finish(struct tc_writer *writer, struct tc_error *error);
void torch_write_abort(struct tc_writer *writer);

/* The names under which an index lists the tensors of an output file: the listed
 * of a backend's tc_sharding. */
bool torch_write_listed(const struct tc_plan *plan, const struct tc_output_file *file,
                        struct tc_arena *arena, struct tc_text *names, struct tc_error *error);

/* Fails where torch can't hold a tensor of that shape: a backend's check. */
bool torch_write_check(struct tc_plan *plan, struct tc_error *error);

#endif
