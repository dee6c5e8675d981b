"""Rows on tables of many tensors, growth, verification and start-up."""

import json
import os
import struct

import bench as base

TENSORS = 1_000_000


def verify_rows(bench):
    """What certainty costs, beside one pass of SHA-256 or of comparing."""
    base.need_model(bench)
    for name in ("safetensors", "deathtensors"):
        bench.run(f"{name}, --receipt --verify",
                  f"{{model.safetensors}} {{out.{name}}} --receipt {{receipt.json}} --verify",
                  "openssl dgst -sha256 {model.safetensors}", 1.8, mib=base.RAW_MIB, out=f"out.{name}")
        bench.remove(f"out.{name}", "receipt.json")
    base.spawn(["cp", bench.path("model.safetensors"), bench.path("same.safetensors")])
    bench.run("diff of two equal models", "diff {model.safetensors} {same.safetensors}",
              "cmp {model.safetensors} {same.safetensors}", 1.2, mib=base.RAW_MIB)
    bench.remove("same.safetensors")


def start_rows(bench):
    bench.run("start-up", "--version", limit=0.003, mib=16)
    sparse(bench)


def sparse(bench):
    """One small tensor out of a file of 100 GiB, of which hardly anything is there."""
    large = 100 * base.GIB
    header = {"large": {"dtype": "F32", "shape": [large // 4], "data_offsets": [0, large]},
              "small": {"dtype": "F32", "shape": [4], "data_offsets": [large, large + 16]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(bench.path("sparse.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + large + 16)
    bench.run("one tensor out of 100 GiB", "get {sparse.safetensors} small -o {out.npy}", limit=0.01,
              mib=16, out="out.npy", nbytes=0)
    bench.remove("sparse.safetensors", "out.npy")


def growth_rows(bench):
    """Time follows size and count, memory does not follow size: twice as much takes twice as long,
    and a tenth more for noise, beside the same job on the smallest."""
    for step, factor in enumerate((1, 2, 4, 8)):
        base.write_model(bench, f"size{step}.safetensors",
                         base.transformer(2 * factor, 5120 * factor, "BF16"))
    for step, factor in enumerate((2, 4, 8), 1):
        bench.run(f"{128 * factor} MiB beside 128 MiB, checksum",
                  f"{{size{step}.safetensors}} {{out.deathtensors}}",
                  "tconv {size0.safetensors} {peer.out} -t deathtensors", 1.1 * factor,
                  mib=base.RAW_MIB, out="out.deathtensors", group="growth")
    bench.remove("out.deathtensors", *(f"size{step}.safetensors" for step in range(4)))
    for count in (1000, 10_000, 100_000, 1_000_000):
        write_table(bench, f"count{count}.safetensors", count)
    for count in (10_000, 100_000, 1_000_000):
        bench.run(f"{count:,} tensors beside {count // 10:,}",
                  f"{{count{count}.safetensors}} {{out.deathtensors}}",
                  f"tconv {{count{count // 10}.safetensors}} {{peer.out}} -t deathtensors", 11,
                  out="out.deathtensors", group="growth", nbytes=0)
    bench.remove("out.deathtensors", *(f"count{10 ** n}.safetensors" for n in range(3, 7)))


def write_table(bench, name, count):
    return base.write_model(bench, name,
                            [("F32", f"model.layers.{i // 10}.weight.{i % 10}", [4]) for i in range(count)])


def table_rows(bench):
    """Tables: info and conversions of a million tensors, in seconds and in bytes for each."""
    write_table(bench, "thousand.safetensors", 1000)
    bench.run("info, 1,000 tensors", "info {thousand.safetensors}", limit=0.010, mib=base.RAW_MIB, nbytes=0)
    bench.remove("thousand.safetensors")
    write_table(bench, "many.safetensors", TENSORS)
    for name, most in (("safetensors", 300), ("deathtensors", 300), ("pt", 600), ("npz", 300)):
        if name != "safetensors":
            base.spawn([bench.tconv, "-q", bench.path("many.safetensors"), bench.path(f"many.{name}")])
        mib = most * TENSORS / base.MIB
        bench.run(f"info, a million tensors, {name}", f"info {{many.{name}}}", limit=0.7, mib=mib,
                  rounds=3, group="tables", nbytes=0)
        target = "deathtensors" if name == "safetensors" else "safetensors"
        bench.run(f"a million tensors, {name} -> {target}", f"-q {{many.{name}}} {{out.{target}}}",
                  limit=4, mib=mib, rounds=3, out=f"out.{target}", group="tables", nbytes=0)
        bench.remove(f"out.{target}")
        if name != "safetensors":
            bench.remove(f"many.{name}")
    bench.remove("many.safetensors")
    for name in ("out.npy", "receipt.json"):
        if os.path.exists(bench.path(name)):
            bench.remove(name)
