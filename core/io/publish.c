#include "core/io/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 18)
/* From this size on a write is not worth another copy. */
#define SMALL_WRITE ((size_t)1 << 16)
#define LARGEST_TRANSFER (UINT64_C(1) << 30)

/*
 * What a signal handler must remove. A handler takes no arguments, so this is
 * the one piece of global state: a list that the main thread edits with the
 * signals blocked.
 */
static struct tc_publish *volatile active_publish;

static const int fatal_signals[] = {SIGINT,  SIGTERM,   SIGHUP,  SIGPIPE, SIGQUIT,
                                    SIGXCPU, SIGVTALRM, SIGALRM, SIGUSR1, SIGUSR2};
#define FATAL_SIGNALS (sizeof fatal_signals / sizeof *fatal_signals)

static void remove_temporaries(struct tc_publish *publish) {
    for (struct tc_outfile *out = publish->files; out; out = out->next) {
        if (out->temp && !out->renamed)
            unlinkat(publish->folder_fd, out->temp, 0);
        if (out->in_place && !out->renamed && ftruncate(STDOUT_FILENO, (off_t)out->base) != 0)
            continue; /* who cannot cut it has at least been told of the failure */
    }
    if (publish->made_folder)
        rmdir(publish->folder);
}

static void on_signal(int number) {
    for (struct tc_publish *publish = active_publish; publish; publish = publish->active)
        remove_temporaries(publish);
    signal(number, SIG_DFL);
    raise(number);
}

void tc_signals_install(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < FATAL_SIGNALS; i++)
        sigaddset(&action.sa_mask, fatal_signals[i]);
    for (size_t i = 0; i < FATAL_SIGNALS; i++) {
        struct sigaction old;
        /* What the caller ignores (nohup) stays ignored. */
        if (sigaction(fatal_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(fatal_signals[i], &action, NULL);
    }
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an ordinary write error */
}

static void block_signals(sigset_t *old) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < FATAL_SIGNALS; i++)
        sigaddset(&set, fatal_signals[i]);
    pthread_sigmask(SIG_BLOCK, &set, old);
}

static void unblock_signals(const sigset_t *old) {
    pthread_sigmask(SIG_SETMASK, old, NULL);
}

bool tc_path_is_plain(struct tc_text name) {
    return name.length && name.length <= NAME_MAX && !memchr(name.bytes, '/', name.length) &&
           !memchr(name.bytes, '\0', name.length) && !tc_text_equal(name, TC_TEXT(".")) &&
           !tc_text_equal(name, TC_TEXT(".."));
}

const char *tc_path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static bool open_folder(struct tc_publish *publish, bool make, struct tc_error *error) {
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    sigset_t old;
    block_signals(&old);
    publish->folder_fd = open(publish->folder, flags);
    if (publish->folder_fd < 0 && errno == ENOENT && make && mkdir(publish->folder, 0777) == 0) {
        publish->made_folder = true;
        publish->folder_fd = open(publish->folder, flags);
    }
    publish->active = active_publish;
    active_publish = publish;
    unblock_signals(&old);
    if (publish->folder_fd < 0) {
        tc_fail_errno(error, errno, "output-folder", "cannot open the output's folder");
        return tc_error_in_file(error, publish->folder);
    }
    return true;
}

bool tc_publish_begin(struct tc_publish *publish, const char *path, bool is_folder,
                      struct tc_publish_options options, struct tc_error *error) {
    *publish = (struct tc_publish){.options = options, .folder_fd = -1, .allowed = 0777};
    publish->standard_output = strcmp(path, "-") == 0;
    publish->path = strdup(path);
    publish->folder = is_folder ? strdup(path) : folder_of(path);
    if (!publish->path || !publish->folder)
        return tc_fail_memory(error);
    if (publish->standard_output)
        return true;
    return open_folder(publish, is_folder, error);
}

static bool target_status(struct tc_publish *publish, const char *name, struct stat *status,
                          bool *exists, struct tc_error *error) {
    *exists = fstatat(publish->folder_fd, name, status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*exists) {
        if (errno != ENOENT)
            return tc_fail_errno(error, errno, "output", "cannot write here");
        return true;
    }
    /* /dev/stdout is a link to a pipe or terminal: that may be followed. */
    struct stat behind;
    if (S_ISLNK(status->st_mode) && fstatat(publish->folder_fd, name, &behind, 0) == 0 &&
        (S_ISFIFO(behind.st_mode) || S_ISCHR(behind.st_mode)))
        *status = behind;
    return true;
}

static bool is_stream(mode_t mode) {
    return S_ISFIFO(mode) || S_ISCHR(mode);
}

bool tc_publish_check(struct tc_publish *publish, const char *name, struct tc_input *const *inputs,
                      size_t count, struct tc_error *error) {
    struct stat status;
    bool exists;
    if (publish->standard_output) {
        /* Redirected onto an input: `tconv a - >> a`. */
        if (fstat(STDOUT_FILENO, &status) == 0 && S_ISREG(status.st_mode))
            for (size_t i = 0; i < count; i++)
                if (status.st_dev == inputs[i]->device && status.st_ino == inputs[i]->inode)
                    return tc_fail(error, TC_USAGE, "same-file",
                                   "input and output are the same file");
        return true;
    }
    if (name[0] == '\0')
        tc_fail(error, TC_USAGE, "output-folder", "the output is a folder");
    else if (strlen(name) > NAME_MAX)
        tc_fail_errno(error, ENAMETOOLONG, "output", "cannot write here");
    else if (target_status(publish, name, &status, &exists, error) && exists) {
        for (size_t i = 0; i < count; i++)
            if (status.st_dev == inputs[i]->device && status.st_ino == inputs[i]->inode)
                tc_fail(error, TC_USAGE, "same-file", "input and output are the same file");
        if (S_ISLNK(status.st_mode)) {
            tc_fail(error, TC_UNSAFE, "output-symlink", "the output is a symbolic link");
            tc_error_hint(error, "name the file it points to, or remove the link first");
        } else if (S_ISDIR(status.st_mode)) {
            tc_fail(error, TC_USAGE, "output-folder", "the output is a folder");
            tc_error_hint(error, "add a slash and -t npy to write one file a tensor");
        } else if (!S_ISREG(status.st_mode) && !is_stream(status.st_mode)) {
            tc_fail(error, TC_IO, "output", "the output is neither a file nor a pipe");
        } else if (publish->options.no_clobber && S_ISREG(status.st_mode)) {
            tc_fail(error, TC_USAGE, "exists", "the output exists");
        }
    }
    if (error->class == TC_OK)
        return true;
    char *path = tc_publish_path(publish, name);
    tc_error_in_file(error, path ? path : publish->path);
    free(path);
    return false;
}

/* ".NAME.tconv-XXXXXX", NAME cut so that the whole fits a directory entry. */
static char *temporary_name(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char random[6] = {0};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return NULL;
    char suffix[7] = {0};
    for (size_t i = 0; i < sizeof random; i++)
        suffix[i] = letters[random[i] % (sizeof letters - 1)];
    char *temp = NULL;
    int keep = NAME_MAX - (int)strlen("..tconv-") - 6;
    return asprintf(&temp, ".%.*s.tconv-%s", keep, name, suffix) < 0 ? NULL : temp;
}

static bool open_temporary(struct tc_outfile *out, struct tc_error *error) {
    for (int attempt = 0; attempt < 100; attempt++) {
        out->temp = temporary_name(out->name);
        if (!out->temp)
            return tc_fail_memory(error);
        out->fd = openat(out->publish->folder_fd, out->temp,
                         O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (out->fd >= 0)
            return true;
        free(out->temp);
        out->temp = NULL;
        if (errno != EEXIST)
            break;
    }
    return tc_fail_errno(error, errno, "output", "cannot create the output");
}

/* `tconv in - > out`: a file that can be sought, unless it is only added to. */
static bool stdout_is_file(void) {
    struct stat status;
    int flags = fcntl(STDOUT_FILENO, F_GETFL);
    return flags >= 0 && !(flags & O_APPEND) && fstat(STDOUT_FILENO, &status) == 0 &&
           S_ISREG(status.st_mode) && lseek(STDOUT_FILENO, 0, SEEK_CUR) >= 0;
}

/* Whatever it holds from its offset on is written over; only what is added to
 * its end can be taken back. */
static bool open_stdout(struct tc_outfile *out, struct tc_error *error) {
    struct stat status;
    off_t at = lseek(STDOUT_FILENO, 0, SEEK_CUR);
    out->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (at < 0 || out->fd < 0 || fstat(out->fd, &status) != 0)
        return tc_fail_errno(error, errno, "output", "cannot open the output");
    out->base = (uint64_t)at;
    out->in_place = status.st_size <= at;
    return true;
}

static bool open_stream(struct tc_outfile *out, struct tc_error *error) {
    out->stream = true;
    /* Without a reader this waits; a signal may end it. */
    out->fd = out->publish->standard_output
                  ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                  : openat(out->publish->folder_fd, out->name, O_WRONLY | O_CLOEXEC);
    return out->fd >= 0 || tc_fail_errno(error, errno, "output", "cannot open the output");
}

static void add_file(struct tc_publish *publish, struct tc_outfile *out) {
    *(publish->newest ? &publish->newest->next : &publish->files) = out;
    publish->newest = out;
}

static bool open_file(struct tc_outfile *out, struct tc_error *error) {
    struct tc_publish *publish = out->publish;
    struct stat status;
    bool exists;
    if (!target_status(publish, out->name, &status, &exists, error))
        return false;
    mode_t mask = umask(0);
    umask(mask);
    out->mode = exists && S_ISREG(status.st_mode) ? status.st_mode & 0777 : 0666 & ~mask;
    out->mode &= publish->allowed | 0600;
    /* No signal may come between the file and the note that it is there. */
    sigset_t old;
    block_signals(&old);
    bool ok = open_temporary(out, error);
    if (ok)
        add_file(publish, out);
    unblock_signals(&old);
    return ok;
}

void tc_publish_limit(struct tc_publish *publish, const struct tc_input *input) {
    publish->allowed &= input->mode;
}

bool tc_publish_is_stream(struct tc_publish *publish, const char *name) {
    struct stat status;
    bool exists;
    struct tc_error ignored = {0};
    if (publish->standard_output)
        return !stdout_is_file();
    return target_status(publish, name, &status, &exists, &ignored) && exists &&
           is_stream(status.st_mode);
}

struct tc_outfile *tc_outfile_open(struct tc_publish *publish, const char *name,
                                   struct tc_error *error) {
    struct tc_outfile *out = calloc(1, sizeof *out);
    char *copy = strdup(name);
    if (!out || !copy) {
        free(out);
        free(copy);
        tc_fail_memory(error);
        return NULL;
    }
    *out = (struct tc_outfile){.publish = publish, .name = copy, .fd = -1};
    bool stream = tc_publish_is_stream(publish, name);
    bool standard = publish->standard_output;
    if (stream     ? open_stream(out, error)
        : standard ? open_stdout(out, error)
                   : open_file(out, error)) {
        if (stream || standard)
            add_file(publish, out);
        return out;
    }
    tc_error_in_file(error, publish->path);
    free(out->name);
    free(out);
    return NULL;
}

bool tc_outfile_seekable(const struct tc_outfile *out) {
    return !out->stream;
}

bool tc_outfile_reserve(struct tc_outfile *out, uint64_t bytes, struct tc_error *error) {
    struct statvfs space;
    if (out->stream || fstatvfs(out->fd, &space) != 0 || space.f_blocks == 0)
        return true;
    uint64_t blocks = geteuid() == 0 ? space.f_bfree : space.f_bavail;
    uint64_t available = blocks * space.f_frsize;
    if (bytes <= available)
        return true;
    tc_fail(error, TC_IO, "no-space", "not enough space for the output (%llu bytes, %llu free)",
            (unsigned long long)bytes, (unsigned long long)available);
    error->errnum = ENOSPC;
    return tc_error_in_file(error, out->publish->path);
}

static bool write_failed(struct tc_outfile *out, int errnum, struct tc_error *error) {
    tc_fail_errno(error, errnum, errnum == ENOSPC ? "no-space" : "write", "cannot write");
    return tc_error_in_file(error, out->publish->path);
}

static bool write_through(struct tc_outfile *out, uint64_t offset, const void *bytes, size_t length,
                          struct tc_error *error) {
    const char *at = bytes;
    if (out->counting) {
        out->end = offset + length > out->end ? offset + length : out->end;
        return true;
    }
    while (length) {
        size_t step = length < LARGEST_TRANSFER ? length : LARGEST_TRANSFER;
        ssize_t done = out->stream ? write(out->fd, at, step)
                                   : pwrite(out->fd, at, step, (off_t)(out->base + offset));
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return write_failed(out, errno, error);
        at += done;
        offset += (uint64_t)done;
        length -= (size_t)done;
        out->end = offset > out->end ? offset : out->end;
    }
    return true;
}

static bool flush(struct tc_outfile *out, struct tc_error *error) {
    size_t length = out->buffered;
    out->buffered = 0;
    return length == 0 || write_through(out, out->buffer_at, out->buffer, length, error);
}

/* Room for `length` bytes at `offset` behind what is buffered, flushing first
 * what they don't follow. */
static char *buffer_room(struct tc_outfile *out, uint64_t offset, size_t length,
                         struct tc_error *error) {
    if (!out->buffer && !(out->buffer = malloc(BUFFER_BYTES))) {
        tc_fail_memory(error);
        return NULL;
    }
    bool follows = out->buffered && offset == out->buffer_at + out->buffered;
    if (!follows || length > BUFFER_BYTES - out->buffered) {
        if (!flush(out, error))
            return NULL;
        out->buffer_at = offset;
    }
    return out->buffer + out->buffered;
}

bool tc_outfile_write_at(struct tc_outfile *out, uint64_t offset, const void *bytes, size_t length,
                         struct tc_error *error) {
    if (length >= SMALL_WRITE)
        return flush(out, error) && write_through(out, offset, bytes, length, error);
    /* A field patched in what was just written. */
    if (offset >= out->buffer_at && offset - out->buffer_at + length <= out->buffered) {
        memcpy(out->buffer + (offset - out->buffer_at), bytes, length);
        return true;
    }
    char *room = buffer_room(out, offset, length, error);
    if (!room)
        return false;
    memcpy(room, bytes, length);
    out->buffered += length;
    return true;
}

bool tc_outfile_write(struct tc_outfile *out, const void *bytes, size_t length,
                      struct tc_error *error) {
    if (!tc_outfile_write_at(out, out->position, bytes, length, error))
        return false;
    out->position += length;
    return true;
}

void tc_outfile_skip(struct tc_outfile *out, uint64_t bytes) {
    out->position += bytes;
    out->end = out->position > out->end ? out->position : out->end;
}

bool tc_outfile_count(struct tc_outfile *out, uint64_t *bytes, struct tc_error *error) {
    bool ok = flush(out, error);
    *bytes = out->end;
    return ok;
}

/* Whether the kernel can't do it for these files, rather than that it failed. */
static bool copy_unsupported(int errnum) {
    return errnum == EXDEV || errnum == EINVAL || errnum == ENOSYS || errnum == EOPNOTSUPP ||
           errnum == EBADF || errnum == EPERM || errnum == ETXTBSY ||
           errnum == EIO; /* of which side? reading and writing will tell */
}

/* Lets the kernel copy; what it left is in *length. */
static bool kernel_copy(struct tc_outfile *out, int fd, uint64_t *offset, uint64_t *length,
                        struct tc_error *error) {
    while (*length) {
        off_t from = (off_t)*offset;
        off_t to = (off_t)(out->base + out->position);
        size_t step = *length < LARGEST_TRANSFER ? *length : LARGEST_TRANSFER;
        ssize_t done = copy_file_range(fd, &from, out->fd, &to, step, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && !copy_unsupported(errno))
            return write_failed(out, errno, error);
        if (done <= 0)
            return true;
        *offset += (uint64_t)done;
        *length -= (uint64_t)done;
        out->position += (uint64_t)done;
        out->end = out->position > out->end ? out->position : out->end;
    }
    return true;
}

bool tc_outfile_copy(struct tc_outfile *out, struct tc_input *input, uint64_t offset,
                     uint64_t length, struct tc_error *error) {
    if (!out->stream && length >= BUFFER_BYTES) {
        if (!flush(out, error))
            return false;
        int fd = tc_input_acquire(input, error);
        if (fd < 0)
            return false;
        bool ok = kernel_copy(out, fd, &offset, &length, error);
        tc_input_release(input);
        if (!ok)
            return false;
    }
    while (length) {
        size_t step = length < BUFFER_BYTES ? length : BUFFER_BYTES;
        char *room = buffer_room(out, out->position, step, error);
        if (!room || !tc_input_read(input, offset, room, step, error))
            return false;
        out->buffered += step;
        out->position += step;
        offset += step;
        length -= step;
    }
    return true;
}

bool tc_outfile_seal(struct tc_outfile *out, struct tc_error *error) {
    bool ok = flush(out, error);
    if (ok && !out->stream) {
        bool standard = out->publish->standard_output;
        if (standard ? lseek(out->fd, (off_t)(out->base + out->end), SEEK_SET) < 0
                     : fchmod(out->fd, out->mode) != 0)
            ok = write_failed(out, errno, error);
        if (ok && !out->publish->options.no_sync && fsync(out->fd) != 0)
            ok = write_failed(out, errno, error);
    }
    if (close(out->fd) != 0 && ok)
        ok = write_failed(out, errno, error);
    out->fd = -1;
    free(out->buffer);
    out->buffer = NULL;
    return ok;
}

bool tc_publish_text(struct tc_publish *publish, const char *name, const struct tc_buffer *text,
                     struct tc_error *error) {
    struct tc_outfile *out = tc_outfile_open(publish, name, error);
    return out && tc_outfile_write(out, text->bytes, text->length, error) &&
           tc_outfile_seal(out, error);
}

const struct tc_outfile *tc_publish_find(const struct tc_publish *publish, const char *name) {
    for (const struct tc_outfile *out = publish->files; out; out = out->next)
        if (strcmp(out->name, name) == 0)
            return out;
    return NULL;
}

/* As the user gave it, where that is the path of this very file. */
char *tc_publish_path(const struct tc_publish *publish, const char *name) {
    const char *folder = publish->folder;
    bool here = strcmp(folder, ".") == 0;
    size_t length = strlen(folder);
    char *path = NULL;
    if (strcmp(tc_path_name(publish->path), name) == 0 && strcmp(folder, publish->path) != 0)
        return strdup(publish->path);
    int made = asprintf(&path, "%s%s%s", here ? "" : folder,
                        here || (length && folder[length - 1] == '/') ? "" : "/", name);
    return made < 0 ? NULL : path;
}

struct tc_input *tc_outfile_reopen(const struct tc_outfile *out, struct tc_input_pool *pool,
                                   struct tc_error *error) {
    char *path = tc_publish_path(out->publish, out->name);
    char *place = tc_publish_path(out->publish, out->temp ? out->temp : out->name);
    struct tc_input *input = NULL;
    if (path && place)
        input = tc_input_open_at(path, place, pool, error);
    else
        tc_fail_memory(error);
    free(path);
    free(place);
    return input;
}

static bool rename_into_place(struct tc_outfile *out, struct tc_error *error) {
    int folder = out->publish->folder_fd;
    unsigned flags = out->publish->options.no_clobber ? RENAME_NOREPLACE : 0;
    int failed = renameat2(folder, out->temp, folder, out->name, flags);
    if (failed && (errno == EINVAL || errno == ENOSYS)) {
        /* Not every file system has the flag; a link does not replace either. */
        failed = flags ? linkat(folder, out->temp, folder, out->name, 0)
                       : renameat(folder, out->temp, folder, out->name);
        if (!failed && flags)
            unlinkat(folder, out->temp, 0);
    }
    if (failed) {
        tc_fail_errno(error, errno, "rename", "cannot put the output in place");
        return tc_error_in_file(error, out->publish->path);
    }
    out->renamed = true;
    return true;
}

void tc_publish_remove(struct tc_publish *publish, const char *name) {
    if (publish->folder_fd >= 0)
        unlinkat(publish->folder_fd, name, 0);
}

bool tc_publish_commit(struct tc_publish *publish, struct tc_error *error) {
    sigset_t old;
    block_signals(&old);
    bool ok = true;
    for (struct tc_outfile *out = publish->files; out && ok; out = out->next)
        if (out->temp)
            ok = rename_into_place(out, error);
        else
            out->renamed = true;
    if (ok)
        publish->made_folder = false;
    unblock_signals(&old);
    if (ok && publish->folder_fd >= 0 && !publish->options.no_sync &&
        fsync(publish->folder_fd) != 0 && errno != EINVAL && errno != EROFS) {
        tc_fail_errno(error, errno, "sync", "cannot sync the output's folder");
        ok = tc_error_in_file(error, publish->path);
    }
    return ok;
}

void tc_publish_end(struct tc_publish *publish) {
    sigset_t old;
    block_signals(&old);
    remove_temporaries(publish);
    if (active_publish == publish)
        active_publish = publish->active;
    for (struct tc_publish *other = active_publish; other; other = other->active)
        if (other->active == publish)
            other->active = publish->active;
    unblock_signals(&old);
    struct tc_outfile *out = publish->files;
    while (out) {
        struct tc_outfile *next = out->next;
        if (out->fd >= 0)
            close(out->fd);
        free(out->buffer);
        free(out->name);
        free(out->temp);
        free(out);
        out = next;
    }
    if (publish->folder_fd >= 0)
        close(publish->folder_fd);
    free(publish->folder);
    free(publish->path);
    *publish = (struct tc_publish){.folder_fd = -1};
}
