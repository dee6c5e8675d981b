/*
 * For tests, in builds that have TCONV_TEST_HOOKS, and nothing at all in what is installed: one
 * process that has started carries out many commands, each in a process that is forked from it.
 * Starting a program costs a sanitizer's build ten times as much as forking it, and most commands
 * of the tests take less time than that.
 *
 *     TCONV_TEST_SERVER=FD     a stream socket on which requests come and answers go
 *
 * A request is three 32-bit numbers (arguments, variables of the environment, bytes of text), and
 * the text: strings that each end in a zero byte. These are the working folder, the files for
 * standard input, output and error, the arguments from the program's name on, the variables. The
 * answers are the 32-bit id of the process, which leads a process group of its own, and when it has
 * ended a struct fork_server_end. The server ends with the socket.
 */
#ifndef TCONV_CMD_FORK_SERVER_H
#define TCONV_CMD_FORK_SERVER_H

#include <stdint.h>

struct fork_server_end {
    int64_t status;       /* as waitpid has it */
    int64_t microseconds; /* of processor time */
    int64_t resident;     /* most, in KiB */
};

/* Returns at once where no server is wanted, and otherwise in each forked process, whose arguments
 * it sets. */
void fork_server(int *argc, char ***argv);

#endif
