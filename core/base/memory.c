#include "core/base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This is the only file that calls the system's own functions. */
#undef malloc
#undef calloc
#undef realloc
#undef aligned_alloc
#undef free
#undef realpath
#undef scandir

/* A process runs one command, so the budget is the process's, as its heap is.
 * The counters are atomic, since several threads take memory. */
static _Atomic uint64_t used;
static _Atomic uint64_t peak;
static _Atomic uint64_t limit; /* 0: none */
static _Atomic uint64_t earned;
static _Atomic uint64_t opened;
static atomic_bool follows;
static atomic_bool refused;
static atomic_bool lacked;
static atomic_bool settled;

void tc_memory_limit(uint64_t bytes) {
    follows = false;
    limit = bytes == 0                               ? 0
            : bytes > UINT64_MAX - TC_MEMORY_BUFFERS ? UINT64_MAX
                                                     : bytes + TC_MEMORY_BUFFERS;
}

/* Adds without wrapping around. */
static void add_up(_Atomic uint64_t *sum, uint64_t bytes) {
    uint64_t before = *sum;
    while (!atomic_compare_exchange_weak(sum, &before,
                                         before > UINT64_MAX - bytes ? UINT64_MAX : before + bytes))
        ;
}

static void set_limit_by_files(void) {
    const uint64_t enough = (TC_MEMORY_MOST + TC_MEMORY_BESIDE) / TC_MEMORY_MULTIPLE;
    uint64_t bytes = earned < opened ? earned : opened;
    uint64_t whole = (bytes < enough ? bytes : enough) * TC_MEMORY_MULTIPLE;
    uint64_t least = TC_MEMORY_LEAST + TC_MEMORY_BESIDE;
    limit = (whole > least ? whole : least) - TC_MEMORY_BESIDE + TC_MEMORY_BUFFERS;
}

void tc_memory_follow(void) {
    earned = 0;
    opened = 0;
    follows = true;
    set_limit_by_files();
}

void tc_memory_open(uint64_t size) {
    add_up(&opened, size);
}

void tc_memory_earn(uint64_t bytes) {
    add_up(&earned, bytes);
    if (follows)
        set_limit_by_files();
}

void tc_memory_earn_data(uint64_t bytes) {
    tc_memory_earn(bytes / (TC_MEMORY_MULTIPLE / 8));
}

void tc_memory_begin_file(void) {
    refused = false;
    settled = false;
    if (follows)
        tc_memory_follow();
}

uint64_t tc_memory_allowed(void) {
    return limit ? limit - TC_MEMORY_BUFFERS : 0;
}

bool tc_memory_fits(uint64_t bytes) {
    uint64_t now = used;
    uint64_t most = limit;
    return most == 0 || (now <= most && bytes <= most - now);
}

bool tc_memory_refused(void) {
    return refused;
}

bool tc_memory_lacked(void) {
    return lacked;
}

void tc_memory_lack(void) {
    if (!settled)
        lacked = true;
}

void tc_memory_settle(void) {
    settled = true;
}

void tc_memory_trim(void) {
    malloc_trim(0);
}

uint64_t tc_memory_peak(void) {
    return peak;
}

static void count(uint64_t size) {
    uint64_t now = atomic_fetch_add(&used, size) + size;
    uint64_t most = peak;
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now))
        ;
}

/* Whether the budget has this much left. Threads that ask at the same moment may
 * together exceed it a little. */
static bool allowed(uint64_t size) {
    if (tc_memory_fits(size))
        return true;
    refused = true;
    errno = ENOMEM;
    return false;
}

/* Never goes below zero, though memory that a library allocated, and that was
 * never counted, may be freed here. */
static void uncount(uint64_t size) {
    uint64_t now = used;
    while (!atomic_compare_exchange_weak(&used, &now, now > size ? now - size : 0))
        ;
}

static void *counted(void *memory) {
    if (memory)
        count(malloc_usable_size(memory));
    else
        tc_memory_lack();
    return memory;
}

void *tc_memory_malloc(size_t size) {
    return allowed(size) ? counted(malloc(size)) : NULL;
}

void *tc_memory_calloc(size_t items, size_t size) {
    size_t total;
    if (__builtin_mul_overflow(items, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return allowed(total) ? counted(calloc(items, size)) : NULL;
}

void *tc_memory_realloc(void *old, size_t size) {
    size_t before = malloc_usable_size(old);
    if (size > before && !allowed(size - before))
        return NULL;
    void *grown = realloc(old, size);
    if (grown) {
        uncount(before);
        count(malloc_usable_size(grown));
    } else if (size) {
        tc_memory_lack();
    }
    return grown;
}

void *tc_memory_reallocarray(void *old, size_t items, size_t size) {
    size_t total;
    if (__builtin_mul_overflow(items, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return tc_memory_realloc(old, total);
}

void *tc_memory_aligned(size_t alignment, size_t size) {
    return allowed(size) ? counted(aligned_alloc(alignment, size)) : NULL;
}

char *tc_memory_strndup(const char *string, size_t most) {
    size_t length = strnlen(string, most);
    char *copy = tc_memory_malloc(length + 1);
    if (copy) {
        memcpy(copy, string, length);
        copy[length] = '\0';
    }
    return copy;
}

char *tc_memory_strdup(const char *string) {
    return tc_memory_strndup(string, strlen(string));
}

int tc_memory_asprintf(char **string, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    *string = length < 0 ? NULL : tc_memory_malloc((size_t)length + 1);
    if (!*string)
        return -1;
    va_start(args, format);
    vsnprintf(*string, (size_t)length + 1, format, args);
    va_end(args);
    return length;
}

int tc_memory_scandir(const char *folder, struct dirent ***entries,
                      int (*filter)(const struct dirent *),
                      int (*compare)(const struct dirent **, const struct dirent **)) {
    int count = scandir(folder, entries, filter, compare);
    /* Of an empty folder there is none. */
    if (count >= 0 && *entries)
        counted(*entries);
    for (int i = 0; i < count && *entries; i++)
        counted((*entries)[i]);
    return count;
}

char *tc_memory_realpath(const char *path, char *into) {
    char *real = realpath(path, into);
    if (real)
        counted(real);
    return real;
}

void tc_memory_free(void *memory) {
    if (memory)
        uncount(malloc_usable_size(memory));
    free(memory);
}
