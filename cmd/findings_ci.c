/*
 * JUnit XML: a suite a file, a failed test a finding, one test that passes
 * where there is none. SARIF 2.1.0: a result a finding, a rule a code.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/findings.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/text.h"
#include "core/base/version.h"

/* XML 1.0 has no place for control characters, nor for U+FFFE and U+FFFF,
 * however they are written: what a terminal would not show is shown escaped. */
static void add_xml(struct tc_buffer *out, struct tc_text text) {
    struct tc_buffer visible = {0};
    tc_buffer_add_visible(&visible, text);
    for (size_t i = 0; i < visible.length; i++) {
        const char *at = visible.bytes + i;
        if (visible.length - i >= 3 && memcmp(at, "\xEF\xBF", 2) == 0 && (at[2] & 0xFE) == 0xBE) {
            tc_buffer_addf(out, "\\u{%x}", 0xFFC0u + (unsigned char)at[2] - 0x80u);
            i += 2;
            continue;
        }
        switch (*at) {
        case '&':
            tc_buffer_add_string(out, "&amp;");
            break;
        case '<':
            tc_buffer_add_string(out, "&lt;");
            break;
        case '>':
            tc_buffer_add_string(out, "&gt;");
            break;
        case '"':
            tc_buffer_add_string(out, "&quot;");
            break;
        default:
            tc_buffer_add(out, at, 1);
        }
    }
    out->failed |= visible.failed;
    tc_buffer_release(&visible);
}

static void add_case(struct tc_buffer *out, const struct findings_run *run,
                     const struct looked_at *file, const char *name, struct tc_text tensor) {
    tc_buffer_addf(out, "    <testcase classname=\"tconv %s ", run->command);
    add_xml(out, tc_text_of(file->path));
    tc_buffer_addf(out, "\" name=\"%s", name);
    if (tensor.bytes) {
        tc_buffer_add_string(out, ": ");
        add_xml(out, tensor);
    }
    tc_buffer_add_string(out, "\"");
}

static void add_problem(struct tc_buffer *out, const char *element, const char *code,
                        const char *where, const char *message) {
    tc_buffer_addf(out, ">\n      <%s type=\"%s\" message=\"", element, code);
    add_xml(out, tc_text_of(message));
    tc_buffer_add_string(out, "\">");
    add_xml(out, tc_text_of(where));
    tc_buffer_add_string(out, ": ");
    add_xml(out, tc_text_of(message));
    tc_buffer_addf(out, "</%s>\n    </testcase>\n", element);
}

static void add_suite(struct tc_buffer *out, const struct findings_run *run,
                      const struct looked_at *file) {
    size_t failures = file->error ? 0 : file->findings.failures;
    tc_buffer_add_string(out, "  <testsuite name=\"");
    add_xml(out, tc_text_of(file->path));
    tc_buffer_addf(out, "\" tests=\"%zu\" failures=\"%zu\" errors=\"%d\" skipped=\"0\">\n",
                   failures ? failures : 1, failures, file->error != NULL);
    if (file->error) {
        add_case(out, run, file, file->error->code,
                 file->error->has_tensor ? tc_text_of(file->error->tensor) : (struct tc_text){0});
        add_problem(out, "error", file->error->code, file->error->file, file->error->message);
    } else if (failures == 0) {
        add_case(out, run, file, run->command, (struct tc_text){0});
        tc_buffer_add_string(out, "/>\n");
    }
    for (size_t i = 0; failures && i < file->findings.count; i++) {
        const struct tc_finding *finding = &file->findings.list[i];
        if (finding->note)
            continue;
        add_case(out, run, file, finding->code, finding->tensor);
        add_problem(out, "failure", finding->code, finding->file ? finding->file : file->path,
                    finding->message);
    }
    tc_buffer_add_string(out, "  </testsuite>\n");
}

void findings_add_junit(struct tc_buffer *out, const struct findings_run *run) {
    size_t failures = 0;
    size_t tests = 0;
    size_t errors = 0;
    for (size_t i = 0; i < run->count; i++) {
        size_t here = run->files[i].error ? 0 : run->files[i].findings.failures;
        failures += here;
        tests += here ? here : 1;
        errors += run->files[i].error != NULL;
    }
    tc_buffer_add_string(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    tc_buffer_addf(out,
                   "<testsuites name=\"tconv %s\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\">\n",
                   run->command, tests, failures, errors);
    for (size_t i = 0; i < run->count; i++)
        add_suite(out, run, &run->files[i]);
    tc_buffer_add_string(out, "</testsuites>\n");
}

/* A path as a URI reference: relative as it is, absolute as a file's. */
static void add_uri(struct tc_buffer *out, const char *path) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789-._~/";
    tc_buffer_add_string(out, path[0] == '/' ? "\"file://" : "\"");
    for (; *path; path++)
        if (strchr(plain, *path))
            tc_buffer_add(out, path, 1);
        else
            tc_buffer_addf(out, "%%%02X", (unsigned char)*path);
    tc_buffer_add_string(out, "\"");
}

/* GitHub takes no result without a line, so each is on the first. */
static void add_result(struct tc_buffer *out, const char *code, size_t rule, const char *level,
                       const char *path, struct tc_text tensor, const char *message) {
    tc_buffer_addf(out, "{\"ruleId\":\"%s\",\"ruleIndex\":%zu,\"level\":\"%s\"", code, rule, level);
    struct tc_buffer text = {0};
    if (tensor.bytes) {
        tc_buffer_add_string(&text, "tensor \"");
        tc_buffer_add_visible(&text, tensor);
        tc_buffer_add_string(&text, "\": ");
    }
    tc_buffer_add_visible(&text, tc_text_of(message));
    tc_buffer_add_string(out, ",\"message\":{\"text\":");
    tc_buffer_add_json(out, (struct tc_text){text.bytes, text.length}, TC_ESCAPE_DISPLAY);
    tc_buffer_add_string(out, "},\"locations\":[{\"physicalLocation\":{\"artifactLocation\":{"
                              "\"uri\":");
    add_uri(out, path);
    tc_buffer_add_string(out, "},\"region\":{\"startLine\":1}}");
    if (tensor.bytes) {
        tc_buffer_add_string(out, ",\"logicalLocations\":[{\"name\":");
        tc_buffer_add_json(out, tensor, TC_ESCAPE_DISPLAY);
        tc_buffer_add_string(out, ",\"kind\":\"member\"}]");
    }
    tc_buffer_add_string(out, "}]}");
    out->failed |= text.failed;
    tc_buffer_release(&text);
}

/* Codes are few: a linear search a finding is quick. */
struct rules {
    const char *codes[256];
    size_t count;
};

static size_t rule_of(struct rules *rules, const char *code) {
    for (size_t i = 0; i < rules->count; i++)
        if (strcmp(rules->codes[i], code) == 0)
            return i;
    if (rules->count == sizeof rules->codes / sizeof *rules->codes)
        return rules->count - 1;
    rules->codes[rules->count] = code;
    return rules->count++;
}

static void add_results(struct tc_buffer *out, const struct findings_run *run,
                        struct rules *rules) {
    const char *comma = "";
    for (size_t i = 0; i < run->count; i++) {
        const struct looked_at *file = &run->files[i];
        const struct tc_error *error = file->error;
        if (error) {
            tc_buffer_add_string(out, comma);
            comma = ",\n";
            add_result(out, error->code, rule_of(rules, error->code), "error", file->path,
                       error->has_tensor ? tc_text_of(error->tensor) : (struct tc_text){0},
                       error->message);
            continue;
        }
        for (size_t f = 0; f < file->findings.count; f++) {
            const struct tc_finding *finding = &file->findings.list[f];
            tc_buffer_add_string(out, comma);
            comma = ",\n";
            add_result(out, finding->code, rule_of(rules, finding->code),
                       finding->note ? "note" : "error", finding->file ? finding->file : file->path,
                       finding->tensor, finding->message);
        }
    }
}

void findings_add_sarif(struct tc_buffer *out, const struct findings_run *run) {
    struct rules rules = {.count = 0};
    struct tc_buffer results = {0};
    add_results(&results, run, &rules);
    tc_buffer_add_string(
        out, "{\"$schema\":\"https://json.schemastore.org/sarif-2.1.0.json\",\"version\":\"2.1.0\","
             "\"runs\":[{\"tool\":{\"driver\":{\"name\":\"tconv\",\"version\":\"" TC_VERSION
             "\",\"rules\":[");
    for (size_t i = 0; i < rules.count; i++)
        tc_buffer_addf(out, "%s{\"id\":\"%s\",\"shortDescription\":{\"text\":\"tconv %s: %s\"}}",
                       i ? "," : "", rules.codes[i], run->command, rules.codes[i]);
    tc_buffer_add_string(out, "]}},\"columnKind\":\"unicodeCodePoints\",\"results\":[");
    tc_buffer_add(out, results.bytes, results.length);
    tc_buffer_add_string(out, "]}]}\n");
    out->failed |= results.failed;
    tc_buffer_release(&results);
}
