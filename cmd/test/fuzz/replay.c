/*
 * Runs fuzz targets without a fuzzing engine: on files that are kept, and on inputs that are made
 * of them by chance. Which inputs these are depends on the files, the dictionary and the number of
 * runs alone, and not on what the program does with them: so a run fails for what was changed, or
 * not at all.
 *
 *     replay [options] TARGET PATH...
 *     replay --all TESTDATA          every target, on TESTDATA/fuzz/TARGET and TESTDATA/TARGET
 *     replay --list                  the targets
 *
 * --runs N makes N inputs of the files, besides these; --dictionary FILE has words for them;
 * --save FOLDER keeps the inputs at which a target fails. The last line is `N passed, N failed`,
 * or with --all as much in all.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/test/fuzz/fuzz.h"
#include "cmd/test/fuzz/inputs.h"
#include "cmd/test/fuzz/mutate.h"

/* A target is given up after so many findings. */
#define MOST_FINDINGS 10
/* Seconds on the clock after which an input counts as one that never ends: so many that it does not
 * matter how busy the machine is. */
#define HANGS 600

static const struct {
    const char *name;
    fuzz_target *run;
} targets[] = {
#define TC_FORMAT(name) {#name, fuzz_##name},
#define FUZZ_TARGET(name) {#name, fuzz_##name},
#include "cmd/test/fuzz/targets.def"
#include "formats/registry.def"
#undef TC_FORMAT
#undef FUZZ_TARGET
};
#define TARGETS (sizeof targets / sizeof *targets)

/* What a worker does at the moment, for whoever finds it dead. */
struct shared {
    size_t at; /* the number of the input */
    size_t length;
    unsigned char bytes[2 * INPUT_BYTES];
};

struct replay {
    const char *name;
    fuzz_target *run;
    struct inputs inputs;
    size_t runs; /* besides the files themselves */
    const char *save;
    struct shared *shared;
    size_t passed;
    size_t failed;
};

/* Makes the input of this number: the files come first, then what is made of them. */
static void make_input(const struct replay *replay, size_t number) {
    const struct inputs *inputs = &replay->inputs;
    struct shared *shared = replay->shared;
    struct generator generator = {number};
    size_t file = number < inputs->count ? number : generator_below(&generator, inputs->count);
    shared->at = number;
    shared->length = inputs->files[file].length;
    memcpy(shared->bytes, inputs->files[file].bytes, shared->length);
    if (number >= inputs->count) {
        const struct mutate_sources sources = {
            inputs->words, inputs->word_count,
            inputs->files[generator_below(&generator, inputs->count)]};
        shared->length =
            mutate(&generator, shared->bytes, shared->length, sizeof shared->bytes, &sources);
    }
}

/* Runs all inputs from this number on; in a process of its own, since it may end anywhere. */
static void work(const struct replay *replay, size_t from) {
    for (size_t i = from; i < replay->inputs.count + replay->runs; i++) {
        make_input(replay, i);
        /* A copy of exactly this size, so that the sanitizers see a step beyond its end. */
        unsigned char *bytes = malloc(replay->shared->length + !replay->shared->length);
        FUZZ_CHECK(bytes, "no memory");
        memcpy(bytes, replay->shared->bytes, replay->shared->length);
        alarm(HANGS);
        fuzz_run(replay->run, bytes, replay->shared->length);
        free(bytes);
    }
    replay->shared->at = replay->inputs.count + replay->runs;
}

static void report(const struct replay *replay, int status) {
    const struct shared *shared = replay->shared;
    const char *how = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "it ended itself";
    if (shared->at >= replay->inputs.count + replay->runs)
        printf("%s: after all inputs: %s\n", replay->name, how);
    else if (shared->at < replay->inputs.count)
        printf("%s: %s: %s\n", replay->name, replay->inputs.names[shared->at], how);
    else
        printf("%s: input %zu: %s\n", replay->name, shared->at, how);
    if (replay->save && shared->at < replay->inputs.count + replay->runs) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s-%zu", replay->save, replay->name, shared->at);
        FILE *file = fopen(path, "wb");
        if (file && fwrite(shared->bytes, 1, shared->length, file) == shared->length &&
            fclose(file) == 0)
            printf("%s: saved as %s\n", replay->name, path);
    }
    fflush(stdout);
}

static void replay_all_inputs(struct replay *replay) {
    size_t total = replay->inputs.count + replay->runs;
    size_t next = 0;
    int status = 0;
    do {
        fflush(stdout);
        replay->shared->at = next;
        pid_t worker = fork();
        FUZZ_CHECK(worker >= 0, "no process: %s", strerror(errno));
        if (worker == 0) {
            work(replay, next);
            exit(0);
        }
        waitpid(worker, &status, 0);
        next = replay->shared->at + 1;
        if (status != 0) {
            report(replay, status);
            replay->failed++;
        }
    } while (next < total && replay->failed < MOST_FINDINGS);
    size_t done = next < total ? next : total;
    replay->passed = done > replay->failed ? done - replay->failed : 0;
}

static fuzz_target *find_target(const char *name) {
    for (size_t i = 0; i < TARGETS; i++)
        if (strcmp(targets[i].name, name) == 0)
            return targets[i].run;
    return NULL;
}

static double seconds_so_far(void) {
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Every target must have something to run on. */
static void replay_testdata(const char *testdata, struct shared *shared, size_t *passed,
                            size_t *failed) {
    for (size_t i = 0; i < TARGETS; i++) {
        char path[4096];
        struct replay replay = {.name = targets[i].name, .run = targets[i].run, .shared = shared};
        double before = seconds_so_far();
        snprintf(path, sizeof path, "%s/fuzz/%s", testdata, replay.name);
        inputs_add(&replay.inputs, path);
        snprintf(path, sizeof path, "%s/%s", testdata, replay.name);
        inputs_add(&replay.inputs, path);
        if (replay.inputs.count)
            replay_all_inputs(&replay);
        else
            replay.failed = 1;
        printf("%s: %zu inputs, %.2f s\n", replay.name, replay.passed + replay.failed,
               seconds_so_far() - before);
        *passed += replay.passed;
        *failed += replay.failed;
        inputs_release(&replay.inputs);
    }
}

/* Takes the arguments; false where they are wrong. */
static bool take_arguments(struct replay *replay, int argc, char **argv) {
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2)
        if (strcmp(argv[at], "--runs") == 0)
            replay->runs = strtoul(argv[at + 1], NULL, 10);
        else if (strcmp(argv[at], "--dictionary") == 0)
            inputs_add_words(&replay->inputs, argv[at + 1]);
        else if (strcmp(argv[at], "--save") == 0)
            replay->save = argv[at + 1];
        else
            return false;
    replay->name = at < argc ? argv[at] : "";
    replay->run = find_target(replay->name);
    for (at++; at < argc; at++)
        inputs_add(&replay->inputs, argv[at]);
    return replay->run && replay->inputs.count;
}

static bool replay_one(int argc, char **argv, struct shared *shared, size_t *passed,
                       size_t *failed) {
    struct replay replay = {.shared = shared};
    bool ok = take_arguments(&replay, argc, argv);
    if (ok)
        replay_all_inputs(&replay);
    *passed = replay.passed;
    *failed = replay.failed;
    inputs_release(&replay.inputs);
    return ok;
}

int main(int argc, char **argv) {
    size_t passed = 0;
    size_t failed = 0;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < TARGETS; i++)
            puts(targets[i].name);
        return 0;
    }
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FUZZ_CHECK(shared != MAP_FAILED, "no memory");
    if (argc == 3 && strcmp(argv[1], "--all") == 0)
        replay_testdata(argv[2], shared, &passed, &failed);
    else if (!replay_one(argc, argv, shared, &passed, &failed)) {
        fprintf(stderr,
                "usage: replay [--runs N] [--dictionary FILE] [--save FOLDER] TARGET PATH...\n"
                "       replay --all TESTDATA\n       replay --list\n");
        return 2;
    }
    printf("%zu passed, %zu failed\n", passed, failed);
    return failed > 0;
}
