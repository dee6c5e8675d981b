/*
 * Runs many commands from one process, for tests: with TCONV_TEST_SERVER=1 the program takes
 * requests from standard input and forks for each, which is ten times as fast as starting it anew.
 *
 * A request is a 32-bit length, then texts that end in NUL: the folder to run in, files for
 * standard input, output and error, variables of the environment (NAME=VALUE), an empty text, and
 * the arguments with argv[0]. The answer, on standard output, is the child's status as 32 bits. A
 * child that runs for over a minute ends by SIGALRM.
 */
#ifndef TCONV_CMD_TEST_FAULT_SERVER_H
#define TCONV_CMD_TEST_FAULT_SERVER_H

/* Returns at once where the variable is not set, and otherwise in each child, with its arguments;
 * the server itself ends with its input. */
void fault_server_run(int *argc, char ***argv);

#endif
