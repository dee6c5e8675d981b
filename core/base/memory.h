/*
 * All memory that the program takes goes through here: core/base/banned.h turns
 * malloc and its kin into these functions in every file. So there is one
 * budget a command, --max-memory, and nothing that a file can make grow is
 * outside it: no table, no text, no list of warnings has to be counted by hand.
 * (What libraries take for themselves is not counted: it does not grow with a
 * file's tables.)
 *
 * A command names a limit, or lets the limit follow its files: then each byte
 * of header or pickle that was read earns TC_MEMORY_MULTIPLE bytes. Where the
 * limit refuses memory, the functions return NULL as malloc does, and
 * tc_fail_memory says which option raises it.
 */
#ifndef TCONV_CORE_BASE_MEMORY_H
#define TCONV_CORE_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the buffers of the streams take, however small the limit: chunks on
 * their way, the window of a view, steps of readers. */
#define TC_MEMORY_BUFFERS (UINT64_C(48) << 20)
/* What a process has beside the tables: those buffers, its libraries' memory,
 * its code and what the heap wastes. */
#define TC_MEMORY_BESIDE (UINT64_C(128) << 20)
/* The whole process stays below 256 MiB where headers have less than 4 MiB,
 * and below 64 times their size beyond that: tables get what the rest leaves,
 * up to so much. */
#define TC_MEMORY_LEAST (UINT64_C(128) << 20)
#define TC_MEMORY_MULTIPLE 64u
#define TC_MEMORY_MOST (UINT64_C(2) << 30)

/* At most so many bytes of tables; 0: no limit. */
void tc_memory_limit(uint64_t bytes);
/* The limit follows what is earned from now on; with none so far. */
void tc_memory_follow(void);
/* A file of this size was opened: nothing earns more than the files have. */
void tc_memory_open(uint64_t size);
/* Bytes of header or pickle were read, whose tables may take a multiple. */
void tc_memory_earn(uint64_t bytes);
/* Data of a file is to be held in memory as it is, and sorted: a few times its
 * size. */
void tc_memory_earn_data(uint64_t bytes);
/* Before another file that has nothing to do with those before it: what they
 * earned is gone. */
void tc_memory_begin_file(void);

/* The limit that holds now, without that of the buffers; 0: none. */
uint64_t tc_memory_allowed(void);
/* Whether so much more would be given. */
bool tc_memory_fits(uint64_t bytes);
/* Whether memory was refused because of the limit. */
bool tc_memory_refused(void);
/* The most that was in use at once. */
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
/* The entries of a folder, counted once they are there. */
struct dirent;
int tc_memory_scandir(const char *folder, struct dirent ***entries,
                      int (*filter)(const struct dirent *),
                      int (*compare)(const struct dirent **, const struct dirent **));
/* With memory of its own alone: `into` is NULL. */
char *tc_memory_realpath(const char *path, char *into);
void tc_memory_free(void *memory);

#endif
