"""What cmd/test/test_faults.py runs: every pair of formats, and every command."""

import dataclasses
import functools
import json
import struct
import subprocess

import files
from files import Tensor
from faults import Scenario
from harness import DATA, DIFFERENT, TCONV
from hub_server import Hub

# An input a format, small, with what its reader finds hardest; where a format is not named here, the
# smallest file of its folder in testdata.
INPUTS = {
    "npy": ["npy/fortran.npy"],
    "npz": ["npz/deflated.npz", "npz/lzma.npz", "npz/bzip2.npz"],
    "deathtensors": ["deathtensors/zstd19_checksum.deathtensors", "deathtensors/sparse.deathtensors"],
    "index": ["index/model.safetensors.index.json"],
    "onnx": ["onnx/external.onnx", "onnx/typed_fields.onnx"],
    "pt": ["pt/views.pt", "pt/legacy_protocol2.pt", "pt/joblib_zlib.pkl", "pt/tied.pt"],
    "tf": ["tf/serialize_bfloat16.tensor"],
}
BESIDE = {  # what an input reads besides itself
    "index/model.safetensors.index.json": "index/model-*.safetensors",
    "onnx/external.onnx": "onnx/external.bin",
}
NAMED = {"TCONV_TEST_NAMED": "1"}


@functools.cache
def formats():
    """The rows of `tconv formats --json`."""
    result = subprocess.run([TCONV, "formats", "--json"], capture_output=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def inputs_of(name):
    if name in INPUTS:
        return INPUTS[name]
    found = [path for path in (DATA / name).iterdir() if path.is_file()]
    return [str(min(found, key=lambda path: path.stat().st_size).relative_to(DATA))]


def loaded(path):
    """{name: bytes} of an input and what it needs, and its name."""
    names = [DATA / path, *(DATA.glob(BESIDE[path]) if path in BESIDE else ())]
    return {file.name: file.read_bytes() for file in names}


def pairs():
    """(id, scenario) for each readable and each writable format."""
    for source in formats():
        for path in inputs_of(source["format"]) if source["read"] else ():
            before = loaded(path)
            name = next(iter(before))
            for target in formats():
                if not target["write"]:
                    continue
                out = "out" + target["extensions"][0]
                arguments = (name, out, "-t", target["format"], "--lossy", "--sandbox=off", "-q")
                if not target["many"] and one_of(path):
                    arguments += ("--include", one_of(path))
                yield f"{path} to {target['format']}", Scenario(
                    arguments, {**before, out: b"what was there before"}
                )


@functools.cache
def one_of(path):
    """A name for formats that hold one tensor; None where there is only one."""
    result = subprocess.run([TCONV, "list", DATA / path], capture_output=True, check=True)
    names = result.stdout.decode().splitlines()
    plain = [name for name in names if name.isidentifier()]
    return f"^{(plain or names)[0]}$" if len(names) > 1 else None


def model(value, count=5, elements=60):
    return files.safetensors(
        {
            letter: Tensor("F32", [elements], struct.pack("<f", value + at) * elements)
            for at, letter in enumerate("abcdefgh"[:count])
        },
        {"from": str(value)},
    )


IN = {"in.safetensors": model(2)}
OLD = {**IN, "old.safetensors": model(1)}
SHARDS = ("--shard-size", "1000")
SCHEMA = json.dumps(
    {"tensors": {"/[a-e]/": {"dtype": "F32", "shape": [60], "finite": True}}, "allow_extra": True}
).encode()
PT = {"in.pt": (DATA / "pt/state_dict.pt").read_bytes()}
BIG = {"in.safetensors": model(3, 2, 100_000)}  # large enough to be copied by the kernel

WRITING = {
    "convert": Scenario(("in.safetensors", "out.npz"), {**IN, "out.npz": b"old"}),
    "convert, nothing there": Scenario(("in.safetensors", "out.npz"), IN),
    "convert, named": Scenario(
        ("in.safetensors", "out.npz"), {**IN, "out.npz": b"old"}, environment=NAMED
    ),
    "convert a big one": Scenario(("in.safetensors", "out.safetensors", "-q"), BIG),
    "convert from a pipe": Scenario(("-", "out.npz"), {}, stdin=str(DATA / "index/model-00001-of-00003.safetensors")),
    "convert to standard output": Scenario(("in.safetensors", "-", "-t", "npz"), IN),
    "convert, json": Scenario(
        ("in.safetensors", "out.npz", "--json", "--rename", "s/a/z/", "--dtype", "F64"), IN
    ),
    "merge": Scenario(("in.safetensors", "more.safetensors", "-o", "out.npz"), {
        **IN, "more.safetensors": files.safetensors({"x": files.f32(1, 2)})}),
    "select and cast": Scenario(
        ("in.safetensors", "out.pt", "--include", "[a-c]", "--rename", "s/(.)/x.\\1/", "--dtype",
         "b=F16", "--lossy", "--rows", "c=1:9", "--metadata", "k=v"),
        IN,
    ),
    "compress and checksum": Scenario(
        ("in.safetensors", "out.deathtensors", "--compress", "--checksum"), IN
    ),
    "compress npz": Scenario(("in.safetensors", "out.npz", "--compress"), IN),
    "verify output": Scenario(("in.safetensors", "out.npz", "--verify"), {**IN, "out.npz": b"old"}),
    "sidecar": Scenario(("in.safetensors", "out.npz", "--keep-metadata=sidecar"), IN),
    "sidecar over old": Scenario(
        ("in.safetensors", "out.npz", "--keep-metadata=sidecar"),
        OLD,
        (("old.safetensors", "out.npz", "--keep-metadata=sidecar"),),
    ),
    "sidecar goes": Scenario(
        ("in.npy", "out.npz"),
        {**OLD, "in.npy": files.npy()},
        (("old.safetensors", "out.npz", "--keep-metadata=sidecar"),),
    ),
    "shards": Scenario(("in.safetensors", "out.safetensors", *SHARDS), IN),
    "shards over old": Scenario(
        ("in.safetensors", "out.safetensors", *SHARDS, "--prune"),
        OLD,
        (("old.safetensors", "out.safetensors", "--shard-size", "400"),),
    ),
    "shards over old, named": Scenario(
        ("in.safetensors", "out.safetensors", *SHARDS),
        OLD,
        (("old.safetensors", "out.safetensors", *SHARDS),),
        environment=NAMED,
    ),
    "shards over old, no links": Scenario(
        ("in.safetensors", "out.safetensors", *SHARDS),
        OLD,
        (("old.safetensors", "out.safetensors", *SHARDS),),
        environment={"TCONV_TEST_NO_LINKS": "1"},
    ),
    "own index": Scenario(("in.safetensors", "out.deathtensors", *SHARDS), IN),
    "companion": Scenario(
        ("in.safetensors", "out.onnx", "--onnx-external"), {"in.safetensors": model(2, 5, 400)}
    ),
    "folder": Scenario(("in.safetensors", "out/"), IN),
    "folder, named": Scenario(("in.safetensors", "out/"), IN, environment=NAMED),
    "folder over old": Scenario(("in.safetensors", "out/"), OLD, (("old.safetensors", "out/"),)),
    "receipt and depfile": Scenario(
        ("in.safetensors", "out.npz", "--receipt", "r.json", "--depfile", "d.mk", "--verify"),
        OLD,
        (("old.safetensors", "out.npz", "--receipt", "r.json", "--depfile", "d.mk"),),
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
    ),
    "signed receipt of shards": Scenario(
        ("in.safetensors", "out.safetensors", *SHARDS, "--receipt", "r.json", "--sign", "k.key",
         "--receipt-tensors"),
        IN,
        (("keygen", "k"),),
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
    ),
    "append": Scenario(
        ("append", "out.npz", "more.safetensors"),
        {**OLD, "more.safetensors": files.safetensors({"x": files.f32(1, 2)})},
        (("old.safetensors", "out.npz", "--keep-metadata=sidecar"),),
    ),
    "append to deathtensors": Scenario(
        ("append", "out.deathtensors", "more.safetensors", "--metadata", "k=v"),
        {**OLD, "more.safetensors": files.safetensors({"x": files.f32(1, 2)})},
        (("old.safetensors", "out.deathtensors", "--compress"),),
    ),
    "manifest": Scenario(("manifest", "in.safetensors", "m.json"), {**IN, "m.json": b"old"}),
    "keygen": Scenario(("keygen", "k"), {}, varies=("k.key", "k.pub")),
    "get": Scenario(("get", "in.safetensors", "a", "-o", "a.npy"), {**IN, "a.npy": b"old"}),
    "stats page": Scenario(
        ("stats", "in.safetensors", "--html", "s.html"), {**IN, "s.html": b"old"}
    ),
    "write a schema": Scenario(
        ("check", "--write-schema", "-o", "s.json", "in.safetensors"), {**IN, "s.json": b"old"}
    ),
    "check, SARIF": Scenario(
        ("check", "--schema", "s.json", "in.safetensors", "--sarif", "r.sarif", "--junit", "r.xml"),
        {**IN, "s.json": SCHEMA, "r.sarif": b"old"},
        reports=("r.sarif", "r.xml"),
    ),
    "scan, SARIF": Scenario(("scan", "in.pt", "--sarif", "r.sarif"), {**PT, "r.sarif": b"old"}, reports=("r.sarif",)),
}

HEADS = {
    "sidecar": "out.npz",
    "sidecar over old": "out.npz",
    "sidecar goes": "out.npz",
    "shards": "out.safetensors.index.json",
    "shards over old": "out.safetensors.index.json",
    "shards over old, named": "out.safetensors.index.json",
    "shards over old, no links": "out.safetensors.index.json",
    "own index": "out.deathtensors",
    "companion": "out.onnx",
    "keygen": "k.key",
}
for _name, _head in HEADS.items():
    WRITING[_name] = dataclasses.replace(WRITING[_name], head=_head)

EVIL = {"in.pt": (DATA / "bad/evil_system.pt").read_bytes()}
READING = {
    "info": Scenario(("info", "in.pt"), PT),
    "info --json": Scenario(("info", "--json", "in.safetensors"), IN),
    "list": Scenario(("list", "in.pt"), PT),
    "hash": Scenario(("hash", "in.pt"), PT),
    "hash --digest": Scenario(("hash", "--digest", "in.pt", "in.safetensors"), {**PT, **IN}),
    "show": Scenario(("show", "in.safetensors", "a"), IN),
    "stats": Scenario(("stats", "in.safetensors"), IN),
    "stats --plot": Scenario(("stats", "--plot", "--json", "in.safetensors"), IN),
    "get to standard output": Scenario(("get", "in.safetensors", "a"), IN),
    "diff": Scenario(("diff", "in.safetensors", "old.safetensors"), OLD, code=DIFFERENT),
    "diff of equals": Scenario(("diff", "in.safetensors", "out.npz"), IN, (
        ("in.safetensors", "out.npz", "--keep-metadata=sidecar"),)),
    "verify": Scenario(("verify", "in.deathtensors"), {
        "in.deathtensors": (DATA / "deathtensors/zstd19_checksum.deathtensors").read_bytes()}),
    "verify shards": Scenario(("verify", "--json", "model.safetensors.index.json"),
                              loaded("index/model.safetensors.index.json")),
    "verify npz": Scenario(("verify", "in.npz"), {
        "in.npz": (DATA / "npz/deflated.npz").read_bytes()}),
    "verify receipt": Scenario(
        ("verify", "--receipt", "r.json", "--pubkey", "k.pub"), IN,
        (("keygen", "k"),
         ("in.safetensors", "out.npz", "--receipt", "r.json", "--sign", "k.key")),
    ),
    "check": Scenario(("check", "--schema", "s.json", "in.safetensors"), {**IN, "s.json": SCHEMA}),
    "scan": Scenario(("scan", "in.pt"), PT),
    "scan, unsafe": Scenario(("scan", "--json", "in.pt"), EVIL, code=DIFFERENT),
    "scan npz": Scenario(("scan", "in.npz"), {"in.npz": (DATA / "npz/deflated.npz").read_bytes()}),
    "scan a folder": Scenario(("scan", "."), {
        **IN, "deep/in.npz": (DATA / "npz/stored.npz").read_bytes(),
        "deep/in.joblib": (DATA / "pt/joblib_zlib.pkl").read_bytes()}),
    "formats": Scenario(("formats",), {}),
    "help": Scenario(("help", "convert"), {}),
    "man": Scenario(("convert", "--help=man"), {}),
}


@functools.cache
def remote():
    """A Hub on loopback that serves as long as the suite runs, and the environment to use it."""
    hub = Hub()
    hub.add_repo("org/model", {"model.safetensors": model(2), "config.json": b"{}"})
    return hub, {
        "HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token, "HF_HOME": "/nonexistent", "TCONV_TEST_BACKOFF": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": "5", "HTTPS_PROXY": "", "https_proxy": "", "ALL_PROXY": "", "all_proxy": "",
    }  # fmt: skip


def remote_scenarios():
    hub, environment = remote()
    file = f"{hub.url}/org/model/resolve/main/model.safetensors"
    return {
        "info of an address": Scenario(("info", file), environment=environment),
        "convert an address": Scenario(("hf://org/model/model.safetensors", "out.npz", "-q"), {"out.npz": b"old"}, environment=environment),
        "convert a repository": Scenario(
            ("hf://org/model", "out.npz", "-q"), {"out.npz": b"old"}, environment=environment
        ),
        "hub list": Scenario(("hub", "list", "org/model"), environment=environment),
        "hub info": Scenario(("hub", "info", "org/model"), environment=environment),
        "hub push": Scenario(
            ("hub", "push", "org/sent", "in.safetensors", "--json"), IN, environment=environment, varies=("none",)
        ),
    }
