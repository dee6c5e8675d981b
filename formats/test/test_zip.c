/* Our reading of zip archives beside libzip's. What the other tests write is compared in
 * test_convert. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/format/reader.h"
#include "formats/test/second_opinion.h"
#include "formats/test/support.h"

TestSuite(zip, .init = test_folder_make, .fini = test_folder_remove);

static enum second_opinion opinion_on(const char *path, char what[SECOND_OPINION_TEXT]) {
    size_t length;
    char *bytes = test_load(path, &length);
    enum second_opinion opinion = second_opinion(path, bytes, length, &test_options, what);
    free(bytes);
    return opinion;
}

static void visit(const char *path, void *context) {
    char what[SECOND_OPINION_TEXT];
    size_t length;
    size_t *archives = context;
    char *bytes = test_load(path, &length);
    bool archive = length >= 2 && memcmp(bytes, "PK", 2) == 0;
    free(bytes);
    if (!archive || test_file_class(path) != TC_OK)
        return;
    enum second_opinion opinion = opinion_on(path, what);
    if (opinion == SECOND_OPINION_LIBZIP_REFUSES && strstr(what, "method not supported"))
        return; /* LZMA, before version 1.8 */
    cr_assert_eq(opinion, SECOND_OPINION_SAME, "%s: %s", path, what);
    ++*archives;
}

Test(zip, files_by_other_programs_are_seen_alike) {
    static const struct {
        const char *folder;
        size_t least;
    } folders[] = {{"npz", 5}, {"pt", 10}, {"ot", 1}};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t archives = 0;
        test_each_file(folders[i].folder, visit, &archives);
        cr_assert_geq(archives, folders[i].least, "%s: %zu", folders[i].folder, archives);
    }
}

Test(zip, a_difference_is_seen) {
    static const struct test_member a = {"a", "1234", 4, false};
    const struct test_member others[] = {{"b", "1234", 4, false},
                                         {"a", "12345", 5, false},
                                         {"a", "1235", 4, false},
                                         {"a", "1234", 4, true}};
    char what[SECOND_OPINION_TEXT];
    size_t length;
    const char *one = test_path("one.zip");
    const char *other = test_path("other.zip");
    test_write_zip(one, &a, 1);
    cr_assert_eq(opinion_on(one, what), SECOND_OPINION_SAME, "%s", what);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        test_write_zip(other, &others[i], 1);
        char *bytes = test_load(other, &length);
        cr_assert_eq(second_opinion(one, bytes, length, &test_options, what),
                     SECOND_OPINION_DIFFERS, "%zu", i);
        free(bytes);
    }
    test_write_zip(other, (const struct test_member[]){a, {"c", "", 0, false}}, 2);
    char *bytes = test_load(other, &length);
    cr_assert_eq(second_opinion(one, bytes, length, &test_options, what), SECOND_OPINION_DIFFERS);
    /* The one stored byte that the CRC is for. */
    bytes[31] ^= 1;
    test_write(other, bytes, length);
    cr_assert_eq(opinion_on(other, what), SECOND_OPINION_OURS_REFUSES, "%s", what);
    free(bytes);
}

/* Info-ZIP's field of a name in UTF-8, in both headers of its only member. */
Test(zip, a_member_has_one_name) {
    static const char field[] = "\x75\x70\x0A\0\1";
    size_t length;
    char *bytes = test_load(TESTDATA "/bad/npz_two_names.npz", &length);
    char *local = memmem(bytes, length, field, sizeof field - 1);
    cr_assert_not_null(local);
    char *central =
        memmem(local + 1, length - (size_t)(local + 1 - bytes), field, sizeof field - 1);
    cr_assert_not_null(central);
    for (unsigned hidden = 0; hidden < 4; hidden++) {
        /* Of another version, the field says nothing. */
        local[4] = hidden & 1 ? 2 : 1;
        central[4] = hidden & 2 ? 2 : 1;
        enum tc_class class = test_open_class("x.npz", bytes, length);
        cr_assert_eq(class, hidden == 3 ? TC_OK : TC_INVALID, "%u: %s", hidden, test_error.message);
        cr_assert(hidden == 3 || strstr(test_error.message, "another name"));
    }
    /* A field that is about another name, by its CRC, counts for nobody. */
    local[4] = central[4] = 1;
    local[5] ^= 1;
    central[5] ^= 1;
    cr_assert_eq(test_open_class("x.npz", bytes, length), TC_OK, "%s", test_error.message);
    struct tc_reader *reader = test_open(test_path("x.npz"));
    test_find(reader, "a");
    tc_reader_close(reader);
    free(bytes);
}
