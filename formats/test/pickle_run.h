/*
 * One pickle in the machine by itself, for its tests: from memory and from a file, which must do
 * the same. What it makes is compared as text: 1, 1L (beyond 64 bits), 1f, 'text',
 * s'text that stood as bytes', b'bytes', [list], (tuple), {dict}, <set>, module.name,
 * module.name(call)|state.
 */
#ifndef TCONV_FORMATS_TEST_PICKLE_RUN_H
#define TCONV_FORMATS_TEST_PICKLE_RUN_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"

#define P(literal) (literal), sizeof(literal) - 1

extern struct tc_limits limits;

struct run {
    struct tc_arena arena;
    struct tc_error error;
    struct pickle pickle;
    struct pickle_node *root;
};

/* The bytes must stay until run_end; `file`: they are read from one. */
void run_begin(struct run *run, const void *bytes, size_t length, bool file);
void run_end(struct run *run);

/* Adds a node as text; from a depth of 4 on as "...". */
void show_node(struct tc_buffer *out, const struct pickle_node *node, int depth);
void expect_shown(const struct pickle_node *node, const char *expected);
/* Both ways make this, and take all of the bytes. */
void expect_mode(const void *bytes, size_t length, enum pickle_mode mode, bool script,
                 const char *expected);
void expect(const void *bytes, size_t length, const char *expected);
/* Refused with this class, with these words in the message; only a file's error has a place in
 * the file. */
void refused_mode(const void *bytes, size_t length, enum pickle_mode mode, enum tc_class class,
                  const char *words);
void refused(const void *bytes, size_t length, enum tc_class class, const char *words);

#endif
