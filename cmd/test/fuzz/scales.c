/*
 * The fuzz target of weights that have scales of their own: the input's parts (parts.h) are files,
 * of which the first is opened, and a configuration may lie beside it. Every tensor is asked for
 * its role, and every weight is read whole and in small pieces, which must agree.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "cmd/test/fuzz/parts.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/format/block_scales.h"
#include "core/format/dequantise.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "formats/registry.h"

/* A result that is larger is not read: its size is the input's idea. */
#define MOST_BYTES ((size_t)64 << 10)

static void read_weight(const struct tc_scaled *scaled, enum tc_dtype dtype,
                        struct tc_arena *arena) {
    struct tc_error error = {0};
    struct tc_dequantise *made = tc_dequantise_make(scaled, dtype, arena, &error);
    fuzz_check_outcome(made != NULL, &error);
    if (!made || made->tensor.nbytes > MOST_BYTES)
        return;
    size_t length = made->tensor.nbytes;
    size_t step = 7 * tc_dtype_bits(dtype) / 8;
    unsigned char *whole = calloc(1, length + 1);
    unsigned char *pieces = calloc(1, length + 1);
    bool ok = tc_dequantise_read(made, 0, whole, length, &error);
    fuzz_check_outcome(ok, &error);
    bool all = true;
    for (size_t at = 0; at < length && all; at += step) {
        struct tc_error other = {0};
        all = tc_dequantise_read(made, at, pieces + at, length - at < step ? length - at : step,
                                 &other);
    }
    FUZZ_CHECK(ok == all && (!ok || memcmp(whole, pieces, length) == 0),
               "a weight in pieces is another");
    tc_dequantise_unload(made);
    free(whole);
    free(pieces);
}

static void look_at_all(struct tc_reader *reader, struct tc_arena *arena) {
    struct tc_block_scales scales;
    struct tc_error error = {0};
    bool ok = tc_block_scales_init(&scales, &reader, 1, arena, &error);
    fuzz_check_outcome(ok, &error);
    for (size_t i = 0; ok && i < reader->table.count; i++) {
        enum tc_scaled_role role;
        struct tc_scaled scaled;
        struct tc_error own = {0};
        bool found =
            tc_block_scales_find(&scales, 0, &reader->table.tensors[i], &role, &scaled, &own);
        fuzz_check_outcome(found, &own);
        if (found && role == TC_ROLE_WEIGHT) {
            read_weight(&scaled, TC_BF16, arena);
            read_weight(&scaled, TC_F32, arena);
        }
    }
}

void fuzz_scales(const unsigned char *bytes, size_t length) {
    struct part parts[PARTS_MOST];
    struct tc_error error = {0};
    struct tc_arena arena;
    const char *first = parts_write(bytes, length, parts);
    struct tc_reader *reader =
        first ? tc_registry_open(fuzz_path(first), NULL, &fuzz_options, &error) : NULL;
    if (!reader)
        return;
    tc_arena_init(&arena, 0);
    look_at_all(reader, &arena);
    tc_arena_release(&arena);
    tc_reader_close(reader);
}
