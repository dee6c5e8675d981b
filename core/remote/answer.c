#include "core/remote/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "core/remote/address.h"

void tc_answer_begin(struct tc_answer *answer) {
    *answer = (struct tc_answer){.retry_after = UINT32_MAX, .rate_reset = UINT32_MAX};
}

/* A number at the front of a text, which is cut off; false: there is none. */
static bool take_number(struct tc_text *text, uint64_t *number) {
    size_t used = 0;
    *number = 0;
    while (used < text->length && text->bytes[used] >= '0' && text->bytes[used] <= '9')
        if (__builtin_mul_overflow(*number, UINT64_C(10), number) ||
            __builtin_add_overflow(*number, (uint64_t)(text->bytes[used++] - '0'), number))
            return false;
    text->bytes += used;
    text->length -= used;
    return used > 0;
}

static bool take(struct tc_text *text, struct tc_text prefix) {
    if (!tc_text_starts(*text, prefix))
        return false;
    text->bytes += prefix.length;
    text->length -= prefix.length;
    return true;
}

/* Nothing is kept of a text that does not fit, or holds what is not to be shown. */
static void copy(char *to, size_t size, struct tc_text text) {
    bool plain = text.length < size;
    for (size_t i = 0; i < text.length && plain; i++)
        plain = text.bytes[i] >= 0x20 && text.bytes[i] < 0x7f;
    if (plain)
        memcpy(to, text.bytes, text.length);
    to[plain ? text.length : 0] = '\0';
}

/* "bytes 0-99/1000", with * for what is not known. Of several lines the last counts, whole: nothing
 * of an earlier one is left. */
static void read_range(struct tc_answer *answer, struct tc_text value) {
    uint64_t start;
    uint64_t last;
    answer->has_part = answer->has_total = false;
    const struct tc_text unit = TC_TEXT("bytes ");
    if (value.length < unit.length || strncasecmp(value.bytes, unit.bytes, unit.length) != 0)
        return;
    value.bytes += unit.length;
    value.length -= unit.length;
    if (take_number(&value, &start) && take(&value, TC_TEXT("-")) && take_number(&value, &last) &&
        last >= start && last < INT64_MAX) {
        answer->has_part = true;
        answer->start = start;
        answer->end = last + 1;
    } else if (!take(&value, TC_TEXT("*"))) {
        return;
    }
    answer->has_total = take(&value, TC_TEXT("/")) && take_number(&value, &answer->total) &&
                        answer->total <= INT64_MAX;
    /* What else stands there may say that it is meant otherwise. */
    bool whole = value.length == 0 || tc_text_equal(value, TC_TEXT("/*"));
    if (!whole || (answer->has_part && answer->has_total && answer->end > answer->total))
        answer->has_part = answer->has_total = false;
}

/* UINT32_MAX: it is no number; one that is too large is the largest. */
static uint32_t seconds_of(struct tc_text value) {
    uint64_t seconds;
    if (!value.length || value.bytes[0] < '0' || value.bytes[0] > '9')
        return UINT32_MAX;
    return take_number(&value, &seconds) && seconds < UINT32_MAX ? (uint32_t)seconds
                                                                 : UINT32_MAX - 1;
}

/* A date as HTTP has it, in seconds since 1970; 0: it is none. */
static int64_t date_of(struct tc_text value) {
    char text[48];
    struct tm parts = {0};
    copy(text, sizeof text, value);
    const char *rest = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    return rest && !rest[0] ? (int64_t)timegm(&parts) : 0;
}

/* Retry-After has seconds or a date. */
static void take_retry(struct tc_answer *answer, struct tc_text value) {
    answer->retry_after = seconds_of(value);
    answer->retry_date = answer->retry_after == UINT32_MAX ? date_of(value) : 0;
}

uint32_t tc_answer_wait(const struct tc_answer *answer, int64_t now) {
    if (answer->retry_date) {
        int64_t from = answer->date ? answer->date : now;
        int64_t wait = answer->retry_date > from ? answer->retry_date - from : 0;
        return wait < UINT32_MAX ? (uint32_t)wait : UINT32_MAX - 1;
    }
    if (answer->retry_after == UINT32_MAX && answer->status == 429)
        return answer->rate_reset;
    return answer->retry_after;
}

/* The number behind a word such as "t=" in an item; UINT32_MAX: it has none. */
static uint32_t number_behind(struct tc_text item, struct tc_text word) {
    for (size_t i = 0; i + word.length < item.length; i++)
        if (memcmp(item.bytes + i, word.bytes, word.length) == 0 &&
            (i == 0 || strchr("; \t", item.bytes[i - 1])))
            return seconds_of(
                (struct tc_text){item.bytes + i + word.length, item.length - i - word.length});
    return UINT32_MAX;
}

/* RateLimit: "api";r=0;t=55, "pages";r=9;t=300 — t is when there will be room again; what counts is
 * the longest wait of those that have none left. Before it was: limit=9, remaining=0, reset=55. */
static uint32_t rate_reset(struct tc_text value) {
    uint32_t used_up = UINT32_MAX;
    uint32_t first = UINT32_MAX;
    const char *end = value.bytes + value.length;
    for (const char *at = value.bytes; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        struct tc_text item = {at, (size_t)((comma ? comma : end) - at)};
        uint32_t wait = number_behind(item, TC_TEXT("t="));
        if (wait == UINT32_MAX)
            wait = number_behind(item, TC_TEXT("reset="));
        if (first == UINT32_MAX)
            first = wait;
        if (wait != UINT32_MAX && number_behind(item, TC_TEXT("r=")) == 0 &&
            (used_up == UINT32_MAX || wait > used_up))
            used_up = wait;
        at += item.length + 1;
    }
    return used_up != UINT32_MAX ? used_up : first;
}

/* Link: <https://…>; rel="next" — may have several, with commas between. */
static void read_link(struct tc_answer *answer, struct tc_text value) {
    while (value.length) {
        const char *open = memchr(value.bytes, '<', value.length);
        const char *end = value.bytes + value.length;
        const char *close = open ? memchr(open, '>', (size_t)(end - open)) : NULL;
        if (!close)
            return;
        const char *comma = memchr(close, ',', (size_t)(end - close));
        const char *stop = comma ? comma : end;
        struct tc_text rest = {close + 1, (size_t)(stop - close - 1)};
        if (memmem(rest.bytes, rest.length, "rel=\"next\"", 10) ||
            memmem(rest.bytes, rest.length, "rel=next", 8)) {
            copy(answer->link, sizeof answer->link,
                 (struct tc_text){open + 1, (size_t)(close - open - 1)});
            return;
        }
        value = (struct tc_text){stop + (comma != NULL), (size_t)(end - stop - (comma != NULL))};
    }
}

static bool is_called(struct tc_text name, const char *word) {
    return name.length == strlen(word) && strncasecmp(name.bytes, word, name.length) == 0;
}

/* Several ranges in one body, with lines of a header between them. */
static bool is_multipart(struct tc_text type) {
    static const char word[] = "multipart/";
    return type.length >= sizeof word - 1 && strncasecmp(type.bytes, word, sizeof word - 1) == 0;
}

static void take_status(struct tc_answer *answer, struct tc_text line) {
    const char *space = memchr(line.bytes, ' ', line.length);
    struct tc_text rest = {space ? space + 1 : line.bytes,
                           space ? line.length - (size_t)(space + 1 - line.bytes) : 0};
    uint64_t status;
    /* An answer may have several headers (100 Continue): the last one counts. */
    tc_answer_begin(answer);
    answer->status =
        take_number(&rest, &status) && status >= 100 && status < 600 ? (unsigned)status : 0;
}

static void take_length(struct tc_answer *answer, struct tc_text value) {
    uint64_t length;
    bool good = take_number(&value, &length) && value.length == 0 && length <= INT64_MAX;
    if (!good || (answer->has_length && answer->length != length))
        answer->bad_length = true;
    answer->has_length = good && !answer->bad_length;
    answer->length = answer->has_length ? length : 0;
}

void tc_answer_line(struct tc_answer *answer, struct tc_text name, struct tc_text value) {
    const struct {
        const char *name;
        char *to;
        size_t size;
    } texts[] = {
        {"ETag", answer->etag, sizeof answer->etag},
        {"Last-Modified", answer->modified, sizeof answer->modified},
        {"Location", answer->location, sizeof answer->location},
        {"X-Repo-Commit", answer->commit, sizeof answer->commit},
        {"X-Linked-Etag", answer->linked_etag, sizeof answer->linked_etag},
        {"X-Error-Code", answer->error_code, sizeof answer->error_code},
    };
    if (name.length == 0) {
        take_status(answer, value);
        return;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (is_called(name, texts[i].name))
            copy(texts[i].to, texts[i].size, value);
    if (is_called(name, "Content-Length"))
        take_length(answer, value);
    else if (is_called(name, "Content-Range"))
        read_range(answer, value);
    else if (is_called(name, "Content-Encoding"))
        answer->encoded |= value.length && !is_called(value, "identity");
    else if (is_called(name, "Content-Type"))
        answer->several |= is_multipart(value);
    else if (is_called(name, "X-Linked-Size"))
        answer->has_linked_size =
            take_number(&value, &answer->linked_size) && answer->linked_size <= INT64_MAX;
    else if (is_called(name, "Link"))
        read_link(answer, value);
    else if (is_called(name, "Retry-After"))
        take_retry(answer, value);
    else if (is_called(name, "Date"))
        answer->date = date_of(value);
    else if (is_called(name, "RateLimit"))
        answer->rate_reset = rate_reset(value);
    else if (is_called(name, "RateLimit-Reset"))
        answer->rate_reset = seconds_of(value);
}

void tc_etag_bare(char *bare, size_t size, const char *etag) {
    if (strncmp(etag, "W/", 2) == 0)
        etag += 2;
    size_t length = strlen(etag);
    if (length >= 2 && etag[0] == '"' && etag[length - 1] == '"') {
        etag++;
        length -= 2;
    }
    snprintf(bare, size, "%.*s", (int)length, etag);
}

/* What a location without a host of its own keeps of the path that answered. */
static struct tc_text kept_path(const struct tc_url *base, const char *location) {
    struct tc_text path = base->path;
    if (location[0] == '/')
        return (struct tc_text){path.bytes, 0};
    if (location[0] == '?')
        return path;
    if (location[0] == '\0' || location[0] == '#')
        return (struct tc_text){path.bytes, path.length + base->query.length};
    const char *slash = path.length ? memrchr(path.bytes, '/', path.length) : NULL;
    return slash ? (struct tc_text){path.bytes, (size_t)(slash + 1 - path.bytes)} : TC_TEXT("/");
}

char *tc_location_resolve(const char *from, const char *location, struct tc_error *error) {
    struct tc_url base;
    struct tc_buffer url = {0};
    if (!tc_url_parse(&base, from, error))
        return NULL;
    size_t scheme = strcspn(location, ":/?#");
    struct tc_text host = {base.scheme.bytes, base.scheme.length};
    /* From the scheme to the host's end, without a user name. */
    const char *host_end = base.path.bytes;
    const char *host_start = from + base.scheme.length + 3;
    if (base.user.bytes)
        host_start = base.user.bytes + base.user.length + 1;
    if (location[scheme] == ':') {
        tc_buffer_add_string(&url, location);
    } else if (location[0] == '/' && location[1] == '/') {
        tc_buffer_add_text(&url, host);
        tc_buffer_addf(&url, ":%s", location);
    } else {
        tc_buffer_add_text(&url, host);
        tc_buffer_addf(&url, "://%.*s", (int)(host_end - host_start), host_start);
        tc_buffer_add_text(&url, kept_path(&base, location));
        tc_buffer_add_string(&url, location);
    }
    tc_buffer_add(&url, "", 1);
    if (tc_buffer_ok(&url, error))
        return url.bytes;
    tc_buffer_release(&url);
    return NULL;
}
