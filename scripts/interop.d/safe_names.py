"""The names that honest tensor files use, of which none runs code but by loading another pickle, which is watched as
well: the list that tconv scan is measured by. It is written here again,
so that a name too many on tconv's list is found.
"""
import pathlib
import sys
import types
from warnings import catch_warnings, simplefilter

import torch

CONTAINERS = {
    "collections.OrderedDict", "collections.Counter", "collections.defaultdict", "collections.deque",
    "builtins.set", "builtins.frozenset", "builtins.list", "builtins.dict", "builtins.tuple", "builtins.int",
    "builtins.long", "builtins.float", "builtins.bool", "builtins.bytes", "builtins.bytearray", "builtins.complex",
    "builtins.slice", "builtins.range", "builtins.str", "builtins.unicode", "builtins.object", "_codecs.encode",
}  # fmt: skip
NUMPY = {
    "numpy.dtype", "numpy.ndarray",
    *(f"numpy.{core}.{name}" for core in ("core", "_core")
      for name in ("multiarray.scalar", "multiarray._reconstruct", "numeric._frombuffer")),
}  # fmt: skip
with catch_warnings():
    simplefilter("ignore")
    TORCH = set(torch._weights_only_unpickler._get_allowed_globals())
STORAGES = {f"torch.cuda.{name.removeprefix('torch.')}" for name in TORCH if name.endswith("Storage")}
OLD_TORCH = {
    "torch.UntypedStorage", "torch.nn.parameter.Buffer", "torch._utils._rebuild_sparse_csr_tensor",
    "torch._utils._rebuild_nested_tensor",
}  # fmt: skip
LOADERS = {"torch.storage._load_from_bytes"}  # which loads a file in a file, with all that this can do
# Plain containers of packages that need not be there.
FOREIGN = {
    "pytorch_lightning.utilities.parsing.AttributeDict", "lightning.pytorch.utilities.parsing.AttributeDict",
    "pytorch_lightning.core.saving.AttributeDict", "lightning_lite.utilities.data.AttributeDict",
    "lightning_fabric.utilities.data.AttributeDict", "lightning.fabric.utilities.data.AttributeDict",
}  # fmt: skip
PLAIN = {
    "argparse.Namespace", "types.SimpleNamespace", "pathlib.PosixPath", "pathlib.PurePosixPath",
    "torch.torch_version.TorchVersion", "copyreg._reconstructor",
}  # fmt: skip
JOBLIB = {"joblib.numpy_pickle.NumpyArrayWrapper"}
PATHS = ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath")
# Records and enumerations in the tables of torch.distributed.checkpoint and of DeepSpeed.
CHECKPOINTS = {
    *(f"torch.distributed.checkpoint.metadata.{name}" for name in (
        "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "MetadataIndex",
        "StorageMeta", "TensorProperties", "_MEM_FORMAT_ENCODING",
    )),
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "deepspeed.runtime.fp16.loss_scaler.LossScaler", "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
    "deepspeed.runtime.zero.config.ZeroStageEnum", "deepspeed.utils.tensor_fragment.fragment_address",
    *(f"{module}.{name}" for module in ("pathlib", "pathlib._local") for name in PATHS),
}  # fmt: skip
SAFE = CONTAINERS | NUMPY | TORCH | STORAGES | OLD_TORCH | FOREIGN | PLAIN | JOBLIB | LOADERS | CHECKPOINTS


class AttributeDict(dict):
    """As Lightning has it."""

    def __getattr__(self, key):
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None

    def __setattr__(self, key, value):
        self[key] = value


def stub_modules() -> dict[str, types.ModuleType]:
    """Modules with the names of FOREIGN, and where Python 3.13 has the paths."""
    found = {}
    if "pathlib._local" not in sys.modules:
        found["pathlib._local"] = types.ModuleType("pathlib._local")
        vars(found["pathlib._local"]).update((name, getattr(pathlib, name)) for name in PATHS)
    for name in FOREIGN:
        module, _, attribute = name.rpartition(".")
        parts = module.split(".")
        for length in range(1, len(parts) + 1):
            dotted = ".".join(parts[:length])
            found.setdefault(dotted, sys.modules.get(dotted) or types.ModuleType(dotted))
        setattr(found[module], attribute, AttributeDict)
    return found
