#define TC_ERRORS_ARE_HERE
#include "core/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/memory.h"

static void copy_cut(char *to, size_t capacity, const char *from, size_t length) {
    if (length >= capacity)
        length = capacity - 1;
    memcpy(to, from, length);
    to[length] = '\0';
}

bool tc_fail(struct tc_error *error, enum tc_class class, const char *code, const char *format,
             ...) {
    if (error->class != TC_OK)
        return false;
    error->class = class;
    error->code = code;
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return false;
}

bool tc_fail_errno(struct tc_error *error, int errnum, const char *code, const char *format, ...) {
    if (error->class != TC_OK)
        return false;
    error->class = TC_IO;
    error->code = code;
    error->errnum = errnum;
    va_list args;
    va_start(args, format);
    int used = vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof error->message) {
        char text[128];
        const char *reason = strerror_r(errnum, text, sizeof text);
        snprintf(error->message + used, sizeof error->message - (size_t)used, ": %s", reason);
    }
    return false;
}

bool tc_fail_memory(struct tc_error *error) {
    if (tc_memory_refused()) {
        tc_fail(error, TC_UNSAFE, "memory-limit",
                "the tables would take more memory than allowed (limit %llu bytes)",
                (unsigned long long)tc_memory_allowed());
        return tc_error_hint(error, "raise the limit with --max-memory if you trust this file");
    }
    /* Also where the caller forgets the error, or has one already. */
    tc_memory_lack();
    tc_fail(error, TC_IO, "out-of-memory", "out of memory");
    return tc_error_because(error, TC_REASON_OUT_OF_MEMORY);
}

bool tc_error_because(struct tc_error *error, enum tc_reason reason) {
    if (error->reason == TC_REASON_NONE)
        error->reason = reason;
    return false;
}

bool tc_error_at(struct tc_error *error, uint64_t offset) {
    if (!error->has_offset) {
        error->has_offset = true;
        error->offset = offset;
    }
    return false;
}

bool tc_error_in_file(struct tc_error *error, const char *path) {
    if (error->file[0] == '\0')
        copy_cut(error->file, sizeof error->file, path, strlen(path));
    return false;
}

bool tc_error_in_tensor(struct tc_error *error, const char *name, size_t length) {
    if (!error->has_tensor) {
        error->has_tensor = true;
        copy_cut(error->tensor, sizeof error->tensor, name, length);
    }
    return false;
}

bool tc_error_hint(struct tc_error *error, const char *format, ...) {
    if (error->hint[0] == '\0') {
        va_list args;
        va_start(args, format);
        vsnprintf(error->hint, sizeof error->hint, format, args);
        va_end(args);
    }
    return false;
}

const char *tc_class_name(enum tc_class class) {
    switch (class) {
    case TC_OK:
        return "ok";
    case TC_DIFFERENT:
        return "different";
    case TC_USAGE:
        return "usage";
    case TC_INVALID:
        return "invalid";
    case TC_UNSUPPORTED:
        return "unsupported";
    case TC_UNSAFE:
        return "unsafe";
    case TC_IO:
        return "io";
    case TC_INTERNAL:
        break;
    }
    return "internal";
}
