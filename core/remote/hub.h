/*
 * The interface of the Hugging Face Hub, as far as it reads: which files a repository
 * has, and what is known of it. Calls go by the fetcher; answers are parsed here, in
 * the command's sandbox, and are as little to be trusted as any file: their size is
 * bounded, and every path, hash and commit is checked before it is used.
 */
#ifndef TCONV_CORE_REMOTE_HUB_H
#define TCONV_CORE_REMOTE_HUB_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/jansson.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/client.h"
#include "core/remote/remote.h"

/* The most files of a repository, and bytes of one answer. */
#define TC_HUB_FILES 200000u
#define TC_HUB_ANSWER ((uint64_t)32 << 20)

struct tc_hub_file {
    const char *path; /* in the repository */
    uint64_t size;
    bool folder;
    bool lfs;      /* a large file: the hash is the SHA-256 of its content */
    char hash[72]; /* of a large file, else the one that git has for it */
};

struct tc_hub_files {
    struct tc_arena arena;
    struct tc_hub_file *list; /* sorted by path */
    size_t count;
    size_t capacity;
};

/* Lists what lies below the place's path; without `recursive` only the folder itself.
 * To be released also on failure. A path that is no folder is "not-found". */
bool tc_hub_list(struct tc_remote *remote, const struct tc_hub_place *place, bool recursive,
                 struct tc_hub_files *files, struct tc_error *error);
void tc_hub_files_release(struct tc_hub_files *files);
/* Adds what one page of such a list has: an answer of the Hub's, for files below `folder`. */
bool tc_hub_files_add(struct tc_hub_files *files, const struct tc_document *page,
                      const char *folder, struct tc_error *error);

struct tc_hub_info {
    struct tc_arena arena;
    const char *id;
    const char *commit;   /* 40 hexadecimal digits */
    const char *modified; /* NULL: not told; so are the next ones */
    const char *gated;
    bool private;
    uint64_t downloads;
    uint64_t likes;
    const char **tags;
    size_t tag_count;
};

bool tc_hub_describe(struct tc_remote *remote, const struct tc_hub_place *place,
                     struct tc_hub_info *info, struct tc_error *error);
/* Fills it, with its arena at hand, from an answer of the Hub's. */
bool tc_hub_info_take(struct tc_hub_info *info, const struct tc_document *document,
                      struct tc_error *error);
void tc_hub_info_release(struct tc_hub_info *info);
/* Whether there is such a repository; fails where that can't be told. */
bool tc_hub_exists(struct tc_remote *remote, const struct tc_hub_place *place, bool *exists,
                   struct tc_error *error);

/* For this interface's other parts (core/remote/hub_push.c). */

/* Adds /api/TYPE/NS/NAME/WORD/REVISION; WORD NULL: only the first three. */
void tc_hub_target(struct tc_buffer *target, const struct tc_hub_place *place, const char *word);
/* Calls, and parses what comes back. Both are to be released, also on failure. A
 * status other than success is an error: tc_hub_refused says which. */
bool tc_hub_call(struct tc_remote *remote, const struct tc_remote_call *call,
                 struct tc_remote_answer *answer, struct tc_document *document,
                 struct tc_error *error);
/* Sends a text; statuses are left to the caller. */
bool tc_hub_post(struct tc_remote *remote, const char *target, const char *type,
                 struct tc_buffer *body, bool again, struct tc_remote_answer *answer,
                 struct tc_error *error);
/* The Hub's own words are shown, and none of another server's: those may be the address that it
 * was asked by, with what that is signed with. */
bool tc_hub_refused(const struct tc_remote_answer *answer, struct tc_error *error);
/* Parses the answer of a call that did not fail; what is wrong with it is not shown in its own
 * words, which may hold signed addresses. */
bool tc_hub_parse_answer(const struct tc_remote_answer *answer, struct tc_document *document,
                         struct tc_error *error);
/* An object's member; NULL: it has none. */
const struct tc_document_value *tc_hub_member(const struct tc_document_value *object,
                                              const char *key);
/* A member's text; false where there is none, or it is no text: then it is empty. */
bool tc_hub_text(const struct tc_document_value *object, const char *key, struct tc_text *text);

#endif
