#include "core/remote/hub_push.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/jansson.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/io/input.h"
#include "core/remote/hub.h"
#include "core/remote/remote.h"

/* Files of one question to the Hub. */
#define AT_ONCE 256u
/* Bytes of files that a commit holds itself; the Hub calls larger ones large. */
#define MOST_INLINE (UINT64_C(64) << 20)
#define BASE64_STEP ((size_t)48 << 10)

static bool bad_answer(struct tc_error *error, const char *what) {
    return tc_fail(error, TC_IO, "answer", "the Hub's answer is not as expected: %s", what);
}

bool tc_hub_create(struct tc_remote *remote, const struct tc_hub_place *place, bool private,
                   struct tc_error *error) {
    struct tc_buffer body = {0};
    struct tc_json_writer json = {.out = &body, .escape = TC_ESCAPE_SERDE};
    struct tc_remote_answer answer;
    const char *slash = strchr(place->repo, '/');
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "name", slash ? slash + 1 : place->repo);
    if (slash)
        tc_json_add_text(&json, "organization",
                         (struct tc_text){place->repo, (size_t)(slash - place->repo)});
    tc_json_add_text(&json, "type", (struct tc_text){place->type, strlen(place->type) - 1});
    tc_json_add_boolean(&json, "private", private);
    tc_json_close(&json);
    bool ok =
        tc_hub_post(remote, "/api/repos/create", "application/json", &body, true, &answer, error);
    if (ok && answer.status.status >= 300 && answer.status.status != 409)
        ok = tc_hub_refused(&answer, error);
    tc_buffer_release(&answer.body);
    tc_buffer_release(&body);
    return ok;
}

static void add_base64(struct tc_buffer *out, const unsigned char *bytes, size_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        uint32_t group = (uint32_t)bytes[i] << 16;
        group |= i + 1 < length ? (uint32_t)bytes[i + 1] << 8 : 0;
        group |= i + 2 < length ? bytes[i + 2] : 0;
        char four[4] = {digits[group >> 18], digits[group >> 12 & 63],
                        i + 1 < length ? digits[group >> 6 & 63] : '=',
                        i + 2 < length ? digits[group & 63] : '='};
        tc_buffer_add(out, four, sizeof four);
    }
}

/* Which files are large */

static struct tc_hub_upload *find(struct tc_hub_upload *uploads, size_t count,
                                  struct tc_text path) {
    for (size_t i = 0; i < count; i++)
        if (tc_text_equal(tc_text_of(uploads[i].path), path))
            return &uploads[i];
    return NULL;
}

static void ask_body(struct tc_buffer *body, const struct tc_hub_upload *uploads, size_t count) {
    struct tc_json_writer json = {.out = body, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    tc_json_open_array(&json, "files");
    for (size_t i = 0; i < count; i++) {
        struct tc_buffer sample = {0};
        add_base64(&sample, uploads[i].sample, uploads[i].sampled);
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "path", uploads[i].path);
        tc_json_add_text(&json, "sample", (struct tc_text){sample.bytes, sample.length});
        tc_json_add_number(&json, "size", uploads[i].size);
        tc_json_close(&json);
        body->failed |= sample.failed;
        tc_buffer_release(&sample);
    }
    tc_json_close(&json);
    tc_json_close(&json);
}

/* What the Hub says of one file. */
static bool take_mode(struct tc_hub_upload *uploads, size_t count,
                      const struct tc_document_value *entry, struct tc_error *error) {
    const struct tc_document_value *ignored = tc_hub_member(entry, "shouldIgnore");
    struct tc_text path;
    struct tc_text mode;
    tc_hub_text(entry, "path", &path);
    tc_hub_text(entry, "uploadMode", &mode);
    struct tc_hub_upload *upload = find(uploads, count, path);
    bool large = tc_text_equal(mode, TC_TEXT("lfs"));
    if (!upload || upload->told || !(large || tc_text_equal(mode, TC_TEXT("regular"))))
        return bad_answer(error, "how a file is sent");
    /* The store takes no empty files. */
    upload->large = large && upload->size > 0;
    upload->ignored = ignored && tc_document_kind(ignored) == TC_JSON_TRUE;
    upload->told = true;
    return true;
}

/* The answer has an entry for each file that was asked about, and no other. */
static bool take_modes(struct tc_hub_upload *uploads, size_t count,
                       const struct tc_remote_answer *answer, struct tc_error *error) {
    struct tc_document document = {0};
    if (answer->status.status >= 300)
        return tc_hub_refused(answer, error);
    bool ok = tc_hub_parse_answer(answer, &document, error);
    const struct tc_document_value *files = ok ? tc_hub_member(document.root, "files") : NULL;
    if (ok &&
        (!files || tc_document_kind(files) != TC_JSON_ARRAY || tc_document_count(files) != count))
        ok = bad_answer(error, "not the list of files that was asked about");
    for (size_t i = 0; i < count && ok; i++)
        ok = take_mode(uploads, count, tc_document_item(files, i), error);
    tc_document_release(&document);
    return ok;
}

static bool ask_modes(struct tc_remote *remote, struct tc_hub_push *push, struct tc_error *error) {
    bool ok = true;
    for (size_t first = 0; first < push->count && ok; first += AT_ONCE) {
        size_t count = push->count - first < AT_ONCE ? push->count - first : AT_ONCE;
        struct tc_buffer target = {0};
        struct tc_buffer body = {0};
        struct tc_remote_answer answer = {0};
        tc_hub_target(&target, push->place, "preupload");
        tc_buffer_add_string(&target, push->create_pr ? "?create_pr=1" : "");
        tc_buffer_add(&target, "", 1);
        ask_body(&body, push->uploads + first, count);
        ok = tc_buffer_ok(&target, error) &&
             tc_hub_post(remote, target.bytes, "application/json", &body, true, &answer, error) &&
             take_modes(push->uploads + first, count, &answer, error);
        tc_buffer_release(&answer.body);
        tc_buffer_release(&body);
        tc_buffer_release(&target);
    }
    return ok;
}

/* The commit: a JSON object a line, in a temporary file */

static bool flush(int fd, struct tc_buffer *text, uint64_t *length, struct tc_error *error) {
    bool ok = tc_buffer_ok(text, error) && tc_write_all(fd, text->bytes, text->length, error);
    *length += text->length;
    text->length = 0;
    return ok;
}

/* A file that the commit holds itself. Its text is made piece by piece. */
static bool add_inline(int fd, const struct tc_hub_upload *upload, uint64_t *length,
                       struct tc_error *error) {
    struct tc_buffer text = {0};
    unsigned char *bytes = malloc(BASE64_STEP);
    bool ok = bytes ? true : tc_fail_memory(error);
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "key", "file");
    tc_json_open_object(&json, "value");
    tc_json_open_text(&json, "content");
    for (uint64_t at = 0; ok && at < upload->size; at += BASE64_STEP) {
        uint64_t left = upload->size - at;
        size_t step = left < BASE64_STEP ? (size_t)left : BASE64_STEP;
        ok = upload->read(upload->context, at, bytes, step, error);
        if (ok)
            add_base64(&text, bytes, step);
        ok = ok && flush(fd, &text, length, error);
    }
    tc_json_close_text(&json);
    tc_json_add_string(&json, "path", upload->path);
    tc_json_add_string(&json, "encoding", "base64");
    tc_json_end_line(&json);
    ok = ok && flush(fd, &text, length, error);
    free(bytes);
    tc_buffer_release(&text);
    return ok;
}

static void add_line(struct tc_buffer *text, const char *key, const char *first_key,
                     const char *first, const struct tc_hub_upload *large) {
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "key", key);
    tc_json_open_object(&json, "value");
    tc_json_add_string(&json, first_key, first);
    if (large) {
        tc_json_add_string(&json, "algo", "sha256");
        tc_json_add_string(&json, "oid", large->sha256);
        tc_json_add_number(&json, "size", large->size);
    }
    tc_json_close(&json);
    tc_json_end_line(&json);
}

static bool write_commit(const struct tc_hub_push *push, int fd, uint64_t *length,
                         struct tc_error *error) {
    struct tc_buffer text = {0};
    uint64_t held = 0;
    add_line(&text, "header", "summary", push->message, NULL);
    bool ok = flush(fd, &text, length, error);
    for (size_t i = 0; i < push->count && ok; i++) {
        const struct tc_hub_upload *upload = &push->uploads[i];
        if (upload->ignored)
            continue;
        if (upload->large) {
            add_line(&text, "lfsFile", "path", upload->path, upload);
            ok = flush(fd, &text, length, error);
            continue;
        }
        held += upload->size;
        ok = held <= MOST_INLINE
                 ? add_inline(fd, upload, length, error)
                 : tc_fail(error, TC_UNSUPPORTED, "hub-size",
                           "over %llu bytes of small files do not go into one commit",
                           (unsigned long long)MOST_INLINE);
    }
    for (size_t i = 0; i < push->deleted_count && ok; i++) {
        add_line(&text, "deletedFile", "path", push->deleted[i], NULL);
        ok = flush(fd, &text, length, error);
    }
    tc_buffer_release(&text);
    return ok;
}

static bool read_file(void *context, uint64_t offset, void *bytes, size_t length,
                      struct tc_error *error) {
    return tc_input_read(context, offset, bytes, length, error);
}

static bool take_commit(struct tc_hub_push *push, const struct tc_document *document,
                        struct tc_error *error) {
    struct tc_text commit;
    struct tc_text url;
    tc_hub_text(document->root, "commitOid", &commit);
    if (!tc_hub_text(document->root, "pullRequestUrl", &url))
        tc_hub_text(document->root, "commitUrl", &url);
    if (!tc_is_hex(commit, 40))
        return bad_answer(error, "a commit without its name");
    tc_buffer_add_text(&push->commit, commit);
    tc_buffer_add(&push->commit, "", 1);
    tc_buffer_add_text(&push->url, url);
    tc_buffer_add(&push->url, "", 1);
    return tc_buffer_ok(&push->commit, error) && tc_buffer_ok(&push->url, error);
}

static bool commit(struct tc_remote *remote, struct tc_hub_push *push, struct tc_error *error) {
    struct tc_buffer target = {0};
    struct tc_remote_answer answer = {0};
    struct tc_document document = {0};
    uint64_t length = 0;
    int fd = tc_tempfile(error);
    bool ok = fd >= 0 && write_commit(push, fd, &length, error);
    struct tc_input *body = NULL;
    if (ok)
        body = tc_input_adopt(fd, "commit", length, NULL, error);
    else if (fd >= 0)
        close(fd);
    tc_hub_target(&target, push->place, "commit");
    tc_buffer_add_string(&target, push->create_pr ? "?create_pr=1" : "");
    tc_buffer_add(&target, "", 1);
    struct tc_remote_call call = {.method = "POST",
                                  .target = target.bytes,
                                  .content_type = "application/x-ndjson",
                                  .read = read_file,
                                  .context = body,
                                  .length = length,
                                  .most = TC_HUB_ANSWER};
    ok = body && tc_buffer_ok(&target, error) &&
         tc_hub_call(remote, &call, &answer, &document, error) &&
         take_commit(push, &document, error);
    tc_document_release(&document);
    tc_buffer_release(&answer.body);
    tc_buffer_release(&target);
    tc_input_close(body);
    return ok;
}

bool tc_hub_push(struct tc_remote *remote, struct tc_hub_push *push, struct tc_error *error) {
    return (push->count == 0 || ask_modes(remote, push, error)) &&
           hub_lfs_upload(remote, push->place, push->uploads, push->count, push->watch, error) &&
           commit(remote, push, error);
}

void tc_hub_push_release(struct tc_hub_push *push) {
    tc_buffer_release(&push->commit);
    tc_buffer_release(&push->url);
}
