/* Callbacks that report how far a command has got. */
#ifndef TCONV_CORE_IO_PROGRESS_H
#define TCONV_CORE_IO_PROGRESS_H

/* Called now and then with the bytes done so far and in all, in the thread that
 * asked for the work. */
typedef void tc_progress(void *context, uint64_t done, uint64_t total);

/* `step` is called now and then with the bytes read since the last call, in the
 * thread that asked for the work. */
struct tc_watch {
    void (*step)(void *context, uint64_t bytes);
    void *context;
};

/* A sum that several threads add to, and that is reported in one. */
struct tc_progress_sum {
    tc_progress *call; /* NULL: nobody wants to know */
    void *context;
    uint64_t total;
    _Atomic uint64_t done;
};

static inline void tc_progress_add(struct tc_progress_sum *sum, uint64_t bytes) {
    sum->done += bytes;
}

static inline void tc_progress_report(struct tc_progress_sum *sum) {
    uint64_t done = sum->done;
    if (sum->call)
        sum->call(sum->context, done < sum->total ? done : sum->total, sum->total);
}

/* Adds and reports: for a tc_watch whose context is the sum. */
static inline void tc_progress_step(void *context, uint64_t bytes) {
    struct tc_progress_sum *sum = context;
    tc_progress_add(sum, bytes);
    tc_progress_report(sum);
}

#endif
