/* What the fetcher does for a command that is no longer the user's: nothing but what was named on
 * the command line. HF_HUB_OFFLINE is set, so that what is allowed ends there. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/remote/client.h"
#include "core/remote/fetch.h"
#include "core/remote/protocol.h"
#include "core/remote/remote.h"

#define HUB "https://hub.example"

enum outcome { ENDS, REFUSED, ALLOWED };

static enum outcome receive(int fd) {
    struct tc_frame frame;
    struct tc_remote_failure failure;
    if (recv(fd, &frame, sizeof frame, MSG_WAITALL) != sizeof frame)
        return ENDS;
    cr_assert_eq(frame.kind, TC_FRAME_FAILED);
    cr_assert_eq(frame.size, sizeof failure);
    cr_assert_eq(recv(fd, &failure, sizeof failure, MSG_WAITALL), sizeof failure);
    if (failure.code == TC_REMOTE_OFFLINE || failure.code == TC_REMOTE_NO_LIBCURL)
        return ALLOWED;
    cr_assert(failure.code == TC_REMOTE_ADDRESS || failure.code == TC_REMOTE_REDIRECT, "code %u",
              failure.code);
    return REFUSED;
}

/* How one frame to a fetcher of its own ends. */
static enum outcome try_frame(const struct tc_fetcher_options *options, struct tc_frame frame,
                              const char *payload) {
    struct tc_error error = {0};
    setenv("HF_HUB_OFFLINE", "1", 1);
    setenv("HF_ENDPOINT", HUB, 1);
    setenv("HF_TOKEN", "hf_secret_token", 1);
    struct tc_remote *remote = tc_remote_start(options, &error);
    cr_assert(remote, "%s", error.message);
    cr_assert_eq(send(remote->fd, &frame, sizeof frame, MSG_NOSIGNAL), sizeof frame);
    if (frame.size)
        cr_assert_eq(send(remote->fd, payload, frame.size, MSG_NOSIGNAL), frame.size);
    enum outcome outcome = receive(remote->fd);
    tc_remote_end(remote);
    return outcome;
}

static enum outcome try_open(const struct tc_fetcher_options *options, const char *address) {
    return try_frame(
        options,
        (struct tc_frame){
            .kind = TC_FRAME_OPEN, .id = 1, .number = 1, .size = (uint32_t)strlen(address)},
        address);
}

Test(fetcher, only_what_was_named_is_opened) {
    static struct tc_remote_address addresses[] = {
        {(char *)"https://a.example/d/m.npz", (char *)"https://u:p@a.example/d/m.npz?sig=1"},
        {(char *)"https://b.example", (char *)"https://b.example?x"},
        {(char *)"https://c.example:80", (char *)"https://c.example:80"},
        {(char *)"hf://org/name@v1/x/m.npz", (char *)"hf://org/name@v1/x/m.npz"},
    };
    const struct tc_fetcher_options options = {.addresses = addresses, .count = 4, .jobs = 1};
    static const struct {
        const char *address;
        enum outcome outcome;
    } rows[] = {
        {"https://a.example/d/m.npz", ALLOWED},
        {"https://a.example/d/e/beside.bin", ALLOWED},
        {"https://b.example", ALLOWED},
        {"hf://org/name@v1/other.bin", ALLOWED},
        {HUB "/org/name/resolve/v1/y", REFUSED},
        {"https://a.example/other", REFUSED},
        {"https://a.example/d/../other", REFUSED},
        {"https://a.example/d/%2e%2e/other", REFUSED},
        {"https://a.example/d/..;/other", REFUSED},
        {"https://a.example/d/m.npz?sig=1", REFUSED},
        {"https://a.example.evil.example/d/m.npz", REFUSED},
        {"https://b.example.evil.example/x", REFUSED},
        {"https://b.example@evil.example/x", REFUSED},
        {"https://b.example:8443/x", REFUSED},
        {"https://b.example/x", REFUSED},
        {"https://c.example:8080/x", REFUSED},
        {"https://169.254.169.254/latest/meta-data", REFUSED},
        {"http://127.0.0.1/x", REFUSED},
        {"hf://org/name@v2/other.bin", REFUSED},
        {"hf://org/name/other.bin", REFUSED},
        {"hf://org/other@v1/m.npz", REFUSED},
        {"hf://datasets/org/name@v1/m.npz", REFUSED},
        {"hf://org/name@v1/../x", REFUSED},
        {"file:///etc/passwd", ENDS},
        {"/etc/passwd", ENDS},
        {"gopher://127.0.0.1/x", ENDS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(try_open(&options, rows[i].address), rows[i].outcome, "%s", rows[i].address);
}

/* METHOD, TARGET and lines of the header, with '|' for the NUL behind each. */
static enum outcome try_call(const struct tc_fetcher_options *options, const char *words) {
    char text[300];
    size_t length = strlen(words);
    bool body = strncmp(words, "POST", 4) == 0 || strncmp(words, "PUT", 3) == 0;
    memcpy(text, words, length + 1);
    for (size_t i = 0; i < length; i++)
        if (text[i] == '|')
            text[i] = '\0';
    struct tc_frame frame = {.kind = TC_FRAME_CALL,
                             .id = 1,
                             .number = body ? TC_CALL_BODY : 0,
                             .size = (uint32_t)length + 1,
                             .offset = 1000,
                             .length = 0};
    return try_frame(options, frame, text);
}

Test(fetcher, the_hub_is_asked_for_what_was_named) {
    static struct tc_remote_address address = {(char *)"hf://org/name/x",
                                               (char *)"hf://org/name/x"};
    const struct tc_fetcher_options reads = {.addresses = &address, .count = 1, .jobs = 1};
    const struct tc_fetcher_options looks = {.repository = "models/org/name", .jobs = 1};
    const struct tc_fetcher_options sends = {
        .repository = "models/org/name", .uploads = true, .jobs = 1};
    static const struct {
        const char *call;
        enum outcome reads, looks, sends;
    } rows[] = {
        {"GET|/api/models/org/name/tree/main?recursive=true", ALLOWED, ALLOWED, ALLOWED},
        {"GET|/api/models/org/name", REFUSED, ALLOWED, ALLOWED},
        {"GET|/api/models/org/name/revision/main", REFUSED, ALLOWED, ALLOWED},
        {"POST|/api/models/org/name/preupload/main", REFUSED, REFUSED, ALLOWED},
        {"POST|/api/models/org/name/commit/main|Content-Type: x", REFUSED, REFUSED, ALLOWED},
        {"POST|/api/repos/create", REFUSED, REFUSED, ALLOWED},
        {"POST|/org/name.git/info/lfs/objects/batch", REFUSED, REFUSED, ALLOWED},
        {"PUT|" HUB "/store/x|X-Amz: y", REFUSED, REFUSED, ALLOWED},
        {"GET|/api/whoami-v2", REFUSED, REFUSED, REFUSED},
        {"GET|/api/models/org/name2", REFUSED, REFUSED, REFUSED},
        {"GET|/api/models/org/name/../other/tree/main", REFUSED, REFUSED, REFUSED},
        {"GET|/api/models/org/name/tree/../../../other", REFUSED, REFUSED, REFUSED},
        {"GET|/api/models/org/name/tree/%2e%2e/x", REFUSED, REFUSED, REFUSED},
        {"PUT|/api/models/org/name/settings", REFUSED, REFUSED, REFUSED},
        {"POST|/api/models/org/name/tree/main", REFUSED, REFUSED, REFUSED},
        {"GET|/api/models/org/name/commit/main", REFUSED, REFUSED, REFUSED},
        {"POST|/org/other.git/info/lfs/objects/batch", REFUSED, REFUSED, REFUSED},
        {"GET|" HUB "/store/x", REFUSED, REFUSED, REFUSED},
        {"PUT|https://evil.example/x", REFUSED, REFUSED, REFUSED},
        {"PUT|https://10.0.0.1/x", REFUSED, REFUSED, REFUSED},
        {"PUT|file:///etc/passwd", REFUSED, REFUSED, REFUSED},
        {"DELETE|/api/models/org/name/tree/main", ENDS, ENDS, ENDS},
        {"GET|/api/models/org/name/tree/main|Host: evil.example", ENDS, ENDS, ENDS},
        {"GET|/api/models/org/name/tree/main|X-Forwarded-Host: evil.example", ENDS, ENDS, ENDS},
        {"PUT|" HUB "/store/x|Host: evil.example", ENDS, ENDS, ENDS},
        {"PUT|" HUB "/store/x|X-A: b\r\nHost: evil.example", ENDS, ENDS, ENDS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect_eq(try_call(&reads, rows[i].call), rows[i].reads, "reads: %s", rows[i].call);
        cr_expect_eq(try_call(&looks, rows[i].call), rows[i].looks, "looks: %s", rows[i].call);
        cr_expect_eq(try_call(&sends, rows[i].call), rows[i].sends, "sends: %s", rows[i].call);
    }
}

Test(fetcher, frames_that_cannot_be) {
    const struct tc_fetcher_options options = {.jobs = 1};
    static const struct tc_frame rows[] = {
        {.kind = 0},
        {.kind = TC_FRAME_DATA},
        {.kind = TC_FRAME_OPEN, .size = 0},
        {.kind = TC_FRAME_OPEN, .size = UINT32_MAX},
        {.kind = TC_FRAME_READ, .number = 7, .length = 5},
        {.kind = TC_FRAME_CALL, .size = 1u << 30},
        {.kind = UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tc_frame frame = rows[i];
        struct tc_error error = {0};
        struct tc_remote *remote = tc_remote_start(&options, &error);
        cr_assert(remote);
        cr_assert_eq(send(remote->fd, &frame, sizeof frame, MSG_NOSIGNAL), sizeof frame);
        cr_expect_eq(receive(remote->fd), ENDS, "row %zu", i);
        tc_remote_end(remote);
    }
}

/* The hosts to which files go are those of the Hub's answer, however that is cut and written. */
Test(fetcher, stores_that_an_answer_names) {
    static const char answer[] =
        "{\"objects\":[{\"actions\":{\"upload\":{\"href\":\"https:\\/\\/s3.example\\/up?x=\\\"1\","
        "\"header\":{\"1\":\"https://\\u0070arts.example:8443/p\",\"t\":\"see "
        "https://not.example/\"}},"
        "\"x\":\"http://plain.example/\",\"https://key.example/\":0}}]}";
    for (size_t step = 1; step < sizeof answer; step += 7) {
        struct fetcher fetcher = {.endpoint = (char *)HUB};
        struct fetch_job job = {.fetcher = &fetcher};
        for (size_t at = 0; at < sizeof answer - 1; at += step) {
            size_t left = sizeof answer - 1 - at;
            fetch_note_stores(&job, answer + at, left < step ? left : step);
        }
        static const char *const good[] = {"https://s3.example/y", "https://parts.example:8443/",
                                           HUB "/complete", "HTTPS://S3.example:443/up"};
        static const char *const bad[] = {"https://s3.example.evil/", "https://parts.example/p",
                                          "https://not.example/",     "http://plain.example/",
                                          "https://s3.example@evil/", "https://evil.example/",
                                          "http://s3.example/"};
        for (size_t i = 0; i < sizeof good / sizeof *good; i++)
            cr_expect(fetch_store_is_named(&job, good[i]), "%s", good[i]);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            cr_expect_not(fetch_store_is_named(&job, bad[i]), "%s", bad[i]);
        while (fetcher.stores) {
            struct fetch_store *next = fetcher.stores->next;
            free(fetcher.stores->origin);
            free(fetcher.stores);
            fetcher.stores = next;
        }
    }
    /* Of an address that is longer than what is kept, the host is whole or it is none. */
    struct fetcher fetcher = {.endpoint = (char *)HUB};
    struct fetch_job job = {.fetcher = &fetcher};
    char text[1000] = "\"https://long.example/";
    memset(text + strlen(text), 'x', 500);
    text[strlen(text)] = '"';
    fetch_note_stores(&job, text, strlen(text));
    cr_expect(fetch_store_is_named(&job, "https://long.example/y"));
    memset(text + 9, 'a', 600);
    text[609] = '"';
    fetch_note_stores(&job, text, 610);
    cr_expect_eq(fetcher.store_count, 1);
    free(fetcher.stores->origin);
    free(fetcher.stores);
}
