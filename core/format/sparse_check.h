/*
 * Whether the indices of a sparse tensor are such that torch loads it: each within the shape; of
 * a coalesced one in ascending order, each place once; of a compressed one the starts ascend from
 * 0 to the number of values, and the columns (rows) of each row (column) ascend. What can be made
 * dense (core/format/densify.h) may be more than this.
 *
 * The indices are read once, in order, through windows of a bounded size.
 */
#ifndef TCONV_CORE_FORMAT_SPARSE_CHECK_H
#define TCONV_CORE_FORMAT_SPARSE_CHECK_H

#include "core/base/error.h"
#include "core/format/densify.h"

/* `coalesced` has a meaning for COO alone. Fails because of TC_REASON_SPARSE where torch would
 * not load it. */
bool tc_sparse_check(const struct tc_densify *densify, bool coalesced, struct tc_error *error);

#endif
