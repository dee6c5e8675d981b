"""Rows beside programs in Python: deathtensors, torch, numpy, safetensors and, where it is there, zt.

They are those of scripts/interop, whose folder in ~/.cache/tconv is looked for; nothing is installed
here. The time of an import counts: it is what their users wait.
"""

import glob
import os
import shutil
import subprocess

import bench as base

ROUNDS = 3
READ = "from safetensors.numpy import load_file as load\nimport sys\n"
SCRIPTS = {
    "deathtensors, from safetensors": """
import sys, deathtensors
deathtensors.from_safetensors(sys.argv[1], sys.argv[2])
""",
    "deathtensors, to safetensors": """
import sys, deathtensors
deathtensors.to_safetensors(sys.argv[1], sys.argv[2])
""",
    "deathtensors, stats": """
import sys, deathtensors
deathtensors.main(["stats", sys.argv[1]])
""",
    "torch, to safetensors": """
import sys, torch
from safetensors.torch import save_file
save_file(torch.load(sys.argv[1], mmap=True, weights_only=True), sys.argv[2])
""",
    "torch, from safetensors": """
import sys, torch
from safetensors.torch import load_file
torch.save(load_file(sys.argv[1]), sys.argv[2])
""",
    "torch, F32": """
import sys, torch
from safetensors.torch import load_file, save_file
save_file({name: t.float() for name, t in load_file(sys.argv[1]).items()}, sys.argv[2])
""",
    "np.load": """
import sys, numpy
with numpy.load(sys.argv[1]) as file:
    for name in file.files:
        file[name]
""",
    "np.savez_compressed": READ.replace("import sys", "import numpy, sys") + """
with open(sys.argv[2], "wb") as file:
    numpy.savez_compressed(file, **load(sys.argv[1]))
""",
}


def interpreter():
    """The Python that has the peers; None: there is none."""
    for path in sorted(glob.glob(os.path.expanduser("~/.cache/tconv/interop-venv-*/bin/python"))):
        if subprocess.run([path, "-c", "import numpy, safetensors"], capture_output=True, check=False).returncode == 0:
            return path
    return None


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def rows(bench):
    python = interpreter()
    if not python:
        bench.leave_out("programs in Python", "scripts/interop has set up none")
        return

    def beside(job, arguments, script, given, out, bar=1.0, **more):
        module = script.split(",")[0].split(".")[0].replace("np", "numpy")
        if not has(python, module):
            bench.leave_out(job, f"no {module}")
            return
        bench.run(job, arguments, [python, "-c", SCRIPTS[script], given, "{peer.out}"], bar, out=out,
                  rounds=ROUNDS, peer_named=script, group="python", **more)

    model = "{model.safetensors}"
    base.need_model(bench)
    beside("safetensors -> pt, beside torch", f"{model} {{out.pt}}", "torch, from safetensors", model, "out.pt")
    beside("pt -> safetensors, beside torch", "{out.pt} {out.safetensors}", "torch, to safetensors", "{out.pt}",
           "out.safetensors")
    bench.remove("out.pt", "out.safetensors")
    beside("BF16 -> F32, beside torch", f"-q --dtype F32 {model} {{out.safetensors}}", "torch, F32", model,
           "out.safetensors")
    bench.remove("out.safetensors")
    beside("safetensors -> deathtensors, beside its library", f"{model} {{out.deathtensors}}",
           "deathtensors, from safetensors", model, "out.deathtensors")
    beside("deathtensors -> safetensors, beside its library", "{out.deathtensors} {out.safetensors}",
           "deathtensors, to safetensors", "{out.deathtensors}", "out.safetensors")
    bench.remove("out.deathtensors", "out.safetensors")
    base.spawn([bench.tconv, "-q", bench.path("model.safetensors"), bench.path("sum.deathtensors")])
    beside("stats of deathtensors, --no-verify, beside its library", "stats --no-verify {sum.deathtensors}",
           "deathtensors, stats", "{sum.deathtensors}", None)
    bench.remove("sum.deathtensors")
    zt_row(bench)
    bench.remove("model.safetensors")
    compressed(bench, beside)


def zt_row(bench):
    zt = shutil.which("zt") or next(iter(glob.glob(os.path.expanduser("~/.cache/tconv/*/bin/zt"))), None)
    if not zt:
        bench.leave_out("safetensors -> deathtensors, beside zt", "no zt: ztensor-cli is not set up")
        return
    bench.run("safetensors -> deathtensors, beside zt", "--no-checksum {model.safetensors} {out.deathtensors}",
              [zt, "convert", "{model.safetensors}", "{peer.out}"], 1.0, out="out.deathtensors", rounds=ROUNDS,
              peer_named="zt", group="python")
    bench.remove("out.deathtensors")


def compressed(bench, beside):
    """Eight deflated members, and a single one: reading beside np.load, writing beside
    np.savez_compressed."""
    width = 1280
    for label, count in (("8 deflated members", 8), ("one deflated member", 1)):
        rows = 8 // count * width
        base.write_model(bench, "eight.safetensors", [("F32", f"weight.{i}", [rows, 2 * width]) for i in range(count)])
        compressed_rows(bench, beside, label)


def compressed_rows(bench, beside, label):
    python = interpreter()
    reference = bench.path("reference.npz")
    subprocess.run([python, "-c", SCRIPTS["np.savez_compressed"], bench.path("eight.safetensors"), reference], check=True)

    def share():
        return f"{bench.size('out.npz') / os.path.getsize(reference):.3f} of numpy's size (bar 1.03)"

    beside(f"npz, {label}, read", "{reference.npz} {out.safetensors}", "np.load", "{reference.npz}",
           "out.safetensors", bar=1 / 2.5)
    beside(f"npz, {label}, written", "--compress {eight.safetensors} {out.npz}", "np.savez_compressed",
           "{eight.safetensors}", "out.npz", bar=1 / 20, note=share)
    bench.remove("eight.safetensors", "reference.npz", "out.npz", "out.safetensors")
