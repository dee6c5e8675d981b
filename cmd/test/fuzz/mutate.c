#include "cmd/test/fuzz/mutate.h"

#include <string.h>

#include "core/base/little_endian.h"

#define MOST_CHANGES 5

/* splitmix64: every state is a good one. */
uint64_t generator_below(struct generator *generator, uint64_t limit) {
    uint64_t z = generator->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (z ^ z >> 31) % limit;
}

/* Replaces `removed` bytes at `at` by others, as far as there is room. */
static size_t replace(unsigned char *bytes, size_t length, size_t capacity, size_t at,
                      size_t removed, struct tc_text by) {
    size_t room = capacity - (length - removed);
    size_t added = by.length < room ? by.length : room;
    memmove(bytes + at + added, bytes + at + removed, length - at - removed);
    if (added)
        memcpy(bytes + at, by.bytes, added);
    return length - removed + added;
}

/* A stretch of these bytes, seldom a long one. */
static struct tc_text stretch(struct generator *generator, const void *bytes, size_t length) {
    if (length == 0)
        return (struct tc_text){"", 0};
    size_t most = generator_below(generator, 4) ? 16 : length;
    size_t start = generator_below(generator, length);
    size_t taken = 1 + generator_below(generator, most);
    return (struct tc_text){(const char *)bytes + start,
                            taken < length - start ? taken : length - start};
}

/* A number at which sums and comparisons tend to go wrong, in one to eight bytes. */
static struct tc_text edge_number(struct generator *generator, unsigned char space[8]) {
    unsigned size = 1u << generator_below(generator, 4);
    uint64_t number = UINT64_C(1) << generator_below(generator, 64);
    number += generator_below(generator, 3) - 1;
    if (generator_below(generator, 4) == 0)
        number = -number;
    tc_store(space, number, 8);
    if (generator_below(generator, 3) == 0) /* the other byte order */
        for (unsigned i = 0; i < size / 2; i++) {
            unsigned char byte = space[i];
            space[i] = space[size - 1 - i];
            space[size - 1 - i] = byte;
        }
    return (struct tc_text){(const char *)space, size};
}

static size_t change(struct generator *generator, unsigned char *bytes, size_t length,
                     size_t capacity, const struct mutate_sources *sources) {
    unsigned char space[8];
    size_t at = length ? generator_below(generator, length) : 0;
    size_t left = length - at;
    struct tc_text word;
    switch (generator_below(generator, 8)) {
    case 0: /* a bit */
        if (length)
            bytes[at] ^= (unsigned char)(1u << generator_below(generator, 8));
        return length;
    case 1: /* a byte, or one more */
        space[0] = (unsigned char)generator_below(generator, 256);
        word = (struct tc_text){(const char *)space, 1};
        return replace(bytes, length, capacity, at, left && generator_below(generator, 2), word);
    case 2: /* bytes go */
        word = stretch(generator, bytes, length);
        at = (size_t)((const unsigned char *)word.bytes - bytes);
        return length ? replace(bytes, length, capacity, at, word.length, (struct tc_text){"", 0})
                      : 0;
    case 3: /* the end goes */
        return generator_below(generator, 4) ? length : at;
    case 4:
        word = edge_number(generator, space);
        return replace(bytes, length, capacity, at, word.length < left ? word.length : left, word);
    case 5: /* bytes of the other input, in between or in the place of those here */
        word = stretch(generator, sources->other.bytes, sources->other.length);
        return replace(bytes, length, capacity, at,
                       generator_below(generator, 2) && word.length < left ? word.length : 0, word);
    default:
        if (sources->word_count == 0)
            return length;
        word = sources->words[generator_below(generator, sources->word_count)];
        return replace(bytes, length, capacity, at,
                       generator_below(generator, 2) && word.length < left ? word.length : 0, word);
    }
}

size_t mutate(struct generator *generator, unsigned char *bytes, size_t length, size_t capacity,
              const struct mutate_sources *sources) {
    for (uint64_t changes = 1 + generator_below(generator, MOST_CHANGES); changes; changes--)
        length = change(generator, bytes, length, capacity, sources);
    return length;
}
