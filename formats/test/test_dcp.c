#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/pieces.h"
#include "formats/test/support.h"

TestSuite(dcp, .init = test_folder_make, .fini = test_folder_remove);

/* Pieces of a tensor whose bytes are known: each byte of a piece says which element it is. */
struct cut {
    struct pieces pieces;
    uint64_t boxes[64][2][4];
    struct piece list[64];
    size_t fetches;
};

static void add_box(struct cut *cut, const uint64_t *start, const uint64_t *size) {
    size_t i = cut->pieces.count++;
    memcpy(cut->boxes[i][0], start, cut->pieces.rank * sizeof *start);
    memcpy(cut->boxes[i][1], size, cut->pieces.rank * sizeof *size);
    cut->list[i] =
        (struct piece){.start = cut->boxes[i][0], .size = cut->boxes[i][1], .source = (uint32_t)i};
    cut->pieces.list = cut->list;
}

static bool settles(struct cut *cut) {
    struct tc_error error = {0};
    bool ok = pieces_settle(&cut->pieces, &error);
    cr_assert(ok || error.class == TC_INVALID);
    return ok;
}

/* The element's number, one byte of it at a time. */
static bool fetch(void *context, const struct piece *piece, uint64_t offset, void *buffer,
                  size_t length, struct tc_error *error) {
    struct cut *cut = context;
    const struct pieces *pieces = &cut->pieces;
    (void)error;
    cut->fetches++;
    for (size_t i = 0; i < length; i++) {
        uint64_t element = (offset + i) / pieces->element;
        uint64_t at = 0;
        uint64_t unit = 1;
        for (unsigned d = pieces->rank; d > 0; d--) {
            at += (piece->start[d - 1] + element % piece->size[d - 1]) * unit;
            element /= piece->size[d - 1];
            unit *= pieces->shape[d - 1];
        }
        ((unsigned char *)buffer)[i] =
            (unsigned char)(at * pieces->element + (offset + i) % pieces->element);
    }
    return true;
}

static void check_reads(struct cut *cut, size_t nbytes) {
    unsigned char *buffer = malloc(nbytes);
    struct tc_error error = {0};
    for (size_t step = 1; step <= nbytes; step = step * 3 + 1)
        for (size_t at = 0; at < nbytes; at += step) {
            size_t length = nbytes - at < step ? nbytes - at : step;
            cr_assert(pieces_read(&cut->pieces, at, buffer, length, fetch, cut, &error));
            for (size_t i = 0; i < length; i++)
                cr_assert_eq(buffer[i], (unsigned char)(at + i), "byte %zu", at + i);
        }
    free(buffer);
}

Test(dcp, pieces_of_a_grid_are_read_in_any_order) {
    static const uint64_t shape[] = {7, 9, 4};
    struct cut cut = {.pieces = {.shape = shape, .rank = 3, .element = 4}};
    add_box(&cut, (uint64_t[]){5, 0, 0}, (uint64_t[]){2, 9, 4});
    add_box(&cut, (uint64_t[]){0, 6, 0}, (uint64_t[]){5, 3, 4});
    add_box(&cut, (uint64_t[]){0, 0, 3}, (uint64_t[]){5, 6, 1});
    add_box(&cut, (uint64_t[]){3, 0, 0}, (uint64_t[]){2, 6, 3});
    add_box(&cut, (uint64_t[]){0, 0, 0}, (uint64_t[]){3, 6, 3});
    cr_assert(settles(&cut));
    check_reads(&cut, sizeof(uint32_t) * 7 * 9 * 4);
}

Test(dcp, a_tensor_without_dimensions_is_one_piece) {
    struct cut cut = {.pieces = {.shape = NULL, .rank = 0, .element = 8}};
    uint64_t none[1] = {0};
    add_box(&cut, none, none);
    cr_assert(settles(&cut));
    check_reads(&cut, 8);
    add_box(&cut, none, none);
    cr_assert_not(settles(&cut));
}

/* Columns are read many rows at a time, not one by one. */
Test(dcp, columns_take_few_reads) {
    static const uint64_t shape[] = {1000, 16};
    struct cut cut = {.pieces = {.shape = shape, .rank = 2, .element = 1}};
    for (uint64_t i = 0; i < 4; i++)
        add_box(&cut, (uint64_t[]){0, i * 4}, (uint64_t[]){1000, 4});
    cr_assert(settles(&cut));
    unsigned char *buffer = malloc(16000);
    struct tc_error error = {0};
    cr_assert(pieces_read(&cut.pieces, 0, buffer, 16000, fetch, &cut, &error));
    for (size_t i = 0; i < 16000; i++)
        cr_assert_eq(buffer[i], (unsigned char)i);
    cr_assert_eq(cut.fetches, 4);
    free(buffer);
}

Test(dcp, what_does_not_fill_a_tensor_once_is_refused) {
    static const uint64_t shape[] = {4, 4};
    static const struct {
        size_t count;
        uint64_t boxes[4][4]; /* start, size */
        bool good;
    } cases[] = {
        {1, {{0, 0, 4, 4}}, true},
        {1, {{0, 0, 4, 3}}, false},
        {2, {{0, 0, 2, 4}, {2, 0, 2, 4}}, true},
        {2, {{0, 0, 2, 4}, {1, 0, 2, 4}}, false}, /* overlap, and a hole: as many elements */
        {2, {{0, 0, 3, 4}, {2, 0, 2, 4}}, false},
        {2, {{0, 0, 2, 4}, {2, 0, 2, 5}}, false}, /* outside */
        {2, {{0, 0, 2, 4}, {2, 0, 2, UINT64_MAX}}, false},
        {4, {{0, 0, 2, 2}, {2, 2, 2, 2}, {0, 2, 2, 2}, {2, 0, 2, 2}}, true},
        {4, {{0, 0, 2, 2}, {2, 2, 2, 2}, {0, 2, 2, 2}, {0, 2, 2, 2}}, false},
        {4, {{0, 0, 2, 2}, {2, 2, 2, 2}, {0, 0, 2, 2}, {2, 2, 2, 2}}, false},
        {0, {{0}}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cut cut = {.pieces = {.shape = shape, .rank = 2, .element = 1}};
        for (size_t b = 0; b < cases[i].count; b++)
            add_box(&cut, cases[i].boxes[b], cases[i].boxes[b] + 2);
        cr_assert_eq(settles(&cut), cases[i].good, "case %zu", i);
    }
}

/* A million pieces take the time of a sort. */
Test(dcp, many_pieces_are_checked_at_once) {
    enum { SIDE = 400 };
    static const uint64_t shape[] = {SIDE, SIDE};
    struct piece *list = calloc((size_t)SIDE * SIDE, sizeof *list);
    uint64_t *starts = calloc((size_t)SIDE * SIDE * 2, sizeof *starts);
    static const uint64_t one[] = {1, 1};
    struct pieces pieces = {
        .shape = shape, .rank = 2, .element = 1, .list = list, .count = (size_t)SIDE * SIDE};
    for (size_t i = 0; i < pieces.count; i++) {
        size_t mixed = i * 7919 % pieces.count;
        starts[2 * i] = mixed / SIDE;
        starts[2 * i + 1] = mixed % SIDE;
        list[i] = (struct piece){.start = starts + 2 * i, .size = one, .source = (uint32_t)i};
    }
    struct tc_error error = {0};
    cr_assert(pieces_settle(&pieces, &error), "%s", error.message);
    starts[0] = starts[2];
    starts[1] = starts[3];
    cr_assert_not(pieces_settle(&pieces, &error));
    cr_assert_eq(error.class, TC_INVALID);
    free(list);
    free(starts);
}
