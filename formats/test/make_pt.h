/*
 * Torch's files, made here opcode by opcode and byte by byte. Text in these
 * pickles is protocol 0's (V…\n), which needs no length.
 */
#ifndef TCONV_FORMATS_TEST_MAKE_PT_H
#define TCONV_FORMATS_TEST_MAKE_PT_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "formats/test/make_zip.h"
#include "formats/test/support.h"

#define P(literal) (literal), sizeof(literal) - 1

/* A storage, a tensor of it, and a dict; counts are opcodes' bytes. */
#define STORE(class, key, count) "(Vstorage\nctorch\n" class "\nV" key "\nVcpu\nK" count "tQ"
#define TENSOR(store, offset, sizes, strides)                                                      \
    "ctorch._utils\n_rebuild_tensor_v2\n(" store "K" offset sizes strides "\211}tR"
#define NOTED(store, sizes, strides, notes)                                                        \
    "ctorch._utils\n_rebuild_tensor_v2\n(" store "K\0" sizes strides "\211}" notes "tR"
#define DICT(items) "\200\2}(" items "u."
#define ONE(n) "K" n "\205"
#define TWO(a, b) "K" a "K" b "\206"

/* x.pt: the pickle and up to four more members. */
struct archive {
    const void *pickle;
    size_t length;
    struct test_member more[4];
    bool packed;
    bool big;
};

static inline const char *make(const struct archive *archive) {
    struct test_member members[7] = {
        {"x/data.pkl", archive->pickle, archive->length, archive->packed},
        {"x/version", "3\n", 2, false},
        {"x/byteorder", archive->big ? "big" : "little", archive->big ? 3 : 6, false}};
    size_t count = 3;
    for (size_t i = 0; i < 4 && archive->more[i].name; i++)
        members[count++] = archive->more[i];
    const char *path = test_path("x.pt");
    test_write_zip(path, members, count);
    return path;
}

#define EXPECT(reader, name, dtype, shape, type, ...)                                              \
    test_expect(reader, name, dtype, shape, (const type[]){__VA_ARGS__},                           \
                sizeof(type[]){__VA_ARGS__})

static inline bool has_extent(struct tc_reader *reader, const char *name) {
    struct tc_extent extent;
    return tc_reader_extent(reader, test_find(reader, name), &extent);
}

static inline void refused(const char *path, enum tc_class class, const char *code) {
    cr_assert_eq(test_file_class(path), class, "class %d: %s", (int)test_error.class,
                 test_error.message);
    cr_assert_str_eq(test_error.code, code, "%s", test_error.message);
}

/* The values of STATE, a dict of two tensors, a and b, in one storage. */
static const float floats[] = {0, 1, 2, 3, 4, 5};
#define FLOATS(name)                                                                               \
    { name, floats, sizeof floats, false }

#define STATE                                                                                      \
    DICT("Va\n" TENSOR(STORE("FloatStorage", "0", "\6"), "\0", TWO("\2", "\3"),                    \
                       TWO("\3", "\1")) "Vb\n" TENSOR(STORE("FloatStorage", "0", "\6"), "\2",      \
                                                      ONE("\3"), ONE("\1")))

/* A legacy file: the five pickles before its storages. */
#define LEGACY(order, object, keys)                                                                \
    "\200\2\212\12\154\374\234\106\371\40\152\250\120\31."                                         \
    "\200\2M\351\3."                                                                               \
    "\200\2}(Vprotocol_version\nM\351\3Vlittle_endian\n" order                                     \
    "Vtype_sizes\n}(Vshort\nK\2Vint\nK\4Vlong\nK\4uu." object "\200\2]" keys "."

static inline size_t make_legacy(char *file, const void *head, size_t length, const void *data,
                                 size_t nbytes) {
    memcpy(file, head, length);
    memcpy(file + length, data, nbytes);
    return length + nbytes;
}

#define SHORTS STORE("ShortStorage", "0", "\14")
static const int16_t shorts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

#endif
