"""What .case files run besides tconv: `field`, `header`, `member` and `cmp`.

Each takes its words, what comes on its standard input and the folder that it runs in, and returns its
exit status and what it prints. test_cli.py calls them, or a shell does, by a script of their name.
"""

import json
import os
import sys

DIFFERENT = 1


def read(name, data, folder):
    if name == "-":
        return data
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def field(words, data, folder):
    value = json.loads(data)
    for key in words:
        value = value[int(key) if isinstance(value, list) else key]
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return 0, text.encode() + b"\n"


def header(words, data, folder):
    data = read(words[0], data, folder)
    at = 16 if data.startswith(b"DTLEGION") else 0
    return 0, data[at + 8 : at + 8 + int.from_bytes(data[at : at + 8], "little")]


def member(words, data, folder):
    import zipfile  # takes longer than all else

    archive = zipfile.ZipFile(os.path.join(folder, words[0]))
    if words[1:]:
        return 0, archive.read(words[1])
    return 0, "".join(f"{name}\n" for name in archive.namelist()).encode()


def cmp(words, data, folder):
    first, second = (read(name, data, folder) for name in words)
    return (0, b"") if first == second else (DIFFERENT, f"{' '.join(words)} differ\n".encode())


HELPERS = {"field": field, "header": header, "member": member, "cmp": cmp}
READ_INPUT = ("field",)  # whatever their words are


def main(name):
    """A helper by itself."""
    data = sys.stdin.buffer.read() if name in READ_INPUT else b""
    status, out = HELPERS[name](sys.argv[1:], data, ".")
    sys.stdout.buffer.write(out)
    sys.exit(status)
