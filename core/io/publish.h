/*
 * Output that appears whole or not at all.
 *
 *     tc_publish_begin(&publish, path, …)      opens the folder
 *     tc_publish_set_head(&publish, name)      of several files, the one readers open
 *     out = tc_outfile_open(&publish, name)    a file without a name
 *     tc_outfile_write / _write_at / _copy …
 *     tc_outfile_seal(out)                     mode, fsync
 *     …more files of the same folder (shards, then their index)…
 *     …checks before they appear: reading them again, by tc_outfile_reopen…
 *     tc_publish_commit(&publish)              gives all of them their names
 *     tc_publish_end(&publish)                 always; removes what has no name
 *
 * Until then files have no name, where the file system can do that and there are
 * descriptors enough, or lie in a staging folder next to the output
 * (core/io/staging.h).
 *
 * A single file gets its name in one step. Of several, the head is first replaced
 * by a marker that says that the model is incomplete, then the others are put in
 * place, then the head: at any time readers find the old files, the new ones, or
 * a marker that they refuse. Where a step fails all old files are put back; where
 * the process is killed, the next run to the same output does so
 * (core/io/recover.h). A folder that is not there yet appears by one rename; so does
 * one that is the output as a whole, and takes the place of an older one.
 *
 * Temporary files are also removed when a signal ends the program
 * (tc_signals_install). A pipe or device is written directly, and there is then
 * one file only. Standard output that is a file is written in place, from its
 * offset on; where the work fails it is cut back to that offset.
 *
 * A tc_publish owns its outfiles. Only the main thread may call these functions,
 * except that one other thread at a time may write to an outfile.
 */
#ifndef TCONV_CORE_IO_PUBLISH_H
#define TCONV_CORE_IO_PUBLISH_H

#include <pthread.h>
#include <sys/types.h>

#include "core/base/error.h"
#include "core/base/name_map.h"
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
    /* The output is the folder of the path, with all that is in it: it is made anew,
     * and appears by one rename. One that exists must be empty; or, with
     * `replace_folder`, the new one takes its place, and it is removed. */
    bool whole_folder;
    bool replace_folder;
    mode_t folder_mode;      /* the most permissions of a whole folder; 0: as umask says */
    const char *folder_hint; /* where a name is that of a folder; NULL: the usual hint */
};

enum tc_outfile_place {
    TC_OUTFILE_DIRECT,  /* a pipe, a device, standard output: written where it is */
    TC_OUTFILE_UNNAMED, /* it has no name yet, only a descriptor */
    TC_OUTFILE_STAGED,  /* in the staging folder, under its final name */
};

/* Bytes of an input, and where they come to in the output. */
struct tc_copy_run {
    struct tc_input *input;
    uint64_t from;
    uint64_t to;
    uint64_t length;
};

/* File systems that share blocks between files share whole ones, of this size by default. */
#define TC_BLOCK_BYTES UINT64_C(4096)

/* How far a file is written, for a thread that reads it meanwhile. */
struct tc_outfile_progress {
    pthread_mutex_t *lock;   /* guards what follows */
    pthread_cond_t *changed; /* that has */
    uint64_t solid;          /* the bytes before it are written */
    uint64_t taken;          /* set by the reader, before it reads: how far it goes */
    bool rewritten;          /* some of those were written again */
    bool sealed;             /* and all is solid */
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
    bool in_place; /* standard output is a file, which can be cut back on failure */
    uint64_t base; /* where the output starts in that file; else 0 */
    uint64_t end;  /* one past its last byte, counted from `base` */
    bool published;
    /* Collects small writes: bytes [buffer_at, buffer_at + buffered). */
    char *buffer;
    uint64_t buffer_at;
    size_t buffered;
    struct tc_copy_run copy; /* kept back; its length is 0 where there is none */
    uint64_t unsent;         /* bytes that the disk was not told to write yet: they begin here */
    struct tc_outfile_progress *progress; /* NULL: nobody wants to know */
};

struct tc_publish {
    struct tc_publish_options options;
    char *path; /* as the user gave it, for messages */
    char *folder;
    char *base;       /* the folder of temporary files: `folder`, or its parent where `folder`
                       * does not exist yet */
    int folder_fd;    /* of `base` */
    char *new_folder; /* the name of `folder` in `base` where it does not exist yet; else NULL */
    char *head;       /* the file that readers open first; NULL: the first that is opened */
    mode_t allowed;   /* permissions that every input has */
    bool standard_output;
    struct tc_outfile *files; /* oldest first */
    struct tc_outfile *newest;
    struct tc_name_map names; /* of the files: their places in `by_number` */
    struct tc_outfile **by_number;
    size_t numbers; /* for how many there is room in it */
    char **folders; /* of a whole folder: paths in it, each after the one that it is in */
    size_t folder_count;
    char **removals; /* files that are removed when the others are put in place */
    size_t removal_count;
    bool exchanged; /* a whole folder is in place, and the old one in the staging folder */
    bool replaced;  /* a folder has made way for it, in one step or in two */
    bool left_over; /* a folder that was replaced could not be removed, or not all of it */
    size_t unnamed; /* files that hold a descriptor */
    struct tc_staging staging;
    struct tc_journal journal; /* while it is being published */
    struct tc_publish *active; /* the next in the list that signal handlers walk */
};

/* `path` is the target file, "-" for standard output, or a folder, with or
 * without a slash behind it, when is_folder; a missing folder is then made. Also
 * cleans up after a killed run to this output. */
bool tc_publish_begin(struct tc_publish *publish, const char *path, bool is_folder,
                      struct tc_publish_options options, struct tc_error *error);
/* The output gets no permissions that this input lacks, except 0600. */
void tc_publish_limit(struct tc_publish *publish, const struct tc_input *input);
/* Says which of several files readers open first; call it before files are
 * checked and opened. Also cleans up after a killed run to that file. */
bool tc_publish_set_head(struct tc_publish *publish, const char *name, struct tc_error *error);
/* Removes a file that the output makes out of date, if it exists, when the output
 * is published. */
bool tc_publish_remove(struct tc_publish *publish, const char *name, struct tc_error *error);
/* Makes a folder in a whole folder; the one that it is in must be there. Files in it
 * are then opened by their path. `mode` are its most permissions. */
bool tc_publish_add_folder(struct tc_publish *publish, const char *name, mode_t mode,
                           struct tc_error *error);
/* Makes the staging folder, if there is none yet. Signals must be blocked. */
bool tc_publish_stage(struct tc_publish *publish, struct tc_error *error);
bool tc_publish_commit(struct tc_publish *publish, struct tc_error *error);
/* Publishes several: all or none, unless the process is killed meanwhile. Those
 * without files are left out. */
bool tc_publish_commit_all(struct tc_publish *const *publishes, size_t count,
                           struct tc_error *error);
void tc_publish_end(struct tc_publish *publish);

/* Cleans up after a killed run to this path, before the path is read. */
void tc_publish_recover(const char *path);
/* The same for all that lies in a folder. */
void tc_publish_recover_folder(const char *folder);

/* Fails when the target may not be written: exists under no_clobber, is a
 * symlink or a folder, or is one of the inputs. */
bool tc_publish_check(struct tc_publish *publish, const char *name, struct tc_input *const *inputs,
                      size_t count, struct tc_error *error);

/* Whether the target is a pipe, a device, or a file opened for appending, which
 * can't be sought. */
bool tc_publish_is_stream(struct tc_publish *publish, const char *name, bool *stream,
                          struct tc_error *error);

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
/* The same for a piece that nothing is expected to follow at once: it is not gathered with others.
 */
bool tc_outfile_write_apart(struct tc_outfile *out, uint64_t offset, const void *bytes,
                            size_t length, struct tc_error *error);
/* Bytes of an input file, at the current position, by the kernel where it can. Copies that
 * continue one another on both sides are made as one: a file system that shares blocks
 * shares those of the whole run, where source and target lie alike in a block. The copy may
 * be kept back until the next write, or until the file is sealed; so may its failure. The
 * input must stay open until then. */
bool tc_outfile_copy(struct tc_outfile *out, struct tc_input *input, uint64_t offset,
                     uint64_t length, struct tc_error *error);
/* Moves the position past bytes that are not written. */
void tc_outfile_skip(struct tc_outfile *out, uint64_t bytes);
/* The length that a file which only counts, such as {.fd = -1, .counting = true},
 * would have. */
bool tc_outfile_count(struct tc_outfile *out, uint64_t *bytes, struct tc_error *error);
/* Writes what is buffered, sets the permissions and syncs; nothing may be written
 * afterwards. */
bool tc_outfile_seal(struct tc_outfile *out, struct tc_error *error);

/* The file that will have this name in the folder; NULL where there is none. */
const struct tc_outfile *tc_publish_find(const struct tc_publish *publish, const char *name);
/* The path it will have, from malloc; NULL without memory. */
char *tc_publish_path(const struct tc_publish *publish, const char *name);
/* The path at which a file can be opened before it is published, from malloc; NULL
 * without memory. */
char *tc_outfile_path(const struct tc_outfile *out);
/* Opens a sealed file as an input, under the name that it will have. */
struct tc_input *tc_outfile_reopen(const struct tc_outfile *out, struct tc_input_pool *pool,
                                   struct tc_error *error);

/* Puts a file that is there already, on the same file system, among those of a whole folder: as a
 * second name of it, or as a copy where there can be none. It must be a file and no link. */
bool tc_publish_link(struct tc_publish *publish, const char *name, struct tc_input *input,
                     struct tc_error *error);

/* Opens, writes and seals a small file. */
bool tc_publish_text(struct tc_publish *publish, const char *name, const struct tc_buffer *text,
                     struct tc_error *error);

/* SIGINT, SIGTERM, SIGHUP, SIGPIPE and their like remove temporary files and then end the
 * program as they would have. Threads other than the main one must block all
 * signals (tc_thread_start does). */
void tc_signals_install(void);

#endif
