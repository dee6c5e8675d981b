/* Which addresses the command may ask its fetcher for: core/remote/fetch.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/fetch.h"
#include "core/remote/header.h"
#include "core/remote/protocol.h"

/* The folder that an address lies in, with its slash; 0: a host alone has none, and whatever is
 * added to that may be another host. */
static size_t folder_length(const char *address) {
    const char *host = strstr(address, "://") + 3;
    const char *slash = strrchr(host, '/');
    return slash ? (size_t)(slash + 1 - address) : 0;
}

/* What may follow a folder: names and slashes, and nothing that leaves it. */
static bool is_below(const char *rest) {
    if (strpbrk(rest, "?#\\") || strcasestr(rest, "%2e%2e") || strcasestr(rest, "%2f") ||
        strcasestr(rest, "%5c") || strcasestr(rest, ".%2e") || strcasestr(rest, "%2e.") ||
        strstr(rest, "..;"))
        return false;
    return tc_hub_path_is_safe(tc_text_of(rest));
}

static char *join(const char *folder, size_t length, const char *rest) {
    char *joined = NULL;
    return asprintf(&joined, "%.*s%s", (int)length, folder, rest) < 0 ? NULL : joined;
}

/* The address to fetch for one that the command names; NULL: it may not have it. */
static char *whole_address(const struct fetcher *fetcher, const char *shown) {
    for (size_t i = 0; i < fetcher->options->count; i++)
        if (strcmp(fetcher->options->addresses[i].shown, shown) == 0)
            return strdup(fetcher->options->addresses[i].whole);
    for (size_t i = 0; i < fetcher->options->count; i++) {
        const struct tc_remote_address *address = &fetcher->options->addresses[i];
        size_t folder = folder_length(address->shown);
        if (folder && !tc_address_is_hub(shown) && strncmp(shown, address->shown, folder) == 0 &&
            is_below(shown + folder)) {
            /* The query was for the one file alone. */
            size_t path = strcspn(address->whole, "?#");
            char *bare = strndup(address->whole, path);
            char *whole = bare ? join(bare, folder_length(bare), shown + folder) : NULL;
            free(bare);
            return whole;
        }
    }
    return NULL;
}

static bool same_repository(const struct tc_hub_place *a, const struct tc_hub_place *b) {
    return strcmp(a->type, b->type) == 0 && strcmp(a->repo, b->repo) == 0 &&
           strcmp(a->revision, b->revision) == 0;
}

/* Whether the user named a place in this repository. */
static bool repository_is_named(const struct fetcher *fetcher, const struct tc_hub_place *place) {
    char name[512];
    snprintf(name, sizeof name, "%s/%s", place->type, place->repo);
    if (fetcher->options->repository && strcmp(fetcher->options->repository, name) == 0)
        return true;
    for (size_t i = 0; i < fetcher->options->count; i++) {
        struct tc_hub_place given;
        struct tc_error ignored = {0};
        const char *shown = fetcher->options->addresses[i].shown;
        bool parsed = tc_address_is_hub(shown)
                          ? tc_hub_parse(&given, shown, &ignored)
                          : tc_hub_parse_web(&given, shown, fetcher->endpoint, &ignored);
        bool same = parsed && same_repository(&given, place);
        tc_hub_place_release(&given);
        if (same)
            return true;
    }
    return false;
}

static const char *type_prefix(const char *type) {
    return strcmp(type, "datasets") == 0 ? "datasets/"
           : strcmp(type, "spaces") == 0 ? "spaces/"
                                         : "";
}

/* The address at which the Hub gives a file of a repository. */
static bool resolve_hub(struct fetch_job *job, const struct tc_hub_place *place) {
    struct fetcher *fetcher = job->fetcher;
    struct tc_buffer url = {0};
    char *pin = NULL;
    if (asprintf(&pin, "%s/%s@%s", place->type, place->repo, place->revision) < 0)
        pin = NULL;
    const struct fetch_pin *known = pin ? fetch_find_pin(fetcher, pin) : NULL;
    tc_buffer_addf(&url, "%s/%s%s/resolve/", fetcher->endpoint, type_prefix(place->type),
                   place->repo);
    job->file->revision = url.length;
    tc_address_encode(&url, tc_text_of(known ? known->commit : place->revision), true);
    job->file->behind = url.length;
    tc_buffer_add_string(&url, "/");
    tc_address_encode(&url, tc_text_of(place->path), false);
    tc_buffer_add(&url, "", 1);
    job->file->pin = pin;
    job->file->url = url.bytes;
    job->kind = FETCH_OPEN_HUB;
    job->method = "HEAD";
    job->trusted = true;
    return (pin && !url.failed) || fetch_fail(job, TC_IO, TC_REMOTE_MEMORY, "no memory");
}

static bool not_named(struct fetch_job *job) {
    fetch_fail(job, TC_UNSAFE, TC_REMOTE_ADDRESS,
               "this address is not one of those on the command line, nor beside them");
    return false;
}

static bool resolve_place(struct fetch_job *job, struct tc_hub_place *place) {
    bool ok = repository_is_named(job->fetcher, place) || not_named(job);
    if (ok && !place->path[0]) {
        fetch_fail(job, TC_USAGE, TC_REMOTE_ADDRESS, "this is a repository, not a file of it");
        ok = tc_error_hint(&job->error, "tconv hub list names its files");
    }
    ok = ok && resolve_hub(job, place);
    tc_hub_place_release(place);
    return ok;
}

/* Finds the first address of a file that is to be opened. */
bool fetch_resolve(struct fetch_job *job) {
    struct fetcher *fetcher = job->fetcher;
    struct tc_hub_place place = {0};
    const char *address = job->file->address;
    if (tc_address_is_hub(address)) {
        if (!tc_hub_parse(&place, address, &job->error)) {
            job->code = TC_REMOTE_ADDRESS;
            return false;
        }
        return resolve_place(job, &place);
    }
    char *whole = whole_address(fetcher, address);
    if (!whole)
        return not_named(job);
    if (tc_hub_parse_web(&place, whole, fetcher->endpoint, &job->error)) {
        free(whole);
        return resolve_place(job, &place);
    }
    job->file->url = whole;
    job->method = "GET";
    job->code = TC_REMOTE_ADDRESS;
    return job->error.class == TC_OK;
}

/* Whether a target has a part that leads upwards, however it is written. */
static bool leads_up(const char *target) {
    size_t length = strcspn(target, "?");
    for (const char *at = target; at < target + length; at += strcspn(at, "/?") + 1)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '\0' || strchr("/?;", at[2])))
            return true;
    const char *encoded = strcasestr(target, "%2e");
    return encoded && encoded < target + length;
}

/* Whether it is the list of files of a repository that an address names. */
static bool listing_is_allowed(struct fetch_job *job, const char *target) {
    struct fetcher *fetcher = job->fetcher;
    for (size_t i = 0; i < fetcher->options->count; i++) {
        struct tc_hub_place place;
        struct tc_error ignored = {0};
        const char *shown = fetcher->options->addresses[i].shown;
        struct tc_buffer api = {0};
        if (tc_address_is_hub(shown) ? tc_hub_parse(&place, shown, &ignored)
                                     : tc_hub_parse_web(&place, shown, fetcher->endpoint, &ignored))
            tc_buffer_addf(&api, "/api/%s/%s/tree/", place.type, place.repo);
        tc_hub_place_release(&place);
        bool allowed = api.length && !api.failed && strcmp(job->method, "GET") == 0 &&
                       strncmp(target, api.bytes, api.length) == 0 && !leads_up(target);
        tc_buffer_release(&api);
        if (allowed)
            return true;
    }
    return not_named(job);
}

static bool begins(const char *target, const char *front) {
    return strncmp(target, front, strlen(front)) == 0;
}

/* A file is sent to the endpoint, or where its answers lead to; nothing else is asked of others. */
static bool sending_is_allowed(struct fetch_job *job, const char *target) {
    return (job->fetcher->options->uploads && job->has_body && fetch_store_is_named(job, target)) ||
           not_named(job);
}

/* `target` behind /api/TYPE/NS/NAME: what it is, its files, and the two steps of a commit. */
static bool own_call_is_allowed(const struct fetch_job *job, const char *target) {
    if (strcmp(job->method, "GET") == 0)
        return !target[0] || target[0] == '?' || begins(target, "/revision/") ||
               begins(target, "/tree/");
    return job->fetcher->options->uploads && strcmp(job->method, "POST") == 0 &&
           (begins(target, "/preupload/") || begins(target, "/commit/"));
}

bool fetch_call_is_allowed(struct fetch_job *job, const char *target) {
    const struct tc_fetcher_options *options = job->fetcher->options;
    char api[600];
    char lfs[600];
    const char *name = options->repository ? options->repository : "";
    const char *slash = strchr(name, '/');
    if (!slash)
        return listing_is_allowed(job, target);
    if (target[0] != '/')
        return sending_is_allowed(job, target);
    snprintf(api, sizeof api, "/api/%s", name);
    char type[32];
    snprintf(type, sizeof type, "%.*s", (int)(slash - name), name);
    snprintf(lfs, sizeof lfs, "/%s%s.git/info/lfs/", type_prefix(type), slash + 1);
    bool own = begins(target, api) && own_call_is_allowed(job, target + strlen(api));
    bool large = begins(target, lfs);
    bool sends =
        options->uploads && strcmp(job->method, "POST") == 0 &&
        (large || strcmp(target, "/api/repos/create") == 0 || fetch_target_is_named(job, target));
    job->names_stores = large && strcmp(target + strlen(lfs), "objects/batch") == 0;
    return ((own || sends) && !leads_up(target)) || not_named(job);
}

/* A line of a header that the command wants sent along. */
static bool line_is_allowed(const char *line, bool endpoint) {
    const char *colon = strchr(line, ':');
    struct tc_text name = {line, colon ? (size_t)(colon - line) : 0};
    if (endpoint)
        return begins(line, "Accept: ") || begins(line, "Content-Type: ");
    return name.length && !tc_header_is_of_the_wire(name);
}

bool fetch_lines_are_allowed(const char *target, const char *end) {
    for (const char *line = target + strlen(target) + 1; line < end; line += strlen(line) + 1)
        if (!line_is_allowed(line, target[0] == '/'))
            return false;
    return true;
}
