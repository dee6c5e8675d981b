/* What an answer means for its job: core/remote/fetch.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/answer.h"
#include "core/remote/environment.h"
#include "core/remote/fetch.h"
#include "core/remote/protocol.h"

static bool is_redirect(unsigned status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool wrong_range(struct fetch_job *job, const char *what) {
    fetch_fail(job, TC_IO, TC_REMOTE_WRONG_RANGE,
               "the server's answer to a range request is wrong: %s", what);
    return tc_error_hint(&job->error, "get the whole file first (curl -O), and name that");
}

static bool changed(struct fetch_job *job) {
    fetch_fail(job, TC_IO, TC_REMOTE_CHANGED, "the file changed while it was read");
    return tc_error_hint(&job->error, "start again; a commit (@REVISION) does not change");
}

/* The bytes of a file must all be of one version. An answer that does not tell its version,
 * where one before it did, may be of any, and so may one before it that told none. A weak ETag
 * stays the same where the bytes are others that mean the same: the date counts, too. */
static bool is_same(struct fetch_job *job) {
    struct fetch_file *file = job->file;
    const struct tc_answer *answer = &job->answer;
    bool strong = file->etag[0] && strncmp(file->etag, "W/", 2) != 0;
    bool same = !file->has_version || (strcmp(file->etag, answer->etag) == 0 &&
                                       (strong || strcmp(file->modified, answer->modified) == 0));
    if (!same)
        return changed(job);
    if (!file->has_version) {
        memcpy(file->etag, answer->etag, sizeof file->etag);
        memcpy(file->modified, answer->modified, sizeof file->modified);
        file->has_version = true;
    }
    return true;
}

static bool want(struct fetch_job *job, uint64_t length) {
    job->body_wanted = true;
    job->expected = length;
    return true;
}

static bool check_part(struct fetch_job *job) {
    const struct tc_answer *answer = &job->answer;
    if (answer->several || !answer->has_part || !answer->has_total)
        return wrong_range(job, "206 without the range that it has");
    if (answer->start != job->at || answer->end > job->end)
        return wrong_range(job, "it is another range than was asked for");
    if (job->file->opened && answer->total != job->file->facts.size)
        return changed(job);
    /* The last bytes that are wanted lie behind the end only where its end was not known. */
    if (job->end > answer->total && job->kind == FETCH_OPEN)
        job->end = answer->total;
    job->file->facts.size = answer->total;
    return is_same(job) && want(job, answer->end - answer->start);
}

static bool check_whole(struct fetch_job *job) {
    const struct tc_answer *answer = &job->answer;
    if (!job->whole) {
        fetch_fail(job, TC_IO, TC_REMOTE_NO_RANGES,
                   "the server sent the whole file where a range was asked for (HTTP 200)");
        return tc_error_hint(&job->error, "get the whole file first (curl -O), and name that");
    }
    if (job->file->facts.has_size && answer->has_length && answer->length != job->file->facts.size)
        return changed(job);
    return is_same(job) && want(job, answer->has_length ? answer->length : TC_MAX_SPOOL);
}

bool fetch_check_header(struct fetch_job *job) {
    const struct tc_answer *answer = &job->answer;
    if (answer->bad_length)
        return fetch_fail(job, TC_IO, TC_REMOTE_ANSWER, "the server tells a length that is none");
    if (job->kind == FETCH_CALL)
        return answer->status < 200 || is_redirect(answer->status) || want(job, job->most);
    if (answer->encoded && answer->status < 300)
        return fetch_fail(job, TC_IO, TC_REMOTE_ANSWER,
                          "the server packs the file, though it was asked not to");
    if (job->kind == FETCH_OPEN_HUB)
        return true;
    if (answer->status == 206)
        return check_part(job);
    if (answer->status == 200 && job->kind == FETCH_READ)
        return check_whole(job);
    return true;
}

struct fetch_pin *fetch_find_pin(struct fetcher *fetcher, const char *name) {
    struct fetch_pin *pin = fetcher->pins;
    while (pin && strcmp(pin->name, name) != 0)
        pin = pin->next;
    return pin;
}

/* The first answer says which commit a revision is; from then on it is that one. */
static bool check_commit(struct fetch_job *job) {
    struct fetch_file *file = job->file;
    const char *commit = job->answer.commit;
    struct fetch_pin *pin = fetch_find_pin(job->fetcher, file->pin);
    if (!commit[0])
        return true;
    if (!tc_is_hex(tc_text_of(commit), 40))
        return fetch_fail(job, TC_IO, TC_REMOTE_ANSWER, "the Hub names a commit that is none");
    if (pin && strcmp(pin->commit, commit) != 0)
        return changed(job);
    memcpy(file->facts.commit, commit, sizeof file->facts.commit);
    if (pin)
        return true;
    pin = calloc(1, sizeof *pin);
    char *name = pin ? strdup(file->pin) : NULL;
    if (!name) {
        free(pin);
        return fetch_fail(job, TC_IO, TC_REMOTE_MEMORY, "no memory");
    }
    *pin = (struct fetch_pin){.name = name, .next = job->fetcher->pins};
    memcpy(pin->commit, commit, sizeof pin->commit);
    job->fetcher->pins = pin;
    return true;
}

/* What is read of the file from here on is of the commit that the Hub named. */
static bool stay_with_commit(struct fetch_job *job) {
    struct fetch_file *file = job->file;
    char *url = NULL;
    if (!file->facts.commit[0])
        return true;
    if (asprintf(&url, "%.*s%s%s", (int)file->revision, file->url, file->facts.commit,
                 file->url + file->behind) < 0)
        return fetch_fail(job, TC_IO, TC_REMOTE_MEMORY, "no memory");
    free(file->url);
    file->url = url;
    file->behind = file->revision + strlen(file->facts.commit);
    return true;
}

static enum fetch_next opened(struct fetch_job *job) {
    struct fetch_file *file = job->file;
    struct tc_frame frame = {
        .kind = TC_FRAME_OPENED, .id = job->id, .number = file->number, .size = sizeof file->facts};
    file->opened = true;
    file->private = job->private;
    fetcher_send(job->fetcher, &frame, &file->facts);
    return FETCH_OVER;
}

/* Remembers where redirects led, to go there at once. */
static void keep_direct(struct fetch_job *job, const char *url) {
    char *direct = strdup(url);
    if (!direct)
        return;
    free(job->file->direct);
    job->file->direct = direct;
}

static void describe_denied(struct fetch_job *job) {
    const struct tc_answer *answer = &job->answer;
    bool hub = job->trusted; /* and no store that it leads to */
    bool token = job->fetcher->token != NULL;
    const char *ask = token ? "is the token (HF_TOKEN) still valid, and may it do that?"
                            : "set HF_TOKEN to a token of the Hub, or log in with its own client";
    if (hub && strcmp(answer->error_code, "GatedRepo") == 0) {
        fetch_fail(job, TC_IO, TC_REMOTE_DENIED, "the repository is gated: access must be granted");
        tc_error_hint(&job->error, "%s", token ? "ask for access on its page" : ask);
    } else if (hub && answer->status == 401 && !token) {
        fetch_fail(job, TC_IO, TC_REMOTE_DENIED,
                   "there is no such repository, or it is private (HTTP 401)");
        tc_error_hint(&job->error, "%s", ask);
    } else if (hub && answer->status == 401) {
        fetch_fail(job, TC_IO, TC_REMOTE_TOKEN, "the Hub does not take the token (HTTP 401)");
        tc_error_hint(&job->error, "make a new one on its page of settings, and set HF_TOKEN");
    } else {
        fetch_fail(job, TC_IO, TC_REMOTE_DENIED, "the server denies access (HTTP %u)",
                   answer->status);
        tc_error_hint(&job->error, "%s",
                      hub ? ask : "a presigned address may have expired: get a new one");
    }
}

static enum fetch_next describe_status(struct fetch_job *job) {
    const struct tc_answer *answer = &job->answer;
    const char *what = answer->error_code;
    if (answer->status == 401 || answer->status == 403) {
        describe_denied(job);
    } else if (answer->status == 404 || answer->status == 410) {
        fetch_fail(job, TC_IO, TC_REMOTE_NOT_FOUND, "%s (HTTP %u)",
                   strcmp(what, "RepoNotFound") == 0       ? "there is no such repository"
                   : strcmp(what, "RevisionNotFound") == 0 ? "the repository has no such revision"
                   : strcmp(what, "EntryNotFound") == 0    ? "the repository has no such file"
                                                           : "there is no such file",
                   answer->status);
    } else if (answer->status == 429) {
        fetch_fail(job, TC_IO, TC_REMOTE_RATE_LIMIT,
                   "the server has had too many requests (HTTP 429)");
        tc_error_hint(&job->error, "try again later; a token of the Hub raises its limits");
    } else {
        fetch_fail(job, TC_IO, TC_REMOTE_HTTP, "the server answers with HTTP %u", answer->status);
    }
    return FETCH_FAIL;
}

/* After a HEAD: the Hub tells size and hash, and where large files lie. */
static enum fetch_next finish_hub(struct fetch_job *job) {
    struct fetch_file *file = job->file;
    const struct tc_answer *answer = &job->answer;
    const char *etag = answer->linked_etag[0] ? answer->linked_etag : answer->etag;
    if (answer->status != 200 && !is_redirect(answer->status))
        return describe_status(job);
    if (!check_commit(job))
        return FETCH_FAIL;
    if (is_redirect(answer->status) && !answer->has_linked_size)
        return FETCH_HOP;
    if (!answer->has_linked_size && !answer->has_length) {
        fetch_fail(job, TC_IO, TC_REMOTE_ANSWER, "the Hub does not say how large the file is");
        return FETCH_FAIL;
    }
    tc_etag_bare(file->facts.etag, sizeof file->facts.etag, etag);
    file->facts.lfs = tc_is_hex(tc_text_of(file->facts.etag), 64);
    file->facts.size = answer->has_linked_size ? answer->linked_size : answer->length;
    file->facts.has_size = 1;
    file->facts.ranges = 1;
    return stay_with_commit(job) ? opened(job) : FETCH_FAIL;
}

static enum fetch_next finish_open(struct fetch_job *job) {
    struct fetch_file *file = job->file;
    const struct tc_answer *answer = &job->answer;
    bool empty = (answer->status == 200 && answer->has_length && answer->length == 0) ||
                 (answer->status == 416 && answer->has_total && answer->total == 0);
    if (answer->status == 206 && job->at < job->end)
        return FETCH_AGAIN;
    if (answer->status != 200 && answer->status != 206 && !empty)
        return describe_status(job);
    if (job->hops)
        keep_direct(job, job->url);
    file->facts.ranges = answer->status == 206 || empty;
    file->facts.has_size = answer->status == 206 || empty || answer->has_length;
    if (answer->status == 200) {
        file->facts.size = answer->has_length ? answer->length : 0;
        if (!is_same(job))
            return FETCH_FAIL;
    }
    tc_etag_bare(file->facts.etag, sizeof file->facts.etag, file->etag);
    return opened(job);
}

static enum fetch_next finish_read(struct fetch_job *job) {
    const struct tc_answer *answer = &job->answer;
    if (answer->status != 206 && answer->status != 200) {
        if (answer->status == 416)
            changed(job);
        else
            describe_status(job);
        return FETCH_FAIL;
    }
    if (job->hops)
        keep_direct(job, job->url);
    if (!job->whole && job->at < job->end)
        return FETCH_AGAIN;
    struct tc_frame frame = {
        .kind = TC_FRAME_DONE, .id = job->id, .number = job->file->number, .offset = job->at};
    fetcher_send(job->fetcher, &frame, NULL);
    return FETCH_OVER;
}

/* The next page's address is one of the endpoint's own, and what is told of it is the
 * part behind that. */
static bool take_link(struct fetch_job *job, struct tc_remote_status *status) {
    char *next = tc_location_resolve(job->url, job->answer.link, &job->error);
    const char *target = next ? tc_hub_own_target(next, job->fetcher->endpoint) : NULL;
    bool ok = target && strlen(target) < sizeof status->next;
    if (ok)
        snprintf(status->next, sizeof status->next, "%s", target);
    free(next);
    return ok || fetch_fail(job, TC_IO, TC_REMOTE_ANSWER,
                            "the next page of a list is not one of the Hub's");
}

/* What is sent goes on only to where the same server wants it as it is: that is how the Hub leads
 * to a repository that has another name now. */
static bool call_goes_on(struct fetch_job *job) {
    const struct tc_answer *answer = &job->answer;
    struct tc_url from;
    struct tc_url url;
    struct tc_error ignored = {0};
    if (!job->has_body)
        return true;
    if ((answer->status != 307 && answer->status != 308) || !answer->location[0])
        return false;
    char *to = tc_location_resolve(job->url, answer->location, &ignored);
    bool same = to && tc_url_parse(&from, job->url, &ignored) && tc_url_parse(&url, to, &ignored) &&
                tc_url_same_origin(&from, &url);
    free(to);
    return same;
}

static enum fetch_next finish_call(struct fetch_job *job) {
    const struct tc_answer *answer = &job->answer;
    struct tc_remote_status status = {.status = answer->status, .own = job->trusted};
    if (is_redirect(answer->status) && call_goes_on(job))
        return FETCH_HOP;
    bool denied = answer->status == 401 || answer->status == 403;
    if (denied || answer->status == 429 || answer->status >= 500 || answer->status < 200)
        return describe_status(job);
    if (answer->link[0] && !take_link(job, &status))
        return FETCH_FAIL;
    snprintf(status.etag, sizeof status.etag, "%s", answer->etag);
    struct tc_frame frame = {
        .kind = TC_FRAME_ANSWERED, .id = job->id, .size = sizeof status, .length = job->at};
    fetcher_send(job->fetcher, &frame, &status);
    return FETCH_OVER;
}

enum fetch_next fetch_finish(struct fetch_job *job) {
    if (job->kind == FETCH_CALL)
        return finish_call(job);
    if (job->kind == FETCH_OPEN_HUB)
        return finish_hub(job);
    if (is_redirect(job->answer.status))
        return FETCH_HOP;
    return job->kind == FETCH_OPEN ? finish_open(job) : finish_read(job);
}
