/*
 * Cleans up what a killed process has left: temporary names, and publications that
 * were under way. The next run to the same output does so.
 */
#ifndef TCONV_CORE_IO_RECOVER_H
#define TCONV_CORE_IO_RECOVER_H

#include <stdbool.h>

/* Looks through the folder for leftovers of an output of this name, puts the old
 * files back, and removes the leftovers; those of running processes and of other
 * users stay. Failing to do so is not an error. */
void tc_recover(int folder, const char *name, bool sync);
/* The same for outputs of any name. */
void tc_recover_all(int folder, bool sync);

#endif
