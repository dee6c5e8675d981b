#!/usr/bin/env python3
"""Reports of `verify` and `check` for CI systems, and the examples in scripts/ci."""

import json
import math
import os
import re
import sys
import urllib.parse
import xml.etree.ElementTree as xml
from struct import pack

import files
from files import Tensor, f32
from harness import (
    DATA,
    DIFFERENT,
    IO,
    OK,
    TCONV,
    USAGE,
    WORK,
    Suite,
    check_equal,
    expect,
    health_faults,
    run,
    tconv,
)

CI = DATA.parent / "scripts" / "ci"
HOSTILE = ["a<b>&\"'", "]]>", "\x1b[31m", "x\ny", "\ufffe\uffff", "\u202eabc", "ü\U0001f600", ""]
BIN = WORK / "bin"


def write(folder, name, tensors, metadata=None):
    (folder / name).write_bytes(files.safetensors(tensors, metadata))


def check_sarif(path):
    """What the SARIF 2.1.0 schema requires of the parts that tconv writes."""
    log = json.loads(path.read_text())
    check_equal(log["version"], "2.1.0", "version")
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (one,) = log["runs"]
    driver = one["tool"]["driver"]
    check_equal(driver["name"], "tconv", "driver")
    ids = [rule["id"] for rule in driver["rules"]]
    check_equal(len(set(ids)), len(ids), "rules that differ")
    for result in one["results"]:
        check_equal(ids[result["ruleIndex"]], result["ruleId"], "rule")
        assert result["level"] in ("none", "note", "warning", "error"), result
        assert isinstance(result["message"]["text"], str) and result["message"]["text"]
        for location in result["locations"]:
            physical = location["physicalLocation"]
            uri = urllib.parse.urlsplit(physical["artifactLocation"]["uri"])
            assert uri.scheme in ("", "file") and not uri.query and not uri.fragment, uri
            assert physical["region"]["startLine"] >= 1
    return one["results"]


def check_junit(path):
    """The suites, whose counts must be those of what is in them."""
    root = xml.parse(path).getroot()
    check_equal(root.tag, "testsuites", "root")
    for suite in root:
        cases = suite.findall("testcase")
        check_equal(int(suite.get("tests")), len(cases), "tests")
        check_equal(int(suite.get("failures")), len(suite.findall("testcase/failure")), "failures")
        check_equal(int(suite.get("errors")), len(suite.findall("testcase/error")), "errors")
        assert all(case.get("name") and case.get("classname") for case in cases)
    for count in ("tests", "failures", "errors"):
        total = sum(int(suite.get(count)) for suite in root)
        check_equal(int(root.get(count)), total, count)
    return list(root)


def hostile_names(folder):
    write(folder, "m.safetensors", {name: f32(1) for name in HOSTILE})
    (folder / "s.json").write_text("{}")
    reports = ("--junit", "r.xml", "--sarif", "r.sarif")
    expect(folder, DIFFERENT, "check", "-q", "--schema", "s.json", *reports, "m.safetensors")
    (suite,) = check_junit(folder / "r.xml")
    check_equal(len(suite), len(HOSTILE), "cases")
    names = {case.get("name") for case in suite}
    for shown in ("a<b>&\"'", "]]>", "\\x1b[31m", "x\\x0ay", "\\u{fffe}\\u{ffff}", "ü\U0001f600"):
        assert f"extra-tensor: {shown}" in names, (shown, names)
    results = check_sarif(folder / "r.sarif")
    got = {result["locations"][0]["logicalLocations"][0]["name"] for result in results}
    check_equal(got, set(HOSTILE), "tensors")


def hostile_paths(folder):
    name = os.fsdecode(b"m #?%\xff<&.safetensors")
    write(folder, name, {"a": f32(1)})
    (folder / "s.json").write_text("{}")
    reports = ("--junit", "r.xml", "--sarif", "r.sarif")
    args = ("--schema", "s.json", *reports, os.fsencode(name), os.fsencode(folder / name))
    expect(folder, DIFFERENT, "check", "-q", *args)
    check_equal(len(check_junit(folder / "r.xml")), 2, "suites")
    relative, absolute = check_sarif(folder / "r.sarif")
    uri = relative["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    check_equal(urllib.parse.unquote_to_bytes(uri), os.fsencode(name), "relative path")
    uri = absolute["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    path = urllib.parse.unquote_to_bytes(urllib.parse.urlsplit(uri).path)
    check_equal(path, os.fsencode(folder / name), "absolute path")


def files_that_fail(folder):
    """One is fine, one violates, one is missing: all are reported, the highest code counts."""
    write(folder, "a.safetensors", {"a": f32(1)})
    write(folder, "b.safetensors", {"b": f32(1)})
    (folder / "s.json").write_text('{"tensors":{"a":{}}}')
    names = ("a.safetensors", "b.safetensors", "c.safetensors")
    reports = ("--junit", "r.xml", "--sarif", "r.sarif")
    result = tconv("check", "--schema", "s.json", *reports, *names, cwd=folder)
    check_equal(result.code, IO, "exit code", result)
    check_equal(health_faults(result), [], "health", result)
    suites = check_junit(folder / "r.xml")
    counts = [(s.get("tests"), s.get("failures"), s.get("errors")) for s in suites]
    check_equal(counts, [("1", "0", "0"), ("2", "2", "0"), ("1", "0", "1")], "suites")
    rules = [result["ruleId"] for result in check_sarif(folder / "r.sarif")]
    check_equal(sorted(rules[:2]), ["extra-tensor", "missing-tensor"], "rules")
    check_equal(len(rules), 3, "results")


def nothing_found(folder):
    write(folder, "a.safetensors", {"a": f32(1)})
    expect(folder, OK, "verify", "--junit", "r.xml", "--sarif", "r.sarif", "a.safetensors")
    check_equal([len(suite) for suite in check_junit(folder / "r.xml")], [1], "cases")
    check_equal(check_sarif(folder / "r.sarif"), [], "results")


def inputs_stay(folder):
    write(folder, "a.safetensors", {"a": f32(1)})
    (folder / "s.json").write_text("{}")
    for option in ("--junit", "--sarif"):
        expect(folder, USAGE, "verify", option, "a.safetensors", "a.safetensors")
        check = ("check", "--schema", "s.json")
        expect(folder, USAGE, *check, option, "./a.safetensors", "a.safetensors")
    expect(folder, USAGE, "check", "--write-schema", "-o", "a.safetensors", "a.safetensors")
    expect(folder, IO, "verify", "--junit", "none/r.xml", "a.safetensors", quiet=False)


def finite(folder):
    """Every dtype that can hold something else: NaN is found, and where."""
    values = {
        "F16": (pack("<e", 1.0), pack("<e", math.inf)),
        "BF16": (b"\x80\x3f", b"\xc0\x7f"),
        "F32": (pack("<f", 1.0), pack("<f", -math.inf)),
        "F64": (pack("<d", 1e300), pack("<d", math.nan)),
        "C64": (pack("<ff", 1, 1), pack("<ff", 1, math.nan)),
        "F8_E4M3": (b"\x01", b"\x7f"),
        "F8_E5M2": (b"\x01", b"\x7c"),
        "F8_E4M3FNUZ": (b"\x7f", b"\x80"),
        "F8_E8M0": (b"\x01", b"\xff"),
        "I64": (b"\xff" * 8, None),
    }
    (folder / "s.json").write_text('{"tensors":{"/./":{"finite":true}}}')
    count = 300_000
    for dtype, (good, bad) in values.items():
        write(folder, "good.safetensors", {"w": Tensor(dtype, [count], good * count)})
        expect(folder, OK, "check", "--schema", "s.json", "good.safetensors")
        if bad is None:
            continue
        data = good * 290_001 + bad + good * 9_997 + bad
        write(folder, "bad.safetensors", {"w": Tensor(dtype, [count], data)})
        args = ("--json", "--schema", "s.json", "bad.safetensors")
        result = expect(folder, DIFFERENT, "check", *args)
        (finding,) = json.loads(result.out)["findings"]
        expected = "2 of its numbers are NaN or infinite, the first in element 290001"
        check_equal((finding["code"], finding["message"]), ("not-finite", expected), dtype, result)


def commands_of(name, key):
    """The command lines of an example, as they stand there."""
    lines = re.findall(rf"^ *(?:- )?{key}: (tconv .*)$", (CI / name).read_text(), re.M)
    assert lines, name
    return lines


def run_example(folder, line):
    result = run("sh", "-c", line, cwd=folder, env={"PATH": f"{BIN}:{os.environ['PATH']}"})
    check_equal(health_faults(result), [], line, result)
    return result


def example_model(folder):
    model = {"head.w": f32(1, 2), "body.w": f32(3, 4)}
    write(folder, "model.safetensors", model, {"format": "pt"})
    write(folder, "base.safetensors", {**model, "head.w": f32(0, 0)})
    example = (CI / "pre-commit-config.yaml").read_text()
    (written,) = re.findall(r"# schema.json comes from: (tconv .*)", example)
    check_equal(run_example(folder, written).code, OK, written)


def pre_commit(folder):
    """pre-commit puts the files behind a hook's entry."""
    example_model(folder)
    hooks = commands_of("pre-commit-config.yaml", "entry")
    for hook in hooks:
        result = run_example(folder, f"{hook} model.safetensors")
        clean = b"model.safetensors: clean, 0 pickles\n" if "scan" in hook else b""
        check_equal((result.code, result.out), (OK, clean), hook, result)
    write(folder, "model.safetensors", {"head.w": f32(1)})
    codes = [run_example(folder, f"{hook} model.safetensors").code for hook in hooks]
    check_equal(codes, [OK, OK, DIFFERENT], "another model")
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    codes = [run_example(folder, f"{hook} model.safetensors").code for hook in hooks]
    check_equal(codes, [DIFFERENT, 3, 3], "a damaged model")


def github_actions(folder):
    example_model(folder)
    steps = commands_of("github-actions.yml", "run")
    check_equal([run_example(folder, step).code for step in steps], [OK] * 3, "codes")
    assert not check_sarif(folder / "check.sarif") and not check_sarif(folder / "verify.sarif")
    write(folder, "model.safetensors", {"head.w": f32(1, 2, 3), "body.w": f32(3, 5)})
    check_equal([run_example(folder, step).code for step in steps], [OK, 1, 1], "codes")
    rules = [result["ruleId"] for result in check_sarif(folder / "check.sarif")]
    check_equal(sorted(rules), ["metadata-key", "shape"], "rules")
    check_equal(len(check_junit(folder / "check.xml")[0]), 2, "cases")
    workflow = (CI / "github-actions.yml").read_text()
    assert re.search(r"sarif_file: check\.sarif", workflow)


CASES = (
    hostile_names,
    hostile_paths,
    files_that_fail,
    nothing_found,
    inputs_stay,
    finite,
    pre_commit,
    github_actions,
)

if __name__ == "__main__":
    suite = Suite(__doc__.partition("\n")[0])
    BIN.mkdir()
    (BIN / "tconv").symlink_to(TCONV)
    sys.exit(suite.run((case.__name__, case) for case in CASES))
