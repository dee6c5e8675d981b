/* core/remote/http.h by libcurl. */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/http.h"

/* Bytes of an answer's header lines; the library has a limit of its own beside it. */
#define MOST_HEADER_BYTES ((size_t)128 << 10)
#define MOST_HEADER_LINES 256u
#define BUFFER_BYTES (128L << 10)

/* What is used of the library, by the names that it exports. */
#define FUNCTIONS(F)                                                                               \
    F(curl_global_init)                                                                            \
    F(curl_easy_init)                                                                              \
    F(curl_easy_setopt)                                                                            \
    F(curl_easy_getinfo)                                                                           \
    F(curl_easy_pause)                                                                             \
    F(curl_easy_strerror)                                                                          \
    F(curl_easy_cleanup)                                                                           \
    F(curl_slist_append)                                                                           \
    F(curl_slist_free_all)                                                                         \
    F(curl_multi_init)                                                                             \
    F(curl_multi_setopt)                                                                           \
    F(curl_multi_add_handle)                                                                       \
    F(curl_multi_remove_handle)                                                                    \
    F(curl_multi_perform)                                                                          \
    F(curl_multi_poll)                                                                             \
    F(curl_multi_info_read)

/* curl.h hides some of them behind macros that check the types of arguments. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

struct library {
/* A member's name takes no parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define MEMBER(name) __typeof__(&(name)) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

struct tc_http {
    struct library curl;
    CURLM *multi;
    struct tc_http_settings settings;
};

struct tc_http_transfer {
    struct tc_http *http;
    CURL *easy;
    struct curl_slist *headers;
    const struct tc_http_events *events;
    void *context;
    enum tc_http_peers peers;
    size_t header_bytes;
    unsigned header_lines;
    bool refused;    /* the peer */
    bool stopped;    /* by the caller */
    bool bad_answer; /* too many header lines */
};

static bool load(struct library *curl, struct tc_error *error) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        tc_fail(error, TC_UNSUPPORTED, "no-libcurl",
                "remote files need libcurl, which is not here");
        return tc_error_hint(error, "install it (Debian: apt install libcurl4)");
    }
    bool whole = true;
#define FIND(name)                                                                                 \
    {                                                                                              \
        void *found = dlsym(library, #name);                                                       \
        whole = whole && found;                                                                    \
        memcpy(&curl->name, &found, sizeof found);                                                 \
    }
    FUNCTIONS(FIND)
#undef FIND
    return whole || tc_fail(error, TC_UNSUPPORTED, "no-libcurl", "this libcurl is too old");
}

struct tc_http *tc_http_open(const struct tc_http_settings *settings, struct tc_error *error) {
    struct tc_http *http = calloc(1, sizeof *http);
    if (!http) {
        tc_fail_memory(error);
        return NULL;
    }
    http->settings = *settings;
    bool ok = load(&http->curl, error);
    if (ok && (http->curl.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
               !(http->multi = http->curl.curl_multi_init())))
        ok = tc_fail_memory(error);
    if (ok)
        return http;
    free(http);
    return NULL;
}

/* The type is the library's. NOLINTNEXTLINE(readability-non-const-parameter) */
static size_t on_header(char *bytes, size_t one, size_t length, void *context) {
    struct tc_http_transfer *transfer = context;
    struct tc_text line = {bytes, length * one};
    transfer->header_bytes += line.length;
    if (transfer->header_bytes > MOST_HEADER_BYTES ||
        ++transfer->header_lines > MOST_HEADER_LINES) {
        transfer->bad_answer = true;
        return 0;
    }
    while (line.length && strchr("\r\n \t", line.bytes[line.length - 1]))
        line.length--;
    if (line.length == 0)
        return length * one;
    const char *colon = memchr(line.bytes, ':', line.length);
    bool status = tc_text_starts(line, TC_TEXT("HTTP/"));
    if (!status && !colon)
        return length * one;
    struct tc_text name = {line.bytes, status ? 0 : (size_t)(colon - line.bytes)};
    struct tc_text value = {line.bytes + name.length + !status,
                            line.length - name.length - !status};
    while (value.length && strchr(" \t", value.bytes[0])) {
        value.bytes++;
        value.length--;
    }
    if (transfer->events->header(transfer->context, name, value))
        return length * one;
    transfer->stopped = true;
    return 0;
}

static size_t on_body(char *bytes, size_t one, size_t length, void *context) {
    struct tc_http_transfer *transfer = context;
    switch (transfer->events->body(transfer->context, bytes, length * one)) {
    case TC_HTTP_GO_ON:
        return length * one;
    case TC_HTTP_PAUSE:
        return CURL_WRITEFUNC_PAUSE;
    case TC_HTTP_STOP:
        break;
    }
    transfer->stopped = true;
    return 0;
}

static size_t on_upload(char *bytes, size_t one, size_t room, void *context) {
    struct tc_http_transfer *transfer = context;
    size_t length = room * one;
    switch (transfer->events->upload(transfer->context, bytes, &length)) {
    case TC_HTTP_GO_ON:
        return length;
    case TC_HTTP_PAUSE:
        return CURL_READFUNC_PAUSE;
    case TC_HTTP_STOP:
        break;
    }
    transfer->stopped = true;
    return CURL_READFUNC_ABORT;
}

static bool peer_is_allowed(const struct tc_http_transfer *transfer,
                            const struct sockaddr *address) {
    switch (transfer->peers) {
    case TC_HTTP_PUBLIC_ONLY:
        return !tc_socket_is_private(address);
    case TC_HTTP_LOOPBACK_ONLY:
        return tc_socket_is_loopback(address);
    case TC_HTTP_ANYWHERE:
        break;
    }
    return true;
}

/* Every connection is made here, to the number that the name turned out to be: so a
 * name that means a private network is refused like the number itself. */
static curl_socket_t on_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address) {
    struct tc_http_transfer *transfer = context;
    (void)purpose;
    if (!peer_is_allowed(transfer, &address->addr)) {
        transfer->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

bool tc_http_peer_is_private(const struct tc_http_transfer *transfer) {
    char *text = NULL;
    transfer->http->curl.curl_easy_getinfo(transfer->easy, CURLINFO_PRIMARY_IP, &text);
    return !text || !text[0] || tc_host_is_private_number(tc_text_of(text));
}

static void set_connection(struct tc_http_transfer *transfer,
                           const struct tc_http_request *request) {
    const struct library *curl = &transfer->http->curl;
    const struct tc_http_settings *settings = &transfer->http->settings;
    CURL *easy = transfer->easy;
    curl->curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl->curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl->curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl->curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl->curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl->curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl->curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl->curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->curl_easy_setopt(easy, CURLOPT_HTTP_CONTENT_DECODING, 0L);
    curl->curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl->curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl->curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    curl->curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, settings->connect_milliseconds);
    curl->curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl->curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    curl->curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer);
    if (settings->certificates)
        curl->curl_easy_setopt(easy, CURLOPT_CAINFO, settings->certificates);
    if (settings->certificate_folder)
        curl->curl_easy_setopt(easy, CURLOPT_CAPATH, settings->certificate_folder);
    /* "*": for every host; "": for none. NO_PROXY was looked at already, by the rules that
     * say which peers are allowed, so that the library's own do not count. */
    curl->curl_easy_setopt(easy, CURLOPT_NOPROXY, request->direct ? "*" : "");
}

static bool set_request(struct tc_http_transfer *transfer, const struct tc_http_request *request) {
    const struct library *curl = &transfer->http->curl;
    CURL *easy = transfer->easy;
    for (size_t i = 0; i < request->header_count; i++) {
        struct curl_slist *longer = curl->curl_slist_append(transfer->headers, request->headers[i]);
        if (!longer)
            return false;
        transfer->headers = longer;
    }
    if (curl->curl_easy_setopt(easy, CURLOPT_URL, request->url) != CURLE_OK)
        return false;
    if (strcmp(request->method, "HEAD") == 0)
        curl->curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (request->has_body) {
        curl->curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl->curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->upload);
        curl->curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_upload);
        curl->curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
    }
    if (strcmp(request->method, "HEAD") != 0)
        curl->curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    curl->curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers);
    curl->curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl->curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
    curl->curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl->curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl->curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    return true;
}

struct tc_http_transfer *tc_http_start(struct tc_http *http, const struct tc_http_request *request,
                                       struct tc_error *error) {
    struct tc_http_transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer) {
        tc_fail_memory(error);
        return NULL;
    }
    transfer->http = http;
    transfer->events = request->events;
    transfer->context = request->context;
    transfer->peers = request->peers;
    transfer->easy = http->curl.curl_easy_init();
    if (transfer->easy && set_request(transfer, request)) {
        set_connection(transfer, request);
        if (http->curl.curl_multi_add_handle(http->multi, transfer->easy) == CURLM_OK)
            return transfer;
    }
    tc_fail_memory(error);
    tc_http_free(transfer);
    return NULL;
}

int tc_http_wait(struct tc_http *http, int fd, short events, int milliseconds) {
    struct curl_waitfd extra = {.fd = fd};
    int running;
    if (events & POLLIN)
        extra.events |= CURL_WAIT_POLLIN;
    if (events & POLLOUT)
        extra.events |= CURL_WAIT_POLLOUT;
    /* A transfer that was begun or resumed has a timer that is due at once. What comes of the
     * transfers is seen to before the next wait: so the waiting goes first. */
    http->curl.curl_multi_poll(http->multi, &extra, 1, milliseconds, NULL);
    http->curl.curl_multi_perform(http->multi, &running);
    /* An end of the other side may come without any of the events asked for. */
    struct pollfd now = {.fd = fd, .events = events};
    return poll(&now, 1, 0) > 0 ? now.revents : 0;
}

static enum tc_http_result result_of(const struct tc_http_transfer *transfer, CURLcode code) {
    if (transfer->refused)
        return TC_HTTP_REFUSED_PEER;
    if (transfer->stopped)
        return TC_HTTP_STOPPED;
    if (transfer->bad_answer)
        return TC_HTTP_BAD_ANSWER;
    switch (code) {
    case CURLE_OK:
        return TC_HTTP_DONE;
    case CURLE_URL_MALFORMAT:
        return TC_HTTP_BAD_ADDRESS;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return TC_HTTP_NO_HOST;
    case CURLE_COULDNT_CONNECT:
        return TC_HTTP_NO_CONNECTION;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
        return TC_HTTP_CERTIFICATE;
    case CURLE_OPERATION_TIMEDOUT:
        return TC_HTTP_TIMEOUT;
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return TC_HTTP_CUT;
    default:
        return TC_HTTP_BAD_ANSWER;
    }
}

struct tc_http_transfer *tc_http_next(struct tc_http *http, enum tc_http_result *result,
                                      const char **why) {
    int left;
    CURLMsg *message;
    while ((message = http->curl.curl_multi_info_read(http->multi, &left)) != NULL) {
        struct tc_http_transfer *transfer = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        http->curl.curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        *result = result_of(transfer, message->data.result);
        *why = http->curl.curl_easy_strerror(message->data.result);
        return transfer;
    }
    return NULL;
}

void tc_http_resume(struct tc_http_transfer *transfer) {
    transfer->http->curl.curl_easy_pause(transfer->easy, CURLPAUSE_CONT);
}

void *tc_http_context(const struct tc_http_transfer *transfer) {
    return transfer->context;
}

void tc_http_free(struct tc_http_transfer *transfer) {
    if (!transfer)
        return;
    const struct library *curl = &transfer->http->curl;
    if (transfer->easy) {
        curl->curl_multi_remove_handle(transfer->http->multi, transfer->easy);
        curl->curl_easy_cleanup(transfer->easy);
    }
    curl->curl_slist_free_all(transfer->headers);
    free(transfer);
}
