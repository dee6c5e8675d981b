/* Writes random weights to stdout: for each line `DTYPE COUNT` on stdin, COUNT values of F32 or
 * BF16, normally distributed about 0 with a deviation of 0.02, as trained weights are. What matters
 * to a benchmark is their entropy: all mantissa bits are random, the exponents few. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TABLE = 1 << 16, BLOCK = 1 << 16 };

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717u;
}

/* Deviates of the normal distribution, by Box and Muller. */
static void fill_table(float *table) {
    for (int i = 0; i < TABLE; i++) {
        double u = ((double)(next_random() >> 11) + 1) / 9007199254740993.0;
        double v = (double)(next_random() >> 11) / 9007199254740992.0;
        table[i] = (float)(0.02 * sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v));
    }
}

int main(void) {
    static float table[TABLE];
    static uint32_t block32[BLOCK];
    static uint16_t block16[BLOCK];
    char dtype[8];
    unsigned long long count;

    fill_table(table);
    while (scanf("%7s %llu", dtype, &count) == 2) {
        int wide = strcmp(dtype, "F32") == 0;
        while (count > 0) {
            size_t n = count < BLOCK ? (size_t)count : BLOCK;
            for (size_t i = 0; i < n; i++) {
                uint64_t random = next_random();
                /* A table entry times 1 to 1.25, so that there are more values than entries. */
                float value = table[random >> 48] * (1 + (float)(random & 0xffffff) * 0x1p-26f);
                uint32_t bits;
                memcpy(&bits, &value, sizeof bits);
                block32[i] = bits;
                block16[i] = (uint16_t)(bits >> 16);
            }
            if (fwrite(wide ? (void *)block32 : (void *)block16, wide ? 4 : 2, n, stdout) != n)
                return 1;
            count -= n;
        }
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
