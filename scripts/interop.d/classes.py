"""An honest file of each class on checkpoint_classes.CLASSES: what tconv does with it is what the list says."""
import argparse
import collections
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import importlib
import itertools
import json
import logging
import operator
import pathlib
import random
import re
import sys
import types
import uuid
from collections import Counter

import numpy as np
import torch

from checkpoint_classes import CLASSES
from peers import optional

DEFAULT = {"reads": 0, "refuses": 5}


def run(checks, tconv):
    torch.manual_seed(6)
    outcomes: Counter[str] = Counter()
    for row in CLASSES:
        with checks.case(f"{row.name} ({row.seen})"), tconv.folder() as folder:
            try:
                root, values = checkpoint(row)
            except Missing as missing:
                checks.skipped.append(f"{row.name}: needs {missing}")
                continue
            torch.save(root, folder / "file.pt")
            check_default(checks, tconv, folder / "file.pt", row, values)
            check_inert(checks, tconv, folder / "file.pt", row, values)
            outcomes[f"{row.default} by default"] += 1
    checks.notes += [f"{count} classes of public checkpoints: {what}" for what, count in sorted(outcomes.items())]


def check_default(checks, tconv, file, row, values):
    done = tconv.fails("hash", file)
    checks.equal(f"exit code, {done.stderr[:300]!r}", done.returncode, DEFAULT[row.default])
    if row.default == "reads":
        checks.equal("hashes of the tensors", hashes(done.stdout), values)
    else:
        checks.true(re.search(r"names|calls|makes an object", done.stderr), lambda: f"no name in {done.stderr!r}")
    told = json.loads(tconv.fails("scan", "--json", file).stdout)
    checks.equal("verdict", told["verdict"], "clean" if row.default == "reads" else "unsafe")


def check_inert(checks, tconv, file, row, values):
    done = tconv.fails("hash", "--pickle=inert", file)
    checks.equal(f"exit code under --pickle=inert, {done.stderr[:300]!r}", done.returncode, 0)
    if row.how != "real":  # which may hold more arrays than were put into it: an index, a key
        checks.equal("tensors that it does not have", sorted(set(hashes(done.stdout)) - set(values)), [])
    checks.equal("tensors lost under --pickle=inert", sorted((values - hashes(done.stdout)).elements()), [])


def hashes(text: str) -> Counter:
    return Counter(line.split()[0] for line in text.splitlines())


class Missing(Exception):
    """A package that would make the object."""


class Tensors:
    """Hands out tensors and arrays, and remembers what is in them."""

    def __init__(self):
        self.values: Counter[str] = Counter()

    def remember(self, data: bytes):
        self.values[hashlib.sha256(data).hexdigest()] += 1

    def tensor(self, *shape) -> torch.Tensor:
        made = torch.randn(*(shape or (2, 3)))
        self.remember(made.numpy().tobytes())
        return made

    def array(self, *shape) -> np.ndarray:
        made = np.random.default_rng(7).standard_normal(shape or (4,))
        self.remember(made.tobytes())
        return made

    def of_module(self, module: torch.nn.Module) -> torch.nn.Module:
        for value in [*module.parameters(), *module.buffers()]:
            self.remember(value.detach().numpy().tobytes())
        return module


def checkpoint(row) -> tuple[dict, Counter]:
    """The object as part of a checkpoint, beside two tensors; and the hashes of all tensors in it."""
    tensors = Tensors()
    root = {"state_dict": collections.OrderedDict(weight=tensors.tensor(3, 2), bias=tensors.tensor(3)), "epoch": 3}
    root["object"] = globals()[f"make_{row.how}"](row.name, tensors)
    return root, tensors.values


# How the objects are made


def make_real(name, tensors):
    return REAL[name](tensors)


def make_old_path(name, tensors):
    class Path:
        def __reduce__(self):
            return (stand_in(name, object), ("C:\\", "model"))

    return Path()


def make_stub(name, tensors):
    made = object.__new__(stand_in(name, object))
    made.__dict__.update(
        lr=0.1, names=["a", "b"], weight=tensors.tensor(), coef_=tensors.array(), nested={"x": tensors.tensor(2)}
    )
    return made


def make_stub_dict(name, tensors):
    made = stand_in(name, dict)()
    made.update(lr=0.1, layers=[1, 2], weight=tensors.tensor())
    return made


def make_stub_list(name, tensors):
    made = stand_in(name, list)()
    made.extend([tensors.tensor(), tensors.tensor(1)])
    made.__dict__["note"] = "a list with attributes"
    return made


def make_stub_enum(name, tensors):
    module, _, short = name.rpartition(".")
    made = enum.Enum(short, {"STEPS": "steps"}, module=module)
    install(name, made)
    return made.STEPS


def make_stub_function(name, tensors):
    """Named, as a type or a function is, and called with a tensor."""
    target = stand_in(name, object)

    class Call:
        def __reduce__(self):
            return (target, (tensors.tensor(), "a"))

    return [target, Call()]


def make_stub_module(name, tensors):
    made = stand_in(name, torch.nn.Module)()
    made.body = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    made.yaml = {"depth": 2}
    tensors.of_module(made)
    made.stride = tensors.tensor(3)  # a plain attribute
    return made


def make_module(name, tensors):
    return tensors.of_module(MODULES[name.rpartition(".")[2]]())


def make_graph_module(name, tensors):
    return tensors.of_module(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())))


MODULES = {
    "Linear": lambda: torch.nn.Linear(2, 3), "Conv2d": lambda: torch.nn.Conv2d(1, 2, 3),
    "BatchNorm2d": lambda: torch.nn.BatchNorm2d(3),
    "LayerNorm": lambda: torch.nn.LayerNorm(4), "Embedding": lambda: torch.nn.Embedding(5, 2),
    "Sequential": lambda: torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)),
    "ModuleList": lambda: torch.nn.ModuleList([torch.nn.Linear(2, 3)]),
    "ModuleDict": lambda: torch.nn.ModuleDict({"a": torch.nn.Linear(2, 3)}),
    "ParameterList": lambda: torch.nn.ParameterList([torch.nn.Parameter(torch.randn(2))]),
    "MultiheadAttention": lambda: torch.nn.MultiheadAttention(4, 2), "LSTM": lambda: torch.nn.LSTM(2, 3),
}  # fmt: skip


def optimiser(kind):
    def make(tensors):
        module = tensors.of_module(torch.nn.Linear(2, 3))
        return kind(module.parameters(), lr=0.1)

    return make


def scheduler(kind, *arguments):
    """What a scheduler keeps, and its class, as trainers save both."""

    def make(tensors):
        made = kind(torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1), *arguments)
        return made.state_dict() | {"kind": kind}

    return make


def abs_rate(epoch):
    return abs(epoch)


def needs(package: str):
    found = optional(package)
    if found is None:
        raise Missing(package)
    return found


def frame(tensors):
    pandas = needs("pandas")
    return pandas.DataFrame({"a": tensors.array(4), "b": list("wxyz")})


def jax_array(tensors):
    needs("jax")
    import jax.numpy

    return jax.numpy.asarray(remembered(tensors, np.arange(4, dtype="float32")))


def remembered(tensors, array):
    tensors.remember(array.tobytes())
    return array


REAL = {
    "collections.OrderedDict": lambda tensors: collections.OrderedDict(a=tensors.tensor()),
    "collections.defaultdict": lambda tensors: collections.defaultdict(list, a=tensors.tensor()),
    "collections.Counter": lambda tensors: collections.Counter("aab"), "builtins.set": lambda tensors: {1, 2},
    "builtins.frozenset": lambda tensors: frozenset({1}), "builtins.complex": lambda tensors: 1 + 2j,
    "builtins.bytearray": lambda tensors: bytearray(b"abc"),
    "argparse.Namespace": lambda tensors: argparse.Namespace(lr=0.1, w=tensors.tensor()),
    "pathlib.PosixPath": lambda tensors: pathlib.PosixPath("/data/model"),
    "types.SimpleNamespace": lambda tensors: types.SimpleNamespace(w=tensors.tensor()),
    "datetime.datetime": lambda tensors: datetime.datetime(2026, 1, 2),
    "datetime.timedelta": lambda tensors: datetime.timedelta(3),
    "datetime.date": lambda tensors: datetime.date(2026, 1, 2),
    "decimal.Decimal": lambda tensors: decimal.Decimal("1.5"),
    "fractions.Fraction": lambda tensors: fractions.Fraction(1, 3), "uuid.UUID": lambda tensors: uuid.UUID(int=5),
    "functools.partial": lambda tensors: functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "collections.deque": lambda tensors: collections.deque([1, tensors.tensor()], 5),
    "builtins.slice": lambda tensors: slice(1, 2),
    "builtins.range": lambda tensors: range(3),
    "random.Random": lambda tensors: random.Random(3), "operator.itemgetter": lambda tensors: operator.itemgetter("a"),
    "logging.Logger": lambda tensors: logging.getLogger("training"), "re.Pattern": lambda tensors: re.compile("a+"),
    "itertools.count": lambda tensors: itertools.count(3),
    "torch.Size": lambda tensors: torch.Size([1, 2]), "torch.device": lambda tensors: torch.device("cpu"),
    "torch.dtype": lambda tensors: torch.float16,
    "torch.nn.parameter.Parameter": lambda tensors: torch.nn.Parameter(tensors.tensor()),
    "torch.optim.adam.Adam": optimiser(torch.optim.Adam), "torch.optim.adamw.AdamW": optimiser(torch.optim.AdamW),
    "torch.optim.sgd.SGD": optimiser(torch.optim.SGD),
    "torch.optim.lr_scheduler.StepLR": scheduler(torch.optim.lr_scheduler.StepLR, 3),
    "torch.optim.lr_scheduler.LambdaLR": scheduler(torch.optim.lr_scheduler.LambdaLR, abs_rate),
    "torch.Generator": lambda tensors: call_of(torch.Generator, tensors),
    "numpy.ndarray": lambda tensors: tensors.array(),
    "numpy.float64": lambda tensors: remembered(tensors, np.float64(1.5)),
    "numpy.int64": lambda tensors: remembered(tensors, np.int64(3)),
    "numpy.bool_": lambda tensors: remembered(tensors, np.bool_(True)),
    "numpy.random.mtrand.RandomState": lambda tensors: random_state(tensors),
    "numpy.random._generator.Generator": lambda tensors: np.random.default_rng(3),
    "pandas.DataFrame": frame, "pandas.Series": lambda tensors: frame(tensors)["a"],
    "pandas.Index": lambda tensors: needs("pandas").Index([1, 2]),
    "pandas.Timestamp": lambda tensors: needs("pandas").Timestamp("2026-01-02"), "jax.Array": jax_array,
}  # fmt: skip


def call_of(target, tensors):
    class Call:
        def __reduce__(self):
            return (target, ())

    return Call()


def random_state(tensors):
    made = np.random.RandomState(3)
    tensors.remember(made.get_state()[1].tobytes())
    return made


# Classes of packages that are not there


def stand_in(name: str, base: type) -> type:
    return install(name, type(name.rpartition(".")[2], (base,), {"__module__": name.rpartition(".")[0]}))


def install(name: str, made):
    module, _, short = name.rpartition(".")
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        dotted = ".".join(parts[:length])
        if dotted not in sys.modules:
            try:
                importlib.import_module(dotted)
            except (ImportError, TypeError):  # missing, or not to be imported beside stand-ins
                sys.modules[dotted] = types.ModuleType(dotted)
                sys.modules[dotted].__path__ = []
    setattr(sys.modules[module], short, made)
    return made
