/* The files that a target is run on, and the words of its dictionary. */
#ifndef TCONV_CMD_TEST_FUZZ_INPUTS_H
#define TCONV_CMD_TEST_FUZZ_INPUTS_H

#include <stddef.h>

#include "core/base/text.h"

/* Longer files are left out: they take long, and show nothing that shorter ones don't. */
#define INPUT_BYTES 65536

struct inputs {
    struct tc_text *files;
    char **names;
    size_t count;
    struct tc_text *words;
    size_t word_count;
};

/* Adds a file, or all files of a folder and the folders in it, in the order of their names. */
void inputs_add(struct inputs *inputs, const char *path);
/* Adds the words of a dictionary as libFuzzer has it: lines of "word" or name="word", in which
 * \\, \" and \xNN stand for bytes; # begins a comment. */
void inputs_add_words(struct inputs *inputs, const char *path);
void inputs_release(struct inputs *inputs);

#endif
