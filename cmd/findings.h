/*
 * What verify and check found, file by file: for people, for programs, and as
 * JUnit and SARIF for CI systems.
 */
#ifndef TCONV_CMD_FINDINGS_H
#define TCONV_CMD_FINDINGS_H

#include "cmd/common.h"
#include "cmd/options.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/text.h"
#include "core/format/reader.h"

struct looked_at {
    const char *path;
    struct tc_findings findings;
    struct tc_buffer skipped; /* what was left out, as a JSON array; empty: nothing */
    struct tc_error *error;   /* why it could not be looked at; NULL: it could */
};

/* Fills what is found into file->findings, or file->error. */
typedef bool findings_action(void *context, struct looked_at *file, struct tc_error *error);

/* For an action: what the reader left out goes into the JSON of the file. */
void findings_keep_skipped(struct looked_at *file, const struct tc_reader *reader);

struct findings_run {
    const char *command; /* "verify" */
    const char *damaged; /* the word for a file with findings */
    const char *junit;   /* paths of reports to write; NULL: none */
    const char *sarif;
    struct looked_at *files;
    size_t count;
};

/* Adds the options that ask for reports. */
void findings_add_options(struct option_table *table, struct findings_run *run);

/* Looks at every file, prints and writes the reports. The exit code: 1 where
 * something was found, higher where a file could not be looked at. */
int findings_each_file(struct findings_run *run, const struct common *common,
                       const struct arguments *arguments, findings_action *action, void *context);

/* The parts of it, for a command that goes over files in its own way: writes the
 * reports that were asked for, and frees what was found. */
int findings_write_reports(const struct findings_run *run, const struct common *common);
void findings_run_release(struct findings_run *run);

void findings_add_junit(struct tc_buffer *out, const struct findings_run *run);
void findings_add_sarif(struct tc_buffer *out, const struct findings_run *run);

/* Refuses a path that is one of the files looked at; NULL is none. */
bool findings_check_output(const char *path, const struct arguments *arguments,
                           struct tc_error *error);
/* Writes a text to a file, atomically. */
bool findings_publish(const char *path, const struct tc_buffer *text, struct tc_error *error);

#endif
