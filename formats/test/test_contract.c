/* What core/format.h promises of a backend, asked of every one there is. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(contract, .init = test_folder_make, .fini = test_folder_remove, .timeout = 600);

Test(contract, every_backend_is_complete) {
    for (size_t i = 0; tc_registry[i]; i++) {
        const struct tc_backend *backend = tc_registry[i];
        cr_assert(backend->name && backend->summary && backend->mime);
        cr_assert(backend->extensions && backend->extensions[0]);
        for (size_t e = 0; backend->extensions[e]; e++)
            cr_assert_eq(backend->extensions[e][0], '.');
        cr_assert(backend->probe && backend->open && backend->read && backend->close);
        cr_assert_eq(tc_registry_named(backend->name), backend);
        if (!(backend->caps & TC_CAN_WRITE)) {
            cr_assert(!backend->begin && !backend->put && !backend->finish && !backend->abort);
            continue;
        }
        cr_assert(backend->dtypes && backend->max_rank && backend->max_name);
        cr_assert(backend->begin);
        cr_assert_eq(!(backend->caps & TC_CAN_COMPRESS), backend->max_level == 0);
        cr_assert_eq(!(backend->caps & TC_CAN_COMPRESS), backend->compression == NULL);
        cr_assert(backend->default_level <= backend->max_level);
        for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++)
            if (backend->dtypes & TC_SET(dtype))
                cr_assert_eq(tc_dtype_promote(dtype, backend->dtypes), dtype);
    }
}

static void check_option(const struct tc_format_option *option) {
    cr_assert(option->name && option->help);
    cr_assert_eq(option->type == TC_OPTION_FLAG, option->argument == NULL, "%s", option->name);
    cr_assert_eq(option->type == TC_OPTION_CHOICE, option->choices != NULL, "%s", option->name);
    cr_assert_eq(option->use == TC_FOR_WRITING, option->target != NULL, "%s", option->name);
    if (option->type == TC_OPTION_CHOICE) {
        unsigned count = 0;
        while (option->choices[count])
            count++;
        cr_assert(option->initial.choice < count, "%s", option->name);
    }
    if (option->type == TC_OPTION_DTYPE)
        cr_assert(option->initial.dtype <= TC_NONE, "%s", option->name);
    const struct tc_option_setting unchanged = {option, option->initial};
    cr_assert_not(tc_option_is_changed(&unchanged), "%s", option->name);
}

/* Every option comes once, whatever the number of formats that have it, and no
 * two have one name. */
Test(contract, options_are_declared_in_full) {
    size_t named = 0;
    for (enum tc_option_use use = TC_FOR_READING; use <= TC_FOR_WRITING; use++) {
        const struct tc_format_option *option;
        for (size_t i = 0; (option = tc_registry_option(use, i)); i++) {
            cr_assert_eq(option->use, use);
            check_option(option);
            for (size_t f = 0; tc_registry[f]; f++)
                named += tc_backend_declares(tc_registry[f], option);
            for (size_t other = 0; other < i; other++)
                cr_assert_str_neq(tc_registry_option(use, other)->name, option->name);
        }
    }
    for (size_t f = 0; tc_registry[f]; f++)
        for (size_t i = 0; tc_registry[f]->options && tc_registry[f]->options[i]; i++)
            named--;
    cr_assert_eq(named, 0, "some option of a format is not listed, or listed twice");
}

Test(contract, extensions_are_found_again) {
    for (size_t i = 0; tc_registry[i]; i++)
        for (size_t e = 0; tc_registry[i]->extensions[e]; e++) {
            char path[64];
            snprintf(path, sizeof path, "a.b/model%s", tc_registry[i]->extensions[e]);
            cr_assert_eq(tc_registry_for_path(path), tc_registry[i]);
        }
    cr_assert_null(tc_registry_for_path("model.unknown"));
    cr_assert_null(tc_registry_for_path(".npy"), "a name that is only an extension");
}

struct seen {
    const struct tc_backend *backend;
    size_t good;
};

/* Reads in blocks of 7 bytes, then backwards, and compares. */
static void check_reads(struct tc_reader *reader, const struct tc_tensor *tensor) {
    struct tc_error error = {0};
    unsigned char *whole = test_read(reader, tensor);
    unsigned char block[64];
    for (uint64_t at = 0; at < tensor->nbytes; at += 7) {
        size_t length = tensor->nbytes - at < 7 ? tensor->nbytes - at : 7;
        cr_assert(tc_reader_read(reader, tensor, at, block, length, &error));
        cr_assert_arr_eq(block, whole + at, length);
    }
    for (uint64_t end = tensor->nbytes; end > 0; end = end > 61 ? end - 61 : 0) {
        uint64_t at = end > 64 ? end - 64 : 0;
        cr_assert(tc_reader_read(reader, tensor, at, block, end - at, &error));
        cr_assert_arr_eq(block, whole + at, end - at);
    }
    struct tc_extent extent;
    if (tc_reader_extent(reader, tensor, &extent) && tensor->nbytes) {
        unsigned char *raw = tc_input_load(extent.input, extent.offset, tensor->nbytes, &error);
        cr_assert_not_null(raw);
        cr_assert_arr_eq(raw, whole, tensor->nbytes, "extent and read differ");
        free(raw);
    }
    free(whole);
}

static void check_table(struct tc_reader *reader) {
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        struct tc_error error = {0};
        uint64_t count;
        uint64_t nbytes;
        cr_assert(
            tc_shape_measure(tensor->dtype, tensor->shape, tensor->rank, &count, &nbytes, &error));
        cr_assert_eq(nbytes, tensor->nbytes);
        cr_assert_eq(tc_table_find(&reader->table, tensor->name), tensor);
        check_reads(reader, tensor);
    }
    /* Last tensor first: sequential ones must bear it. */
    for (size_t i = reader->table.count; i > 0; i--)
        free(test_read(reader, &reader->table.tensors[i - 1]));
}

static void visit(const char *path, void *context) {
    struct seen *seen = context;
    if (test_file_class(path) != TC_OK)
        return;
    struct tc_reader *reader = test_open(path);
    if (reader->backend == seen->backend)
        seen->good++;
    check_table(reader);
    struct tc_error error = {0};
    struct tc_checksum_thread *checksums = tc_checksum_thread_start(&reader, NULL, 1, &error);
    cr_assert(tc_checksum_thread_join(checksums, &error), "%s: %s", path, error.message);
    tc_reader_close(reader);
}

/* A cut file that opens, where a format has no mark of its end: it has tensors
 * of the whole and no others. */
static void check_cut(const char *path, const char *cut_path) {
    struct tc_reader *whole = test_open(path);
    struct tc_reader *part = test_open(cut_path);
    cr_assert_leq(part->table.count, whole->table.count);
    for (size_t i = 0; i < part->table.count; i++) {
        const struct tc_tensor *tensor = &whole->table.tensors[i];
        const struct tc_tensor *other = &part->table.tensors[i];
        cr_assert_eq(tensor->dtype, other->dtype);
        cr_assert_eq(tensor->rank, other->rank);
        cr_assert_arr_eq(tensor->shape, other->shape, tensor->rank * sizeof *tensor->shape);
    }
    tc_reader_close(part);
    tc_reader_close(whole);
}

Test(contract, testdata_is_recognised_and_reads_in_any_order) {
    for (size_t i = 0; tc_registry[i]; i++) {
        struct seen seen = {.backend = tc_registry[i]};
        test_each_file(tc_registry[i]->name, visit, &seen);
        cr_assert_gt(seen.good, 0, "%s brings no file to testdata/%s", tc_registry[i]->name,
                     tc_registry[i]->name);
    }
}

Test(contract, nothing_opens_an_empty_or_random_file) {
    for (size_t i = 0; tc_registry[i]; i++) {
        unsigned char noise[300];
        uint32_t state = (uint32_t)i;
        bool pickles = strcmp(tc_registry[i]->name, "pt") == 0;
        for (size_t round = 0; round < 50; round++) {
            for (size_t at = 0; at < sizeof noise; at++) {
                state = state * 1664525 + 1013904223;
                noise[at] = (unsigned char)(state >> 24);
            }
            const char *path = test_path("noise");
            test_write(path, noise, round ? sizeof noise : 0);
            struct tc_error error = {0};
            struct tc_reader *reader =
                tc_registry_open(path, tc_registry[i], &test_options, &error);
            cr_assert_null(reader, "%s opened noise", tc_registry[i]->name);
            /* Noise may be a program for the pickle machine that reaches for
             * something: that is said before the rest is found to be none. */
            bool reaches =
                error.class == TC_UNSAFE && error.code && strcmp(error.code, "pickle-unsafe") == 0;
            cr_assert(error.class == TC_INVALID || (pickles && reaches), "%s: %s",
                      tc_registry[i]->name, error.message);
            cr_assert(error.code && error.message[0] && error.file[0]);
        }
    }
}

/* Cuts the smallest files of the format at every length, and larger ones at
 * some; test_attacks.py does the same through the command. */
static void cut(const char *path, void *context) {
    struct seen *seen = context;
    size_t length;
    char *bytes = test_load(path, &length);
    if (length <= 8000 && test_file_class(path) == TC_OK) {
        const char *extension = strrchr(path, '.');
        char name[64];
        snprintf(name, sizeof name, "cut%s", extension ? extension : "");
        for (size_t at = 0; at < length; at += length <= 1300 ? 1 : 37) {
            enum tc_class class = test_open_class(name, bytes, at);
            if (class == TC_OK && seen->backend->caps & TC_HAS_NO_END) {
                check_cut(path, test_path(name));
                continue;
            }
            cr_assert(class == TC_INVALID || class == TC_IO, "%s cut at %zu: class %d (%s)", path,
                      at, (int)class, test_error.message);
        }
        seen->good++;
    }
    free(bytes);
}

Test(contract, a_file_cut_anywhere_is_invalid) {
    for (size_t i = 0; tc_registry[i]; i++) {
        struct seen seen = {.backend = tc_registry[i]};
        test_each_file(tc_registry[i]->name, cut, &seen);
        cr_assert_gt(seen.good, 0, "%s has no small file", tc_registry[i]->name);
    }
}
