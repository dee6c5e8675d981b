/* Frozen parameters, buffers, and names for others, which are in the model files. */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/torch.h"
#include "formats/zero/layout.h"
#include "formats/zero/zero.h"

/* How many names may stand for each other in a row. */
#define MAX_ALIASES 64u

/* Enters the text keys of a dict into a map; the number is the value's position. */
static bool map_keys(struct zero_layout *layout, const struct pickle_node *dict,
                     struct tc_name_map *map) {
    tc_name_map_init(map, zero_arena(layout));
    for (size_t i = 0; pickle_is(dict, PICKLE_DICT) && i + 1 < dict->count; i += 2)
        if (pickle_is(dict->items[i], PICKLE_TEXT) &&
            !tc_name_add(map, pickle_text(dict->items[i]), (uint32_t)i + 1, TC_MAX_NAMES,
                         layout->error))
            return false;
    return true;
}

/* The fragments of frozen parameters in a model file. */
struct fragments {
    const struct pickle_node *dict;
    struct tc_name_map names;
};

/* Adds the fragments of a frozen parameter: one, or with stage 3 one a rank. */
static bool add_frozen_parameter(struct zero_layout *layout, const struct fragments *fragments,
                                 const struct zero_parameter *parameter) {
    struct zero *zero = layout->zero;
    struct zero_tensor *made = NULL;
    enum tc_dtype dtype = TC_NONE;
    uint64_t at = 0;
    for (size_t rank = 0; rank < zero->model.count; rank++) {
        struct zero_file *file = &zero->model.list[rank];
        const uint32_t *found = tc_name_map_find(&fragments[rank].names, parameter->name);
        struct pickle_node *node = found ? fragments[rank].dict->items[*found] : NULL;
        uint32_t position;
        if (!zero_take_tensor(layout, file->reader, node, &position))
            return tc_error_in_file(layout->error, file->reader->input->path);
        const struct tc_tensor *tensor = &file->reader->table.tensors[position];
        dtype = rank ? dtype : (enum tc_dtype)tensor->dtype;
        if (tensor->dtype != dtype || tc_dtype_bits(dtype) % 8)
            return zero_bad(layout, "fragments of a frozen parameter have different dtypes");
        if (!made && !(made = zero_new_tensor(layout, dtype, parameter->count, zero->model.count)))
            return false;
        uint64_t count = tc_shape_count(tensor->shape, tensor->rank);
        if (zero->stage != 3 && count != parameter->count)
            return zero_bad(layout, "a frozen parameter has another size than its shape");
        uint64_t left = parameter->count - at;
        count = count < left ? count : left;
        if (count && !zero_add_piece(layout, made, at, count, file->reader, position, 0))
            return false;
        at += count;
    }
    return made &&
           zero_finish_tensor(layout, parameter->name, dtype, parameter->shape, parameter->rank);
}

bool zero_add_frozen(struct zero_layout *layout) {
    struct pickle_node *shapes =
        torch_find_key(layout->zero->model.list[0].root, "frozen_param_shapes");
    if (!shapes || shapes->kind == PICKLE_NONE)
        return true;
    if (!pickle_is(shapes, PICKLE_DICT))
        return zero_bad(layout, "frozen_param_shapes is no dict");
    const struct zero_files *files = &layout->zero->model;
    struct fragments *fragments =
        tc_arena_array(zero_arena(layout), files->count, sizeof *fragments, layout->error);
    bool ok = fragments && pickle_settle(shapes, zero_arena(layout), layout->error);
    for (size_t i = 0; ok && i < files->count; i++) {
        struct pickle_node *dict = torch_find_key(files->list[i].root, "frozen_param_fragments");
        fragments[i].dict = dict;
        ok = (!pickle_is(dict, PICKLE_DICT) ||
              pickle_settle(dict, zero_arena(layout), layout->error)) &&
             map_keys(layout, dict, &fragments[i].names);
    }
    for (size_t i = 0; ok && i + 1 < shapes->count; i += 2) {
        struct zero_parameter parameter;
        ok = zero_read_parameter(layout, shapes->items[i], shapes->items[i + 1], &parameter) &&
             (add_frozen_parameter(layout, fragments, &parameter) ||
              tc_error_in_tensor(layout->error, parameter.name.bytes, parameter.name.length));
    }
    for (size_t i = 0; fragments && i < files->count; i++)
        tc_name_map_release(&fragments[i].names);
    return ok;
}

/* Floating-point numbers become F32, as the script has it. */
static bool add_buffer(struct zero_layout *layout, struct tc_text name, struct pickle_node *node) {
    struct zero *zero = layout->zero;
    struct tc_reader *reader = zero->model.list[0].reader;
    uint32_t position;
    if (!zero_take_tensor(layout, reader, node, &position))
        return tc_error_in_file(layout->error, reader->input->path);
    const struct tc_tensor *tensor = &reader->table.tensors[position];
    uint64_t count = tc_shape_count(tensor->shape, tensor->rank);
    enum tc_dtype dtype = tensor->dtype;
    if (tc_dtype_bits(dtype) % 8)
        return tc_fail(layout->error, TC_UNSUPPORTED, "dtype", "a buffer of %s",
                       tc_dtype_name(dtype));
    enum tc_dtype becomes = tc_dtype_is_float(dtype) ? TC_F32 : dtype;
    struct zero_tensor *made = zero_new_tensor(layout, dtype, count, 1);
    if (!made || (count && !zero_add_piece(layout, made, 0, count, reader, position, 0)))
        return false;
    if (becomes != dtype && tc_reader_wants(zero->reader, name) &&
        !tc_reader_note(zero->reader, dtype == TC_F64 ? TC_LOSS : TC_CHANGE, TC_KIND_DTYPE, name,
                        layout->error, "buffers of %s are given as F32, as DeepSpeed does it",
                        tc_dtype_name(dtype)))
        return false;
    return zero_finish_tensor(layout, name, becomes, tensor->shape, tensor->rank);
}

/* The names of the buffers, as a list, a tuple or a set. */
static bool name_buffers(struct zero_layout *layout, const struct pickle_node *names,
                         struct tc_name_map *map) {
    tc_name_map_init(map, zero_arena(layout));
    for (size_t i = 0; i < names->count; i++)
        if (pickle_is(names->items[i], PICKLE_TEXT) &&
            !tc_name_map_find(map, pickle_text(names->items[i])) &&
            !tc_name_add(map, pickle_text(names->items[i]), 0, TC_MAX_NAMES, layout->error))
            return false;
    return true;
}

/* Those values of the module that are buffers, in the module's order. */
bool zero_add_buffers(struct zero_layout *layout) {
    const struct pickle_node *root = layout->zero->model.list[0].root;
    const struct pickle_node *names = torch_find_key(root, "buffer_names");
    struct pickle_node *module = torch_find_key(root, "module");
    struct tc_name_map buffers;
    if (!pickle_is(names, PICKLE_LIST) && !pickle_is(names, PICKLE_TUPLE) &&
        !pickle_is(names, PICKLE_SET))
        return zero_bad(layout, "the model file has no buffer_names");
    if (!pickle_is(module, PICKLE_DICT))
        return !names->count || zero_bad(layout, "the model file has buffer_names, and no module");
    if (!pickle_settle(module, zero_arena(layout), layout->error))
        return false;
    bool ok = name_buffers(layout, names, &buffers);
    for (size_t i = 0; ok && i + 1 < module->count; i += 2) {
        const struct pickle_node *name = module->items[i];
        if (pickle_is(name, PICKLE_TEXT) && tc_name_map_find(&buffers, pickle_text(name)) &&
            !add_buffer(layout, pickle_text(name), module->items[i + 1]))
            ok = tc_error_in_tensor(layout->error, name->text, name->length);
    }
    tc_name_map_release(&buffers);
    return ok;
}

/* Whether a name that stands for another stands for itself in the end. */
static bool is_ring(const struct pickle_node *shared, const struct tc_name_map *names,
                    const struct pickle_node *alias) {
    const struct pickle_node *name = alias;
    for (unsigned i = 0; i < MAX_ALIASES; i++) {
        const uint32_t *next = tc_name_map_find(names, pickle_text(name));
        if (!next || !pickle_is(shared->items[*next], PICKLE_TEXT))
            return false;
        name = shared->items[*next];
        if (tc_text_equal(pickle_text(name), pickle_text(alias)))
            return true;
    }
    return true;
}

static bool add_alias(struct zero_layout *layout, const struct pickle_node *shared,
                      const struct tc_name_map *names, size_t i) {
    struct tc_table *table = &layout->zero->reader->table;
    const struct pickle_node *alias = shared->items[i];
    const struct pickle_node *name = shared->items[i + 1];
    if (!pickle_is(alias, PICKLE_TEXT) || !pickle_is(name, PICKLE_TEXT))
        return zero_bad(layout, "shared_params holds a name that is no text");
    const struct tc_tensor *found = tc_table_find(table, pickle_text(name));
    if (!found || tc_text_equal(pickle_text(alias), pickle_text(name)))
        return !is_ring(shared, names, alias) ||
               zero_bad(layout, "a shared parameter stands for itself") ||
               tc_error_in_tensor(layout->error, alias->text, alias->length);
    struct tc_tensor tied = *found;
    size_t first = tc_table_source(table, (size_t)(found - table->tensors));
    tied.tie = 0;
    tied.name.length = alias->length;
    tied.name.bytes = tc_arena_copy(zero_arena(layout), alias->text, alias->length, layout->error);
    if (!tied.name.bytes || !tc_table_add(table, &tied, layout->error))
        return false;
    if (tied.nbytes)
        tc_table_tie(table, first, table->count - 1);
    return true;
}

/* {alias: name}. A name that there is not is passed over, as the script does it. */
bool zero_add_shared(struct zero_layout *layout) {
    struct pickle_node *shared = torch_find_key(layout->zero->model.list[0].root, "shared_params");
    struct tc_name_map names;
    if (!shared || shared->kind == PICKLE_NONE)
        return true;
    if (!pickle_is(shared, PICKLE_DICT))
        return zero_bad(layout, "shared_params is no dict");
    if (!pickle_settle(shared, zero_arena(layout), layout->error))
        return false;
    bool ok = map_keys(layout, shared, &names);
    for (size_t i = 0; ok && i + 1 < shared->count; i += 2)
        ok = add_alias(layout, shared, &names, i);
    tc_name_map_release(&names);
    return ok;
}
