"""Holds the rows of cmd/test/rows/*.md against what the suites of a build recorded.

    attacks.py suites            the suites that have tests of rows, one a line
    attacks.py table [BUILD]     a line a row: commands, exit statuses, seconds, memory, verdict
    attacks.py check [BUILD]     only the rows that fail

The records are build/logs/BUILD-SUITE.cases (TCONV_TEST_RECORD, cmd/test/harness.py); BUILD is
`test` where it is left out. The last line is `N passed, N failed`.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = ROOT / "cmd/test/rows"
LOGS = ROOT / "build/logs"
STATUSES = ("OK", "DIFFERENT", "USAGE", "INVALID", "UNSUPPORTED", "UNSAFE", "IO")
LINE = re.compile(r"\| (\w+) \| ([A-Z, or]+) \| (.*?) ?\| (.+) \|")
COMMAND_WIDTH = 44


@dataclass(frozen=True)
class Row:
    id: str
    demands: tuple  # sets of names, of each of which one must be seen
    tests: tuple  # (suite, pattern of a case's name)
    attack: str


def rows():
    for table in sorted(TABLES.glob("*.md")):
        for line in table.read_text().splitlines():
            match = LINE.fullmatch(line)
            if match:
                yield row_of(*match.groups())
            elif re.match(r"\| [A-Z]+[0-9]", line):
                sys.exit(f"{table}: not a row: {line}")


def row_of(row_id, ends, also, attack):
    demands = tuple(frozenset(term.split(" or ")) for term in ends.split(", "))
    unknown = set().union(*demands) - {*STATUSES, "SIGNAL"}
    if unknown:
        sys.exit(f"{row_id}: no such end: {', '.join(unknown)}")
    # N12 has tests N12 and N12b, each with a label behind it.
    tests = [("test_attacks", re.compile(rf"{row_id}[a-z]* "))]
    for words in filter(None, also.split("; ")):
        suite, _, start = words.partition(" ")
        tests.append((suite, re.compile(re.escape(start))))
    return Row(row_id, demands, tuple(tests), attack)


def name_of(status):
    if status < 0:
        return "SIGNAL"
    return STATUSES[status] if status < len(STATUSES) else str(status)


class Records:
    """What the suites of one build recorded."""

    def __init__(self, build):
        self.build = build
        self.suites = {}

    def cases(self, suite):
        if suite not in self.suites:
            path = LOGS / f"{self.build}-{suite}.cases"
            lines = path.read_text().splitlines() if path.exists() else []
            self.suites[suite] = [json.loads(line) for line in lines]
        return self.suites[suite]

    def of(self, row):
        """The cases of a row, and the tests it names that have none."""
        found, missing = [], []
        for number, (suite, pattern) in enumerate(row.tests):
            cases = [case for case in self.cases(suite) if pattern.match(case["case"])]
            found += cases
            if not cases and number > 0:
                missing.append(f"{suite} {pattern.pattern}")
        return found, missing


def verdict(row, cases, missing):
    """Why a row fails, "" where it does not, or None where this machine can't tell."""
    seen = {name_of(status) for case in cases for status in case["statuses"]}
    failed = [case["case"] for case in cases if case["outcome"] == "FAIL"]
    if failed:
        return f"failed: {failed[0]}" + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
    if missing:
        return f"no such test: {', '.join(missing)}"
    if not cases:
        return "no test"
    if all(case["outcome"] == "SKIP" for case in cases):
        return None
    lacking = [" or ".join(sorted(demand)) for demand in row.demands if not demand & seen]
    return f"never ended with {', '.join(lacking)}" if lacking else ""


def line_of(row, cases, reason):
    runs = sum(case["runs"] for case in cases)
    commands = [case["command"] for case in cases if case["command"]]
    command = commands[0].split("\n")[0] if commands else "-"
    if len(command) > COMMAND_WIDTH:
        command = command[: COMMAND_WIDTH - 1] + "…"
    more = f"+{runs - 1}" if runs > 1 else ""
    statuses = ",".join(map(str, sorted({status for case in cases for status in case["statuses"]})))
    seconds = max((case["seconds"] for case in cases), default=0)
    memory = max((case["memory"] for case in cases), default=0) / 2**20
    word = "SKIP" if reason is None else f"FAIL {reason}" if reason else "pass"
    return (
        f"{row.id:<5} {command:<{COMMAND_WIDTH}} {more:>6}  {statuses:<12} {seconds:7.2f} "
        f"{memory:7.1f}  {word}"
    )


def report(build, whole):
    """Print the rows, or only those that fail; returns the numbers of those that passed and failed."""
    records, count = Records(build), {"passed": 0, "failed": 0, "skipped": 0}
    if whole:
        print(
            f"{'row':<5} {'command':<{COMMAND_WIDTH}} {'more':>6}  {'exit':<12} {'seconds':>7} "
            f"{'MiB':>7}  verdict"
        )
    for row in rows():
        cases, missing = records.of(row)
        reason = verdict(row, cases, missing)
        count["skipped" if reason is None else "failed" if reason else "passed"] += 1
        if whole or reason:
            print(line_of(row, cases, reason))
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    print(f"{count['passed']} passed, {count['failed']} failed{skipped}")
    return count["passed"], count["failed"]


def suites():
    return sorted({suite for row in rows() for suite, _ in row.tests})


def main():
    what, build = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "test"
    if what == "suites":
        print("\n".join(suites()))
        return 0
    passed, failed = report(build, what == "table")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
