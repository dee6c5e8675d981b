/*
 * Included before every file. Functions that cannot be used safely are banned
 * at compile time, and memory comes from core/base/memory.h, which holds it to
 * the command's budget.
 */
#ifndef TCONV_CORE_BASE_BANNED_H
#define TCONV_CORE_BASE_BANNED_H

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"

#ifndef TCONV_ALLOW_BANNED
#undef alloca
#pragma GCC poison strcpy strcat sprintf vsprintf gets alloca
#undef strdup
#undef strndup
#define malloc tc_memory_malloc
#define calloc tc_memory_calloc
#define realloc tc_memory_realloc
#define reallocarray tc_memory_reallocarray
#define aligned_alloc tc_memory_aligned
#define strdup tc_memory_strdup
#define strndup tc_memory_strndup
#define asprintf tc_memory_asprintf
#define scandir tc_memory_scandir
#define realpath tc_memory_realpath
#define free tc_memory_free
/* These would take memory that the budget does not count. */
#pragma GCC poison valloc memalign posix_memalign vasprintf open_memstream getline getdelim
#endif

#endif
