/* Longer names are not compared: people copy those instead of typing them. */

#include "core/base/near.h"

#define LONGEST 256u
/* In a table of millions of names, only as many are compared as this allows. */
#define STEPS (UINT64_C(1) << 27)
#define FARTHEST 4u

static unsigned char fold(char c) {
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + 32 : c == '-' ? '_' : c);
}

static size_t skip_marks(struct tc_text text, size_t at) {
    while (at < text.length && fold(text.bytes[at]) == '_')
        at++;
    return at;
}

bool tc_names_alike(struct tc_text a, struct tc_text b) {
    size_t i = skip_marks(a, 0);
    size_t j = skip_marks(b, 0);
    while (i < a.length && j < b.length && fold(a.bytes[i]) == fold(b.bytes[j])) {
        i = skip_marks(a, i + 1);
        j = skip_marks(b, j + 1);
    }
    return i == a.length && j == b.length;
}

/* One mistake for every three characters, at least 1 and at most FARTHEST. */
static unsigned tolerance(size_t length) {
    unsigned most = (unsigned)(length / 3);
    return most < 1 ? 1 : most > FARTHEST ? FARTHEST : most;
}

void tc_near_init(struct tc_near *near, struct tc_text wanted) {
    *near = (struct tc_near){.wanted = wanted, .steps = STEPS};
    near->distance = tolerance(wanted.length) + 1;
}

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* How many characters must be inserted, deleted, replaced or swapped with their
 * neighbours to turn one text into the other; at most `limit`. */
static unsigned edit_distance(struct tc_text a, struct tc_text b, unsigned limit) {
    unsigned rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b.length; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a.length; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        const unsigned *higher = rows[(i + 1) % 3];
        unsigned smallest = row[0] = (unsigned)i;
        for (size_t j = 1; j <= b.length; j++) {
            bool same = fold(a.bytes[i - 1]) == fold(b.bytes[j - 1]);
            row[j] = least(above[j - 1] + !same, least(row[j - 1], above[j]) + 1);
            if (i > 1 && j > 1 && fold(a.bytes[i - 1]) == fold(b.bytes[j - 2]) &&
                fold(a.bytes[i - 2]) == fold(b.bytes[j - 1]))
                row[j] = least(row[j], higher[j - 2] + 1);
            smallest = least(smallest, row[j]);
        }
        /* Later rows can't be smaller, though a swap looks back two rows: it adds
         * one to what it finds there. */
        if (smallest > limit)
            return limit;
    }
    return least(rows[a.length % 3][b.length], limit);
}

/* Removes a common start and end, which do not change the distance. */
static void trim(struct tc_text *a, struct tc_text *b) {
    while (a->length && b->length && fold(a->bytes[0]) == fold(b->bytes[0])) {
        a->bytes++, a->length--;
        b->bytes++, b->length--;
    }
    while (a->length && b->length &&
           fold(a->bytes[a->length - 1]) == fold(b->bytes[b->length - 1])) {
        a->length--;
        b->length--;
    }
}

void tc_near_try(struct tc_near *near, struct tc_text candidate) {
    struct tc_text a = near->wanted;
    struct tc_text b = candidate;
    size_t apart = a.length > b.length ? a.length - b.length : b.length - a.length;
    size_t longer = a.length > b.length ? a.length : b.length;
    if (apart >= near->distance || a.length == 0 || longer > LONGEST)
        return;
    trim(&a, &b);
    uint64_t cost = longer + (uint64_t)a.length * b.length;
    if (near->steps < cost)
        return;
    near->steps -= cost;
    unsigned distance = edit_distance(a, b, near->distance);
    /* A name of which every character differs is no suggestion. */
    if (distance < near->distance && distance < longer) {
        near->distance = distance;
        near->best = candidate;
    }
}

bool tc_near_hint(const struct tc_near *near, struct tc_error *error, const char *otherwise) {
    if (!near->best.bytes)
        return tc_error_hint(error, "%s", otherwise);
    return tc_error_hint(error, "did you mean %.*s? %s", tc_text_shown(near->best, 200),
                         near->best.bytes, otherwise);
}
