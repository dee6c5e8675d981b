/*
 * TensorFlow's graphs (GraphDef) and saved models are programs. They are recognised,
 * so that an error can say what they are, and not read. Their messages may be nested
 * without a limit, so they are walked with a stack of fixed depth, protobuf's own
 * limit.
 */

#include "core/base/error.h"
#include "core/base/limits.h"
#include "formats/protobuf/wire.h"
#include "formats/tf/tensor.h"

#define MAX_DEPTH 100u
#define MOST_PROBED 4096u

enum message {
    NONE,
    GRAPH,
    SAVED_MODEL,
    META_GRAPH,
    NODE,
    ATTRIBUTE, /* an entry of a map */
    VALUE,
    LIST,
    CALL, /* a function's name and attributes */
    LIBRARY,
    FUNCTION,
    TENSOR,
    VARIANT,
};

/* Which field of a message is a message of which kind. */
static const struct inner {
    uint8_t outer;
    uint8_t field;
    uint8_t message;
} inner_messages[] = {
    {SAVED_MODEL, 2, META_GRAPH},
    {META_GRAPH, 2, GRAPH},
    {GRAPH, 1, NODE},
    {GRAPH, 2, LIBRARY},
    {LIBRARY, 1, FUNCTION},
    {FUNCTION, 3, NODE},
    {FUNCTION, 5, ATTRIBUTE},
    {NODE, 5, ATTRIBUTE},
    {ATTRIBUTE, 2, VALUE},
    {VALUE, 1, LIST},
    {VALUE, 8, TENSOR},
    {VALUE, 10, CALL},
    {LIST, 8, TENSOR},
    {LIST, 9, CALL},
    {CALL, 2, ATTRIBUTE},
    {TENSOR, 15, VARIANT},
    {VARIANT, 3, TENSOR},
};

static enum message message_of(enum message outer, const struct wire_field *field) {
    for (size_t i = 0; i < sizeof inner_messages / sizeof *inner_messages; i++)
        if (inner_messages[i].outer == outer && inner_messages[i].field == field->number &&
            field->type == WIRE_BYTES)
            return inner_messages[i].message;
    return NONE;
}

/* Whether a message has these two fields, and only fields of bytes with numbers up to
 * `last`. */
static bool has_bytes(struct wire wire, uint32_t first, uint32_t second, uint32_t last,
                      struct tc_error *ignored) {
    struct wire_field field;
    bool seen[2] = {false, false};
    for (unsigned i = 0; i < MOST_PROBED && wire_next(&wire, &field, ignored); i++) {
        if (field.type != WIRE_BYTES || field.number > last)
            return false;
        seen[0] |= field.number == first;
        seen[1] |= field.number == second;
    }
    return ignored->class == TC_OK && seen[0] && seen[1];
}

/* What kind of file may start with this field. */
static enum message kind_of(const struct wire *wire, const struct wire_field *field,
                            struct tc_error *ignored) {
    if (field->number != 1)
        return NONE;
    if (field->type == WIRE_VARINT)
        return SAVED_MODEL;
    bool node = field->type == WIRE_BYTES && has_bytes(wire_inside(wire, field), 1, 2, 7, ignored);
    return node ? GRAPH : NONE;
}

static bool fits_kind(enum message kind, const struct wire *wire, const struct wire_field *field,
                      struct tc_error *ignored) {
    if (kind == GRAPH)
        return field->number <= 4 && field->type == (field->number == 3 ? WIRE_VARINT : WIRE_BYTES);
    return field->number == 2 && field->type == WIRE_BYTES &&
           has_bytes(wire_inside(wire, field), 1, 2, 9, ignored);
}

unsigned tf_graph_seen(struct wire_source *source) {
    struct tc_error ignored = {0};
    struct wire wire = wire_open(source, 0, source->input->size);
    struct wire_field field;
    enum message kind = NONE;
    unsigned count = 0;
    while (count < MOST_PROBED && wire_next(&wire, &field, &ignored)) {
        if (count++ == 0)
            kind = kind_of(&wire, &field, &ignored);
        else if (!fits_kind(kind, &wire, &field, &ignored))
            return NONE;
        if (kind == NONE)
            return NONE;
    }
    /* A saved model has more than its version, which is the first field. */
    return ignored.class == TC_OK && (kind == GRAPH || count > 1) ? kind : NONE;
}

static bool check_depth(struct wire_source *source, enum message kind, struct tc_error *error) {
    struct level {
        struct wire wire;
        enum message message;
    } levels[MAX_DEPTH] = {{wire_open(source, 0, source->input->size), kind}};
    unsigned depth = 1;
    while (depth) {
        struct level *level = &levels[depth - 1];
        struct wire_field field;
        if (!wire_next(&level->wire, &field, error)) {
            if (error->class != TC_OK)
                return false;
            depth--;
            continue;
        }
        enum message inner = message_of(level->message, &field);
        if (inner == NONE)
            continue;
        if (depth == MAX_DEPTH) {
            tc_fail(error, TC_UNSAFE, "depth-limit",
                    "a TensorFlow graph whose messages lie over %u deep in each other", MAX_DEPTH);
            tc_error_hint(error, TC_FIXED_LIMIT);
            return tc_error_at(error, field.at);
        }
        levels[depth++] = (struct level){wire_inside(&level->wire, &field), inner};
    }
    return true;
}

bool tf_graph_refuse(struct wire_source *source, unsigned kind, struct tc_error *error) {
    if (!check_depth(source, kind, error))
        return false;
    tc_fail(error, TC_UNSUPPORTED, "tf-graph", "this is a TensorFlow %s, a program and no tensor",
            kind == GRAPH ? "graph (GraphDef)" : "saved model");
    return tc_error_hint(error, "save its variables with tf.io.serialize_tensor, or as .npz");
}
