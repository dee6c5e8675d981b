"""Whatever picklescan, fickling or modelscan flags, tconv scan flags; and honest files are clean.

Of the files of their own tests none is in their packages: picklescan's has the tests alone, the other two not even
those. Instead there is each name on their lists, and each that picklescan's tests expect, in every way to name it; the
tricks of their advisories; and every container, each with a payload that they know.
"""
import io
import json
import logging
import pickle
import warnings
import zipfile
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from fickling import analysis, fickle
from modelscan.modelscan import ModelScan
from modelscan.settings import DEFAULT_SETTINGS
from picklescan import scanner

from containers import CONTAINERS, zipped
from hostile_files import GOOD, SYSTEM, listed_names, tricks, ways_to_name
from pickle_code import model, pickle_of

# On tconv's own list, though a scanner denies it: the bytes that it is given are run on the machine.
LISTED = {("torch.storage", "_load_from_bytes")}
# Honest files that hold programs or classes: never clean, and cmd/test/scan_files.py says what each is.
PROGRAMS = {
    "frozen.pt", "fx_module.pt", "jax.pkl", "model_1_0.pt", "odd_values.pt", "pandas.pkl", "torchscript.pt",
    "whole_module.pt",
}  # fmt: skip
TESTDATA = Path(__file__).parents[2] / "testdata"
NAMING = b"ci\x93o\x82\x83\x84"  # GLOBAL, INST, STACK_GLOBAL, OBJ, EXT
EXIT = {"clean": 0, "unsafe": 1, "code": 1, "broken": 3, "other": 3}
BATCH = 500
for each in ("picklescan", "modelscan"):
    logging.getLogger(each).setLevel(logging.CRITICAL)
warnings.simplefilter("ignore")  # of odd headers, by the scanners


def run(checks, tconv):
    flagged: Counter[str] = Counter()
    for start in range(0, len(found := hostile()), BATCH):
        with tconv.folder() as folder:
            check_hostile(checks, tconv, folder, found[start : start + BATCH], flagged)
    with tconv.folder() as folder:
        check_many(checks, tconv, folder)
    check_honest(checks, tconv)
    checks.notes += [f"{count} × {what}" for what, count in sorted(flagged.items())]
    checks.notes.append(
        "the files of the three scanners' own tests are not in their packages: made again from their lists and tests"
    )


def hostile() -> list[tuple[str, str, bytes, str]]:
    """(what, suffix, file, name that must be reported)"""
    names = listed_names(
        [
            scanner._unsafe_globals,
            analysis.UnsafeImportsML.UNSAFE_IMPORTS,
            *DEFAULT_SETTINGS["unsafe_globals"].values(),
        ],
        fickle.UNSAFE_IMPORTS | set(analysis.UnsafeImportsML.UNSAFE_MODULES),
    )
    found = [
        (f"{module}.{name}, {way}", ".pkl", data, f"{module}.{name}")
        for module, name in names
        if (module, name) not in LISTED
        for way, data in ways_to_name(module, name).items()
    ]
    found += [(f"posix.system {trick}", ".pkl", data, "") for trick, data in tricks().items()]
    evil = pickle_of(model(w=GOOD, x=SYSTEM))
    found += [(f"posix.system in {kind}", *make(evil), "") for kind, make in CONTAINERS.items()]
    found += [(f"a call alone in {kind}", *make(pickle_of(SYSTEM)), "") for kind, make in CONTAINERS.items()]
    return [*found, *of_keras()]


def of_keras() -> list[tuple[str, str, bytes, str]]:
    """What modelscan knows in addition to pickles."""
    layer = {
        "class_name": "Lambda",
        "config": {"name": "l", "function": {"class_name": "__lambda__", "config": {"code": "4wEAAAA="}}},
    }
    config = json.dumps({"class_name": "Functional", "config": {"layers": [layer]}}).encode()
    graphs = [
        b"\x0a" + bytes([len(node)]) + node
        for node in (b"\x0a\x01a\x12" + bytes([len(op)]) + op for op in (b"ReadFile", b"WriteFile"))
    ]
    saved = [b"\x08\x01\x12" + bytes([len(graph) + 2]) + b"\x12" + bytes([len(graph)]) + graph for graph in graphs]
    return [
        ("Keras, a Lambda layer", ".keras",
            zipped([("metadata.json", b"{}"), ("config.json", config), ("model.weights.h5", b"\x89HDF\r\n\x1a\n")]),
            ""),
        ("TensorFlow's ReadFile", ".pb", saved[0], ""), ("TensorFlow's WriteFile", ".pb", saved[1], ""),
    ]  # fmt: skip


def scan(checks, tconv, *files) -> tuple[int, dict[str, dict]]:
    done = tconv.fails("scan", "--json", *files)
    told = [json.loads(line) for line in done.stdout.split("\n") if line]
    for each in told:
        checks.true(each.get("verdict") in EXIT, lambda: f"verdict {each.get('verdict')}")
    return done.returncode, {each.get("file"): each for each in told}


def check_hostile(checks, tconv, folder, batch, flagged):
    """What one of the three flags is unsafe. What none of them sees is for scan_differential to judge."""
    files = [folder / f"{index}{suffix}" for index, (_, suffix, _, _) in enumerate(batch)]
    for file, (_, _, data, _) in zip(files, batch):
        file.write_bytes(data)
    with checks.case(f"{len(batch)} files from {batch[0][0]}"):
        code, told = scan(checks, tconv, *files)
        checks.equal("exit code", code, 1)
    for file, (what, _, data, name) in zip(files, batch):
        with checks.case(what):
            by = [who for who, flags in SCANNERS.items() if flags(file, data)]
            line = told.get(str(file), {})
            flagged[f"{line.get('verdict')}, and flagged by {' and '.join(by) or 'none of the three'}"] += 1
            if by or name:
                why = f"flagged by {' and '.join(by) or 'nobody'}"
                checks.true(line.get("verdict") == "unsafe", lambda: f"{line.get('verdict')}, {why}: {str(line)[:300]}")
            if name:
                check_named(checks, line, data, name)


def check_named(checks, told, data, name):
    """The finding has the name, and the place of the opcode that names it."""
    found = [entry for entry in told.get("globals", []) if entry["name"] == name]
    if checks.true(bool(found), lambda: f"{name} is not among {told.get('globals')}"):
        checks.equal("allowed", found[0]["allowed"], False)
        checks.true(
            data[found[0]["offset"]] in NAMING, lambda: f"no opcode that names something at {found[0]['offset']}"
        )


def by_picklescan(file, data) -> bool:
    try:
        return scanner.scan_file_path(str(file)).issues_count > 0
    except Exception:  # it raises on some of what it can't read
        return False


def by_fickling(file, data) -> bool:
    """Its worse grades: the milder ones it gives to every name outside the standard library, torch's own among them."""
    pickles = [data]
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            pickles = [archive.read(name) for name in archive.namelist() if name.lower().endswith((".pkl", "/extra"))]
    except Exception:  # no zip, or one that it can't read
        pass
    return any(is_malicious(each) for each in pickles)


def is_malicious(data: bytes) -> bool:
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # it comments on what it reads
            return worst_grade(data) >= analysis.Severity.LIKELY_OVERTLY_MALICIOUS
    except Exception:
        return False


def worst_grade(data: bytes) -> analysis.Severity:
    stacked = fickle.StackedPickle.load(data, fail_on_decode_error=False)
    return max(analysis.check_safety(each).severity for each in stacked)


def by_modelscan(file, data) -> bool:
    try:
        found = ModelScan()
        found.scan(file)
        return bool(found.issues.all_issues)
    except Exception:
        return False


SCANNERS = {"picklescan": by_picklescan, "fickling": by_fickling, "modelscan": by_modelscan}


def check_many(checks, tconv, folder):
    """Of several files each has its line, and one that is unsafe decides the exit code, whatever else is broken."""
    contents = {
        "clean.pkl": pickle.dumps({"a": 1}),
        "unsafe.pkl": tricks()["twice"],
        "broken.pkl": pickle.dumps({"a": 1})[:-3],
    }
    files = {name: folder / name for name in contents}
    for name, data in contents.items():
        files[name].write_bytes(data)
    for wanted, code in (
        (["clean.pkl"], 0),
        (["broken.pkl"], 3),
        (["clean.pkl", "broken.pkl"], 3),
        (list(contents), 1),
        (["unsafe.pkl", "clean.pkl"], 1),
    ):
        with checks.case(f"several files: {', '.join(wanted)}"):
            got, told = scan(checks, tconv, *(files[name] for name in wanted))
            checks.equal("exit code", got, code)
            checks.equal("files", list(told), [str(files[name]) for name in wanted])
            verdicts = [each.get("verdict") for each in told.values()]
            checks.equal("verdicts", verdicts, [name.partition(".")[0] for name in wanted])


def check_honest(checks, tconv):
    files = [
        file for file in sorted([*(TESTDATA / "pt").rglob("*"), *(TESTDATA / "ot").rglob("*.ot")]) if file.is_file()
    ]
    for file in files:
        with checks.case(f"testdata: {file.name}"):
            code, told = scan(checks, tconv, file)
            if file.suffix != ".json" and not file.name.startswith("onnx"):
                checks.equal("exit code", code, 1 if file.name in PROGRAMS else 0)
    checks.true(len(files) > 20, lambda: f"only {len(files)} files in testdata/pt and testdata/ot")
