"""What cmd/test/test_faults.py runs: every pair of formats, and every command."""

import dataclasses
import functools
import json
import struct
import subprocess

import files
from files import Tensor
from faults import Scenario
from harness import DATA, DIFFERENT, INVALID, REMOTE, TCONV, USAGE
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
    "gguf": ["gguf/metadata.gguf", "gguf/quantised.gguf"],
    "dcp": ["dcp/mini/.metadata", "dcp/zstd/.metadata"],
    "zero": ["zero/stage1/latest", "zero/stage3/latest"],
}
BESIDE = {  # what an input reads besides itself
    "index/model.safetensors.index.json": "index/model-*.safetensors",
    "onnx/external.onnx": "onnx/external.bin",
    "blockscaled/deepseek_v3/model.safetensors.index.json": "blockscaled/deepseek_v3/[cm]*[sn]",
    "blockscaled/gpt_oss_hf/model.safetensors": "blockscaled/gpt_oss_hf/config.json",
    "dcp/mini/.metadata": "dcp/mini/__*",
    "dcp/zstd/.metadata": "dcp/zstd/__*",
    "zero/stage1/latest": "zero/stage1/*/*",
    "zero/stage3/latest": "zero/stage3/*/*",
}
NAMED = {"TCONV_TEST_NAMED": "1"}


@functools.cache
def formats():
    """The rows of `tconv formats --json`."""
    result = subprocess.run([TCONV, "formats", "--json"], capture_output=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


@functools.cache
def commands():
    """The names that `tconv help` lists."""
    text = subprocess.run([TCONV, "help"], capture_output=True, check=True, text=True).stdout
    table = text.partition("\nCommands:\n")[2].partition("\n\n")[0]
    return {line.split()[0] for line in table.splitlines()}


def options(command):
    """The spellings of each option of a command, the long one first."""
    words = subprocess.run(
        [TCONV, command, "--help=words"], capture_output=True, check=True, text=True
    ).stdout
    found = {}
    for line in words.splitlines():
        name, *rest = line.split("\t")
        if name.startswith("-"):
            found.setdefault(tuple(rest), []).append(name)
    return [sorted(names, key=len, reverse=True) for names in found.values()]


def inputs_of(name):
    if name in INPUTS:
        return INPUTS[name]
    found = [path for path in (DATA / name).iterdir() if path.is_file()]
    return [str(min(found, key=lambda path: path.stat().st_size).relative_to(DATA))]


def loaded(path):
    """{name: bytes} of an input and what it needs, and its name."""
    names = [DATA / path, *(DATA.glob(BESIDE[path]) if path in BESIDE else ())]
    return {str(file.relative_to((DATA / path).parent)): file.read_bytes() for file in names}


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

SCALED = loaded("blockscaled/deepseek_v3/model.safetensors.index.json")
OSS = loaded("blockscaled/gpt_oss_hf/model.safetensors")
DCP = loaded("dcp/mini/.metadata")
TREE = {"in.pt": (DATA / "pt/checkpoint.pt").read_bytes()}
GGUF = {"in.gguf": (DATA / "gguf/blocks.gguf").read_bytes()}

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
    "split files of GGUF": Scenario(("in.gguf", "out.gguf", "--shard-size", "4K", "-q"), GGUF),
    "split files read": Scenario(
        ("out-00001-of-00004.gguf", "out.npz", "-q"), GGUF,
        (("in.gguf", "out.gguf", "--shard-size", "4K", "-q"),),
    ),
    "dequantise": Scenario(
        ("model.safetensors.index.json", "out.safetensors", "--dequantize", "-q"), SCALED
    ),
    "dequantise and transpose": Scenario(
        ("model.safetensors", "out.safetensors", "--dequantize", "-q"), OSS
    ),
    "on eight threads": Scenario(("in.safetensors", "out.deathtensors", "--compress", "--checksum", "-j", "8", "-q"), BIG),
    "packed and verified on eight threads": Scenario(
        ("in.safetensors", "out.npz", "--compress", "--verify", "-j", "8", "-q"), {**BIG, "out.npz": b"old"}
    ),
    "in blocks that can be shared": Scenario(
        ("in.safetensors", "out.safetensors", "--align", "reflink", "-q"), {**BIG, "out.safetensors": b"old"}
    ),
    "a checkpoint with its tree": Scenario(
        ("in.pt", "out.safetensors", "--tree", "always", "-q"), {**TREE, "out.safetensors": b"old"}
    ),
    "a checkpoint in many files, in shards": Scenario((".metadata", "out.safetensors", *SHARDS, "-q"), DCP),
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
        again=INVALID,
    ),
    "append to deathtensors": Scenario(
        ("append", "out.deathtensors", "more.safetensors", "--metadata", "k=v"),
        {**OLD, "more.safetensors": files.safetensors({"x": files.f32(1, 2)})},
        (("old.safetensors", "out.deathtensors", "--compress"),),
        again=INVALID,
    ),
    "append, replacing": Scenario(
        ("append", "out.npz", "in.safetensors", "--replace", "--receipt", "r.json", "--depfile", "d.mk"),
        OLD,
        (("old.safetensors", "out.npz"),),
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
        varies=("r.json",),  # it names the file that was there before
    ),
    "keep shards": Scenario(
        ("model.safetensors.index.json", "out.pt", "--keep-shards", "-q"),
        loaded("index/model.safetensors.index.json"),
        head="out.pt.index.json",
    ),
    "manifest": Scenario(("manifest", "in.safetensors", "m.json"), {**IN, "m.json": b"old"}),
    "keygen": Scenario(("keygen", "k"), {}, varies=("k.key", "k.pub"), again=USAGE),
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
    "scan, SARIF": Scenario(
        ("scan", "in.pt", "--sarif", "r.sarif", "--junit", "r.xml"), {**PT, "r.sarif": b"old"},
        reports=("r.sarif", "r.xml"),
    ),
    "verify, SARIF": Scenario(
        ("verify", "in.safetensors", "--sarif", "r.sarif", "--junit", "r.xml"), {**IN, "r.sarif": b"old"},
        reports=("r.sarif", "r.xml"),
    ),
}

HEADS = {
    "sidecar": "out.npz",
    "sidecar over old": "out.npz",
    "sidecar goes": "out.npz",
    "shards": "out.safetensors.index.json",
    "shards over old": "out.safetensors.index.json",
    "shards over old, named": "out.safetensors.index.json",
    "shards over old, no links": "out.safetensors.index.json",
    "split files of GGUF": "out-00001-of-00004.gguf",
    "own index": "out.deathtensors",
    "companion": "out.onnx",
    "keygen": "k.key",
}
for _name, _head in HEADS.items():
    WRITING[_name] = dataclasses.replace(WRITING[_name], head=_head)

# A model folder, whole and in shards, with files that are copied.
COPIED = {"config.json": b"{}", "tokenizer/words.txt": b"one two", "readme.md": b"hello"}


def model_folder(name, weights, copied=COPIED):
    return {f"{name}/{file}": data for file, data in {**weights, **copied}.items()}


FOLDER = model_folder("in", {"model.safetensors": model(2)})
SHARDED = model_folder("in", loaded("index/model.safetensors.index.json"))
OLD_FOLDER = {**FOLDER, **model_folder("old", {"model.safetensors": model(1)}, {"config.json": b"[]", "gone.txt": b"old"})}
TO_PT = ("in", "out/", "-t", "pt", "-q")
FOLDERS = {
    "model folder": Scenario(TO_PT, FOLDER, again=USAGE),
    "model folder, named": Scenario(TO_PT, FOLDER, environment=NAMED, again=USAGE),
    "model folder in shards": Scenario(
        ("in", "out/", "-t", "safetensors", "--dtype", "F64", "-q"), SHARDED, again=USAGE
    ),
    "model folder, merged and verified": Scenario(
        ("in", "out/", "-t", "npz", "--merge", "--only-weights", "--verify", "--receipt", "r.json", "--depfile", "d.mk"),
        SHARDED,
        aside=("r.json", "d.mk"),
        again=USAGE,
    ),
    "replace a folder": Scenario((*TO_PT, "--replace"), OLD_FOLDER, (("old", "out/", "-t", "pt"),)),
    "replace a folder, no exchange": Scenario(
        (*TO_PT, "--replace"),
        OLD_FOLDER,
        (("old", "out/", "-t", "pt"),),
        environment={"TCONV_TEST_NO_EXCHANGE": "1"},
    ),
    "replace a folder and its receipt": Scenario(
        (*TO_PT, "--replace", "--receipt", "r.json"),
        OLD_FOLDER,
        (("old", "out/", "-t", "pt", "--receipt", "r.json"),),
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
    ),
    "a folder for several inputs": Scenario(
        ("in.safetensors", "old.safetensors", "-t", "npz", "-q", "out/"), OLD, apart=("out/in", "out/old")
    ),
    "a folder for several inputs, over old": Scenario(
        ("in.safetensors", "old.safetensors", "-t", "npz", "-q", "out/"),
        {**OLD, "out/in.npz": b"old", "out/other": b"stays"},
        apart=("out/in", "out/old"),
    ),
    "a folder for the tensors of several inputs": Scenario(
        ("in.safetensors", "old.safetensors", "-q", "out/"), OLD, apart=("out/in", "out/old")
    ),
    "per tensor": Scenario(("in.safetensors", "out/", "-t", "deathtensors", "--per-tensor", "-q"), IN),
}

# Edits, in the file's own place and elsewhere.
EDITS = {
    "edit": Scenario(("edit", "in.safetensors", "--metadata", "k=v", "--rename", "s/a/z/"), IN),
    "edit, in blocks that can be shared": Scenario(
        ("edit", "in.safetensors", "--align", "reflink", "--metadata", "k=v"), BIG
    ),
    "edit, named": Scenario(("edit", "in.safetensors", "--metadata", "k=v"), IN, environment=NAMED),
    "edit with a sidecar": Scenario(
        ("edit", "out.npz", "--drop-metadata", "from", "--metadata", "k=v"), OLD,
        (("old.safetensors", "out.npz", "--keep-metadata=sidecar"),), head="out.npz",
    ),
    "edit shards": Scenario(
        ("edit", "out.safetensors.index.json", "--metadata", "k=v"), OLD,
        (("old.safetensors", "out.safetensors", *SHARDS),), head="out.safetensors.index.json",
    ),
    "edit elsewhere": Scenario(
        ("edit", "in.safetensors", "-o", "out.safetensors", "--metadata", "k=v", "--receipt", "r.json",
         "--depfile", "d.mk", "--verify"),
        {**IN, "out.safetensors": b"old", "r.json": b"old"},
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
    ),
    "edit shards elsewhere": Scenario(
        ("edit", "old.safetensors.index.json", "-o", "out.safetensors.index.json", "--metadata", "k=v"), OLD,
        (("old.safetensors", "old.safetensors", *SHARDS),), head="out.safetensors.index.json",
    ),
}


def shard_jobs(count, *more):
    """The commands of jobs that write a shard each."""
    words = ("in.safetensors", "out/out.safetensors", *SHARDS, *more)
    return tuple((*words, "--shard", f"{number}/{count}") for number in range(1, count + 1))


PLACE = {**IN, "out/other": b"stays"}
PARTED = {**SHARDED, "out/other": b"stays"}
FOLDER_JOB = ("in", "out/in.parts/", "-t", "pt", "-q")
JOBS = {
    "one shard": Scenario(shard_jobs(2)[1], PLACE, shard_jobs(2)[:1]),
    "one shard, verified": Scenario(shard_jobs(2, "--verify")[1], PLACE),
    "index": Scenario(("index", "out"), PLACE, shard_jobs(2), head="out/out.safetensors.index.json"),
    "index over old": Scenario(
        ("index", "--verify", "--receipt", "out/r.json", "out/out.safetensors.index.json"),
        {**PLACE, "out/out.safetensors.index.json": b"old", "out/r.json": b"old"},
        shard_jobs(2, "--verify"),
        aside=("out/r.json",),
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
    ),
    "index of two folders": Scenario(
        ("index", "out", "more"), {**PLACE, "more/other": b"stays"},
        (*shard_jobs(2), *(tuple(word.replace("out/", "more/") for word in job) for job in shard_jobs(2))),
        apart=("out", "more"),
    ),
    "copied files": Scenario((*FOLDER_JOB, "--shard", "0/3"), PARTED),
    "index of a model folder": Scenario(
        ("index", "out", "--receipts", "--replace"),
        {**PARTED, "out/in/other": b"old"},
        tuple((*FOLDER_JOB, "--shard", f"{number}/3") for number in (0, 1, 2, 3)),
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
    ),
}

LOG = "dst/.tconv-batch.jsonl"
MANY = {
    "src/a.safetensors": model(1), "src/b.safetensors": model(2), "src/deep/c.safetensors": model(3),
    **{f"src/{name}": data for name, data in model_folder("m", {"model.safetensors": model(4)}).items()},
}
PLACES = ("dst/a.", "dst/b.", "dst/deep/c.", "dst/m")
TO_NPZ = ("batch", "src", "dst", "-t", "npz", "-q", "-j", "1")
ONE_BY_ONE = {"varies": (LOG,), "apart": PLACES, "again": USAGE}  # a model folder is not replaced


def without(models, *names):
    return {name: data for name, data in models.items() if name not in names}


BATCHES = {
    "batch": Scenario(TO_NPZ, MANY, **ONE_BY_ONE),
    "batch over old": Scenario(
        (*TO_NPZ, "--replace"),
        {**MANY, "dst/a.npz": b"old", "dst/m/model.npz": b"old", "dst/x": b"stays"},
        **ONE_BY_ONE,
    ),
    "batch, two at once": Scenario(
        (*TO_NPZ[:-1], "2", "--verify", "--keep-metadata=sidecar"), without(MANY, "src/deep/c.safetensors"),
        varies=(LOG,), apart=("dst/a.", "dst/b.", "dst/m"), again=USAGE,
    ),
    "batch of one, stopping": Scenario(
        ("batch", "src/a.safetensors", "dst", "-t", "safetensors", "-q", "-j", "1", "--fail-fast", *SHARDS, "--prune"),
        {**MANY, "dst/other": b"stays", "old.safetensors": model(7)},
        (("old.safetensors", "dst/a.safetensors", "--shard-size", "400"),),
        varies=(LOG,), apart=("dst/a",), head="dst/a.safetensors.index.json",
    ),
    "batch, resumed": Scenario(
        (*TO_NPZ, "--resume"), MANY,
        (("batch", "src/a.safetensors", "dst", "-t", "npz", "-q", "-j", "1", "--resume"),), **ONE_BY_ONE
    ),
    "batch, updated": Scenario(
        (*TO_NPZ, "--update"), MANY,
        (("batch", "src/a.safetensors", "dst", "-t", "npz", "-q", "-j", "1", "--update"),),
        environment={"SOURCE_DATE_EPOCH": "1700000000"}, aside=("dst/m.receipt.json",), **ONE_BY_ONE,
    ),
    "batch, sources go": Scenario(
        ("batch", "src", "dst", "-t", "deathtensors", "-q", "-j", "1", "--rm", "--receipts", "--replace"), MANY,
        varies=(LOG,),
        apart=(*PLACES, "src/a.", "src/b.", "src/deep/c.", "src/m/model"),
        after={"src/a.": "dst/a.", "src/b.": "dst/b.", "src/deep/c.": "dst/deep/c.", "src/m/model": "dst/m"},
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
        aside=("dst/m.receipt.json",),
        again=USAGE,
    ),
    "batch from a list and a pattern": Scenario(
        ("batch", "src/*.safetensors", "--files-from", "list", "dst", "-t", "pt", "-q", "-j", "1", "--skip-existing"),
        {**MANY, "list": b"src/deep/c.safetensors\n", "dst/a.pt": b"old"},
        varies=(LOG,), apart=("dst/b.", "dst/src"),
    ),
}

# Outputs that are there and may stay.
STAYING = {
    "if changed": Scenario(
        ("in.safetensors", "out.npz", "--if-changed", "--receipt", "r.json", "-q"), OLD,
        (("old.safetensors", "out.npz", "--receipt", "r.json"),),
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
    ),
    "if changed, unchanged": Scenario(
        ("in.safetensors", "out.npz", "--if-changed", "-q"), IN, (("in.safetensors", "out.npz"),)
    ),
    "shards, unchanged": Scenario(
        ("in.safetensors", "out.safetensors", *SHARDS, "--if-changed", "-q"), IN,
        (("in.safetensors", "out.safetensors", *SHARDS),), head="out.safetensors.index.json",
    ),
    "skip existing": Scenario(
        ("in.safetensors", "out.npz", "--skip-existing", "-q"), {**IN, "out.npz": b"old"}
    ),
    "update": Scenario(
        ("in.safetensors", "out.npz", "--update", "--receipt", "r.json", "-q"), OLD,
        (("old.safetensors", "out.npz", "--receipt", "r.json"),),
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
    ),
    "up to date": Scenario(
        ("in.safetensors", "out.npz", "--update", "--receipt", "r.json", "-q"), IN,
        (("in.safetensors", "out.npz", "--update", "--receipt", "r.json"),),
        environment={"SOURCE_DATE_EPOCH": "1700000000"},
    ),
    "no clobber": Scenario(("in.safetensors", "out.npz", "--no-clobber"), IN, again=USAGE),
    "shards, no clobber": Scenario(
        ("in.safetensors", "out.safetensors", *SHARDS, "--no-clobber"), IN,
        head="out.safetensors.index.json", again=USAGE,
    ),
}
WRITING |= {**FOLDERS, **EDITS, **JOBS, **BATCHES, **STAYING}

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
    "scan a checkpoint": Scenario(("scan", ".metadata"), {
        name: (DATA / "dcp/mini" / name).read_bytes() for name in (".metadata", "__0_0.distcp")}),
    "formats": Scenario(("formats",), {}),
    "help": Scenario(("help", "convert"), {}),
    "man": Scenario(("convert", "--help=man"), {}),
}


@functools.cache
def remote():
    """A Hub on loopback that serves as long as the suite runs, and the environment to use it."""
    hub = Hub()
    for name in ("org/model", "org/converted"):
        hub.add_repo(name, {"model.safetensors": model(2), "config.json": b"{}"})
    return hub, {
        "HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token, "HF_HOME": "/nonexistent", "TCONV_TEST_BACKOFF": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": "5", "HTTPS_PROXY": "", "https_proxy": "", "ALL_PROXY": "", "all_proxy": "",
    }  # fmt: skip


def remote_scenarios():
    if not REMOTE:
        return {}
    hub, environment = remote()
    file = f"{hub.url}/org/model/resolve/main/model.safetensors"
    return {
        "info of an address": Scenario(("info", file), environment=environment),
        "convert an address": Scenario(("hf://org/model/model.safetensors", "out.npz", "-q"), {"out.npz": b"old"}, environment=environment),
        "convert a repository": Scenario(
            ("hf://org/model", "out.npz", "-q"), {"out.npz": b"old"}, environment=environment
        ),
        "hub convert twice": Scenario(
            ("hub", "convert", "org/converted", "model.safetensors", "-o", "sent.dt", "--no-spool", "--json"),
            environment=environment,
            varies=("none",),
        ),
        "hub list": Scenario(("hub", "list", "org/model"), environment=environment),
        "hub info": Scenario(("hub", "info", "org/model"), environment=environment),
        "hub convert": Scenario(
            ("hub", "convert", "org/converted", "model.safetensors", "-o", "m.npz", "--json"), environment=environment, varies=("none",)
        ),
        "hub push": Scenario(
            ("hub", "push", "org/sent", "in.safetensors", "--json"), IN, environment=environment, varies=("none",)
        ),
    }
