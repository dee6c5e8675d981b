/*
 * How much of the machine the control group of this process may use (cgroups of version 1 and 2).
 */
#ifndef TCONV_CORE_IO_CGROUP_H
#define TCONV_CORE_IO_CGROUP_H

#include <stddef.h>

/* The cores that the quota allows, rounded up; 0: there is no quota, or there is no telling.
 * `root` stands before /proc and /sys, and is "" except in tests. */
size_t tc_cgroup_cores(const char *root);

#endif
