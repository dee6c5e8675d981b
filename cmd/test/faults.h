/*
 * Faults of the machine, for tests: the linker sends every call of the program to a function that
 * can fail here first (-Wl,--wrap, in meson.build), so that none is left out by mistake. Only
 * builds with -Dtests=true have this; cmd/test/test_faults.py checks that no function was missed.
 *
 *     TCONV_TEST_FAULT=read:17              the 17th call that reads fails
 *     TCONV_TEST_FAULT=read:17+             and all after it
 *     TCONV_TEST_FAULT=write/EDQUOT:3       with another error than the usual one
 *     TCONV_TEST_FAULT=write/short:3+       transfers half of what was asked for
 *     TCONV_TEST_FAULT=memory:40,unlink:2   several at once
 *     TCONV_TEST_FAULT_REPORT=FILE          at the end, a line "calls CLASS NUMBER" a class, then
 *                                           "fault CLASS NUMBER ADDRESS…" for each that was made:
 *                                           the calls that led there, innermost first
 */
#ifndef TCONV_CMD_TEST_FAULTS_H
#define TCONV_CMD_TEST_FAULTS_H

/* Counts calls from here on, and lets fail what the environment asks for. */
void faults_begin(void);
/* From here on nothing fails: what comes is not the program's (core/test/coverage.c). */
void faults_end(void);

#endif
