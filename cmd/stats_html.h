/*
 * Statistics as one page that needs nothing else: a table to sort, a histogram
 * of each tensor, and a map of their sizes. Names are data there, never code.
 */
#ifndef TCONV_CMD_STATS_HTML_H
#define TCONV_CMD_STATS_HTML_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/inspect/histogram.h"
#include "core/inspect/moments.h"
#include "core/io/publish.h"

/* Of stats_page.html, compiled in: what comes before and behind the data. */
extern const struct tc_text stats_page_before, stats_page_behind;

struct stats_html {
    struct tc_publish publish;
    const char *target;
};

/* Fails early where the page can't be written, so that nobody waits in vain.
 * stats_html_end always follows, and removes what was not finished. */
bool stats_html_begin(struct stats_html *html, const char *target, const struct tc_reader *reader,
                      struct tc_error *error);
/* Writes and publishes the page. The lists are by table position; `path` is
 * the input as the user named it. */
bool stats_html_write(struct stats_html *html, const struct tc_reader *reader, const char *path,
                      const bool *wanted, const struct tc_stats *stats,
                      const struct tc_histogram *histograms, struct tc_error *error);
void stats_html_end(struct stats_html *html);

#endif
