/* tconv verify FILE...: everything that is wrong with a file. */
#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "cmd/findings.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/format/reader.h"
#include "core/inspect/verify_file.h"
#include "formats/registry.h"

struct verify {
    struct common common;
    struct findings_run run;
};

/* Whether the format of a file that could not be opened is known nevertheless: from
 * its content, its extension or the user. The file is then damaged, else none of ours. */
static bool is_known(const struct verify *verify, const char *path, const struct tc_error *error) {
    return verify->common.from || tc_registry_for_path(path) ||
           error->reason != TC_REASON_NO_FORMAT;
}

static bool verify_file(void *context, struct checked_file *file, struct tc_error *error) {
    const struct verify *verify = context;
    struct common common = verify->common;
    common.format.findings = &file->findings;
    struct report_progress progress;
    report_progress_start(&progress, NULL, verify->common.quiet);
    const struct tc_verify_file_options reading = {
        .verbose = verify->common.verbose, .progress = report_progress_step, .context = &progress};
    struct tc_reader *reader = common_open_silently(&common, file->path, error);
    bool ok = reader && tc_verify_file(reader, &reading, error);
    if (reader)
        findings_keep_skipped(file, reader);
    /* With -q the notes among the findings, which name skipped members, are not printed. */
    if (reader && verify->common.quiet)
        report_warnings(reader, true, false);
    if (!reader && error->class == TC_INVALID && is_known(verify, file->path, error)) {
        tc_findings_add_error(&file->findings, error);
        *error = (struct tc_error){0};
        ok = tc_findings_ok(&file->findings, error);
    }
    report_progress_end(&progress, ok);
    tc_reader_close(reader);
    return ok;
}

/* What a receipt names lies beside it, or beside the first of the files. */
static bool confine(const struct verify *verify, const char *receipt, const char *public_key,
                    const struct arguments *arguments, struct tc_error *error) {
    struct sandbox sandbox = common_sandbox(&verify->common);
    sandbox_add_output(&sandbox, verify->run.junit);
    sandbox_add_output(&sandbox, verify->run.sarif);
    sandbox_add_file(&sandbox, public_key);
    if (arguments->count)
        sandbox_add_file(&sandbox, receipt);
    else
        sandbox.beside = receipt;
    return sandbox_enter(&sandbox, arguments->names, arguments->count, error);
}

int cmd_verify(int argc, char **argv) {
    struct verify verify = {.common = COMMON_DEFAULTS,
                            .run = {.command = "verify", .damaged = "damaged"}};
    const char *receipt = NULL;
    const char *public_key = NULL;
    struct option_table table;
    const struct option rows[] = {
        TEXT_OPTION("receipt", &receipt, .argument = "R",
                    .help = "compare the outputs that this receipt names with it instead"),
        TEXT_OPTION("pubkey", &public_key, .argument = "P",
                    .help = "check that the receipt is signed with this key"),
    };
    options_init(&table);
    options_add(&table, "Receipts:", rows, OPTION_COUNT(rows));
    findings_add_options(&table, &verify.run);
    common_add_options(&table, &verify.common);
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && !verify.common.help && !receipt && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no file given");
    if (ok && public_key && !receipt)
        ok = tc_fail(&error, TC_USAGE, "usage", "--pubkey is for --receipt");
    if (!ok)
        code = report_error(&error, verify.common.json);
    else if (verify.common.help)
        help_print(
            verify.common.help,
            "tconv verify [options] FILE... | --receipt R [--pubkey P] [FILE...]",
            "Reads all of a file and tells all that is wrong with it: structure, checksums,\n"
            "CRCs, an index that its shards do not bear out, truth values beyond 0 and 1.\n"
            "Exits with 1 where something is, with 3 where the file is of no known format.\n"
            "Notes, as on data that is not aligned, do not count; -v has more of them.\n"
            "With --receipt: compares files with the receipt of the conversion that wrote\n"
            "them; they lie beside it, or where the FILEs say.",
            &table);
    else if (!confine(&verify, receipt, public_key, &arguments, &error))
        code = report_error(&error, verify.common.json);
    else if (receipt)
        code = cmd_verify_receipt(&verify.common, receipt, public_key, arguments.names,
                                  arguments.count);
    else
        code = findings_each_file(&verify.run, &verify.common, &arguments, verify_file, &verify);
    arguments_release(&arguments);
    options_release(&table);
    return code;
}
