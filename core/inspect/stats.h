/*
 * Statistics of tensors: counts, extremes, mean and standard deviation. They are
 * computed exactly and rounded once, so they are the same on every machine and for
 * any number of threads.
 */
#ifndef TCONV_CORE_INSPECT_STATS_H
#define TCONV_CORE_INSPECT_STATS_H

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/inspect/moments.h"
#include "core/tensor/table.h"

/* Reads the wanted tensors (by table position) on all cores and verifies the
 * checksums that cover them; fills stats[position] of each. `progress` may be
 * NULL. */
bool tc_stats_make(struct tc_reader *reader, const bool *wanted, struct tc_stats *stats,
                   void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                   struct tc_error *error);

/* Which tensors to read for the wanted ones: of tensors that share their data only
 * the first. From malloc; NULL without memory. */
bool *tc_stats_sources(const struct tc_table *table, const bool *wanted, struct tc_error *error);

#endif
