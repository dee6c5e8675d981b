#include "core/inspect/histogram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/inspect/parallel_read.h"
#include "core/inspect/stats.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "core/tensor/unpack.h"

#define BINS TC_HISTOGRAM_BINS
#define BLOCK 1024

struct context {
    const struct tc_tensor *tensors;
    const struct tc_stats *stats;
    struct tc_histogram *histograms;
};

struct edges {
    double scale; /* values are multiplied by this, so that their differences are finite */
    double width;
    double edge[BINS + 1];
};

static double real_of(const struct tc_value *value) {
    double magnitude = (double)value->magnitude;
    return !value->integer ? value->real : value->negative ? -magnitude : magnitude;
}

static struct edges edges_of(const struct tc_stats *stats) {
    double low = real_of(&stats->min), high = real_of(&stats->max);
    struct edges edges = {.scale = isfinite(high - low) ? 1 : 0.25};
    low *= edges.scale;
    high *= edges.scale;
    if (low == high) {
        low -= 0.5;
        high += 0.5;
    }
    edges.width = high - low;
    for (int i = 0; i < BINS; i++)
        edges.edge[i] = i * (edges.width / BINS) + low;
    edges.edge[BINS] = high;
    return edges;
}

static void count(struct tc_histogram *histogram, const struct edges *edges, double value,
                  uint64_t times) {
    value *= edges->scale;
    if (!isfinite(value))
        return;
    double place = (value - edges->edge[0]) / edges->width * BINS;
    int bin = place >= BINS ? BINS - 1 : place > 0 ? (int)place : 0;
    /* The division rounds, so the edges decide. */
    if (value < edges->edge[bin] && bin > 0)
        bin--;
    else if (value >= edges->edge[bin + 1] && bin < BINS - 1)
        bin++;
    histogram->bins[bin] += times;
}

/* Widens a block to doubles: exactly, except for integers beyond 2^53. */
static void widen(enum tc_dtype dtype, const unsigned char *bytes, double *values, size_t length) {
    float floats[2 * BLOCK];
    if (tc_dtype_packed(dtype)) {
        tc_unpack(dtype, bytes, floats, length);
        tc_cast(tc_unpacked(dtype), TC_F64, floats, values, length, NULL);
    } else if (tc_dtype_is_complex(dtype)) {
        unsigned component = dtype == TC_C128 ? 8 : 4;
        if (dtype == TC_C32)
            tc_cast(TC_C32, TC_C64, bytes, floats, length, NULL);
        const unsigned char *at = dtype == TC_C32 ? (const unsigned char *)floats : bytes;
        for (size_t i = 0; i < length; i++)
            values[i] = tc_magnitude(at + 2 * i * component, component);
    } else if (dtype == TC_BF16 || dtype == TC_F16) {
        tc_cast(dtype, TC_F32, bytes, floats, length, NULL);
        tc_cast(TC_F32, TC_F64, floats, values, length, NULL);
    } else {
        tc_cast(dtype, TC_F64, bytes, values, length, NULL);
    }
}

/* Where each byte holds whole values, counts the bytes first, and then places each
 * of the 256 possible ones once. */
static void take_bytes(struct tc_histogram *histogram, const struct edges *edges,
                       enum tc_dtype dtype, const unsigned char *bytes, size_t length) {
    uint64_t seen[256] = {0};
    size_t each = 8 / tc_dtype_bits(dtype);
    double values[2];
    for (size_t i = 0; i < length; i++)
        seen[bytes[i]]++;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (!seen[byte])
            continue;
        widen(dtype, &(unsigned char){(unsigned char)byte}, values, each);
        for (size_t i = 0; i < each; i++)
            count(histogram, edges, values[i], seen[byte]);
    }
}

static void take(void *context, void *state, const struct tc_tensor *tensor, const void *bytes,
                 size_t length) {
    const struct context *all = context;
    const struct tc_stats *stats = &all->stats[tensor - all->tensors];
    const unsigned char *at = bytes;
    unsigned bits = tc_dtype_bits(tensor->dtype);
    double values[BLOCK];
    if (stats->zeros + stats->nonzeros == 0)
        return;
    struct edges edges = edges_of(stats);
    if (bits == 8 || bits == 4) {
        take_bytes(state, &edges, tensor->dtype, bytes, length);
        return;
    }
    for (size_t left =
             length / tc_dtype_block_bytes(tensor->dtype) * tc_dtype_block_elements(tensor->dtype);
         left;) {
        size_t step = left < BLOCK ? left : BLOCK;
        widen(tensor->dtype, at, values, step);
        for (size_t i = 0; i < step; i++)
            count(state, &edges, values[i], 1);
        at += tc_dtype_span(tensor->dtype, step);
        left -= step;
    }
}

static void merge(void *into, const void *from) {
    struct tc_histogram *sum = into;
    const struct tc_histogram *part = from;
    for (int i = 0; i < BINS; i++)
        sum->bins[i] += part->bins[i];
}

static void done(void *context, void *state, size_t position) {
    const struct context *all = context;
    memcpy(&all->histograms[position], state, sizeof *all->histograms);
}

bool tc_histogram_make(struct tc_reader *reader, const bool *wanted, const struct tc_stats *stats,
                       struct tc_histogram *histograms,
                       void (*progress)(void *context, uint64_t done, uint64_t total),
                       void *progress_context, struct tc_error *error) {
    const struct tc_table *table = &reader->table;
    bool *sources = tc_stats_sources(table, wanted, error);
    if (!sources)
        return false;
    struct tc_stats *known = malloc((table->count + 1) * sizeof *known);
    bool ok = known || tc_fail_memory(error);
    for (size_t i = 0; i < table->count && ok; i++)
        if (wanted[i]) /* the tensor that is read for it may not be wanted itself */
            known[tc_table_source(table, i)] = stats[i];
    struct context context = {table->tensors, known, histograms};
    const struct tc_parallel_read read = {
        .reader = reader,
        .wanted = sources,
        .context = &context,
        .state_size = sizeof(struct tc_histogram),
        .take = take,
        .merge = merge,
        .done = done,
        .progress = progress,
        .progress_context = progress_context,
        .again = true,
    };
    ok = ok && tc_parallel_read_run(&read, error);
    for (size_t i = 0; i < table->count && ok; i++)
        if (wanted[i])
            histograms[i] = histograms[tc_table_source(table, i)];
    free(known);
    free(sources);
    return ok;
}
