"""What the cases of diff, verify and check read besides testdata."""

import json
import math
import struct

import files
from files import Tensor, f32


def make_diff(folder):
    one = {
        "same": f32(1, 2, 3),
        "gone": f32(1),
        "grown": f32(1, 2),
        "typed": f32(1, 2),
        "w": f32(1, 2, 3, 4, shape=[2, 2]),
        "x": f32(1, math.nan),
    }
    other = {
        "same": f32(1, 2, 3),
        "new": f32(1),
        "grown": f32(1, 2, shape=[2, 1]),
        "typed": Tensor("F64", [2], struct.pack("<2d", 1, 2)),
        "w": f32(1, 2.5, 3, 14, shape=[2, 2]),
        "x": f32(1, 1),
    }
    (folder / "diff_a.safetensors").write_bytes(files.safetensors(one, {"note": "one"}))
    (folder / "diff_b.safetensors").write_bytes(
        files.safetensors(other, {"note": "two", "more": "1"})
    )
    zeros = {"z": f32(0.0, 1)}
    signed = {"z": f32(-0.0, 1)}
    (folder / "zeros.safetensors").write_bytes(files.safetensors(zeros))
    (folder / "signed.safetensors").write_bytes(files.safetensors(signed))
    (folder / "f4_other.safetensors").write_bytes(
        files.safetensors({"w": Tensor("F4", [2, 4], bytes((1, 2, 3, 0x24)))})
    )


def flip(data, place):
    """The same bytes but for one."""
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def make_verify(folder):
    three = {name: f32(*range(64)) for name in "abc"}
    stored = files.npz(three)
    first, third = stored.index(b"\0\0\x80?"), stored.rindex(b"\0\0\x80?")
    (folder / "crcs.npz").write_bytes(flip(flip(stored, first), third))
    wrong = {"a": 1, "c": 1}
    members = [
        files.Member(f"{name}.npy".encode(), files.npy_of(tensor), 8, crc=wrong.get(name))
        for name, tensor in three.items()
    ]
    (folder / "crcs_deflated.npz").write_bytes(files.zip_file(members))
    flags = {"ok": Tensor("BOOL", [2], b"\0\1"), "odd": Tensor("BOOL", [4], b"\1\2\0\3")}
    (folder / "bools.safetensors").write_bytes(files.safetensors(flags))
    uneven = {"byte": Tensor("U8", [1], b"\1"), "w": f32(1, 2)}
    (folder / "uneven.safetensors").write_bytes(files.safetensors(uneven))
    entries, blob = files.entries_of(three)
    frame = files.zstd_stored(blob[:300])
    (folder / "cut_frame.deathtensors").write_bytes(
        files.deathtensors_raw(files.deathtensors_header(entries), frame, files.ZSTD)
    )
    model = folder / "broken_model"
    model.mkdir()
    (model / "1.safetensors").write_bytes(files.safetensors({"a": f32(1), "extra": f32(1)}))
    (model / "2.safetensors").write_bytes(files.safetensors({"a": f32(2), "b": f32(2)}))
    (model / "4.safetensors").write_bytes(b"\xff" * 40)
    places = {"a": "1", "b": "2", "absent": "2", "c": "3", "d": "4"}
    index = {"weight_map": {name: f"{shard}.safetensors" for name, shard in places.items()}}
    (model / "m.safetensors.index.json").write_text(json.dumps(index))
    index = {"metadata": {"total_size": 9}, "weight_map": {"a": "1.safetensors"}}
    index["weight_map"]["extra"] = "1.safetensors"
    (model / "size.safetensors.index.json").write_text(json.dumps(index))
    shards = [{"path": "s.dt", "tensors": ["a"], "bytes": 5}]
    (model / "s.dt").write_bytes(files.deathtensors({"a": f32(1)}))
    listed = {"deathtensors.sharded": "true", "deathtensors.shards": json.dumps(shards)}
    (model / "index.dt").write_bytes(files.deathtensors({}, listed))


def make(folder):
    make_diff(folder)
    make_verify(folder)
