/*
 * joblib's dumps: a pickle in which an array is an object of the class
 * joblib.numpy_pickle.NumpyArrayWrapper, with the state
 *     {'subclass', 'shape', 'order': 'C' or 'F', 'dtype', 'allow_mmap',
 *      'numpy_array_alignment_bytes'}
 * The array's bytes follow the opcode (BUILD) that sets this state. Where the last key
 * is there and not None, one byte comes before them that says how much padding follows,
 * and the padding. For an array of objects a pickle follows instead.
 */
#include <string.h>

#include "core/base/checked.h"
#include "core/base/limits.h"
#include "core/io/input.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/torch/torch.h"

static bool bad(struct pickle *pickle, const char *what) {
    return pickle_bad(pickle, "joblib's array %s", what);
}

static bool skip_padding(struct pickle *pickle, const struct pickle_node *alignment) {
    unsigned char count;
    if (!pickle_is(alignment, PICKLE_INT))
        return true;
    if (pickle->at >= pickle->end)
        return bad(pickle, "is cut short");
    if (pickle->memory)
        count = pickle->memory[pickle->at];
    else if (!tc_input_read(pickle->input, pickle->at, &count, 1, pickle->error))
        return false;
    pickle->at++;
    if (count > pickle->end - pickle->at)
        return bad(pickle, "is cut short");
    pickle->at += count;
    return true;
}

/* A node for the array's bytes, which are not copied. */
static struct pickle_node *take_data(struct pickle *pickle, uint64_t nbytes) {
    struct pickle_node *data = pickle_node(pickle, PICKLE_BYTES);
    if (!data)
        return NULL;
    if (nbytes > pickle->end - pickle->at) {
        bad(pickle, "is cut short");
        return NULL;
    }
    data->raw = true;
    data->length = nbytes;
    data->text = pickle->memory ? (const char *)pickle->memory + pickle->at : NULL;
    data->offset = pickle->at;
    pickle->at += nbytes;
    return data;
}

/* Turns the wrapper into what a pickle of numpy itself has: a call of
 * _frombuffer(data, dtype, shape, order). */
static bool make_array(struct pickle *pickle, struct pickle_node *wrapper, struct pickle_node *data,
                       struct pickle_node *dtype, struct pickle_node *shape,
                       struct pickle_node *order) {
    struct pickle_node *function = pickle_node(pickle, PICKLE_GLOBAL);
    struct pickle_node *arguments = pickle_node(pickle, PICKLE_TUPLE);
    if (!function || !arguments || !pickle_add(pickle, arguments, data) ||
        !pickle_add(pickle, arguments, dtype) || !pickle_add(pickle, arguments, shape) ||
        !pickle_add(pickle, arguments, order))
        return false;
    function->global = PICKLE_NUMPY_FROMBUFFER;
    function->text = "numpy.frombuffer";
    function->length = strlen(function->text);
    wrapper->kind = PICKLE_CALL;
    wrapper->callable = function;
    wrapper->arguments = arguments;
    wrapper->state = NULL;
    return true;
}

/* Runs the pickle of an array of objects, to find its end, under the same rules as any
 * other pickle. */
static bool pass_objects(struct torch *torch, struct pickle *outer, struct pickle_node *wrapper) {
    struct pickle pickle;
    struct pickle_node *root = NULL;
    torch_pickle_init(torch, &pickle, outer->at, outer->end, outer->error);
    pickle.memory = outer->memory;
    pickle.input = outer->input;
    pickle.persistent = NULL;
    pickle.on_build = NULL;
    bool ok = pickle_load(&pickle, &root);
    outer->at = pickle.at;
    outer->steps += pickle.steps;
    pickle_release(&pickle);
    if (ok && pickle_is(root, PICKLE_CALL))
        pickle_become(wrapper, root);
    return ok;
}

bool torch_joblib_array(struct pickle *pickle, struct pickle_node *wrapper) {
    struct torch *torch = pickle->context;
    struct pickle_node *state = wrapper->state;
    struct pickle_node *dtype = torch_find_key(state, "dtype");
    struct pickle_node *shape = torch_find_key(state, "shape");
    struct pickle_node *order = torch_find_key(state, "order");
    uint64_t sizes[TC_MAX_RANK];
    uint64_t nbytes;
    unsigned rank;
    bool objects = false;
    if (pickle->at < pickle->frame_end)
        return bad(pickle, "stands inside of a frame");
    if (!shape || !dtype || !order || !torch_sizes(shape, sizes, &rank) || rank > TC_MAX_RANK ||
        !torch_numpy_item(dtype, &nbytes, &objects))
        return bad(pickle, "has no shape, dtype or order");
    if (objects)
        return pass_objects(torch, pickle, wrapper);
    for (unsigned i = 0; i < rank; i++)
        if (!tc_mul(nbytes, sizes[i], &nbytes))
            return bad(pickle, "has a size that overflows 64 bits");
    if (!skip_padding(pickle, torch_find_key(state, "numpy_array_alignment_bytes")))
        return false;
    struct pickle_node *data = take_data(pickle, nbytes);
    return data && make_array(pickle, wrapper, data, dtype, shape, order);
}
