#include "core/inspect/stats_fast.h"

#include <math.h>
#include <string.h>

#include "core/tensor/vector.h"

/* Four values at a time, however wide the machine's own vectors are. */
typedef double doubles __attribute__((vector_size(32)));
typedef int64_t words __attribute__((vector_size(32)));
#define LANES 4
#define GROUPS 2 /* vectors in flight, so that an addition need not wait for the last one */

static float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double as_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define TABLE(set)                                                                                 \
    {                                                                                              \
        .cpu = #set, .scan_f32 = scan_f32_##set, .scan_f64 = scan_f64_##set,                       \
        .sum_f32 = sum_f32_##set, .sum_integers = sum_integers_##set                               \
    }

#define NAME(x) x##_plain
#include "core/inspect/stats_fast.inc"
#undef NAME
const struct tc_stats_table tc_stats_plain = TABLE(plain);

#if defined(__x86_64__)
TC_AVX2_BEGIN
#define NAME(x) x##_avx2
#include "core/inspect/stats_fast.inc"
#undef NAME
TC_AVX2_END
const struct tc_stats_table tc_stats_avx2 = TABLE(avx2);
#endif
