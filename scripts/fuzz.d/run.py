"""Runs fuzz targets side by side: run.py explore|grow|fixed SECONDS [TARGET...]. See scripts/fuzz."""

import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import dictionaries
import seeds

BUILD = Path("build/fuzz")
CORPUS = Path("build/fuzz-corpus")
FINDINGS = Path("build/fuzz-findings")
LOGS = Path("build/logs")
KEPT = Path("testdata/fuzz")
# The promise is 256 MiB for small files, of which tables may take 176 (core/base/memory.h). The
# sanitizers' own memory is about as much again.
LIMITS = ["-rss_limit_mb=1024", "-malloc_limit_mb=192", f"-max_len={seeds.LARGEST}"]
# What an input may take is processor time, and the targets see to it themselves: libFuzzer's own
# limits are by the clock, which runs on while other programs have the processor.
LIMITS += ["-timeout=1200", "-report_slow_units=1200"]
# What is kept of a target at most: its smallest inputs first.
KEPT_BYTES = 160_000
KEPT_LENGTH = 8192
# How many inputs --fixed makes for a target, in three minutes or so on two cores for all of them together.
FIXED_RUNS = 200_000
# Those that take longer for an input than others.
FEWER_RUNS = {"roundtrip": 32, "scan": 8, "archive": 8, "folder": 4, "checkpoint": 4, "pt": 2, "ot": 2, "zip": 2, "pickle": 2, "wire": 2, "document": 2}


@dataclass
class Outcome:
    target: str
    executions: int = 0
    edges: int = 0
    inputs: int = 0
    seconds: float = 0
    findings: list = field(default_factory=list)
    log: Path = None


def spent(process):
    """The processor seconds of a process that runs."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(command, log, folder, seconds=0):
    """Runs a command with its own temporary folder; its exit status and processor seconds. Where
    `seconds` of these are given, it is asked to end then, by a signal that libFuzzer takes."""
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, "TMPDIR": folder},
        )
        ended = 0
        while not ended:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG if seconds else 0)
            if not ended:
                time.sleep(0.2)
                if spent(process) >= seconds:
                    os.kill(process.pid, signal.SIGUSR1)  # Popen's own way would reap it first
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def last(pattern, text):
    found = re.findall(pattern, text, re.M)
    return int(found[-1]) if found else 0


def kept_paths(target):
    """What replay runs a target on: what is kept, and testdata of the format itself."""
    return [path for path in (KEPT / target, Path("testdata") / target) if path.is_dir()]


def fixed(target, folder):
    """The kept inputs, and others that are made of them by a fixed generator."""
    outcome = Outcome(target, log=LOGS / f"fuzz-{target}.log")
    save = FINDINGS / target
    save.mkdir(parents=True, exist_ok=True)
    words = dictionaries.write(target, Path(folder))
    runs = FIXED_RUNS // FEWER_RUNS.get(target, 1)
    command = [BUILD / "replay", "--runs", runs, "--dictionary", words, "--save", save, target]
    status, outcome.seconds = run([*command, *kept_paths(target)], outcome.log, folder)
    text = outcome.log.read_text(errors="replace")
    outcome.inputs = sum(1 for path in kept_paths(target) for file in path.rglob("*") if file.is_file())
    passed, failed = last(r"^(\d+) passed", text), last(r"passed, (\d+) failed$", text)
    outcome.executions = passed + failed
    outcome.findings = re.findall(r"^\w+: saved as (.*)$", text, re.M)
    if (status or not passed) and not outcome.findings:
        outcome.findings = [f"exit status {status}, see {outcome.log}"]
    return outcome


def explore(target, folder, seconds):
    outcome = Outcome(target, log=LOGS / f"fuzz-{target}.log")
    corpus, first, found = CORPUS / target, Path(folder) / "seeds", FINDINGS / target
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    seeds.write(target, first)
    words = dictionaries.write(target, Path(folder))
    command = [BUILD / f"fuzz_{target}", *LIMITS, "-print_final_stats=1"]
    command += [f"-dict={words}", f"-artifact_prefix={found}/", corpus, first, found]
    status, outcome.seconds = run([*command, *kept_paths(target)], outcome.log, folder, seconds)
    text = outcome.log.read_text(errors="replace")
    outcome.executions = last(r"^stat::number_of_executed_units: *(\d+)", text) or last(r"^#(\d+)\s", text)
    outcome.edges = last(r" cov: (\d+) ", text)
    outcome.inputs = sum(1 for _ in corpus.iterdir())
    outcome.findings = re.findall(r"Test unit written to (\S+)", text)
    if status and not outcome.findings:
        tried = re.findall(r"^Running: (\S+)", text, re.M)
        outcome.findings = tried[-1:] or [f"exit status {status}, see {outcome.log}"]
    return outcome


def keep(target, folder):
    """Replaces what is kept of a target by the fewest inputs that reach as much, within bounds."""
    chosen = Path(folder) / "chosen"
    chosen.mkdir()
    first = Path(folder) / "seeds"
    sources = [path for path in (KEPT / target, CORPUS / target, first) if path.is_dir()]
    command = [BUILD / f"fuzz_{target}", *LIMITS, "-set_cover_merge=1", f"-max_len={KEPT_LENGTH}", chosen]
    status, _ = run([*command, *sources], LOGS / f"fuzz-keep-{target}.log", folder)
    if status:
        return f"{target}: keeping failed, see {LOGS}/fuzz-keep-{target}.log"
    shutil.rmtree(KEPT / target, ignore_errors=True)
    (KEPT / target).mkdir(parents=True)
    total = count = 0
    for path in sorted(chosen.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
        total += path.stat().st_size
        if total > KEPT_BYTES:
            break
        shutil.copy(path, KEPT / target / path.name[:16])
        count += 1
    return f"{target}: {count} of {sum(1 for _ in chosen.iterdir())} inputs kept"


def report(outcome):
    edges = f"{outcome.edges:6}" if outcome.edges else "     -"
    print(
        f"{outcome.target:<14} {outcome.executions:10} {edges} {outcome.inputs:6} "
        f"{outcome.seconds:8.1f} {len(outcome.findings):8}",
        flush=True,
    )
    for finding in outcome.findings:
        print(f"    {finding}")
        if Path(finding).is_file():
            print(f"    to repeat: build/fuzz/replay {outcome.target} {finding}")
    if outcome.findings:
        lines = outcome.log.read_text(errors="replace").splitlines()
        noise = re.compile(r"^(INFO|#[0-9]+\s|\s+NEW_FUNC|stat::|Running: |Executed )")
        for line in [line for line in lines if not noise.match(line)][:60]:
            print(f"    | {line}")


def work(target, mode, seconds):
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tconv-fuzz-", dir=room) as folder:
        if mode == "fixed":
            return fixed(target, folder), ""
        outcome = explore(target, folder, seconds)
        # What was found is the first thing to look at, and nothing to keep yet.
        return outcome, keep(target, folder) if mode == "grow" and not outcome.findings else ""


def main():
    mode, seconds, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    listed = subprocess.run([BUILD / "replay", "--list"], check=True, capture_output=True, text=True)
    targets = listed.stdout.split()
    for name in names:
        if name not in targets:
            print(f"fuzz: no such target: {name} (there are {' '.join(targets)})", file=sys.stderr)
            return 2
    names = names or targets
    LOGS.mkdir(parents=True, exist_ok=True)
    cores = os.cpu_count() or 1
    share = max(1, seconds * cores // len(names)) if len(names) > cores else seconds
    if mode != "fixed":
        print(f"fuzz: {len(names)} targets, {share} s of processor time each, {cores} at a time", file=sys.stderr)
    print(f"{'target':<14} {'executions':>10} {'edges':>6} {'inputs':>6} {'seconds':>8} {'findings':>8}")
    # Those that take longest start first.
    order = sorted(names, key=lambda name: -FEWER_RUNS.get(name, 1))
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        for outcome, note in pool.map(lambda name: work(name, mode, share), order):
            outcomes.append((outcome, note))
            report(outcome)
            if note:
                print(f"    {note}", flush=True)
    failed = sum(1 for outcome, note in outcomes if outcome.findings or "failed" in note)
    seconds = sum(outcome.seconds for outcome, _ in outcomes)
    executions = sum(outcome.executions for outcome, _ in outcomes)
    print(f"{executions} executions, {seconds:.0f} s of processor time")
    print(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
