#include "core/base/base64.h"

#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void tc_buffer_add_base64(struct tc_buffer *buffer, const void *bytes, size_t length) {
    const unsigned char *from = bytes;
    for (size_t at = 0; at < length; at += 3) {
        size_t count = length - at < 3 ? length - at : 3;
        uint32_t bits = (uint32_t)from[at] << 16;
        bits |= count > 1 ? (uint32_t)from[at + 1] << 8 : 0;
        bits |= count > 2 ? from[at + 2] : 0;
        char group[4] = {alphabet[bits >> 18], alphabet[bits >> 12 & 63], '=', '='};
        if (count > 1)
            group[2] = alphabet[bits >> 6 & 63];
        if (count > 2)
            group[3] = alphabet[bits & 63];
        tc_buffer_add(buffer, group, sizeof group);
    }
}

bool tc_base64_decode(struct tc_text text, char *bytes, size_t *length) {
    *length = 0;
    if (text.length % 4)
        return false;
    for (size_t at = 0; at < text.length; at += 4) {
        bool last = at + 4 == text.length;
        size_t padding = 0;
        if (last && text.bytes[at + 3] == '=')
            padding = text.bytes[at + 2] == '=' ? 2 : 1;
        uint32_t bits = 0;
        for (size_t i = 0; i < 4 - padding; i++) {
            char c = text.bytes[at + i];
            const char *found = c ? strchr(alphabet, c) : NULL;
            if (!found)
                return false;
            bits |= (uint32_t)(found - alphabet) << (18 - 6 * i);
        }
        for (size_t i = 0; i < 3 - padding; i++)
            bytes[(*length)++] = (char)(bits >> (16 - 8 * i) & 255);
    }
    return true;
}
