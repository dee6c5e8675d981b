/*
 * What reading and writing GGUF share: numbers of types, values of metadata as bytes and as text.
 */
#ifndef TCONV_FORMATS_GGUF_GGUF_H
#define TCONV_FORMATS_GGUF_GGUF_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/format/source.h"
#include "core/io/input.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "formats/shards.h"

#define GGUF_MAGIC "GGUF"
/* Until a file says otherwise, its data is aligned so. */
#define GGUF_ALIGNMENT 32u
#define GGUF_KEY_ALIGNMENT "general.alignment"
#define GGUF_MAX_RANK 4u
/* How deep arrays of metadata may nest; honest ones do not nest at all. */
#define GGUF_MAX_DEPTH 100u
/* ggml itself reads names shorter than this. */
#define GGUF_GGML_NAME 64u

/* A model in several files: each is a whole GGUF, and these keys tell its place. */
#define GGUF_KEY_SPLIT_NO "split.no"
#define GGUF_KEY_SPLIT_COUNT "split.count"
#define GGUF_KEY_SPLIT_TENSORS "split.tensors.count"
#define GGUF_SPLIT_PREFIX "split."

/* The numbers of the types that values of metadata have. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
};

/* ggml's number of a dtype, and the dtype of a number; -1 and TC_NONE where there is none. */
int gguf_number_of(enum tc_dtype dtype);
enum tc_dtype gguf_dtype_of(uint32_t number);
/* Fails because a tensor has a dtype of this number, which tconv does not read. */
bool gguf_refuse_dtype(uint32_t number, struct tc_error *error);

/* Reads the header in sequence, in pieces, from a file or from bytes in memory. */
struct gguf_cursor {
    struct tc_input *input; /* NULL: `window` holds everything */
    uint64_t size;          /* of the file, or of the bytes */
    uint64_t limit;         /* how far a header may reach */
    uint64_t at;            /* the next byte */
    unsigned char *window;  /* bytes [start, start + filled) */
    uint64_t start;
    size_t filled;
};

bool gguf_cursor_init(struct gguf_cursor *cursor, struct tc_reader *reader, struct tc_error *error);
void gguf_cursor_release(struct gguf_cursor *cursor);
/* The next bytes; fails where the file ends before. */
bool gguf_take(struct gguf_cursor *cursor, void *to, size_t length, struct tc_error *error);
/* A little-endian number of `bytes` bytes. */
bool gguf_take_number(struct gguf_cursor *cursor, unsigned bytes, uint64_t *number,
                      struct tc_error *error);
/* A length of 8 bytes and as many bytes, into the arena. */
bool gguf_take_string(struct gguf_cursor *cursor, struct tc_arena *arena, struct tc_text *string,
                      struct tc_error *error);
/* Fails unless the file has room for `count` things (`what`) of at least `least` bytes each, or for
 * one of `count` bytes where `least` is 1. */
bool gguf_check_count(const struct gguf_cursor *cursor, uint64_t count, unsigned least,
                      const char *what, struct tc_error *error);

/*
 * A value as text: a string as it is, anything else as compact JSON. What its type was is said by
 * a word, "U32", in brackets for arrays, "[[F32]]".
 */
struct gguf_value {
    struct tc_buffer text;
    char type[2 * GGUF_MAX_DEPTH + 16]; /* empty for a string, and where `mixed` */
    bool mixed;                         /* arrays within the array have several types */
    bool not_text;                      /* a string that is no UTF-8 */
};
/* The value's text is the caller's to release, also after a failure. */
bool gguf_value_read(struct gguf_cursor *cursor, struct gguf_value *value, struct tc_error *error);
/* Appends the type and the bytes of the value that the text stands for. False, and nothing
 * appended, where the text is not exactly what reading such a value gives. */
bool gguf_value_write(struct tc_buffer *out, struct tc_text text, struct tc_text type);
void gguf_string_write(struct tc_buffer *out, struct tc_text string);

struct gguf_reader {
    uint64_t data; /* where the data section starts */
    bool split;    /* this file is the first of several; `shards` has all of them */
    struct shards shards;
};

bool gguf_open(struct tc_reader *reader, struct tc_error *error);
/* Opens all files of the model, of which this one is the first, where it says so. */
bool gguf_open_splits(struct tc_reader *reader, struct tc_error *error);

extern const struct tc_format_option gguf_version_option;
struct gguf_writer {
    uint64_t *offsets; /* of the items, in the file */
    uint64_t alignment;
};
bool gguf_check(struct tc_plan *plan, struct tc_error *error);
bool gguf_begin(struct tc_writer *writer, struct tc_error *error);
bool gguf_put(struct tc_writer *writer, size_t item, struct tc_source *source,
              struct tc_error *error);
extern const struct tc_sharding gguf_sharding;

#endif
