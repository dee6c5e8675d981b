/* Small files of tensors for targets whose input is about tensors, not the file of tensors. */
#ifndef TCONV_CMD_TEST_FUZZ_SAMPLES_H
#define TCONV_CMD_TEST_FUZZ_SAMPLES_H

/* The path of a file with tensors of several dtypes, ranks and names, and metadata. */
const char *sample_named(void);
/* The path of a file with three tensors that have numbers for names. */
const char *sample_numbered(void);

#endif
