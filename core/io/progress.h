/* How far a command is, for whoever wants to be told. */
#ifndef TCONV_CORE_IO_PROGRESS_H
#define TCONV_CORE_IO_PROGRESS_H

/* Called now and then, by the thread that called for the work. */
typedef void tc_progress(void *context, uint64_t done, uint64_t total);

/* Told of bytes that were read, now and then, by the thread that called. */
struct tc_watch {
    void (*step)(void *context, uint64_t bytes);
    void *context;
};

#endif
