/* Running a pickle: from its first opcode to its STOP. */
#ifndef TCONV_FORMATS_PICKLE_RUN_H
#define TCONV_FORMATS_PICKLE_RUN_H

#include <stdbool.h>

#include "formats/pickle/pickle.h"

/* Runs one pickle up to its STOP; `at` then stands behind it. Budgets go on
 * over all pickles of one machine, the memo does not. */
bool pickle_load(struct pickle *pickle, struct pickle_node **result);

#endif
