#include "core/remote/hub_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/io/sha256.h"

#define STEP ((size_t)1 << 20)
#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static bool fail(const struct tc_hub_cache *cache, const char *what, struct tc_error *error) {
    tc_fail_errno(error, errno, "hub-cache", "%s in the Hub's cache", what);
    return tc_error_in_file(error, cache->root);
}

/* A folder in another, made where it is not there; -1 on failure. */
static int enter(int at, const char *name) {
    if (mkdirat(at, name, 0777) != 0 && errno != EEXIST)
        return -1;
    return openat(at, name, OPEN_FOLDER);
}

/* The folder of a path, which is made part by part; *name is the path's last part. */
static int enter_path(int at, const char *path, const char **name) {
    int folder = fcntl(at, F_DUPFD_CLOEXEC, 3);
    const char *slash;
    while (folder >= 0 && (slash = strchr(path, '/')) != NULL) {
        char part[256];
        int length = snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        bool fits = length > 0 && (size_t)length < sizeof part;
        int next = fits ? enter(folder, part) : -1;
        close(folder);
        folder = next;
        path = slash + 1;
    }
    *name = path;
    return folder;
}

/* models--NS--NAME */
static char *folder_name(const struct tc_hub_place *place) {
    struct tc_buffer name = {0};
    tc_buffer_addf(&name, "%s--", place->type);
    for (const char *at = place->repo; *at; at++)
        tc_buffer_add(&name, *at == '/' ? "--" : at, *at == '/' ? 2 : 1);
    tc_buffer_add(&name, "", 1);
    return name.failed ? NULL : name.bytes;
}

/* The cache's own folder is where the user wants it, links and all. */
bool tc_hub_cache_make(const char *root, struct tc_error *error) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%s", root);
    if (length <= 0 || (size_t)length >= sizeof path)
        path[length = 0] = '\0';
    for (char *at = path + (length > 0); *at; at++)
        if (*at == '/') {
            *at = '\0';
            mkdir(path, 0777);
            *at = '/';
        }
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return true;
    tc_fail_errno(error, errno, "hub-cache", "cannot make the folder of the Hub's cache");
    tc_error_hint(error, "set HF_HOME or HF_HUB_CACHE to another");
    return tc_error_in_file(error, root);
}

bool tc_hub_cache_open(struct tc_hub_cache *cache, const char *root,
                       const struct tc_hub_place *place, struct tc_error *error) {
    *cache = (struct tc_hub_cache){.fd = -1, .repo = -1, .root = strdup(root)};
    cache->name = folder_name(place);
    if (!cache->root || !cache->name)
        return tc_fail_memory(error);
    if ((cache->fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        (cache->repo = enter(cache->fd, cache->name)) < 0)
        return fail(cache, "cannot make a folder", error);
    return true;
}

void tc_hub_cache_close(struct tc_hub_cache *cache) {
    if (cache->repo >= 0)
        close(cache->repo);
    if (cache->fd >= 0)
        close(cache->fd);
    free(cache->root);
    free(cache->name);
    *cache = (struct tc_hub_cache){.fd = -1, .repo = -1};
}

char *tc_hub_cache_path(const struct tc_hub_cache *cache, const char *commit, const char *path) {
    char *whole = NULL;
    return asprintf(&whole, "%s/%s/snapshots/%s%s%s", cache->root, cache->name, commit,
                    path[0] ? "/" : "", path) < 0
               ? NULL
               : whole;
}

/* The commit that a revision stood for when it was fetched; false: none is known. */
static bool read_ref(const char *repository, const char *revision, char commit[41]) {
    char *path = NULL;
    char text[48];
    if (tc_is_hex(tc_text_of(revision), 40)) {
        memcpy(commit, revision, 41);
        return true;
    }
    int fd = asprintf(&path, "%s/refs/%s", repository, revision) < 0
                 ? -1
                 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t length = fd < 0 ? -1 : tc_read_up_to(fd, text, sizeof text);
    if (fd >= 0)
        close(fd);
    free(path);
    while (length > 0 && strchr(" \r\n", text[length - 1]))
        length--;
    if (length != 40 || !tc_is_hex((struct tc_text){text, 40}, 40))
        return false;
    memcpy(commit, text, 40);
    commit[40] = '\0';
    return true;
}

char *tc_hub_cache_find(const struct tc_hub_place *place) {
    char *root = tc_hub_cache();
    char *name = folder_name(place);
    char *repository = NULL;
    char *path = NULL;
    char commit[41];
    if (root && name && asprintf(&repository, "%s/%s", root, name) < 0)
        repository = NULL;
    if (repository && read_ref(repository, place->revision, commit) &&
        asprintf(&path, "%s/snapshots/%s%s%s", repository, commit, place->path[0] ? "/" : "",
                 place->path) < 0)
        path = NULL;
    if (path && access(path, F_OK) != 0) {
        free(path);
        path = NULL;
    }
    free(repository);
    free(name);
    free(root);
    return path;
}

/* A small file, whole or not at all. */
static bool write_small(int folder, const char *name, const char *text) {
    char temporary[300];
    snprintf(temporary, sizeof temporary, ".%.200s.%ld", name, (long)getpid());
    /* What is called so already was left by somebody else: nothing is written to it. */
    if (unlinkat(folder, temporary, 0) != 0 && errno != ENOENT)
        return false;
    int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    struct tc_error ignored = {0};
    bool ok = fd >= 0 && tc_write_all(fd, text, strlen(text), &ignored);
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    ok = ok && renameat(folder, temporary, folder, name) == 0;
    if (!ok && fd >= 0) {
        int why = errno;
        unlinkat(folder, temporary, 0);
        errno = why;
    }
    return ok;
}

bool tc_hub_cache_set_ref(struct tc_hub_cache *cache, const char *revision, const char *commit,
                          struct tc_error *error) {
    const char *name;
    if (strcmp(revision, commit) == 0)
        return true;
    int refs = enter(cache->repo, "refs");
    int folder = refs < 0 ? -1 : enter_path(refs, revision, &name);
    bool ok = folder >= 0 && write_small(folder, name, commit);
    if (!ok)
        fail(cache, "cannot note a revision", error);
    if (folder >= 0)
        close(folder);
    if (refs >= 0)
        close(refs);
    return ok;
}

/* Waits until nobody else fetches the content; -1 on failure. */
static int lock(struct tc_hub_cache *cache, const char *hash) {
    char name[160];
    snprintf(name, sizeof name, "%s.lock", hash);
    int locks = enter(cache->fd, ".locks");
    int own = locks < 0 ? -1 : enter(locks, cache->name);
    int fd = own < 0 ? -1 : openat(own, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (locks >= 0)
        close(locks);
    if (own >= 0)
        close(own);
    bool told = false;
    while (fd >= 0 && flock(fd, told ? LOCK_EX : LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK && !told && cache->waits)
            cache->waits(cache);
        else if (errno != EINTR && errno != EWOULDBLOCK) {
            close(fd);
            return -1;
        }
        told = true;
    }
    return fd;
}

/* The hash of a large file's content, or git's of a small one's. */
static bool begin_hash(struct tc_sha256 *hash, bool lfs, uint64_t size, struct tc_error *error) {
    char head[48];
    if (lfs)
        return tc_sha256_init(hash, error);
    if (!tc_sha1_init(hash, error))
        return false;
    int length = snprintf(head, sizeof head, "blob %llu", (unsigned long long)size);
    tc_sha256_update(hash, head, (size_t)length + 1);
    return true;
}

struct content {
    const struct tc_remote_facts *facts;
    struct tc_input *input;
    int fd;
    unsigned char *buffer;
    struct tc_sha256 hash;
    const struct tc_watch *watch;
};

/* What an earlier run left counts, if it is no more than the whole. */
static bool take_rest(struct content *content, uint64_t *at, struct tc_error *error) {
    struct stat status;
    if (fstat(content->fd, &status) != 0 || !S_ISREG(status.st_mode))
        return tc_fail_errno(error, errno, "hub-cache", "cannot go on with a file");
    uint64_t size = (uint64_t)status.st_size;
    if (size > content->facts->size) {
        size = 0;
        if (ftruncate(content->fd, 0) != 0)
            return tc_fail_errno(error, errno, "hub-cache", "cannot begin a file again");
    }
    while (*at < size) {
        size_t step = size - *at < STEP ? (size_t)(size - *at) : STEP;
        ssize_t got = pread(content->fd, content->buffer, step, (off_t)*at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return tc_fail_errno(error, errno, "hub-cache", "cannot go on with a file");
        tc_sha256_update(&content->hash, content->buffer, (size_t)got);
        *at += (uint64_t)got;
        if (content->watch)
            content->watch->step(content->watch->context, (uint64_t)got);
    }
    return lseek(content->fd, (off_t)*at, SEEK_SET) >= 0 ||
           tc_fail_errno(error, errno, "hub-cache", "cannot go on with a file");
}

static bool fetch_rest(struct content *content, uint64_t at, struct tc_error *error) {
    uint64_t size = content->facts->size;
    tc_input_expect(content->input, at, size - at);
    while (at < size) {
        size_t step = size - at < STEP ? (size_t)(size - at) : STEP;
        if (!tc_input_read(content->input, at, content->buffer, step, error) ||
            !tc_write_all(content->fd, content->buffer, step, error))
            return false;
        tc_sha256_update(&content->hash, content->buffer, step);
        at += step;
        if (content->watch)
            content->watch->step(content->watch->context, step);
    }
    return true;
}

static bool check_hash(struct content *content, struct tc_error *error) {
    unsigned char digest[TC_SHA256_BYTES];
    char hex[2 * TC_SHA256_BYTES + 1];
    bool lfs = content->facts->lfs;
    tc_sha256_finish(&content->hash, digest);
    content->hash.context = NULL;
    tc_hex(digest, lfs ? TC_SHA256_BYTES : TC_SHA1_BYTES, hex);
    if (strcmp(hex, content->facts->etag) == 0)
        return true;
    tc_fail(error, TC_INVALID, "hash", "what came is not what the Hub says it is (%s %s, not %s)",
            lfs ? "SHA-256" : "git's hash", hex, content->facts->etag);
    return tc_error_hint(error, "nothing was kept; try again");
}

static bool fill(struct content *content, uint64_t *fetched, struct tc_error *error) {
    uint64_t at = 0;
    content->buffer = malloc(STEP);
    if (!content->buffer)
        return tc_fail_memory(error);
    bool ok = begin_hash(&content->hash, content->facts->lfs, content->facts->size, error) &&
              take_rest(content, &at, error);
    *fetched = content->facts->size - at;
    ok = ok && fetch_rest(content, at, error) && check_hash(content, error);
    if (content->hash.context)
        tc_sha256_release(&content->hash);
    free(content->buffer);
    return ok && (fsync(content->fd) == 0 ||
                  tc_fail_errno(error, errno, "hub-cache", "cannot write to the disk"));
}

static bool has_size(int folder, const char *name, uint64_t size) {
    struct stat status;
    return fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_size == size;
}

/* Contents that several repositories have lie once in the cache, blobs/XX/HASH, where newer
 * clients fetched them; the repository's own name for one is a link, ../../blobs/XX/HASH. */
static bool is_shared(const struct tc_hub_cache *cache, int blobs,
                      const struct tc_remote_facts *facts) {
    static const char store[] = "../../blobs/";
    char target[sizeof store + 2 + 1 + 64];
    ssize_t length = readlinkat(blobs, facts->etag, target, sizeof target);
    const char *hash = target + sizeof store + 2;
    if (length != sizeof target - 1 || memcmp(target, store, sizeof store - 1) != 0 ||
        hash[-1] != '/' || memcmp(target + sizeof store - 1, hash, 2) != 0 ||
        !tc_is_hex((struct tc_text){hash, 64}, 64))
        return false;
    char folder[3] = {hash[0], hash[1], '\0'};
    target[length] = '\0';
    int shared = openat(cache->fd, "blobs", OPEN_FOLDER);
    int own = shared < 0 ? -1 : openat(shared, folder, OPEN_FOLDER);
    bool there = own >= 0 && has_size(own, hash, facts->size);
    if (own >= 0)
        close(own);
    if (shared >= 0)
        close(shared);
    return there;
}

static bool is_there(const struct tc_hub_cache *cache, int blobs,
                     const struct tc_remote_facts *facts) {
    return has_size(blobs, facts->etag, facts->size) || is_shared(cache, blobs, facts);
}

/* Opens what an earlier run left of a content, or begins it. What is no file, or has another name
 * elsewhere, was left by somebody else: it makes way, and nothing is written to it. */
static int open_incomplete(int blobs, const char *name) {
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    struct stat status;
    int fd = openat(blobs, name, flags, 0666);
    if (fd < 0 || (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 1))
        return fd;
    close(fd);
    return unlinkat(blobs, name, 0) == 0 ? openat(blobs, name, flags | O_EXCL, 0666) : -1;
}

static bool fetch_content(struct tc_hub_cache *cache, int blobs, struct content *content,
                          uint64_t *fetched, struct tc_error *error) {
    char name[160];
    snprintf(name, sizeof name, "%s.incomplete", content->facts->etag);
    content->fd = open_incomplete(blobs, name);
    if (content->fd < 0)
        return fail(cache, "cannot make a file", error);
    bool ok = fill(content, fetched, error);
    close(content->fd);
    if (!ok && error->class == TC_INVALID)
        unlinkat(blobs, name, 0);
    if (!ok || renameat(blobs, name, blobs, content->facts->etag) == 0)
        return ok;
    /* On some file systems everybody gets the lock: then another one was faster. */
    return (errno == ENOENT && is_there(cache, blobs, content->facts)) ||
           fail(cache, "cannot name a file", error);
}

/* The link of a snapshot; one that leads elsewhere is replaced. */
static bool make_link(struct tc_hub_cache *cache, const struct tc_remote_facts *facts,
                      const char *path, struct tc_error *error) {
    struct tc_buffer target = {0};
    char there[512];
    char temporary[300];
    const char *name = "";
    tc_buffer_add_string(&target, "../../");
    for (const char *at = path; *at; at++)
        if (*at == '/')
            tc_buffer_add_string(&target, "../");
    tc_buffer_addf(&target, "blobs/%s", facts->etag);
    tc_buffer_add(&target, "", 1);
    int snapshots = enter(cache->repo, "snapshots");
    int commit = snapshots < 0 ? -1 : enter(snapshots, facts->commit);
    int folder = commit < 0 ? -1 : enter_path(commit, path, &name);
    bool ok = folder >= 0 && !target.failed;
    ssize_t length = ok ? readlinkat(folder, name, there, sizeof there) : -1;
    if (ok && !((size_t)length == target.length - 1 &&
                memcmp(there, target.bytes, target.length - 1) == 0)) {
        snprintf(temporary, sizeof temporary, ".%.200s.%ld", name, (long)getpid());
        unlinkat(folder, temporary, 0);
        bool made = symlinkat(target.bytes, folder, temporary) == 0;
        ok = made && renameat(folder, temporary, folder, name) == 0;
        int why = errno;
        if (made && !ok)
            unlinkat(folder, temporary, 0);
        errno = why;
    }
    if (!ok)
        fail(cache, "cannot make a link", error);
    tc_buffer_release(&target);
    const int open[] = {folder, commit, snapshots};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (open[i] >= 0)
            close(open[i]);
    return ok;
}

bool tc_hub_cache_fetch(struct tc_hub_cache *cache, const struct tc_remote_facts *facts,
                        struct tc_input *input, const char *path, const struct tc_watch *watch,
                        uint64_t *fetched, struct tc_error *error) {
    *fetched = 0;
    if (!tc_is_hex(tc_text_of(facts->commit), 40) ||
        !(facts->lfs ? tc_is_hex(tc_text_of(facts->etag), 64)
                     : tc_is_hex(tc_text_of(facts->etag), 40)) ||
        !tc_hub_path_is_safe(tc_text_of(path)))
        return tc_fail(error, TC_IO, "answer",
                       "the Hub does not say which commit and hash the file has");
    int held = lock(cache, facts->etag);
    int blobs = held < 0 ? -1 : enter(cache->repo, "blobs");
    bool ok = blobs >= 0 || fail(cache, "cannot make a folder", error);
    struct content content = {.facts = facts, .input = input, .watch = watch};
    if (ok && !is_there(cache, blobs, facts))
        ok = fetch_content(cache, blobs, &content, fetched, error);
    else if (ok && watch)
        watch->step(watch->context, facts->size);
    ok = ok && make_link(cache, facts, path, error);
    if (blobs >= 0)
        close(blobs);
    if (held >= 0)
        close(held);
    return ok || tc_error_in_file(error, input->path);
}
