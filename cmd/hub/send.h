/*
 * What hub push and hub convert share: files that are collected, each with its path in
 * the repository, and sent as one commit.
 *
 *     struct sending sending = {.hub = hub};
 *     sending_add, sending_add_converted …
 *     sending_send(&sending, message, error)   uploads, commits, and prints what came of it
 *     sending_release(&sending)                always
 */
#ifndef TCONV_CMD_HUB_SEND_H
#define TCONV_CMD_HUB_SEND_H

#include <dirent.h>

#include "cmd/hub/hub.h"
#include "cmd/report.h"
#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/progress.h"
#include "core/remote/hub_lfs.h"
#include "core/remote/hub_push.h"

struct sending {
    struct hub *hub;
    struct tc_hub_upload *uploads;
    size_t count;
    size_t capacity;
    char **originals; /* of a conversion: paths in the repository */
    size_t original_count;
    uint64_t total;
    uint64_t done;
    struct report_progress progress;
};

void sending_release(struct sending *sending);
/* Takes the input and the path over, also on failure. */
bool sending_add(struct sending *sending, struct tc_input *input, char *path,
                 struct tc_error *error);
/* Converts what the reader reads to a file, or shards, of a temporary folder, compares
 * them with it, and adds them: `path` is that of the result in the repository. */
bool sending_add_converted(struct sending *sending, struct tc_reader *reader, const char *folder,
                           const char *path, struct tc_error *error);
bool sending_send(struct sending *sending, const char *message, struct tc_error *error);
/* The two ends of that, for who sends in another way: the commit to make, and what comes
 * after it: originals go where the user wants that, and what came of it is told. */
struct tc_hub_push sending_push_of(struct sending *sending, const char *message,
                                   const struct tc_watch *watch);
bool sending_finish(struct sending *sending, const struct tc_hub_push *push,
                    struct tc_error *error);
bool sending_refuse_path(const char *path, struct tc_error *error);
/* Makes the repository where there is none. */
bool hub_make_repository(struct hub *hub, struct tc_error *error);
/* The path in the repository: as it was given, in a folder that was given, or the
 * file's own name; from malloc. */
char *hub_target_path(const struct hub *hub, struct tc_error *error);
/* Converts to a file; or to standard output, "-", in the format of the path `named`. */
bool hub_convert_to(struct hub *hub, struct tc_reader *reader, const char *output,
                    const char *named, struct tc_error *error);

/* A folder's path, a slash and a name; from malloc. */
char *sending_join(const char *folder, const char *name);
/* For scandir: by name, without what git and the Hub's clients keep for themselves. */
int sending_by_name(const struct dirent **a, const struct dirent **b);
int sending_is_wanted(const struct dirent *entry);

#endif
