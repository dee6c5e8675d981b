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
#include "core/tensor/select.h"

struct list {
    struct common common;
    struct choose choose;
    bool several;
};

static void add_json(struct tc_buffer *out, const struct tc_reader *reader,
                     const struct chosen *chosen, const char *path) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "file", path);
    tc_json_open_array(&json, "tensors");
    for (size_t i = 0; i < chosen->count; i++)
        tc_json_add_text(&json, NULL, chosen->tensors[i]->name);
    tc_json_close(&json);
    report_skipped(&json, "skipped", reader, NULL);
    tc_json_end_line(&json);
}

static bool list_names(void *context, struct tc_reader *reader, const char *path,
                       struct tc_error *error) {
    const struct list *list = context;
    struct chosen chosen;
    struct tc_buffer text = {0};
    if (!choose_tensors(&list->choose, reader, NULL, 0, &chosen, error)) {
        chosen_release(&chosen);
        return false;
    }
    if (list->common.json)
        add_json(&text, reader, &chosen, path);
    for (size_t i = 0; i < chosen.count && !list->common.json; i++) {
        if (list->several) {
            tc_buffer_add_visible(&text, tc_text_of(path));
            tc_buffer_add_string(&text, "\t");
        }
        tc_buffer_add_visible(&text, chosen.tensors[i]->name);
        tc_buffer_add_string(&text, "\n");
    }
    bool ok = tc_buffer_ok(&text, error);
    report_out(&text);
    chosen_release(&chosen);
    return ok;
}

int cmd_list(int argc, char **argv) {
    struct list list = {.common = COMMON_DEFAULTS};
    struct option_table table;
    options_init(&table);
    choose_add_options(&table, &list.choose);
    common_add_options(&table, &list.common);
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    tc_select_init(&list.choose.select);
    list.common.format.select = &list.choose.select;
    if (!options_parse(&table, argc, argv, &arguments, &error)) {
        code = report_error(&error, list.common.json);
    } else if (list.common.help) {
        help_print(list.common.help, "tconv list [options] FILE...",
                   "Prints the tensors' names, one a line, in the file's order.\n"
                   "Of several files, each line has the file's name and a tab before it.",
                   &table);
    } else if (arguments.count == 0) {
        tc_fail(&error, TC_USAGE, "usage", "no file given");
        code = report_error(&error, list.common.json);
    } else {
        list.several = arguments.count > 1;
        code = common_each_file(&list.common, &arguments, list_names, &list);
    }
    arguments_release(&arguments);
    options_release(&table);
    choose_end(&list.choose, &list.common, code);
    return code;
}
