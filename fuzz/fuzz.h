/*
 * What the fuzz targets share.
 *
 * A target is a function that takes bytes and does with them what a command would. Whatever the
 * bytes are, it returns; what must hold it says with FUZZ_CHECK, which ends the program where it
 * does not, as a sanitizer's report does. Each format of formats/registry.def is a target
 * (formats.c), and so is each line of targets.def.
 *
 * The same functions run under two mains: entry.c is what a fuzzing engine calls; replay.c runs
 * files that are kept, and others made of them, without any engine.
 */
#ifndef TCONV_FUZZ_FUZZ_H
#define TCONV_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"

typedef void fuzz_target(const unsigned char *bytes, size_t length);

#define TC_FORMAT(name) fuzz_target fuzz_##name;
#define FUZZ_TARGET(name) fuzz_target fuzz_##name;
#include "formats/registry.def"
#include "fuzz/targets.def"
#undef TC_FORMAT
#undef FUZZ_TARGET

/* The promise about small files: what a command costs for less than 4 MiB of input. The memory of
 * tables is held to it by core/base/memory.h itself. */
#define FUZZ_SECONDS 10

/* Runs a target once, within that promise: the budget of memory is a command's, and the program
 * ends where the target takes more than FUZZ_SECONDS of processor time. */
void fuzz_run(fuzz_target *target, const unsigned char *bytes, size_t length);
/* For a target that does what several commands do: the time starts again. */
void fuzz_restart_clock(void);

/* Ends the program, and says what did not hold, unless it holds. */
#define FUZZ_CHECK(holds, ...)                                                                     \
    do {                                                                                           \
        if (!(holds))                                                                              \
            fuzz_fail(__FILE__, __LINE__, __VA_ARGS__);                                            \
    } while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Checks what every function promises that may fail: where it did, the error has a class, a code
 * and a message; where it did not, it has none. */
void fuzz_check_outcome(bool ok, const struct tc_error *error);

/* How files are read: with a command's limits, except that few bytes may be made of nothing, since
 * reading them takes time and nothing else. */
extern const struct tc_format_options fuzz_options;

/* The path of a file that holds these bytes; it is the same file in every run. */
const char *fuzz_file(const unsigned char *bytes, size_t length);
/* Makes a folder, in $TMPDIR or in memory, or empties it; it is the same in every run. */
void fuzz_empty_folder(void);
/* Writes a file to that folder; `name` is a plain file name. */
void fuzz_write(const char *name, const void *bytes, size_t length);
/* A path in that folder; valid until the fourth call after it. */
const char *fuzz_path(const char *name);

/* Opens a file, as any format where `backend` is NULL, and reads all of it, as `tconv hash` does.
 * Its text goes to `text`, unless that is NULL. False, with the error filled, where something is
 * wrong with the file. */
bool fuzz_digest(const char *path, const struct tc_backend *backend,
                 const struct tc_format_options *options, struct tc_buffer *text,
                 struct tc_error *error);
/* Does the same, and then looks for all damage as `tconv verify` does, which must find some where
 * reading fails. */
bool fuzz_digest_and_verify(const char *path, const struct tc_backend *backend,
                            const struct tc_format_options *options, struct tc_error *error);

#endif
