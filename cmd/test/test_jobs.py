#!/usr/bin/env python3
"""Jobs that write a shard each, tconv index that joins them, tconv.mk and --if-changed with the real make."""

import json
import os
import re
import shutil
import sys

from batches import digest, environment, files_in, model, needs, tree
from harness import DATA, FEWER, FULL, INVALID, IO, OK, UNSAFE, USAGE, Suite, check_equal, expect, run, tconv

FORMATS = ["safetensors", "deathtensors", "pt"]
STRIDE = 4 if FEWER and not FULL else 1  # from a step at which a run is killed to the next


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


def pruning(folder):
    """A job leaves the shards of the other jobs alone, in any order and a second time; those of a run that had
    another number of shards go with --prune."""
    digests = tree(folder / "m", ("a",))
    lines = jobs(folder, "m/a.safetensors", "out", "-t", "safetensors", "--shard-size", "40K", "--prune")
    check_equal(len(lines) > 2, True, "several jobs")
    old = folder / "out" / "a-00001-of-00099.safetensors"
    for turn in (lines[::-1], lines):
        old.parent.mkdir(exist_ok=True)
        old.write_bytes(b"")
        run_jobs(folder, turn)
        check_equal(old.exists(), False, "of the earlier run")
        expect(folder, OK, "index", "-q", "out")
    for line in lines:
        result = run("sh", "-ec", line, cwd=folder, env=environment())
        check_equal((result.code, result.err), (0, b""), line, result)
    expect(folder, OK, "index", "-q", "out")
    check_equal(digest(folder / "out/a.safetensors.index.json"), digests["a"], "digest")


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


ODD = b"odd \xff 'name"


def makefile_sources(folder):
    """make knows every file that a model is read from, not its index or its folder alone."""
    needs("make")
    source = folder / "m" / "one"
    model(folder / "a.safetensors", 1)
    source.mkdir(parents=True)
    expect(folder, OK, "-q", "a.safetensors", "m/one/a.safetensors", "--shard-size", "40K")
    shutil.copytree(source, folder / "m/loose")
    os.remove(folder / "m/loose/a.safetensors.index.json")
    shutil.copytree(DATA / "zero/stage1", folder / "m/zero")
    expect(folder, OK, "-q", DATA / "npz/stored.npz", "m/arrays/", "-t", "npy")
    (folder / "one.mk").write_bytes(expect(folder, OK, "batch", "--makefile", "-q", "m", "out", "-t", "npz").out)
    make = lambda: run("make", "-s", "-f", "one.mk", cwd=folder, env=environment())  # noqa: E731
    check_equal(make().code, 0, "make")
    outputs = {"one/a.npz": "one/a-00002-of-*", "loose/a.npz": "loose/a-00003-of-*",
               "zero/global_step1.npz": "zero/global_step1/*rank_1_*", "arrays.npz": "arrays/w.npy"}  # fmt: skip
    check_equal(files_in(folder / "out"), sorted(outputs), "outputs")
    for output, pattern in outputs.items():
        for path in folder.glob("out/**/*.npz"):
            os.utime(path, (2e9, 2e9))
        before = {path: (folder / "out" / path).stat().st_ino for path in outputs}
        check_equal(make().code, 0, "nothing to be done")
        check_equal({path: (folder / "out" / path).stat().st_ino for path in outputs}, before, "nothing")
        changed, = (folder / "m").glob(pattern)
        os.utime(changed, (2.1e9, 2.1e9))
        check_equal(make().code, 0, "make again")
        after = {path for path in outputs if (folder / "out" / path).stat().st_ino != before[path]}
        check_equal(after, {output}, f"what is made anew for {pattern}")
        os.utime(changed)
    # A shard that is gone does not stop make, whose recipe says what is wrong; one that changes means other jobs.
    (folder / "two.mk").write_bytes(expect(folder, OK, "batch", "--makefile", "-q", "m/one", "out2", "-t", "pt").out)
    command = ("make", "-s", "-f", "two.mk")
    check_equal(run(*command, cwd=folder, env=environment()).code, 0, "shards")
    changed, = (folder / "m/one").glob("a-00002-of-*")
    os.utime(changed, (2.1e9, 2.1e9))
    result = run(*command, cwd=folder, env=environment())
    check_equal((result.code, b"list the jobs again" in result.err), (2, True), "another plan", result)


def model_folder(folder, seed=1):
    """A model folder in three shards, with files and folders besides, and names of any bytes."""
    model(folder / "whole.safetensors", seed)
    place = folder / "m/hf"
    (place / "sub/empty").mkdir(parents=True)
    expect(folder, OK, "-q", "whole.safetensors", "m/hf/model.safetensors", "--shard-size", "40K")
    (place / "config.json").write_text('{"a": 1}')
    (place / "sub/x.part.json").write_text("this is nobody's record")
    with open(os.fsencode(place) + b"/" + ODD, "w") as file:
        file.write("odd")
    (place / "sub").chmod(0o700)
    place.chmod(0o750)
    return place


def everything(top):
    """All that is in a folder, with permissions and bytes."""
    found = {}
    for path, folders, names in os.walk(os.fsencode(top)):
        found[os.path.relpath(path, os.fsencode(top))] = os.stat(path).st_mode
        for name in names:
            where = os.path.join(path, name)
            with open(where, "rb") as file:
                found[os.path.relpath(where, os.fsencode(top))] = (os.stat(where).st_mode, file.read())
    return found


def folder_joined(to, more, folder):
    """A model folder becomes a job a shard and one for the rest; joined it is what one run writes."""
    place = model_folder(folder)
    shard_size = ["--shard-size", "60K"] if "--shard-size" in more else []
    lines = jobs(folder, "m", "out", "-t", to, "-q", *more)
    check_equal(len(lines), (2 if shard_size else 3) + 1, "a job a shard, and one")
    check_equal(all("out/hf.parts/" in line and "--replace" not in line for line in lines), True, "\n".join(lines))
    run_jobs(folder, reversed(lines))
    check_equal((folder / "out/hf").exists(), False, "nothing has its name before the join")
    check_equal(oct((folder / "out/hf.parts").stat().st_mode & 0o777), oct(0o750), "who may look at parts")
    expect(folder, OK, "-q", "m/hf", "one/", "-t", to, *more)
    # The parts are found from above, by the folder that they become, and by their own.
    names = {"pt": "out", "safetensors": "out/hf", "deathtensors": "out/hf.parts/"}
    expect(folder, OK, "index", "-q", names[to], "--receipt", "r.json", *(word for word in more if word == "--verify"))
    check_equal(everything(folder / "out/hf"), everything(folder / "one"), "files")
    check_equal(os.listdir(folder / "out"), ["hf"], "what is left")
    check_equal(digest(folder / "out/hf"), digest(place), "the digest")
    expect(folder, OK, "verify", "--receipt", "r.json", "out/hf")
    receipt = json.loads((folder / "r.json").read_text())["receipt"]
    check_equal("sub/x.part.json" in {one["name"] for one in receipt["outputs"]}, not more or "--only-weights" not in more, "copies")
    (folder / "out/hf/model.extra").write_text("gone")
    # Again, in the place of what is there.
    run_jobs(folder, lines)
    run_jobs(folder, lines[1:])
    expect(folder, OK, "index", "-q", "out")
    check_equal(everything(folder / "out/hf"), everything(folder / "one"), "files of the second time")
    expect(folder, OK, "index", "out")


def folder_refusals(folder):
    """Parts of a folder that are missing, are others, or are more than the records say."""
    model_folder(folder)
    lines = jobs(folder, "m", "out", "-t", "pt", "-q", "--verify")
    parts = folder / "out/hf.parts"
    rest = parts / "pytorch_model.bin.index.json.files.part.json"

    def fails(code, mention, change, *more):
        shutil.rmtree(folder / "out", ignore_errors=True)
        run_jobs(folder, lines)
        change()
        before = everything(folder / "out")
        expect(folder, code, "index", "out", *more, mention=mention)
        check_equal(everything(folder / "out"), before, "nothing changed")

    def edit(**members):
        text = json.loads(rest.read_text())
        rest.write_text(json.dumps({**text, **members}, separators=(",", ":")))

    def copied(**members):
        files_ = json.loads(rest.read_text())["files"]
        one = next(one for one in files_ if one.get("name") == "config.json")
        one.update(members)
        edit(files=[one])

    fails(INVALID, "--shard 0/3", lambda: os.remove(rest))
    fails(INVALID, "missing", lambda: os.remove(parts / "pytorch_model-00002-of-00003.bin.part.json"))
    fails(INVALID, "config.json", lambda: (parts / "files/config.json").write_text("{}"))
    fails(IO, "config.json", lambda: os.remove(parts / "files/config.json"))
    fails(INVALID, "config.json", lambda: (parts / "files/config.json").write_text('{"a": 2}'), "--verify")
    fails(INVALID, "thesis", lambda: (parts / "thesis").write_text("precious"))
    fails(INVALID, "another run", lambda: edit(plan="0" * 64))
    fails(INVALID, "another shard", lambda: edit(name="other"))
    fails(INVALID, "shard", lambda: edit(shard=1))
    fails(INVALID, "folder", lambda: edit(folder=2))
    fails(INVALID, "permissions", lambda: edit(mode=0o7777))
    for name in ("../escape", "/etc/passwd", "sub/../../escape", ""):
        fails(UNSAFE, "leads out", lambda name=name: copied(name=name))
    fails(INVALID, "two names", lambda: copied(hex="00"))
    fails(INVALID, "size", lambda: copied(mode=1))
    # Behind a link: out of the sandbox, or else no file of the job's.
    fails({UNSAFE, IO}, "config.json", lambda: ((parts / "files/config.json").unlink(), (parts / "files/config.json").symlink_to(folder / "m/hf/config.json")))

    def moved():
        parts.rename(folder / "out/elsewhere")

    fails(INVALID, ".parts", moved)

    def stranger():
        (folder / "out/hf").mkdir()
        (folder / "out/hf/thesis").write_text("precious")

    fails(USAGE, "--replace", stranger)
    expect(folder, OK, "index", "-q", "out", "--replace")
    check_equal(digest(folder / "out/hf"), digest(folder / "m/hf"), "the digest")
    for text in ("0/4", "4/3", "0/0"):
        expect(folder, USAGE, "m/hf", "p.parts/", "-t", "pt", "--shard", text)
    expect(folder, USAGE, "m/hf/model.safetensors.index.json", "o.safetensors", "--shard-size", "40K", "--shard=0/3", mention="shard 0")


def folder_killed(folder):
    """A job, and the join, killed at every step by which something gets its name; then run again."""
    place = model_folder(folder)
    lines = jobs(folder, "m", "out", "-t", "pt", "-q")
    expect(folder, OK, "-q", "m/hf", "one/", "-t", "pt")
    wanted = everything(folder / "one")
    words = lines[3].partition(" && ")[2]
    for variables in ({}, {"TCONV_TEST_NAMED": "1", "TCONV_TEST_NO_LINKS": "1", "TCONV_TEST_NO_EXCHANGE": "1"}):
        steps = {"job": 0, "join": 0}
        for number, kill in enumerate(range(1, 200, STRIDE)):
            run_jobs(folder, lines[:3])
            job = run("sh", "-ec", words, cwd=folder, env={**environment(), **variables, "TCONV_TEST_KILL": str(kill)})
            steps["job"] += job.code != 0
            run_jobs(folder, lines[3:])
            join = tconv("index", "-q", "out", cwd=folder, env={**variables, "TCONV_TEST_KILL": str(kill)}, exec=True)
            steps["join"] += join.code != 0
            # What has the model's name is whole at any time.
            if (folder / "out/hf").exists() and not list((folder / "out").glob(".hf.tconv-*")):
                check_equal(everything(folder / "out/hf"), wanted, f"the folder, killed at step {kill}")
            expect(folder, OK, "index", "-q", "out")
            check_equal(everything(folder / "out/hf"), wanted, f"the folder after a kill at step {kill}")
            if number % 2:
                shutil.rmtree(folder / "out/hf")
            if not job.code and not join.code:
                break
        check_equal(steps["job"] * STRIDE > 3 and steps["join"] * STRIDE > 5, True, f"steps at which it was killed: {steps}")
    check_equal(os.listdir(folder / "out"), ["hf"] if (folder / "out/hf").exists() else [], "what is left")
    check_equal(digest(place), digest(folder / "one"), "the digest")


def slurm_arrays(folder):
    """The tasks of an array do every line once, wherever its numbers begin and however far they are apart."""
    script = DATA.parent / "scripts" / "cluster" / "slurm.sh"
    (folder / "jobs").write_text("".join(f"echo {number}\n" for number in range(7)))
    for tasks, step in ((range(1, 4), 1), (range(4), 1), (range(5, 12, 2), 2), (range(3, 4), 1), (range(1, 10), 1)):
        done = []
        for task in tasks:
            numbers = {"ID": task, "MIN": min(tasks), "MAX": max(tasks), "COUNT": len(tasks), "STEP": step}
            env = {f"SLURM_ARRAY_TASK_{name}": str(number) for name, number in numbers.items()}
            done += run("sh", str(script), "jobs", cwd=folder, env=env).out.split()
        check_equal(sorted(map(int, done)), list(range(7)), f"array {tasks}")
    gaps = {"ID": "9", "MIN": "3", "MAX": "9", "COUNT": "3", "STEP": "1"}
    result = run("sh", str(script), "jobs", cwd=folder, env={f"SLURM_ARRAY_TASK_{name}": gaps[name] for name in gaps})
    check_equal((result.code, result.out), (2, b""), "an array with gaps", result)


def trees_joined(folder):
    """One command joins all models below a folder, and writes a receipt beside each."""
    model_folder(folder)
    tree(folder / "m", ("a", "x/b"))
    lines = jobs(folder, "m", "out", "-t", "safetensors", "--shard-size", "40K", "-q", "--receipts")
    check_equal(any("--receipt" in line for line in lines), False, "no job writes the receipt of all")
    run_jobs(folder, lines)
    expect(folder, USAGE, "index", "out", "--receipt", "r.json", mention="--receipts")
    os.remove(folder / "out/x/b-00001-of-00003.safetensors.part.json")
    result = tconv("index", "-q", "out", "--receipts", cwd=folder)
    check_equal((result.code, b"1 of 3 shards is missing" in result.err), (INVALID, True), "a shard is missing", result)
    check_equal(digest(folder / "out/hf"), digest(folder / "m/hf"), "the others are joined")
    run_jobs(folder, [line for line in lines if "out/x/b" in line])
    expect(folder, OK, "index", "-q", "out", "--receipts")
    for name, output in {"a": "a.safetensors.index.json", "x/b": "x/b.safetensors.index.json", "hf": "hf"}.items():
        source = folder / "m" / (name if name == "hf" else f"{name}.safetensors")
        check_equal(digest(folder / "out" / output), digest(source), name)
    expect(folder, OK, "verify", "--receipt", "out/hf.receipt.json", "out/hf")
    expect(folder, OK, "verify", "--receipt", "out/x/b.safetensors.receipt.json")


def folder_jobs(folder):
    """The job of a model folder can run again, as any other, and makes no other folder go."""
    model(folder / "m/hf/model.safetensors", 1)
    (folder / "m/hf/config.json").write_text("{}")
    lines = jobs(folder, "m", "out", "-t", "pt", "-q")
    check_equal(len(lines), 1, "jobs")
    for text in ("{}", '{"a": 1}'):
        (folder / "m/hf/config.json").write_text(text)
        run_jobs(folder, lines)
        check_equal((folder / "out/hf/config.json").read_text(), text, "the configuration")
    check_equal(jobs(folder, "m", "out", "-t", "pt", "-q"), lines, "the list once more")
    shutil.rmtree(folder / "out/hf")
    (folder / "out/hf").mkdir()
    (folder / "out/hf/thesis.txt").write_text("precious")
    for mode in ("--jobs", "--makefile"):
        expect(folder, USAGE, "batch", mode, "m", "out", "-t", "pt", mention="out/hf")
    check_equal("--replace" in jobs(folder, "m", "out", "-t", "pt", "-q", "--replace")[0], True, "as the user says")


def folder_makefile(folder):
    """A model folder is made again where one of its files changed, and where one is gone."""
    needs("make")
    model(folder / "m/hf/model.safetensors", 1)
    for name in ("config.json", "a b.txt"):
        (folder / "m/hf" / name).write_text("{}")
    (folder / "Makefile").write_bytes(tconv("batch", "--makefile", "m", "out", "-t", "pt", "-q", cwd=folder).out)

    def make(expected):
        result = run("make", "-j2", cwd=folder, env=environment())
        check_equal((result.code, expected in result.out), (0, True), f"make: {expected}", result)

    make(b"tconv")
    make(b"Nothing to be done")
    later = (folder / "out/hf").stat().st_mtime + 5
    model(folder / "m/hf/model.safetensors", 2)
    os.utime(folder / "m/hf/model.safetensors", (later, later))
    make(b"tconv")
    check_equal(digest(folder / "out/hf"), digest(folder / "m/hf"), "the digest")
    os.utime(folder / "m/hf/model.safetensors", (1e9, 1e9))
    os.remove(folder / "m/hf/a b.txt")
    os.utime(folder / "m/hf", (later + 5, later + 5))
    make(b"tconv")
    check_equal(files_in(folder / "out/hf"), ["config.json", "pytorch_model.bin"], "files")


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


def one_source(folder):
    """Every target is made of the model that is there, and not of another target, also where that is there by now or
    comes first in the list; the model itself stays."""
    needs("make")
    endings = [".npz", ".safetensors", ".pt", ".gguf"]  # the first holds no metadata
    model(folder / "in.safetensors", 1)
    (folder / "tconv.mk").write_bytes(tconv("formats", "--makefile").out)
    hostile = ["a;touch bad1;", "$(shell touch bad2)", "`touch bad3`", "x:y", "a=b", "sp ace", "%", "c#d", "it's", "b\\", "|", ","]
    sources = [f"sub/m{number}{ending}" for number, ending in enumerate(endings)]
    (folder / "sub").mkdir()
    for number, source in enumerate(sources):
        expect(folder, OK, "-q", "in.safetensors", source, "--dtype", "F16", "--lossy")
        os.utime(folder / source, (number, number))
    for name in hostile:
        (folder / f"{name}.npz").write_bytes((folder / "sub/m0.npz").read_bytes())
    names = [f"sub/m{number}{ending}" for number in range(len(sources)) for ending in endings]
    (folder / "Makefile").write_text(f"include tconv.mk\nall: {' '.join(names)}\n-include $(wildcard */*.tconv.d)\n")
    for turn in ((), ("-n",)):
        result = run("make", "-j4", *turn, "all", cwd=folder, env=environment())
        check_equal(result.code, 0, "make", result)
        pairs = re.findall(rb"-- '(\S+)' '(\S+)'", result.out)
        check_equal({source.decode() for source, _ in pairs}, set(sources), f"{turn}: what is read", result)
        check_equal(len(pairs), len(names) - len(sources), f"{turn}: how many are made")
        for source in sources:
            os.utime(folder / source, (2e9, 2e9))
    for name in ("it's", "a';touch bad4;'"):
        (folder / f"{name}.npz").write_bytes((folder / "sub/m0.npz").read_bytes())
        run("make", f"{name}.safetensors", cwd=folder, env=environment())
    check_equal((folder / "it's.safetensors").exists(), True, "a quoted name")
    check_equal([name for name in os.listdir(folder) if name.startswith("bad")], [], "no name is a command")


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


CASES = [from_shards, refusals, other_run, odd_shards, pruning, makefile, makefile_sources, folder_refusals, folder_killed, slurm_arrays, trees_joined, folder_jobs, folder_makefile, pattern_rules, one_source, resharding, if_changed]


def cases():
    for to in FORMATS:
        for verify in ([], ["--verify"]):
            yield f"joined {to} {' '.join(verify)}", lambda folder, to=to, verify=verify: joined(to, verify, folder)
    for to, more in (("pt", []), ("safetensors", ["--verify"]), ("deathtensors", ["--shard-size", "60K"]), ("pt", ["--only-weights"])):
        yield f"folder joined {to} {' '.join(more)}", lambda folder, to=to, more=more: folder_joined(to, more, folder)
    for case in CASES:
        yield case.__name__, case


def main():
    return Suite(__doc__).run(cases())


if __name__ == "__main__":
    sys.exit(main())
