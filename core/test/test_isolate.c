/* Parsers in a process of their own: what they send comes back, and whatever
 * they do else is an error of the input. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/isolate.h"
#include "core/io/landlock.h"
#include "core/io/sanitized.h"
#include "core/io/seccomp.h"

#define MOST 1000000
#define PARSER(name)                                                                               \
    static bool name(void *context, struct tc_isolate_host *host, struct tc_buffer *answer,        \
                     struct tc_error *error)
#define UNUSED (void)context, (void)host, (void)answer, (void)error

typedef bool parser(void *context, struct tc_isolate_host *host, struct tc_buffer *answer,
                    struct tc_error *error);

/* The input: each byte is the low byte of its offset times 7. */
static bool read_sevens(void *input, uint64_t offset, void *bytes, size_t length,
                        struct tc_error *error) {
    uint64_t *size = input;
    unsigned char *to = bytes;
    if (offset > *size || length > *size - offset)
        return tc_fail(error, TC_INVALID, "truncated", "the file is cut short");
    for (size_t i = 0; i < length; i++)
        to[i] = (unsigned char)((offset + i) * 7);
    return true;
}

static bool run(parser *parse, void *context, struct tc_buffer *answer, struct tc_error *error) {
    uint64_t size = UINT64_C(3) << 20;
    struct tc_isolate isolate = {.parse = parse,
                                 .context = context,
                                 .read = read_sevens,
                                 .input = &size,
                                 .memory = UINT64_C(64) << 20,
                                 .cpu_seconds = 1,
                                 .wall_seconds = 600, /* far more than a busy machine takes */
                                 .most = MOST,
                                 .require = tc_landlock_abi() != TC_LANDLOCK_NONE};
    return tc_isolate_run(&isolate, answer, error);
}

/* It fails with exit code 3 and a message that has these words. */
static void expect_death(parser *parse, void *context, const char *words) {
    struct tc_buffer answer = {0};
    struct tc_error error = {0};
    cr_assert_not(run(parse, context, &answer, &error));
    cr_assert_eq(error.class, TC_INVALID, "%d: %s", error.class, error.message);
    cr_assert_str_eq(error.code, "parser");
    cr_assert(strstr(error.message, words), "%s", error.message);
    cr_assert_null(answer.bytes);
}

/* The answer is this text. */
static void expect_answer(parser *parse, void *context, const char *text) {
    struct tc_buffer answer = {0};
    struct tc_error error = {0};
    cr_assert(run(parse, context, &answer, &error), "%s", error.message);
    cr_assert_eq(answer.length, strlen(text), "%.*s", (int)answer.length, answer.bytes);
    cr_assert(answer.length == 0 || memcmp(answer.bytes, text, answer.length) == 0);
    tc_buffer_release(&answer);
}

/* An emulator of another machine has neither Landlock nor seccomp, nor limits of
 * memory. */
static void need_confinement(void) {
    if (tc_landlock_abi() == TC_LANDLOCK_NONE)
        cr_skip_test("this kernel has no Landlock");
}

PARSER(say_hello) {
    UNUSED;
    tc_buffer_addf(answer, "hello %s", (const char *)context);
    return true;
}

Test(isolate, an_answer_comes_back) {
    char name[] = "parser";
    expect_answer(say_hello, name, "hello parser");
}

PARSER(say_nothing) {
    UNUSED;
    return true;
}

Test(isolate, an_answer_may_be_empty) {
    expect_answer(say_nothing, NULL, "");
}

/* More than one request's worth, at an odd place. */
PARSER(sum_input) {
    (void)context;
    size_t length = (size_t)5 << 18;
    unsigned char *bytes = malloc(length);
    if (!bytes || !tc_isolate_read(host, 12345, bytes, length, error))
        return false;
    unsigned long long wrong = 0;
    for (size_t i = 0; i < length; i++)
        wrong += bytes[i] != (unsigned char)((12345 + i) * 7);
    tc_buffer_addf(answer, "%llu of %zu wrong", wrong, length);
    return true;
}

Test(isolate, it_reads_ranges_of_its_input) {
    expect_answer(sum_input, NULL, "0 of 1310720 wrong");
}

PARSER(read_beyond) {
    (void)context, (void)answer;
    char byte;
    return tc_isolate_read(host, UINT64_C(1) << 40, &byte, 1, error);
}

Test(isolate, a_range_beyond_the_input_is_the_callers_error) {
    struct tc_buffer answer = {0};
    struct tc_error error = {0};
    cr_assert_not(run(read_beyond, NULL, &answer, &error));
    cr_assert_str_eq(error.code, "truncated");
}

PARSER(complain) {
    (void)host, (void)answer;
    return tc_fail(error, *(enum tc_class *)context, "mine", "at the %dth byte", 7);
}

Test(isolate, its_own_error_comes_back) {
    static const enum tc_class classes[][2] = {
        {TC_INVALID, TC_INVALID},  {TC_UNSUPPORTED, TC_UNSUPPORTED},
        {TC_UNSAFE, TC_UNSAFE},    {TC_IO, TC_IO},
        {TC_INTERNAL, TC_INVALID}, {(enum tc_class)12345, TC_INVALID}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        enum tc_class class = classes[i][0];
        struct tc_buffer answer = {0};
        struct tc_error error = {0};
        cr_assert_not(run(complain, &class, &answer, &error));
        cr_assert_eq(error.class, classes[i][1]);
        cr_assert_str_eq(error.message, "at the 7th byte");
    }
}

PARSER(crash) {
    UNUSED;
    raise(*(int *)context);
    return true;
}

Test(isolate, a_crash_is_told_by_its_signal) {
    int number = SIGSEGV;
    expect_death(crash, &number, "signal 11 (Segmentation fault)");
    number = SIGABRT;
    expect_death(crash, &number, "signal 6 (Aborted)");
}

PARSER(leave) {
    UNUSED;
    _exit(*(int *)context);
}

Test(isolate, an_exit_is_no_answer) {
    int status = 0;
    expect_death(leave, &status, "without an answer (status 0)");
    status = 7;
    expect_death(leave, &status, "without an answer (status 7)");
}

PARSER(loop) {
    UNUSED;
    for (volatile bool on = true; on;)
        ;
    return true;
}

Test(isolate, a_loop_ends, .timeout = 600) {
    expect_death(loop, NULL, "more than 1 seconds of processor time");
}

PARSER(sleep_on) {
    UNUSED;
    for (volatile bool on = true; on;)
        nanosleep(&(struct timespec){.tv_sec = 100}, NULL);
    return true;
}

Test(isolate, waiting_ends, .timeout = 600) {
    struct tc_isolate isolate = {.parse = sleep_on, .wall_seconds = 1, .most = MOST};
    struct tc_buffer answer = {0};
    struct tc_error error = {0};
    cr_assert_not(tc_isolate_run(&isolate, &answer, &error));
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert_str_eq(error.message, "the parser took more than 1 seconds");
}

/* The system's own malloc, as somebody else's code has it. */
#undef malloc
PARSER(eat_memory) {
    (void)host, (void)error;
    size_t step = (size_t)1 << 20;
    size_t got = 0;
    char *more;
    while (got < 1024 && (more = malloc(step)) != NULL) {
        memset(more, 1, step);
        got++;
    }
    *(size_t *)context = got;
    tc_buffer_addf(answer, "%s", got >= 40 && got <= 64 ? "about 64 MiB" : "more, or less");
    return true;
}

Test(isolate, memory_ends) {
    size_t got = 0;
    need_confinement();
    if (!TC_SANITIZED) /* which takes all memory there is for itself */
        expect_answer(eat_memory, &got, "about 64 MiB");
    cr_assert_eq(got, 0, "what it writes stays with it");
}

PARSER(try_calls) {
    (void)context, (void)host, (void)error;
    int pair[2];
    const struct {
        const char *what;
        long result;
    } tries[] = {
        {"open", open("/dev/null", O_RDONLY)},
        {"make", open("isolate-test", O_CREAT | O_WRONLY, 0600)},
        {"socket", socket(AF_INET, SOCK_STREAM, 0)},
        {"pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair)},
        {"exec", execl("/bin/true", "true", NULL)},
        {"fork", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)},
        {"kill", kill(getppid(), 0)},
        {"signal", syscall(SYS_tgkill, 1, 1, 0)},
        {"code", mprotect((void *)((uintptr_t)&pair & ~(uintptr_t)4095), 4096, PROT_EXEC)},
        {"dup", dup(0)},
        {"dumpable", prctl(PR_SET_DUMPABLE, 1)},
        {"stdout", write(1, "x", 1)},
        {"stderr", write(2, "x", 1)},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        if (tries[i].result != -1)
            tc_buffer_addf(answer, "%s ", tries[i].what);
    tc_buffer_add_string(answer, "done");
    return true;
}

Test(isolate, it_can_open_nothing_and_reach_nobody) {
    need_confinement();
    expect_answer(try_calls, NULL, "done");
    cr_assert_eq(access("isolate-test", F_OK), -1);
}

/* What it writes past the functions that it has. */
PARSER(write_garbage) {
    UNUSED;
    const struct tc_text *garbage = context;
    cr_assert(write(host->fd, garbage->bytes, garbage->length) == (ssize_t)garbage->length);
    _exit(0);
}

Test(isolate, garbage_is_no_answer) {
    struct tc_text text = TC_TEXT("this is not what was agreed upon");
    expect_death(write_garbage, &text, "does not keep to its protocol");
    text.length = 10;
    expect_death(write_garbage, &text, "without an answer");
    /* kind, class, offset, length */
    const struct {
        uint32_t kind[2];
        uint64_t rest[2];
        const char *words;
    } frames[] = {
        {{1, 0}, {0, UINT64_MAX}, "asks for what it may not have"},
        {{1, 0}, {0, 0}, "asks for what it may not have"},
        {{2, 0}, {0, MOST + 1}, "too long (got 1000001 bytes, at most 1000000)"},
        {{2, 0}, {0, UINT64_MAX}, "too long"},
        {{2, 0}, {0, MOST}, "without an answer"},
        {{3, 3}, {0, UINT64_MAX}, "without an answer"},
        {{3, 3}, {0, 5}, "without an answer"},
        {{0, 0}, {0, 0}, "does not keep to its protocol"},
    };
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        text = (struct tc_text){(const char *)&frames[i], 24};
        expect_death(write_garbage, &text, frames[i].words);
    }
}

PARSER(answer_too_long) {
    UNUSED;
    static char zeros[MOST + 1];
    tc_buffer_add(answer, zeros, sizeof zeros);
    return true;
}

Test(isolate, an_answer_has_a_bound) {
    expect_death(answer_too_long, NULL, "too long (got 1000001 bytes, at most 1000000)");
}

/* A whole answer, and a word behind it. */
PARSER(say_more) {
    UNUSED;
    struct {
        uint32_t kind[2];
        uint64_t rest[2];
        char text[8];
    } frame = {{2, 0}, {0, 4}, "answer!"};
    cr_assert(write(host->fd, &frame, sizeof frame) == (ssize_t)sizeof frame);
    _exit(0);
}

Test(isolate, more_than_an_answer_is_none) {
    expect_death(say_more, NULL, "says more than its answer");
}

/* A whole answer, and then a crash. */
PARSER(answer_and_crash) {
    UNUSED;
    struct {
        uint32_t kind[2];
        uint64_t rest[2];
    } frame = {{2, 0}, {0, 0}};
    cr_assert(write(host->fd, &frame, sizeof frame) == (ssize_t)sizeof frame);
    raise(SIGBUS);
    return true;
}

Test(isolate, an_answer_before_a_crash_is_none) {
    expect_death(answer_and_crash, NULL, "signal 7 (Bus error)");
}

/* It closes its descriptor and goes on. */
PARSER(hide) {
    close(host->fd);
    return sleep_on(context, host, answer, error);
}

Test(isolate, a_process_that_hides_is_ended, .timeout = 600) {
    expect_death(hide, NULL, "does not end");
}

/* It sends requests and takes no reply. */
PARSER(flood) {
    UNUSED;
    struct {
        uint32_t kind[2];
        uint64_t rest[2];
    } frame = {{1, 0}, {0, TC_ISOLATE_READ}};
    while (write(host->fd, &frame, sizeof frame) > 0)
        ;
    return false;
}

Test(isolate, who_takes_no_reply_is_ended, .timeout = 600) {
    uint64_t size = UINT64_C(3) << 20;
    struct tc_isolate isolate = {
        .parse = flood, .read = read_sevens, .input = &size, .wall_seconds = 1, .most = MOST};
    struct tc_buffer answer = {0};
    struct tc_error error = {0};
    cr_assert_not(tc_isolate_run(&isolate, &answer, &error));
    cr_assert_str_eq(error.message, "the parser took more than 1 seconds");
}

/* Our handlers clean up after us: a signal to the parser must not run them. */
static volatile sig_atomic_t handled;

static void on_signal(int number) {
    (void)number;
    handled = 1;
}

Test(isolate, handlers_of_ours_are_not_its_own) {
    int number = SIGTERM;
    signal(SIGTERM, on_signal);
    expect_death(crash, &number, "signal 15 (Terminated)");
    cr_assert_eq(handled, 0);
}

/* As a command does that is itself confined. */
Test(isolate, it_works_within_a_commands_sandbox) {
    need_confinement();
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(tc_seccomp_command(true, false), 0);
    expect_answer(sum_input, NULL, "0 of 1310720 wrong");
    expect_death(loop, NULL, "processor time");
    cr_assert_eq(socket(AF_INET, SOCK_STREAM, 0), -1);
    cr_assert_eq(errno, EPERM);
}

static void expect_denied(long result, const char *what) {
    cr_assert_eq(result, -1, "%s", what);
    cr_assert_eq(errno, EPERM, "%s", what);
}

Test(isolate, the_process_that_fetches_reaches_no_other) {
    int pair[2];
    need_confinement();
    cr_assert_eq(pipe(pair), 0);
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(tc_seccomp_fetcher(), 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_geq(fd, 0, "it connects");
    close(fd);
    expect_denied(fcntl(pair[0], F_SETOWN, getppid()), "signals by the kernel");
    expect_denied(fchmod(pair[0], 0600), "permissions");
    expect_denied(execve("/bin/true", (char *[]){"true", NULL}, NULL), "programs");
    if (TC_SANITIZED)
        return; /* it makes a process to look for leaks, and signals it */
    expect_denied(kill(getppid(), 0), "signals");
    expect_denied(syscall(SYS_tgkill, getppid(), getppid(), 0), "signals to threads");
    expect_denied(fork(), "processes");
}

static void *nothing(void *context) {
    return context;
}

Test(isolate, without_children_a_command_makes_none) {
    struct tc_isolate isolate = {.parse = say_nothing, .most = MOST};
    struct tc_buffer answer = {0};
    struct tc_error error = {0};
    pthread_t thread;
    need_confinement();
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(tc_seccomp_command(false, true), 0);
    cr_assert_eq(pthread_create(&thread, NULL, nothing, NULL), 0, "threads are made");
    cr_assert_eq(pthread_join(thread, NULL), 0);
    if (TC_SANITIZED)
        return; /* it makes a process to look for leaks */
    cr_assert_eq(fork(), -1);
    cr_assert_eq(errno, EPERM);
    cr_assert_not(tc_isolate_run(&isolate, &answer, &error));
    cr_assert_eq(error.class, TC_IO);
}
