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
extern const char *const choose_sorts[];

/* The caller says tc_select_init and choose_end. */
struct choose {
    struct tc_select select;
    int sort; /* enum choose_sort */
};

/* Rows of an option table. --filter is what info had before the others. */
#define CHOOSE_OPTIONS(choose)                                                                     \
    {.type = OPTION_HEADING, .help = "Choosing tensors:"},                                         \
        {.name = "include",                                                                        \
         .type = OPTION_CALL,                                                                      \
         .value = &(choose)->select,                                                               \
         .argument = "REGEX",                                                                      \
         .help = "only tensors whose names match; may be given again",                             \
         .call = common_include},                                                                  \
        {.name = "exclude",                                                                        \
         .type = OPTION_CALL,                                                                      \
         .value = &(choose)->select,                                                               \
         .argument = "REGEX",                                                                      \
         .help = "without tensors whose names match; may be given again",                          \
         .call = common_exclude},                                                                  \
        {.name = "filter",                                                                         \
         .type = OPTION_CALL,                                                                      \
         .value = &(choose)->select,                                                               \
         .argument = "REGEX",                                                                      \
         .help = "the same as --include",                                                          \
         .call = common_include},                                                                  \
    {                                                                                              \
        .name = "sort", .type = OPTION_CHOICE, .value = &(choose)->sort,                           \
        .argument = "file|name|size|dtype", .choices = choose_sorts,                               \
        .help = "their order: as in the file, or by name, size (largest first), dtype"             \
    }

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
int choose_compare(const struct tc_tensor *a, const struct tc_tensor *b, int sort);
void choose_order(const struct tc_tensor **tensors, size_t count, int sort);

#endif
