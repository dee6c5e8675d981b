#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/addresses.h"
#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/hub/hub.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "cmd/sandbox_probe.h"
#include "cmd/temporary_folder.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/near.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/environment.h"
#include "core/remote/hub.h"
#include "core/remote/hub_cache.h"
#include "core/remote/protocol.h"
#include "core/remote/remote.h"

enum action { HUB_LIST, HUB_INFO, HUB_PULL, HUB_PUSH, HUB_CONVERT, HUB_ACTIONS };

static const struct hub_action {
    const char *name;
    size_t least; /* arguments behind it */
    size_t most;
    const char *usage;
} actions[HUB_ACTIONS] = {
    [HUB_LIST] = {"list", 1, 2, "REPO [PATH]"},
    [HUB_INFO] = {"info", 1, 1, "REPO"},
    [HUB_PULL] = {"pull", 1, 2, "REPO [PATH]"},
    [HUB_PUSH] = {"push", 2, 3, "REPO FILE|FOLDER [PATH]"},
    [HUB_CONVERT] = {"convert", 2, 3, "REPO PATH [OUT]"},
};

bool hub_is_action(const char *name) {
    for (size_t i = 0; i < HUB_ACTIONS; i++)
        if (strcmp(actions[i].name, name) == 0)
            return true;
    return false;
}

char *hub_address(const struct hub *hub, const char *path, struct tc_error *error) {
    struct tc_buffer address = {0};
    tc_buffer_addf(&address, "hf://%s/%s@", hub->place.type, hub->place.repo);
    for (const char *at = hub->place.revision; *at; at++)
        tc_buffer_add(&address, *at == '/' ? "%2F" : at, *at == '/' ? 3 : 1);
    tc_buffer_addf(&address, "/%s", path);
    tc_buffer_add(&address, "", 1);
    if (tc_buffer_ok(&address, error))
        return address.bytes;
    tc_buffer_release(&address);
    return NULL;
}

void hub_add_name(struct tc_buffer *out, const struct hub *hub) {
    if (strcmp(hub->place.type, "models") != 0)
        tc_buffer_addf(out, "%s/", hub->place.type);
    tc_buffer_add_string(out, hub->place.repo);
}

/* list */

static void add_file_json(struct tc_json_writer *json, const struct tc_hub_file *file) {
    tc_json_open_object(json, NULL);
    tc_json_add_string(json, "path", file->path);
    tc_json_add_number(json, "size", file->size);
    tc_json_add_string(json, file->lfs ? "sha256" : "git", file->hash);
    tc_json_close(json);
}

static bool list(struct hub *hub, struct tc_error *error) {
    struct tc_hub_files files;
    struct tc_buffer out = {0};
    struct tc_hub_place place = hub->place;
    place.path = hub->path;
    bool ok = tc_hub_list(hub->remote, &place, true, &files, error);
    if (ok && hub->common.json) {
        struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_DISPLAY};
        struct tc_buffer name = {0};
        hub_add_name(&name, hub);
        tc_json_open_object(&json, NULL);
        tc_json_add_text(&json, "repo", (struct tc_text){name.bytes, name.length});
        tc_json_add_string(&json, "revision", hub->place.revision);
        tc_json_open_array(&json, "files");
        for (size_t i = 0; i < files.count; i++)
            if (!files.list[i].folder)
                add_file_json(&json, &files.list[i]);
        tc_json_end_line(&json);
        out.failed |= name.failed;
        tc_buffer_release(&name);
    }
    for (size_t i = 0; ok && !hub->common.json && i < files.count; i++) {
        if (files.list[i].folder)
            continue;
        struct tc_buffer size = {0};
        report_size(&size, files.list[i].size);
        tc_buffer_addf(&out, "%10.*s  ", (int)size.length, size.bytes ? size.bytes : "");
        tc_buffer_add_visible(&out, tc_text_of(files.list[i].path));
        tc_buffer_add_string(&out, "\n");
        tc_buffer_release(&size);
    }
    ok = ok && tc_buffer_ok(&out, error);
    if (ok)
        report_out(&out);
    tc_buffer_release(&out);
    tc_hub_files_release(&files);
    return ok && report_flush(error);
}

/* info */

static void info_json(struct tc_buffer *out, const struct hub *hub, const struct tc_hub_info *info,
                      size_t files, uint64_t bytes) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "repo", info->id);
    tc_json_add_text(&json, "type", (struct tc_text){hub->place.type, strlen(hub->place.type) - 1});
    tc_json_add_string(&json, "revision", hub->place.revision);
    tc_json_add_string(&json, "commit", info->commit);
    tc_json_add_boolean(&json, "private", info->private);
    if (info->gated)
        tc_json_add_string(&json, "gated", info->gated);
    if (info->modified)
        tc_json_add_string(&json, "modified", info->modified);
    tc_json_add_number(&json, "downloads", info->downloads);
    tc_json_add_number(&json, "likes", info->likes);
    tc_json_open_array(&json, "tags");
    for (size_t i = 0; i < info->tag_count; i++)
        tc_json_add_string(&json, NULL, info->tags[i]);
    tc_json_close(&json);
    tc_json_add_number(&json, "files", files);
    tc_json_add_number(&json, "bytes", bytes);
    tc_json_end_line(&json);
}

static void info_text(struct tc_buffer *out, const struct hub *hub, const struct tc_hub_info *info,
                      size_t files, uint64_t bytes) {
    tc_buffer_add_visible(out, tc_text_of(info->id));
    tc_buffer_addf(out, ": %.*s, %zu file%s, ", (int)strlen(hub->place.type) - 1, hub->place.type,
                   files, files == 1 ? "" : "s");
    report_size(out, bytes);
    tc_buffer_addf(out, "%s%s\n", info->private ? ", private" : "", info->gated ? ", gated" : "");
    tc_buffer_add_string(out, "revision   ");
    tc_buffer_add_visible(out, tc_text_of(hub->place.revision));
    tc_buffer_addf(out, "\ncommit     %s\n", info->commit);
    if (info->modified) {
        tc_buffer_add_string(out, "modified   ");
        tc_buffer_add_visible(out, tc_text_of(info->modified));
        tc_buffer_add_string(out, "\n");
    }
    tc_buffer_addf(out, "downloads  %llu\nlikes      %llu\n", (unsigned long long)info->downloads,
                   (unsigned long long)info->likes);
    if (info->tag_count)
        tc_buffer_add_string(out, "tags      ");
    for (size_t i = 0; i < info->tag_count; i++) {
        tc_buffer_add_string(out, " ");
        tc_buffer_add_visible(out, tc_text_of(info->tags[i]));
    }
    if (info->tag_count)
        tc_buffer_add_string(out, "\n");
}

static bool info(struct hub *hub, struct tc_error *error) {
    struct tc_hub_info info;
    struct tc_hub_files files = {0};
    struct tc_buffer out = {0};
    size_t count = 0;
    uint64_t bytes = 0;
    bool ok = tc_hub_describe(hub->remote, &hub->place, &info, error);
    struct tc_hub_place place = hub->place;
    place.path = "";
    if (ok) {
        place.revision = info.commit;
        ok = tc_hub_list(hub->remote, &place, true, &files, error);
    }
    for (size_t i = 0; ok && i < files.count; i++) {
        count += !files.list[i].folder;
        bytes += files.list[i].size;
    }
    if (ok && hub->common.json)
        info_json(&out, hub, &info, count, bytes);
    else if (ok)
        info_text(&out, hub, &info, count, bytes);
    ok = ok && tc_buffer_ok(&out, error);
    if (ok)
        report_out(&out);
    tc_buffer_release(&out);
    tc_hub_files_release(&files);
    tc_hub_info_release(&info);
    return ok && report_flush(error);
}

/* What the arguments say */

static const char *type_of(const struct hub *hub) {
    static const char *const types[] = {NULL, "models", "datasets", "spaces"};
    return types[hub->type];
}

static bool take_place(struct hub *hub, const struct arguments *arguments, enum action action,
                       struct tc_error *error) {
    hub->endpoint = tc_hub_endpoint();
    if (!hub->endpoint)
        return tc_fail_memory(error);
    if (!tc_hub_parse_repo(&hub->place, arguments->names[1], type_of(hub), hub->endpoint, error))
        return false;
    if (hub->revision && hub->place.has_revision && strcmp(hub->revision, hub->place.revision) != 0)
        return tc_fail(error, TC_USAGE, "usage", "REPO names another revision than --revision");
    if (hub->revision) {
        hub->place.revision = hub->revision;
        hub->place.has_revision = true;
        if (!tc_hub_path_is_safe(tc_text_of(hub->revision)))
            return tc_fail(error, TC_USAGE, "address", "the revision has no valid name");
    }
    size_t last = action == HUB_PUSH ? 3 : 2;
    /* As users of deathtensors type it: hub-convert REPO PATH OUT. */
    if (action == HUB_CONVERT && arguments->count > 3) {
        if (hub->output)
            return tc_fail(error, TC_USAGE, "usage", "the result's path is given twice");
        hub->output = arguments->names[3];
    }
    hub->file = action == HUB_PUSH ? arguments->names[2] : NULL;
    hub->path = arguments->count > last ? arguments->names[last] : hub->place.path;
    size_t length = strlen(hub->path);
    bool slash = length && hub->path[length - 1] == '/';
    if (length && !tc_hub_path_is_safe((struct tc_text){hub->path, length - slash})) {
        tc_fail(error, TC_USAGE, "address", "not a path below a repository");
        return tc_error_in_file(error, hub->path);
    }
    /* For push it says that the file goes into that folder. */
    if (slash && action != HUB_PUSH) {
        hub->path = hub->trimmed = tc_path_trim(hub->path);
        return hub->path || tc_fail_memory(error);
    }
    return true;
}

static bool check_options(const struct hub *hub, enum action action, struct tc_error *error) {
    bool sends = action == HUB_PUSH || action == HUB_CONVERT;
    if (!sends && (hub->private || hub->create_pr || hub->message))
        return tc_fail(error, TC_USAGE, "usage",
                       "--private, --create-pr and --message are for push and convert");
    if (action != HUB_CONVERT && (hub->delete_original || hub->no_spool))
        return tc_fail(error, TC_USAGE, "usage",
                       "--delete-original and --no-spool are for convert");
    if (hub->plan.write.compress && !sends)
        return tc_fail(error, TC_USAGE, "usage", "--compress is for push and convert");
    if (hub->output && action != HUB_PULL && action != HUB_CONVERT)
        return tc_fail(error, TC_USAGE, "usage", "-o is for pull and convert");
    return report_progress_check(&hub->progress, error);
}

static bool find_action(const struct arguments *arguments, enum action *action,
                        struct tc_error *error) {
    const char *name = arguments->count ? arguments->names[0] : "";
    struct tc_near near;
    tc_near_init(&near, tc_text_of(name));
    for (size_t i = 0; i < HUB_ACTIONS; i++) {
        tc_near_try(&near, tc_text_of(actions[i].name));
        if (strcmp(actions[i].name, name) != 0)
            continue;
        *action = (enum action)i;
        if (arguments->count > actions[i].least && arguments->count <= actions[i].most + 1)
            return true;
        tc_fail(error, TC_USAGE, "usage", "the wrong number of arguments");
        return tc_error_hint(error, "tconv hub %s %s", name, actions[i].usage);
    }
    tc_fail(error, TC_USAGE, "usage", name[0] ? "no such action: %s" : "no action given%s", name);
    return tc_near_hint(&near, error, "list, info, pull, push and convert are the actions");
}

static bool confine(const struct hub *hub, enum action action, const char *folder,
                    struct tc_error *error) {
    struct sandbox sandbox = common_sandbox(&hub->common);
    sandbox.folder = action == HUB_PULL ? hub->cache : folder;
    sandbox.packing = hub->plan.write.compress;
    if (action == HUB_PULL)
        sandbox_add_output(&sandbox, hub->output);
    return sandbox_enter(&sandbox, &hub->file, hub->file ? 1 : 0, error);
}

/* The cache's folder is made before the sandbox, which is to allow it. */
static bool make_cache(struct hub *hub, struct tc_error *error) {
    hub->cache = tc_hub_cache();
    if (hub->cache)
        return tc_hub_cache_make(hub->cache, error);
    tc_fail(error, TC_USAGE, "hub-cache", "there is no folder for the Hub's cache");
    return tc_error_hint(error, "set HF_HOME or HF_HUB_CACHE");
}

static bool act(struct hub *hub, enum action action, const char *folder, struct tc_error *error) {
    switch (action) {
    case HUB_LIST:
        return list(hub, error);
    case HUB_INFO:
        return info(hub, error);
    case HUB_PULL:
        return hub_pull(hub, error);
    case HUB_PUSH:
        return hub_push(hub, folder, error);
    case HUB_CONVERT:
        return hub_convert(hub, folder, error);
    case HUB_ACTIONS:
        break;
    }
    return tc_fail(error, TC_INTERNAL, "hub", "no such action");
}

static bool run(struct hub *hub, const struct arguments *arguments, struct tc_error *error) {
    enum action action = HUB_LIST;
    struct tc_buffer name = {0};
    /* A commit's message may be an address, and is nobody's secret. */
    if (hub->message)
        hub->message = addresses_whole(&arguments->addresses, hub->message);
    struct temporary_folder folder = {0};
    bool ok = find_action(arguments, &action, error) && check_options(hub, action, error) &&
              take_place(hub, arguments, action, error);
    if (ok && hub->common.requests > TC_REMOTE_MOST_JOBS)
        ok = tc_fail(error, TC_USAGE, "option-value", "--requests: at most %u requests at once",
                     TC_REMOTE_MOST_JOBS);
    if (ok && action == HUB_PULL)
        ok = make_cache(hub, error);
    if (ok &&
        ((action == HUB_CONVERT && !hub->no_spool) || (action == HUB_PUSH && hub_converts(hub))))
        ok = temporary_folder_make(&folder, error);
    tc_buffer_addf(&name, "%s/%s", hub->place.type ? hub->place.type : "",
                   hub->place.repo ? hub->place.repo : "");
    tc_buffer_add(&name, "", 1);
    struct tc_fetcher_options options = {
        .jobs = hub->common.requests ? (unsigned)hub->common.requests : TC_REMOTE_JOBS,
        .repository = name.bytes,
        .uploads = action == HUB_PUSH || action == HUB_CONVERT,
        .confined = sandbox_probe_fetcher};
    ok = ok && tc_buffer_ok(&name, error);
    if (ok)
        ok = (hub->remote = tc_remote_start(&options, error)) != NULL;
    hub->common.format.remote = hub->remote;
    ok = ok && confine(hub, action, folder.path, error) &&
         (act(hub, action, folder.path, error) || tc_error_in_file(error, hub->place.repo));
    tc_remote_end(hub->remote);
    temporary_folder_remove(&folder);
    tc_buffer_release(&name);
    return ok;
}

static void add_options(struct option_table *table, struct hub *hub) {
    static const char *const types[] = {"auto", "model", "dataset", "space", NULL};
    const struct option rows[] = {
        CHOICE_OPTION("repo-type", &hub->type, types, .argument = "model|dataset|space",
                      .help = "what REPO is, where its name does not say (default: a model)"),
        TEXT_OPTION("revision", &hub->revision, .argument = "REV",
                    .help = "a branch, tag or commit (default: main)"),
        TEXT_OPTION("output", &hub->output, .letter = 'o', .argument = "OUT",
                    .help =
                        "pull: copy to this file or folder; convert: the result's path in REPO"),
        FLAG_OPTION("private", &hub->private, .help = "a repository that is made is private"),
        FLAG_OPTION("create-pr", &hub->create_pr, .help = "as a pull request"),
        TEXT_OPTION("message", &hub->message, .letter = 'm', .argument = "TEXT",
                    .help = "the commit's message"),
        FLAG_OPTION("delete-original", &hub->delete_original,
                    .help = "convert: remove PATH once the result is confirmed to be there"),
        FLAG_OPTION("no-spool", &hub->no_spool,
                    .help = "convert: no temporary file; PATH is read and converted twice"),
        common_compress_option(table, &hub->plan.write.compress),
        SIZE_OPTION("shard-size", &hub->plan.shard_size, .argument = "SIZE",
                    .help = "several files of at most SIZE each, and their index"),
        CHOICE_OPTION(
            "progress", &hub->progress.mode, report_progress_modes, .argument = "HOW",
            .help = "auto (default): a bar on a terminal; bar, json: lines for programs; none"),
        DESCRIPTOR_OPTION("progress-fd", &hub->progress.fd, .argument = "N",
                          .help = "descriptor for --progress=json (default: standard error)"),
    };
    options_add(table, "The Hub:", rows, OPTION_COUNT(rows));
    common_add_options(table, &hub->common);
    /* Which addresses are asked for follows from REPO. */
    table->remote = NULL;
}

int cmd_hub(int argc, char **argv) {
    struct hub hub = {.common = COMMON_DEFAULTS, .plan.write.checksum = true};
    struct option_table table;
    struct arguments arguments = {0};
    struct tc_error error = {0};
    options_init(&table);
    add_options(&table, &hub);
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && hub.common.help)
        help_print(hub.common.help,
                   "tconv hub list REPO [PATH]\n"
                   "       tconv hub info REPO\n"
                   "       tconv hub pull REPO [PATH] [-o OUT]\n"
                   "       tconv hub push REPO FILE|FOLDER [PATH]\n"
                   "       tconv hub convert REPO PATH [[-o] OUT]",
                   "Lists, fetches, sends and converts files of the Hugging Face Hub. REPO is\n"
                   "[datasets/|spaces/]NS/NAME[@REVISION]. What is pulled goes into the Hub's own\n"
                   "cache, where Python's client finds it, and its path is printed. push converts\n"
                   "first where the extensions differ. The token is that of HF_TOKEN or the Hub's\n"
                   "own client.",
                   &table);
    else if (ok)
        ok = run(&hub, &arguments, &error);
    int code = ok ? 0 : report_error(&error, hub.common.json);
    tc_hub_place_release(&hub.place);
    free(hub.endpoint);
    free(hub.cache);
    free(hub.trimmed);
    arguments_release(&arguments);
    options_release(&table);
    return code;
}
