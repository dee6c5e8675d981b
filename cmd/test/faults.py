"""Runs of tconv in which calls fail (cmd/test/faults.h), and what may come of them.

Commands forks a run for each fault; a Bench holds a scenario's folder and puts it back to what it
was; `check` judges one run. HARMLESS is the list of failures that may be shrugged off.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

from harness import (
    INVALID, IO, OK, SANITIZER_TEXT, TCONV, UNSUPPORTED, USAGE, Failed, Server, note_run, text,
)

CLASSES = (
    "memory open read list write copy sync close status rename unlink mkdir lock thread random system"
).split()
TRANSFERS = ("read", "write", "copy")  # may do less than they were asked for

# Failures that may be shrugged off: of which classes, in which function, and why. The run must then
# succeed with the same output; anywhere else it must not. (Of memory it need not: the program may
# always say that there is too little.)
HARMLESS = (
    (("status", "open"), "fill_standard_descriptors", "what is not there is opened"),
    (("mkdir",), "temporary_folder_make", "there is another place for it"),
    (("close",), "tree_walk", "a folder, of which nothing was written"),
    (("close",), "visit", "the same"),
    (("unlink",), "take_results", "it goes with its folder"),
    (("close",), "run_through", "a copy of standard output, or the end of a pipe"),
    (("close",), "free_input", "nothing was written through it"),
    (("close",), "free_files", "what was written was checked before"),
    (("close",), "stage_all", "the same"),
    (("close",), "close_all", "a folder or a lock"),
    (("close",), "tc_publish_end", "a folder"),
    (("open",), "close_written", "syncing shows the same errors"),
    (("status",), "may_be_opened", "what was opened is looked at again"),
    (("status",), "open_external", "the same"),
    (("status",), "tc_is_folder", "a folder that is taken for a file shows when it is opened"),
    (("status",), "kernel_is_faster", "then the kernel copies"),
    (("status",), "tc_outfile_reserve", "a disk that is full shows when it is written to"),
    (("status",), "tc_tempfile_check", "the same"),
    (("status",), "open_unnamed", "files wait under names then"),
    (("system",), "most_unnamed", "the usual number of descriptors will do"),
    (("system",), "tc_file_sums_follow", "an output is hashed when it is whole then, not as it is written"),
    (("system",), "usable_cores", "then all processors count"),
    (("open", "read", "close"), "load_figure", "then there is no quota"),
    (("system",), "tc_sign", "it needs no random bytes"),
    (("system",), "tc_signature_valid", "the same"),
    (("lock",), "replace_by_unnamed", "file systems without locks lock nowhere"),
    (("lock",), "take_lock", "the same"),
    (("lock",), "tc_folder_lock", "the same"),
    (("lock",), "tc_publish_commit_all", "the lock goes with its descriptor"),
    (("open",), "memory_file", "a file on disk will do"),
    (("random",), "tc_random", "there are others, from the start of the program"),
    (("copy",), "kernel_copy", "the bytes are read and written then"),
    (("close",), "start", "a pipe, of which nothing was written"),
    (("close",), "close_for_child", "the same"),
    (("close",), "become_child", "the same"),
    (("close",), "drain", "the same"),
    (("close",), "batch_run", "the same"),
    (("close",), "join_folder", "a folder"),
    (("close",), "begins_as_record", "nothing was written through it"),
    (("close",), "limit_folder", "a folder"),
    (("close",), "recover_beside", "the same"),
    (("system",), "become_child", "its pipes end with its parent, too"),
    (("status",), "confine", "the folder of the pattern may be read then"),
    (("status",), "prepare", "the conversion looks again"),
    (("status",), "batch_list_check", "the same"),
    (("unlink",), "remove_empty_folders", "an empty folder stays"),
    (("status", "unlink", "close"), "batch_log_close", "an empty log stays"),
    (("close",), "tc_remote_start", "the other side's end of a socket"),
    (("close",), "tc_remote_end", "a socket, whose other side goes with it"),
    (("close",), "read_token", "nothing was written through it"),
    (("close", "open", "read"), "read_token", "then there is no token"),
    (("random",), "backoff", "then the clock decides"),
    (("mkdir",), "temporary_folder_make", "there are other folders for temporary files"),
    (("memory",), "keep_direct", "the next request asks for the address again"),
    (("close",), "send_stream", "a pipe that was read to its end"),
    (("close",), "tree_walk", "a folder, of which nothing was written"),
    (("unlink",), "take_results", "the temporary folder goes with all that is in it"),
    (("system",), "load", "another name of the library may do"),
)
# Failures after which the run may go on or not, as the case is.
EITHER = (
    (("thread",), "tc_thread_start", "most work is then done by the threads that there are"),
    (("system",), "start", "a model waits for another's process, where there is one"),
    (("status",), "is_own_file", "of a model that is no folder it makes no difference"),
    (("open",), "tc_tempfile", "where the sandbox is not complete, a name is made and removed at once"),
    (("read",), "read_all", "what command and fetcher say after the last answer matters to nobody"),
    (("read",), "receive", "the same"),
    (("read",), "send_stream", "what the store has already is read and thrown away"),
    (("write",), "flush", "the same"),
    (("write",), "tc_write_quietly", "the same"),
)
# The same for a function and all that it calls.
EITHER_BELOW = (
    (("memory",), "convert_without_copy", "its second pass must give the bytes of the first"),
)
# As HARMLESS, for a function and all that it calls.
SYSTEM = tuple(kind for kind in CLASSES if kind != "memory")
REMOVING = ("unlink", "rename", "open", "list", "status", "close")  # what it takes to remove a tree
HARMLESS_BELOW = (
    ((*REMOVING, "memory"), "index_folder_clean", "the next run can"),
    ((*REMOVING, "memory"), "index_folder_remove", "the folder of parts is left then, which is said"),
    (SYSTEM, "sandbox_begin", "--sandbox=auto goes without what the system does not have"),
    (SYSTEM, "sandbox_inputs", "the same"),
    (SYSTEM, "sandbox_complete", "the same"),
    (SYSTEM, "confine_fetcher", "the same, of the process that fetches"),
    (SYSTEM, "keep_memory_private", "the same"),
    (("open",), "keep_own_descriptors", "then descriptors are closed that would else lead nowhere"),
    (CLASSES, "tc_recover", "what a killed run has left is removed by the next run that can"),
    (CLASSES, "recover_path", "the same"),
    (CLASSES, "tc_publish_recover_folder", "the same"),
    (REMOVING, "remove_later", "a process of its own removes what is temporary, as far as it can"),
    (REMOVING, "remove_staging", "the output is in place; the next run removes the rest"),
    (REMOVING, "remove_later", "a warning says what is left"),
    (("status",), "model_copy_shared_blobs", "then links to those are refused"),
    (("unlink",), "remove_temporaries", "the next run removes the rest"),
    (("memory",), "tc_reader_wants", "the plan asks once more, and reports it"),
    (("memory",), "report_ledger", "the output is in place, and a warning says what is missing"),
    (("memory",), "report_done", "the same"),
    (SYSTEM, "batch_log_done", "then the model is not passed over, but done"),
    (("status",), "model_copy_blobs", "then links to blobs are refused"),
    (("status",), "check_open", "the path is looked at instead"),
    (SYSTEM, "load_receipt", "then the output is written again"),
    (SYSTEM, "same_outputs", "the same"),
)


@dataclass(frozen=True)
class Scenario:
    """A command, run in a folder that holds `before`."""

    arguments: tuple
    before: dict = field(default_factory=dict)  # name -> bytes
    prepare: tuple = ()  # commands that make more of what is there before
    head: str = ""  # of an output of several files, the one that readers open
    environment: dict = field(default_factory=dict)
    stdin: str = "/dev/null"
    reports: tuple = ()  # files that tell of failures, too: each is the old one or a document
    aside: tuple = ()  # files that may be those of the run before, where a command can't go back
    varies: tuple = ()  # files that differ from run to run: only their names count
    # Outputs that succeed or fail each by itself, by how their names begin; and where one of them
    # is a source that goes, the output that must be there first.
    apart: tuple = ()
    after: dict = field(default_factory=dict)
    code: int = OK
    again: int = OK  # what the same command ends with once it is done


@dataclass(frozen=True)
class Fault:
    """One call that was made to fail."""

    kind: str
    number: int
    addresses: tuple

    def functions(self):
        """The functions that led there, innermost first, as "name (file:line)"."""
        return [each for address in self.addresses for each in symbols.look_up(address)]


@dataclass(frozen=True)
class Run:
    arguments: tuple
    plan: str
    code: int
    out: bytes
    err: bytes
    calls: dict
    faults: tuple

    def failed(self, *problems):
        lines = [f"command: TCONV_TEST_FAULT={self.plan} tconv {' '.join(self.arguments)}"]
        lines += [*problems, f"exit {self.code}, stderr: {text(self.err)[:1500]}"]
        for fault in self.faults[:3]:
            where = [name for name in fault.functions() if not IN_THE_WRAPPER.match(name)]
            lines.append(f"{fault.kind} {fault.number} failed in {' < '.join(where[:12])}")
        return Failed("\n".join(lines))


# What stands between a fault and the function that asked for it.
IN_THE_WRAPPER = re.compile(r"take |fault_|__wrap_|\?\?|_start |tc_read_up_to ")


class Symbols:
    """Names for addresses in the program, by addr2line."""

    def __init__(self):
        self.known, self.lock, self.process = {}, threading.Lock(), None

    def look_up(self, address):
        with self.lock:
            if address not in self.known:
                self.known[address] = self.ask(address)
            return self.known[address]

    def ask(self, address):
        if not self.process:
            self.process = subprocess.Popen(
                ["addr2line", "-a", "-f", "-i", "-e", TCONV],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        # The address 0 ends the answer: inlined functions are several lines. A return address is
        # one behind the call.
        self.process.stdin.write(f"{int(address, 16) - 1:x}\n0\n")
        self.process.stdin.flush()
        lines = [self.process.stdout.readline().rstrip("\n") for _ in range(3)]
        while not re.fullmatch("0x0+", lines[-1]):
            lines.append(self.process.stdout.readline().rstrip("\n"))
        for _ in range(2):
            self.process.stdout.readline()
        names = [
            f"{function} ({place.rpartition('../')[2].partition(' ')[0]})"
            for function, place in zip(lines[1:-1:2], lines[2:-1:2])
        ]
        return [name for name in names if not name.startswith("?? ")]


symbols = Symbols()


class Commands:
    """Runs commands with faults, in processes forked from one tconv."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.server = Server(folder, os.environ)

    def run(self, arguments, cwd, plan="", environment=None, stdin="/dev/null"):
        report = self.folder / "report"
        report.write_bytes(b"")
        variables = {**os.environ, **(environment or {}), "TCONV_TEST_FAULT_REPORT": str(report)}
        if plan:
            variables["TCONV_TEST_FAULT"] = plan
        words = ["tconv", *map(str, arguments)]
        result = self.server.run(words, str(cwd), variables, stdin, 60)
        note_run([TCONV, *words[1:]], result.code, result.cpu_seconds, result.rss)
        calls, faults = {}, []
        for line in report.read_text().splitlines():
            word, kind, number, *rest = line.split(" ")
            if word == "calls":
                calls[kind] = int(number)
            else:
                faults.append(Fault(kind, int(number), tuple(rest)))
        return Run(
            tuple(words[1:]), plan, result.code, result.out, result.err, calls, tuple(faults)
        )

    def end(self):
        self.server.end()


def contents(place):
    """name -> bytes of all files below a folder, None for folders."""
    found, folders = {}, [("", str(place))]
    while folders:
        prefix, folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    found[name] = None
                    folders.append((name + "/", entry.path))
                else:
                    with open(entry.path, "rb") as file:
                        found[name] = file.read()
    return found


def is_temporary(name):
    return any(part.startswith(".") and ".tconv-" in part[1:] for part in name.split("/"))


class Bench:
    """A scenario in its folder."""

    def __init__(self, scenario, folder):
        self.scenario, self.folder, self.place = scenario, folder, folder / "place"
        self.server = Commands(folder)
        self.place.mkdir()
        for name, data in scenario.before.items():
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            (self.place / name).write_bytes(data)
        for command in scenario.prepare:
            made = self.server.run(command, self.place, environment=scenario.environment)
            if made.code != OK:
                raise made.failed("what comes before the command failed")
        self.old = contents(self.place)
        self.whole = self.run()
        self.new = contents(self.place)
        if self.whole.code != scenario.code:
            raise self.whole.failed(f"expected: exit {scenario.code} without faults")
        self.reset(self.new)

    def run(self, plan=""):
        scenario = self.scenario
        return self.server.run(
            scenario.arguments, self.place, plan, scenario.environment, scenario.stdin
        )

    def reset(self, found):
        """Puts the folder back, which now holds `found`."""
        if found == self.old:
            return
        for name in sorted(found.keys() - self.old.keys(), reverse=True):
            path = self.place / name
            shutil.rmtree(path) if found[name] is None else path.unlink(missing_ok=True)
        for name, data in sorted(self.old.items()):
            path = self.place / name
            if data is None:
                path.mkdir(exist_ok=True)
            elif found.get(name) != data:
                path.unlink(missing_ok=True)
                path.write_bytes(data)

    def cleans_up(self):
        """Whether the next run succeeds and leaves no temporary names."""
        for name, data in self.old.items():  # sources that went
            if name.startswith(tuple(self.scenario.after)):
                (self.place / name).write_bytes(data)
        again = self.run()
        done = again.code in (self.whole.code, self.scenario.again)
        found = contents(self.place)
        for name in self.scenario.aside:
            if found.get(name) == self.old.get(name):
                found = {**found, name: self.new[name]}
        return done and self.is_new(found)

    def settled(self, found):
        """What is there after a failure, with those outputs taken back that were written all the
        same: each by itself, as a whole."""
        if not self.scenario.apart:
            return found
        new, settled = self.masked(self.new), dict(found)

        def part(whole, start):
            return {name: data for name, data in whole.items() if name.startswith(start)}

        done = [
            start
            for start in self.scenario.apart
            if self.masked(part(found, start)) == part(new, start)
        ]
        for start in done:
            if self.scenario.after.get(start, start) in done:
                for name in part(settled, start):
                    del settled[name]
                settled.update(part(self.old, start))
        # The folder of the outputs and the log of a batch are there once one of them is.
        for name in settled.keys() - self.old.keys():
            if name in self.new and (self.new[name] is None or name in self.scenario.varies):
                del settled[name]
        return {**settled, **{name: self.old[name] for name in self.scenario.varies if name in self.old}}

    def refused(self, found):
        """Whether readers see that the output is incomplete."""
        head = found.get(self.scenario.head)
        return not self.scenario.head or head is None or b"incomplete" in head

    def masked(self, found):
        return {
            name: True if name in self.scenario.varies and data is not None else data
            for name, data in found.items()
        }

    def documents(self, found):
        """The old contents of reports that are whole documents now; {} where one is not."""
        for name in self.scenario.reports:
            if found.get(name) not in (None, self.old.get(name)):
                (json.loads if name.endswith("sarif") else ElementTree.fromstring)(found[name])
        return {name: self.old.get(name) for name in self.scenario.reports}

    def is_new(self, found):
        return self.masked(found) == self.masked(self.new)

    def close(self):
        self.server.end()


def names_of(fault):
    """The functions that led to a fault, innermost first."""
    return [name.partition(" ")[0] for name in fault.functions() if not IN_THE_WRAPPER.match(name)]


def either(fault):
    """Whether this failure may be shrugged off, but need not be."""
    names = names_of(fault)
    return any(fault.kind in kinds and names[:1] == [name] for kinds, name, _ in EITHER) or any(
        fault.kind in kinds and name in names for kinds, name, _ in EITHER_BELOW
    )


def harmless(fault):
    """Whether this failure may be shrugged off."""
    names = names_of(fault)
    return any(fault.kind in kinds and names[:1] == [name] for kinds, name, _ in HARMLESS) or any(
        fault.kind in kinds and name in names for kinds, name, _ in HARMLESS_BELOW
    )


def message_problems(run, bench):
    """What is unclear in the last words of a run that failed."""
    lines = run.err.decode("utf-8", "backslashreplace").splitlines()
    if lines and lines[-1].startswith("hint: "):
        lines.pop()
    errors = [line for line in lines if line.startswith("tconv: error: ")]
    several = bench.scenario.reports or len(set(bench.scenario.arguments) & set(bench.old)) > 1
    several = several or "." in bench.scenario.arguments or bench.scenario.apart
    several = several or all("memory" in error for error in errors)
    if not errors or lines[-1] != errors[-1] or (len(errors) > 1 and not several):
        return [f"expected: one last line `tconv: error: …`, got {len(errors)}"]
    for error in errors:
        if error.endswith((": Success", "error: ", ": ")):
            return ["expected: a message that says what failed"]
    if "out of memory" in errors[0] or "cannot start a thread" in errors[0]:
        return []
    if errors[0].startswith("tconv: error: .: "):
        return []  # the folder that it runs in
    named = ["standard output", "temporary file", "temporary folder", "process that fetches", "output's folder"]
    named += [*bench.old, *bench.new, *bench.scenario.arguments]
    if not any(name in errors[0] for name in named):
        return ["expected: a message that names the file"]
    return []


def outcome_problems(run, bench, found):
    """What is wrong with the files after a run that failed."""
    if b"cannot sync the output's folder" in run.err and bench.is_new(found):
        return []  # it is in place, though perhaps not after a power cut
    if bench.is_new(found) and run.out != bench.whole.out:
        return []  # it is in place, but its report could not be printed
    found = bench.settled({**found, **bench.documents(found)})
    old = {**bench.old, **bench.documents(bench.old)}
    left = [name for name in found if is_temporary(name)]
    seen = {name: data for name, data in found.items() if name not in left}
    # What could not be put back or removed waits for the next run, as after a kill.
    stuck = {fault.kind for fault in run.faults} & {"sync", *REMOVING}
    if left and stuck and (len(run.faults) > 1 or stuck == {"unlink"}):
        if seen != old and not bench.is_new(seen) and not bench.refused(seen):
            return [f"expected: the old one, or none; but {difference(old, seen)}"]
        if bench.cleans_up():
            return []
    if found != old:
        return [f"expected: nothing changed, but {difference(old, found)}"]
    return []


def success_problems(run, bench, found, partly):
    """What is wrong with a run that succeeded."""
    problems = []
    # Parts that could not be removed are said to be left, and go with the next run.
    said = b"the parts are joined, but could not all be removed" in run.err
    left = [name for name in found if is_temporary(name) or (said and name not in bench.new)]
    removing = any(fault.kind in REMOVING or (said and harmless(fault)) for fault in run.faults)
    if left and removing and bench.cleans_up():
        found = {name: data for name, data in found.items() if name not in left}
    if not bench.is_new(found):
        problems.append(f"got: success, but {difference(bench.new, found)}")
    if run.out != bench.whole.out and not bench.scenario.varies:
        problems.append("got: success, but another standard output")
    loud = [fault for fault in run.faults if not partly and not harmless(fault) and not either(fault)]
    if loud:
        problems.append(f"got: success though {loud[0].kind} {loud[0].number} failed")
    return problems


def judge(run, bench, partly):
    """What is wrong with a run in which calls failed, or with `partly` did less than asked for."""
    found = contents(bench.place)
    try:
        if run.code < 0:
            name = "still running after a minute" if run.code == -signal.SIGKILL else f"signal {-run.code}"
            return [f"got: {name}"]
        if SANITIZER_TEXT.search(run.err) or run.code == 99:
            return ["got: a sanitizer's report"]
        if run.code == bench.whole.code:
            return success_problems(run, bench, found, partly)
        if run.code == UNSUPPORTED and b"libcurl" in run.err:
            return outcome_problems(run, bench, found)  # it could not be loaded
        if run.code != IO:
            return [f"expected: exit {bench.whole.code} or {IO}"]
        problems = message_problems(run, bench)
        alone = len(run.faults) == 1 and run.faults[0].kind != "memory"
        if partly or (alone and harmless(run.faults[0])):
            problems.append("expected: success, since this failure may be shrugged off")
        return problems + outcome_problems(run, bench, found)
    finally:
        bench.reset(contents(bench.place))


def difference(expected, found):
    return ", ".join(
        [f"{name} appeared" for name in sorted(found.keys() - expected.keys())]
        + [f"{name} vanished" for name in sorted(expected.keys() - found.keys())]
        + [f"{name} differs" for name in expected if found.get(name, 0) != expected[name]]
    )
