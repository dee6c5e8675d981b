#include "core/base/cpu.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum cpu { UNKNOWN, PLAIN, AVX2, AVX2_SHA };

static _Atomic(enum cpu) chosen;

static enum cpu best_cpu(void) {
#if defined(__x86_64__)
    unsigned a;
    unsigned b;
    unsigned c;
    unsigned d;
    if (!__builtin_cpu_supports("avx2"))
        return PLAIN;
    /* Not every compiler's __builtin_cpu_supports knows "sha". */
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & bit_SHA ? AVX2_SHA : AVX2;
#else
    return PLAIN;
#endif
}

#if defined(__x86_64__)
__attribute__((target("avx"))) static void clear_upper_parts(void) {
    __builtin_ia32_vzeroupper();
}
#endif

void tc_cpu_clear_vectors(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx"))
        clear_upper_parts();
#endif
}

bool tc_cpu_use(const char *cpu) {
    enum cpu best = strcmp(cpu, "avx2") == 0 ? best_cpu() : PLAIN;
    if (best == PLAIN && strcmp(cpu, "plain") != 0)
        return false;
    atomic_store(&chosen, best);
    return true;
}

static enum cpu present_cpu(void) {
    enum cpu cpu = atomic_load(&chosen);
    if (cpu == UNKNOWN) {
        cpu = best_cpu();
        atomic_store(&chosen, cpu);
    }
    return cpu;
}

bool tc_cpu_avx2(void) {
    return present_cpu() >= AVX2;
}

bool tc_cpu_sha(void) {
    return present_cpu() == AVX2_SHA;
}

const char *tc_cpu_name(void) {
    return tc_cpu_avx2() ? "avx2" : "plain";
}
