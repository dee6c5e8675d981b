#include "core/tensor/cpu.h"

#include <stdatomic.h>
#include <string.h>

enum cpu { UNKNOWN, PLAIN, AVX2 };

static _Atomic(enum cpu) chosen;

static bool cpu_has_avx2(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}

bool tc_cpu_use(const char *cpu) {
    bool avx2 = strcmp(cpu, "avx2") == 0;
    if (avx2 ? !cpu_has_avx2() : strcmp(cpu, "plain") != 0)
        return false;
    atomic_store(&chosen, avx2 ? AVX2 : PLAIN);
    return true;
}

bool tc_cpu_avx2(void) {
    enum cpu cpu = atomic_load(&chosen);
    if (cpu == UNKNOWN) {
        cpu = cpu_has_avx2() ? AVX2 : PLAIN;
        atomic_store(&chosen, cpu);
    }
    return cpu == AVX2;
}

const char *tc_cpu_name(void) {
    return tc_cpu_avx2() ? "avx2" : "plain";
}
