#include <criterion/criterion.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/thread_pool.h"

static struct tc_findings findings;

static void setup(void) {
    tc_findings_init(&findings);
}

static void teardown(void) {
    tc_findings_release(&findings);
}

TestSuite(findings, .init = setup, .fini = teardown);

static const struct tc_text none;

Test(findings, keeps_copies) {
    char name[] = "tensor";
    char file[] = "a file";
    tc_findings_add(&findings, "code", file, tc_text_of(name), "%d %s", 7, name);
    memset(name, 'x', sizeof name - 1);
    memset(file, 'x', sizeof file - 1);
    cr_assert_eq(findings.count, 1);
    cr_assert_eq(findings.failures, 1);
    cr_assert_str_eq(findings.list[0].file, "a file");
    cr_assert_str_eq(findings.list[0].message, "7 tensor");
    cr_assert(tc_text_equal(findings.list[0].tensor, TC_TEXT("tensor")));
}

Test(findings, are_sorted_by_place_whatever_their_order) {
    struct tc_error error = {0};
    tc_findings_note(&findings, "note", NULL, none, "last");
    tc_fail(&error, TC_INVALID, "crc", "second");
    tc_error_at(&error, 200);
    tc_error_in_file(&error, "f");
    tc_findings_add_error(&findings, &error);
    error.offset = 100;
    tc_findings_add_error(&findings, &error);
    tc_findings_add(&findings, "whole", NULL, none, "first");
    tc_findings_sort(&findings);
    cr_assert_eq(findings.count, 4);
    cr_assert_eq(findings.failures, 3);
    cr_assert_str_eq(findings.list[0].message, "first");
    cr_assert_eq(findings.list[1].offset, 100);
    cr_assert_eq(findings.list[2].offset, 200);
    cr_assert(findings.list[3].note);
}

Test(findings, only_damage_is_forgiven_and_only_where_it_is_collected) {
    struct tc_format_options options = {.limits = TC_LIMITS_DEFAULT};
    struct tc_input input = {.path = (char *)"file"};
    struct tc_reader reader = {.options = &options, .input = &input};
    struct tc_error error = {0};
    tc_fail(&error, TC_INVALID, "crc", "damaged");
    cr_assert_not(tc_reader_forgive(&reader, &error));
    cr_assert_eq(error.class, TC_INVALID);
    options.findings = &findings;
    cr_assert(tc_reader_forgive(&reader, &error));
    cr_assert_eq(error.class, TC_OK);
    cr_assert_eq(findings.count, 1);
    cr_assert_str_eq(findings.list[0].file, "file");
    tc_fail(&error, TC_IO, "read", "gone");
    cr_assert_not(tc_reader_forgive(&reader, &error));
    cr_assert_eq(findings.count, 1);
}

static void *add_many(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++)
        tc_findings_add(&findings, "code", NULL, none, "%d", i);
    return NULL;
}

Test(findings, come_from_several_threads) {
    pthread_t thread;
    struct tc_error error = {0};
    cr_assert(tc_thread_start(&thread, add_many, NULL, &error));
    add_many(NULL);
    pthread_join(thread, NULL);
    cr_assert_eq(findings.count, 2000);
    cr_assert_eq(findings.failures, 2000);
    cr_assert(tc_findings_ok(&findings, &error));
}
