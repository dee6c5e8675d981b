/*
 * Copies a tensor that is not in C order from file to file, in blocks (core/tensor/view_blocks.h)
 * and on several threads. The order in which bytes are written is that of no stream, so that only a
 * file takes them.
 */
#ifndef TCONV_CORE_CONVERT_VIEW_COPY_H
#define TCONV_CORE_CONVERT_VIEW_COPY_H

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/io/progress.h"
#include "core/io/publish.h"

/* Whether that is quicker than reading its stream. */
bool tc_view_copy_pays(const struct tc_strided *strided, uint64_t nbytes, size_t threads);
/* Copies `nbytes`, all of the tensor, to the output's current position. Where `reports` is set the
 * caller's thread reports progress. */
bool tc_view_copy(const struct tc_strided *strided, uint64_t nbytes, struct tc_outfile *out,
                  size_t threads, struct tc_progress_sum *progress, bool reports,
                  struct tc_error *error);

/* A view of at most so many bytes may be rearranged as a whole. */
#define TC_VIEW_SMALL ((size_t)1 << 19)
/* Whether it is that small, and quicker to read so than as a stream. */
bool tc_view_read_pays(const struct tc_strided *strided, uint64_t nbytes);
/* What that takes besides the view's own bytes. */
size_t tc_view_read_scratch(void);
/* Reads all of it. Any thread may call it. */
bool tc_view_read(const struct tc_strided *strided, unsigned char *bytes, unsigned char *scratch,
                  struct tc_error *error);

#endif
