#include "core/io/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/path.h"
#include "core/io/cores.h"
#include "core/io/publish_step.h"
#include "core/io/recover.h"
#include "core/io/signals.h"

/* Unnamed files are held open. They may take half of the descriptors less these,
 * which the program needs otherwise: for inputs, for outputs that are read again,
 * and for folders. This leaves two under `ulimit -n 32`. */
#define OTHER_DESCRIPTORS 14
#define MOST_UNNAMED 4096u

/*
 * What a signal handler must remove. A handler takes no arguments, so this is
 * the one piece of global state: a list that the main thread edits with the
 * signals blocked.
 */
static struct tc_publish *volatile active_publish;

static void remove_temporaries(struct tc_publish *publish) {
    for (struct tc_outfile *out = publish->files; out; out = out->next) {
        if (out->place == TC_OUTFILE_STAGED && !out->published && publish->staging.name)
            unlinkat(publish->staging.new_fd, out->name, 0);
        if (out->in_place && !out->published && ftruncate(STDOUT_FILENO, (off_t)out->base) != 0)
            continue; /* the failure itself is reported anyway */
    }
    for (size_t i = publish->staging.name ? publish->folder_count : 0; i-- > 0;)
        unlinkat(publish->staging.new_fd, publish->folders[i], AT_REMOVEDIR);
    tc_staging_unlink(&publish->staging);
}

static void on_signal(int number) {
    for (struct tc_publish *publish = active_publish; publish; publish = publish->active)
        remove_temporaries(publish);
    tc_cores_abandon();
    signal(number, SIG_DFL);
    raise(number);
}

void tc_signals_install(void) {
    tc_signals_handle(on_signal);
}

/* Whether a folder has nothing in it; where it can't be read to its end, it may have. */
static bool is_empty(const char *path) {
    DIR *listing = opendir(path);
    struct dirent *entry;
    bool empty = listing != NULL;
    errno = 0;
    while (listing && empty && (entry = readdir(listing)))
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    empty = empty && errno == 0;
    if (listing)
        closedir(listing);
    return empty;
}

/* Whether a whole folder may take the place of what has its name. */
static bool check_replaced(const struct tc_publish *publish, const char *path,
                           const struct stat *status, struct tc_error *error) {
    if (S_ISLNK(status->st_mode)) {
        tc_fail(error, TC_UNSAFE, "output-symlink", "the output is a symbolic link");
        return tc_error_hint(error, "name the folder it points to, or remove the link first");
    }
    if (!S_ISDIR(status->st_mode))
        return tc_fail(error, TC_USAGE, "exists", "the output exists, and is no folder");
    if ((publish->options.replace_folder && !publish->options.no_clobber) || is_empty(path))
        return true;
    tc_fail(error, TC_USAGE, "exists", "the output's folder exists, and is not empty");
    return tc_error_hint(error, "--replace puts the new folder in its place");
}

/* For a folder that is to be made: opens its parent, which must be writable. */
static bool open_base(struct tc_publish *publish, int flags, struct tc_error *error) {
    struct stat status;
    char *trimmed = tc_path_trim(publish->folder);
    free(publish->base);
    publish->base = trimmed ? tc_path_folder(trimmed) : NULL;
    publish->new_folder = trimmed ? strdup(tc_path_name(trimmed)) : NULL;
    bool ok = publish->base && publish->new_folder;
    if (!ok)
        tc_fail_memory(error);
    else if (publish->options.whole_folder && !tc_path_is_plain(tc_text_of(publish->new_folder)))
        ok = tc_fail(error, TC_USAGE, "output-folder", "a new folder needs a name of its own");
    publish->folder_fd = ok ? open(publish->base, flags) : -1;
    /* The folder may be one that a killed run was replacing. */
    if (publish->options.whole_folder && publish->folder_fd >= 0)
        tc_recover(publish->folder_fd, publish->new_folder, !publish->options.no_sync);
    bool there = ok && lstat(trimmed, &status) == 0;
    /* Where there is no telling, it may be there. */
    int unknown = !ok || there || tc_path_missing(errno) ? 0 : errno;
    if (there && publish->options.whole_folder)
        ok = check_replaced(publish, trimmed, &status, error);
    else if (there || unknown)
        ok = tc_fail_errno(error, there ? EEXIST : unknown, "output-folder",
                           "cannot make the output's folder");
    free(trimmed);
    if (ok && publish->folder_fd >= 0 &&
        faccessat(publish->folder_fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
        ok = tc_fail_errno(error, errno, "output-folder", "cannot make the output's folder");
    return ok;
}

static bool open_folder(struct tc_publish *publish, bool make, struct tc_error *error) {
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    sigset_t old;
    tc_signals_block(&old);
    bool whole = publish->options.whole_folder;
    bool ok = true;
    publish->folder_fd = whole ? -1 : open(publish->folder, flags);
    if (whole || (publish->folder_fd < 0 && errno == ENOENT && make))
        ok = open_base(publish, flags, error);
    publish->active = active_publish;
    active_publish = publish;
    tc_signals_unblock(&old);
    if (ok && publish->folder_fd < 0)
        ok = tc_fail_errno(error, errno, "output-folder", "cannot open the output's folder");
    return ok ? true : tc_error_in_file(error, publish->folder);
}

/* The name that temporary names are made from: one that the next run to the same
 * output knows, too. */
static const char *temporary_key(const struct tc_publish *publish) {
    return publish->new_folder ? publish->new_folder
           : publish->head     ? publish->head
                               : tc_path_name(publish->path);
}

/* Cleans up after a killed run to a path, in the folder of that path. */
static void recover_path(const char *path, bool sync) {
    char *trimmed = tc_path_trim(path);
    char *folder = trimmed ? tc_path_folder(trimmed) : NULL;
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        tc_recover(fd, tc_path_name(trimmed), sync);
        close(fd);
    }
    free(folder);
    free(trimmed);
}

bool tc_publish_begin(struct tc_publish *publish, const char *path, bool is_folder,
                      struct tc_publish_options options, struct tc_error *error) {
    *publish = (struct tc_publish){.options = options, .folder_fd = -1, .allowed = 0777};
    tc_name_map_init(&publish->names, NULL);
    publish->standard_output = strcmp(path, "-") == 0;
    publish->path = strdup(path);
    publish->folder = is_folder ? strdup(path) : tc_path_folder(path);
    publish->base = publish->folder ? strdup(publish->folder) : NULL;
    if (!publish->path || !publish->folder || !publish->base)
        return tc_fail_memory(error);
    if (publish->standard_output)
        return true;
    if (!open_folder(publish, is_folder, error))
        return false;
    tc_recover(publish->folder_fd, temporary_key(publish), !options.no_sync);
    if (is_folder && !publish->new_folder)
        recover_path(path, !options.no_sync);
    return true;
}

bool tc_publish_set_head(struct tc_publish *publish, const char *name, struct tc_error *error) {
    bool other = strcmp(temporary_key(publish), name) != 0;
    publish->head = strdup(name);
    if (!publish->head)
        return tc_fail_memory(error);
    if (other && !publish->new_folder && publish->folder_fd >= 0)
        tc_recover(publish->folder_fd, name, !publish->options.no_sync);
    return true;
}

void tc_publish_recover(const char *path) {
    recover_path(path, true);
}

void tc_publish_recover_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    tc_recover_all(fd, true);
    close(fd);
}

static bool target_status(struct tc_publish *publish, const char *name, struct stat *status,
                          bool *exists, struct tc_error *error) {
    *exists = false;
    if (publish->new_folder)
        return true;
    *exists = fstatat(publish->folder_fd, name, status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*exists) {
        if (errno != ENOENT)
            return tc_fail_errno(error, errno, "output", "cannot write here");
        return true;
    }
    /* A link to a pipe or terminal, such as /dev/stdout, may be followed. */
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
        if (fstat(STDOUT_FILENO, &status) != 0)
            return tc_fail_errno(error, errno, "stdout", "cannot write to standard output");
        if (S_ISREG(status.st_mode))
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
            const char *hint = publish->options.folder_hint;
            tc_error_hint(error, "%s", hint ? hint : "add a slash to write into it");
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

/* `tconv in - > out`: a file that can be sought, unless it is open for appending. */
static bool stdout_is_stream(bool *stream, struct tc_error *error) {
    struct stat status;
    int flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (flags < 0 || fstat(STDOUT_FILENO, &status) != 0)
        return tc_fail_errno(error, errno, "stdout", "cannot write to standard output");
    *stream = flags & O_APPEND || !S_ISREG(status.st_mode);
    return true;
}

/* Whatever the file holds from its offset on is overwritten. It can be cut back on
 * failure only where the output was added to its end. */
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
    /* Waits until the pipe has a reader; a signal may end that. */
    out->fd = out->publish->standard_output
                  ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                  : openat(out->publish->folder_fd, out->name, O_WRONLY | O_CLOEXEC);
    return out->fd >= 0 || tc_fail_errno(error, errno, "output", "cannot open the output");
}

static void add_file(struct tc_publish *publish, struct tc_outfile *out) {
    *(publish->newest ? &publish->newest->next : &publish->files) = out;
    publish->newest = out;
}

/* Remembers the file's name, so that tc_publish_find finds it among a hundred thousand. */
static bool add_name(struct tc_publish *publish, struct tc_outfile *out, struct tc_error *error) {
    size_t count = publish->names.count;
    struct tc_text name = tc_text_of(out->name);
    if (tc_name_map_find(&publish->names, name))
        return true;
    if (count == publish->numbers) {
        size_t numbers = count ? 2 * count : 16;
        struct tc_outfile **grown =
            reallocarray(publish->by_number, numbers, sizeof(struct tc_outfile *));
        if (!grown)
            return tc_fail_memory(error);
        publish->by_number = grown;
        publish->numbers = numbers;
    }
    publish->by_number[count] = out;
    return tc_name_map_add(&publish->names, name, (uint32_t)count, error);
}

static size_t most_unnamed(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 2 > MOST_UNNAMED)
        return MOST_UNNAMED;
    size_t half = (size_t)limit.rlim_cur / 2;
    return half > OTHER_DESCRIPTORS ? half - OTHER_DESCRIPTORS : 1;
}

/* False where there can be no unnamed file; the error is filled only where a named
 * one would fail, too. */
static bool open_unnamed(struct tc_outfile *out, struct tc_error *error) {
    struct tc_publish *publish = out->publish;
    /* It will get its name through /proc/self/fd. */
    if (publish->unnamed >= most_unnamed() || access("/proc/self/fd", X_OK) != 0 ||
        tc_publish_lacks("TCONV_TEST_NAMED"))
        return false;
    out->fd = openat(publish->folder_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (out->fd < 0) {
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOSYS)
            tc_fail_errno(error, errno, "output", "cannot create the output");
        return false;
    }
    out->place = TC_OUTFILE_UNNAMED;
    publish->unnamed++;
    add_file(publish, out);
    return true;
}

bool tc_publish_stage(struct tc_publish *publish, struct tc_error *error) {
    mode_t mode = publish->options.folder_mode ? publish->options.folder_mode | 0700 : 0777;
    return publish->staging.name ||
           tc_staging_make(&publish->staging, publish->folder_fd, temporary_key(publish),
                           publish->new_folder ? mode : 0700, error);
}

bool tc_publish_add_folder(struct tc_publish *publish, const char *name, mode_t mode,
                           struct tc_error *error) {
    sigset_t old;
    /* The handler walks this list, too. */
    tc_signals_block(&old);
    char **folders =
        reallocarray(publish->folders, publish->folder_count + 1, sizeof *publish->folders);
    char *copy = folders ? strdup(name) : NULL;
    if (folders)
        publish->folders = folders;
    bool ok = copy ? tc_publish_stage(publish, error) : tc_fail_memory(error);
    if (ok && (tc_publish_step() || mkdirat(publish->staging.new_fd, name, mode | 0700) != 0))
        ok = tc_fail_errno(error, errno, "output", "cannot create the output");
    if (ok)
        folders[publish->folder_count++] = copy;
    tc_signals_unblock(&old);
    if (ok)
        return true;
    free(copy);
    return tc_error_in_file(error, publish->path);
}

static bool open_staged(struct tc_outfile *out, struct tc_error *error) {
    /* No signal may come between creating the file and adding it to the list. */
    sigset_t old;
    tc_signals_block(&old);
    bool ok = tc_publish_stage(out->publish, error);
    if (ok) {
        out->fd = tc_publish_step()
                      ? -1
                      : openat(out->publish->staging.new_fd, out->name,
                               O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        ok = out->fd >= 0 || tc_fail_errno(error, errno, "output", "cannot create the output");
    }
    if (ok) {
        out->place = TC_OUTFILE_STAGED;
        add_file(out->publish, out);
    }
    tc_signals_unblock(&old);
    return ok;
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
    return open_unnamed(out, error) || (error->class == TC_OK && open_staged(out, error));
}

void tc_publish_limit(struct tc_publish *publish, const struct tc_input *input) {
    publish->allowed &= input->mode;
}

bool tc_publish_is_stream(struct tc_publish *publish, const char *name, bool *stream,
                          struct tc_error *error) {
    struct stat status;
    bool exists = false;
    if (publish->standard_output)
        return stdout_is_stream(stream, error);
    if (!target_status(publish, name, &status, &exists, error))
        return tc_error_in_file(error, publish->path);
    *stream = exists && is_stream(status.st_mode);
    return true;
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
    bool stream;
    bool standard = publish->standard_output;
    if (tc_publish_is_stream(publish, name, &stream, error) &&
        (stream     ? open_stream(out, error)
         : standard ? open_stdout(out, error)
                    : open_file(out, error))) {
        if (stream || standard)
            add_file(publish, out);
        return add_name(publish, out, error) ? out : NULL;
    }
    tc_error_in_file(error, publish->path);
    free(out->name);
    free(out);
    return NULL;
}

/* Gives the file a second name in the staging folder; *linked is false where there can be none. */
static bool link_staged(struct tc_outfile *out, const char *path, bool *linked,
                        struct tc_error *error) {
    sigset_t old;
    tc_signals_block(&old);
    bool ok = tc_publish_stage(out->publish, error);
    bool lacks = tc_publish_lacks("TCONV_TEST_NO_LINKS");
    *linked = ok && !lacks && !tc_publish_step() &&
              linkat(AT_FDCWD, path, out->publish->staging.new_fd, out->name, 0) == 0;
    if (*linked) {
        out->place = TC_OUTFILE_STAGED;
        add_file(out->publish, out);
    } else if (ok && !lacks && errno != EPERM && errno != EOPNOTSUPP && errno != EMLINK &&
               errno != EXDEV && errno != ENOSYS) {
        ok = tc_fail_errno(error, errno, "output", "cannot create the output");
    }
    tc_signals_unblock(&old);
    return ok;
}

static bool copy_linked(struct tc_publish *publish, const char *name, struct tc_input *input,
                        struct tc_error *error) {
    struct tc_outfile *out = tc_outfile_open(publish, name, error);
    if (out)
        out->mode = (input->mode & 0777) | 0600;
    return out && tc_outfile_copy(out, input, 0, input->size, error) && tc_outfile_seal(out, error);
}

bool tc_publish_link(struct tc_publish *publish, const char *name, struct tc_input *input,
                     struct tc_error *error) {
    struct stat status;
    bool linked = false;
    if (lstat(input->path, &status) != 0) {
        tc_fail_errno(error, errno, "open", "cannot look at this file again");
        return tc_error_in_file(error, input->path);
    }
    if (!S_ISREG(status.st_mode) || status.st_ino != input->inode ||
        status.st_dev != input->device) {
        tc_fail(error, TC_UNSAFE, "output-symlink", "this is no file, or another than before");
        return tc_error_in_file(error, input->path);
    }
    struct tc_outfile *out = calloc(1, sizeof *out);
    char *copy = out ? strdup(name) : NULL;
    bool ok = copy != NULL;
    if (ok)
        *out = (struct tc_outfile){.publish = publish, .name = copy, .fd = -1, .end = input->size};
    ok = ok ? link_staged(out, input->path, &linked, error) : tc_fail_memory(error);
    if (linked)
        return add_name(publish, out, error);
    free(copy);
    free(out);
    return ok ? copy_linked(publish, name, input, error) : tc_error_in_file(error, input->path);
}

bool tc_publish_text(struct tc_publish *publish, const char *name, const struct tc_buffer *text,
                     struct tc_error *error) {
    struct tc_outfile *out = tc_outfile_open(publish, name, error);
    return out && tc_outfile_write(out, text->bytes, text->length, error) &&
           tc_outfile_seal(out, error);
}

const struct tc_outfile *tc_publish_find(const struct tc_publish *publish, const char *name) {
    const uint32_t *number = tc_name_map_find(&publish->names, tc_text_of(name));
    return number ? publish->by_number[*number] : NULL;
}

/* The path as the user gave it, where that is the path of this very file. */
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

char *tc_outfile_path(const struct tc_outfile *out) {
    const struct tc_publish *publish = out->publish;
    char *path = NULL;
    int made = 0;
    if (out->place == TC_OUTFILE_UNNAMED)
        made = asprintf(&path, "/proc/self/fd/%d", out->fd);
    else if (out->place == TC_OUTFILE_STAGED && publish->staging.name)
        made = asprintf(&path, "%s/%s/new/%s", publish->base, publish->staging.name, out->name);
    else
        return tc_publish_path(publish, out->name);
    return made < 0 ? NULL : path;
}

struct tc_input *tc_outfile_reopen(const struct tc_outfile *out, struct tc_input_pool *pool,
                                   struct tc_error *error) {
    char *path = tc_publish_path(out->publish, out->name);
    char *place = tc_outfile_path(out);
    struct tc_input *input = NULL;
    if (path && place)
        input = tc_input_open_at(path, place, pool, error);
    else
        tc_fail_memory(error);
    free(path);
    free(place);
    return input;
}

bool tc_publish_remove(struct tc_publish *publish, const char *name, struct tc_error *error) {
    struct stat status;
    if (publish->new_folder || publish->folder_fd < 0)
        return true;
    if (fstatat(publish->folder_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT)
            return true;
        tc_fail_errno(error, errno, "output", "cannot look for %s, which is to go", name);
        return tc_error_in_file(error, publish->path);
    }
    if (S_ISDIR(status.st_mode))
        return true;
    char **removals =
        reallocarray(publish->removals, publish->removal_count + 1, sizeof *publish->removals);
    if (!removals)
        return tc_fail_memory(error);
    publish->removals = removals;
    removals[publish->removal_count] = strdup(name);
    return removals[publish->removal_count++] || tc_fail_memory(error);
}

static void free_files(struct tc_outfile *out) {
    while (out) {
        struct tc_outfile *next = out->next;
        if (out->fd >= 0)
            close(out->fd);
        free(out->buffer);
        free(out->name);
        free(out);
        out = next;
    }
}

void tc_publish_end(struct tc_publish *publish) {
    sigset_t old;
    tc_signals_block(&old);
    remove_temporaries(publish);
    tc_staging_release(&publish->staging, false);
    if (active_publish == publish)
        active_publish = publish->active;
    for (struct tc_publish *other = active_publish; other; other = other->active)
        if (other->active == publish)
            other->active = publish->active;
    tc_signals_unblock(&old);
    free_files(publish->files);
    tc_name_map_release(&publish->names);
    free(publish->by_number);
    tc_journal_release(&publish->journal);
    for (size_t i = 0; i < publish->removal_count; i++)
        free(publish->removals[i]);
    free(publish->removals);
    for (size_t i = 0; i < publish->folder_count; i++)
        free(publish->folders[i]);
    free(publish->folders);
    if (publish->folder_fd >= 0)
        close(publish->folder_fd);
    free(publish->new_folder);
    free(publish->head);
    free(publish->base);
    free(publish->folder);
    free(publish->path);
    *publish = (struct tc_publish){.folder_fd = -1};
}
