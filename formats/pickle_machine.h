/*
 * What the opcodes of pickle.c work on: the bytes of the pickle, the stack with
 * its marks, the memo. Each function that fails has filled pickle->error.
 */
#ifndef TCONV_FORMATS_PICKLE_MACHINE_H
#define TCONV_FORMATS_PICKLE_MACHINE_H

#include "formats/pickle.h"

/* A limit of the machine's own, with no option to raise it. */
bool pickle_over_limit(struct pickle *pickle, const char *what);

/* What Python's own machines don't mind, or not all of them: fails, but in a
 * scan, which goes on as they would. */
bool pickle_odd(struct pickle *pickle, const char *what);

/* Whether `length` more bytes are there, in the frame and, where they count,
 * within --max-pickle. */
bool pickle_consume(struct pickle *pickle, uint64_t length, bool counts);
/* The next bytes, at most 64 KiB, until the next call. */
const unsigned char *pickle_take(struct pickle *pickle, size_t length);
/* A little-endian number of 1, 2, 4 or 8 bytes. */
bool pickle_take_number(struct pickle *pickle, unsigned bytes, uint64_t *number);
/* Bytes for as long as the arena lives, a NUL behind them. */
char *pickle_take_copy(struct pickle *pickle, uint64_t length);
/* A line without its newline, the arena's. */
bool pickle_take_line(struct pickle *pickle, uint64_t limit, struct tc_text *line);

/* Takes what a failed constructor returns, too: then the error is filled. */
bool pickle_push(struct pickle *pickle, struct pickle_node *node);
/* Above which the stack may be popped: the last mark. */
size_t pickle_fence(const struct pickle *pickle);
struct pickle_node *pickle_pop(struct pickle *pickle);
struct pickle_node *pickle_top(struct pickle *pickle);
/* The values above the last mark, which goes; they stay until the next push. */
bool pickle_pop_mark(struct pickle *pickle, struct pickle_node ***items, size_t *count);

bool pickle_memo_new(struct pickle *pickle);
void pickle_memo_clear(struct pickle *pickle);
/* The top of the stack under this key. */
bool pickle_memo_put(struct pickle *pickle, uint64_t key);
bool pickle_memo_get(struct pickle *pickle, uint64_t key);
uint64_t pickle_memo_count(const struct pickle *pickle);

#endif
