
/* Smallest and largest power of two that a float has, subnormals included. */
#include "core/tensor/cast.h"
#include "core/tensor/cast_number.h"
#include "core/tensor/dtype.h"

static int lowest(const struct tc_layout *layout) {
    return layout->family == TC_FAMILY_POWER ? -127 : 1 - layout->bias - (int)layout->mantissa;
}

static int highest(const struct tc_layout *layout) {
    int top = (1 << layout->exponent) - 1 - layout->bias;
    return layout->family == TC_FAMILY_IEEE || layout->family == TC_FAMILY_POWER ? top - 1 : top;
}

static bool is_float(const struct tc_layout *layout) {
    return layout->family != TC_FAMILY_INTEGER && layout->family != TC_FAMILY_TRUTH;
}

/* Whether a float's significand and range hold every value of an integer dtype. */
static bool integer_fits(const struct tc_layout *in, const struct tc_layout *out) {
    if (out->family == TC_FAMILY_POWER)
        return false; /* it has no zero */
    /* The most negative value is a power of two, which one bit holds. */
    int bits = in->mantissa;
    return bits <= out->mantissa + 1 && bits - 1 + (in->exponent ? 1 : 0) <= highest(out) &&
           lowest(out) <= 0;
}

static bool float_fits(const struct tc_layout *in, const struct tc_layout *out) {
    bool in_zero = in->family != TC_FAMILY_POWER;
    if (out->family == TC_FAMILY_POWER)
        return in->family == TC_FAMILY_POWER;
    if (lowest(out) > lowest(in) || highest(out) < highest(in) || out->mantissa < in->mantissa)
        return false;
    /* E4M3 has NaN in place of its largest value. */
    if (out->family == TC_FAMILY_FINITE_ONLY && in->family != TC_FAMILY_FINITE_ONLY &&
        highest(in) == highest(out))
        return false;
    bool in_infinite = in->family == TC_FAMILY_IEEE;
    bool in_negative_zero = in_zero && in->family != TC_FAMILY_UNSIGNED_ZERO;
    return !(in_infinite && out->family != TC_FAMILY_IEEE) &&
           !(in_negative_zero && out->family == TC_FAMILY_UNSIGNED_ZERO);
}

bool tc_cast_exists(enum tc_dtype from, enum tc_dtype to) {
    return (tc_layouts[from].bytes || tc_dtype_is_block(from)) && tc_layouts[to].bytes;
}

bool tc_cast_lossless(enum tc_dtype from, enum tc_dtype to) {
    const struct tc_layout *in = &tc_layouts[from];
    const struct tc_layout *out = &tc_layouts[to];
    if (from == to)
        return true;
    if (tc_dtype_is_block(from))
        return tc_cast_lossless(TC_F32, to);
    if (!tc_cast_exists(from, to) || in->components > out->components)
        return false;
    if (in->family == TC_FAMILY_TRUTH)
        return out->family != TC_FAMILY_POWER;
    if (out->family == TC_FAMILY_TRUTH)
        return false;
    if (in->family == TC_FAMILY_INTEGER && out->family == TC_FAMILY_INTEGER)
        return in->mantissa <= out->mantissa && in->exponent <= out->exponent;
    if (in->family == TC_FAMILY_INTEGER)
        return integer_fits(in, out);
    return is_float(out) && float_fits(in, out);
}
