/*
 * ModelProto: ir_version 1, graph 7, opset_import 8, metadata_props 14,
 *     training_info 20, functions 25
 * GraphProto: node 1, initializer 5, sparse_initializer 15
 * NodeProto: output 2, name 3, op_type 4, attribute 5
 * AttributeProto: name 1, f 2, i 3, s 4, t 5, g 6, floats 7, ints 8, strings 9,
 *     tensors 10, graphs 11, sparse_tensor 22, sparse_tensors 23
 * FunctionProto: name 1, node 7
 *
 * These are the numbers of the fields. An initializer has a name of its own. The
 * tensor of a Constant is named by the node's output, a tensor in any other
 * attribute by node and attribute: NODE.ATTRIBUTE. A tensor in a subgraph has that
 * as a prefix: NODE.ATTRIBUTE.NAME.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/restore_metadata.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "formats/onnx/onnx.h"
#include "formats/protobuf/wire.h"
#include "formats/refused.h"

#define MAX_TEXT (UINT64_C(1) << 20)
/* How deep graphs may be nested; each takes three levels: graph, node, attribute. */
#define MAX_GRAPHS 100u
#define MAX_LEVELS (3 * MAX_GRAPHS + 4)
/* A file with more fields at its top level is not taken for a model. */
#define MAX_PROBED 100000u

enum level_kind { MODEL, GRAPH, FUNCTION, NODE, ATTRIBUTE };

struct level {
    struct wire wire;
    enum level_kind kind;
    size_t path;   /* how much of walk.path is the prefix of names in it */
    bool constant; /* it is a node of the operator Constant, or an attribute of one */
    size_t index;  /* of the next tensor or graph in an attribute's list */
};

struct walk {
    struct onnx *onnx;
    struct level *levels;
    size_t depth;
    struct tc_buffer path;
    bool has_graph;
    bool has_training;
    bool has_opset;
    struct tc_error *error;
};

static struct tc_arena *arena(const struct walk *walk) {
    return &walk->onnx->reader->arena;
}

static bool enter(struct walk *walk, const struct wire_field *field, enum level_kind kind) {
    const struct level *outer = &walk->levels[walk->depth - 1];
    if (!wire_expect(field, WIRE_BYTES, "a message", walk->error))
        return false;
    if (walk->depth == MAX_LEVELS) {
        tc_fail(walk->error, TC_UNSAFE, "depth-limit", "graphs are nested more than %u deep",
                MAX_GRAPHS);
        tc_error_hint(walk->error, TC_FIXED_LIMIT);
        return tc_error_at(walk->error, field->at);
    }
    walk->levels[walk->depth++] = (struct level){.wire = wire_inside(&outer->wire, field),
                                                 .kind = kind,
                                                 .path = walk->path.length,
                                                 .constant = outer->constant};
    return true;
}

/* The prefix and the name, in the arena; bytes are NULL on failure. */
static struct tc_text full_name(struct walk *walk, struct tc_text name) {
    size_t prefix = walk->levels[walk->depth - 1].path;
    if (prefix + name.length > TC_MAX_NAME_BYTES) {
        tc_fail(walk->error, TC_UNSAFE, "name-limit", "a name is too long (%zu bytes, limit %u)",
                prefix + name.length, TC_MAX_NAME_BYTES);
        tc_error_hint(walk->error, TC_FIXED_LIMIT);
        return (struct tc_text){NULL, 0};
    }
    char *copy = tc_arena_alloc(arena(walk), prefix + name.length + 1, walk->error);
    if (!copy)
        return (struct tc_text){NULL, 0};
    if (walk->path.bytes)
        memcpy(copy, walk->path.bytes, prefix);
    if (name.length)
        memcpy(copy + prefix, name.bytes, name.length);
    return (struct tc_text){copy, prefix + name.length};
}

/* A field of a message whose text is needed before the message is walked. */
struct wanted {
    uint32_t number;
    struct tc_text text; /* the first that is not empty; empty: there is none */
};

static bool find_texts(struct walk *walk, struct wire message, struct wanted *wanted,
                       size_t count) {
    struct wire_field field;
    while (wire_next(&message, &field, walk->error))
        for (size_t i = 0; i < count; i++)
            if (field.number == wanted[i].number && wanted[i].text.length == 0 &&
                !wire_text(&message, &field, TC_MAX_NAME_BYTES, arena(walk), &wanted[i].text,
                           walk->error))
                return false;
    return walk->error->class == TC_OK;
}

/* Extends the prefix of names in the level that was entered last. */
static bool extend_path(struct walk *walk, struct tc_text text, const char *ending) {
    tc_buffer_add_text(&walk->path, text);
    tc_buffer_add_string(&walk->path, ending);
    walk->levels[walk->depth - 1].path = walk->path.length;
    return tc_buffer_ok(&walk->path, walk->error);
}

static bool enter_node(struct walk *walk, const struct wire_field *field) {
    struct wanted wanted[] = {{.number = 2}, {.number = 3}, {.number = 4}};
    walk->onnx->nodes++;
    if (!enter(walk, field, NODE))
        return false;
    struct level *level = &walk->levels[walk->depth - 1];
    if (!find_texts(walk, level->wire, wanted, 3))
        return false;
    level->constant = tc_text_equal(wanted[2].text, TC_TEXT("Constant"));
    bool by_output = level->constant || wanted[1].text.length == 0;
    return extend_path(walk, by_output ? wanted[0].text : wanted[1].text, "");
}

/* Adds Constant's value_floats or value_ints where the list is empty, which only the
 * attribute's type (field 20) shows. */
static bool add_empty_numbers(struct walk *walk) {
    struct wire message = walk->levels[walk->depth - 1].wire;
    struct wire_field field;
    uint64_t type = 0;
    bool values = false;
    while (wire_next(&message, &field, walk->error)) {
        type = field.number == 20 && field.type == WIRE_VARINT ? field.value : type;
        values |= field.number == 7 || field.number == 8;
    }
    if (walk->error->class != TC_OK || values || (type != 6 && type != 7))
        return walk->error->class == TC_OK;
    struct onnx_tensor tensor = {.dtype = type == 6 ? TC_F32 : TC_I64, .rank = 1};
    struct tc_text name = full_name(walk, TC_TEXT(""));
    tensor.place.input = walk->onnx->reader->input;
    return name.bytes && onnx_add_tensor(walk->onnx, name, &tensor, walk->error);
}

static bool enter_attribute(struct walk *walk, const struct wire_field *field) {
    struct wanted name = {.number = 1};
    if (!enter(walk, field, ATTRIBUTE))
        return false;
    const struct level *level = &walk->levels[walk->depth - 1];
    if (!find_texts(walk, level->wire, &name, 1))
        return false;
    if (level->constant)
        return add_empty_numbers(walk);
    tc_buffer_add_string(&walk->path, ".");
    return extend_path(walk, name.text, "");
}

static bool enter_function(struct walk *walk, const struct wire_field *field) {
    struct wanted name = {.number = 1};
    return enter(walk, field, FUNCTION) &&
           find_texts(walk, walk->levels[walk->depth - 1].wire, &name, 1) &&
           extend_path(walk, name.text, ".");
}

static bool enter_graph(struct walk *walk, const struct wire_field *field, bool listed) {
    struct level *attribute = &walk->levels[walk->depth - 1];
    size_t index = attribute->index++;
    if (!enter(walk, field, GRAPH))
        return false;
    if (listed)
        tc_buffer_addf(&walk->path, ".%zu", index);
    walk->levels[walk->depth - 1].constant = false;
    return extend_path(walk, TC_TEXT(""), ".");
}

/* Tensors */

/* Adds a tensor that was parsed, or leaves it out. Damage in a tensor that the user
 * did not select is no error. */
static bool add_parsed(struct walk *walk, bool parsed, struct tc_text name,
                       const struct onnx_tensor *tensor) {
    struct onnx *onnx = walk->onnx;
    return (parsed && onnx_add_tensor(onnx, name, tensor, walk->error)) ||
           refused_add(&onnx->refused, onnx->reader, name, walk->error);
}

static bool add_initializer(struct walk *walk, const struct wire_field *field) {
    const struct level *level = &walk->levels[walk->depth - 1];
    struct onnx_tensor tensor;
    if (!wire_expect(field, WIRE_BYTES, "initializer", walk->error))
        return false;
    bool parsed =
        onnx_parse_tensor(walk->onnx, wire_inside(&level->wire, field), &tensor, walk->error);
    if (tensor.name.length == 0)
        return parsed ? wire_bad(walk->error, field->at, "an initializer has no name") : false;
    struct tc_text name = full_name(walk, tensor.name);
    return name.bytes && add_parsed(walk, parsed, name, &tensor);
}

/* The name of a tensor in an attribute: the prefix, and its number where it is in a
 * list. */
static struct tc_text attribute_name(struct walk *walk, bool listed) {
    struct level *level = &walk->levels[walk->depth - 1];
    struct tc_buffer number = {0};
    if (listed)
        tc_buffer_addf(&number, ".%zu", level->index++);
    struct tc_text name = tc_buffer_ok(&number, walk->error)
                              ? full_name(walk, (struct tc_text){number.bytes, number.length})
                              : (struct tc_text){NULL, 0};
    tc_buffer_release(&number);
    return name;
}

static bool add_constant(struct walk *walk, const struct wire_field *field, bool listed) {
    const struct level *level = &walk->levels[walk->depth - 1];
    struct onnx_tensor tensor;
    struct tc_text name = attribute_name(walk, listed);
    if (!name.bytes || !wire_expect(field, WIRE_BYTES, "a tensor", walk->error))
        return false;
    bool parsed =
        onnx_parse_tensor(walk->onnx, wire_inside(&level->wire, field), &tensor, walk->error);
    return add_parsed(walk, parsed, name.length ? name : tensor.name, &tensor);
}

/* Leaves out a Constant's value_string or value_strings. */
static bool refuse_text(struct walk *walk) {
    struct level *level = &walk->levels[walk->depth - 1];
    if (level->index++) /* the next string of a list: it was reported with the first */
        return true;
    struct tc_text name = attribute_name(walk, false);
    if (!name.bytes)
        return false;
    tc_fail(walk->error, TC_UNSUPPORTED, "dtype", "a constant of text");
    return refused_add(&walk->onnx->refused, walk->onnx->reader, name, walk->error);
}

/* Counts the numbers of a repeated field in a message. */
static bool count_numbers(struct walk *walk, struct wire message, uint32_t number,
                          enum wire_type element, uint64_t *count) {
    struct wire_field field;
    uint64_t value;
    *count = 0;
    while (wire_next(&message, &field, walk->error)) {
        if (field.number != number)
            continue;
        if (field.type != WIRE_BYTES) {
            ++*count;
            continue;
        }
        struct wire packed = wire_inside(&message, &field);
        if (element == WIRE_FIXED32)
            *count += field.length / 4;
        else
            while (wire_varint(&packed, &value, walk->error))
                ++*count;
    }
    return walk->error->class == TC_OK;
}

/* Adds Constant's value_float, value_int, value_floats or value_ints. */
static bool add_numbers(struct walk *walk, const struct wire_field *field) {
    struct level *level = &walk->levels[walk->depth - 1];
    bool floats = field->number == 2 || field->number == 7;
    bool list = field->number >= 7;
    enum wire_type element = floats ? WIRE_FIXED32 : WIRE_VARINT;
    if (level->index++) /* the next piece of a list: it was added with the first */
        return true;
    struct tc_text name = attribute_name(walk, false);
    struct onnx_tensor tensor = {.dtype = floats ? TC_F32 : TC_I64, .rank = list};
    /* From its first piece to the attribute's end. */
    struct wire whole = wire_open(level->wire.source, field->at, level->wire.end);
    if (!name.bytes || !count_numbers(walk, whole, field->number, element, &tensor.shape[0]))
        return false;
    tensor.nbytes = (list ? tensor.shape[0] : 1) * (floats ? 4 : 8);
    tensor.place = (struct onnx_place){.kind = ONNX_TYPED,
                                       .typed = {.start = whole.at,
                                                 .end = whole.end,
                                                 .field = field->number,
                                                 .element = (uint8_t)element,
                                                 .dtype = (uint8_t)tensor.dtype,
                                                 .nbytes = tensor.nbytes}};
    return onnx_add_tensor(walk->onnx, name, &tensor, walk->error) ||
           tc_error_in_tensor(walk->error, name.bytes, name.length);
}

static bool add_sparse(struct walk *walk, const struct wire_field *field, bool own_name,
                       bool listed) {
    const struct level *level = &walk->levels[walk->depth - 1];
    struct tc_text prefix = {walk->path.bytes, level->path};
    struct tc_text name = {NULL, 0};
    if (!wire_expect(field, WIRE_BYTES, "a sparse tensor", walk->error))
        return false;
    if (!own_name) {
        name = attribute_name(walk, listed);
        prefix.length = 0;
        if (!name.bytes)
            return false;
    }
    return onnx_add_sparse(walk->onnx, wire_inside(&level->wire, field), prefix, name, walk->error);
}

/* Fields of each kind of message */

static bool add_property(struct walk *walk, const struct wire_field *field) {
    const struct level *level = &walk->levels[walk->depth - 1];
    struct tc_text key;
    struct tc_text value;
    return wire_expect(field, WIRE_BYTES, "metadata_props", walk->error) &&
           onnx_read_entry(walk->onnx, wire_inside(&level->wire, field), &key, &value,
                           walk->error) &&
           tc_metadata_add(&walk->onnx->reader->table.metadata, arena(walk), key, value,
                           walk->error);
}

static bool visit_model(struct walk *walk, const struct wire_field *field) {
    switch (field->number) {
    case 7:
        /* protobuf would merge two graphs into one. */
        if (walk->has_graph)
            return wire_bad(walk->error, field->at, "a model has two graphs");
        walk->has_graph = true;
        return enter(walk, field, GRAPH);
    case 8:
        walk->has_opset = true;
        return true;
    case 14:
        return add_property(walk, field);
    case 20:
        if (!walk->has_training)
            tc_reader_lose(walk->onnx->reader, "what it has for training is left out");
        walk->has_training = true;
        return true;
    case 25:
        return enter_function(walk, field);
    default:
        return true;
    }
}

static bool visit_attribute(struct walk *walk, const struct wire_field *field) {
    bool constant = walk->levels[walk->depth - 1].constant;
    switch (field->number) {
    case 2:
    case 3:
    case 7:
    case 8:
        return !constant || add_numbers(walk, field);
    case 4:
    case 9:
        return !constant || refuse_text(walk);
    case 5:
        return add_constant(walk, field, false);
    case 6:
        return enter_graph(walk, field, false);
    case 10:
        return add_constant(walk, field, true);
    case 11:
        return enter_graph(walk, field, true);
    case 22:
        return add_sparse(walk, field, false, false);
    case 23:
        return add_sparse(walk, field, false, true);
    default:
        return true;
    }
}

static bool visit(struct walk *walk, const struct wire_field *field) {
    const struct level *level = &walk->levels[walk->depth - 1];
    switch (level->kind) {
    case MODEL:
        return visit_model(walk, field);
    case GRAPH:
        return field->number == 1    ? enter_node(walk, field)
               : field->number == 5  ? add_initializer(walk, field)
               : field->number == 15 ? add_sparse(walk, field, true, false)
                                     : true;
    case FUNCTION:
        return field->number != 7 || enter_node(walk, field);
    case NODE:
        return field->number != 5 || enter_attribute(walk, field);
    default:
        return visit_attribute(walk, field);
    }
}

static bool run(struct walk *walk) {
    while (walk->depth) {
        struct level *level = &walk->levels[walk->depth - 1];
        struct wire_field field;
        walk->path.length = level->path;
        if (wire_next(&level->wire, &field, walk->error)) {
            if (!visit(walk, &field))
                return false;
        } else if (walk->error->class != TC_OK) {
            return false;
        } else {
            walk->depth--;
        }
    }
    if (!walk->has_graph)
        return wire_bad(walk->error, 0, "a model without a graph");
    /* A message has no mark of its end. A file that is cut between two fields can
     * only be recognised by what is missing, and opset_import usually comes last. */
    return walk->has_opset ||
           wire_bad(walk->error, 0, "a model without an opset; the file may be cut short");
}

bool onnx_read_model(struct onnx *onnx, struct tc_error *error) {
    struct tc_reader *reader = onnx->reader;
    struct walk walk = {.onnx = onnx, .error = error};
    walk.levels = calloc(MAX_LEVELS, sizeof *walk.levels);
    if (!walk.levels)
        return tc_fail_memory(error);
    walk.levels[walk.depth++] =
        (struct level){.wire = wire_open(&onnx->source, 0, reader->input->size)};
    bool ok = run(&walk);
    free(walk.levels);
    tc_buffer_release(&walk.path);
    if (ok && onnx->nodes) {
        tc_reader_warn(reader, "its graph of %zu node%s is left out; only tensors are read",
                       onnx->nodes, onnx->nodes == 1 ? "" : "s");
        reader->beyond = "a graph";
    }
    return ok && tc_metadata_sort(&reader->table.metadata, error) &&
           tc_tensor_metadata_restore(reader, error) && onnx_finish(onnx, error);
}

/* Which fields the file has at its top level, a bit for each number below 64: fields
 * that are numbers, and fields that are bytes. False where it is not a message. */
static bool probe_fields(const struct tc_probe *probe, uint64_t *numbers, uint64_t *bytes) {
    struct wire_source source;
    struct wire_field field;
    struct tc_error error = {0};
    size_t count = 0;
    bool known = probe->length > 0;
    *numbers = *bytes = 0;
    wire_source_init(&source, probe->input);
    struct wire wire = wire_open(&source, 0, probe->input->size);
    while (known && wire_next(&wire, &field, &error)) {
        known = field.number < 64 && count++ < MAX_PROBED;
        if (known && field.type == WIRE_BYTES)
            *bytes |= UINT64_C(1) << field.number;
        else if (known)
            *numbers |= UINT64_C(1) << field.number;
    }
    wire_source_release(&source);
    return known && error.class == TC_OK;
}

#define BIT(number) (UINT64_C(1) << (number))

int onnx_probe_model(const struct tc_probe *probe) {
    uint64_t numbers;
    uint64_t bytes;
    if (!probe_fields(probe, &numbers, &bytes))
        return 0;
    /* A TensorProto has a number in field 2, its data_type. */
    return numbers & BIT(1) && bytes & BIT(7) && !(numbers & (BIT(7) | BIT(2))) ? 80 : 0;
}

int onnx_probe_tensor(const struct tc_probe *probe) {
    uint64_t numbers;
    uint64_t bytes;
    const uint64_t known = BIT(17) - 1;
    if (!probe_fields(probe, &numbers, &bytes))
        return 0;
    return numbers & BIT(2) && !((numbers | bytes) & ~known) && !(bytes & BIT(2)) ? 60 : 0;
}
