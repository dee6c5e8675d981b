/*
 * All memory that the program takes goes through here: core/base/banned.h turns
 * malloc and its kin into these functions in every file. So there is one budget
 * per command, --max-memory, and nothing that a file can make grow is outside
 * it: no table, no text, no list of warnings has to be counted by hand. (What
 * libraries take for themselves is not counted: it does not grow with a file's
 * tables.)
 *
 * A command sets a limit, or lets the limit follow its files: then each byte of
 * header or pickle that was read raises it by TC_MEMORY_MULTIPLE bytes. Where
 * the limit refuses memory, the functions return NULL as malloc does, and
 * tc_fail_memory says which option raises it.
 *
 * The budget belongs to the process. All functions are safe from any thread.
 */
#ifndef TCONV_CORE_BASE_MEMORY_H
#define TCONV_CORE_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Added to every limit for the buffers of the streams: chunks in flight, the
 * window of a strided view, buffers of readers. */
#define TC_MEMORY_BUFFERS (UINT64_C(48) << 20)
/* What a process takes besides its tables: those buffers, its libraries' memory,
 * its code and what the heap wastes. */
#define TC_MEMORY_BESIDE (UINT64_C(128) << 20)
/* The whole process stays below 256 MiB where headers have less than 4 MiB, and
 * below 64 times their size otherwise. TC_MEMORY_BESIDE of that is taken; tables
 * get the rest, at least TC_MEMORY_LEAST and at most TC_MEMORY_MOST. */
#define TC_MEMORY_LEAST (UINT64_C(128) << 20)
#define TC_MEMORY_MULTIPLE 64u
#define TC_MEMORY_MOST (UINT64_C(2) << 30)

/* Sets the limit to this many bytes of tables; 0: no limit. */
void tc_memory_limit(uint64_t bytes);
/* From now on the limit follows the files that are read; nothing read so far
 * counts. */
void tc_memory_follow(void);
/* A file of this size was opened. tc_memory_earn never counts more bytes than
 * all opened files have. */
void tc_memory_open(uint64_t size);
/* Bytes of header or pickle were read: raises the limit by their multiple. */
void tc_memory_earn(uint64_t bytes);
/* Bytes of tensor data are about to be held in memory and sorted: raises the
 * limit by eight times their size. */
void tc_memory_earn_data(uint64_t bytes);
/* Call before a file that has nothing to do with those before it: the limit no
 * longer counts what they earned. */
void tc_memory_begin_file(void);

/* The current limit, without TC_MEMORY_BUFFERS; 0: none. */
uint64_t tc_memory_allowed(void);
/* Whether the limit allows this many bytes more. */
bool tc_memory_fits(uint64_t bytes);
/* Whether the limit has refused memory. */
bool tc_memory_refused(void);
/* Whether the system itself had no memory left, at any time. What the program
 * found out or wrote since is not to be relied on, so no output is published and
 * no other verdict given: a caller that goes on without the memory that it asked
 * for can't make a wrong result pass for a right one. */
bool tc_memory_lacked(void);
/* A library had none (tc_fail_memory says so). */
void tc_memory_lack(void);
/* The output is in place: what is lacking from now on does it no harm. */
void tc_memory_settle(void);
/* Much was freed: the heap gives what it can back to the system. */
void tc_memory_trim(void);
/* The most bytes that were in use at once. */
uint64_t tc_memory_peak(void);

void *tc_memory_malloc(size_t size) __attribute__((malloc));
void *tc_memory_calloc(size_t count, size_t size) __attribute__((malloc));
void *tc_memory_realloc(void *old, size_t size);
void *tc_memory_reallocarray(void *old, size_t count, size_t size);
void *tc_memory_aligned(size_t alignment, size_t size) __attribute__((malloc));
char *tc_memory_strdup(const char *string) __attribute__((malloc));
char *tc_memory_strndup(const char *string, size_t most) __attribute__((malloc));
int tc_memory_asprintf(char **string, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The entries of a folder, counted after scandir has allocated them. */
struct dirent;
int tc_memory_scandir(const char *folder, struct dirent ***entries,
                      int (*filter)(const struct dirent *),
                      int (*compare)(const struct dirent **, const struct dirent **));
/* `into` must be NULL: the result is always allocated. */
char *tc_memory_realpath(const char *path, char *into);
void tc_memory_free(void *memory);

#endif
