#!/usr/bin/env python3
"""Every call that can fail fails once, and from there on: in every pair of formats, every command.

In the manner of SQLite: for each class of calls (faults.CLASSES) the Nth fails, and the Nth and all
after it, for N = 1, 2, … until the command no longer gets that far. A run ends with its output
whole and right, or with exit code 6, a message that says what failed, and everything as it was.
Reads and writes that do half of what they were asked for, or are interrupted, must do no harm at
all. Then two faults at once, at random, others in each run with --full; TCONV_TEST_SEED=N repeats those.

The quick part is a selection; --full takes all. One fault by hand:

    TCONV_TEST_FAULT=write:3 build/test/tconv in.safetensors out.npz
"""

import atexit
import collections
import functools
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import zlib

import faults
import fault_scenarios
from faults import CLASSES, TRANSFERS, Bench, Scenario
from harness import COVERAGE, FEWER, FULL, IO, OK, REMOTE, SANITIZED, SEED, TCONV, UNSUPPORTED, Failed, Skip, Suite, check_equal

MOST_CALLS = 20_000
# The quick part takes each fault of a few commands, and every nth of the others. A run takes
# ten times as long under a sanitizer, and what that adds are leaks where memory fails. To count
# lines more of them are made: many a line runs only where one certain call fails.
STRIDE = 1 if FULL and not SANITIZED else 5 if FULL or COVERAGE else 20 if SANITIZED else 64
WHOLE = () if SANITIZED else ("convert", "shards over old")
FEW = ("convert, json", "signed receipt of shards", "append", "stats page", "diff", "scan a folder")
PAIRS = (400 if FULL else 8) // (8 if SANITIZED else 1)

counts, counting = collections.Counter(), threading.Lock()


def inject(bench, plan, partly=False):
    """One run with faults; False where it did not get that far."""
    run = bench.run(plan)
    if not run.faults and run.code >= 0:
        if run.code != bench.whole.code:
            raise run.failed(f"expected: exit {bench.whole.code}, since nothing failed")
        bench.reset(faults.contents(bench.place))
        return False
    problems = faults.judge(run, bench, partly)
    if problems:
        raise run.failed(*problems)
    return True


def numbers(case_id, plan, calls, stride):
    """1, 2, 3, …, or every nth, from a place of its own for each case and plan; of few calls
    one at least."""
    stride = min(stride, max(1, calls))
    start = 1 + zlib.crc32(f"{case_id} {plan}".encode()) % stride
    return range(start, MOST_CALLS, stride)


def each_fault(case_id, scenario, stride, folder):
    bench = Bench(scenario, folder)
    made, problems = collections.Counter(), []
    modes = ("", "+") if FULL or not FEWER else ("",)
    plans = [(kind, f"{kind}:%d{mode}", False) for kind in CLASSES for mode in modes]
    if FULL or not FEWER:
        plans += [(kind, f"{kind}/short:%d+", True) for kind in TRANSFERS]
        plans += [(kind, f"{kind}/EINTR:%d", True) for kind in TRANSFERS]
    try:
        for kind, plan, partly in plans:
            for number in numbers(case_id, plan, bench.whole.calls[kind], stride):
                try:
                    if not inject(bench, plan % number, partly):
                        break
                except Failed as problem:
                    problems.append(str(problem))
                made[kind] += 1
                if len(problems) >= 5:
                    break
    finally:
        bench.close()
    with counting:
        counts.update(made)
    if problems:
        raise Failed("\n\n".join(problems))


def random_pairs(case_id, scenario, folder):
    """Two faults in one run, each alone or with all that follow."""
    dice = random.Random(f"{SEED} {case_id}")
    bench = Bench(scenario, folder)
    calls = {kind: count for kind, count in bench.whole.calls.items() if count}
    try:
        for _ in range(PAIRS):
            plan = ",".join(
                f"{kind}:{dice.randint(1, calls[kind])}{dice.choice(('', '+'))}"
                for kind in dice.choices(sorted(calls), k=2)
            )
            try:
                inject(bench, plan)
            except Failed as problem:
                raise Failed(f"TCONV_TEST_SEED={SEED}\n{problem}") from None
    finally:
        bench.close()
    with counting:
        counts["pairs"] += PAIRS


def convertible(case_id, scenario, stride, folder):
    """A pair of formats, unless the one can't hold what the other has."""
    try:
        each_fault(case_id, scenario, stride, folder)
    except Failed as problem:
        if "without faults" in str(problem) and f"exit {UNSUPPORTED}," in str(problem):
            raise Skip("the target can't hold this") from None
        raise


KILLED = Scenario(
    ("in.safetensors", "out.safetensors", "--shard-size", "1000", "-q"),
    fault_scenarios.OLD,
    (("old.safetensors", "out.safetensors", "--shard-size", "1000"),),
)


def recovery(step, stride, folder):
    """After a kill while files are put in place, a run whose own calls fail, too: what it leaves is
    put right by the next run, though that one fails for another reason."""
    bench = Bench(KILLED, folder)
    made = collections.Counter()
    try:
        for kind, mode in itertools.product(CLASSES, ("", "+")):
            for number in numbers(f"recovery {step}", kind + mode, bench.whole.calls[kind], stride):
                bench.reset(faults.contents(bench.place))
                killed = bench.server.run(
                    KILLED.arguments, bench.place, environment={"TCONV_TEST_KILL": str(step)}
                )
                if killed.code != -signal.SIGKILL:
                    raise Skip(f"it has fewer than {step} steps")
                run = bench.run(f"{kind}:{number}{mode}")
                if not run.faults and run.code >= 0:
                    break
                made[kind] += 1
                if run.code not in (OK, IO):
                    raise run.failed(f"expected: exit {OK} or {IO}")
                bench.run("write:1+")
                found = faults.contents(bench.place)
                if found != bench.old and not bench.is_new(found):
                    raise run.failed(
                        f"killed at step {step}; the run after this one left neither old nor new:",
                        faults.difference(bench.old, found),
                    )
    finally:
        bench.close()
    with counting:
        counts.update(made)


# Functions that the program calls and that need no fault: they can't fail, fail only by the
# program's own mistake, or are printing, for which cmd/test/test_machine.py has full disks.
NEVER_FAIL = re.compile(
    r"""_|mem|str|isatty|f?print|fputs|putc|puts|fwrite|fflush|ferror|fclose|qsort|pthread_(attr|mutex|cond|join|self|sigmask)
    |sig|raise|umask|get(env|pid|ppid|euid|auxval)|clock_gettime|gmtime_r|nanosleep|sysconf|free|malloc_usable|malloc_trim
    |closedir|dirfd|alarm|chdir|dup2|putenv|unsetenv|atexit|backtrace|dprintf|abort|_exit|kill|waitpid
    |poll|munmap|ldexp|hypot|fmax|ilogb|sqrt|v?snprintf|crc32|crypto_|randombytes|sodium_memzero|json_|protobuf_c
    |ZSTD_(free|is|get|CStream|DCtx_set)|EVP_(Digest(Update|Final)|MD_CTX_free|sha1|sha256)|BZ2_bzDecompressEnd
    |environ|time(gm)?$|stdout|stderr|setvbuf|_?longjmp|globfree|inet_(aton|pton)|shutdown|lzma_end|pcre2_(code_free|get|match_(context|data)_free|set)|isal_|ioctl|setrlimit|prlimit|posix_fadvise|sync_file_range""",
    re.X,
)
# Only the hooks of tests call these (cmd/sandbox_probe.c, cmd/fork_server.c).
ONLY_TESTS = set(
    "chmod close_range execve fchown fopen64 fsetxattr futimens listxattr mknod pipe prlimit64 ptrace "
    "sendto setpgid setxattr socket symlink truncate64 unshare utimensat wait4".split()
)


def nothing_missed(folder):
    """Every function of a library that can fail is wrapped."""
    if SANITIZED:
        raise Skip("a sanitizer has names of its own")
    nm = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
    wanted = {
        line.split()[-1].partition("@")[0]
        for line in nm(["nm", "-D", "--undefined-only", TCONV]).stdout.splitlines()
    }
    wrapped = {
        line.split()[-1].removeprefix("__wrap_")
        for line in nm(["nm", "--defined-only", TCONV]).stdout.splitlines()
        if "__wrap_" in line
    }
    missed = {name for name in wanted - wrapped - ONLY_TESTS if not NEVER_FAIL.match(name)}
    check_equal(sorted(missed), [], "calls that no test lets fail (cmd/test/wrapped_calls.c)")


# Options that do not change which files are written, or how: what is in them, what is read and
# printed, and what does not concern a file that a scenario of another command has not got already.
NOT_ABOUT_FILES = set(
    """checksum no-checksum order metadata drop-metadata tied ot-dialect densify strict dry-run progress
    progress-fd dtype lossy saturate restore-dtype include exclude filter sort rows rename map
    strip-prefix prefix from variant max-header max-tensors max-memory max-size max-pickle npy-void
    pickle strings sandbox json quiet verbose help plan to no-sync plot schema pubkey allow keep-going
    files0-from jobs makefile compress align no-verify receipt-tensors atol rtol ignore-metadata full requests
    gguf-version dequantize repo-type revision private create-pr message delete-original
    threads tree""".split()
)
# A batch hands them to the conversions, which have them in scenarios of their own; so do others
# that carry out a plan.
SHARED = set(
    """keep-metadata onnx-external verify receipt sign depfile no-clobber if-changed keep-shards
    per-tensor only-weights merge shard-size prune""".split()
)


def command_of(scenario):
    first = scenario.arguments[0]
    return first if first in fault_scenarios.commands() else "convert"


def all_commands(folder):
    """Each command has scenarios, and each option by which it writes files is in one of them."""
    every = {**fault_scenarios.WRITING, **fault_scenarios.READING, **fault_scenarios.remote_scenarios()}
    tried = {command_of(scenario) for scenario in every.values()}
    check_equal(sorted(fault_scenarios.commands() - tried), ["version"], "commands without a scenario")
    used = collections.defaultdict(set)
    for scenario in every.values():
        words = {word.partition("=")[0] for word in scenario.arguments}
        used[command_of(scenario)] |= words
        used["all"] |= words
    missing = []
    for name in sorted(fault_scenarios.commands()):
        for options in fault_scenarios.options(name):
            long = options[0].removeprefix("--")
            known = used["all" if long in SHARED else name]
            if long not in NOT_ABOUT_FILES and not known & set(options):
                missing.append(f"{name} --{long}")
    check_equal(missing, [], "options that no scenario has (cmd/test/fault_scenarios.py)")
def pull(stride, folder):
    """What a failed run leaves in the Hub's cache is no content that is not whole, and the next run goes on with it."""
    hub, environment = fault_scenarios.remote()
    repo = hub.repos["models/org/model"]
    whole = repo.commits[repo.refs["main"]]
    server, made = faults.Commands(folder), collections.Counter()
    cache = folder / "cache"
    variables = {**environment, "HF_HUB_CACHE": str(cache)}
    words = ("hub", "pull", "org/model")

    def check(run):
        for path in cache.rglob("blobs/*"):
            data = path.read_bytes()
            if not path.name.endswith(".incomplete") and data not in whole.values():
                raise run.failed(f"{path.name} is not whole")

    try:
        for kind, mode in itertools.product(CLASSES, ("", "+")):
            for number in numbers("pull", kind + mode, 100, stride):
                shutil.rmtree(cache, ignore_errors=True)
                run = server.run(words, folder, f"{kind}:{number}{mode}", variables)
                if not run.faults and run.code == OK:
                    break
                made[kind] += 1
                not_loaded = run.code == UNSUPPORTED and b"libcurl" in run.err
                if run.code not in (OK, IO) and not not_loaded:
                    raise run.failed(f"expected: exit {OK} or {IO}")
                check(run)
                again = server.run(words, folder, "", variables)
                if again.code != OK:
                    raise again.failed(f"expected: exit {OK} after {kind}:{number}{mode}")
                found = {path.name: path.read_bytes() for path in cache.glob("*/snapshots/*/*")}
                check_equal(found == whole, True, f"the snapshot after {kind}:{number}{mode}")
    finally:
        server.end()
    with counting:
        counts.update(made)


def cases():
    yield "nothing missed", nothing_missed
    yield "all commands", all_commands
    if REMOTE and (FULL or not SANITIZED):
        yield "hub pull", functools.partial(pull, STRIDE)
        for name, scenario in fault_scenarios.remote_scenarios().items():
            yield f"command {name}", functools.partial(each_fault, name, scenario, STRIDE)
    some = FULL or not FEWER
    for name, scenario in {**fault_scenarios.WRITING, **fault_scenarios.READING}.items():
        if some or name in FEW:
            stride = 1 if name in WHOLE else STRIDE
            yield f"command {name}", functools.partial(each_fault, name, scenario, stride)
            yield f"two faults {name}", functools.partial(random_pairs, name, scenario)
    for step in range(1, 60, 1 if FULL else 9) if some else ():
        yield f"recovery {step}", functools.partial(recovery, step, STRIDE)
    for name, scenario in fault_scenarios.pairs():
        if FULL or zlib.crc32(name.encode()) % (40 if FEWER else 8) == 0:
            yield f"pair {name}", functools.partial(convertible, name, scenario, STRIDE)


if __name__ == "__main__":
    print(f"seed {SEED}")
    atexit.register(
        lambda: print("faults:", ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    )
    suite = Suite(__doc__.partition("\n")[0])
    sys.exit(suite.run(cases()))
