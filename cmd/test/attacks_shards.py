"""Attacks through a shard index, of both formats that have one (H01 to H08)."""

import functools
import json

from attacks import Input, row
from files import compact, deathtensors, f32, safetensors
from harness import INVALID, IO, OK, UNSAFE, limited, unprivileged

FILE = "model.safetensors.index.json"
DEATHTENSORS = "model.deathtensors"
BOTH = {"a": f32(1), "b": f32(2)}
BAD_PATHS = ("../x", "/x", "a/../../x", "a/b", "file:///x", "x\0.safetensors", "", ".", "..")

index_row = functools.partial(row, file=FILE, mention="", target="out.npz")


def index(weight_map, total_size=8):
    """The index's text, around a weight_map given as text or as a dict."""
    text = weight_map if isinstance(weight_map, str) else json.dumps(weight_map)
    return f'{{"metadata":{{"total_size":{total_size}}},"weight_map":{text}}}'


def folder_of(index_text, shards, after=None):
    """A writer of an index and its shards (file -> tensors); `after` changes the folder last."""

    def write(folder):
        (folder / FILE).write_text(index_text)
        for name, tensors in shards.items():
            (folder / name).write_bytes(safetensors(tensors))
        if after:
            after(folder)

    return write


ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
PAIR = {ONE: {"a": BOTH["a"]}, TWO: {"b": BOTH["b"]}}
PAIR_INDEX = index({"a": ONE, "b": TWO})


def deathtensors_index(paths):
    """An index of one tensor a shard, under these paths."""
    shards = [{"path": path, "tensors": [name], "bytes": 4} for name, path in paths.items()]
    return deathtensors(
        {},
        {
            "deathtensors.sharded": "true",
            "deathtensors.shard.count": str(len(paths)),
            "deathtensors.shards": json.dumps(shards),
        },
    )


def deathtensors_folder(paths, names=("a", "b")):
    def write(folder):
        (folder / DEATHTENSORS).write_bytes(deathtensors_index(paths))
        for number, name in enumerate(names):
            shard = {
                "deathtensors.shard.index": str(number),
                "deathtensors.shard.count": str(len(paths)),
            }
            (folder / f"{name}.deathtensors").write_bytes(deathtensors({name: BOTH[name]}, shard))

    return write


DEATHTENSORS_PAIR = {"a": "a.deathtensors", "b": "b.deathtensors"}


@index_row("H01", UNSAFE)
def paths():
    for path in BAD_PATHS:
        yield Input(f"{path!r}", index({"a": path}).encode())
        yield Input(f"{path!r} in deathtensors", deathtensors_index({"a": path}), file=DEATHTENSORS)
    yield Input("a symlink", folder_of(PAIR_INDEX, PAIR, link_shard), OK, tensors=BOTH)
    # It is a file's name here, never standard input; regressions.case looks at what stdin has left.
    dash = folder_of(index({"a": "-", "b": TWO}), {"-": {"a": BOTH["a"]}, TWO: PAIR[TWO]})
    yield Input("-", dash, OK, tensors=BOTH)
    yield Input("- not there", folder_of(index({"a": "-"}), {}), IO)


def link_shard(folder):
    (folder / "cache").mkdir()
    (folder / ONE).rename(folder / "cache" / "blob")
    (folder / ONE).symlink_to("cache/blob")


@index_row("H02", INVALID)
def index_against_shards():
    yield Input(
        "listed, not there",
        folder_of(index({"a": ONE, "c": TWO}), {ONE: {"a": BOTH["a"]}, TWO: {"b": BOTH["b"]}}),
    )
    yield Input(
        "there, not listed",
        folder_of(index({"a": ONE}), {ONE: BOTH}),
        OK,
        tensors=BOTH,
        message="index",
    )
    yield Input(
        "listed, not there, deathtensors",
        deathtensors_folder({"a": "b.deathtensors"}),
        file=DEATHTENSORS,
    )


@index_row("H03", INVALID)
def duplicates():
    yield Input("in two shards", folder_of(PAIR_INDEX, {ONE: {"a": BOTH["a"]}, TWO: BOTH}))
    yield Input("key twice", folder_of(index(f'{{"a":"{ONE}","b":"{TWO}","a":"{ONE}"}}'), PAIR))
    yield Input(
        "weight_map twice", folder_of(PAIR_INDEX[:-1] + f',"weight_map":{{"a":"{ONE}"}}}}', PAIR)
    )


@index_row("H04", IO)
def unreadable_shards():
    yield Input("missing", folder_of(PAIR_INDEX, PAIR, lambda folder: (folder / TWO).unlink()))
    yield Input("a folder", folder_of(PAIR_INDEX, PAIR, replace_by_folder))
    yield Input(
        "missing, deathtensors", deathtensors_folder(DEATHTENSORS_PAIR, "a"), file=DEATHTENSORS
    )
    yield Input(
        "unreadable",
        folder_of(PAIR_INDEX, PAIR, lambda folder: (folder / TWO).chmod(0)),
        commands=("hash",),
        prefix=unprivileged,
    )


def replace_by_folder(folder):
    (folder / TWO).unlink()
    (folder / TWO).mkdir()


@index_row("H05", INVALID)
def an_index_as_shard():
    yield Input("itself", index({"a": FILE}).encode())
    yield Input(
        "another",
        folder_of(
            index({"a": "other.index.json"}),
            {},
            lambda folder: (folder / "other.index.json").write_text(PAIR_INDEX),
        ),
    )
    yield Input("itself, deathtensors", deathtensors_index({"a": DEATHTENSORS}), file=DEATHTENSORS)


@index_row("H06", UNSAFE)
def many_shards():
    yield Input(
        "1,000,000 names",
        index(compact({f"t{n}": f"model-{n:07d}.safetensors" for n in range(1_000_000)})).encode(),
        commands=("hash",),
    )
    few_files = limited("-n 32")
    shards = {f"{n}.safetensors": {f"t{n:04d}": f32(n)} for n in range(5000)}
    tensors = {name: tensor for content in shards.values() for name, tensor in content.items()}
    text = index({name: shard for shard, content in shards.items() for name in content}, 20_000)
    yield Input(
        "5,000 shards, 32 files", folder_of(text, shards), OK, tensors=tensors, prefix=few_files
    )


@index_row("H07", INVALID)
def values():
    for value in ("1", "null", "[]", "{}", f'["{ONE}"]'):
        yield Input(f"shard {value}", folder_of(index(f'{{"a":{value},"b":"{TWO}"}}'), PAIR))
    for total in ("-1", str(2**63), '"8"'):
        yield Input(f"total_size {total}", folder_of(index({"a": ONE, "b": TWO}, total), PAIR))
    yield Input(
        "total_size wrong",
        folder_of(index({"a": ONE, "b": TWO}, 9), PAIR),
        OK,
        tensors=BOTH,
        message="total_size",
    )
    yield Input(
        "no total_size",
        folder_of(f'{{"weight_map":{json.dumps({"a": ONE, "b": TWO})}}}', PAIR),
        OK,
        tensors=BOTH,
    )
    for text in ("[]", '{"weight_map":[]}', "{}", '{"metadata":{}}', ""):
        yield Input(f"index {text}", text.encode())


def with_metadata(shards, keys):
    """Shards with metadata of their own: joined one by one they cost the square of them."""

    def write(folder):
        names = {f"t{n}": f"{n:05d}.safetensors" for n in range(shards)}
        (folder / FILE).write_text(index(names, 4 * shards))
        for n, name in enumerate(names.values()):
            metadata = {f"k{n * keys + i:07d}": "v" for i in range(keys)} | {"all": f"{n}"}
            (folder / name).write_bytes(safetensors({f"t{n}": f32(n)}, metadata))

    return write


def unlisted(count):
    """A shard of many tensors of which the index knows one."""
    tensors = {f"{'n' * 200}{n}": f32(n) for n in range(count)}
    return folder_of(index({f"{'n' * 200}0": ONE}, 4 * count), {ONE: tensors})


@index_row("H08", OK)
def metadata_and_notes():
    yield Input(
        "3,000 shards with 100 keys each",
        with_metadata(3000, 100),
        commands=("hash",),
        rss=256 << 20,
        message="2994 more",
    )
    yield Input(
        "60,000 tensors that are not listed",
        unlisted(60_000),
        commands=("hash",),
        rss=256 << 20,
        message="59994 more",
    )
    listed = json.dumps({"a": ONE, "b": TWO})
    for label, metadata in (
        ("a key twice", '{"k":1,"k":2}'),
        ("deep", '{"k":' + "[" * 100 + "]" * 100 + "}"),
        ("cut", '{"k":1'),
    ):
        text = f'{{"metadata":{metadata},"weight_map":{listed}}}'
        yield Input(f"metadata of the index, {label}", folder_of(text, PAIR), INVALID)
