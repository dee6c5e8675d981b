/*
 * The fuzz target of addresses and of what servers answer. The input has a line for each, behind a
 * letter:
 *     a ADDRESS     as a user writes it
 *     r NAME        a repository, as the commands of the Hub take it
 *     l LOCATION    where the last address is redirected to
 *     h NAME:VALUE  a line of an answer's header; without a name its status line
 */

#include <stdlib.h>
#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/answer.h"

#define ENDPOINT "https://hub.example/base"

static bool lies_in(struct tc_text part, const char *text) {
    return !part.length || (part.bytes >= text && part.bytes + part.length <= text + strlen(text));
}

/* What is shown of an address has no query and no user, and what is shown of that is the same. */
static void check_redaction(const char *address) {
    char *shown = strdup(address);
    FUZZ_CHECK(shown, "no memory");
    tc_address_redact(shown);
    FUZZ_CHECK(!strpbrk(shown, "?#"), "a query is shown: %s", shown);
    const char *host = strstr(shown, "://") + 3;
    FUZZ_CHECK(tc_address_is_hub(shown) || !memchr(host, '@', strcspn(host, "/")),
               "a user is shown: %s", shown);
    char *again = strdup(shown);
    FUZZ_CHECK(again, "no memory");
    tc_address_redact(again);
    FUZZ_CHECK(strcmp(shown, again) == 0, "shown as %s, and that as %s", shown, again);
    free(again);
    free(shown);
}

/* A place that is accepted is safe in paths and in addresses. With a namespace it is read alike
 * when it is written down again; without one, NAME/resolve/blob/… has two readings. */
static void check_place(const struct tc_hub_place *place) {
    struct tc_error error = {0};
    struct tc_buffer address = {0};
    struct tc_hub_place again;
    FUZZ_CHECK(tc_hub_path_is_safe(tc_text_of(place->repo)), "repository %s", place->repo);
    FUZZ_CHECK(tc_hub_path_is_safe(tc_text_of(place->revision)), "revision %s", place->revision);
    FUZZ_CHECK(!place->path[0] || tc_hub_path_is_safe(tc_text_of(place->path)), "path %s",
               place->path);
    if (!strchr(place->repo, '/'))
        return;
    tc_buffer_addf(&address, ENDPOINT "/%s/%s/resolve/", place->type, place->repo);
    tc_address_encode(&address, tc_text_of(place->revision), true);
    tc_buffer_add_string(&address, "/");
    tc_address_encode(&address, tc_text_of(place->path), false);
    tc_buffer_add(&address, "", 1);
    FUZZ_CHECK(tc_buffer_ok(&address, &error), "no memory");
    bool ok = tc_hub_parse_web(&again, address.bytes, ENDPOINT, &error);
    FUZZ_CHECK(ok || strlen(address.bytes) > TC_ADDRESS_MOST, "%s: %s", address.bytes,
               error.message);
    FUZZ_CHECK(
        !ok ||
            (strcmp(place->type, again.type) == 0 && strcmp(place->repo, again.repo) == 0 &&
             strcmp(place->revision, again.revision) == 0 && strcmp(place->path, again.path) == 0),
        "%s is another place: %s, %s, %s", address.bytes, again.repo, again.revision, again.path);
    if (ok)
        tc_hub_place_release(&again);
    tc_buffer_release(&address);
}

static void try_address(const char *address) {
    struct tc_error error = {0};
    struct tc_error no_page = {0};
    struct tc_hub_place place;
    struct tc_url url;
    if (!tc_address_is(address))
        return;
    check_redaction(address);
    if (tc_address_is_hub(address)) {
        bool ok = tc_hub_parse(&place, address, &error);
        fuzz_check_outcome(ok, &error);
        if (ok)
            check_place(&place);
        tc_hub_place_release(&place);
        return;
    }
    bool ok = tc_url_parse(&url, address, &error);
    fuzz_check_outcome(ok, &error);
    FUZZ_CHECK(!ok || (lies_in(url.user, address) && lies_in(url.host, address) &&
                       lies_in(url.port, address) && lies_in(url.path, address) &&
                       lies_in(url.query, address)),
               "a part that is none");
    FUZZ_CHECK(!ok || url.scheme.length == 5 || tc_host_is_loopback(url.host),
               "plain http to another machine");
    FUZZ_CHECK(!ok || !tc_host_is_loopback(url.host) || tc_host_is_private_number(url.host),
               "this machine is public");
    if (tc_hub_parse_web(&place, address, ENDPOINT, &no_page)) {
        check_place(&place);
        tc_hub_place_release(&place);
    }
}

static void try_repository(const char *name) {
    struct tc_error error = {0};
    struct tc_hub_place place;
    bool ok = tc_hub_parse_repo(&place, name, NULL, ENDPOINT, &error);
    fuzz_check_outcome(ok, &error);
    if (ok)
        check_place(&place);
    tc_hub_place_release(&place);
}

/* Where a location leads is an address, or refused; without a host of its own it stays there. */
static void try_location(const char *from, const char *location) {
    struct tc_error error = {0};
    struct tc_error no_address = {0};
    struct tc_url base;
    struct tc_url url;
    char *to = tc_location_resolve(from, location, &error);
    fuzz_check_outcome(to != NULL, &error);
    if (!to)
        return;
    bool ok = tc_url_parse(&url, to, &no_address);
    fuzz_check_outcome(ok, &no_address);
    bool own_host = location[strcspn(location, ":/?#")] == ':' || strncmp(location, "//", 2) == 0;
    if (ok && !own_host)
        FUZZ_CHECK(tc_url_parse(&base, from, &error) && tc_url_same_origin(&base, &url),
                   "%s leads from %s to %s", location, from, to);
    free(to);
}

static void check_answer(const struct tc_answer *answer) {
    char bare[sizeof answer->etag];
    FUZZ_CHECK(answer->status == 0 || (answer->status >= 100 && answer->status < 600), "status %u",
               answer->status);
    FUZZ_CHECK(!answer->has_part || answer->start < answer->end, "an empty range");
    FUZZ_CHECK(!answer->has_part || !answer->has_total || answer->end <= answer->total,
               "a range beyond the end");
    FUZZ_CHECK(!answer->has_total || answer->total <= INT64_MAX, "a total beyond all files");
    tc_etag_bare(bare, sizeof bare, answer->etag);
    FUZZ_CHECK(strlen(bare) <= strlen(answer->etag), "an etag that grew");
    tc_answer_wait(answer, 1);
}

static void read_lines(char *text, size_t length) {
    const char *last = ENDPOINT "/a/b";
    struct tc_answer answer;
    tc_answer_begin(&answer);
    for (char *at = text; at < text + length;) {
        char *next = at + strcspn(at, "\n");
        *next = '\0';
        char *value = at[0] && at[1] == ' ' ? at + 2 : next;
        char *colon = strchr(value, ':');
        if (at[0] == 'a') {
            try_address(value);
            last = value;
        } else if (at[0] == 'r') {
            try_repository(value);
        } else if (at[0] == 'l') {
            try_location(last, value);
        } else if (at[0] == 'h' && colon) {
            tc_answer_line(&answer, (struct tc_text){value, (size_t)(colon - value)},
                           tc_text_of(colon + 1));
            check_answer(&answer);
        }
        at = next + 1;
    }
}

void fuzz_address(const unsigned char *bytes, size_t length) {
    char *text = malloc(length + 1);
    FUZZ_CHECK(text, "no memory");
    memcpy(text, bytes, length);
    text[length] = '\0';
    read_lines(text, length);
    free(text);
}
