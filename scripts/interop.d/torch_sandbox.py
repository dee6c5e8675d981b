"""torch.load of files that may be hostile, each in a process of its own, with little memory and time.

Two machines: torch's own for weights_only, and Python's, which knows all protocols, with a list of the names that
it may look up. Neither can reach a function that is not on a list; what would harm all the same ends the process.
"""
import json
import os
import pickle
import resource
import select
import signal
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import torch

from checks import hash_text
from torch_peer import flatten

SECONDS = 20
ROOM = 2 << 30  # bytes, beside what torch has mapped
FORBIDDEN = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.remove", "os.rename", "os.mkdir",
    "subprocess.", "socket.", "ctypes.dlopen", "shutil.", "webbrowser.", "ftplib.", "urllib.",
)  # fmt: skip


def load(path: Path, names: set[str] | None = None) -> dict:
    """What torch's machine makes of the file, or Python's with these names.

    {"hash": as tconv would print it}, {"error": …, "offset": …}, {"odd": why it can't be compared} or {"crash": …}.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            confine()
            answer = attempt(path, names)
        except BaseException as error:
            answer = {"crash": f"{type(error).__name__}: {error}"[:300]}
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(writer, data) :]
        os._exit(0)
    os.close(writer)
    data = read_in_time(reader, child)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if data:
        return json.loads(data)
    return {"crash": "took too long" if data is None else f"ended with status {status}"}


def read_in_time(reader: int, child: int) -> bytes | None:
    data = b""
    while select.select([reader], [], [], SECONDS)[0]:
        part = os.read(reader, 1 << 20)
        if not part:
            return data
        data += part
    os.kill(child, signal.SIGKILL)
    return None


def confine():
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ROOM, mapped + ROOM))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(stop_escape)


def stop_escape(event: str, arguments):
    """What no data file has a reason to do ends the process, whoever asked for it."""
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if event.startswith(FORBIDDEN) or writes:
        os.write(2, f"interop: torch was led to {event} {arguments}\n".encode())
        os._exit(66)


def listed_names(names: set[str]):
    """Python's pickle, as torch.load wants it, for these names alone."""

    class Unpickler(pickle._Unpickler):  # the one in Python, whose memo does not grow with an index
        def find_class(self, module, name):
            if f"{module}.{name}" not in names:
                raise pickle.UnpicklingError(f"not on the list: {module}.{name}")
            return super().find_class(module, name)

    return SimpleNamespace(Unpickler=Unpickler, UnpicklingError=pickle.UnpicklingError, __name__="listed_names")


def attempt(path: Path, names: set[str] | None) -> dict:
    options = {"weights_only": True} if names is None else {"weights_only": False, "pickle_module": listed_names(names)}
    try:
        root = torch.load(path, map_location="cpu", **options)
    except (MemoryError, RecursionError) as error:
        return {"crash": type(error).__name__}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "offset": offset_of(error)}
    try:
        return {"hash": hash_text(flatten(root))}
    except MemoryError:
        return {"crash": "MemoryError"}
    except Exception as error:
        return {"odd": f"{type(error).__name__}: {error}"[:300], "trace": traceback.format_exc()[-600:]}


def offset_of(error: BaseException) -> int | None:
    """Where the unpickler was: behind the opcode that it failed at."""
    seen = []
    while error:
        seen.append(error)
        error = error.__cause__ or error.__context__
    for each in seen:
        for frame, _ in traceback.walk_tb(each.__traceback__):
            unpickler = frame.f_locals.get("self")
            if frame.f_code.co_filename.endswith("_weights_only_unpickler.py") and hasattr(unpickler, "metastack"):
                return unpickler.read.__self__.tell()
    return None
