#!/usr/bin/env python3
"""Every file of testdata holds what its own program says, and converts to what can hold it."""

import functools
import hashlib
import json
import struct
import sys

import files
import gguf_files
import protobufs
import tf_files
import torch_files
from harness import DATA, INVALID, OK, UNSAFE, UNSUPPORTED, Suite, check_equal, expect, one_in, tconv

CODES = {"ok": OK, "corrupt": INVALID, "unsupported": UNSUPPORTED, "refused": UNSAFE}

INTEGERS = {"U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64"}
F8 = {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}
NUMPY = {"BOOL", "F16", "F32", "F64", "C64", "C128"} | INTEGERS
HOLDS = {
    "npy": NUMPY,
    "npz": NUMPY,
    "tensor": NUMPY | {"BF16", "F8_E4M3", "F8_E5M2"},
    "tfrecord": NUMPY | {"BF16", "F8_E4M3", "F8_E5M2"},
    "safetensors": {
        "BOOL",
        "F16",
        "BF16",
        "F32",
        "F64",
        "F8_E8M0",
        "F4",
        "F6_E2M3",
        "F6_E3M2",
        "C64",
    }
    | F8
    | INTEGERS,
    "deathtensors": NUMPY | {"BF16"},
    "pt": NUMPY | {"BF16", "C32", "F8_E8M0", "F4"} | F8,
    "ot": (NUMPY | {"BF16"}) - {"U16", "U32", "U64"},
    **dict.fromkeys(("onnx", "pb", "external.onnx", "dialect.ot"), set(protobufs.DATA_TYPES)),
    "gguf": set(gguf_files.DTYPES),
}
MOST_RANK = {"gguf": 4}
OPTIONS = {"external.onnx": ["--onnx-external"], "dialect.ot": ["--ot-dialect", "onnx"]}
ONE_TENSOR = ("npy", "pb", "tensor")
PROMOTES = {
    "BOOL": ["I8"],
    "U8": ["I16"],
    "U16": ["I32"],
    "U32": ["I64"],
    "BF16": ["F32"],
    "F8_E8M0": ["BF16", "F32"],
    "C32": ["C64", "C128"],
    **{dtype: ["F16"] for dtype in F8},
    **{dtype: ["F32"] for dtype in gguf_files.BLOCKS},
}


def read_ot(path):
    archive = path.read_bytes()[:2] == b"PK"
    return torch_files.read_tensors(path) if archive else protobufs.read_onnx(path)


READERS = {
    "tensor": tf_files.read_tensor,
    "tfrecord": tf_files.read_tfrecord,
    "npz": files.read_npz,
    "safetensors": files.read_safetensors,
    "deathtensors": files.read_deathtensors,
    "pt": torch_files.read_tensors,
    "ot": read_ot,
    "pb": protobufs.read_pb,
    "gguf": gguf_files.read_tensors,
    **dict.fromkeys(("onnx", "external.onnx", "dialect.ot"), protobufs.read_onnx),
}
TORCH = ("pt", "ot")
ONNX = ("onnx", "external.onnx", "dialect.ot")
TENSOR_METADATA = "tconv.tensor_metadata"
SAFETENSORS_ORDER = [
    "U64",
    "I64",
    "F64",
    "C64",
    "F32",
    "U32",
    "I32",
    "BF16",
    "F16",
    "U16",
    "I16",
    "F8_E5M2FNUZ",
    "F8_E4M3FNUZ",
    "F8_E8M0",
    "F8_E4M3",
    "F8_E5M2",
    "I8",
    "U8",
    "F6_E3M2",
    "F6_E2M3",
    "F4",
    "BOOL",
]
OF_FOLDERS = ("expected-dcp.json", "expected-zero.json")  # test_checkpoints.py has these
# Files that the writer of the same format must reproduce byte for byte: little-endian, C order,
# version 1; at most one metadata key.
REPRODUCED = [
    f"npy/{name}.npy"
    for name in (
        "bool",
        "uint8",
        "int8",
        "uint16",
        "int16",
        "uint32",
        "int32",
        "uint64",
        "int64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "scalar",
        "empty",
        "version1",
    )
] + [f"safetensors/{name}.safetensors" for name in ("edge", "f4_e8m0", "none", "torch_all")]
REPRODUCED += [
    f"tf/{path.name}"
    for pattern in ("serialize_*", "scalar")
    for path in DATA.glob(f"tf/{pattern}.tensor")
]
REPRODUCED += ["tf/sparse.tensor", "tfrecord/list.tfrecord"]


def stored_as(dtype, target):
    """What a dtype becomes in a format, None where it has no lossless home."""
    return next((home for home in [dtype, *PROMOTES.get(dtype, [])] if home in HOLDS[target]), None)


def hash_lines(tensors):
    return files.hash_lines(
        (tensor["name"], tensor["dtype"], tensor["shape"], tensor["sha256"]) for tensor in tensors
    )


def ties(expected):
    """Names of one tensor: views of one storage that are the same, values included."""
    groups = []
    for names in expected.get("shared", []):
        same = {}
        for tensor in expected["tensors"]:
            if tensor["name"] in names:
                key = (tuple(tensor["shape"]), tensor["sha256"])
                same.setdefault(key, []).append(tensor["name"])
        groups += [group for group in same.values() if len(group) > 1]
    return groups


def check_hash(path, expected, folder):
    result = expect(folder, OK, "hash", path)
    check_equal(result.out.decode(), hash_lines(expected["tensors"]), "hash", result)


def check_list(path, expected, folder):
    result = expect(folder, OK, "list", path)
    got, names = result.out.decode().splitlines(), [
        tensor["name"] for tensor in expected["tensors"]
    ]
    if expected.get("unordered"):
        got, names = sorted(got), sorted(names)
    check_equal(got, names, "list", result)


def check_info(path, expected, folder):
    result = expect(folder, OK, "info", "--json", path)
    check_equal(result.out.count(b"\n"), 1, "lines of info --json", result)
    info = json.loads(result.out)
    check_equal(info["file"], str(path), "file", result)
    facts = ("name", "dtype", "shape")
    check_equal(
        [[tensor[fact] for fact in facts] for tensor in info["tensors"]],
        [[tensor[fact] for fact in facts] for tensor in expected["tensors"]],
        "tensors of info --json",
        result,
    )
    if "metadata" in expected or not expected.get("sharded"):
        metadata = expected.get("metadata", {})
        check_equal(info["metadata"], metadata, "metadata of info --json", result)
    if "tensor_metadata" in expected:
        check_equal(
            {
                tensor["name"]: tensor["metadata"]
                for tensor in info["tensors"]
                if tensor.get("metadata")
            },
            expected["tensor_metadata"],
            "metadata of tensors",
            result,
        )
    check_equal(
        {tensor["name"]: tensor["tied_to"] for tensor in info["tensors"] if "tied_to" in tensor},
        {alias: names[0] for names in ties(expected) for alias in names[1:]},
        "ties",
        result,
    )
    size = (
        sum(f.stat().st_size for f in path.parent.iterdir() if f.name != "config.json")
        if expected.get("sharded")
        else path.stat().st_size
    )
    if path.suffix == ".onnx":
        size += sum(file.stat().st_size for file in protobufs.companions(path))
    check_equal(info["size"], size, "size of info --json", result)


def check_bad(path, expected, folder):
    for command in (["hash", path], [path, "out.deathtensors"], ["convert", path, "out.npz"]):
        expect(folder, CODES[expected["outcome"]], *command, mention=path.name)


def sparse_layouts(expected):
    """The layouts of a file's sparse tensors, by name; one that says none is COO."""
    return {
        part["sparse_parent"]: part.get("sparse_layout", "coo")
        for part in expected.get("tensor_metadata", {}).values()
        if "sparse_parent" in part
    }


def coo_tensors(expected):
    """Those in COO layout with one value for each index: what ONNX and TensorFlow have, too."""
    shapes = {tensor["name"]: tensor["shape"] for tensor in expected["tensors"]}
    layouts = sparse_layouts(expected).items()
    return [n for n, layout in layouts if layout == "coo" and len(shapes[f"{n}.values"]) == 1]


def lone_name(expected, target):
    """The name of what a format for one tensor holds: a tensor, in TensorFlow's also a sparse one."""
    tensors, sparse = expected["tensors"], coo_tensors(expected)
    if len(tensors) == 1:
        return tensors[0]["name"]
    return sparse[0] if target == "tensor" and sparse and len(tensors) == 3 else None


def output_name(expected, target):
    """A tensor alone is named by its file, so the file gets the tensor's name."""
    name = lone_name(expected, target) if target in ONE_TENSOR else None
    return f"out.{target}" if name is None else f"{name}.{target}"


def check_numbered(path, expected, target, folder):
    """A format without names: numbers in their place, and the sidecar has them."""
    tensors = expected["tensors"]
    homes = [stored_as(tensor["dtype"], target) for tensor in tensors]
    out = folder / f"out.{target}"
    if None in homes or not tensors:
        expect(folder, UNSUPPORTED, path, out)
        return
    names = [str(number) for number in range(len(tensors))]
    result = expect(folder, OK, path, out)
    written = READERS[target](out)
    check_equal(
        [(name, tensor.dtype, list(tensor.shape)) for name, tensor in written.items()],
        [(n, home, tensor["shape"]) for n, home, tensor in zip(names, homes, tensors)],
        "what was written",
        result,
    )
    for tensor, home, got in zip(tensors, homes, written.values()):
        if tensor["dtype"] == home:
            digest = hashlib.sha256(got.data).hexdigest()
            check_equal(digest, tensor["sha256"], f"bytes of {tensor['name']}", result)
    named = [tensor["name"] for tensor in tensors]
    check_equal(b"numbers take their place" in result.err, named != names, "a loss", result)
    expect(folder, OK, path, out, "--keep-metadata=sidecar")
    result = expect(folder, OK, "list", "--json", out)
    check_equal(json.loads(result.out)["tensors"], named, "names from the sidecar", result)


@functools.cache
def source_digest(path):
    result = tconv("hash", "--digest", path)
    check_equal(result.code, OK, "exit code", result)
    return result.out.split()[0]


def check_convert(path, expected, target, folder):
    tensors = expected["tensors"]
    homes = {tensor["name"]: stored_as(tensor["dtype"], target) for tensor in tensors}
    out = folder / output_name(expected, target)
    # Flat, as the readers here see it; trees have tests of their own.
    options = [*OPTIONS.get(target, []), "--tree=never"]
    too_deep = any(len(tensor["shape"]) > MOST_RANK.get(target, 64) for tensor in tensors)
    too_many = target in ONE_TENSOR and lone_name(expected, target) is None
    if None in homes.values() or too_deep or too_many:
        expect(folder, UNSUPPORTED, path, out, *options)
        return
    result = expect(folder, OK, path, out, *options)
    check_equal(result.out, b"", "stdout of a conversion", result)
    written = (
        {tensors[0]["name"]: files.read_npy(out.read_bytes())}
        if target == "npy"
        else READERS[target](out)
    )
    check_equal(
        {name: tensor.dtype for name, tensor in written.items()}, homes, "dtypes written", result
    )
    check_equal(list(written), written_order(tensors, homes, target), "order written", result)
    if target in TORCH:
        check_torch(out, expected, folder)
    if target in ONNX:
        check_onnx(out, expected, options, folder)
    if "metadata" in expected or not expected.get("sharded"):
        check_metadata(out, path, expected, target)
    promoted = {tensor["name"] for tensor in tensors if tensor["dtype"] != homes[tensor["name"]]}
    if not promoted:
        digest = expect(folder, OK, "hash", "--digest", out).out.split()[0]
        check_equal(digest, source_digest(path), "digest of the output", result)
    same = [tensor for tensor in tensors if tensor["name"] not in promoted]
    check_equal(
        files.hash_text({t["name"]: written[t["name"]] for t in same}),
        hash_lines(same),
        "bytes written",
        result,
    )
    if promoted:
        original = read_original(path, tensors, folder)
        dequantised = {t["name"]: t["dequantised"] for t in tensors if "dequantised" in t}
        for name in sorted(promoted):
            if name in dequantised:
                digest = hashlib.sha256(written[name].data).hexdigest()
                check_equal(digest, dequantised[name], f"values of {name}", result)
                continue
            check_equal(
                files.same_values(written[name], original[name]),
                True,
                f"values of {name} as {homes[name]}",
                result,
            )


def read_original(path, tensors, folder):
    """The tensors of a file of testdata: by way of a format that a reader here knows, where that
    holds them with the hashes of the vectors, else by a reader for the file itself."""
    copy = folder / "original.deathtensors"
    result = tconv("-q", path, copy)
    if result.code == OK:
        held = files.read_deathtensors(copy)
        if files.hash_text(held) == hash_lines(tensors):
            return held
    return read_by_itself(path)


def read_by_itself(path):
    """The same, its integers big-endian or not."""
    if path.name.endswith(".safetensors.index.json"):
        shards = sorted(path.parent.glob("*.safetensors"))
        return {name: t for shard in shards for name, t in files.read_safetensors(shard).items()}
    if path.suffix != ".npy":
        return READERS[path.suffix[1:]](path)
    data = path.read_bytes()
    tensor = files.read_npy(data.replace(b"'>", b"'<", 1))
    if b"'>" in data[:64]:
        width = int(tensor.dtype[1:]) // 8
        elements = struct.iter_unpack(f"{width}s", tensor.data)
        tensor = tensor._replace(data=b"".join(element[::-1] for element, in elements))
    return {path.stem: tensor}


def written_order(tensors, homes, target):
    if target != "safetensors":
        return [tensor["name"] for tensor in tensors]
    return sorted(homes, key=lambda name: (SAFETENSORS_ORDER.index(homes[name]), name.encode()))


def check_torch(out, expected, folder):
    """An archive that torch takes; ties share a storage, sparse and quantised tensors are torch's
    own."""
    script = out.suffix == ".ot"
    check_equal(torch_files.faults(out, script), [], f"faults of {out.name}")
    contents = torch_files.read(out)
    check_equal(contents.ties(), ties(expected), "tensors of one storage")
    quantised = {
        name: {key: value for key, value in own.items() if key.startswith("quant.")}
        for name, own in expected.get("tensor_metadata", {}).items()
        if "quant.scheme" in own
    }
    check_equal(contents.layouts, {} if script else sparse_layouts(expected), "sparse tensors")
    check_equal(contents.quantised, {} if script else quantised, "quantised tensors")
    again = folder / f"again{out.suffix}"
    result = expect(folder, OK, out, again)
    check_equal(again.read_bytes() == out.read_bytes(), True, "the same from a copy", result)


def check_onnx(out, expected, options, folder):
    """The lowest versions, every tensor an output, data beside it where it should be; sparse tensors
    are ONNX's own where it has them."""
    check_equal(protobufs.faults(out), [], f"faults of {out.name}")
    check_equal(list(protobufs.sparse_tensors(out)), coo_tensors(expected), "sparse tensors")
    (folder / "again").mkdir()
    again = folder / "again" / out.name
    result = expect(folder, OK, out, again, *options)
    for file in (out, *protobufs.companions(out)):
        same = (again.parent / file.name).read_bytes() == file.read_bytes()
        check_equal(same, True, f"{file.name} the same from a copy", result)


def kept_metadata(expected, target):
    """The metadata of tensors, less what the target's own sparse and quantised tensors say."""
    parts = expected.get("tensor_metadata", {})
    if target == "pt":
        said = [name for name, own in parts.items() if {"sparse_parent", "quant.scheme"} & set(own)]
    elif target in ONNX:
        coo = coo_tensors(expected)
        said = [name for name, own in parts.items() if own.get("sparse_parent") in coo]
    else:
        said = []
    own_keys = ("sparse_", "quant.")
    rest = {
        name: {k: v for k, v in own.items() if name not in said or not k.startswith(own_keys)}
        for name, own in parts.items()
    }
    return {name: own for name, own in rest.items() if own}


def check_metadata(out, path, expected, target):
    """A file's metadata and its tensors', where the target has a place for them."""
    metadata = dict(expected.get("metadata", {}))
    parts = kept_metadata(expected, target)
    from_torch = path.suffix in (".pt", ".ot", ".pkl") or path.name.endswith(".bin.index.json")
    if from_torch and path.name != "onnx_dialect.ot" and target not in TORCH:
        metadata.setdefault("format", "pt")  # wherever it goes from here
    if target in TORCH:
        contents = torch_files.read(out)
        got, got_parts = contents.metadata, contents.tensor_metadata
    elif target == "safetensors":
        got = safetensors_metadata(out)
        got_parts = json.loads(got.pop(TENSOR_METADATA, "{}"))
    elif target in ONNX:
        got = protobufs.read_metadata(out)
        got_parts = json.loads(got.pop(TENSOR_METADATA, "{}"))
    elif target == "gguf":
        written = gguf_files.read(out)[0]
        got_parts = gguf_files.tensor_metadata(written)
        got = json.loads(expect(out.parent, OK, "info", "--json", out).out)["metadata"]
        untyped = {key: value for key, value in metadata.items() if path.suffix != ".gguf"}
        texts = {k: v for k, v in gguf_files.texts(written).items() if k in untyped}
        check_equal(texts, untyped, f"strings of {out.name}")
    elif target == "deathtensors":
        _, header, _ = files.deathtensors_parts(out)
        got = header["global_metadata"]
        got_parts = {name: t["metadata"] for name, t in header["tensors"].items() if t["metadata"]}
    else:
        return
    if path.suffix == ".gguf" and target != "gguf":
        check_types(path, got)
    check_equal(got, metadata, f"metadata of {out.name}")
    if "tensor_metadata" in expected:
        check_equal(got_parts, parts, f"metadata of the tensors of {out.name}")


def type_name(data):
    """The word for the type of a value of GGUF metadata."""
    kind = data[0]
    names = "U8 I8 U16 I16 U32 I32 F32 BOOL STRING ARRAY U64 I64 F64".split()
    return names[kind]


def check_types(path, got):
    """The types of a GGUF file's metadata travel as one key, which is taken out of `got`."""
    types = {
        key: type_name(data)
        for key, data in gguf_files.read(path)[0].items()
        if data[0] != gguf_files.STRING
    }
    text = got.pop("tconv.gguf_types", "{}")
    kept = json.loads(text)
    check_equal(list(kept), sorted(kept, key=str.encode), "order of the types")
    check_equal(text, json.dumps(kept, separators=(",", ":")), "types are compact JSON")
    check_equal(
        {key: "ARRAY" if kind.startswith("[") else kind for key, kind in kept.items()},
        types,
        f"types of the metadata of {path.name}",
    )


def canonical(tensor):
    """The bytes with every NaN as programs agree on it."""
    form, one, limit, nan = {
        "BF16": ("H", 0x7FFF, 0x7F80, 0x7FC0),
        "F32": ("I", 0x7FFFFFFF, 0x7F800000, 0x7FC00000),
    }.get(tensor.dtype, (None, 0, 0, 0))
    if not form:
        return tensor.data
    bits = [nan if x & one > limit else x for x, in struct.iter_unpack(f"<{form}", tensor.data)]
    return struct.pack(f"<{len(bits)}{form}", *bits)


def check_dequantised(path, expected, key, folder):
    """What the program of each layout makes of its weights, to the bit."""
    options = ["--dtype", "F32"] if key == "dequantised_f32" else []
    if expected.get("dequantise") == "invalid":
        expect(folder, INVALID, path, "out.safetensors", "--dequantize", *options, mention=path.name)
        return
    result = expect(folder, OK, path, "out.safetensors", "--dequantize", *options)
    written = files.read_safetensors(folder / "out.safetensors")
    check_equal(sorted(written), [t["name"] for t in expected[key]], "names", result)
    for tensor in expected[key]:
        got = written[tensor["name"]]
        if options and tensor["dtype"] != "F32":  # --dtype F32 widens the others, too
            continue
        check_equal([got.dtype, list(got.shape)], [tensor["dtype"], tensor["shape"]], "dtype, shape")
        digest = hashlib.sha256(canonical(got)).hexdigest()
        check_equal(digest, tensor["sha256"], f"values of {tensor['name']}", result)


def safetensors_metadata(path):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    return json.loads(data[8 : 8 + length]).get("__metadata__", {})


def check_reproduced(path, folder):
    result = expect(folder, OK, path, path.name)
    check_equal((folder / path.name).read_bytes(), path.read_bytes(), "bytes of the copy", result)


def quantised_tensors(scheme, dtype):
    """A quantised tensor as tconv holds it: how its values are computed, and all of its tensors."""
    width = torch_files.WIDTHS[dtype]
    integers = files.Tensor(dtype, [2, 3], bytes(range(250 - 6 * width, 250)))
    if not scheme.channels:
        how = {"quant.scheme": scheme.name, "quant.scale": "0.125", "quant.zero_point": "-7"}
        return how, {"a.q": integers}
    zero_points = (
        files.f32(0.5, -1.5, 3.0)
        if scheme.name.endswith("float_qparams")
        else files.Tensor("I64", [3], struct.pack("<3q", 0, -3, 100))
    )
    scales = files.Tensor("F64", [3], struct.pack("<3d", 0.1, 2.0, 1e-9))
    parts = {"a.q": integers, "a.q.scales": scales, "a.q.zero_points": zero_points}
    return {"quant.scheme": scheme.name, "quant.axis": "1"}, parts


def check_quantised(scheme, dtype, folder):
    """Metadata that says how a tensor is quantised makes it a quantised one of torch, and back."""
    how, tensors = quantised_tensors(scheme, dtype)
    tensors["b"] = files.f32(1.0)
    entries, data = files.entries_of(tensors)
    entries["a.q"]["metadata"] = {**how, "note": "n"}
    header = files.deathtensors_header(entries)
    (folder / "a.deathtensors").write_bytes(files.deathtensors_raw(header, data))
    result = expect(folder, OK, "a.deathtensors", "a.pt")
    check_equal(torch_files.faults(folder / "a.pt", False), [], "faults of a.pt", result)
    contents = torch_files.read(folder / "a.pt")
    check_equal(contents.tensors, tensors, "tensors written", result)
    check_equal(contents.quantised, {"a.q": how}, "quantised tensors", result)
    check_equal(contents.tensor_metadata, {"a.q": {"note": "n"}}, "other metadata", result)
    result = expect(folder, OK, "a.pt", "b.deathtensors")
    _, header, _ = files.deathtensors_parts(folder / "b.deathtensors")
    check_equal(header["tensors"]["a.q"]["metadata"], {**how, "note": "n"}, "metadata", result)
    check_equal(files.read_deathtensors(folder / "b.deathtensors"), tensors, "tensors", result)


def cases():
    for scheme in torch_files.SCHEMES:
        for dtype in torch_files.INTEGERS.values():
            check = functools.partial(check_quantised, scheme, dtype)
            yield f"quantised:{scheme.name}:{dtype}", check
    for source in sorted(DATA.glob("expected-*.json")):
        if source.name in OF_FOLDERS:
            continue
        for name, expected in json.loads(source.read_text()).items():
            path = DATA / name
            if expected["outcome"] != "ok":
                yield f"{name}:bad", functools.partial(check_bad, path, expected)
                continue
            yield f"{name}:hash", functools.partial(check_hash, path, expected)
            for what, check in (("list", check_list), ("info", check_info)):
                if one_in(3, f"{name}:{what}"):  # the hash has opened the file
                    yield f"{name}:{what}", functools.partial(check, path, expected)
            for key in ("dequantised", "dequantised_f32"):
                if key in expected or (expected.get("dequantise") and key == "dequantised"):
                    check = functools.partial(check_dequantised, path, expected, key)
                    yield f"{name}:{key}", check
            held = HOLDS if expected.get("converts", True) else ()  # a case has what not all targets hold
            for target in filter(lambda target: one_in(5, f"{name}:{target}"), held):
                check = check_numbered if target == "tfrecord" else check_convert
                yield f"{name}:{target}", functools.partial(check, path, expected, target)
    for name in REPRODUCED:
        yield f"{name}:reproduced", functools.partial(check_reproduced, DATA / name)


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(list(cases())))
