#!/usr/bin/env python3
"""Command-line cases as files: arguments, exit code, stdout, stderr.

A file in cases/ holds cases, each run in an empty folder of its own:

    # a comment
    == title of a case
    $ a shell command; it finds tconv, $DATA (testdata), $MADE (made here) and the helpers below
    > a line of its stdout, exactly       >~ a pattern for one line       >* any number of lines
    ! a line of its stderr, exactly       !~ a pattern for one line       !* any number of lines
    exit 3 truncated

Without `exit` the status is 0. A status above 1 is followed by the code of each error that tconv
reported, or by `-` where it reported none: a verdict, or another program's failure. Without `>`
lines stdout is empty, and without `!` lines stderr is, except that a failing tconv still ends with
its one error line. A command that is nothing but a
tconv that fails also keeps the rules for failures (see harness). Helpers: `field A B` prints
member B of member A of the JSON on stdin; `header FILE` prints a file's own JSON header;
`member FILE NAME` prints what a zip archive has under a name, and without one all the names.
"""

import functools
import os
import re
import shlex
import struct
import sys
from dataclasses import dataclass, field, replace

import compare_files
import files
import gguf_files
import pickles
import protobufs
from case_helpers import HELPERS
from files import Tensor, f32
from harness import (
    DATA,
    HERE,
    TCONV,
    WORK,
    Result,
    Suite,
    changes,
    failure_faults,
    health_faults,
    run,
    snapshot,
    text,
)

MADE, BIN = WORK / "made", WORK / "bin"
LINK = WORK / "data"  # to testdata, whose own path may hold spaces
SHELL = re.compile(r"[|&;<>`]")
# Words that a shell would take as they stand, but for the two variables; and what joins commands.
TOKEN = r"""(?:[\w./:,=+@%^-]|\$(?:DATA|MADE)\b|'[^'$]*'|"[^"$`\\]*")+|&&|[|<>]"""

SCRIPT = """#!{python} -IS
import sys
sys.path.insert(0, {here!r})
import case_helpers
case_helpers.main({name!r})
"""


def make_files():
    """What the cases read besides testdata."""
    LINK.symlink_to(DATA)
    MADE.mkdir()
    BIN.mkdir()
    (BIN / "tconv").symlink_to(TCONV)
    for name in ("field", "header", "member"):  # for lines that need a shell
        (BIN / name).write_text(SCRIPT.format(python=sys.executable, here=str(HERE), name=name))
        (BIN / name).chmod(0o755)

    def make(name, content):
        (MADE / name).write_bytes(content)

    pair = {"a": f32(1, 2, 3), "b": Tensor("I32", [2, 2], struct.pack("<4i", 1, 2, 3, 4))}
    make("pair.safetensors", files.safetensors(pair, {"format": "pt", "note": "two"}))
    dash = protobufs.initializer(f32(1, 2, 3), "w", protobufs.external("-", "0", "12"))
    make("dash.onnx", protobufs.model(dash))
    text = protobufs.number(1, 3) + protobufs.number(2, 8) + protobufs.block(8, "odd")
    for name, place in (("within", ("0", "12")), ("past", ("4", "12")), ("behind", ("13",))):
        odd = protobufs.block(5, text + protobufs.external("data", *place))
        make(f"{name}.onnx", protobufs.model(protobufs.initializer(f32(1, 2, 3), "w") + odd))
    make("pair.npz", files.npz(pair))
    make(
        "hostile.safetensors",
        files.safetensors(
            {
                name: f32(1)
                for name in (
                    "a\x1b[31mb",
                    "c\rd",
                    "e\nf",
                    "g\u202eh",
                    "i\x7fj",
                    'k"l\\m',
                    "ü\U0001f600",
                )
            }
        ),
    )
    rows = [struct.pack("<3i", *range(start, start + 3)) for start in range(0, 12, 3)]
    make("rows.npy", files.npy("<i4", (4, 3), b"".join(rows)))
    make("rows_1_3.npy", files.npy("<i4", (2, 3), b"".join(rows[1:3])))
    for label, names in {
        "collide": ("a/b", "a.b"),
        "fold": ("Weight", "weight"),
        "parent": ("../x",),
        "dots": ("..",),
        "prefix": ("a", "a/b"),
        "empty": ("",),
        "bar": ("a.b|c", "d.e"),
        "bars": ("a.b", "a|b"),
        "words": ("in", 'a"b\\c\nd', "ü.x y"),
    }.items():
        make(f"{label}.safetensors", files.safetensors({name: f32(1) for name in names}))
    entries, blob = files.entries_of(pair)
    entries["a"]["metadata"] = {"layer": "embed", "note": 'a "quote"'}
    make(
        "meta.deathtensors",
        files.deathtensors_raw(
            files.deathtensors_header(entries, {"format": "pt", "note": "two"}), blob
        ),
    )
    make("bf16.safetensors", files.safetensors({"w": Tensor("BF16", [2], b"\x80\x3f\x00\x40")}))
    tied = {"embed": f32(1, 2, 3, 4, shape=[2, 2]), "norm": f32(5, 6)}
    make("tied.safetensors", files.safetensors(tied, {"format": "pt", "lm.head": "embed"}))
    make("tied.deathtensors", files.deathtensors(tied, {"lm.head": "embed"}, files.CHECKSUM))
    make(
        "untied.safetensors",
        files.safetensors(
            {"norm": f32(5, 6), "pt": f32(1)},
            {"format": "pt", "note": "p", "norm": "pt", "tconv.x": "pt", "deathtensors.x": "pt"},
        ),
    )

    def ints(*values, shape=None):
        return Tensor("I64", shape or [len(values)], struct.pack(f"<{len(values)}q", *values))

    def sparse(layout, parts, others=(), more=()):
        """A file with the sparse tensor "s"; `more` is metadata of its parts beside their roles."""
        tensors = {f"s.{role}": part for role, part in parts.items()}
        entries, blob = files.entries_of(tensors | dict(others))
        for role in parts:
            entries[f"s.{role}"]["metadata"] = {
                "sparse_parent": "s",
                "sparse_role": role,
                "sparse_layout": layout,
                **dict(more).get(role, {}),
            }
        return files.deathtensors_raw(files.deathtensors_header(entries), blob)

    def coo(indices, shape, others=(), more=()):
        values = f32(*range(1, len(indices.data) // 8 // len(shape) + 1))
        return sparse(
            "coo", {"indices": indices, "values": values, "shape": ints(*shape)}, others, more
        )

    csr = {
        "crow_indices": ints(0, 2, 3),
        "col_indices": ints(2, 0, 1),
        "values": f32(1, 2, 3),
        "shape": ints(2, 3),
    }
    twice = ints(2, 0, 0, 1, 1, 1, shape=[2, 3])
    make("csr.deathtensors", sparse("csr", csr))
    make("dense.npy", files.npy("<f4", (2, 3), struct.pack("<6f", 2, 0, 1, 0, 3, 0)))
    make("coo.deathtensors", coo(twice, [3, 2], more={"values": {"k": "v"}, "shape": {"k": "w"}}))
    make("coo_taken.deathtensors", coo(twice, [3, 2], {"s": f32(1)}))
    make("coo_outside.deathtensors", coo(twice, [2, 2]))
    make("coo_many.deathtensors", coo(ints(*range(10_000), shape=[1, 10_000]), [10_000]))
    make("coo_bomb.deathtensors", coo(ints(5, shape=[1, 1]), [1 << 40]))
    make("object.npy", files.npy("|O", (1,), b"\x80\x04N."))
    make(
        "markup.safetensors",
        files.safetensors({"</script><script>alert(1)</script>": f32(1), "<img src=x onerror=alert(1)>&": f32(2)}),
    )
    make("f4.safetensors", files.safetensors({"w": Tensor("F4", [2, 4], bytes((1, 2, 3, 4)))}))
    make("f6.safetensors", files.safetensors({"w": Tensor("F6_E2M3", [4], bytes((1, 2, 3)))}))
    make("f4_odd.safetensors", files.safetensors({"w": Tensor("F4", [2, 3], bytes((1, 2, 3)))}))
    make("wide.safetensors", files.safetensors({"w": Tensor("F32", [0, 1 << 32], b"")}))
    make("empty.pt", pickles.pt(pickles.pickled({}), data={}))
    make_onnx(make)
    compare_files.make(MADE)
    odd = gguf_files.pair("odd", 8, gguf_files.string(b"\xff\xfe"))
    make("odd.gguf", gguf_files.gguf({"w": f32(1, 2, 3)}, [odd]))
    make("lfs.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")


def make_onnx(make):
    """Models with tensors in all the places where one may be."""
    number, block, packed = protobufs.number, protobufs.block, protobufs.packed
    constant, attribute, initializer = (
        protobufs.constant,
        protobufs.attribute,
        protobufs.initializer,
    )
    weight = initializer(f32(1, 2), "w")
    text = number(1, 1) + number(2, protobufs.STRING) + block(6, "text")
    branch = attribute("then_branch", block(6, initializer(f32(3), "w")))
    make(
        "nodes.onnx",
        protobufs.model(
            weight
            + constant("c", "value_ints", packed(8, [1, -2]))
            + constant("f", "value_float", protobufs.fixed32(2, 0.5))
            + protobufs.node(branch, "y", "if", "If"),
            behind=protobufs.pair(14, "k", "v"),
        ),
    )
    make("texts.onnx", protobufs.model(weight + constant("t", "value", block(5, text))))
    texts = b"".join(constant(f"t{i}", "value", block(5, text)) for i in range(8))
    make("skips.onnx", protobufs.model(weight + texts))
    make("only_texts.onnx", protobufs.model(texts))
    make("text.onnx", protobufs.model(weight + block(5, text + block(8, "t"))))
    indices = Tensor("I64", [3, 2], struct.pack("<6q", 0, 2, 1, 0, 1, 1))
    sparse = block(1, protobufs.tensor_proto(f32(1, 2, 3), "s"))
    sparse += block(2, protobufs.tensor_proto(indices)) + number(3, 2) + number(3, 3)
    make("sparse.onnx", protobufs.model(block(15, sparse)))
    nibbles = Tensor("I4", [3], b"\x21\x03")
    make("odd.onnx", protobufs.model(initializer(nibbles, "w")))
    items = [protobufs.tensor_proto(each) for each in (f32(1), f32(2, 3))]
    make("list.pb", number(2, 1) + b"".join(block(3, item) for item in items))
    make(
        "large.safetensors",
        files.safetensors({"w": Tensor("U8", [2000], bytes(2000)), "b": f32(1)}),
    )


@dataclass
class Step:
    """One command of a case and what it must give."""

    command: str
    out: list = field(default_factory=list)
    err: list = field(default_factory=list)
    status: int = 0
    codes: list = field(default_factory=list)  # of the errors that it reports


def parse(path):
    """The cases of a file: (title, steps)."""
    cases = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark, _, rest = line.partition(" ")
        if mark == "==":
            cases.append((rest, []))
        elif mark == "$":
            cases[-1][1].append(Step(rest))
        elif mark in (">", ">~", ">*"):
            cases[-1][1][-1].out.append((mark[1:], rest))
        elif mark in ("!", "!~", "!*"):
            cases[-1][1][-1].err.append((mark[1:], rest))
        elif mark == "exit":
            status, *codes = rest.split()
            step = cases[-1][1][-1]
            step.status, step.codes = int(status), [code for code in codes if code != "-"]
            if step.status > 1 and not codes:
                raise SystemExit(f"{path}:{number}: which error? `exit {rest} CODE`")
        elif line and mark != "#":
            raise SystemExit(f"{path}:{number}: what is {line!r}?")
    return cases


def pattern_of(lines):
    """One expression for expected lines."""

    def one(kind, line):
        line = line if kind == "~" else re.escape(line)
        for name, path in (("DATA", LINK), ("MADE", MADE)):
            line = line.replace(f"${name}", re.escape(str(path))).replace(
                f"\\${name}", re.escape(str(path))
            )
        return "(?:[^\n]*\n)*" if kind == "*" else f"(?:{line})\n"

    return "".join(one(kind, line) for kind, line in lines)


@dataclass
class Command:
    words: list
    source: str = None  # the file that its standard input is
    target: str = None  # the file that its standard output goes to


def parse_line(line):
    """The pipelines of a line that needs no shell, which are joined by `&&`; None: it needs one.

    A shell, a script in Python and a tconv that starts each cost more than most commands do.
    """
    tokens = re.findall(rf" ({TOKEN})(?= |$)", f" {line}")
    if " ".join(tokens) != line:
        return None
    pipelines, redirect = [[Command([])]], None
    for token in tokens:
        last = pipelines[-1][-1]
        if redirect:
            setattr(last, redirect, word_of(token))
            redirect = None
        elif token in ("<", ">"):
            redirect = "source" if token == "<" else "target"
        elif token == "|":
            pipelines[-1].append(Command([]))
        elif token == "&&":
            pipelines.append([Command([])])
        else:
            last.words.append(word_of(token))
    simple = not redirect and all(is_simple(pipeline) for pipeline in pipelines)
    return pipelines if simple else None


def word_of(token):
    for name, path in (("DATA", LINK), ("MADE", MADE)):
        token = token.replace(f"${name}", str(path))
    return shlex.split(token)[0]


def is_simple(pipeline):
    """Whether the first command is tconv or a helper, and what it prints goes to helpers alone."""

    def is_helper(command):
        name, *words = command.words or [""]
        options = [word for word in words if name == "cmp" and word.startswith("-") and word != "-"]
        return name in HELPERS and not options

    first, *others = pipeline
    return (
        (is_helper(first) or first.words[:1] == ["tconv"])
        and all(is_helper(command) and not command.source for command in others)
        and not any(command.target for command in pipeline[:-1])
        and not (pipeline[-1].target or "").startswith("/")  # such as /dev/full
    )


def run_helper(name, words, data, folder):
    try:
        return *HELPERS[name](words, data, folder), b""
    except (LookupError, TypeError, ValueError, OSError) as problem:
        return 1, b"", f"{name}: {problem!r}\n".encode()


def run_pipeline(pipeline, folder, env):
    """What a shell would make of it: the status is that of the last command."""
    data, errors = b"", b""
    for command in pipeline:
        name, *words = command.words
        source = folder / command.source if command.source else None
        if name == "tconv":
            result = run(TCONV, *words, cwd=folder, env=env, stdin=source or "/dev/null")
            code, data, err = result.code, result.out, result.err
            if code < 0 or result.timed_out:
                return result
        else:
            code, data, err = run_helper(name, words, source.read_bytes() if source else data, folder)
            result = Result(command.words, code, data, err, 0, 0, 0, False)
        if command.target:
            (folder / command.target).write_bytes(data)
            data = b""
        errors += err
    return replace(result, code=code, out=data, err=errors)


def run_line(line, folder, env):
    pipelines = parse_line(line)
    if not pipelines:
        return run("sh", "-c", line, cwd=folder, env=env)
    out, err = b"", b""
    for pipeline in pipelines:
        result = run_pipeline(pipeline, folder, env)
        out, err = out + result.out, err + result.err
        if result.code != 0:
            break
    return replace(result, out=out, err=err)


def run_step(step, folder):
    plain = step.command.startswith("tconv ") and not SHELL.search(step.command)
    before = snapshot(folder)
    code_file = folder.with_suffix(".codes")
    env = {"DATA": str(LINK), "MADE": str(MADE), "TCONV_TEST_CODES": str(code_file)}
    env["PATH"] = f"{BIN}:{os.environ['PATH']}"
    result = run_line(step.command, folder, env)
    faults = health_faults(result)
    if result.code != step.status:
        faults.append(f"expected: exit {step.status}, got {result.code}")
    codes = code_file.read_text().split() if code_file.exists() else []
    code_file.unlink(missing_ok=True)
    if codes != step.codes:
        faults.append(f"expected: errors {step.codes}, got {codes}")
    failing = plain and step.status > 1
    for name, lines, got in (("stdout", step.out, result.out), ("stderr", step.err, result.err)):
        unchecked = name == "stderr" and failing and not lines
        if not unchecked and not re.fullmatch(pattern_of(lines), text(got) + "\n" if got else ""):
            expected = "\n".join(f"  {kind or ' '} {line}" for kind, line in lines) or "  nothing"
            faults.append(f"{name} expected:\n{expected}\n{name} got:\n  {text(got)[:3000]}")
    if failing:
        faults += failure_faults(result, quiet=False)
        faults += [
            f"expected: files untouched, but {change}"
            for change in changes(before, snapshot(folder))
        ]
    if faults:
        raise result.failed(*faults)


def run_case(steps, folder):
    for step in steps:
        run_step(step, folder)


def cases():
    for path in sorted((HERE / "cases").glob("*.case")):
        for title, steps in parse(path):
            yield f"{path.stem}: {title}", functools.partial(run_case, steps)


if __name__ == "__main__":
    suite = Suite(__doc__.partition("\n")[0])
    make_files()
    sys.exit(suite.run(cases()))
