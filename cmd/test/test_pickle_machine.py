#!/usr/bin/env python3
"""Every name that one of Python's own unpicklers reaches is in the list of `tconv scan`.

Generated pickles run on C's unpickler and on pickle.py, from a file and from memory, with the
encodings that loaders use. Both get a find_class that imports nothing and returns a class that
takes any use, so nothing of what a pickle names ever runs.
"""

import functools
import io
import json
import pickle
import resource
import subprocess
import sys

from harness import SANITIZED, Failed, Suite, tconv
from pickle_programs import programs

BATCH = 500
BATCHES = 4 if SANITIZED else 24
SEED = 20260


class AnyClass(type):
    """The class of a class that may be used for anything."""

    def __setitem__(cls, key, value):
        pass


class Anything(metaclass=AnyClass):
    def __new__(cls, *_, **__):
        return object.__new__(cls)

    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return Anything()

    def __setitem__(self, key, value):
        pass

    def use(*_, **__):  # of the class or of an object
        pass

    append = extend = add = __setstate__ = use


class InMemory(io.BytesIO):
    """A file that shows what comes: C's unpickler then reads as it does from bytes."""

    def peek(self, _):
        return self.getvalue()[self.tell() :]


REAL = {
    ("collections", "OrderedDict"),
    ("collections", "deque"),
    ("__builtin__", "set"),
    ("builtins", "list"),
    ("builtins", "frozenset"),
}


def machine(base, file, encoding):
    names = []

    class Machine(base):
        def find_class(self, module, name):
            names.append(f"{module}.{name}")
            if (module, name) in REAL:
                return super().find_class(module.replace("__builtin__", "builtins"), name)
            return Anything

        def persistent_load(self, _):
            return Anything()

    return Machine(file, encoding=encoding), names


def run(data):
    """What each machine names, and whether any of them reaches the end."""
    reached, ended = set(), False
    for base, file, encoding in (
        (pickle.Unpickler, io.BytesIO, "ASCII"),
        (pickle.Unpickler, InMemory, "latin1"),
        (pickle.Unpickler, io.BytesIO, "bytes"),
        (pickle._Unpickler, io.BytesIO, "ASCII"),
        (pickle._Unpickler, io.BytesIO, "latin1"),
    ):
        unpickler, names = machine(base, file(data), encoding)
        try:
            unpickler.load()
            ended = True
        except (Exception, RecursionError):
            pass
        reached.update(names)
    return sorted(reached), ended


def python_side():
    """Reads seed and count, writes a line of JSON a program. Wild memo keys meet a limit."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    seed, count = map(int, sys.argv[2:4])
    for data in programs(seed, count):
        json.dump(run(data), sys.stdout)
        print()


def is_importable(name):
    """Names of one letter are as often found in numbers, and no module has one."""
    return all(len(part) > 1 and part.isidentifier() for part in name.split(".")) and "." in name


def compare(seed, folder):
    """tconv's names hold all of Python's. Of what no STOP ends, only names that can be imported."""
    made = list(programs(seed, BATCH))
    paths = []
    for index, data in enumerate(made):
        paths.append(folder / f"{index}.pkl")
        paths[-1].write_bytes(data)
    peer = subprocess.run(
        [sys.executable, __file__, "--python", str(seed), str(BATCH)],
        check=True,
        capture_output=True,
        env={"TCONV": "none", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    shown = tconv("scan", "--json", *paths)
    lines = {}
    for line in shown.out.decode().splitlines():
        report = json.loads(line)
        lines[report.get("file")] = report
    faults = []
    for path, data, line in zip(paths, made, peer.stdout.splitlines(), strict=True):
        names, ended = json.loads(line)
        report = lines.get(str(path), {})
        found = {entry["name"] for entry in report.get("globals", ())}
        whole = report.get("pickles", 0) > 0
        missing = [
            name
            for name in names
            if name not in found
            and tuple(name.rsplit(".", 1)) not in REAL
            and (whole or is_importable(name))
        ]
        if missing:
            faults.append(f"{data!r}: Python names {missing}, tconv {sorted(found)}: {report}")
        elif ended and not whole and report.get("verdict") not in ("unsafe", "broken"):
            faults.append(f"{data!r}: Python ends it, tconv says {report}")
        elif report.get("verdict") == "clean" and any(name.startswith("mod") for name in names):
            faults.append(f"{data!r}: clean, though Python names {names}")
    if faults:
        raise Failed(f"{len(faults)} of {len(made)}:\n" + "\n".join(faults[:5]))


def cases():
    for batch in range(BATCHES):
        yield f"programs {batch}", functools.partial(compare, SEED + batch)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--python"]:
        python_side()
    else:
        sys.exit(Suite(__doc__).run(cases()))
