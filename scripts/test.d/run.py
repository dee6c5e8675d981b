"""Runs the tests of some builds side by side and counts them: run.py FAILED BUILD... [-- NAME...]

The list is meson's (`meson test` runs the same): unit tests, command-line suites, rules. The longest
start first, by what they took the last time, so that all cores are busy to the end. A line a test as
it ends; the last line is `N passed, N failed`. Logs are in build/logs, one a test, and beside those
of suites their cases (attacks.py).
"""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import attacks

LOGS = Path("build/logs")
SECONDS = LOGS / "seconds.json"
FAILURES = LOGS / "failures.txt"  # what the failed tests said, once more
GIB = 1 << 30
SANITIZER_REPORT = re.compile(rb"(Address|Leak|UndefinedBehavior)Sanitizer|: runtime error: ")
CRITERION = re.compile(rb"Synthesis: Tested: (\d+) \| Passing: (\d+)")
TALLY = re.compile(rb"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
# Each command-line suite, and a unit test that takes some seconds, runs under one of the two compilers'
# sanitizers, other unit tests under both: hostile files under clang's, which find more.
UNDER_CLANG = {"test_attacks", "test_bounds", "test_scan", "test_scan_places", "roundtrip", "read_back", "strided_view", "cast", "contract"}
SLOWEST = 8  # of the tests are named at the end
SAID = re.compile(r"^FAIL |^\[FAIL\]|Sanitizer|: runtime error: ")  # where a failure begins in a log
SAID_LINES = 40  # of each failed test are repeated at the end
NEED_MEMORY = {"test_memory": (14 if os.environ.get("TCONV_FULL") else 7) * GIB}  # on a RAM disk; otherwise on the disk


@dataclass(frozen=True)
class Job:
    build: str
    name: str
    command: tuple
    env: dict
    folder: str
    timeout: float

    @property
    def label(self):
        return f"{self.build} {self.name}"


@dataclass
class Outcome:
    passed: int
    failed: int
    seconds: float
    notes: str


def listed(build):
    """All tests that meson has for a build."""
    text = subprocess.run(
        ["meson", "introspect", f"build/{build}", "--tests"], check=True, capture_output=True
    ).stdout
    for test in json.loads(text):
        group = test["suite"][0].split(":")[-1]
        job = Job(
            build,
            test["name"],
            tuple(test["cmd"]),
            test["env"],
            test["workdir"] or ".",
            test["timeout"],
        )
        yield group, job


def jobs(builds, names):
    """What there is to run; NAMES, where there are any, are all that is wanted, in every build."""
    for build in builds:
        for group, job in listed(build):
            suite = group == "cmd" and job.name.startswith("test_")
            elsewhere = {"asan": job.name in UNDER_CLANG or group == "rules"}
            elsewhere["zlib"] = suite and job.name != "test_remote" or group == "rules"
            elsewhere["coverage"] = group == "rules"
            elsewhere["clang"] = suite and job.name not in UNDER_CLANG or group == "rules"
            # The static analysers take minutes: scripts/test --lint names them.
            wanted = job.name != "static" and not elsewhere.get(build)
            if job.name in names if names else wanted:
                yield job


def unlisted(build):
    """Suites that are in the folder and not in meson's list."""
    names = {job.name for _, job in listed(build)}
    return sorted(path.stem for path in Path("cmd/test").glob("test_*.py") if path.stem not in names)


def available_memory():
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


class Runner:
    def __init__(self, fast, disk):
        self.fast, self.disk = fast, disk
        self.printing = threading.Lock()
        self.totals = {}
        self.seconds = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}

    def run(self, job):
        log = LOGS / f"{job.build}-{job.name}.log"
        cases = log.with_suffix(".cases")
        cases.unlink(missing_ok=True)
        with open(log, "wb") as out:
            needed = NEED_MEMORY.get(job.name, 0)
            place = self.fast if available_memory() > needed else self.disk
            process = subprocess.Popen(
                job.command,
                cwd=job.folder,
                env={
                    **os.environ,
                    **job.env,
                    "TMPDIR": place,
                    "TCONV_TEST_JOBS": "1",
                    "TCONV_TEST_RECORD": str(cases.resolve()),
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            alarm = threading.Timer(job.timeout, os.killpg, (process.pid, signal.SIGKILL))
            alarm.start()
            _, status, usage = os.wait4(process.pid, 0)  # with all that it waited for
            alarm.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        outcome = judge(log, process.returncode, usage.ru_utime + usage.ru_stime)
        with self.printing:
            self.report(job, log, outcome)
        return outcome

    def report(self, job, log, outcome):
        self.seconds[job.label] = round(outcome.seconds, 1)
        self.totals[job.build] = self.totals.get(job.build, 0) + outcome.seconds
        line = f"{job.label:<32} {outcome.passed:5} passed {outcome.failed:3} failed"
        print(f"{line} {outcome.seconds:7.1f} s{outcome.notes}", flush=True)
        if outcome.failed:
            for text in log.read_text(errors="backslashreplace").splitlines()[-200:]:
                print(f"    | {text}")
            print(f"    {log}", flush=True)


def said(log):
    """What a failed test said first of its failures, or last where nothing looks like one."""
    lines = log.read_text(errors="backslashreplace").splitlines()
    first = next((number for number, line in enumerate(lines) if SAID.search(line)), None)
    return lines[-SAID_LINES:] if first is None else lines[first : first + SAID_LINES]


def print_failures(order, outcomes):
    """The failures once more, below everything else: the end is what people see of a long log."""
    with open(FAILURES, "w") as out:
        for job, outcome in zip(order, outcomes):
            if outcome.failed:
                log = LOGS / f"{job.build}-{job.name}.log"
                text = "".join(f"    | {line}\n" for line in said(log))
                print(f"failed: {job.label}{outcome.notes}\n{text}", end="", file=out)
    print(FAILURES.read_text(), end="")


def judge(log, status, seconds):
    """Counts a test from its log: Criterion's synthesis, or a line `N passed, N failed`."""
    text, passed, failed, skipped, notes = log.read_bytes(), 0, 0, 0, ""
    for tested, passing in CRITERION.findall(text):
        passed += int(passing)
        failed += int(tested) - int(passing)
    for match in TALLY.findall(text)[-1:]:
        passed, failed, skipped = (int(number or 0) for number in match)
    # Criterion passes a test whose process leaks: any word from a sanitizer fails it here.
    if SANITIZER_REPORT.search(text):
        notes = "  sanitizer report"
    elif status != 0 and failed == 0:
        notes = f"  exit status {status}"
    elif passed + failed + skipped == 0:
        notes = "  ran nothing"
    if notes:
        failed = max(failed, 1)
    if skipped:
        notes += f"  {skipped} skipped"
    return Outcome(passed, failed, seconds, notes)


def main():
    words = sys.argv[2:]
    split = words.index("--") if "--" in words else len(words)
    failed, builds, names = int(sys.argv[1]), words[:split], words[split + 1 :]
    LOGS.mkdir(parents=True, exist_ok=True)
    disk = tempfile.gettempdir()
    memory = "/dev/shm"
    room = os.path.isdir(memory) and shutil.disk_usage(memory).free > 2 * GIB
    fast = tempfile.mkdtemp(prefix="tconv-tests-", dir=memory if room else disk)
    os.chmod(fast, 0o755)
    try:
        return run_all(builds, names, Runner(fast, disk), failed)
    finally:
        shutil.rmtree(fast, ignore_errors=True)


def run_all(builds, names, runner, failed):
    forgotten = unlisted(builds[0]) if builds else []
    for name in forgotten:
        print(f"cmd/test/{name}.py is not in meson.build's list")
    begin = time.monotonic()
    order = sorted(jobs(builds, names), key=lambda job: -runner.seconds.get(job.label, float("inf")))
    # One more than cores: some tests wait, for a signal or a limit.
    with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        outcomes = list(pool.map(runner.run, order))
    SECONDS.write_text(json.dumps(runner.seconds, indent=1, sort_keys=True))
    passed = sum(outcome.passed for outcome in outcomes)
    failed += sum(outcome.failed for outcome in outcomes) + len(forgotten)
    if "test" in builds and not names:
        print("rows of cmd/test/rows:", end=" ", flush=True)
        failed += attacks.report("test", False)[1]
    print_failures(order, outcomes)
    print_times(runner, order, time.monotonic() - begin)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


def print_times(runner, order, seconds):
    """The slowest tests, and how long all of it took."""
    slowest = sorted((runner.seconds[job.label], job.label) for job in order)[: -SLOWEST - 1 : -1]
    print("slowest:", ", ".join(f"{label} {taken:.0f} s" for taken, label in slowest))
    spent = ", ".join(f"{build} {taken:.0f}" for build, taken in runner.totals.items())
    print(f"{sum(runner.totals.values()):.0f} s of processor time ({spent})")
    built = int(os.environ.get("TCONV_TEST_BUILT", "0"))  # what scripts/test took before
    print(f"took {minutes(built + seconds)}: {minutes(built)} to build, {minutes(seconds)} to test")


def minutes(seconds):
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


if __name__ == "__main__":
    sys.exit(main())
