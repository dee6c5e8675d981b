#!/usr/bin/env python3
"""What CI systems are given: hooks of this repository, the action for GitHub, the template for GitLab.

The commands in them are taken out and run; their lists of extensions are compared with `tconv formats`.
scripts/interop (section `ci`) validates the YAML against the public schemas.
"""

import json
import re
import sys
import xml.etree.ElementTree as xml

import files
from batches import environment
from files import f32
from harness import DATA, DIFFERENT, INVALID, OK, Suite, check_equal, expect, run, tconv

ROOT = DATA.parent
HOOKS = ROOT / ".pre-commit-hooks.yaml"
LOCAL_HOOKS = ROOT / "scripts" / "ci" / "pre-commit-config.yaml"
ACTION = ROOT / ".github" / "actions" / "tconv" / "action.yml"
GITLAB = ROOT / "scripts" / "ci" / "gitlab-ci.yml"


def extensions():
    formats = [json.loads(line) for line in tconv("formats", "--json").out.splitlines()]
    return {extension[1:] for one in formats for extension in one["extensions"]}


def hooks_cover(folder):
    """Every extension of every format, in upper case too, and nothing else."""
    patterns = re.findall(r"^ *files: (\(\?i\).*)$", HOOKS.read_text() + LOCAL_HOOKS.read_text(), re.M)
    check_equal(len(patterns), 5, "hooks for files of any format")
    for pattern in patterns:
        listed = re.fullmatch(r"\(\?i\)\\\.\((.*)\)\$", pattern)[1].replace("\\.", ".").split("|")
        check_equal((set(listed), len(listed)), (extensions(), len(extensions())), "extensions")
        for extension in extensions():
            check_equal(bool(re.search(pattern, f"a/B.{extension.upper()}")), True, extension)
        for other in ("a.txt", "npz", "a.npzx", "config.json"):
            check_equal(bool(re.search(pattern, other)), False, other)


def models(folder):
    (folder / "good.safetensors").write_bytes(files.safetensors({"w": f32(1, 2)}))
    (folder / "bad.npz").write_bytes(b"PK\3\4nonsense")
    expect(folder, OK, "check", "--write-schema", "-o", "tconv.schema.json", "good.safetensors")


def hooks_run(folder):
    """pre-commit runs a script of this repository with the files behind it; here with the tconv under test."""
    models(folder)
    text = HOOKS.read_text()
    ids = re.findall(r"^- id: (.*)$", text, re.M)
    entries = re.findall(r"^  entry: (.*)$", text, re.M)
    check_equal(ids, ["tconv-verify", "tconv-scan", "tconv-check"], "hooks")
    check_equal(text.count("language: script"), 3, "languages")
    for entry, bad in zip(entries, (DIFFERENT, INVALID, INVALID)):
        script, *words = entry.split()
        check_equal((ROOT / script).stat().st_mode & 0o111 != 0, True, "a script")
        more = re.search(rf"entry: {re.escape(entry)}\n  args: \[(.*)\]", text)
        words += more[1].split(", ") if more else []
        for name, code in (("good.safetensors", OK), ("bad.npz", bad)):
            result = tconv(*words, name, cwd=folder)
            check_equal(result.code, code, f"{entry} {name}", result)


def steps_of(text):
    """The scripts of the steps of an action."""
    return [re.sub(r"(?m)^ {8}", "", block) for block in re.findall(r"^      run: \|\n((?: {8}.*\n)+)", text, re.M)]


def action_runs(folder):
    """The second step of the action, with each of the three commands; the first step builds."""
    models(folder)
    build, work = steps_of(ACTION.read_text())
    check_equal(run("bash", "-n", "-c", build).code, 0, "the step that builds")
    for name in re.findall(r"\. \"\$TCONV_SOURCE/(.*)\"", build):
        check_equal((ROOT / ".github/actions/tconv/../../.." / name).exists(), True, name)
    for command, code in (("scan", INVALID), ("verify", DIFFERENT), ("check --schema tconv.schema.json", INVALID)):
        for paths, expected in (("good.safetensors\n", OK), ("good.safetensors\n\nbad.npz\n", code)):
            env = {"TCONV_COMMAND": command, "TCONV_PATHS": paths, "TCONV_JUNIT": "t.xml", "TCONV_SARIF": "t.sarif"}
            result = run("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", work, cwd=folder,
                         env={**environment(), **env})
            check_equal(result.code, expected, command, result)
            suites = xml.parse(folder / "t.xml").getroot()
            check_equal(len(suites.findall("testsuite")), len(paths.split()), "suites of JUnit")
            sarif = json.loads((folder / "t.sarif").read_text())
            check_equal(sarif["version"], "2.1.0", "SARIF")
            found = sarif["runs"][0]["results"]
            check_equal(bool(found) or not sarif["runs"][0]["invocations"][0]["executionSuccessful"] if expected else
                        not found, True, "results")


def gitlab_runs(folder):
    models(folder)
    (line,) = re.findall(r"^    - (tconv .*)$", GITLAB.read_text(), re.M)
    for command, paths, code in (("scan", "good.safetensors", OK), ("verify", "bad.npz", DIFFERENT)):
        env = {**environment(), "TCONV_COMMAND": command, "TCONV_PATHS": paths}
        result = run("sh", "-ec", line, cwd=folder, env=env)
        check_equal(result.code, code, line, result)
        check_equal((folder / "tconv.xml").exists() and (folder / "tconv.sarif").exists(), True, "reports")


CASES = [hooks_cover, hooks_run, action_runs, gitlab_runs]


def main():
    return Suite(__doc__).run((case.__name__, case) for case in CASES)


if __name__ == "__main__":
    sys.exit(main())
