/* tconv hub push and convert: files of this machine, or results of conversions, to the Hub. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common.h"
#include "cmd/hub.h"
#include "cmd/report.h"
#include "cmd/run_conversion.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/convert/receipt.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/progress.h"
#include "core/io/sha256.h"
#include "core/io/thread_pool.h"
#include "core/remote/address.h"
#include "core/remote/hub.h"
#include "core/remote/hub_lfs.h"
#include "core/remote/hub_push.h"
#include "formats/registry.h"

/* Files and folders of one push; the Hub wants fewer. */
#define MOST_FILES 25000u
#define MOST_DEPTH 32u
#define PIPE_STEP ((size_t)1 << 18)

struct sending {
    struct hub *hub;
    struct tc_hub_upload *uploads;
    size_t count;
    size_t capacity;
    char **deleted; /* originals of a conversion, to be removed */
    size_t deleted_count;
    uint64_t total;
    uint64_t done;
    struct report_progress progress;
};

static void release(struct sending *sending) {
    for (size_t i = 0; i < sending->count; i++) {
        tc_input_close(sending->uploads[i].context);
        free((char *)(uintptr_t)sending->uploads[i].path);
    }
    for (size_t i = 0; i < sending->deleted_count; i++)
        free(sending->deleted[i]);
    free(sending->deleted);
    free(sending->uploads);
}

static bool read_input(void *context, uint64_t offset, void *bytes, size_t length,
                       struct tc_error *error) {
    return tc_input_read(context, offset, bytes, length, error);
}

static bool refuse_path(const char *path, struct tc_error *error) {
    tc_fail(error, TC_UNSUPPORTED, "hub-path", "the Hub takes no file of this name");
    return tc_error_in_file(error, path);
}

/* Takes the input and the path over. */
static bool add_upload(struct sending *sending, struct tc_input *input, char *path,
                       struct tc_error *error) {
    bool ok = input && path;
    if (input && !path)
        tc_fail_memory(error);
    if (ok && !tc_hub_path_is_safe(tc_text_of(path)))
        ok = refuse_path(path, error);
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

static char *join(const char *folder, const char *name) {
    char *path = NULL;
    size_t length = strlen(folder);
    bool slash = length && folder[length - 1] != '/';
    return asprintf(&path, "%s%s%s", folder, slash ? "/" : "", name) < 0 ? NULL : path;
}

/* Folders */

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* What git and the Hub's clients keep for themselves is none of the model. */
static int is_wanted(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
           strcmp(entry->d_name, ".git") != 0 && strcmp(entry->d_name, ".cache") != 0;
}

/* Adds a file, or what a folder holds. `depth` bounds it: links may lead in a circle. */
static bool add_tree(struct sending *sending, const char *place, const char *path, unsigned depth,
                     struct tc_error *error) {
    struct stat status;
    struct dirent **entries = NULL;
    if (stat(place, &status) == 0 && !S_ISDIR(status.st_mode))
        return add_upload(sending, tc_input_open(place, NULL, error), strdup(path), error);
    int count = depth < MOST_DEPTH ? scandir(place, &entries, is_wanted, by_name) : -1;
    if (count < 0) {
        tc_fail_errno(error, depth < MOST_DEPTH ? errno : ELOOP, "open", "cannot read the folder");
        return tc_error_in_file(error, place);
    }
    bool ok = true;
    for (int i = 0; i < count; i++) {
        char *inner = ok ? join(place, entries[i]->d_name) : NULL;
        char *name = ok ? join(path, entries[i]->d_name) : NULL;
        if (ok)
            ok = inner && name ? add_tree(sending, inner, name, depth + 1, error)
                               : tc_fail_memory(error);
        free(inner);
        free(name);
        free(entries[i]);
    }
    free(entries);
    return ok;
}

/* Conversions */

/* The path in the repository: as it was given, in a folder that was given, or the
 * file's own name. */
static char *target_path(const struct hub *hub, struct tc_error *error) {
    const char *name = hub->file ? tc_path_name(hub->file) : "";
    size_t length = strlen(hub->path);
    char *path = NULL;
    if (!hub->file && hub->output)
        path = strdup(hub->output);
    else if (!hub->file) {
        const char *dot = strrchr(tc_path_name(hub->path), '.');
        char indexed[4096];
        bool index = tc_registry_indexed_path(hub->path, indexed, sizeof indexed);
        const char *end = index ? strrchr(indexed, '.') : dot;
        const char *start = index ? indexed : hub->path;
        if (asprintf(&path, "%.*s.safetensors", (int)(end ? end - start : (ptrdiff_t)strlen(start)),
                     start) < 0)
            path = NULL;
    } else {
        path = length && hub->path[length - 1] != '/' ? strdup(hub->path) : join(hub->path, name);
    }
    if (!path)
        tc_fail_memory(error);
    return path;
}

bool hub_converts(const struct hub *hub) {
    struct stat status;
    size_t length = strlen(hub->path);
    if (!hub->file || (stat(hub->file, &status) == 0 && S_ISDIR(status.st_mode)) || length == 0 ||
        hub->path[length - 1] == '/')
        return false;
    const struct tc_backend *from = tc_registry_for_path(hub->file);
    const struct tc_backend *to = tc_registry_for_path(hub->path);
    return from && to && from != to;
}

/* Converts to a file of a temporary folder, and reads that again to compare; or to
 * standard output, in the format of the path `named`. */
static bool convert_to(struct hub *hub, struct tc_reader *reader, const char *output,
                       const char *named, struct tc_error *error) {
    struct common common = hub->common;
    struct run_conversion run = {
        .common = &common,
        .output = output,
        .progress = hub->progress,
        .convert = {.read_back = output == named, .publish = {.no_sync = true}}};
    common.json = false;
    common.verbose = false;
    char indexed[4096];
    if (tc_registry_indexed_path(named, indexed, sizeof indexed))
        named = indexed;
    const struct tc_backend *target = common_target(NULL, named, error);
    bool ok = target && run_conversion(&run, &reader, 1, target, &hub->plan, error);
    run_conversion_release(&run);
    return ok;
}

/* Opens what the conversion wrote, and removes the names: it goes when it is closed. */
static bool take_results(struct sending *sending, const char *folder, const char *path,
                         struct tc_error *error) {
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_wanted, by_name);
    const char *last = tc_path_name(path);
    bool ok = count >= 0 || tc_fail_errno(error, errno, "open", "cannot read the folder");
    for (int i = 0; i < count; i++) {
        char *place = join(folder, entries[i]->d_name);
        struct tc_buffer name = {0};
        tc_buffer_add(&name, path, (size_t)(last - path));
        tc_buffer_add_string(&name, entries[i]->d_name);
        tc_buffer_add(&name, "", 1);
        struct tc_input *input = ok && place ? tc_input_open(place, NULL, error) : NULL;
        if (place)
            unlink(place);
        ok = ok && add_upload(sending, input, name.failed ? NULL : name.bytes, error);
        if (!input)
            tc_buffer_release(&name);
        free(place);
        free(entries[i]);
    }
    free(entries);
    return ok;
}

static bool convert_and_take(struct sending *sending, struct tc_reader *reader, const char *folder,
                             const char *path, struct tc_error *error) {
    char *output = join(folder, tc_path_name(path));
    bool ok =
        output ? convert_to(sending->hub, reader, output, output, error) : tc_fail_memory(error);
    free(output);
    /* Also after a failure, so that nothing is left behind. */
    struct tc_error ignored = {0};
    return take_results(sending, folder, path, ok ? error : &ignored) && ok;
}

/* Sending */

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
        for (size_t j = 0; j < files.count && !there; j++)
            there = strcmp(files.list[j].path, upload->path) == 0 &&
                    files.list[j].size == upload->size &&
                    (!files.list[j].lfs || strcmp(files.list[j].hash, upload->sha256) == 0);
        if (!there) {
            ok = tc_fail(error, TC_IO, "hub-confirm", "the Hub does not have what was sent");
            tc_error_in_file(error, upload->path);
        }
    }
    tc_hub_files_release(&files);
    return ok;
}

/* A commit of its own, once the result is known to be there. */
static bool delete_originals(struct sending *sending, const char *commit, struct tc_error *error) {
    struct tc_hub_push push = {.place = &sending->hub->place,
                               .deleted = (const char *const *)sending->deleted,
                               .deleted_count = sending->deleted_count,
                               .message = "Remove what was converted"};
    bool ok = confirm(sending, commit, error) && tc_hub_push(sending->hub->remote, &push, error);
    tc_hub_push_release(&push);
    return ok;
}

static bool make_repository(struct hub *hub, struct tc_error *error) {
    struct tc_hub_info info;
    struct tc_error missing = {0};
    struct tc_hub_place place = hub->place;
    place.has_revision = false;
    bool there = tc_hub_describe(hub->remote, &place, &info, &missing);
    tc_hub_info_release(&info);
    return there || tc_hub_create(hub->remote, &hub->place, hub->private, error);
}

static struct tc_hub_push push_of(struct sending *sending, const char *message,
                                  const struct tc_watch *watch) {
    struct hub *hub = sending->hub;
    /* In a pull request the two go together: nothing is gone before it is merged. */
    return (struct tc_hub_push){.place = &hub->place,
                                .uploads = sending->uploads,
                                .count = sending->count,
                                .deleted = (const char *const *)sending->deleted,
                                .deleted_count = hub->create_pr ? sending->deleted_count : 0,
                                .message = hub->message ? hub->message : message,
                                .create_pr = hub->create_pr,
                                .watch = watch};
}

/* After the commit: originals go, and what came of it is told. */
static bool finish(struct sending *sending, const struct tc_hub_push *push,
                   struct tc_error *error) {
    if (!sending->hub->create_pr && sending->deleted_count &&
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

static bool send_all(struct sending *sending, const char *message, struct tc_error *error) {
    struct hub *hub = sending->hub;
    const struct tc_watch watch = {step, sending};
    struct tc_hub_push push = push_of(sending, message, &watch);
    report_progress_start(&sending->progress, &hub->progress, hub->common.quiet);
    bool ok = make_repository(hub, error) && tc_hub_push(hub->remote, &push, error);
    report_progress_end(&sending->progress, ok);
    ok = ok && finish(sending, &push, error);
    tc_hub_push_release(&push);
    return ok;
}

/* An index goes with its shards. */
static bool add_index(struct sending *sending, const char *path, struct tc_error *error) {
    struct tc_reader *reader = common_open(&sending->hub->common, sending->hub->file, error);
    const char *last = tc_path_name(path);
    bool ok = reader != NULL;
    for (size_t i = 0; ok && i < reader->shard_count; i++) {
        char *name = NULL;
        if (asprintf(&name, "%.*s%s", (int)(last - path), path, reader->shards[i]) < 0)
            name = NULL;
        struct tc_input *shard = reader->shard_inputs[i];
        ok = add_upload(sending, tc_input_open(shard->path, NULL, error), name, error);
    }
    tc_reader_close(reader);
    return ok &&
           add_upload(sending, tc_input_open(sending->hub->file, NULL, error), strdup(path), error);
}

bool hub_push(struct hub *hub, const char *folder, struct tc_error *error) {
    struct sending sending = {.hub = hub};
    struct stat status;
    char *path = target_path(hub, error);
    bool is_folder = stat(hub->file, &status) == 0 && S_ISDIR(status.st_mode);
    const struct tc_backend *kind = tc_registry_for_path(hub->file);
    bool ok = path != NULL;
    if (ok && is_folder) {
        ok = add_tree(&sending, hub->file, hub->path, 0, error);
        if (ok && sending.count == 0)
            ok = tc_fail(error, TC_USAGE, "usage", "the folder has no files");
    } else if (ok && folder) {
        struct tc_reader *reader = common_open(&hub->common, hub->file, error);
        ok = reader && convert_and_take(&sending, reader, folder, path, error);
        tc_reader_close(reader);
    } else if (ok && kind && tc_registry_is_index(kind)) {
        ok = add_index(&sending, path, error);
    } else if (ok) {
        ok = add_upload(&sending, tc_input_open(hub->file, NULL, error), strdup(path), error);
    }
    struct tc_buffer message = {0};
    tc_buffer_addf(&message, "Upload %s with tconv", path ? path : "");
    tc_buffer_add(&message, "", 1);
    ok = ok && tc_buffer_ok(&message, error) && send_all(&sending, message.bytes, error);
    tc_buffer_release(&message);
    release(&sending);
    free(path);
    return ok;
}

static bool note_originals(struct sending *sending, const struct tc_reader *reader,
                           struct tc_error *error) {
    const char *path = sending->hub->path;
    size_t folder = (size_t)(tc_path_name(path) - path);
    sending->deleted = calloc(reader->shard_count + 1, sizeof *sending->deleted);
    if (!sending->deleted)
        return tc_fail_memory(error);
    for (size_t i = 0; i <= reader->shard_count; i++) {
        char *name = NULL;
        if (i == 0)
            name = strdup(path);
        else if (asprintf(&name, "%.*s%s", (int)folder, path, reader->shards[i - 1]) < 0)
            name = NULL;
        if (!name)
            return tc_fail_memory(error);
        sending->deleted[sending->deleted_count++] = name;
    }
    return true;
}

/* Without a temporary file: the conversion writes into a pipe, twice. The first time
 * only the size and the hash of the result are wanted, the second time it is sent. */

struct stream {
    int fd; /* where the result is read; -1: closed */
    uint64_t at;
    struct sending *sending;
    struct tc_hub_push push;
    struct tc_hub_upload measured;
    bool ok;
    struct tc_error error;
};

static bool read_stream(void *context, uint64_t offset, void *bytes, size_t length,
                        struct tc_error *error) {
    struct stream *stream = context;
    char *to = bytes;
    if (offset != stream->at) {
        tc_fail(error, TC_IO, "no-spool", "a part would have to be sent again");
        return tc_error_hint(error, "without --no-spool there is a copy to send it from");
    }
    while (length) {
        ssize_t got = read(stream->fd, to, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return tc_fail(error, TC_IO, "changed",
                           "the second conversion gives less than the first");
        to += got;
        length -= (size_t)got;
        stream->at += (uint64_t)got;
    }
    return true;
}

static void *measure(void *context) {
    struct stream *stream = context;
    struct tc_hub_upload *upload = &stream->measured;
    unsigned char digest[TC_SHA256_BYTES];
    unsigned char *bytes = malloc(PIPE_STEP);
    struct tc_sha256 hash;
    stream->ok = bytes && tc_sha256_init(&hash, &stream->error);
    ssize_t got = 0;
    while (stream->ok && (got = read(stream->fd, bytes, PIPE_STEP)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        size_t room = sizeof upload->sample - upload->sampled;
        size_t step = (size_t)got < room ? (size_t)got : room;
        memcpy(upload->sample + upload->sampled, bytes, step);
        upload->sampled += step;
        upload->size += (uint64_t)got;
        tc_sha256_update(&hash, bytes, (size_t)got);
    }
    if (stream->ok) {
        tc_sha256_finish(&hash, digest);
        tc_hex(digest, sizeof digest, upload->sha256);
    } else if (!bytes) {
        tc_fail_memory(&stream->error);
    }
    free(bytes);
    close(stream->fd);
    return NULL;
}

static void *send_stream(void *context) {
    struct stream *stream = context;
    char rest[512];
    stream->ok = tc_hub_push(stream->sending->hub->remote, &stream->push, &stream->error);
    /* The store may have had it already: then nobody read it. */
    while (stream->ok && read(stream->fd, rest, sizeof rest) > 0)
        continue;
    close(stream->fd);
    return NULL;
}

/* Runs the conversion with a pipe for its standard output, which a thread reads. */
static bool run_through(struct hub *hub, const char *address, const char *path,
                        void *(*consume)(void *), struct stream *stream, struct tc_error *error) {
    int ends[2];
    pthread_t thread;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction old;
    struct tc_reader *reader = common_open(&hub->common, address, error);
    int out = reader ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) : -1;
    if (!reader || out < 0 || pipe2(ends, O_CLOEXEC) != 0) {
        if (reader)
            tc_fail_errno(error, errno, "pipe", "cannot make a pipe");
        tc_reader_close(reader);
        return false;
    }
    stream->fd = ends[0];
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    /* A reader that fails closes its end: that is an error of writing then. */
    sigaction(SIGPIPE, &ignore, &old);
    bool started = tc_thread_start(&thread, consume, stream, error);
    bool ok = started && convert_to(hub, reader, "-", path, error);
    dup2(out, STDOUT_FILENO);
    close(out);
    if (started)
        pthread_join(thread, NULL);
    else
        close(ends[0]);
    sigaction(SIGPIPE, &old, NULL);
    tc_reader_close(reader);
    if (started && !stream->ok && stream->error.class != TC_OK) {
        *error = stream->error;
        return false;
    }
    return ok;
}

static bool convert_without_copy(struct sending *sending, const char *address, char *path,
                                 const char *message, struct tc_error *error) {
    struct hub *hub = sending->hub;
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return tc_fail_memory(error);
    stream->sending = sending;
    bool ok = hub->plan.shard_size == 0 ||
              tc_fail(error, TC_USAGE, "usage", "--no-spool makes one file, no shards");
    ok = ok && run_through(hub, address, path, measure, stream, error) &&
         make_repository(hub, error);
    if (ok) {
        stream->measured.path = path;
        stream->measured.read = read_stream;
        stream->measured.context = stream;
        stream->measured.once = true;
        stream->push = push_of(sending, message, NULL);
        stream->push.uploads = &stream->measured;
        stream->push.count = 1;
        ok = run_through(hub, address, path, send_stream, stream, error);
    }
    if (ok) {
        sending->uploads = &stream->measured;
        sending->count = 1;
        ok = finish(sending, &stream->push, error);
        sending->uploads = NULL;
        sending->count = 0;
    }
    tc_hub_push_release(&stream->push);
    free(stream);
    return ok;
}

bool hub_convert(struct hub *hub, const char *folder, struct tc_error *error) {
    struct sending sending = {.hub = hub};
    struct tc_buffer message = {0};
    char *path = target_path(hub, error);
    char *address = path ? hub_address(hub, hub->path, error) : NULL;
    bool ok = address != NULL;
    tc_buffer_addf(&message, "Convert %s to %s with tconv", hub->path, path ? path : "");
    tc_buffer_add(&message, "", 1);
    if (ok && strcmp(path, hub->path) == 0)
        ok = tc_fail(error, TC_USAGE, "same-file", "the result would take the original's place");
    if (ok && !tc_hub_path_is_safe(tc_text_of(path)))
        ok = refuse_path(path, error);
    ok = ok && tc_buffer_ok(&message, error);
    struct tc_reader *reader = ok ? common_open(&hub->common, address, error) : NULL;
    ok = reader && (!hub->delete_original || note_originals(&sending, reader, error)) &&
         (hub->no_spool || convert_and_take(&sending, reader, folder, path, error));
    tc_reader_close(reader);
    if (ok)
        ok = hub->no_spool ? convert_without_copy(&sending, address, path, message.bytes, error)
                           : send_all(&sending, message.bytes, error);
    tc_buffer_release(&message);
    release(&sending);
    free(address);
    free(path);
    return ok;
}
