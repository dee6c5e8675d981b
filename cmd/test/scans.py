"""Running `tconv scan`: its verdicts, and the exit code of each."""

from harness import changes, health_faults, snapshot, tconv

CLEAN, OTHER, BROKEN, CODE, UNSAFE = "clean", "other", "broken", "code", "unsafe"
EXIT = {CLEAN: 0, OTHER: 3, BROKEN: 3, CODE: 1, UNSAFE: 1}


def scan(folder, *args):
    """Run `tconv scan`, whatever its exit code; no file may change."""
    before = snapshot(folder)
    result = tconv("scan", *args, cwd=folder)
    faults = health_faults(result) + changes(before, snapshot(folder))
    if faults:
        raise result.failed(*faults)
    return result
