/*
 * What a killed process has left: temporary names, and publications that were
 * under way. The next run to the same output tidies up.
 */
#ifndef TCONV_CORE_IO_RECOVER_H
#define TCONV_CORE_IO_RECOVER_H

#include <stdbool.h>

/* Looks through the folder for leftovers of an output of this name, puts back
 * what they took away, and removes them; those of processes that live, and of
 * other users, stay. It is no error where this can't be done. */
void tc_recover(int folder, const char *name, bool sync);

#endif
