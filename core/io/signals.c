#include "core/io/signals.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static const int fatal_signals[] = {SIGINT,  SIGTERM,   SIGHUP,  SIGPIPE, SIGQUIT,
                                    SIGXCPU, SIGVTALRM, SIGALRM, SIGUSR1, SIGUSR2};
#define FATAL_SIGNALS (sizeof fatal_signals / sizeof *fatal_signals)

static void fill(sigset_t *set) {
    sigemptyset(set);
    for (size_t i = 0; i < FATAL_SIGNALS; i++)
        sigaddset(set, fatal_signals[i]);
}

void tc_signals_handle(void (*handler)(int number)) {
    struct sigaction action = {.sa_handler = handler};
    fill(&action.sa_mask);
    for (size_t i = 0; i < FATAL_SIGNALS; i++) {
        struct sigaction old;
        /* What the caller ignores (nohup) stays ignored. */
        if (sigaction(fatal_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(fatal_signals[i], &action, NULL);
    }
    signal(SIGXFSZ, SIG_IGN);
}

void tc_signals_block(sigset_t *old) {
    sigset_t set;
    fill(&set);
    pthread_sigmask(SIG_BLOCK, &set, old);
}

void tc_signals_unblock(const sigset_t *old) {
    pthread_sigmask(SIG_SETMASK, old, NULL);
}

bool tc_write_quietly(int fd, const void *bytes, size_t length) {
    const char *at = bytes;
    sigset_t pipe_signal;
    sigset_t old;
    sigset_t pending;
    struct timespec at_once = {0};
    bool ok = true;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &old);
    while (length && ok) {
        ssize_t done = write(fd, at, length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
            sigtimedwait(&pipe_signal, NULL, &at_once);
        ok = done > 0;
        at += ok ? done : 0;
        length -= ok ? (size_t)done : 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ok;
}
