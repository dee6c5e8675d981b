/*
 * What a command may do is narrowed down before it looks at a file, so that a
 * parser that was taken over by one could do nothing with it. Three steps, each
 * narrower, in this order and before any thread is started:
 *
 *     sandbox_begin      no core dumps, no new privileges, a limit of memory;
 *                        changes to files only in the folders of the outputs
 *     sandbox_inputs     files are read only in the folders of the inputs
 *     sandbox_complete   no programs, sockets, tracing, and the like
 *
 * sandbox_enter does all three, for a command whose inputs are all on its
 * command line. What the kernel does not have is left out: told with -v, and an
 * error with --sandbox=require. docs/security.md says what each step gives.
 */
#ifndef TCONV_CMD_SANDBOX_H
#define TCONV_CMD_SANDBOX_H

#include "core/base/error.h"

enum sandbox_mode { SANDBOX_AUTO, SANDBOX_REQUIRE, SANDBOX_OFF };
extern const char *const sandbox_modes[];

/* As many outputs as a command has options for, with its own. */
#define SANDBOX_OUTPUTS 8

struct sandbox {
    enum sandbox_mode mode;
    bool verbose;
    uint64_t memory; /* --max-memory; 0: no limit; UINT64_MAX: it follows the files */
    int packing;     /* --compress: its level, by which libraries take memory beside that */
    /* A folder that is there, in which files and links are made, and nothing beside it. */
    const char *folder;
    const char *outputs[SANDBOX_OUTPUTS];
    size_t output_count;
    const char *files[SANDBOX_OUTPUTS]; /* read, and nothing beside them: a schema, a key */
    size_t file_count;
    const char *const *more_files; /* likewise, of options that are given again */
    size_t more_count;
    const char *beside; /* one more input, that an option names */
    /* Folders in which files are removed, besides those of the outputs. */
    const char *const *removed;
    size_t removed_count;
    bool children;         /* it makes processes, which confine themselves further */
    int abi;               /* of Landlock, once it has begun */
    const char *temporary; /* the folder of temporary files, likewise */
};

/* A file, or with a slash at its end a folder, that will be written; NULL and
 * "-" are none. */
void sandbox_add_output(struct sandbox *sandbox, const char *path);
/* A file that an option names. */
void sandbox_add_file(struct sandbox *sandbox, const char *path);

bool sandbox_begin(struct sandbox *sandbox, struct tc_error *error);
/* Files with what lies beside them, and folders; of links also what they lead
 * to. "-" is none; what is not there is left for the reader to tell. */
bool sandbox_inputs(struct sandbox *sandbox, const char *const *paths, size_t count,
                    struct tc_error *error);
bool sandbox_complete(struct sandbox *sandbox, struct tc_error *error);
bool sandbox_enter(struct sandbox *sandbox, const char *const *inputs, size_t count,
                   struct tc_error *error);

/* Where it was the sandbox that kept a file from being opened, which its
 * permissions allow: says so. */
void sandbox_hint(struct tc_error *error);

#endif
