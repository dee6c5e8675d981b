/* What calls and states of known names may look like, and what calls give. */
#ifndef TCONV_FORMATS_PICKLE_CALLS_H
#define TCONV_FORMATS_PICKLE_CALLS_H

#include "formats/pickle/pickle.h"

/* `value` of a dict: what a state may be for. */
enum { PICKLE_DICT_PLAIN, PICKLE_DICT_WITH_STATE, PICKLE_DICT_OF_ATTRIBUTES };

/* Whether NEWOBJ may make objects of it. */
bool pickle_is_class(const struct pickle_node *global);
/* Text that can be the name of an attribute: none that Python's machine would
 * look for in order to call it. */
bool pickle_is_attribute(const struct pickle_node *key);

/* shapes.c. What is wrong about arguments or a state, for a scan; NULL
 * where they are as honest files have them. Fails by pickle->error. */
const char *pickle_check_arguments(struct pickle *pickle, const struct pickle_node *callable,
                                   struct pickle_node *arguments);
const char *pickle_check_state(struct pickle *pickle, struct pickle_node *node,
                               const struct pickle_node *state);
/* A storage's persistent id, or where ids are keys, a key. */
bool pickle_is_id(const struct pickle *pickle, const struct pickle_node *id);
/* Tuples or lists of numbers, as many as a tensor may have dimensions. */
bool pickle_is_sizes(const struct pickle_node *node);

/* numpy.c: dtypes, arrays, and arrays behind joblib's wrappers. */
bool pickle_numpy_descr(struct pickle_node *dtype, const struct pickle_node *descr);
const char *pickle_check_dtype(struct pickle *pickle, struct pickle_node *dtype,
                               const struct pickle_node *state);
const char *pickle_check_array(const struct pickle_node *state);
const char *pickle_check_joblib(struct pickle *pickle, const struct pickle_node *state);
/* A dtype that was checked and holds no objects. */
bool pickle_is_number_dtype(const struct pickle_node *dtype);
/* The bytes of a joblib array, which follow its wrapper: they become its content. */
bool pickle_take_array(struct pickle *pickle, struct pickle_node *object);

#endif
