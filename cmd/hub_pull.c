/* tconv hub pull: files of a repository into the Hub's cache, or to a place of their own. */
#include <stdlib.h>
#include <string.h>

#include "cmd/hub.h"
#include "cmd/report.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/io/progress.h"
#include "core/io/publish.h"
#include "core/remote/address.h"
#include "core/remote/environment.h"
#include "core/remote/hub.h"
#include "core/remote/hub_cache.h"
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

static bool fetch_files(struct pull *pull, struct tc_error *error) {
    const struct tc_watch watch = {step, pull};
    bool ok = true;
    for (size_t i = 0; i < pull->files.count && ok; i++) {
        const struct tc_hub_file *file = &pull->files.list[i];
        char *address = hub_address(pull->hub, file->path, error);
        struct tc_input *input = address ? tc_remote_open(pull->hub->remote, address, error) : NULL;
        uint64_t fetched = 0;
        ok = input != NULL;
        if (ok && (strcmp(tc_remote_facts_of(input)->commit, pull->info.commit) != 0 ||
                   input->size != file->size))
            ok = tc_fail(error, TC_IO, "changed", "the repository changed while it was read");
        ok = ok && tc_hub_cache_fetch(&pull->cache, input, file->path, &watch, &fetched, error);
        pull->fetched += fetched;
        tc_input_close(input);
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

/* A file, or a folder without folders in it. */
static bool copy_out(struct pull *pull, struct tc_error *error) {
    struct hub *hub = pull->hub;
    struct tc_publish publish;
    size_t prefix = strlen(hub->path) + (hub->path[0] != '\0');
    bool folder = !pull->one || hub->output[strlen(hub->output) - 1] == '/';
    bool ok =
        tc_publish_begin(&publish, hub->output, folder, (struct tc_publish_options){0}, error);
    for (size_t i = 0; i < pull->files.count && ok; i++) {
        const char *path = pull->files.list[i].path;
        const char *name = pull->one ? tc_path_name(folder ? path : hub->output) : path + prefix;
        if (strchr(name, '/')) {
            ok = tc_fail(error, TC_UNSUPPORTED, "folders",
                         "-o takes files of one folder, and this one has others in it");
            tc_error_hint(error, "without -o they go into the Hub's cache; or name one with PATH");
            ok = tc_error_in_file(error, path);
        }
        ok = ok && copy_one(pull, &publish, path, name, error);
    }
    ok = ok && tc_publish_commit(&publish, error);
    tc_publish_end(&publish);
    return ok;
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
    report_progress_start(&pull.progress, &hub->progress, hub->common.quiet);
    ok = ok && fetch_files(&pull, error) &&
         tc_hub_cache_set_ref(&pull.cache, hub->place.revision, pull.info.commit, error);
    report_progress_end(&pull.progress, ok);
    ok = ok && (!hub->output || copy_out(&pull, error));
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
