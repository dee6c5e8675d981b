#include "cmd/plot.h"

#include <inttypes.h>
#include <string.h>

#include "cmd/number.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

#define HEIGHT 8
#define MOST_WIDE 3 /* characters a bin */

static void add_heading(struct tc_buffer *out, const struct tc_tensor *tensor,
                        const struct tc_stats *stats) {
    tc_buffer_add_visible(out, tensor->name);
    tc_buffer_addf(out, "  %s ", tc_dtype_name(tensor->dtype));
    tc_shape_print(out, tensor->shape, tensor->rank);
    if (stats->zeros + stats->nonzeros) {
        tc_buffer_add_string(out, "  mean ");
        number_add_brief(out, stats->mean);
        tc_buffer_add_string(out, "  stddev ");
        number_add_brief(out, stats->stddev);
    }
    if (stats->zeros)
        tc_buffer_addf(out, "  zeros %" PRIu64, stats->zeros);
    if (stats->nan)
        tc_buffer_addf(out, "  NaN %" PRIu64, stats->nan);
    if (stats->inf)
        tc_buffer_addf(out, "  Inf %" PRIu64, stats->inf);
    tc_buffer_add_string(out, "\n");
}

static void add_repeated(struct tc_buffer *out, const char *text, size_t times) {
    for (size_t i = 0; i < times; i++)
        tc_buffer_add_string(out, text);
}

/* One line of the columns, counted from the bottom. A bin that holds anything
 * shows, however little that is beside the largest. */
static void add_line(struct tc_buffer *out, const struct tc_histogram *histogram, uint64_t most,
                     int line, size_t wide) {
    static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    size_t start = out->length;
    for (int bin = 0; bin < TC_HISTOGRAM_BINS; bin++) {
        uint64_t held = histogram->bins[bin];
        int full = (int)((double)held / (double)most * HEIGHT * 8 + 0.5);
        int height = (held && !full ? 1 : full) - line * 8;
        add_repeated(out, eighths[height < 0 ? 0 : height > 8 ? 8 : height], wide);
    }
    while (out->length > start && out->bytes[out->length - 1] == ' ')
        out->length--;
    tc_buffer_add_string(out, "\n");
}

static void add_axis(struct tc_buffer *out, const struct tc_stats *stats, size_t margin,
                     size_t columns) {
    struct tc_buffer low = {0}, high = {0};
    number_add_value_brief(&low, &stats->min);
    number_add_value_brief(&high, &stats->max);
    tc_buffer_addf(out, "%*s └", (int)margin, "0");
    add_repeated(out, "─", columns);
    tc_buffer_addf(out, "\n%*s", (int)margin + 2, "");
    tc_buffer_add(out, low.bytes, low.length);
    size_t used = low.length + high.length;
    add_repeated(out, " ", used < columns ? columns - used : 2);
    tc_buffer_add(out, high.bytes, high.length);
    tc_buffer_add_string(out, "\n");
    out->failed |= low.failed || high.failed;
    tc_buffer_release(&low);
    tc_buffer_release(&high);
}

void plot_add(struct tc_buffer *out, const struct tc_tensor *tensor, const struct tc_stats *stats,
              const struct tc_histogram *histogram, size_t width) {
    uint64_t most = 0;
    char label[24];
    for (int i = 0; i < TC_HISTOGRAM_BINS; i++)
        most = histogram->bins[i] > most ? histogram->bins[i] : most;
    add_heading(out, tensor, stats);
    if (most == 0) {
        tc_buffer_add_string(out, "  nothing finite to draw\n");
        return;
    }
    int margin = snprintf(label, sizeof label, "%" PRIu64, most);
    size_t room = width > (size_t)margin + 2 ? width - (size_t)margin - 2 : 0;
    size_t wide = room / TC_HISTOGRAM_BINS;
    wide = wide < 1 ? 1 : wide > MOST_WIDE ? MOST_WIDE : wide;
    for (int line = HEIGHT - 1; line >= 0; line--) {
        tc_buffer_addf(out, "%*s %s", margin, line == HEIGHT - 1 ? label : "",
                       line == HEIGHT - 1 ? "┤" : "│");
        add_line(out, histogram, most, line, wide);
    }
    add_axis(out, stats, (size_t)margin, wide * TC_HISTOGRAM_BINS);
}
