"""Loads files that may be hostile with the real loaders, and tells what they did beyond making data.

Each worker is forked from a process that has the loaders in memory: it has no network, no rights, little memory, a
folder of its own for its current one, and an audit hook that lets it look up only the names on SAFE and those of
tconv_canary. Whatever else it is led to do is reported, and stopped before it happens.
"""
import _compat_pickle
import bz2
import copyreg
import ctypes
import gzip
import io
import json
import lzma
import os
import pickle
import re
import resource
import select
import signal
import sys
import tarfile
import tempfile
import types
import unicodedata  # noqa: F401  which a numpy header may ask for
import warnings
import zipfile
import zlib
from pathlib import Path

import joblib
import numpy as np
import torch

import tconv_canary
from safe_names import SAFE, stub_modules

SECONDS = 20  # without a sign of life from a worker, on a machine that has others to serve
ROOM = 1 << 30  # bytes, beside what torch has mapped
FILES_A_WORKER = 500
GROUP = 50
MEMBERS = 40  # of an archive
PICKLES = 8  # one behind the other
DEPTH = 3  # of archives in archives
LARGEST = 1 << 24  # bytes of a member
NOBODY = 65534
CLONE_NEWNET, CLONE_NEWUSER, PR_SET_NO_NEW_PRIVS = 0x40000000, 0x10000000, 38
CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}

# Events that loading data gives rise to, and that reach nothing.
QUIET = {
    "object.__getattr__", "sys._getframe", "array.__new__", "builtins.id", "gc.get_referrers", "code.__new__",
    "tempfile.mkdtemp", "cpython.run_command", "sys.excepthook", "sys.unraisablehook",
}  # fmt: skip
# Events of files and folders; harmless where their paths lie in the worker's own folder.
PATHS = {
    "open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.utime", "os.chown",
    "shutil.rmtree", "os.truncate",
}  # fmt: skip
# Python 2's, in a pickle of a later protocol; and those of listed names: warm_up has imported what there is of them, so
# that one which is imported later is not on this machine.
ABSENT = {"__builtin__", "copy_reg"} | {name.rpartition(".")[0] for name in SAFE}


class Stopped(BaseException):
    """No loader may catch it."""


class Watch:
    """The audit hook of a worker."""

    def __init__(self, tell, folder: str):
        self.tell, self.folder = tell, folder
        self.path = None  # of the file that is being loaded; None: nothing is watched

    def __call__(self, event: str, arguments):
        if self.path is None or event in QUIET:
            return
        if event == "pickle.find_class":
            return self.look_up(*arguments)
        if event in PATHS and self.is_own(arguments[0]):
            return
        if event == "compile" and arguments[1] == "<unknown>":  # ast.parse, of numpy's headers
            return
        if event == "import" and arguments[0] in ABSENT:
            raise ModuleNotFoundError(arguments[0])
        self.tell(event, str(arguments)[:200])
        raise Stopped(event)

    def look_up(self, module, name):
        mapped = _compat_pickle.NAME_MAPPING.get((module, name))
        if mapped is None:
            mapped = _compat_pickle.IMPORT_MAPPING.get(module, module), name
        known = {f"{module}.{name}", ".".join(map(str, mapped))}
        if known <= SAFE or known & SAFE and module in ("__builtin__", "copy_reg"):
            return
        if is_script(module) or not is_importable(module):
            raise ModuleNotFoundError(module)
        if (module, name) == ("tconv_canary", "extension"):
            return
        self.tell("names", f"{module}.{name}"[:200])
        if str(module) != "tconv_canary":
            raise Stopped(name)

    def is_own(self, path) -> bool:
        if isinstance(path, int) or path == self.path:
            return True
        try:
            found = os.path.realpath(os.fspath(path))
        except (TypeError, ValueError):
            return False
        return os.fsdecode(found).startswith(self.folder + "/")


def is_script(module) -> bool:
    """TorchScript's own names, which its C++ machine reads; to Python they are modules that are not there."""
    return str(module).split(".")[0] == "__torch__" or module == "torch.jit._pickle"


def is_importable(module) -> bool:
    """Whether there can be a module of this name: text may begin with a c and have two lines."""
    return re.fullmatch(r"[\w.-]+", str(module)) is not None


# What is done with a file


class Persistent(pickle.Unpickler):
    """With something for every persistent id: a member's pickle has those of its archive."""

    def persistent_load(self, pid):
        return {}


def load_pickles(file):
    for _ in range(PICKLES):
        pickle.load(file)


class PersistentInPython(pickle._Unpickler):
    """The machine in Python, which joblib has: it differs in frames and in numbers."""

    def persistent_load(self, pid):
        return {}


def load_persistent(file, kind=Persistent):
    for _ in range(PICKLES):
        kind(file).load()


def load_arrays(file):
    for _ in range(PICKLES):
        loaded = np.load(file, allow_pickle=True)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            for name in loaded.files[:MEMBERS]:
                attempt(lambda: loaded[name])
            return


def load_torch(file):
    torch.load(file, map_location="cpu", weights_only=False)


def attempt(load, *arguments):
    """Hostile files are expected to raise errors; only what the hook reports counts."""
    try:
        load(*arguments)
    except (Stopped, Exception):
        pass


def load_file(path: str):
    attempt(load_path_with_pickle, path)
    yield "torch.load"
    attempt(load_torch, path)
    data = Path(path).read_bytes()
    if data[:6] == b"\x93NUMPY" or data[:2] == b"PK":
        yield "numpy.load"
        with open(path, "rb") as file:
            attempt(load_arrays, file)
    if b"joblib" in data or is_compressed(data):
        yield "joblib.load"
        attempt(joblib.load, path)
    yield "pickle.load of a member"
    load_members(data, 0)


def load_path_with_pickle(path):
    with open(path, "rb") as file:
        attempt(load_pickles, file)
        file.seek(0)
        load_persistent(file, PersistentInPython)


def load_content(data: bytes, depth: int):
    """A member of an archive, as somebody may load it."""
    for kind in (Persistent, PersistentInPython):
        attempt(load_persistent, io.BytesIO(data), kind)
    if data[:6] == b"\x93NUMPY":
        attempt(load_arrays, io.BytesIO(data))
    elif data[:4] == b"PK\3\4":
        attempt(load_torch, io.BytesIO(data))
    load_members(data, depth)


def load_members(data: bytes, depth: int):
    if depth == DEPTH:
        return
    if b"PK\5\6" in data:
        attempt(load_zip, data, depth)
    if data[257:262] == b"ustar" or is_compressed(data):
        attempt(load_tar, data, depth)
    if is_compressed(data):
        attempt(load_compressed, data, depth)


def load_zip(data: bytes, depth: int):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist()[:MEMBERS]:
            attempt(load_zip_member, archive, member, depth)


def load_zip_member(archive, member, depth):
    with archive.open(member) as file:
        load_content(file.read(LARGEST), depth + 1)


def load_tar(data: bytes, depth: int):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for _, member in zip(range(MEMBERS), archive):
            if member.isreg():
                load_content(archive.extractfile(member).read(LARGEST), depth + 1)


def is_compressed(data: bytes) -> bool:
    return data[:2] in (b"\x1f\x8b", b"BZ", b"\xfd7", b"]\0") or data[:1] == b"x" and data[1:2] in b"\x01\x5e\x9c\xda"


def load_compressed(data: bytes, depth: int):
    unpack = {b"\x1f": gzip.decompress, b"B": bz2.decompress, b"x": zlib.decompress}.get(data[:1], lzma.decompress)
    load_content(unpack(data)[:LARGEST], depth + 1)


# The worker


def warm_up(honest: list[Path]):
    """Has the loaders import all that they need for honest files, before anything is watched."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.modules.update(stub_modules())
    for name in SAFE:
        module, _, attribute = name.rpartition(".")
        attempt(lambda: getattr(__import__(module, fromlist=["x"]), attribute))
    for encoding in ("latin1", "utf-8", "ascii", "raw-unicode-escape"):
        "".encode(encoding)
    copyreg.add_extension("tconv_canary", "extension", 1)
    for path in honest:
        for _ in load_file(str(path)):
            pass


def snapshot() -> list:
    """Which objects the attributes of all listed names are: nothing that is loaded may change one."""
    found = []
    for name in sorted(SAFE):
        module, _, attribute = name.rpartition(".")
        value = getattr(sys.modules.get(module), attribute, None)
        if isinstance(value, (type, types.FunctionType)):
            found.append((name, value, identities(value)))
    return found


def identities(value) -> list[int]:
    found = list(map(id, vars(value).values()))
    if isinstance(value, types.FunctionType):
        found += map(id, (value.__code__, value.__defaults__, value.__kwdefaults__))
    return found


def is_changed(before: list) -> str:
    return next((name for name, value, ids in before if identities(value) != ids), "")


def confine(folder: str):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        pass  # not allowed here; the hook stops sockets all the same
    os.chdir(folder)
    tempfile.tempdir = folder
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for limit, most in (
        (resource.RLIMIT_AS, mapped + ROOM),
        (resource.RLIMIT_FSIZE, 1 << 24),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, FILES_A_WORKER * 2),
    ):
        resource.setrlimit(limit, (most, most))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def work(paths: list[str], files: range, every: int, folder: str, out: int):
    """Tells, a line each: [file, loader] as it begins with one, [file, loader, event, detail] of what it saw, and
    [file] when all up to there were looked at and had changed nothing."""
    state = [0, ""]

    def tell(*event):
        os.write(out, json.dumps([*state, *event]).encode() + b"\n")

    os.dup2(os.open("/dev/null", os.O_RDWR), 1)
    os.dup2(1, 2)
    confine(folder)
    watch = Watch(tell, folder)
    tconv_canary.report = lambda *what: tell(*what) if watch.path else None
    before = snapshot()
    sys.addaudithook(watch)
    for index in files:
        state[:] = index, "pickle.load"
        tell()
        watch.path = paths[index]
        for state[1] in load_file(paths[index]):
            tell()
        watch.path = None
        if left := os.listdir(folder):
            return tell("left", str(left)[:200])
        if (index + 1 - files[0]) % every == 0 or index == files[-1]:
            if name := is_changed(before):
                return tell("changed", name)
            os.write(out, b"[%d]\n" % index)


class Loaded:
    """What loading did, by place in the list of files; and how many took too long for a loader."""

    def __init__(self, paths: list[str], work_folder: Path):
        self.paths, self.work_folder = paths, work_folder
        self.found: dict[int, list] = {}
        self.slow = 0
        for first in range(0, len(paths), FILES_A_WORKER):
            self.load(range(first, min(first + FILES_A_WORKER, len(paths))))

    def load(self, files: range):
        """Most files do nothing, so that they are looked at in groups; a group that did something, one by one."""
        while files:
            sure, _ = self.run_worker(files, GROUP)
            files = range(sure, files.stop)
            group = files[:GROUP]
            for index in group:
                self.found.pop(index, None)
            while group:
                sure, at = self.run_worker(group, 1)
                group = range(max(sure, at + 1), group.stop)
            files = files[GROUP:]

    def run_worker(self, files: range, every: int) -> tuple[int, int]:
        """The first file of which it is not known that it changed nothing, and the last that was begun."""
        reader, writer = os.pipe()
        with tempfile.TemporaryDirectory(dir=self.work_folder) as folder:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    os.close(reader)
                    work(self.paths, files, every, folder, writer)
                    status = 0
                finally:
                    os._exit(status)
            os.close(writer)
            sure, at, loader = self.listen(reader, child, files[0])
            os.close(reader)
            _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in CRASHES:
            self.note(at, loader, "crash", signal.Signals(os.WTERMSIG(status)).name)
        elif os.WIFEXITED(status) and os.WEXITSTATUS(status):
            self.note(at, loader, "crash", f"exit status {os.WEXITSTATUS(status)}")
        elif os.WIFSIGNALED(status) and every == 1:
            self.slow += 1
        return sure, at

    def listen(self, reader: int, child: int, first: int) -> tuple[int, int, str]:
        sure, at, loader, data = first, first, "", b""
        while True:
            if not select.select([reader], [], [], SECONDS)[0]:
                os.kill(child, signal.SIGKILL)
                return sure, at, loader
            part = os.read(reader, 1 << 16)
            if not part:
                return sure, at, loader
            *lines, data = (data + part).split(b"\n")
            for line in map(json.loads, lines):
                if len(line) == 1:
                    sure = line[0] + 1
                else:
                    at, loader = line[:2]
                    if len(line) > 2:
                        self.note(*line)

    def note(self, at: int, *event):
        self.found.setdefault(at, []).append(event)
