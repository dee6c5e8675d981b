"""How an attack is described: rows, each a function that yields the inputs of one kind of attack.

    @row("N02", UNSUPPORTED, "in.npy")
    def versions():
        yield Input("4.0", npy(version=(4, 0)))

An input's content is the file's bytes, or a function that writes whatever it needs into a folder.
Its outcome is an exit code or a set of them; the row's holds where the input has none of its own.

Where an attack is more than a file, a row is a test of its own, or several with labels:

    @scene("C01")
    def output_is_input(folder):
        ...

rows/*.md has the rows that there must be; scripts/test.d/attacks.py holds them against what ran.
"""

import functools
from dataclasses import dataclass, replace

import files
from harness import FAILURE_RSS, FEWER, OK, SANITIZED, check_equal, expect, text

OLD_TARGET = b"the output of an earlier run\n"
MEMORY_MULTIPLE = 64  # times a header or pickle of over 4 MiB; below that FAILURE_RSS holds
ROWS = []  # (id, needs --full, function that yields labels and tests)


@dataclass
class Input:
    label: str
    content: object
    outcome: object = None
    file: str = None
    commands: tuple = None
    target: str = None
    mention: str = None  # the file that an error must name, "" for any; None: the input
    tensors: dict = None  # what an accepted file must hold
    options: tuple = ()
    prefix: object = ()  # a command that runs tconv, or a function that returns one
    seconds: float = None  # of processor time; a bar tighter than the common one
    rss: int = None  # a bar in the place of the common one
    timeout: float = None
    message: str = ""  # must occur on stderr, in whatever case
    printed: str = ""  # must occur on stdout


def row(
    row_id,
    outcome,
    file,
    commands=("hash", "convert"),
    target="out.deathtensors",
    mention=None,
    full=False,
):
    """Register a row; the arguments are what its inputs leave open."""
    common = {
        "outcome": outcome,
        "file": file,
        "commands": commands,
        "target": target,
        "mention": mention,
    }

    def register(function):
        def tests():
            for item in function():
                missing = {
                    name: value for name, value in common.items() if getattr(item, name) is None
                }
                yield item.label, functools.partial(run_input, replace(item, **missing))

        ROWS.append((row_id, full, tests))
        return function

    return register


def scene(row_id, *labels, full=False):
    """Register a row that is one test, or one for each label, which it then takes first."""

    def register(function):
        def tests():
            for label in labels:
                yield label, functools.partial(function, label)
            if not labels:
                yield function.__name__.replace("_", " "), function

        ROWS.append((row_id, full, tests))
        return function

    return register


def cuts(content, label=""):
    """The file cut at every length; at every eleventh in a sanitizer build."""
    for length in range(0, len(content), 11 if FEWER else 1):
        yield Input(f"{label}{length}", content[:length], commands=("hash",))


def run_input(item, folder):
    """One input through its commands; a conversion goes onto a file that exists already."""
    if callable(item.content):
        item.content(folder)
    else:
        (folder / item.file).write_bytes(item.content)
    if item.rss and item.rss > FAILURE_RSS:
        size = (folder / item.file).stat().st_size
        assert item.rss <= MEMORY_MULTIPLE * size, "a bar that the file is too small for"
    (folder / item.target).write_bytes(OLD_TARGET)
    prefix = item.prefix() if callable(item.prefix) else item.prefix
    # In a sanitizer build a conversion does all that is of interest: it opens and reads.
    commands = ("convert",) if FEWER and set(item.commands) == {"hash", "convert"} else item.commands
    for command in commands:
        args = {
            "hash": ["hash", item.file],
            "convert": [item.file, item.target],
            "run": [item.file, item.target],  # what comes out has another digest
            "folder": [item.file, "out/", "-t", "npy"],
        }[command]
        mention = item.file if item.mention is None else item.mention
        result = expect(
            folder,
            item.outcome,
            *args,
            *item.options,
            prefix=prefix,
            mention=mention,
            rss=item.rss,
            timeout=item.timeout,
        )
        check_bars(item, result)
        if result.code == OK:
            check_accepted(item, command, result, folder)


def check_bars(item, result):
    if item.message.lower() not in text(result.err).lower():
        raise result.failed(f"expected: {item.message!r} on stderr")
    if item.printed not in text(result.out):
        raise result.failed(f"expected: {item.printed!r} on stdout")
    if SANITIZED:
        return
    if item.seconds and result.cpu_seconds > item.seconds:
        raise result.failed(f"expected: at most {item.seconds} s, got {result.cpu_seconds:.2f}")
    if item.rss and result.rss > item.rss:
        raise result.failed(f"expected: at most {item.rss} bytes resident, got {result.rss}")


def check_accepted(item, command, result, folder):
    if command == "hash" and item.tensors is not None:
        check_equal(result.out.decode(), files.hash_text(item.tensors), "hash", result)
    chosen = {"--include", "--exclude"} & set(item.options)
    if command == "convert" and chosen:
        held = expect(folder, OK, "hash", item.target).out.decode()
        check_equal(held, files.hash_text(item.tensors), "hash of the output", result)
    elif command == "convert":
        digests = [
            expect(folder, OK, "hash", "--digest", file, *item.options).out.split()[0]
            for file in (item.file, item.target)
        ]
        check_equal(digests[1], digests[0], "digest of the output", result)
