/*
 * What the command and its fetcher say to each other: frames of a fixed size, each
 * with a payload of at most TC_FRAME_MOST bytes. Both sides check all of it; whoever
 * sees a frame that can't be ends the conversation.
 *
 * To the fetcher                          from it
 *     OPEN   a file by its address            OPENED  with the facts, or FAILED
 *     READ   a range of it                    DATA …, then DONE or FAILED
 *     CLOSE  it                               –
 *     CALL   the interface of the Hub         WANT … for bytes to send, DATA …, then
 *     GIVE   bytes that were wanted           ANSWERED or FAILED
 */
#ifndef TCONV_CORE_REMOTE_PROTOCOL_H
#define TCONV_CORE_REMOTE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An address that the user gave, and what is shown of it, which the command uses. */
struct tc_remote_address {
    char *shown;
    char *whole;
};

struct tc_fetcher_options {
    const struct tc_remote_address *addresses;
    size_t count;
    unsigned jobs; /* requests at once */
    /* For the commands of the Hub: its interface may be called for this repository
     * ("models/NS/NAME"); NULL: it may not. */
    const char *repository;
    bool uploads; /* it may be changed, and files be sent where the Hub says */
    /* Called in the fetcher once it is confined: for tests; NULL: nothing is. */
    void (*confined)(void);
};

enum tc_frame_kind {
    TC_FRAME_OPEN = 1,
    TC_FRAME_READ,
    TC_FRAME_CLOSE,
    TC_FRAME_CALL,
    TC_FRAME_GIVE,
    TC_FRAME_OPENED,
    TC_FRAME_DATA,
    TC_FRAME_DONE,
    TC_FRAME_WANT,
    TC_FRAME_ANSWERED,
    TC_FRAME_FAILED,
};

struct tc_frame {
    uint32_t kind;
    uint32_t id;     /* of the request, which the command chose */
    uint32_t number; /* the file's; of CALL: flags */
    uint32_t size;   /* bytes that follow */
    uint64_t offset;
    uint64_t length;
};

#define TC_FRAME_MOST ((uint32_t)1 << 16)
/* Flags of READ (in `id` it is a number of its own): the file from its start to its
 * end, by a server that gives no ranges. */
#define TC_READ_WHOLE UINT64_MAX

/* Flags of CALL. */
#define TC_CALL_BODY 1u  /* `length` bytes are sent with it */
#define TC_CALL_AGAIN 2u /* doing it twice does no harm: it is tried again */

/* The payload of OPENED. Texts end with a NUL. */
struct tc_remote_facts {
    uint64_t size;
    uint32_t ranges;   /* 0: the server has none */
    uint32_t has_size; /* 0: not known before the end */
    char commit[48];   /* of a repository: 40 hexadecimal digits; "" unknown */
    char etag[136];    /* without quotation marks, "" unknown; of the Hub that of the content */
    uint32_t lfs;      /* the etag is the SHA-256 of the content */
};

/* The payload of ANSWERED; the body went before it as DATA. */
struct tc_remote_status {
    uint32_t status;
    uint32_t own;    /* the endpoint itself gave it, and no server that it leads to */
    char etag[136];  /* as it came, with quotation marks */
    char next[1024]; /* the target of the next page: from the slash on; "" none */
};

/* The payload of FAILED. */
struct tc_remote_failure {
    uint32_t class; /* enum tc_class */
    uint32_t code;  /* a position in tc_remote_codes */
    uint32_t status;
    char message[768];
    char hint[384];
};

/* Codes of errors that the fetcher has. */
#define TC_REMOTE_CODES(CODE)                                                                      \
    CODE(ADDRESS, "address")                                                                       \
    CODE(ANSWER, "answer")                                                                         \
    CODE(CERTIFICATE, "certificate")                                                               \
    CODE(CHANGED, "changed")                                                                       \
    CODE(DENIED, "denied")                                                                         \
    CODE(HTTP, "http")                                                                             \
    CODE(MEMORY, "memory")                                                                         \
    CODE(NETWORK, "network")                                                                       \
    CODE(NO_LIBCURL, "no-libcurl")                                                                 \
    CODE(NO_RANGES, "no-ranges")                                                                   \
    CODE(NOT_FOUND, "not-found")                                                                   \
    CODE(OFFLINE, "offline")                                                                       \
    CODE(PLAIN_HTTP, "plain-http")                                                                 \
    CODE(RATE_LIMIT, "rate-limit")                                                                 \
    CODE(REDIRECT, "redirect")                                                                     \
    CODE(TIMEOUT, "timeout")                                                                       \
    CODE(TOKEN, "token")                                                                           \
    CODE(WRONG_RANGE, "wrong-range")

enum tc_remote_code {
#define TC_CODE(name, slug) TC_REMOTE_##name,
    TC_REMOTE_CODES(TC_CODE)
#undef TC_CODE
        TC_REMOTE_CODE_COUNT
};

#endif
