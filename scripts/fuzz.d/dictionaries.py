"""The dictionary of a fuzz target: cmd/test/fuzz/dictionaries/TARGET.dict, with those that its line `# also:` names."""

import re
from pathlib import Path

FOLDER = Path("cmd/test/fuzz/dictionaries")


def lines(name, seen):
    path = FOLDER / f"{name}.dict"
    if name in seen or not path.exists():
        return
    seen.add(name)
    text = path.read_text()
    yield from (line for line in text.splitlines() if line and not line.startswith("#"))
    for also in re.findall(r"^# also: (.*)$", text, re.M):
        for other in also.split():
            yield from lines(other, seen)


def write(target, folder):
    """Writes the whole dictionary to a folder; its path."""
    path = folder / f"fuzz_{target}.dict"
    path.write_text("".join(f"{line}\n" for line in dict.fromkeys(lines(target, set()))))
    return path
