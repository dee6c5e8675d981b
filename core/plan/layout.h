/*
 * Where the data of an output file lies, as --align asks: for writers whose header can be padded.
 * Without it a file is what the format's own writers make, byte for byte.
 */
#ifndef TCONV_CORE_PLAN_LAYOUT_H
#define TCONV_CORE_PLAN_LAYOUT_H

#include <stdint.h>

#include "core/base/error.h"

struct tc_plan;
struct tc_writer;

/* Refuses an alignment that the target can't give. Warns where blocks were to be shared and
 * nothing can be, since every byte must be seen. */
bool tc_layout_check(struct tc_plan *plan, struct tc_error *error);

/* What each tensor's offset from the start of the data is a multiple of, in a format that allows
 * gaps between tensors; 1 where they follow one another. */
uint64_t tc_layout_step(const struct tc_plan *plan);

/* Where the data of the writer's file starts: at `least` or behind it. Its items follow one
 * another from there on, in their order, with tc_layout_step between them where `gaps`. To share
 * blocks with the inputs, it is the place at which most bytes lie as they do in their blocks of
 * the input. The result is a multiple of 8 where `least` is. */
uint64_t tc_layout_start(const struct tc_writer *writer, uint64_t least);

#endif
