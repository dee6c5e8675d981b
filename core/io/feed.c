#include "core/io/feed.h"

#include <stdlib.h>

#define FEED_BYTES ((size_t)1 << 16)

bool tc_feed_init(struct tc_feed *feed, struct tc_input *input, uint64_t start, uint64_t end,
                  struct tc_error *error) {
    *feed = (struct tc_feed){.input = input, .at = start < end ? start : end, .end = end};
    feed->buffer = malloc(FEED_BYTES);
    feed->next = feed->buffer; /* where nothing is ever read, too */
    return feed->buffer || tc_fail_memory(error);
}

bool tc_feed_fill(struct tc_feed *feed, struct tc_error *error) {
    uint64_t rest = feed->end - feed->at;
    size_t step = rest < FEED_BYTES ? rest : FEED_BYTES;
    if (feed->left || step == 0)
        return true;
    if (!tc_input_read(feed->input, feed->at, feed->buffer, step, error))
        return false;
    feed->at += step;
    feed->next = feed->buffer;
    feed->left = step;
    return true;
}

void tc_feed_take(struct tc_feed *feed, size_t length) {
    feed->next += length;
    feed->left -= length;
}

uint64_t tc_feed_place(const struct tc_feed *feed) {
    return feed->at - feed->left;
}

bool tc_feed_is_empty(const struct tc_feed *feed) {
    return feed->left == 0 && feed->at == feed->end;
}

void tc_feed_release(struct tc_feed *feed) {
    free(feed->buffer);
    *feed = (struct tc_feed){0};
}
