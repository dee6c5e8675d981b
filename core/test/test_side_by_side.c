/*
 * Files side by side: each is opened in turn by the main thread and written once; of several
 * failures the first counts; where one can't be opened, those before it are still written. One that
 * takes long keeps its own output, however many others come and go meanwhile.
 *
 * Only the main thread may assert: Criterion leaves a test by a jump to the main thread's stack.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "core/base/error.h"
#include "core/convert/side_by_side.h"
#include "core/io/cores.h"
#include "core/io/publish.h"

#define FILES 200u

struct files {
    pthread_t main;
    size_t opened;
    atomic_size_t under_way;
    atomic_size_t most;
    atomic_size_t ended;
    atomic_size_t wrong; /* what a thread saw and should not have */
    size_t slow;         /* this one ends last */
    atomic_uchar written[FILES];
    size_t unopened; /* this one can't be opened */
    size_t bad[2];   /* these can't be written */
    struct tc_outfile *outs[FILES];
};

static bool open_file(void *context, size_t number, struct tc_open_file *open,
                      struct tc_error *error) {
    struct files *files = context;
    cr_assert(pthread_equal(files->main, pthread_self()));
    cr_assert_eq(files->opened++, number);
    if (number == files->unopened)
        return tc_fail(error, TC_IO, "test", "opening %zu", number);
    *open = (struct tc_open_file){.out = (void *)&files->outs[number]};
    return true;
}

static bool write_file(void *context, size_t number, const struct tc_open_file *open,
                       size_t threads, bool is_main, struct tc_error *error) {
    struct files *files = context;
    while (number == files->slow && atomic_load(&files->ended) + 1 < FILES)
        sched_yield();
    if ((void *)open->out != (void *)&files->outs[number] || threads == 0 ||
        is_main != (pthread_equal(files->main, pthread_self()) != 0))
        atomic_fetch_add(&files->wrong, 1);
    size_t now = atomic_fetch_add(&files->under_way, 1) + 1;
    size_t most = atomic_load(&files->most);
    while (now > most && !atomic_compare_exchange_weak(&files->most, &most, now))
        ;
    atomic_fetch_add(&files->written[number], 1);
    atomic_fetch_sub(&files->under_way, 1);
    atomic_fetch_add(&files->ended, 1);
    return (number != files->bad[0] && number != files->bad[1]) ||
           tc_fail(error, TC_IO, "test", "writing %zu", number);
}

static void report(void *context) {
    cr_assert(pthread_equal(((struct files *)context)->main, pthread_self()));
}

static bool run(struct files *files, size_t at_once, struct tc_error *error) {
    const struct tc_files_work work = {
        .context = files, .open = open_file, .write = write_file, .report = report};
    files->main = pthread_self();
    bool ok = tc_files_write(&work, FILES, at_once, error);
    cr_assert_eq(atomic_load(&files->wrong), 0);
    return ok;
}

static const size_t counts[] = {1, 2, 3, 8};
#define COUNTS (sizeof counts / sizeof *counts)

Test(side_by_side, every_file_is_written_once, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t c = 0; c < COUNTS; c++) {
        struct files files = {.slow = FILES, .unopened = FILES, .bad = {FILES, FILES}};
        struct tc_error error = {0};
        cr_assert(run(&files, counts[c], &error));
        for (size_t i = 0; i < FILES; i++)
            cr_assert_eq(files.written[i], 1);
        cr_assert_leq(atomic_load(&files.most), counts[c]);
    }
}

Test(side_by_side, a_slow_file_keeps_its_output, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t slow = 0; slow < FILES; slow += 61) {
        struct files files = {.slow = slow, .unopened = FILES, .bad = {FILES, FILES}};
        struct tc_error error = {0};
        cr_assert(run(&files, 8, &error));
        for (size_t i = 0; i < FILES; i++)
            cr_assert_eq(files.written[i], 1);
    }
}

Test(side_by_side, the_first_failure_counts, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t c = 0; c < COUNTS; c++) {
        struct files files = {.slow = FILES, .unopened = FILES, .bad = {61, 60}};
        struct tc_error error = {0};
        cr_assert_not(run(&files, counts[c], &error));
        cr_assert_str_eq(error.message, "writing 60");
        for (size_t i = 0; i <= 60; i++)
            cr_assert_eq(files.written[i], 1);
    }
}

Test(side_by_side, what_cannot_be_opened_comes_behind_the_others, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t c = 0; c < COUNTS; c++) {
        struct files files = {.slow = FILES, .unopened = 60, .bad = {FILES, FILES}};
        struct tc_error error = {0};
        cr_assert_not(run(&files, counts[c], &error));
        cr_assert_str_eq(error.message, "opening 60");
        for (size_t i = 0; i < FILES; i++)
            cr_assert_eq(files.written[i], i < 60);
    }
}
