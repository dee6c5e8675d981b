/* Which tensors of a file a command is about, and in which order. */
#ifndef TCONV_CMD_CHOOSE_H
#define TCONV_CMD_CHOOSE_H

#include "cmd/common.h"
#include "cmd/options.h"
#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/tensor/select.h"
#include "core/tensor/table.h"

enum choose_sort { SORT_FILE, SORT_NAME, SORT_SIZE, SORT_DTYPE };

/* The caller calls tc_select_init before the options are parsed, and choose_end
 * at the end. */
struct choose {
    struct tc_select select;
    enum choose_sort sort;
};

/* Adds the options by which tensors are chosen. --filter is an older name of
 * --include. */
void choose_add_options(struct option_table *table, struct choose *choose);

/* What was chosen of one file. */
struct chosen {
    const struct tc_tensor **tensors; /* in the order wanted; from malloc */
    size_t count;
    bool *wanted; /* by table position; from malloc */
};

/* Of the tensors named, or of all where no name is given, those that the
 * patterns leave. */
bool choose_tensors(const struct choose *choose, const struct tc_reader *reader,
                    const char *const *names, size_t name_count, struct chosen *chosen,
                    struct tc_error *error);
void chosen_release(struct chosen *chosen);
/* Fails where patterns left nothing of a file that has tensors. */
bool chosen_some(const struct chosen *chosen, const struct tc_reader *reader,
                 struct tc_error *error);

/* Warns of patterns that matched no tensor, where the command succeeded, and
 * releases the selection. */
void choose_end(struct choose *choose, const struct common *common, int code);

/* Compares two tensors of one table; of equal ones the first in the file is less. */
int choose_compare(const struct tc_tensor *a, const struct tc_tensor *b, enum choose_sort sort);
void choose_order(const struct tc_tensor **tensors, size_t count, enum choose_sort sort);

#endif
