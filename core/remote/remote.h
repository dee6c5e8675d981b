/*
 * Remote files for a command: what it says to its fetcher (core/remote/fetcher.h), and
 * what it gets back, as inputs like any other.
 *
 *     remote = tc_remote_start(&options, error)   before the sandbox, while alone
 *     input = tc_remote_open(remote, address, error)
 *     … tc_input_read and the like, from any thread; tc_input_close
 *     tc_remote_end(remote)
 *
 * Blocks of files are kept while there is room for them, within the command's
 * memory: what is read again does not come by the network again. Neighbouring ranges
 * are asked for as one; of a range that is announced (tc_input_expect), or read from
 * one end to the other, more is under way than was asked for so far.
 */
#ifndef TCONV_CORE_REMOTE_REMOTE_H
#define TCONV_CORE_REMOTE_REMOTE_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/remote/protocol.h"

struct tc_remote;

/* Requests at once where the user says nothing, and at most. */
#define TC_REMOTE_JOBS 4u
#define TC_REMOTE_MOST_JOBS 32u

/* Forks the fetcher. The options must live until tc_remote_end. */
struct tc_remote *tc_remote_start(const struct tc_fetcher_options *options, struct tc_error *error);
/* May be NULL. All inputs are closed before. */
void tc_remote_end(struct tc_remote *remote);

/* Opens a file by its address, as it is shown. Where its server gives no ranges, it
 * is copied to a temporary file first, and the input's `copied` is set. */
struct tc_input *tc_remote_open(struct tc_remote *remote, const char *address,
                                struct tc_error *error);
/* The same for a file of which perhaps nothing will be read: where the Hub's store gives no ranges,
 * the first read fails because of TC_REASON_NO_RANGES. */
struct tc_input *tc_remote_open_unread(struct tc_remote *remote, const char *address,
                                       struct tc_error *error);
/* Whether there is such a file, or none that this user is shown. Fails where that can't be told. */
bool tc_remote_has(struct tc_remote *remote, const char *address, bool *has,
                   struct tc_error *error);
/* The address of a file that lies beside another, by its name there: from malloc. The
 * path's front, up to `folder` bytes, is an address's folder. */
char *tc_remote_beside(const char *path, size_t folder, struct tc_error *error);
/* What the server told of an input; NULL: it is no remote file. */
const struct tc_remote_facts *tc_remote_facts_of(const struct tc_input *input);

/* A call of the Hub's interface. */
struct tc_remote_call {
    const char *method;
    const char *target;       /* from the slash on; or a whole address, for a file that is sent */
    const char *content_type; /* NULL: none */
    /* More lines of the header, each with a NUL behind it; those of an upload. */
    struct tc_text headers;
    /* The body: `length` bytes that `read` gives, more than once where it must. */
    bool (*read)(void *context, uint64_t offset, void *bytes, size_t length,
                 struct tc_error *error);
    void *context;
    uint64_t length;
    bool again;    /* doing it twice does no harm */
    uint64_t most; /* bytes of the answer */
    /* Called now and then with the bytes of the body that were sent; may be NULL. */
    void (*progress)(void *progress_context, uint64_t sent);
    void *progress_context;
};

struct tc_remote_answer {
    struct tc_buffer body; /* tc_buffer_release */
    struct tc_remote_status status;
};

/* Statuses of 200 to 299 and those of 400 to 499 but 401, 403 and 429 are answers; all
 * others are errors. */
bool tc_remote_call(struct tc_remote *remote, const struct tc_remote_call *call,
                    struct tc_remote_answer *answer, struct tc_error *error);

#endif
