#!/usr/bin/env python3
"""tconv batch: places, failures, what is skipped, kills and signals, sources that go, hostile trees."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import files
from batches import digest, environment, files_in, model, needs, tensors, tree
from harness import (
    DATA,
    FULL,
    INVALID,
    IO,
    OK,
    SANITIZED,
    TCONV,
    UNSAFE,
    UNSUPPORTED,
    USAGE,
    Failed,
    Suite,
    check_equal,
    expect,
    health_faults,
    run,
    tconv,
)

ODD_NAMES = ["it's", 'qu"ote', "sp ace", "-dash", "do$HOME", "ha#sh", "per%cent", "co:lon", "st*r", "back\\slash",
             "br[a]ck", "til~de", "a;b", "a=b", "a|b", "am&", "pa(ren)", "new\nline", "ümläut"]

TRIES = 20  # to send a signal before all is done


def batch(folder, *args, code=OK, **how):
    result = tconv("batch", *args, cwd=folder, **how)
    faults = health_faults(result)
    if faults or result.code != (result.code if code is None else code):
        raise result.failed(*faults, f"expected exit {code}, got {result.code}; stdout {result.out[:1500]}")
    return result


def lines(result):
    """The JSON lines of a batch by input, and its summary."""
    objects = [json.loads(line) for line in result.out.splitlines()]
    check_equal(list(objects[-1]), ["summary"], "the last line", result)
    return {line["input"]: line for line in objects[:-1]}, objects[-1]["summary"]


def counts(summary):
    return summary["done"], summary["skipped"], summary["failed"]


def places(folder):
    """Paths below a folder are kept, in every way of naming sources."""
    digests = tree(folder / "m")
    (folder / "m" / "README.md").write_text("no model")
    (folder / "m" / "optimizer.pt").write_text("of a training")
    (folder / "m" / ".hidden.npz").write_text("hidden")
    found, summary = lines(batch(folder, "m", "out", "-t", "npz", "--json", "-j", "2"))
    check_equal(counts(summary), (3, 0, 0), "the summary")
    check_equal(files_in(folder / "out"), ["a.npz", "x/b.npz", "x/y/c.npz"], "places")
    for name, wanted in digests.items():
        check_equal(digest(folder / "out" / f"{name}.npz"), wanted, f"the digest of {name}")
        line = found[f"m/{name}.safetensors"]
        check_equal((line["output"], line["status"]), (f"out/{name}.npz", "done"), "a line")
        check_equal({"bytes_in", "bytes_out", "seconds"} <= line.keys(), True, "keys")
    batch(folder, "m/x/*/c*", "m/a.safetensors", "glob", "-t", "pt", "-q")
    check_equal(files_in(folder / "glob"), ["a.pt", "y/c.pt"], "of a pattern and a file")
    (folder / "list").write_bytes(b"m/x/b.safetensors\n./m/x/y/c.safetensors\n\n")
    batch(folder, "-", "listed", "-t", "npz", "-q", stdin=folder / "list")
    check_equal(files_in(folder / "listed"), ["m/x/b.npz", "m/x/y/c.npz"], "of a list on stdin")
    (folder / "list0").write_bytes(b"m/x/b.safetensors\0m/a.safetensors\0")
    batch(folder, "--files0-from", "list0", "listed0", "-t", "npz", "-q")
    check_equal(files_in(folder / "listed0"), ["m/a.npz", "m/x/b.npz"], "of --files0-from")
    batch(folder, "m", "tensors", "-t", "deathtensors", "--per-tensor", "-q")
    check_equal(len(files_in(folder / "tensors/x/y/c")), 6, "a file a tensor")


def model_folders(folder):
    """A folder with config.json becomes a folder; shards go with their index."""
    digests = tree(folder / "m", ("plain",))
    model(folder / "m" / "hf" / "model.safetensors", 5)
    (folder / "m" / "hf" / "config.json").write_text("{}")
    expect(folder, OK, "-q", "m/plain.safetensors", "m/cut.safetensors", "--shard-size", "40K")
    batch(folder, "m", "out", "-t", "pt", "-q")
    got = files_in(folder / "out")
    check_equal("hf/config.json" in got, True, "the configuration")
    check_equal(digest(folder / "out" / "cut.pt.index.json"), digests["plain"], "of the shards")
    check_equal(digest(folder / "out" / "hf"), digest(folder / "m/hf"), "of the folder")
    os.remove(folder / "m" / "cut.safetensors.index.json")
    result = batch(folder, "m", "out2", "-t", "pt", "--json", code=UNSUPPORTED)
    check_equal(lines(result)[1]["failed"], 1, "shards without an index beside other models")
    shutil.rmtree(folder / "m/hf")
    os.remove(folder / "m/plain.safetensors")
    batch(folder, "m", "out3", "-t", "pt", "-q")
    check_equal(digest(folder / "out3/cut.pt.index.json"), digests["plain"], "shards without an index")
    # A folder whose weights are gone is no other kind of folder.
    (folder / "h" / "hf").mkdir(parents=True)
    (folder / "h" / "hf" / "config.json").write_text("{}")
    (folder / "h" / "hf" / "model.safetensors").symlink_to("../blobs/gone")
    found, summary = lines(batch(folder, "h", "out4", "-t", "pt", "--json", code=IO))
    check_equal((counts(summary), list(found)), ((0, 0, 1), ["h/hf"]), "weights that lead nowhere")


def keeps_shards(folder):
    """A model in shards stays one, whatever its index looks like, and merges with --merge; one of which shards are
    missing, the first too, is a failure, and is not passed over."""
    whole = tree(folder / "w", ("a",))["a"]
    kinds = {"safetensors": "a.safetensors.index.json", "deathtensors": "a.deathtensors", "gguf": None}
    for kind, index in kinds.items():
        source = folder / kind / "x"
        source.mkdir(parents=True)
        expect(folder, OK, "-q", "w/a.safetensors", f"{kind}/x/a.{kind}", "--shard-size", "40K")
        shards = len([name for name in files_in(source) if "-of-" in name])
        check_equal(shards > 2, True, "several shards")
        for loose in ((False, True) if index and kind == "safetensors" else (False,)):
            if loose:
                os.remove(source / index)
            for to, place in (("pt", "a.pt.index.json"), ("deathtensors", "a.deathtensors")):
                out = f"{kind}-{to}-{loose}"
                batch(folder, kind, out, "-t", to, "-q")
                check_equal(digest(folder / out / "x" / place), whole, f"{kind} to {to}")
                got = [name for name in files_in(folder / out) if "-of-" in name]
                check_equal(len(got), shards, f"shards from {kind} to {to}")
            batch(folder, kind, f"{kind}-one-{loose}", "-t", "pt", "--merge", "-q")
            check_equal(files_in(folder / f"{kind}-one-{loose}"), ["x/a.pt"], "with --merge")
            batch(folder, kind, f"{kind}-npz-{loose}", "-t", "npz", "-q")
            check_equal(digest(folder / f"{kind}-npz-{loose}" / "x/a.npz"), whole, "a format without shards")
        first = sorted(name for name in files_in(source) if "-of-" in name)[0]
        os.remove(source / first)
        result = batch(folder, kind, f"{kind}-lost", "-t", "pt", "--json", code=None)
        check_equal(counts(lines(result)[1]), (0, 0, 1), f"the first shard of {kind} is missing")
        check_equal(result.code in (INVALID, IO), True, "exit code", result)


def failures(folder):
    """One that fails is one that fails; the highest code counts; nothing of it is left."""
    tree(folder / "m")
    (folder / "m" / "x" / "bad").mkdir()
    (folder / "m" / "x" / "bad" / "bad.npz").write_bytes(b"PK\3\4nonsense")
    (folder / "m" / "none.bin").symlink_to("nowhere")
    found, summary = lines(batch(folder, "m", "out", "-t", "npz", "--json", "-j1", code=IO))
    check_equal(counts(summary), (3, 0, 2), "the summary")
    check_equal(found["m/none.bin"]["error"]["message"], "a link that leads nowhere", "a broken link")
    os.remove(folder / "m" / "none.bin")
    bad = found["m/x/bad/bad.npz"]
    check_equal((bad["status"], bad["error"]["class"]), ("failed", "invalid"), "the error")
    check_equal((folder / "out/x/bad").exists(), False, "an empty folder was left")
    (folder / "m" / "0bad.npz").write_bytes(b"PK\3\4nonsense")
    found, summary = lines(batch(folder, "m", "out2", "-t", "npz", "--json", "-j1", "--fail-fast", code=INVALID))
    check_equal(summary["done"] + summary["skipped"] + summary["failed"], 5, "all are told of")
    check_equal(summary["failed"], 1, "--fail-fast begins no other")
    batch(folder, "m/a.safetensors", "gone.npz", "out3", "-t", "npz", code=IO)
    check_equal((folder / "out3").exists(), False, "written before all sources were known")


def crash(folder):
    """A process that is killed is its own model's failure: class 3, and nothing half-written."""
    tree(folder / "m")
    env = {"TCONV_TEST_KILL": "1"}
    found, summary = lines(batch(folder, "m", "out", "-t", "npz", "--json", code=INVALID, env=env))
    check_equal(counts(summary), (0, 0, 3), "the summary")
    for line in found.values():
        check_equal((line["error"]["class"], line["error"]["code"]), ("invalid", "crash"), "the error")
    check_equal(files_in(folder / "out"), [], "what is left")
    batch(folder, "m", "out", "-t", "npz", "-q")


def refused(folder):
    """What would go wrong is refused before anything is written."""
    tree(folder / "m")
    model(folder / "n" / "a.safetensors", 9)
    for args, code in [
        (("m", "n", "out", "-t", "npz"), USAGE),  # one place
        (("m/a.safetensors", "m/a.safetensors", "out", "-t", "npz"), USAGE),
        (("m", "m", "-t", "npz"), USAGE),
        (("m/x", "m", "-t", "npz"), USAGE),  # in the destination
        (("m/a.safetensors", "m", "-t", "safetensors"), USAGE),  # its own place
        (("m", "out"), USAGE),
        (("m", "-t", "npz"), USAGE),
        (("m", "out", "-t", "nonsense"), USAGE),
        (("m", "m/a.safetensors", "-t", "npz"), USAGE),  # the destination is a file
        (("q*", "out", "-t", "npz"), USAGE),
        (("m", "out", "-t", "npz", "--rm", "--dry-run"), USAGE),
    ]:
        expect(folder, code, "batch", *args)
    (folder / "empty").mkdir()
    expect(folder, USAGE, "batch", "empty", "out", "-t", "npz")


def inside(folder):
    """A destination in the source is no source, the second time either."""
    tree(folder / "m")
    for _ in range(2):
        batch(folder, "m", "m/out", "-t", "npz", "-q")
        check_equal(files_in(folder / "m/out"), ["a.npz", "x/b.npz", "x/y/c.npz"], "outputs")


def links(folder):
    """Links to folders are not followed, so that there are no loops; those that leave the tree are refused."""
    tree(folder / "m", ("a",))
    (folder / "m" / "loop").mkdir()
    (folder / "m" / "loop" / "up").symlink_to("..")
    (folder / "m" / "same.safetensors").symlink_to("a.safetensors")
    found, summary = lines(batch(folder, "m", "out", "-t", "npz", "--json"))
    check_equal(counts(summary), (2, 0, 0), "a link in the tree is a file")
    model(folder / "private.safetensors", 4)
    (folder / "m" / "leak.safetensors").symlink_to("../private.safetensors")
    found, summary = lines(batch(folder, "m", "out2", "-t", "npz", "--json", code=UNSAFE))
    check_equal(found["m/leak.safetensors"]["status"], "failed", "a link out of the tree")
    check_equal(counts(summary), (2, 0, 1), "the others")


def linked_shards(folder):
    """Shards and other files that a model leads to lie in its tree, too, or in the blobs of its cache."""
    tree(folder / "far", ("a",))
    (folder / "m").mkdir()
    expect(folder, OK, "-q", "far/a.safetensors", "far/cut.safetensors", "--shard-size", "40K")
    shards = [name for name in files_in(folder / "far") if "-of-" in name]
    for place in ("loose", "indexed", "cache/snapshots/r"):
        (folder / "m" / place).mkdir(parents=True)
    (folder / "m/cache/blobs").mkdir()
    for number, name in enumerate(shards):
        for place in ("loose", "indexed"):
            (folder / "m" / place / name).symlink_to(folder / "far" / name)
        shutil.copy(folder / "far" / name, folder / "m/cache/blobs" / f"{number:064}")
        (folder / "m/cache/snapshots/r" / name).symlink_to(f"../../blobs/{number:064}")
    index = "cut.safetensors.index.json"
    for place in ("indexed", "cache/snapshots/r"):
        shutil.copy(folder / "far" / index, folder / "m" / place / index)
    wanted = digest(folder / "far" / index)
    for sandbox in ("auto", "off"):
        out = f"out-{sandbox}"
        result = batch(folder, "m", out, "-t", "npz", "--json", f"--sandbox={sandbox}", code=UNSAFE)
        found, summary = lines(result)
        check_equal(counts(summary), (1, 0, 2), f"--sandbox={sandbox}", result)
        for name in ("m/loose", f"m/indexed/{index}"):
            check_equal(found[name]["error"]["code"], "link-outside", name)
        check_equal(files_in(folder / out), ["cache/snapshots/r/cut.npz"], "outputs")
        check_equal(digest(folder / out / "cache/snapshots/r/cut.npz"), wanted, "the snapshot's digest")
    # Several snapshots of one cache; and one whose blobs are somebody else's folder.
    batch(folder, "m/cache/snapshots", "out2", "-t", "npz", "-q")
    check_equal(files_in(folder / "out2"), ["r/cut.npz"], "snapshots")
    (folder / "m/cache/blobs").rename(folder / "blobs")
    (folder / "m/cache/blobs").symlink_to(folder / "blobs")
    batch(folder, "m/cache/snapshots", "out3", "-t", "npz", "-q", code=UNSAFE)


def linked_away(folder):
    """A link out of the tree is refused wherever it leads: also where the sandbox lets nothing be read, and when
    jobs are listed, for formats with shards and without."""
    tree(folder / "far", ("a",))
    expect(folder, OK, "-q", "far/a.safetensors", "far/cut.safetensors", "--shard-size", "40K")
    near = folder / "near"
    index = "cut.safetensors.index.json"
    names = [name for name in files_in(folder / "far") if "-of-" in name]
    for place in ("loose", "indexed"):
        (near / place / "m").mkdir(parents=True)
        for name in names:
            (near / place / "m" / name).symlink_to(folder / "far" / name)
    shutil.copy(folder / "far" / index, near / "indexed/m" / index)
    for place in ("loose", "indexed"):
        shown = f"{place}/m/{names[0]}: a link that leads out of the tree".encode()
        for manner in ([], ["--dry-run"], ["--jobs"], ["--makefile"]):
            for format_ in ("safetensors", "npz"):
                for sandbox in ("auto", "off"):
                    result = batch(near, place, "out", "-t", format_, f"--sandbox={sandbox}", *manner, code=UNSAFE)
                    check_equal(shown in result.err, True, f"{place} {manner} {format_} {sandbox}", result)
                    check_equal(b"convert" in result.out, False, "nothing is listed", result)
    # What is not there, and what may not be read, are no links out of the tree.
    (near / "indexed/m" / names[0]).unlink()
    shutil.rmtree(near / "loose")
    for name in names[1:]:
        (near / "indexed/m" / name).unlink()
        shutil.copy(folder / "far" / name, near / "indexed/m")
    result = batch(near, "indexed", "out", "-t", "npz", code=None)
    check_equal(b"leads out" in result.err, False, "a shard that is missing", result)
    # Where there are links, what else is wrong is the job's own failure.
    (near / "indexed/m" / names[0]).symlink_to(names[1])
    (near / "indexed/bad.npz").write_bytes(b"PK\3\4nonsense")
    result = batch(near, "indexed", "out", "-t", "npz", "--jobs")
    check_equal(len(result.out.splitlines()), 2, "jobs", result)


def notes(folder):
    """A message names its model once, whether the conversion had named a file of it or not."""
    for name in ("unet", "unet2"):
        model(folder / "m" / name / "model.safetensors")
        shutil.copy(folder / "m" / name / "model.safetensors", folder / "m" / name / "pytorch_model.bin")
        (folder / "m" / name / "config.json").write_text("{}")
    result = batch(folder, "m", "out", "-t", "npz")
    told = result.err.decode().splitlines()
    check_equal({line.count("m/unet") for line in told}, {1}, "how often it is named", result)
    for name in ("unet", "unet2"):
        check_equal(any(line.startswith(f"tconv: note: m/{name}: model.safetensors is read") for line in told), True,
                    "the note", result)
        check_equal(any(line.startswith(f"tconv: warning: m/{name}: output: ") for line in told), True,
                    "a warning that does not name it", result)


def checkpoints(folder):
    """A checkpoint in several files, and a folder of a file a tensor whose names tconv keeps, are one model each."""
    for name in ("dcp", "zero"):
        shutil.copytree(DATA / name, folder / "m" / name)
    expect(folder, OK, "-q", DATA / "npz/stored.npz", "m/arrays/", "-t", "npy")
    plain = {"m/dcp/hf", "m/dcp/hf_consolidated", "m/dcp/hf_sharded"}  # these are shards
    folders = [f"m/{path.parent.relative_to(folder / 'm')}" for path in folder.rglob(".metadata")]
    folders += [f"m/{path.relative_to(folder / 'm')}" for path in folder.glob("m/zero/*/global_step1")]
    wanted = {path: digest(folder / path) for path in [*folders, "m/arrays"]}
    check_equal(len(wanted), 8 + 5 + 1, "checkpoints")
    result = batch(folder, "m", "out", "-t", "safetensors", "-q")
    outputs = {f"m/{name}": digest(folder / "out" / name) for name in files_in(folder / "out") if "-of-" not in name}
    check_equal({name.rpartition(".safetensors")[0]: value for name, value in outputs.items() if ".index" not in name}, wanted, "digests", result)
    check_equal(len([name for name in outputs if ".index" in name]), len(plain), "shards")
    check_equal(counts(lines(batch(folder, "m", "out", "-t", "safetensors", "--resume", "--json"))[1]), (0, len(wanted) + 3, 0), "--resume")
    # One file of them changes: times show it.
    for path in ("m/dcp/mini/__0_0.distcp", "m/arrays/w.npy", "m/zero/stage2/global_step1/zero_pp_rank_1_mp_rank_00_optim_states.pt"):
        os.utime(folder / path, (1, 1))
    check_equal(counts(lines(batch(folder, "m", "out", "-t", "safetensors", "--resume", "--json"))[1]), (3, len(wanted), 0), "changed files")
    batch(folder, "m/arrays", "again", "-t", "npy", "-q")
    check_equal(digest(folder / "again/arrays"), wanted["m/arrays"], "a folder becomes a folder")
    batch(folder, "m/zero/stage2", "m/arrays", "gone", "-t", "safetensors", "--rm", "-q")
    check_equal(files_in(folder / "m/zero/stage2"), ["latest"], "--rm")
    check_equal(digest(folder / "gone/global_step1.safetensors"), wanted["m/zero/stage2/global_step1"], "after --rm")
    # What is no longer whole is a failure, and not passed over.
    os.remove(folder / "m/dcp/mini/.metadata")
    found, summary = lines(batch(folder, "m/dcp", "out2", "-t", "safetensors", "--json", code=INVALID))
    check_equal((summary["failed"], found["m/dcp/mini"]["status"]), (1, "failed"), "without its table")
    model(folder / "m/dcp/ranks/model.safetensors")
    found, summary = lines(batch(folder, "m/dcp/ranks", "out3", "-t", "npz", "--json", code=UNSUPPORTED))
    check_equal((counts(summary), found["m/dcp/ranks"]["status"]), ((1, 0, 1), "failed"), "beside another model")


def plain_arrays(folder):
    """Arrays whose names were kept are models of their own, or one model where an empty file of names says so."""
    model(folder / "a.safetensors")
    (folder / "m").mkdir()
    expect(folder, OK, "-q", "a.safetensors", "m/tensors/", "-t", "npy")
    batch(folder, "m", "each", "-t", "npz", "-q")
    check_equal(files_in(folder / "each"), [f"tensors/w{number}.npz" for number in range(6)], "each for itself")
    (folder / "m/tensors/.tconv-names.json").write_text("{}")
    batch(folder, "m", "one", "-t", "npz", "-q")
    check_equal(files_in(folder / "one"), ["tensors.npz"], "one model")
    check_equal(digest(folder / "one/tensors.npz"), digest(folder / "a.safetensors"), "its digest")


def resumed_shards(folder):
    """--resume looks at every file that a model was read from, and not at its index alone."""
    tree(folder / "m", ("a", "b"))
    for kind in ("safetensors", "gguf"):
        expect(folder, OK, "-q", "m/a.safetensors", f"m/{kind}.{kind}", "--shard-size", "40K")
    run_ = lambda: counts(lines(batch(folder, "m", "out", "-t", "npz", "--resume", "--json"))[1])  # noqa: E731
    check_equal((run_(), run_()), ((4, 0, 0), (0, 4, 0)), "before")
    for done, name in enumerate(name for name in files_in(folder / "m") if "00002-of" in name):
        shard = folder / "m" / name
        data = shard.read_bytes()
        shard.write_bytes(data[:-8] + b"\0\0\x80?" * 2)
        os.utime(shard, (done + 1, done + 1))
        check_equal((run_(), run_()), ((1, 3, 0), (0, 4, 0)), name)
    index = "m/safetensors.safetensors.index.json"
    check_equal(digest(folder / "out/safetensors.npz"), digest(folder / index), "as the shards are now")


def skipping(folder):
    """--skip-existing by name, --update by content."""
    tree(folder / "m")
    source = folder / "m" / "a.safetensors"
    output = folder / "out" / "a.npz"
    run_ = lambda *args: counts(lines(batch(folder, "m", "out", "-t", "npz", "--json", *args))[1])  # noqa: E731
    check_equal(run_("--update"), (3, 0, 0), "the first")
    check_equal((folder / "out/a.npz.receipt.json").exists(), True, "receipts")
    check_equal(run_("--update"), (0, 3, 0), "nothing changed")
    os.utime(source)
    check_equal(run_("--update"), (0, 3, 0), "a new time is no change")
    status = source.stat()
    data = source.read_bytes()
    source.write_bytes(data[:-4] + b"\1\2\3\4")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    check_equal(run_("--update"), (1, 2, 0), "other content at the same time and size")
    output.write_bytes(output.read_bytes()[:-1] + b"x")
    check_equal(run_("--update"), (1, 2, 0), "an output that was changed")
    check_equal(run_("--update", "--compress"), (3, 0, 0), "other options")
    source.write_bytes(data)
    check_equal(run_("--skip-existing"), (0, 3, 0), "--skip-existing looks at names alone")
    os.remove(output)
    check_equal(run_("--skip-existing"), (1, 2, 0), "one was missing")
    expect(folder, OK, "verify", "--receipt", "out/x/b.npz.receipt.json")


def folders_again(folder):
    """--update and --resume do a model folder again that changed, or that a kill kept out of the log, and leave alone
    what is no model of the format."""
    place = folder / "m" / "hf"
    model(place / "model.safetensors")
    (place / "sub").mkdir()
    for name in ("config.json", "sub/notes.txt"):
        (place / name).write_text("{}")
    run_ = lambda *args, **how: lines(batch(folder, "m", "out", "-t", "pt", "--json", *args, **how))  # noqa: E731
    count = lambda *args, **how: counts(run_(*args, **how)[1])  # noqa: E731
    check_equal(count("--update"), (1, 0, 0), "the first")
    check_equal((count("--update"), count("--resume")), ((0, 1, 0), (0, 1, 0)), "nothing changed")
    check_equal(count(code=USAGE), (0, 0, 1), "no option says that the folder may go")
    for option in ("--update", "--resume"):
        (place / "sub/notes.txt").write_text(f"other {option}")
        check_equal((count(option), count(option)), ((1, 0, 0), (0, 1, 0)), f"{option}: a file below changed")
        check_equal((folder / "out/hf/sub/notes.txt").read_text(), f"other {option}", "copied")
        (folder / "out/hf/config.json").write_text("damaged")
        check_equal((count(option), count(option)), ((1, 0, 0), (0, 1, 0)), f"{option}: the output changed")
        check_equal((folder / "out/hf/config.json").read_text(), "{}", "mended")
    (folder / "out/.tconv-batch.jsonl").write_bytes(b"")
    check_equal((count("--resume"), count("--resume")), ((1, 0, 0), (0, 1, 0)), "killed before its line was written")
    shutil.rmtree(folder / "out/hf")
    for step in range(9, 40):  # until one comes once the folder has its name
        shutil.rmtree(folder / "out", ignore_errors=True)
        count(code=INVALID, env={"TCONV_TEST_KILL": str(step)})
        if (folder / "out/hf").exists():
            break
    check_equal(count("--resume"), (1, 0, 0), f"its process was killed at step {step}")
    shutil.rmtree(folder / "out/hf")
    (folder / "out/hf").mkdir()
    (folder / "out/hf/thesis.txt").write_text("mine")
    for option in ("--update", "--resume"):
        check_equal(count(option, code=USAGE), (0, 0, 1), f"{option}: a folder of the user's")
    check_equal(files_in(folder / "out/hf"), ["thesis.txt"], "it stays")


def dry_run(folder):
    tree(folder / "m")
    (folder / "m/a.safetensors").write_bytes(files.safetensors(tensors(0), {"k": "v"}))
    found, summary = lines(batch(folder, "m", "out", "-t", "npz", "--json", "--dry-run"))
    check_equal((folder / "out").exists(), False, "written")
    check_equal(found["m/a.safetensors"]["losses"][0]["kind"], "metadata", "the loss")
    check_equal(found["m/x/b.safetensors"]["losses"], [], "no loss")
    check_equal(summary["done"], 3, "how many would be done")


def many(folder, count=40):
    for number in range(count):
        model(folder / "m" / f"{number % 4}" / f"{number:02}.safetensors", number, elements=20000)
    return {str(file.relative_to(folder / "m").with_suffix(".npz")): digest(file)
            for file in (folder / "m").rglob("*.safetensors")}


def start(folder, *args):
    return subprocess.Popen([TCONV, "batch", "m", "out", "-t", "npz", "-j2", "--compress", *args], cwd=folder,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def stop_after(process, done, number):
    """Sends a signal once so many lines were printed; returns how many were."""
    seen = 0
    while seen < done and process.stdout.readline():
        seen += 1
    os.kill(process.pid, number)
    rest, err = process.communicate(timeout=600)
    return seen + len(rest.splitlines()), err


def no_processes_left(session):
    """Children end with their parent; what they had begun is gone with them."""
    for _ in range(200):
        alive = [entry for entry in os.listdir("/proc") if entry.isdigit() and in_session(entry, session)]
        if not alive:
            return
        time.sleep(0.05)
    raise Failed(f"processes are left: {alive}")


def in_session(pid, session):
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[3]) == session and fields[0] != "Z"
    except OSError:
        return False


def hidden(folder):
    return [str(entry) for entry in folder.rglob(".*") if entry.name != ".tconv-batch.jsonl"]


def killed(folder):
    """kill -9 in the middle, then --resume: what was done is passed over, the rest is done."""
    digests = many(folder)
    process = start(folder)
    stop_after(process, 5, signal.SIGKILL)
    no_processes_left(process.pid)
    check_equal(hidden(folder / "out"), [], "temporary files")
    half = files_in(folder / "out")
    for name in half:
        check_equal(digest(folder / "out" / name), digests[name], "an output after the kill")
    _, summary = lines(batch(folder, "m", "out", "-t", "npz", "--compress", "--resume", "--json"))
    check_equal(summary["done"] + summary["skipped"], len(digests), "all")
    check_equal(4 <= summary["skipped"] <= len(half), True, f"{summary['skipped']} of {len(half)} skipped")
    check_equal({name: digest(folder / "out" / name) for name in files_in(folder / "out")}, digests, "digests")
    check_equal(counts(lines(batch(folder, "m", "out", "-t", "npz", "--compress", "--resume", "--json"))[1]),
                (0, len(digests), 0), "nothing is left to do")
    # Other options, a changed source or a lost output are done again, and a cut line of the log too.
    os.remove(folder / "out/0/00.npz")
    model(folder / "m/1/01.safetensors", 99)
    log = folder / "out" / ".tconv-batch.jsonl"
    log.write_bytes(log.read_bytes()[:-10])
    result = lines(batch(folder, "m", "out", "-t", "npz", "--compress", "--resume", "--json"))[1]
    check_equal(counts(result), (3, len(digests) - 3, 0), "what changed")
    result = lines(batch(folder, "m", "out", "-t", "npz", "--resume", "--json"))[1]
    check_equal(counts(result), (len(digests), 0, 0), "other options")


def signals(folder):
    """Ctrl-C and SIGTERM end the children first, and leave nothing half-written."""
    digests = many(folder)
    for number in (signal.SIGINT, signal.SIGTERM):
        for _ in range(TRIES):
            process = start(folder)
            stop_after(process, 3, number)
            if process.returncode != OK:
                break
            shutil.rmtree(folder / "out")  # all was done before the signal came
        check_equal(process.returncode, -number, "ended by the signal")
        no_processes_left(process.pid)
        check_equal(hidden(folder / "out"), [], "temporary files")
        for name in files_in(folder / "out"):
            check_equal(digest(folder / "out" / name), digests[name], "an output")
        shutil.rmtree(folder / "out")


def removing(folder):
    """--rm: a source goes once its output is verified, and not where something is lost."""
    digests = tree(folder / "m")
    (folder / "m/a.safetensors").write_bytes(files.safetensors(tensors(0), {"k": "v"}))
    expect(folder, OK, "-q", "m/x/b.safetensors", "m/x/cut.safetensors", "--shard-size", "40K")
    (folder / "m" / "x" / "other.txt").write_text("stays")
    result = batch(folder, "m", "out", "-t", "npz", "--rm", "--json", code=UNSUPPORTED)
    check_equal(counts(lines(result)[1]), (3, 0, 1), "the summary")
    check_equal(files_in(folder / "m"), ["a.safetensors", "x/other.txt"], "what stays")
    check_equal(digest(folder / "out/x/cut.npz"), digests["x/b"], "the shards")
    digests = tree(folder / "m")
    batch(folder, "m", "out", "-t", "npz", "--rm", code=IO, env={"TCONV_TEST_FLIP": "-300"})
    check_equal(files_in(folder / "m"), ["a.safetensors", "x/b.safetensors", "x/other.txt", "x/y/c.safetensors"],
                "where verification fails all stay")
    # A kill between the line in the log and the removal: what is still there is done again, and goes.
    run_ = lambda: counts(lines(batch(folder, "m/x", "out2", "-t", "npz", "--rm", "--resume", "--json"))[1])  # noqa: E731
    batch(folder, "m/x", "out2", "-t", "npz", "-q", "--verify")
    check_equal((run_(), files_in(folder / "m/x")), ((2, 0, 0), ["other.txt"]), "what a kill left")
    check_equal(run_(), (0, 0, 0), "nothing is left to do")


def odd_names(folder):
    """Whatever a file is called: converted by the batch, and by the lines of --jobs."""
    names = [name for name in ODD_NAMES if "\n" not in name]
    for seed, name in enumerate(ODD_NAMES):
        model(folder / "m" / f"{name}.safetensors", seed)
    batch(folder, "m", "out", "-t", "npz", "-q")
    check_equal(len(files_in(folder / "out")), len(ODD_NAMES), "outputs")
    expect(folder, UNSAFE, "batch", "--jobs", "m", "jobs", "-t", "npz")
    os.remove(folder / "m" / "new\nline.safetensors")
    jobs = batch(folder, "--jobs", "m", "jobs", "-t", "npz", "-q").out
    check_equal(len(jobs.splitlines()), len(names), "a line a job")
    check_equal((folder / "jobs").exists(), False, "printing writes nothing")
    (folder / "lines").write_bytes(jobs)
    result = run("sh", "-e", str(folder / "lines"), cwd="/", env=environment())
    check_equal(result.code, 0, "running the lines", result)
    for name in names:
        check_equal(digest(folder / "jobs" / f"{name}.npz"), digest(folder / "out" / f"{name}.npz"), name)
    expect(folder, UNSAFE, "batch", "--makefile", "m", "made", "-t", "npz")
    for name in names:
        if set(name) & set("\n;=|"):
            expect(folder, UNSAFE, "batch", "--makefile", f"./m/{name}.safetensors", "made", "-t", "npz")
            os.remove(folder / "m" / f"{name}.safetensors")
    (folder / "made.mk").write_bytes(batch(folder, "--makefile", "m", "made", "-t", "npz", "-q").out)
    needs("make")
    for _ in range(2):
        result = run("make", "-j2", "-f", "made.mk", cwd=folder, env=environment())
        check_equal(result.code, 0, "make", result)
    check_equal(b"Nothing to be done" in result.out, True, "up to date", result)
    for file in files_in(folder / "made"):
        check_equal(digest(folder / "made" / file), digest(folder / "out" / file), file)


def large_tree(folder):
    """A tree within the bounds is walked, a folder beyond them is refused by name."""
    (folder / "m").mkdir()
    model(folder / "m" / "a.safetensors")
    for number in range(150_000 if FULL else 20_000):
        (folder / "m" / f"{number}.txt").touch()
    batch(folder, "m", "out", "-t", "npz", "-q")
    # Shards without an index are grouped in one pass: in the square of their number this would take an hour.
    shards = folder / "shards"
    shards.mkdir()
    for number in range(20_000 if FULL or not SANITIZED else 4_000):
        os.symlink("nowhere", shards / f"a-{number:05}-of-99999.safetensors")
    result = batch(folder, "shards", "out3", "-t", "npz", "--json", code=None)
    check_equal((counts(lines(result)[1]), result.code in (INVALID, IO)), ((0, 0, 1), True), "shards that lead nowhere", result)
    deep = folder / "deep"
    for _ in range(70):
        deep = deep / "d"
    deep.mkdir(parents=True)
    expect(folder, UNSAFE, "batch", "deep", "out2", "-t", "npz")


def one_each(folder):
    """tconv FILES… -t FORMAT OUTDIR/"""
    digests = tree(folder / "m")
    sources = [f"m/{name}.safetensors" for name in digests]
    expect(folder, OK, "-q", *sources, "-t", "npz", "out/")
    check_equal(files_in(folder / "out"), ["a.npz", "b.npz", "c.npz"], "outputs")
    expect(folder, OK, "-q", sources[0], "-t", "npz", "single/")
    check_equal(files_in(folder / "single"), ["a.npz"], "of one input")
    expect(folder, OK, "-q", *sources, "tensors/")
    check_equal(len(files_in(folder / "tensors/c")), 6, "without -t a file a tensor, OUT/STEM/")
    expect(folder, OK, "-q", "--per-tensor", sources[0], "-t", "pt", "pts/")
    check_equal(files_in(folder / "pts")[0], "w0.pt", "--per-tensor")
    expect(folder, USAGE, "-q", "m/a.safetensors", "m/a.safetensors", "-t", "npz", "twice/")
    (folder / "bad.npz").write_bytes(b"PK\3\4nonsense")
    result = tconv("-q", "bad.npz", sources[0], "-t", "pt", "some/", cwd=folder)
    check_equal((result.code, files_in(folder / "some")), (INVALID, ["a.pt"]), "the others are done", result)
    result = tconv("-q", "bad.npz", "-t", "pt", "none/", cwd=folder)
    check_equal((result.code, (folder / "none").exists()), (INVALID, False), "nothing is left", result)


def parallel_make(folder):
    """In a recipe of make -j the jobserver says how many run, and gets its tokens back."""
    needs("make")
    tree(folder / "m", [f"n{number}" for number in range(12)])
    (folder / "Makefile").write_text(
        "all: one two three\n"
        "one two three:\n\t+tconv batch -q m out-$@ -t npz && test -d out-$@\n"
        "plain:\n\ttconv batch -q m out-$@ -t npz\n"
    )
    for command in (["make", "-j3"], ["make", "-j3", "plain"], ["make", "one"]):
        result = run(*command, cwd=folder, env=environment())
        check_equal((result.code, b"jobserver" in result.err), (0, False), " ".join(command), result)
    check_equal(len(files_in(folder / "out-three")), 12, "outputs")


CASES = [places, model_folders, keeps_shards, failures, crash, refused, inside, links, linked_shards,
         linked_away, notes, checkpoints, plain_arrays, resumed_shards, skipping, folders_again, dry_run, killed,
         signals, removing, odd_names, large_tree, one_each, parallel_make]


def main():
    return Suite(__doc__).run((case.__name__, case) for case in CASES)


if __name__ == "__main__":
    sys.exit(main())
