/*
 * What the opcodes of run.c work on: the bytes of the pickle, the stack with
 * its marks, the memo. Each function that fails has filled pickle->error.
 */
#ifndef TCONV_FORMATS_PICKLE_MACHINE_H
#define TCONV_FORMATS_PICKLE_MACHINE_H

#include "core/base/arena.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"

/* How long a line with a name or a number may be; a scan accepts longer ones, as
 * Python does. */
#define PICKLE_MAX_LINE 4096u

/* Fails because a limit of the machine's own is passed, which no option raises. */
bool pickle_over_limit(struct pickle *pickle, const char *what);

/* Something is wrong that at least one of Python's machines accepts. A scan goes
 * on as that machine would, and remembers it; any other mode fails. */
bool pickle_tolerate(struct pickle *pickle, const char *what);

/* Count against the budget that all machines of a caller share; fail where it is
 * used up. */
bool pickle_charge_step(struct pickle *pickle);
bool pickle_charge_items(struct pickle *pickle, uint64_t count);
bool pickle_charge_text(struct pickle *pickle, uint64_t length);
/* Counts memory from malloc against the arena's limit, until pickle_release. */
bool pickle_charge_memory(struct pickle *pickle, uint64_t size);

/* Checks that `length` more bytes are in the pickle and in its frame and, where
 * `counts`, within --max-pickle. */
bool pickle_consume(struct pickle *pickle, uint64_t length, bool counts);
/* The same for an opcode whose bytes Python's machine reads past a frame's end. */
bool pickle_consume_across(struct pickle *pickle, uint64_t length);
/* The next bytes, at most 64 KiB; they are valid until the next call. */
const unsigned char *pickle_take(struct pickle *pickle, size_t length);
/* A little-endian number of 1, 2, 4 or 8 bytes. */
bool pickle_take_number(struct pickle *pickle, unsigned bytes, uint64_t *number);
/* A copy of the next bytes in the arena, with a NUL behind them. `across`: they
 * are checked by pickle_consume_across. */
char *pickle_take_copy(struct pickle *pickle, uint64_t length, bool across);
/* A line of at most `limit` bytes, without its newline, in the arena. */
bool pickle_take_line(struct pickle *pickle, uint64_t limit, struct tc_text *line);
/* A line with a name or a number, in the arena. */
bool pickle_take_word(struct pickle *pickle, struct tc_text *line);

/* A node of this number, and a tuple of these values: where one like it was made not long ago,
 * that one. Nothing changes them. */
struct pickle_node *pickle_small(struct pickle *pickle, int64_t value);
struct pickle_node *pickle_tuple(struct pickle *pickle, struct pickle_node **items, size_t count);
/* Frees a tuple and its items that were made since the arena was at `place`, to which nothing else
 * refers but what is kept here of recent numbers and tuples. */
void pickle_drop(struct pickle *pickle, const struct pickle_node *tuple,
                 struct tc_arena_place place);
/* The one node of None, True or False. */
struct pickle_node *pickle_constant(struct pickle *pickle, enum pickle_kind kind, bool value);

/* Pushes a node. NULL, from a constructor that failed and filled the error, is
 * passed on: false. */
bool pickle_push(struct pickle *pickle, struct pickle_node *node);
bool pickle_push_mark(struct pickle *pickle);
/* The position of the last mark in the stack, below which nothing may be popped. */
size_t pickle_fence(const struct pickle *pickle);
struct pickle_node *pickle_pop(struct pickle *pickle);
struct pickle_node *pickle_top(struct pickle *pickle);
/* Pops the last mark and the values above it. They stay valid until the next push;
 * *items is NULL where there are none. */
bool pickle_pop_mark(struct pickle *pickle, struct pickle_node ***items, size_t *count);

/* memo.c: the memo, an array of values by key. Each pickle starts with an empty
 * one; in a scan, keys that it lacks are looked up in the last pickle's, as some
 * loaders do. */
bool pickle_memo_new(struct pickle *pickle);
void pickle_memo_release(struct pickle *pickle);
/* Stores the top of the stack under this key; pushes what is stored under it. */
bool pickle_memo_put(struct pickle *pickle, uint64_t key);
bool pickle_memo_get(struct pickle *pickle, uint64_t key);
uint64_t pickle_memo_count(const struct pickle *pickle);
/* A keyed hash, which no file can foresee, of a key that is too long for a number. */
uint64_t pickle_memo_hash(const struct pickle *pickle, struct tc_text text);

/* objects.c: the opcodes for names, objects, states and persistent ids. run.c's
 * table has the second argument for each opcode, so that one function can serve
 * several opcodes. */
bool pickle_op_global(struct pickle *pickle, int unused);
bool pickle_op_stack_global(struct pickle *pickle, int unused);
bool pickle_op_extension(struct pickle *pickle, int bytes);
bool pickle_op_reduce(struct pickle *pickle, int opcode);
bool pickle_op_newobj_ex(struct pickle *pickle, int unused);
bool pickle_op_instance(struct pickle *pickle, int opcode);
bool pickle_op_build(struct pickle *pickle, int unused);
bool pickle_op_persistent(struct pickle *pickle, int opcode);
bool pickle_op_append(struct pickle *pickle, int unused);
bool pickle_op_setitem(struct pickle *pickle, int unused);
bool pickle_op_extend(struct pickle *pickle, int kind);

#endif
