#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/near.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"

static struct tc_text nearest(const char *wanted, const char *const *names, size_t count) {
    struct tc_near near;
    tc_near_init(&near, tc_text_of(wanted));
    for (size_t i = 0; i < count; i++)
        tc_near_try(&near, tc_text_of(names[i]));
    return near.best;
}

Test(near, one_or_two_slips_are_forgiven) {
    static const char *const names[] = {"convert", "append", "info", "list", "hash", "verify"};
    size_t count = sizeof names / sizeof *names;
    static const char *const slips[][2] = {
        {"inof", "info"},     {"infos", "info"},     {"nfo", "info"},       {"INFO", "info"},
        {"verfiy", "verify"}, {"convrt", "convert"}, {"appendd", "append"}, {"hsah", "hash"},
    };
    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
        struct tc_text best = nearest(slips[i][0], names, count);
        cr_assert(best.bytes && tc_text_equal(best, tc_text_of(slips[i][1])), "%s", slips[i][0]);
    }
    cr_assert_null(nearest("model", names, count).bytes);
    cr_assert_null(nearest("x", names, count).bytes);
    cr_assert_null(nearest("", names, count).bytes);
}

/* The edit distance by its recursive definition: slow but simple. */
static unsigned distance(const char *a, const char *b) {
    if (!*a || !*b)
        return (unsigned)(strlen(a) + strlen(b));
    unsigned best = distance(a + 1, b + 1) + (*a != *b);
    unsigned other = distance(a + 1, b) + 1;
    best = other < best ? other : best;
    other = distance(a, b + 1) + 1;
    best = other < best ? other : best;
    if (a[1] && b[1] && a[0] == b[1] && a[1] == b[0]) {
        other = distance(a + 2, b + 2) + 1;
        best = other < best ? other : best;
    }
    return best;
}

Test(near, distances_are_those_of_the_plain_recursion) {
    srand(7);
    for (int round = 0; round < 4000; round++) {
        char a[8] = {0};
        char b[8] = {0};
        size_t length = 3 + (size_t)rand() % 4;
        for (size_t i = 0; i < length; i++)
            a[i] = (char)('a' + rand() % 3);
        size_t other = 1 + (size_t)rand() % 7;
        for (size_t i = 0; i < other; i++)
            b[i] = (char)('a' + rand() % 3);
        struct tc_near near;
        tc_near_init(&near, tc_text_of(a));
        unsigned limit = near.distance;
        tc_near_try(&near, tc_text_of(b));
        unsigned real = distance(a, b);
        if (near.best.bytes)
            cr_assert_eq(near.distance, real, "%s %s: %u, not %u", a, b, near.distance, real);
        else
            cr_assert(real >= limit || real >= length || real >= other, "%s %s: %u", a, b, real);
    }
}

Test(near, a_table_of_millions_costs_no_more_than_its_budget) {
    char name[256];
    memset(name, 'a', sizeof name);
    char wanted[256];
    memset(wanted, 'b', sizeof wanted);
    struct tc_near near;
    tc_near_init(&near, (struct tc_text){wanted, sizeof wanted});
    for (int i = 0; i < 4000000; i++)
        tc_near_try(&near, (struct tc_text){name, sizeof name});
    cr_assert_null(near.best.bytes);
    cr_assert_lt(near.steps, UINT64_C(1) << 17);
}

Test(near, dtypes_by_every_usual_name) {
    static const struct {
        const char *name;
        enum tc_dtype dtype;
    } names[] = {
        {"bf16", TC_BF16},
        {"BFloat16", TC_BF16},
        {"bfloat16", TC_BF16},
        {"float16", TC_F16},
        {"fp16", TC_F16},
        {"half", TC_F16},
        {"Half", TC_F16},
        {"f32", TC_F32},
        {"float", TC_F32},
        {"torch.float32", TC_F32},
        {"np.float32", TC_F32},
        {"DT_FLOAT", TC_F32},
        {"TensorProto.FLOAT", TC_F32},
        {"double", TC_F64},
        {"fp8_e4m3fn", TC_F8_E4M3},
        {"fp8_e4m3", TC_F8_E4M3},
        {"torch.float8_e4m3fn", TC_F8_E4M3},
        {"F8-E4M3", TC_F8_E4M3},
        {"float8_e5m2", TC_F8_E5M2},
        {"float8_e4m3fnuz", TC_F8_E4M3FNUZ},
        {"float8_e8m0fnu", TC_F8_E8M0},
        {"int8", TC_I8},
        {"uint8", TC_U8},
        {"byte", TC_U8},
        {"long", TC_I64},
        {"int", TC_I32},
        {"bool", TC_BOOL},
        {"Boolean", TC_BOOL},
        {"bool_", TC_BOOL},
        {"complex64", TC_C64},
        {"torch.chalf", TC_C32},
        {"uint4", TC_U4},
        {"f4", TC_F4},
        {"bflot16", TC_NONE},
        {"string", TC_NONE},
        {"x.float32", TC_NONE},
        {"", TC_NONE},
        {"torch.", TC_NONE},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert_eq(tc_dtype_named(tc_text_of(names[i].name)), names[i].dtype, "%s",
                     names[i].name);
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++)
        cr_assert_eq(tc_dtype_named(tc_text_of(tc_dtype_name(dtype))), dtype);
    /* In files only the canonical name counts. */
    cr_assert_eq(tc_dtype_find(TC_TEXT("float32")), TC_NONE);
}
