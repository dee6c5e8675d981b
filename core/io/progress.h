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

#endif
