/* Running a pickle: from its first opcode to its STOP. */
#ifndef TCONV_FORMATS_PICKLE_RUN_H
#define TCONV_FORMATS_PICKLE_RUN_H

#include <stdbool.h>

#include "formats/pickle/pickle.h"

/* Runs one pickle up to its STOP; pickle->at is then the byte behind it. Several
 * pickles of one machine share a budget and not the memo. */
bool pickle_load(struct pickle *pickle, struct pickle_node **result);

#endif
