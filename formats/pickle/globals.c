/*
 * The names that a pickle of tensors may use, and what each stands for. A file with any
 * other name is refused. Nothing here is ever imported or called: what Python would make
 * by a call, calls.c makes as data, or records as a call that torch/tensor.c interprets.
 * shapes.c has the arguments and states that each may have.
 */
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"
#include "formats/pickle/machine.h"
#include "formats/pickle/pickle.h"

struct known {
    const char *module;
    const char *name;
    enum pickle_global global;
    unsigned value;
};

/* Python 2 calls this module __builtin__. */
static const struct known builtins[] = {
    {"builtins", "set", PICKLE_SET_CLASS, 0},
    {"builtins", "frozenset", PICKLE_SET_CLASS, 1},
    {"builtins", "list", PICKLE_LIST_CLASS, 0},
    {"builtins", "dict", PICKLE_ORDERED_DICT, 0},
    {"builtins", "bytearray", PICKLE_BYTEARRAY, 1},
    {"builtins", "complex", PICKLE_COMPLEX, 0},
    /* Classes that are only named, as values. */
    {"builtins", "int", PICKLE_TYPE_CLASS, 0},
    {"builtins", "float", PICKLE_TYPE_CLASS, 0},
    {"builtins", "bool", PICKLE_TYPE_CLASS, 0},
    {"builtins", "str", PICKLE_TYPE_CLASS, 0},
    {"builtins", "tuple", PICKLE_TYPE_CLASS, 0},
    {"builtins", "object", PICKLE_TYPE_CLASS, 1},
    /* Names in pickles of protocols 0 to 2: bytes(), and classes of Python 2. */
    {"builtins", "bytes", PICKLE_BYTEARRAY, 0},
    {"builtins", "long", PICKLE_TYPE_CLASS, 0},
    {"builtins", "unicode", PICKLE_TYPE_CLASS, 0},
};

static const struct known known[] = {
    {"collections", "OrderedDict", PICKLE_ORDERED_DICT, 0},
    {"collections", "Counter", PICKLE_ORDERED_DICT, 1},
    {"collections", "defaultdict", PICKLE_DEFAULT_DICT, 0},
    {"collections", "deque", PICKLE_DEQUE, 0},
    {"_codecs", "encode", PICKLE_ENCODE, 0},
    {"copyreg", "_reconstructor", PICKLE_RECONSTRUCTOR, 0},
    {"copy_reg", "_reconstructor", PICKLE_RECONSTRUCTOR, 0},
    {"argparse", "Namespace", PICKLE_NAMESPACE, 0},
    {"types", "SimpleNamespace", PICKLE_NAMESPACE, 0},
    {"pathlib", "PosixPath", PICKLE_PATH, 0},
    {"pathlib", "PurePosixPath", PICKLE_PATH, 0},
    {"pathlib._local", "PosixPath", PICKLE_PATH, 0},
    {"pathlib._local", "PurePosixPath", PICKLE_PATH, 0},
    {"pathlib", "WindowsPath", PICKLE_PATH, 0},
    {"pathlib", "PureWindowsPath", PICKLE_PATH, 0},
    {"pathlib._local", "WindowsPath", PICKLE_PATH, 0},
    {"pathlib._local", "PureWindowsPath", PICKLE_PATH, 0},
    {"_io", "BytesIO", PICKLE_RECORD, 1},
    {"pytorch_lightning.utilities.parsing", "AttributeDict", PICKLE_ATTRIBUTE_DICT, 0},
    {"pytorch_lightning.core.saving", "AttributeDict", PICKLE_ATTRIBUTE_DICT, 0},
    {"lightning.pytorch.utilities.parsing", "AttributeDict", PICKLE_ATTRIBUTE_DICT, 0},
    {"lightning.fabric.utilities.data", "AttributeDict", PICKLE_ATTRIBUTE_DICT, 0},
    {"lightning_fabric.utilities.data", "AttributeDict", PICKLE_ATTRIBUTE_DICT, 0},
    {"lightning_lite.utilities.data", "AttributeDict", PICKLE_ATTRIBUTE_DICT, 0},
    {"torch.torch_version", "TorchVersion", PICKLE_TEXT_CLASS, 0},
    {"torch.storage", "_load_from_bytes", PICKLE_LOAD_FROM_BYTES, 0},
    {"joblib.numpy_pickle", "NumpyArrayWrapper", PICKLE_JOBLIB_ARRAY, 0},
    {"joblib.numpy_pickle", "NDArrayWrapper", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"joblib.numpy_pickle", "ZNDArrayWrapper", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"joblib.numpy_pickle_compat", "NDArrayWrapper", PICKLE_KNOWN_UNSUPPORTED, 0},
    {"joblib.numpy_pickle_compat", "ZNDArrayWrapper", PICKLE_KNOWN_UNSUPPORTED, 0},
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

#define DCP "torch.distributed.checkpoint.metadata"
#define DCP_OLD "torch.distributed._shard.sharded_tensor.metadata"
#define LOSS_SCALER "deepspeed.runtime.fp16.loss_scaler"

/* Names in the tables of distributed checkpoints, and in DeepSpeed's. */
static const struct known records[] = {
    {DCP, "Metadata", PICKLE_RECORD, 0},
    {DCP, "TensorStorageMetadata", PICKLE_RECORD, 0},
    {DCP, "BytesStorageMetadata", PICKLE_RECORD, 0},
    {DCP, "ChunkStorageMetadata", PICKLE_RECORD, 0},
    {DCP, "MetadataIndex", PICKLE_RECORD, 0},
    {DCP, "StorageMeta", PICKLE_RECORD, 0},
    {DCP, "TensorProperties", PICKLE_RECORD, 1},
    {DCP, "_MEM_FORMAT_ENCODING", PICKLE_ENUM, 0},
    {DCP_OLD, "TensorProperties", PICKLE_RECORD, 1},
    {DCP_OLD, "MEM_FORMAT_ENCODING", PICKLE_ENUM, 0},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", PICKLE_RECORD, 0},
    {LOSS_SCALER, "LossScaler", PICKLE_RECORD, 0},
    {LOSS_SCALER, "DynamicLossScaler", PICKLE_RECORD, 0},
    {"deepspeed.runtime.zero.config", "ZeroStageEnum", PICKLE_ENUM, 0},
    {"deepspeed.utils.tensor_fragment", "fragment_address", PICKLE_RECORD, 0},
};

/* Names in torch, which old files of GPU tensors have in torch.cuda. */
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

/* Names in files of torch 0.1, where the storage has the dtype too. */
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
    /* Only as values: no tensor of these can be read. */
    {"torch", "uint1", PICKLE_DTYPE, TC_NONE},
    {"torch", "uint2", PICKLE_DTYPE, TC_NONE},
    {"torch", "uint3", PICKLE_DTYPE, TC_NONE},
    {"torch", "uint4", PICKLE_DTYPE, TC_NONE},
    {"torch", "uint5", PICKLE_DTYPE, TC_NONE},
    {"torch", "uint6", PICKLE_DTYPE, TC_NONE},
    {"torch", "uint7", PICKLE_DTYPE, TC_NONE},
    {"torch", "int1", PICKLE_DTYPE, TC_NONE},
    {"torch", "int2", PICKLE_DTYPE, TC_NONE},
    {"torch", "int3", PICKLE_DTYPE, TC_NONE},
    {"torch", "int4", PICKLE_DTYPE, TC_NONE},
    {"torch", "int5", PICKLE_DTYPE, TC_NONE},
    {"torch", "int6", PICKLE_DTYPE, TC_NONE},
    {"torch", "int7", PICKLE_DTYPE, TC_NONE},
    {"torch", "bits8", PICKLE_DTYPE, TC_NONE},
    {"torch", "bits16", PICKLE_DTYPE, TC_NONE},
    {"torch", "bits1x8", PICKLE_DTYPE, TC_NONE},
    {"torch", "bits2x4", PICKLE_DTYPE, TC_NONE},
    {"torch", "bits4x2", PICKLE_DTYPE, TC_NONE},
    {"torch", "quint4x2", PICKLE_DTYPE, TC_NONE},
    {"torch", "quint2x4", PICKLE_DTYPE, TC_NONE},
    {"torch", "bcomplex32", PICKLE_DTYPE, TC_NONE},
};

/* Names that are known only in TorchScript archives. */
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
    if (!found)
        found = FIND(records, module, name);
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

/* Whether a name is known: some are only where the machine's caller can handle them
 * (pickle.nested, pickle.joblib). */
static bool is_wanted(const struct pickle *pickle, const struct known *found) {
    if (found->global == PICKLE_LOAD_FROM_BYTES)
        return pickle->nested;
    if (found->global == PICKLE_JOBLIB_ARRAY)
        return pickle->joblib || pickle->mode == PICKLE_SCAN;
    return true;
}

/* Fails because a name is on no list. */
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
    struct pickle_node *node = pickle_charge_text(pickle, module.length + name.length)
                                   ? pickle_node(pickle, PICKLE_GLOBAL)
                                   : NULL;
    char *text =
        node ? tc_arena_alloc(pickle->arena, module.length + name.length + 2, pickle->error) : NULL;
    if (!text)
        return NULL;
    if (module.length)
        memcpy(text, module.bytes, module.length);
    text[module.length] = '.';
    if (name.length)
        memcpy(text + module.length + 1, name.bytes, name.length);
    node->text = text;
    node->length = module.length + 1 + name.length;
    /* A longer text is not a name, but a scan would show all of it. */
    if (pickle->mode == PICKLE_SCAN && node->length > PICKLE_MAX_LINE)
        node->length = PICKLE_MAX_LINE;
    for (int i = 0; i < 3 && !tc_utf8_valid(pickle_text(node)); i++)
        node->length--; /* it was cut inside a character */
    const struct known *found = look_up(pickle, module, name);
    if (found && !is_wanted(pickle, found))
        found = NULL;
    if (found) {
        node->global = (uint8_t)found->global;
        node->value = (uint8_t)found->value;
    }
    pickle->names += pickle_is_importable(pickle_text(node));
    pickle->named = pickle->names > 0;
    if (pickle->on_global && !pickle->on_global(pickle->context, node, pickle->error))
        return NULL;
    if (!found && pickle->mode == PICKLE_STRICT) {
        refuse(pickle, node);
        return NULL;
    }
    return node;
}
