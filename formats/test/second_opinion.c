#include "formats/test/second_opinion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "formats/test/libzip.h"
#include "formats/zip/directory.h"
#include "formats/zip/read.h"

/* Members that claim more are compared by their headers alone. */
#define MOST_BYTES (UINT64_C(64) << 20)
/* How far from the file's end libzip looks for an end record. */
#define TAIL_BYTES (65535u + 22u + 20u)

struct opinions {
    struct tc_reader *reader;
    struct zip zip;
    struct libzip *libzip;
    char *what;
};

static enum second_opinion say(const struct opinions *opinions, enum second_opinion opinion,
                               size_t index, const char *reason) {
    snprintf(opinions->what, SECOND_OPINION_TEXT, "member %zu: %s", index, reason);
    return opinion;
}

static enum second_opinion compare_bytes(struct opinions *opinions, size_t index,
                                         unsigned char *theirs) {
    const struct zip_member *member = &opinions->zip.members[index];
    struct tc_error error = {0};
    size_t got;
    const char *ours = zip_load(opinions->reader, member, &error);
    bool read = libzip_read(opinions->libzip, index, theirs, member->size, &got);
    if (!ours)
        return say(opinions, SECOND_OPINION_OURS_REFUSES, index, error.message);
    if (!read)
        return say(opinions, SECOND_OPINION_LIBZIP_REFUSES, index, libzip_error(opinions->libzip));
    if (got != member->size)
        return say(opinions, SECOND_OPINION_DIFFERS, index, "another number of bytes");
    if (memcmp(ours, theirs, got) != 0)
        return say(opinions, SECOND_OPINION_DIFFERS, index, "other bytes");
    return SECOND_OPINION_SAME;
}

static enum second_opinion compare_member(struct opinions *opinions, size_t index) {
    const struct zip_member *member = &opinions->zip.members[index];
    struct libzip_member other;
    if (!libzip_member(opinions->libzip, index, &other))
        return say(opinions, SECOND_OPINION_LIBZIP_REFUSES, index, libzip_error(opinions->libzip));
    if (!tc_text_equal(member->name, tc_text_of(other.name)))
        return say(opinions, SECOND_OPINION_DIFFERS, index, "another name");
    if (member->size != other.size || member->stored != other.stored)
        return say(opinions, SECOND_OPINION_DIFFERS, index, "other sizes");
    if (member->crc != other.crc)
        return say(opinions, SECOND_OPINION_DIFFERS, index, "another CRC");
    if (member->method != other.method)
        return say(opinions, SECOND_OPINION_DIFFERS, index, "another method");
    if (member->size > MOST_BYTES)
        return SECOND_OPINION_SAME;
    unsigned char *theirs = malloc(member->size + 1);
    if (!theirs)
        return say(opinions, SECOND_OPINION_OURS_REFUSES, index, "out of memory");
    enum second_opinion opinion = compare_bytes(opinions, index, theirs);
    free(theirs);
    return opinion;
}

/* The worst of all members; a difference ends it. */
static enum second_opinion compare(struct opinions *opinions) {
    enum second_opinion worst = SECOND_OPINION_SAME;
    if (opinions->zip.count != libzip_count(opinions->libzip)) {
        snprintf(opinions->what, SECOND_OPINION_TEXT, "%zu members, and %zu for libzip",
                 opinions->zip.count, libzip_count(opinions->libzip));
        return SECOND_OPINION_DIFFERS;
    }
    for (size_t i = 0; i < opinions->zip.count && worst != SECOND_OPINION_DIFFERS; i++) {
        enum second_opinion opinion = compare_member(opinions, i);
        if (opinion > worst)
            worst = opinion;
    }
    return worst;
}

static bool several_ends(const char *bytes, size_t length) {
    const char *end = bytes + length;
    const char *tail = length < TAIL_BYTES ? bytes : end - TAIL_BYTES;
    const char *first = memmem(tail, (size_t)(end - tail), "PK\5\6", 4);
    return first && memmem(first + 1, (size_t)(end - first) - 1, "PK\5\6", 4);
}

enum second_opinion second_opinion(const char *path, const void *bytes, size_t length,
                                   const struct tc_format_options *options,
                                   char what[SECOND_OPINION_TEXT]) {
    struct tc_error error = {0};
    enum second_opinion opinion = SECOND_OPINION_OURS_REFUSES;
    struct tc_reader reader = {.options = options};
    struct opinions opinions = {.reader = &reader, .what = what};
    what[0] = '\0';
    tc_arena_init(&reader.arena, options->limits.memory);
    reader.input = tc_input_open(path, NULL, &error);
    bool ours = reader.input && zip_open_archive(&opinions.zip, &reader, &error);
    opinions.libzip = libzip_open(bytes, length);
    if (!ours) {
        snprintf(what, SECOND_OPINION_TEXT, "%s", error.message);
    } else if (!opinions.libzip) {
        snprintf(what, SECOND_OPINION_TEXT, "libzip does not open it");
        opinion = SECOND_OPINION_LIBZIP_REFUSES;
    } else {
        opinion = compare(&opinions);
        if (opinion == SECOND_OPINION_DIFFERS && several_ends(bytes, length))
            opinion = SECOND_OPINION_ANOTHER_END;
    }
    libzip_close(opinions.libzip);
    zip_release(&opinions.zip);
    tc_arena_release(&reader.arena);
    tc_input_close(reader.input);
    return opinion;
}
