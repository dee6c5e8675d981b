/*
 * JUnit XML has a suite for each file, and in it a failed test for each finding,
 * or one test that passes where there is none. SARIF 2.1.0 has a result for each
 * finding, and a rule for each code.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/findings.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/json_writer.h"
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
                     const struct checked_file *file, const char *name, struct tc_text tensor) {
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
                      const struct checked_file *file) {
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

/* A path as a URI reference: relative, or file:// where it is absolute. */
static void add_uri(struct tc_json_writer *json, const char *path) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789-._~/";
    struct tc_buffer uri = {0};
    tc_buffer_add_string(&uri, path[0] == '/' ? "file://" : "");
    for (; *path; path++)
        if (strchr(plain, *path))
            tc_buffer_add(&uri, path, 1);
        else
            tc_buffer_addf(&uri, "%%%02X", (unsigned char)*path);
    tc_json_add_text(json, "uri", (struct tc_text){uri.bytes, uri.length});
    json->out->failed |= uri.failed;
    tc_buffer_release(&uri);
}

static void add_message(struct tc_json_writer *json, struct tc_text tensor, const char *message) {
    struct tc_buffer text = {0};
    if (tensor.bytes) {
        tc_buffer_add_string(&text, "tensor \"");
        tc_buffer_add_visible(&text, tensor);
        tc_buffer_add_string(&text, "\": ");
    }
    tc_buffer_add_visible(&text, tc_text_of(message));
    tc_json_open_object(json, "message");
    tc_json_add_text(json, "text", (struct tc_text){text.bytes, text.length});
    tc_json_close(json);
    json->out->failed |= text.failed;
    tc_buffer_release(&text);
}

/* GitHub takes no result without a line, so each is on the first. */
static void add_location(struct tc_json_writer *json, const char *path, struct tc_text tensor) {
    tc_json_open_array(json, "locations");
    tc_json_open_object(json, NULL);
    tc_json_open_object(json, "physicalLocation");
    tc_json_open_object(json, "artifactLocation");
    add_uri(json, path);
    tc_json_close(json);
    tc_json_open_object(json, "region");
    tc_json_add_number(json, "startLine", 1);
    tc_json_close(json);
    tc_json_close(json);
    if (tensor.bytes) {
        tc_json_open_array(json, "logicalLocations");
        tc_json_open_object(json, NULL);
        tc_json_add_text(json, "name", tensor);
        tc_json_add_string(json, "kind", "member");
        tc_json_close(json);
        tc_json_close(json);
    }
    tc_json_close(json);
    tc_json_close(json);
}

static void add_result(struct tc_json_writer *json, const char *code, size_t rule,
                       const char *level, const char *path, struct tc_text tensor,
                       const char *message) {
    tc_json_open_object(json, NULL);
    tc_json_add_string(json, "ruleId", code);
    tc_json_add_number(json, "ruleIndex", rule);
    tc_json_add_string(json, "level", level);
    add_message(json, tensor, message);
    add_location(json, path, tensor);
    tc_json_close(json);
}

/* There are few codes, so a linear search for each finding is quick. */
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

/* Rules are numbered as their codes first occur. */
static void find_rules(const struct findings_run *run, struct rules *rules) {
    for (size_t i = 0; i < run->count; i++) {
        const struct checked_file *file = &run->files[i];
        if (file->error)
            rule_of(rules, file->error->code);
        for (size_t f = 0; !file->error && f < file->findings.count; f++)
            rule_of(rules, file->findings.list[f].code);
    }
}

static void add_rules(struct tc_json_writer *json, const struct findings_run *run,
                      const struct rules *rules) {
    tc_json_open_array(json, "rules");
    for (size_t i = 0; i < rules->count; i++) {
        struct tc_buffer text = {0};
        tc_buffer_addf(&text, "tconv %s: %s", run->command, rules->codes[i]);
        tc_json_open_object(json, NULL);
        tc_json_add_string(json, "id", rules->codes[i]);
        tc_json_open_object(json, "shortDescription");
        tc_json_add_text(json, "text", (struct tc_text){text.bytes, text.length});
        tc_json_close(json);
        tc_json_close(json);
        json->out->failed |= text.failed;
        tc_buffer_release(&text);
    }
    tc_json_close(json);
}

static void add_results(struct tc_json_writer *json, const struct findings_run *run,
                        struct rules *rules) {
    json->style = TC_JSON_LINES; /* a result a line */
    tc_json_open_array(json, "results");
    json->style = TC_JSON_COMPACT;
    for (size_t i = 0; i < run->count; i++) {
        const struct checked_file *file = &run->files[i];
        const struct tc_error *error = file->error;
        if (error) {
            add_result(json, error->code, rule_of(rules, error->code), "error", file->path,
                       error->has_tensor ? tc_text_of(error->tensor) : (struct tc_text){0},
                       error->message);
            continue;
        }
        for (size_t f = 0; f < file->findings.count; f++) {
            const struct tc_finding *finding = &file->findings.list[f];
            add_result(json, finding->code, rule_of(rules, finding->code),
                       finding->note ? "note" : "error", finding->file ? finding->file : file->path,
                       finding->tensor, finding->message);
        }
    }
    tc_json_close(json);
}

void findings_add_sarif(struct tc_buffer *out, const struct findings_run *run) {
    struct rules rules = {.count = 0};
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    find_rules(run, &rules);
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "$schema", "https://json.schemastore.org/sarif-2.1.0.json");
    tc_json_add_string(&json, "version", "2.1.0");
    tc_json_open_array(&json, "runs");
    tc_json_open_object(&json, NULL);
    tc_json_open_object(&json, "tool");
    tc_json_open_object(&json, "driver");
    tc_json_add_string(&json, "name", "tconv");
    tc_json_add_string(&json, "version", TC_VERSION);
    add_rules(&json, run, &rules);
    tc_json_close(&json);
    tc_json_close(&json);
    tc_json_add_string(&json, "columnKind", "unicodeCodePoints");
    add_results(&json, run, &rules);
    tc_json_end_line(&json);
}
