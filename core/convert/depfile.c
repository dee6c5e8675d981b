#include "core/convert/depfile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/path.h"
#include "core/io/publish.h"
#include "core/remote/address.h"

/* Words that, first on a line, GNU make takes for a directive. */
static bool is_directive(const char *name) {
    static const char *const words[] = {"define",   "undefine", "endef",  "include",  "-include",
                                        "sinclude", "override", "export", "unexport", "private",
                                        "vpath",    "load",     "-load",  "ifdef",    "ifndef",
                                        "ifeq",     "ifneq",    "else",   "endif"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return false;
}

/* A special target of make, such as ".PHONY": a dot and capitals. */
static bool is_special(const char *name) {
    return name[0] == '.' && name[1] &&
           name[1 + strspn(name + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_")] == '\0';
}

/* Names that make has no escape for: the rule would mean something else. */
static bool cannot_be_held(const char *name, bool is_target) {
    size_t length = strlen(name);
    char last = length ? name[length - 1] : '\0';
    bool member = strchr(name, '(') && last == ')';
    return length == 0 || strpbrk(name, "\n\r\t\v\f;=|") || member || last == '\\' || last == '&' ||
           (is_target && is_special(name));
}

/*
 * The escapes of GNU make 4.3: a dollar is doubled; characters that end a word or
 * target or begin a comment, and wildcards, get a backslash, and backslashes right
 * before such a character are doubled; '%' gets a backslash only in targets.
 */
bool tc_depfile_add_name(struct tc_buffer *text, const char *name, bool is_target,
                         struct tc_error *error) {
    const char *special = is_target ? " #:*?[%" : " #:*?[";
    if (cannot_be_held(name, is_target)) {
        tc_fail(error, TC_UNSUPPORTED, "depfile", "a makefile cannot hold this file's name");
        tc_error_hint(error,
                      "without ; = | tabs, line breaks, and (…), \\ or & at its end it could");
        return tc_error_in_file(error, name);
    }
    size_t backslashes = 0;
    if (name[0] == '~' || is_directive(name))
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

/*
 * Make identifies a file by its path as written, and takes "./clean" for "clean". If
 * an untrusted index named a shard so, make would run that rule. A path without an
 * extension, which might be the name of a rule, or one that means something to make
 * (.PHONY, -lm), is therefore made absolute.
 */
char *tc_depfile_path(const char *path) {
    const char *name = tc_path_name(path);
    const char *dot = strrchr(name, '.');
    bool has_extension = dot && dot != name && dot[1];
    bool special = path[0] == '-' ||
                   (path[0] == '.' && strncmp(path, "./", 2) != 0 && strncmp(path, "../", 3) != 0);
    if (path[0] == '/' || (has_extension && !special))
        return strdup(path);
    size_t before = (size_t)(name - path);
    char *folder = before ? strndup(path, before) : strdup(".");
    char *real = folder ? realpath(folder, NULL) : NULL;
    char *whole = NULL;
    if (real && asprintf(&whole, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name) < 0)
        whole = NULL;
    free(folder);
    free(real);
    return whole;
}

/* Adds an input as a prerequisite or, with `alone`, as the target of an empty rule, so
 * that make rebuilds the output where the input is gone, instead of failing. */
static bool add_input(struct tc_buffer *text, const char *name, bool alone,
                      struct tc_error *error) {
    /* Make could not see whether it changed: it would never be done. */
    if (tc_address_is(name))
        return true;
    char *path = tc_depfile_path(name);
    if (!path) {
        tc_fail_errno(error, errno, "depfile", "cannot find the file's path");
        return tc_error_in_file(error, name);
    }
    tc_buffer_add_string(text, alone ? "\n" : " \\\n ");
    bool ok = tc_depfile_add_name(text, path, alone, error);
    tc_buffer_add_string(text, alone ? ":\n" : "");
    free(path);
    return ok;
}

static bool add_inputs(struct tc_buffer *text, const struct tc_conversion *conversion,
                       const char *const *also, size_t also_count, bool alone,
                       struct tc_error *error) {
    /* A file that is changed in place does not depend on itself. */
    for (size_t i = conversion->options->in_place ? conversion->own_count : 0;
         i < conversion->input_count; i++)
        if (strcmp(conversion->inputs[i]->path, "-") != 0 &&
            !add_input(text, conversion->inputs[i]->path, alone, error))
            return false;
    for (size_t i = 0; i < also_count; i++)
        if (!add_input(text, also[i], alone, error))
            return false;
    return true;
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
    if (!add_inputs(text, conversion, also, also_count, false, error))
        return false;
    tc_buffer_add_string(text, "\n");
    return add_inputs(text, conversion, also, also_count, true, error) && tc_buffer_ok(text, error);
}
