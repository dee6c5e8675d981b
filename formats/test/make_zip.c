#include "formats/test/make_zip.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/io/deflate.h"

static void add_little(struct tc_buffer *buffer, uint64_t value, unsigned bytes) {
    unsigned char little[8];
    tc_store(little, value, sizeof little);
    tc_buffer_add(buffer, little, bytes);
}

static bool add_data(struct tc_buffer *zip, const struct test_member *member) {
    struct tc_error error = {0};
    struct tc_deflater deflater = {0};
    if (!member->deflate) {
        tc_buffer_add(zip, member->bytes, member->length);
        return true;
    }
    unsigned char *packed = malloc(TC_DEFLATE_ROOM);
    bool ok = packed && tc_deflater_init(&deflater, 6, &error);
    for (size_t at = 0; ok && at < member->length; at += TC_DEFLATE_PIECE) {
        size_t left = member->length - at;
        size_t made;
        ok = tc_deflate_piece(&deflater, (const unsigned char *)member->bytes + at, 0,
                              left < TC_DEFLATE_PIECE ? left : TC_DEFLATE_PIECE, packed, &made,
                              &error);
        if (ok)
            tc_buffer_add(zip, packed, made);
    }
    tc_buffer_add(zip, tc_deflate_end, TC_DEFLATE_END_BYTES);
    tc_deflater_release(&deflater);
    free(packed);
    return ok;
}

/* What both headers have, from the version to the length of the extra field. */
static void add_fields(struct tc_buffer *zip, const struct test_member *member, size_t stored) {
    bool ascii = true;
    for (const char *c = member->name; *c; c++)
        ascii = ascii && !(*c & 0x80);
    add_little(zip, 20, 2);
    add_little(zip, ascii ? 0 : 0x800, 2); /* the name is UTF-8 */
    add_little(zip, member->deflate ? 8 : 0, 2);
    add_little(zip, UINT64_C(0x210000), 4);
    add_little(zip, tc_crc32(0, member->bytes, member->length), 4);
    add_little(zip, stored, 4);
    add_little(zip, member->length, 4);
    add_little(zip, strlen(member->name), 2);
    add_little(zip, 0, 2);
}

bool test_make_zip(struct tc_buffer *zip, const struct test_member *members, size_t count) {
    struct tc_buffer directory = {0};
    size_t base = zip->length;
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        struct tc_buffer data = {0};
        size_t local = zip->length - base;
        ok = add_data(&data, &members[i]);
        tc_buffer_add(zip, "PK\3\4", 4);
        add_fields(zip, &members[i], data.length);
        tc_buffer_add_string(zip, members[i].name);
        tc_buffer_add(zip, data.bytes, data.length);
        tc_buffer_add(&directory, "PK\1\2\x14\0", 6);
        add_fields(&directory, &members[i], data.length);
        add_little(&directory, 0, 8);
        add_little(&directory, 0, 2);
        add_little(&directory, local, 4);
        tc_buffer_add_string(&directory, members[i].name);
        tc_buffer_release(&data);
    }
    size_t start = zip->length - base;
    tc_buffer_add(zip, directory.bytes, directory.length);
    tc_buffer_add(zip, "PK\5\6\0\0\0", 8);
    add_little(zip, count, 2);
    add_little(zip, count, 2);
    add_little(zip, directory.length, 4);
    add_little(zip, start, 4);
    add_little(zip, 0, 2);
    ok = ok && !zip->failed && !directory.failed;
    tc_buffer_release(&directory);
    return ok;
}
