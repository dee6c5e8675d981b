/*
 * Which keys of a dict, and which members of a set, Python takes for equal: 1, 1.0 and True are
 * one, "1" is another. Keys are compared in an order of no other meaning, so that equal ones come
 * to stand beside each other.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/tree.h"
#include "core/format/tree_parse.h"

/* A number as it is compared: one of 64 bits, one of more, or one with a fraction. */
struct number {
    enum { SHORT, LONG, FRACTION, COMPLEX } form;
    int64_t integer;
    double real;
    double imaginary;
    struct tc_text digits;
    char text[320];
};

static bool is_number(const struct tc_tree_node *node) {
    return node->kind >= TC_TREE_BOOL && node->kind <= TC_TREE_COMPLEX;
}

static void read_real(double real, struct number *number) {
    if (real == trunc(real) && fabs(real) < 9.2e18) {
        number->form = SHORT;
        number->integer = (int64_t)real;
    } else if (isfinite(real) && real == trunc(real)) {
        number->form = LONG;
        int length = snprintf(number->text, sizeof number->text, "%.0f", real);
        number->digits = (struct tc_text){number->text, (size_t)length};
    } else {
        number->form = FRACTION;
        number->real = real;
    }
}

static void read_number(const struct tc_tree_node *node, struct number *number) {
    switch ((enum tc_tree_kind)node->kind) {
    case TC_TREE_BOOL:
        number->form = SHORT;
        number->integer = node->value;
        return;
    case TC_TREE_INT:
        number->form = SHORT;
        number->integer = node->integer;
        return;
    case TC_TREE_LONG:
        number->form = LONG;
        number->digits = tc_tree_text(node);
        return;
    case TC_TREE_COMPLEX:
        if (node->imaginary != 0) {
            number->form = COMPLEX;
            number->real = node->real;
            number->imaginary = node->imaginary;
            return;
        }
        read_real(node->real, number);
        return;
    default:
        read_real(node->real, number);
    }
}

static int compare_bits(double a, double b) {
    a = a == 0 ? 0 : a; /* -0.0 is 0.0 */
    b = b == 0 ? 0 : b;
    return memcmp(&a, &b, sizeof a);
}

static int compare_numbers(const struct tc_tree_node *a, const struct tc_tree_node *b) {
    struct number x;
    struct number y;
    read_number(a, &x);
    read_number(b, &y);
    if (x.form != y.form)
        return x.form < y.form ? -1 : 1;
    if (x.form == SHORT)
        return (x.integer > y.integer) - (x.integer < y.integer);
    if (x.form == LONG)
        return tc_text_compare(x.digits, y.digits);
    /* A NaN equals nothing: not even itself. */
    if (isnan(x.real) || isnan(y.real))
        return a < b ? -1 : 1;
    int order = compare_bits(x.real, y.real);
    return order || x.form == FRACTION ? order : compare_bits(x.imaginary, y.imaginary);
}

/* A Size is equal to the tuple of its numbers. */
static unsigned kind_of(const struct tc_tree_node *node) {
    return is_number(node) ? TC_TREE_INT : node->kind == TC_TREE_SIZE ? TC_TREE_TUPLE : node->kind;
}

/* Two values are equal where all of their nodes are, one after the other. */
static int compare(const void *left, const void *right) {
    const struct tc_tree_node *a = *(const struct tc_tree_node *const *)left;
    const struct tc_tree_node *b = *(const struct tc_tree_node *const *)right;
    for (uint64_t more = 1; more; more--, a++, b++) {
        unsigned x = kind_of(a);
        unsigned y = kind_of(b);
        int order = x != y               ? (x < y ? -1 : 1)
                    : x == TC_TREE_INT   ? compare_numbers(a, b)
                    : x == TC_TREE_NONE  ? 0
                    : x == TC_TREE_TUPLE ? (a->count > b->count) - (a->count < b->count)
                                         : tc_text_compare(tc_tree_text(a), tc_tree_text(b));
        if (order)
            return order;
        more += a->count;
    }
    return 0;
}

bool tree_check_unique(struct tree_parser *parser, size_t first, size_t count, unsigned step) {
    const struct tc_tree *tree = parser->tree;
    size_t keys = count / step;
    if (keys < 2)
        return true;
    const struct tc_tree_node **list = calloc(keys, sizeof *list);
    if (!list)
        return tc_fail_memory(parser->error);
    size_t at = first;
    for (size_t i = 0; i < keys * step; i++) {
        if (i % step == 0)
            list[i / step] = &tree->nodes[at];
        at = tree->nodes[at].end;
    }
    qsort(list, keys, sizeof *list, compare);
    bool ok = true;
    for (size_t i = 1; i < keys && ok; i++)
        ok = compare(&list[i - 1], &list[i]) != 0;
    free(list);
    return ok || tree_bad(parser, "a key or member that occurs twice");
}
