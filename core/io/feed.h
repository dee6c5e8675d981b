/*
 * A range of a file, given piece by piece to a decoder that takes as much of each
 * piece as it likes. The feed owns its buffer, not the input.
 */
#ifndef TCONV_CORE_IO_FEED_H
#define TCONV_CORE_IO_FEED_H

#include "core/base/error.h"
#include "core/io/input.h"

struct tc_feed {
    struct tc_input *input;
    uint64_t at; /* offset in the file of what was not read yet */
    uint64_t end;
    unsigned char *buffer;
    const unsigned char *next; /* in the buffer: what the decoder has not taken yet */
    size_t left;
};

bool tc_feed_init(struct tc_feed *feed, struct tc_input *input, uint64_t start, uint64_t end,
                  struct tc_error *error);
/* Reads the next piece once the last one was taken; at the end of the range `left`
 * stays 0. */
bool tc_feed_fill(struct tc_feed *feed, struct tc_error *error);
/* The decoder took this many bytes. */
void tc_feed_take(struct tc_feed *feed, size_t length);
/* Where the next byte lies in the file. */
uint64_t tc_feed_place(const struct tc_feed *feed);
/* Whether every byte of the range was taken. */
bool tc_feed_is_empty(const struct tc_feed *feed);
void tc_feed_release(struct tc_feed *feed);

#endif
