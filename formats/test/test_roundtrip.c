/*
 * Every testdata file through every pair of formats: A → B → A gives what A
 * had, and happens wherever B can hold it. Where a dtype is promoted the values
 * differ in type by design, and cast's own tests cover them.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/tree.h"
#include "core/plan/dtype_policy.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "core/test/sanitized.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(roundtrip, .init = test_folder_make, .fini = test_folder_remove, .timeout = 1800);

/* Ways to write, for formats that can. */
static const struct variant {
    const char *name;
    struct tc_plan_options options;
    unsigned needs;
} variants[] = {
    {"plain", {.write = {.checksum = true}}, 0},
    {"bare", {.write = {.checksum = false}, .order = TC_ORDER_NAME}, 0},
    {"compressed", {.write = {.compress = TC_COMPRESS_DEFAULT, .checksum = true}}, TC_CAN_COMPRESS},
    {"compressed by name", {.write = {.compress = 1}, .order = TC_ORDER_NAME}, TC_CAN_COMPRESS},
};
#define VARIANTS (sizeof variants / sizeof *variants)

static void make_path(char path[256], const char *stem, const struct tc_backend *backend) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", stem, backend->extensions[0]);
    snprintf(path, 256, "%s", test_path(name));
}

static void expect_same(const char *a, const char *b, const char *what) {
    char *first = test_digest(a);
    char *second = test_digest(b);
    cr_assert_str_eq(first, second, "%s", what);
    free(first);
    free(second);
}

static bool metadata_equal(const struct tc_metadata *a, const struct tc_metadata *b) {
    size_t count_a = a ? a->count : 0;
    size_t count_b = b ? b->count : 0;
    for (size_t i = 0; i < count_a && count_a == count_b; i++)
        if (!tc_text_equal(a->pairs[i].key, b->pairs[i].key) ||
            !tc_text_equal(a->pairs[i].value, b->pairs[i].value))
            return false;
    return count_a == count_b;
}

/* Where the target says whose tensors these are, it may say so in addition. */
static void drop_framework(struct tc_reader *first, struct tc_reader *second) {
    const struct tc_text *name = tc_metadata_find(&second->table.metadata, TC_TEXT("format"));
    if (!second->backend->framework && first->backend->framework && name &&
        tc_text_equal(*name, tc_text_of(first->backend->framework)) &&
        !tc_metadata_find(&first->table.metadata, TC_TEXT("format")))
        tc_metadata_remove(&second->table.metadata, TC_TEXT("format"));
}

/* A sparse tensor that says no layout is COO, and torch and ONNX say so. */
static void drop_layout(const struct tc_tensor *tensor, const struct tc_tensor *other) {
    const struct tc_text key = TC_TEXT("sparse_layout");
    const struct tc_text *name = other->metadata ? tc_metadata_find(other->metadata, key) : NULL;
    if (name && tc_text_equal(*name, TC_TEXT("coo")) && tensor->metadata &&
        tc_metadata_find(tensor->metadata, TC_TEXT("sparse_parent")) &&
        !tc_metadata_find(tensor->metadata, key))
        tc_metadata_remove(other->metadata, key);
}

/* What is nested has no tree in its metadata, and is written with one elsewhere. */
static void drop_tree(struct tc_reader *first, struct tc_reader *second) {
    if (!first->backend->tree && !second->backend->tree)
        return;
    tc_metadata_remove(&first->table.metadata, TC_TEXT(TC_TREE_KEY));
    tc_metadata_remove(&second->table.metadata, TC_TEXT(TC_TREE_KEY));
}

static void expect_same_metadata(const char *a, const char *b, const char *what) {
    struct tc_reader *first = test_open(a);
    struct tc_reader *second = test_open(b);
    drop_framework(first, second);
    drop_tree(first, second);
    cr_assert(metadata_equal(&first->table.metadata, &second->table.metadata), "%s", what);
    for (size_t i = 0; i < first->table.count; i++) {
        const struct tc_tensor *tensor = &first->table.tensors[i];
        const struct tc_tensor *other = tc_table_find(&second->table, tensor->name);
        cr_assert_not_null(other, "%s: %.*s", what, (int)tensor->name.length, tensor->name.bytes);
        drop_layout(tensor, other);
        cr_assert(metadata_equal(tensor->metadata, other->metadata), "%s: %.*s", what,
                  (int)tensor->name.length, tensor->name.bytes);
    }
    tc_reader_close(first);
    tc_reader_close(second);
}

/* Whether a file is one sparse tensor, as a format for one tensor may hold it. */
static bool is_sparse(const struct tc_table *table) {
    struct tc_sparse sparse;
    bool coo = table->count == 3;
    for (size_t i = 0; i < table->count && coo; i++) {
        const struct tc_tensor *tensor = &table->tensors[i];
        coo = tc_sparse_of(table, tensor, &sparse) &&
              (sparse.layout.length == 0 || tc_text_equal(sparse.layout, TC_TEXT("coo"))) &&
              (!tc_text_equal(sparse.role, TC_TEXT("values")) || tensor->rank == 1);
    }
    return coo;
}

/* Whether a format holds all of a file as it is, by what its descriptor says:
 * a conversion that must happen. One that has no names writes no empty file. */
static bool holds(const struct tc_backend *backend, const char *path) {
    struct tc_reader *reader = test_open(path);
    const struct tc_table *table = &reader->table;
    bool fits = backend->caps & TC_CAN_HOLD_MANY
                    ? table->count || !tc_backend_numbers(backend)
                    : table->count == 1 || (backend->caps & TC_CAN_HOLD_SPARSE && is_sparse(table));
    for (size_t i = 0; i < table->count; i++)
        fits = fits && backend->dtypes & TC_SET(table->tensors[i].dtype) &&
               table->tensors[i].rank <= backend->max_rank;
    tc_reader_close(reader);
    return fits;
}

/* From the file `first` of format A, made from `path`. */
static void trip(const char *path, const char *first, const struct tc_backend *a,
                 const struct tc_backend *b, const struct variant *variant, size_t *trips) {
    char second[256];
    char third[256];
    size_t promoted;
    make_path(second, "second", b);
    make_path(third, "third", a);
    char what[512];
    snprintf(what, sizeof what, "%s: %s, %s (%s)", path, a->name, b->name, variant->name);
    if (variant->needs & ~b->caps)
        return;
    enum tc_class class = test_convert(first, second, b, &variant->options, &promoted);
    bool done = class != TC_UNSUPPORTED && promoted == 0;
    cr_assert_eq(done, holds(b, first), "%s: %s", what, test_error.message);
    if (!done)
        return;
    cr_assert_eq(class, TC_OK, "%s: %s", what, test_error.message);
    if (b->caps & TC_CAN_NAME)
        expect_same(first, second, what);
    /* Without its metadata a sparse tensor is three, which a format for one can't hold. */
    if (a->caps & TC_CAN_HOLD_SPARSE && !holds(a, second))
        return;
    cr_assert_eq(test_convert(second, third, a, NULL, &promoted), TC_OK, "%s: %s", what,
                 test_error.message);
    cr_assert_eq(promoted, 0);
    if (a->caps & b->caps & TC_CAN_NAME)
        expect_same(first, third, what);
    if (a->caps & b->caps & TC_CAN_FILE_METADATA)
        expect_same_metadata(first, second, what);
    ++*trips;
}

/* Whether this one of many is taken: under sanitizers one in `share`, else all. */
static bool has_turn(size_t *turn, size_t share) {
    return !TEST_SANITIZED || (*turn)++ % share == 0;
}

/* All pairs as they are written by default; the other ways to write on the
 * pairs that start from the file's own format. Under sanitizers each file takes half
 * of those and a sixteenth of the pairs that start elsewhere, and other files others. */
static void visit(const char *path, void *context) {
    static size_t starts;
    static size_t pairs;
    if (test_file_class(path) != TC_OK)
        return;
    const struct tc_backend *own = tc_registry_for_path(path);
    for (size_t a = 0; tc_registry[a]; a++) {
        char first[256];
        make_path(first, "first", tc_registry[a]);
        if (!(tc_registry[a]->caps & TC_CAN_WRITE) ||
            (tc_registry[a] != own && !has_turn(&starts, 4)) ||
            test_convert(path, first, tc_registry[a], NULL, NULL) == TC_UNSUPPORTED)
            continue;
        cr_assert_eq(test_error.class, TC_OK, "%s: %s", first, test_error.message);
        for (size_t b = 0; tc_registry[b]; b++)
            for (size_t v = 0; v < (tc_registry[a] == own ? VARIANTS : 1); v++)
                if (tc_registry[b]->caps & TC_CAN_WRITE &&
                    has_turn(&pairs, tc_registry[a] == own ? 2 : 4))
                    trip(path, first, tc_registry[a], tc_registry[b], &variants[v], context);
    }
}

Test(roundtrip, every_file_through_every_pair) {
    size_t trips = 0;
    size_t files = 0;
    for (size_t i = 0; tc_registry[i]; i++)
        files += test_each_file(tc_registry[i]->name, visit, &trips);
    cr_assert_geq(files, 150);
    cr_assert_geq(trips, TEST_SANITIZED ? 2400 : 10600, "only %zu conversions there and back",
                  trips);
}

/* Under sanitizers a fifth of the targets of each file, other files the others. */
static void visit_same_bytes(const char *path, void *context) {
    size_t *turns = context;
    if (test_file_class(path) != TC_OK)
        return;
    for (size_t i = 0; tc_registry[i]; i++)
        for (size_t v = 0; v < VARIANTS; v++) {
            if (TEST_SANITIZED && ++*turns % 5)
                continue;
            const struct tc_backend *backend = tc_registry[i];
            if (!(backend->caps & TC_CAN_WRITE) || variants[v].needs & ~backend->caps)
                continue;
            char once[256];
            char twice[256];
            make_path(once, "once", backend);
            make_path(twice, "twice", backend);
            if (test_convert(path, once, backend, &variants[v].options, NULL) != TC_OK)
                continue;
            cr_assert_eq(test_convert(path, twice, backend, &variants[v].options, NULL), TC_OK);
            cr_assert(test_same_bytes(once, twice), "%s to %s", path, backend->name);
        }
}

Test(roundtrip, same_input_same_bytes) {
    size_t turns = 0;
    for (size_t i = 0; tc_registry[i]; i++)
        test_each_file(tc_registry[i]->name, visit_same_bytes, &turns);
}

/* What is opened to read a sharded model called "model": its index or, where there is none, the
 * first shard. */
static char *sharded_path(const struct tc_backend *backend) {
    const struct tc_sharding *sharding = backend->sharding;
    char name[64];
    if (sharding->index_ending) {
        snprintf(name, sizeof name, "model%s%s", backend->extensions[0], sharding->index_ending);
        return strdup(test_path(name));
    }
    for (int count = 1; count < 100; count++) {
        snprintf(name, sizeof name, "model-00001-of-%0*d%s", sharding->count_digits, count,
                 backend->extensions[0]);
        if (access(test_path(name), F_OK) == 0)
            break;
    }
    return strdup(test_path(name));
}

Test(roundtrip, shards_of_any_size_hold_the_same) {
    for (size_t i = 0; tc_registry[i]; i++) {
        const struct tc_backend *backend = tc_registry[i];
        if (!backend->sharding)
            continue;
        for (uint64_t size = 1; size <= 2048; size *= 4) {
            struct tc_plan_options options = {.shard_size = size, .write = {.checksum = true}};
            const char *source = TESTDATA "/npz/stored.npz";
            char out[256];
            make_path(out, "model", backend);
            cr_assert_eq(test_convert(source, out, backend, &options, NULL), TC_OK, "%s",
                         test_error.message);
            char *index = sharded_path(backend);
            /* The source has 376 bytes of data: more fit one file. */
            cr_assert(size > 376 || test_file_class(index) == TC_OK, "%s", test_error.message);
            if (test_file_class(index) == TC_OK)
                expect_same(source, index, index);
            free(index);
            test_folder_remove();
            test_folder_make();
        }
    }
}

/* A format that has every dtype of the file. */
static const struct tc_backend *last_home(const char *path) {
    const struct tc_backend *safetensors = tc_registry_named("safetensors");
    struct tc_reader *reader = test_open(path);
    tc_dtype_set dtypes = 0;
    for (size_t i = 0; i < reader->table.count; i++)
        dtypes |= TC_SET(reader->table.tensors[i].dtype);
    tc_reader_close(reader);
    return dtypes & ~safetensors->dtypes ? tc_registry_named("pt") : safetensors;
}

/*
 * Any chain of targets that promises no loss, then --restore-dtype: the first
 * digest comes back. Chains are drawn by a fixed generator.
 */
static void chain(const char *path, uint32_t seed, size_t *chains) {
    static const struct tc_policy restore = {.restore = true};
    char from[256];
    char *first = test_digest(path);
    snprintf(from, sizeof from, "%s", path);
    size_t formats = 0;
    while (tc_registry[formats])
        formats++;
    for (int step = 0; step < 4; step++) {
        seed = seed * 1664525 + 1013904223;
        const struct tc_backend *target = tc_registry[(seed >> 16) % formats];
        if (!(target->caps & TC_CAN_WRITE && target->caps & TC_CAN_HOLD_MANY))
            continue;
        char to[256];
        char stem[16];
        snprintf(stem, sizeof stem, "s%d", step);
        make_path(to, stem, target);
        const struct tc_plan_options options = {.keep_metadata = TC_KEEP_SIDECAR,
                                                .write = {.checksum = seed & 1}};
        enum tc_class class = test_convert(from, to, target, &options, NULL);
        if (class == TC_UNSUPPORTED)
            break; /* no lossless home: nothing was promised */
        cr_assert_eq(class, TC_OK, "%s to %s: %s", from, to, test_error.message);
        snprintf(from, sizeof from, "%s", to);
    }
    const struct tc_backend *last = last_home(path);
    const struct tc_plan_options options = {.policy = &restore, .write = {.checksum = true}};
    char out[256];
    make_path(out, "last", last);
    if (test_convert(from, out, last, &options, NULL) == TC_OK) {
        char *second = test_digest(out);
        cr_assert_str_eq(first, second, "%s, seed %u", path, seed);
        free(second);
        (*chains)++;
    } else {
        cr_assert_eq(test_error.class, TC_UNSUPPORTED, "%s: %s", from, test_error.message);
    }
    free(first);
}

/* Nothing brings back what a quantised tensor was, once it is dequantised. */
static bool has_blocks(const char *path) {
    struct tc_reader *reader = test_open(path);
    bool blocks = false;
    for (size_t i = 0; i < reader->table.count; i++)
        blocks |= tc_dtype_is_block(reader->table.tensors[i].dtype);
    tc_reader_close(reader);
    return blocks;
}

static void visit_chains(const char *path, void *context) {
    if (test_file_class(path) != TC_OK || has_blocks(path))
        return;
    for (uint32_t seed = 1; seed <= (TEST_SANITIZED ? 2 : 6); seed++)
        chain(path, seed * 2654435761u + (uint32_t)strlen(path), context);
}

Test(roundtrip, lossless_chains_restore_the_first_digest) {
    size_t chains = 0;
    for (size_t i = 0; tc_registry[i]; i++)
        test_each_file(tc_registry[i]->name, visit_chains, &chains);
    cr_assert_gt(chains, 100, "only %zu chains", chains);
}
