#include "formats/zip/write.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/little_endian.h"
#include "core/io/crc_combine.h"

#define LOCAL_BYTES 30u
#define ZIP64_EXTRA 20u
/* Aligns a member's data, so that an array in it can be mapped. */
#define LEAST_ALIGNMENT 64u
/* Up to this size a member's sizes fit 32 bits, also if it grows when it is deflated:
 * by at most a few bytes for each 64 KiB. */
#define NARROW_LIMIT UINT64_C(0xFF000000)
#define FULL 0xFFFFFFFFu

void zip_writer_init(struct zip_writer *writer, struct tc_outfile *out, int level,
                     uint64_t alignment) {
    *writer =
        (struct zip_writer){.out = out,
                            .level = level,
                            .alignment = alignment > LEAST_ALIGNMENT ? alignment : LEAST_ALIGNMENT};
}

void zip_writer_release(struct zip_writer *writer) {
    tc_deflater_release(&writer->deflater);
    free(writer->packed);
    free(writer->members);
    *writer = (struct zip_writer){0};
}

/* Appends a little-endian field. */
static void add(struct tc_buffer *buffer, uint64_t value, unsigned bytes) {
    unsigned char field[8];
    tc_store(field, value, bytes);
    tc_buffer_add(buffer, field, bytes);
}

/* The flag for a name in UTF-8, where it is not plain ASCII. */
static unsigned name_flags(struct tc_text name) {
    for (size_t i = 0; i < name.length; i++)
        if (name.bytes[i] & 0x80)
            return 0x0800;
    return 0;
}

static unsigned narrow(uint64_t value) {
    return value >= FULL ? FULL : (unsigned)value;
}

/* Appends the fields that local header and directory entry have in common: version,
 * flags, method and the time, 1980-01-01 00:00. */
static void add_common(struct tc_buffer *buffer, const struct zip_writer *writer,
                       struct tc_text name, bool wide) {
    add(buffer, wide ? 45 : 20, 2);
    add(buffer, name_flags(name), 2);
    add(buffer, writer->level ? 8 : 0, 2);
    add(buffer, 0, 2);
    add(buffer, 0x21, 2);
}

static bool emit(struct zip_writer *writer, struct tc_buffer *buffer, struct tc_error *error) {
    bool ok = tc_buffer_ok(buffer, error) &&
              tc_outfile_write(writer->out, buffer->bytes, buffer->length, error);
    tc_buffer_release(buffer);
    return ok;
}

/* The padding with which the data behind a header of `length` bytes starts aligned.
 * It goes into an extra field, which has at least four bytes. */
static size_t padding_for(const struct zip_writer *writer, size_t length) {
    uint64_t padding = -(writer->out->position + length) % writer->alignment;
    return padding && padding < 4 ? padding + writer->alignment : padding;
}

/* Writes bytes as they are in the file. */
static bool store(struct zip_writer *writer, const void *bytes, size_t length,
                  struct tc_error *error) {
    writer->members[writer->count - 1].stored += length;
    return tc_outfile_write(writer->out, bytes, length, error);
}

static bool add_member(struct zip_writer *writer, struct tc_text name, struct tc_error *error) {
    if (writer->count == writer->capacity) {
        size_t capacity = writer->capacity ? writer->capacity * 2 : 64;
        struct zip_written *members = reallocarray(writer->members, capacity, sizeof *members);
        if (!members)
            return tc_fail_memory(error);
        writer->members = members;
        writer->capacity = capacity;
    }
    writer->members[writer->count++] =
        (struct zip_written){.name = name, .local = writer->out->position};
    return true;
}

bool zip_member_begin(struct zip_writer *writer, struct tc_text name, uint64_t size, size_t lead,
                      struct tc_error *error) {
    if (!add_member(writer, name, error))
        return false;
    writer->wide = size > NARROW_LIMIT;
    size_t length = LOCAL_BYTES + name.length + (writer->wide ? ZIP64_EXTRA : 0);
    size_t padding = padding_for(writer, length + lead);
    struct tc_buffer header = {0};
    tc_buffer_add(&header, "PK\3\4", 4);
    add_common(&header, writer, name, writer->wide);
    add(&header, 0, 4); /* CRC and sizes: patched by zip_member_end */
    add(&header, writer->wide ? FULL : 0, 4);
    add(&header, writer->wide ? FULL : 0, 4);
    add(&header, name.length, 2);
    add(&header, (writer->wide ? ZIP64_EXTRA : 0) + padding, 2);
    tc_buffer_add_text(&header, name);
    if (writer->wide) {
        add(&header, 1, 2);
        add(&header, 16, 2);
        add(&header, 0, 8);
        add(&header, 0, 8);
    }
    if (padding) {
        tc_buffer_add(&header, "FB", 2); /* the extra field that torch pads with */
        add(&header, padding - 4, 2);
        for (size_t i = 4; i < padding; i++)
            tc_buffer_add(&header, "", 1);
    }
    return emit(writer, &header, error);
}

/* Bytes that come by themselves, such as the header of an array, are pieces without a window. */
static bool deflate(struct zip_writer *writer, const unsigned char *bytes, size_t length,
                    struct tc_error *error) {
    if (!writer->packed && (!tc_deflater_init(&writer->deflater, writer->level, error) ||
                            !(writer->packed = malloc(TC_DEFLATE_ROOM))))
        return tc_fail_memory(error);
    for (size_t at = 0; at < length;) {
        size_t step = length - at < TC_DEFLATE_PIECE ? length - at : TC_DEFLATE_PIECE;
        size_t packed;
        if (!tc_deflate_piece(&writer->deflater, bytes + at, 0, step, writer->packed, &packed,
                              error) ||
            !store(writer, writer->packed, packed, error))
            return false;
        at += step;
    }
    return true;
}

bool zip_member_write(struct zip_writer *writer, const void *bytes, size_t length,
                      struct tc_error *error) {
    struct zip_written *member = &writer->members[writer->count - 1];
    member->crc = tc_crc32(member->crc, bytes, length);
    member->size += length;
    return writer->level ? deflate(writer, bytes, length, error)
                         : store(writer, bytes, length, error);
}

bool zip_member_write_chunk(struct zip_writer *writer, const struct tc_chunk *chunk,
                            struct tc_error *error) {
    struct zip_written *member = &writer->members[writer->count - 1];
    member->crc = tc_crc32_moved(member->crc, chunk->unpacked) ^ chunk->crc;
    member->size += chunk->unpacked;
    return store(writer, chunk->bytes, chunk->length, error);
}

void zip_member_skip(struct zip_writer *writer, uint64_t length) {
    struct zip_written *member = &writer->members[writer->count - 1];
    member->size += length;
    member->stored += length;
    tc_outfile_skip(writer->out, length);
}

bool zip_member_end(struct zip_writer *writer, struct tc_error *error) {
    if (writer->level && !store(writer, tc_deflate_end, TC_DEFLATE_END_BYTES, error))
        return false;
    const struct zip_written *member = &writer->members[writer->count - 1];
    struct tc_buffer fields = {0};
    add(&fields, member->crc, 4);
    if (!writer->wide) {
        add(&fields, member->stored, 4);
        add(&fields, member->size, 4);
    }
    bool ok =
        tc_buffer_ok(&fields, error) &&
        tc_outfile_write_at(writer->out, member->local + 14, fields.bytes, fields.length, error);
    if (ok && writer->wide) {
        fields.length = 0;
        add(&fields, member->size, 8);
        add(&fields, member->stored, 8);
        ok = tc_buffer_ok(&fields, error) &&
             tc_outfile_write_at(writer->out, member->local + LOCAL_BYTES + member->name.length + 4,
                                 fields.bytes, fields.length, error);
    }
    tc_buffer_release(&fields);
    return ok;
}

static void add_entry(struct tc_buffer *buffer, const struct zip_writer *writer,
                      const struct zip_written *member) {
    bool wide_sizes = member->size >= FULL || member->stored >= FULL;
    bool wide_local = member->local >= FULL;
    tc_buffer_add(buffer, "PK\1\2", 4);
    add(buffer, 45, 2); /* made by: version 4.5, MS-DOS */
    add_common(buffer, writer, member->name, wide_sizes || wide_local);
    add(buffer, member->crc, 4);
    add(buffer, wide_sizes ? FULL : member->stored, 4);
    add(buffer, wide_sizes ? FULL : member->size, 4);
    add(buffer, member->name.length, 2);
    unsigned extra = (wide_sizes ? 16u : 0u) + (wide_local ? 8u : 0u);
    add(buffer, extra ? extra + 4 : 0, 2);
    add(buffer, 0, 6); /* comment, disk, internal attributes */
    add(buffer, 0, 4); /* external attributes */
    add(buffer, narrow(member->local), 4);
    tc_buffer_add_text(buffer, member->name);
    if (extra) {
        add(buffer, 1, 2);
        add(buffer, extra, 2);
        if (wide_sizes) {
            add(buffer, member->size, 8);
            add(buffer, member->stored, 8);
        }
        if (wide_local)
            add(buffer, member->local, 8);
    }
}

static void add_end64(struct tc_buffer *buffer, uint64_t count, uint64_t size, uint64_t directory) {
    tc_buffer_add(buffer, "PK\6\6", 4);
    add(buffer, 44, 8);
    add(buffer, 45, 2);
    add(buffer, 45, 2);
    add(buffer, 0, 4);
    add(buffer, 0, 4);
    add(buffer, count, 8);
    add(buffer, count, 8);
    add(buffer, size, 8);
    add(buffer, directory, 8);
    tc_buffer_add(buffer, "PK\6\7", 4);
    add(buffer, 0, 4);
    add(buffer, directory + size, 8);
    add(buffer, 1, 4);
}

bool zip_writer_finish(struct zip_writer *writer, struct tc_error *error) {
    uint64_t directory = writer->out->position;
    for (size_t i = 0; i < writer->count;) {
        struct tc_buffer buffer = {0};
        for (; i < writer->count && buffer.length < (1u << 20) && !buffer.failed; i++)
            add_entry(&buffer, writer, &writer->members[i]);
        if (!emit(writer, &buffer, error))
            return false;
    }
    uint64_t size = writer->out->position - directory;
    uint64_t count = writer->count;
    struct tc_buffer end = {0};
    if (count >= 0xFFFF || size >= FULL || directory >= FULL)
        add_end64(&end, count, size, directory);
    tc_buffer_add(&end, "PK\5\6", 4);
    add(&end, 0, 4);
    add(&end, count < 0xFFFF ? count : 0xFFFF, 2);
    add(&end, count < 0xFFFF ? count : 0xFFFF, 2);
    add(&end, narrow(size), 4);
    add(&end, narrow(directory), 4);
    add(&end, 0, 2);
    return emit(writer, &end, error);
}
