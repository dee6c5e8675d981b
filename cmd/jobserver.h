/*
 * The jobserver of GNU make: a pipe that holds a byte for every job that may run besides
 * the first. Whoever wants to run another takes a byte out, and puts it back at its end.
 */
#ifndef TCONV_CMD_JOBSERVER_H
#define TCONV_CMD_JOBSERVER_H

#include <stdbool.h>
#include <stddef.h>

/* The most tokens that are held at once. */
#define JOBSERVER_TOKENS 256

struct jobserver {
    int read_fd; /* does not wait; -1: there is no jobserver */
    int write_fd;
    bool named; /* MAKEFLAGS names one, though it may not be for us */
    char tokens[JOBSERVER_TOKENS];
    size_t count;
};

/* Opens the one that MAKEFLAGS names. Where make did not hand it down, which it does only to
 * recipes that begin with + or name $(MAKE), it is as if -j1 was given. */
void jobserver_open(struct jobserver *server, const char *makeflags);
/* Whether another job may run now. */
bool jobserver_take(struct jobserver *server);
/* A job has ended. */
void jobserver_give(struct jobserver *server);
/* Gives all tokens back. */
void jobserver_close(struct jobserver *server);

#endif
