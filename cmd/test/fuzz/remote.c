/*
 * The fuzz target of what comes by the network: the input's first line is an address, the lines up
 * to an empty one are the header of an answer, and what is left is JSON of the Hub's. Whatever
 * they are, secrets are cut off from what is shown, and every path, hash and commit that is taken
 * from them is one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/jansson.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/answer.h"
#include "core/remote/hub.h"

#define ENDPOINT "https://hub.example/base"

static void check_shown(const char *address) {
    char *shown = strdup(address);
    char *again = NULL;
    if (shown && tc_address_is(shown)) {
        tc_address_redact(shown);
        const char *host = strstr(shown, "://") + 3;
        FUZZ_CHECK(!strpbrk(host, "?#"), "a query is shown");
        FUZZ_CHECK(tc_address_is_hub(shown) || !memchr(host, '@', strcspn(host, "/")),
                   "a user's name is shown");
        again = strdup(shown);
        if (again)
            tc_address_redact(again);
        FUZZ_CHECK(!again || strcmp(again, shown) == 0, "what is shown changes");
    }
    free(again);
    free(shown);
}

static void check_place(bool ok, struct tc_hub_place *place, const struct tc_error *error) {
    if (ok) {
        FUZZ_CHECK(strspn(place->repo, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789-_./") == strlen(place->repo) &&
                       !strstr(place->repo, "..") && place->repo[0] != '/',
                   "a repository's name is none");
        FUZZ_CHECK(tc_hub_path_is_safe(tc_text_of(place->revision)), "a revision is no path");
        FUZZ_CHECK(!place->path[0] || tc_hub_path_is_safe(tc_text_of(place->path)),
                   "a path leads elsewhere");
    }
    FUZZ_CHECK(ok || !place->text, "a place that is none has a text");
    (void)error;
    tc_hub_place_release(place);
}

static void check_url(const char *address) {
    struct tc_url url;
    struct tc_error error = {0};
    bool ok = tc_url_parse(&url, address, &error);
    fuzz_check_outcome(ok, &error);
    if (!ok)
        return;
    FUZZ_CHECK(url.host.length, "no host");
    FUZZ_CHECK(url.scheme.length == 5 || tc_host_is_loopback(url.host), "plain http to others");
    FUZZ_CHECK(!tc_host_is_loopback(url.host) || tc_host_is_private_number(url.host),
               "this machine is public");
    FUZZ_CHECK(tc_url_same_origin(&url, &url), "another origin than its own");
}

static void check_address(const char *address) {
    struct tc_hub_place place = {0};
    struct tc_error errors[3] = {0};
    check_shown(address);
    check_url(address);
    if (tc_address_is_hub(address)) {
        bool ok = tc_hub_parse(&place, address, &errors[0]);
        fuzz_check_outcome(ok, &errors[0]);
        check_place(ok, &place, &errors[0]);
    }
    bool web = tc_hub_parse_web(&place, address, ENDPOINT, &errors[1]);
    check_place(web, &place, &errors[1]);
    bool repo = tc_hub_parse_repo(&place, address, "models", ENDPOINT, &errors[2]);
    check_place(repo, &place, &errors[2]);
}

static void check_text(const char *text, size_t size) {
    size_t length = strnlen(text, size);
    FUZZ_CHECK(length < size, "a text without an end");
    for (size_t i = 0; i < length; i++)
        FUZZ_CHECK(text[i] >= 0x20 && text[i] < 0x7f, "a text that can't be shown");
}

static void check_answer(const struct tc_answer *answer, const char *from) {
    char bare[64];
    check_text(answer->etag, sizeof answer->etag);
    check_text(answer->modified, sizeof answer->modified);
    check_text(answer->location, sizeof answer->location);
    check_text(answer->link, sizeof answer->link);
    check_text(answer->commit, sizeof answer->commit);
    check_text(answer->linked_etag, sizeof answer->linked_etag);
    check_text(answer->error_code, sizeof answer->error_code);
    FUZZ_CHECK(!answer->has_part || answer->start < answer->end, "an empty range");
    FUZZ_CHECK(!answer->has_part || !answer->has_total || answer->end <= answer->total,
               "a range behind its end");
    FUZZ_CHECK(!answer->has_length || answer->length <= INT64_MAX, "too long");
    FUZZ_CHECK(!(answer->has_length && answer->bad_length), "a length that is none");
    tc_etag_bare(bare, sizeof bare, answer->etag);
    (void)tc_answer_wait(answer, 0);
    struct tc_error error = {0};
    char *to = tc_location_resolve(from, answer->location, &error);
    if (to)
        check_url(to);
    free(to);
}

/* Lines, as libcurl hands them over. */
static void check_header(struct tc_text lines, const char *address) {
    struct tc_answer answer;
    tc_answer_begin(&answer);
    while (lines.length) {
        const char *end = memchr(lines.bytes, '\n', lines.length);
        struct tc_text line = {lines.bytes, end ? (size_t)(end - lines.bytes) : lines.length};
        const char *colon = line.length ? memchr(line.bytes, ':', line.length) : NULL;
        bool status = tc_text_starts(line, TC_TEXT("HTTP/"));
        size_t name = status || !colon ? 0 : (size_t)(colon - line.bytes);
        size_t skip = status || !colon ? 0 : name + 1;
        skip += skip < line.length && line.bytes[skip] == ' ';
        if (status || colon)
            tc_answer_line(&answer, (struct tc_text){line.bytes, name},
                           (struct tc_text){line.bytes + skip, line.length - skip});
        size_t used = line.length + (end != NULL);
        lines = (struct tc_text){lines.bytes + used, lines.length - used};
    }
    check_answer(&answer, "https://user@host.example:8443/a/b?c");
    check_answer(&answer, address);
}

static void check_files(const struct tc_document *document, const char *folder) {
    struct tc_hub_files files = {0};
    struct tc_error error = {0};
    size_t prefix = strlen(folder);
    tc_arena_init(&files.arena, 0);
    bool ok = tc_hub_files_add(&files, document, folder, &error);
    fuzz_check_outcome(ok, &error);
    for (size_t i = 0; i < files.count; i++) {
        const struct tc_hub_file *file = &files.list[i];
        FUZZ_CHECK(tc_hub_path_is_safe(tc_text_of(file->path)), "a path leads elsewhere");
        FUZZ_CHECK(strncmp(file->path, folder, prefix) == 0 &&
                       (!prefix || file->path[prefix] == '/'),
                   "a path of another folder");
        FUZZ_CHECK(file->folder || tc_is_hex(tc_text_of(file->hash), file->lfs ? 64 : 40),
                   "a hash is none");
        FUZZ_CHECK(file->size <= INT64_MAX, "a size is none");
    }
    tc_hub_files_release(&files);
}

static void check_json(struct tc_text text) {
    struct tc_document document;
    struct tc_hub_info info = {0};
    struct tc_error error = {0};
    if (tc_document_parse(&document, text, 0, &error)) {
        struct tc_error why = {0};
        document.error = &why;
        check_files(&document, "");
        check_files(&document, "d");
        tc_arena_init(&info.arena, 0);
        bool ok = tc_hub_info_take(&info, &document, &why);
        fuzz_check_outcome(ok, &why);
        FUZZ_CHECK(!ok || tc_is_hex(tc_text_of(info.commit), 40), "a commit is none");
        tc_hub_info_release(&info);
    }
    tc_document_release(&document);
}

void fuzz_remote(const unsigned char *bytes, size_t length) {
    const char *text = (const char *)bytes;
    const char *line = length ? memchr(text, '\n', length) : NULL;
    size_t first = line ? (size_t)(line - text) : length;
    char *address = strndup(text, first);
    struct tc_text rest = {text + first, length - first};
    const char *empty = rest.length ? memmem(rest.bytes, rest.length, "\n\n", 2) : NULL;
    size_t header = empty ? (size_t)(empty - rest.bytes) : rest.length;
    if (address) {
        check_address(address);
        check_header((struct tc_text){rest.bytes, header}, address);
    }
    if (empty)
        check_json((struct tc_text){empty + 2, rest.length - header - 2});
    free(address);
}
