#include "core/depfile.h"

#include <stdlib.h>
#include <string.h>

/*
 * What GNU make 4.3 takes: a dollar is doubled; before what ends a word, a
 * comment or a target, and before what a shell would expand, stands a
 * backslash, and backslashes right before such a character are doubled; '%'
 * has one in targets alone. The others have no escape: with them a rule
 * means something else.
 */
bool tc_depfile_add_name(struct tc_buffer *text, const char *name, bool is_target,
                         struct tc_error *error) {
    const char *special = is_target ? " #:*?[%" : " #:*?[";
    size_t length = strlen(name);
    bool member = strchr(name, '(') && length && name[length - 1] == ')';
    if (strpbrk(name, "\n\r\t;=|") || member) {
        tc_fail(error, TC_UNSUPPORTED, "depfile", "a makefile cannot hold this file's name");
        tc_error_hint(error, "without ; = | tabs, line breaks and (…) at its end it could");
        return tc_error_in_file(error, name);
    }
    size_t backslashes = 0;
    if (name[0] == '~')
        tc_buffer_add_string(text, "./");
    for (const char *at = name; *at; at++) {
        if (*at == '$')
            tc_buffer_add_string(text, "$");
        for (size_t i = 0; strchr(special, *at) && i <= backslashes; i++)
            tc_buffer_add_string(text, "\\");
        tc_buffer_add(text, at, 1);
        backslashes = *at == '\\' ? backslashes + 1 : 0;
    }
    return true;
}

static bool add_input(struct tc_buffer *text, const char *name, struct tc_error *error) {
    tc_buffer_add_string(text, " \\\n ");
    return tc_depfile_add_name(text, name, false, error);
}

bool tc_depfile_print(struct tc_buffer *text, const struct tc_conversion *conversion,
                      const char *const *also, size_t also_count, struct tc_error *error) {
    const struct tc_publish *publish = &conversion->publish;
    for (const struct tc_outfile *out = publish->files; out; out = out->next) {
        char *path = tc_publish_path(publish, out->name);
        tc_buffer_add_string(text, out == publish->files ? "" : " \\\n ");
        bool ok = path ? tc_depfile_add_name(text, path, true, error) : tc_fail_memory(error);
        free(path);
        if (!ok)
            return false;
    }
    tc_buffer_add_string(text, ":");
    /* What is changed in place depends on itself no more than on its past. */
    for (size_t i = conversion->options->in_place ? conversion->own_count : 0;
         i < conversion->input_count; i++)
        if (strcmp(conversion->inputs[i]->path, "-") != 0 &&
            !add_input(text, conversion->inputs[i]->path, error))
            return false;
    for (size_t i = 0; i < also_count; i++)
        if (!add_input(text, also[i], error))
            return false;
    tc_buffer_add_string(text, "\n");
    return tc_buffer_ok(text, error);
}
