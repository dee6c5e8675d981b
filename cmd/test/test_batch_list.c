/* Places of models below DST, and the jobserver of make: what needs no conversion. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/batch/list.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/jobserver.h"
#include "formats/registry.h"

static void check_place(const char *destination, const char *relative, bool folder,
                        const char *wanted) {
    struct tc_error error = {0};
    struct batch_list list;
    cr_assert(batch_list_init(&list, destination, tc_registry_named("npz"), &error));
    const char *place = batch_place(&list, tc_text_of(relative), folder, &error);
    cr_assert_str_eq(place, wanted);
    batch_list_release(&list);
}

Test(batch_list, places) {
    check_place("dst", "a.safetensors", false, "dst/a.npz");
    check_place("dst/", "x/y/a.safetensors", false, "dst/x/y/a.npz");
    check_place("dst//", "a.b.pt", false, "dst/a.b.npz");
    check_place("dst", "model.safetensors.index.json", false, "dst/model.npz");
    check_place("dst", "noextension", false, "dst/noextension.npz");
    check_place("dst", "x/llama", true, "dst/x/llama/");
    check_place("dst", "A.SAFETENSORS", false, "dst/A.npz");
}

Test(batch_list, patterns) {
    static const char *const cases[][2] = {{"a/b/x*.npz", "a/b"},
                                           {"*.npz", "."},
                                           {"/*/a.npz", "/"},
                                           {"a/b?/c", "a"},
                                           {"a/[b]/c", "a"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = batch_pattern_folder(cases[i][0]);
        cr_assert(batch_is_pattern(cases[i][0]));
        cr_assert_str_eq(folder, cases[i][1]);
        free(folder);
    }
    cr_assert_not(batch_is_pattern("a/b.npz"));
}

Test(jobserver, tokens_are_taken_and_given_back) {
    int pair[2];
    char flags[128];
    struct tc_jobserver server;
    cr_assert_eq(pipe(pair), 0);
    cr_assert_eq(write(pair[1], "+-", 2), 2);
    snprintf(flags, sizeof flags, " -j --jobserver-auth=98,99 --jobserver-auth=%d,%d", pair[0],
             pair[1]);
    tc_jobserver_open(&server, flags);
    cr_assert(tc_jobserver_take(&server));
    cr_assert(tc_jobserver_take(&server));
    cr_assert_not(tc_jobserver_take(&server));
    tc_jobserver_give(&server);
    cr_assert(tc_jobserver_take(&server));
    tc_jobserver_close(&server);
    char tokens[3];
    cr_assert_eq(read(pair[0], tokens, 3), 2);
    cr_assert(memchr(tokens, '+', 2) && memchr(tokens, '-', 2));
}

Test(jobserver, one_that_is_not_for_us_is_left_alone) {
    struct tc_jobserver server;
    static const char *const flags[] = {"--jobserver-auth=-2,-2", "--jobserver-auth=900,901",
                                        "--jobserver-auth=fifo:/nowhere", "--jobserver-auth=x"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        tc_jobserver_open(&server, flags[i]);
        cr_assert(server.named && server.read_fd == -1);
        cr_assert_not(tc_jobserver_take(&server));
        tc_jobserver_close(&server);
    }
    tc_jobserver_open(&server, NULL);
    cr_assert_not(server.named);
    tc_jobserver_open(&server, "-j4");
    cr_assert_not(server.named);
}
