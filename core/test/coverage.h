/*
 * In builds that count which lines run (scripts/test --coverage). gcc's library writes the counts
 * when a process exits; those of a process that ends otherwise are lost. So _exit and raise, which
 * the linker sends here (meson.build), write them first.
 */
#ifndef TCONV_CORE_TEST_COVERAGE_H
#define TCONV_CORE_TEST_COVERAGE_H

/* What _exit calls to have the counts written, where the process can't open files itself. */
void coverage_write_by(void (*write)(void));
/* Has another process write them, for one that will soon be unable to (coverage_shared.c). */
void coverage_share(void);

#endif
