#!/usr/bin/env python3
"""Help, manual pages and completions say the same, the pages are well-formed, and their examples run."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys

from hub_server import sample_hub
from harness import DATA, OK, REMOTE, TCONV, Skip, Suite, check_equal, expect, run
from test_docs import make_samples

COMPLETIONS = DATA.parent / "cmd" / "completions"


def words(*arguments):
    result = subprocess.run(
        [TCONV, *arguments, "--help=words"], capture_output=True, text=True, check=True
    )
    return [line.split("\t") for line in result.stdout.splitlines()]


def check_command(command, folder):
    text = expect(folder, OK, command, "--help").out.decode()
    page = expect(folder, OK, command, "--help=man").out.decode()
    offered = {line[0] for line in words(command)}
    named = set(re.findall(r"(?:^|[ ,])(--?[a-z][a-z0-9-]*)", re.sub(r"(?m)^(?!  -| {4,}--).*$", "", text)))
    check_equal(offered - named, set(), "words that the help lacks")
    plain = page.replace("\\-", "-")
    on_page = set(re.findall(r"\\fB(--?[a-z][a-z0-9-]*)\\fR", plain))
    check_equal(on_page, offered, "options of the manual page")
    for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS"):
        check_equal(f"\n.SH {part}\n" in page, True, part)
    check_equal(f"tconv-{command} - " in plain, True, "its name")


def check_overview(commands, folder):
    page = expect(folder, OK, "--help=man").out.decode()
    text = expect(folder, OK, "--help").out.decode()
    for command in commands:
        check_equal(f".BR tconv\\-{command} (1)" in page, True, f"{command} on the page")
        check_equal(f"\n  {command} " in text, True, f"{command} in the help")


def check_troff(arguments, folder):
    if not shutil.which("groff"):
        raise Skip("groff is not here")
    page = expect(folder, OK, *arguments, "--help=man").out
    for device in ("utf8", "ascii"):
        result = subprocess.run(
            ["groff", "-man", f"-T{device}", "-ww", "-z", "-K", "utf8"], input=page, capture_output=True, check=True
        )
        check_equal(result.stderr.decode(), "", f"what groff says of {device}")


def examples(page):
    """The command lines of a page's examples, each with what it does."""
    part = re.search(r"\n\.SH EXAMPLES\n(.*?)(?=\n\.SH )", page, re.S)
    plain = part[1]
    for troff, text in (("\\-", "-"), ("\\(aq", "'"), ("\\(ha", "^"), ("\\(ti", "~"), ("\\&", ""), ("\\e", "\\")):
        plain = plain.replace(troff, text)
    found = re.findall(r"^\.PP\n(.+)\n\.PP\n\.RS 4\n\.EX\n(.+)\n\.EE\n\.RE$", plain, re.M)
    return [(line, what) for what, line in found]


def check_examples(arguments, folder):
    """Each runs, one after the other, where the files are that they name."""
    found = examples(expect(folder, OK, *arguments, "--help=man").out.decode())
    check_equal(1 <= len(found) <= 4, True, f"one to four examples, not {len(found)}")
    make_samples(folder)
    (folder / "bin").mkdir()
    (folder / "bin" / "tconv").symlink_to(TCONV)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    if not REMOTE:
        found = [each for each in found if "hf://" not in each[0] and not each[0].startswith("tconv hub")]
    hub, env = sample_hub(folder, {"model.safetensors": (folder / "model.safetensors").read_bytes()})
    with hub:
        run_examples(arguments, found, folder, {"PATH": path, **env})


def run_examples(arguments, found, folder, env):
    for line, what in found:
        # convert needs no word of its own
        known = line.split()[1] == arguments[0] if arguments and arguments[0] != "convert" else True
        check_equal((line.split()[0], known), ("tconv", True), f"an example of the command: {line}")
        check_equal(bool(re.fullmatch(r"[A-Z].*\.", what)), True, f"a sentence: {what}")
        result = run("bash", "-euo", "pipefail", "-c", line, cwd=folder, env=env)
        check_equal(result.code, OK, f"the exit code of {line}", result)
        check_equal(b"nothing to do" in result.err, False, f"an idle option of {line}", result)


def check_format_options(folder):
    """Options that formats declare for reading are taken by all commands that read, those for writing by convert."""
    lines = expect(folder, OK, "formats", "--json").out.decode().splitlines()
    declared = {option["name"]: option for line in lines for option in json.loads(line)["options"]}
    check_equal(
        set(declared), {"--npy-void", "--gguf-version", "--pickle", "--strings", "--onnx-external", "--ot-dialect"}, "options"
    )
    listed = expect(folder, OK, "formats").out.decode()
    offered = {command: {line[0]: line for line in words(command)} for command in ("convert", "info", "scan")}
    for name, option in declared.items():
        check_equal(f"\n{name} " in listed, True, f"{name} in the table")
        check_equal(offered["convert"][name][3], option["help"], name)
        check_equal(offered["convert"][name][1], option["argument"] or "", name)
        for command in ("info", "scan"):
            check_equal(name in offered[command], option["for"] == "reading", f"{name} of {command}")


def check_idle_options(folder):
    """An option for writing that the target does not have is warned of, unless it has its default value."""
    make_samples(folder)
    for arguments, warned in (
        (("out.npz", "--onnx-external"), b"--onnx-external has nothing to do: the output is no ONNX model"),
        (("out.npz", "--ot-dialect", "onnx"), b"--ot-dialect has nothing to do: the output is no .ot"),
        (("out.npz", "--ot-dialect", "libtorch"), None),
        (("out.ot", "--ot-dialect", "onnx", "--onnx-external"), None),
        (("out.onnx", "--ot-dialect", "onnx"), None),
    ):
        result = expect(folder, OK, "model.safetensors", *arguments)
        check_equal(warned in result.err if warned else b"nothing to do" not in result.err, True, arguments)


# What each shell offers for the last word of a line, one a line. The files may have any name, so they
# come as arguments.
BASH = """source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tconv
printf "%s\\n" "${COMPREPLY[@]}"
"""
# zsh completes only on a terminal: what its own functions are given is printed instead.
ZSH = """compadd() { [[ $1 == -a ]] && print -rl -- "${(@P)2}" }
_describe() { print -rl -- "${(@)${(@P)2}%%:*}" }
compset() { return 0 }
_files() { return 0 }
offered() { source "$1" }
file=$0 words=("$@") CURRENT=$#
offered "$file"
"""
FISH = """source $argv[1]; complete -C (string join " " -- (string escape -- $argv[2..-2]) $argv[-1])"""
SHELLS = {
    "bash": ("tconv.bash", ["bash", "--norc", "-c", BASH]),
    "zsh": ("_tconv", ["zsh", "-f", "-c", ZSH]),
    "fish": ("tconv.fish", ["fish", "--no-config", "-c", FISH, "--"]),
}


def complete(shell, folder, *line):
    if not shutil.which(shell):
        raise Skip(f"{shell} is not here")
    file, command = SHELLS[shell]
    env = {**os.environ, "PATH": f"{os.path.dirname(TCONV)}:{os.environ['PATH']}", "HOME": str(folder)}
    result = subprocess.run(
        [*command, COMPLETIONS / file, *line],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        check=True,
    )
    check_equal(result.stderr, "", "stderr of the completion")
    begin = line[-1].rpartition("=")[2]
    words = [word.split("\t")[0].rpartition("=")[2] for word in result.stdout.split("\n") if word]
    return [word for word in words if word.startswith(begin)]


def check_completion(shell, folder):
    file = str(DATA / "pt" / "tied.pt")
    equals = ("=",) if shell == "bash" else ()  # only bash makes a word of it

    def valued(option, value):
        return (option, *equals, value) if equals else (f"{option}={value}",)

    for line, expected in (
        (("tconv", "sc"), ["scan"]),
        (("tconv", "get", file, "lm"), ["lm_head.weight"]),
        (("tconv", "get", file, "emb"), ["emb.weight"]),
        (("tconv", "-t", "safe"), ["safetensors"]),
        (("tconv", "info", "-f", "np"), ["npy", "npz"]),
        (("tconv", "--dtype", "BF"), ["BF16"]),
        (("tconv", "--npy-void", "BF"), ["BF16"]),
        (("tconv", "info", "--pickle", ""), ["strict", "inert"]),
        (("tconv", "convert", "--order", "so"), ["source"]),
        (("tconv", "info", "--max-h"), ["--max-header"]),
    ):
        check_equal(complete(shell, folder, *line), expected, " ".join(line))
    if shell == "fish":
        return  # it completes a value only behind a space
    for line, expected in (
        (("tconv", *valued("--dtype", "BF")), ["BF16"]),
        (("tconv", *valued("--tied", "")), ["auto", "keep", "copy", "error"]),
    ):
        check_equal(complete(shell, folder, *line), expected, " ".join(line))


def check_syntax(shell, file, folder):
    if not shutil.which(shell):
        raise Skip(f"{shell} is not here")
    result = subprocess.run([shell, "-n", COMPLETIONS / file], capture_output=True, text=True)
    check_equal((result.returncode, result.stderr), (0, ""), f"{shell} -n {file}")


def check_form(folder):
    expect(folder, 2, "info", "--help=html")


def cases():
    commands = [word for kind, word, _ in words() if kind == "command"]
    for command in commands:
        yield command, functools.partial(check_command, command)
        yield f"{command}: troff", functools.partial(check_troff, [command])
        yield f"{command}: examples", functools.partial(check_examples, [command])
    yield "overview", functools.partial(check_overview, commands)
    yield "overview: troff", functools.partial(check_troff, [])
    yield "overview: examples", functools.partial(check_examples, [])
    yield "options of formats", check_format_options
    yield "options without effect", check_idle_options
    for shell, (file, _) in SHELLS.items():
        yield f"{shell}: completion", functools.partial(check_completion, shell)
        yield f"{shell}: syntax", functools.partial(check_syntax, shell, file)
    yield "an unknown form", check_form


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(list(cases())))
