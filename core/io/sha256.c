#include "core/io/sha256.h"

#include <openssl/evp.h>
#include <string.h>

#include "core/base/cpu.h"

static bool begin(struct tc_sha256 *hash, const EVP_MD *kind, struct tc_error *error) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    hash->context = context;
    if (!context || EVP_DigestInit_ex(context, kind, NULL) != 1) {
        tc_sha256_release(hash);
        return tc_fail_memory(error);
    }
    return true;
}

bool tc_sha256_init(struct tc_sha256 *hash, struct tc_error *error) {
    *hash = (struct tc_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                         0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
    return tc_cpu_sha() || begin(hash, EVP_sha256(), error);
}

bool tc_sha1_init(struct tc_sha256 *hash, struct tc_error *error) {
    return begin(hash, EVP_sha1(), error);
}

/* Completes the block that was begun, if there is one, as far as the piece goes. */
static void fill_part(struct tc_sha256_piece *piece) {
    struct tc_sha256 *hash = piece->hash;
    size_t begun = hash->length % TC_SHA256_BLOCK;
    size_t room = TC_SHA256_BLOCK - begun;
    size_t step = begun == 0 ? 0 : piece->length < room ? piece->length : room;
    if (step == 0)
        return;
    memcpy(hash->part + begun, piece->bytes, step);
    hash->length += step;
    piece->bytes = (const unsigned char *)piece->bytes + step;
    piece->length -= step;
    struct tc_sha256_lane lane = {hash->state, hash->part, step == room};
    tc_sha256_lanes(&lane, 1);
}

void tc_sha256_update_several(const struct tc_sha256_piece *pieces, size_t count) {
    struct tc_sha256_lane lanes[TC_SHA256_LANES];
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        struct tc_sha256_piece piece = pieces[i];
        struct tc_sha256 *hash = piece.hash;
        if (hash->context) {
            EVP_DigestUpdate(hash->context, piece.bytes, piece.length);
            continue;
        }
        fill_part(&piece);
        if (piece.length == 0) /* there may be no bytes to point to */
            continue;
        size_t rest = piece.length % TC_SHA256_BLOCK;
        const unsigned char *bytes = piece.bytes;
        memcpy(hash->part, bytes + piece.length - rest, rest);
        hash->length += piece.length;
        lanes[used++] = (struct tc_sha256_lane){hash->state, bytes, piece.length / TC_SHA256_BLOCK};
    }
    if (used)
        tc_sha256_lanes(lanes, used);
}

void tc_sha256_update(struct tc_sha256 *hash, const void *bytes, size_t length) {
    tc_sha256_update_several(&(struct tc_sha256_piece){hash, bytes, length}, 1);
}

/* What ends a message: a bit, zeros up to the end of a block, and in the last eight bytes of that
 * the message's length in bits. */
static void add_end(struct tc_sha256 *hash) {
    unsigned char end[TC_SHA256_BLOCK + 8] = {0x80};
    size_t begun = hash->length % TC_SHA256_BLOCK;
    size_t length = (begun < 56 ? 56 : 120) - begun;
    uint64_t bits = hash->length * 8;
    for (size_t i = 0; i < 8; i++)
        end[length + i] = (unsigned char)(bits >> (56 - 8 * i));
    tc_sha256_update(hash, end, length + 8);
}

void tc_sha256_finish(struct tc_sha256 *hash, unsigned char digest[TC_SHA256_BYTES]) {
    if (hash->context) {
        EVP_DigestFinal_ex(hash->context, digest, NULL);
    } else {
        add_end(hash);
        for (size_t i = 0; i < TC_SHA256_BYTES; i++)
            digest[i] = (unsigned char)(hash->state[i / 4] >> (24 - i % 4 * 8));
    }
    tc_sha256_release(hash);
}

void tc_sha256_release(struct tc_sha256 *hash) {
    EVP_MD_CTX_free(hash->context);
    hash->context = NULL;
}

bool tc_sha256_of(const void *bytes, size_t length, unsigned char digest[TC_SHA256_BYTES],
                  struct tc_error *error) {
    struct tc_sha256 hash;
    if (!tc_sha256_init(&hash, error))
        return false;
    tc_sha256_update(&hash, bytes, length);
    tc_sha256_finish(&hash, digest);
    return true;
}

static const char digits[] = "0123456789abcdef";

void tc_hex(const unsigned char *bytes, size_t length, char *text) {
    for (size_t i = 0; i < length; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * length] = '\0';
}

bool tc_unhex(const char *text, size_t text_length, unsigned char *bytes, size_t length) {
    if (text_length != 2 * length)
        return false;
    for (size_t i = 0; i < length; i++) {
        const char *high = memchr(digits, text[2 * i], 16);
        const char *low = memchr(digits, text[2 * i + 1], 16);
        if (!high || !low)
            return false;
        bytes[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return true;
}
