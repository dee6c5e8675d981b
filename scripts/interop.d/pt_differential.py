"""torch.load(weights_only=True) and tconv on pickles that they might read differently. Where one takes what the other
refuses, the reason must be on a list of reasons, each a function that recognises it; where both take it, they see the same tensors."""
import io
import pickletools
import re
import zipfile
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import torch

import torch_sandbox
from containers import zipped
from pickle_code import DATA, model, pickle_of, storage, tensor
from pickle_programs import Program, programs
from pt_reading import objects
from safe_names import CONTAINERS, LOADERS, NUMPY, PLAIN, TORCH
from safe_names import SAFE as NAMES  # what else tconv takes is a mistake
from torch_peer import saved

CORPUS = [
    "views", "complex views", "quantised", "sparse", "bare tensor", "bare parameter", "list", "tuple", "no tensors",
    "state dict", "tied", "checkpoint", "leaves", "odd leaves", "numpy", "attributes", "empty containers",
    "parameters",
]  # fmt: skip

PYTHON_2 = {"__builtin__": "builtins"}, {"builtins.long": "builtins.int"}

# Opcodes that torch's machine lacks: data, the memo, and names that are looked up as GLOBAL's are.
DATA_OPCODES = {
    "INT", "LONG", "LONG4", "FLOAT", "STRING", "BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "LIST", "DICT", "ADDITEMS", "FROZENSET", "POP",
    "POP_MARK", "DUP", "GET", "PUT", "MEMOIZE", "FRAME", "STACK_GLOBAL",
}  # fmt: skip


@dataclass
class Case:
    program: Program
    torch: dict
    code: int
    out: str
    err: str
    python: dict | None = None  # where torch's machine could not tell: what Python's says

    @property
    def error(self) -> str:
        return self.torch.get("error", "")

    @cached_property
    def operations(self) -> list:
        found = []
        try:
            for operation in pickletools.genops(self.program.pickle):
                found.append(operation)
        except ValueError:
            pass
        return found

    @cached_property
    def names(self) -> set[str]:
        """All that the pickle names up to its STOP, in today's spelling; "?" for strings that are no constants."""
        found, memo, pushed = set(), {}, []
        for op, argument, _ in self.operations:
            if op.name in ("GLOBAL", "INST"):
                found.add(today(*argument.split(" ", 1)))
            elif op.name == "STACK_GLOBAL":
                module, name = pushed[-2:] if len(pushed) > 1 else ("?", "?")
                found.add(today(module, name))
            if op.name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
                memo[len(memo) if op.name == "MEMOIZE" else argument] = pushed[-1] if pushed else "?"
            elif op.name in ("BINGET", "LONG_BINGET", "GET"):
                pushed.append(memo.get(argument, "?"))
            else:
                pushed.append(argument if isinstance(argument, str) and "UNICODE" in op.name else "?")
        return found

    def says(self, pattern: str) -> bool:
        return re.search(pattern, self.err) is not None

    def torch_says(self, pattern: str) -> bool:
        """Of what is wrong with the values: Python's machine runs the same functions where torch's gave up before."""
        return re.search(pattern, self.error if self.python is None else self.python.get("error", "")) is not None

    @property
    def refused_name(self) -> str:
        match = re.search(r"Unsupported global: GLOBAL (\S+) was not an allowed global", self.error)
        name = match[1] if match else ""
        return name if "." in name or not name else f"builtins.{name}"

    @property
    def python_agrees(self) -> bool:
        return self.python is not None and self.python.get("hash") == self.out

    @property
    def stop(self) -> int:
        return next((place for op, _, place in self.operations if op.name == "STOP"), -1)


def today(module: str, name: str) -> str:
    module = PYTHON_2[0].get(module, module)
    return PYTHON_2[1].get(f"{module}.{name}", f"{module}.{name}")


def lacks_opcode(case) -> bool:
    match = re.search(r"Unsupported operand (\d+)", case.error)
    op = pickletools.code2op.get(chr(int(match[1]))) if match else None
    return op is not None and op.name in DATA_OPCODES


SKIPPED_KEY = "skipped: .*a dict's key that is no plain value"

# Why tconv may take what torch refuses. The first two are checked against Python's own machine, which knows better.
TAKEN = {
    "an opcode that torch's machine lacks: tconv knows all protocols": lambda case: lacks_opcode(case)
    and case.python_agrees,
    "numpy: torch wants its names allowed first, to tconv they are data": lambda case: case.refused_name in NUMPY
    and case.python_agrees,
    "Python's own containers: torch wants them allowed first": lambda case: case.refused_name in CONTAINERS | PLAIN
    and case.python_agrees,
    "a container that holds itself, which is skipped by name": lambda case: case.says("skipped: .*holds itself")
    and case.python is not None
    and "RecursionError" in case.python.get("odd", ""),
    "a key that can't be one in Python, which is skipped by name": lambda case: case.says(SKIPPED_KEY)
    and case.torch_says("unhashable type"),
    "what is for training only, and tconv does not look at": lambda case: case.torch_says(
        r"requires_grad must be a bool|leaf Variable that requires grad|[Oo]nly Tensors of .* require gradients"
        r"|expected dict, got|can't set attribute|has no attribute '_backward_hooks'"
    ),
    "indices of a sparse tensor, which are values to tconv": lambda case: "torch._utils._rebuild_sparse_tensor"
    in case.names
    and case.torch_says(
        r"size is inconsistent with indices|found negative index|must have same nnz|(row|col)_indices|"
        r"number of dimensions must be sparse_dim|values has incorrect size|expected .*indices"
    ),
    "a tensor that nothing holds, beside one plain value": lambda case: case.says(
        "storages? of the file (is|are) not referred to"
    )
    and case.torch_says(r"^RuntimeError"),
    "a device or layout that this torch does not have, as a leaf": lambda case: bool(
        case.names & {"torch.device", "torch.serialization._get_layout"}
    )
    and case.torch_says(r"Expected one of cpu, cuda|Invalid device string|^KeyError|Device index must not be negative"),
}

# Why tconv may refuse what torch takes.
REFUSED = {
    "bytes behind the pickle": lambda case: case.says("something stands behind the pickle")
    and case.stop + 1 < len(case.program.pickle),
    "PROTO elsewhere than at the start": lambda case: case.says("protocol is not at its start")
    and any(op.name == "PROTO" for op, _, _ in case.operations[1:]),
    "values or marks left over at the end": lambda case: case.says("left on the stack at the end|a mark is left"),
    "a value alone that is no tensor": lambda case: case.says("holds a single value that is no tensor")
    and case.torch.get("hash", "") == "",
    "no tensor in it, and what there is can't be metadata": lambda case: case.code == 4
    and case.says("no tensor is left")
    and case.torch.get("hash") == "",
    "strings that are no UTF-8": lambda case: case.says("not valid UTF-8")
    and re.search(rb"\xed[\xa0-\xbf]", case.program.pickle),
    "a NUL in a name": lambda case: case.says("holds a NUL") and b"\0" in case.program.pickle,
    "a rank above 64": lambda case: case.code == 4 and case.says("more than 64 dimensions"),
    "calls of the listed classes with arguments that nobody writes": lambda case: case.code == 3
    and case.says(
        r"(encode|bytearray|set|Counter|OrderedDict|Size|complex|device) is called with arguments that it does not take"
        r"|an object of builtins.set is made with arguments"
    ),
    "the state of a value that has none": lambda case: case.code == 5
    and case.says("sets the state of a value that has none|which is no known class"),
    "tensor classes called, as before torch 0.4": lambda case: case.code == 5
    and case.says(r'(names|calls|object of) "?torch\.(cuda\.)?(sparse\.)?(nn\.parameter\.Parameter|\w*Tensor)"?'),
    "one storage with two types or sizes": lambda case: case.says("is named with two types or sizes"),
    "a storage that is named otherwise than torch does": lambda case: case.says("bad persistent id"),
    "an empty view that begins past its storage, or has impossible strides": lambda case: case.says(
        "reaches past its storage|sizes and strides"
    )
    and has_no_elements(case.torch.get("hash", "")),
    "strides left out, which torch takes for C order": lambda case: case.says("sizes and strides")
    and has_no_strides(case.operations),
    "a dtype on a typed storage, or none on an untyped one": lambda case: case.says(
        "storage that has one already|storage without a dtype"
    ),
    "metadata of a tensor that is no dict": lambda case: case.says("tensor's metadata is no dict"),
    "marks or values nested beyond the limits": lambda case: case.code == 5 and case.says("nested"),
    "dtypes and kinds of tensors that have no word in tconv": lambda case: case.says(
        r"torch\.u?int[1-7]\b|kind of tensor that is not supported|torch\.bits"
    ),
    "members of the archive that can be read in two ways": lambda case: case.program.kind.startswith("zip:")
    and case.code == 3,
    "an archive whose folder is no name": lambda case: case.program.kind.startswith("zip:")
    and case.code == 5
    and case.says("leaves its place"),
    "a version or byte order that torch does not write": lambda case: case.says("version|byteorder|byte order")
    and case.program.kind.startswith(("version:", "byteorder:")),
    "names on torch's list that tensor files have no use for": lambda case: case.code in (4, 5)
    and any(name in case.err for name in case.names - NAMES_OF_FILES),
}
NAMES_OF_FILES = NAMES - {
    name
    for name in TORCH
    if "TypedStorage" in name or re.fullmatch(r"torch\.(sparse\.|cuda\.)*\w+Tensor|torch\.(bits|u?int[1-7])\w*", name)
}

# Why what torch took can't be compared.
ODD = {
    "quantised without a scale": r"Quantizer",
    "larger than memory": r"allocate memory|MemoryError",
    "nested deeper than Python goes": r"RecursionError",
    "no data at all": r"meta device",
    "names that are no UTF-8": r"UnicodeEncodeError",
    "dtypes without a word in tconv": r"KeyError: torch\.|is not JSON|not implemented for",
}


def has_no_elements(text: str) -> bool:
    return re.search(r"\[(\d+,)*0(,\d+)*\]", text) is not None


def has_no_strides(operations) -> bool:
    names = [op.name for op, _, _ in operations]
    return any(first.startswith("TUPLE") and second == "EMPTY_TUPLE" for first, second in zip(names, names[1:]))


def run(checks, tconv):
    torch.manual_seed(1)
    cases = [*programs(corpus()), *archives()]
    classes: Counter[str] = Counter()
    with tconv.folder() as folder:
        for program in cases:
            with checks.case(program.kind):
                file = folder / "file.pt"
                file.write_bytes(program.archive or packed(program))
                judge(checks, try_both(tconv, program, file), classes)
    checks.notes += [f"{count} × {what}" for what, count in sorted(classes.items())]


def try_both(tconv, program, file) -> Case:
    done = tconv.fails("hash", file)
    case = Case(program, torch_sandbox.load(file), done.returncode, done.stdout, done.stderr)
    if lacks_opcode(case) or case.refused_name in NUMPY | CONTAINERS | PLAIN:
        case.python = torch_sandbox.load(file, NAMES - LOADERS | {"builtins.long"})
    return case


def judge(checks, case, classes):
    answers = ", ".join(
        f"{who} {shortened(answer)}" for who, answer in (("torch", case.torch), ("Python", case.python)) if answer
    )
    brief = f"{answers}, tconv {case.code} {(case.err or case.out)[:300]!r}"
    if not checks.true(case.code in (0, 3, 4, 5), lambda: f"tconv must never do this: {brief}"):
        return
    if case.code == 0:
        strange = case.names - NAMES
        checks.true(not strange, lambda: f"tconv takes a file that names {strange}: {brief}")
    outcome, reasons = compare(case)
    reason = next((reason for reason, holds in reasons.items() if holds(case)), None)
    checks.true(reasons == {} or reason is not None, lambda: f"{outcome}, for no listed reason: {brief}")
    classes[f"{outcome}: {reason}" if reason else outcome] += 1


def shortened(answer: dict) -> str:
    """Without the advice that torch gives at length before it says what is wrong."""
    flat = re.sub(r"\s+", " ", str(answer).replace("\\n", " "))
    return re.sub(r"Weights only load failed.*?WeightsUnpickler error: ", "", flat)[:300]


def compare(case) -> tuple[str, dict]:
    """Whether torch and tconv agree, and the reasons that would excuse a difference."""
    if "crash" in case.torch:
        return ("torch crashed or took too much, tconv " + ("took it" if case.code == 0 else "refused it")), {}
    if "error" in case.torch:
        return ("both refused", {}) if case.code else ("tconv took what torch refused", TAKEN)
    if "odd" in case.torch:
        return "torch took what can't be compared", {why: says_odd(pattern) for why, pattern in ODD.items()}
    if case.code:
        return "tconv refused what torch took", REFUSED
    if case.torch["hash"] == case.out:
        return "both took it, and see the same tensors", {}
    return "both took it, and see other tensors", {"nothing": lambda case: False}


def says_odd(pattern: str):
    return lambda case: re.search(pattern, case.torch["odd"])


def corpus() -> list[tuple[str, bytes, dict[str, bytes]]]:
    roots, found = objects(), []
    for kind in CORPUS:
        for protocol in (2, 3, 4, 5):
            members = members_of(saved(roots[kind], pickle_protocol=protocol))
            storages = {name.removeprefix("data/"): data for name, data in members.items() if name.startswith("data/")}
            found.append((f"{kind}, protocol {protocol}", members["data.pkl"], storages))
    return found


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def members_in(program: Program, root: str = "archive") -> list[tuple[str, bytes]]:
    storages = {f"data/{key}": content for key, content in program.storages.items()}
    return [
        (f"{root}/{name}", content)
        for name, content in {"data.pkl": program.pickle, **program.members, **storages}.items()
    ]


def packed(program: Program) -> bytes:
    return zipped(members_in(program))


def archives() -> list[Program]:
    """The archive itself, in ways that two readers may take for two things."""
    good = Program("", pickle_of(model(w=tensor(storage()))), dict(DATA))
    other = Program("", pickle_of(model(x=tensor(storage(), 0, (3,), (1,)))), dict(DATA))
    plain, pickle = packed(good), ("archive/data.pkl", other.pickle)
    made = {
        "as it is": plain,
        "deflated": zipped(members_in(good), zipfile.ZIP_DEFLATED),
        "data.pkl twice": zipped([*members_in(good), pickle]),
        "data.pkl twice, first the other": zipped([pickle, *members_in(good)]),
        "a storage twice": zipped([*members_in(good), ("archive/data/0", bytes(24))]),
        "two roots": zipped([*members_in(good), *members_in(other, "other")]),
        "two roots, mixed": zipped([("other/data.pkl", other.pickle), *members_in(good)]),
        "no root": zipped([(name.partition("/")[2], content) for name, content in members_in(good)]),
        "a root in a root": zipped(members_in(good, "a/b")),
        "a root of two dots": zipped(members_in(good, "..")),
        "data.pkl in another case": zipped([*members_in(good), ("archive/DATA.PKL", other.pickle)]),
        "a folder as a member": zipped([*members_in(good), ("archive/data/", b"")]),
        "bytes before it": b"x" * 100 + plain,
        "bytes after it": plain + b"x" * 100,
        "another archive before it": packed(other) + plain,
        "cut short": plain[:-30],
        "a wrong CRC of the pickle": damaged(plain, good.pickle),
        "a wrong CRC of a storage": damaged(plain, DATA["0"]),
        "another name in the local header": renamed(plain),
        "no data.pkl": zipped([member for member in members_in(good) if not member[0].endswith("data.pkl")]),
        "no version": zipped([member for member in members_in(good) if not member[0].endswith("version")]),
    }  # fmt: skip
    return [Program(f"zip: {kind}", good.pickle, archive=data) for kind, data in made.items()]


def damaged(archive: bytes, content: bytes) -> bytes:
    """The content with one bit of its last byte changed, and its checksum left as it was."""
    at = archive.index(content) + len(content) - (2 if content.endswith(b".") else 1)
    return archive[:at] + bytes([archive[at] ^ 1]) + archive[at + 1 :]


def renamed(archive: bytes) -> bytes:
    at = archive.index(b"archive/data.pkl")
    return archive[:at] + b"archive/data.pk1" + archive[at + 16 :]
