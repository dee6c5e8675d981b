"""Checkpoints through other formats and back: torch loads what it had, and training goes on as it would have."""
import json
import warnings
import zipfile
from collections import OrderedDict

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import tree_cases
from tree_reference import decode, encode

warnings.simplefilter("ignore")
torch.set_num_threads(1)
KEY = "tconv.tree"
# Formats that hold metadata, and the checkpoints that they can't: of a tensor without a name.
TARGETS = {".safetensors": set(), ".deathtensors": {"odd keys"}, ".pt": set()}


def run(checks, tconv):
    cases = tree_cases.each()
    for name, value, sharing, how in cases:
        with checks.case(name), tconv.folder() as folder:
            check_tree(checks, tconv, folder, name, value, sharing, how)
    for kind, check in {
        "plain state dicts": check_plain, "never": check_never, "a legacy file": check_legacy, "stale": check_stale,
        "views that were changed": check_changed_view, "metadata": check_metadata, "no place": check_no_place,
        "dtypes": check_dtypes, "quantised without a tree": check_quantised, "training goes on": check_resume, "gguf": check_gguf, "sidecar": check_sidecar, "shards": check_shards,
    }.items():  # fmt: skip
        with checks.case(kind), tconv.folder() as folder:
            check(checks, tconv, folder)
    checks.notes.append(f"{len(cases)} checkpoints")


def load(path, safe=(), full=False):
    with torch.serialization.safe_globals(list(safe)):
        return torch.load(path, weights_only=not full)


def saved(value, path, **how):
    """The object as torch loads it: what must come back."""
    torch.save(value, path)
    return load(path, **how)


def same(checks, what, got, want, sharing=False):
    shared = []
    try:
        tree_cases.same(want, got, "", shared)
    except AssertionError as error:
        checks.fail(f"{what}: {str(error)[:300]}")
        return
    checks.passed += 1
    pairs, back = {}, {}
    for path, one, other, stride, other_stride, _ in shared if sharing else ():
        checks.true(
            pairs.setdefault(one, other) == other and back.setdefault(other, one) == one,
            lambda path=path: f"{what}: sharing of {path}",
        )
        checks.equal(f"{what}: strides of {path}", other_stride, stride)


def check_tree(checks, tconv, folder, name, value, sharing, how):
    """Through each format and back, straight, and by way of the reference's decoder; the text is the reference's."""
    source = folder / "a.pt"
    want = saved(value, source, **how)
    text = encode(want)[1]
    for suffix, too_much in TARGETS.items():
        middle, back = folder / f"b{suffix}", folder / "c.pt"
        if name in too_much or not tconv.convert(source, middle, "--tree=always"):
            continue
        # deathtensors has F8 as wider floats, and remembers what they were; a plain state dict in a .pt is one again.
        options = {".deathtensors": ["--restore-dtype"] * (name == "dtypes"), ".pt": ["--tree=always"]}.get(suffix, [])
        if not tconv.convert(middle, back, *options):
            continue
        same(checks, suffix, load(back, **how), want, sharing)
        tconv.run("scan", back)
        if suffix == ".safetensors":
            made = safe_open(middle, "pt").metadata()[KEY]
            checks.equal("the tree's text", made, text)
            same(checks, "decoded by the reference", decode(load_file(middle), made), want)
    checks.equal("digest", tconv.run("hash", "--digest", source), tconv.run("hash", "--digest", folder / "c.pt"))
    check_from_reference(checks, tconv, folder, want, text, how)


def check_from_reference(checks, tconv, folder, want, text, how):
    """A file that the reference wrote."""
    save_file(encode(want)[0], folder / "r.safetensors", metadata={"format": "pt", KEY: text})
    if tconv.convert(folder / "r.safetensors", folder / "r.pt", "--verify"):
        same(checks, "from the reference's file", load(folder / "r.pt", **how), want)


def check_plain(checks, tconv, folder):
    """A flat dict of names to tensors has no tree, and is written as ever."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    for kind, value in {"state_dict": net.state_dict(), "dict": dict(net.state_dict()), "empty": {}}.items():
        torch.save(value, folder / "a.pt")
        tconv.convert(folder / "a.pt", folder / "auto.safetensors")
        tconv.convert(folder / "a.pt", folder / "never.safetensors", "--tree=never")
        tconv.convert(folder / "a.pt", folder / "auto.pt")
        tconv.convert(folder / "a.pt", folder / "never.pt", "--tree=never")
        for suffix in "safetensors", "pt":
            auto, never = ((folder / f"{how}.{suffix}").read_bytes() for how in ("auto", "never"))
            checks.true(auto == never, lambda kind=kind, suffix=suffix: f"{kind}, {suffix}: other bytes")
        checks.equal("metadata", safe_open(folder / "auto.safetensors", "pt").metadata(), {"format": "pt"})
        checks.true(type(load(folder / "auto.pt")) is OrderedDict, lambda: "no OrderedDict")


def check_never(checks, tconv, folder):
    torch.save({"a": {"w": torch.ones(2)}}, folder / "a.pt")
    tconv.convert(folder / "a.pt", folder / "b.safetensors", "--tree=never")
    checks.true(KEY not in safe_open(folder / "b.safetensors", "pt").metadata(), lambda: "there is a tree")
    tconv.convert(folder / "a.pt", folder / "b.pt", "--tree=never")
    checks.equal("keys", list(load(folder / "b.pt")), ["a.w"])


def check_legacy(checks, tconv, folder):
    value = {"m": OrderedDict(w=torch.randn(3, 2)), "o": [torch.ones(1), {"lr": 0.1, 3: None}]}
    torch.save(value, folder / "a.pt", _use_new_zipfile_serialization=False)
    tconv.convert(folder / "a.pt", folder / "b.safetensors")
    tconv.convert(folder / "b.safetensors", folder / "c.pt")
    same(checks, "legacy", load(folder / "c.pt"), load(folder / "a.pt"))


def check_stale(checks, tconv, folder):
    """A tensor was added since: the tree is not true any more."""
    torch.save({"a": {"w": torch.ones(2)}}, folder / "a.pt")
    tconv.convert(folder / "a.pt", folder / "b.safetensors")
    tensors = {**load_file(folder / "b.safetensors"), "more": torch.zeros(1)}
    save_file(tensors, folder / "c.safetensors", metadata=safe_open(folder / "b.safetensors", "pt").metadata())
    done = tconv.fails(folder / "c.safetensors", folder / "d.pt")
    checks.equal("exit", done.returncode, 0)
    checks.true("structure" in done.stderr, lambda: f"nothing said: {done.stderr}")
    checks.equal("keys", sorted(load(folder / "d.pt")), ["a.w", "more"])
    checks.equal("strict", tconv.fails("--strict", folder / "c.safetensors", folder / "e.pt").returncode, 4)


def check_changed_view(checks, tconv, folder):
    """Where a view's bytes are not the base's any more, it has data of its own."""
    base = torch.arange(12.0).reshape(3, 4)
    torch.save({"n": {"base": base, "row": base[1], "t": base.t()}}, folder / "a.pt")
    tconv.convert(folder / "a.pt", folder / "b.safetensors")
    tensors = load_file(folder / "b.safetensors")
    tensors["n.row"] += 1
    save_file(tensors, folder / "c.safetensors", metadata=safe_open(folder / "b.safetensors", "pt").metadata())
    tconv.convert(folder / "c.safetensors", folder / "d.pt")
    got = load(folder / "d.pt")["n"]
    where = {name: tensor.untyped_storage().data_ptr() for name, tensor in got.items()}
    checks.equal("row", got["row"].tolist(), (base[1] + 1).tolist())
    checks.equal("base", got["base"].tolist(), base.tolist())
    checks.true(where["t"] == where["base"] != where["row"], lambda: f"storages {where}")


def check_metadata(checks, tconv, folder):
    """Values are metadata, too; a .pt that has them nested keeps only the rest beside them."""
    torch.save({"epoch": 3, "m": {"w": torch.ones(2)}, "l": [1, 2], "t": "x"}, folder / "a.pt")
    tconv.convert(folder / "a.pt", folder / "b.safetensors", "--metadata", "note=mine")
    metadata = safe_open(folder / "b.safetensors", "pt").metadata()
    checks.equal("values", {k: metadata.get(k) for k in ("epoch", "l", "t")}, {"epoch": "3", "l": "[1,2]", "t": "x"})
    tconv.convert(folder / "b.safetensors", folder / "c.pt")
    rest = json.loads(zipfile.ZipFile(folder / "c.pt").read("archive/tconv.json"))
    checks.equal("tconv.json", rest["metadata"], {"format": "pt", "note": "mine"})
    told = json.loads(tconv.run("info", "--json", folder / "c.pt"))["metadata"]
    checks.equal("info", told, {"epoch": "3", "format": "pt", "l": "[1,2]", "note": "mine", "t": "x"})
    tconv.convert(folder / "b.safetensors", folder / "d.pt", "--metadata", "epoch=4")
    checks.equal("the value", load(folder / "d.pt")["epoch"], 3)
    told = json.loads(tconv.run("info", "--json", folder / "d.pt"))["metadata"]
    checks.equal("what the user says", told["epoch"], "4")


def check_no_place(checks, tconv, folder):
    torch.save({"m": {"w": torch.ones(2)}}, folder / "a.pt")
    plan = json.loads(tconv.run("--dry-run", "--json", folder / "a.pt", folder / "b.npz"))
    checks.true(any(loss["kind"] == "structure" for loss in plan["losses"]), lambda: f"{plan['losses']}")
    checks.equal("strict", tconv.fails("--strict", folder / "a.pt", folder / "b.npz").returncode, 4)
    plan = json.loads(tconv.run("--dry-run", "--json", folder / "a.pt", folder / "b.pt"))
    checks.equal("pt to pt", (plan["changes"], plan["losses"]), ([], []))


def check_sidecar(checks, tconv, folder):
    torch.save({"m": {"w": torch.randn(2)}, "n": None}, folder / "a.pt")
    tconv.convert(folder / "a.pt", folder / "b.npz", "--keep-metadata=sidecar")
    tconv.convert(folder / "b.npz", folder / "c.pt")
    same(checks, "npz with a sidecar", load(folder / "c.pt"), load(folder / "a.pt"))


def check_gguf(checks, tconv, folder):
    """Dtypes that a format has no place for come back, too."""
    value = {"m": {"w": torch.randn(2, 3)}, "step": 7, "n": [None, (1.5, "x")]}
    value["seen"] = {"mask": torch.tensor([True, False]), "rng": torch.get_rng_state(), "half": torch.ones(2).to(torch.float8_e5m2)}
    value["q"] = torch.quantize_per_tensor(torch.randn(3), 0.25, 0, torch.quint8)
    torch.save(value, folder / "a.pt")
    for suffix in ".gguf", ".onnx", ".ot", ".deathtensors":
        tconv.convert(folder / "a.pt", folder / f"b{suffix}")
        tconv.convert(folder / f"b{suffix}", folder / "c.pt")
        same(checks, suffix, load(folder / "c.pt"), load(folder / "a.pt"))


def check_dtypes(checks, tconv, folder):
    """Whatever dtypes are asked for, torch loads what is written, with the values of the flat tensors."""
    base = torch.randn(3, 4)
    eye = torch.eye(3)
    value = {
        "m": {"base": base, "row": base[1], "p": nn.Parameter(torch.ones(2)), "i": torch.arange(3), "t": torch.tensor([True])},
        "q": [torch.quantize_per_tensor(base, 0.1, 3, torch.qint8),
              torch.quantize_per_channel(base, torch.rand(3) + 0.1, torch.tensor([0, 1, 2]), 0, torch.quint8)],
        "s": (eye.to_sparse(), eye.to_sparse_csr(), eye[:2, :2].to_sparse_bsr((1, 2))),
        "n": {"array": base.numpy(), "scalar": np.float64(0.5)},
    }  # fmt: skip
    torch.save(value, folder / "a.pt")
    for rule in (
        "F16", "BF16", "F64", "I8", "I32", "I64", "U8", "C64", "row$=F16", "base$=F16", "^m.p$=I32", "array=BF16",
        "array=F16", "scalar=I32", "values$=F64", "indices$=I32", "^s.1.col=I32", "scales$=F16", "scales$=I32", "points$=I32", ".=F32", ".=I32",
    ):  # fmt: skip
        options = ["-q", "--lossy", "--saturate", "--dtype", rule]
        if not tconv.convert(folder / "a.pt", folder / "b.pt", *options):
            continue
        load(folder / "b.pt", full=True)
        tconv.convert(folder / "a.pt", folder / "flat.pt", "--tree=never", *options)
        hashes = [tconv.run("hash", folder / name) for name in ("b.pt", "flat.pt")]
        checks.equal(f"values, --dtype {rule}", *hashes)
        tconv.convert(folder / "a.pt", folder / "b.safetensors", *options)
        tconv.convert(folder / "b.safetensors", folder / "c.pt", "-q")
        load(folder / "c.pt", full=True)


def check_shards(checks, tconv, folder):
    value = {"m": {str(i): torch.randn(64, 64) for i in range(4)}, "o": [torch.ones(1), 3]}
    torch.save(value, folder / "a.pt")
    for suffix in ".safetensors", ".bin":
        tconv.convert(folder / "a.pt", folder / f"s{suffix}", "--shard-size", "40K")
        tconv.convert(folder / f"s{suffix}.index.json", folder / "c.pt")
        same(checks, f"shards of {suffix}", load(folder / "c.pt"), load(folder / "a.pt"))


def check_quantised(checks, tconv, folder):
    """Quantised tensors are such again, also where no tree says so."""
    weight = torch.randn(2, 3)
    value = {
        "q": torch.quantize_per_tensor(weight, 0.1, 3, torch.qint8),
        "u": torch.quantize_per_tensor(weight, 0.25, 0, torch.quint8),
        "i": torch.quantize_per_tensor(weight, 0.5, -7, torch.qint32),
        "c": torch.quantize_per_channel(weight, torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8),
        "w": weight,
    }
    torch.save(value, folder / "a.pt")
    for suffix in ".safetensors", ".deathtensors", ".pt":
        tconv.convert(folder / "a.pt", folder / f"b{suffix}", "--tree=never")
        tconv.convert(folder / f"b{suffix}", folder / "c.pt", "--order=source", "--tree=never")
        got = load(folder / "c.pt")
        checks.equal(f"{suffix}: keys", sorted(got), sorted(value))
        for name in value:
            same(checks, f"{suffix}: {name}", got[name], value[name])


def check_resume(checks, tconv, folder):
    """Half of a training, through safetensors, and the rest: the same losses as without."""
    data = torch.randn(64, 8, generator=torch.Generator().manual_seed(3))

    def parts():
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=40)

    def train(model, optimizer, scheduler, steps):
        losses = []
        for _ in range(steps):
            batch = data[torch.randint(0, 64, (16,))]
            loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        return losses

    model, optimizer, scheduler = parts()
    train(model, optimizer, scheduler, 20)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
             "rng": torch.get_rng_state(), "step": 20}  # fmt: skip
    torch.save(state, folder / "half.pt")
    want = train(model, optimizer, scheduler, 20)
    tconv.convert(folder / "half.pt", folder / "half.safetensors")
    tconv.convert(folder / "half.safetensors", folder / "back.pt")
    for name in "half.pt", "back.pt":
        model, optimizer, scheduler = parts()
        state = load(folder / name)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        checks.equal(f"losses from {name}", train(model, optimizer, scheduler, 20), want)
