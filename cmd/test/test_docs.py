#!/usr/bin/env python3
"""Every command line in README.md and docs/ runs, in a folder that has the files they name.

A fenced block of `sh` is one case: it runs in bash with -euo pipefail, and must end with 0. The two
set-up commands of the README are left to those who call this suite. A block of `console` is a
command behind `$ ` and the JSON that it prints, which may be broken into lines: it must print just
that, with its keys in that order. Links between pages lead somewhere, and lines of prose keep to 100
columns.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import files
from files import Tensor
from hub_server import sample_hub
from harness import DATA, REMOTE, TCONV, WORK, Skip, Suite, check_equal, run

ROOT = DATA.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Pages for those who work on tconv: what runs in them is the project's own.
OTHER_PAGES = [
    *(ROOT / name for name in ("CONTRIBUTING.md", ".github/SECURITY.md")),
    *(path for top in ("core", "formats", "cmd") for path in sorted((ROOT / top).rglob("README.md"))),
]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    (folder / "llm").mkdir()
    (folder / "llm" / "model.safetensors").write_bytes(files.safetensors(model(), metadata=metadata))
    (folder / "llm" / "config.json").write_text("{}")
    (folder / "mixtral").mkdir()
    result = run(TCONV, "-q", "--shard-size", "1", "model.safetensors", "mixtral/model.safetensors", cwd=folder)
    check_equal(result.code, 0, "making a folder in shards", result)
    (folder / "mixtral" / "config.json").write_text("{}")
    shutil.copytree(DATA / "dcp" / "ranks", folder / "dcp")
    shutil.copytree(DATA / "zero" / "stage2", folder / "run")
    for name in ("model.npz", "model.deathtensors", "pytorch_model.bin", "model.gguf"):
        result = run(TCONV, "-q", "model.safetensors", name, cwd=folder)
        check_equal(result.code, 0, f"making {name}", result)
    (folder / "models" / "tuned").mkdir(parents=True)
    shutil.copy(folder / "model.safetensors", folder / "models" / "base.safetensors")
    shutil.copy(folder / "model.npz", folder / "models" / "tuned" / "model.npz")
    (folder / "parts").mkdir()
    for number in (1, 2, 3):
        shard = ["--shard-size", "1", f"--shard={number}/3", "model.safetensors", "parts/model.safetensors"]
        result = run(TCONV, "-q", *shard, cwd=folder)
        check_equal(result.code, 0, "making a shard", result)
    result = run(TCONV, "check", "--write-schema", "-o", "model.schema.json", "model.safetensors", cwd=folder)
    check_equal(result.code, 0, "making the schema", result)


def make_examples(folder):
    """The files of the examples of JSON output: two that differ, one that is cut short, one hostile."""
    weight = files.f32(0.5, -1.5, 2.0, 0.1, shape=[2, 2])
    old = files.safetensors({"layer.weight": weight, "layer.bias": files.f32(1.0, 0.0)}, metadata={"format": "pt"})
    weight = files.f32(0.5, -1.5, 2.0, 0.3, shape=[2, 2])
    new = files.safetensors({"layer.weight": weight, "scale": files.f32(1.0, shape=[])}, metadata={"format": "pt"})
    (folder / "old.safetensors").write_bytes(old)
    (folder / "new.safetensors").write_bytes(new)
    (folder / "cut.safetensors").write_bytes(old[:120])
    (folder / "hostile.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    result = run(TCONV, "check", "--write-schema", "-o", "old.schema.json", "old.safetensors", cwd=folder)
    check_equal(result.code, 0, "making the schema of the examples", result)


def run_script(samples, script, folder):
    if re.search(r"\bjq\b", script) and not shutil.which("jq"):
        raise Skip("jq is not here")
    shutil.copytree(samples, folder, dirs_exist_ok=True)
    env = {"PATH": f"{samples.parent / 'bin'}:{os.environ['PATH']}", "TCONV": "tconv"}
    if "hf://" not in script and "tconv hub" not in script:
        return run("bash", "-euo", "pipefail", "-c", script, cwd=folder, env=env)
    if not REMOTE:
        raise Skip("no libcurl")
    hub, more = sample_hub(folder, {"model.safetensors": (samples / "model.safetensors").read_bytes()})
    with hub:
        return run("bash", "-euo", "pipefail", "-c", script, cwd=folder, env=env | more)


def check_block(samples, script, folder):
    result = run_script(samples, script, folder)
    check_equal(result.code, 0, f"the exit code of\n{script}", result)


def check_example(samples, script, printed, folder):
    result = run_script(samples, script, folder)
    # Compared as text made from both, so that the order of keys and the form of numbers count.
    got, wanted = (json.dumps(json.loads(text), indent=1) for text in (result.out, printed))
    check_equal(got, wanted, f"what is printed by\n{script}", result)


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
    for page in OTHER_PAGES:
        yield f"page {page.relative_to(ROOT)}", lambda folder, page=page: check_page(page, folder)
    for page in PAGES:
        name = page.relative_to(ROOT)
        yield f"page {name}", lambda folder, page=page: check_page(page, folder)
        for number, (script, printed) in enumerate(EXAMPLE.findall(page.read_text()), 1):
            example = lambda folder, script=script, printed=printed: check_example(samples, script, printed, folder)
            yield f"{name} example {number}", example
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
    make_examples(samples)
    return suite.run(cases(samples))


if __name__ == "__main__":
    sys.exit(main())
