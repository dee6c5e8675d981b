#!/usr/bin/env python3
"""Every command line in README.md and docs/ runs, in a folder that has the files they name.

A fenced block of `sh` is one case: it runs in bash with -euo pipefail, and must end with 0. The two
set-up commands of the README are left to those who call this suite. Links between pages lead
somewhere, and lines of prose keep to 100 columns.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import files
from files import Tensor
from harness import DATA, TCONV, WORK, Skip, Suite, check_equal, run

ROOT = DATA.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SET_UP = re.compile(r"^scripts/(?:test|tconv)\b.*\n", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
WIDTH = 100


def model():
    """A small model: two layers, as people name them."""
    return {
        "encoder.weight": files.f32(*(value / 8 for value in range(24)), shape=[6, 4]),
        "encoder.bias": files.f32(0.5, -0.5, 0.25, 1.0),
        "head.weight": files.f32(*(1.0 / (value + 1) for value in range(4096)), shape=[1024, 4]),
    }


def make_samples(folder):
    """The files that the documents name, all made from one model."""
    metadata = {"format": "pt"}
    (folder / "model.safetensors").write_bytes(files.safetensors(model(), metadata=metadata))
    optimizer = {"optimizer.step": files.f32(1.0, shape=[1])}
    (folder / "ckpt.safetensors").write_bytes(files.safetensors({**model(), **optimizer}))
    (folder / "extra.npy").write_bytes(files.npy_of(files.f32(1.0, 2.0)))
    narrow = {"w": Tensor("BF16", [4], bytes(range(8)))}
    (folder / "bf16.safetensors").write_bytes(files.safetensors(narrow))
    for name in ("model.npz", "model.deathtensors", "pytorch_model.bin"):
        result = run(TCONV, "-q", "model.safetensors", name, cwd=folder)
        check_equal(result.code, 0, f"making {name}", result)
    result = run(TCONV, "check", "--write-schema", "-o", "model.schema.json", "model.safetensors", cwd=folder)
    check_equal(result.code, 0, "making the schema", result)


def check_block(samples, script, folder):
    if re.search(r"\bjq\b", script) and not shutil.which("jq"):
        raise Skip("jq is not here")
    shutil.copytree(samples, folder, dirs_exist_ok=True)
    path = f"{samples.parent / 'bin'}:{os.environ['PATH']}"
    result = run("bash", "-euo", "pipefail", "-c", script, cwd=folder, env={"PATH": path})
    check_equal(result.code, 0, f"the exit code of\n{script}", result)


def check_page(page, folder):
    text = page.read_text()
    for target in LINK.findall(text):
        check_equal((page.parent / target).exists(), True, f"a link to {target}")
    wide = [
        line
        for line in re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
        if len(line) > WIDTH and not line.startswith("|")
    ]
    check_equal(wide, [], f"lines over {WIDTH} columns")


def cases(samples):
    for page in PAGES:
        name = page.relative_to(ROOT)
        yield f"page {name}", lambda folder, page=page: check_page(page, folder)
        for number, block in enumerate(BLOCK.findall(page.read_text()), 1):
            script = SET_UP.sub("", block)
            if script.strip():
                yield f"{name} {number}", lambda folder, script=script: check_block(samples, script, folder)


def main():
    suite = Suite(__doc__)
    place = Path(tempfile.mkdtemp(dir=WORK))
    (place / "bin").mkdir()
    (place / "bin" / "tconv").symlink_to(TCONV)
    samples = place / "samples"
    samples.mkdir()
    make_samples(samples)
    return suite.run(cases(samples))


if __name__ == "__main__":
    sys.exit(main())
