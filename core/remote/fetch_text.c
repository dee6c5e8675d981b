/* What the fetcher itself looks for in the Hub's answers: core/remote/fetch.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/environment.h"
#include "core/remote/fetch.h"

/* A shorter token may occur in any answer. */
#define LEAST_TOKEN 8u
/* Hosts of stores; the Hub has a few. */
#define MOST_STORES 64u

bool fetch_plain_take(struct fetch_plain *state, char c, char *plain, bool *escaped) {
    int digit = tc_hex_digit(c);
    *escaped = state->escape > 0;
    *plain = c;
    if (state->escape == 0 && c == '\\') {
        state->escape = 1;
        return false;
    }
    if (state->escape == 1 && c == 'u') {
        *state = (struct fetch_plain){.escape = 2};
        return false;
    }
    if (state->escape >= 2 && digit >= 0) {
        state->number = state->number * 16 + (unsigned)digit;
        if (++state->escape < 6)
            return false;
        *plain = state->number < 0x80 ? (char)state->number : '\0';
    }
    state->escape = 0;
    return true;
}

/* Whether a text that goes on has the token in it; only what may be the beginning of one is kept.
 */
static bool find_token(struct tc_buffer *text, const char *token, size_t own) {
    bool found = text->failed || (text->length && memmem(text->bytes, text->length, token, own));
    size_t kept = text->length < own - 1 ? text->length : own - 1;
    if (kept && !text->failed)
        memmove(text->bytes, text->bytes + text->length - kept, kept);
    text->length = kept;
    return found;
}

bool fetch_repeats_token(struct fetch_job *job, const char *bytes, size_t length) {
    const char *token = job->fetcher->token ? job->fetcher->token + strlen(FETCH_BEARER) : "";
    size_t own = strlen(token);
    if (own < LEAST_TOKEN)
        return false;
    tc_buffer_add(&job->tail, bytes, length);
    for (size_t i = 0; i < length; i++) {
        char plain;
        bool escaped;
        if (fetch_plain_take(&job->plain, bytes[i], &plain, &escaped))
            tc_buffer_add(&job->unescaped, &plain, 1);
    }
    bool found = find_token(&job->tail, token, own);
    return find_token(&job->unescaped, token, own) || found;
}

/* Where files are sent */

static bool same_origin(const struct tc_url *url, const char *address) {
    struct tc_url other;
    struct tc_error ignored = {0};
    return tc_url_parse(&other, address, &ignored) && tc_url_same_origin(url, &other);
}

bool fetch_store_is_named(const struct fetch_job *job, const char *address) {
    struct tc_url url;
    struct tc_error ignored = {0};
    if (!tc_url_parse(&url, address, &ignored))
        return false;
    if (same_origin(&url, job->fetcher->endpoint))
        return true;
    for (const struct fetch_store *store = job->fetcher->stores; store; store = store->next)
        if (same_origin(&url, store->origin))
            return true;
    return false;
}

bool fetch_target_is_named(const struct fetch_job *job, const char *target) {
    for (const struct fetch_store *store = job->fetcher->stores; store; store = store->next)
        if (strcmp(store->origin, target) == 0)
            return true;
    return false;
}

/* A string came to its end: `front` has its first bytes, with a NUL behind them; all of them
 * if `whole`. */
static void note_store(struct fetch_job *job, const char *front, bool whole) {
    struct fetcher *fetcher = job->fetcher;
    struct tc_url url;
    struct tc_error ignored = {0};
    if (fetcher->store_count == MOST_STORES || !tc_url_parse(&url, front, &ignored))
        return;
    /* Of a repository that has another name now, the Hub uses that. */
    const char *own = whole ? tc_hub_own_target(front, fetcher->endpoint) : NULL;
    if (own && !strstr(own, ".git/info/lfs/"))
        return;
    if (own ? fetch_target_is_named(job, own) : fetch_store_is_named(job, front))
        return;
    struct fetch_store *store = calloc(1, sizeof *store);
    char *origin = !store ? NULL
                   : own  ? strdup(own)
                          : strndup(front, (size_t)(url.path.bytes - front));
    if (!origin) {
        free(store);
        return;
    }
    *store = (struct fetch_store){.origin = origin, .next = fetcher->stores};
    fetcher->stores = store;
    fetcher->store_count++;
}

void fetch_note_stores(struct fetch_job *job, const char *bytes, size_t length) {
    struct fetch_string *string = &job->string;
    for (size_t i = 0; i < length; i++) {
        char plain;
        bool escaped;
        if (!fetch_plain_take(&string->plain, bytes[i], &plain, &escaped))
            continue;
        if (plain == '"' && !escaped) {
            /* An address may be longer than what is kept of it, whose host must be whole. */
            bool cut = string->length >= sizeof string->front;
            string->front[cut ? sizeof string->front - 1 : string->length] = '\0';
            size_t host = strcspn(string->front, ":") + strlen("://");
            bool whole = !cut || (host < sizeof string->front && strchr(string->front + host, '/'));
            if (string->open && whole)
                note_store(job, string->front, !cut);
            string->open = !string->open;
            string->length = 0;
        } else if (string->open) {
            if (string->length < sizeof string->front)
                string->front[string->length] = plain;
            string->length++;
        }
    }
}
