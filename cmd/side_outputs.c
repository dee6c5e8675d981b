#include "cmd/side_outputs.h"

#include <string.h>
#include <sys/stat.h>

#include "cmd/common.h"
#include "core/convert/depfile.h"
#include "core/convert/receipt.h"
#include "core/format/reader.h"

#define FILES 2

static const char *path_of(const struct beside *beside, size_t which) {
    return which ? beside->depfile : beside->receipt;
}

static bool check_inputs(struct tc_publish *publish, const char *name, const struct tc_plan *plan,
                         struct tc_error *error) {
    for (size_t r = 0; r < plan->reader_count; r++)
        if (!tc_reader_check_target(plan->readers[r], publish, name, error))
            return false;
    return true;
}

static bool begin_one(struct tc_publish *publish, const char *path, const struct tc_plan *plan,
                      struct tc_publish_options options, struct tc_error *error) {
    const char *name = tc_path_name(path);
    if (!tc_publish_begin(publish, path, false, options, error) ||
        !check_inputs(publish, name, plan, error))
        return false;
    if (!publish->standard_output && !tc_publish_is_stream(publish, name))
        return true;
    tc_fail(error, TC_USAGE, "usage",
            "a receipt or depfile goes to a file with a name, not into a pipe");
    return tc_error_in_file(error, path);
}

bool beside_begin(struct beside *beside, const struct tc_plan *plan,
                  struct tc_publish_options options, struct tc_error *error) {
    for (size_t i = 0; i < FILES; i++)
        beside->publishes[i] = (struct tc_publish){.folder_fd = -1};
    if (beside->key && !beside->receipt)
        return tc_fail(error, TC_USAGE, "usage", "--sign goes with --receipt");
    if (beside->tensors && !beside->receipt)
        return tc_fail(error, TC_USAGE, "usage", "--receipt-tensors goes with --receipt");
    if ((beside->key && !tc_key_read(beside->key, TC_KEY_SECRET, beside->secret, error)) ||
        !common_source_date(&beside->dated, &beside->date, error))
        return false;
    for (size_t i = 0; i < FILES; i++)
        if (path_of(beside, i) &&
            !begin_one(&beside->publishes[i], path_of(beside, i), plan, options, error))
            return false;
    return true;
}

static bool same_folder(const struct tc_publish *a, const struct tc_publish *b) {
    struct stat x;
    struct stat y;
    /* A folder that is not there yet is nobody else's. */
    return !a->new_folder && !b->new_folder && a->folder_fd >= 0 && b->folder_fd >= 0 &&
           fstat(a->folder_fd, &x) == 0 && fstat(b->folder_fd, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static bool write_one(struct tc_publish *publish, const char *path, const struct tc_buffer *text,
                      const struct tc_publish *output, struct tc_error *error) {
    const char *name = tc_path_name(path);
    if (same_folder(publish, output) && tc_publish_find(output, name)) {
        tc_fail(error, TC_USAGE, "same-file", "this is also the name of an output");
        return tc_error_in_file(error, path);
    }
    return tc_publish_text(publish, name, text, error);
}

static bool write_receipt(struct beside *beside, const struct tc_conversion *conversion,
                          const char *output, struct tc_error *error) {
    struct tc_receipt_facts facts = {.conversion = conversion,
                                     .output = output,
                                     .options = beside->options,
                                     .also = beside->also,
                                     .also_count = beside->also_count,
                                     .tensors = beside->tensors,
                                     .dated = beside->dated,
                                     .date = beside->date};
    struct tc_buffer text = {0};
    struct tc_buffer file = {0};
    bool ok = tc_receipt_make(&text, &facts, error) &&
              tc_receipt_wrap(&file, &text, beside->key ? beside->secret : NULL, error) &&
              write_one(&beside->publishes[0], beside->receipt, &file, &conversion->publish, error);
    tc_buffer_release(&file);
    tc_buffer_release(&text);
    return ok;
}

bool beside_write(struct beside *beside, const struct tc_conversion *conversion, const char *output,
                  struct tc_error *error) {
    struct tc_buffer text = {0};
    if (beside->receipt && !write_receipt(beside, conversion, output, error))
        return false;
    if (!beside->depfile)
        return true;
    bool ok = tc_depfile_print(&text, conversion, beside->also, beside->also_count, error) &&
              write_one(&beside->publishes[1], beside->depfile, &text, &conversion->publish, error);
    if (ok && beside->receipt && same_folder(&beside->publishes[0], &beside->publishes[1]) &&
        strcmp(tc_path_name(beside->receipt), tc_path_name(beside->depfile)) == 0)
        ok = tc_fail(error, TC_USAGE, "same-file", "receipt and depfile are the same file");
    tc_buffer_release(&text);
    return ok;
}

bool beside_commit(struct beside *beside, struct tc_conversion *conversion,
                   struct tc_error *error) {
    return tc_conversion_commit_with(conversion, beside->publishes, FILES, error);
}

void beside_end(struct beside *beside) {
    for (size_t i = 0; i < FILES; i++)
        tc_publish_end(&beside->publishes[i]);
    tc_forget(beside->secret, sizeof beside->secret);
}
