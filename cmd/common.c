#include "cmd/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/report.h"
#include "core/base/arena.h"
#include "core/base/memory.h"
#include "core/base/path.h"
#include "formats/model_open.h"
#include "formats/registry.h"

static struct option format_option_row(struct tc_option_setting *setting) {
    const struct tc_format_option *option = setting->option;
    switch (option->type) {
    case TC_OPTION_FLAG:
        return (struct option)FLAG_OPTION(option->name, &setting->value.flag, .help = option->help);
    case TC_OPTION_CHOICE:
        return (struct option)CHOICE_OPTION(option->name, &setting->value.choice, option->choices,
                                            .argument = option->argument, .help = option->help);
    case TC_OPTION_DTYPE:
        break;
    }
    return (struct option)DTYPE_OPTION(option->name, &setting->value.dtype,
                                       .argument = option->argument, .help = option->help);
}

void common_add_format_options(struct option_table *table, enum tc_option_use use,
                               struct tc_option_settings *settings) {
    struct tc_error error = {0};
    size_t count = 0;
    while (tc_registry_option(use, count))
        count++;
    struct tc_option_setting *list = tc_arena_array(&table->arena, count, sizeof *list, &error);
    if (!list) {
        table->failed = true;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const struct tc_format_option *option = tc_registry_option(use, i);
        list[i] = (struct tc_option_setting){option, option->initial};
        const struct option row = format_option_row(&list[i]);
        options_add(table, NULL, &row, 1);
    }
    *settings = (struct tc_option_settings){list, count};
}

const char *common_keep_text(struct option_table *table, struct tc_buffer *text) {
    struct tc_error error = {0};
    const char *kept = tc_buffer_ok(text, &error)
                           ? tc_arena_copy(&table->arena, text->bytes, text->length, &error)
                           : NULL;
    tc_buffer_release(text);
    table->failed |= !kept;
    return kept;
}

/* What each format that compresses makes of a level. */
struct option common_compress_option(struct option_table *table, int *level) {
    struct tc_buffer text = {0};
    int most = 0;
    for (size_t i = 0; tc_registry[i]; i++) {
        const struct tc_backend *format = tc_registry[i];
        most = format->max_level > most ? format->max_level : most;
        if (format->compression)
            tc_buffer_addf(&text, "%s%s: %s, 1 to %d (%d)", text.length ? "; " : "", format->name,
                           format->compression, format->max_level, format->default_level);
    }
    return (struct option)LEVEL_OPTION("compress", level, .argument = "[=LEVEL]", .most = most,
                                       .help = common_keep_text(table, &text));
}

static void add_limits(struct option_table *table, struct tc_limits *limits) {
    const struct option rows[] = {
        SIZE_OPTION("max-header", &limits->header, .argument = "SIZE", .not_in_receipt = true,
                    .help = "largest header to read (default: the format's own)"),
        SIZE_OPTION("max-tensors", &limits->tensors, .argument = "N", .not_in_receipt = true,
                    .help = "most tensors in a file (default 4000000)"),
        MEMORY_OPTION(
            "max-memory", &limits->memory, .argument = "SIZE", .not_in_receipt = true,
            .help = "most memory for tables (default: 128M, or 64 times the header or pickle)"),
        SIZE_OPTION("max-size", &limits->made, .argument = "SIZE", .not_in_receipt = true,
                    .help =
                        "most bytes beyond the file's own (default: 256M and 100 times the file)"),
        SIZE_OPTION("max-pickle", &limits->pickle, .argument = "SIZE", .not_in_receipt = true,
                    .help = "longest pickle to read, arrays in it not counted (default 256M)"),
    };
    options_add(table, NULL, rows, OPTION_COUNT(rows));
}

void common_add_sandbox(struct option_table *table, struct common *common) {
    const struct option row =
        CHOICE_OPTION("sandbox", &common->sandbox, sandbox_modes, .argument = "auto|require|off",
                      .not_in_receipt = true,
                      .help = "confine the command as far as the kernel can (auto), or fail");
    options_add(table, NULL, &row, 1);
}

void common_add_help(struct option_table *table, struct common *common) {
    const struct option row = HELP_OPTION("help", &common->help, .letter = 'h', .help = "this text",
                                          .not_in_receipt = true);
    options_add(table, NULL, &row, 1);
}

void common_add_plain_options(struct option_table *table, struct common *common,
                              const char *json_help) {
    const struct option row = FLAG_OPTION("json", &common->json, .help = json_help);
    options_add(table, NULL, &row, 1);
    common_add_help(table, common);
}

void common_add_no_verify(struct option_table *table, struct common *common) {
    const struct option row = FLAG_OPTION("no-verify", &common->format.unverified,
                                          .help = "do not check the file's checksums, and say so");
    options_add(table, NULL, &row, 1);
}

void common_add_unverified(struct tc_json_writer *json, const struct common *common) {
    if (common->format.unverified)
        tc_json_add_boolean(json, "verified", false);
}

/* Said with --quiet, too, as of all that is skipped. */
static void report_unverified(const struct common *common, const char *path) {
    struct tc_buffer line = {0};
    if (!common->format.unverified)
        return;
    tc_buffer_add_string(&line, "tconv: note: ");
    tc_buffer_add_visible(&line, tc_text_of(path));
    tc_buffer_add_string(&line, ": its checksums are not checked (--no-verify)\n");
    report_err(&line);
}

void common_add_options(struct option_table *table, struct common *common) {
    const struct option reading[] = {
        TEXT_OPTION("from", &common->from, .letter = 'f', .argument = "FORMAT",
                    .help = "take the input for this format, whatever it looks like"),
        TEXT_OPTION("variant", &common->variant, .argument = "NAME",
                    .help = "of a model folder this variant, such as fp16"),
    };
    const struct option threads = SIZE_OPTION(
        "threads", &common->threads, .letter = 'j', .argument = "N", .not_in_receipt = true,
        .help = "threads at once, and requests (default: one a core, at most 8)");
    const struct option requests =
        SIZE_OPTION("requests", &common->requests, .argument = "N", .not_in_receipt = true,
                    .help = "requests at once, of files that an address names (default 4)");
    const struct option output[] = {
        FLAG_OPTION("json", &common->json, .help = "one JSON object a file, on stdout",
                    .not_in_receipt = true),
        FLAG_OPTION("quiet", &common->quiet, .letter = 'q', .not_in_receipt = true,
                    .help = "no notes, no progress, no warnings but of what is skipped"),
        FLAG_OPTION("verbose", &common->verbose, .letter = 'v', .help = "say more",
                    .not_in_receipt = true),
    };
    options_add(table, "Reading:", reading, OPTION_COUNT(reading));
    if (!table->several_processes)
        options_add(table, NULL, &threads, 1);
    table->threads = &common->threads;
    if (!table->local) {
        options_add(table, NULL, &requests, 1);
        table->remote = &common->format.remote;
        table->requests = &common->requests;
    }
    add_limits(table, &common->format.limits);
    common_add_format_options(table, TC_FOR_READING, &common->format.settings);
    common_add_sandbox(table, common);
    options_add(table, "Output:", output, OPTION_COUNT(output));
    common_add_help(table, common);
}

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

struct sandbox common_sandbox(const struct common *common) {
    return (struct sandbox){.mode = common->sandbox,
                            .verbose = common->verbose,
                            .memory = common->format.limits.memory};
}

bool common_confine(const struct common *common, const char *const *inputs, size_t count,
                    struct tc_error *error) {
    struct sandbox sandbox = common_sandbox(common);
    return sandbox_enter(&sandbox, inputs, count, error);
}

/* The format that -f names; false with the error filled where there is no such. */
static bool find_from(const struct common *common, const char *path,
                      const struct tc_backend **backend, struct tc_error *error) {
    *backend = common->from ? common_backend(common->from, path, error) : NULL;
    return *backend || !common->from;
}

/* Says which of a folder's models is read, where there are several. */
static void tell_choice(const struct common *common, const char *path,
                        const struct model_folder *folder) {
    struct tc_buffer told = {0};
    struct tc_buffer line = {0};
    model_folder_tell(folder, &told);
    if (told.length && !common->quiet) {
        tc_buffer_add_string(&line, "tconv: note: ");
        tc_buffer_add_visible(&line, tc_text_of(path));
        tc_buffer_add_string(&line, ": ");
        tc_buffer_add_visible(&line, (struct tc_text){told.bytes, told.length});
        tc_buffer_add_string(&line, "\n");
        report_err(&line);
    }
    tc_buffer_release(&told);
}

bool common_find_model(const struct common *common, const char *path, struct tc_listing *listing,
                       struct model_folder *folder, struct tc_error *error) {
    const struct tc_backend *backend;
    *listing = (struct tc_listing){0};
    *folder = (struct model_folder){0};
    if (!find_from(common, path, &backend, error) ||
        !model_find(path, backend, common->variant, &common->format, listing, folder, error))
        return false;
    tell_choice(common, path, folder);
    return true;
}

struct tc_reader *common_open_model(const struct common *common, const char *path,
                                    const struct model_folder *folder, struct tc_error *error) {
    const struct tc_backend *backend;
    if (!find_from(common, path, &backend, error))
        return NULL;
    return model_open(path, &folder->models[0], backend, &common->format, error);
}

static struct tc_reader *open_folder(const struct common *common, const char *path,
                                     struct tc_error *error) {
    struct tc_listing listing;
    struct model_folder folder;
    struct tc_reader *reader = common_find_model(common, path, &listing, &folder, error)
                                   ? common_open_model(common, path, &folder, error)
                                   : NULL;
    model_folder_release(&folder);
    tc_listing_release(&listing);
    return reader;
}

struct tc_reader *common_open_silently(const struct common *common, const char *path,
                                       struct tc_error *error) {
    const struct tc_backend *backend;
    if (model_is_folder(path, &common->format))
        return open_folder(common, path, error);
    return find_from(common, path, &backend, error)
               ? tc_registry_open(path, backend, &common->format, error)
               : NULL;
}

struct tc_reader *common_open(const struct common *common, const char *path,
                              struct tc_error *error) {
    struct tc_reader *reader = common_open_silently(common, path, error);
    if (reader) {
        report_warnings(reader, common->quiet, common->verbose);
        report_unverified(common, path);
    } else {
        sandbox_hint(error);
    }
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

bool common_check_terminal(const char *output, struct tc_error *error) {
    if (strcmp(output, "-") != 0 || !isatty(STDOUT_FILENO))
        return true;
    tc_fail(error, TC_USAGE, "terminal", "binary data does not go to a terminal");
    return tc_error_hint(error, "name a file, or redirect standard output");
}

int common_each_file(const struct common *common, const struct arguments *arguments,
                     common_action *action, void *context) {
    struct tc_error confined = {0};
    int worst = 0;
    if (!common_confine(common, arguments->names, arguments->count, &confined))
        return report_error(&confined, common->json);
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
