/*
 * The names that a pickle of tensors may use, and what each stands for. Any
 * other name refuses the file. Nothing here is ever imported or called: what
 * Python would make by a call is made here as data, or noted as a call for
 * torch_tree.c to understand.
 */
#include <string.h>

#include "formats/pickle.h"

struct known {
    const char *module;
    const char *name;
    enum pickle_global global;
    unsigned value;
};

/* Python 2 calls this module __builtin__. */
static const struct known builtins[] = {
    {"builtins", "set", PICKLE_SET_CLASS, 0},
    {"builtins", "frozenset", PICKLE_SET_CLASS, 0},
    {"builtins", "list", PICKLE_LIST_CLASS, 0},
    {"builtins", "dict", PICKLE_ORDERED_DICT, 0},
    {"builtins", "bytearray", PICKLE_BYTEARRAY, 0},
    {"builtins", "complex", PICKLE_COMPLEX, 0},
    {"builtins", "int", PICKLE_INT_CLASS, 0},
    /* As protocols 0 to 2 have them: empty bytes, and the class int. */
    {"builtins", "bytes", PICKLE_BYTEARRAY, 0},
    {"builtins", "long", PICKLE_INT_CLASS, 0},
};

static const struct known known[] = {
    {"collections", "OrderedDict", PICKLE_ORDERED_DICT, 0},
    {"collections", "Counter", PICKLE_ORDERED_DICT, 0},
    {"collections", "defaultdict", PICKLE_DEFAULT_DICT, 0},
    {"_codecs", "encode", PICKLE_ENCODE, 0},
    {"torch._utils", "_rebuild_tensor", PICKLE_REBUILD, 0},
    {"torch._utils", "_rebuild_tensor_v2", PICKLE_REBUILD_V2, 0},
    {"torch._utils", "_rebuild_tensor_v3", PICKLE_REBUILD_V3, 0},
    {"torch._utils", "_rebuild_parameter", PICKLE_REBUILD_PARAMETER, 0},
    {"torch._utils", "_rebuild_parameter_with_state", PICKLE_REBUILD_PARAMETER, 0},
    {"torch._utils", "_rebuild_sparse_tensor", PICKLE_REBUILD_SPARSE, 0},
    {"torch._utils", "_rebuild_sparse_csr_tensor", PICKLE_REBUILD_SPARSE, 0},
    {"torch._utils", "_rebuild_qtensor", PICKLE_REBUILD_QUANTIZED, 0},
    {"torch._tensor", "_rebuild_from_type_v2", PICKLE_REBUILD_FROM_TYPE, 0},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch._utils", "_rebuild_nested_tensor", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch._utils", "_rebuild_wrapper_subclass", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch._utils", "_rebuild_xla_tensor", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch.nested._internal.nested_tensor", "_rebuild_njt", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch.nested._internal.nested_tensor", "NestedTensor", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch.distributed.tensor", "DTensor", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch.distributed._tensor.api", "DTensor", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch.distributed._tensor", "DTensor", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"torch", "Tensor", PICKLE_TENSOR_CLASS, 0},
    {"torch.nn.parameter", "Parameter", PICKLE_TENSOR_CLASS, 0},
    {"torch.nn.parameter", "Buffer", PICKLE_TENSOR_CLASS, 0},
    {"torch", "Size", PICKLE_SIZE, 0},
    {"torch", "device", PICKLE_DEVICE, 0},
    {"torch.serialization", "_get_layout", PICKLE_LAYOUT, 0},
    {"torch", "per_tensor_affine", PICKLE_QSCHEME, 0},
    {"torch", "per_tensor_symmetric", PICKLE_QSCHEME, 0},
    {"torch", "per_channel_affine", PICKLE_QSCHEME, 1},
    {"torch", "per_channel_symmetric", PICKLE_QSCHEME, 1},
    {"torch", "per_channel_affine_float_qparams", PICKLE_QSCHEME, 1},
    {"numpy.core.multiarray", "scalar", PICKLE_NUMPY_SCALAR, 0},
    {"numpy._core.multiarray", "scalar", PICKLE_NUMPY_SCALAR, 0},
    {"numpy.core.multiarray", "_reconstruct", PICKLE_NUMPY_RECONSTRUCT, 0},
    {"numpy._core.multiarray", "_reconstruct", PICKLE_NUMPY_RECONSTRUCT, 0},
    {"numpy.core.numeric", "_frombuffer", PICKLE_NUMPY_FROMBUFFER, 0},
    {"numpy._core.numeric", "_frombuffer", PICKLE_NUMPY_FROMBUFFER, 0},
    {"numpy", "dtype", PICKLE_NUMPY_DTYPE, 0},
    {"numpy", "ndarray", PICKLE_NUMPY_ARRAY, 0},
    {"torch.storage", "UntypedStorage", PICKLE_STORAGE_CLASS, TC_NONE},
    {"torch", "UntypedStorage", PICKLE_STORAGE_CLASS, TC_NONE},
};

/* In torch, and in torch.cuda, as files of GPU tensors once named them. */
static const struct known storages[] = {
    {"torch", "FloatStorage", PICKLE_STORAGE_CLASS, TC_F32},
    {"torch", "DoubleStorage", PICKLE_STORAGE_CLASS, TC_F64},
    {"torch", "HalfStorage", PICKLE_STORAGE_CLASS, TC_F16},
    {"torch", "BFloat16Storage", PICKLE_STORAGE_CLASS, TC_BF16},
    {"torch", "LongStorage", PICKLE_STORAGE_CLASS, TC_I64},
    {"torch", "IntStorage", PICKLE_STORAGE_CLASS, TC_I32},
    {"torch", "ShortStorage", PICKLE_STORAGE_CLASS, TC_I16},
    {"torch", "CharStorage", PICKLE_STORAGE_CLASS, TC_I8},
    {"torch", "ByteStorage", PICKLE_STORAGE_CLASS, TC_U8},
    {"torch", "BoolStorage", PICKLE_STORAGE_CLASS, TC_BOOL},
    {"torch", "ComplexFloatStorage", PICKLE_STORAGE_CLASS, TC_C64},
    {"torch", "ComplexDoubleStorage", PICKLE_STORAGE_CLASS, TC_C128},
    {"torch", "QInt8Storage", PICKLE_STORAGE_CLASS, TC_I8},
    {"torch", "QUInt8Storage", PICKLE_STORAGE_CLASS, TC_U8},
    {"torch", "QInt32Storage", PICKLE_STORAGE_CLASS, TC_I32},
};

/* As files of torch 0.1 name them, beside a storage that says it all. */
static const struct known tensors[] = {
    {"torch", "FloatTensor", PICKLE_TENSOR_CLASS, 0},
    {"torch", "DoubleTensor", PICKLE_TENSOR_CLASS, 0},
    {"torch", "HalfTensor", PICKLE_TENSOR_CLASS, 0},
    {"torch", "LongTensor", PICKLE_TENSOR_CLASS, 0},
    {"torch", "IntTensor", PICKLE_TENSOR_CLASS, 0},
    {"torch", "ShortTensor", PICKLE_TENSOR_CLASS, 0},
    {"torch", "CharTensor", PICKLE_TENSOR_CLASS, 0},
    {"torch", "ByteTensor", PICKLE_TENSOR_CLASS, 0},
    {"torch", "BoolTensor", PICKLE_TENSOR_CLASS, 0},
};

static const struct known dtypes[] = {
    {"torch", "float32", PICKLE_DTYPE, TC_F32},
    {"torch", "float64", PICKLE_DTYPE, TC_F64},
    {"torch", "float16", PICKLE_DTYPE, TC_F16},
    {"torch", "bfloat16", PICKLE_DTYPE, TC_BF16},
    {"torch", "int64", PICKLE_DTYPE, TC_I64},
    {"torch", "int32", PICKLE_DTYPE, TC_I32},
    {"torch", "int16", PICKLE_DTYPE, TC_I16},
    {"torch", "int8", PICKLE_DTYPE, TC_I8},
    {"torch", "uint8", PICKLE_DTYPE, TC_U8},
    {"torch", "uint16", PICKLE_DTYPE, TC_U16},
    {"torch", "uint32", PICKLE_DTYPE, TC_U32},
    {"torch", "uint64", PICKLE_DTYPE, TC_U64},
    {"torch", "bool", PICKLE_DTYPE, TC_BOOL},
    {"torch", "complex32", PICKLE_DTYPE, TC_C32},
    {"torch", "complex64", PICKLE_DTYPE, TC_C64},
    {"torch", "complex128", PICKLE_DTYPE, TC_C128},
    {"torch", "float8_e4m3fn", PICKLE_DTYPE, TC_F8_E4M3},
    {"torch", "float8_e5m2", PICKLE_DTYPE, TC_F8_E5M2},
    {"torch", "float8_e4m3fnuz", PICKLE_DTYPE, TC_F8_E4M3FNUZ},
    {"torch", "float8_e5m2fnuz", PICKLE_DTYPE, TC_F8_E5M2FNUZ},
    {"torch", "float8_e8m0fnu", PICKLE_DTYPE, TC_F8_E8M0},
    {"torch", "float4_e2m1fn_x2", PICKLE_DTYPE, TC_F4},
    {"torch", "qint8", PICKLE_DTYPE, TC_I8},
    {"torch", "quint8", PICKLE_DTYPE, TC_U8},
    {"torch", "qint32", PICKLE_DTYPE, TC_I32},
};

/* Only in TorchScript archives. */
static const struct known script[] = {
    {"torch.jit._pickle", "build_intlist", PICKLE_SCRIPT_LIST, 0},
    {"torch.jit._pickle", "build_tensorlist", PICKLE_SCRIPT_LIST, 0},
    {"torch.jit._pickle", "build_doublelist", PICKLE_SCRIPT_LIST, 0},
    {"torch.jit._pickle", "build_boollist", PICKLE_SCRIPT_LIST, 0},
    {"torch.jit._pickle", "restore_type_tag", PICKLE_SCRIPT_TAG, 0},
};

static const struct known script_class = {"__torch__", "", PICKLE_SCRIPT_CLASS, 0};

static const struct known *find(const struct known *list, size_t count, struct tc_text module,
                                struct tc_text name) {
    for (size_t i = 0; i < count && name.length; i++)
        if (name.bytes[0] == list[i].name[0] && tc_text_equal(name, tc_text_of(list[i].name)) &&
            tc_text_equal(module, tc_text_of(list[i].module)))
            return &list[i];
    return NULL;
}

#define FIND(list, module, name) find(list, sizeof(list) / sizeof *(list), module, name)

static const struct known *look_up(const struct pickle *pickle, struct tc_text module,
                                   struct tc_text name) {
    const struct known *found = FIND(known, module, name);
    if (!found && tc_text_equal(module, TC_TEXT("__builtin__")))
        module = TC_TEXT("builtins");
    if (!found)
        found = FIND(builtins, module, name);
    if (!found)
        found = FIND(dtypes, module, name);
    if (!found && tc_text_equal(module, TC_TEXT("torch.cuda")))
        module = TC_TEXT("torch");
    if (!found)
        found = FIND(storages, module, name);
    if (!found)
        found = FIND(tensors, module, name);
    if (!found && pickle->script)
        found = FIND(script, module, name);
    bool own = tc_text_equal(module, TC_TEXT("__torch__")) ||
               tc_text_starts(module, TC_TEXT("__torch__."));
    return !found && pickle->script && own ? &script_class : found;
}

/* Refuses a name that is on no list. */
static bool refuse(struct pickle *pickle, const struct pickle_node *global) {
    pickle_unsafe(pickle,
                  "the pickle names \"%.*s\", which is %snot on the list of what tensor files need",
                  tc_text_shown(pickle_text(global), 300), global->text,
                  pickle_is_dangerous(pickle_text(global)) ? "dangerous and " : "");
    pickle->error->code = "pickle-global";
    return tc_error_hint(pickle->error,
                         "nothing was run; tconv scan shows all it names; --pickle=inert takes "
                         "tensors out of a whole pickled module");
}

struct pickle_node *pickle_find_global(struct pickle *pickle, struct tc_text module,
                                       struct tc_text name) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_GLOBAL);
    char *text =
        node ? tc_arena_alloc(pickle->arena, module.length + name.length + 2, pickle->error) : NULL;
    if (!text)
        return NULL;
    memcpy(text, module.bytes, module.length);
    text[module.length] = '.';
    memcpy(text + module.length + 1, name.bytes, name.length);
    node->text = text;
    node->length = module.length + 1 + name.length;
    const struct known *found = look_up(pickle, module, name);
    if (found) {
        node->global = (uint8_t)found->global;
        node->value = (uint8_t)found->value;
    }
    pickle->named |= pickle_is_importable(pickle_text(node));
    if (pickle->on_global && !pickle->on_global(pickle->context, node, pickle->error))
        return NULL;
    if (!found && pickle->mode == PICKLE_STRICT) {
        refuse(pickle, node);
        return NULL;
    }
    return node;
}

/* What calls give */

static struct pickle_node *bad_call(struct pickle *pickle, const struct pickle_node *callable) {
    if (pickle->mode == PICKLE_SCAN)
        return pickle_misuse(pickle, pickle_text(callable), "it is called with odd arguments")
                   ? pickle_node(pickle, PICKLE_OBJECT)
                   : NULL;
    pickle_bad(pickle, "%.*s is called with arguments that it does not take",
               tc_text_shown(pickle_text(callable), 200), callable->text);
    return NULL;
}

/* OrderedDict(), OrderedDict([[key, value], …]), Counter({…}). */
static struct pickle_node *make_dict(struct pickle *pickle, const struct pickle_node *callable,
                                     const struct pickle_node *from) {
    struct pickle_node *dict = pickle_node(pickle, PICKLE_DICT);
    if (!dict)
        return NULL;
    dict->value = tc_text_starts(pickle_text(callable), TC_TEXT("collections."));
    if (!from)
        return dict;
    if (from->kind == PICKLE_DICT) {
        return pickle_add_all(pickle, dict, from->items, from->count) ? dict : NULL;
    }
    if (from->kind != PICKLE_LIST && from->kind != PICKLE_TUPLE)
        return bad_call(pickle, callable);
    for (size_t i = 0; i < from->count; i++) {
        const struct pickle_node *pair = from->items[i];
        if (!pickle_item(pair, 1) || pair->count != 2)
            return bad_call(pickle, callable);
        if (!pickle_add(pickle, dict, pair->items[0]) || !pickle_add(pickle, dict, pair->items[1]))
            return NULL;
    }
    return dict;
}

static struct pickle_node *make_sequence(struct pickle *pickle, const struct pickle_node *callable,
                                         const struct pickle_node *from, enum pickle_kind kind) {
    struct pickle_node *made = pickle_node(pickle, kind);
    if (!made || !from)
        return made;
    if (from->kind != PICKLE_LIST && from->kind != PICKLE_TUPLE && from->kind != PICKLE_SET)
        return bad_call(pickle, callable);
    return pickle_add_all(pickle, made, from->items, from->count) ? made : NULL;
}

static bool is_latin1(const struct pickle_node *codec) {
    return pickle_is(codec, PICKLE_TEXT) && (tc_text_equal(pickle_text(codec), TC_TEXT("latin1")) ||
                                             tc_text_equal(pickle_text(codec), TC_TEXT("latin-1")));
}

/* _codecs.encode("…", "latin1"): how protocol 2 has bytes. */
static struct pickle_node *make_bytes(struct pickle *pickle, const struct pickle_node *callable,
                                      const struct pickle_node *arguments) {
    const struct pickle_node *text = pickle_item(arguments, 0);
    if (arguments->count != 2 || !pickle_is(text, PICKLE_TEXT) ||
        !is_latin1(pickle_item(arguments, 1)))
        return bad_call(pickle, callable);
    struct pickle_node *bytes = pickle_node(pickle, PICKLE_BYTES);
    char *made = bytes ? tc_arena_alloc(pickle->arena, text->length + 1, pickle->error) : NULL;
    if (!made)
        return NULL;
    for (size_t at = 0; at < text->length;) {
        uint32_t c = 0;
        at += tc_utf8_length(text->text + at, text->length - at, &c);
        if (c > 0xFF)
            return bad_call(pickle, callable);
        made[bytes->length++] = (char)c;
    }
    bytes->text = made;
    return bytes;
}

/* bytearray(), bytearray(b"…"), bytearray("…", "latin-1"). */
static struct pickle_node *make_bytearray(struct pickle *pickle, const struct pickle_node *callable,
                                          const struct pickle_node *arguments) {
    struct pickle_node *from = pickle_item(arguments, 0);
    if (!from) {
        struct pickle_node *bytes = pickle_node(pickle, PICKLE_BYTES);
        if (bytes)
            bytes->text = "";
        return bytes;
    }
    if (arguments->count == 1 && from->kind == PICKLE_BYTES)
        return from;
    return make_bytes(pickle, callable, arguments);
}

static bool all_integers(const struct pickle_node *sequence) {
    for (size_t i = 0; i < sequence->count; i++)
        if (sequence->items[i]->kind != PICKLE_INT)
            return false;
    return true;
}

/* A call that is left for whoever reads the result. */
static struct pickle_node *note_call(struct pickle *pickle, enum pickle_kind kind,
                                     struct pickle_node *callable, struct pickle_node *arguments) {
    struct pickle_node *node = pickle_node(pickle, kind);
    if (node) {
        node->callable = callable;
        node->arguments = arguments;
    }
    return node;
}

static struct pickle_node *refuse_call(struct pickle *pickle, struct pickle_node *callable,
                                       struct pickle_node *arguments) {
    if (pickle->mode != PICKLE_STRICT)
        return note_call(pickle, PICKLE_OBJECT, callable, arguments);
    if (callable->global == PICKLE_KNOWN_UNSUPPORTED) {
        pickle_unsupported(pickle, "tensor-kind",
                           "a kind of tensor that is not supported: it is made by %.*s",
                           tc_text_shown(pickle_text(callable), 200), callable->text);
    } else {
        pickle_unsafe(pickle, "the pickle calls %.*s, which is nothing to call",
                      tc_text_shown(pickle_text(callable), 200), callable->text);
    }
    return NULL;
}

struct pickle_node *pickle_call(struct pickle *pickle, struct pickle_node *callable,
                                struct pickle_node *arguments) {
    if (callable->kind != PICKLE_GLOBAL || arguments->kind != PICKLE_TUPLE)
        return note_call(pickle, PICKLE_OBJECT, callable, arguments); /* only a scan gets here */
    struct pickle_node *first = pickle_item(arguments, 0);
    bool most_one = arguments->count <= 1;
    switch ((enum pickle_global)callable->global) {
    case PICKLE_ORDERED_DICT:
        return most_one ? make_dict(pickle, callable, first) : bad_call(pickle, callable);
    case PICKLE_DEFAULT_DICT:
        return !first || first->kind == PICKLE_GLOBAL || first->kind == PICKLE_NONE
                   ? make_dict(pickle, callable, pickle_item(arguments, 1))
                   : bad_call(pickle, callable);
    case PICKLE_SET_CLASS:
        return most_one ? make_sequence(pickle, callable, first, PICKLE_SET)
                        : bad_call(pickle, callable);
    case PICKLE_LIST_CLASS:
        return most_one ? make_sequence(pickle, callable, first, PICKLE_LIST)
                        : bad_call(pickle, callable);
    case PICKLE_SIZE:
        return arguments->count == 1 &&
                       (first->kind == PICKLE_TUPLE || first->kind == PICKLE_LIST) &&
                       all_integers(first)
                   ? make_sequence(pickle, callable, first, PICKLE_TUPLE)
                   : bad_call(pickle, callable);
    case PICKLE_SCRIPT_LIST:
        return arguments->count == 1 && first->kind == PICKLE_LIST ? first
                                                                   : bad_call(pickle, callable);
    case PICKLE_SCRIPT_TAG:
        return arguments->count == 2 ? first : bad_call(pickle, callable);
    case PICKLE_ENCODE:
        return make_bytes(pickle, callable, arguments);
    case PICKLE_BYTEARRAY:
        return make_bytearray(pickle, callable, arguments);
    case PICKLE_SCRIPT_CLASS:
        return note_call(pickle, PICKLE_OBJECT, callable, arguments);
    case PICKLE_COMPLEX:
    case PICKLE_DEVICE:
    case PICKLE_LAYOUT:
    case PICKLE_REBUILD:
    case PICKLE_REBUILD_V2:
    case PICKLE_REBUILD_V3:
    case PICKLE_REBUILD_PARAMETER:
    case PICKLE_REBUILD_SPARSE:
    case PICKLE_REBUILD_QUANTIZED:
    case PICKLE_REBUILD_FROM_TYPE:
    case PICKLE_NUMPY_SCALAR:
    case PICKLE_NUMPY_RECONSTRUCT:
    case PICKLE_NUMPY_FROMBUFFER:
    case PICKLE_NUMPY_DTYPE:
        return note_call(pickle, PICKLE_CALL, callable, arguments);
    default:
        return refuse_call(pickle, callable, arguments);
    }
}
