#include "core/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tc_text tc_text_of(const char *string) {
    return (struct tc_text){string, strlen(string)};
}

bool tc_text_equal(struct tc_text a, struct tc_text b) {
    return a.length == b.length && (a.length == 0 || memcmp(a.bytes, b.bytes, a.length) == 0);
}

int tc_text_compare(struct tc_text a, struct tc_text b) {
    size_t common = a.length < b.length ? a.length : b.length;
    int order = common ? memcmp(a.bytes, b.bytes, common) : 0;
    if (order != 0)
        return order;
    return (a.length > b.length) - (a.length < b.length);
}

int tc_hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool tc_text_starts(struct tc_text text, struct tc_text prefix) {
    return text.length >= prefix.length && memcmp(text.bytes, prefix.bytes, prefix.length) == 0;
}

bool tc_text_ends(struct tc_text text, struct tc_text suffix) {
    return text.length >= suffix.length &&
           memcmp(text.bytes + text.length - suffix.length, suffix.bytes, suffix.length) == 0;
}

int tc_text_shown(struct tc_text text, int most) {
    return text.length < (size_t)most ? (int)text.length : most;
}

bool tc_text_line(const char **at, struct tc_text *line) {
    if (!*at || !**at)
        return false;
    const char *end = strchrnul(*at, '\n');
    *line = (struct tc_text){*at, (size_t)(end - *at)};
    *at = *end ? end + 1 : end;
    return true;
}

size_t tc_utf8_length(const char *bytes, size_t length, uint32_t *character) {
    if (length == 0)
        return 0;
    unsigned char lead = (unsigned char)bytes[0];
    size_t need;
    uint32_t value;
    uint32_t least;
    if (lead < 0x80) {
        *character = lead;
        return 1;
    } else if (lead >= 0xC2 && lead < 0xE0) {
        need = 2, value = lead & 0x1Fu, least = 0x80;
    } else if (lead >= 0xE0 && lead < 0xF0) {
        need = 3, value = lead & 0x0Fu, least = 0x800;
    } else if (lead >= 0xF0 && lead < 0xF5) {
        need = 4, value = lead & 0x07u, least = 0x10000;
    } else {
        return 0;
    }
    if (length < need)
        return 0;
    for (size_t i = 1; i < need; i++) {
        unsigned char next = (unsigned char)bytes[i];
        if ((next & 0xC0u) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3Fu);
    }
    if (value < least || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return 0;
    *character = value;
    return need;
}

bool tc_utf8_valid(struct tc_text text) {
    size_t at = 0;
    while (at < text.length) {
        if (!(text.bytes[at] & 0x80)) {
            at++;
            continue;
        }
        uint32_t character;
        size_t step = tc_utf8_length(text.bytes + at, text.length - at, &character);
        if (step == 0)
            return false;
        at += step;
    }
    return true;
}

void tc_buffer_release(struct tc_buffer *buffer) {
    if (!buffer->fixed)
        free(buffer->bytes);
    *buffer = (struct tc_buffer){0};
}

static bool reserve(struct tc_buffer *buffer, size_t more) {
    if (buffer->failed)
        return false;
    if (buffer->capacity - buffer->length > more)
        return true;
    if (buffer->fixed) {
        buffer->failed = true;
        return false;
    }
    size_t wanted = buffer->capacity ? buffer->capacity : 256;
    while (wanted - buffer->length <= more) {
        if (wanted > SIZE_MAX / 2) {
            buffer->failed = true;
            return false;
        }
        wanted *= 2;
    }
    char *grown = realloc(buffer->bytes, wanted);
    if (!grown) {
        buffer->failed = true;
        return false;
    }
    buffer->bytes = grown;
    buffer->capacity = wanted;
    return true;
}

void tc_buffer_add(struct tc_buffer *buffer, const void *bytes, size_t length) {
    if (!reserve(buffer, length))
        return;
    if (length)
        memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    buffer->bytes[buffer->length] = '\0';
}

void tc_buffer_add_spaces(struct tc_buffer *buffer, size_t count) {
    if (!reserve(buffer, count))
        return;
    memset(buffer->bytes + buffer->length, ' ', count);
    buffer->length += count;
    buffer->bytes[buffer->length] = '\0';
}

void tc_buffer_add_text(struct tc_buffer *buffer, struct tc_text text) {
    tc_buffer_add(buffer, text.bytes, text.length);
}

void tc_buffer_add_string(struct tc_buffer *buffer, const char *string) {
    tc_buffer_add(buffer, string, strlen(string));
}

void tc_buffer_addf(struct tc_buffer *buffer, const char *format, ...) {
    if (!reserve(buffer, 64)) /* enough for most pieces */
        return;
    size_t room = buffer->capacity - buffer->length;
    va_list args;
    va_start(args, format);
    int need = vsnprintf(buffer->bytes + buffer->length, room, format, args);
    va_end(args);
    if (need < 0) {
        buffer->failed = true;
        return;
    }
    if ((size_t)need >= room) {
        if (!reserve(buffer, (size_t)need))
            return;
        va_start(args, format);
        vsnprintf(buffer->bytes + buffer->length, (size_t)need + 1, format, args);
        va_end(args);
    }
    buffer->length += (size_t)need;
}

void tc_buffer_add_number(struct tc_buffer *buffer, uint64_t number) {
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    tc_buffer_add(buffer, digits + at, sizeof digits - at);
}

bool tc_buffer_ok(const struct tc_buffer *buffer, struct tc_error *error) {
    return buffer->failed ? tc_fail_memory(error) : true;
}

/* Characters that end a line, or change how the text around them is laid out. */
static bool moves_text(uint32_t character) {
    return character == 0x061C || character == 0x200E || character == 0x200F ||
           (character >= 0x2028 && character <= 0x202E) ||
           (character >= 0x2066 && character <= 0x2069);
}

static void add_unicode_escape(struct tc_buffer *buffer, uint32_t character) {
    if (character >= 0x10000) {
        uint32_t rest = character - 0x10000;
        tc_buffer_addf(buffer, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
        tc_buffer_addf(buffer, "\\u%04x", character);
    }
}

static bool json_escapes(uint32_t character, enum tc_escape how) {
    if (character < 0x20)
        return true;
    switch (how) {
    case TC_ESCAPE_SERDE:
        return false;
    case TC_ESCAPE_DISPLAY:
        return (character >= 0x7F && character < 0xA0) || moves_text(character);
    case TC_ESCAPE_ASCII:
        return character >= 0x7F;
    }
    return true;
}

static void add_json_character(struct tc_buffer *buffer, const char *bytes, size_t length,
                               uint32_t character, enum tc_escape how) {
    static const char short_escapes[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    for (size_t i = 0; i + 1 < sizeof short_escapes; i += 2)
        if (character == (uint32_t)short_escapes[i]) {
            const char pair[2] = {'\\', short_escapes[i + 1]};
            tc_buffer_add(buffer, pair, 2);
            return;
        }
    if (json_escapes(character, how))
        add_unicode_escape(buffer, character);
    else
        tc_buffer_add(buffer, bytes, length);
}

/* Adds the run of printable ASCII at `at`, up to any " or \; returns its end. */
static size_t add_plain(struct tc_buffer *buffer, struct tc_text text, size_t at) {
    size_t end = at;
    while (end < text.length && text.bytes[end] >= 0x20 && text.bytes[end] < 0x7F &&
           text.bytes[end] != '"' && text.bytes[end] != '\\')
        end++;
    if (end > at) /* an empty text may have no bytes to point at */
        tc_buffer_add(buffer, text.bytes + at, end - at);
    return end;
}

void tc_buffer_add_json(struct tc_buffer *buffer, struct tc_text text, enum tc_escape how) {
    tc_buffer_add(buffer, "\"", 1);
    size_t at = 0;
    while ((at = add_plain(buffer, text, at)) < text.length) {
        uint32_t character;
        size_t step = tc_utf8_length(text.bytes + at, text.length - at, &character);
        if (step == 0) {
            static const char replacement[] = "\xEF\xBF\xBD";
            add_json_character(buffer, replacement, 3, 0xFFFD, how);
            step = 1;
        } else {
            add_json_character(buffer, text.bytes + at, step, character, how);
        }
        at += step;
    }
    tc_buffer_add(buffer, "\"", 1);
}

void tc_buffer_add_visible(struct tc_buffer *buffer, struct tc_text text) {
    size_t at = 0;
    while ((at = add_plain(buffer, text, at)) < text.length) {
        uint32_t character;
        size_t step = tc_utf8_length(text.bytes + at, text.length - at, &character);
        if (step == 0) {
            tc_buffer_addf(buffer, "\\x%02x", (unsigned char)text.bytes[at]);
            step = 1;
        } else if (character < 0x20 || (character >= 0x7F && character < 0xA0)) {
            tc_buffer_addf(buffer, "\\x%02x", character);
        } else if (moves_text(character)) {
            tc_buffer_addf(buffer, "\\u{%x}", character);
        } else {
            tc_buffer_add(buffer, text.bytes + at, step);
        }
        at += step;
    }
}
