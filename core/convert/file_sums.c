#include "core/convert/file_sums.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/io/sha256_lanes.h"
#include "core/io/thread_pool.h"

/* What a thread reads of each of its files at once: those of all fit a core's own cache. */
#define STEP ((size_t)1 << 17)
/* Each file that is followed takes a descriptor. Where those are few, none is. */
#define MOST_FOLLOWED 8u
#define LEAST_DESCRIPTORS 256u

/* What a thread works on. */
struct own {
    struct tc_file_sums *sums;
    struct tc_file_sum *files[TC_SHA256_LANES];
    size_t count;
    unsigned char *bytes; /* a step for each */
};

static bool is_followed(const struct tc_file_sum *sum) {
    return sum->fd >= 0;
}

/* How many bytes can be hashed now. */
static uint64_t available(const struct tc_file_sum *sum) {
    return (is_followed(sum) ? sum->follow.solid : sum->input->size) - sum->at;
}

/* Whether all bytes are hashed that there will be. */
static bool is_complete(const struct tc_file_sum *sum) {
    return available(sum) == 0 && (!is_followed(sum) || sum->follow.sealed);
}

static bool is_given_up(const struct tc_file_sums *sums, const struct tc_file_sum *sum) {
    return sums->cancelled || sums->failed < sum->number ||
           (is_followed(sum) && sum->follow.rewritten);
}

/* A file is done, or given up, or has failed. The lock is held. */
static void end_sum(struct tc_file_sums *sums, struct tc_file_sum *sum,
                    enum tc_file_sum_state state, const struct tc_error *error) {
    if (error && sum->number < sums->failed) {
        sums->failed = sum->number;
        sums->error = *error;
    }
    sum->state = state;
    tc_sha256_release(&sum->hash);
    if (is_followed(sum)) {
        close(sum->fd);
        sums->followed--;
    }
    if (--sums->open == 0)
        pthread_cond_broadcast(&sums->changed);
}

/* Takes the next file that waits; false: there is none. The lock is held. */
static bool take_file(struct own *own) {
    struct tc_file_sums *sums = own->sums;
    struct tc_file_sum *sum = sums->waiting;
    while (sum && sum->state != TC_SUM_WAITS)
        sum = sum->next;
    sums->waiting = sum;
    if (!sum)
        return false;
    sums->waiting = sum->next;
    sum->state = TC_SUM_TAKEN;
    own->files[own->count++] = sum;
    return true;
}

/* Has another thread go on with a file, where one has nothing to do. The lock is held. */
static void share_files(struct own *own) {
    struct tc_file_sums *sums = own->sums;
    struct tc_file_sum *sum = own->files[own->count - 1];
    sum->state = TC_SUM_WAITS;
    sums->waiting = sums->first;
    own->count--;
    pthread_cond_broadcast(&sums->changed);
}

/* Reads the next bytes of a file. */
static bool read_step(struct tc_file_sum *sum, unsigned char *bytes, size_t length,
                      struct tc_error *error) {
    if (!is_followed(sum))
        return tc_input_read(sum->input, sum->at, bytes, length, error) ||
               tc_error_in_file(error, sum->input->path);
    for (size_t done = 0; done < length;) {
        ssize_t got = pread(sum->fd, bytes + done, length - done, (off_t)(sum->at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            tc_fail_errno(error, got ? errno : EIO, "read", "cannot read the output");
            return tc_error_in_file(error, sum->path);
        }
        done += (size_t)got;
    }
    return true;
}

/* The whole file is hashed. */
static bool finish_sum(struct tc_file_sum *sum, struct tc_error *error) {
    unsigned char digest[TC_SHA256_BYTES];
    tc_sha256_finish(&sum->hash, digest);
    tc_hex(digest, sizeof digest, sum->hex);
    return is_followed(sum) || tc_input_unchanged(sum->input, error) ||
           tc_error_in_file(error, sum->input->path);
}

/* Hashes a step of each file of which there is one; how many those are. The lock is held, except
 * meanwhile: where there is none, it is not let go. */
static size_t step_all(struct own *own) {
    struct tc_file_sums *sums = own->sums;
    struct tc_sha256_piece pieces[TC_SHA256_LANES];
    struct tc_file_sum *files[TC_SHA256_LANES];
    size_t count = 0;
    for (size_t i = 0; i < own->count; i++) {
        struct tc_file_sum *sum = own->files[i];
        uint64_t length = available(sum);
        if (length == 0)
            continue;
        files[count] = sum;
        pieces[count] = (struct tc_sha256_piece){&sum->hash, own->bytes + count * STEP,
                                                 length < STEP ? (size_t)length : STEP};
        /* Whatever is written over these bytes from now on shows. */
        sum->follow.taken = sum->at + pieces[count++].length;
    }
    if (count == 0)
        return 0;
    pthread_mutex_unlock(&sums->lock);
    size_t read = 0;
    struct tc_error error = {0};
    while (read < count &&
           read_step(files[read], own->bytes + read * STEP, pieces[read].length, &error))
        read++;
    if (read)
        tc_sha256_update_several(pieces, read);
    pthread_mutex_lock(&sums->lock);
    for (size_t i = 0; i < read; i++)
        files[i]->at += pieces[i].length;
    if (read < count)
        end_sum(sums, files[read], TC_SUM_FAILED, &error);
    return count;
}

/* Lets go of files that are done with. The lock is held, except where one is completed; whether
 * there was one. */
static bool drop_ended(struct own *own) {
    struct tc_file_sums *sums = own->sums;
    bool completed = false;
    for (size_t i = 0; i < own->count;) {
        struct tc_file_sum *sum = own->files[i];
        struct tc_error error = {0};
        if (sum->state == TC_SUM_TAKEN && is_given_up(sums, sum)) {
            end_sum(sums, sum, TC_SUM_FAILED, NULL);
        } else if (sum->state == TC_SUM_TAKEN && is_complete(sum)) {
            pthread_mutex_unlock(&sums->lock);
            bool ok = finish_sum(sum, &error);
            pthread_mutex_lock(&sums->lock);
            end_sum(sums, sum, ok ? TC_SUM_DONE : TC_SUM_FAILED, ok ? NULL : &error);
            completed = true;
        }
        if (sum->state == TC_SUM_TAKEN)
            i++;
        else
            own->files[i] = own->files[--own->count];
    }
    return completed;
}

/* Hashes until nothing is left to do. The lock is held, except in the steps and where a file is
 * completed. What others do meanwhile must be seen before the thread waits, since nobody tells it
 * again: so it waits only where it has held the lock since it looked at everything. */
static void work(struct own *own) {
    struct tc_file_sums *sums = own->sums;
    for (;;) {
        if (drop_ended(own))
            continue;
        if (own->count < TC_SHA256_LANES && (own->count == 0 || sums->idle == 0) && take_file(own))
            continue;
        if (own->count == 0 && (sums->cancelled || (sums->closing && sums->open == 0)))
            return;
        if (own->count > 1 && sums->idle && !sums->waiting)
            share_files(own);
        if (own->count && step_all(own))
            continue;
        /* What is followed has not grown, or there is no file. */
        sums->idle += own->count == 0;
        pthread_cond_wait(&sums->changed, &sums->lock);
        sums->idle -= own->count == 0;
    }
}

/* False without memory. */
static bool work_through(struct tc_file_sums *sums) {
    struct own own = {.sums = sums, .bytes = malloc(TC_SHA256_LANES * STEP)};
    if (!own.bytes)
        return false;
    pthread_mutex_lock(&sums->lock);
    work(&own);
    pthread_mutex_unlock(&sums->lock);
    free(own.bytes);
    return true;
}

static void *run(void *sums) {
    work_through(sums); /* where it can't, the caller does it in the end */
    return NULL;
}

/* Adds an input, or a file that is followed; NULL without memory. */
static struct tc_file_sum *add_sum(struct tc_file_sums *sums, struct tc_input *input, int fd,
                                   struct tc_error *error) {
    struct tc_file_sum *sum = calloc(1, sizeof *sum);
    if (!sum || !tc_sha256_init(&sum->hash, error)) {
        free(sum);
        tc_fail_memory(error);
        return NULL;
    }
    sum->input = input;
    sum->fd = fd;
    sum->follow = (struct tc_outfile_progress){.lock = &sums->lock, .changed = &sums->changed};
    pthread_mutex_lock(&sums->lock);
    sum->number = sums->last ? sums->last->number + 1 : 0;
    *(sums->last ? &sums->last->next : &sums->first) = sum;
    sums->last = sum;
    sums->waiting = sums->waiting ? sums->waiting : sum;
    sums->open++;
    sums->followed += fd >= 0;
    pthread_cond_broadcast(&sums->changed);
    pthread_mutex_unlock(&sums->lock);
    return sum;
}

struct tc_file_sum *tc_file_sums_add(struct tc_file_sums *sums, struct tc_input *input,
                                     struct tc_error *error) {
    return add_sum(sums, input, -1, error);
}

bool tc_file_sums_start(struct tc_file_sums *sums, struct tc_input *const *inputs, size_t count,
                        struct tc_error *error) {
    struct tc_error ignored = {0};
    *sums = (struct tc_file_sums){.failed = SIZE_MAX, .begun = true};
    pthread_mutex_init(&sums->lock, NULL);
    pthread_cond_init(&sums->changed, NULL);
    for (size_t i = 0; i < count; i++)
        if (!tc_file_sums_add(sums, inputs[i], error))
            return false;
    /* With a single core the caller does its own work first. */
    size_t threads = tc_thread_count() > 1 ? tc_thread_count() : 0;
    threads = threads < count ? threads : count;
    sums->granted = threads ? tc_cores_begin(threads) : 0;
    while (sums->running < sums->granted &&
           tc_thread_start(&sums->threads[sums->running], run, sums, &ignored))
        sums->running++;
    return true;
}

void tc_file_sums_follow(struct tc_file_sums *sums, struct tc_outfile *out) {
    struct tc_error ignored = {0};
    struct rlimit limit;
    if (sums->running == 0 || out->stream || out->base || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        limit.rlim_cur < LEAST_DESCRIPTORS)
        return;
    pthread_mutex_lock(&sums->lock);
    bool most = sums->followed == MOST_FOLLOWED;
    pthread_mutex_unlock(&sums->lock);
    int fd = most ? -1 : fcntl(out->fd, F_DUPFD_CLOEXEC, 3);
    struct tc_file_sum *sum = fd >= 0 ? add_sum(sums, NULL, fd, &ignored) : NULL;
    if (!sum) {
        if (fd >= 0)
            close(fd);
        return;
    }
    sum->path = out->publish->path;
    out->progress = &sum->follow;
}

struct tc_file_sum *tc_file_sums_followed(struct tc_file_sums *sums, struct tc_outfile *out) {
    struct tc_file_sum *sum = NULL;
    pthread_mutex_lock(&sums->lock);
    if (out->progress && !out->progress->rewritten && out->progress->sealed)
        sum = (void *)((char *)out->progress - offsetof(struct tc_file_sum, follow));
    pthread_mutex_unlock(&sums->lock);
    return sum;
}

static void stop_threads(struct tc_file_sums *sums) {
    for (size_t i = 0; i < sums->running; i++)
        pthread_join(sums->threads[i], NULL);
    sums->running = 0;
    tc_cores_end(sums->granted);
    sums->granted = 0;
}

bool tc_file_sums_finish(struct tc_file_sums *sums, struct tc_error *error) {
    pthread_mutex_lock(&sums->lock);
    sums->closing = true;
    pthread_cond_broadcast(&sums->changed);
    pthread_mutex_unlock(&sums->lock);
    bool worked = work_through(sums);
    stop_threads(sums);
    if (sums->failed != SIZE_MAX) {
        if (error->class == TC_OK)
            *error = sums->error;
        return false;
    }
    return worked || sums->open == 0 || tc_fail_memory(error);
}

void tc_file_sums_release(struct tc_file_sums *sums) {
    if (!sums->begun)
        return;
    pthread_mutex_lock(&sums->lock);
    sums->cancelled = true;
    pthread_cond_broadcast(&sums->changed);
    pthread_mutex_unlock(&sums->lock);
    stop_threads(sums);
    while (sums->first) {
        struct tc_file_sum *sum = sums->first;
        sums->first = sum->next;
        if (sum->state == TC_SUM_WAITS)
            end_sum(sums, sum, TC_SUM_FAILED, NULL);
        free(sum);
    }
    pthread_mutex_destroy(&sums->lock);
    pthread_cond_destroy(&sums->changed);
    *sums = (struct tc_file_sums){0};
}

bool tc_input_sum(struct tc_input *input, char hex[2 * TC_SHA256_BYTES + 1],
                  struct tc_error *error) {
    struct tc_file_sum sum = {.input = input, .fd = -1};
    unsigned char *bytes = malloc(STEP);
    bool ok = bytes ? tc_sha256_init(&sum.hash, error) : tc_fail_memory(error);
    while (ok && available(&sum)) {
        size_t length = available(&sum) < STEP ? (size_t)available(&sum) : STEP;
        ok = read_step(&sum, bytes, length, error);
        if (ok)
            tc_sha256_update(&sum.hash, bytes, length);
        else
            tc_sha256_release(&sum.hash);
        sum.at += length;
    }
    free(bytes);
    ok = ok && finish_sum(&sum, error);
    memcpy(hex, sum.hex, sizeof sum.hex);
    return ok;
}
