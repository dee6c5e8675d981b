#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/tensor/strided_view.h"
#include "core/tensor/view_blocks.h"
#include "core/test/sanitized.h"

struct storage {
    unsigned char *bytes;
    size_t size;
    size_t fetches;
};

static bool fetch(void *context, uint64_t offset, void *buffer, size_t length,
                  struct tc_error *error) {
    (void)error;
    struct storage *storage = context;
    cr_assert_leq(offset + length, storage->size);
    memcpy(buffer, storage->bytes + offset, length);
    storage->fetches++;
    return true;
}

static uint64_t count_of(const struct tc_view *view) {
    uint64_t count = 1;
    for (unsigned i = 0; i < view->rank; i++)
        count *= view->shape[i];
    return count;
}

/* The C-order stream, element by element, straight from the definition. */
static unsigned char *expected_stream(const struct tc_view *view, const struct storage *storage) {
    uint64_t count = count_of(view);
    unsigned char *stream = malloc(count * view->element);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t from = view->start;
        uint64_t rest = i;
        for (unsigned axis = view->rank; axis > 0; axis--) {
            from += rest % view->shape[axis - 1] * view->stride[axis - 1];
            rest /= view->shape[axis - 1];
        }
        memcpy(stream + i * view->element, storage->bytes + from, view->element);
    }
    return stream;
}

static size_t check(struct tc_view view, size_t size, size_t step) {
    struct storage storage = {malloc(size), size, 0};
    for (size_t i = 0; i < size; i++)
        storage.bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    view.storage = size;
    unsigned char *expected = expected_stream(&view, &storage);
    uint64_t total = count_of(&view) * view.element;
    unsigned char *got = malloc(total);
    struct tc_view_reader reader;
    struct tc_error error = {0};
    cr_assert(tc_view_reader_init(&reader, &view, fetch, &storage, &error));
    for (uint64_t at = 0; at < total; at += step) {
        size_t length = total - at < step ? total - at : step;
        cr_assert(tc_view_reader_read(&reader, at, got + at, length, &error));
    }
    cr_assert_arr_eq(got, expected, total);
    /* Then again, backwards from the middle. */
    cr_assert(tc_view_reader_read(&reader, total / 2, got, total - total / 2, &error));
    cr_assert_arr_eq(got, expected + total / 2, total - total / 2);
    cr_assert(tc_view_reader_read(&reader, 0, got, 1, &error));
    cr_assert_eq(got[0], expected[0]);
    tc_view_reader_release(&reader);
    free(storage.bytes);
    free(expected);
    free(got);
    return storage.fetches;
}

struct stream {
    unsigned char *bytes;
    uint64_t put;
    uint64_t size;
};

static bool put(void *context, uint64_t offset, const unsigned char *bytes, size_t length,
                struct tc_error *error) {
    (void)error;
    struct stream *stream = context;
    cr_assert_leq(offset + length, stream->size);
    memcpy(stream->bytes + offset, bytes, length);
    stream->put += length;
    return true;
}

/* Whether the view is made by blocks of at most so many bytes; then they give its stream, each byte
 * once. */
static bool check_blocks(struct tc_view view, size_t size, size_t most) {
    struct tc_view_blocks blocks;
    view.storage = size;
    if (!tc_view_blocks_plan(&blocks, &view, most))
        return false;
    struct storage storage = {malloc(size), size, 0};
    for (size_t i = 0; i < size; i++)
        storage.bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    unsigned char *expected = expected_stream(&view, &storage);
    uint64_t total = count_of(&view) * view.element, sum = 0;
    struct stream stream = {.bytes = malloc(total), .size = total};
    unsigned char *bytes = malloc(blocks.largest), *scratch = malloc(blocks.scratch);
    struct tc_error error = {0};
    cr_assert_leq(blocks.largest, most);
    for (uint64_t number = blocks.count; number > 0; number--) {
        cr_assert(tc_view_blocks_read(&blocks, number - 1, fetch, &storage, scratch, bytes, &error),
                  "%s", error.message);
        cr_assert(tc_view_blocks_put(&blocks, number - 1, bytes, put, &stream, &error));
        sum += tc_view_blocks_size(&blocks, number - 1);
    }
    cr_assert_eq(stream.put, total);
    cr_assert_eq(sum, total);
    cr_assert(memcmp(stream.bytes, expected, total) == 0);
    free(storage.bytes);
    free(expected);
    free(stream.bytes);
    free(bytes);
    free(scratch);
    return true;
}

/* A view of random lengths, in any order of its axes, some of which may be repeated or have gaps.
 */
static size_t random_view(uint64_t *random, unsigned rank, unsigned element, uint64_t most,
                          struct tc_view *view) {
    unsigned axes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const uint64_t lengths[] = {1, 2, 3, 7, 16, 17, 33, 64, 100, 1000};
    uint64_t count = 1, stride = element, last = 0;
    *view = (struct tc_view){.rank = rank, .element = element};
    for (unsigned i = 0; i < rank; i++) {
        *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
        unsigned other = i + (unsigned)(*random % (rank - i)), axis = axes[other];
        axes[other] = axes[i];
        uint64_t length = lengths[(*random >> 8) % 10];
        length = count * length <= most ? length : 1 + (*random >> 8) % (most / count);
        view->shape[axis] = length;
        count *= length;
        if ((*random >> 20) % 6 == 0)
            continue; /* the same elements again and again */
        view->stride[axis] = stride;
        last += (length - 1) * stride;
        stride *= length;
        if ((*random >> 24) % 8 == 0)
            stride += element * ((*random >> 30) % 9);
    }
    view->start = (*random >> 40) % 33;
    return view->start + last + element;
}

Test(strided_view, blocks_of_any_permutation) {
    uint64_t random = 88172645463325252u;
    unsigned made = 0;
    for (unsigned round = 0; round < (TEST_SANITIZED ? 200 : 1500); round++) {
        struct tc_view view;
        unsigned element = (unsigned[]){1, 2, 4, 8, 16, 3}[round % 6];
        size_t size = random_view(&random, 1 + round % 7, element, 60000, &view);
        made += check_blocks(view, size, (size_t)1 << (9 + round % 11));
        check(view, size, 70001);
    }
    cr_assert_gt(made, TEST_SANITIZED ? 100 : 700, "%u", made);
}

/* All of it in one block: what rearranges memory gets axes of every length. */
Test(strided_view, one_block_of_any_permutation) {
    uint64_t random = 1234567;
    for (unsigned round = 0; round < (TEST_SANITIZED ? 100 : 600); round++) {
        struct tc_view view;
        unsigned element = (unsigned[]){1, 2, 4, 8, 16}[round % 5];
        size_t size = random_view(&random, 2 + round % 5, element, 200000, &view);
        check_blocks(view, size, (size_t)8 << 20);
    }
}

/* What a conversion has: long runs on both sides, whatever the rank. */
Test(strided_view, blocks_are_read_in_long_runs) {
    struct tc_view view = {3, 4, {300, 200, 100}, {4, 1200, 240000}, 0, 24000000};
    struct tc_view_blocks blocks;
    cr_assert(tc_view_blocks_plan(&blocks, &view, (size_t)1 << 20));
    cr_assert_geq(blocks.extent[0] * blocks.extent[1] * 4, 1200);
    cr_assert_eq(blocks.extent[2], 100);
    /* Elements that lie far apart on either side are not. */
    view = (struct tc_view){2, 4, {3, 100000}, {4, 4000}, 0, UINT64_C(400000000)};
    cr_assert_not(tc_view_blocks_plan(&blocks, &view, (size_t)1 << 20));
    view = (struct tc_view){2, 4, {0, 5}, {4, 4}, 0, 20};
    cr_assert_not(tc_view_blocks_plan(&blocks, &view, (size_t)1 << 20));
}

Test(strided_view, fortran_order) {
    check((struct tc_view){2, 4, {4, 6}, {4, 16}, 0, 0}, 96, 7);
    check((struct tc_view){3, 8, {2, 3, 4}, {8, 16, 48}, 0, 0}, 192, 5);
    check((struct tc_view){4, 2, {3, 1, 5, 7}, {2, 6, 6, 30}, 0, 0}, 210, 1000);
}

Test(strided_view, permuted_and_offset) {
    check((struct tc_view){3, 4, {5, 2, 3}, {4, 60, 20}, 40, 0}, 200, 13);
}

Test(strided_view, zero_and_overlapping_strides) {
    check((struct tc_view){2, 4, {8, 3}, {0, 4}, 4, 0}, 16, 9);
    check((struct tc_view){2, 4, {3, 3}, {4, 4}, 0, 0}, 20, 4);
    check((struct tc_view){1, 1, {100}, {0}, 3, 0}, 4, 33);
}

Test(strided_view, wide_gaps) {
    check((struct tc_view){2, 4, {3, 5}, {4, 10000}, 0, 0}, 50000, 17);
    check((struct tc_view){1, 2, {50}, {6}, 0, 0}, 300, 11);
}

Test(strided_view, scalars_and_one_row) {
    check((struct tc_view){0, 8, {0}, {0}, 8, 0}, 16, 3);
    check((struct tc_view){2, 16, {1, 4}, {64, 16}, 0, 0}, 64, 64);
}

/* Views of more than one tile. */
Test(strided_view, larger_than_the_window) {
    check((struct tc_view){2, 1, {3000, 7001}, {1, 3000}, 0, 0}, 3000u * 7001, 1 << 20);
    check((struct tc_view){3, 4, {2, 2500, 1021}, {4, 8, 20000}, 0, 0}, 2u * 2500 * 1021 * 4,
          999983);
}

/* Views of a few random axes give what their definition says: axes in any order,
 * repeated, overlapping, of length 1, and such that can be merged. */
Test(strided_view, any_view) {
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 3000; round++) {
        struct tc_view view = {.element = (unsigned[]){1, 2, 4, 8, 16, 3}[round % 6]};
        view.rank = (unsigned)(round % 13);
        uint64_t count = 1, last = 0;
        for (unsigned i = 0; i < view.rank; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            view.shape[i] = count > 20000 ? 1 : 1 + random % (view.rank > 6 ? 3 : 9);
            view.stride[i] = random >> 20 & 3   ? (random >> 32) % 40 * view.element
                             : random >> 22 & 1 ? 0
                                                : (random >> 32) % 5000;
            count *= view.shape[i];
            last += (view.shape[i] - 1) * view.stride[i];
        }
        view.start = random % 17;
        check(view, view.start + last + view.element, 1 + random % 5000);
    }
}

/* The axes of a plain array of rank 64 are one axis: it is one run of bytes. */
Test(strided_view, a_plain_view_of_any_rank_is_one_run) {
    struct tc_view view = {.rank = 64, .element = 1};
    uint64_t stride = 1;
    for (unsigned i = 64; i > 0; i--) {
        view.shape[i - 1] = i % 3 == 0 ? 2 : 1;
        view.stride[i - 1] = stride;
        stride *= view.shape[i - 1];
    }
    cr_assert_leq(check(view, stride, 1 << 20), 6);
}

/* All axes have length 2, and the first has the smallest stride: elements must not be
 * read one by one. */
Test(strided_view, short_axes_do_not_cost_a_call_an_element) {
    struct tc_view view = {.rank = 23, .element = 1};
    for (unsigned i = 0; i < view.rank; i++) {
        view.shape[i] = 2;
        view.stride[i] = UINT64_C(1) << i;
    }
    cr_assert_leq(check(view, (size_t)1 << 23, 1 << 20), 4096);
}

static bool fetch_zeros(void *context, uint64_t offset, void *buffer, size_t length,
                        struct tc_error *error) {
    (void)context, (void)offset, (void)error;
    memset(buffer, 0, length);
    return true;
}

/* Overlapping axes with wide strides, which no order reads forwards. */
Test(strided_view, scattered_views_are_refused) {
    struct tc_view view = {.rank = 30, .element = 1, .storage = UINT64_C(1) << 40};
    for (unsigned i = 0; i < view.rank; i++) {
        view.shape[i] = 2;
        view.stride[i] = (UINT64_C(1) << 20) + i * 77777;
    }
    view.storage = UINT64_C(1) << 26;
    struct tc_view_reader reader;
    struct tc_error error = {0};
    unsigned char *bytes = malloc((size_t)1 << 24);
    bool ok = tc_view_reader_init(&reader, &view, fetch_zeros, NULL, &error);
    for (uint64_t at = 0; ok && at < UINT64_C(1) << 30; at += 1 << 24)
        ok = tc_view_reader_read(&reader, at, bytes, 1 << 24, &error);
    cr_assert_not(ok);
    cr_assert_str_eq(error.code, "view-limit");
    tc_view_reader_release(&reader);
    free(bytes);
}

/* Short runs that follow each other in the storage are read ahead: a first axis of
 * length three must not cause a read for every three elements. */
Test(strided_view, short_runs_do_not_cost_a_call_each) {
    size_t fetches =
        check((struct tc_view){3, 4, {3, 1000, 100}, {4, 12, 12000}, 0, 0}, 1200000, 1 << 20);
    cr_assert_lt(fetches, 100);
}
