/*
 * Histograms of tensors, between the smallest and the largest finite value: bins of
 * equal width that include their lower edge, the last one also its upper edge, as in
 * numpy.histogram.
 */
#ifndef TCONV_CORE_INSPECT_HISTOGRAM_H
#define TCONV_CORE_INSPECT_HISTOGRAM_H

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/inspect/moments.h"

#define TC_HISTOGRAM_BINS 40

struct tc_histogram {
    uint64_t bins[TC_HISTOGRAM_BINS];
};

/* Reads the wanted tensors again, after tc_stats_make gave `stats`; fills
 * histograms[position] of each. `progress` may be NULL. */
bool tc_histogram_make(struct tc_reader *reader, const bool *wanted, const struct tc_stats *stats,
                       struct tc_histogram *histograms,
                       void (*progress)(void *context, uint64_t done, uint64_t total),
                       void *context, struct tc_error *error);

#endif
