"""Checkpoints in several files, made by hand: torch.distributed.checkpoint, and DeepSpeed's ZeRO."""

import pickle as op
import struct

from pickles import ORDERED_DICT, call, code, name, pickled, pt, storage, tensor

MODULE = "torch.distributed.checkpoint.metadata"


def instance(module, attribute, state):
    """An object by NEWOBJ and BUILD."""
    return name(module, attribute) + op.EMPTY_TUPLE + op.NEWOBJ + code(state) + op.BUILD


def numbers(count, first=0):
    return struct.pack(f"<{count}f", *range(first, first + count))


def size(*dims):
    return call("torch", "Size", tuple(dims))


# torch.distributed.checkpoint


def chunk(offsets, sizes):
    return instance(MODULE, "ChunkStorageMetadata", {"offsets": size(*offsets), "sizes": size(*sizes)})


def properties(dtype="float32"):
    layout = call("torch.serialization", "_get_layout", "torch.strided")
    state = (name("torch", dtype), layout, False, call(MODULE, "_MEM_FORMAT_ENCODING", 0), False)
    return instance(MODULE, "TensorProperties", state)


def tensor_entry(shape, chunks, dtype="float32"):
    pieces = [each if isinstance(each, bytes) else chunk(*each) for each in chunks]
    state = {"properties": properties(dtype), "size": size(*shape), "chunks": pieces}
    return instance(MODULE, "TensorStorageMetadata", state)


VALUE_ENTRY = instance(MODULE, "BytesStorageMetadata", {})


def index(fqn, offset=None):
    offset = None if offset is None else size(*offset)
    return instance(MODULE, "MetadataIndex", {"fqn": fqn, "offset": offset, "index": None})


def info(path, offset, length, transforms=None, kind=None):
    state = {"relative_path": path, "offset": offset, "length": length}
    if transforms is not None:
        state["transform_descriptors"] = transforms
    return instance(*(kind or ("torch.distributed.checkpoint.filesystem", "_StorageInfo")), state)


def pairs(items):
    """A dict whose keys are opcodes, perhaps the same ones twice."""
    return op.EMPTY_DICT + op.MARK + b"".join(code(k) + code(v) for k, v in items) + op.SETITEMS


def table(entries, stored, **more):
    state = {"state_dict_metadata": pairs(entries), "storage_data": pairs(stored), "version": "1.0.0", **more}
    return pickled(instance(MODULE, "Metadata", state))


def item(shape, data, kind="FloatStorage"):
    """A tensor as torch.save writes it."""
    strides, unit = [], 1
    for dim in reversed(shape):
        strides.insert(0, unit)
        unit *= dim
    return pt(pickled(tensor(storage("0", unit, kind), 0, tuple(shape), tuple(strides))), {"0": data})


def value_item(value):
    return pt(pickled(value), {})


def dcp(folder, entries, stored, items, file="__0_0.distcp", name=".metadata", **more):
    """Writes a checkpoint; a stored entry names its item by a number, or has its _StorageInfo."""
    places, content = [], b""
    for each in items:
        places.append((len(content), len(each)))
        content += each
    listed = [(key, where if isinstance(where, bytes) else info(file, *places[where])) for key, where in stored]
    (folder / name).write_bytes(table(entries, listed, **more))
    (folder / file).write_bytes(content)


# DeepSpeed


def flat(count, key="0"):
    return tensor(storage(key, count), 0, (count,), (1,))


def scaler(module="deepspeed.runtime.fp16.loss_scaler", attribute="LossScaler"):
    return instance(module, attribute, {"cur_scale": 1.0, "dynamic": False})


def optimiser(groups, stage=2, count=1, **more):
    """The file of one rank; groups are the numbers of each of its flat tensors."""
    names = {3: "fp32_flat_groups"}
    flats = [flat(len(data) // 4, str(i)) for i, data in enumerate(groups)]
    state = {
        "loss_scaler": scaler(),
        "zero_stage": stage,
        "partition_count": count,
        names.get(stage, "single_partition_of_fp32_groups"): flats,
        **more,
    }
    return pt(pickled({"optimizer_state_dict": state}), {str(i): data for i, data in enumerate(groups)})


def shapes(**parameters):
    return dict_of({key: size(*shape) if isinstance(shape, tuple) else shape for key, shape in parameters.items()})


def dict_of(items):
    return ORDERED_DICT + op.MARK + b"".join(code(k) + code(v) for k, v in items.items()) + op.SETITEMS


def model(param_shapes, data=None, **more):
    state = {"module": ORDERED_DICT, "buffer_names": [], "param_shapes": param_shapes, **more}
    return pt(pickled(state), data or {})


def zero(folder, optimisers, models, latest="global_step1", prefix=""):
    """Writes a checkpoint of these ranks."""
    (folder / "latest").write_bytes(latest.encode() if isinstance(latest, str) else latest)
    tag = folder / "global_step1"
    tag.mkdir()
    for rank, content in enumerate(optimisers):
        (tag / f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").write_bytes(content)
    for rank, content in enumerate(models):
        start = f"zero_pp_rank_{rank}_" if len(models) > 1 else ""
        (tag / f"{start}mp_rank_00_model_states.pt").write_bytes(content)
