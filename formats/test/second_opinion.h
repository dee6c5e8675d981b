/*
 * Compares how formats/zip/read.h and libzip read an archive. Where both accept something they must
 * agree: on how many members there are, on their names, sizes and CRCs and on their bytes.
 *
 * Either may refuse what the other accepts. Ours is the stricter of the two about the archive (see
 * formats/zip/read.h). libzip unpacks with zlib, which may be more or less strict about deflated
 * data than ISA-L; and before version 1.8 it does not know LZMA.
 *
 * Of several end records libzip opens the first that it finds sound, also one among the data of a
 * member, and one of an empty archive is sound anywhere. Ours, Python's and torch's take the last,
 * whose comment ends with the file. So the two may see different archives where there are several.
 */
#ifndef TCONV_FORMATS_TEST_SECOND_OPINION_H
#define TCONV_FORMATS_TEST_SECOND_OPINION_H

#include "core/format/backend.h"

enum second_opinion {
    SECOND_OPINION_SAME,
    SECOND_OPINION_OURS_REFUSES,   /* the archive or a member of it; what was read agrees */
    SECOND_OPINION_LIBZIP_REFUSES, /* the archive or a member of it; what was read agrees */
    SECOND_OPINION_ANOTHER_END,    /* they differ, and there are several end records */
    SECOND_OPINION_DIFFERS
};

#define SECOND_OPINION_TEXT 1024
/* `path` is a file of these bytes. `what` then says how the two differ, or why one refuses. */
enum second_opinion second_opinion(const char *path, const void *bytes, size_t length,
                                   const struct tc_format_options *options,
                                   char what[SECOND_OPINION_TEXT]);

#endif
