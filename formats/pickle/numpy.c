/*
 * Checks of numpy's dtypes and arrays for a scan, and the arrays that follow joblib's
 * wrappers.
 *
 *     dtype('f4', False, True)
 *         BUILD (3, '<', subdtype, names, fields, itemsize, alignment, flags)
 *         BUILD (4, the same, metadata); of times (metadata, (unit, number, 1, 1))
 *     _reconstruct(ndarray, (0,), b'b')
 *         BUILD (version, shape, dtype, fortran, data)
 *
 * numpy believes a dtype's state: flags that say "no objects" of a dtype with
 * objects, or fields beyond the item's end, make pointers of raw bytes. So a
 * state must be what numpy itself writes, and what it says must hold together.
 * A dtype that passed has its kind in `value` and its size in `count`; 'O' stands
 * for all that hold objects.
 */
#include <string.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "formats/pickle/calls.h"
#include "formats/pickle/machine.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"

/* Flags of a numpy dtype that holds objects, which are pickled as a list. */
#define FLAGS_OF_OBJECTS 3
#define FLAGS_OF_OBJECT 63
/* Flags that have nothing to do with objects: memory to be cleared, aligned fields. */
#define FLAGS_HARMLESS (8 | 16 | 128)
#define MAX_FIELDS 10000u

static bool read_size(struct tc_text digits, uint32_t most, uint32_t *size) {
    uint64_t value = 0;
    for (size_t i = 0; i < digits.length; i++) {
        if (digits.bytes[i] < '0' || digits.bytes[i] > '9' || value > most)
            return false;
        value = value * 10 + (uint64_t)(digits.bytes[i] - '0');
    }
    *size = (uint32_t)value;
    return value <= most;
}

/* Accepts "f4", "<f4", "S10", "M8[ns]": a kind and a size, nothing else. */
bool pickle_numpy_descr(struct pickle_node *dtype, const struct pickle_node *descr) {
    if (!pickle_is(descr, PICKLE_TEXT))
        return false;
    struct tc_text code = pickle_text(descr);
    if (code.length && memchr("<>|=", code.bytes[0], 4)) {
        code.bytes++;
        code.length--;
    }
    char kind = code.length ? code.bytes[0] : 0;
    if (!kind || !strchr("biufcSUVMmO", kind))
        return false;
    struct tc_text digits = {code.bytes + 1, code.length - 1};
    const char *unit = digits.length ? memchr(digits.bytes, '[', digits.length) : NULL;
    if (unit && strchr("Mm", kind))
        digits.length = (size_t)(unit - digits.bytes);
    uint32_t size;
    if (!read_size(digits, kind == 'U' ? 1u << 27 : 1u << 29, &size))
        return false;
    bool text = strchr("SUV", kind) != NULL;
    if ((!text && kind != 'O' && (size == 0 || size > 32)) || (kind == 'O' && size > 8))
        return false;
    dtype->value = (uint8_t)kind;
    dtype->count = kind == 'U' ? size * 4 : size;
    return true;
}

static bool is_checked(const struct pickle_node *dtype) {
    return pickle_calls(dtype, PICKLE_NUMPY_DTYPE) && dtype->value;
}

bool pickle_is_number_dtype(const struct pickle_node *dtype) {
    return is_checked(dtype) && dtype->value != 'O';
}

static bool is_integer(const struct pickle_node *node, int64_t low, int64_t high) {
    return pickle_is(node, PICKLE_INT) && node->integer >= low && node->integer <= high;
}

/* Checks {name: (dtype, offset[, title])}: each field lies inside the record. */
static bool check_fields(const struct pickle_node *dtype, const struct pickle_node *fields,
                         bool *objects) {
    if (!pickle_is(fields, PICKLE_DICT) || fields->count > 2 * MAX_FIELDS)
        return false;
    for (size_t i = 0; i + 1 < fields->count; i += 2) {
        const struct pickle_node *field = fields->items[i + 1];
        const struct pickle_node *type = pickle_item(field, 0);
        const struct pickle_node *offset = pickle_item(field, 1);
        if (!pickle_is(fields->items[i], PICKLE_TEXT) || !is_checked(type) ||
            field->kind != PICKLE_TUPLE || field->count > 3 ||
            !is_integer(offset, 0, dtype->count) ||
            type->count > dtype->count - (uint32_t)offset->integer)
            return false;
        *objects |= type->value == 'O';
    }
    return true;
}

/* Checks (dtype, shape) of an element that is an array: together they have its size. */
static bool check_part(const struct pickle_node *dtype, const struct pickle_node *part) {
    const struct pickle_node *type = pickle_item(part, 0);
    const struct pickle_node *shape = pickle_item(part, 1);
    uint64_t size = type ? type->count : 0;
    if (!pickle_is(part, PICKLE_TUPLE) || part->count != 2 || !pickle_is_number_dtype(type) ||
        !pickle_is_sizes(shape))
        return false;
    for (size_t i = 0; i < shape->count; i++)
        if (shape->items[i]->integer < 0 ||
            !tc_mul(size, (uint64_t)shape->items[i]->integer, &size))
            return false;
    return size == dtype->count;
}

/* Checks the unit of a time, (None or {}, (unit, number, …)). Without one, numpy reads
 * a unit all the same, from memory that holds none. */
static bool check_unit(const struct pickle_node *metadata) {
    const struct pickle_node *unit = pickle_item(metadata, 1);
    bool ok = metadata->kind == PICKLE_TUPLE && metadata->count == 2 &&
              pickle_is(unit, PICKLE_TUPLE) && unit->count >= 3 && unit->count <= 5 &&
              (metadata->items[0]->kind == PICKLE_NONE || metadata->items[0]->kind == PICKLE_DICT);
    ok = ok && (unit->items[0]->kind == PICKLE_TEXT || unit->items[0]->kind == PICKLE_BYTES);
    for (size_t i = 1; ok && i < unit->count; i++)
        ok = is_integer(unit->items[i], 1, INT32_MAX) || unit->items[i]->kind == PICKLE_NONE;
    return ok;
}

/* The ninth item of a state. Times have their unit there; any other dtype has
 * none, or a dict that numpy only keeps. */
static bool check_metadata(const struct pickle_node *dtype, const struct pickle_node *metadata) {
    if (dtype->value == 'M' || dtype->value == 'm')
        return metadata && check_unit(metadata);
    return !metadata || metadata->kind == PICKLE_NONE || metadata->kind == PICKLE_DICT;
}

static bool is_order(const struct pickle_node *order) {
    return (pickle_is(order, PICKLE_TEXT) || pickle_is(order, PICKLE_BYTES)) &&
           order->length == 1 && order->text && memchr("<>|=", order->text[0], 4);
}

/* Checks the sizes in the state: those of the dtype, or -1 where its kind implies them. */
static bool check_sizes(const struct pickle_node *dtype, const struct pickle_node *state) {
    bool own = strchr("SUV", dtype->value) != NULL;
    return own ? is_integer(state->items[5], dtype->count, dtype->count) &&
                     is_integer(state->items[6], 1, 64)
               : is_integer(state->items[5], -1, -1) && is_integer(state->items[6], -1, -1);
}

const char *pickle_check_dtype(struct pickle *pickle, struct pickle_node *dtype,
                               const struct pickle_node *state) {
    static const char wrong[] = "a dtype has a state that numpy does not write";
    size_t count = pickle_is(state, PICKLE_TUPLE) ? state->count : 0;
    if (!is_checked(dtype) || dtype->frozen || (count != 8 && count != 9))
        return wrong;
    dtype->frozen = true;
    const struct pickle_node *part = state->items[2];
    const struct pickle_node *names = state->items[3];
    const struct pickle_node *fields = state->items[4];
    bool objects = dtype->value == 'O';
    bool ok = is_integer(state->items[0], count == 8 ? 3 : 4, count == 8 ? 3 : 4) &&
              is_order(state->items[1]) && check_sizes(dtype, state);
    if (fields->kind == PICKLE_DICT && !pickle_charge_items(pickle, fields->count))
        return wrong;
    if (fields->kind != PICKLE_NONE)
        ok = ok && dtype->value == 'V' && pickle_is(names, PICKLE_TUPLE) &&
             check_fields(dtype, fields, &objects);
    else
        ok = ok && names->kind == PICKLE_NONE;
    if (part->kind != PICKLE_NONE)
        ok = ok && dtype->value == 'V' && fields->kind == PICKLE_NONE && check_part(dtype, part);
    const struct pickle_node *flags = state->items[7];
    if (dtype->value == 'O')
        ok = ok && is_integer(flags, FLAGS_OF_OBJECT, FLAGS_OF_OBJECT);
    else
        ok = ok && is_integer(flags, 0, 255) &&
             (flags->integer & ~(int64_t)FLAGS_HARMLESS) == (objects ? FLAGS_OF_OBJECTS : 0);
    ok = ok && check_metadata(dtype, count == 9 ? state->items[8] : NULL);
    dtype->value = !ok ? 0 : objects ? 'O' : dtype->value;
    return ok ? NULL : wrong;
}

/* Computes an array's number of elements and bytes; false where they overflow. */
static bool measure(const struct pickle_node *dtype, const struct pickle_node *shape,
                    uint64_t *elements, uint64_t *size) {
    *elements = 1;
    for (size_t i = 0; i < shape->count; i++)
        if (shape->items[i]->integer < 0 ||
            !tc_mul(*elements, (uint64_t)shape->items[i]->integer, elements))
            return false;
    return tc_mul(*elements, dtype->count, size);
}

static bool is_bytes(const struct pickle_node *node) {
    return node->kind == PICKLE_BYTES || (node->kind == PICKLE_TEXT && node->raw);
}

const char *pickle_check_array(const struct pickle_node *state) {
    static const char wrong[] = "an array has a state that numpy does not write";
    if (!pickle_is(state, PICKLE_TUPLE) || state->count != 5)
        return wrong;
    const struct pickle_node *shape = state->items[1];
    const struct pickle_node *dtype = state->items[2];
    const struct pickle_node *fortran = state->items[3];
    const struct pickle_node *data = state->items[4];
    uint64_t elements, size;
    if (!is_integer(state->items[0], 0, 2) || !pickle_is_sizes(shape) || !is_checked(dtype) ||
        (fortran->kind != PICKLE_BOOL && fortran->kind != PICKLE_INT) ||
        !measure(dtype, shape, &elements, &size))
        return wrong;
    /* numpy reads as many objects as the shape says, even past the list's end. */
    if (dtype->value == 'O')
        return data->kind == PICKLE_LIST && data->count == elements ? NULL : wrong;
    return is_bytes(data) && data->length == size ? NULL : wrong;
}

/* joblib */

static const struct pickle_node *find_key(const struct pickle_node *dict, const char *key) {
    const struct pickle_node *found = NULL;
    for (size_t i = 0; pickle_is(dict, PICKLE_DICT) && i + 1 < dict->count; i += 2)
        if (dict->items[i]->kind == PICKLE_TEXT &&
            tc_text_equal(pickle_text(dict->items[i]), tc_text_of(key)))
            found = dict->items[i + 1];
    return found;
}

#define MAX_JOBLIB_KEYS 8u
/* How deep arrays of objects may be nested; each has a machine of its own. */
#define MAX_NESTED 8u

const char *pickle_check_joblib(struct pickle *pickle, const struct pickle_node *state) {
    static const char wrong[] = "an array of joblib's has a state that joblib does not write";
    (void)pickle;
    if (!pickle_is(state, PICKLE_DICT) || state->count > 2 * MAX_JOBLIB_KEYS)
        return wrong;
    const struct pickle_node *class = find_key(state, "subclass");
    const struct pickle_node *order = find_key(state, "order");
    bool ok = pickle_is(class, PICKLE_GLOBAL) && class->global == PICKLE_NUMPY_ARRAY &&
              pickle_is_sizes(find_key(state, "shape")) && is_checked(find_key(state, "dtype")) &&
              pickle_is(order, PICKLE_TEXT);
    for (size_t i = 0; ok && i < state->count; i += 2)
        ok = pickle_is_attribute(state->items[i]);
    return ok ? NULL : wrong;
}

/* The bytes of joblib's array, whose dtype only a scan has checked. */
static bool joblib_size(const struct pickle_node *state, uint64_t *size) {
    const struct pickle_node *dtype = find_key(state, "dtype");
    const struct pickle_node *shape = find_key(state, "shape");
    struct pickle_node probe = {0};
    if (!pickle_calls(dtype, PICKLE_NUMPY_DTYPE) || !pickle_is_sizes(shape) ||
        !pickle_numpy_descr(&probe, pickle_item(dtype->arguments, 0)) || probe.value == 'O')
        return false;
    uint64_t elements;
    return measure(&probe, shape, &elements, size);
}

/* Runs the pickle of an array of objects, on a machine of its own. */
static bool take_objects(struct pickle *pickle, struct pickle_node *object) {
    struct pickle inner = *pickle;
    if (pickle->depth_of_arrays == MAX_NESTED)
        return pickle_over_limit(pickle, "arrays in one another");
    inner.depth_of_arrays++;
    inner.budget = pickle->budget ? pickle->budget : &pickle->own_budget;
    inner.window = NULL;
    inner.window_size = 0;
    inner.stack = NULL;
    inner.marks = NULL;
    inner.memo = NULL;
    inner.stack_capacity = inner.mark_capacity = 0;
    inner.charged = 0;
    bool ok = pickle_load(&inner, &object->content);
    pickle->at = inner.at;
    pickle->steps = inner.steps;
    pickle->named = inner.named;
    pickle->names = inner.names;
    pickle->tolerated = inner.tolerated;
    pickle_release(&inner);
    return ok;
}

bool pickle_take_array(struct pickle *pickle, struct pickle_node *object) {
    uint64_t size;
    uint64_t padding = 0;
    if (!pickle->arrays) {
        pickle->array_steps = pickle->steps - pickle->first_step;
        pickle->array_names = pickle->names;
    }
    pickle->arrays = true;
    if (pickle->plain)
        return true;
    const struct pickle_node *dtype = find_key(pickle_state(object), "dtype");
    if (pickle->mode == PICKLE_SCAN && is_checked(dtype) && dtype->value == 'O')
        return take_objects(pickle, object);
    if (!joblib_size(pickle_state(object), &size))
        return pickle->mode == PICKLE_SCAN ||
               pickle_unsupported(pickle, "joblib",
                                  "an array of joblib's that holds no plain numbers");
    /* joblib reads the array from behind the frame. */
    if (pickle->at < pickle->frame_end) {
        if (!pickle_tolerate(pickle, "an array of joblib's inside of a frame"))
            return false;
        pickle->at = pickle->frame_end;
    }
    pickle->frame_end = 0;
    const struct pickle_node *alignment =
        find_key(pickle_state(object), "numpy_array_alignment_bytes");
    if (alignment && alignment->kind != PICKLE_NONE &&
        (!pickle_take_number(pickle, 1, &padding) || !pickle_consume(pickle, padding, false)))
        return false;
    pickle->at += padding;
    struct pickle_node *bytes = pickle_node(pickle, PICKLE_BYTES);
    if (!bytes || !pickle_consume(pickle, size, false))
        return false;
    bytes->length = size;
    bytes->offset = pickle->at;
    bytes->text = pickle->memory ? (const char *)pickle->memory + pickle->at : NULL;
    object->content = bytes;
    pickle->at += size;
    return true;
}
