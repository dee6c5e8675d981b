#!/usr/bin/env python3
"""The sandbox: inside it nothing can be reached but inputs and outputs, and every command works.

Builds with test hooks try what TCONV_TEST_SANDBOX names once a command's sandbox is complete, and
say on standard error how each attempt ended (cmd/sandbox_probe.h).
"""

import re
import shutil
import signal
import sys

import files
from files import f32
from harness import (
    IO,
    MIB,
    OK,
    SANITIZED,
    TCONV,
    USAGE,
    Skip,
    Suite,
    check_equal,
    expect,
    health_faults,
    one_in,
    run,
    tconv,
    unprivileged,
)

MODEL = {"a.weight": f32(*range(12), shape=[3, 4]), "a.bias": f32(1, 2, 3), "b": f32(0.5)}
# What sanitizers do themselves.
RELAXED = {"socketpair", "fork", "ptrace", "kill", "signal", "dump", "memory", "make-suid", "send", "tkill"}
RELAXED |= {"dumpable", "raise", "raise-own"}
BY_DESCRIPTOR = ("fchmod-suid", "fchown", "futimens", "fsetxattr", "flags", "seal", "lease")
CALLS = """
    bpf io_uring_setup perf_event_open userfaultfd process_vm_readv process_vm_writev keyctl add_key
    mount umount2 pivot_root chroot open_tree fsopen setns kexec_load init_module finit_module
    reboot pidfd_open memfd_create setuid shmget connect bind inotify_add_watch sendmsg sendmmsg
    rt_sigqueueinfo pidfd_send_signal pidfd_getfd process_madvise shmat mq_open io_submit pkey_mprotect
    personality name_to_handle_at
    execveat=/bin/true execve=/bin/true socket socket=unix socketpair fork namespace ptrace kill
    signal code type limit dump privileges owner owner-ex owner-ioctl owner-signal discipline send tkill dumpable raise
    raise-own
""".split()


def sample(folder):
    """Inputs in `in`, a place for outputs, a place for neither."""
    for name in ("in", "out", "other", "tmp"):
        (folder / name).mkdir()
    (folder / "in" / "model.safetensors").write_bytes(files.safetensors(MODEL, {"k": "v"}))
    (folder / "in" / "more.npy").write_bytes(files.npy_of(f32(7, 8)))
    (folder / "in" / "folder").mkdir()
    (folder / "in" / "folder" / "model.safetensors").write_bytes(files.safetensors(MODEL))
    (folder / "in" / "folder" / "config.json").write_text("{}")
    (folder / "other" / "secret").write_text("secret")
    (folder / "other" / "map.json").write_text('{"b": "c"}')
    expect(folder, OK, "keygen", "--sandbox=off", "other/sign")
    expect(folder, OK, "check", "--write-schema", "-o", "other/schema.json", "in/model.safetensors")
    expect(folder, OK, "-q", "in/model.safetensors", "in/whole.npz", "--receipt", "other/r.json")
    shutil.copy(folder / "other" / "r.json", folder / "in" / "r.json")
    (folder / "parts").mkdir()
    shard = ["--shard-size", "1", "--metadata", "k=v", "in/model.safetensors", "parts/m.safetensors"]
    for number in (1, 2, 3):
        expect(folder, OK, "-q", f"--shard={number}/3", *shard)


# A command's normal work, and what it writes.
COMMANDS = {
    "convert": [
        ("-q in/model.safetensors out/model.npz", ["out/model.npz"]),
        ("convert -q in/model.safetensors out/model.pt --no-sync", ["out/model.pt"]),
        ("-q in/model.safetensors out/folder/ -t npy", ["out/folder"]),
        ("-q in/model.safetensors in/more.npy -o out/two.deathtensors --compress", ["out/two.deathtensors"]),
        (
            "-q in/model.safetensors out/m.safetensors --map other/map.json --sign other/sign.key"
            " --receipt out/r.json --depfile out/m.d --verify",
            ["out/m.safetensors", "out/m.d"],
        ),
        ("-q in/model.safetensors out/s.safetensors --shard-size 64K", ["out"]),
        ("-q in/model.safetensors out/m.onnx --onnx-external", ["out/m.onnx"]),
        ("--dry-run in/model.safetensors out/m.npz", []),
        ("-q in/folder out/new/ -t deathtensors --verify", ["out/new"]),
        ("-q in/folder out/joined.npz --keep-metadata=drop", ["out/joined.npz"]),
    ],
    "batch": [
        ("batch -q in/model.safetensors out/all -t npz", ["out/all/model.npz"]),
        (
            "batch -q in/model.safetensors out/deep/all -t pt --update --sign other/sign.key --map other/map.json",
            ["out/deep/all/model.pt"],
        ),
        ("batch -q --dry-run in/model.safetensors out/all -t deathtensors", []),
    ],
    "index": [("index -q parts --receipt out/r.json", ["parts/m.safetensors.index.json"])],
    "append": [("append -q in/model.safetensors in/more.npy", ["in/model.safetensors"])],
    "edit": [
        ("edit -q in/model.safetensors --prefix a.", ["in/model.safetensors"]),
        ("edit -q in/folder --metadata a=b -o out/edited.safetensors --map other/map.json", ["out/edited.safetensors"]),
    ],
    "info": [("info in/model.safetensors in/whole.npz", [])],
    "list": [("list in/model.safetensors", [])],
    "get": [("get in/whole.npz b -o out/b.npy", ["out/b.npy"]), ("get in/whole.npz b", [])],
    "hash": [("hash in/model.safetensors", []), ("hash --digest in/whole.npz", [])],
    "diff": [("diff --ignore-metadata in/model.safetensors in/whole.npz", [])],
    "verify": [
        ("verify in/model.safetensors --junit out/v.xml --sarif out/v.sarif", ["out"]),
        ("verify --receipt in/r.json --pubkey other/sign.pub", []),
        ("verify --receipt other/r.json in/whole.npz", []),
    ],
    "check": [
        ("check --schema other/schema.json in/model.safetensors --sarif out/c.sarif", ["out"]),
        ("check --write-schema in/model.safetensors -o out/schema.json", ["out/schema.json"]),
    ],
    "show": [("show in/model.safetensors b a.bias", [])],
    "stats": [
        ("stats in/model.safetensors b", []),
        ("stats in/model.safetensors --html out/page.html", ["out/page.html"]),
    ],
    "keygen": [("keygen out/key", [])],
    "manifest": [
        ("manifest in/model.safetensors out/m.json", ["out/m.json"]),
        ("manifest in/model.safetensors", ["in/model.safetensors.json"]),
    ],
    "scan": [("scan in", []), ("scan in/whole.npz --junit out/s.xml", ["out"])],
}
# Exit codes other than 0 of that work.
CODES = {"verify --receipt in/r.json --pubkey other/sign.pub": 1}
TRIVIAL = {"help", "version", "formats"}
# Commands that need a server: cmd/test/test_remote.py tries to break out of them.
REMOTE = {"hub"}


def words(line, mode):
    """The command line with --sandbox, behind the command's name where it has one."""
    first, *rest = line.split()
    return [first, f"--sandbox={mode}", *rest] if first in COMMANDS else [f"--sandbox={mode}", first, *rest]


def environment(folder, **more):
    return {"TMPDIR": str(folder / "tmp"), "SOURCE_DATE_EPOCH": "0", **more}


def contents(folder, paths):
    """Every file below the paths; a receipt's and a key's bytes differ from run to run."""
    found = {}
    for path in (folder / path for path in paths):
        assert path.exists(), f"{path} was not written"
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and file.suffix not in (".xml", ".sarif"):
                found[str(file.relative_to(folder))] = file.read_bytes()
    return found


def attempts(folder):
    """What is tried, by the answer that is expected."""
    other = folder / "other"
    paths = {f"{what}={other / 'secret'}": "EACCES" for what in ("read", "write", "remove")}
    paths |= {f"{what}={other / 'secret'}": "EPERM" for what in ("truncate", "chmod", "touch", "xattr")}
    paths |= {f"list={other}": "EACCES", f"make={other / 'new'}": "EACCES", f"link={other / 'new'}": "EACCES"}
    paths |= {f"make={folder / 'tmp' / 'new'}": "EACCES", "read=/etc/passwd": "EACCES"}
    paths |= {"list=/": "EACCES", f"make={folder / 'new'}": "EACCES"}
    # What may be read may not be changed by its descriptor, nor emptied by being opened.
    lasting = folder / "in" / "folder" / "config.json"
    paths |= {f"{what}={lasting}": "EPERM" for what in ("empty", "empty-unread", *BY_DESCRIPTOR)}
    paths |= {f"{what}={other / 'secret'}": "EPERM" for what in ("open-unread", "attributes")}
    paths |= {f"{what}={folder / 'out' / 'new'}": "EPERM" for what in ("make-suid", "node")}
    paths["parent"] = "EACCES"
    calls = dict.fromkeys(CALLS, "EPERM")
    return {**paths, **calls, "clone3": "ENOSYS", "openat2": "ENOSYS", "newer": "ENOSYS", "memory": "ENOMEM"}


def check_attempts(result, expected):
    """Each attempt ended as expected, in their order."""
    got = re.findall(r"^sandbox: (\S+): (\w+)$", result.err.decode(), re.MULTILINE)
    wanted = [(what.partition("=")[0], answer) for what, answer in expected.items()]
    if SANITIZED:
        got = [(what, dict(wanted)[what] if what in RELAXED and answer == "sanitizer" else answer) for what, answer in got]
    check_equal(got, wanted, "how the attempts ended", result)


def confined(line, outputs, folder):
    sample(folder)
    expected = attempts(folder)
    config = folder / "in" / "folder" / "config.json"
    config.chmod(0o600)
    if not outputs and not line.startswith("keygen"):
        expected[f"fchmod={config}"] = "EPERM"
    if line.startswith(("index", "keygen")):  # which don't even read there
        expected |= {f"{what}={config}": "EACCES" for what in BY_DESCRIPTOR}
    if not line.startswith(("append", "edit -q in/model", "manifest")):
        expected[f"make={folder / 'in' / 'new'}"] = "EACCES"
        expected[f"write={folder / 'in' / 'model.safetensors'}"] = "EACCES"
    hook = {"TCONV_TEST_SANDBOX": "\n".join(expected)}
    result = tconv(*words(line, "require"), cwd=folder, env=environment(folder, **hook))
    check_equal(result.code, CODES.get(line, OK), "exit code", result)
    check_attempts(result, expected)
    check_equal(config.stat().st_mode & 0o7777, 0o600, "mode of a file beside the input")
    check_equal(config.read_text(), "{}", "a file beside the input")
    check_equal(sorted(path.name for path in (folder / "tmp").iterdir()), [], "temporary files")


def same_output(line, outputs, folder):
    """With the sandbox and without it the same bytes come out."""
    seen = []
    for mode in ("off", "require", "auto"):
        place = folder / mode
        place.mkdir()
        sample(place)
        result = tconv(*words(line, mode), cwd=place, env=environment(place))
        faults = health_faults(result)
        if faults or result.code != CODES.get(line, OK):
            raise result.failed(*faults, f"got exit code {result.code} with --sandbox={mode}")
        seen.append((result.out, result.err, contents(place, outputs)))
    check_equal(seen[1], seen[0], "with the sandbox")
    check_equal(seen[2], seen[0], "with what the kernel has")


def older_kernels(line, abi, folder):
    """Every command works with every version of Landlock."""
    sample(folder)
    # What older versions let through seccomp denies.
    more = {f"{what}={folder / 'in' / 'more.npy'}": "EPERM" for what in ("empty", "empty-unread")}
    more |= {"owner": "EPERM"}
    env = environment(folder, TCONV_TEST_LANDLOCK=str(abi), TCONV_TEST_SANDBOX="\n".join(["read=/etc/passwd", "socket", *more]))
    result = tconv(*words(line, "require"), cwd=folder, env=env)
    writes = "out/" in line or line.startswith(("append", "edit", "manifest"))
    if abi == 0 or (abi == 1 and writes and "--dry-run" not in line):
        check_equal(result.code, IO, "exit code", result)
        assert b"the sandbox is not complete" in result.err, result.err
        verbose = [] if line.startswith("keygen") else ["-v"]
        result = tconv(*words(line, "auto"), *verbose, cwd=folder, env=env)
        assert not verbose or b"tconv: note: the sandbox is not complete: files (Landlock" in result.err, result.err
        answers = {"read": "allowed", "socket": "EPERM", **more}
    else:
        answers = {"read": "EACCES", "socket": "EPERM", **more}
    check_equal(result.code, CODES.get(line, OK), "exit code", result)
    check_attempts(result, answers)


def without_seccomp(folder):
    sample(folder)
    env = environment(folder, TCONV_TEST_SECCOMP="0", TCONV_TEST_SANDBOX="read=/etc/passwd\nfork")
    result = expect(folder, IO, "list", "--sandbox=require", "in/model.safetensors", env=env)
    assert b"system calls (seccomp)" in result.err, result.err
    result = expect(folder, OK, "list", "-v", "in/model.safetensors", env=env)
    assert b"tconv: note: the sandbox is not complete: system calls (seccomp)" in result.err
    check_attempts(result, {"read": "EACCES", "fork": "allowed"})
    result = expect(folder, OK, "list", "in/model.safetensors", env=env)
    assert b"note" not in result.err, result.err


def switched_off(folder):
    sample(folder)
    other = folder / "other"
    tries = {f"read={other / 'secret'}": "allowed", f"make={other / 'new'}": "allowed", "socket": "allowed"}
    env = environment(folder, TCONV_TEST_SANDBOX="\n".join([*tries, "privileges", "fork"]))
    result = expect(folder, OK, "list", "--sandbox=off", "in/model.safetensors", env=env)
    check_attempts(result, {**tries, "privileges": "allowed", "fork": "allowed"})


def foreign_calls(folder):
    """A system call of another architecture ends the process."""
    sample(folder)
    env = environment(folder, TCONV_TEST_SANDBOX="foreign")
    result = tconv("list", "in/model.safetensors", cwd=folder, env=env)
    check_equal(result.code, -signal.SIGSYS, "exit code", result)


def wrong_word(folder):
    sample(folder)
    for command in COMMANDS:
        result = tconv(command, "--sandbox=perhaps", "in/model.safetensors", "x", cwd=folder)
        check_equal(result.code, USAGE, command, result)
        assert b"--sandbox" in result.err, result.err


def every_command(folder):
    """No command is without a row here, and each has the option in its help."""
    listed = re.findall(r"^  (\w+) ", tconv("--help").out.decode().partition("Commands:")[2], re.MULTILINE)
    check_equal(sorted(listed), sorted({*COMMANDS, *TRIVIAL, *REMOTE}), "commands")
    for command in COMMANDS:
        assert b"--sandbox auto|require|off" in tconv(command, "--help").out, command
    for command in TRIVIAL:
        assert b"--sandbox" not in tconv(command, "--help").out, command


# Links


def shards(folder, name="model"):
    """A model of two shards; returns the names of its files, the index last."""
    source = folder / "whole.safetensors"
    source.write_bytes(files.safetensors({"a": f32(*range(9000)), "b": f32(*range(9000))}))
    expect(folder, OK, "-q", "--sandbox=off", source, f"{name}.safetensors", "--shard-size", "40K")
    source.unlink()
    names = sorted(path.name for path in folder.iterdir())
    check_equal(len(names), 3, "two shards and an index")
    return names


def cache_of_links(folder):
    """As the Hub's client keeps models: a folder of links to blobs."""
    blobs, snapshot = folder / "cache" / "blobs", folder / "cache" / "snapshots" / "main"
    for path in (blobs, snapshot, folder / "out"):
        path.mkdir(parents=True)
    for number, name in enumerate(shards(blobs)):
        (blobs / name).rename(blobs / f"{number:040x}")
        (snapshot / name).symlink_to(f"../../blobs/{number:040x}")
    index = snapshot / "model.safetensors.index.json"
    expect(folder, OK, "hash", "--sandbox=require", index)
    expect(folder, OK, "-q", "--sandbox=require", index, "out/model.npz")
    expect(folder, OK, "verify", "--sandbox=require", index)
    (folder / "latest").symlink_to(snapshot)
    expect(folder, OK, "list", "--sandbox=require", "latest/model.safetensors.index.json")


def links_beside_an_index(folder):
    """The index is a file, its shards are links to other folders, by absolute paths too."""
    for name in ("store", "far/away", "model"):
        (folder / name).mkdir(parents=True)
    first, second, index = sorted(shards(folder / "store"), key=lambda name: "index" in name)
    (folder / "store" / index).rename(folder / "model" / index)
    (folder / "store" / second).rename(folder / "far" / "away" / second)
    (folder / "model" / first).symlink_to(folder / "store" / first)
    (folder / "model" / second).symlink_to(f"../far/away/{second}")
    (folder / "store" / "secret").write_text("secret")
    (folder / "tmp").mkdir()
    tries = [f"read={folder / 'store' / name}" for name in ("secret", first)]
    env = environment(folder, TCONV_TEST_SANDBOX="\n".join(tries))
    result = expect(folder, OK, "list", "--sandbox=require", f"model/{index}", env=env)
    check_equal(re.findall(rb"sandbox: read: (\w+)", result.err), [b"EACCES", b"allowed"], "reads")


def link_out_of_reach(folder):
    """Data below the model's folder that is a link elsewhere: refused, and the error says why."""
    sample(folder)
    (folder / "m").mkdir()
    expect(folder, OK, "-q", "in/model.safetensors", "m/m.onnx", "--onnx-external")
    if not (folder / "m" / "m.onnx.data").exists():
        big = {"w": f32(*range(1000))}
        (folder / "in" / "big.safetensors").write_bytes(files.safetensors(big))
        expect(folder, OK, "-q", "in/big.safetensors", "m/m.onnx", "--onnx-external")
    model = (folder / "m" / "m.onnx").read_bytes()
    assert b"m.onnx.data" in model
    (folder / "m" / "d").mkdir()
    (folder / "m" / "m.onnx").write_bytes(model.replace(b"m.onnx.data", b"d/onnx.data"))
    (folder / "m" / "m.onnx.data").rename(folder / "other" / "data")
    (folder / "m" / "d" / "onnx.data").symlink_to("../../other/data")
    result = expect(folder, IO, "list", "m/m.onnx", env=environment(folder))
    assert b"Permission denied" in result.err and b"--sandbox=off" in result.err, result.err
    expect(folder, OK, "list", "--sandbox=off", "m/m.onnx")


# Outputs and inputs that are no plain files


def shell(folder, script, env=None):
    result = run("bash", "-euo", "pipefail", "-c", script, cwd=folder, env={"TCONV": TCONV, **(env or {})})
    faults = health_faults(result)
    if faults or result.code:
        raise result.failed(*faults, f"got exit code {result.code}")
    return result


def pipes(folder):
    sample(folder)
    env = environment(folder)
    run_ = '"$TCONV" --sandbox=require -q'
    shell(folder, f"cat in/model.safetensors | {run_} - -t safetensors -o out/a.safetensors", env)
    shell(folder, f"cat in/model.safetensors | {run_} - -t safetensors -o - | cat > out/b.safetensors", env)
    shell(folder, f"{run_} - -t safetensors -o - < in/model.safetensors > out/c.safetensors", env)
    shell(folder, f"{run_} in/model.safetensors -t safetensors -o /dev/stdout | cat > out/d.safetensors", env)
    shell(folder, f"mkfifo out/fifo; cat out/fifo > out/e.safetensors & {run_} in/model.safetensors -t safetensors -o out/fifo; wait", env)
    shell(folder, f"{run_} /dev/stdin -t safetensors -o out/f.safetensors < in/model.safetensors", env)
    shell(folder, f"{run_} in/model.safetensors -t safetensors -o /dev/null", env)
    results = {name: tconv("hash", "--digest", f"out/{name}.safetensors", cwd=folder).out.split()[0] for name in "abcdef"}
    check_equal(len(set(results.values())), 1, f"digests {results}")
    check_equal((folder / "tmp").exists() and list((folder / "tmp").iterdir()), [], "temporary files")


def device_outputs(folder):
    """Writing to a device does not open its folder."""
    sample(folder)
    tries = {"make=/dev/new": "EACCES", "write=/dev/zero": "EACCES", "read=/dev/zero": "EACCES"}
    env = environment(folder, TCONV_TEST_SANDBOX="\n".join(tries))
    result = tconv("--sandbox=require", "-q", "in/model.safetensors", "-t", "safetensors", "-o", "/dev/null", cwd=folder, env=env)
    check_equal(result.code, OK, "exit code", result)
    check_attempts(result, tries)


def folder_outputs(folder):
    sample(folder)
    (folder / "out" / "there").mkdir()
    (folder / "link").symlink_to("out/linked")
    (folder / "out" / "linked").mkdir()
    for target in ("out/new/", "out/there/", "link/", f"{folder}/out/absolute/"):
        expect(folder, OK, "-q", "--sandbox=require", "in/model.safetensors", target, "-t", "npy", env=environment(folder))
        check_equal(len(list((folder / target).glob("*.npy"))), 3, target)
    here = folder / "here"
    here.mkdir()
    expect(here, OK, "-q", "--sandbox=require", "../in/model.safetensors", "./", "-t", "npy")
    expect(here, OK, "-q", "--sandbox=require", "../in/model.safetensors", "x.npz")


def replaced_outputs(variables, folder):
    """Old files make way for new ones, shards too, with journal and all."""
    sample(folder)
    env = environment(folder, **dict.fromkeys(variables, "1"))
    for size in ("64K", "100M", "64K"):
        shards = ["in/model.safetensors", "out/m.safetensors", "--shard-size", size]
        expect(folder, OK, "-q", "--sandbox=require", *shards, env=env)
    for _ in range(2):
        receipt = ["in/model.safetensors", "out/m.npz", "--receipt", "other/x.json"]
        expect(folder, OK, "-q", "--sandbox=require", *receipt, env=env)
        more = ["--replace", "in/model.safetensors", "in/more.npy"]
        expect(folder, OK, "append", "-q", "--sandbox=require", *more, env=env)
    check_equal([path.name for path in folder.rglob(".*")], [], "nothing left behind")


def with_few_descriptors(folder):
    sample(folder)
    prefix = ("sh", "-c", 'ulimit -n 32 && exec "$0" "$@"')
    expect(folder, OK, "-q", "--sandbox=require", "in/model.safetensors", "out/x/", "-t", "npy", prefix=prefix)


def as_somebody(folder):
    """Without root's power a process that can't be dumped sees less of itself in /proc."""
    sample(folder)
    folder.chmod(0o777)
    for path in folder.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    how = {"prefix": unprivileged(), "env": environment(folder)}
    for line in ("-q in/model.safetensors out/m.npz", "-q in/model.safetensors out/d/ -t npy", "hash in/whole.npz"):
        result = tconv(*words(line, "require"), cwd=folder, **how)
        check_equal(result.code, OK, line, result)
    shell(folder, 'cat in/model.safetensors | "$TCONV" --sandbox=require -q - -t safetensors -o out/p.npz', environment(folder))


# Memory


def memory_is_enough(folder):
    """The limit of the process lets all through that --max-memory lets through."""
    sample(folder)
    big = {f"t{i}": f32(*range(256)) for i in range(2000)}
    (folder / "in" / "many.safetensors").write_bytes(files.safetensors(big))
    zeros = {"z": files.Tensor("F32", [16 * MIB // 4], bytes(16 * MIB))}
    (folder / "in" / "zeros.safetensors").write_bytes(files.safetensors(zeros))
    for limit in ("2M", "64M", "0"):
        for line in ("out/m.npz --compress=9", "out/m.pt", "out/m.deathtensors --compress", "out/m.onnx", "out/m.tfrecord"):
            out, *rest = line.split()
            expect(folder, OK, "-q", "--sandbox=require", f"--max-memory={limit}", "in/many.safetensors", "-o", out, *rest)
    for level in (1, 19, 22):
        out = f"out/{level}.deathtensors"
        expect(folder, OK, "-q", "--sandbox=require", "--max-memory=1M", "in/zeros.safetensors", out, f"--compress={level}")
        expect(folder, OK, "hash", "--sandbox=require", "--max-memory=1M", out)


def memory_is_limited(folder):
    if SANITIZED:
        raise Skip("sanitizers take all memory there is")
    sample(folder)
    for option, most in (([], 4096), (["--max-memory=16M"], 1024), (["--max-memory=8G"], 12288)):
        env = environment(folder, TCONV_TEST_SANDBOX="memory")
        result = expect(folder, OK, "list", *option, "in/model.safetensors", env=env)
        check_attempts(result, {"memory": "ENOMEM"})
        shown = run("prlimit", "--version")
        if shown.code == OK:
            script = 'strace -qq -e trace=prlimit64 "$TCONV" list "$@" in/model.safetensors 2>&1'
            if shutil.which("strace"):
                out = shell(folder, f"set -- {' '.join(option)}; {script}").out.decode()
                (kib,) = re.findall(r"RLIMIT_DATA, \{rlim_cur=(\d+)\*1024", out)
                assert int(kib) <= most * 1024, f"{option}: {kib} KiB"
    env = environment(folder, TCONV_TEST_SANDBOX="memory")
    result = expect(folder, OK, "list", "--max-memory=0", "in/model.safetensors", env=env)
    check_attempts(result, {"memory": "allowed"})


def cases():
    for command, lines in COMMANDS.items():
        for number, (line, outputs) in enumerate(lines):
            yield f"confined {command} {number}", lambda folder, line=line, outputs=outputs: confined(line, outputs, folder)
            if one_in(3, f"same {command} {number}"):
                yield f"same {command} {number}", lambda folder, line=line, outputs=outputs: same_output(line, outputs, folder)
        for abi in filter(lambda abi: one_in(3, f"abi {abi} {command}"), range(7)):
            yield f"abi {abi} {command}", lambda folder, line=lines[0][0], abi=abi: older_kernels(line, abi, folder)
    for name, variables in (
        ("without names", []),
        ("staged", ["TCONV_TEST_NAMED"]),
        ("without links", ["TCONV_TEST_NAMED", "TCONV_TEST_NO_LINKS"]),
    ):
        yield f"replaced outputs {name}", lambda folder, variables=variables: replaced_outputs(variables, folder)
    for case in (
        every_command,
        wrong_word,
        without_seccomp,
        switched_off,
        foreign_calls,
        cache_of_links,
        links_beside_an_index,
        link_out_of_reach,
        pipes,
        device_outputs,
        folder_outputs,
        with_few_descriptors,
        as_somebody,
        memory_is_enough,
        memory_is_limited,
    ):
        yield case.__name__, case


if __name__ == "__main__":
    suite = Suite(__doc__.partition("\n")[0])
    sys.exit(suite.run(cases()))
