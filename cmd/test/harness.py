"""What the command-line tests share: running tconv, the rules for failures, counting results.

A test program makes a Suite, hands it cases (an id and a function that takes an empty folder), and
exits with what `run` returns. A case fails by raising Failed; `expect` runs tconv and raises it
when the exit code or one of the rules for failures is broken.

    TCONV            path of the binary, required
    TCONV_SANITIZED  1 for a sanitizer build: more time, no bars on time and memory
    TCONV_COVERAGE   1 for a build that counts which lines run, where SANITIZED is 1, too
    TCONV_REMOTE     0 for a build without libcurl, which refuses addresses
    TCONV_FULL       1 is the same as --full
    TCONV_TEST_JOBS  cases at once, where it is not the number of cores: other suites run beside it
    TCONV_TEST_EXEC  1 starts a program for every command; otherwise most are forked from one that
                     has started (cmd/fork_server.h), which a test asks not to by `exec=True`
    TCONV_TEST_RECORD  a file that gets a line of JSON a case: how it ended, and its commands' exit
                     statuses, seconds and memory (scripts/test.d/attacks.py makes a table of them)
"""

import argparse
import atexit
import collections
import concurrent.futures
import json
import marshal
import os
import queue
import random
import re
import select
import shlex
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zlib
from dataclasses import dataclass
from pathlib import Path

OK, DIFFERENT, USAGE, INVALID, UNSUPPORTED, UNSAFE, IO = 0, 1, 2, 3, 4, 5, 6
MIB = 1 << 20
SANITIZED = os.environ.get("TCONV_SANITIZED") == "1"
COVERAGE = os.environ.get("TCONV_COVERAGE") == "1"
REMOTE = os.environ.get("TCONV_REMOTE", "1") == "1"
FEWER = SANITIZED and not COVERAGE  # of many cases of a kind some are enough
FULL = os.environ.get("TCONV_FULL") == "1"
# What is random is the same in every run, so that a test fails for the change at hand; --full explores.
SEED = int(os.environ.get("TCONV_TEST_SEED") or (random.SystemRandom().randrange(1 << 32) if FULL else 8))
EXEC = FULL or os.environ.get("TCONV_TEST_EXEC") == "1"
TIMEOUT = 120  # only a hang takes that long, on however busy a machine
CPU_SECONDS = 10
FAILURE_RSS = 256 * MIB  # of a file under 4 MiB
JOBS = int(os.environ.get("TCONV_TEST_JOBS", max(2, os.cpu_count() or 1)))
HERE = Path(__file__).resolve().parent
DATA = HERE.parent.parent / "testdata"
SANITIZER_TEXT = re.compile(
    rb"AddressSanitizer|LeakSanitizer|UndefinedBehaviorSanitizer|runtime error:"
)
RAW_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
SNAPSHOT_CONTENT = MIB  # larger files are compared by inode, size and time only

# One command in so many starts a program of its own, as users do; with --full all of them.
EXEC_SHARE = 16
LEAK_SHARE = 8
# What a program reads as it starts, before it can be a server: each set of them has its own.
START_VARIABLES = (
    "ASAN_OPTIONS",
    "LSAN_OPTIONS",
    "UBSAN_OPTIONS",
    "LD_PRELOAD",
    "GLIBC_TUNABLES",
    "OPENSSL_CONF",
)

if "TCONV" not in os.environ:
    sys.exit("set TCONV to the path of the tconv binary")
TCONV = str(Path(os.environ["TCONV"]).resolve())


class Failed(Exception):
    """A case's expectation was not met."""


class Skip(Exception):
    """This machine can't run the case."""


@dataclass(frozen=True)
class Result:
    command: list
    code: int  # the exit code, or minus the number of the signal that killed it
    out: bytes
    err: bytes
    seconds: float
    cpu_seconds: float  # what a busy machine does not change
    rss: int
    timed_out: bool

    def failed(self, *faults):
        """The exception that shows what is wrong with this run."""
        command = " ".join(shlex.quote(os.fsdecode(word)) for word in self.command)
        return Failed(
            "\n".join([f"command: {command[:2000]}", *faults, f"stderr: {text(self.err)[:2000]}"])
        )


def shown(command):
    """A command as one would type it, the program by its name alone."""
    words = [os.fsdecode(word) for word in command]
    return " ".join(shlex.quote("tconv" if word == TCONV else word) for word in words)


def text(data):
    return data.decode("utf-8", "backslashreplace").rstrip("\n")


class Spawner:
    """A forked copy of this process, made while it was small, that starts commands one at a time.

    A child's ru_maxrss counts what its parent held when it started, so the test process, which
    builds inputs of 100 MB, must not be the parent.
    """

    def __init__(self, scratch):
        self.paths = [str(Path(scratch) / name) for name in ("stdout", "stderr")]
        request_in, request_out = os.pipe()
        reply_in, reply_out = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(request_out)
            os.close(reply_in)
            self._serve(os.fdopen(request_in, "rb"), os.fdopen(reply_out, "wb"))
        os.close(request_in)
        os.close(reply_out)
        self.requests = os.fdopen(request_out, "wb")
        self.replies = os.fdopen(reply_in, "rb")

    def run(self, command, cwd, env, stdin, timeout):
        marshal.dump((command, str(cwd), env, str(stdin), timeout), self.requests)
        self.requests.flush()
        status, *measures = marshal.load(self.replies)
        out, err = (Path(path).read_bytes() for path in self.paths)
        return Result(command, os.waitstatus_to_exitcode(status), out, err, *measures)

    def end(self):
        """Wait for it, so that what its commands took counts as taken by this process."""
        self.requests.close()
        os.waitpid(self.process, 0)

    def _serve(self, requests, replies):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            try:
                command, cwd, env, stdin, timeout = marshal.load(requests)
            except EOFError:
                os._exit(0)
            started = time.monotonic()
            child = self._start(command, cwd, env, stdin)
            ended = os.pidfd_open(child)
            timed_out = not select.select([ended], [], [], timeout)[0]
            if timed_out:
                os.killpg(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            os.close(ended)
            seconds, cpu_seconds = time.monotonic() - started, usage.ru_utime + usage.ru_stime
            marshal.dump((status, seconds, cpu_seconds, usage.ru_maxrss * 1024, timed_out), replies)
            replies.flush()

    def _start(self, command, cwd, env, stdin):
        os.chdir(cwd)
        write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        files = [(os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0)]
        files += [
            (os.POSIX_SPAWN_OPEN, fd, path, write, 0o600) for fd, path in enumerate(self.paths, 1)
        ]
        return os.posix_spawnp(
            command[0],
            command,
            env,
            file_actions=files,
            setpgroup=0,  # so that a timeout ends all of a shell's children too
            setsigdef=[signal.SIGINT, signal.SIGPIPE],
        )


class Server:
    """A tconv that has started, from which commands are forked (cmd/fork_server.h has the protocol).

    As good as starting it for all that a command does itself, and far cheaper under a sanitizer.
    """

    def __init__(self, scratch, env):
        self.places = [str(Path(scratch) / name) for name in ("stdout", "stderr")]
        self.socket, theirs = socket.socketpair()
        with theirs:
            fd = max(3, theirs.fileno())
            self.process = os.posix_spawn(
                TCONV,
                [TCONV],
                {**env, "TCONV_TEST_SERVER": str(fd)},
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), fd)],
                setpgroup=0,
                setsigdef=[signal.SIGINT, signal.SIGPIPE],
            )

    def run(self, command, cwd, env, stdin, timeout):
        variables = [os.fsencode(f"{name}={value}") for name, value in env.items()]
        places = [os.fsencode(place) for place in (cwd, stdin, *self.places)]
        strings = b"".join(
            string + b"\0" for string in (*places, *map(os.fsencode, command), *variables)
        )
        started = time.monotonic()
        self.socket.sendall(struct.pack("=3I", len(command), len(variables), len(strings)) + strings)
        (child,) = struct.unpack("=i", self._receive(4))
        timed_out = not select.select([self.socket], [], [], timeout)[0]
        if timed_out:
            os.killpg(child, signal.SIGKILL)
        status, microseconds, resident = struct.unpack("=3q", self._receive(24))
        seconds = time.monotonic() - started
        out, err = (Path(place).read_bytes() for place in self.places)
        return Result(
            command,
            os.waitstatus_to_exitcode(status),
            out,
            err,
            seconds,
            microseconds / 1e6,
            resident * 1024,
            timed_out,
        )

    def end(self):
        self.socket.close()
        os.waitpid(self.process, 0)

    def _receive(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise Failed("tconv's fork server ended")
            data += more
        return data


class Worker:
    """What runs commands one at a time: a spawner, and servers by what they had to start with."""

    def __init__(self):
        self.scratch = tempfile.mkdtemp(dir=WORK)
        self.spawner = Spawner(self.scratch)
        self.servers = {}

    def run(self, command, cwd, env, stdin, timeout, exec):
        runner = self.spawner if exec or self._starts(command) else self._server(env)
        return runner.run(command, cwd, env, stdin, timeout)

    def end(self):
        for runner in (*self.servers.values(), self.spawner):
            runner.end()

    @staticmethod
    def _starts(command):
        """Whether this command has a program of its own: always the same ones."""
        if EXEC or command[0] != TCONV:
            return True
        words = b"\0".join(map(os.fsencode, command[1:]))
        return zlib.crc32(words) % EXEC_SHARE == 0

    def _server(self, env):
        key = tuple(env.get(name) for name in START_VARIABLES)
        if key not in self.servers:
            self.servers[key] = Server(self.scratch, env)
        return self.servers[key]


WORK = Path(tempfile.mkdtemp(prefix="tconv-test-"))
WORK.chmod(0o755)


@atexit.register
def remove_work():
    shutil.rmtree(WORK, ignore_errors=True)


_all_workers = [Worker() for _ in range(JOBS)]
_workers = queue.SimpleQueue()
for _each in _all_workers:
    _workers.put(_each)


@atexit.register
def end_workers():
    for each in reversed(_all_workers):
        each.end()


# Of the case that runs in this thread: .env, what it adds to the environment; .runs, its commands.
_case = threading.local()


def note_run(command, code, cpu_seconds, rss):
    """Have the record of this case show a command."""
    if hasattr(_case, "runs"):
        _case.runs.append((command, code, cpu_seconds, rss))


class Process(subprocess.Popen):
    """A command under way, for tests that do something meanwhile; its end is noted for the record.

    Not its memory, which would be that of this process where that is more (see Spawner).
    """

    def _try_wait(self, wait_flags):
        try:
            pid, status, usage = os.wait4(self.pid, wait_flags)
        except ChildProcessError:
            return self.pid, 0
        if pid:
            code = os.waitstatus_to_exitcode(status)
            note_run(self.args, code, usage.ru_utime + usage.ru_stime, 0)
        return pid, status

    def _internal_poll(self, *_, **__):
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid == self.pid:
                self._handle_exitstatus(status)
        return self.returncode


def run(*command, cwd=WORK, env=None, stdin="/dev/null", timeout=None, exec=False):
    """Run any command and measure it; `exec` where it matters that a program starts."""
    worker = _workers.get()
    env = {**os.environ, **getattr(_case, "env", {}), **(env or {})}
    try:
        result = worker.run(list(command), cwd, env, stdin, timeout or TIMEOUT, exec)
    finally:
        _workers.put(worker)
    note_run(result.command, result.code, result.cpu_seconds, result.rss)
    return result


def tconv(*args, prefix=(), **how):
    """Run tconv; `prefix` is a command that runs its arguments, such as what `limited` returns."""
    return run(
        *prefix, TCONV, *(arg if isinstance(arg, bytes) else str(arg) for arg in args), **how
    )


def limited(*limits):
    """A prefix that sets shell limits first: limited("-s 64")."""
    return ("sh", "-c", "".join(f"ulimit {limit} && " for limit in limits) + 'exec "$0" "$@"')


# What follows a case's name, and the prefix that runs it so: as it is, and on a small stack, unless the
# sanitizers, which need more stack than that for themselves, are in.
STACKS = {"": ()} if SANITIZED else {"": (), ", small stack": limited("-s 64")}


def unprivileged():
    """A prefix that gives up root's power to read everything."""
    if os.geteuid() != 0:
        return ()
    if not shutil.which("setpriv"):
        raise Skip("root, and no setpriv")
    return ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def snapshot(folder):
    """Everything under a folder that a failed run must leave as it is."""
    entries = {}
    for path in Path(folder).rglob("*"):
        info = path.lstat()
        small = stat.S_ISREG(info.st_mode) and info.st_size <= SNAPSHOT_CONTENT
        entries[str(path.relative_to(folder))] = (
            info.st_ino,
            info.st_mode,
            info.st_size,
            info.st_mtime_ns if not path.is_dir() else 0,
            path.read_bytes() if small else None,
        )
    return entries


def changes(before, after):
    """What differs between two snapshots, as text."""
    return (
        [f"{name} appeared" for name in sorted(after.keys() - before.keys())]
        + [f"{name} vanished" for name in sorted(before.keys() - after.keys())]
        + [
            f"{name} changed"
            for name in sorted(before.keys() & after.keys())
            if before[name] != after[name]
        ]
    )


def health_faults(result):
    """What no run may show, whatever its exit code."""
    faults = []
    if result.timed_out:
        faults.append(f"got: still running after {result.seconds:.0f} s")
    elif result.code < 0:
        faults.append(f"got: killed by signal {-result.code}")
    if not SANITIZED and result.code != 0 and result.cpu_seconds > CPU_SECONDS:
        faults.append(f"got: {result.cpu_seconds:.1f} s of processor time")
    if SANITIZER_TEXT.search(result.err):
        faults.append("got: a sanitizer's report")
    if RAW_CONTROL.search(result.err):
        faults.append("got: control characters on stderr")
    return faults


def failure_faults(result, quiet=True, mention=None, rss=None):
    """The rules for a run that fails: one error line at the end, bounded memory, no output.

    `rss` is a bar of its own, where the header or pickle is large enough to allow it.
    """
    faults = []
    lines = result.err.decode("utf-8", "backslashreplace").splitlines()
    if lines and lines[-1].startswith("hint: "):
        lines.pop()
    errors = [line for line in lines if line.startswith("tconv: error: ")]
    if len(errors) != 1 or lines[-1] != errors[0]:
        faults.append(f"expected: one last line `tconv: error: …`, got {len(errors)}")
    elif mention and mention not in errors[0]:
        faults.append(f"expected: the error names {mention!r}")
    if quiet and result.out:
        faults.append(f"expected: nothing on stdout, got {text(result.out)[:200]!r}")
    bar = rss or FAILURE_RSS
    if not SANITIZED and result.rss > bar:
        faults.append(f"expected: at most {bar // MIB} MiB resident, got {result.rss // MIB}")
    return faults


def expect(folder, code, *args, quiet=True, mention=None, rss=None, **how):
    """Run tconv in a folder; check its exit code (one, or a set) and the rules for failures."""
    before = snapshot(folder)
    result = tconv(*args, cwd=folder, **how)
    faults = health_faults(result)
    allowed = code if isinstance(code, (set, frozenset)) else {code}
    if not faults and result.code not in allowed:
        faults.append(f"expected: exit {' or '.join(map(str, sorted(allowed)))}, got {result.code}")
    if result.code > DIFFERENT:
        faults += failure_faults(result, quiet, mention, rss)
        faults += [
            f"expected: files untouched, but {change}"
            for change in changes(before, snapshot(folder))
        ]
    if faults:
        raise result.failed(*faults)
    return result


def check_equal(got, expected, what, result=None):
    """Compare two values; `result` is the run they came from."""
    if got != expected:
        fault = f"{what}\nexpected: {str(expected)[:1500]}\ngot:      {str(got)[:1500]}"
        raise result.failed(fault) if result else Failed(fault)


def heed_signals():
    """A run in the background (nohup, & in a script) ignores some signals, and so would all commands."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


heed_signals()


def one_in(share, case_id):
    """Whether a sanitizer build runs this case, of which there are many of a kind: one in `share`,
    chosen by the id. Other builds, and --full, run all."""
    return not FEWER or FULL or zlib.crc32(case_id.encode()) % share == 0


class Suite:
    """Runs cases on a few threads and counts them; arguments pick some by the start of their id.

    Looking for leaks takes more than half the time of a small run in a sanitizer build: it is done in
    one of LEAK_SHARE cases, chosen by the id, and with --full in all.
    """

    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("prefix", nargs="*", help="run only cases whose id starts so")
        parser.add_argument(
            "--full", action="store_true", help="also run what takes long or needs much disk"
        )
        parser.add_argument(
            "--keep",
            action="store_true",
            help="keep the folders of failed cases and say where they are",
        )
        parser.add_argument(
            "-v", "--verbose", action="store_true", help="print every case with its time"
        )
        self.options = parser.parse_args()
        self.record = os.environ.get("TCONV_TEST_RECORD")
        self.full = self.options.full or FULL
        self.leaks = 1 if self.full else LEAK_SHARE

    def wants(self, case_id):
        return not self.options.prefix or any(
            case_id.startswith(prefix) for prefix in self.options.prefix
        )

    def wants_some(self, group):
        """Whether a case whose id starts with `group` can be wanted."""
        return self.wants(group) or any(prefix.startswith(group) for prefix in self.options.prefix)

    def run(self, cases, jobs=JOBS):
        """Run (id, function) pairs, taken lazily; print the tally, return the exit code."""
        tally, running = collections.Counter(), collections.deque()

        def report():
            outcome, line = running.popleft().result()
            tally[outcome] += 1
            if outcome != "pass" or self.options.verbose:
                print(f"{outcome} {line}", flush=True)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for case in filter(lambda case: self.wants(case[0]), cases):
                running.append(pool.submit(self._one, case))
                if len(running) > 2 * jobs:
                    report()
            while running:
                report()
        if self.options.keep and tally["FAIL"]:
            atexit.unregister(remove_work)
        skipped = f", {tally['SKIP']} skipped" if tally["SKIP"] else ""
        print(f"{tally['pass']} passed, {tally['FAIL']} failed{skipped}")
        return 1 if tally["FAIL"] else 0

    def _one(self, case):
        case_id, function = case
        folder = Path(tempfile.mkdtemp(dir=WORK))
        folder.chmod(0o755)
        options = os.environ.get("ASAN_OPTIONS")
        looks = zlib.crc32(case_id.encode()) % self.leaks == 0
        _case.env = {} if looks or not options else {"ASAN_OPTIONS": f"{options}:detect_leaks=0"}
        _case.runs = []
        started = time.monotonic()
        try:
            function(folder)
        except Skip as reason:
            outcome, line = "SKIP", f"{case_id}: {reason}"
        except Exception as problem:  # a broken test is a failed one, and the others still run
            what = str(problem) if isinstance(problem, Failed) else traceback.format_exc()
            outcome, line = "FAIL", f"{case_id}\n{what}".replace("\n", "\n    ")
            if self.options.keep:
                line += f"\n    folder: {folder}"
        else:
            outcome, line = "pass", f"{case_id} {time.monotonic() - started:.2f} s"
        if self.record:
            self._note(case_id, outcome, _case.runs)
        if not (outcome == "FAIL" and self.options.keep):
            shutil.rmtree(folder, ignore_errors=True)
        return outcome, line

    def _note(self, case_id, outcome, runs):
        """One line of the record. The command is the first that is tconv's."""
        own = [run for run in runs if TCONV in run[0]] or runs
        line = {
            "case": case_id,
            "outcome": outcome,
            "command": shown(own[0][0])[:500] if own else "",
            "statuses": sorted({run[1] for run in own}),
            "runs": len(own),
            "seconds": max((run[2] for run in own), default=0),
            "memory": max((run[3] for run in own), default=0),
        }
        with open(self.record, "a") as file:  # one write: lines of several threads don't mix
            file.write(json.dumps(line) + "\n")
