/*
 * Unpacks compressed bytes into a temporary file without a name, so that little memory
 * is needed. Whole files may be compressed too: joblib and pandas unpack a file if its
 * first bytes say so.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/io/bzip2.h"
#include "core/io/decoder.h"
#include "core/io/deflate.h"
#include "core/io/input.h"
#include "core/io/lzma.h"
#include "core/io/zstd.h"
#include "formats/scan/scan.h"
#include "formats/scan/walk.h"
#include "formats/zip/directory.h"
#include "formats/zip/read.h"

#define STEP ((size_t)1 << 17)
/* Up to this size, unpacked bytes are kept in memory instead. */
#define SMALL ((uint64_t)4 << 20)
/* How many streams may follow each other: empty ones cost time and unpack to nothing. */
#define MAX_STREAMS UINT64_C(1000000)

/* LZMA's header has no magic bytes: a byte of properties, the dictionary's size, the
 * data's size (all ones: unknown), then a stream that starts with a zero. liblzma
 * accepts dictionaries of 2^n or 2^n + 2^(n-1) bytes, and data below 256 GiB. */
static bool may_be_lzma(const struct scan_view *view) {
    const unsigned char *head = view->head;
    if (view->shown < 18 || head[0] >= 9 * 5 * 5 || head[13])
        return false;
    uint64_t dictionary = tc_load(head + 1, 4);
    uint64_t size = tc_load(head + 5, 8);
    uint64_t lowest = dictionary & (~dictionary + 1);
    bool round = dictionary == lowest || dictionary == 3 * lowest || dictionary == UINT32_MAX;
    return round && (size == UINT64_MAX || size < UINT64_C(1) << 38);
}

enum scan_packing scan_packing_seen(const struct scan_view *view) {
    const unsigned char *head = view->head;
    if (view->shown < 8)
        return SCAN_PLAIN;
    if (head[0] == 0x1F && head[1] == 0x8B && head[2] == 8)
        return SCAN_GZIP;
    if (memcmp(head, "\x28\xB5\x2F\xFD", 4) == 0)
        return SCAN_ZSTD;
    if (memcmp(head, "BZh", 3) == 0)
        return SCAN_BZIP2;
    /* joblib recognises LZMA by the two bytes that most such files start with. */
    if (memcmp(head, "\xFD\x37zXZ", 6) == 0 || memcmp(head, "LZIP", 4) == 0 ||
        (head[0] == 0x5D && head[1] == 0 && may_be_lzma(view)))
        return SCAN_XZ;
    if (memcmp(head, "\x04\x22\x4D\x18", 4) == 0)
        return SCAN_CLOSED;
    if ((head[0] & 0x0F) == 8 && head[0] >> 4 <= 7 && (head[0] << 8 | head[1]) % 31 == 0 &&
        !(head[1] & 0x20))
        return SCAN_ZLIB;
    return may_be_lzma(view) ? SCAN_LZMA : SCAN_PLAIN;
}

/* -1 where there is none: then a file on disk will do. */
static int memory_file(void) {
    return memfd_create("tconv-scan", MFD_CLOEXEC);
}

struct tc_input *scan_keep(const void *bytes, uint64_t length, struct tc_input *source,
                           struct tc_error *error) {
    int fd = length <= SMALL ? memory_file() : -1;
    if (fd < 0)
        fd = tc_tempfile(error);
    if (fd >= 0 && !tc_write_all(fd, bytes, length, error)) {
        close(fd);
        fd = -1;
    }
    return tc_input_adopt(fd, source->path, length, source, error);
}

/* Moves *at behind gzip's header, whose flags say which optional fields it has. False
 * where it is not a header. */
static bool skip_gzip_header(struct tc_input *input, uint64_t *at, uint64_t end,
                             struct tc_error *error) {
    unsigned char head[1024];
    size_t size = end - *at < sizeof head ? end - *at : sizeof head;
    if (!tc_input_read(input, *at, head, size, error))
        return false;
    size_t used = 10;
    unsigned flags = size > 3 ? head[3] : 0xFF;
    bool bad = size < 18 || flags & 0xE0;
    if (!bad && flags & 4) {
        used += 2 + (size_t)tc_load(head + 10, 2);
        bad = used > size;
    }
    for (unsigned flag = 8; flag <= 16 && !bad; flag <<= 1)
        if (flags & flag) { /* a name, a comment: up to a zero */
            const unsigned char *zero = memchr(head + used, 0, size - used);
            bad = !zero;
            used = zero ? (size_t)(zero - head) + 1 : used;
        }
    if (!bad && flags & 2) {
        used += 2;
        bad = used > size;
    }
    *at += used;
    return !bad || tc_fail(error, TC_INVALID, "gzip", "a gzip header is cut short or too long");
}

/* Where unpacked bytes go. */
struct sink {
    struct scan *scan;
    int fd;
    uint64_t size;
    uint32_t crc;
    bool spilled; /* to a file on disk */
};

static bool spill(struct sink *sink, struct tc_error *error) {
    int fd = tc_tempfile(error);
    unsigned char *buffer = fd < 0 ? NULL : malloc(STEP);
    bool ok = buffer != NULL || (fd >= 0 && tc_fail_memory(error));
    for (uint64_t at = 0; ok && at < sink->size;) {
        ssize_t got = pread(sink->fd, buffer, STEP, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        ok = got > 0 ? tc_write_all(fd, buffer, (size_t)got, error)
                     : tc_fail_errno(error, got ? errno : EIO, "read",
                                     "cannot read the temporary file");
        at += ok ? (uint64_t)got : 0;
    }
    free(buffer);
    if (fd >= 0 && ok) {
        close(sink->fd);
        sink->fd = fd;
        sink->spilled = true;
    } else if (fd >= 0) {
        close(fd);
    }
    return ok;
}

/* Adds unpacked bytes. *full: the limit is reached, and the rest is not looked at. */
static bool take(struct sink *sink, const void *bytes, size_t length, bool *full,
                 struct tc_error *error) {
    struct scan *scan = sink->scan;
    if (length > scan->most_unpacked - scan->unpacked) {
        scan_note_limit(scan, "bytes out of compressed ones", "--max-size");
        *full = true;
        return true;
    }
    scan->unpacked += length;
    if (!sink->spilled && sink->size + length > SMALL && !spill(sink, error))
        return false;
    if (sink->spilled && !tc_tempfile_check(sink->fd, sink->size, length, error))
        return false;
    sink->size += length;
    sink->crc = tc_crc32(sink->crc, bytes, length);
    return tc_write_all(sink->fd, bytes, length, error);
}

/* Whether one more stream may be looked at. */
static bool may_go_on(struct scan *scan) {
    if (scan->streams++ < MAX_STREAMS)
        return true;
    scan_note_limit(scan, "compressed streams one behind the other", NULL);
    return false;
}

/* Inflates one stream of deflate, up to its end. */
static bool inflate_stream(struct sink *sink, struct tc_inflater *inflater, unsigned char *buffer,
                           bool *full, struct tc_error *damage, struct tc_error *error) {
    bool ok = true;
    bool more = true;
    while (ok && more && !*full) {
        size_t got = 0;
        more = tc_inflate_some(inflater, buffer, STEP, &got, damage) && got == STEP;
        ok = take(sink, buffer, got, full, error);
    }
    return ok;
}

/* Inflates the stream at *at, which moves behind it. */
static bool inflate(struct sink *sink, struct tc_input *input, uint64_t *at, uint64_t end,
                    bool *full, struct tc_error *damage, struct tc_error *error) {
    struct tc_inflater inflater = {0};
    unsigned char *buffer = malloc(STEP);
    bool ok = buffer ? tc_inflater_init(&inflater, input, *at, end, error) : tc_fail_memory(error);
    ok = ok && inflate_stream(sink, &inflater, buffer, full, damage, error);
    if (ok && damage->class == TC_OK && !*full)
        *at = tc_inflater_at(&inflater);
    tc_inflater_release(&inflater);
    free(buffer);
    return ok;
}

/* Inflates gzip's streams, of which several may follow each other. */
static bool inflate_gzip(struct sink *sink, struct tc_inflater *inflater, unsigned char *buffer,
                         bool *full, struct tc_error *damage, struct tc_error *error) {
    struct tc_input *input = inflater->input;
    uint64_t at = 0;
    while (at < input->size) {
        if (!skip_gzip_header(input, &at, input->size, damage))
            break;
        tc_inflater_restart(inflater, at);
        if (!inflate_stream(sink, inflater, buffer, full, damage, error))
            return false;
        if (damage->class != TC_OK || *full)
            break;
        at = tc_inflater_at(inflater);
        if (input->size - at < 8) {
            tc_fail(damage, TC_INVALID, "truncated", "a gzip stream is cut short");
            break;
        }
        at += 8; /* CRC and size, which do not matter for what is loaded */
        if (at < input->size && !may_go_on(sink->scan))
            break;
    }
    return true;
}

static bool unpack_gzip(struct sink *sink, struct tc_input *input, bool *full,
                        struct tc_error *damage, struct tc_error *error) {
    struct tc_inflater inflater = {0};
    unsigned char *buffer = malloc(STEP);
    bool ok =
        buffer ? tc_inflater_init(&inflater, input, 0, input->size, error) : tc_fail_memory(error);
    ok = ok && inflate_gzip(sink, &inflater, buffer, full, damage, error);
    tc_inflater_release(&inflater);
    free(buffer);
    return ok;
}

static bool unpack_zlib(struct sink *sink, struct tc_input *input, bool *full,
                        struct tc_error *damage, struct tc_error *error) {
    uint64_t at = 2;
    if (!inflate(sink, input, &at, input->size, full, damage, error))
        return false;
    if (damage->class == TC_OK && !*full && input->size - at != 4)
        tc_fail(damage, TC_INVALID, "trailing", "something stands behind a zlib stream");
    return true;
}

/* Inflates a member of a zip, and checks its size and CRC where they are known. */
static bool unpack_deflate(struct sink *sink, struct tc_input *input,
                           const struct scan_region *region, bool *full, struct tc_error *damage,
                           struct tc_error *error) {
    uint64_t at = 0;
    if (!inflate(sink, input, &at, input->size, full, damage, error))
        return false;
    if (damage->class != TC_OK || *full || !region->sized)
        return true;
    if (sink->size != region->size || at != input->size)
        tc_fail(damage, TC_INVALID, "size-mismatch", "a deflated member is not as long as it says");
    else if (sink->crc != region->crc)
        tc_fail(damage, TC_INVALID, "crc", "CRC-32 mismatch (got %08x, expected %08x)", sink->crc,
                region->crc);
    return true;
}

static bool unpack_zipped(struct sink *sink, struct tc_input *input,
                          const struct scan_region *region, bool *full, struct tc_error *damage,
                          struct tc_error *error) {
    struct zip_member member = {.stored = region->length,
                                .size = region->size,
                                .crc = region->crc,
                                .method = region->method};
    struct zip_stream stream = {0};
    unsigned char *buffer = malloc(STEP);
    bool ok = buffer ? true : tc_fail_memory(error);
    for (uint64_t at = 0; ok && !*full && at < member.size;) {
        uint64_t left = member.size - at;
        size_t step = left < STEP ? left : STEP;
        if (!zip_stream_read(&stream, input, &member, at, buffer, step, damage))
            break;
        ok = take(sink, buffer, step, full, error);
        at += step;
    }
    zip_stream_release(&stream);
    free(buffer);
    return ok;
}

/* Unpacks the frame at *at, which moves behind it. */
static bool unpack_frame(struct sink *sink, struct tc_input *input, uint64_t *at, bool *full,
                         unsigned char *buffer, struct tc_error *damage, struct tc_error *error) {
    struct tc_zstd_decoder decoder = {0};
    bool ok = tc_zstd_decoder_init(&decoder, input, *at, input->size, error);
    bool more = ok;
    while (ok && more && !*full) {
        size_t got = 0;
        more = tc_zstd_decode_some(&decoder, buffer, STEP, &got, damage) && got == STEP;
        ok = take(sink, buffer, got, full, error);
    }
    if (ok && damage->class == TC_OK && !*full) {
        tc_zstd_decoder_end(&decoder, damage);
        *at = decoder.at - (decoder.filled - decoder.used);
    }
    tc_zstd_decoder_release(&decoder);
    return ok;
}

/* Unpacks a frame of zstd, and others that follow it, as in files of distributed checkpoints. */
static bool unpack_zstd(struct sink *sink, struct tc_input *input, bool *full,
                        struct tc_error *damage, struct tc_error *error) {
    static const unsigned char magic[] = {0x28, 0xB5, 0x2F, 0xFD};
    unsigned char *buffer = malloc(STEP);
    bool ok = buffer || tc_fail_memory(error);
    uint64_t at = 0;
    for (bool more = ok; ok && more;) {
        unsigned char head[sizeof magic] = {0};
        uint64_t from = at;
        *damage = (struct tc_error){0};
        ok = unpack_frame(sink, input, &at, full, buffer, damage, error);
        more = ok && !*full && at > from && input->size - at >= sizeof head;
        if (more)
            ok = tc_input_read(input, at, head, sizeof head, error);
        more = more && ok && memcmp(head, magic, sizeof magic) == 0 && may_go_on(sink->scan);
    }
    free(buffer);
    return ok;
}

/* Goes on to the next stream where one has ended. *more: there is one. */
static bool next_stream(struct sink *sink, struct tc_decoder *decoder, bool *more,
                        struct tc_error *error) {
    if (!decoder->ended)
        return true;
    *more = tc_decoder_follows(decoder) && may_go_on(sink->scan);
    return !*more || tc_decoder_next(decoder, error);
}

/* Unpacks streams of bzip2, or of the formats that liblzma knows, that follow each
 * other. Other bytes behind the last stream are damage. */
static bool unpack_streams(struct sink *sink, struct tc_input *input, bool bzip2, bool *full,
                           struct tc_error *damage, struct tc_error *error) {
    struct tc_decoder decoder = {0};
    unsigned char *buffer = malloc(STEP);
    bool ok = !buffer ? tc_fail_memory(error)
              : bzip2 ? tc_bzip2_init(&decoder, input, 0, input->size, error)
                      : tc_lzma_init_file(&decoder, input, 0, input->size, error);
    bool more = ok;
    while (ok && more && !*full) {
        size_t got = 0;
        more = tc_decoder_read_some(&decoder, buffer, STEP, &got, damage);
        ok = take(sink, buffer, got, full, error) &&
             (!more || next_stream(sink, &decoder, &more, error));
    }
    tc_decoder_release(&decoder);
    free(buffer);
    return ok;
}

struct tc_input *scan_unpack(struct scan *scan, const struct scan_region *region,
                             struct tc_error *damage, struct tc_error *error) {
    const char *path = region->source->input->path;
    struct tc_input *input =
        tc_input_part(region->source->input, path, region->offset, region->length, error);
    struct sink sink = {.scan = scan, .fd = input ? memory_file() : -1};
    bool full = false;
    bool ok = input != NULL;
    if (ok && sink.fd < 0) {
        sink.fd = tc_tempfile(error);
        sink.spilled = true;
        ok = sink.fd >= 0;
    }
    if (ok && region->packing == SCAN_DEFLATE)
        ok = unpack_deflate(&sink, input, region, &full, damage, error);
    else if (ok && region->packing == SCAN_ZIPPED)
        ok = unpack_zipped(&sink, input, region, &full, damage, error);
    else if (ok && region->packing == SCAN_ZLIB)
        ok = unpack_zlib(&sink, input, &full, damage, error);
    else if (ok && region->packing == SCAN_GZIP)
        ok = unpack_gzip(&sink, input, &full, damage, error);
    else if (ok && region->packing == SCAN_ZSTD)
        ok = unpack_zstd(&sink, input, &full, damage, error);
    else if (ok)
        ok = unpack_streams(&sink, input, region->packing == SCAN_BZIP2, &full, damage, error);
    tc_input_close(input);
    if (ok)
        return tc_input_adopt(sink.fd, path, sink.size, region->source->input, error);
    if (sink.fd >= 0)
        close(sink.fd);
    return NULL;
}
