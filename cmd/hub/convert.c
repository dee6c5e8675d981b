/* tconv hub convert: a file of the Hub, read in ranges, to one in another format beside it. */
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
#include "cmd/hub/hub.h"
#include "cmd/hub/send.h"
#include "cmd/run_conversion.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/inspect/compare.h"
#include "core/io/input.h"
#include "core/io/sha256.h"
#include "core/io/thread_pool.h"
#include "core/remote/address.h"
#include "core/remote/hub_lfs.h"
#include "core/remote/hub_push.h"
#include "formats/registry.h"

#define PIPE_STEP ((size_t)1 << 18)

int sending_by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

int sending_is_wanted(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
           strcmp(entry->d_name, ".git") != 0 && strcmp(entry->d_name, ".cache") != 0;
}

bool hub_convert_to(struct hub *hub, struct tc_reader *reader, const char *output,
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
    int count = scandir(folder, &entries, sending_is_wanted, sending_by_name);
    const char *last = tc_path_name(path);
    bool ok = count >= 0 || tc_fail_errno(error, errno, "open", "cannot read the folder");
    for (int i = 0; i < count; i++) {
        char *place = sending_join(folder, entries[i]->d_name);
        struct tc_buffer name = {0};
        tc_buffer_add(&name, path, (size_t)(last - path));
        tc_buffer_add_string(&name, entries[i]->d_name);
        tc_buffer_add(&name, "", 1);
        struct tc_input *input = ok && place ? tc_input_open(place, NULL, error) : NULL;
        if (place)
            unlink(place);
        bool given = ok && !name.failed;
        ok = ok && sending_add(sending, input, given ? name.bytes : NULL, error);
        if (!given)
            tc_buffer_release(&name);
        free(place);
        free(entries[i]);
    }
    free(entries);
    return ok;
}

bool sending_add_converted(struct sending *sending, struct tc_reader *reader, const char *folder,
                           const char *path, struct tc_error *error) {
    char *output = sending_join(folder, tc_path_name(path));
    bool ok = output ? hub_convert_to(sending->hub, reader, output, output, error)
                     : tc_fail_memory(error);
    free(output);
    /* Also after a failure, so that nothing is left behind. */
    struct tc_error ignored = {0};
    return take_results(sending, folder, path, ok ? error : &ignored) && ok;
}

static bool add_original(struct sending *sending, const char *path, struct tc_error *error) {
    for (size_t i = 0; i < sending->original_count; i++)
        if (strcmp(sending->originals[i], path) == 0)
            return true;
    char **longer = reallocarray(sending->originals, sending->original_count + 1, sizeof *longer);
    char *name = strdup(path);
    if (longer)
        sending->originals = longer;
    if (longer && name)
        longer[sending->original_count++] = name;
    else
        free(name);
    return (longer && name) || tc_fail_memory(error);
}

/* All files that are read, by their paths in the repository: an index has shards, and some
 * formats keep data in files beside. */
static bool note_originals(struct sending *sending, const struct tc_reader *reader,
                           const char *address, struct tc_error *error) {
    size_t prefix = strlen(address) - strlen(sending->hub->path);
    struct tc_input *input;
    bool ok = add_original(sending, sending->hub->path, error);
    for (size_t at = 0; ok && (input = tc_reader_next_file(reader, &at));)
        if (strncmp(input->path, address, prefix) == 0)
            ok = add_original(sending, input->path + prefix, error);
    return ok;
}

/* The result takes the place of none of the files that it is made of: those would be
 * lost before it is known to be right, or it would be removed with them. */
static bool check_apart(const struct sending *sending, const char *path, struct tc_error *error) {
    for (size_t i = 0; i < sending->original_count; i++)
        if (strcmp(sending->originals[i], path) == 0) {
            tc_fail(error, TC_USAGE, "same-file", "the result would take the original's place");
            return tc_error_in_file(error, path);
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
    struct tc_sha256 hash; /* of what is sent */
    bool ok;
    struct tc_error error;
};

/* The second conversion must give the bytes that the first was measured by. */
static bool check_sent(struct stream *stream, struct tc_error *error) {
    unsigned char digest[TC_SHA256_BYTES];
    char hex[2 * TC_SHA256_BYTES + 1];
    if (stream->at < stream->measured.size)
        return true;
    tc_sha256_finish(&stream->hash, digest);
    stream->hash.context = NULL;
    tc_hex(digest, sizeof digest, hex);
    return strcmp(hex, stream->measured.sha256) == 0 ||
           tc_fail(error, TC_IO, "changed", "the second conversion gives other bytes");
}

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
        tc_sha256_update(&stream->hash, to, (size_t)got);
        to += got;
        length -= (size_t)got;
        stream->at += (uint64_t)got;
    }
    return check_sent(stream, error);
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
    stream->ok = tc_sha256_init(&stream->hash, &stream->error) &&
                 tc_hub_push(stream->sending->hub->remote, &stream->push, &stream->error);
    /* The store may have had it already: then nobody read it. */
    while (stream->ok && read(stream->fd, rest, sizeof rest) > 0)
        continue;
    if (stream->hash.context)
        tc_sha256_release(&stream->hash);
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
    bool ok = started && hub_convert_to(hub, reader, "-", path, error);
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
    /* The pipe has no name that means anything to the user. */
    if (!ok && strcmp(error->file, "-") == 0) {
        error->file[0] = '\0';
        tc_error_in_file(error, path);
    }
    return ok;
}

/* Whether only dtypes differ, and no tensor's shape or bits. */
static bool differ_in_dtype(const struct tc_compare *compare) {
    bool ok = compare->removed_count == 0 && compare->added_count == 0;
    for (size_t i = 0; i < compare->pair_count && ok; i++)
        ok = !compare->pairs[i].shape && (compare->pairs[i].dtype || !compare->pairs[i].values);
    return ok;
}

/* By bits; and, where a format has other dtypes, by the numbers too. */
static bool compare_readers(struct tc_reader *a, struct tc_reader *b, bool *same,
                            struct tc_error *error) {
    struct tc_compare_options options = {.ignore_metadata = true};
    struct tc_compare compare = {0};
    bool ok = tc_compare_run(&compare, a, b, &options, error);
    bool again = ok && !compare.equal && differ_in_dtype(&compare);
    *same = ok && compare.equal;
    tc_compare_release(&compare);
    if (!again)
        return ok;
    options.tolerance.numeric = true;
    ok = tc_compare_run(&compare, a, b, &options, error);
    *same = ok && compare.equal;
    tc_compare_release(&compare);
    return ok;
}

/* Reads the result from the Hub, and compares it with what it was made of. */
static bool compare_result(struct hub *hub, const char *address, const char *path,
                           const char *commit, struct tc_error *error) {
    struct hub there = *hub;
    bool same = false;
    there.place.revision = commit;
    char *result = hub_address(&there, path, error);
    struct tc_reader *a = result ? common_open(&hub->common, address, error) : NULL;
    struct tc_reader *b = a ? common_open(&hub->common, result, error) : NULL;
    bool ok = b && compare_readers(a, b, &same, error);
    if (ok && !same) {
        ok = tc_fail(error, TC_IO, "verification", "what the Hub has is not what was converted");
        tc_error_in_file(error, result);
    }
    tc_reader_close(b);
    tc_reader_close(a);
    free(result);
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
         hub_make_repository(hub, error);
    if (ok) {
        stream->measured.path = path;
        stream->measured.read = read_stream;
        stream->measured.context = stream;
        stream->measured.once = true;
        stream->push = sending_push_of(sending, message, NULL);
        stream->push.uploads = &stream->measured;
        stream->push.count = 1;
        ok = run_through(hub, address, path, send_stream, stream, error);
    }
    ok = ok && compare_result(hub, address, path, stream->push.commit.bytes, error);
    if (ok) {
        sending->uploads = &stream->measured;
        sending->count = 1;
        ok = sending_finish(sending, &stream->push, error);
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
    char *path = hub_target_path(hub, error);
    char *address = path ? hub_address(hub, hub->path, error) : NULL;
    bool ok = address != NULL;
    tc_buffer_addf(&message, "Convert %s to %s with tconv", hub->path, path ? path : "");
    tc_buffer_add(&message, "", 1);
    if (ok && !tc_hub_path_is_safe(tc_text_of(path)))
        ok = sending_refuse_path(path, error);
    ok = ok && tc_buffer_ok(&message, error);
    struct tc_reader *reader = ok ? common_open(&hub->common, address, error) : NULL;
    ok = reader && note_originals(&sending, reader, address, error) &&
         check_apart(&sending, path, error) &&
         (hub->no_spool || sending_add_converted(&sending, reader, folder, path, error));
    for (size_t i = 0; i < sending.count && ok; i++)
        ok = check_apart(&sending, sending.uploads[i].path, error);
    tc_reader_close(reader);
    if (ok)
        ok = hub->no_spool ? convert_without_copy(&sending, address, path, message.bytes, error)
                           : sending_send(&sending, message.bytes, error);
    tc_buffer_release(&message);
    sending_release(&sending);
    free(address);
    free(path);
    return ok;
}
