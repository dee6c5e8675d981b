#include "cmd/run_conversion.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/addresses.h"
#include "cmd/ledger.h"
#include "core/base/json_writer.h"
#include "core/base/notes.h"
#include "core/base/path.h"
#include "core/convert/read_back.h"
#include "core/convert/up_to_date.h"
#include "core/io/sha256.h"
#include "core/plan/make_plan.h"
#include "core/tensor/select.h"
#include "formats/registry.h"

static bool fail_strict(const struct tc_plan *plan, const struct tc_note_group *group,
                        enum strictness strict, struct tc_error *error) {
    bool usage = group->severity == TC_WARNING;
    tc_fail(error, usage ? TC_USAGE : TC_UNSUPPORTED, usage ? "no-match" : "strict",
            "--strict%s: %s: %s", strict == STRICT_ALL ? "=all" : "", tc_kind_name(group->kind),
            group->detail);
    if (group->name_count)
        tc_error_in_tensor(error, group->names[0].bytes, group->names[0].length);
    return tc_error_in_file(error, plan->readers[0]->input->path);
}

/* Fails for a loss, with =all also for a change; and before these for an option
 * that should choose tensors and matched none, which is a mistake in the command. */
static bool check_strict(const struct tc_plan *plan, enum strictness strict,
                         struct tc_error *error) {
    for (size_t i = 0; i < plan->notes.count && strict != STRICT_NOT; i++)
        if (plan->notes.groups[i].kind == TC_KIND_SELECTION)
            return fail_strict(plan, &plan->notes.groups[i], strict, error);
    if (plan->tree_problem && strict != STRICT_NOT) {
        *error = *plan->tree_problem;
        return false;
    }
    for (size_t i = 0; i < plan->notes.count && strict != STRICT_NOT; i++) {
        const struct tc_note_group *group = &plan->notes.groups[i];
        if (group->severity == TC_WARNING || (group->severity == TC_CHANGE && strict != STRICT_ALL))
            continue;
        return fail_strict(plan, group, strict, error);
    }
    return true;
}

#ifdef TCONV_TEST_HOOKS
/* In test builds TCONV_TEST_FLIP=N flips a bit of byte N of the first output file,
 * counted from its end where N is negative, before it is read back; TCONV_TEST_FLIP_COPY=N of the
 * last file that is copied beside the weights of a folder. */
static void flip_in(const struct tc_outfile *out, const char *text) {
    char *path = text && out ? tc_outfile_path(out) : NULL;
    if (!path)
        return;
    long long offset = strtoll(text, NULL, 10);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    free(path);
    off_t at = lseek(fd, (off_t)offset, offset < 0 ? SEEK_END : SEEK_SET);
    unsigned char byte;
    if (pread(fd, &byte, 1, at) == 1) {
        byte ^= 1;
        if (pwrite(fd, &byte, 1, at) != 1)
            abort();
    }
    close(fd);
}

static void flip_bit(const struct tc_publish *publish) {
    flip_in(publish->files, getenv("TCONV_TEST_FLIP"));
}

static void flip_copy(const struct tc_publish *publish) {
    flip_in(publish->newest, getenv("TCONV_TEST_FLIP_COPY"));
}
#define DISTURB flip_bit
#define DISTURB_COPIES flip_copy
#else
#define DISTURB NULL
#define DISTURB_COPIES NULL
#endif

const char *const run_conversion_orders[] = {"target", "source", "name", NULL};
const char *const run_conversion_keeps[] = {"auto", "sidecar", "drop", NULL};

static void add_verifying_options(struct option_table *table, struct run_conversion *run,
                                  bool many) {
    const struct option verify =
        FLAG_OPTION("verify", &run->convert.read_back, .not_in_receipt = true,
                    .help = "read the output again and compare every tensor and every copied "
                            "file before it is published");
    const struct option receipt[] = {
        TEXT_OPTION("receipt", &run->side_outputs.receipt, .argument = "FILE",
                    .not_in_receipt = true,
                    .help = "write what went in and came out, with hashes, as JSON; verifies"),
    };
    const struct option rows[] = {
        FLAG_OPTION("receipt-tensors", &run->side_outputs.tensors, .not_in_receipt = true,
                    .help = "list every tensor with its hash in the receipt"),
        TEXT_OPTION("sign", &run->side_outputs.key, .argument = "KEY", .not_in_receipt = true,
                    .help = "sign the receipt with this key (tconv keygen)"),
    };
    const struct option depfile[] = {
        TEXT_OPTION("depfile", &run->side_outputs.depfile, .argument = "FILE",
                    .not_in_receipt = true,
                    .help = "write a rule for make: the output's files, and all that were read"),
    };
    options_add(table, NULL, &verify, 1);
    options_add(table, NULL, receipt, many ? 0 : OPTION_COUNT(receipt));
    options_add(table, NULL, rows, OPTION_COUNT(rows));
    options_add(table, NULL, depfile, many ? 0 : OPTION_COUNT(depfile));
}

void run_conversion_add_options(struct option_table *table, struct run_conversion *run, bool many) {
    const struct option rows[] = {
        STRICT_OPTION("strict", &run->strict, .argument = "[=all]", .not_in_receipt = true,
                      .help = "any loss is an error; =all: any change too"),
        FLAG_OPTION("dry-run", &run->dry_run, .not_in_receipt = true,
                    .help = "say what would be done, changed and lost; write nothing"),
        FLAG_OPTION("no-sync", &run->convert.publish.no_sync, .not_in_receipt = true,
                    .help = "do not wait for the disk"),
        CHOICE_OPTION(
            "progress", &run->progress.mode, report_progress_modes, .argument = "HOW",
            .not_in_receipt = true,
            .help = "auto (default): a bar on a terminal; bar, json: lines for programs; none"),
        DESCRIPTOR_OPTION("progress-fd", &run->progress.fd, .argument = "N", .not_in_receipt = true,
                          .help = "descriptor for --progress=json (default: standard error)"),
    };
    add_verifying_options(table, run, many);
    options_add(table, NULL, rows, OPTION_COUNT(rows));
}

struct sandbox run_conversion_sandbox(const struct run_conversion *run) {
    const struct side_outputs *side = &run->side_outputs;
    struct sandbox sandbox = common_sandbox(run->common);
    if (!run->dry_run) {
        sandbox_add_output(&sandbox, run->output);
        sandbox_add_output(&sandbox, side->receipt);
        sandbox_add_output(&sandbox, side->depfile);
    }
    sandbox_add_file(&sandbox, side->key);
    sandbox.more_files = side->also;
    sandbox.more_count = side->also_count;
    return sandbox;
}

bool run_conversion_note_options(struct run_conversion *run, const struct option_table *table,
                                 const struct arguments *arguments, struct tc_error *error) {
    options_print_given(&run->given, table, arguments);
    run->side_outputs.options = (struct tc_text){run->given.bytes, run->given.length};
    return tc_buffer_ok(&run->given, error);
}

bool run_conversion_list_maps(struct run_conversion *run, const struct arguments *arguments,
                              struct tc_arena *arena, struct tc_error *error) {
    const char **maps = tc_arena_array(arena, arguments->given_count + 1, sizeof *maps, error);
    size_t count = 0;
    for (size_t i = 0; maps && i < arguments->given_count; i++)
        if (arguments->given[i].option->rule == tc_select_map)
            maps[count++] = arguments->given[i].value;
    run->side_outputs.also = maps;
    run->side_outputs.also_count = count;
    return maps != NULL;
}

void run_conversion_release(struct run_conversion *run) {
    tc_buffer_release(&run->given);
}

/* How it ended, and the digest of what was read back. */
struct ending {
    enum conversion_outcome outcome;
    bool has_digest;
    char digest[2 * TC_SHA256_BYTES + 1];
};

/* The shard's record, where only one is written, and then everything gets its name. */
static bool finish(struct run_conversion *run, const struct tc_shard_part *part,
                   struct tc_conversion *conversion, struct tc_error *error) {
    return (!run->shard.number || tc_shard_part_write(part, conversion, error)) &&
           side_outputs_write(&run->side_outputs, conversion, run->output, error) &&
           side_outputs_commit(&run->side_outputs, conversion, error);
}

/* Writes the output, and says in *ending how it went. */
static bool write_output(struct run_conversion *run, struct tc_plan *plan,
                         const struct tc_shard_part *part, struct tc_conversion *conversion,
                         struct ending *ending, struct tc_error *error) {
    const struct conversion_watcher *watcher = run->watcher;
    bool ok = tc_conversion_write(conversion, plan, run->output, &run->convert, error) &&
              (!run->write_more || run->write_more(run->more, &conversion->publish, error));
    ending->has_digest = ok && watcher && run->convert.keep;
    ok = ok &&
         (!ending->has_digest ||
          tc_read_back_digest(&conversion->read_back, ending->digest, error)) &&
         finish(run, part, conversion, error);
    if (conversion->publish.left_over)
        ok = tc_plan_note(plan, TC_WARNING, TC_KIND_OUTPUT, (struct tc_text){0}, error,
                          "what the new folder replaces could not be removed; it lies in a "
                          "hidden folder beside it") &&
             ok;
    ending->outcome = conversion->unchanged ? CONVERSION_UNCHANGED : CONVERSION_WRITTEN;
    tc_conversion_end(conversion);
    return ok;
}

static bool carry_out(struct run_conversion *run, struct tc_plan *plan,
                      const struct tc_shard_part *part, struct ending *ending,
                      struct tc_error *error) {
    struct report_progress progress = {0};
    const struct conversion_watcher *watcher = run->watcher;
    struct tc_conversion *conversion = malloc(sizeof *conversion); /* too large for a small stack */
    if (!conversion)
        return tc_fail_memory(error);
    run->convert.open = tc_registry_open_input;
    run->convert.disturb = DISTURB;
    run->disturb_copies = DISTURB_COPIES;
    run->convert.progress = watcher ? watcher->progress : report_progress_step;
    run->convert.context = watcher ? watcher->context : &progress;
    /* A receipt has the hashes of what was read back from the output. */
    run->convert.keep = run->side_outputs.receipt != NULL ||
                        (run->convert.read_back && (run->shard.number || watcher));
    run->convert.read_back |= run->convert.keep;
    run->convert.sums = run->side_outputs.receipt != NULL;
    struct tc_publish_options beside = run->convert.publish;
    beside.whole_folder = false;
    bool ok = side_outputs_begin(&run->side_outputs, plan, beside, error);
    if (ok) {
        report_progress_start(&progress, watcher ? NULL : &run->progress,
                              run->common->quiet || watcher);
        ok = write_output(run, plan, part, conversion, ending, error);
        report_progress_end(&progress, ok);
    }
    side_outputs_end(&run->side_outputs);
    free(conversion);
    return ok;
}

/* Prints a line on what was written: on a terminal, or with -v. */
static void report_done(const struct run_conversion *run, const struct tc_plan *plan,
                        double seconds) {
    struct tc_buffer line = {0};
    const struct common *common = run->common;
    if (common->quiet || !(common->verbose || isatty(STDERR_FILENO)))
        return;
    tc_buffer_add_string(&line, "tconv: wrote ");
    tc_buffer_add_visible(&line, tc_text_of(run->output));
    tc_buffer_addf(&line, ": %zu tensor%s, ", plan->count, plan->count == 1 ? "" : "s");
    report_size(&line, plan->bytes_out);
    if (plan->file_count > 1)
        tc_buffer_addf(&line, " in %zu files", plan->file_count);
    tc_buffer_addf(&line, ", %.*f s", seconds < 10 ? 2 : 0, seconds);
    if (seconds >= 1 && plan->bytes_out) {
        tc_buffer_add_string(&line, " (");
        report_size(&line, (uint64_t)((double)plan->bytes_out / seconds));
        tc_buffer_add_string(&line, "/s)");
    }
    tc_buffer_add_string(&line, "\n");
    report_err(&line);
}

/* Cleans up after a killed run, so that what is there now is what a run has left as its output; a
 * run that finds it in order would otherwise leave the rest of that other run, too. */
static void recover(const struct run_conversion *run, const char *head) {
    const struct side_outputs *side = &run->side_outputs;
    char *folder = tc_path_folder(head);
    tc_publish_recover(head);
    if (folder)
        tc_publish_recover(folder); /* where all of it is the output */
    free(folder);
    if (side->receipt)
        tc_publish_recover(side->receipt);
    if (side->depfile)
        tc_publish_recover(side->depfile);
}

/* Whether the output is there: its index, or its first file. */
static bool find_output(const struct run_conversion *run, const struct tc_plan *plan, bool *there,
                        struct tc_error *error) {
    const char *name = plan->index_name   ? plan->index_name
                       : plan->file_count ? plan->files[0].name
                                          : NULL;
    const char *output = run->output;
    struct tc_buffer path = {0};
    *there = false;
    if (!name || strcmp(output, "-") == 0)
        return true;
    tc_buffer_add(&path, output, (size_t)(tc_path_name(output) - output));
    tc_buffer_add_string(&path, name);
    tc_buffer_add(&path, "", 1);
    bool ok = tc_buffer_ok(&path, error);
    if (ok && !run->dry_run)
        recover(run, path.bytes);
    *there = ok && access(path.bytes, F_OK) == 0;
    if (ok && !*there && !tc_path_missing(errno)) {
        ok = tc_fail_errno(error, errno, "output", "cannot look at the output");
        tc_error_in_file(error, path.bytes);
    }
    tc_buffer_release(&path);
    return ok;
}

/* Whether nothing is to be done, and why. */
static bool find_outcome(const struct run_conversion *run, const struct tc_plan *plan,
                         enum conversion_outcome *outcome, struct tc_error *error) {
    const struct side_outputs *side = &run->side_outputs;
    bool current = false;
    bool there = false;
    if ((run->skip_existing || run->update) && !find_output(run, plan, &there, error))
        return false;
    if (run->skip_existing && there) {
        *outcome = CONVERSION_EXISTS;
        return true;
    }
    if (run->update) {
        const struct tc_up_to_date asked = {.receipt = side->receipt,
                                            .output = run->output,
                                            .target = plan->target,
                                            .options = side->options,
                                            .readers = plan->readers,
                                            .count = plan->reader_count,
                                            .also = side->also,
                                            .also_count = side->also_count};
        if (!side->receipt)
            return tc_fail(error, TC_USAGE, "usage", "--update goes with --receipt");
        if (!tc_up_to_date(&asked, &current, error))
            return false;
    }
    *outcome = current        ? CONVERSION_UP_TO_DATE
               : run->dry_run ? CONVERSION_PLANNED
                              : CONVERSION_WRITTEN;
    return true;
}

/* Says why nothing was written. */
static bool report_skipped_output(const struct run_conversion *run, const struct tc_plan *plan,
                                  enum conversion_outcome outcome, struct tc_error *error) {
    static const char *const reasons[] = {[CONVERSION_EXISTS] = "exists",
                                          [CONVERSION_UP_TO_DATE] = "up-to-date",
                                          [CONVERSION_UNCHANGED] = "unchanged"};
    struct tc_buffer out = {0};
    if (run->common->json) {
        struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_DISPLAY};
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "input", plan->readers[0]->input->path);
        tc_json_add_string(&json, "output", run->output);
        tc_json_add_string(&json, "skipped", reasons[outcome]);
        tc_json_end_line(&json);
    }
    bool ok = tc_buffer_ok(&out, error);
    report_out(&out);
    if (!run->common->quiet) {
        tc_buffer_add_string(&out, "tconv: note: ");
        tc_buffer_add_visible(&out, tc_text_of(run->output));
        tc_buffer_addf(&out, ": %s, left as it is\n", reasons[outcome]);
        report_err(&out);
    }
    return ok;
}

static bool report_all(const struct run_conversion *run, const struct tc_plan *plan,
                       const struct ending *ending, double seconds, struct tc_error *error) {
    const struct common *common = run->common;
    bool done = ending->outcome == CONVERSION_WRITTEN;
    bool planned = ending->outcome == CONVERSION_PLANNED;
    bool ok = true;
    if (run->watcher)
        ok = run->watcher->ended(run->watcher->context, ending->outcome, plan,
                                 run->side_outputs.options,
                                 ending->has_digest ? ending->digest : NULL, error);
    else if (!done && !planned)
        return report_skipped_output(run, plan, ending->outcome, error);
    else if (planned || (common->json && strcmp(run->output, "-") != 0))
        ok = ledger_print(plan, run->output, common->json, done, error);
    if (ok && !common->quiet && (done || planned))
        report_ledger(plan, common->verbose);
    if (ok && done && !run->watcher)
        report_done(run, plan, seconds);
    return ok;
}

bool run_conversion(struct run_conversion *run, struct tc_reader *const *readers, size_t count,
                    const struct tc_backend *target, const struct tc_plan_options *options,
                    struct tc_error *error) {
    struct tc_plan plan;
    struct timespec started;
    struct tc_shard_part part = {0};
    struct ending ending = {0};
    clock_gettime(CLOCK_MONOTONIC, &started);
    if (!report_progress_check(&run->progress, error) ||
        !addresses_check_output(run->output, error))
        return false;
    bool ok = tc_plan_make(&plan, readers, count, target, run->output, options, error);
    if (!ok)
        report_problems(&plan);
    if (!ok && error->class != TC_USAGE)
        tc_error_in_file(error, readers[0]->input->path);
    ok = ok && (!run->watcher || run->watcher->planned(run->watcher->context, &plan, error)) &&
         (!run->plan_more || run->plan_more(run->more, &plan, error)) &&
         check_strict(&plan, run->strict, error) &&
         (!run->shard.count ||
          tc_shard_part_take(&part, &plan, &run->shard, run->side_outputs.options, error)) &&
         find_outcome(run, &plan, &ending.outcome, error);
    if (ok && ending.outcome == CONVERSION_WRITTEN)
        ok = run->shard.count && !run->shard.number
                 ? run->write_files(run->more, &plan, &part, error)
                 : carry_out(run, &plan, &part, &ending, error);
    ok = ok && report_all(run, &plan, &ending, report_seconds_since(&started), error);
    tc_shard_part_end(&part);
    tc_plan_release(&plan);
    return ok;
}
