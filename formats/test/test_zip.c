/* Our reading of zip archives beside libzip's. What the other tests write is compared in
 * test_convert. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "formats/test/libzip.h"
#include "formats/test/make_zip.h"
#include "formats/test/second_opinion.h"
#include "formats/test/support.h"
#include "formats/zip/directory.h"
#include "formats/zip/names.h"
#include "formats/zip/read.h"
#include "formats/zip/write.h"

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

/* The end record of an empty archive, as a member's data: libzip may open that archive. */
Test(zip, an_end_record_among_data_is_data) {
    static const char end[22] = "PK\5\6";
    static const struct test_member member = {"a", end, sizeof end, false};
    char what[SECOND_OPINION_TEXT];
    const char *path = test_path("one.zip");
    test_write_zip(path, &member, 1);
    enum second_opinion opinion = opinion_on(path, what);
    cr_assert(opinion == SECOND_OPINION_SAME || opinion == SECOND_OPINION_ANOTHER_END, "%d: %s",
              (int)opinion, what);
    struct tc_reader *reader = test_open(TESTDATA "/bad/npz_end_among_data.npz");
    test_find(reader, "a");
    cr_assert_eq(reader->table.count, 1);
    tc_reader_close(reader);
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

/* The names that a probe is shown, each with a space behind it. */
static void keep_name(void *context, struct tc_text name) {
    tc_buffer_add_text(context, name);
    tc_buffer_add(context, " ", 1);
}

static char *names_of(const char *path) {
    struct tc_error error = {0};
    struct tc_buffer names = {0};
    struct tc_probe probe = {.input = tc_input_open(path, NULL, &error)};
    cr_assert_not_null(probe.input, "%s", error.message);
    uint64_t size = probe.input->size;
    probe.length = size < sizeof probe.head ? (size_t)size : sizeof probe.head;
    cr_assert(tc_input_read(probe.input, 0, probe.head, probe.length, &error));
    zip_visit_names(&probe, keep_name, &names);
    tc_buffer_add(&names, "", 1);
    tc_input_close(probe.input);
    return names.bytes;
}

Test(zip, probes_see_names_and_nothing_else) {
    static const struct test_member members[] = {{"a", "PK\1\2 data.pkl", 13, false},
                                                 {"b/c", "/model.json", 11, false}};
    const char *path = test_path("names.zip");
    size_t length;
    test_write_zip(path, members, 2);
    char *names = names_of(path);
    cr_assert_str_eq(names, "a a b/c ");
    free(names);
    /* Cut short, it has no directory. */
    char *bytes = test_load(path, &length);
    test_write(path, bytes, length - 1);
    names = names_of(path);
    cr_assert_str_eq(names, "a ");
    free(names);
    test_write(path, bytes + 1, length - 1);
    names = names_of(path);
    cr_assert_str_eq(names, "");
    free(names);
    free(bytes);
}

Test(zip, probes_see_the_end_of_a_long_directory) {
    enum { COUNT = 3000 };
    static struct test_member members[COUNT];
    static char texts[COUNT][24];
    const char *path = test_path("long.zip");
    for (int i = 0; i < COUNT; i++) {
        snprintf(texts[i], sizeof texts[i], "member-%d", i);
        members[i] = (struct test_member){texts[i], "", 0, false};
    }
    test_write_zip(path, members, COUNT);
    char *names = names_of(path);
    cr_assert(strncmp(names, "member-0 member-", 16) == 0, "%.40s", names);
    cr_assert_str_eq(names + strlen(names) - 12, "member-2999 ");
    cr_assert_null(strstr(names, "member-1 "));
    /* 46 bytes an entry besides its name: what fits into the bytes that are looked at. */
    cr_assert_eq(strlen(names), 9 + ZIP_NAMES_BYTES / (46 + 11) * 12);
    free(names);
}

/* An archive as large as zip64 is for: a member of 5 GiB, which is a hole in the file, one behind
 * it, and more members than 16 bits count. */
#define LONG_MEMBER (UINT64_C(5) << 30)
#define MANY_MEMBERS 65536

static void write_member(struct zip_writer *writer, const char *name, const char *text) {
    struct tc_error error = {0};
    size_t length = strlen(text);
    cr_assert(zip_member_begin(writer, tc_text_of(name), length, 0, &error));
    cr_assert(zip_member_write(writer, text, length, &error));
    cr_assert(zip_member_end(writer, &error), "%s", error.message);
}

static void write_large(const char *path) {
    static char names[MANY_MEMBERS][8];
    struct tc_error error = {0};
    struct tc_publish publish;
    struct zip_writer writer;
    cr_assert(tc_publish_begin(&publish, path, false, (struct tc_publish_options){0}, &error));
    struct tc_outfile *out = tc_outfile_open(&publish, "large.zip", &error);
    cr_assert_not_null(out, "%s", error.message);
    zip_writer_init(&writer, out, 0, 1);
    cr_assert(zip_member_begin(&writer, TC_TEXT("long"), LONG_MEMBER, 0, &error));
    zip_member_skip(&writer, LONG_MEMBER);
    cr_assert(zip_member_end(&writer, &error));
    write_member(&writer, "behind", "text");
    for (int i = 2; i < MANY_MEMBERS; i++) {
        snprintf(names[i], sizeof names[i], "m%d", i);
        write_member(&writer, names[i], "");
    }
    cr_assert(zip_writer_finish(&writer, &error), "%s", error.message);
    zip_writer_release(&writer);
    cr_assert(tc_outfile_seal(out, &error), "%s", error.message);
    cr_assert(tc_publish_commit(&publish, &error), "%s", error.message);
    tc_publish_end(&publish);
}

static void expect_large_by_libzip(const char *path, uint64_t size) {
    int fd = open(path, O_RDONLY);
    void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    cr_assert_neq(bytes, MAP_FAILED);
    struct libzip *libzip = libzip_open(bytes, size);
    cr_assert_not_null(libzip);
    cr_assert_eq(libzip_count(libzip), MANY_MEMBERS);
    struct libzip_member member;
    cr_assert(libzip_member(libzip, 0, &member));
    cr_assert_str_eq(member.name, "long");
    cr_assert_eq(member.size, LONG_MEMBER);
    cr_assert_eq(member.stored, LONG_MEMBER);
    unsigned char text[5];
    size_t got;
    cr_assert(libzip_read(libzip, 1, text, 4, &got), "%s", libzip_error(libzip));
    cr_assert_eq(got, 4);
    cr_assert_eq(memcmp(text, "text", 4), 0);
    libzip_close(libzip);
    munmap(bytes, size);
    close(fd);
}

Test(zip, a_large_archive_is_written_and_read, .timeout = 600) {
    const char *path = test_path("large.zip");
    struct tc_error error = {0};
    struct tc_reader reader = {.options = &test_options};
    struct zip zip = {0};
    write_large(path);
    tc_arena_init(&reader.arena, 0);
    reader.input = tc_input_open(path, NULL, &error);
    cr_assert_not_null(reader.input, "%s", error.message);
    cr_assert(zip_open_archive(&zip, &reader, &error), "%s", error.message);
    cr_assert_eq(zip.count, MANY_MEMBERS);
    cr_assert_eq(zip.members[0].size, LONG_MEMBER);
    cr_assert_eq(zip.members[0].stored, LONG_MEMBER);
    cr_assert_gt(zip.members[1].local, LONG_MEMBER);
    cr_assert(zip_member_check(reader.input, &zip.members[1], &error), "%s", error.message);
    cr_assert_eq(zip.members[MANY_MEMBERS - 1].size, 0);
    expect_large_by_libzip(path, reader.input->size);
    zip_release(&zip);
    tc_input_close(reader.input);
    tc_arena_release(&reader.arena);
}
