/* What letters become where case and composition do not count, in the order of their numbers.
 * folded_letters.py writes the table when the program is built. */
#ifndef TCONV_CORE_BASE_FOLDED_LETTERS_H
#define TCONV_CORE_BASE_FOLDED_LETTERS_H

#include <stddef.h>
#include <stdint.h>

struct tc_folded_letter {
    uint32_t letter;
    uint16_t first; /* of what it becomes, in tc_folded_text */
    uint8_t class;  /* combining class: the order of marks behind a letter; 0: no mark */
    uint8_t length;
};

extern const struct tc_folded_letter tc_folded_letters[];
extern const size_t tc_folded_letter_count;
extern const uint32_t tc_folded_text[];

#endif
