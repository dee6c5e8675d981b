/*
 * What the opcodes of run.c work on: the bytes of the pickle, the stack with
 * its marks, the memo. Each function that fails has filled pickle->error.
 */
#ifndef TCONV_FORMATS_PICKLE_MACHINE_H
#define TCONV_FORMATS_PICKLE_MACHINE_H

#include "core/base/text.h"
#include "formats/pickle/pickle.h"

/* A line of a name or a number; a scan takes longer ones, as Python does. */
#define PICKLE_MAX_LINE 4096u

/* A limit of the machine's own, with no option to raise it. */
bool pickle_over_limit(struct pickle *pickle, const char *what);

/* What Python's own machines don't mind, or not all of them: fails, but in a
 * scan, which goes on as they would. */
bool pickle_odd(struct pickle *pickle, const char *what);

/* Counts against the budgets that all machines of a caller share. */
bool pickle_charge_step(struct pickle *pickle);
bool pickle_charge_items(struct pickle *pickle, uint64_t count);
bool pickle_charge_text(struct pickle *pickle, uint64_t length);
/* Memory that is not the arena's, until the machine's release. */
bool pickle_charge_memory(struct pickle *pickle, uint64_t size);

/* Whether `length` more bytes are there, in the frame and, where they count,
 * within --max-pickle. */
bool pickle_consume(struct pickle *pickle, uint64_t length, bool counts);
/* The same for bytes that Python's machine takes from two frames as one. */
bool pickle_consume_across(struct pickle *pickle, uint64_t length);
/* The next bytes, at most 64 KiB, until the next call. */
const unsigned char *pickle_take(struct pickle *pickle, size_t length);
/* A little-endian number of 1, 2, 4 or 8 bytes. */
bool pickle_take_number(struct pickle *pickle, unsigned bytes, uint64_t *number);
/* Bytes for as long as the arena lives, a NUL behind them; `across` as above. */
char *pickle_take_copy(struct pickle *pickle, uint64_t length, bool across);
/* A line without its newline, the arena's. */
bool pickle_take_line(struct pickle *pickle, uint64_t limit, struct tc_text *line);
/* A line of a name or a number. */
bool pickle_take_word(struct pickle *pickle, struct tc_text *line);

/* None, True or False. */
struct pickle_node *pickle_constant(struct pickle *pickle, enum pickle_kind kind, bool value);

/* Takes what a failed constructor returns, too: then the error is filled. */
bool pickle_push(struct pickle *pickle, struct pickle_node *node);
bool pickle_push_mark(struct pickle *pickle);
/* Above which the stack may be popped: the last mark. */
size_t pickle_fence(const struct pickle *pickle);
struct pickle_node *pickle_pop(struct pickle *pickle);
struct pickle_node *pickle_top(struct pickle *pickle);
/* The values above the last mark, which goes; they stay until the next push.
 * *items is NULL where there are none. */
bool pickle_pop_mark(struct pickle *pickle, struct pickle_node ***items, size_t *count);

/* memo.c. A new memo for each pickle; in a scan the old one shows through. */
bool pickle_memo_new(struct pickle *pickle);
void pickle_memo_release(struct pickle *pickle);
/* The top of the stack under this key. */
bool pickle_memo_put(struct pickle *pickle, uint64_t key);
bool pickle_memo_get(struct pickle *pickle, uint64_t key);
uint64_t pickle_memo_count(const struct pickle *pickle);
/* A number that nobody can foresee for a key that is too long for one. */
uint64_t pickle_memo_hash(const struct pickle *pickle, struct tc_text text);

/* objects.c: the opcodes for names, objects, states and ids. The argument
 * is the opcode's own, by which one function serves several. */
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
