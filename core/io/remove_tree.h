/* Removes all that is in a folder. */
#ifndef TCONV_CORE_IO_REMOVE_TREE_H
#define TCONV_CORE_IO_REMOVE_TREE_H

#include <stdbool.h>

/* Empties the folder `name` of `parent`, and removes it. Links are removed and never
 * followed. It stops at the first thing that can't be removed and returns false;
 * true where there is no such folder. */
bool tc_remove_tree(int parent, const char *name);

#endif
