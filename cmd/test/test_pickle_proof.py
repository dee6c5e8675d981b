#!/usr/bin/env python3
"""tconv's pickle machine and Python's read the same, or tconv refuses it.

Programs run on tconv's machine (pickle_trace, in its three modes) and on Python's two, with names
and calls recorded instead of followed (pickle_peer):

  strict  what it accepts, both of Python's machines accept, with the same result, names and calls
  inert   where Python's machines accept it too, the result is the same
  scan    it names and calls all that either of Python's machines does

Every program of up to DEPTH opcodes of an alphabet runs, and random longer ones. A prefix at which
all machines end is not continued: its continuations end there too. Without --full a selection runs;
TCONV_TEST_SEED chooses another. TCONV_TEST_PROGRAMS is how many random programs --full makes.
"""

import functools
import io
import itertools
import os
import pickle as op
import random
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pickle_peer
from harness import FULL, SANITIZED, TCONV, Failed, Suite
from pickle_programs import mutate, pieces

TRACE = Path(TCONV).parent / "pickle_trace"
SEED = int(os.environ.get("TCONV_TEST_SEED", 20261))
SELECTED_LONGER = 10_000 if SANITIZED else 30_000
PROGRAMS = int(os.environ.get("TCONV_TEST_PROGRAMS", 10_000_000)) if FULL else SELECTED_LONGER
BATCH = 20_000 if FULL else 5_000
SELECTED = 10_000 if SANITIZED else 40_000  # of the exhaustive part, where not all of it runs
# Wild memo keys meet this limit, beyond what the process has: C's machine takes and clears an array
# as long as the key, so that the time of a run is that of the wild keys.
MEMORY = 32 << 20

TEXT = op.SHORT_BINUNICODE + b"\1m"
NAME = op.GLOBAL + b"m\nf\n"
KNOWN = op.GLOBAL + b"collections\nOrderedDict\n"
# Every way to use the stack, marks, memo, containers, names, calls, states, ids and frames.
CORE = (
    op.MARK, op.POP, op.DUP, op.POP_MARK, op.NONE, op.NEWTRUE, TEXT, op.EMPTY_LIST, op.EMPTY_DICT,
    op.EMPTY_TUPLE, op.EMPTY_SET, op.LIST, op.DICT, op.TUPLE, op.TUPLE1, op.FROZENSET, op.APPEND,
    op.APPENDS, op.SETITEM, op.SETITEMS, op.ADDITEMS, op.BINPUT + b"\0", op.BINGET + b"\0",
    op.MEMOIZE, NAME, KNOWN, op.STACK_GLOBAL, op.REDUCE, op.NEWOBJ, op.NEWOBJ_EX, op.BUILD, op.OBJ,
    op.INST + b"m\nf\n", op.BINPERSID, op.PERSID + b"id\n", op.EXT1 + b"\1", op.PROTO + b"\4",
    op.FRAME + (3).to_bytes(8, "little"),
)  # fmt: skip
# Besides those, what does nearly the same.
MORE = (
    op.BININT1 + b"\1", op.TUPLE2, op.TUPLE3, op.SHORT_BINBYTES + b"\1a",
    op.BYTEARRAY8 + (1).to_bytes(8, "little") + b"a", op.SHORT_BINSTRING + b"\1m",
    op.GLOBAL + b"builtins\nset\n", op.NEXT_BUFFER, op.READONLY_BUFFER,
)  # fmt: skip
PARTS = {"core": (CORE, 5), "all": (CORE + MORE, 4)}  # the alphabets, and how many opcodes
OLD_TEXT = tuple(each[0] for each in (op.STRING, op.BINSTRING, op.SHORT_BINSTRING))


def without_limit():
    """A sanitizer's shadow takes more than the limit of Python's machines."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def trace(programs):
    """A line of tconv's for each program."""
    data = b"".join(len(each).to_bytes(4, "little") + each for each in programs)
    result = subprocess.run([TRACE], input=data, capture_output=True, preexec_fn=without_limit)
    lines = result.stdout.decode("ascii").splitlines()
    if result.returncode or len(lines) != len(programs):
        last = programs[min(len(lines), len(programs) - 1)]
        raise Failed(f"{last!r}: {TRACE.name} ends with {result.returncode}: {result.stderr!r}")
    return lines


def reports(scan, events):
    """Whether a scan found all that a machine of Python's named and called, in its order."""
    end, _, found = scan.partition("|")
    if found.startswith(events):
        return True
    # Where a scan reads a pickle in two ways, it has the names of both. C's machine asks for an
    # extension once, and keeps it.
    if not end.endswith("&") and "copyreg.extension" not in found:
        return False
    return not Counter(events.split(" ")) - Counter(found.split(" "))


def is_one_name(program):
    """A file that is nothing but the start of a name: pickle.py imports it, but so are many texts."""
    return program[:1] in (op.GLOBAL, op.INST) and program.count(b"\n") < 2


class Proof:
    def __init__(self, python_share):
        self.python_share = python_share  # of the programs that strict refuses
        self.counts = Counter()
        self.faults = []
        self.rng = random.Random(SEED)

    def machines(self, program, accepted):
        """Python's machines as `run` wants them: (name, machine, file, encoding)."""
        yield "C", pickle_peer.C_MACHINE, io.BytesIO, "utf-8"
        if op.FRAME in program:
            yield "C from memory", pickle_peer.C_MACHINE, pickle_peer.InMemory, "utf-8"
        sampled = self.rng.random() < self.python_share
        if accepted or sampled:
            yield "pickle.py", pickle_peer.PYTHON_MACHINE, io.BytesIO, "utf-8"
        if sampled and any(each in program for each in OLD_TEXT):
            yield "C, latin1", pickle_peer.C_MACHINE, io.BytesIO, "latin1"
            yield "C, bytes", pickle_peer.C_MACHINE, io.BytesIO, "bytes"

    def check(self, program, line):
        """Compares one; returns whether some machine got behind its last opcode before STOP."""
        strict, inert, scan = line.split("\t")
        inert = strict if inert == "=" else inert
        self.counts["programs"] += 1
        self.counts["accepted"] += strict != "!"
        alive = scan[0] != "!" or int(scan.partition("|")[0].strip("!&")) >= len(program) - 1
        for name, machine, file, encoding in self.machines(program, strict != "!"):
            shown, events, stands = pickle_peer.run(program, machine, file, encoding)
            alive = alive or stands >= len(program)
            result = f"{shown}|{events}"
            if encoding == "utf-8" and shown != pickle_peer.UNDECIDED:
                self.compare(program, name, strict, inert, shown, result)
            if not reports(scan, events) and not is_one_name(program):
                self.fault(program, f"{name} reaches {events}, a scan {scan}")
        return alive

    def compare(self, program, name, strict, inert, shown, result):
        if strict not in ("!", result):
            self.fault(program, f"{name} reads {result}, strict {strict}")
        if shown is not None and inert not in ("!", result) and not self.is_kept(inert, result):
            self.fault(program, f"{name} reads {result}, inert {inert}")

    def is_kept(self, inert, result):
        """inert keeps what is done with known names as it is; an extension is asked for once."""
        if "copyreg.extension" in inert:
            inert, result = inert.rpartition("|")[0], result.rpartition("|")[0]
        return "?" in inert or inert == result

    def fault(self, program, what):
        self.faults.append(f"{program!r}: {what}")
        if len(self.faults) >= 20:
            self.end()

    def end(self):
        print(", ".join(f"{count} {what}" for what, count in self.counts.items()), flush=True)
        if self.faults:
            raise Failed(f"{len(self.faults)} differ:\n" + "\n".join(self.faults))


def batches(iterable, size):
    iterator = iter(iterable)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def every(name):
    """All programs of up to so many opcodes, or a selection of each length."""
    alphabet, depth = PARTS[name]
    rng = random.Random(SEED)
    proof = Proof(python_share=1 if not FULL else 1 / 8)
    prefixes = [b""]
    for length in range(1, depth + 1):
        survivors = []
        if not FULL:
            prefixes = rng.sample(prefixes, min(len(prefixes), SELECTED // len(alphabet) // depth))
        made = (prefix + opcode for prefix in prefixes for opcode in alphabet)
        for batch in batches(made, BATCH):
            programs = [each + op.STOP for each in batch]
            for prefix, program, line in zip(batch, programs, trace(programs)):
                # What a frame's length means depends on what follows.
                goes_on = proof.check(program, line) or op.FRAME in prefix
                if goes_on and length < depth:
                    survivors.append(prefix)
        count = len(prefixes) * len(alphabet)
        print(f"{name}, {length} opcodes: {count} programs", flush=True)
        prefixes = survivors
    proof.end()


def longer(part, parts):
    """Random programs, made of pieces of the grammar; some are changed here and there."""
    part, parts = int(part), int(parts)
    proof = Proof(python_share=1 if not FULL else 1 / 20)
    for number in range(part, -(-PROGRAMS // BATCH), parts):
        proof.rng = random.Random(SEED + number)
        made = list(random_batch(proof.rng, BATCH, strange=number % 2))
        for program, line in zip(made, trace(made)):
            proof.check(program, line)
        if proof.faults:
            print(f"batch {number}", flush=True)
            proof.end()
        if number % 50 == 49:
            print(f"longer, {proof.counts['programs']} programs", flush=True)
    proof.end()


def random_batch(rng, count, strange):
    table = pieces(rng, 256, strange)
    for index in range(count):
        chosen = rng.randbytes(rng.randrange(2, 14))
        program = b"".join([table[each] for each in chosen]) + op.STOP
        if index % 2:
            program = op.MARK + program[:-1] + op.TUPLE + op.STOP  # it may leave many values
        yield mutate(rng, program) if index % 4 > 2 else program


def in_process(words, folder):
    """The machines note what they reach in a list of the process: each part has one of its own."""
    part = subprocess.run([sys.executable, __file__, "--part", *words], capture_output=True)
    print(part.stdout.decode(), end="", flush=True)
    if part.returncode:
        raise Failed(f"exit status {part.returncode}: {part.stderr.decode()}")


def cases():
    for name in PARTS:
        yield f"every {name}", functools.partial(in_process, ("every", name))
    parts = 2 if FULL else 1
    for part in range(parts):
        words = ("longer", str(part), str(parts))
        yield " ".join(words), functools.partial(in_process, words)


def main():
    if sys.argv[1:2] != ["--part"]:
        print(f"TCONV_TEST_SEED={SEED}", flush=True)
        return Suite(__doc__).run(cases())
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY + FULL * (64 << 20)  # the list of prefixes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        {"every": every, "longer": longer}[sys.argv[2]](*sys.argv[3:])
    except Failed as failed:
        sys.exit(str(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
