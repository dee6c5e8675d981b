#include "cmd/array.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/number.h"
#include "core/base/checked.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"

#define LINE_WIDTH 75
#define PLACES 8
#define EMIT_AFTER ((size_t)1 << 20)

/* How a column of floats is laid out: decided by all of them. */
struct layout {
    enum tc_precision precision;
    bool plus;       /* a sign in front of positive ones too */
    bool scientific; /* d.ddde±xx */
    int before;      /* characters before the point, the sign included */
    int behind;      /* and behind it; of scientific ones the digits alone */
    int exponent;    /* digits of the exponent */
};

struct printer {
    const struct array *array;
    struct layout real, imaginary;
    int digits; /* width of integers */
    void (*emit)(struct tc_buffer *text);
    struct tc_buffer *text;
    struct tc_buffer word;
};

static double narrowed(double value, enum tc_precision precision) {
    float single = (float)value;
    uint16_t half;
    if (precision == TC_PRECISION_F64)
        return value;
    if (precision == TC_PRECISION_F16) {
        tc_cast(TC_F32, TC_F16, &single, &half, 1, NULL);
        tc_cast(TC_F16, TC_F32, &half, &single, 1, NULL);
    }
    return (double)single;
}

/* numpy compares in the elements' own precision, so that limits are rounded too. */
static bool wants_exponents(const double *values, size_t count, enum tc_precision precision) {
    static const double most[] = {
        [TC_PRECISION_F16] = 1e3, [TC_PRECISION_F32] = 1e6, [TC_PRECISION_F64] = 1e8};
    double largest = 0, smallest = INFINITY;
    for (size_t i = 0; i < count; i++) {
        double size = fabs(values[i]);
        if (!isfinite(size) || size == 0)
            continue;
        largest = size > largest ? size : largest;
        smallest = size < smallest ? size : smallest;
    }
    if (largest == 0)
        return false;
    return largest >= most[precision] || smallest < narrowed(0.0001, precision) ||
           narrowed(largest / smallest, precision) > 1000;
}

static void widen(int *width, int at_least) {
    *width = *width > at_least ? *width : at_least;
}

/* What one finite value needs. */
static void make_room(struct layout *layout, double value) {
    struct tc_digits digits;
    number_cut(&digits, value, layout->precision, PLACES, layout->scientific);
    int sign = digits.negative || layout->plus;
    if (layout->scientific) {
        widen(&layout->before, sign + 1);
        widen(&layout->behind, digits.count - 1);
        widen(&layout->exponent, abs(digits.exponent) >= 100 ? 3 : 2);
    } else {
        widen(&layout->before, sign + (digits.exponent > 0 ? digits.exponent + 1 : 1));
        widen(&layout->behind, digits.count - 1 - digits.exponent);
    }
}

/* Characters behind the point, the exponent included. */
static int tail(const struct layout *layout) {
    return layout->behind + (layout->scientific ? layout->exponent + 2 : 0);
}

static struct layout lay_out(const double *values, size_t count, enum tc_precision precision,
                             bool plus) {
    struct layout layout = {.precision = precision, .plus = plus};
    bool special = false, negative = plus;
    layout.scientific = wants_exponents(values, count, precision);
    for (size_t i = 0; i < count; i++) {
        if (isfinite(values[i]))
            make_room(&layout, values[i]);
        special |= !isfinite(values[i]);
        negative |= isinf(values[i]) && values[i] < 0;
    }
    if (special)
        widen(&layout.before, 3 + negative - tail(&layout) - 1);
    return layout;
}

/* All have as many digits as the longest needs: where fewer would do, those of
 * the exact value follow. */
static void add_scientific(struct tc_buffer *word, const struct layout *layout, double value,
                           struct tc_digits digits) {
    if (digits.count - 1 < layout->behind)
        number_round(&digits, value, layout->behind);
    tc_buffer_addf(word, "%c.%.*se%c%0*d", digits.digit[0], layout->behind, digits.digit + 1,
                   digits.exponent < 0 ? '-' : '+', layout->exponent, abs(digits.exponent));
}

/* Places that the digits do not reach hold zeros. */
static void add_digit(struct tc_buffer *word, const struct tc_digits *digits, int at) {
    tc_buffer_add(word, at >= 0 && at < digits->count ? &digits->digit[at] : "0", 1);
}

static void add_positional(struct tc_buffer *word, const struct layout *layout,
                           const struct tc_digits *digits) {
    int point = digits->exponent + 1, behind = 0;
    for (int i = point > 0 ? 0 : -1; i < (point > 0 ? point : 0); i++)
        add_digit(word, digits, i);
    tc_buffer_add_string(word, ".");
    for (int i = point; i < digits->count; i++, behind++)
        add_digit(word, digits, i);
    for (; behind < layout->behind; behind++)
        tc_buffer_add_string(word, " ");
}

static void add_float(struct tc_buffer *word, const struct layout *layout, double value) {
    struct tc_digits digits;
    if (!isfinite(value)) {
        const char *name = isnan(value) ? "nan" : "inf";
        const char *sign = isinf(value) && value < 0 ? "-" : layout->plus ? "+" : "";
        int room = layout->before + tail(layout) + 1 - 3 - (int)strlen(sign);
        tc_buffer_addf(word, "%*s%s%s", room, "", sign, name);
        return;
    }
    number_cut(&digits, value, layout->precision, PLACES, layout->scientific);
    int whole = layout->scientific || digits.exponent < 0 ? 1 : digits.exponent + 1;
    const char *sign = digits.negative ? "-" : layout->plus ? "+" : "";
    tc_buffer_addf(word, "%*s%s", layout->before - whole - (int)strlen(sign), "", sign);
    if (layout->scientific)
        add_scientific(word, layout, value, digits);
    else
        add_positional(word, layout, &digits);
}

/* The j stands before the spaces that fill the column. */
static void add_imaginary(struct tc_buffer *word, const struct layout *layout, double value) {
    add_float(word, layout, value);
    size_t end = word->length;
    while (end && word->bytes[end - 1] == ' ')
        end--;
    tc_buffer_add_string(word, " ");
    if (word->failed)
        return;
    memmove(word->bytes + end + 1, word->bytes + end, word->length - end - 1);
    word->bytes[end] = 'j';
}

static int print_integer(char *text, size_t size, uint64_t bits, bool is_signed) {
    return is_signed ? snprintf(text, size, "%" PRId64, (int64_t)bits)
                     : snprintf(text, size, "%" PRIu64, bits);
}

static void add_word(struct printer *printer, size_t at) {
    const struct array *array = printer->array;
    struct tc_buffer *word = &printer->word;
    char text[24];
    word->length = 0;
    switch (array->kind) {
    case ARRAY_TRUTH:
        tc_buffer_add_string(word, array->integers[at] ? " True" : "False");
        break;
    case ARRAY_INTEGER:
        print_integer(text, sizeof text, array->integers[at], array->is_signed);
        tc_buffer_addf(word, "%*s", printer->digits, text);
        break;
    case ARRAY_REAL:
        add_float(word, &printer->real, array->reals[at]);
        break;
    case ARRAY_COMPLEX:
        add_float(word, &printer->real, array->reals[at]);
        add_imaginary(word, &printer->imaginary, array->imaginaries[at]);
    }
}

/* A row: words as they fit the line, the next lines below the first word. */
static void add_row(struct printer *printer, size_t first) {
    const struct array *array = printer->array;
    struct tc_buffer *text = printer->text;
    unsigned axis = array->rank - 1;
    size_t width = LINE_WIDTH - 1 > axis ? LINE_WIDTH - 1 - axis : 0;
    size_t indent = array->rank, used = indent;
    bool cut = array->kept[axis] < array->shape[axis];
    for (size_t i = 0; i < array->kept[axis] + cut; i++) {
        size_t at = cut && i > ARRAY_EDGE ? i - 1 : i;
        if (cut && i == ARRAY_EDGE) {
            printer->word.length = 0;
            tc_buffer_add_string(&printer->word, "...");
        } else {
            add_word(printer, first + at);
        }
        if (used + printer->word.length > width && used > indent) {
            while (text->length && text->bytes[text->length - 1] == ' ')
                text->length--;
            if (text->length > EMIT_AFTER)
                printer->emit(text);
            tc_buffer_addf(text, "\n%*s", (int)indent, "");
            used = indent;
        }
        tc_buffer_add(text, printer->word.bytes, printer->word.length);
        used += printer->word.length + 1;
        tc_buffer_add_string(text, i + 1 < array->kept[axis] + cut ? " " : "");
    }
}

/* All axes but the last, as an odometer: brackets open and close where an
 * axis begins and ends. */
static void add_axes(struct printer *printer) {
    const struct array *array = printer->array;
    uint64_t item[TC_MAX_RANK] = {0};
    unsigned last = array->rank - 1, axis = 0;
    size_t at = 0;
    tc_buffer_add_string(printer->text, "[");
    for (;;) {
        bool cut = array->kept[axis] < array->shape[axis];
        if (axis == last) {
            add_row(printer, at);
            at += array->kept[last];
        }
        if (axis == last || item[axis] == array->kept[axis] + cut) {
            tc_buffer_add_string(printer->text, "]");
            if (printer->text->length > EMIT_AFTER)
                printer->emit(printer->text);
            if (axis == 0)
                break;
            item[--axis]++;
            continue;
        }
        if (item[axis] > 0) {
            for (unsigned i = axis; i < last; i++)
                tc_buffer_add_string(printer->text, "\n");
            tc_buffer_addf(printer->text, "%*s", (int)axis + 1, "");
        }
        if (cut && item[axis] == ARRAY_EDGE) {
            tc_buffer_add_string(printer->text, "...");
            item[axis]++;
        } else {
            item[++axis] = 0;
            tc_buffer_add_string(printer->text, "[");
        }
    }
}

/* Python's complex numbers have no ".0", and no real part where it is +0. */
static void add_part(struct tc_buffer *text, double value, enum tc_precision precision) {
    size_t start = text->length;
    tc_buffer_add_repr(text, value, precision);
    if (text->length - start > 2 && memcmp(text->bytes + text->length - 2, ".0", 2) == 0)
        text->length -= 2;
}

/* Of rank 0: as a scalar, whose digits are not cut. */
static void add_scalar(const struct array *array, struct tc_buffer *text) {
    char digits[24];
    switch (array->kind) {
    case ARRAY_TRUTH:
        tc_buffer_add_string(text, array->integers[0] ? "True" : "False");
        break;
    case ARRAY_INTEGER:
        print_integer(digits, sizeof digits, array->integers[0], array->is_signed);
        tc_buffer_add_string(text, digits);
        break;
    case ARRAY_REAL:
        tc_buffer_add_repr(text, array->reals[0], array->precision);
        break;
    case ARRAY_COMPLEX: {
        double real = array->reals[0], imaginary = array->imaginaries[0];
        bool alone = real == 0 && !signbit(real);
        if (!alone) {
            tc_buffer_add_string(text, "(");
            add_part(text, real, array->precision);
            tc_buffer_add_string(text, isnan(imaginary) || !signbit(imaginary) ? "+" : "");
        }
        add_part(text, imaginary, array->precision);
        tc_buffer_add_string(text, alone ? "j" : "j)");
    }
    }
}

bool array_plan(struct array *array, bool all) {
    uint64_t count = 1;
    bool empty = false;
    for (unsigned i = 0; i < array->rank; i++) {
        empty |= array->shape[i] == 0;
        if (!tc_mul(count, array->shape[i] ? array->shape[i] : 1, &count))
            return false;
    }
    array->summarised = !all && !empty && count > ARRAY_THRESHOLD;
    count = empty ? 0 : 1;
    for (unsigned i = 0; i < array->rank; i++) {
        bool cut = array->summarised && array->shape[i] > 2 * ARRAY_EDGE;
        array->kept[i] = cut ? 2 * ARRAY_EDGE : array->shape[i];
        count *= array->kept[i];
    }
    array->count = count;
    return true;
}

void array_print(const struct array *array, void (*emit)(struct tc_buffer *text),
                 struct tc_buffer *text) {
    struct printer printer = {.array = array, .emit = emit, .text = text};
    char digits[24];
    for (size_t i = 0; i < array->count && array->kind == ARRAY_INTEGER; i++)
        widen(&printer.digits,
              print_integer(digits, sizeof digits, array->integers[i], array->is_signed));
    if (array->kind >= ARRAY_REAL)
        printer.real = lay_out(array->reals, array->count, array->precision, false);
    if (array->kind == ARRAY_COMPLEX)
        printer.imaginary = lay_out(array->imaginaries, array->count, array->precision, true);
    if (array->rank == 0)
        add_scalar(array, text);
    else if (array->count == 0)
        tc_buffer_add_string(text, "[]");
    else
        add_axes(&printer);
    tc_buffer_add_string(text, "\n");
    text->failed |= printer.word.failed;
    tc_buffer_release(&printer.word);
}
