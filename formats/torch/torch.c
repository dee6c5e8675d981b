#include "formats/torch/torch.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/memory.h"
#include "core/tensor/shape.h"
#include "formats/pickle/option.h"

/* How many unknown names are reported one by one; the others are counted. */
#define MAX_CLASSES_REPORTED 20u
/* From so many bytes on, freed memory goes back to the system at once. */
#define MUCH (UINT64_C(16) << 20)

void torch_init(struct torch *torch, struct tc_reader *reader) {
    torch->reader = reader;
    tc_name_map_init(&torch->keys, &reader->arena);
    tc_name_map_init(&torch->part_names, &reader->arena);
    tc_name_index_init(&torch->members, &reader->arena, sizeof *torch->zip.members);
    tc_name_map_init(&torch->classes, &reader->arena);
    tc_name_map_init(&torch->groups, &reader->arena);
    tc_name_map_init(&torch->numbers, &reader->arena);
    torch->folder = "data/";
}

void torch_release(struct torch *torch) {
    torch_release_reading(torch);
    tc_arena_release(&torch->nodes);
    free(torch->storages);
    free(torch->views);
    free(torch->unpacked);
    free(torch->parts);
    free(torch->taken);
    tc_name_map_release(&torch->keys);
    tc_name_map_release(&torch->part_names);
    tc_name_index_release(&torch->members);
    tc_name_map_release(&torch->classes);
    tc_name_map_release(&torch->groups);
    tc_name_map_release(&torch->numbers);
    zip_release(&torch->zip);
}

bool torch_grow(struct torch *torch, void **list, size_t *capacity, size_t size,
                struct tc_error *error) {
    size_t larger = *capacity ? *capacity * 2 : 64;
    void *grown = NULL;
    if (!tc_arena_charge(&torch->reader->arena, (larger - *capacity) * size, error))
        return false;
    if (!(grown = reallocarray(*list, larger, size)))
        return tc_fail_memory(error);
    *list = grown;
    *capacity = larger;
    return true;
}

/* Whether something of what the pickles built is still needed: by the tree, or as a text or bytes
 * that stayed where the machine had put them. */
static bool is_needed(const struct torch *torch) {
    const struct tc_reader *reader = torch->reader;
    bool needed = !reader->plain || reader->options->tree || torch->classes.count ||
                  torch->keys.count || torch->part_names.count || reader->table.metadata.count;
    for (size_t i = 0; i < torch->storage_count && !needed; i++)
        needed = torch->storages[i].memory != NULL;
    for (size_t i = 0; i < reader->table.count && !needed; i++)
        needed = reader->table.tensors[i].metadata != NULL;
    return needed;
}

void torch_forget(struct torch *torch) {
    if (is_needed(torch))
        return;
    tc_arena_release(&torch->nodes);
    if (torch->counted >= MUCH)
        tc_memory_trim();
    torch->reader->arena.used -= torch->counted;
    torch->counted = 0;
    free(torch->taken);
    torch->taken = NULL;
    torch->taken_count = torch->taken_capacity = 0;
    torch->object = NULL;
    torch->forgotten = true;
}

bool torch_note_taken(struct torch *torch, const struct pickle_node *node, struct tc_text name,
                      bool renamed, struct tc_error *error) {
    if (torch->taken_count == torch->taken_capacity &&
        !torch_grow(torch, (void **)&torch->taken, &torch->taken_capacity, sizeof *torch->taken,
                    error))
        return false;
    torch->taken[torch->taken_count++] = (struct torch_taken){node, name, renamed};
    return true;
}

static bool note_class(void *context, const struct pickle_node *global, struct tc_error *error) {
    struct torch *torch = context;
    return global->global != PICKLE_UNKNOWN ||
           tc_name_map_find(&torch->classes, pickle_text(global)) ||
           tc_name_add(&torch->classes, pickle_text(global), 0, TC_MAX_NAMES, error);
}

static bool count_class(void *context, const struct pickle_node *callable,
                        const struct pickle_node *arguments, uint64_t at, struct tc_error *error) {
    struct torch *torch = context;
    (void)arguments;
    (void)at;
    (void)error;
    uint32_t *calls = callable->kind == PICKLE_GLOBAL && callable->global == PICKLE_UNKNOWN
                          ? tc_name_map_find(&torch->classes, pickle_text(callable))
                          : NULL;
    if (calls && *calls < UINT32_MAX)
        ++*calls;
    return true;
}

void torch_watch_pickle(const struct torch *torch, struct pickle *pickle) {
    pickle->mode = PICKLE_SCAN;
    pickle->context = torch->watch.context;
    pickle->on_global = torch->watch.on_global;
    pickle->on_call = torch->watch.on_call;
    pickle->on_misuse = torch->watch.on_misuse;
    pickle->on_build = NULL;
    pickle->persistent = NULL;
    pickle->keys = true; /* only tar files are read with a watch */
}

void torch_count_pickle(struct torch *torch, const struct pickle *pickle) {
    torch->steps += pickle->steps;
    torch->text += pickle->end - pickle->start;
    torch->reader->arena.used += torch->nodes.used - torch->counted;
    torch->counted = torch->nodes.used;
}

void torch_pickle_init(struct torch *torch, struct pickle *pickle, uint64_t at, uint64_t end,
                       struct tc_error *error) {
    const struct tc_format_options *options = torch->reader->options;
    const struct tc_arena *tables = &torch->reader->arena;
    uint64_t others = tables->used - torch->counted;
    torch->nodes.budget = tables->budget > others ? tables->budget - others : tables->budget != 0;
    pickle_init(pickle, &torch->nodes, &options->limits, error);
    pickle->input = torch->reader->input;
    pickle->at = at;
    pickle->end = end;
    pickle->script = torch->script;
    pickle->nested = true;
    pickle->mode = pickle_is_inert(options) ? PICKLE_INERT : PICKLE_STRICT;
    pickle->context = torch;
    pickle->on_global = note_class;
    pickle->on_call = count_class;
    pickle->on_build = torch_joblib_array;
    pickle->persistent = torch_persistent;
    pickle->forgets = true;
    if (torch->watch.context)
        torch_watch_pickle(torch, pickle);
}

struct pickle_node *torch_find_key(const struct pickle_node *dict, const char *key) {
    struct pickle_node *found = NULL;
    for (size_t i = 0; pickle_is(dict, PICKLE_DICT) && i + 1 < dict->count; i += 2)
        if (dict->items[i]->kind == PICKLE_TEXT &&
            tc_text_equal(pickle_text(dict->items[i]), tc_text_of(key)))
            found = dict->items[i + 1];
    return found;
}

/* Tensors */

bool torch_sizes(const struct pickle_node *node, uint64_t *sizes, unsigned *rank) {
    if (!pickle_is(node, PICKLE_TUPLE) && !pickle_is(node, PICKLE_LIST))
        return false;
    *rank = node->count;
    if (node->count > TC_MAX_RANK)
        return true; /* the caller refuses such a rank */
    for (size_t i = 0; i < node->count; i++) {
        if (node->items[i]->kind != PICKLE_INT || node->items[i]->integer < 0)
            return false;
        sizes[i] = (uint64_t)node->items[i]->integer;
    }
    return true;
}

void torch_dense(struct torch_shape *shape) {
    uint64_t stride = 1;
    for (unsigned i = shape->rank; i > 0; i--) {
        shape->stride[i - 1] = stride;
        /* Where this overflows the tensor is empty, or too large and refused later. */
        stride *= shape->size[i - 1] ? shape->size[i - 1] : 1;
    }
}

bool torch_is_dense(const struct torch_shape *shape) {
    uint64_t stride = 1;
    for (unsigned i = shape->rank; i > 0; i--) {
        if (shape->size[i - 1] == 0)
            return true;
        if (shape->size[i - 1] != 1 && shape->stride[i - 1] != stride)
            return false;
        stride *= shape->size[i - 1];
    }
    return true;
}

/* Checks that all elements lie in the bytes [base, base + extent) of the storage. */
static bool check_extent(const struct torch_shape *shape, uint64_t count, unsigned element,
                         struct tc_error *error) {
    uint64_t last = shape->offset;
    bool ok = true;
    for (unsigned i = 0; i < shape->rank && count; i++) {
        uint64_t span;
        ok &= tc_mul(shape->size[i] - 1, shape->stride[i], &span) && tc_add(last, span, &last);
    }
    uint64_t end = shape->offset;
    ok = ok && (!count || tc_add(last, 1, &end)) && tc_mul(end, element, &end);
    /* An empty tensor may start anywhere, as in torch. */
    if (ok && (end <= shape->extent || !count))
        return true;
    return tc_fail(error, TC_INVALID, "view", "the tensor reaches past its storage (%llu bytes)",
                   (unsigned long long)shape->extent);
}

/* Sets the view's strides, in bytes, and the tensor's shape. torch's shape of F4 counts
 * pairs of elements, the table's counts elements. */
static bool fill_view(struct torch *torch, const struct torch_shape *shape, struct torch_view *view,
                      struct tc_tensor *tensor, struct tc_error *error) {
    struct tc_arena *arena = &torch->reader->arena;
    const struct torch_view *last = torch->view_count ? &torch->views[torch->view_count - 1] : NULL;
    const uint64_t *size = shape->size;
    uint64_t *copy = NULL;
    /* Most tensors are shaped as others before them. */
    if (last && last->rank == shape->rank &&
        (!shape->rank || memcmp(last->shape, size, shape->rank * sizeof *size) == 0))
        view->shape = last->shape;
    else if ((copy = tc_arena_array(arena, shape->rank, sizeof *size, error)))
        view->shape = memcpy(copy, size, shape->rank * sizeof *size);
    if (!view->shape)
        return false;
    tensor->shape = view->shape;
    if (shape->dtype == TC_F4) {
        uint64_t *pairs = tc_arena_array(arena, shape->rank, sizeof *pairs, error);
        if (!pairs)
            return false;
        if (shape->rank == 0 || size[shape->rank - 1] > INT64_MAX / 2)
            return tc_fail(error, TC_UNSUPPORTED, "packed-shape",
                           "pairs of F4 elements need a last dimension");
        memcpy(pairs, size, shape->rank * sizeof *pairs);
        pairs[shape->rank - 1] *= 2;
        tensor->shape = pairs;
    }
    if (torch_is_dense(shape))
        return true;
    uint64_t *stride = tc_arena_array(arena, shape->rank, sizeof *stride, error);
    if (!stride)
        return false;
    for (unsigned i = 0; i < shape->rank; i++)
        stride[i] = shape->size[i] > 1 ? shape->stride[i] * view->element : 0;
    view->stride = stride;
    return true;
}

static bool can_negate(enum tc_dtype dtype) {
    return tc_dtype_bits(dtype) >= 16 && (tc_dtype_is_float(dtype) || tc_dtype_is_complex(dtype));
}

bool torch_add_tensor(struct torch *torch, struct tc_text name, const struct torch_shape *shape,
                      struct tc_metadata *metadata, struct tc_error *error) {
    unsigned element = shape->dtype == TC_F4 ? 1 : tc_dtype_bits(shape->dtype) / 8;
    if (shape->rank > TC_MAX_RANK)
        return tc_fail(error, TC_UNSUPPORTED, "rank", "more than %u dimensions (got %u)",
                       TC_MAX_RANK, shape->rank);
    uint64_t count;
    struct tc_tensor tensor = {.name = name,
                               .dtype = (uint8_t)shape->dtype,
                               .rank = (uint8_t)shape->rank,
                               .metadata = metadata,
                               .offset = torch->view_count,
                               .cookie = torch->first_cookie + (uint32_t)torch->view_count};
    struct torch_view view = {.storage = shape->storage,
                              .dtype = (uint8_t)shape->dtype,
                              .rank = (uint8_t)shape->rank,
                              .element = (uint8_t)element,
                              .swap = torch->storages[shape->storage].swap && element > 1,
                              .conjugate = shape->conjugate,
                              .negative = shape->negative};
    if (!torch_check_storage(torch, shape->storage, error)) {
        torch->storages[shape->storage].excused = true;
        return false;
    }
    if ((shape->conjugate || shape->negative) && !can_negate(shape->dtype))
        return tc_fail(error, TC_INVALID, "view", "%s has no sign to turn",
                       tc_dtype_name(shape->dtype));
    if (!tc_shape_measure(shape->dtype == TC_F4 ? TC_U8 : shape->dtype, shape->size, shape->rank,
                          &count, &tensor.nbytes, error) ||
        !check_extent(shape, count, element, error) ||
        !fill_view(torch, shape, &view, &tensor, error))
        return false;
    view.start = count ? shape->base + shape->offset * element : 0;
    const struct zip_member *member = torch->storages[shape->storage].member;
    tensor.sequential = tensor.nbytes && (view.stride || (member && member->method != ZIP_STORED));
    uint64_t counted = tc_reader_wants(torch->reader, name) ? tensor.nbytes : 0;
    if (!tc_add(torch->total, counted, &torch->total))
        return tc_fail(error, TC_INVALID, "size-overflow", "the tensors' sizes overflow 64 bits");
    if (torch->view_count == torch->view_capacity &&
        !torch_grow(torch, (void **)&torch->views, &torch->view_capacity, sizeof *torch->views,
                    error))
        return false;
    torch->views[torch->view_count] = view;
    /* tie_views needs as many views as tensors: none for a tensor that is refused. */
    if (!tc_table_add(&torch->reader->table, &tensor, error))
        return false;
    torch->view_count++;
    return true;
}

/* 0 where two views show the same data in the same way. */
static int compare_views(const void *a, const void *b, void *context) {
    const struct torch *torch = context;
    uint32_t i = *(const uint32_t *)a;
    uint32_t j = *(const uint32_t *)b;
    const struct torch_view *x = &torch->views[i];
    const struct torch_view *y = &torch->views[j];
    const uint64_t keys[][2] = {{x->storage, y->storage},
                                {x->start, y->start},
                                {x->dtype, y->dtype},
                                {x->rank, y->rank},
                                {x->conjugate, y->conjugate},
                                {x->negative, y->negative},
                                {x->stride != 0, y->stride != 0}};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (keys[k][0] != keys[k][1])
            return keys[k][0] < keys[k][1] ? -1 : 1;
    size_t size = x->rank * sizeof *x->shape;
    int order = size ? memcmp(x->shape, y->shape, size) : 0;
    return order || !x->stride ? order : memcmp(x->stride, y->stride, size);
}

static int order_views(const void *a, const void *b, void *context) {
    int order = compare_views(a, b, context);
    uint32_t i = *(const uint32_t *)a;
    uint32_t j = *(const uint32_t *)b;
    return order ? order : (i > j) - (i < j);
}

/* Marks two different views of one storage as sharing data. */
static void mark_views(struct torch *torch, uint32_t a, uint32_t b) {
    struct tc_tensor *tensors = torch->reader->table.tensors;
    uint32_t storage = torch->views[a].storage;
    if (torch->views[b].storage != storage || !tensors[a].nbytes || !tensors[b].nbytes)
        return;
    tensors[a].storage = tensors[b].storage = storage + 1;
}

/* Marks tensors that are the same view of one storage as sharing all their data. The
 * i-th tensor of the table has the i-th view. */
static bool tie_views(struct torch *torch, struct tc_error *error) {
    size_t count = torch->view_count;
    uint32_t *order = malloc((count ? count : 1) * sizeof *order);
    if (!order)
        return tc_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, count, sizeof *order, order_views, torch);
    for (size_t i = 1, first = 0; i < count; i++) {
        if (compare_views(&order[first], &order[i], torch) != 0) {
            mark_views(torch, order[first], order[i]);
            first = i;
        } else if (torch->reader->table.tensors[order[i]].nbytes)
            tc_table_tie(&torch->reader->table, order[first], order[i]);
    }
    free(order);
    return true;
}

/* Storages that no tensor uses must be in the file too. */
static bool check_storages(const struct torch *torch, struct tc_error *error) {
    for (size_t i = 0; i < torch->storage_count; i++)
        if (!torch->storages[i].excused && !torch_check_storage(torch, (uint32_t)i, error))
            return false;
    return true;
}

/* Reports the unknown classes, with the number of their objects. */
static void report_classes(struct torch *torch) {
    struct tc_reader *reader = torch->reader;
    for (size_t i = 0; i < torch->classes.count && i < MAX_CLASSES_REPORTED; i++) {
        const struct tc_named_number *class = &torch->classes.entries[i];
        if (class->number == 0)
            tc_reader_lose(reader, "%.*s is named and not understood; nothing was made of it",
                           tc_text_shown(class->name, 200), class->name.bytes);
        else
            tc_reader_lose(
                reader,
                "%.*s is not understood (%u object%s); only tensors that it holds are taken",
                tc_text_shown(class->name, 200), class->name.bytes, class->number,
                class->number == 1 ? "" : "s");
    }
    if (torch->classes.count > MAX_CLASSES_REPORTED)
        tc_reader_lose(reader, "%zu more names are not understood",
                       torch->classes.count - MAX_CLASSES_REPORTED);
}

/* Fails where a file has no tensor and unknown classes, which may hold some. */
static bool check_anything(const struct torch *torch, struct tc_error *error) {
    if (torch->reader->table.count || !torch->classes.count)
        return true;
    struct tc_text class = torch->classes.entries[0].name;
    tc_fail(error, TC_UNSAFE, "nothing-left",
            "no tensor was found; %zu name%s not understood, among them %.*s", torch->classes.count,
            torch->classes.count == 1 ? " is" : "s are", tc_text_shown(class, 200), class.bytes);
    return tc_error_hint(error, "nothing was run; tconv scan shows all that it names");
}

bool torch_finish(struct torch *torch, struct tc_error *error) {
    struct tc_reader *reader = torch->reader;
    uint64_t size = reader->input->size;
    uint64_t limit = tc_reader_made_limit(reader);
    /* Many views may show one storage, which limits must bound. */
    reader->made = torch->total > size ? torch->total - size : 0;
    if (reader->made > limit) {
        tc_fail(error, TC_UNSAFE, "size-limit",
                "its tensors have %llu bytes in all, the file %llu: views repeat its data "
                "(limit %llu bytes beyond the file)",
                (unsigned long long)torch->total, (unsigned long long)size,
                (unsigned long long)limit);
        return tc_error_hint(error, "raise the limit with --max-size if you trust this file");
    }
    report_classes(torch);
    reader->nested = torch->nested;
    return check_storages(torch, error) && check_anything(torch, error) && tie_views(torch, error);
}

bool torch_finish_objects(struct torch *torch, struct tc_error *error) {
    report_classes(torch);
    return check_anything(torch, error);
}
