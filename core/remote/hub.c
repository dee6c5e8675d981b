#include "core/remote/hub.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/memory.h"
#include "core/base/name_map.h"
#include "core/remote/protocol.h"

#define MOST_PAGES 10000u
#define MOST_TAGS 1000u

void tc_hub_target(struct tc_buffer *target, const struct tc_hub_place *place, const char *word) {
    tc_buffer_addf(target, "/api/%s/%s", place->type, place->repo);
    if (word) {
        tc_buffer_addf(target, "/%s/", word);
        tc_address_encode(target, tc_text_of(place->revision), true);
    }
}

const struct tc_document_value *tc_hub_member(const struct tc_document_value *object,
                                              const char *key) {
    struct tc_document_member member = {0};
    if (!object || tc_document_kind(object) != TC_JSON_OBJECT)
        return NULL;
    while (tc_document_next(object, &member))
        if (tc_text_equal(member.key, tc_text_of(key)))
            return member.value;
    return NULL;
}

bool tc_hub_text(const struct tc_document_value *object, const char *key, struct tc_text *text) {
    const struct tc_document_value *value = tc_hub_member(object, key);
    struct tc_error ignored = {0};
    struct tc_document document = {.error = &ignored};
    *text = (struct tc_text){"", 0};
    return value && tc_document_kind(value) == TC_JSON_STRING &&
           tc_document_text(&document, value, text);
}

static bool get_number(const struct tc_document *document, const struct tc_document_value *object,
                       const char *key, uint64_t *number) {
    const struct tc_document_value *value = tc_hub_member(object, key);
    struct tc_error ignored = {0};
    struct tc_document quiet = *document;
    quiet.error = &ignored;
    *number = 0;
    return value && tc_document_kind(value) == TC_JSON_NUMBER &&
           tc_document_unsigned(&quiet, value, number);
}

static bool bad_answer(struct tc_error *error, const char *what) {
    return tc_fail(error, TC_IO, "answer", "the Hub's answer is not as expected: %s", what);
}

static bool too_much(struct tc_error *error, const char *what) {
    tc_fail(error, TC_UNSAFE, "hub-limit", "the repository has %s (this limit is fixed)", what);
    return tc_error_hint(error, TC_FIXED_LIMIT);
}

static bool store_refused(unsigned status, struct tc_error *error) {
    tc_fail(error, TC_IO, "http", "the store that the Hub names refuses (HTTP %u)", status);
    return tc_error_hint(error, "its address may have expired: try again");
}

bool tc_hub_refused(const struct tc_remote_answer *answer, struct tc_error *error) {
    struct tc_document document;
    struct tc_error ignored = {0};
    struct tc_text why = {"", 0};
    unsigned status = answer->status.status;
    struct tc_text body = {answer->body.bytes, answer->body.length};
    if (!answer->status.own)
        return store_refused(status, error);
    bool parsed = body.length && tc_document_parse(&document, body, 0, &ignored);
    if (parsed)
        tc_hub_text(document.root, "error", &why);
    const char *code = status == 404 ? "not-found" : status == 412 ? "changed" : "http";
    if (why.length)
        tc_fail(error, TC_IO, code, "the Hub refuses (HTTP %u): %.*s", status,
                tc_text_shown(why, 300), why.bytes);
    else
        tc_fail(error, TC_IO, code, "the Hub refuses (HTTP %u)", status);
    if (body.length)
        tc_document_release(&document);
    return false;
}

bool tc_hub_parse_answer(const struct tc_remote_answer *answer, struct tc_document *document,
                         struct tc_error *error) {
    struct tc_text body = {answer->body.bytes, answer->body.length};
    tc_memory_open(body.length);
    tc_memory_earn(body.length);
    struct tc_error wrong = {0};
    if (tc_document_parse(document, body, 0, &wrong)) {
        document->error = error;
        return true;
    }
    return tc_memory_lacked() ? tc_fail_memory(error) : bad_answer(error, "it is no JSON");
}

bool tc_hub_call(struct tc_remote *remote, const struct tc_remote_call *call,
                 struct tc_remote_answer *answer, struct tc_document *document,
                 struct tc_error *error) {
    *document = (struct tc_document){0};
    if (!tc_remote_call(remote, call, answer, error))
        return false;
    return answer->status.status < 300 ? tc_hub_parse_answer(answer, document, error)
                                       : tc_hub_refused(answer, error);
}

/* A body that is text. */
static bool read_text(void *context, uint64_t offset, void *bytes, size_t length,
                      struct tc_error *error) {
    const struct tc_buffer *text = context;
    (void)error;
    memcpy(bytes, text->bytes + offset, length);
    return true;
}

bool tc_hub_post(struct tc_remote *remote, const char *target, const char *type,
                 struct tc_buffer *body, bool again, struct tc_remote_answer *answer,
                 struct tc_error *error) {
    static const char accept[] = "Accept: application/json";
    struct tc_remote_call call = {.method = "POST",
                                  .target = target,
                                  .content_type = type,
                                  .headers = {accept, sizeof accept},
                                  .read = read_text,
                                  .context = body,
                                  .length = body->length,
                                  .again = again,
                                  .most = TC_HUB_ANSWER};
    *answer = (struct tc_remote_answer){0};
    return tc_buffer_ok(body, error) && tc_remote_call(remote, &call, answer, error);
}

/* Files */

void tc_hub_files_release(struct tc_hub_files *files) {
    tc_arena_release(&files->arena);
    free(files->list);
    *files = (struct tc_hub_files){0};
}

static bool add_file(struct tc_hub_files *files, const struct tc_hub_file *file,
                     struct tc_error *error) {
    if (files->count == TC_HUB_FILES)
        return too_much(error, "over 200000 files");
    if (files->count == files->capacity) {
        size_t capacity = files->capacity ? 2 * files->capacity : 64;
        struct tc_hub_file *list = reallocarray(files->list, capacity, sizeof *list);
        if (!list)
            return tc_fail_memory(error);
        files->list = list;
        files->capacity = capacity;
    }
    files->list[files->count++] = *file;
    return true;
}

/* Of a large file the hash of its content, else git's. */
static bool take_hash(struct tc_hub_file *file, const struct tc_document_value *entry,
                      struct tc_error *error) {
    const struct tc_document_value *lfs = tc_hub_member(entry, "lfs");
    struct tc_text hash;
    file->lfs = lfs && tc_document_kind(lfs) == TC_JSON_OBJECT;
    tc_hub_text(file->lfs ? lfs : entry, "oid", &hash);
    if (!tc_is_hex(hash, file->lfs ? 64 : 40))
        return bad_answer(error, "a hash that is none");
    memcpy(file->hash, hash.bytes, hash.length);
    file->hash[hash.length] = '\0';
    return true;
}

static bool take_entry(struct tc_hub_files *files, const struct tc_document *document,
                       const struct tc_document_value *entry, const char *folder,
                       struct tc_error *error) {
    struct tc_hub_file file = {0};
    struct tc_text type;
    struct tc_text path;
    size_t prefix = strlen(folder);
    if (!tc_hub_text(entry, "type", &type) || !tc_hub_text(entry, "path", &path) ||
        !get_number(document, entry, "size", &file.size))
        return bad_answer(error, "an entry without type, path and size");
    file.folder = tc_text_equal(type, TC_TEXT("directory"));
    if (!file.folder && !tc_text_equal(type, TC_TEXT("file")))
        return true;
    if (!tc_hub_path_is_safe(path) || file.size > INT64_MAX ||
        (prefix && !(path.length > prefix && memcmp(path.bytes, folder, prefix) == 0 &&
                     path.bytes[prefix] == '/'))) {
        tc_fail(error, TC_UNSAFE, "hub-path", "the Hub names a path that leads outside: \"%.*s\"",
                tc_text_shown(path, 200), path.bytes);
        return false;
    }
    if (!file.folder && !take_hash(&file, entry, error))
        return false;
    file.path = tc_arena_copy(&files->arena, path.bytes, path.length, error);
    return file.path && add_file(files, &file, error);
}

static int by_path(const void *a, const void *b) {
    const struct tc_hub_file *x = a;
    const struct tc_hub_file *y = b;
    return strcmp(x->path, y->path);
}

bool tc_hub_files_add(struct tc_hub_files *files, const struct tc_document *page,
                      const char *folder, struct tc_error *error) {
    if (tc_document_kind(page->root) != TC_JSON_ARRAY)
        return bad_answer(error, "a list of files that is none");
    bool ok = true;
    for (size_t i = 0; ok && i < tc_document_count(page->root); i++)
        ok = take_entry(files, page, tc_document_item(page->root, i), folder, error);
    return ok;
}

static bool take_page(struct tc_remote *remote, const char *target, const char *folder,
                      struct tc_hub_files *files, char *next, struct tc_error *error) {
    struct tc_remote_answer answer;
    struct tc_document document;
    struct tc_remote_call call = {
        .method = "GET", .target = target, .again = true, .most = TC_HUB_ANSWER};
    bool ok = tc_hub_call(remote, &call, &answer, &document, error) &&
              tc_hub_files_add(files, &document, folder, error);
    if (ok)
        memcpy(next, answer.status.next, sizeof answer.status.next);
    tc_document_release(&document);
    tc_buffer_release(&answer.body);
    return ok;
}

static bool endless(struct tc_error *error) {
    return bad_answer(error, "a list of files that never ends");
}

/* All pages, each of which names the next: none comes twice, and none but the last brings
 * nothing, so that their number is bounded by that of the files. */
static bool take_pages(struct tc_remote *remote, const char *target, const char *folder,
                       struct tc_hub_files *files, struct tc_error *error) {
    char next[sizeof((struct tc_remote_status *)0)->next];
    struct tc_name_map seen;
    bool ok = true;
    tc_name_map_init(&seen, &files->arena);
    while (ok && target) {
        size_t before = files->count;
        struct tc_error twice = {0};
        if (seen.count == MOST_PAGES)
            ok = endless(error);
        else if (!tc_name_map_add(&seen, tc_text_of(target), 0, &twice))
            ok = twice.class == TC_INVALID ? endless(error) : tc_fail_memory(error);
        ok = ok && take_page(remote, target, folder, files, next, error);
        target = NULL;
        if (ok && next[0] && files->count == before)
            ok = endless(error);
        if (ok && next[0])
            ok = (target = tc_arena_copy(&files->arena, next, strlen(next), error)) != NULL;
    }
    tc_name_map_release(&seen);
    return ok;
}

bool tc_hub_list(struct tc_remote *remote, const struct tc_hub_place *place, bool recursive,
                 struct tc_hub_files *files, struct tc_error *error) {
    struct tc_buffer target = {0};
    *files = (struct tc_hub_files){0};
    tc_arena_init(&files->arena, 0);
    tc_hub_target(&target, place, "tree");
    if (place->path[0]) {
        tc_buffer_add_string(&target, "/");
        tc_address_encode(&target, tc_text_of(place->path), false);
    }
    tc_buffer_add_string(&target, recursive ? "?recursive=true" : "");
    tc_buffer_add(&target, "", 1);
    bool ok =
        tc_buffer_ok(&target, error) && take_pages(remote, target.bytes, place->path, files, error);
    tc_buffer_release(&target);
    if (ok && files->count)
        qsort(files->list, files->count, sizeof *files->list, by_path);
    for (size_t i = 1; ok && i < files->count; i++)
        if (strcmp(files->list[i - 1].path, files->list[i].path) == 0)
            ok = bad_answer(error, "a path occurs twice");
    return ok;
}

/* What is known of a repository */

static bool keep(struct tc_hub_info *info, const struct tc_document_value *root, const char *key,
                 const char **to, struct tc_error *error) {
    struct tc_text text;
    *to = NULL;
    if (!tc_hub_text(root, key, &text) || text.length > 1000)
        return true;
    *to = tc_arena_copy(&info->arena, text.bytes, text.length, error);
    return *to != NULL;
}

static bool keep_tags(struct tc_hub_info *info, const struct tc_document_value *root,
                      struct tc_error *error) {
    const struct tc_document_value *tags = tc_hub_member(root, "tags");
    size_t count = tags ? tc_document_count(tags) : 0;
    count = count < MOST_TAGS ? count : MOST_TAGS;
    info->tags = tc_arena_array(&info->arena, count + 1, sizeof *info->tags, error);
    struct tc_error ignored = {0};
    struct tc_document document = {.error = &ignored};
    for (size_t i = 0; info->tags && i < count; i++) {
        const struct tc_document_value *value = tc_document_item(tags, i);
        struct tc_text text;
        if (tc_document_kind(value) != TC_JSON_STRING || !tc_document_text(&document, value, &text))
            continue;
        const char *tag = tc_arena_copy(&info->arena, text.bytes, text.length, error);
        if (!tag)
            return false;
        info->tags[info->tag_count++] = tag;
    }
    return info->tags != NULL;
}

bool tc_hub_info_take(struct tc_hub_info *info, const struct tc_document *document,
                      struct tc_error *error) {
    const struct tc_document_value *root = document->root;
    const struct tc_document_value *private = tc_hub_member(root, "private");
    if (private && tc_document_kind(private) == TC_JSON_TRUE)
        info->private = true;
    get_number(document, root, "downloads", &info->downloads);
    get_number(document, root, "likes", &info->likes);
    if (!keep(info, root, "id", &info->id, error) ||
        !keep(info, root, "sha", &info->commit, error) ||
        !keep(info, root, "lastModified", &info->modified, error) ||
        !keep(info, root, "gated", &info->gated, error) || !keep_tags(info, root, error))
        return false;
    if (!info->id || !info->commit || !tc_is_hex(tc_text_of(info->commit), 40))
        return bad_answer(error, "a repository without its name and its commit");
    return true;
}

bool tc_hub_describe(struct tc_remote *remote, const struct tc_hub_place *place,
                     struct tc_hub_info *info, struct tc_error *error) {
    struct tc_buffer target = {0};
    struct tc_remote_answer answer = {0};
    struct tc_document document = {0};
    *info = (struct tc_hub_info){0};
    tc_arena_init(&info->arena, 0);
    tc_hub_target(&target, place, place->has_revision ? "revision" : NULL);
    tc_buffer_add(&target, "", 1);
    struct tc_remote_call call = {
        .method = "GET", .target = target.bytes, .again = true, .most = TC_HUB_ANSWER};
    bool ok = tc_buffer_ok(&target, error) &&
              tc_hub_call(remote, &call, &answer, &document, error) &&
              tc_hub_info_take(info, &document, error);
    tc_document_release(&document);
    tc_buffer_release(&answer.body);
    tc_buffer_release(&target);
    return ok;
}

bool tc_hub_exists(struct tc_remote *remote, const struct tc_hub_place *place, bool *exists,
                   struct tc_error *error) {
    struct tc_buffer target = {0};
    struct tc_remote_answer answer = {0};
    tc_hub_target(&target, place, NULL);
    tc_buffer_add(&target, "", 1);
    struct tc_remote_call call = {
        .method = "GET", .target = target.bytes, .again = true, .most = TC_HUB_ANSWER};
    bool ok = tc_buffer_ok(&target, error) && tc_remote_call(remote, &call, &answer, error);
    unsigned status = ok ? answer.status.status : 0;
    *exists = ok && status < 300;
    if (ok && !*exists && status != 404)
        ok = tc_hub_refused(&answer, error);
    tc_buffer_release(&answer.body);
    tc_buffer_release(&target);
    return ok;
}

void tc_hub_info_release(struct tc_hub_info *info) {
    tc_arena_release(&info->arena);
    *info = (struct tc_hub_info){0};
}
