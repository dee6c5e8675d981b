#include "core/base/fold.h"

#include <stdlib.h>

#include "core/base/folded_letters.h"

/* The syllables of Hangul are numbered by their parts. */
#define HANGUL 0xAC00u
#define HANGUL_COUNT 11172u
#define LEADING 0x1100u
#define VOWEL 0x1161u
#define VOWELS 21u
#define TRAILING 0x11A7u
#define TRAILINGS 28u

/* Marks behind one letter that are put into order; more are left as they stand. */
#define MOST_MARKS 64

/* Marks that wait for the letter behind them, in the order of their classes. */
struct marks {
    uint32_t letters[MOST_MARKS];
    uint8_t classes[MOST_MARKS];
    size_t count;
};

static int letter_order(const void *letter, const void *entry) {
    uint32_t a = *(const uint32_t *)letter;
    uint32_t b = ((const struct tc_folded_letter *)entry)->letter;
    return (a > b) - (a < b);
}

static const struct tc_folded_letter *find(uint32_t letter) {
    return bsearch(&letter, tc_folded_letters, tc_folded_letter_count, sizeof *tc_folded_letters,
                   letter_order);
}

/* Four bytes a letter: all that is asked of a key is that equal names have equal ones. */
static void put(struct tc_buffer *key, uint32_t letter) {
    const char bytes[4] = {(char)(letter >> 24), (char)(letter >> 16), (char)(letter >> 8),
                           (char)letter};
    tc_buffer_add(key, bytes, sizeof bytes);
}

static void put_marks(struct marks *marks, struct tc_buffer *key) {
    for (size_t i = 0; i < marks->count; i++)
        put(key, marks->letters[i]);
    marks->count = 0;
}

/* Marks of one class keep the order in which they came. */
static void add(uint32_t letter, struct marks *marks, struct tc_buffer *key) {
    const struct tc_folded_letter *entry = find(letter);
    uint8_t class = entry ? entry->class : 0;
    if (class == 0 || marks->count == MOST_MARKS)
        put_marks(marks, key);
    if (class == 0) {
        put(key, letter);
        return;
    }
    size_t at = marks->count++;
    for (; at && marks->classes[at - 1] > class; at--) {
        marks->letters[at] = marks->letters[at - 1];
        marks->classes[at] = marks->classes[at - 1];
    }
    marks->letters[at] = letter;
    marks->classes[at] = class;
}

static void add_folded(uint32_t letter, struct marks *marks, struct tc_buffer *key) {
    uint32_t syllable = letter - HANGUL;
    if (letter >= HANGUL && syllable < HANGUL_COUNT) {
        add(LEADING + syllable / (VOWELS * TRAILINGS), marks, key);
        add(VOWEL + syllable / TRAILINGS % VOWELS, marks, key);
        if (syllable % TRAILINGS)
            add(TRAILING + syllable % TRAILINGS, marks, key);
        return;
    }
    const struct tc_folded_letter *entry = find(letter);
    for (size_t i = 0; entry && i < entry->length; i++)
        add(tc_folded_text[entry->first + i], marks, key);
    if (!entry)
        add(letter, marks, key);
}

void tc_fold(struct tc_text name, struct tc_buffer *key) {
    struct marks marks = {.count = 0};
    for (size_t at = 0; at < name.length;) {
        uint32_t letter;
        size_t length = tc_utf8_length(name.bytes + at, name.length - at, &letter);
        if (length == 0) {
            letter = (unsigned char)name.bytes[at];
            length = 1;
        }
        add_folded(letter, &marks, key);
        at += length;
    }
    put_marks(&marks, key);
}
