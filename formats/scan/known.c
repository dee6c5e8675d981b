/*
 * Whether the reader of a known format can open a region, and which other files it then
 * names.
 */

#include "formats/scan/known.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/table.h"
#include "formats/onnx/options.h"
#include "formats/registry.h"
#include "formats/scan/scan.h"
#include "formats/shards.h"

#define INDEX_LIMIT UINT64_C(100000000)
/* The score of a probe that saw the format's magic bytes. */
#define SURE 90
/* The score of a probe that did not match by accident. */
#define LIKELY 50

/* Adds a shard of an index, also where the index can't be read as a whole. Names are
 * checked as in reading. */
static bool add_shard(const struct scan_view *view, struct shards *shards, struct tc_text file,
                      struct tc_error *error) {
    struct tc_error *refused = calloc(1, sizeof *refused);
    uint32_t position;
    size_t known = shards->places.count;
    if (!refused)
        return tc_fail_memory(error);
    bool ok = shards_add_file(shards, file, &position, refused);
    bool outside = refused->reason == TC_REASON_OUTSIDE;
    if (!ok && !outside)
        scan_note_broken(view->scan, refused, error);
    free(refused);
    if (outside)
        return scan_find(view, SCAN_DANGEROUS, "shard-path", file, 0,
                         "the index names a shard outside its folder", error);
    if (!ok || shards->places.count == known)
        return true;
    return scan_add_beside(view, file, SCAN_FILE, error);
}

static bool add_shards(const struct scan_view *view, struct shards *shards, const char *text,
                       struct tc_error *damage, struct tc_error *error) {
    struct tc_json json;
    struct tc_text key;
    struct tc_text ignored;
    tc_json_init(&json, text, view->input->size, 0, &view->reader->arena, damage);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        if (!tc_text_equal(key, TC_TEXT("weight_map")) || tc_json_peek(&json) != TC_JSON_OBJECT) {
            tc_json_skip(&json, &ignored);
            continue;
        }
        struct tc_text file;
        tc_json_begin(&json, TC_JSON_OBJECT);
        while (tc_json_key(&json, &key))
            if (tc_json_string(&json, &file) && !add_shard(view, shards, file, error))
                return false;
    }
    return true;
}

static bool scan_index(const struct scan_view *view, struct tc_error *error) {
    struct shards shards = {0};
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    bool ok = true;
    if (view->input->size > INDEX_LIMIT) {
        scan_note_limit(view->scan, "bytes in an index", NULL);
    } else {
        char *text = tc_reader_load(view->reader, 0, view->input->size, damage);
        shards_init(&shards, view->reader);
        ok = text ? add_shards(view, &shards, text, damage, error) : true;
        if (ok && damage->class != TC_OK)
            ok = scan_note_broken(view->scan, damage, error);
        shards_release(&shards);
        free(text);
    }
    free(damage);
    return ok;
}

static bool is_model(const struct scan_view *view, const struct tc_backend *backend) {
    bool zip = view->shown > 2 && memcmp(view->head, "PK", 2) == 0;
    return backend == &tc_backend_onnx || (backend == &tc_backend_ot && !zip);
}

/* Whether the format is torch's, which must open a file even where its bytes are
 * accounted for: a torch file is more than an archive or pickles. */
static bool is_torch(const struct scan_view *view, const struct tc_backend *backend) {
    bool named = backend == &tc_backend_pt || backend == &tc_backend_ot;
    return named && (!view->zip || view->torch);
}

/* Reads the last tensor to its end, where bytes behind compressed data are noticed. */
static bool read_to_end(const struct scan_view *view, struct tc_reader *reader,
                        struct tc_error *error) {
    const struct tc_tensor *last = NULL;
    struct tc_error *damage = calloc(1, sizeof *damage);
    unsigned char byte;
    if (!damage)
        return tc_fail_memory(error);
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        if (tensor->nbytes && (!last || tensor->offset >= last->offset))
            last = tensor;
    }
    bool ok = !last || tc_reader_read(reader, last, last->nbytes - 1, &byte, 1, damage) ||
              scan_note_broken(view->scan, damage, error);
    free(damage);
    return ok;
}

/* What a reader leaves out behind the last tensor may be anything. */
static bool look_behind(const struct scan_view *view, const struct tc_reader *reader,
                        struct tc_error *error) {
    if (!reader->behind)
        return true;
    scan_note(view->scan, "trailing", "something stands behind the last tensor");
    return scan_add_region(view, view->input->size - reader->behind, reader->behind,
                           view->region->name, SCAN_DATA, error);
}

/* Adds what a reader that opened the region names: shards and external data. */
static bool follow(const struct scan_view *view, struct tc_reader *reader, struct tc_error *error) {
    bool ok = !reader->compressed || view->zip || read_to_end(view, reader, error);
    ok = ok && look_behind(view, reader, error);
    /* scan_onnx adds the files of an ONNX model, and scan_checkpoint the items of a checkpoint. */
    bool added = is_model(view, reader->backend) || reader->backend == &tc_backend_dcp;
    for (size_t i = 0; i < reader->companion_count && ok && !added; i++)
        ok = scan_add_file(view, reader->companions[i]->path,
                           tc_text_of(reader->companions[i]->path), SCAN_DATA, error);
    bool index = tc_registry_is_index(reader->backend);
    for (size_t i = 0; i < reader->shard_count && ok && !index; i++)
        if (reader->shard_inputs[i])
            ok = scan_add_file(view, reader->shard_inputs[i]->path, tc_text_of(reader->shards[i]),
                               SCAN_FILE, error);
    return ok;
}

static bool try_backend(const struct scan_view *view, const struct tc_backend *backend, int score,
                        struct scan_known *known, struct tc_error *error) {
    struct tc_error *why = calloc(1, sizeof *why);
    struct tc_input *input =
        why ? tc_input_part(view->input, view->input->path, 0, view->input->size, error) : NULL;
    if (!input) {
        free(why);
        return error->class == TC_OK ? tc_fail_memory(error) : false;
    }
    bool ok = true;
    struct tc_reader *reader = tc_reader_open(backend, input, view->scan->options, why);
    known->opened = reader != NULL;
    if (reader)
        ok = follow(view, reader, error);
    else if (scan_machine_failed(why)) {
        *error = *why;
        ok = false;
    } else if (why->reason == TC_REASON_OUT_OF_MEMORY)
        ok = scan_note_broken(view->scan, why, error);
    else if (known->why->class == TC_OK) {
        *known->why = *why;
        known->sure = score >= SURE && why->class == TC_INVALID && is_torch(view, backend);
    }
    /* A model that can't be opened is scanned for operators and files too. */
    if (ok && is_model(view, backend) && (reader || score >= LIKELY))
        ok = scan_onnx(view, reader != NULL, error);
    tc_reader_close(reader);
    free(why);
    return ok;
}

bool scan_formats(const struct scan_view *view, struct scan_known *known, struct tc_error *error) {
    struct tc_probe probe = {.input = view->input, .length = view->shown};
    memcpy(probe.head, view->head, view->shown);
    int below = 101;
    while (!known->opened) {
        int best = 0;
        for (size_t i = 0; tc_registry[i]; i++) {
            int score = tc_registry[i]->probe(&probe);
            best = score < below && score > best ? score : best;
        }
        if (!best)
            break;
        for (size_t i = 0; tc_registry[i] && !known->opened; i++) {
            if (tc_registry[i]->probe(&probe) != best)
                continue;
            if (tc_registry_is_index(tc_registry[i]) && !scan_index(view, error))
                return false;
            if (!try_backend(view, tc_registry[i], best, known, error))
                return false;
        }
        below = best;
    }
    if (!known->opened && known->why->class == TC_OK) {
        const struct tc_backend *by_name = tc_registry_probe(view->input, known->why);
        if (!by_name && scan_machine_failed(known->why)) {
            *error = *known->why;
            return false;
        }
        if (by_name && !try_backend(view, by_name, 0, known, error))
            return false;
        /* The extension alone does not make it a file of that format. */
        if (by_name && !known->opened) {
            *known->why = (struct tc_error){0};
            tc_fail(known->why, TC_INVALID, "unknown-format", "not a file of any known format");
            tc_error_because(known->why, TC_REASON_NO_FORMAT);
        }
    }
    return true;
}
