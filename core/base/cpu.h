/*
 * Which instructions the loops that are compiled several times (core/tensor/vector.h) use: "avx2",
 * or "plain", which runs on any CPU. It is chosen once by what the CPU has; tests and TCONV_CPU may
 * force one. Any thread may ask.
 */
#ifndef TCONV_CORE_BASE_CPU_H
#define TCONV_CORE_BASE_CPU_H

#include <stdbool.h>

const char *tc_cpu_name(void);
/* Whether that is "avx2". */
bool tc_cpu_avx2(void);
/* Whether that is "avx2" and the CPU has instructions for SHA-256, too. */
bool tc_cpu_sha(void);
/* After a library's code that uses wide vectors and leaves something in their upper parts, as
 * ISA-L's CRCs with AVX-512 do: instructions for narrow ones keep that, and take up to three times
 * as long.
 */
void tc_cpu_clear_vectors(void);
/* Forces a set; false where the CPU does not have it. */
bool tc_cpu_use(const char *cpu);

#endif
