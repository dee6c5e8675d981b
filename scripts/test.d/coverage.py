"""The lines that the tests of a build ran: coverage.py clear BUILD | report BUILD RESULTS.json

`clear` forgets earlier runs and lets commands that gave up root's rights count too. `report` prints a
figure a file of core, formats and cmd, one a folder, and the total; the JSON has the lines that never ran.
How counts of processes without an exit are kept: core/test/coverage.h.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOPS = ("core", "formats", "cmd")


def clear(build):
    for path in build.rglob("*.gcno"):
        data = path.with_suffix(".gcda")
        data.write_bytes(b"")  # as if there were none
        data.chmod(0o666)


def counts_of(notes):
    """{file: {line: how often it ran}} of one object file."""
    data = notes.with_suffix(".gcda")
    if data.exists() and data.stat().st_size == 0:
        data.unlink()  # nothing of it ran
    text = subprocess.run(
        ["gcov", "--json-format", "--stdout", notes.name],
        cwd=notes.parent,
        check=True,
        capture_output=True,
    ).stdout
    counts = {}
    for document in map(json.loads, text.splitlines()):
        for file in document["files"]:
            path = Path(os.path.normpath(Path(document["current_working_directory"], file["file"])))
            if not path.is_relative_to(ROOT):
                continue
            name = path.relative_to(ROOT)
            if name.parts[0] in TOPS and "test" not in name.parts:
                lines = counts.setdefault(str(name), {})
                for line in file["lines"]:
                    number = line["line_number"]
                    lines[number] = max(lines.get(number, 0), line["count"])
    return counts


def report(build, results):
    total = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for counts in pool.map(counts_of, sorted(build.rglob("*.gcno"))):
            for name, lines in counts.items():
                known = total.setdefault(name, {})
                for number, count in lines.items():
                    known[number] = max(known.get(number, 0), count)
    rows = {}
    for name, lines in sorted(total.items()):
        missed = sorted(number for number, count in lines.items() if count == 0)
        rows[name] = {"lines": len(lines), "ran": len(lines) - len(missed), "missed": missed}
        show(name, [rows[name]])
    tops = {top: [row for name, row in rows.items() if name.startswith(top)] for top in TOPS}
    folders = {top: show(top, chosen) for top, chosen in tops.items()}
    share = show("all", rows.values())
    found = {"percent": share, "folders": folders, "files": rows}
    Path(results).write_text(json.dumps(found, indent=1) + "\n")


def show(name, rows):
    """Prints and returns how many of a hundred lines ran."""
    ran, lines = (sum(row[key] for row in rows) for key in ("ran", "lines"))
    share = 100 * ran / max(1, lines)
    print(f"{name:<40} {ran:5} of {lines:5} {share:6.1f} %")
    return round(share, 2)


if __name__ == "__main__":
    if sys.argv[1] == "clear":
        clear(Path(sys.argv[2]).resolve())
    else:
        report(Path(sys.argv[2]).resolve(), sys.argv[3])
