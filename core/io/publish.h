/*
 * Output that appears whole or not at all.
 *
 *     tc_publish_begin(&publish, path, …)      the folder and the rules
 *     tc_publish_set_head(&publish, name)      of several files, the one readers open
 *     out = tc_outfile_open(&publish, name)    a file without a name
 *     tc_outfile_write / _write_at / _copy …
 *     tc_outfile_seal(out)                     mode, fsync
 *     …more files of the same folder (shards, then their index)…
 *     …what must be right before they appear: re-reads, by tc_outfile_reopen…
 *     tc_publish_commit(&publish)              gives all of them their names
 *     tc_publish_end(&publish)                 always; removes what has no name
 *
 * Files wait without a name where the file system can do that and descriptors
 * allow, else in a folder of their own beside the output (core/io/staging.h).
 *
 * One file takes its name in one step. Of several, the head is first replaced by
 * a marker that says that the model is incomplete, then the others are put in
 * place, then the head: whatever happens, readers find the old files, the new
 * ones, or a refusal. Where a step fails all old files are put back; where the
 * process is killed, the next run to the same output does so (core/io/recover.h).
 * A folder that is not there yet appears by one rename.
 *
 * Temporary files also go when a signal ends the program (tc_signals_install).
 * A pipe or device is written as it comes, and there is then one file only.
 * Standard output that is a file is written in place, from its offset on; where
 * the work fails it is cut back to that.
 */
#ifndef TCONV_CORE_IO_PUBLISH_H
#define TCONV_CORE_IO_PUBLISH_H

#include <sys/types.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/io/journal.h"
#include "core/io/staging.h"

/* The key of the JSON object that stands in the place of a model's first file
 * while the others are being replaced. */
#define TC_INCOMPLETE_KEY "tconv_incomplete"

struct tc_publish_options {
    bool no_clobber;
    bool no_sync;
};

enum tc_outfile_place {
    TC_OUTFILE_DIRECT,  /* a pipe, a device, standard output: where it is to be */
    TC_OUTFILE_UNNAMED, /* its descriptor is all there is of it */
    TC_OUTFILE_STAGED,  /* in the staging folder, under its name */
};

struct tc_outfile {
    struct tc_outfile *next;
    struct tc_publish *publish;
    char *name; /* in the publish folder */
    enum tc_outfile_place place;
    int fd; /* -1 once sealed, unless it is unnamed */
    uint64_t position;
    mode_t mode;
    bool stream;
    bool counting; /* nothing is written: only `end` matters (tc_outfile_count) */
    bool in_place; /* standard output, a file */
    uint64_t base; /* where it starts in that file */
    uint64_t end;  /* behind its last byte, from the base */
    bool published;
    /* Small writes gather here: bytes [buffer_at, buffer_at + buffered). */
    char *buffer;
    uint64_t buffer_at;
    size_t buffered;
};

struct tc_publish {
    struct tc_publish_options options;
    char *path; /* as the user gave it, for messages */
    char *folder;
    char *base;       /* the folder that temporary files lie in: `folder`, or where that is not
                       * there yet, the one it will be in */
    int folder_fd;    /* of `base` */
    char *new_folder; /* what `folder` will be called there; NULL: it is there */
    char *head;       /* the file that readers open first; NULL: the first that is opened */
    mode_t allowed;   /* permissions that every input has */
    bool standard_output;
    struct tc_outfile *files; /* oldest first */
    struct tc_outfile *newest;
    char **removals; /* files that go when the others come */
    size_t removal_count;
    size_t unnamed; /* files that hold a descriptor */
    struct tc_staging staging;
    struct tc_journal journal; /* while it is being published */
    struct tc_publish *active; /* the next of those under way, for signals */
};

/* `path` is the target file, "-" for standard output, or a folder, with or
 * without a slash behind it, when is_folder; a missing one is then made. What a
 * killed run to this output has left is tidied up. */
bool tc_publish_begin(struct tc_publish *publish, const char *path, bool is_folder,
                      struct tc_publish_options options, struct tc_error *error);
/* The output gets no permission that this input has not, but 0600 always. */
void tc_publish_limit(struct tc_publish *publish, const struct tc_input *input);
/* Before files are checked and opened: which of several files readers open. What
 * a killed run to it has left is tidied up. */
bool tc_publish_set_head(struct tc_publish *publish, const char *name, struct tc_error *error);
/* A file that the output makes out of date, if it is there: it goes when the
 * output is published. */
bool tc_publish_remove(struct tc_publish *publish, const char *name, struct tc_error *error);
/* Makes the staging folder, if there is none yet; with signals blocked. */
bool tc_publish_stage(struct tc_publish *publish, struct tc_error *error);
bool tc_publish_commit(struct tc_publish *publish, struct tc_error *error);
/* Several of them: all or, as long as the process lives, none. Those that began
 * nothing are left out. */
bool tc_publish_commit_all(struct tc_publish *const *publishes, size_t count,
                           struct tc_error *error);
void tc_publish_end(struct tc_publish *publish);

/* Tidies up what a killed run to this path has left, before the path is read. */
void tc_publish_recover(const char *path);

/* Fails when the target may not be written: exists under no_clobber, is a
 * symlink or a folder, or is one of the inputs. */
bool tc_publish_check(struct tc_publish *publish, const char *name, struct tc_input *const *inputs,
                      size_t count, struct tc_error *error);

/* Whether the target is a pipe, a device, or a file opened for appending, which
 * can't be sought. */
bool tc_publish_is_stream(struct tc_publish *publish, const char *name);

struct tc_outfile *tc_outfile_open(struct tc_publish *publish, const char *name,
                                   struct tc_error *error);
/* Whether tc_outfile_write_at and going back work. */
bool tc_outfile_seekable(const struct tc_outfile *out);
/* Fails early where the folder's file system has no room for this many bytes. */
bool tc_outfile_reserve(struct tc_outfile *out, uint64_t bytes, struct tc_error *error);
/* At the current position, which moves. A write may be kept back until the
 * next large one or until the file is sealed; so may its failure. */
bool tc_outfile_write(struct tc_outfile *out, const void *bytes, size_t length,
                      struct tc_error *error);
bool tc_outfile_write_at(struct tc_outfile *out, uint64_t offset, const void *bytes, size_t length,
                         struct tc_error *error);
/* Bytes of an input file, at the current position, by the kernel where it can. */
bool tc_outfile_copy(struct tc_outfile *out, struct tc_input *input, uint64_t offset,
                     uint64_t length, struct tc_error *error);
/* Leaves room for what is not written, and moves the position behind it. */
void tc_outfile_skip(struct tc_outfile *out, uint64_t bytes);
/* Of a file that only counts, such as {.fd = -1, .counting = true}: how long it
 * would be. */
bool tc_outfile_count(struct tc_outfile *out, uint64_t *bytes, struct tc_error *error);
bool tc_outfile_seal(struct tc_outfile *out, struct tc_error *error);

/* The file that will have this name in the folder; NULL where there is none. */
const struct tc_outfile *tc_publish_find(const struct tc_publish *publish, const char *name);
/* The path it will have, from malloc; NULL without memory. */
char *tc_publish_path(const struct tc_publish *publish, const char *name);
/* The path at which a file can be opened until then, from malloc likewise. */
char *tc_outfile_path(const struct tc_outfile *out);
/* A sealed file as an input of its name to be, wherever it lies until then. */
struct tc_input *tc_outfile_reopen(const struct tc_outfile *out, struct tc_input_pool *pool,
                                   struct tc_error *error);

/* A whole file: opened, written and sealed. */
bool tc_publish_text(struct tc_publish *publish, const char *name, const struct tc_buffer *text,
                     struct tc_error *error);

/* Whether a text names a file in a folder: no path, no way up, no NUL. */
bool tc_path_is_plain(struct tc_text name);
/* The last component of a path. */
const char *tc_path_name(const char *path);

/* SIGINT, SIGTERM, SIGHUP, SIGPIPE and their like remove temporary files and then end the
 * program as they would have. Threads other than the main one must block all
 * signals (tc_thread_start does). */
void tc_signals_install(void);

#endif
