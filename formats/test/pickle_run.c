#include "formats/test/pickle_run.h"

#include <criterion/criterion.h>
#include <string.h>

#include "core/io/input.h"
#include "formats/pickle/run.h"
#include "formats/test/support.h"

struct tc_limits limits = TC_LIMITS_DEFAULT;

void run_begin(struct run *run, const void *bytes, size_t length, bool file) {
    *run = (struct run){0};
    tc_arena_init(&run->arena, 0);
    pickle_init(&run->pickle, &run->arena, &limits, &run->error);
    if (file) {
        const char *path = test_path("x.pkl");
        test_write(path, bytes, length);
        run->pickle.input = tc_input_open(path, NULL, &run->error);
        cr_assert_not_null(run->pickle.input);
    } else {
        run->pickle.memory = bytes;
    }
    run->pickle.end = length;
}

void run_end(struct run *run) {
    struct tc_input *input = run->pickle.input;
    pickle_release(&run->pickle);
    if (input)
        tc_input_close(input);
    tc_arena_release(&run->arena);
}

static void show_text(struct tc_buffer *out, const char *quote, const struct pickle_node *node) {
    tc_buffer_add_string(out, quote);
    for (size_t i = 0; i < node->length; i++) {
        unsigned char c = (unsigned char)node->text[i];
        if (c < 0x20 || c == '\'' || c == '\\' || c > 0x7E)
            tc_buffer_addf(out, "\\x%02x", c);
        else
            tc_buffer_add(out, &c, 1);
    }
    tc_buffer_add_string(out, "'");
}

static void show_items(struct tc_buffer *out, const struct pickle_node *node, const char *brackets,
                       int depth) {
    tc_buffer_add(out, brackets, 1);
    for (size_t i = 0; i < node->count; i++) {
        bool value = node->kind == PICKLE_DICT && i % 2;
        tc_buffer_add_string(out, i == 0 ? "" : value ? ": " : ", ");
        show_node(out, node->items[i], depth + 1);
    }
    tc_buffer_add(out, brackets + 1, 1);
}

static void show_call(struct tc_buffer *out, const struct pickle_node *node, int depth) {
    tc_buffer_add_string(out, node->kind == PICKLE_OBJECT ? "new " : "");
    show_node(out, node->callable, depth + 1);
    show_node(out, node->arguments, depth + 1);
    if (node->state) {
        tc_buffer_add_string(out, "|");
        show_node(out, node->state, depth + 1);
    }
    if (node->kind == PICKLE_OBJECT && node->content) {
        tc_buffer_add_string(out, "&");
        show_node(out, node->content, depth + 1);
    }
}

void show_node(struct tc_buffer *out, const struct pickle_node *node, int depth) {
    if (depth > 4) {
        tc_buffer_add_string(out, "...");
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
    case PICKLE_LONG:
        tc_buffer_add_text(out, pickle_text(node));
        tc_buffer_add_string(out, "L");
        return;
    case PICKLE_FLOAT:
        tc_buffer_addf(out, "%.17gf", node->real);
        return;
    case PICKLE_TEXT:
        show_text(out, node->raw ? "s'" : "'", node);
        return;
    case PICKLE_BYTES:
        show_text(out, "b'", node);
        return;
    case PICKLE_LIST:
        show_items(out, node, "[]", depth);
        return;
    case PICKLE_TUPLE:
        show_items(out, node, "()", depth);
        return;
    case PICKLE_DICT:
        show_items(out, node, "{}", depth);
        return;
    case PICKLE_SET:
        show_items(out, node, "<>", depth);
        return;
    case PICKLE_GLOBAL:
        tc_buffer_add_text(out, pickle_text(node));
        return;
    case PICKLE_CALL:
    case PICKLE_OBJECT:
        show_call(out, node, depth);
        return;
    case PICKLE_STORAGE:
        tc_buffer_addf(out, "#%llu", (unsigned long long)node->index);
        return;
    }
}

void expect_shown(const struct pickle_node *node, const char *expected) {
    struct tc_buffer shown = {0};
    show_node(&shown, node, 0);
    tc_buffer_add(&shown, "", 1);
    cr_assert(!shown.failed);
    cr_assert_str_eq(shown.bytes, expected);
    tc_buffer_release(&shown);
}

void expect_mode(const void *bytes, size_t length, enum pickle_mode mode, bool script,
                 const char *expected) {
    for (int file = 0; file < 2; file++) {
        struct run run;
        run_begin(&run, bytes, length, file);
        run.pickle.mode = mode;
        run.pickle.script = script;
        cr_assert(pickle_load(&run.pickle, &run.root), "%s: %s", expected, run.error.message);
        expect_shown(run.root, expected);
        cr_assert_eq(run.pickle.at, length, "%s: it stands at %llu", expected,
                     (unsigned long long)run.pickle.at);
        run_end(&run);
    }
}

void expect(const void *bytes, size_t length, const char *expected) {
    expect_mode(bytes, length, PICKLE_STRICT, false, expected);
}

void refused_mode(const void *bytes, size_t length, enum pickle_mode mode, enum tc_class class,
                  const char *words) {
    for (int file = 0; file < 2; file++) {
        struct run run;
        run_begin(&run, bytes, length, file);
        run.pickle.mode = mode;
        cr_assert_not(pickle_load(&run.pickle, &run.root), "not refused: %s", words);
        cr_assert_eq(run.error.class, class, "class %d: %s", (int)run.error.class,
                     run.error.message);
        cr_assert(strstr(run.error.message, words), "\"%s\" is not \"%s\"", run.error.message,
                  words);
        cr_assert(run.error.code && run.error.code[0]);
        cr_assert_eq(run.error.has_offset, file == 1, "%s: an offset %s", words,
                     file ? "is missing" : "of no file");
        run_end(&run);
    }
}

void refused(const void *bytes, size_t length, enum tc_class class, const char *words) {
    refused_mode(bytes, length, PICKLE_STRICT, class, words);
}
