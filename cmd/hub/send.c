/* Sends files to the Hub as one commit: cmd/hub/send.h. */

#include "cmd/hub/send.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/convert/file_sums.h"
#include "core/io/sha256.h"
#include "core/remote/address.h"
#include "core/remote/hub.h"

/* Files and folders of one push; the Hub wants fewer. */
#define MOST_FILES 25000u

void sending_release(struct sending *sending) {
    for (size_t i = 0; i < sending->count; i++) {
        tc_input_close(sending->uploads[i].context);
        free((char *)(uintptr_t)sending->uploads[i].path);
    }
    for (size_t i = 0; i < sending->original_count; i++)
        free(sending->originals[i]);
    free(sending->originals);
    free(sending->uploads);
}

static bool read_input(void *context, uint64_t offset, void *bytes, size_t length,
                       struct tc_error *error) {
    return tc_input_read(context, offset, bytes, length, error);
}

bool sending_refuse_path(const char *path, struct tc_error *error) {
    tc_fail(error, TC_UNSUPPORTED, "hub-path", "the Hub takes no file of this name");
    return tc_error_in_file(error, path);
}

bool sending_add(struct sending *sending, struct tc_input *input, char *path,
                 struct tc_error *error) {
    bool ok = input && path;
    if (input && !path)
        tc_fail_memory(error);
    if (ok && !tc_hub_path_is_safe(tc_text_of(path)))
        ok = sending_refuse_path(path, error);
    if (ok && sending->count == MOST_FILES)
        ok = tc_fail(error, TC_UNSUPPORTED, "hub-size", "over %u files do not go into one commit",
                     MOST_FILES);
    if (ok && sending->count == sending->capacity) {
        size_t capacity = sending->capacity ? 2 * sending->capacity : 16;
        struct tc_hub_upload *larger = reallocarray(sending->uploads, capacity, sizeof *larger);
        ok = larger ? true : tc_fail_memory(error);
        sending->uploads = larger ? larger : sending->uploads;
        sending->capacity = larger ? capacity : sending->capacity;
    }
    struct tc_hub_upload upload = {.path = path, .read = read_input, .context = input};
    if (ok) {
        upload.size = input->size;
        upload.sampled =
            upload.size < sizeof upload.sample ? (size_t)upload.size : sizeof upload.sample;
        ok = tc_input_sum(input, upload.sha256, error) &&
             tc_input_read(input, 0, upload.sample, upload.sampled, error);
    }
    if (!ok) {
        tc_input_close(input);
        free(path);
        return false;
    }
    sending->uploads[sending->count++] = upload;
    sending->total += upload.size;
    return true;
}

char *sending_join(const char *folder, const char *name) {
    char *path = NULL;
    size_t length = strlen(folder);
    bool slash = length && folder[length - 1] != '/';
    return asprintf(&path, "%s%s%s", folder, slash ? "/" : "", name) < 0 ? NULL : path;
}

static void step(void *context, uint64_t bytes) {
    struct sending *sending = context;
    sending->done += bytes;
    report_progress_step(&sending->progress, sending->done, sending->total);
}

static void print_result(const struct sending *sending, const struct tc_hub_push *push) {
    struct tc_buffer out = {0};
    if (!sending->hub->common.json) {
        tc_buffer_add_visible(
            &out, tc_text_of(push->url.bytes[0] ? push->url.bytes : push->commit.bytes));
        tc_buffer_add_string(&out, "\n");
        report_out(&out);
        return;
    }
    struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_DISPLAY};
    struct tc_buffer name = {0};
    hub_add_name(&name, sending->hub);
    tc_json_open_object(&json, NULL);
    tc_json_add_text(&json, "repo", (struct tc_text){name.bytes, name.length});
    tc_json_add_string(&json, "revision", sending->hub->place.revision);
    tc_json_add_string(&json, "commit", push->commit.bytes);
    tc_json_add_string(&json, "url", push->url.bytes);
    tc_json_open_array(&json, "files");
    for (size_t i = 0; i < sending->count; i++) {
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "path", sending->uploads[i].path);
        tc_json_add_number(&json, "size", sending->uploads[i].size);
        tc_json_add_string(&json, "sha256", sending->uploads[i].sha256);
        tc_json_close(&json);
    }
    tc_json_end_line(&json);
    tc_buffer_release(&name);
    report_out(&out);
}

/* git's hash of a file, which the Hub tells of those that the commit holds itself. */
static bool git_hash(const struct tc_hub_upload *upload, char hex[2 * TC_SHA256_BYTES + 1],
                     struct tc_error *error) {
    unsigned char digest[TC_SHA256_BYTES];
    struct tc_sha256 hash;
    char head[48];
    char bytes[4096];
    if (!tc_sha1_init(&hash, error))
        return false;
    int length = snprintf(head, sizeof head, "blob %llu", (unsigned long long)upload->size);
    tc_sha256_update(&hash, head, (size_t)length + 1);
    for (uint64_t at = 0; at < upload->size;) {
        uint64_t left = upload->size - at;
        size_t step = left < sizeof bytes ? (size_t)left : sizeof bytes;
        if (!upload->read(upload->context, at, bytes, step, error)) {
            tc_sha256_release(&hash);
            return false;
        }
        tc_sha256_update(&hash, bytes, step);
        at += step;
    }
    tc_sha256_finish(&hash, digest);
    tc_hex(digest, TC_SHA1_BYTES, hex);
    return true;
}

/* What is sent once can't be read again: it was compared with the original itself. */
static bool is_there(const struct tc_hub_upload *upload, const struct tc_hub_files *files,
                     bool *there, struct tc_error *error) {
    char hex[2 * TC_SHA256_BYTES + 1] = "";
    *there = false;
    for (size_t i = 0; i < files->count; i++) {
        const struct tc_hub_file *file = &files->list[i];
        if (file->folder || strcmp(file->path, upload->path) != 0 || file->size != upload->size)
            continue;
        if (!file->lfs && !upload->once && !git_hash(upload, hex, error))
            return false;
        const char *own = file->lfs ? upload->sha256 : hex;
        *there = !own[0] || strcmp(file->hash, own) == 0;
        return true;
    }
    return true;
}

/* Whether the Hub has what was sent. */
static bool confirm(struct sending *sending, const char *commit, struct tc_error *error) {
    struct tc_hub_files files;
    struct tc_hub_place place = sending->hub->place;
    place.revision = commit;
    place.path = "";
    bool ok = tc_hub_list(sending->hub->remote, &place, true, &files, error);
    for (size_t i = 0; i < sending->count && ok; i++) {
        const struct tc_hub_upload *upload = &sending->uploads[i];
        bool there = false;
        ok = is_there(upload, &files, &there, error);
        if (ok && !there)
            ok = tc_fail(error, TC_IO, "hub-confirm", "the Hub does not have what was sent");
        if (!ok)
            tc_error_in_file(error, upload->path);
    }
    tc_hub_files_release(&files);
    return ok;
}

/* A commit of its own, once the result is known to be there. */
static bool delete_originals(struct sending *sending, const char *commit, struct tc_error *error) {
    struct tc_hub_push push = {.place = &sending->hub->place,
                               .deleted = (const char *const *)sending->originals,
                               .deleted_count = sending->original_count,
                               .message = "Remove what was converted"};
    bool ok = confirm(sending, commit, error) && tc_hub_push(sending->hub->remote, &push, error);
    tc_hub_push_release(&push);
    return ok;
}

bool hub_make_repository(struct hub *hub, struct tc_error *error) {
    bool exists;
    return tc_hub_exists(hub->remote, &hub->place, &exists, error) &&
           (exists || tc_hub_create(hub->remote, &hub->place, hub->private, error));
}

struct tc_hub_push sending_push_of(struct sending *sending, const char *message,
                                   const struct tc_watch *watch) {
    struct hub *hub = sending->hub;
    /* In a pull request the two go together: nothing is gone before it is merged. */
    return (struct tc_hub_push){
        .place = &hub->place,
        .uploads = sending->uploads,
        .count = sending->count,
        .deleted = (const char *const *)sending->originals,
        .deleted_count = hub->create_pr && hub->delete_original ? sending->original_count : 0,
        .message = hub->message ? hub->message : message,
        .create_pr = hub->create_pr,
        .watch = watch};
}

/* After the commit: originals go, and what came of it is told. */
bool sending_finish(struct sending *sending, const struct tc_hub_push *push,
                    struct tc_error *error) {
    if (!sending->hub->create_pr && sending->hub->delete_original &&
        !delete_originals(sending, push->commit.bytes, error))
        return false;
    for (size_t i = 0; i < sending->count; i++)
        if (sending->uploads[i].ignored) {
            struct tc_buffer line = {0};
            tc_buffer_add_string(&line, "tconv: warning: ");
            tc_buffer_add_visible(&line, tc_text_of(sending->uploads[i].path));
            tc_buffer_add_string(&line, ": not sent: the repository's .gitignore names it\n");
            report_err(&line);
        }
    print_result(sending, push);
    return report_flush(error);
}

bool sending_send(struct sending *sending, const char *message, struct tc_error *error) {
    struct hub *hub = sending->hub;
    const struct tc_watch watch = {step, sending};
    struct tc_hub_push push = sending_push_of(sending, message, &watch);
    report_progress_start(&sending->progress, &hub->progress, hub->common.quiet);
    bool ok = hub_make_repository(hub, error) && tc_hub_push(hub->remote, &push, error);
    report_progress_end(&sending->progress, ok);
    ok = ok && sending_finish(sending, &push, error);
    tc_hub_push_release(&push);
    return ok;
}
