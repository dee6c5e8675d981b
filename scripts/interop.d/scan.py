"""Whatever picklescan or fickling flags, tconv scan flags; and what torch writes is clean."""
import io
import json
import logging
import pickle
import zipfile
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from fickling import analysis, fickle
from picklescan import scanner

from hostile_files import containers, listed_names, tricks, ways_to_name

TESTDATA = Path(__file__).parents[2] / "testdata"
NAMING = b"ci\x93o\x82\x83\x84"  # GLOBAL, INST, STACK_GLOBAL, OBJ, EXT
EXIT = {"clean": 0, "unsafe": 1, "broken": 3}
logging.getLogger("picklescan").setLevel(logging.CRITICAL)


def run(checks, tconv):
    flagged: Counter[str] = Counter()
    with tconv.folder() as folder:
        names = listed_names(
            scanner._unsafe_globals,
            fickle.UNSAFE_IMPORTS | set(analysis.UnsafeImportsML.UNSAFE_MODULES),
            analysis.UnsafeImportsML.UNSAFE_IMPORTS,
        )
        for module, name in names:
            for way, data in ways_to_name(module, name).items():
                with checks.case(f"{module}.{name}, {way}"):
                    told = check_hostile(checks, tconv, folder / "file.pkl", data, flagged)
                    check_named(checks, told, data, f"{module}.{name}")
        for trick, data in tricks().items():
            with checks.case(f"posix.system {trick}"):
                check_hostile(checks, tconv, folder / "file.pkl", data, flagged)
        for container, (suffix, data) in containers().items():
            with checks.case(f"posix.system in {container}"):
                check_hostile(checks, tconv, folder / f"file{suffix}", data, flagged)
        check_many(checks, tconv, folder)
        check_honest(checks, tconv, folder)
    checks.notes += [f"{count} × {what}" for what, count in sorted(flagged.items())]


def scan(checks, tconv, *files) -> tuple[int, list[dict]]:
    done = tconv.fails("scan", "--json", *files)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for each in told:
        if "verdict" in each:
            checks.true(each["verdict"] in EXIT, lambda: f"verdict {each['verdict']}")
    return done.returncode, told


def check_hostile(checks, tconv, file, data, flagged) -> dict:
    """All of these are unsafe. What neither scanner sees need not be seen through, but must not be called clean."""
    file.write_bytes(data)
    by = [who for who, flags in (("picklescan", by_picklescan), ("fickling", by_fickling)) if flags(file, data)]
    flagged[f"unsafe, and flagged by {' and '.join(by) or 'neither of the two'}"] += 1
    code, told = scan(checks, tconv, file)
    verdict = told[0].get("verdict") if told else None
    checks.true(EXIT.get(verdict) == code, lambda: f"exit code {code}, but {verdict}")
    why = f"flagged by {' and '.join(by) or 'nobody'}"
    checks.true(verdict == "unsafe" or not by and verdict == "broken", lambda: f"{verdict}, {why}: {str(told)[:300]}")
    return told[0] if told else {}


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
            checks.equal(
                "verdicts", [each.get("verdict") for each in told], [name.partition(".")[0] for name in wanted]
            )
            checks.equal("files", [each.get("file") for each in told], [str(files[name]) for name in wanted])


def check_honest(checks, tconv, folder):
    files = [
        file for file in sorted([*(TESTDATA / "pt").rglob("*"), *(TESTDATA / "ot").rglob("*.ot")]) if file.is_file()
    ]
    for file in files:
        with checks.case(f"testdata: {file.name}"):
            code, told = scan(checks, tconv, file)
            if file.suffix != ".json" and not file.name.startswith("onnx"):
                checks.equal("exit code", code, 1 if file.name == "whole_module.pt" else 0)
    checks.true(len(files) > 20, lambda: f"only {len(files)} files in testdata/pt and testdata/ot")
    try:
        import torch  # noqa: F401

        from pt_reading import VARIANTS, for_legacy, objects
        from torch_peer import saved
    except ImportError:
        checks.skipped.append("what torch writes now")
        return
    for kind, root in objects().items():
        for variant, options in VARIANTS.items():
            with checks.case(f"by torch: {kind}, {variant}"):
                file = folder / "file.pt"
                file.write_bytes(saved(for_legacy(root) if variant.startswith("legacy") else root, **options))
                code, told = scan(checks, tconv, file)
                unknown = {entry["name"] for each in told for entry in each.get("globals", []) if not entry["allowed"]}
                checks.equal("exit code and names that are not allowed", (code, unknown), (0, set()))
