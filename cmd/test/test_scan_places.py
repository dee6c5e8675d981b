#!/usr/bin/env python3
"""`tconv scan`: clean is proven. Every way to write a pickle in every place that a loader looks at,
programs of other kinds, and folders."""

import functools
import json
import os
import pickle as op
import sys
import xml.etree.ElementTree as xml

from files import f32, npy, safetensors
from harness import DATA, IO, OK, SANITIZED, Suite, check_equal, expect, tconv, text
from pickles import (
    call,
    name,
    ndarray,
    ot,
    pickled,
    pt,
    pt_members,
    script_source,
    stack_name,
    tensor,
    zip_of,
)
from protobufs import attribute, block, external, initializer, model, node, number
from scan_files import HONEST_PICKLE, HONEST_PT, PROGRAMS, THREE, closed, misread, objects, places
from scans import BROKEN, CLEAN, CODE, EXIT, OTHER, UNSAFE, scan
from tf_files import field

HOSTILE = call("os", "system", "echo canary")
EVIL = pickled(HOSTILE)

# Ways to write the same call.
TRICKS = {
    "protocol 2": EVIL,
    "protocol 0": b"cos\nsystem\n(S'echo canary'\ntR.",
    "protocol 4": pickled(stack_name("os", "system") + b"\x8c\x04true\x85R", 4),
    "an instance": b"(S'echo canary'\nios\nsystem\n.",
    "no end": EVIL[:-1],
    "behind numbers": b"I1\n0N0K\x070" + EVIL,
}


def write(folder, files):
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    return next(iter(files))


def judge(folder, files, verdicts, *options):
    """Scan the first file; its object. The verdict is one of some, the exit code fits it."""
    file = write(folder, files)
    result = scan(folder, "--json", *options, file)
    lines = result.out.splitlines()
    check_equal(len(lines), 1, "lines on stdout", result)
    found = json.loads(lines[0])
    if found["verdict"] not in verdicts:
        raise result.failed(f"expected: {sorted(verdicts)}", f"got: {text(result.out)[:2000]}")
    check_equal(result.code, EXIT[found["verdict"]], "exit code", result)
    if not SANITIZED:
        check_equal(scan(folder, *options, file).code, result.code, "exit code without --json")
    return found, result


def hostile(place, pickle, folder):
    found, result = judge(folder, place(pickle), {UNSAFE})
    names = [each["name"] for each in found["globals"] if not each["allowed"]]
    check_equal("os.system" in names, True, f"os.system is among {names}", result)


# Where an honest pickle is as clean as the place is whole.
HONEST_PLACES = {
    "polyglots: called .bin": CLEAN,
    "polyglots: called .onnx": CLEAN,
    "polyglots: called nothing": CLEAN,
    "zips: zip, archive/DATA.PKL, method 0": BROKEN,  # torch takes it for data.pkl
    "zips: zip, archive/data/0.pkl, method 8": CLEAN,
    "zips: zip, x, method 0": BROKEN,  # not in the archive's folder
    "zips: zip with a comment": CLEAN,
    "zips: zip behind a prefix": BROKEN,
    "zips: zip with bytes behind": BROKEN,
    "zips: zip in a zip in a zip, method 0": CLEAN,
    "zips: zip in a zip in a zip, method 8": CLEAN,
    "zips: npz, method 12": CLEAN,
    "zips: npz, method 14": CLEAN,
    "tars: a tar's fifth member": CLEAN,
    "tars: behind a damaged member": BROKEN,
    "tars: tar.gz": CLEAN,
    "packed: gzip": CLEAN,
    "packed: zlib": CLEAN,
    "packed: zstd": CLEAN,
    "packed: bzip2": CLEAN,
    "packed: xz": CLEAN,
    "packed: LZMA": CLEAN,
    "packed: xz, then LZMA": CLEAN,
    "packed: two bzip2 streams": CLEAN,
    "packed: LZMA, no mark": OTHER,
    "packed: two gzip streams": CLEAN,
    "arrays: npy, '|O'": CLEAN,
    "arrays: npy behind a npy": CLEAN,
    "rows: behind 6 pickles": CLEAN,
    "others: an index's shard": CLEAN,
    "items: a pickle": CLEAN,
    "behind: GGUF": BROKEN,
}


def honest_place(place, verdict, folder):
    pickle = HONEST_PT if "zip" in verdict[0] and "npz" not in verdict[0] else HONEST_PICKLE
    judge(folder, place(pickle), {verdict[1]})


# The padding behind the last tensor may be missing, so that a byte there is a part of it.
PADDED = ("gguf/no_last_padding.gguf", "gguf/nothing.gguf")

# A file and what is wrong with it: nothing around a format goes by unseen.


def appended(path, folder):
    content = path.read_bytes()
    for label, more in (("a byte", b"\xff"), ("a pickle", EVIL), ("zeros", bytes(600))):
        file = folder / path.name
        file.write_bytes(content + more)
        result = scan(folder, "--json", path.name)
        found = json.loads(result.out)
        check_equal(found["verdict"] != CLEAN, True, f"{label} behind it is seen", result)


def honest_files():
    """Honest files give no finding, and programs are reported as such."""
    known = {
        **{f"pt/{name}": verdict for name, verdict in PROGRAMS.items()},
        "onnx/external.bin": OTHER,
        "tf/strings.tensor": {BROKEN, CLEAN},
    }
    for folder in "npy npz safetensors deathtensors index onnx pb pt ot tf tfrecord gguf dcp zero".split():
        for path in sorted((DATA / folder).rglob("*")):
            label = str(path.relative_to(DATA))
            if path.is_file() and path.suffix not in (".json", ".md", ".txt"):
                yield path, label, known.get(label, CLEAN)


def honest_file(path, verdict, folder):
    result = scan(path.parent, "--json", path.name)
    found = json.loads(result.out)
    verdicts = verdict if isinstance(verdict, set) else {verdict}
    check_equal(found["verdict"] in verdicts, True, f"{found['verdict']} among {verdicts}", result)


# Kept files in which the pickle that a loader would find is not found, but that it would.
MISREAD = ("scan_dcp_any_place", "scan_tar_renamed.pt", "scan_tar_resized.pt")


def kept_file(path, folder):
    """One of each kind that was called clean once."""
    kept, path = path.name, path / ".metadata" if path.is_dir() else path
    result = scan(path.parent, "--json", path.name)
    found = json.loads(result.out)
    verdict = CODE if "operator" in kept else BROKEN if kept in MISREAD else UNSAFE
    check_equal(found["verdict"], verdict, "verdict", result)


# Programs


def script(source, **more):
    return ot(more={"code/__torch__.py": source.encode(), **more})


FUNCTION = "class Module(Module):\n  def forward(self, x: Tensor) -> Tensor:\n    return {}\n"


def keras(*layers):
    config = {"module": "keras", "class_name": "Functional", "config": {"layers": list(layers)}}
    return zip_of(
        {
            b"metadata.json": b'{"keras_version": "3.5.0"}',
            b"config.json": json.dumps(config).encode(),
            b"model.weights.h5": b"\x89HDF\r\n\x1a\n" + bytes(88),
        }
    )


def layer(class_name, module="keras.layers", **more):
    return {"module": module, "class_name": class_name, "config": {}, **more}


def operator(domain, name="Relu"):
    return node(block(7, domain), operator=name)


def graph_node(name, op_name):
    return field(1, field(1, name.encode()) + field(2, op_name.encode()))


def saved_model(*operators):
    nodes = b"".join(graph_node(f"n{i}", each) for i, each in enumerate(operators))
    return field(1, 1) + field(2, field(1, field(2, b"x")) + field(2, nodes))


def programs():
    bare = script_source({"w": 0}).decode()
    yield "declarations alone", {"in.ot": script(bare)}, CLEAN, None
    yield "functions", {"in.ot": script(FUNCTION.format("x"))}, CODE, "torchscript"
    for call_ in (
        'torch.save(x, "f")',
        'torch.from_file("f", None, 4)',
        'ops.aten.from_file("f")',
        'ops.image.write_file("f", x)',
        'ops.torchaudio.sox_io_load_audio_file("f")',
        "torch.rpc_async(x)",
    ):
        source = script(FUNCTION.format(call_))
        yield f"a function with {call_}", {"in.pt": source}, UNSAFE, "torchscript-system"
    yield (
        "functions in another member",
        {"in.pt": script(bare, **{"code/__torch__/a/b.py": b"def f(x: int) -> int:\n  return x\n"})},
        CODE,
        "torchscript",
    )
    bytecode = pickled((3, ("f", (("operators", (("aten::save", ""),)),))))
    yield "bytecode", {"in.ptl": ot(more={"bytecode.pkl": pickled((3,))})}, CODE, "torchscript"
    yield (
        "bytecode that saves",
        {"in.ptl": ot(more={"bytecode.pkl": bytecode})},
        UNSAFE,
        "torchscript-system",
    )
    package = {
        b"p/.data/extern_modules": b"os\n",
        b"p/.data/version": b"6\n",
        b"p/model/model.pkl": HONEST_PICKLE,
        b"p/code.py": b"import os\n",
    }
    yield "torch.package", {"in.pt": zip_of(package)}, UNSAFE, "torch-package"
    yield "Python in a zip", {"in.zip": zip_of({b"a/b.py": b"x = 1\n"})}, CODE, "python-source"
    compiled = {b"archive/data.pkl": HONEST_PICKLE, b"archive/version": b"3\n"}
    for member, content in (
        (b"m.wrapper.so", b"\x7fELF\2\1\1" + bytes(60)),
        (b"m.wrapper.cpp", b"int main() { return 0; }\n"),
    ):
        yield (
            f"a compiled model with {member.decode()}, among what looks like storages",
            {"in.pt2": zip_of({**compiled, b"archive/data/aotinductor/model/" + member: content})},
            UNSAFE,
            "native-code",
        )
    native = {b"a/model.so": b"\x7fELF\2\1\1" + bytes(60)}
    yield "a compiled model", {"in.pt2": zip_of(native)}, UNSAFE, "native-code"
    exported = {b"m/models/model.json": b'{"graph_module": {}}', b"m/version": b"1"}
    yield "torch.export", {"in.pt2": zip_of(exported)}, CODE, "torch-export"

    yield "Keras", {"in.keras": keras(layer("Dense"))}, OTHER, None
    for label, each in (
        ("a Lambda", layer("Lambda")),
        ("a nested Lambda", layer("Wrapper", config={"layer": layer("Lambda")})),
        ("a lambda as a function", layer("Activation", config={"f": layer("__lambda__")})),
    ):
        yield f"Keras, {label}", {"in.keras": keras(each)}, UNSAFE, "keras-lambda"
    escaped = keras(layer("Lambda")).replace(b'"Lambda"', b'"\\u004cambda"')
    yield "Keras, an escaped Lambda", {"in.keras": escaped}, {UNSAFE}, None
    yield "Keras, a module", {"in.keras": keras(layer("run", "subprocess"))}, UNSAFE, "keras-module"
    for loader in ("TorchModuleWrapper", "TFSMLayer"):
        yield f"Keras, a {loader}", {"in.keras": keras(layer(loader))}, UNSAFE, "keras-loader"
    for module in ("builtins", "keras.utils"):
        function = layer("function", module, config="exec")
        behind = dict(reversed(function.items()))  # the module is said behind the class
        for label, each in (("", function), (", said first", behind)):
            yield f"Keras, a function of {module}{label}", {"in.keras": keras(each)}, UNSAFE, "keras-function"
    own = layer("Mine", registered_name="Custom>Mine")
    yield "Keras, a class", {"in.keras": keras(own)}, CODE, "keras-custom"
    old = b'\x89HDF\r\n\x1a\n{"class_name": "Lambda", "config": 1}' + bytes(99)
    yield "HDF5 with a Lambda", {"in.h5": old}, UNSAFE, "keras-lambda"

    for domain in ("", "ai.onnx", "ai.onnx.ml", "com.microsoft"):
        yield f"ONNX, {domain!r}", {"in.onnx": model(operator(domain))}, CLEAN, None
    for domain in ("ai.onnx.contrib", "mine", "com.microsoft.mine"):
        yield f"ONNX, {domain!r}", {"in.onnx": model(operator(domain))}, CODE, "onnx-operator"
    python = model(operator("com.microsoft", "PythonOp"))
    yield "ONNX, Python", {"in.onnx": python}, UNSAFE, "onnx-operator"
    inner = attribute("then_branch", block(6, operator("mine")) + number(20, 5))
    yield "ONNX, in a branch", {"in.onnx": model(node(inner))}, CODE, "onnx-operator"
    function = block(25, block(1, "f") + block(10, "mine") + block(7, block(4, "Relu")))
    yield "ONNX, a function", {"in.onnx": model(b"", behind=function)}, CODE, "onnx-function"
    outside = model(initializer(THREE, "w", external("../secret")))
    yield "ONNX, a file outside", {"in.onnx": outside}, UNSAFE, "external-data"

    plain = graph_node("a", "Const") + graph_node("b", "Add")
    yield "TensorFlow's graph", {"in.pb": plain}, CODE, "tensorflow-graph"
    for each in ("ReadFile", "WriteFile", "PyFunc", "EagerPyFunc", "PrintV2"):
        system = plain + graph_node("c", each)
        yield f"TensorFlow, {each}", {"in.pb": system}, UNSAFE, "tensorflow-system"
        saved = saved_model("Const", each)
        yield f"a saved model, {each}", {"saved_model.pb": saved}, UNSAFE, "tensorflow-system"
    outside = b'{"weight_map": {"a": "../x.bin"}}'
    yield "an index that leaves its folder", {"in.index.json": outside}, UNSAFE, "shard-path"


def program(files, verdict, code_, folder):
    verdicts = verdict if isinstance(verdict, set) else {verdict}
    found, result = judge(folder, files, verdicts)
    codes = {each["code"] for each in found["findings"]}
    if code_:
        check_equal(code_ in codes, True, f"{code_} among {codes}", result)
    if verdict == CODE:
        by_script = codes == {"torchscript"}
        for allow, passes in (("torchscript", by_script), ("code", True)):
            allowed = scan(folder, f"--allow={allow}", next(iter(files)))
            left = 3 if code_.startswith("keras") else 0  # its weights are in no format of ours
            check_equal(allowed.code == left, passes, f"allowed by {allow}", allowed)


# Folders


def folder_of_all(folder):
    write(
        folder,
        {
            "m/a.safetensors": safetensors({"a": f32(1)}),
            "m/.hidden/.b.pkl": EVIL,
            "m/deep/er/c.txt": b"hello\n",
            "m/d.npy": npy() + b"x",
            "m/e.pt": ot(more={"code/__torch__.py": FUNCTION.format("x").encode()}),
        },
    )
    os.mkfifo(folder / "m/pipe")
    (folder / "secret.pkl").write_bytes(EVIL)
    os.symlink("../secret.pkl", folder / "m/link.pkl")
    os.symlink("..", folder / "m/up")
    result = scan(folder, "--json", "m")
    *files, last = map(json.loads, result.out.splitlines())
    verdicts = {each["file"]: each["verdict"] for each in files}
    check_equal(
        verdicts,
        {
            "m/.hidden/.b.pkl": UNSAFE,
            "m/a.safetensors": CLEAN,
            "m/d.npy": BROKEN,
            "m/deep/er/c.txt": OTHER,
            "m/e.pt": CODE,
        },
        "verdicts",
        result,
    )
    counts = {"files": 5, UNSAFE: 1, CODE: 1, BROKEN: 1, OTHER: 1, CLEAN: 1}
    check_equal(last["summary"], counts | {"failed": 0, "links": 2, "skipped": 1}, "summary", result)
    check_equal(result.code, 1, "exit code", result)
    shown = scan(folder, "m")
    check_equal("m/link.pkl: a link" in text(shown.out), True, "links are reported", shown)
    check_equal("5 files: 1 unsafe, 1 code" in text(shown.out), True, "counts are printed", shown)


def folders_worst(folder):
    """Worst first, across files; what is no model is only counted."""
    honest, odd, cut = safetensors({"a": f32(1)}), b"hello\n", npy()[:-1]
    for label, files, code_ in (
        ("clean", {"a": honest}, 0),
        ("other", {"a": honest, "b.txt": odd}, 0),
        ("broken", {"a": honest, "b.npy": cut, "c.txt": odd}, 3),
        ("unsafe", {"a": EVIL, "b.npy": cut}, 1),
    ):
        write(folder, {f"{label}/{file}": content for file, content in files.items()})
        result = scan(folder, label)
        check_equal(result.code, code_, f"exit code of {label}", result)
    check_equal(scan(folder, "other/b.txt").code, 3, "exit code of a named file of no format")
    check_equal(scan(folder, "clean", "unsafe", "broken").code, 1, "exit code of several")
    check_equal(scan(folder, "missing", "clean").code, IO, "exit code of one that is missing")


def reports(folder):
    write(folder, {"m/a.pkl": EVIL, "m/b.npy": npy(), "m/c.npy": npy()[:-1]})
    result = tconv("scan", "--sarif=out.sarif", "--junit=out.xml", "m", cwd=folder)
    check_equal(result.code, 1, "exit code", result)
    (run,) = json.loads((folder / "out.sarif").read_text())["runs"]
    found = {
        (each["ruleId"], each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        for each in run["results"]
    }
    check_equal(
        found >= {("pickle-global", "m/a.pkl"), ("pickle-call", "m/a.pkl"), ("truncated", "m/c.npy")},
        True,
        f"results {found}",
    )
    check_equal(any("os.system" in each["message"]["text"] for each in run["results"]), True, "name")
    suites = {each.get("name"): each for each in xml.parse(folder / "out.xml").getroot()}
    failures = {each: int(suite.get("failures")) for each, suite in suites.items()}
    check_equal(failures, {"m/a.pkl": 2, "m/b.npy": 0, "m/c.npy": 1}, "failures")


def pipe_as_shard(folder):
    """A pipe or a link to nowhere in an index is never waited for."""
    os.mkfifo(folder / "a.bin")
    found, result = judge(folder, {"in.index.json": b'{"weight_map": {"a": "a.bin"}}'}, {BROKEN})
    check_equal("a.bin" in found["broken"], True, found["broken"], result)


def many_shards(folder):
    """More files than the process may have open."""
    shards = {f"s{n}.safetensors": safetensors({f"t{n}": f32(n)}) for n in range(60)}
    index = {"metadata": {}, "weight_map": {f"t{n}": f"s{n}.safetensors" for n in range(60)}}
    file = write(folder, {"in.safetensors.index.json": json.dumps(index).encode(), **shards})
    expect(folder, OK, "scan", file, prefix=("sh", "-c", 'ulimit -n 32 && exec "$0" "$@"'))


def dash_as_shard(folder):
    """A shard called - is a file, not standard input."""
    write(folder, {"in.index.json": b'{"weight_map": {"a": "-"}}', "-": EVIL})
    result = scan(folder, "--json", "in.index.json")
    check_equal(json.loads(result.out)["verdict"], UNSAFE, "verdict", result)


def limits(folder):
    """What can't be proven within the limits is broken, and the option is named."""
    zeros = npy("<u1", (4 << 20,), bytes(4 << 20))
    write(folder, {"in.npz": zip_deflated({"a.npy": zeros})})
    result = scan(folder, "--json", "--max-size=1M", "in.npz")
    found = json.loads(result.out)
    check_equal(found["verdict"], BROKEN, "verdict", result)
    check_equal("--max-size" in found["hint"], True, "hint", result)
    check_equal(scan(folder, "in.npz").code, 0, "exit code without the limit")


def zip_deflated(members):
    from files import Member, zip_file

    return zip_file([Member(each.encode(), content, 8) for each, content in members.items()])


def nested_deep(folder):
    """Archives in archives come to an end."""
    content = pt(HONEST_PT)
    for _ in range(40):
        content = zip_of({b"a/b.pt": content})
    found, result = judge(folder, {"in.pt": content}, {BROKEN})
    check_equal("too many archives" in found["broken"], True, found["broken"], result)


def never_clean(pack, folder):
    file = write(folder, {"in.pkl": pack(EVIL)})
    result = scan(folder, "--json", file)
    check_equal(json.loads(result.out)["verdict"] in (OTHER, BROKEN), True, "verdict", result)


def not_clean(place, folder):
    judge(folder, place(EVIL), {UNSAFE, BROKEN})


def accidents(folder):
    """The first bytes of an honest file may be a pickle of nothing, or of an extension."""
    for first in (b"N.", b"\x82\x01.", b"P\n.", b"]Q.", b"\x80\x07N.", b"T\1\0\0\0a."):
        length = int.from_bytes(first.ljust(8, b"\0"), "little")
        if length < 90 or length > 4 << 20:
            continue
        header = json.dumps({"t": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})
        content = length.to_bytes(8, "little") + header.ljust(length).encode() + b"x"
        judge(folder, {"in.safetensors": content}, {CLEAN})
    members = pt_members(HONEST_PT, {"0": b"\x82\x01.NNNNNNNNN"[:12]})
    judge(folder, {"in.pt": zip_of(members)}, {CLEAN})


def cases(_suite):
    for number, (label, place) in enumerate(places()):
        # In a sanitizer build each place has a third of the ways, the next place another third.
        tricks = list(TRICKS.items())[number % 3 :: 3] if SANITIZED else TRICKS.items()
        for trick, pickle in tricks:
            yield f"{label}: {trick}", functools.partial(hostile, place, pickle)
        if label in HONEST_PLACES:
            verdict = (label, HONEST_PLACES[label])
            yield f"honest: {label}", functools.partial(honest_place, place, verdict)
    for path, label, verdict in honest_files():
        yield f"honest file {label}", functools.partial(honest_file, path, verdict)
        if verdict == CLEAN and label not in PADDED and path.stat().st_size < 1 << 20:
            yield f"behind {label}", functools.partial(appended, path)
    for path in sorted((DATA / "bad").glob("scan_*")):
        yield f"kept: {path.name}", functools.partial(kept_file, path)
    for label, files, verdict, code_ in programs():
        yield f"program: {label}", functools.partial(program, files, verdict, code_)
    for label, pack in closed():
        yield f"closed: {label}", functools.partial(never_clean, pack)
    for label, place in misread():
        yield f"misread: {label}", functools.partial(not_clean, place)
    for case in (
        folder_of_all,
        folders_worst,
        reports,
        pipe_as_shard,
        dash_as_shard,
        many_shards,
        limits,
        nested_deep,
        accidents,
    ):
        yield case.__name__, case


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(cases(suite)))
