#include "core/convert/stale_shards.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/notes.h"
#include "core/base/text.h"

/* Larger numbers are not recognised: no index names so many shards. */
#define LARGEST_NUMBER 99999999u

/* The pattern of the names of all shards: STEM-N-of-M.EXT. */
struct pattern {
    struct tc_text stem;
    struct tc_text extension;
    size_t count_digits;
    unsigned others; /* where this run writes one shard of so many: the others are of other jobs */
};

struct stale {
    char **names;
    size_t count;
};

/* Removes a number of at least `digits` digits from the front. */
static bool take_number(struct tc_text *text, size_t digits, unsigned *number) {
    size_t length = 0;
    *number = 0;
    while (length < text->length && text->bytes[length] >= '0' && text->bytes[length] <= '9' &&
           *number <= LARGEST_NUMBER / 10)
        *number = *number * 10 + (unsigned)(text->bytes[length++] - '0');
    text->bytes += length;
    text->length -= length;
    return length >= digits;
}

static bool take(struct tc_text *text, struct tc_text front) {
    if (text->length < front.length || memcmp(text->bytes, front.bytes, front.length) != 0)
        return false;
    text->bytes += front.length;
    text->length -= front.length;
    return true;
}

/* Finds the pattern in the name of the plan's first shard, from its end, since the stem
 * may look like a shard's name itself. */
static bool find_pattern(const struct tc_plan *plan, struct pattern *pattern) {
    struct tc_text dash = TC_TEXT("-00001-of-");
    struct tc_text name = tc_text_of(plan->files[0].name);
    for (size_t at = name.length; at-- > 0;) {
        struct tc_text rest = {name.bytes + at, name.length - at};
        unsigned count;
        if (!take(&rest, dash) ||
            !take_number(&rest, (size_t)plan->target->sharding->count_digits, &count))
            continue;
        *pattern = (struct pattern){.stem = {name.bytes, at},
                                    .extension = rest,
                                    .others = plan->file_count < count ? count : 0,
                                    .count_digits = (size_t)plan->target->sharding->count_digits};
        return true;
    }
    return false;
}

static bool matches(const struct pattern *pattern, const char *name) {
    struct tc_text rest = tc_text_of(name);
    unsigned number;
    unsigned count;
    return take(&rest, pattern->stem) && take(&rest, TC_TEXT("-")) &&
           take_number(&rest, 5, &number) && take(&rest, TC_TEXT("-of-")) &&
           take_number(&rest, pattern->count_digits, &count) &&
           tc_text_equal(rest, pattern->extension) && number >= 1 && number <= count &&
           count != pattern->others;
}

static bool listing_failed(const struct tc_publish *publish, struct tc_error *error) {
    tc_fail_errno(error, errno, "output-folder", "cannot look for shards of an earlier run");
    return tc_error_in_file(error, publish->folder);
}

static bool is_stale(const struct tc_publish *publish, const char *name,
                     struct tc_input *const *inputs, size_t input_count, bool *stale,
                     struct tc_error *error) {
    struct stat status;
    bool there = fstatat(publish->folder_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there && errno != ENOENT)
        return listing_failed(publish, error);
    *stale = there && S_ISREG(status.st_mode) && !tc_publish_find(publish, name);
    for (size_t i = 0; i < input_count && *stale; i++)
        *stale = status.st_dev != inputs[i]->device || status.st_ino != inputs[i]->inode;
    return true;
}

static bool add(struct stale *stale, const char *name, struct tc_error *error) {
    char **names = reallocarray(stale->names, stale->count + 1, sizeof(char *));
    if (!names)
        return tc_fail_memory(error);
    stale->names = names;
    names[stale->count] = strdup(name);
    return names[stale->count++] || tc_fail_memory(error);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool note(struct tc_plan *plan, const struct stale *stale, bool prune,
                 struct tc_error *error) {
    bool one = stale->count == 1;
    return tc_plan_note(plan, TC_WARNING, TC_KIND_OUTPUT, (struct tc_text){0}, error,
                        "%zu shard%s of an earlier run, which the new %s not name, %s%s: "
                        "%s\"%s\"",
                        stale->count, one ? "" : "s", plan->index_name ? "index does" : "ones do",
                        prune ? one ? "was removed" : "were removed"
                        : one ? "stays"
                              : "stay",
                        prune ? "" : " (--prune removes them)", one ? "" : "the first is ",
                        stale->names[0]);
}

static bool list_stale(struct stale *stale, const struct pattern *pattern,
                       const struct tc_publish *publish, struct tc_input *const *inputs,
                       size_t input_count, bool prune, struct tc_error *error) {
    int fd = openat(publish->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    /* In a folder that may be written but not read, they are only not told. */
    bool ok = listing || (errno == EACCES && !prune) || listing_failed(publish, error);
    if (!listing && fd >= 0)
        close(fd);
    while (ok && listing) {
        errno = 0;
        struct dirent *entry = readdir(listing);
        bool old = false;
        if (!entry && errno)
            ok = listing_failed(publish, error);
        if (!entry)
            break;
        ok = !matches(pattern, entry->d_name) ||
             is_stale(publish, entry->d_name, inputs, input_count, &old, error);
        ok = ok && (!old || add(stale, entry->d_name, error));
    }
    if (listing)
        closedir(listing);
    return ok;
}

bool tc_stale_shards(struct tc_plan *plan, struct tc_publish *publish,
                     struct tc_input *const *inputs, size_t input_count, bool prune,
                     struct tc_error *error) {
    struct pattern pattern;
    struct stale stale = {0};
    if (!plan->in_shards || !plan->file_count || publish->folder_fd < 0 ||
        !find_pattern(plan, &pattern))
        return true;
    bool ok = list_stale(&stale, &pattern, publish, inputs, input_count, prune, error);
    if (ok && stale.count) {
        qsort(stale.names, stale.count, sizeof *stale.names, by_name);
        ok = note(plan, &stale, prune, error);
    }
    for (size_t i = 0; i < stale.count; i++) {
        ok = ok && (!prune || tc_publish_remove(publish, stale.names[i], error));
        free(stale.names[i]);
    }
    free(stale.names);
    return ok;
}
