/*
 * One thing that the fetcher does for the command: it opens a file, reads a range or
 * calls the Hub. A job may take several transfers: redirects are followed one by one,
 * each checked; what failed for a reason that may pass is tried again, from the byte
 * on that is missing.
 */
#ifndef TCONV_CORE_REMOTE_FETCH_H
#define TCONV_CORE_REMOTE_FETCH_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/remote/answer.h"
#include "core/remote/http.h"
#include "core/remote/protocol.h"

/* A file that is open. */
struct fetch_file {
    uint32_t number;
    char *address;   /* as the command calls it */
    char *url;       /* where its way begins */
    size_t revision; /* of a file of the Hub: where the revision lies in it, */
    size_t behind;   /* and what follows that */
    char *direct;    /* where redirects led, tried first; NULL: not known */
    char *pin;       /* of a file of the Hub: TYPE/REPO@REVISION; NULL: of another server */
    bool private;    /* the server that it begins at is of a private network */
    bool opened;
    struct tc_remote_facts facts;
    bool has_version; /* an answer came that had bytes of it */
    char etag[136];   /* of that answer; "" it told none */
    char modified[48];
    unsigned users; /* jobs under way */
    bool closed;
    struct fetch_file *next;
};

#define FETCH_BEARER "Authorization: Bearer "

/* JSON as it comes in, without its escapes, \u0068 for one. */
struct fetch_plain {
    unsigned escape; /* how much of an escape came */
    unsigned number; /* that it stands for, so far */
};

/* A string of such an answer: what may be the front of an address. */
struct fetch_string {
    struct fetch_plain plain;
    bool open;
    size_t length; /* of all of it */
    char front[320];
};

enum fetch_kind { FETCH_OPEN, FETCH_OPEN_HUB, FETCH_READ, FETCH_CALL };

struct fetch_job {
    struct fetcher *fetcher;
    enum fetch_kind kind;
    uint32_t id;
    struct fetch_file *file; /* NULL: a call */
    const char *method;
    char *url;    /* of the transfer that is under way or comes next */
    bool trusted; /* the token goes along as long as the endpoint's own host is asked */
    bool private; /* the first server is of a private network */
    unsigned hops;
    bool direct; /* it began where redirects had led before */
    uint64_t at; /* the next byte that is wanted */
    uint64_t end;
    bool whole;         /* the file from its start, without ranges */
    uint64_t expected;  /* bytes that this transfer's body may still have */
    unsigned tries;     /* in vain, one after the other */
    int64_t not_before; /* milliseconds of the monotonic clock */
    int64_t alive;      /* when something last happened */
    size_t heard;       /* bytes that came since then, too few to count as something */
    bool proxied;       /* the transfer goes by a proxy, which alone knows its peer */
    struct tc_http_transfer *transfer;
    struct tc_answer answer;
    bool body_wanted; /* its body is passed on */
    bool paused;
    struct tc_error error;
    uint32_t code;
    /* Of a call. */
    struct tc_buffer text; /* METHOD, TARGET and headers, each with a NUL behind it */
    bool has_body;
    bool again;
    uint64_t body_length;
    uint64_t sent; /* of the body, in this transfer */
    uint64_t most; /* bytes of the answer */
    char *given;   /* bytes of the body that came and were not sent */
    size_t given_length;
    size_t given_used;
    bool wants;                 /* more of it was asked for */
    struct tc_buffer tail;      /* the last bytes of the answer that came */
    struct tc_buffer unescaped; /* the same, of what JSON's escapes stand for */
    struct fetch_plain plain;   /* where that ended */
    bool names_stores;          /* its answer says where files are sent */
    struct fetch_string string; /* of that answer */
    struct fetch_job *next;
};

/* A revision of a repository, and the commit that it stood for at first. */
struct fetch_pin {
    char *name;
    char commit[48];
    struct fetch_pin *next;
};

/* A host that the Hub wants files sent to, or what it wants asked of itself. */
struct fetch_store {
    char *origin; /* https://HOST:PORT; or the Hub's own, from the slash on */
    struct fetch_store *next;
};

struct fetcher {
    int fd;
    const struct tc_fetcher_options *options;
    struct tc_http *http;
    struct tc_error start_error; /* why there is no `http` */
    struct tc_error hub_error;   /* why the Hub can't be asked, and its code */
    uint32_t hub_code;
    char *endpoint;
    char *token; /* FETCH_BEARER and the token; NULL: none */
    bool offline;
    bool endpoint_private; /* the Hub that is asked is of a private network */
    int timeout;
    int backoff;
    struct fetch_file *files;
    struct fetch_pin *pins;
    struct fetch_store *stores;
    unsigned store_count;
    struct fetch_job *jobs; /* in the order they came */
    size_t job_count;
    struct tc_buffer in;
    struct tc_buffer out;
    size_t out_done;
    bool broken;
};

/* Frames wait in a queue until the socket takes them. */
void fetcher_send(struct fetcher *fetcher, const struct tc_frame *frame, const void *payload);
/* More than this many bytes wait: transfers pause. */
bool fetcher_is_full(const struct fetcher *fetcher);

int64_t fetch_now(void);
/* How long its server may be silent, in milliseconds. */
int fetch_patience(const struct fetch_job *job);
/* Starts the transfer of a job whose time has come. */
void fetch_start(struct fetch_job *job);
/* A transfer came to its end: the job is done, failed, or goes on later. Returns
 * whether the job is over; then it has been answered. */
bool fetch_ended(struct fetch_job *job, enum tc_http_result result, const char *why);
/* Nothing has happened on it for too long: the same. */
bool fetch_timed_out(struct fetch_job *job);
/* Fails the job for good. */
void fetch_refuse(struct fetch_job *job);
/* Whether an answer from the job's address may lead to another one; false with the job's error
 * filled. */
bool fetch_hop_is_allowed(struct fetch_job *job, const char *to);
/* What of an answer the job did is right and sent: in core/remote/fetch_answer.c.
 * Returns false with the job's error filled where it is not. */
enum fetch_next { FETCH_OVER, FETCH_HOP, FETCH_AGAIN, FETCH_FAIL };
bool fetch_check_header(struct fetch_job *job);
enum fetch_next fetch_finish(struct fetch_job *job);
bool fetch_fail(struct fetch_job *job, enum tc_class class, uint32_t code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* In core/remote/fetch_allowed.c: finds the first address of a file that is to be
 * opened, and whether the Hub's interface may be called so; both false with the job's
 * error filled where the command may not have it. */
bool fetch_resolve(struct fetch_job *job);
bool fetch_call_is_allowed(struct fetch_job *job, const char *target);
/* Whether the lines of the header that the command adds are its to add: they follow the target. */
bool fetch_lines_are_allowed(const char *target, const char *end);
struct fetch_pin *fetch_find_pin(struct fetcher *fetcher, const char *name);
/* In core/remote/fetch_text.c, of answers as they come in. Whether a character of JSON is one of
 * the text: *plain is then that, and *escaped says that it stood there as an escape. It may stand
 * for nothing that is ASCII: then it is NUL. */
bool fetch_plain_take(struct fetch_plain *state, char c, char *plain, bool *escaped);
/* Whether the answer to a call, of which the command shows parts, has the token in it, as it is or
 * in JSON's escapes; that may lie across two pieces. */
bool fetch_repeats_token(struct fetch_job *job, const char *bytes, size_t length);
/* Remembers the hosts of all addresses that the endpoint's answer has: files may be sent there. */
void fetch_note_stores(struct fetch_job *job, const char *bytes, size_t length);
/* Whether an address is of such a host, or the endpoint's own. */
bool fetch_store_is_named(const struct fetch_job *job, const char *address);
/* Whether such an answer has this address of the endpoint's own, from the slash on. */
bool fetch_target_is_named(const struct fetch_job *job, const char *target);

#endif
