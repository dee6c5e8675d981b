#!/usr/bin/env python3
"""Jobs that write a shard each, tconv index that joins them, tconv.mk and --if-changed with the real make."""

import json
import os
import re
import shutil
import sys

from batches import digest, environment, files_in, model, needs, tree
from harness import INVALID, IO, OK, UNSAFE, USAGE, Suite, check_equal, expect, run, tconv

FORMATS = ["safetensors", "deathtensors", "pt"]


def jobs(folder, *args):
    result = tconv("batch", "--jobs", *args, cwd=folder)
    check_equal(result.code, OK, "the jobs", result)
    return result.out.decode().splitlines()


def run_jobs(folder, lines):
    for line in lines:
        result = run("sh", "-ec", line, cwd=folder, env=environment())
        check_equal(result.code, 0, line, result)


def shards(folder, *more, to="safetensors", out="out"):
    return jobs(folder, "m/a.safetensors", out, "-t", to, "--shard-size", "40K", "-q", *more)


def joined(to, verify, folder):
    """The join of all jobs is, byte for byte, what one run writes."""
    digests = tree(folder / "m", ("a",))
    lines = shards(folder, *verify, to=to)
    check_equal(len(lines) > 2, True, "several shards")
    run_jobs(folder, reversed(lines))
    names = files_in(folder / "out")
    expect(folder, OK, "-q", "m/a.safetensors", f"a.{to}", "--shard-size", "40K", "-t", to)
    expect(folder, OK, "index", "-q", "out", "--receipt", "out/receipt.json", *verify)
    index = "a.deathtensors" if to == "deathtensors" else f"a.{to}.index.json"
    check_equal(digest(folder / "out" / index), digests["a"], "the digest")
    check_equal((folder / "out" / index).read_bytes(), (folder / index).read_bytes(), "the index")
    for name in names:
        if ".part" not in name:
            check_equal((folder / "out" / name).read_bytes(), (folder / name).read_bytes(), name)
    check_equal([name for name in files_in(folder / "out") if ".part" in name], [], "records")
    expect(folder, OK, "verify", "--receipt", "out/receipt.json")
    receipt = json.loads((folder / "out/receipt.json").read_text())["receipt"]
    check_equal(receipt["digest"], digests["a"], "the receipt's digest")
    # Once more: nothing is left, and a job that runs again changes nothing.
    expect(folder, OK, "index", "-q", "out")
    before = {name: (folder / "out" / name).read_bytes() for name in files_in(folder / "out")}
    run_jobs(folder, lines)
    expect(folder, OK, "index", "-q", "out")
    check_equal({name: (folder / "out" / name).read_bytes() for name in files_in(folder / "out")}, before, "again")


def from_shards(folder):
    """A model in shards becomes jobs without --shard-size; ties, casts and choices hold."""
    model(folder / "whole.safetensors", 3)
    (folder / "m").mkdir()
    expect(folder, OK, "-q", "whole.safetensors", "m/a.safetensors", "--shard-size", "40K")
    lines = jobs(folder, "m/a.safetensors.index.json", "out", "-t", "deathtensors", "-q")
    run_jobs(folder, lines)
    expect(folder, OK, "index", "-q", "out")
    check_equal(digest(folder / "out/a.deathtensors"), digest(folder / "whole.safetensors"), "the digest")
    options = ["--dtype", "BF16", "--lossy", "--exclude", "w1", "--shard-size", "20K", "--order", "name"]
    run_jobs(folder, jobs(folder, "m/a.safetensors.index.json", "out2", "-t", "safetensors", "-q", *options))
    expect(folder, OK, "index", "-q", "out2")
    expect(folder, OK, "-q", "m/a.safetensors.index.json", "b.safetensors", *options)
    check_equal(digest(folder / "out2/a.safetensors.index.json"), digest(folder / "b.safetensors.index.json"), "cast")


def refusals(folder):
    """What is missing or does not fit is not joined, and says why."""
    tree(folder / "m", ("a",))
    lines = shards(folder)

    def fails(code, mention, change):
        shutil.rmtree(folder / "out", ignore_errors=True)
        run_jobs(folder, lines)
        change(folder / "out")
        expect(folder, code, "index", "out", mention=mention)

    def empty(out):
        shutil.rmtree(out)
        out.mkdir()

    fails(USAGE, "no shards", empty)
    shard = "a-00002-of-00003.safetensors"
    record = f"{shard}.part.json"
    fails(INVALID, "missing", lambda out: os.remove(out / record))
    fails(IO, shard, lambda out: os.remove(out / shard))
    fails(INVALID, "bytes", lambda out: (out / shard).write_bytes((out / shard).read_bytes() + b"x"))
    fails(INVALID, "JSON", lambda out: (out / record).write_bytes((out / record).read_bytes()[:50]))
    fails(IO, "index.json.part", lambda out: os.remove(out / "a.safetensors.index.json.part"))

    def other_dtype(out):
        text = (out / shard).read_bytes()
        (out / shard).write_bytes(text.replace(b'"F32"', b'"I32"'))

    fails(INVALID, "tensor", other_dtype)

    def edit(out, **members):
        text = json.loads((out / record).read_text())
        (out / record).write_text(json.dumps({**text, **members}, separators=(",", ":")))

    fails(INVALID, "another run", lambda out: edit(out, plan="0" * 64))
    fails(INVALID, "another run", lambda out: edit(out, format="pt"))
    fails(INVALID, "another run", lambda out: edit(out, options=["--lossy"]))
    fails(UNSAFE, "plain", lambda out: edit(out, index="../escape"))
    fails(INVALID, "shard", lambda out: edit(out, shard=0))
    fails(INVALID, "shard", lambda out: edit(out, shards=10**9))
    fails(INVALID, "another shard", lambda out: edit(out, name="other"))

    def overlap(out):
        first = json.loads((out / record.replace("00002", "00001")).read_text())
        edit(out, tensors=first["tensors"])

    fails(INVALID, "w0", overlap)


def other_run(folder):
    """A shard of the same shape from another model, put among the others, is found out."""
    tree(folder / "m", ("a",))
    lines = shards(folder, "--verify")
    run_jobs(folder, lines)
    kept = {name: (folder / "out" / name).read_bytes() for name in files_in(folder / "out") if "00002-of" in name}
    shutil.rmtree(folder / "out")
    model(folder / "m/a.safetensors", 8)
    run_jobs(folder, shards(folder, "--verify"))
    for name, data in kept.items():
        (folder / "out" / name).write_bytes(data)
    expect(folder, INVALID, "index", "out", mention="another run")
    # Only the data replaced: the record's hash tells.
    shutil.rmtree(folder / "out")
    run_jobs(folder, shards(folder, "--verify"))
    name = next(name for name in kept if not name.endswith(".json"))
    (folder / "out" / name).write_bytes(kept[name])
    expect(folder, INVALID, "index", "--verify", "out", mention=name)
    # A line of the old list does not run on the new input.
    result = run("sh", "-ec", lines[0], cwd=folder, env=environment())
    check_equal((result.code, b"plan" in result.err), (INVALID, True), "the old plan", result)


def odd_shards(folder):
    tree(folder / "m", ("a",))
    for text in ("0/3", "4/3", "3", "1/", "/3", "1/2/3", "-1/3", "1/99999999999999999999", "x/y"):
        expect(folder, USAGE, "m/a.safetensors", "o.safetensors", "--shard-size", "40K", f"--shard={text}")
    expect(folder, USAGE, "m/a.safetensors", "o.safetensors", "--shard-size", "40K", "--shard=1/9")
    expect(folder, USAGE, "m/a.safetensors", "o.npz", "--shard=1/1")
    expect(folder, INVALID, "m/a.safetensors", "o.safetensors", "--shard-size", "40K", "--shard=1/3", "--plan=00")


def makefile(folder):
    """tconv batch --makefile, with make -j2, shards and their index among the targets."""
    needs("make")
    digests = tree(folder / "m")
    result = tconv("batch", "--makefile", "m", "out", "-t", "safetensors", "--shard-size", "40K", "-q", cwd=folder)
    (folder / "Makefile").write_bytes(result.out)
    for expected in (b"tconv", b"Nothing to be done"):
        result = run("make", "-j2", cwd=folder, env=environment())
        check_equal((result.code, expected in result.out), (0, True), "make", result)
    for name, wanted in digests.items():
        check_equal(digest(folder / "out" / f"{name}.safetensors.index.json"), wanted, name)
    # Only what depends on a source that changed is made again.
    later = (folder / "out/a.safetensors.index.json").stat().st_mtime + 5
    os.utime(folder / "m/a.safetensors", (later, later))
    result = run("make", "-n", cwd=folder, env=environment())
    check_equal("x/b" in result.out.decode(), False, "what is up to date", result)


def pattern_rules(folder):
    """tconv.mk has a rule between any two formats, and none but the first of a chain."""
    needs("make")
    rules = tconv("formats", "--makefile").out.decode()
    (folder / "tconv.mk").write_text(rules)
    formats = [json.loads(line) for line in tconv("formats", "--json").out.splitlines()]
    sources = [extension for one in formats for extension in one["extensions"] if extension != ".index.json"]
    targets = [extension for one in formats if one["write"] for extension in one["extensions"]]
    pairs = set(re.findall(r"^%(\S+):: %(\S+)$", rules, re.MULTILINE))
    check_equal({(to, source) for to in targets for source in sources if to != source} - pairs, set(), "rules")
    digests = tree(folder, ("a", "b"))
    (folder / "Makefile").write_text(
        "include tconv.mk\nall: a.npz a.pt b.deathtensors\n-include $(wildcard *.tconv.d)\n"
    )
    for expected in (b"b.deathtensors", b"Nothing to be done"):
        result = run("make", "-j2", "all", cwd=folder, env=environment())
        check_equal((result.code, expected in result.out), (0, True), "make", result)
    check_equal(digest(folder / "b.deathtensors"), digests["b"], "the digest")
    result = run("make", "nothing.npz", cwd=folder, env=environment())
    check_equal((result.code, result.cpu_seconds < 5), (2, True), "a target without a source", result)


def resharding(folder):
    """A depfile survives shards that are no more: make runs the rule again, and does not fail."""
    needs("make")
    model(folder / "whole.safetensors", 1)
    (folder / "Makefile").write_text(
        "all: out.npz\nout.npz: a.safetensors.index.json\n"
        "\ttconv -q --depfile out.npz.d $< $@\n-include out.npz.d\n"
    )
    wanted = digest(folder / "whole.safetensors")
    for size in ("40K", "60K"):
        for shard in folder.glob("a-*"):
            shard.unlink()
        expect(folder, OK, "-q", "whole.safetensors", "a.safetensors", "--shard-size", size)
        os.utime(folder / "a.safetensors.index.json", (2e9, 2e9))
        result = run("make", cwd=folder, env=environment())
        check_equal((result.code, b"tconv" in result.out), (0, True), f"make with {size}", result)
        check_equal(digest(folder / "out.npz"), wanted, "the digest")


def if_changed(folder):
    """--if-changed keeps an output and its time where the content is the same."""
    model(folder / "a.safetensors", 1)

    def times():
        return {name: (folder / name).stat().st_mtime_ns for name in files_in(folder) if name != "a.safetensors"}

    for to in (["o.npz"], ["o.safetensors", "--shard-size", "40K"], ["o.deathtensors", "--depfile", "o.d"]):
        expect(folder, OK, "-q", "a.safetensors", *to)
        for name in times():
            os.utime(folder / name, (1e9, 1e9))
        before = times()
        expect(folder, OK, "-q", "--if-changed", "a.safetensors", *to)
        check_equal(times(), before, "times")
        expect(folder, OK, "-q", "--if-changed", "a.safetensors", *to, "--dtype", "F64")
        changed = [name for name, time in times().items() if time != before.get(name)]
        check_equal(bool(changed), True, "new content has a new time")
        expect(folder, OK, "-q", "a.safetensors", *to)


CASES = [from_shards, refusals, other_run, odd_shards, makefile, pattern_rules, resharding, if_changed]


def cases():
    for to in FORMATS:
        for verify in ([], ["--verify"]):
            yield f"joined {to} {' '.join(verify)}", lambda folder, to=to, verify=verify: joined(to, verify, folder)
    for case in CASES:
        yield case.__name__, case


def main():
    return Suite(__doc__).run(cases())


if __name__ == "__main__":
    sys.exit(main())
