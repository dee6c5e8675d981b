#include "core/remote/hub_lfs.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/jansson.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/remote/environment.h"
#include "core/remote/header.h"
#include "core/remote/hub.h"
#include "core/remote/remote.h"

#define LFS_TYPE "application/vnd.git-lfs+json"
#define AT_ONCE 100u
/* Parts of one file: what the store of the Hub takes. */
#define MOST_PARTS 10000u
#define MOST_HEADER ((size_t)8 << 10)

struct lfs {
    struct tc_remote *remote;
    const struct tc_hub_place *place;
    const struct tc_watch *watch;
    const char *endpoint;
    bool expired; /* the store did not take what was sent to the address that it had */
    struct tc_error *error;
};

/* An address that the Hub named, with a NUL behind it: where it names itself, that is the
 * endpoint, a mirror perhaps. With `own` only the part behind the endpoint then, which the
 * token may go to. */
static void add_address(const struct lfs *lfs, struct tc_buffer *url, struct tc_text href,
                        bool own) {
    tc_buffer_add_text(url, href);
    tc_buffer_add(url, "", 1);
    const char *target = url->failed ? NULL : tc_hub_own_target(url->bytes, lfs->endpoint);
    if (!target)
        return;
    struct tc_buffer whole = {0};
    tc_buffer_addf(&whole, "%s%s", own ? "" : lfs->endpoint, target);
    tc_buffer_add(&whole, "", 1);
    tc_buffer_release(url);
    *url = whole;
}

static bool bad(struct lfs *lfs, const char *what) {
    return tc_fail(lfs->error, TC_IO, "answer", "the Hub's answer is not as expected: %s", what);
}

static const char *prefix_of(const struct tc_hub_place *place) {
    return strcmp(place->type, "models") == 0 ? "" : place->type;
}

static void batch_target(struct tc_buffer *target, const struct tc_hub_place *place) {
    const char *prefix = prefix_of(place);
    tc_buffer_addf(target, "/%s%s%s.git/info/lfs/objects/batch", prefix, prefix[0] ? "/" : "",
                   place->repo);
    tc_buffer_add(target, "", 1);
}

static void batch_body(struct tc_buffer *body, const struct tc_hub_place *place,
                       const struct tc_hub_upload *const *uploads, size_t count) {
    struct tc_json_writer json = {.out = body, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "operation", "upload");
    tc_json_open_array(&json, "transfers");
    tc_json_add_string(&json, NULL, "basic");
    tc_json_add_string(&json, NULL, "multipart");
    tc_json_close(&json);
    tc_json_open_array(&json, "objects");
    for (size_t i = 0; i < count; i++) {
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "oid", uploads[i]->sha256);
        tc_json_add_number(&json, "size", uploads[i]->size);
        tc_json_close(&json);
    }
    tc_json_close(&json);
    tc_json_add_string(&json, "hash_algo", "sha256");
    tc_json_open_object(&json, "ref");
    tc_json_add_string(&json, "name", place->revision);
    tc_json_close(&json);
    tc_json_close(&json);
}

/* One piece of a file that is sent. */
struct piece {
    const struct tc_hub_upload *upload;
    uint64_t start;
    uint64_t told; /* bytes that the watch has heard of */
    const struct tc_watch *watch;
};

static bool read_piece(void *context, uint64_t offset, void *bytes, size_t length,
                       struct tc_error *error) {
    struct piece *piece = context;
    return piece->upload->read(piece->upload->context, piece->start + offset, bytes, length, error);
}

static void tell(void *context, uint64_t sent) {
    struct piece *piece = context;
    if (piece->watch && sent > piece->told) {
        piece->watch->step(piece->watch->context, sent - piece->told);
        piece->told = sent;
    }
}

/* A line of a header that the Hub wants sent along: visible ASCII and nothing else. */
static bool is_line(struct tc_text name, struct tc_text value) {
    if (tc_header_is_of_the_wire(name))
        return false;
    for (size_t i = 0; i < name.length; i++)
        if (name.bytes[i] <= 0x20 || name.bytes[i] >= 0x7f || name.bytes[i] == ':')
            return false;
    for (size_t i = 0; i < value.length; i++)
        if (value.bytes[i] < 0x20 || value.bytes[i] >= 0x7f)
            return false;
    return name.length > 0 && name.length + value.length < MOST_HEADER / 4;
}

static void add_lines(struct tc_buffer *lines, const struct tc_document_value *header) {
    struct tc_document_member member = {0};
    while (header && tc_document_kind(header) == TC_JSON_OBJECT &&
           tc_document_next(header, &member)) {
        char name[128];
        struct tc_text value;
        if (member.key.length >= sizeof name)
            continue;
        memcpy(name, member.key.bytes, member.key.length);
        name[member.key.length] = '\0';
        if (!tc_hub_text(header, name, &value) || !is_line(member.key, value) ||
            lines->length > MOST_HEADER)
            continue;
        tc_buffer_add_text(lines, member.key);
        tc_buffer_add_string(lines, ": ");
        tc_buffer_add_text(lines, value);
        tc_buffer_add(lines, "", 1);
    }
}

/* Sends bytes to the store. `etag`, if wanted, is what the store calls them. */
static bool put(struct lfs *lfs, const struct tc_hub_upload *upload, struct tc_text href,
                uint64_t start, uint64_t length, const struct tc_document_value *header,
                struct tc_buffer *etag) {
    struct piece piece = {.upload = upload, .start = start, .watch = lfs->watch};
    struct tc_buffer url = {0};
    struct tc_buffer lines = {0};
    struct tc_remote_answer answer = {0};
    add_address(lfs, &url, href, false);
    add_lines(&lines, header);
    struct tc_remote_call call = {.method = "PUT",
                                  .target = url.bytes,
                                  .headers = {lines.bytes, lines.length},
                                  .read = read_piece,
                                  .context = &piece,
                                  .length = length,
                                  .again = !upload->once,
                                  .most = TC_HUB_ANSWER,
                                  .progress = tell,
                                  .progress_context = &piece};
    bool ok = tc_buffer_ok(&url, lfs->error) && tc_buffer_ok(&lines, lfs->error) &&
              tc_remote_call(lfs->remote, &call, &answer, lfs->error);
    lfs->expired = !ok && lfs->error->reason == TC_REASON_DENIED;
    if (ok && answer.status.status >= 300)
        ok = tc_hub_refused(&answer, lfs->error);
    if (ok && etag)
        tc_buffer_add_string(etag, answer.status.etag);
    tc_buffer_release(&answer.body);
    tc_buffer_release(&lines);
    tc_buffer_release(&url);
    return ok;
}

/* Part N's address stands under its number, which may have zeros before it. */
static bool part_address(const struct tc_document_value *header, uint64_t number,
                         struct tc_text *href) {
    struct tc_document_member member = {0};
    while (tc_document_next(header, &member)) {
        uint64_t value = 0;
        bool digits = member.key.length > 0 && member.key.length < 10;
        for (size_t i = 0; i < member.key.length && digits; i++) {
            digits = member.key.bytes[i] >= '0' && member.key.bytes[i] <= '9';
            value = value * 10 + (uint64_t)(member.key.bytes[i] - '0');
        }
        if (!digits || value != number)
            continue;
        char name[16];
        memcpy(name, member.key.bytes, member.key.length);
        name[member.key.length] = '\0';
        return tc_hub_text(header, name, href);
    }
    return false;
}

static bool number_of(struct tc_text text, uint64_t *number) {
    *number = 0;
    for (size_t i = 0; i < text.length; i++)
        if (text.bytes[i] < '0' || text.bytes[i] > '9' || text.length > 15)
            return false;
        else
            *number = *number * 10 + (uint64_t)(text.bytes[i] - '0');
    return *number > 0;
}

static bool put_parts(struct lfs *lfs, const struct tc_hub_upload *upload, struct tc_text href,
                      const struct tc_document_value *header, uint64_t part) {
    uint64_t parts = (upload->size + part - 1) / part;
    struct tc_buffer body = {0};
    struct tc_buffer url = {0};
    struct tc_json_writer json = {.out = &body, .escape = TC_ESCAPE_SERDE};
    if (parts > MOST_PARTS)
        return bad(lfs, "too many parts");
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "oid", upload->sha256);
    tc_json_open_array(&json, "parts");
    bool ok = true;
    for (uint64_t i = 0; i < parts && ok; i++) {
        struct tc_buffer etag = {0};
        struct tc_text to;
        uint64_t start = i * part;
        uint64_t length = upload->size - start < part ? upload->size - start : part;
        ok = part_address(header, i + 1, &to) || bad(lfs, "a part without an address");
        ok = ok && put(lfs, upload, to, start, length, NULL, &etag);
        if (ok && etag.length == 0)
            ok = bad(lfs, "a part without a name");
        tc_json_open_object(&json, NULL);
        tc_json_add_number(&json, "partNumber", i + 1);
        tc_json_add_text(&json, "etag", (struct tc_text){etag.bytes, etag.length});
        tc_json_close(&json);
        tc_buffer_release(&etag);
    }
    tc_json_close(&json);
    tc_json_close(&json);
    add_address(lfs, &url, href, false);
    struct tc_remote_answer answer = {0};
    ok = ok && tc_buffer_ok(&url, lfs->error) &&
         tc_hub_post(lfs->remote, url.bytes, LFS_TYPE, &body, true, &answer, lfs->error) &&
         (answer.status.status < 300 || tc_hub_refused(&answer, lfs->error));
    tc_buffer_release(&answer.body);
    tc_buffer_release(&url);
    tc_buffer_release(&body);
    return ok;
}

/* The token goes along only where the address is one of the endpoint's own. */
static bool check_with(struct lfs *lfs, const struct tc_hub_upload *upload, struct tc_text href) {
    struct tc_buffer target = {0};
    struct tc_buffer body = {0};
    struct tc_json_writer json = {.out = &body, .escape = TC_ESCAPE_SERDE};
    struct tc_remote_answer answer = {0};
    add_address(lfs, &target, href, true);
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "oid", upload->sha256);
    tc_json_add_number(&json, "size", upload->size);
    tc_json_close(&json);
    bool ok = tc_buffer_ok(&target, lfs->error) &&
              tc_hub_post(lfs->remote, target.bytes, LFS_TYPE, &body, true, &answer, lfs->error) &&
              (answer.status.status < 300 || tc_hub_refused(&answer, lfs->error));
    tc_buffer_release(&answer.body);
    tc_buffer_release(&target);
    tc_buffer_release(&body);
    return ok;
}

static bool send_one(struct lfs *lfs, const struct tc_hub_upload *upload,
                     const struct tc_document_value *object) {
    const struct tc_document_value *actions = tc_hub_member(object, "actions");
    const struct tc_document_value *action = tc_hub_member(actions, "upload");
    const struct tc_document_value *verify = tc_hub_member(actions, "verify");
    const struct tc_document_value *header = tc_hub_member(action, "header");
    struct tc_text href;
    struct tc_text text;
    uint64_t part;
    if (!action) { /* it has it already */
        if (lfs->watch)
            lfs->watch->step(lfs->watch->context, upload->size);
        return true;
    }
    if (!tc_hub_text(action, "href", &href))
        return bad(lfs, "an upload without an address");
    bool several = tc_hub_text(header, "chunk_size", &text);
    if (several && !number_of(text, &part))
        return bad(lfs, "parts without a size");
    if (!(several ? put_parts(lfs, upload, href, header, part)
                  : put(lfs, upload, href, 0, upload->size, header, NULL)))
        return false;
    return !tc_hub_text(verify, "href", &href) || check_with(lfs, upload, href);
}

static const struct tc_document_value *object_of(const struct tc_document_value *objects,
                                                 const char *oid) {
    for (size_t i = 0; objects && i < tc_document_count(objects); i++) {
        struct tc_text found;
        const struct tc_document_value *object = tc_document_item(objects, i);
        if (tc_hub_text(object, "oid", &found) && tc_text_equal(found, tc_text_of(oid)))
            return object;
    }
    return NULL;
}

/* What the Hub answers on these files: the document is to be released, also on failure, and lives
 * as long as the answer. */
static bool ask(struct lfs *lfs, const struct tc_hub_upload *const *uploads, size_t count,
                struct tc_remote_answer *answer, struct tc_document *document) {
    struct tc_buffer target = {0};
    struct tc_buffer body = {0};
    *answer = (struct tc_remote_answer){0};
    *document = (struct tc_document){0};
    batch_target(&target, lfs->place);
    batch_body(&body, lfs->place, uploads, count);
    bool ok = tc_buffer_ok(&target, lfs->error) &&
              tc_hub_post(lfs->remote, target.bytes, LFS_TYPE, &body, true, answer, lfs->error) &&
              (answer->status.status < 300 || tc_hub_refused(answer, lfs->error)) &&
              tc_hub_parse_answer(answer, document, lfs->error);
    tc_buffer_release(&body);
    tc_buffer_release(&target);
    return ok;
}

static bool send_listed(struct lfs *lfs, const struct tc_hub_upload *upload,
                        const struct tc_document *document) {
    const struct tc_document_value *object =
        object_of(tc_hub_member(document->root, "objects"), upload->sha256);
    if (!object || tc_hub_member(object, "error"))
        return bad(lfs, "it takes a file for none of its own");
    return send_one(lfs, upload, object);
}

/* Addresses of the store are good for some minutes only, which the files before this one may have
 * taken: once, new ones are asked for. */
static bool send_again(struct lfs *lfs, const struct tc_hub_upload *upload) {
    struct tc_remote_answer answer;
    struct tc_document document;
    *lfs->error = (struct tc_error){0};
    bool ok = ask(lfs, &upload, 1, &answer, &document) && send_listed(lfs, upload, &document);
    tc_document_release(&document);
    tc_buffer_release(&answer.body);
    return ok;
}

static bool send_batch(struct lfs *lfs, const struct tc_hub_upload *const *uploads, size_t count) {
    struct tc_remote_answer answer;
    struct tc_document document;
    bool ok = ask(lfs, uploads, count, &answer, &document);
    for (size_t i = 0; i < count && ok; i++) {
        lfs->expired = false;
        ok = send_listed(lfs, uploads[i], &document) ||
             (lfs->expired && send_again(lfs, uploads[i]));
        if (!ok)
            tc_error_in_file(lfs->error, uploads[i]->path);
    }
    tc_document_release(&document);
    tc_buffer_release(&answer.body);
    return ok;
}

bool hub_lfs_upload(struct tc_remote *remote, const struct tc_hub_place *place,
                    const struct tc_hub_upload *uploads, size_t count, const struct tc_watch *watch,
                    struct tc_error *error) {
    char *endpoint = tc_hub_endpoint();
    struct lfs lfs = {
        .remote = remote, .place = place, .watch = watch, .endpoint = endpoint, .error = error};
    const struct tc_hub_upload *batch[AT_ONCE];
    size_t filled = 0;
    bool ok = endpoint || tc_fail_memory(error);
    for (size_t i = 0; i < count && ok; i++) {
        bool known = !uploads[i].large || uploads[i].ignored;
        for (size_t j = 0; j < filled && !known; j++)
            known = strcmp(batch[j]->sha256, uploads[i].sha256) == 0;
        if (!known)
            batch[filled++] = &uploads[i];
        if (filled == AT_ONCE) {
            ok = send_batch(&lfs, batch, filled);
            filled = 0;
        }
    }
    ok = ok && (filled == 0 || send_batch(&lfs, batch, filled));
    free(endpoint);
    return ok;
}
