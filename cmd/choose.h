/* Which tensors of a file a command speaks of, and in which order. */
#ifndef TCONV_CMD_CHOOSE_H
#define TCONV_CMD_CHOOSE_H

#include "cmd/common.h"
#include "cmd/options.h"
#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/tensor/select.h"
#include "core/tensor/table.h"

enum choose_sort { SORT_FILE, SORT_NAME, SORT_SIZE, SORT_DTYPE };

/* The caller says tc_select_init and choose_end. */
struct choose {
    struct tc_select select;
    enum choose_sort sort;
};

/* Adds the options by which tensors are chosen. --filter is what info had
 * before the others. */
void choose_add_options(struct option_table *table, struct choose *choose);

/* What was chosen of one file. */
struct chosen {
    const struct tc_tensor **tensors; /* in the order wanted; from malloc */
    size_t count;
    bool *wanted; /* by table position; likewise */
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

/* Tells, where the command went well, of patterns that met no tensor, and
 * releases what was chosen by. */
void choose_end(struct choose *choose, const struct common *common, int code);

/* Tensors by one of the orders; what is equal stays as it is in memory. */
int choose_compare(const struct tc_tensor *a, const struct tc_tensor *b, enum choose_sort sort);
void choose_order(const struct tc_tensor **tensors, size_t count, enum choose_sort sort);

#endif
