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

/* A square of N rows of 16 bytes: `turn` transposes it, `square` also reads and writes it, and
 * `listed` does where rows and columns are anywhere. `narrow` has fewer rows, `count`, and writes
 * what it has of each column or, with `over`, 16 bytes, of which those behind are overwritten
 * later. A type takes no parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
 */
#define SQUARE(N, vector, low, high)                                                               \
    static inline void turn_##N(vector *rows) {                                                    \
        vector next[N];                                                                            \
        for (unsigned done = 1; done < (N); done *= 2) {                                           \
            for (unsigned i = 0; i < (N) / 2; i++) {                                               \
                next[2 * i] = low(rows[i], rows[i + (N) / 2]);                                     \
                next[2 * i + 1] = high(rows[i], rows[i + (N) / 2]);                                \
            }                                                                                      \
            for (unsigned i = 0; i < (N); i++)                                                     \
                rows[i] = next[i];                                                                 \
        }                                                                                          \
    }                                                                                              \
    static inline void square_##N(const unsigned char *from, size_t from_step, unsigned char *to,  \
                                  size_t to_step) {                                                \
        vector rows[N];                                                                            \
        for (unsigned i = 0; i < (N); i++)                                                         \
            memcpy(&rows[i], from + i * from_step, 16);                                            \
        turn_##N(rows);                                                                            \
        for (unsigned i = 0; i < (N); i++)                                                         \
            memcpy(to + i * to_step, &rows[i], 16);                                                \
    }                                                                                              \
    static inline void listed_##N(const unsigned char *from, const uint32_t *from_places,          \
                                  unsigned char *to, const uint32_t *to_places) {                  \
        vector rows[N];                                                                            \
        for (unsigned i = 0; i < (N); i++)                                                         \
            memcpy(&rows[i], from + from_places[i], 16);                                           \
        turn_##N(rows);                                                                            \
        for (unsigned i = 0; i < (N); i++)                                                         \
            memcpy(to + to_places[i], &rows[i], 16);                                               \
    }                                                                                              \
    static inline void narrow_##N(const unsigned char *from, const uint32_t *from_places,          \
                                  size_t count, unsigned char *to, const uint32_t *to_places,      \
                                  bool over) {                                                     \
        vector rows[N];                                                                            \
        for (unsigned i = 0; i < (N); i++)                                                         \
            memcpy(&rows[i], from + from_places[i < count ? i : 0], 16);                           \
        turn_##N(rows);                                                                            \
        for (unsigned i = 0; i < (N) && over; i++)                                                 \
            memcpy(to + to_places[i], &rows[i], 16);                                               \
        for (unsigned i = 0; i < (N) && !over; i++)                                                \
            memcpy(to + to_places[i], &rows[i], 16 / (N)*count);                                   \
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

/* Places of elements that follow each other on the other side; of a long axis only a part, which
 * is used again for the next. */
struct list {
    size_t count;
    uint32_t places[MOST_LISTED];
    struct tc_axis split; /* the last axis of the list, of which it covers so many elements */
    size_t taken;
};

enum method {
    GATHER,  /* elements come from a list of places */
    SQUARES, /* rows and columns are exchanged */
    LISTED,  /* the same, where both are listed */
};

/* What is done at each place of the outer axes. */
struct inner {
    size_t element;
    enum method method;
    struct tc_axis row, column;
    struct list rows;    /* places in the source of elements that follow each other in the target */
    struct list columns; /* and the other way round */
};

/* Where the part of a list's last axis begins that follows `done` elements. The last part overlaps
 * the one before it: the same bytes once more. */
static uint64_t part_of(const struct list *list, uint64_t done) {
    return list->split.count - done < list->taken ? list->split.count - list->taken : done;
}

/* Whether 16 bytes may be written for each of the columns from `column` on, of which each has only
 * `width`: columns behind them follow, which are written later. */
static bool runs_over(const struct list *columns, size_t column, size_t side, size_t width) {
    size_t last = column + side - 1 + (16 + width - 1) / width;
    return last < columns->count &&
           columns->places[last] - columns->places[column] == (last - column) * width;
}

/* Fewer rows than a square has. */
static inline __attribute__((always_inline)) void
narrow_of(const struct inner *inner, const unsigned char *from, unsigned char *to, size_t element,
          void (*narrow)(const unsigned char *, const uint32_t *, size_t, unsigned char *,
                         const uint32_t *, bool)) {
    const size_t side = 16 / element, rows = inner->rows.count, columns = inner->columns.count;
    for (size_t done = 0; done < columns; done += side) {
        size_t c = columns - done < side ? columns - side : done;
        bool over = c == done && runs_over(&inner->columns, c, side, rows * element);
        narrow(from + c * element, inner->rows.places, rows, to, inner->columns.places + c, over);
    }
}

/* All squares of listed rows and columns, of which the last overlap those before them. */
static inline __attribute__((always_inline)) void listed_of(
    const struct inner *inner, const unsigned char *from, unsigned char *to, size_t element,
    void (*listed)(const unsigned char *, const uint32_t *, unsigned char *, const uint32_t *)) {
    const size_t side = 16 / element, wide = PANEL_BYTES / element;
    const size_t rows = inner->rows.count, columns = inner->columns.count;
    for (size_t panel = 0; panel < columns; panel += wide)
        for (size_t row = 0; row < rows; row += side) {
            size_t r = rows - row < side ? rows - side : row;
            size_t end = columns - panel < wide ? columns : panel + wide;
            for (size_t column = panel; column < end; column += side) {
                size_t c = columns - column < side ? columns - side : column;
                listed(from + c * element, inner->rows.places + r, to + r * element,
                       inner->columns.places + c);
            }
        }
}

#define LISTED_OF(element, side)                                                                   \
    if (inner->rows.count < (side))                                                                \
        narrow_of(inner, from, to, element, narrow_##side);                                        \
    else                                                                                           \
        listed_of(inner, from, to, element, listed_##side)

static void exchange_listed(const struct inner *inner, const unsigned char *from,
                            unsigned char *to) {
    switch (inner->element) {
    case 1:
        LISTED_OF(1, 16);
        break;
    case 2:
        LISTED_OF(2, 8);
        break;
    case 4:
        LISTED_OF(4, 4);
        break;
    default:
        LISTED_OF(8, 2);
    }
}

static void run_listed(const struct inner *inner, const unsigned char *from, unsigned char *to) {
    const struct list *rows = &inner->rows, *columns = &inner->columns;
    for (uint64_t row = 0; row < rows->split.count; row += rows->taken)
        for (uint64_t column = 0; column < columns->split.count; column += columns->taken) {
            uint64_t r = part_of(rows, row), c = part_of(columns, column);
            exchange_listed(inner, from + r * rows->split.from + c * columns->split.from,
                            to + r * rows->split.to + c * columns->split.to);
        }
}

static void run_inner(const struct inner *inner, const unsigned char *from, unsigned char *to) {
    const struct list *rows = &inner->rows;
    if (inner->method == SQUARES)
        transpose(from, inner->row.from, to, inner->column.to, inner->row.count,
                  inner->column.count, inner->element);
    if (inner->method == LISTED)
        run_listed(inner, from, to);
    for (uint64_t done = 0; inner->method == GATHER && done < rows->split.count;
         done += rows->taken) {
        uint64_t start = part_of(rows, done);
        gather(to + start * rows->split.to, from + start * rows->split.from, rows->places,
               rows->count, inner->element);
    }
}

static void take_axis(struct tc_axis *axes, unsigned *rank, unsigned number) {
    --*rank;
    memmove(&axes[number], &axes[number + 1], (*rank - number) * sizeof *axes);
}

/* Whether elements are of a size that squares are made of. */
static bool fits_squares(size_t element) {
    return element <= 8 && (element & (element - 1)) == 0;
}

/* Takes the two axes that follow each other in memory, on either side, out of the list. With `even`
 * hardly anything may be left over beside the squares. */
static bool take_squares(struct tc_axis *axes, unsigned *rank, struct inner *inner, bool even) {
    /* cppcheck-suppress ctuuninitvar ; the caller has set it */
    size_t element = inner->element;
    if (*rank < 2 || !fits_squares(element))
        return false;
    const struct tc_axis *last = &axes[*rank - 1];
    unsigned column = 0;
    while (column < *rank && axes[column].from != element)
        column++;
    size_t side = 16 / element;
    if (last->to != element || column + 1 >= *rank || last->count < side ||
        axes[column].count < side)
        return false;
    if (even && ((last->count % side && last->count < 8 * side) ||
                 (axes[column].count % side && axes[column].count < 8 * side)))
        return false;
    inner->method = SQUARES;
    inner->row = *last;
    inner->column = axes[column];
    --*rank;
    take_axis(axes, rank, column);
    return true;
}

/* Takes axes that follow each other in the target, as rows, or in the source, as columns, until
 * `wanted` elements are listed. Rows leave the first axis of the columns. */
static void take_list(struct tc_axis *axes, unsigned *rank, size_t element, bool rows,
                      size_t wanted, struct list *list) {
    list->count = 1;
    list->places[0] = 0;
    list->taken = 1;
    list->split = (struct tc_axis){.count = 1};
    while (list->count < wanted && list->taken == list->split.count) {
        unsigned number = 0;
        while (number < *rank &&
               (rows ? axes[number].to : axes[number].from) != list->count * element)
            number++;
        if (number == *rank)
            return;
        const struct tc_axis *axis = &axes[number];
        uint64_t step = rows ? axis->from : axis->to;
        size_t most = MOST_LISTED / list->count;
        size_t count = axis->count <= most ? axis->count : most;
        uint64_t room = UINT32_MAX - list->places[list->count - 1];
        if (count < 2 || step > room / count || (wanted < MOST_LISTED && rows && step == element))
            return;
        for (size_t i = list->count; i < list->count * count; i++)
            list->places[i] = list->places[i - list->count] + (uint32_t)step;
        list->count *= count;
        list->taken = count;
        list->split = *axis;
        take_axis(axes, rank, number);
    }
}

/* Takes rows and columns of several axes each out of the list, where those make up squares. */
static bool take_listed(struct tc_axis *axes, unsigned *rank, struct inner *inner) {
    struct tc_axis left[TC_MAX_RANK];
    unsigned left_rank = *rank;
    if (!fits_squares(inner->element))
        return false;
    memcpy(left, axes, *rank * sizeof *axes);
    take_list(left, &left_rank, inner->element, true, PANEL_ROWS, &inner->rows);
    take_list(left, &left_rank, inner->element, false, 4 * PANEL_BYTES / inner->element,
              &inner->columns);
    if (inner->rows.count < 2 || inner->columns.count < 16 / inner->element)
        return false;
    inner->method = LISTED;
    *rank = left_rank;
    memcpy(axes, left, left_rank * sizeof *axes);
    return true;
}

void tc_permute(struct tc_axis *axes, unsigned rank, unsigned element, const unsigned char *from,
                unsigned char *to) {
    struct inner inner;
    uint64_t at[TC_MAX_RANK] = {0};
    inner.element = element;
    inner.method = GATHER;
    rank = tidy(axes, rank);
    /* Elements that lie together on both sides are moved together. */
    if (rank && axes[rank - 1].to == element && axes[rank - 1].from == element)
        inner.element *= axes[--rank].count;
    if (!take_squares(axes, &rank, &inner, true) && !take_listed(axes, &rank, &inner) &&
        !take_squares(axes, &rank, &inner, false))
        take_list(axes, &rank, inner.element, true, MOST_LISTED, &inner.rows);
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
