/* What the formats' tests share: files made in a folder of their own, and
 * conversions without the command. */
#ifndef TCONV_FORMATS_TEST_SUPPORT_H
#define TCONV_FORMATS_TEST_SUPPORT_H

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"
#include "formats/test/make_zip.h"

/* How test_open and test_convert read files. A test may change it: each test runs in
 * a process of its own. */
extern struct tc_format_options test_options;

/* A fresh folder, removed when the test ends. Use as .init and .fini. */
void test_folder_make(void);
void test_folder_remove(void);
/* A path in that folder; valid until the eighth call after it. */
const char *test_path(const char *name);
void test_write(const char *path, const void *bytes, size_t length);
/* The whole file, from malloc. */
char *test_load(const char *path, size_t *length);

bool test_same_bytes(const char *a, const char *b);

/* The class with which a file of these bytes is refused, TC_OK if it opens;
 * data and checksums are read too. The error is left in test_error. */
extern struct tc_error test_error;
enum tc_class test_open_class(const char *name, const void *bytes, size_t length);
enum tc_class test_file_class(const char *path);

struct tc_reader *test_open(const char *path);
/* All bytes of a tensor, from malloc. */
unsigned char *test_read(struct tc_reader *reader, const struct tc_tensor *tensor);
/* The tensor of this name, which must be there. */
const struct tc_tensor *test_find(struct tc_reader *reader, const char *name);
/* Asserts that a tensor has this dtype, shape ("[2,3]") and these bytes, read as a whole and one
 * by one. */
void test_expect(struct tc_reader *reader, const char *name, enum tc_dtype dtype, const char *shape,
                 const void *bytes, size_t nbytes);
#define TEST_EXPECT(reader, name, dtype, shape, type, ...)                                         \
    test_expect(reader, name, dtype, shape, (const type[]){__VA_ARGS__},                           \
                sizeof(type[]){__VA_ARGS__})
void test_expect_metadata(const struct tc_metadata *metadata, const char *key, const char *value);
/* Writes in.safetensors with this header, made of TEST_ENTRY, and data; returns its path. */
#define TEST_ENTRY(name, dtype, shape, offsets)                                                    \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
const char *test_make_safetensors(const char *header, const void *data, size_t nbytes);
/* The text of `tconv hash`, from malloc. */
char *test_digest(const char *path);

/* Converts; returns the error's class. *promoted is the number of tensors whose dtype
 * was changed to one that the target has; may be NULL. */
enum tc_class test_convert(const char *from, const char *to, const struct tc_backend *target,
                           const struct tc_plan_options *options, size_t *promoted);

/* Writes the archive that test_make_zip makes. */
void test_write_zip(const char *path, const struct test_member *members, size_t count);
/* Where a stored member's bytes lie in an archive that tconv wrote; NULL where
 * it has no such member. */
const char *test_zip_find(const char *zip, size_t length, const char *name, size_t *size);
/* How many members have a name that starts with the prefix. */
size_t test_zip_count(const char *zip, size_t length, const char *prefix);

/* Calls `each` for every file below testdata/NAME. */
typedef void test_visitor(const char *path, void *context);
size_t test_each_file(const char *name, test_visitor *each, void *context);

#endif
