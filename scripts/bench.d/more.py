"""Rows on tables of many tensors, growth, verification, start-up, all pairs of dtypes, and views."""

import array
import json
import math
import os
import random
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


DTYPES = ("BOOL U8 I8 I16 U16 F16 BF16 I32 U32 F32 F64 I64 U64 C64 C128 C32 F8_E4M3 F8_E5M2 F8_E4M3FNUZ "
          "F8_E5M2FNUZ F8_E8M0").split()
ELEMENTS = 32 << 20
PAIR_ROUNDS = 2
SLOWEST = 12  # pairs that are shown


def pair_rows(bench):
    """Every pair of dtypes but those that have rows of their own: at least 1 GB/s of output."""
    dice = random.Random(1)
    values = array.array("f", (dice.gauss(0, 20) for _ in range(1 << 16))).tobytes()
    with open(bench.path("f32.safetensors"), "wb") as file:
        text = json.dumps({"w": {"dtype": "F32", "shape": [ELEMENTS], "data_offsets": [0, 4 * ELEMENTS]}}).encode()
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(4 * ELEMENTS // len(values)):
            file.write(values)
    cast = ["-q", "--lossy", "--saturate", "--no-sync"]

    def kind(dtype):
        return "pt" if dtype == "C32" else "deathtensors" if dtype == "C128" else "safetensors"

    def command(source, dtype, name):
        plain = ["--no-checksum"] if kind(dtype) == "deathtensors" else []
        return [bench.tconv, *cast, *plain, "--dtype", f".*={dtype}", bench.path(source), bench.path(name)]

    found = []
    for source in DTYPES:
        given = f"given.{kind(source)}"
        base.spawn(command("f32.safetensors", source, given))
        for target in DTYPES:
            if target == source:
                continue
            out, best = f"out.{kind(target)}", math.inf
            for _ in range(PAIR_ROUNDS):
                bench.remove(out)
                best = min(best, base.spawn(command(given, target, out)))
            found.append((bench.size(out) / best / 1e9, bench.size(given) / best / 1e9, source, target, best))
            bench.remove(out)
        bench.remove(given)
    bench.remove("f32.safetensors")
    found.sort()
    for rate, read, source, target, best in found[:SLOWEST]:
        bench.add({"job": f"{source} -> {target}", "command": "tconv --lossy --saturate --dtype", "group": "pairs",
                   "peer": None, "bar": None, "limit": best * rate, "mib_bar": None, "mib": None,
                   "rounds": PAIR_ROUNDS, "bytes": None, "seconds": best,
                   "note": f"{rate:.2f} GB/s of output, {read:.2f} GB/s of input"})
    print(f"{sum(rate >= 1 for rate, *_ in found)} of {len(found)} pairs of dtypes at 1 GB/s of output or more")


SHAPES = ((8192, 8192), (3, 1 << 24), (1 << 24, 3), (1000, 7, 9000), (19, 23, 29, 31, 10, 17), (64, 64, 64, 64, 2, 2))


def view_rows(bench):
    """Arrays in Fortran's order, which is that of transposed views, beside cp of the file."""
    for shape in SHAPES:
        header = f"{{'descr': '<f4', 'fortran_order': True, 'shape': {shape}, }}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        with open(bench.path("f.npy"), "wb") as file:
            file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode())
            for _ in range(4 * math.prod(shape) >> 20):
                file.write(os.urandom(4096) * 256)
            file.truncate(10 + len(header) + 4 * math.prod(shape))
        bench.run("Fortran order, " + " x ".join(map(str, shape)), "-q {f.npy} {out.safetensors}", "cp {f.npy} {peer.out}",
                  2, mib=base.RAW_MIB, out="out.safetensors")
        bench.remove("f.npy", "out.safetensors")
