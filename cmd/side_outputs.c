#include "cmd/side_outputs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/common.h"
#include "core/base/path.h"
#include "core/convert/depfile.h"
#include "core/convert/receipt.h"
#include "core/format/reader.h"

#define FILES 2

static const char *path_of(const struct side_outputs *side, size_t which) {
    return which ? side->depfile : side->receipt;
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
    bool stream;
    if (!tc_publish_begin(publish, path, false, options, error) ||
        !check_inputs(publish, name, plan, error) ||
        !tc_publish_is_stream(publish, name, &stream, error))
        return false;
    if (!publish->standard_output && !stream)
        return true;
    tc_fail(error, TC_USAGE, "usage",
            "a receipt or depfile goes to a file with a name, not into a pipe");
    return tc_error_in_file(error, path);
}

bool side_outputs_begin(struct side_outputs *side, const struct tc_plan *plan,
                        struct tc_publish_options options, struct tc_error *error) {
    for (size_t i = 0; i < FILES; i++)
        side->publishes[i] = (struct tc_publish){.folder_fd = -1};
    if (side->key && !side->receipt)
        return tc_fail(error, TC_USAGE, "usage", "--sign goes with --receipt");
    if (side->tensors && !side->receipt)
        return tc_fail(error, TC_USAGE, "usage", "--receipt-tensors goes with --receipt");
    if ((side->key && !tc_key_read(side->key, TC_KEY_SECRET, side->secret, error)) ||
        !common_source_date(&side->dated, &side->date, error))
        return false;
    for (size_t i = 0; i < FILES; i++)
        if (path_of(side, i) &&
            !begin_one(&side->publishes[i], path_of(side, i), plan, options, error))
            return false;
    return true;
}

static bool same_folder(const struct tc_publish *a, const struct tc_publish *b, bool *same,
                        struct tc_error *error) {
    struct stat x;
    struct stat y;
    /* A folder that does not exist yet is no other output's folder. */
    *same = !a->new_folder && !b->new_folder && a->folder_fd >= 0 && b->folder_fd >= 0;
    if (*same && (fstat(a->folder_fd, &x) != 0 || fstat(b->folder_fd, &y) != 0)) {
        tc_fail_errno(error, errno, "output-folder", "cannot look at the output's folder");
        return tc_error_in_file(error, a->path);
    }
    *same = *same && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return true;
}

static bool write_one(struct tc_publish *publish, const char *path, const struct tc_buffer *text,
                      const struct tc_publish *output, struct tc_error *error) {
    const char *name = tc_path_name(path);
    bool same;
    if (!same_folder(publish, output, &same, error))
        return false;
    if (same && tc_publish_find(output, name)) {
        tc_fail(error, TC_USAGE, "same-file", "this is also the name of an output");
        return tc_error_in_file(error, path);
    }
    return tc_publish_text(publish, name, text, error);
}

static bool write_receipt(struct side_outputs *side, struct tc_conversion *conversion,
                          const char *output, struct tc_error *error) {
    struct tc_receipt_facts facts = {.conversion = conversion,
                                     .output = output,
                                     .options = side->options,
                                     .also = side->also,
                                     .also_count = side->also_count,
                                     .tensors = side->tensors,
                                     .dated = side->dated,
                                     .date = side->date};
    struct tc_buffer text = {0};
    struct tc_buffer file = {0};
    bool ok = tc_receipt_make(&text, &facts, error) &&
              tc_receipt_wrap(&file, &text, side->key ? side->secret : NULL, error) &&
              write_one(&side->publishes[0], side->receipt, &file, &conversion->publish, error);
    tc_buffer_release(&file);
    tc_buffer_release(&text);
    return ok;
}

bool side_outputs_write(struct side_outputs *side, struct tc_conversion *conversion,
                        const char *output, struct tc_error *error) {
    struct tc_buffer text = {0};
    bool same = false;
    if (side->receipt && !write_receipt(side, conversion, output, error))
        return false;
    if (!side->depfile)
        return true;
    bool ok = tc_depfile_print(&text, conversion, side->also, side->also_count, error) &&
              write_one(&side->publishes[1], side->depfile, &text, &conversion->publish, error);
    ok = ok &&
         (!side->receipt || same_folder(&side->publishes[0], &side->publishes[1], &same, error));
    if (ok && same && strcmp(tc_path_name(side->receipt), tc_path_name(side->depfile)) == 0)
        ok = tc_fail(error, TC_USAGE, "same-file", "receipt and depfile are the same file");
    tc_buffer_release(&text);
    return ok;
}

bool side_outputs_commit(struct side_outputs *side, struct tc_conversion *conversion,
                         struct tc_error *error) {
    return tc_conversion_commit_with(conversion, side->publishes, FILES, error);
}

void side_outputs_end(struct side_outputs *side) {
    for (size_t i = 0; i < FILES; i++)
        tc_publish_end(&side->publishes[i]);
    tc_forget(side->secret, sizeof side->secret);
}
