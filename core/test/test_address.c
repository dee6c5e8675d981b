#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/answer.h"
#include "core/remote/environment.h"

Test(address, secrets_are_cut_off) {
    static const char *const pairs[][2] = {
        {"https://h/x.npy?sig=1", "https://h/x.npy"},
        {"https://u:p@h:8/x#f", "https://h:8/x"},
        {"https://u@x:p@h/a@b?c", "https://h/a@b"},
        {"https://h?u@v/w", "https://h"},
        {"hf://a/b@main/c?d", "hf://a/b@main/c"},
        {"HTTPS://u@h/x", "HTTPS://h/x"},
        {"s3://k:s@b/x?v=1", "s3://b/x"},
        {"git+ssh://u@h/x", "git+ssh://h/x"},
        {"https:/u:p@h/x?s", "https:/h/x"},
        {"hf:a/b@main/c?d", "hf:a/b@main/c"},
        {"https://u:p@/v@h/x", "https://h/x"},
        {"https:///u@/v@//w@h/x", "https:///h/x"},
        {"git://u@/v@h/x", "git://h/x"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char text[64];
        memcpy(text, pairs[i][0], strlen(pairs[i][0]) + 1);
        tc_address_redact(text);
        cr_assert_str_eq(text, pairs[i][1]);
    }
}

Test(address, what_is_meant_for_one) {
    static const char *const seems[] = {"https://h/x", "hf://a/b", "s3://b/x", "ftp:/h/x",
                                        "hf:a/b",      "x.y://",   "HTTP:/h"};
    static const char *const none[] = {"C:/x",   "a/b://c", "://x", "1a://x",
                                       "-q://x", "x",       "",     "a:b"};
    for (size_t i = 0; i < sizeof seems / sizeof *seems; i++)
        cr_assert(tc_address_seems(seems[i]), "%s", seems[i]);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char text[16];
        cr_assert_not(tc_address_seems(none[i]), "%s", none[i]);
        memcpy(text, none[i], strlen(none[i]) + 1);
        tc_address_redact(text);
        cr_assert_str_eq(text, none[i]);
    }
}

Test(address, plain_http_is_for_this_machine) {
    struct tc_url url;
    static const char *const good[] = {"http://127.0.0.1:80/x", "http://localhost/x",
                                       "http://[::1]/", "https://h:65535/x", "https://h:/x"};
    static const char *const bad[] = {"http://127.0.0.1.example/x",
                                      "http://example/x",
                                      "ftp://h/x",
                                      "https://",
                                      "https://h\\x/",
                                      "https://h:port/",
                                      "https://h:0/",
                                      "https://h:65536/",
                                      "https://h:99999999999999999999/",
                                      "https://[::1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tc_error error = {0};
        cr_assert(tc_url_parse(&url, good[i], &error), "%s", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tc_error error = {0};
        cr_assert_not(tc_url_parse(&url, bad[i], &error), "%s", bad[i]);
    }
}

Test(address, private_numbers_in_every_form) {
    static const char *const private[] = {"127.0.0.1",
                                          "127.1",
                                          "0x7f000001",
                                          "2130706433",
                                          "10.1.2.3",
                                          "172.16.0.1",
                                          "192.168.9.9",
                                          "169.254.169.254",
                                          "100.64.0.1",
                                          "0.0.0.0",
                                          "::1",
                                          "fe80::1",
                                          "fc00::1",
                                          "::ffff:10.0.0.1",
                                          "64:ff9b::a00:1",
                                          "2002:7f00:1::",
                                          "localhost",
                                          "127.0.0.1.",
                                          "LocalHost.",
                                          "a.localhost",
                                          "0",
                                          "017700000001",
                                          "fd00::1",
                                          "ff02::1",
                                          "::",
                                          "::127.0.0.1",
                                          "64:ff9b::7f00:1",
                                          "64:ff9b:1::1",
                                          "fec0::1",
                                          "2001:db8::1",
                                          "3fff::1",
                                          "3fff:fff:1::",
                                          "192.88.99.1"};
    static const char *const public[] = {"8.8.8.8",           "172.32.0.1",     "2606:4700::1",
                                         "::ffff:8.8.8.8",    "64:ff9b::808:8", "example.com",
                                         "localhost.example", "mylocalhost",    "3fff:1000::1"};
    for (size_t i = 0; i < sizeof private / sizeof *private; i++)
        cr_assert(tc_host_is_private_number(tc_text_of(private[i])), "%s", private[i]);
    for (size_t i = 0; i < sizeof public / sizeof *public; i++)
        cr_assert_not(tc_host_is_private_number(tc_text_of(public[i])), "%s", public[i]);
}

Test(address, places_on_the_hub) {
    struct tc_hub_place place;
    struct tc_error error = {0};
    cr_assert(tc_hub_parse(&place, "hf://datasets/a/b@refs/pr/3/c/d.npy", &error));
    cr_assert_str_eq(place.type, "datasets");
    cr_assert_str_eq(place.repo, "a/b");
    cr_assert_str_eq(place.revision, "refs/pr/3");
    cr_assert_str_eq(place.path, "c/d.npy");
    tc_hub_place_release(&place);
    static const char *const bad[] = {
        "hf://",       "hf://a/..",   "hf://a/b/../c", "hf://a/b@../c",        "hf://-a/b",
        "hf://a/b//c", "hf://a--b/c", "hf://a/b/c\\d", "hf://a/b/.git/config", "hf://a/b/c/.GIT"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tc_error why = {0};
        cr_assert_not(tc_hub_parse(&place, bad[i], &why), "%s", bad[i]);
        cr_assert_eq(why.class, TC_USAGE);
    }
}

/* What a browser shows; names may be such words themselves. */
Test(address, pages_of_the_hub) {
    static const char *const rows[][4] = {
        {"/a/b/blob/main/c%20d/e.npy", "a/b", "main", "c d/e.npy"},
        {"/datasets/a/b/tree/refs%2Fpr%2F3", "a/b", "refs/pr/3", ""},
        {"/old/resolve/v1/x", "old", "v1", "x"},
        {"/a/resolve/raw/v1/blob/x", "a/resolve", "v1", "blob/x"},
        {"/blob/tree/blob/v1/", "blob/tree", "v1", ""},
    };
    static const char *const none[] = {"/a/b", "/a/b/c/blob/main/x", "/", "/api/blob/main/x"};
    static const char *const bad[] = {"/a/b/blob/main/%2e%2e/x", "/a/b/blob/main/%0",
                                      "/-a/raw/m/x"};
    char address[80];
    struct tc_hub_place place;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tc_error error = {0};
        snprintf(address, sizeof address, "https://h/base%s", rows[i][0]);
        cr_assert(tc_hub_parse_web(&place, address, "https://h/base", &error), "%s", address);
        cr_assert_str_eq(place.repo, rows[i][1]);
        cr_assert_str_eq(place.revision, rows[i][2]);
        cr_assert_str_eq(place.path, rows[i][3]);
        tc_hub_place_release(&place);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct tc_error error = {0};
        snprintf(address, sizeof address, "https://h%s", none[i]);
        cr_assert_not(tc_hub_parse_web(&place, address, "https://h", &error), "%s", address);
        cr_assert_eq(error.class, TC_OK, "%s", address);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tc_error error = {0};
        snprintf(address, sizeof address, "https://h%s", bad[i]);
        cr_assert_not(tc_hub_parse_web(&place, address, "https://h", &error), "%s", address);
        cr_assert_eq(error.class, TC_USAGE, "%s", address);
    }
}

Test(address, redirects_lead_where_they_say) {
    static const char *const rows[][3] = {
        {"https://u@h:1/a/b?c", "/d", "https://h:1/d"},
        {"https://h/a/b", "d?e", "https://h/a/d?e"},
        {"https://h/a/b", "//o/x", "https://o/x"},
        {"https://h", "x", "https://h/x"},
        {"https://h/a", "http://o/x", "http://o/x"},
        {"https://h/a/b?c", "?d", "https://h/a/b?d"},
        {"https://h/a?c", "#d", "https://h/a?c#d"},
        {"https://h/a?c", "", "https://h/a?c"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tc_error error = {0};
        char *to = tc_location_resolve(rows[i][0], rows[i][1], &error);
        cr_assert_str_eq(to, rows[i][2]);
        free(to);
    }
}

Test(answer, ranges_and_waits) {
    struct tc_answer answer;
    tc_answer_begin(&answer);
    tc_answer_line(&answer, TC_TEXT(""), TC_TEXT("HTTP/1.1 206 Partial"));
    tc_answer_line(&answer, TC_TEXT("content-range"), TC_TEXT("bytes 5-9/100"));
    cr_assert(answer.status == 206 && answer.has_part && answer.start == 5 && answer.end == 10 &&
              answer.total == 100);
    tc_answer_line(&answer, TC_TEXT("Content-Range"), TC_TEXT("bytes 5-200/100"));
    cr_assert(!answer.has_part || !answer.has_total);
    tc_answer_line(&answer, TC_TEXT("Content-Range"), TC_TEXT("Bytes 0-0/1"));
    cr_assert(answer.has_part && answer.has_total && answer.total == 1);
    /* A line that is wrong leaves nothing of one before it. */
    static const char *const wrong[] = {"bytes 50",          "bytes 50-",
                                        "bytes 50-40/100",   "bytes x",
                                        "bytes 5-9/100 bis", "bytes 5-9/100, bytes 5-9/100",
                                        "bytes 5-9/100-",    ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tc_answer_line(&answer, TC_TEXT("Content-Range"), TC_TEXT("bytes 5-9/100"));
        cr_assert(answer.has_part && answer.has_total);
        tc_answer_line(&answer, TC_TEXT("Content-Range"), tc_text_of(wrong[i]));
        cr_assert(!answer.has_part && !answer.has_total, "%s", wrong[i]);
    }
    tc_answer_line(&answer, TC_TEXT("RateLimit"), TC_TEXT("\"api\";r=0;t=55"));
    cr_assert_eq(answer.rate_reset, 55);
    /* Of several limits the one that is used up counts, and of those the longest. */
    static const struct {
        const char *line;
        uint32_t wait;
    } limits[] = {
        {"\"api\";r=5;t=10, \"pages\";r=0;t=300", 300},
        {"\"a\";r=0;t=7,\"b\";r=0;t=9,\"c\";r=4;t=900", 9},
        {"\"api\"; r=0; t=4", 4},
        {"limit=100, remaining=0, reset=50", 50},
        {"\"api\";r=0;t=99999999999999999999", UINT32_MAX - 1},
        {"\"api\";r=0;t=-1", UINT32_MAX},
        {"\"api\";r=0;t=", UINT32_MAX},
        {"t", UINT32_MAX},
        {",,", UINT32_MAX},
        {"", UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        tc_answer_line(&answer, TC_TEXT("RateLimit"), tc_text_of(limits[i].line));
        cr_assert_eq(answer.rate_reset, limits[i].wait, "%s", limits[i].line);
    }
    tc_answer_line(&answer, TC_TEXT("RateLimit-Reset"), TC_TEXT("12"));
    cr_assert_eq(answer.rate_reset, 12);
    tc_answer_line(&answer, TC_TEXT("Link"),
                   TC_TEXT("<https://h/p>; rel=\"prev\", </n?c=1>; rel=\"next\""));
    cr_assert_str_eq(answer.link, "/n?c=1");
}

Test(answer, lengths) {
    static const struct {
        const char *lines[2];
        bool good;
        uint64_t length;
    } rows[] = {
        {{"0"}, true, 0},
        {{"9223372036854775807"}, true, INT64_MAX},
        {{"5", "5"}, true, 5},
        {{"5", "6"}, false, 0},
        {{"9223372036854775808"}, false, 0},
        {{"99999999999999999999999999"}, false, 0},
        {{"-1"}, false, 0},
        {{"5 6"}, false, 0},
        {{""}, false, 0},
        {{"x", "5"}, false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tc_answer answer;
        tc_answer_begin(&answer);
        for (size_t j = 0; j < 2 && rows[i].lines[j]; j++)
            tc_answer_line(&answer, TC_TEXT("Content-Length"), tc_text_of(rows[i].lines[j]));
        cr_assert_eq(answer.bad_length, !rows[i].good, "row %zu", i);
        cr_assert_eq(answer.has_length, rows[i].good, "row %zu", i);
        cr_assert_eq(answer.length, rows[i].length, "row %zu", i);
    }
}

Test(environment, own_addresses) {
    static const char mirror[] = "https://mirror.example/hub";
    cr_assert_str_eq(tc_hub_own_target("https://mirror.example/hub/api/x", mirror), "/api/x");
    cr_assert_str_eq(tc_hub_own_target("https://huggingface.co/api/x", mirror), "/api/x");
    cr_assert_str_eq(tc_hub_own_target("HTTPS://Mirror.example:443/hub/x?c=1", mirror), "/x?c=1");
    cr_assert_str_eq(
        tc_hub_own_target("https://mirror.example/hub/x", "https://u:p@Mirror.example/hub"), "/x");
    static const char *const others[] = {
        "https://mirror.example/hubs/x",    "https://mirror.example/hub",
        "https://huggingface.co.example/x", "https://user@huggingface.co/x",
        "http://huggingface.co/x",          "https://mirror.example:444/hub/x",
        "https://mirror.example/x?/hub/y",  "https://mirror.example/#/hub/x"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_assert_null(tc_hub_own_target(others[i], mirror), "%s", others[i]);
}

Test(answer, waits_until_a_date) {
    struct tc_answer answer;
    tc_answer_begin(&answer);
    tc_answer_line(&answer, TC_TEXT(""), TC_TEXT("HTTP/1.1 503 Later"));
    cr_assert_eq(tc_answer_wait(&answer, 0), UINT32_MAX);
    tc_answer_line(&answer, TC_TEXT("Retry-After"), TC_TEXT("Sun, 06 Nov 1994 08:49:37 GMT"));
    cr_assert_eq(tc_answer_wait(&answer, 784111777 - 30), 30);
    cr_assert_eq(tc_answer_wait(&answer, 784111777 + 30), 0);
    /* The server's own clock counts. */
    tc_answer_line(&answer, TC_TEXT("Date"), TC_TEXT("Sun, 06 Nov 1994 08:48:37 GMT"));
    cr_assert_eq(tc_answer_wait(&answer, 0), 60);
    tc_answer_line(&answer, TC_TEXT("Retry-After"), TC_TEXT("7"));
    cr_assert_eq(tc_answer_wait(&answer, 0), 7);
    /* More than a number holds is long, and not nothing. */
    tc_answer_line(&answer, TC_TEXT("Retry-After"), TC_TEXT("99999999999999999999999"));
    cr_assert_eq(tc_answer_wait(&answer, 0), UINT32_MAX - 1);
    static const char *const bad[] = {"", "soon", "Sun, 06 Nov 1994", "-5",
                                      "Sun, 06 Nov 1994 08:49:37 GMT and more"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tc_answer_line(&answer, TC_TEXT("Retry-After"), tc_text_of(bad[i]));
        cr_assert_eq(tc_answer_wait(&answer, 0), UINT32_MAX, "%s", bad[i]);
    }
}

static bool is_proxied(const char *address) {
    struct tc_url url;
    struct tc_error error = {0};
    cr_assert(tc_url_parse(&url, address, &error), "%s", address);
    return tc_proxy_is_used(&url);
}

Test(environment, proxies) {
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY",   "no_proxy",    "NO_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    cr_assert_not(is_proxied("https://example.com/x"));
    setenv("HTTPS_PROXY", "http://proxy:3128", 1);
    cr_assert(is_proxied("https://example.com/x"));
    cr_assert_not(is_proxied("http://127.0.0.1/x"));
    setenv("NO_PROXY", ".corp, example.org,10.0.0.0/8,192.168.1.0/25 fd00::/8", 1);
    static const char *const direct[] = {"https://a.corp/",        "https://corp/",
                                         "https://EXAMPLE.org./",  "https://a.example.org:8/x",
                                         "https://10.1.2.3/",      "https://192.168.1.127/",
                                         "https://[fd12::1]:443/x"};
    static const char *const proxied[] = {"https://notcorp/",       "https://badexample.org/",
                                          "https://example.com/",   "https://11.0.0.1/",
                                          "https://192.168.1.128/", "https://[fe80::1]/"};
    for (size_t i = 0; i < sizeof direct / sizeof *direct; i++)
        cr_assert_not(is_proxied(direct[i]), "%s", direct[i]);
    for (size_t i = 0; i < sizeof proxied / sizeof *proxied; i++)
        cr_assert(is_proxied(proxied[i]), "%s", proxied[i]);
    setenv("NO_PROXY", "*", 1);
    cr_assert_not(is_proxied("https://example.com/x"));
}
