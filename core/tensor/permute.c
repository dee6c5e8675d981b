#include "core/tensor/permute.h"

#include <stdbool.h>
#include <string.h>

#include "core/base/limits.h"

/* Elements of a list of places: their lines of a cache, one an element at worst, fit a second-level
 * cache. */
#define MOST_LISTED 2048u
/* Bytes of a source row, and rows, that are transposed before the next ones: a line of each row
 * stays in the first-level cache until all of it is used. */
#define PANEL_BYTES 64u
#define PANEL_ROWS 64u

typedef uint8_t bytes16 __attribute__((vector_size(16), may_alias));
typedef uint16_t words8 __attribute__((vector_size(16), may_alias));
typedef uint32_t words4 __attribute__((vector_size(16), may_alias));
typedef uint64_t words2 __attribute__((vector_size(16), may_alias));

/* Puts the lower halves of two vectors, or the upper ones, one element of each in turn. Doing this
 * with rows i and i + N / 2 as often as N can be halved transposes N rows. */
#define LOW16(a, b)                                                                                \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH16(a, b)                                                                               \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW8(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH8(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW2(a, b) __builtin_shufflevector(a, b, 0, 2)
#define HIGH2(a, b) __builtin_shufflevector(a, b, 1, 3)

/* A square of N rows of 16 bytes. A type takes no parentheses.
 * NOLINTBEGIN(bugprone-macro-parentheses)
 */
#define SQUARE(N, vector, low, high)                                                               \
    static inline void square_##N(const unsigned char *from, size_t from_step, unsigned char *to,  \
                                  size_t to_step) {                                                \
        vector rows[N], next[N];                                                                   \
        for (unsigned i = 0; i < (N); i++)                                                         \
            memcpy(&rows[i], from + i * from_step, 16);                                            \
        for (unsigned done = 1; done < (N); done *= 2) {                                           \
            for (unsigned i = 0; i < (N) / 2; i++) {                                               \
                next[2 * i] = low(rows[i], rows[i + (N) / 2]);                                     \
                next[2 * i + 1] = high(rows[i], rows[i + (N) / 2]);                                \
            }                                                                                      \
            for (unsigned i = 0; i < (N); i++)                                                     \
                rows[i] = next[i];                                                                 \
        }                                                                                          \
        for (unsigned i = 0; i < (N); i++)                                                         \
            memcpy(to + i * to_step, &rows[i], 16);                                                \
    }
SQUARE(16, bytes16, LOW16, HIGH16)
SQUARE(8, words8, LOW8, HIGH8)
SQUARE(4, words4, LOW4, HIGH4)
SQUARE(2, words2, LOW2, HIGH2)
#undef SQUARE
/* NOLINTEND(bugprone-macro-parentheses) */

/* One source row after the other, element by element: what is left beside the squares. */
static inline void scatter(const unsigned char *from, size_t from_step, unsigned char *to,
                           size_t to_step, size_t rows, size_t columns, size_t element) {
    for (size_t column = 0; column < columns; column++)
        for (size_t row = 0; row < rows; row++)
            memcpy(to + column * to_step + row * element, from + row * from_step + column * element,
                   element);
}

/* `rows` rows of the source, in which `columns` elements follow each other, become columns. */
static inline __attribute__((always_inline)) void
transpose_of(const unsigned char *from, size_t from_step, unsigned char *to, size_t to_step,
             size_t rows, size_t columns, size_t element,
             void (*square)(const unsigned char *, size_t, unsigned char *, size_t)) {
    const size_t side = 16 / element, wide = PANEL_BYTES / element;
    for (size_t column = 0; column < columns; column += wide) {
        size_t width = columns - column < wide ? columns - column : wide;
        for (size_t row = 0; row < rows; row += PANEL_ROWS) {
            size_t height = rows - row < PANEL_ROWS ? rows - row : PANEL_ROWS;
            const unsigned char *in = from + row * from_step + column * element;
            unsigned char *out = to + column * to_step + row * element;
            size_t whole = width / side * side, lines = height / side * side;
            for (size_t c = 0; c < whole; c += side)
                for (size_t r = 0; r < lines; r += side)
                    square(in + r * from_step + c * element, from_step,
                           out + c * to_step + r * element, to_step);
            scatter(in + lines * from_step, from_step, out + lines * element, to_step,
                    height - lines, whole, element);
            scatter(in + whole * element, from_step, out + whole * to_step, to_step, height,
                    width - whole, element);
        }
    }
}

static void transpose(const unsigned char *from, size_t from_step, unsigned char *to,
                      size_t to_step, size_t rows, size_t columns, size_t element) {
    switch (element) {
    case 1:
        transpose_of(from, from_step, to, to_step, rows, columns, 1, square_16);
        break;
    case 2:
        transpose_of(from, from_step, to, to_step, rows, columns, 2, square_8);
        break;
    case 4:
        transpose_of(from, from_step, to, to_step, rows, columns, 4, square_4);
        break;
    default:
        transpose_of(from, from_step, to, to_step, rows, columns, 8, square_2);
    }
}

/* Elements from listed places, one after the other. */
static inline void gather_of(unsigned char *to, const unsigned char *from, const uint32_t *places,
                             size_t count, size_t element) {
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * element, from + places[i], element);
}

static void gather(unsigned char *to, const unsigned char *from, const uint32_t *places,
                   size_t count, size_t element) {
    switch (element) {
    case 1:
        gather_of(to, from, places, count, 1);
        return;
    case 2:
        gather_of(to, from, places, count, 2);
        return;
    case 4:
        gather_of(to, from, places, count, 4);
        return;
    case 8:
        gather_of(to, from, places, count, 8);
        return;
    case 16:
        gather_of(to, from, places, count, 16);
        return;
    default:
        break;
    }
    /* Those of odd sizes overlap the next, which is written after them. */
    size_t done = 0;
    for (; element < 16 && (count - done) * element >= 16; done++)
        memcpy(to + done * element, from + places[done], 16);
    for (; done < count; done++)
        memcpy(to + done * element, from + places[done], element);
}

/* Orders axes, the one with the largest step in the target first, and joins those that are one. */
static unsigned tidy(struct tc_axis *axes, unsigned rank) {
    unsigned used = 0;
    for (unsigned i = 0; i < rank; i++) {
        struct tc_axis axis = axes[i];
        if (axis.count == 1)
            continue;
        unsigned place = used++;
        for (; place > 0 && axes[place - 1].to < axis.to; place--)
            axes[place] = axes[place - 1];
        axes[place] = axis;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < used; i++) {
        struct tc_axis *before = kept ? &axes[kept - 1] : NULL;
        if (before && before->to == axes[i].to * axes[i].count &&
            before->from == axes[i].from * axes[i].count) {
            before->count *= axes[i].count;
            before->from = axes[i].from;
            before->to = axes[i].to;
        } else {
            axes[kept++] = axes[i];
        }
    }
    return kept;
}

/* Orders the loops around the innermost work, so that the source is gone through forwards. */
static void order_by_source(struct tc_axis *axes, unsigned rank) {
    for (unsigned i = 1; i < rank; i++) {
        struct tc_axis axis = axes[i];
        unsigned place = i;
        for (; place > 0 && axes[place - 1].from < axis.from; place--)
            axes[place] = axes[place - 1];
        axes[place] = axis;
    }
}

/* What is done at each place of the outer axes. */
struct inner {
    size_t element;
    bool squares; /* rows and columns are exchanged; else elements come from a list of places */
    struct tc_axis row, column;
    size_t listed;
    uint32_t places[MOST_LISTED];
    /* The list covers so many elements of this axis, and is used again for the next. */
    struct tc_axis split;
    size_t taken;
};

static void run_inner(const struct inner *inner, const unsigned char *from, unsigned char *to) {
    if (inner->squares)
        transpose(from, inner->row.from, to, inner->column.to, inner->row.count,
                  inner->column.count, inner->element);
    for (uint64_t done = 0; !inner->squares && done < inner->split.count; done += inner->taken) {
        /* The last part overlaps the one before it: the same bytes once more. */
        uint64_t left = inner->split.count - done;
        uint64_t start = left < inner->taken ? inner->split.count - inner->taken : done;
        gather(to + start * inner->split.to, from + start * inner->split.from, inner->places,
               inner->listed, inner->element);
    }
}

/* Takes the two axes that follow each other in memory, on either side, out of the list. */
static bool take_squares(struct tc_axis *axes, unsigned *rank, struct inner *inner) {
    /* cppcheck-suppress ctuuninitvar ; the caller has set it */
    size_t element = inner->element;
    if (*rank < 2 || element > 8 || (element & (element - 1)))
        return false;
    const struct tc_axis *last = &axes[*rank - 1];
    unsigned column = 0;
    while (column < *rank && axes[column].from != element)
        column++;
    size_t side = 16 / element;
    if (last->to != element || column + 1 >= *rank || last->count < side ||
        axes[column].count < side)
        return false;
    inner->squares = true;
    inner->row = *last;
    inner->column = axes[column];
    *rank -= 2;
    memmove(&axes[column], &axes[column + 1], (*rank - column) * sizeof *axes);
    return true;
}

/* Takes axes that are contiguous in the target out of the list, and lists where their elements
 * are; of a long axis only a part. */
static void take_list(struct tc_axis *axes, unsigned *rank, struct inner *inner) {
    inner->listed = 1;
    inner->places[0] = 0;
    inner->taken = 1;
    inner->split = (struct tc_axis){.count = 1};
    while (*rank > 0 && inner->taken == inner->split.count) {
        const struct tc_axis *axis = &axes[*rank - 1];
        size_t most = MOST_LISTED / inner->listed;
        size_t count = axis->count <= most ? axis->count : most;
        if (axis->to != inner->listed * inner->element || count < 2 ||
            axis->from > UINT32_MAX / MOST_LISTED)
            return;
        for (size_t i = inner->listed; i < inner->listed * count; i++)
            inner->places[i] = inner->places[i - inner->listed] + (uint32_t)axis->from;
        inner->listed *= count;
        inner->taken = count;
        inner->split = *axis;
        --*rank;
    }
}

void tc_permute(struct tc_axis *axes, unsigned rank, unsigned element, const unsigned char *from,
                unsigned char *to) {
    struct inner inner;
    uint64_t at[TC_MAX_RANK] = {0};
    inner.element = element;
    inner.squares = false;
    rank = tidy(axes, rank);
    /* Elements that lie together on both sides are moved together. */
    if (rank && axes[rank - 1].to == element && axes[rank - 1].from == element)
        inner.element *= axes[--rank].count;
    if (!take_squares(axes, &rank, &inner))
        take_list(axes, &rank, &inner);
    order_by_source(axes, rank);
    for (;;) {
        run_inner(&inner, from, to);
        unsigned level = rank;
        while (level > 0) {
            const struct tc_axis *axis = &axes[level - 1];
            from += axis->from;
            to += axis->to;
            if (++at[level - 1] < axis->count)
                break;
            from -= axis->from * axis->count;
            to -= axis->to * axis->count;
            at[level - 1] = 0;
            level--;
        }
        if (level == 0)
            return;
    }
}
