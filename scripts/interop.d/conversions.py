"""Each peer's file, converted by tconv into each format, as that format's peer reads it and would write it."""
from itertools import product

from models import Model, every_dtype, every_name
from peers import FORMATS, Safetensors, is_available, safetensors_by_hand, shard_limit


def run(checks, tconv):
    formats = [format for format in FORMATS if is_available(format.peer)]
    checks.skipped += [format.label for format in FORMATS if format not in formats]
    for kind, model in ("dtypes", every_dtype()), ("names", every_name()), ("no tensors", Model({})):
        for source, target in product(formats, formats):
            if not (model.tensors or source.may_be_empty and target.may_be_empty):
                continue
            both = model.only(lambda name, tensor: source.holds(name, tensor) and target.holds(name, tensor))
            with checks.case(f"{kind}, {source.label} → {target.label}"):
                check(checks, tconv, source, target, both)
    if is_available("safetensors"):
        check_by_hand(checks, tconv)
        with checks.case("safetensors in one shard"):
            check_one_shard(checks, tconv, Safetensors())


def check(checks, tconv, source, target, model):
    with tconv.folder() as inputs, tconv.folder() as outputs, tconv.folder() as scratch:
        file, copy = inputs / f"model{source.suffix}", outputs / f"model{target.suffix}"
        source.write(file, model)
        written = source.read(file)
        assert written.tensors == model.tensors, f"{source.peer} reads something else than it wrote"
        tconv.check_hash(source.entry(file), written)
        if tconv.convert(source.entry(file), copy, *target.options(written)):
            if not target.keeps_metadata:
                written.metadata = {}
            check_output(checks, target, copy, written, scratch)


def check_output(checks, target, copy, written, scratch):
    found = target.read(copy)
    checks.equal("number of tensors", len(found.tensors), len(written.tensors))
    in_order = found.tensors if isinstance(target, Safetensors) else written.tensors
    # The order that safetensors chooses is a part of the bytes that are compared next.
    checks.same_model(found, Model({name: written.tensors.get(name) for name in in_order}, written.metadata))
    for part, got, want in target.against_peer(copy, written, scratch):
        checks.equal(f"{part}, against {target.peer}'s own", got, want)


def check_by_hand(checks, tconv):
    """What the package reads but can't be asked to write."""
    format, everything = Safetensors(), every_dtype()
    packed = everything.only(lambda name, tensor: tensor.dtype.startswith("F6_"))
    disordered = everything.only(format.holds)
    for what, model in ("F6", packed), ("header in another order than the data", disordered):
        with checks.case(what), tconv.folder() as folder:
            source, target = folder / "source.safetensors", folder / "target.safetensors"
            source.write_bytes(safetensors_by_hand(model, sorted(model.tensors)))
            written = format.read(source)
            tconv.check_hash(source, written)
            if tconv.convert(source, target):
                checks.equal("tensors", format.read(target).tensors, written.tensors)
                if model is disordered:
                    checks.equal("file, against safetensors' own", target.read_bytes(), format.encode(written))


def check_one_shard(checks, tconv, format):
    """As Hugging Face's writers do: what fits into one shard has no index."""
    model = every_dtype().only(format.holds)
    with tconv.folder() as inputs, tconv.folder() as outputs:
        source, target = inputs / "model.safetensors", outputs / "model.safetensors"
        format.write(source, model)
        if tconv.convert(source, target, "--shard-size", shard_limit(model, 1)):
            checks.equal("files", [file.name for file in outputs.iterdir()], [target.name])
            checks.equal("file, against safetensors' own", target.read_bytes(), format.encode(model))
