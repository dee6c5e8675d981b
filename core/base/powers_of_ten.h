/* The first 128 bits of each power of ten, rounded up: high half, low half. The
 * highest bit is set. powers_of_ten.py writes the table when the program is built. */
#ifndef TCONV_CORE_BASE_POWERS_OF_TEN_H
#define TCONV_CORE_BASE_POWERS_OF_TEN_H

#include <stdint.h>

#define TC_LEAST_POWER (-292)
#define TC_MOST_POWER 324

extern const uint64_t tc_powers_of_ten[TC_MOST_POWER - TC_LEAST_POWER + 1][2];

#endif
