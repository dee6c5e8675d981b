#include "core/tensor/shape.h"

#include <string.h>

#include "core/base/checked.h"

uint64_t tc_shape_count(const uint64_t *shape, unsigned rank) {
    uint64_t count = 1;
    for (unsigned i = 0; i < rank; i++)
        count *= shape[i];
    return count;
}

bool tc_shape_equal(const uint64_t *a, unsigned a_rank, const uint64_t *b, unsigned b_rank) {
    return a_rank == b_rank && (a_rank == 0 || memcmp(a, b, a_rank * sizeof *a) == 0);
}

bool tc_shape_measure(enum tc_dtype dtype, const uint64_t *shape, unsigned rank, uint64_t *count,
                      uint64_t *nbytes, struct tc_error *error) {
    uint64_t product = 1;
    bool zero = false;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < rank; i++) {
        if (shape[i] > INT64_MAX)
            return tc_fail(error, TC_INVALID, "shape-overflow", "a dimension is too large (%llu)",
                           (unsigned long long)shape[i]);
        if (shape[i] == 0)
            zero = true;
        else if (!tc_mul(product, shape[i], &product))
            goto overflow;
    }
    unsigned elements = tc_dtype_block_elements(dtype);
    if (tc_dtype_is_block(dtype) && (rank == 0 || shape[rank - 1] % elements != 0))
        return tc_fail(error, TC_INVALID, "block-shape",
                       "rows of %llu elements are no whole blocks of %s (%u elements each)",
                       (unsigned long long)(rank ? shape[rank - 1] : 1), tc_dtype_name(dtype),
                       elements);
    if (!zero && tc_dtype_packed(dtype) && product > UINT64_MAX / 8)
        goto overflow;
    if (!zero && product % elements != 0) {
        tc_fail(error, TC_INVALID, "packed-shape", "%llu elements of %s do not fill whole bytes",
                (unsigned long long)product, tc_dtype_name(dtype));
        return tc_error_because(error, TC_REASON_PARTIAL_BYTE);
    }
    /* With a zero among the dimensions the others may be no whole number of packed elements; their
     * size is rounded up, and counts only in the check that it does not overflow. */
    uint64_t whole = product / elements + (product % elements != 0);
    if (!tc_mul(whole, tc_dtype_block_bytes(dtype), &bytes))
        goto overflow;
    if (bytes > INT64_MAX)
        goto overflow;
    *count = zero ? 0 : product;
    *nbytes = zero ? 0 : bytes;
    return true;
overflow:
    return tc_fail(error, TC_INVALID, "shape-overflow", "the size of its shape overflows 64 bits");
}

void tc_shape_print(struct tc_buffer *buffer, const uint64_t *shape, unsigned rank) {
    tc_buffer_add(buffer, "[", 1);
    for (unsigned i = 0; i < rank; i++) {
        if (i)
            tc_buffer_add(buffer, ",", 1);
        tc_buffer_add_number(buffer, shape[i]);
    }
    tc_buffer_add(buffer, "]", 1);
}
