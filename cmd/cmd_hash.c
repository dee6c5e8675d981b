#include <stdlib.h>

#include "cmd/choose.h"
#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/inspect/digest.h"
#include "core/io/progress.h"
#include "core/io/sha256.h"
#include "core/tensor/dtype.h"
#include "core/tensor/select.h"
#include "core/tensor/table.h"

struct hash {
    struct common common;
    struct choose choose;
    bool digest;
    bool several;
};

/* What is hashed of a file. */
struct hashed {
    struct tc_reader *reader;
    struct chosen chosen;
    struct tc_digest digest;
    struct report_progress progress;
    uint64_t done;
    uint64_t total;
};

static void advance(void *context, uint64_t bytes) {
    struct hashed *hashed = context;
    hashed->done += bytes;
    report_progress_step(&hashed->progress, hashed->done, hashed->total);
}

static const unsigned char *sum_of(const struct hashed *hashed, const struct tc_tensor *tensor) {
    return hashed->digest.sums[tensor - hashed->reader->table.tensors];
}

static void add_json(struct tc_buffer *out, const struct hash *hash, const struct hashed *hashed,
                     const char *path, const char *total) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "file", path);
    common_add_unverified(&json, &hash->common);
    tc_json_add_string(&json, "digest", total);
    tc_json_open_array(&json, "tensors");
    for (size_t i = 0; i < hashed->chosen.count; i++) {
        const struct tc_tensor *tensor = hashed->chosen.tensors[i];
        char hex[2 * TC_SHA256_BYTES + 1];
        tc_hex(sum_of(hashed, tensor), TC_SHA256_BYTES, hex);
        tc_json_open_object(&json, NULL);
        tc_json_add_text(&json, "name", tensor->name);
        tc_json_add_string(&json, "dtype", tc_dtype_name(tensor->dtype));
        tc_json_add_numbers(&json, "shape", tensor->shape, tensor->rank);
        tc_json_add_string(&json, "sha256", hex);
        tc_json_close(&json);
    }
    tc_json_close(&json);
    report_skipped(&json, "skipped", hashed->reader, NULL);
    tc_json_end_line(&json);
}

static void add_lines(struct tc_buffer *out, const struct hashed *hashed) {
    for (size_t i = 0; i < hashed->chosen.count; i++) {
        const struct tc_tensor *tensor = hashed->chosen.tensors[i];
        tc_digest_add_line(out, sum_of(hashed, tensor), tensor->dtype, tensor->shape, tensor->rank,
                           tensor->name);
    }
}

static bool run_hash(const struct hash *hash, struct hashed *hashed, struct tc_error *error) {
    struct tc_reader *reader = hashed->reader;
    const struct tc_watch watch = {.step = advance, .context = hashed};
    if (!choose_tensors(&hash->choose, reader, NULL, 0, &hashed->chosen, error) ||
        !chosen_some(&hashed->chosen, reader, error))
        return false;
    for (size_t i = 0; i < hashed->chosen.count; i++)
        hashed->total += hashed->chosen.tensors[i]->nbytes;
    bool all = hashed->chosen.count == reader->table.count;
    report_progress_start(&hashed->progress, NULL, hash->common.quiet);
    bool ok = tc_digest_make_watched(&hashed->digest, reader, all ? NULL : hashed->chosen.wanted,
                                     &watch, error);
    report_progress_end(&hashed->progress, ok);
    return ok;
}

static bool hash_file(void *context, struct tc_reader *reader, const char *path,
                      struct tc_error *error) {
    const struct hash *hash = context;
    struct hashed hashed = {.reader = reader};
    struct tc_buffer text = {0};
    struct tc_buffer out = {0};
    char total[2 * TC_SHA256_BYTES + 1];
    /* The digest is that of the lines by name, whatever order they are shown in. */
    bool ok = run_hash(hash, &hashed, error) &&
              tc_digest_print(&hashed.digest, reader, &text, error) &&
              tc_digest_total(&text, total, error);
    if (ok && hash->common.json) {
        add_json(&out, hash, &hashed, path, total);
    } else if (ok && hash->digest) {
        tc_buffer_addf(&out, hash->several ? "%s  " : "%s", total);
        if (hash->several)
            tc_buffer_add_visible(&out, tc_text_of(path));
        tc_buffer_add_string(&out, "\n");
    } else if (ok) {
        add_lines(&out, &hashed);
    }
    ok = ok && tc_buffer_ok(&out, error);
    if (ok)
        report_out(&out);
    tc_buffer_release(&out);
    tc_buffer_release(&text);
    tc_digest_release(&hashed.digest);
    chosen_release(&hashed.chosen);
    return ok;
}

int cmd_hash(int argc, char **argv) {
    struct hash hash = {.common = COMMON_DEFAULTS, .choose = {.sort = SORT_NAME}};
    struct option_table table;
    const struct option rows[] = {
        FLAG_OPTION("digest", &hash.digest,
                    .help =
                        "only the SHA-256 of all the lines; of several files, with their names"),
    };
    options_init(&table);
    options_add(&table, "Hashing:", rows, OPTION_COUNT(rows));
    common_add_no_verify(&table, &hash.common);
    choose_add_options(&table, &hash.choose);
    common_add_options(&table, &hash.common);
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    tc_select_init(&hash.choose.select);
    hash.common.format.select = &hash.choose.select;
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && !hash.common.help && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no file given");
    hash.several = arguments.count > 1;
    if (ok && hash.several && !hash.digest && !hash.common.json) {
        ok = tc_fail(&error, TC_USAGE, "usage", "several files only with --digest or --json");
    }
    if (!ok)
        code = report_error(&error, hash.common.json);
    else if (hash.common.help)
        help_print(hash.common.help, "tconv hash [options] FILE...",
                   "Prints a line a tensor, sorted by name: SHA-256 of its values as C-order\n"
                   "little-endian bytes, dtype, shape, name. The same tensors in another format\n"
                   "give the same lines, and the same --digest (of those chosen, sorted by name,\n"
                   "whatever --sort says). All checksums in the file are verified on the way.",
                   &table);
    else
        code = common_each_file(&hash.common, &arguments, hash_file, &hash);
    arguments_release(&arguments);
    options_release(&table);
    choose_end(&hash.choose, &hash.common, code);
    return code;
}
