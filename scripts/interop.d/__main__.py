"""Runs the sections, each in a process of its own: a peer that aborts costs one section, not the run.

    python interop.d TCONV WORK [SECTION...]
"""
import os
import sys
import traceback
from importlib import import_module, metadata
from multiprocessing import get_context
from pathlib import Path

SECTIONS = {  # and the peers that each can't do without
    "npy": ["numpy"],
    "conversions": ["numpy"],
    "metadata": ["numpy", "safetensors", "deathtensors"],
    "append": ["numpy", "deathtensors"],
    "manifest": ["numpy", "deathtensors"],
    "promotion": ["numpy", "ml_dtypes", "safetensors"],
}
SHOWN = 20  # failures a section


def main(program, work, *wanted):
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        sys.exit(f"interop: no such section: {', '.join(unknown)} (there are {', '.join(SECTIONS)})")
    missing = report_peers()
    total = {"passed": 0, "failed": 0, "skipped": 0}
    if os.environ.get("CI"):
        total["failed"] += len(missing)
    for name in wanted or SECTIONS:
        lacking = [peer for peer in SECTIONS[name] if peer in missing]
        if lacking:
            passed, failures, skipped = 0, [], [f"all of it needs {' and '.join(lacking)}"]
        else:
            passed, failures, skipped = run_alone(name, program, work)
        print(f"{name}: {passed + len(failures)} checks, {len(failures)} failed")
        print_indented("FAIL", failures)
        print_indented("skipped", skipped)
        total["passed"] += passed
        total["failed"] += len(failures)
        total["skipped"] += len(skipped)
    print("{passed} passed, {failed} failed".format(**total) + (f", {total['skipped']} skipped" if total["skipped"] else ""))
    return 1 if total["failed"] else 0


def report_peers() -> list[str]:
    """Prints each peer's version; the names of those that can't be used."""
    missing = []
    for line in (Path(__file__).parent / "requirements.txt").read_text().splitlines():
        peer = line.partition("==")[0]
        if line.startswith("#"):
            continue
        try:
            import_module(peer)
            print(f"peer {peer} {metadata.version(peer)}")
        except ImportError as error:
            print(f"peer {peer} could not be set up: {error}")
            missing.append(peer)
    return missing


def run_alone(name, program, work) -> tuple[int, list[str], list[str]]:
    """What the section passed, failed and skipped."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_section, args=(name, program, work, sender))
    sys.stdout.flush()
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        return 0, [f"the section's process ended early, with exit code {process.exitcode}"], []


def run_section(name, program, work, sender):
    from checks import Checks, Tconv

    checks = Checks()
    try:
        import_module(name).run(checks, Tconv(program, Path(work), checks))
    except Exception:
        checks.fail(f"cut short: {traceback.format_exc()}")
    sender.send((checks.passed, checks.failures, checks.skipped))


def print_indented(label, lines):
    for line in lines[:SHOWN]:
        print(f"  {label}: {line}")
    if len(lines) > SHOWN:
        print(f"  {label}: and {len(lines) - SHOWN} more")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
