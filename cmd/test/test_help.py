#!/usr/bin/env python3
"""Help, manual pages and completions say the same, and the pages are well-formed."""

import functools
import os
import re
import shutil
import subprocess
import sys

from harness import DATA, OK, TCONV, Skip, Suite, check_equal, expect

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
    named = set(re.findall(r"(?:^|[ ,])(--?[a-z][a-z-]*)", re.sub(r"(?m)^(?!  -| {4,}--).*$", "", text)))
    check_equal(offered - named, set(), "words that the help lacks")
    plain = page.replace("\\-", "-")
    on_page = set(re.findall(r"\\fB(--?[a-z][a-z-]*)\\fR", plain))
    check_equal(on_page, offered, "options of the manual page")
    for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"):
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
    result = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", "-K", "utf8"], input=page, capture_output=True, check=True
    )
    check_equal(result.stderr.decode(), "", "what groff says")


def complete(folder, *line):
    """What bash offers for the last word."""
    script = (
        f"PATH={os.path.dirname(TCONV)}:$PATH; source {COMPLETIONS / 'tconv.bash'}; "
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tconv; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    result = subprocess.run(
        ["bash", "-c", script, "bash", *line], capture_output=True, text=True, cwd=folder, check=True
    )
    check_equal(result.stderr, "", "stderr of the completion")
    return [word for word in result.stdout.split("\n") if word]


def check_bash(folder):
    file = str(DATA / "pt" / "tied.pt")
    for line, expected in (
        (("tconv", "sc"), ["scan"]),
        (("tconv", "get", file, "lm"), ["lm_head.weight"]),
        (("tconv", "get", file, ""), ["emb.weight", "lm_head.weight"]),
        (("tconv", "-t", "safe"), ["safetensors"]),
        (("tconv", "info", "-f", "np"), ["npy", "npz"]),
        (("tconv", "--dtype", "BF"), ["BF16"]),
        (("tconv", "--dtype", "=", "BF"), ["BF16"]),
        (("tconv", "convert", "--order", "so"), ["source"]),
        (("tconv", "--tied", "=", ""), ["auto", "keep", "copy", "error"]),
        (("tconv", "info", "--max-h"), ["--max-header"]),
    ):
        check_equal(complete(folder, *line), expected, " ".join(line))


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
    yield "overview", functools.partial(check_overview, commands)
    yield "overview: troff", functools.partial(check_troff, [])
    yield "bash", check_bash
    for shell, file in (("bash", "tconv.bash"), ("zsh", "_tconv"), ("fish", "tconv.fish")):
        yield f"{shell}: syntax", functools.partial(check_syntax, shell, file)
    yield "an unknown form", check_form


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(list(cases())))
