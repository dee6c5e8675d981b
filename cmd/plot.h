/* Histograms drawn with block characters. */
#ifndef TCONV_CMD_PLOT_H
#define TCONV_CMD_PLOT_H

#include "core/base/text.h"
#include "core/inspect/histogram.h"
#include "core/inspect/moments.h"
#include "core/tensor/table.h"

/* A heading, the columns and their axis, at most `width` characters wide. */
void plot_add(struct tc_buffer *out, const struct tc_tensor *tensor, const struct tc_stats *stats,
              const struct tc_histogram *histogram, size_t width);

#endif
