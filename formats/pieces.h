/*
 * A tensor that lies in pieces, each a box of it, in any order and in any number of files: checked
 * to fill the tensor exactly, and read as one stream in bounded memory.
 *
 *     fill list → pieces_settle → pieces_read …
 *
 * The owner keeps the pieces and their boxes, and knows where a piece's bytes are (pieces_fetch).
 * Once settled nothing changes, so that several threads may read as far as the owner's fetch
 * allows it.
 */
#ifndef TCONV_FORMATS_PIECES_H
#define TCONV_FORMATS_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

struct piece {
    const uint64_t *start; /* where the box begins, a number a dimension */
    const uint64_t *size;  /* its size, likewise; no dimension may be 0 */
    uint32_t source;       /* the owner's number for its bytes */
    /* Of the tensor's stream, set by pieces_settle: */
    uint64_t first; /* where its first byte is */
    uint64_t end;   /* behind its last */
    uint64_t reach; /* the highest `end` of this piece and of all before it */
};

struct pieces {
    const uint64_t *shape; /* of the tensor, which was measured (tc_shape_measure) */
    unsigned rank;
    unsigned element; /* bytes */
    struct piece *list;
    size_t count;
};

/* Sorts the pieces, and fails with TC_INVALID unless each element is in exactly one of them. */
bool pieces_settle(struct pieces *pieces, struct tc_error *error);

/* `length` bytes at `offset` of the bytes of one piece, which are in C order. */
typedef bool pieces_fetch(void *context, const struct piece *piece, uint64_t offset, void *buffer,
                          size_t length, struct tc_error *error);
/* Bytes [offset, offset + length) of the tensor's stream. */
bool pieces_read(const struct pieces *pieces, uint64_t offset, void *buffer, size_t length,
                 pieces_fetch *fetch, void *context, struct tc_error *error);
/* The bytes of a piece. */
uint64_t pieces_bytes(const struct pieces *pieces, const struct piece *piece);

#endif
