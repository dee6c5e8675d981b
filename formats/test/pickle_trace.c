/*
 * Runs pickles from standard input on the pickle machine and prints what it found, for
 * cmd/test/test_pickle_proof.py, which compares that with Python's machines.
 *
 * The line of a pickle has what its three modes gave, strict, inert and scan, with a tab
 * between them.
 *
 * What a mode gave is the result as Python's ascii() shows it, `|`, and what the pickle
 * named and called: `g` or `c` and the name, separated by spaces. Strict and inert print
 * `!` where they refuse it, and inert `=` where it gave the same as strict. A scan
 * prints no result but `.` at STOP, or `!N` where the opcode at N ended it, then `&`
 * where it read the pickle in more than one way.
 *
 *     a set is <sorted members>, so that its order does not matter
 *     an object is <class arguments|state|content>, `-` where there is none
 *     an object of a known class, which inert keeps without interpreting it, is `?`
 *     what a persistent id names is P(id), and None where the id is text
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/digits.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/test/trace.h"

#define MAX_IDS 256u
#define MAX_SHOWN ((size_t)1 << 20)
#define MAX_DEPTH 200

struct trace {
    struct tc_arena arena;
    struct tc_error error;
    struct tc_buffer events;
    const struct pickle_node *ids[MAX_IDS];
    size_t id_count;
    bool strict;
};

/* What it names and calls */

/* As Python's ascii() shows it, without quotation marks: `quote` is escaped. */
static void add_escaped(struct tc_buffer *out, struct tc_text text, bool surrogates, char quote) {
    for (size_t at = 0; at < text.length;) {
        uint32_t c = 0;
        size_t length = tc_utf8_length(text.bytes + at, text.length - at, &c);
        bool half = surrogates && text.length - at >= 6 && memcmp(text.bytes + at, "\\ud", 3) == 0;
        at += length;
        if (half)
            tc_buffer_add_string(out, "\\"); /* the surrogate is escaped already */
        else if (c == '\n' || c == '\r' || c == '\t')
            tc_buffer_add_string(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (c == '\\' || (c && c == (unsigned char)quote))
            tc_buffer_addf(out, "\\%c", (int)c);
        else if (c >= ' ' && c < 0x7F)
            tc_buffer_addf(out, "%c", (int)c);
        else
            tc_buffer_addf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
}

static void add_event(struct trace *trace, char kind, struct tc_text name) {
    tc_buffer_addf(&trace->events, " %c", kind);
    add_escaped(&trace->events, name, false, ' ');
}

static bool on_global(void *context, const struct pickle_node *global, struct tc_error *error) {
    (void)error;
    add_event(context, 'g', pickle_text(global));
    return true;
}

static bool on_call(void *context, const struct pickle_node *callable,
                    const struct pickle_node *arguments, uint64_t at, struct tc_error *error) {
    (void)arguments;
    (void)at;
    (void)error;
    add_event(context, 'c', callable->kind == PICKLE_GLOBAL ? pickle_text(callable) : TC_TEXT("?"));
    return true;
}

static bool persistent(void *context, const struct pickle_node *id, struct pickle_node **node,
                       struct tc_error *error) {
    struct trace *trace = context;
    if (id->kind == PICKLE_TEXT) {
        (*node)->kind = PICKLE_NONE;
        return true;
    }
    if (trace->id_count == MAX_IDS)
        return tc_fail(error, TC_UNSAFE, "pickle-limit", "too many persistent ids");
    (*node)->index = trace->id_count;
    trace->ids[trace->id_count++] = id;
    return true;
}

/* The result */

static void show(struct trace *trace, struct tc_buffer *out, struct pickle_node *node, int depth);

static void show_quoted(struct tc_buffer *out, const struct pickle_node *node) {
    bool single = memchr(node->text, '\'', node->length) != NULL;
    bool both = single && memchr(node->text, '"', node->length);
    char quote = single && !both ? '"' : '\'';
    tc_buffer_add(out, &quote, 1);
    if (node->kind == PICKLE_TEXT) {
        add_escaped(out, pickle_text(node), node->surrogates, quote);
    } else {
        for (size_t i = 0; i < node->length; i++) {
            unsigned char c = (unsigned char)node->text[i];
            if (c < 0x80)
                add_escaped(out, (struct tc_text){node->text + i, 1}, false, quote);
            else
                tc_buffer_addf(out, "\\x%02x", c);
        }
    }
    tc_buffer_add(out, &quote, 1);
}

static void show_row(struct trace *trace, struct tc_buffer *out, const struct pickle_node *node,
                     const char *brackets, int depth) {
    tc_buffer_add(out, brackets, 1);
    for (size_t i = 0; i < node->count; i++) {
        bool value = node->kind == PICKLE_DICT && i % 2;
        tc_buffer_add_string(out, i == 0 ? "" : value ? ": " : ", ");
        show(trace, out, node->items[i], depth + 1);
    }
    tc_buffer_add_string(out, node->kind == PICKLE_TUPLE && node->count == 1 ? "," : "");
    tc_buffer_add(out, brackets + 1, 1);
}

static int compare_shown(const void *a, const void *b) {
    const struct tc_buffer *x = a;
    const struct tc_buffer *y = b;
    return tc_text_compare((struct tc_text){x->bytes, x->length},
                           (struct tc_text){y->bytes, y->length});
}

static void show_set(struct trace *trace, struct tc_buffer *out, const struct pickle_node *node,
                     int depth) {
    struct tc_buffer *members = calloc(node->count + 1u, sizeof *members);
    for (size_t i = 0; members && i < node->count; i++)
        show(trace, &members[i], node->items[i], depth + 1);
    if (members)
        qsort(members, node->count, sizeof *members, compare_shown);
    tc_buffer_add_string(out, "<");
    for (size_t i = 0; members && i < node->count; i++) {
        tc_buffer_add_string(out, i ? ", " : "");
        tc_buffer_add(out, members[i].bytes, members[i].length);
        tc_buffer_release(&members[i]);
    }
    tc_buffer_add_string(out, ">");
    free(members);
}

static void show_container(struct trace *trace, struct tc_buffer *out, struct pickle_node *node,
                           int depth) {
    static const char *const brackets[] = {
        [PICKLE_LIST] = "[]", [PICKLE_TUPLE] = "()", [PICKLE_DICT] = "{}", [PICKLE_SET] = "<>"};
    if (node->open) {
        tc_buffer_addf(out, "%c...%c", brackets[node->kind][0], brackets[node->kind][1]);
        return;
    }
    if (node->kind == PICKLE_DICT || node->kind == PICKLE_SET)
        out->failed |= !pickle_settle(node, &trace->arena, &trace->error);
    node->open = true;
    if (node->kind == PICKLE_SET)
        show_set(trace, out, node, depth);
    else
        show_row(trace, out, node, brackets[node->kind], depth);
    node->open = false;
}

/* NEWOBJ_EX has keyword arguments as the last; where there are none, Python can't tell it
 * from NEWOBJ. So empty dicts at the end are not shown. */
static struct pickle_node without_keywords(const struct pickle_node *arguments) {
    struct pickle_node shown = {0};
    pickle_become(&shown, arguments);
    while (shown.kind == PICKLE_TUPLE && shown.count &&
           shown.items[shown.count - 1]->kind == PICKLE_DICT &&
           shown.items[shown.count - 1]->count == 0)
        shown.count--;
    return shown;
}

static void show_object(struct trace *trace, struct tc_buffer *out, struct pickle_node *node,
                        int depth) {
    bool known = pickle_is(node->callable, PICKLE_GLOBAL) &&
                 node->callable->global != PICKLE_UNKNOWN &&
                 node->callable->global != PICKLE_NAMESPACE;
    if (node->open || (known && !trace->strict)) {
        tc_buffer_add_string(out, node->open ? "<...>" : "?");
        return;
    }
    node->open = true;
    struct pickle_node arguments = without_keywords(node->arguments);
    tc_buffer_add_string(out, "<");
    show(trace, out, node->callable, depth + 1);
    tc_buffer_add_string(out, " ");
    show(trace, out, &arguments, depth + 1);
    struct pickle_node *parts[] = {node->state, node->content};
    for (int i = 0; i < 2; i++) {
        bool empty = !parts[i] || (i == 1 && parts[i]->count == 0);
        tc_buffer_add_string(out, empty ? "|-" : "|");
        if (!empty)
            show(trace, out, parts[i], depth + 1);
    }
    tc_buffer_add_string(out, ">");
    node->open = false;
}

static void show(struct trace *trace, struct tc_buffer *out, struct pickle_node *node, int depth) {
    if (depth > MAX_DEPTH || out->length > MAX_SHOWN) {
        out->failed = true;
        return;
    }
    switch ((enum pickle_kind)node->kind) {
    case PICKLE_NONE:
        tc_buffer_add_string(out, "None");
        return;
    case PICKLE_BOOL:
        tc_buffer_add_string(out, node->value ? "True" : "False");
        return;
    case PICKLE_INT:
        tc_buffer_addf(out, "%lld", (long long)node->integer);
        return;
    case PICKLE_FLOAT:
        tc_buffer_add_repr(out, node->real, TC_PRECISION_F64);
        return;
    case PICKLE_BYTES:
        tc_buffer_add_string(out, node->array ? "bytearray(b" : "b");
        show_quoted(out, node);
        tc_buffer_add_string(out, node->array ? ")" : "");
        return;
    case PICKLE_TEXT:
        show_quoted(out, node);
        return;
    case PICKLE_LONG:
    case PICKLE_GLOBAL:
        add_escaped(out, pickle_text(node), false, ' ');
        return;
    case PICKLE_LIST:
    case PICKLE_TUPLE:
    case PICKLE_DICT:
    case PICKLE_SET:
        show_container(trace, out, node, depth);
        return;
    case PICKLE_CALL:
    case PICKLE_OBJECT:
        show_object(trace, out, node, depth);
        return;
    case PICKLE_STORAGE:
        tc_buffer_add_string(out, "P(");
        show(trace, out, (struct pickle_node *)trace->ids[node->index], depth + 1);
        tc_buffer_add_string(out, ")");
        return;
    }
}

/* Modes */

static void run(const unsigned char *bytes, size_t length, enum pickle_mode mode,
                struct tc_buffer *out) {
    static const struct tc_limits limits = TC_LIMITS_DEFAULT;
    struct trace trace = {.strict = mode == PICKLE_STRICT};
    struct pickle pickle;
    struct pickle_node *root;
    size_t before = out->length;
    tc_arena_init(&trace.arena, 0);
    pickle_init(&pickle, &trace.arena, &limits, &trace.error);
    pickle.memory = bytes;
    pickle.end = length;
    pickle.mode = mode;
    pickle.whole = true;
    pickle.context = &trace;
    pickle.on_global = on_global;
    pickle.on_call = on_call;
    pickle.persistent = mode == PICKLE_SCAN ? NULL : persistent;
    bool ok = pickle_load(&pickle, &root);
    if (mode == PICKLE_SCAN && !ok)
        tc_buffer_addf(out, "!%llu", (unsigned long long)pickle.opcode_at);
    else if (mode == PICKLE_SCAN)
        tc_buffer_add_string(out, ".");
    else if (ok)
        show(&trace, out, root, 0);
    else
        tc_buffer_add_string(out, "!");
    if (out->failed) {
        out->failed = false;
        out->length = before;
        tc_buffer_add_string(out, "!");
        ok = false;
    }
    tc_buffer_add_string(out, mode == PICKLE_SCAN && pickle.forked ? "&" : "");
    if (ok || mode == PICKLE_SCAN) {
        tc_buffer_add_string(out, "|");
        tc_buffer_add(out, trace.events.bytes, trace.events.length);
    }
    tc_buffer_release(&trace.events);
    pickle_release(&pickle);
    tc_arena_release(&trace.arena);
}

/* A line of what the three modes gave. */
static void trace_program(const unsigned char *bytes, size_t length, struct tc_buffer *line) {
    run(bytes, length, PICKLE_STRICT, line);
    size_t strict = line->length;
    tc_buffer_add_string(line, "\t");
    run(bytes, length, PICKLE_INERT, line);
    size_t inert = line->length - strict - 1;
    if (inert == strict && memcmp(line->bytes, line->bytes + strict + 1, strict) == 0) {
        line->length = strict + 1;
        tc_buffer_add_string(line, "=");
    }
    tc_buffer_add_string(line, "\t");
    run(bytes, length, PICKLE_SCAN, line);
    tc_buffer_add_string(line, "\n");
}

int main(void) {
    return trace_all(trace_program);
}
