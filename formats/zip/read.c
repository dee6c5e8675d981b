#include "formats/zip/read.h"

#include <stdlib.h>

#include "core/base/arena.h"
#include "core/base/memory.h"
#include "core/io/bzip2.h"
#include "core/io/lzma.h"

static bool check_crc(const struct zip_member *member, uint32_t crc, struct tc_error *error) {
    if (crc == member->crc)
        return true;
    tc_fail(error, TC_INVALID, "crc", "CRC-32 mismatch (got %08x, expected %08x)", crc,
            member->crc);
    return tc_error_at(error, member->data);
}

bool zip_member_readable(const struct zip_member *member, struct tc_error *error) {
    if (member->flags & ZIP_ENCRYPTED)
        tc_fail(error, TC_UNSUPPORTED, "zip-encrypted", "an encrypted zip member");
    else if (member->method != ZIP_STORED && member->method != ZIP_DEFLATED &&
             member->method != ZIP_BZIP2 && member->method != ZIP_LZMA)
        tc_fail(error, TC_UNSUPPORTED, "zip-method", "zip compression method %u is not supported",
                member->method);
    else
        return true;
    return tc_error_at(error, member->local);
}

bool zip_all_readable(const struct zip *zip, struct tc_error *error) {
    for (size_t i = 0; i < zip->count; i++)
        if (!zip_member_readable(&zip->members[i], error))
            return false;
    return true;
}

static bool start_unpacking(struct zip_stream *stream, struct tc_input *input,
                            const struct zip_member *member, struct tc_error *error) {
    uint64_t start = member->data;
    uint64_t end = member->data + member->stored;
    stream->member = member;
    switch (member->method) {
    case ZIP_BZIP2:
        return tc_bzip2_init(&stream->packed.decoder, input, start, end, error);
    case ZIP_LZMA:
        return tc_lzma_init(&stream->packed.decoder, input, start, end, member->size, error);
    default:
        return tc_inflater_init(&stream->packed.inflater, input, start, end, error);
    }
}

static bool unpack(struct zip_stream *stream, void *buffer, size_t length, struct tc_error *error) {
    return stream->member->method == ZIP_DEFLATED
               ? tc_inflate(&stream->packed.inflater, buffer, length, error)
               : tc_decoder_read(&stream->packed.decoder, buffer, length, error);
}

static bool end_unpacking(struct zip_stream *stream, struct tc_error *error) {
    return stream->member->method == ZIP_DEFLATED ? tc_inflater_end(&stream->packed.inflater, error)
                                                  : tc_decoder_end(&stream->packed.decoder, error);
}

static bool unpack_next(struct zip_stream *stream, void *buffer, size_t length,
                        struct tc_error *error) {
    if (!unpack(stream, buffer, length, error))
        return false;
    stream->crc = tc_crc32(stream->crc, buffer, length);
    stream->position += length;
    if (stream->position < stream->member->size)
        return true;
    return end_unpacking(stream, error) && check_crc(stream->member, stream->crc, error);
}

bool zip_stream_read(struct zip_stream *stream, struct tc_input *input,
                     const struct zip_member *member, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error) {
    unsigned char skipped[4096];
    if (!zip_member_readable(member, error))
        return false;
    if (member->method == ZIP_STORED)
        return tc_input_read(input, member->data + offset, buffer, length, error);
    if (stream->member != member || offset < stream->position) {
        zip_stream_release(stream);
        if (!start_unpacking(stream, input, member, error))
            return false;
    }
    while (stream->position < offset) {
        uint64_t left = offset - stream->position;
        if (!unpack_next(stream, skipped, left < sizeof skipped ? left : sizeof skipped, error))
            return false;
    }
    return unpack_next(stream, buffer, length, error);
}

void zip_stream_release(struct zip_stream *stream) {
    uint16_t method = stream->member ? stream->member->method : ZIP_STORED;
    if (method == ZIP_BZIP2 || method == ZIP_LZMA)
        tc_decoder_release(&stream->packed.decoder);
    else if (method == ZIP_DEFLATED)
        tc_inflater_release(&stream->packed.inflater);
    *stream = (struct zip_stream){0};
}

char *zip_load(struct tc_reader *reader, const struct zip_member *member, struct tc_error *error) {
    struct zip_stream stream = {0};
    tc_memory_earn(member->stored);
    char *bytes = zip_member_readable(member, error)
                      ? tc_arena_alloc(&reader->arena, member->size + 1, error)
                      : NULL;
    if (!bytes)
        return NULL;
    bool ok = zip_stream_read(&stream, reader->input, member, 0, bytes, member->size, error);
    zip_stream_release(&stream);
    if (ok && member->method == ZIP_STORED)
        ok = check_crc(member, tc_crc32(0, bytes, member->size), error);
    return ok ? bytes : NULL;
}

#define VERIFY_STEP ((size_t)1 << 18)

/* Room for a step, and no more than a small member needs. */
static unsigned char *verify_buffer(uint64_t size) {
    return malloc(size == 0 ? 1 : size < VERIFY_STEP ? size : VERIFY_STEP);
}

bool zip_member_check(struct tc_input *input, const struct zip_member *member,
                      struct tc_error *error) {
    if (member->method == ZIP_STORED)
        return zip_verify_stored(input, member, error);
    struct zip_stream stream = {0};
    unsigned char *buffer = verify_buffer(member->size);
    bool ok = buffer || tc_fail_memory(error);
    for (uint64_t at = 0; ok && (at < member->size || at == 0);) {
        uint64_t left = member->size - at;
        size_t step = left < VERIFY_STEP ? left : VERIFY_STEP;
        ok = zip_stream_read(&stream, input, member, at, buffer, step, error);
        at += step ? step : 1;
    }
    zip_stream_release(&stream);
    free(buffer);
    return ok;
}

bool zip_verify_stored(struct tc_input *input, const struct zip_member *member,
                       struct tc_error *error) {
    unsigned char *buffer = verify_buffer(member->stored);
    if (!buffer)
        return tc_fail_memory(error);
    uint32_t crc = 0;
    bool ok = true;
    for (uint64_t at = 0; at < member->stored && ok;) {
        uint64_t left = member->stored - at;
        size_t step = left < VERIFY_STEP ? left : VERIFY_STEP;
        ok = tc_input_read(input, member->data + at, buffer, step, error);
        if (ok)
            crc = tc_crc32(crc, buffer, step);
        at += step;
    }
    free(buffer);
    return ok && check_crc(member, crc, error);
}
