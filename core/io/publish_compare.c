#include "core/io/publish_compare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/path.h"
#include "core/io/input.h"

#define STEP ((size_t)1 << 18)

static bool same_bytes(struct tc_input *a, struct tc_input *b, bool *same, struct tc_error *error) {
    char *buffer = malloc(2 * STEP);
    if (!buffer)
        return tc_fail_memory(error);
    bool ok = true;
    *same = a->size == b->size;
    for (uint64_t at = 0; ok && *same && at < a->size;) {
        uint64_t left = a->size - at;
        size_t step = left < STEP ? left : STEP;
        ok = tc_input_read(a, at, buffer, step, error) &&
             tc_input_read(b, at, buffer + STEP, step, error);
        *same = ok && memcmp(buffer, buffer + STEP, step) == 0;
        at += step;
    }
    free(buffer);
    return ok;
}

static bool same_file(const struct tc_outfile *out, bool *same, struct tc_error *error) {
    struct stat status;
    *same = false;
    /* A link, a pipe or a device is not compared; whoever publishes says what is wrong with it. */
    if (out->place == TC_OUTFILE_DIRECT)
        return true;
    if (fstatat(out->publish->folder_fd, out->name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (tc_path_missing(errno))
            return true;
        tc_fail_errno(error, errno, "output", "cannot look at the output that is there");
        return tc_error_in_file(error, out->publish->path);
    }
    if (!S_ISREG(status.st_mode))
        return true;
    char *path = tc_publish_path(out->publish, out->name);
    if (!path)
        return tc_fail_memory(error);
    struct tc_input *new = tc_outfile_reopen(out, NULL, error);
    struct tc_input *old = new ? tc_input_open(path, NULL, error) : NULL;
    bool ok = old && same_bytes(new, old, same, error);
    tc_input_close(old);
    tc_input_close(new);
    free(path);
    return ok;
}

bool tc_publish_is_same(const struct tc_publish *publish, bool *same, struct tc_error *error) {
    *same = !publish->new_folder && !publish->standard_output && publish->removal_count == 0;
    for (const struct tc_outfile *out = publish->files; out && *same; out = out->next)
        if (!same_file(out, same, error))
            return false;
    return true;
}
