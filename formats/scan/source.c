/*
 * Scans programs as text: the source of TorchScript and Python, Keras's configs. They
 * are read as words and not parsed, so that a word in a comment counts too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "formats/scan/scan.h"
#include "formats/scan/walk.h"

#define MAX_SOURCE ((uint64_t)64 << 20)
#define WINDOW ((size_t)1 << 20)
#define MAX_STRING 256u

static bool in_folder(struct tc_text name, const char *folder) {
    return name.bytes && memmem(name.bytes, name.length, folder, strlen(folder)) != NULL;
}

static bool is_word(unsigned char c) {
    unsigned char lower = c | 0x20;
    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == ':' || c >= 0x80;
}

/* TorchScript's operators that read or write files, or call other machines. Its source
 * has them as torch.save, its bytecode as aten::save. */
static const char *const system_operators[] = {
    "save", "load", "from_file", "rpc_async", "rpc_sync", "rpc_remote", "load_library",
};
/* Words in the name of another library's operator, of which only the name is known. */
static const char *const system_words[] = {
    "read", "write", "file", "open", "load", "save", "exec", "system", "download", "rpc", "http",
};

/* What follows a prefix; bytes are NULL where the word does not start with it. */
static struct tc_text behind(struct tc_text word, const char *prefix) {
    size_t length = strlen(prefix);
    return tc_text_starts(word, tc_text_of(prefix))
               ? (struct tc_text){word.bytes + length, word.length - length}
               : (struct tc_text){NULL, 0};
}

static bool reaches_system(struct tc_text word) {
    static const char *const own[] = {"torch.", "aten::", "ops.aten.", "prim::", "ops.prim."};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct tc_text name = behind(word, own[i]);
        for (size_t o = 0; name.bytes && o < sizeof system_operators / sizeof *system_operators;
             o++)
            if (tc_text_equal(name, tc_text_of(system_operators[o])))
                return true;
        if (name.bytes && i > 0)
            return false;
    }
    struct tc_text foreign = behind(word, "ops.");
    for (size_t i = 0; foreign.bytes && i < sizeof system_words / sizeof *system_words; i++)
        if (memmem(foreign.bytes, foreign.length, system_words[i], strlen(system_words[i])))
            return true;
    return in_folder(word, "distributed.rpc");
}

/* Reports functions in a text, and operators that reach the system. */
static bool read_words(const struct scan_view *view, struct tc_text text, struct tc_error *error) {
    bool has_function = false;
    for (size_t at = 0; at < text.length;) {
        size_t start = at;
        while (at < text.length && is_word((unsigned char)text.bytes[at]))
            at++;
        struct tc_text word = {text.bytes + start, at - start};
        at += at == start;
        if (!has_function && tc_text_equal(word, TC_TEXT("def"))) {
            has_function = true;
            if (!scan_find(view, SCAN_SCRIPT, "torchscript", view->region->name, start,
                           "functions of TorchScript", error))
                return false;
        }
        if (reaches_system(word) &&
            !scan_find(view, SCAN_DANGEROUS, "torchscript-system", word, start,
                       "an operator that reaches files or other machines", error))
            return false;
    }
    return true;
}

/* Searches bytecode, which is a pickle, for names of operators. */
static bool search_bytecode(const struct scan_view *view, struct tc_text bytes,
                            struct tc_error *error) {
    bool ok = true;
    for (size_t i = 0; i < sizeof system_operators / sizeof *system_operators && ok; i++) {
        char name[64];
        int length = snprintf(name, sizeof name, "aten::%s", system_operators[i]);
        const char *found = memmem(bytes.bytes, bytes.length, name, (size_t)length);
        if (found)
            ok = scan_find(view, SCAN_DANGEROUS, "torchscript-system", tc_text_of(name),
                           (uint64_t)(found - bytes.bytes),
                           "an operator that reaches files or other machines", error);
    }
    return ok;
}

/* Keras: strings of a JSON text, each with the key before it */

/* Reads a string from its opening quote on; *at moves behind it. Escapes are replaced
 * by what they stand for; a long string is cut. */
static void take_string(struct tc_text text, size_t *at, char string[MAX_STRING]) {
    size_t length = 0;
    for ((*at)++; *at < text.length && text.bytes[*at] != '"'; (*at)++) {
        char c = text.bytes[*at];
        if (c == '\\' && *at + 1 < text.length) {
            c = text.bytes[++*at];
            if (c == 'u' && *at + 4 < text.length) {
                char digits[5] = {0};
                memcpy(digits, text.bytes + *at + 1, 4);
                unsigned long code = strtoul(digits, NULL, 16);
                c = code < 0x80 ? (char)code : '?';
                *at += 4;
            }
        }
        if (length + 1 < MAX_STRING)
            string[length++] = c;
    }
    string[length] = '\0';
    (*at)++;
}

static bool is_keras(const char *module) {
    static const char *const known[] = {"keras", "keras_core", "tf_keras", "tensorflow.keras",
                                        "builtins"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i]);
        if (strncmp(module, known[i], length) == 0 && (!module[length] || module[length] == '.'))
            return true;
    }
    return false;
}

static bool read_pair(const struct scan_view *view, const char *key, const char *value, uint64_t at,
                      struct tc_error *error) {
    if (strcmp(key, "module") == 0)
        return is_keras(value) ||
               scan_find(view, SCAN_DANGEROUS, "keras-module", tc_text_of(value), at,
                         "a module outside of Keras, which loading the model would import", error);
    if (strcmp(key, "registered_name") == 0)
        return !strchr(value, '>') ||
               scan_find(view, SCAN_PROGRAM, "keras-custom", tc_text_of(value), at,
                         "a class of one's own", error);
    if (strcmp(key, "class_name") != 0)
        return true;
    if (strcmp(value, "Lambda") == 0 || strcmp(value, "__lambda__") == 0)
        return scan_find(view, SCAN_DANGEROUS, "keras-lambda", tc_text_of(value), at,
                         "a function of Keras that is Python's bytecode", error);
    if (strcmp(value, "TorchModuleWrapper") == 0 || strcmp(value, "TFSMLayer") == 0)
        return scan_find(view, SCAN_DANGEROUS, "keras-loader", tc_text_of(value), at,
                         "a layer of Keras that loads a pickle or another model", error);
    /* Whatever module it is of, which may be said before or behind. */
    if (strcmp(value, "function") == 0)
        return scan_find(view, SCAN_DANGEROUS, "keras-function", tc_text_of(value), at,
                         "a function by its name, of Keras or of Python", error);
    if (strcmp(value, "TFOpLambda") == 0 || strcmp(value, "SlicingOpLambda") == 0)
        return scan_find(view, SCAN_PROGRAM, "keras-custom", tc_text_of(value), at,
                         "an operator of TensorFlow by its name", error);
    return true;
}

static bool read_config(const struct scan_view *view, struct tc_text text, struct tc_error *error) {
    char key[MAX_STRING] = {0};
    char string[MAX_STRING] = {0};
    bool value = false; /* a colon came before */
    if (!memmem(text.bytes, text.length, "class", 5) && !memmem(text.bytes, text.length, "\\u", 2))
        return true;
    for (size_t at = 0; at < text.length;) {
        char c = text.bytes[at];
        if (c != '"') {
            value = c == ':' || (value && (c == ' ' || c == '\t' || c == '\n' || c == '\r'));
            at++;
            continue;
        }
        size_t start = at;
        take_string(text, &at, string);
        if (!value)
            memcpy(key, string, sizeof key);
        else if (!read_pair(view, key, string, start, error))
            return false;
        value = false;
    }
    return true;
}

/* There is no reader of HDF5, but Keras's config is plain text in it. */
static bool search_hdf5(const struct scan_view *view, struct tc_error *error) {
    static const char *const marks[] = {"\"Lambda\"", "\"__lambda__\""};
    struct tc_input *input = view->input;
    char *window = malloc(WINDOW);
    bool ok = window ? true : tc_fail_memory(error);
    for (uint64_t at = 0; ok && at < input->size;) {
        uint64_t left = input->size - at;
        size_t size = left < WINDOW ? left : WINDOW;
        ok = tc_input_read(input, at, window, size, error);
        for (size_t i = 0; i < 2 && ok; i++) {
            const char *found = memmem(window, size, marks[i], strlen(marks[i]));
            if (found)
                ok = scan_find(view, SCAN_DANGEROUS, "keras-lambda", TC_TEXT("Lambda"),
                               at + (uint64_t)(found - window),
                               "a function of Keras that is Python's bytecode", error);
        }
        at += size < left ? size - 16 : size;
    }
    free(window);
    return ok;
}

enum kind { NO_SOURCE, SCRIPT, BYTECODE, PYTHON, PROGRAM, CONFIG };

static enum kind kind_of(const struct scan_region *region) {
    struct tc_text name = region->name;
    if (!region->archived || !name.bytes)
        return NO_SOURCE;
    if (scan_name_ends(name, "bytecode.pkl"))
        return BYTECODE;
    if (scan_name_ends(name, ".py"))
        return region->script ? SCRIPT : PYTHON;
    if (scan_name_ends(name, ".pyc"))
        return PYTHON;
    if (scan_name_ends(name, "serialized_exported_program.json") ||
        (in_folder(name, "/models/") && scan_name_ends(name, ".json")))
        return PROGRAM;
    return scan_name_ends(name, ".json") ? CONFIG : NO_SOURCE;
}

/* Reports what the kind of file says by itself. */
static bool report_kind(const struct scan_view *view, enum kind kind, struct tc_error *error) {
    struct tc_text name = view->region->name;
    switch (kind) {
    case BYTECODE:
        return scan_find(view, SCAN_SCRIPT, "torchscript", name, 0, "bytecode of TorchScript",
                         error);
    case PYTHON:
        return scan_find(view, view->region->package ? SCAN_DANGEROUS : SCAN_PROGRAM,
                         "python-source", name, 0, "a module of Python", error);
    case PROGRAM:
        return scan_find(view, SCAN_PROGRAM, "torch-export", name, 0, "a graph of torch.export",
                         error);
    default:
        return true;
    }
}

bool scan_source_text(const struct scan_view *view, bool *accounted, struct tc_error *error) {
    enum kind kind = kind_of(view->region);
    if (view->shown >= 8 && memcmp(view->head, "\x89HDF\r\n\x1a\n", 8) == 0)
        return search_hdf5(view, error);
    if (kind == NO_SOURCE)
        return true;
    if (!report_kind(view, kind, error))
        return false;
    if (view->input->size > MAX_SOURCE) {
        scan_note_limit(view->scan, "bytes of source text", NULL);
        return true;
    }
    char *bytes = tc_input_load(view->input, 0, view->input->size, error);
    if (!bytes)
        return false;
    struct tc_text text = {bytes, view->input->size};
    bool ok = kind == CONFIG     ? read_config(view, text, error)
              : kind == BYTECODE ? search_bytecode(view, text, error)
              : kind == SCRIPT   ? read_words(view, text, error)
                                 : true;
    *accounted |= kind == PYTHON;
    free(bytes);
    return ok;
}
