/* core/remote/http.h for a build without libcurl (-Dremote=disabled): nothing is ever open. */
#include <stddef.h>

#include "core/base/error.h"
#include "core/remote/http.h"

struct tc_http *tc_http_open(const struct tc_http_settings *settings, struct tc_error *error) {
    (void)settings;
    tc_fail(error, TC_UNSUPPORTED, "no-libcurl", "this tconv was built without remote files");
    tc_error_hint(error, "build it with -Dremote=enabled, or get the file first");
    return NULL;
}

struct tc_http_transfer *tc_http_start(struct tc_http *http, const struct tc_http_request *request,
                                       struct tc_error *error) {
    (void)http;
    (void)request;
    (void)error;
    return NULL;
}

int tc_http_wait(struct tc_http *http, int fd, short events, int milliseconds) {
    (void)http;
    (void)fd;
    (void)events;
    (void)milliseconds;
    return 0;
}

struct tc_http_transfer *tc_http_next(struct tc_http *http, enum tc_http_result *result,
                                      const char **why) {
    (void)http;
    (void)result;
    (void)why;
    return NULL;
}

void tc_http_resume(struct tc_http_transfer *transfer) {
    (void)transfer;
}

bool tc_http_peer_is_private(const struct tc_http_transfer *transfer) {
    (void)transfer;
    return true;
}

void *tc_http_context(const struct tc_http_transfer *transfer) {
    (void)transfer;
    return NULL;
}

void tc_http_free(struct tc_http_transfer *transfer) {
    (void)transfer;
}
