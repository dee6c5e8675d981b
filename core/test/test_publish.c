#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/test/temporary.h"

static char folder[TEST_PATH_MAX];
static char path[TEST_PATH_MAX + 16];

static void setup(void) {
    test_temporary_folder(folder);
    snprintf(path, sizeof path, "%s/target", folder);
}

static size_t entries(void) {
    size_t count = 0;
    DIR *handle = opendir(folder);
    while (readdir(handle))
        count++;
    closedir(handle);
    return count - 2;
}

static void teardown(void) {
    test_remove_folder(folder);
}

TestSuite(publish, .init = setup, .fini = teardown);

static void write_old(const char *text) {
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static void expect(const char *text) {
    char got[64] = {0};
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_lt(fread(got, 1, sizeof got - 1, file), sizeof got);
    fclose(file);
    cr_assert_str_eq(got, text);
}

Test(publish, appears_only_when_committed) {
    struct tc_publish publish;
    struct tc_error error = {0};
    write_old("old");
    cr_assert_eq(chmod(path, 0640), 0);
    cr_assert(tc_publish_begin(&publish, path, false, (struct tc_publish_options){0}, &error));
    cr_assert(tc_publish_check(&publish, "target", NULL, 0, &error));
    struct tc_outfile *out = tc_outfile_open(&publish, "target", &error);
    cr_assert_not_null(out);
    cr_assert(tc_outfile_write(out, "new!", 4, &error));
    cr_assert(tc_outfile_write_at(out, 1, "E", 1, &error));
    expect("old");
    cr_assert_eq(entries(), 1, "what waits has no name");
    cr_assert(tc_outfile_seal(out, &error));
    cr_assert(tc_publish_commit(&publish, &error));
    tc_publish_end(&publish);
    expect("nEw!");
    cr_assert_eq(entries(), 1);
    struct stat status;
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_eq(status.st_mode & 0777, 0640, "the old file's mode is kept");
}

Test(publish, nothing_stays_of_an_abandoned_one) {
    struct tc_publish publish;
    struct tc_error error = {0};
    write_old("old");
    cr_assert(tc_publish_begin(&publish, path, false, (struct tc_publish_options){0}, &error));
    cr_assert(tc_outfile_write(tc_outfile_open(&publish, "target", &error), "x", 1, &error));
    tc_publish_end(&publish);
    expect("old");
    cr_assert_eq(entries(), 1);
}

Test(publish, refuses_links_folders_and_what_exists) {
    struct tc_publish publish;
    struct tc_error error = {0};
    cr_assert_eq(symlink("elsewhere", path), 0);
    cr_assert(tc_publish_begin(&publish, path, false, (struct tc_publish_options){0}, &error));
    cr_assert_not(tc_publish_check(&publish, "target", NULL, 0, &error));
    cr_assert_eq(error.class, TC_UNSAFE);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    error = (struct tc_error){0};
    cr_assert_not(tc_publish_check(&publish, "target", NULL, 0, &error));
    cr_assert_eq(error.class, TC_USAGE);
    cr_assert_eq(rmdir(path), 0);
    publish.options.no_clobber = true;
    write_old("old");
    error = (struct tc_error){0};
    cr_assert_not(tc_publish_check(&publish, "target", NULL, 0, &error));
    cr_assert_eq(error.class, TC_USAGE);
    tc_publish_end(&publish);
}

/* Another process creates the file between the check and the rename. */
Test(publish, no_clobber_holds_until_the_end) {
    struct tc_publish publish;
    struct tc_error error = {0};
    cr_assert(tc_publish_begin(&publish, path, false,
                               (struct tc_publish_options){.no_clobber = true}, &error));
    struct tc_outfile *out = tc_outfile_open(&publish, "target", &error);
    write_old("theirs");
    cr_assert(tc_outfile_seal(out, &error));
    cr_assert_not(tc_publish_commit(&publish, &error));
    cr_assert_eq(error.class, TC_IO);
    tc_publish_end(&publish);
    expect("theirs");
    cr_assert_eq(entries(), 1);
}

Test(publish, copies_ranges_large_and_small) {
    struct tc_publish publish;
    struct tc_error error = {0};
    size_t size = 5000000;
    char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 7 + i / 1000);
    char source[TEST_PATH_MAX + 32];
    snprintf(source, sizeof source, "%s/source", folder);
    int fd = open(source, O_CREAT | O_WRONLY, 0600);
    cr_assert(tc_write_all(fd, bytes, size, &error));
    close(fd);
    struct tc_input *input = tc_input_open(source, NULL, &error);
    cr_assert(tc_publish_begin(&publish, path, false, (struct tc_publish_options){0}, &error));
    struct tc_outfile *out = tc_outfile_open(&publish, "target", &error);
    cr_assert(tc_outfile_copy(out, input, 3, 10, &error));
    cr_assert(tc_outfile_copy(out, input, 1, size - 1, &error));
    cr_assert(tc_outfile_seal(out, &error));
    cr_assert(tc_publish_commit(&publish, &error));
    tc_publish_end(&publish);
    tc_input_close(input);
    input = tc_input_open(path, NULL, &error);
    cr_assert_eq(input->size, size + 9);
    char *got = tc_input_load(input, 0, size + 9, &error);
    cr_assert_arr_eq(got, bytes + 3, 10);
    cr_assert_arr_eq(got + 10, bytes + 1, size - 1);
    tc_input_close(input);
    free(got);
    free(bytes);
}

/* Copies that follow one another on both sides, others, and writes between them: every byte comes
 * to its place, whatever is kept back. */
Test(publish, copies_that_are_kept_back) {
    struct tc_publish publish;
    struct tc_error error = {0};
    const size_t size = (size_t)70 << 20;
    char *bytes = malloc(size);
    char *meant = calloc(1, size + 8192);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 31 + i / 4099);
    char source[TEST_PATH_MAX + 32];
    snprintf(source, sizeof source, "%s/source", folder);
    int fd = open(source, O_CREAT | O_WRONLY, 0600);
    cr_assert(tc_write_all(fd, bytes, size, &error));
    close(fd);
    struct tc_input *input = tc_input_open(source, NULL, &error);
    cr_assert(tc_publish_begin(&publish, path, false, (struct tc_publish_options){0}, &error));
    struct tc_outfile *out = tc_outfile_open(&publish, "target", &error);
    /* From, to, length; a `from` of SIZE_MAX is a write of zeros. */
    const size_t steps[][3] = {
        {SIZE_MAX, 0, 100},          {100, 4196, 3000},      {3100, 7196, 5},
        {3105, 7201, 300000},        {SIZE_MAX, 100, 4096},  {303105, 307201, 7},
        {400000, 307208, 1},         {400001, 307209, 4000}, {500000, 400000, 40000000},
        {40500000, 40400000, 10000}, {0, 50000000, 4095},    {4096, 50004095, (size_t)20 << 20},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        static const char zeros[4096];
        size_t from = steps[i][0];
        out->position = steps[i][1];
        cr_assert(from == SIZE_MAX ? tc_outfile_write(out, zeros, steps[i][2], &error)
                                   : tc_outfile_copy(out, input, from, steps[i][2], &error));
        cr_assert_eq(out->position, steps[i][1] + steps[i][2]);
        if (from != SIZE_MAX)
            memcpy(meant + steps[i][1], bytes + from, steps[i][2]);
    }
    uint64_t end = out->position;
    cr_assert(tc_outfile_seal(out, &error));
    cr_assert(tc_publish_commit(&publish, &error));
    tc_publish_end(&publish);
    tc_input_close(input);
    input = tc_input_open(path, NULL, &error);
    cr_assert_eq(input->size, end);
    char *got = tc_input_load(input, 0, end, &error);
    cr_assert_eq(memcmp(got, meant, end), 0);
    tc_input_close(input);
    free(got);
    free(meant);
    free(bytes);
}

Test(publish, a_file_that_changes_is_noticed) {
    struct tc_error error = {0};
    char bytes[8];
    write_old("0123456789");
    struct tc_input *input = tc_input_open(path, NULL, &error);
    cr_assert(tc_input_read(input, 2, bytes, 8, &error));
    cr_assert_arr_eq(bytes, "23456789", 8);
    cr_assert_not(tc_input_read(input, 3, bytes, 8, &error));
    cr_assert_eq(error.class, TC_INVALID);
    error = (struct tc_error){0};
    cr_assert(tc_input_unchanged(input, &error));
    cr_assert_eq(truncate(path, 4), 0);
    cr_assert_not(tc_input_read(input, 2, bytes, 8, &error));
    cr_assert_eq(error.class, TC_IO);
    error = (struct tc_error){0};
    cr_assert_not(tc_input_unchanged(input, &error));
    tc_input_close(input);
}

/* Thousands of shards must do with a few descriptors. */
Test(io, a_pool_keeps_few_files_open) {
    struct tc_input_pool pool;
    struct tc_input *inputs[50];
    struct tc_error error = {0};
    setup();
    tc_input_pool_init(&pool);
    for (int i = 0; i < 50; i++) {
        char name[TEST_PATH_MAX + 32];
        snprintf(name, sizeof name, "%s/%d", folder, i);
        FILE *file = fopen(name, "w");
        fprintf(file, "file %02d", i);
        fclose(file);
        inputs[i] = tc_input_open(name, &pool, &error);
        cr_assert_not_null(inputs[i]);
        cr_assert_leq(pool.open, 8);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 50; i++) {
            char got[8] = {0};
            char expected[32];
            cr_assert(tc_input_read(inputs[i], 0, got, 7, &error));
            snprintf(expected, sizeof expected, "file %02d", i);
            cr_assert_str_eq(got, expected);
            cr_assert_leq(pool.open, 8);
        }
    for (int i = 0; i < 50; i++)
        tc_input_close(inputs[i]);
    cr_assert_eq(pool.open, 0);
    tc_input_pool_release(&pool);
    teardown();
}

/* A sealed file can be read under the name that it will have. */
Test(publish, reopened_before_it_is_there) {
    struct tc_publish publish;
    struct tc_error error = {0};
    char got[4] = {0};
    write_old("old");
    cr_assert(tc_publish_begin(&publish, path, false, (struct tc_publish_options){0}, &error));
    struct tc_outfile *out = tc_outfile_open(&publish, "target", &error);
    cr_assert(tc_outfile_write(out, "new", 3, &error) && tc_outfile_seal(out, &error));
    cr_assert_eq(tc_publish_find(&publish, "target"), out);
    cr_assert_null(tc_publish_find(&publish, "other"));
    struct tc_input *input = tc_outfile_reopen(out, NULL, &error);
    cr_assert_not_null(input);
    cr_assert_str_eq(input->path, path);
    cr_assert(input->size == 3 && tc_input_read(input, 0, got, 3, &error));
    cr_assert_str_eq(got, "new");
    tc_input_close(input);
    tc_publish_end(&publish);
    expect("old");
    cr_assert_eq(entries(), 1);
}

/* Two outputs at the same time: each ends independently, in any order. */
Test(publish, several_at_once) {
    struct tc_publish first;
    struct tc_publish second;
    struct tc_error error = {0};
    char other[TEST_PATH_MAX + 32];
    snprintf(other, sizeof other, "%s/other", folder);
    cr_assert(tc_publish_begin(&first, path, false, (struct tc_publish_options){0}, &error));
    cr_assert(tc_publish_begin(&second, other, false, (struct tc_publish_options){0}, &error));
    struct tc_outfile *out = tc_outfile_open(&first, "target", &error);
    cr_assert_not_null(tc_outfile_open(&second, "other", &error));
    cr_assert_eq(entries(), 0);
    cr_assert(tc_outfile_write(out, "new", 3, &error) && tc_outfile_seal(out, &error));
    cr_assert(tc_publish_commit(&first, &error));
    tc_publish_end(&first);
    expect("new");
    cr_assert_eq(entries(), 1);
    tc_publish_end(&second);
    cr_assert_eq(entries(), 1);
}

/* A signal removes the temporary files of all outputs. */
Test(publish, a_signal_cleans_up_after_all) {
    struct tc_publish publishes[2];
    struct tc_error error = {0};
    setenv("TCONV_TEST_NAMED", "1", 1);
    tc_signals_install();
    for (int i = 0; i < 2; i++) {
        cr_assert(
            tc_publish_begin(&publishes[i], path, false, (struct tc_publish_options){0}, &error));
        cr_assert_not_null(tc_outfile_open(&publishes[i], "target", &error));
    }
    cr_assert_eq(entries(), 2, "each has a folder of its own");
    pid_t child = fork();
    if (child == 0)
        raise(SIGTERM);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    cr_assert_eq(entries(), 0);
    tc_publish_end(&publishes[0]);
    tc_publish_end(&publishes[1]);
}

static void write_file(const char *name, const char *text) {
    char file[TEST_PATH_MAX + 64];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    FILE *handle = fopen(file, "w");
    cr_assert_not_null(handle);
    fputs(text, handle);
    fclose(handle);
}

static bool is_there(const char *name) {
    char file[TEST_PATH_MAX + 64];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    return access(file, F_OK) == 0;
}

static void expect_file(const char *name, const char *text) {
    char file[TEST_PATH_MAX + 64];
    char got[256] = {0};
    snprintf(file, sizeof file, "%s/%s", folder, name);
    FILE *handle = fopen(file, "r");
    cr_assert_not_null(handle, "%s", name);
    cr_assert_lt(fread(got, 1, sizeof got - 1, handle), sizeof got);
    fclose(handle);
    cr_assert_str_eq(got, text, "%s", name);
}

/* An index and two shards; the second is new. */
static void begin_set(struct tc_publish *publish, bool no_clobber) {
    static const char *const names[] = {"one", "two", "target"};
    struct tc_error error = {0};
    struct tc_publish_options options = {.no_clobber = no_clobber, .no_sync = true};
    cr_assert(tc_publish_begin(publish, path, false, options, &error));
    cr_assert(tc_publish_set_head(publish, "target", &error));
    for (size_t i = 0; i < 3; i++) {
        struct tc_outfile *out = tc_outfile_open(publish, names[i], &error);
        cr_assert_not_null(out);
        cr_assert(tc_outfile_write(out, "new", 3, &error) && tc_outfile_seal(out, &error));
    }
    cr_assert(tc_publish_remove(publish, "gone", &error));
}

static void write_old_set(void) {
    write_old("old");
    write_file("one", "old one");
    write_file("gone", "old gone");
}

static void expect_old_set(void) {
    expect("old");
    expect_file("one", "old one");
    expect_file("gone", "old gone");
    cr_assert_eq(entries(), 3);
}

static void expect_new_set(void) {
    expect("new");
    expect_file("one", "new");
    expect_file("two", "new");
    cr_assert_eq(entries(), 3);
}

Test(publish, several_files_replace_others) {
    struct tc_publish publish;
    struct tc_error error = {0};
    write_old_set();
    begin_set(&publish, false);
    expect_old_set();
    cr_assert(tc_publish_commit(&publish, &error));
    tc_publish_end(&publish);
    expect_new_set();
}

static void start_over(void) {
    teardown();
    cr_assert_eq(mkdir(folder, 0700), 0);
}

/* Lets each system call fail in turn: afterwards all files are the old ones or all
 * are the new ones. */
static void fail_at_each_step(void) {
    bool done = false;
    for (int step = 1; step < 200 && !done; step++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            struct tc_publish publish;
            struct tc_error error = {0};
            char number[16];
            write_old_set();
            begin_set(&publish, false);
            snprintf(number, sizeof number, "%d", step);
            setenv("TCONV_TEST_FAIL", number, 1);
            bool ok = tc_publish_commit(&publish, &error);
            unsetenv("TCONV_TEST_FAIL");
            tc_publish_end(&publish);
            if (!ok)
                expect_old_set();
            else
                expect_file("target", "new");
            _exit(!ok ? 1 : entries() == 3 ? 0 : 2);
        }
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) <= 2, "step %d", step);
        done = WEXITSTATUS(status) == 0 && step > 30;
        start_over();
    }
    cr_assert(done);
}

Test(publish, a_failure_puts_everything_back) {
    fail_at_each_step();
}

Test(publish, a_failure_puts_everything_back_without_links) {
    setenv("TCONV_TEST_NO_LINKS", "1", 1);
    fail_at_each_step();
}

/* Replaces the old files in a process that is killed at a given step. */
static void publish_and_die(int step) {
    int status;
    write_old_set();
    pid_t child = fork();
    if (child == 0) {
        struct tc_publish publish;
        struct tc_error error = {0};
        char number[16];
        begin_set(&publish, false);
        snprintf(number, sizeof number, "%d", step);
        setenv("TCONV_TEST_KILL", number, 1);
        tc_publish_commit(&publish, &error);
        tc_publish_end(&publish);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
}

static bool is_refused(void) {
    char head[32] = {0};
    FILE *file = fopen(path, "r");
    cr_assert(file && fread(head, 1, sizeof head - 1, file) >= 3);
    fclose(file);
    return strstr(head, TC_INCOMPLETE_KEY) != NULL;
}

/* After a kill in the middle the head is the marker, and the next run to the same
 * output puts all files back. */
Test(publish, the_next_run_recovers) {
    size_t refused = 0;
    for (int step = 1; step < 50; step++) {
        struct tc_publish publish;
        struct tc_error error = {0};
        publish_and_die(step);
        refused += is_refused();
        cr_assert(tc_publish_begin(&publish, path, false,
                                   (struct tc_publish_options){.no_sync = true}, &error));
        tc_publish_end(&publish);
        if (is_there("two"))
            expect_new_set();
        else
            expect_old_set();
        start_over();
    }
    cr_assert_gt(refused, 2);
}

/* A file that somebody else created after the kill stays, and then the marker stays. */
Test(publish, recovery_leaves_what_others_wrote) {
    char theirs[TEST_PATH_MAX + 64];
    char two[TEST_PATH_MAX + 64];
    snprintf(theirs, sizeof theirs, "%s/theirs", folder);
    snprintf(two, sizeof two, "%s/two", folder);
    for (int step = 1; step < 50 && !is_there("two"); step++) {
        start_over();
        publish_and_die(step);
    }
    cr_assert(is_there("two") && is_refused(), "the head goes last");
    write_file("theirs", "theirs");
    cr_assert_eq(rename(theirs, two), 0);
    tc_publish_recover(path);
    expect_file("two", "theirs");
    cr_assert(is_refused());
    cr_assert_eq(entries(), 4, "nothing temporary is left");
}

Test(publish, no_clobber_holds_for_each_of_several) {
    struct tc_publish publish;
    struct tc_error error = {0};
    begin_set(&publish, true);
    write_file("two", "theirs");
    cr_assert_not(tc_publish_commit(&publish, &error));
    cr_assert_eq(error.class, TC_IO);
    tc_publish_end(&publish);
    expect_file("two", "theirs");
    cr_assert_eq(entries(), 1);
}

/* Two outputs that belong together: where the second can't be published, the first
 * is not published either. */
Test(publish, all_or_none) {
    struct tc_publish publishes[2];
    struct tc_publish *const both[] = {&publishes[0], &publishes[1]};
    struct tc_error error = {0};
    char other[TEST_PATH_MAX + 32];
    snprintf(other, sizeof other, "%s/other", folder);
    write_old("old");
    for (size_t i = 0; i < 2; i++) {
        cr_assert(tc_publish_begin(&publishes[i], i ? other : path, false,
                                   (struct tc_publish_options){.no_clobber = i == 1}, &error));
        struct tc_outfile *out = tc_outfile_open(&publishes[i], i ? "other" : "target", &error);
        cr_assert(tc_outfile_write(out, "new", 3, &error) && tc_outfile_seal(out, &error));
    }
    write_file("other", "theirs");
    cr_assert_not(tc_publish_commit_all(both, 2, &error));
    tc_publish_end(&publishes[0]);
    tc_publish_end(&publishes[1]);
    expect("old");
    expect_file("other", "theirs");
    cr_assert_eq(entries(), 2);
}

Test(publish, a_folder_appears_whole) {
    struct tc_publish publish;
    struct tc_error error = {0};
    char made[TEST_PATH_MAX + 32];
    snprintf(made, sizeof made, "%s/made/", folder);
    for (int turn = 0; turn < 2; turn++) {
        cr_assert(tc_publish_begin(&publish, made, true, (struct tc_publish_options){0}, &error));
        for (int i = 0; i < 2; i++) {
            struct tc_outfile *out = tc_outfile_open(&publish, i ? "one" : "two", &error);
            cr_assert(out && tc_outfile_write(out, "new", 3, &error));
            cr_assert(tc_outfile_seal(out, &error));
        }
        cr_assert_eq(is_there("made"), turn == 1, "it is there when all of it is");
        cr_assert(tc_publish_commit(&publish, &error), "%s", error.message);
        tc_publish_end(&publish);
        expect_file("made/one", "new");
        expect_file("made/two", "new");
        cr_assert_eq(entries(), 1);
    }
}

/* With few descriptors, all but a few files wait in the staging folder. */
Test(publish, more_files_than_descriptors) {
    struct tc_publish publish;
    struct tc_error error = {0};
    struct rlimit limit = {.rlim_cur = 32, .rlim_max = 32};
    cr_assert(tc_publish_begin(&publish, path, false, (struct tc_publish_options){.no_sync = true},
                               &error));
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        struct tc_outfile *out = tc_outfile_open(&publish, name, &error);
        cr_assert_not_null(out, "%s", error.message);
        cr_assert(tc_outfile_write(out, "new", 3, &error) && tc_outfile_seal(out, &error));
    }
    cr_assert_eq(entries(), 1);
    cr_assert_eq(publish.unnamed, 2);
    cr_assert(tc_publish_commit(&publish, &error), "%s", error.message);
    tc_publish_end(&publish);
    cr_assert_eq(entries(), 100);
}

/* The bytes of a file on disk, as an input. */
static struct tc_input *open_target(void) {
    struct tc_error error = {0};
    write_old("0123456789");
    struct tc_input *input = tc_input_open(path, NULL, &error);
    cr_assert_not_null(input);
    return input;
}

Test(io, a_part_that_cannot_be_read_is_not_forgotten, .init = setup, .fini = teardown) {
    struct tc_error ignored = {0};
    struct tc_error error = {0};
    char bytes[4];
    struct tc_input *whole = open_target();
    struct tc_input *part = tc_input_part(whole, "part", 2, 4, &error);
    cr_assert_not_null(part);
    cr_assert(tc_input_read(part, 0, bytes, 4, &error) && tc_input_sound(whole, &error));
    cr_assert_eq(truncate(path, 3), 0);
    cr_assert_not(tc_input_read(part, 0, bytes, 4, &ignored));
    tc_input_close(part);
    cr_assert_not(tc_input_sound(whole, &error), "its caller went on");
    cr_assert_eq(error.class, TC_IO);
    tc_input_close(whole);
}

Test(io, a_range_beyond_the_end_is_no_failure_of_the_file, .init = setup, .fini = teardown) {
    struct tc_error error = {0};
    struct tc_error sound = {0};
    char bytes[16];
    struct tc_input *input = open_target();
    cr_assert_not(tc_input_read(input, 5, bytes, 16, &error));
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert(tc_input_sound(input, &sound));
    tc_input_close(input);
}
