/* Command lines for the EXAMPLES of the manual pages; cmd/test/test_help.py runs each. */
#ifndef TCONV_CMD_EXAMPLES_H
#define TCONV_CMD_EXAMPLES_H

#define EXAMPLES_MOST 4

struct example {
    const char *command; /* "": tconv itself */
    struct {
        const char *line; /* as one types it; NULL: there are no more */
        const char *what; /* what it does, in a sentence */
    } lines[EXAMPLES_MOST];
};

/* NULL where a command has none. */
const struct example *examples_of(const char *command);

#endif
