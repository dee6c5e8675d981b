/* What scan.c finds in files, looked into: bytes that are or hold pickles. */
#ifndef TCONV_FORMATS_SCAN_BYTES_H
#define TCONV_FORMATS_SCAN_BYTES_H

#include "formats/pickle.h"
#include "formats/scan.h"

/* What a member's name says of it. A storage's numbers may look like anything. */
enum named { NOT_NAMED, PICKLE_NAMED, STORAGE_NAMED };

bool scan_name_is_pickle(struct tc_text name);
/* Whether bytes start as pickles of protocols 2 to 5 do. */
bool scan_looks_like_pickle(const unsigned char *bytes, size_t length);
/* Whether an array's header says that it holds objects, and where their pickle
 * starts. Anything that could be read so counts. */
bool scan_holds_objects(const unsigned char *bytes, size_t length, uint64_t *pickle);

/* The first thing that is wrong is kept; looking goes on where it can. */
void scan_note_broken(struct scan *scan, const struct tc_error *error);

/* For a machine that is run elsewhere. */
bool scan_on_global(void *context, const struct pickle_node *global, struct tc_error *error);
bool scan_on_call(void *context, const struct pickle_node *callable,
                  const struct pickle_node *arguments, uint64_t at, struct tc_error *error);

/* Each looks at a part of a file; false where that can't be read. At most so
 * many pickles in a row. */
bool scan_range(struct scan *scan, struct tc_input *input, uint64_t at, uint64_t end, size_t most,
                struct tc_error *error);
/* What may be a pickle or just text: `input` at `at`, or `bytes`. */
bool scan_try(struct scan *scan, struct tc_input *input, uint64_t at, const unsigned char *bytes,
              uint64_t length, struct tc_error *error);
/* A member, or a whole file. */
bool scan_content(struct scan *scan, struct tc_input *input, uint64_t at,
                  const unsigned char *bytes, uint64_t length, enum named named,
                  struct tc_error *error);

#endif
