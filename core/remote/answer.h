/* The header of an HTTP answer: what the fetcher looks at, checked as it comes in. */
#ifndef TCONV_CORE_REMOTE_ANSWER_H
#define TCONV_CORE_REMOTE_ANSWER_H

#include "core/base/error.h"
#include "core/base/text.h"

/* Longest address that a server may lead to; presigned ones have some 2,000 bytes. */
#define TC_LOCATION_MOST 8192u

struct tc_answer {
    unsigned status;
    bool has_body;   /* its header was looked at, and the body begins */
    bool bad_length; /* it has a Content-Length that is no number, or two that differ */
    bool has_length;
    uint64_t length; /* of the body that follows */
    bool has_part;   /* Content-Range names a range: start and end, which is behind it */
    uint64_t start;
    uint64_t end;
    bool has_total;
    uint64_t total;
    bool encoded;      /* Content-Encoding: other than identity */
    bool several;      /* Content-Type: several parts */
    char etag[136];    /* as it came; "" none, or too long */
    char modified[48]; /* Last-Modified */
    char location[TC_LOCATION_MOST];
    char link[TC_LOCATION_MOST]; /* the next page's address; "" none */
    /* The Hub's own. */
    char commit[48];
    char linked_etag[136];
    bool has_linked_size;
    uint64_t linked_size;
    char error_code[48];
    /* How long to wait, in seconds; UINT32_MAX: not said. */
    uint32_t retry_after;
    uint32_t rate_reset;
    /* Seconds since 1970: until when to wait, and what the server's clock says; 0: not said. */
    int64_t retry_date;
    int64_t date;
};

void tc_answer_begin(struct tc_answer *answer);
/* Takes a line of the header; the status line has an empty name. */
void tc_answer_line(struct tc_answer *answer, struct tc_text name, struct tc_text value);
/* How many seconds the server asks to wait; UINT32_MAX: it does not. `now` is this
 * machine's clock, for a date where the server does not say what its own shows. */
uint32_t tc_answer_wait(const struct tc_answer *answer, int64_t now);
/* The value of an ETag without its quotation marks and W/. */
void tc_etag_bare(char *bare, size_t size, const char *etag);
/* Where a Location leads, seen from the address that answered; from malloc. */
char *tc_location_resolve(const char *from, const char *location, struct tc_error *error);

#endif
