/*
 * Errors. The caller owns one struct tc_error, zeroed, and hands it down; a
 * function that fails fills it and returns false. The first failure wins: a
 * later one, met while cleaning up, does not overwrite it. Outer layers add
 * what they know (reason, file, tensor, hint) with the tc_error_* functions, which
 * never overwrite what an inner layer said.
 *
 * Nothing in core or formats prints or exits; cmd/report.c shows errors.
 */
#ifndef TCONV_CORE_BASE_ERROR_H
#define TCONV_CORE_BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values are the command's exit codes. */
enum tc_class {
    TC_OK = 0,
    TC_DIFFERENT = 1, /* a check or comparison failed; never set by core */
    TC_USAGE = 2,
    TC_INVALID = 3,     /* malformed, corrupt, truncated, inconsistent */
    TC_UNSUPPORTED = 4, /* well-formed, but tconv does not handle it */
    TC_UNSAFE = 5,      /* code, a path that escapes, a limit exceeded */
    TC_IO = 6,          /* a system call failed, or the system has no memory */
    TC_INTERNAL = 70,
};

/* Errors that the program itself treats differently from others carry one of these. It never
 * compares codes: those are for people and their programs. */
enum tc_reason {
    TC_REASON_NONE,
    TC_REASON_NO_FORMAT,      /* the file is of no known format, or is empty */
    TC_REASON_CUT_SHORT,      /* the file ends before its data does */
    TC_REASON_OUTSIDE,        /* a shard would lie outside its index's folder */
    TC_REASON_PICKLE,         /* the data is a pickle */
    TC_REASON_PARTIAL_BYTE,   /* packed elements do not fill whole bytes */
    TC_REASON_DUPLICATE_NAME, /* two tensors of a plan have one name */
    TC_REASON_HEADER_SIZE,    /* the header would be larger than its format allows */
    TC_REASON_SPARSE,         /* the parts of a sparse tensor do not belong together */
    TC_REASON_OUT_OF_MEMORY,  /* the system has none; not the command's own limit */
    TC_REASON_NOT_A_FILE,     /* a folder, a pipe or a device, where a file was meant */
    TC_REASON_CANNOT_OPEN,    /* the system did not open an input */
    TC_REASON_LINK_OUTSIDE,   /* a link leads out of the tree that a batch was given */
    TC_REASON_NO_RANGES,      /* the server gives files as a whole only */
    TC_REASON_DENIED,         /* the server wants a token, or another one */
    TC_REASONS,
};

struct tc_error {
    enum tc_class class;
    enum tc_reason reason;
    int errnum;       /* errno of the system call that failed, or 0 */
    const char *code; /* a stable slug, a string literal */
    bool has_offset;
    uint64_t offset;   /* absolute in its file */
    char file[2048];   /* as the user or an index wrote it, cut to fit */
    char tensor[4352]; /* unescaped, cut to fit; valid when has_tensor */
    bool has_tensor;
    char message[768];
    char hint[384];
};

/* Each of these returns false, so that `return tc_fail(…)` reads well. */
bool tc_fail(struct tc_error *error, enum tc_class class, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds ": " and strerror(errnum) to the message; the class is TC_IO. */
bool tc_fail_errno(struct tc_error *error, int errnum, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Says that there is no memory; names --max-memory where the command's budget is the reason. */
bool tc_fail_memory(struct tc_error *error);

bool tc_error_because(struct tc_error *error, enum tc_reason reason);
bool tc_error_at(struct tc_error *error, uint64_t offset);
bool tc_error_in_file(struct tc_error *error, const char *path);
bool tc_error_in_tensor(struct tc_error *error, const char *name, size_t length);
bool tc_error_hint(struct tc_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *tc_class_name(enum tc_class class);

/* clang's analyser looks into no other file, and so could not know that they return false. */
#if defined __clang_analyzer__ && !defined TC_ERRORS_ARE_HERE
#define tc_fail(...) ((void)tc_fail(__VA_ARGS__), false)
#define tc_fail_errno(...) ((void)tc_fail_errno(__VA_ARGS__), false)
#define tc_fail_memory(error) ((void)tc_fail_memory(error), false)
#define tc_error_because(error, reason) ((void)tc_error_because(error, reason), false)
#define tc_error_at(error, offset) ((void)tc_error_at(error, offset), false)
#define tc_error_in_file(error, path) ((void)tc_error_in_file(error, path), false)
#define tc_error_in_tensor(...) ((void)tc_error_in_tensor(__VA_ARGS__), false)
#define tc_error_hint(...) ((void)tc_error_hint(__VA_ARGS__), false)
#endif

#endif
