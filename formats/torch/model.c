/*
 * TorchScript archives of torch 1.0 and 1.1: ROOT/model.json is a protobuf message as
 * JSON, in which integers are mostly strings.
 *     {"mainModule": MODULE, "tensors": [TENSOR, …], …}
 *     MODULE  {"name", "submodules": [MODULE, …],
 *              "parameters": [{"name", "tensorId": "0", "isBuffer"}, …],
 *              "attributes": [{"name", "type", "id"}, …], …}
 *     TENSOR  {"dims": ["2", "3"], "strides": ["3", "1"], "offset": "0",
 *              "dataType": "FLOAT", "data": {"key": "tensors/0"}, …}
 * A tensor's data is the member ROOT/KEY. Attributes are pickled in
 * ROOT/attributes.pkl, which is not read.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "formats/torch/torch.h"
#include "formats/torch/walk.h"
#include "formats/zip/directory.h"
#include "formats/zip/read.h"

#define MAX_MODEL (UINT64_C(100) * 1000 * 1000)

struct definition {
    struct tc_text key;
    uint64_t *size;
    uint64_t *stride;
    uint64_t offset;
    unsigned rank;
    unsigned strides;
    enum tc_dtype dtype; /* TC_NONE: not known */
};

struct module {
    struct tc_text text; /* its JSON */
    size_t path;         /* length of its parent's name */
    bool named;          /* its parent has a name */
};

struct model {
    struct torch_walk walk;
    struct definition *tensors;
    size_t count;
    size_t capacity;
    struct module *modules; /* still to be read, the next one last */
    size_t module_count;
    size_t module_capacity;
};

static const struct {
    const char *name;
    uint64_t number;
    enum tc_dtype dtype;
} dtypes[] = {
    {"FLOAT", 1, TC_F32},  {"INT32", 2, TC_I32},    {"BYTE", 3, TC_U8},     {"BOOL", 5, TC_BOOL},
    {"UINT8", 6, TC_U8},   {"INT8", 7, TC_I8},      {"UINT16", 8, TC_U16},  {"INT16", 9, TC_I16},
    {"INT64", 10, TC_I64}, {"FLOAT16", 12, TC_F16}, {"DOUBLE", 13, TC_F64},
};

static struct tc_json read_text(struct model *model, struct tc_text text) {
    struct tc_json json;
    tc_json_init(&json, text.bytes, text.length, 0, torch_walk_arena(&model->walk),
                 model->walk.error);
    return json;
}

/* Reads a number, or a string that is one. */
static bool read_number(struct tc_json *json, uint64_t *value) {
    struct tc_text text;
    if (tc_json_peek(json) != TC_JSON_STRING)
        return tc_json_unsigned(json, value);
    if (!tc_json_string(json, &text))
        return false;
    *value = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9' || *value > INT64_MAX / 10 - 1)
            return tc_json_fail(json, "not a whole number");
        *value = *value * 10 + (uint64_t)(text.bytes[i] - '0');
    }
    return text.length || tc_json_fail(json, "not a whole number");
}

/* Reads a list of numbers. Those beyond TC_MAX_RANK are not kept; *count is then
 * TC_MAX_RANK + 1. */
static bool read_numbers(struct tc_json *json, struct tc_arena *arena, uint64_t **numbers,
                         unsigned *count) {
    uint64_t list[TC_MAX_RANK];
    unsigned found = 0;
    if (!tc_json_begin(json, TC_JSON_ARRAY))
        return false;
    while (tc_json_element(json)) {
        uint64_t number;
        if (!read_number(json, &number))
            return false;
        if (found < TC_MAX_RANK)
            list[found] = number;
        found += found <= TC_MAX_RANK;
    }
    unsigned kept = found < TC_MAX_RANK ? found : TC_MAX_RANK;
    *count = found;
    *numbers = json->failed ? NULL : tc_arena_array(arena, kept + 1, sizeof **numbers, json->error);
    if (*numbers && kept)
        memcpy(*numbers, list, kept * sizeof *list);
    return *numbers != NULL;
}

static bool read_dtype(struct tc_json *json, enum tc_dtype *dtype) {
    struct tc_text name = {"", 0};
    uint64_t number = 0;
    if (!(tc_json_peek(json) == TC_JSON_STRING ? tc_json_string(json, &name)
                                               : tc_json_unsigned(json, &number)))
        return false;
    *dtype = TC_NONE;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (name.length ? tc_text_equal(name, tc_text_of(dtypes[i].name))
                        : number == dtypes[i].number)
            *dtype = dtypes[i].dtype;
    return true;
}

static bool read_key(struct tc_json *json, struct tc_text *key) {
    struct tc_text member;
    struct tc_text ignored;
    if (!tc_json_begin(json, TC_JSON_OBJECT))
        return false;
    while (tc_json_key(json, &member))
        if (!(tc_text_equal(member, TC_TEXT("key")) ? tc_json_string(json, key)
                                                    : tc_json_skip(json, &ignored)))
            return false;
    return !json->failed;
}

static bool read_definition(struct tc_json *json, struct tc_arena *arena,
                            struct definition *tensor) {
    struct tc_text member;
    struct tc_text ignored;
    bool ok = tc_json_begin(json, TC_JSON_OBJECT);
    while (ok && tc_json_key(json, &member)) {
        if (tc_text_equal(member, TC_TEXT("dims")))
            ok = read_numbers(json, arena, &tensor->size, &tensor->rank);
        else if (tc_text_equal(member, TC_TEXT("strides")))
            ok = read_numbers(json, arena, &tensor->stride, &tensor->strides);
        else if (tc_text_equal(member, TC_TEXT("offset")))
            ok = read_number(json, &tensor->offset);
        else if (tc_text_equal(member, TC_TEXT("dataType")) ||
                 tc_text_equal(member, TC_TEXT("data_type")))
            ok = read_dtype(json, &tensor->dtype);
        else if (tc_text_equal(member, TC_TEXT("data")))
            ok = read_key(json, &tensor->key);
        else
            ok = tc_json_skip(json, &ignored);
    }
    return ok && !json->failed;
}

/* Makes room for one more element; the list's capacity doubles. */
static bool make_room(struct model *model, void **list, size_t count, size_t *capacity,
                      size_t size) {
    if (count < *capacity)
        return true;
    size_t larger = *capacity ? *capacity * 2 : 64;
    void *grown = NULL;
    if (!tc_arena_charge(torch_walk_arena(&model->walk), (larger - *capacity) * size,
                         model->walk.error))
        return false;
    if (!(grown = reallocarray(*list, larger, size)))
        return tc_fail_memory(model->walk.error);
    *list = grown;
    *capacity = larger;
    return true;
}

static bool read_tensors(struct model *model, struct tc_text text) {
    struct tc_json json = read_text(model, text);
    if (!tc_json_begin(&json, TC_JSON_ARRAY))
        return false;
    while (tc_json_element(&json)) {
        if (!make_room(model, (void **)&model->tensors, model->count, &model->capacity,
                       sizeof *model->tensors))
            return false;
        struct definition *tensor = &model->tensors[model->count++];
        *tensor = (struct definition){.dtype = TC_NONE};
        if (!read_definition(&json, torch_walk_arena(&model->walk), tensor))
            return false;
    }
    return !json.failed;
}

/* Adds the member as a storage. Only its tensors have dtypes. */
static bool find_storage(struct torch *torch, const struct definition *tensor,
                         struct torch_shape *shape, struct tc_error *error) {
    const struct zip_member *member = torch_find_member(torch, "", tensor->key);
    if (!member)
        return tc_fail(error, TC_INVALID, "storage", "storage \"%.*s\" is not in the file",
                       tc_text_shown(tensor->key, 200), tensor->key.bytes);
    shape->extent = member->size;
    torch->folder = "";
    return torch_add_storage(torch, tensor->key, TC_NONE, shape->extent, &shape->storage, error);
}

static bool make_shape(struct model *model, const struct definition *tensor,
                       struct torch_shape *shape) {
    struct tc_error *error = model->walk.error;
    if (tensor->rank > TC_MAX_RANK)
        return tc_fail(error, TC_UNSUPPORTED, "rank", "more than %u dimensions", TC_MAX_RANK);
    if (tensor->dtype == TC_NONE)
        return tc_fail(error, TC_UNSUPPORTED, "dtype", "a tensor of a type that is not known");
    if (tensor->strides != tensor->rank || !tensor->key.bytes)
        return torch_walk_bad(&model->walk, "a tensor of model.json has no strides or no data");
    *shape = (struct torch_shape){
        .dtype = tensor->dtype, .rank = tensor->rank, .offset = tensor->offset};
    for (unsigned i = 0; i < tensor->rank; i++) {
        shape->size[i] = tensor->size[i];
        shape->stride[i] = tensor->stride[i];
    }
    return find_storage(model->walk.torch, tensor, shape, error);
}

static bool add_parameter(struct model *model, uint64_t id) {
    struct torch_walk *walk = &model->walk;
    struct torch_shape shape;
    struct tc_text name;
    if (!torch_walk_charge(walk, 1))
        return false;
    if (id >= model->count)
        return torch_walk_bad(walk, "a parameter is a tensor that model.json does not list");
    bool ok = make_shape(model, &model->tensors[id], &shape) &&
              torch_take_name(walk, NULL, 0, &name) &&
              torch_add_tensor(walk->torch, name, &shape, NULL, walk->error);
    if (!ok)
        torch_walk_here(walk);
    return ok || torch_walk_forgive(walk);
}

/* Sets the path to a parent's, of this length, with the name appended. */
static void extend(struct torch_walk *walk, size_t path, bool named, struct tc_text name) {
    walk->path.length = path;
    if (named)
        tc_buffer_add_string(&walk->path, ".");
    tc_buffer_add_text(&walk->path, name);
    walk->named = true;
}

/* A parameter, {"name", "tensorId"}, or an attribute, {"name", "type"}. */
struct entry {
    struct tc_text name;
    struct tc_text type;
    uint64_t id;
};

static bool read_entry(struct tc_json *json, struct entry *entry) {
    struct tc_text member;
    struct tc_text ignored;
    *entry = (struct entry){.name = {"", 0}, .type = {"", 0}};
    bool ok = tc_json_begin(json, TC_JSON_OBJECT);
    while (ok && tc_json_key(json, &member)) {
        if (tc_text_equal(member, TC_TEXT("name")))
            ok = tc_json_string(json, &entry->name);
        else if (tc_text_equal(member, TC_TEXT("type")))
            ok = tc_json_string(json, &entry->type);
        else if (tc_text_equal(member, TC_TEXT("tensorId")) ||
                 tc_text_equal(member, TC_TEXT("tensor_id")))
            ok = read_number(json, &entry->id);
        else
            ok = tc_json_skip(json, &ignored);
    }
    return ok && !json->failed;
}

static bool read_parameters(struct model *model, struct tc_text text, size_t path, bool named) {
    struct tc_json json = read_text(model, text);
    struct entry entry;
    bool ok = tc_json_begin(&json, TC_JSON_ARRAY);
    while (ok && tc_json_element(&json)) {
        ok = read_entry(&json, &entry);
        extend(&model->walk, path, named, entry.name);
        ok = ok && tc_buffer_ok(&model->walk.path, model->walk.error) &&
             add_parameter(model, entry.id);
    }
    return ok && !json.failed;
}

/* Reports the attributes that hold tensors, as lists and dicts, which are left out: they
 * are in attributes.pkl. Attributes of type Tensor are among the parameters too. */
static bool skip_attributes(struct model *model, struct tc_text text, size_t path, bool named) {
    struct tc_json json = read_text(model, text);
    struct entry entry;
    bool ok = tc_json_begin(&json, TC_JSON_ARRAY);
    while (ok && tc_json_element(&json)) {
        ok = read_entry(&json, &entry);
        bool tensors = ok && !tc_text_equal(entry.type, TC_TEXT("Tensor")) &&
                       memmem(entry.type.bytes, entry.type.length, "Tensor", 6);
        extend(&model->walk, path, named, entry.name);
        if (tensors)
            ok = torch_walk_skip(&model->walk, TC_SKIP_VALUE, "an attribute of type %.*s",
                                 tc_text_shown(entry.type, 100), entry.type.bytes);
    }
    return ok && !json.failed;
}

static bool push_module(struct model *model, struct tc_text text, size_t path, bool named) {
    if (!make_room(model, (void **)&model->modules, model->module_count, &model->module_capacity,
                   sizeof *model->modules))
        return false;
    model->modules[model->module_count++] = (struct module){text, path, named};
    return true;
}

/* Pushes modules so that the first is popped first. */
static bool push_modules(struct model *model, struct tc_text text, size_t path, bool named) {
    struct tc_json json = read_text(model, text);
    size_t first = model->module_count;
    struct tc_text module;
    if (!tc_json_begin(&json, TC_JSON_ARRAY))
        return false;
    while (tc_json_element(&json))
        if (!tc_json_skip(&json, &module) || !push_module(model, module, path, named))
            return false;
    for (size_t low = first, high = model->module_count; low + 1 < high; low++, high--) {
        struct module other = model->modules[low];
        model->modules[low] = model->modules[high - 1];
        model->modules[high - 1] = other;
    }
    return !json.failed;
}

/* A module's name may come behind its members, whose names need it: so the members are
 * found first, and read when the name is known. */
static bool read_module(struct model *model, struct module module, bool main) {
    struct tc_json json = read_text(model, module.text);
    struct tc_text member;
    struct tc_text value;
    struct tc_text name = {"", 0};
    struct tc_text parameters = {0};
    struct tc_text attributes = {0};
    struct tc_text modules = {0};
    bool ok = tc_json_begin(&json, TC_JSON_OBJECT);
    while (ok && tc_json_key(&json, &member)) {
        if (tc_text_equal(member, TC_TEXT("name")))
            ok = tc_json_string(&json, &name);
        else if ((ok = tc_json_skip(&json, &value))) {
            parameters = tc_text_equal(member, TC_TEXT("parameters")) ? value : parameters;
            attributes = tc_text_equal(member, TC_TEXT("attributes")) ? value : attributes;
            modules = tc_text_equal(member, TC_TEXT("submodules")) ? value : modules;
        }
    }
    if (!ok || json.failed)
        return false;
    model->walk.path.length = module.path;
    if (!main)
        extend(&model->walk, module.path, module.named, name);
    size_t path = model->walk.path.length;
    return tc_buffer_ok(&model->walk.path, model->walk.error) &&
           (!parameters.bytes || read_parameters(model, parameters, path, !main)) &&
           (!attributes.bytes || skip_attributes(model, attributes, path, !main)) &&
           (!modules.bytes || push_modules(model, modules, path, !main));
}

/* Reads the modules depth first. Each cuts the path back to the name of its parent,
 * which is still there, since only descendants of that parent were read in between. */
static bool read_modules(struct model *model, struct tc_text main) {
    bool ok = push_module(model, main, 0, false);
    for (bool first = true; ok && model->module_count; first = false) {
        struct module module = model->modules[--model->module_count];
        ok = torch_walk_charge(&model->walk, 1) && read_module(model, module, first);
    }
    return ok;
}

static bool read_all(struct model *model, struct tc_text text) {
    struct tc_json json = read_text(model, text);
    struct tc_text member;
    struct tc_text value;
    struct tc_text main = {0};
    struct tc_text tensors = {0};
    bool ok = tc_json_begin(&json, TC_JSON_OBJECT);
    while (ok && tc_json_key(&json, &member))
        if ((ok = tc_json_skip(&json, &value))) {
            bool is_main = tc_text_equal(member, TC_TEXT("mainModule")) ||
                           tc_text_equal(member, TC_TEXT("main_module"));
            main = is_main ? value : main;
            tensors = tc_text_equal(member, TC_TEXT("tensors")) ? value : tensors;
        }
    if (!ok || json.failed || !tc_json_end(&json))
        return false;
    if (!main.bytes)
        return tc_fail(model->walk.error, TC_INVALID, "torch-archive",
                       "model.json has no main module");
    return (!tensors.bytes || read_tensors(model, tensors)) && read_modules(model, main);
}

bool torch_read_model(struct torch *torch, struct tc_error *error) {
    const struct zip_member *member = torch_find_member(torch, "", TC_TEXT("model.json"));
    struct model model = {.walk = {.torch = torch, .error = error}};
    if (torch->watch.context)
        return true;
    if (member->size > tc_reader_header_limit(torch->reader, MAX_MODEL)) {
        tc_fail(error, TC_UNSAFE, "header-limit", "model.json has %llu bytes",
                (unsigned long long)member->size);
        return tc_error_hint(error, "raise the limit with --max-header if you trust this file");
    }
    const char *text = zip_load(torch->reader, member, error);
    /* The walk's limit grows with the size of the JSON, as with a pickle's opcodes: a
     * module takes some sixty bytes. */
    torch->steps += member->size / 16;
    bool ok = text && read_all(&model, (struct tc_text){text, member->size});
    if (!ok)
        error->has_offset = false; /* the offset is one in the JSON, not in the file */
    tc_buffer_release(&model.walk.path);
    free(model.tensors);
    free(model.modules);
    return ok;
}
