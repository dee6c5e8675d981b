/* tconv scan FILE...: what pickles would import and call. */
#include <inttypes.h>
#include <stdlib.h>

#include "cmd/common.h"
#include "formats/scan.h"

static const char *verdict(const struct scan *scan) {
    return scan->unsafe ? "unsafe" : scan->broken->class != TC_OK ? "broken" : "clean";
}

static const char *severity(const struct scan_finding *finding) {
    return finding->allowed ? "allowed" : finding->dangerous ? "dangerous" : "unknown";
}

static void add_findings_json(struct tc_buffer *out, const struct scan *scan, bool calls) {
    bool first = true;
    for (size_t i = 0; i < scan->count; i++) {
        const struct scan_finding *finding = &scan->findings[i];
        if (finding->call != calls)
            continue;
        tc_buffer_add_string(out, first ? "{\"name\":" : ",{\"name\":");
        first = false;
        tc_buffer_add_json(out, finding->name, TC_ESCAPE_DISPLAY);
        tc_buffer_addf(out, ",\"offset\":%" PRIu64, finding->offset);
        if (finding->relative)
            tc_buffer_add_string(out, ",\"relative\":true");
        if (finding->member.bytes) {
            tc_buffer_add_string(out, ",\"member\":");
            tc_buffer_add_json(out, finding->member, TC_ESCAPE_DISPLAY);
        }
        tc_buffer_addf(out, ",\"allowed\":%s,\"severity\":\"%s\"}",
                       finding->allowed ? "true" : "false", severity(finding));
    }
}

static void scan_json(struct tc_buffer *out, const struct scan *scan, const char *path) {
    tc_buffer_add_string(out, "{\"file\":");
    tc_buffer_add_json(out, tc_text_of(path), TC_ESCAPE_DISPLAY);
    tc_buffer_addf(out, ",\"verdict\":\"%s\",\"pickles\":%zu,\"globals\":[", verdict(scan),
                   scan->pickles);
    add_findings_json(out, scan, false);
    tc_buffer_add_string(out, "],\"calls\":[");
    add_findings_json(out, scan, true);
    tc_buffer_add_string(out, "]");
    if (scan->left_out)
        tc_buffer_addf(out, ",\"left_out\":%zu", scan->left_out);
    if (scan->broken->class != TC_OK) {
        tc_buffer_add_string(out, ",\"broken\":");
        tc_buffer_add_json(out, tc_text_of(scan->broken->message), TC_ESCAPE_DISPLAY);
    }
    tc_buffer_add_string(out, "}\n");
}

/* One line for each thing that is not allowed; with -v for all. */
static void scan_text(struct tc_buffer *out, const struct scan *scan, const char *path,
                      bool verbose) {
    size_t unsafe = 0;
    for (size_t i = 0; i < scan->count; i++)
        unsafe += !scan->findings[i].allowed;
    tc_buffer_add_visible(out, tc_text_of(path));
    tc_buffer_addf(out, ": %s, %zu pickle%s", verdict(scan), scan->pickles,
                   scan->pickles == 1 ? "" : "s");
    if (unsafe)
        tc_buffer_addf(out, ", %zu finding%s", unsafe, unsafe == 1 ? "" : "s");
    tc_buffer_add_string(out, "\n");
    for (size_t i = 0; i < scan->count; i++) {
        const struct scan_finding *finding = &scan->findings[i];
        if (finding->allowed && !verbose)
            continue;
        tc_buffer_addf(out, "  %-9s  %-7s  ", severity(finding),
                       finding->call ? "calls" : "imports");
        tc_buffer_add_visible(out, finding->name);
        tc_buffer_addf(out, "  at %s0x%" PRIx64, finding->relative ? "+" : "", finding->offset);
        if (finding->member.bytes) {
            tc_buffer_add_string(out, "  in ");
            tc_buffer_add_visible(out, finding->member);
        }
        tc_buffer_add_string(out, "\n");
    }
    if (scan->left_out)
        tc_buffer_addf(out, "  %zu more are left out\n", scan->left_out);
    if (scan->broken->class != TC_OK) {
        tc_buffer_add_string(out, "  broken: ");
        tc_buffer_add_visible(out, tc_text_of(scan->broken->message));
        if (scan->broken->has_offset)
            tc_buffer_addf(out, "  at 0x%" PRIx64, scan->broken->offset);
        tc_buffer_add_string(out, "\n");
    }
}

static int scan_one(const struct common *common, const char *path) {
    struct scan scan;
    struct tc_error *error = calloc(1, sizeof *error);
    struct tc_buffer out = {0};
    int code = TC_IO;
    scan_init(&scan, &common->format);
    if (error && scan_file(&scan, path, error)) {
        if (common->json)
            scan_json(&out, &scan, path);
        else
            scan_text(&out, &scan, path, common->verbose);
        code = scan.unsafe ? TC_DIFFERENT : scan.broken->class != TC_OK ? TC_INVALID : TC_OK;
        if (!tc_buffer_ok(&out, error))
            code = report_error(error, common->json);
        report_out(&out);
    } else if (error) {
        code = report_error(error, common->json);
    }
    scan_release(&scan);
    free(error);
    return code;
}

/* Something unsafe in one file beats whatever is wrong with others. */
static int scan_all(const struct common *common, const struct arguments *arguments) {
    int worst = 0;
    bool unsafe = false;
    for (size_t i = 0; i < arguments->count; i++) {
        int code = scan_one(common, arguments->names[i]);
        unsafe |= code == TC_DIFFERENT;
        worst = code > worst ? code : worst;
    }
    struct tc_error error = {0};
    if (!report_flush(&error))
        return report_error(&error, false);
    return unsafe ? TC_DIFFERENT : worst;
}

int cmd_scan(int argc, char **argv) {
    struct common common = COMMON_DEFAULTS;
    const struct option options[] = {COMMON_OPTIONS(&common), {.type = OPTION_END}};
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    bool ok = options_parse(options, argc, argv, &arguments, &error);
    if (ok && !common.help && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no file given");
    if (!ok)
        code = report_error(&error, common.json);
    else if (common.help)
        options_print_help(
            "tconv scan [options] FILE...",
            "Lists what the pickles of a file would import and call, and runs nothing: in .pt\n"
            "and .pkl files, in arrays of objects, in members of any zip. Exits with 1 where\n"
            "something is not on the list of what tensor files need, with 3 where a file is\n"
            "broken in a way that some loader might not mind.",
            options);
    else
        code = scan_all(&common, &arguments);
    free(arguments.names);
    return code;
}
