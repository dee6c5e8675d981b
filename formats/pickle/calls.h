/* What a known function may be called with, which states a known class may be
 * given, and what a call gives. For the parts of the pickle machine itself. */
#ifndef TCONV_FORMATS_PICKLE_CALLS_H
#define TCONV_FORMATS_PICKLE_CALLS_H

#include "formats/pickle/pickle.h"

/* `value` of a dict: whether BUILD may give it a state, and whether its items are
 * attributes too. */
enum { PICKLE_DICT_PLAIN, PICKLE_DICT_WITH_STATE, PICKLE_DICT_OF_ATTRIBUTES };

/* Whether the name is a class, of which NEWOBJ may make an object. */
bool pickle_is_class(const struct pickle_node *global);
/* Whether the key is text that may be an attribute's name. Names such as
 * __setstate__, which Python's machine would look up and call, may not. */
bool pickle_is_attribute(const struct pickle_node *key);

/* shapes.c: what is wrong with the arguments of a call or with a state; NULL where
 * they are as honest files have them. NULL with pickle->error filled on failure. */
const char *pickle_check_arguments(struct pickle *pickle, const struct pickle_node *callable,
                                   struct pickle_node *arguments);
const char *pickle_check_state(struct pickle *pickle, struct pickle_node *node,
                               const struct pickle_node *state);
/* Whether it is a persistent id of a storage, or where ids are keys, a key. */
bool pickle_is_id(const struct pickle *pickle, const struct pickle_node *id);
/* Whether it is a tuple or list of integers, at most as many as a tensor may have
 * dimensions. */
bool pickle_is_sizes(const struct pickle_node *node);

/* numpy.c: numpy's dtypes and arrays, and the arrays in files of joblib. The first
 * notes a dtype's type string ("<f4"), false where it is none; the others are as
 * those of shapes.c. */
bool pickle_numpy_descr(struct pickle_node *dtype, const struct pickle_node *descr);
const char *pickle_check_dtype(struct pickle *pickle, struct pickle_node *dtype,
                               const struct pickle_node *state);
const char *pickle_check_array(const struct pickle_node *state);
const char *pickle_check_joblib(struct pickle *pickle, const struct pickle_node *state);
/* Whether it is a dtype that was checked and holds no Python objects. */
bool pickle_is_number_dtype(const struct pickle_node *dtype);
/* Takes the bytes of a joblib array, which follow its wrapper in the file: they
 * become the wrapper's content. */
bool pickle_take_array(struct pickle *pickle, struct pickle_node *object);

#endif
