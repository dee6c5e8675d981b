#include <stdlib.h>

#include "cmd/common.h"
#include "core/digest.h"

struct hash {
    struct common common;
    bool digest;
    bool several;
};

static void add_json(struct tc_buffer *out, const struct tc_digest *digest,
                     const struct tc_reader *reader, const char *path, const char *total) {
    tc_buffer_add_string(out, "{\"file\":");
    tc_buffer_add_json(out, tc_text_of(path), TC_ESCAPE_DISPLAY);
    tc_buffer_addf(out, ",\"digest\":\"%s\",\"tensors\":[", total);
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[digest->order[i]];
        char hex[2 * TC_SHA256_BYTES + 1];
        tc_hex(digest->sums[digest->order[i]], TC_SHA256_BYTES, hex);
        tc_buffer_add_string(out, i ? ",{\"name\":" : "{\"name\":");
        tc_buffer_add_json(out, tensor->name, TC_ESCAPE_DISPLAY);
        tc_buffer_addf(out, ",\"dtype\":\"%s\",\"shape\":", tc_dtype_name(tensor->dtype));
        tc_shape_print(out, tensor->shape, tensor->rank);
        tc_buffer_addf(out, ",\"sha256\":\"%s\"}", hex);
    }
    tc_buffer_add_string(out, "]");
    report_skipped(out, reader, NULL);
    tc_buffer_add_string(out, "}\n");
}

static bool hash_file(void *context, struct tc_reader *reader, const char *path,
                      struct tc_error *error) {
    const struct hash *hash = context;
    struct tc_digest digest = {0};
    struct tc_buffer text = {0};
    struct tc_buffer out = {0};
    char total[2 * TC_SHA256_BYTES + 1];
    bool ok = tc_digest_make(&digest, reader, error) &&
              tc_digest_print(&digest, reader, &text, error) &&
              tc_digest_total(&text, total, error);
    if (ok && hash->common.json) {
        add_json(&out, &digest, reader, path, total);
    } else if (ok && hash->digest) {
        tc_buffer_addf(&out, hash->several ? "%s  " : "%s", total);
        if (hash->several)
            tc_buffer_add_visible(&out, tc_text_of(path));
        tc_buffer_add_string(&out, "\n");
    } else if (ok) {
        tc_buffer_add(&out, text.bytes, text.length);
    }
    ok = ok && tc_buffer_ok(&out, error);
    if (ok)
        report_out(&out);
    tc_buffer_release(&out);
    tc_buffer_release(&text);
    tc_digest_release(&digest);
    return ok;
}

int cmd_hash(int argc, char **argv) {
    struct hash hash = {.common = COMMON_DEFAULTS};
    const struct option options[] = {
        {.type = OPTION_HEADING, .help = "Hashing:"},
        {.name = "digest",
         .type = OPTION_FLAG,
         .value = &hash.digest,
         .help = "only the SHA-256 of all the lines; of several files, with their names"},
        COMMON_OPTIONS(&hash.common),
        {.type = OPTION_END},
    };
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    bool ok = options_parse(options, argc, argv, &arguments, &error);
    if (ok && !hash.common.help && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no file given");
    hash.several = arguments.count > 1;
    if (ok && hash.several && !hash.digest && !hash.common.json) {
        ok = tc_fail(&error, TC_USAGE, "usage", "several files only with --digest or --json");
    }
    if (!ok)
        code = report_error(&error, hash.common.json);
    else if (hash.common.help)
        options_print_help(
            "tconv hash [options] FILE...",
            "Prints a line a tensor, sorted by name: SHA-256 of its values as C-order\n"
            "little-endian bytes, dtype, shape, name. The same tensors in another format\n"
            "give the same lines. All checksums in the file are verified on the way.",
            options);
    else
        code = common_each_file(&hash.common, &arguments, hash_file, &hash);
    free(arguments.names);
    return code;
}
