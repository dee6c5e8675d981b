#include "core/tensor/cast_table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor/cast_number.h"

/* With constant sizes the compiler makes each element one load and one store. */
static inline void look_up_sized(const unsigned char *source, size_t in, const unsigned char *table,
                                 size_t out, unsigned char *target, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t value = in == 1 ? source[i] : source[2 * i] | (size_t)source[2 * i + 1] << 8;
        memcpy(target + i * out, table + value * out, out);
    }
}

void tc_look_up(const unsigned char *source, size_t in, const unsigned char *table, size_t out,
                unsigned char *target, size_t count) {
    switch (out) {
    case 1:
        look_up_sized(source, in, table, 1, target, count);
        break;
    case 2:
        look_up_sized(source, in, table, 2, target, count);
        break;
    case 4:
        look_up_sized(source, in, table, 4, target, count);
        break;
    case 8:
        look_up_sized(source, in, table, 8, target, count);
        break;
    default:
        look_up_sized(source, in, table, 16, target, count);
    }
}

/* What a value loses. */
struct loss {
    double abs;
    double rel;
    uint8_t overflow, underflow, nan_made, inexact; /* how often: a complex number has two parts */
};

/* From 8 and 16 bits: the result of each possible value; and from 8 bits what each loses. They are
 * made when they are first needed, and stay as they are until the program ends. */
static _Atomic(unsigned char *) results[TC_DTYPES][TC_DTYPES];
static _Atomic(struct loss *) losses[TC_DTYPES][TC_DTYPES];

static size_t values_of(enum tc_dtype dtype) {
    return (size_t)1 << tc_dtype_bits(dtype);
}

/* NULL without memory. */
const unsigned char *tc_cast_results(enum tc_dtype from, enum tc_dtype to) {
    unsigned char *known = atomic_load(&results[from][to]);
    size_t out = tc_dtype_bits(to) / 8;
    size_t count = values_of(from);
    unsigned char *made = known ? NULL : malloc(count * out);
    if (!made)
        return known;
    for (size_t value = 0; value < count; value++)
        tc_cast_singly(from, to, (const unsigned char *)&value, made + value * out, 1, NULL);
    /* Another thread may have been quicker. */
    if (atomic_compare_exchange_strong(&results[from][to], &known, made))
        return made;
    free(made);
    return known;
}

static const struct loss *losses_of(enum tc_dtype from, enum tc_dtype to) {
    struct loss *known = atomic_load(&losses[from][to]);
    size_t count = values_of(from);
    struct loss *made = known ? NULL : malloc(count * sizeof *made);
    if (!made)
        return known;
    for (size_t value = 0; value < count; value++) {
        struct tc_cast_report one = {0};
        unsigned char ignored[16];
        tc_cast_singly(from, to, (const unsigned char *)&value, ignored, 1, &one);
        made[value] = (struct loss){one.max_abs,           one.max_rel,
                                    (uint8_t)one.overflow, (uint8_t)one.underflow,
                                    (uint8_t)one.nan_made, (uint8_t)one.inexact};
    }
    if (atomic_compare_exchange_strong(&losses[from][to], &known, made))
        return made;
    free(made);
    return known;
}

static void add_loss(const struct loss *loss, uint64_t times, struct tc_cast_report *report) {
    report->overflow += loss->overflow * times;
    report->underflow += loss->underflow * times;
    report->nan_made += loss->nan_made * times;
    report->inexact += loss->inexact * times;
    report->max_abs = loss->abs > report->max_abs ? loss->abs : report->max_abs;
    report->max_rel = loss->rel > report->max_rel ? loss->rel : report->max_rel;
}

/* Adds what bytes lose, by how often each value occurs: in four lists, since a value may follow
 * itself. */
static void add_losses(const struct loss *loss, const unsigned char *source, size_t count,
                       struct tc_cast_report *report) {
    uint64_t seen[4][256] = {0};
    for (size_t i = 0; i < count; i++)
        seen[i % 4][source[i]]++;
    for (size_t value = 0; value < 256; value++) {
        uint64_t times = seen[0][value] + seen[1][value] + seen[2][value] + seen[3][value];
        if (times)
            add_loss(&loss[value], times, report);
    }
}

bool tc_cast_table_pays(enum tc_dtype from, enum tc_dtype to, size_t count) {
    return atomic_load(&results[from][to]) || count >> (tc_dtype_bits(from) - 6);
}

bool tc_cast_by_table(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                      unsigned char *target, size_t count, struct tc_cast_report *report) {
    const unsigned char *table = tc_cast_results(from, to);
    const struct loss *loss = table && report ? losses_of(from, to) : NULL;
    if (!table || (report && !loss))
        return false;
    tc_look_up(source, tc_dtype_bits(from) / 8, table, tc_dtype_bits(to) / 8, target, count);
    if (report)
        add_losses(loss, source, count, report);
    return true;
}
