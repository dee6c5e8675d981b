#include "core/remote/fetch.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "core/base/version.h"
#include "core/remote/address.h"
#include "core/remote/environment.h"

#define MOST_HOPS 8u
#define MOST_TRIES 5u
#define MOST_RESTARTS 2u
#define MOST_TRIES_NAME 1u /* a host's name that is not found */
#define LONGEST_BACKOFF 20000
/* A server that asks for more patience than this is an error that says so. */
#define LONGEST_WAIT 120u
#define MOST_HEADERS 40u
/* Fewer bytes than this are no sign of life: a server that sends one now and then would
 * hold a command for ever. */
#define LEAST_HEARD 1024u
/* The Hub works on what it was sent before it answers: so many times the usual patience. */
#define PATIENCE_OF_CALLS 6
/* Of the body of an answer that is no success, which nobody reads. */
#define MOST_IGNORED ((size_t)64 << 10)

int fetch_patience(const struct fetch_job *job) {
    int timeout = job->fetcher->timeout;
    bool sends = job->kind == FETCH_CALL && job->has_body;
    return sends && timeout < INT_MAX / PATIENCE_OF_CALLS ? timeout * PATIENCE_OF_CALLS : timeout;
}

int64_t fetch_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool fetch_fail(struct fetch_job *job, enum tc_class class, uint32_t code, const char *format,
                ...) {
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (job->error.class == TC_OK)
        job->code = code;
    return tc_fail(&job->error, class, "remote", "%s", message);
}

void fetch_refuse(struct fetch_job *job) {
    struct tc_remote_failure failure = {
        .class = job->error.class, .code = job->code, .status = job->answer.status};
    snprintf(failure.message, sizeof failure.message, "%s", job->error.message);
    snprintf(failure.hint, sizeof failure.hint, "%s", job->error.hint);
    struct tc_frame frame = {.kind = TC_FRAME_FAILED,
                             .id = job->id,
                             .number = job->file ? job->file->number : 0,
                             .size = sizeof failure};
    fetcher_send(job->fetcher, &frame, &failure);
}

/* As it comes in */

/* Whether enough came for a sign of life. */
static bool hear(struct fetch_job *job, size_t length) {
    job->heard += length;
    if (job->heard < LEAST_HEARD)
        return false;
    job->heard = 0;
    job->alive = fetch_now();
    return true;
}

static bool on_header(void *context, struct tc_text name, struct tc_text value) {
    struct fetch_job *job = context;
    hear(job, name.length + value.length);
    tc_answer_line(&job->answer, name, value);
    return true;
}

/* The header is whole when the first byte of the body comes, or the end. */
static bool begin_body(struct fetch_job *job) {
    if (job->hops == 0 && !job->direct) {
        job->private = tc_http_peer_is_private(job->transfer) && !job->proxied;
        job->fetcher->endpoint_private |= job->trusted && job->private;
    }
    /* A connection that was open already passed no check when this transfer began. */
    else if (!job->private && !job->proxied && tc_http_peer_is_private(job->transfer))
        return fetch_fail(job, TC_UNSAFE, TC_REMOTE_REDIRECT,
                          "a redirect leads into a private network");
    return fetch_check_header(job);
}

static void pass_on(struct fetch_job *job, const char *bytes, size_t length) {
    while (length) {
        size_t step = length < TC_FRAME_MOST ? length : TC_FRAME_MOST;
        struct tc_frame frame = {.kind = TC_FRAME_DATA,
                                 .id = job->id,
                                 .number = job->file ? job->file->number : 0,
                                 .size = (uint32_t)step,
                                 .offset = job->at};
        fetcher_send(job->fetcher, &frame, bytes);
        bytes += step;
        length -= step;
        job->at += step;
    }
}

static enum tc_http_flow on_body(void *context, const void *bytes, size_t length) {
    struct fetch_job *job = context;
    if (fetcher_is_full(job->fetcher)) {
        job->paused = true;
        return TC_HTTP_PAUSE;
    }
    bool enough = hear(job, length);
    if (!job->answer.has_body) {
        job->answer.has_body = true;
        if (!begin_body(job))
            return TC_HTTP_STOP;
    }
    if (!job->body_wanted) {
        job->expected += length;
        return job->expected > MOST_IGNORED ? TC_HTTP_STOP : TC_HTTP_GO_ON;
    }
    if (length > job->expected) {
        fetch_fail(job, TC_IO, job->kind == FETCH_CALL ? TC_REMOTE_ANSWER : TC_REMOTE_WRONG_RANGE,
                   "the server sends more than was asked for");
        return TC_HTTP_STOP;
    }
    job->expected -= length;
    if (job->kind == FETCH_CALL && fetch_repeats_token(job, bytes, length)) {
        fetch_fail(job, TC_IO, TC_REMOTE_ANSWER,
                   "the answer (HTTP %u) repeats the token, so that nothing of it is shown",
                   job->answer.status);
        return TC_HTTP_STOP;
    }
    if (job->names_stores && job->trusted)
        fetch_note_stores(job, bytes, length);
    /* What goes on from where it was cut may be cut as often as it likes; what begins
     * again from its start may not. */
    if (enough && job->kind == FETCH_READ && !job->whole)
        job->tries = 0;
    pass_on(job, bytes, length);
    return TC_HTTP_GO_ON;
}

/* The command gives the bytes when it is asked. */
static enum tc_http_flow on_upload(void *context, void *bytes, size_t *length) {
    struct fetch_job *job = context;
    size_t left = job->given_length - job->given_used;
    job->alive = fetch_now();
    if (left == 0 && job->sent < job->body_length) {
        uint64_t rest = job->body_length - job->sent;
        struct tc_frame want = {.kind = TC_FRAME_WANT,
                                .id = job->id,
                                .offset = job->sent,
                                .length = rest < TC_FRAME_MOST ? rest : TC_FRAME_MOST};
        if (!job->wants)
            fetcher_send(job->fetcher, &want, NULL);
        job->wants = true;
        return TC_HTTP_PAUSE;
    }
    size_t step = left < *length ? left : *length;
    if (step)
        memcpy(bytes, job->given + job->given_used, step);
    job->given_used += step;
    job->sent += step;
    *length = step;
    return TC_HTTP_GO_ON;
}

static const struct tc_http_events events = {on_header, on_body, on_upload};

/* A transfer */

static void add_header(const char **headers, size_t *count, const char *line) {
    if (*count < MOST_HEADERS)
        headers[(*count)++] = line;
}

/* The token goes to the endpoint's own host, in jobs that began there and never left. */
static bool takes_token(const struct fetch_job *job, const struct tc_url *url) {
    struct tc_url endpoint;
    struct tc_error ignored = {0};
    return job->trusted && job->fetcher->token &&
           tc_url_parse(&endpoint, job->fetcher->endpoint, &ignored) &&
           tc_url_same_origin(url, &endpoint);
}

static size_t make_headers(struct fetch_job *job, const struct tc_url *url, char range[64],
                           const char **headers) {
    size_t count = 0;
    add_header(headers, &count, "User-Agent: tconv/" TC_VERSION);
    add_header(headers, &count, "Accept-Encoding: identity");
    if (takes_token(job, url))
        add_header(headers, &count, job->fetcher->token);
    if (job->kind == FETCH_OPEN || (job->kind == FETCH_READ && !job->whole)) {
        snprintf(range, 64, "Range: bytes=%llu-%llu", (unsigned long long)job->at,
                 (unsigned long long)(job->end - 1));
        add_header(headers, &count, range);
    }
    if (job->kind != FETCH_CALL)
        return count;
    if (!job->has_body)
        add_header(headers, &count, "Accept: application/json");
    add_header(headers, &count, "Expect:");
    const char *at = job->text.bytes;
    const char *end = at + job->text.length;
    for (unsigned part = 0; at < end; part++, at += strlen(at) + 1)
        if (part >= 2)
            add_header(headers, &count, at);
    return count;
}

static enum tc_http_peers peers_of(const struct fetch_job *job, const struct tc_url *url) {
    if (url->scheme.length == 4)
        return TC_HTTP_LOOPBACK_ONLY;
    bool first = job->hops == 0 && !job->direct;
    return first || job->private || job->proxied ? TC_HTTP_ANYWHERE : TC_HTTP_PUBLIC_ONLY;
}

void fetch_start(struct fetch_job *job) {
    struct tc_url url;
    const char *headers[MOST_HEADERS];
    char range[64];
    tc_answer_begin(&job->answer);
    job->body_wanted = false;
    job->paused = false;
    job->expected = 0;
    job->sent = job->given_length = job->given_used = 0;
    job->tail.length = 0;
    job->unescaped.length = 0;
    job->plain = (struct fetch_plain){0};
    job->string = (struct fetch_string){0};
    job->wants = false;
    job->heard = 0;
    job->alive = fetch_now();
    if (!tc_url_parse(&url, job->url, &job->error)) {
        job->code = job->error.class == TC_UNSAFE ? TC_REMOTE_PLAIN_HTTP : TC_REMOTE_ADDRESS;
        return;
    }
    job->proxied = tc_proxy_is_used(&url);
    struct tc_http_request request = {.method = job->method,
                                      .url = job->url,
                                      .headers = headers,
                                      .header_count = make_headers(job, &url, range, headers),
                                      .peers = peers_of(job, &url),
                                      .direct = !job->proxied,
                                      .has_body = job->has_body,
                                      .upload = job->body_length,
                                      .events = &events,
                                      .context = job};
    job->transfer = tc_http_start(job->fetcher->http, &request, &job->error);
    if (!job->transfer)
        job->code = TC_REMOTE_MEMORY;
}

/* What comes after it */

bool fetch_hop_is_allowed(struct fetch_job *job, const char *to) {
    struct tc_url url;
    struct tc_url from;
    struct tc_error ignored = {0};
    if (job->hops >= MOST_HOPS)
        return fetch_fail(job, TC_IO, TC_REMOTE_REDIRECT, "over %u redirects", MOST_HOPS);
    if (!tc_url_parse(&url, to, &ignored) || !tc_url_parse(&from, job->url, &ignored) ||
        url.user.bytes)
        return fetch_fail(job, TC_UNSAFE, TC_REMOTE_REDIRECT,
                          "a redirect leads to what is no https address");
    if (url.scheme.length == 4 && from.scheme.length != 4)
        return fetch_fail(job, TC_UNSAFE, TC_REMOTE_REDIRECT,
                          "a redirect leads from https to http");
    if (!job->private && tc_host_is_private_number(url.host))
        return fetch_fail(job, TC_UNSAFE, TC_REMOTE_REDIRECT,
                          "a redirect leads into a private network");
    return true;
}

static bool hop(struct fetch_job *job) {
    struct tc_url url;
    struct tc_url from;
    char *to = job->answer.location[0]
                   ? tc_location_resolve(job->url, job->answer.location, &job->error)
                   : NULL;
    if (!to)
        return fetch_fail(job, TC_IO, TC_REMOTE_REDIRECT, "a redirect that leads nowhere");
    if (!fetch_hop_is_allowed(job, to)) {
        free(to);
        return false;
    }
    if (!tc_url_parse(&url, to, &job->error) || !tc_url_parse(&from, job->url, &job->error) ||
        !tc_url_same_origin(&url, &from))
        job->trusted = false;
    free(job->url);
    job->url = to;
    job->hops++;
    return true;
}

/* Back to where the way began: what redirects had led to is no longer good. */
static bool restart(struct fetch_job *job) {
    struct fetch_file *file = job->file;
    free(job->url);
    free(file->direct);
    file->direct = NULL;
    job->url = strdup(file->url);
    job->direct = false;
    job->hops = 0;
    job->trusted = file->pin != NULL;
    return job->url || fetch_fail(job, TC_IO, TC_REMOTE_MEMORY, "no memory");
}

/* The way of a range starts again where it ended before, unless that was long ago. */
static bool rewind_job(struct fetch_job *job) {
    if (job->kind == FETCH_CALL || job->hops == 0)
        return true;
    if (job->kind == FETCH_READ && !job->direct)
        return restart(job);
    if (job->kind == FETCH_READ)
        return true;
    free(job->url);
    job->url = strdup(job->file->url);
    job->hops = 0;
    job->trusted = job->file->pin != NULL;
    return job->url || fetch_fail(job, TC_IO, TC_REMOTE_MEMORY, "no memory");
}

/* Half of the time is left to chance, so that many clients do not come back at once. */
static int64_t backoff(const struct fetch_job *job) {
    unsigned chance = 0;
    int64_t wait = (int64_t)job->fetcher->backoff << (job->tries < 10 ? job->tries : 10);
    if (getrandom(&chance, sizeof chance, 0) != sizeof chance)
        chance = (unsigned)fetch_now();
    wait = wait < LONGEST_BACKOFF ? wait : LONGEST_BACKOFF;
    return wait / 2 + chance % (wait / 2 + 1);
}

static bool try_again(struct fetch_job *job, unsigned most) {
    uint32_t asked = tc_answer_wait(&job->answer, time(NULL));
    if (asked != UINT32_MAX && asked > LONGEST_WAIT) {
        job->error = (struct tc_error){0};
        fetch_fail(job, TC_IO, TC_REMOTE_RATE_LIMIT,
                   "the server asks to come back in %u seconds (HTTP %u)", asked,
                   job->answer.status);
        return tc_error_hint(&job->error, "try again then; a token of the Hub raises its limits");
    }
    if (job->tries >= most || (job->kind == FETCH_CALL && !job->again && job->answer.status != 429))
        return false;
    int64_t wait = backoff(job);
    if (asked != UINT32_MAX && (int64_t)asked * 1000 > wait)
        wait = (int64_t)asked * 1000 + wait / 8;
    job->tries++;
    job->not_before = fetch_now() + wait;
    job->error = (struct tc_error){0};
    if (job->whole)
        job->at = 0;
    if (job->kind == FETCH_CALL || job->kind == FETCH_OPEN)
        job->at = 0;
    return rewind_job(job);
}

static void describe(struct fetch_job *job, enum tc_http_result result, const char *why) {
    switch (result) {
    case TC_HTTP_REFUSED_PEER:
        if (job->hops || job->direct)
            fetch_fail(job, TC_UNSAFE, TC_REMOTE_REDIRECT,
                       "a redirect leads into a private network");
        else
            fetch_fail(job, TC_UNSAFE, TC_REMOTE_PLAIN_HTTP,
                       "plain http is for this machine alone");
        return;
    case TC_HTTP_NO_HOST:
        fetch_fail(job, TC_IO, TC_REMOTE_NETWORK, "the host is not found");
        tc_error_hint(&job->error,
                      "is the name right, and this machine online? a proxy is set with "
                      "HTTPS_PROXY");
        return;
    case TC_HTTP_NO_CONNECTION:
        fetch_fail(job, TC_IO, TC_REMOTE_NETWORK, "the host takes no connection");
        tc_error_hint(&job->error, "is this machine online? a proxy is set with HTTPS_PROXY");
        return;
    case TC_HTTP_CERTIFICATE:
        fetch_fail(job, TC_UNSAFE, TC_REMOTE_CERTIFICATE, "the host's certificate is not good: %s",
                   why);
        tc_error_hint(&job->error, "SSL_CERT_FILE names the authorities of a company's own hosts");
        return;
    case TC_HTTP_BAD_ADDRESS:
        fetch_fail(job, job->hops ? TC_IO : TC_USAGE,
                   job->hops ? TC_REMOTE_REDIRECT : TC_REMOTE_ADDRESS, "not an address: %s", why);
        return;
    case TC_HTTP_TIMEOUT:
        fetch_fail(job, TC_IO, TC_REMOTE_TIMEOUT, "the server is silent");
        tc_error_hint(&job->error, "HF_HUB_DOWNLOAD_TIMEOUT=SECONDS waits longer");
        return;
    case TC_HTTP_CUT:
        fetch_fail(job, TC_IO, TC_REMOTE_NETWORK, "the connection was cut, %u times",
                   job->tries + 1);
        return;
    case TC_HTTP_DONE:
    case TC_HTTP_STOPPED:
    case TC_HTTP_BAD_ANSWER:
        break;
    }
    fetch_fail(job, TC_IO, TC_REMOTE_ANSWER, "the server's answer can't be read: %s", why);
}

static unsigned tries_for(enum tc_http_result result) {
    switch (result) {
    case TC_HTTP_NO_HOST:
        return MOST_TRIES_NAME;
    case TC_HTTP_NO_CONNECTION:
    case TC_HTTP_TIMEOUT:
    case TC_HTTP_CUT:
        return MOST_TRIES;
    default:
        return 0;
    }
}

static bool is_passing(unsigned status) {
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504;
}

/* Whether the job is over because of what its answer was. */
static bool conclude(struct fetch_job *job) {
    if (is_passing(job->answer.status) && try_again(job, MOST_TRIES))
        return false;
    unsigned status = job->answer.status;
    bool expired = status == 401 || status == 403 || status == 404 || status == 410;
    /* Where redirects lead to is good for some minutes only: the way begins again. */
    if (job->kind == FETCH_READ && (job->direct || job->hops) && expired &&
        job->error.class == TC_OK && job->tries < MOST_RESTARTS) {
        job->tries++;
        return !restart(job);
    }
    switch (job->error.class == TC_OK ? fetch_finish(job) : FETCH_FAIL) {
    case FETCH_OVER:
        return true;
    case FETCH_HOP:
        return !hop(job);
    case FETCH_AGAIN:
        return ++job->tries > MOST_TRIES &&
               !fetch_fail(job, TC_IO, TC_REMOTE_WRONG_RANGE, "the server sends less than it says");
    case FETCH_FAIL:
        break;
    }
    if (job->error.class == TC_OK)
        fetch_fail(job, TC_IO, TC_REMOTE_ANSWER, "the server's answer can't be read");
    return true;
}

/* Whether all bytes of a file that its answer was to have are there: that the connection did
 * not end as it should has no meaning then. */
static bool is_complete(const struct fetch_job *job, enum tc_http_result result) {
    return job->kind != FETCH_CALL && job->body_wanted && job->expected == 0 &&
           (result == TC_HTTP_CUT || result == TC_HTTP_TIMEOUT);
}

bool fetch_ended(struct fetch_job *job, enum tc_http_result result, const char *why) {
    bool stopped = result == TC_HTTP_STOPPED;
    bool over;
    if (is_complete(job, result))
        result = TC_HTTP_DONE;
    /* An answer without a body has had no one look at its header yet. */
    if (result == TC_HTTP_DONE && !job->answer.has_body)
        begin_body(job);
    tc_http_free(job->transfer);
    job->transfer = NULL;
    if (job->error.class != TC_OK || result == TC_HTTP_DONE ||
        (stopped && job->answer.status && !job->body_wanted)) {
        over = conclude(job);
    } else if (try_again(job, tries_for(result))) {
        over = false;
    } else {
        describe(job, result, why);
        over = true;
    }
    if (over && job->error.class != TC_OK)
        fetch_refuse(job);
    return over;
}

bool fetch_timed_out(struct fetch_job *job) {
    return fetch_ended(job, TC_HTTP_TIMEOUT, "");
}
