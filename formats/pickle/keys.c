/*
 * The keys of dicts and the members of sets. Two are the same where they are equal in
 * Python: 1, 1.0 and True are one key. The machine adds them as they come; who reads a
 * dict or set removes what occurs twice first, once for each.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"

enum { NUMBER, WORD, OTHER };
struct key {
    struct tc_text text; /* of a WORD; of OTHER: a text that only equal keys have */
    int64_t integer;
    uint32_t place; /* its position in the dict or set */
    uint8_t kind;
};

/* A tuple that is nested deeper or has a longer text is equal only to itself. */
#define MAX_KEY_DEPTH 16
#define MAX_KEY_TEXT 1024u
/* Fewer are sorted at once. */
#define MANY_KEYS 64u

#define TWO_TO_63 9223372036854775808.0

/* Whether it equals an integer: 1, 1.0 and True are one key. */
static bool as_integer(const struct pickle_node *node, int64_t *integer) {
    *integer = node->kind == PICKLE_BOOL ? node->value : 0;
    if (node->kind == PICKLE_INT)
        *integer = node->integer;
    if (node->kind != PICKLE_FLOAT)
        return node->kind == PICKLE_INT || node->kind == PICKLE_BOOL;
    bool whole =
        node->real >= -TWO_TO_63 && node->real < TWO_TO_63 && trunc(node->real) == node->real;
    *integer = whole ? (int64_t)node->real : 0;
    return whole;
}

/* Appends a text for a value that is not a tuple. Equal values have equal texts. */
static void spell_leaf(struct tc_buffer *text, const struct pickle_node *node) {
    int64_t integer;
    if (as_integer(node, &integer))
        tc_buffer_addf(text, "i%lld,", (long long)integer);
    else if (node->kind == PICKLE_LONG)
        tc_buffer_addf(text, "i%.*s,", (int)node->length, node->text);
    else if (node->kind == PICKLE_FLOAT && isfinite(node->real) && trunc(node->real) == node->real)
        tc_buffer_addf(text, "i%.0f,", node->real);
    else if (node->kind == PICKLE_FLOAT && !isnan(node->real))
        tc_buffer_addf(text, "f%a,", node->real);
    else if (node->kind == PICKLE_NONE)
        tc_buffer_add_string(text, "N,");
    else if ((node->kind == PICKLE_TEXT || node->kind == PICKLE_BYTES ||
              node->kind == PICKLE_GLOBAL) &&
             node->text && node->length <= MAX_KEY_TEXT) {
        /* A lone surrogate is not the six characters by which the machine writes it. */
        tc_buffer_addf(text, "%d%s:%zu:", node->kind, node->surrogates ? "s" : "",
                       (size_t)node->length);
        tc_buffer_add_text(text, pickle_text(node));
    } else
        tc_buffer_addf(text, "@%p,", (const void *)node);
}

static void spell(struct tc_buffer *text, const struct pickle_node *key) {
    const struct pickle_node *tuples[MAX_KEY_DEPTH];
    size_t next[MAX_KEY_DEPTH];
    size_t start = text->length;
    int depth = 0;
    const struct pickle_node *node = key;
    bool fits = true;
    while (node && fits) {
        if (node->kind == PICKLE_TUPLE && depth < MAX_KEY_DEPTH) {
            tc_buffer_add_string(text, "(");
            tuples[depth] = node;
            next[depth++] = 0;
        } else
            spell_leaf(text, node);
        node = NULL;
        while (depth && next[depth - 1] == tuples[depth - 1]->count) {
            tc_buffer_add_string(text, ")");
            depth--;
        }
        if (depth)
            node = tuples[depth - 1]->items[next[depth - 1]++];
        fits = text->length - start <= 2 * MAX_KEY_TEXT;
    }
    if (fits || text->failed)
        return;
    text->length = start;
    tc_buffer_addf(text, "@%p,", (const void *)key);
}

static bool read_key(struct tc_arena *arena, const struct pickle_node *node, struct key *key,
                     struct tc_error *error) {
    key->kind = OTHER;
    if (as_integer(node, &key->integer)) {
        key->kind = NUMBER;
        return true;
    }
    if (node->kind == PICKLE_TEXT && !node->surrogates) {
        key->kind = WORD;
        key->text = pickle_text(node);
        return true;
    }
    struct tc_buffer text = {0};
    spell(&text, node);
    char *copy =
        tc_buffer_ok(&text, error) ? tc_arena_copy(arena, text.bytes, text.length, error) : NULL;
    key->text = (struct tc_text){copy, text.length};
    tc_buffer_release(&text);
    return copy != NULL;
}

static int compare_values(const struct key *x, const struct key *y) {
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->kind == NUMBER)
        return (x->integer > y->integer) - (x->integer < y->integer);
    return tc_text_compare(x->text, y->text);
}

static int compare_keys(const void *a, const void *b) {
    const struct key *x = a;
    const struct key *y = b;
    int order = compare_values(x, y);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Of equal keys keeps the first, at its place, with the last one's value. */
static void merge(struct pickle_node *node, const struct key *keys, size_t count, uint32_t width) {
    bool again = false;
    for (size_t i = count; i > 1; i--) {
        if (compare_values(&keys[i - 1], &keys[i - 2]) != 0)
            continue;
        struct pickle_node **kept = &node->items[width * keys[i - 2].place];
        struct pickle_node **gone = &node->items[width * keys[i - 1].place];
        kept[width - 1] = width == 2 ? gone[1] : kept[0];
        gone[0] = NULL;
        again = true;
    }
    uint32_t left = 0;
    for (uint32_t i = 0; again && i < node->count; i += width)
        for (uint32_t j = i; node->items[i] && j < i + width; j++)
            node->items[left++] = node->items[j];
    if (again)
        node->count = left;
}

struct slot {
    uint32_t hash;
    uint32_t place; /* 1 + the position of the key's node in the items; 0: the slot is free */
};

/* Whether all keys are plain text, and no two are the same: so are those of nearly every dict, and
 * nothing need be sorted. The hash has a secret key, so that nobody can choose texts that
 * collide. */
static bool all_differ(const struct pickle_node *node, uint32_t width, size_t count, bool *differ,
                       struct tc_error *error) {
    uint8_t secret[16];
    size_t slots = 16;
    bool plain = true;
    for (size_t i = 0; i < count && plain; i++)
        plain = node->items[width * i]->kind == PICKLE_TEXT && !node->items[width * i]->surrogates;
    while (slots < count + count / 2)
        slots *= 2;
    *differ = false;
    if (!plain)
        return true;
    struct slot *table = calloc(slots, sizeof *table);
    if (!table)
        return tc_fail_memory(error);
    tc_random(secret, sizeof secret);
    for (size_t i = 0; i < count && plain; i++) {
        struct tc_text key = pickle_text(node->items[width * i]);
        uint32_t hash = (uint32_t)tc_shorthash(secret, key.bytes, key.length);
        size_t at = hash & (slots - 1);
        for (; plain && table[at].place; at = (at + 1) & (slots - 1))
            plain = table[at].hash != hash ||
                    !tc_text_equal(pickle_text(node->items[table[at].place - 1]), key);
        table[at] = (struct slot){hash, (uint32_t)(width * i) + 1};
    }
    *differ = plain;
    free(table);
    return true;
}

bool pickle_settle(struct pickle_node *node, struct tc_arena *arena, struct tc_error *error) {
    uint32_t width = node->kind == PICKLE_DICT ? 2 : 1;
    size_t count = node->count / width;
    if (node->settled)
        return true;
    node->settled = true;
    if (count < 2)
        return true;
    if (!tc_arena_charge(arena, count * sizeof(struct key), error))
        return false;
    bool differ = false;
    if (count >= MANY_KEYS && !all_differ(node, width, count, &differ, error))
        return false;
    if (differ)
        return true;
    struct key *keys = calloc(count, sizeof *keys);
    bool ok = keys ? true : tc_fail_memory(error);
    for (size_t i = 0; i < count && ok; i++) {
        keys[i].place = (uint32_t)i;
        ok = read_key(arena, node->items[width * i], &keys[i], error);
    }
    if (ok) {
        qsort(keys, count, sizeof *keys, compare_keys);
        merge(node, keys, count, width);
    }
    free(keys);
    return ok;
}
