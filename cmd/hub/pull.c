/* tconv hub pull: files of a repository into the Hub's cache, or to a place of their own. */
#include <stdlib.h>
#include <string.h>

#include "cmd/hub/hub.h"
#include "cmd/report.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/io/progress.h"
#include "core/io/publish.h"
#include "core/remote/address.h"
#include "core/remote/client.h"
#include "core/remote/environment.h"
#include "core/remote/hub.h"
#include "core/remote/hub_cache.h"
#include "core/remote/protocol.h"
#include "core/remote/remote.h"

struct pull {
    struct hub *hub;
    struct tc_hub_cache cache;
    struct tc_hub_info info;
    struct tc_hub_files files;
    bool one; /* the path is that of a file */
    uint64_t total;
    uint64_t done;
    uint64_t fetched;
    struct report_progress progress;
    struct tc_publish publish; /* of a copy */
    bool folder;               /* which is one, */
    bool nested;               /* with others in it */
};

static void step(void *context, uint64_t bytes) {
    struct pull *pull = context;
    pull->done += bytes;
    report_progress_step(&pull->progress, pull->done, pull->total);
}

/* Which files are meant: the whole repository, a folder of it, or one. */
static bool choose_files(struct pull *pull, struct tc_error *error) {
    struct hub *hub = pull->hub;
    struct tc_hub_place place = hub->place;
    place.revision = pull->info.commit;
    place.path = "";
    if (!tc_hub_list(hub->remote, &place, true, &pull->files, error))
        return false;
    size_t length = strlen(hub->path);
    size_t kept = 0;
    for (size_t i = 0; i < pull->files.count; i++) {
        struct tc_hub_file *file = &pull->files.list[i];
        bool same = strcmp(file->path, hub->path) == 0;
        bool below = length == 0 ||
                     (strncmp(file->path, hub->path, length) == 0 && file->path[length] == '/');
        if (file->folder || (!same && !below))
            continue;
        pull->one |= same;
        pull->total += file->size;
        pull->files.list[kept++] = *file;
    }
    pull->files.count = kept;
    if (kept)
        return true;
    tc_fail(error, TC_IO, "not-found", "the repository has no such file or folder");
    tc_error_hint(error, "tconv hub list names its files");
    return tc_error_in_file(error, hub->path);
}

/* The file's own address and the list of files tell of the same content. What is no hash at all is
 * left to the cache to refuse. */
static bool check_facts(const struct pull *pull, const struct tc_remote_facts *facts,
                        const struct tc_hub_file *file, struct tc_error *error) {
    struct tc_text hash = tc_text_of(facts->etag);
    if (strcmp(facts->commit, pull->info.commit) != 0 || facts->size != file->size)
        return tc_fail(error, TC_IO, "changed", "the repository changed while it was read");
    if (strcmp(facts->etag, file->hash) == 0 || !(tc_is_hex(hash, 40) || tc_is_hex(hash, 64)))
        return true;
    return tc_fail(error, TC_IO, "changed",
                   "the Hub's list of files and the file itself have different hashes (%s and %s)",
                   file->hash, facts->etag);
}

static void warn_of_copy(const struct pull *pull, const char *address) {
    struct tc_buffer line = {0};
    if (pull->hub->common.quiet)
        return;
    tc_buffer_add_string(&line, "tconv: warning: ");
    tc_buffer_add_visible(&line, tc_text_of(address));
    tc_buffer_add_string(&line, ": the server gives no ranges: all of it was fetched at once\n");
    report_err(&line);
}

static void tell_of_wait(const struct tc_hub_cache *cache) {
    struct tc_buffer line = {0};
    tc_buffer_add_string(&line, "tconv: note: ");
    tc_buffer_add_visible(&line, tc_text_of(cache->root));
    tc_buffer_add_string(&line, ": another process fetches the same file: waiting for it\n");
    report_err(&line);
}

/* By ranges; from a server that has none, as a whole. */
static bool fetch_file(struct pull *pull, const char *address, const struct tc_hub_file *file,
                       struct tc_error *error) {
    const struct tc_watch watch = {step, pull};
    struct tc_remote *remote = pull->hub->remote;
    struct tc_input *input = tc_remote_open_unread(remote, address, error);
    uint64_t done = pull->done;
    uint64_t fetched = 0;
    const struct tc_remote_facts *told = input ? tc_remote_facts_of(input) : NULL;
    if (input && !told)
        tc_fail(error, TC_IO, "answer", "the Hub says nothing of the file");
    const struct tc_remote_facts facts = told ? *told : (struct tc_remote_facts){0};
    bool ok = told && check_facts(pull, &facts, file, error) &&
              tc_hub_cache_fetch(&pull->cache, &facts, input, file->path, &watch, &fetched, error);
    tc_input_close(input);
    if (!ok && error->reason == TC_REASON_NO_RANGES) {
        *error = (struct tc_error){0};
        pull->done = done;
        input = tc_remote_open(remote, address, error);
        if (input && input->copied)
            warn_of_copy(pull, address);
        ok = input &&
             tc_hub_cache_fetch(&pull->cache, &facts, input, file->path, &watch, &fetched, error);
        tc_input_close(input);
    }
    pull->fetched += fetched;
    return ok;
}

static bool fetch_files(struct pull *pull, struct tc_error *error) {
    bool ok = true;
    for (size_t i = 0; i < pull->files.count && ok; i++) {
        const struct tc_hub_file *file = &pull->files.list[i];
        char *address = hub_address(pull->hub, file->path, error);
        ok = address && fetch_file(pull, address, file, error);
        if (!ok && address)
            tc_error_in_file(error, address);
        free(address);
    }
    return ok;
}

/* A copy of one file, from the cache. */
static bool copy_one(struct pull *pull, struct tc_publish *publish, const char *path,
                     const char *name, struct tc_error *error) {
    char *place = tc_hub_cache_path(&pull->cache, pull->info.commit, path);
    struct tc_input *input = place ? tc_input_open(place, NULL, error) : NULL;
    struct tc_outfile *out = input ? tc_outfile_open(publish, name, error) : NULL;
    bool ok =
        out && tc_outfile_copy(out, input, 0, input->size, error) && tc_outfile_seal(out, error);
    if (!place)
        tc_fail_memory(error);
    tc_input_close(input);
    free(place);
    return ok;
}

/* Makes the folders of a path that the path before it, in the order of their bytes, did
 * not lie in. */
static bool add_folders(struct tc_publish *publish, const char *before, const char *path,
                        struct tc_error *error) {
    bool ok = true;
    for (const char *slash = path; ok && (slash = strchr(slash, '/')) != NULL; slash++) {
        size_t length = (size_t)(slash - path);
        if (strncmp(before, path, length + 1) == 0)
            continue;
        char *name = strndup(path, length);
        ok = name ? tc_publish_add_folder(publish, name, 0777, error) : tc_fail_memory(error);
        free(name);
    }
    return ok;
}

/* A copy is a file, or a folder: with folders in it, it is made anew and appears as a
 * whole. Whether it can be made is known before anything is fetched. */
static bool begin_copy(struct pull *pull, struct tc_error *error) {
    const struct hub *hub = pull->hub;
    size_t prefix = strlen(hub->path) + (hub->path[0] != '\0');
    pull->folder = !pull->one || hub->output[strlen(hub->output) - 1] == '/';
    for (size_t i = 0; i < pull->files.count && !pull->one; i++)
        pull->nested |= strchr(pull->files.list[i].path + prefix, '/') != NULL;
    /* What the files of a folder are called the repository says, and not the user: they take the
     * place of none that is there. */
    bool theirs = pull->folder && !pull->one;
    struct tc_publish_options options = {.whole_folder = pull->nested, .no_clobber = theirs};
    bool ok = tc_publish_begin(&pull->publish, hub->output, pull->folder, options, error);
    for (size_t i = 0; i < pull->files.count && ok && theirs && !pull->nested; i++)
        ok = tc_publish_check(&pull->publish, pull->files.list[i].path + prefix, NULL, 0, error);
    if (ok || !theirs || error->class != TC_USAGE)
        return ok;
    error->hint[0] = '\0';
    return tc_error_hint(error, "name a folder that is not there yet, or is empty");
}

static bool copy_out(struct pull *pull, struct tc_error *error) {
    const struct hub *hub = pull->hub;
    size_t prefix = strlen(hub->path) + (hub->path[0] != '\0');
    const char *before = "";
    bool ok = true;
    for (size_t i = 0; i < pull->files.count && ok; i++) {
        const char *path = pull->files.list[i].path;
        const char *name =
            pull->one ? tc_path_name(pull->folder ? path : hub->output) : path + prefix;
        ok = (!pull->nested || add_folders(&pull->publish, before, name, error)) &&
             copy_one(pull, &pull->publish, path, name, error);
        before = name;
    }
    return ok && tc_publish_commit(&pull->publish, error);
}

static void print_result(const struct pull *pull, const char *where) {
    struct tc_buffer out = {0};
    if (pull->hub->common.json) {
        struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_DISPLAY};
        struct tc_buffer name = {0};
        hub_add_name(&name, pull->hub);
        tc_json_open_object(&json, NULL);
        tc_json_add_text(&json, "repo", (struct tc_text){name.bytes, name.length});
        tc_json_add_string(&json, "commit", pull->info.commit);
        tc_json_add_string(&json, "path", where);
        tc_json_add_number(&json, "files", pull->files.count);
        tc_json_add_number(&json, "bytes", pull->total);
        tc_json_add_number(&json, "fetched", pull->fetched);
        tc_json_end_line(&json);
        tc_buffer_release(&name);
    } else {
        tc_buffer_add_visible(&out, tc_text_of(where));
        tc_buffer_add_string(&out, "\n");
    }
    report_out(&out);
}

bool hub_pull(struct hub *hub, struct tc_error *error) {
    struct pull pull = {.hub = hub, .cache = {.fd = -1, .repo = -1}};
    char *where = NULL;
    bool ok = tc_hub_cache_open(&pull.cache, hub->cache, &hub->place, error) &&
              tc_hub_describe(hub->remote, &hub->place, &pull.info, error) &&
              choose_files(&pull, error);
    pull.cache.waits = hub->common.quiet ? NULL : tell_of_wait;
    bool copies = ok && hub->output;
    ok = ok && (!copies || begin_copy(&pull, error));
    report_progress_start(&pull.progress, &hub->progress, hub->common.quiet);
    ok = ok && fetch_files(&pull, error) &&
         tc_hub_cache_set_ref(&pull.cache, hub->place.revision, pull.info.commit, error);
    report_progress_end(&pull.progress, ok);
    ok = ok && (!copies || copy_out(&pull, error));
    if (copies)
        tc_publish_end(&pull.publish);
    if (ok) {
        where = hub->output ? strdup(hub->output)
                            : tc_hub_cache_path(&pull.cache, pull.info.commit, hub->path);
        ok = where ? true : tc_fail_memory(error);
    }
    if (ok)
        print_result(&pull, where);
    free(where);
    tc_hub_files_release(&pull.files);
    tc_hub_info_release(&pull.info);
    tc_hub_cache_close(&pull.cache);
    return ok && report_flush(error);
}
