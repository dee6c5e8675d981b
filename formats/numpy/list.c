/* The arrays of an .npy or .npz file as tensors of its table. */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"
#include "formats/numpy/npy.h"
#include "formats/refused.h"
#include "formats/torch/torch.h"

static bool grow(struct npy_list *list, struct tc_reader *reader, struct tc_error *error) {
    if (list->count < list->capacity)
        return true;
    size_t capacity = list->capacity ? list->capacity + list->capacity / 2 : 4;
    if (!tc_arena_charge(&reader->arena, (capacity - list->capacity) * sizeof *list->tensors,
                         error))
        return false;
    struct npy_tensor *tensors = reallocarray(list->tensors, capacity, sizeof *tensors);
    if (!tensors)
        return tc_fail_memory(error);
    list->tensors = tensors;
    list->capacity = capacity;
    return true;
}

static bool refuse_objects(struct npy_list *list, struct tc_reader *reader,
                           const struct npy_array *array, struct tc_text name,
                           struct tc_error *error) {
    tc_fail(error, TC_UNSAFE, "npy-object",
            "an array of Python objects carries a pickle, which could run code");
    tc_error_because(error, TC_REASON_PICKLE);
    tc_error_at(error, array->base);
    tc_error_hint(error, "save it again as an array of numbers");
    return refused_add(&list->refused, reader, name, error);
}

static bool refuse_field(struct npy_list *list, struct tc_reader *reader,
                         const struct npy_array *array, const struct npy_field *field,
                         struct tc_text name, struct tc_error *error) {
    tc_fail(error, TC_UNSUPPORTED, strstr(field->skipped, "dimensions") ? "rank" : "dtype", "%s",
            field->skipped);
    tc_error_at(error, array->base);
    if (field->hint)
        tc_error_hint(error, "%s", field->hint);
    return refused_add(&list->refused, reader, name, error);
}

/* The array's name with the field's appended, in the arena. */
static bool join(struct tc_reader *reader, struct tc_text name, struct tc_text field,
                 struct tc_text *joined, struct tc_error *error) {
    if (field.length == 0) {
        *joined = name;
        return true;
    }
    char *copy = tc_arena_alloc(&reader->arena, name.length + field.length + 1, error);
    if (!copy)
        return false;
    if (name.length)
        memcpy(copy, name.bytes, name.length);
    memcpy(copy + name.length, field.bytes, field.length);
    *joined = (struct tc_text){copy, name.length + field.length};
    return true;
}

/* Whether an undamaged file can give two tensors this name: "a.b" may be an array, or
 * the field b of the array a. */
static bool may_collide(const struct npy_list *list, const struct tc_tensor *other,
                        const struct npy_array *array, const struct npy_field *field) {
    if (npy_is_object(other))
        return true;
    const struct npy_tensor *first = &list->tensors[other->cookie];
    if (first->array != array)
        return first->field->name.length || field->name.length;
    return memchr(field->name.bytes + 1, '.', field->name.length - 1) != NULL;
}

/* Appends ~1, ~2 and so on to a name that another tensor has already. */
static bool make_unique(struct npy_list *list, struct tc_reader *reader,
                        const struct npy_array *array, const struct npy_field *field,
                        struct tc_text *name, struct tc_error *error) {
    const struct tc_tensor *other = tc_table_find(&reader->table, *name);
    if (!other || !may_collide(list, other, array, field))
        return true;
    struct tc_text taken = *name;
    struct tc_buffer text = {0};
    for (unsigned number = 1; tc_table_find(&reader->table, *name) && !text.failed; number++) {
        text.length = 0;
        tc_buffer_add_text(&text, taken);
        tc_buffer_addf(&text, "~%u", number);
        *name = (struct tc_text){text.bytes, text.length};
    }
    char *copy = tc_buffer_ok(&text, error)
                     ? tc_arena_copy(&reader->arena, text.bytes, text.length, error)
                     : NULL;
    *name = (struct tc_text){copy, text.length};
    tc_buffer_release(&text);
    if (copy)
        tc_reader_warn(reader, "two tensors are called \"%.*s\": one is \"%.*s\"",
                       tc_text_shown(taken, 150), taken.bytes, tc_text_shown(*name, 150), copy);
    return copy != NULL;
}

static bool add_descr(struct tc_reader *reader, const struct npy_field *field,
                      struct tc_tensor *tensor, struct tc_error *error) {
    if (field->descr.length == 0)
        return true;
    tensor->metadata = tc_arena_alloc(&reader->arena, sizeof *tensor->metadata, error);
    return tensor->metadata && tc_metadata_add(tensor->metadata, &reader->arena,
                                               TC_TEXT(NPY_DESCR_KEY), field->descr, error);
}

static bool add_field(struct npy_list *list, struct tc_reader *reader,
                      const struct npy_array *array, const struct npy_field *field,
                      struct tc_text name, struct tc_error *error) {
    if (!join(reader, name, field->name, &name, error))
        return false;
    if (field->skipped)
        return refuse_field(list, reader, array, field, name, error);
    struct tc_tensor tensor = {.dtype = field->dtype,
                               .rank = field->rank,
                               .shape = field->shape,
                               .nbytes = field->nbytes,
                               .offset = list->count,
                               .cookie = (uint32_t)list->count};
    if (!make_unique(list, reader, array, field, &name, error) ||
        !add_descr(reader, field, &tensor, error) || !grow(list, reader, error))
        return false;
    list->tensors[list->count] = (struct npy_tensor){array, field};
    tensor.name = name;
    tensor.sequential = npy_is_sequential(&list->tensors[list->count++]);
    return tc_table_add(&reader->table, &tensor, error);
}

bool npy_list_add(struct npy_list *list, struct tc_reader *reader, const struct npy_array *array,
                  struct tc_text name, struct tc_error *error) {
    const struct npy_header *header = &array->header;
    if (header->objects)
        return refuse_objects(list, reader, array, name, error);
    if (header->structured && (header->field_count == 0 || header->unmeasured)) {
        tc_fail(error, TC_UNSUPPORTED, "npy-structured",
                header->unmeasured ? "a structured array with a field of an unknown type"
                                   : "a structured array without a field");
        return refused_add(&list->refused, reader, name, error);
    }
    for (size_t i = 0; i < header->field_count; i++)
        if (!add_field(list, reader, array, &header->fields[i], name, error))
            return false;
    return true;
}

bool npy_list_objects(struct npy_list *list, struct tc_reader *reader, struct tc_text name,
                      const unsigned char *memory, uint64_t at, uint64_t end,
                      struct tc_error *error) {
    if (!list->objects) {
        list->objects = tc_arena_alloc(&reader->arena, sizeof *list->objects, error);
        if (!list->objects)
            return false;
        torch_init(list->objects, reader);
    }
    return torch_add_objects(list->objects, name, memory, at, end, error);
}

bool npy_list_finish(struct npy_list *list, struct tc_reader *reader, struct tc_error *error) {
    if (list->objects && !torch_finish_objects(list->objects, error))
        return false;
    return refused_finish(&list->refused, reader, error);
}

void npy_list_release(struct npy_list *list) {
    if (list->objects)
        torch_release(list->objects);
    free(list->tensors);
    refused_release(&list->refused);
}
