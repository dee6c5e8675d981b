/*
 * HTTP transfers, several at once, by libcurl. The library is loaded when
 * tc_http_open is called and not before, so that only the process that fetches has
 * it. The rules of the connection are fixed here: TLS 1.2 or newer and verified,
 * HTTP/1.1, no redirects followed, no cookies, no .netrc, no other protocol.
 *
 * One thread uses all of it:
 *
 *     tc_http_start …, then in turn
 *     tc_http_wait        until something happens on a connection or a descriptor
 *     tc_http_next        a transfer that came to its end
 *     tc_http_free         frees it; also in the middle
 */
#ifndef TCONV_CORE_REMOTE_HTTP_H
#define TCONV_CORE_REMOTE_HTTP_H

#include "core/base/error.h"
#include "core/base/text.h"

struct tc_http;
struct tc_http_transfer;

struct tc_http_settings {
    const char *certificates; /* a file of authorities in place of the system's; NULL: those */
    const char *certificate_folder;
    long connect_milliseconds;
};

/* How a transfer goes on. */
enum tc_http_flow { TC_HTTP_GO_ON, TC_HTTP_PAUSE, TC_HTTP_STOP };

/* What to tell of an answer as it comes in. */
struct tc_http_events {
    /* A line of the header; the status line has an empty name. False ends the transfer. */
    bool (*header)(void *context, struct tc_text name, struct tc_text value);
    enum tc_http_flow (*body)(void *context, const void *bytes, size_t length);
    /* Fills in what is to be sent; *length comes as the room there is. */
    enum tc_http_flow (*upload)(void *context, void *bytes, size_t *length);
};

/* Which peers a connection may have. */
enum tc_http_peers { TC_HTTP_ANYWHERE, TC_HTTP_PUBLIC_ONLY, TC_HTTP_LOOPBACK_ONLY };

struct tc_http_request {
    const char *method;
    const char *url;
    const char *const *headers; /* "Name: value" */
    size_t header_count;
    enum tc_http_peers peers;
    bool direct;   /* without a proxy */
    bool has_body; /* `upload` bytes of it are sent */
    uint64_t upload;
    const struct tc_http_events *events;
    void *context;
};

/* How a transfer ended. */
enum tc_http_result {
    TC_HTTP_DONE,
    TC_HTTP_STOPPED,      /* by one of the functions above */
    TC_HTTP_REFUSED_PEER, /* its peer is not one of `peers` */
    TC_HTTP_BAD_ADDRESS,
    TC_HTTP_NO_HOST,
    TC_HTTP_NO_CONNECTION,
    TC_HTTP_CERTIFICATE,
    TC_HTTP_TIMEOUT,
    TC_HTTP_CUT, /* the connection ended too early */
    TC_HTTP_BAD_ANSWER,
};

/* NULL with the error filled where there is no libcurl. */
struct tc_http *tc_http_open(const struct tc_http_settings *settings, struct tc_error *error);
struct tc_http_transfer *tc_http_start(struct tc_http *http, const struct tc_http_request *request,
                                       struct tc_error *error);
/* Waits for the connections and one more descriptor, at most so long. `events` and the
 * result are those of poll. */
int tc_http_wait(struct tc_http *http, int fd, short events, int milliseconds);
/* A transfer that ended, with a word on why; NULL: none. */
struct tc_http_transfer *tc_http_next(struct tc_http *http, enum tc_http_result *result,
                                      const char **why);
/* Goes on with a transfer that was paused. */
void tc_http_resume(struct tc_http_transfer *transfer);
/* Whether the peer is of a private network; asked while the header comes in. */
bool tc_http_peer_is_private(const struct tc_http_transfer *transfer);
/* What was given as the context of its request. */
void *tc_http_context(const struct tc_http_transfer *transfer);
void tc_http_free(struct tc_http_transfer *transfer);

#endif
