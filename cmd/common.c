#include "cmd/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/report.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/io/publish.h"
#include "core/tensor/select.h"
#include "formats/registry.h"

const struct tc_backend *common_backend(const char *name, const char *path,
                                        struct tc_error *error) {
    const struct tc_backend *backend = tc_registry_called(name, path);
    if (!backend) {
        tc_fail(error, TC_USAGE, "unknown-format", "no such format: %s", name);
        tc_registry_hint(name, error, "tconv formats lists them");
    }
    return backend;
}

const struct tc_backend *common_target(const char *name, const char *path, struct tc_error *error) {
    const struct tc_backend *target =
        name ? common_backend(name, path, error) : tc_registry_for_path(path);
    if (!target && !name) {
        tc_fail(error, TC_USAGE, "unknown-format", "the output's extension names no format: %s",
                path);
        const char *dot = strrchr(tc_path_name(path), '.');
        tc_registry_hint(dot ? dot + 1 : "", error,
                         "name one with -t FORMAT; tconv formats lists them");
    }
    if (target && !(target->caps & TC_CAN_WRITE)) {
        tc_fail(error, TC_UNSUPPORTED, "read-only", "%s is read, not written", target->name);
        return NULL;
    }
    return target;
}

struct tc_reader *common_open(const struct common *common, const char *path,
                              struct tc_error *error) {
    const struct tc_backend *backend = NULL;
    if (common->from && !(backend = common_backend(common->from, path, error)))
        return NULL;
    struct tc_reader *reader = tc_registry_open(path, backend, &common->format, error);
    if (reader)
        report_warnings(reader, common->quiet, common->verbose);
    return reader;
}

const struct tc_tensor *common_find(const struct tc_reader *reader, const char *name,
                                    struct tc_error *error) {
    const struct tc_tensor *tensor = tc_table_find(&reader->table, tc_text_of(name));
    if (!tensor) {
        tc_fail(error, TC_USAGE, "no-such-tensor", "there is no such tensor");
        tc_error_in_tensor(error, name, strlen(name));
        tc_table_hint(&reader->table, tc_text_of(name), error, "tconv list prints the names");
    }
    return tensor;
}

bool common_source_date(bool *given, int64_t *seconds, struct tc_error *error) {
    const char *text = getenv("SOURCE_DATE_EPOCH");
    uint64_t value;
    *given = text && text[0];
    if (!*given)
        return true;
    /* The last second of the year 9999, beyond which dates have another form. */
    if (text[strspn(text, "0123456789")] || !options_size(text, &value) ||
        value > UINT64_C(253402300799))
        return tc_fail(error, TC_USAGE, "source-date",
                       "SOURCE_DATE_EPOCH is not a number of seconds: %s", text);
    *seconds = (int64_t)value;
    return true;
}

bool common_include(void *select, const char *value, struct tc_error *error) {
    return tc_select_include(select, value, error);
}

bool common_exclude(void *select, const char *value, struct tc_error *error) {
    return tc_select_exclude(select, value, error);
}

bool common_max_memory(void *size, const char *value, struct tc_error *error) {
    (void)value, (void)error;
    tc_memory_limit(*(const uint64_t *)size);
    return true;
}

bool common_rows(void *rows, const char *value, struct tc_error *error) {
    if (tc_rows_parse(value, rows))
        return true;
    tc_fail(error, TC_USAGE, "option-value", "--rows: not a value it takes: %s", value);
    return tc_error_hint(error, "it takes A:B, for rows A to B-1; A: or :B; -N: for the last N");
}

bool common_check_terminal(const char *output, struct tc_error *error) {
    if (strcmp(output, "-") != 0 || !isatty(STDOUT_FILENO))
        return true;
    tc_fail(error, TC_USAGE, "terminal", "binary data does not go to a terminal");
    return tc_error_hint(error, "name a file, or redirect standard output");
}

int common_each_file(const struct common *common, const struct arguments *arguments,
                     common_action *action, void *context) {
    int worst = 0;
    for (size_t i = 0; i < arguments->count; i++) {
        struct tc_error error = {0};
        const char *path = arguments->names[i];
        tc_memory_begin_file();
        struct tc_reader *reader = common_open(common, path, &error);
        bool ok = reader && action(context, reader, path, &error);
        tc_reader_close(reader);
        if (!ok) {
            tc_error_in_file(&error, path);
            int code = report_error(&error, common->json);
            worst = code > worst ? code : worst;
        }
    }
    struct tc_error error = {0};
    if (!report_flush(&error)) {
        int code = report_error(&error, false);
        worst = code > worst ? code : worst;
    }
    return worst;
}
