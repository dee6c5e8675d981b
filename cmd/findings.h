/*
 * What verify, check and scan found, file by file: as text, as JSON, and as JUnit
 * and SARIF for CI systems.
 */
#ifndef TCONV_CMD_FINDINGS_H
#define TCONV_CMD_FINDINGS_H

#include "cmd/common.h"
#include "cmd/options.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/text.h"
#include "core/format/reader.h"

struct checked_file {
    const char *path;
    struct tc_findings findings;
    struct tc_buffer skipped; /* what was left out, as a JSON array; empty: nothing */
    struct tc_error *error;   /* why it could not be checked; NULL: it could */
};

/* Fills what is found into file->findings, or file->error. */
typedef bool findings_action(void *context, struct checked_file *file, struct tc_error *error);

/* For an action: what the reader left out goes into the JSON of the file. */
void findings_keep_skipped(struct checked_file *file, const struct tc_reader *reader);

struct findings_run {
    const char *command; /* "verify" */
    const char *damaged; /* what the text calls a file with findings */
    const char *junit;   /* paths of reports to write; NULL: none */
    const char *sarif;
    struct checked_file *files;
    size_t count;
};

/* Adds the options that ask for reports. */
void findings_add_options(struct option_table *table, struct findings_run *run);

/* Checks every file, prints what was found and writes the reports. Returns the exit
 * code: 1 where something was found, higher where a file could not be checked. */
int findings_each_file(struct findings_run *run, const struct common *common,
                       const struct arguments *arguments, findings_action *action, void *context);

/* For a command that goes over files in its own way: writes the reports that were
 * asked for, and frees what was found. */
int findings_write_reports(const struct findings_run *run, const struct common *common);
void findings_run_release(struct findings_run *run);

void findings_add_junit(struct tc_buffer *out, const struct findings_run *run);
void findings_add_sarif(struct tc_buffer *out, const struct findings_run *run);

/* Fails where the path is one of the files to check; it may be NULL. */
bool findings_check_output(const char *path, const struct arguments *arguments,
                           struct tc_error *error);
/* Writes a text to a file, atomically. */
bool findings_publish(const char *path, const struct tc_buffer *text, struct tc_error *error);

#endif
