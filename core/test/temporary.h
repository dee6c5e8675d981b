/* Temporary files and folders of tests, in $TMPDIR where that is set: scripts/test
 * puts them on a RAM disk. */
#ifndef TCONV_CORE_TEST_TEMPORARY_H
#define TCONV_CORE_TEST_TEMPORARY_H

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEST_PATH_MAX 256

static inline void test_temporary_name(char path[TEST_PATH_MAX]) {
    const char *place = getenv("TMPDIR");
    int length = snprintf(path, TEST_PATH_MAX, "%s/tconv-test-XXXXXX", place ? place : "/tmp");
    cr_assert(length > 0 && length < TEST_PATH_MAX, "TMPDIR is too long");
}

/* A new empty file, opened for writing. */
static inline int test_temporary_file(char path[TEST_PATH_MAX]) {
    test_temporary_name(path);
    int fd = mkstemp(path);
    cr_assert(fd >= 0, "%s", path);
    return fd;
}

static inline void test_temporary_folder(char path[TEST_PATH_MAX]) {
    test_temporary_name(path);
    cr_assert_not_null(mkdtemp(path), "%s", path);
}

static inline int test_remove_entry(const char *path, const struct stat *status, int kind,
                                    struct FTW *place) {
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static inline void test_remove_folder(const char *path) {
    cr_assert_eq(nftw(path, test_remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0, "%s", path);
}

#endif
