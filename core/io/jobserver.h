/*
 * The jobserver of GNU make: a pipe that holds a byte for every job that may run besides
 * the first. Whoever wants to run another takes a byte out, and puts it back at its end.
 */
#ifndef TCONV_CORE_IO_JOBSERVER_H
#define TCONV_CORE_IO_JOBSERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The most tokens that are held at once. */
#define TC_JOBSERVER_TOKENS 256

struct tc_jobserver {
    int read_fd; /* does not wait; -1: there is no jobserver */
    int write_fd;
    bool named; /* MAKEFLAGS names one, though it may not be for us */
    char tokens[TC_JOBSERVER_TOKENS];
    atomic_size_t count;
};

/* Opens the one that MAKEFLAGS names. Where make did not hand it down, which it does only to
 * recipes that begin with + or name $(MAKE), it is as if -j1 was given. */
void tc_jobserver_open(struct tc_jobserver *server, const char *makeflags);
/* Whether another job may run now. One thread at a time. */
bool tc_jobserver_take(struct tc_jobserver *server);
/* A job has ended. A signal handler may call it, whatever it interrupted. */
void tc_jobserver_give(struct tc_jobserver *server);
/* Gives all tokens back. */
void tc_jobserver_close(struct tc_jobserver *server);

#endif
