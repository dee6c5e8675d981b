"""Runs programs that check C files one by one over those of core, formats and cmd that are no tests.

A file that was clean stays so while neither it nor any header of the project, its command and the
program change; that is kept in BUILD, in a folder a program.
"""

import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOPS = ("core", "formats", "cmd")
SKIPPED = 77  # meson's word for it


def commands(build):
    """file -> how it is compiled, as build's compile_commands.json has it."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["directory"], entry["file"]).resolve()
        if path.is_relative_to(ROOT):
            name = path.relative_to(ROOT)
            if name.parts[0] in TOPS and "test" not in name.parts:
                found[path] = shlex.split(entry["command"])
    return found


def common_state(version, settings):
    """What a verdict on any file depends on: the program, what it is told, all headers."""
    state = hashlib.sha256(subprocess.run(version, capture_output=True).stdout)
    headers = [path for top in TOPS for path in (ROOT / top).rglob("*")]
    for path in [*settings, *sorted(headers)]:
        if path.suffix in (".h", ".def", ".inc") or path in settings:
            state.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return state


def check_all(build, name, version, settings, check):
    """Prints what `check(path, command)` finds in each file; returns how many passed and failed."""
    kept = build / name
    kept.mkdir(exist_ok=True)
    state, todo, passed, failed = common_state(version, settings), {}, 0, 0
    for path, command in commands(build).items():
        own = state.copy()
        own.update("\0".join(command).encode() + b"\0" + path.read_bytes())
        mark = kept / own.hexdigest()
        if mark.exists():
            mark.touch()
            passed += 1
        else:
            todo[path, tuple(command)] = mark
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for key, found in zip(todo, pool.map(lambda key: check(*key), todo)):
            if found:
                failed += 1
                print(found, flush=True)
            else:
                passed += 1
                todo[key].touch()
    return passed, failed


def output(command, folder):
    """What a program prints; empty where it is content."""
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    return "" if result.returncode == 0 and not result.stdout.strip() else result.stdout + result.stderr
