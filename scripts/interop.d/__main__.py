"""Runs the sections, each in a process of its own: a peer that aborts costs one section, not the run.

    python interop.d TCONV WORK [SECTION...]
    python interop.d --peers [SECTION...]       the peers that these sections use, as requirements.txt pins them
"""
import os
import subprocess
import sys
import traceback
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple


class Section(NamedTuple):
    needs: tuple[str, ...]  # the peers that it can't do without
    uses: tuple[str, ...] = ()  # those that it checks in part


SECTIONS = {
    "npy": Section(("numpy",)),
    "conversions": Section(("numpy",), ("safetensors", "deathtensors")),
    "metadata": Section(("numpy", "safetensors", "deathtensors")),
    "promotion": Section(("numpy", "ml_dtypes", "safetensors"), ("deathtensors",)),
    "pt": Section(("numpy", "safetensors", "torch"), ("deathtensors",)),
    "trees": Section(("numpy", "safetensors", "torch"), ("deathtensors",)),
    "pt_old": Section(("numpy", "torch", "old_torch")),
    "ot": Section(("numpy", "safetensors", "torch"), ("tch",)),
    "pt_differential": Section(("numpy", "torch")),
    "zip_differential": Section(("numpy", "torch")),
    "scan": Section(("numpy", "picklescan", "fickling", "modelscan"), ("tensorflow_cpu",)),
    "scan_differential": Section(("numpy", "torch", "joblib")),
    "classes": Section(("numpy", "torch"), ("joblib", "pandas", "jaxlib", "jax")),
    "onnx_peer": Section(("numpy", "ml_dtypes", "onnx"), ("onnxruntime",)),
    "gguf_peer": Section(("numpy", "gguf"), ("ggml",)),
    "block_scales": Section(("numpy", "safetensors", "torch"), ("compressed_tensors", "transformers", "accelerate")),
    "dcp_peer": Section(("numpy", "safetensors", "torch"), ("zstandard",)),
    "zero_peer": Section(("numpy", "safetensors", "torch", "deepspeed")),
    "append": Section(("numpy", "deathtensors")),
    "folders": Section(("numpy", "safetensors", "torch", "transformers")),
    "manifest": Section(("numpy", "deathtensors")),
    "diff": Section(("numpy", "safetensors", "deathtensors")),
    "stats": Section(("numpy", "ml_dtypes"), ("deathtensors",)),
    "show": Section(("numpy", "ml_dtypes")),
    "ci": Section(("pre_commit", "check_jsonschema")),
    "clusters": Section(
        ("numpy", "safetensors"),
        ("kubernetes_validate", *(("ray", "distributed") if os.environ.get("INTEROP_FULL") else ())),
    ),
    "hub": Section(("numpy", "safetensors", "huggingface_hub")),
    "tf": Section(("numpy", "ml_dtypes", "safetensors", "tensorflow_cpu")),
}
# Peers outside the virtual environment: the variable that has the program, and what makes it tell its version.
PROGRAMS = {
    "old_torch": ("INTEROP_OLD_PYTHON", ["-c", "import torch; print(torch.__version__)"]),
    "tch": ("INTEROP_TCH", []),
    "ggml": ("INTEROP_GGML", ["--version"]),
}
SHOWN = 20  # failures a section


def main(program, work, *wanted):
    reject_unknown(wanted)
    missing = report_peers(wanted or SECTIONS)
    total = {"passed": 0, "failed": 0, "skipped": 0}
    if os.environ.get("CI"):
        total["failed"] += len(missing)
    for name in wanted or SECTIONS:
        lacking = [peer for peer in SECTIONS[name].needs if peer in missing]
        if lacking:
            passed, failures, skipped, notes = 0, [], [f"all of it needs {' and '.join(lacking)}"], []
        else:
            passed, failures, skipped, notes = run_alone(name, program, work)
        print(f"{name}: {passed + len(failures)} checks, {len(failures)} failed")
        print_indented("FAIL", failures)
        print_indented("skipped", skipped)
        print_indented("note", notes, len(notes))
        total["passed"] += passed
        total["failed"] += len(failures)
        total["skipped"] += len(skipped)
    print("{passed} passed, {failed} failed".format(**total) + (f", {total['skipped']} skipped" if total["skipped"] else ""))
    return 1 if total["failed"] else 0


def reject_unknown(wanted):
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        sys.exit(f"interop: no such section: {', '.join(unknown)} (there are {', '.join(SECTIONS)})")


def used_peers(wanted) -> list[str]:
    return list(dict.fromkeys(peer for name in wanted for peer in [*SECTIONS[name].needs, *SECTIONS[name].uses]))


def print_peers(*wanted):
    reject_unknown(wanted)
    lines = (Path(__file__).parent / "requirements.txt").read_text().splitlines()
    pins = {line.partition("==")[0]: line for line in lines if not line.startswith("#")}
    used = used_peers(wanted or SECTIONS)
    for peer in sorted(used, key=lambda peer: peer == "tch"):  # which is built against torch
        print(pins.get(peer, peer))


def report_peers(wanted) -> list[str]:
    """Prints each peer's version; the names of those that can't be used. None is loaded in this process, the
    sections' parent: torch has threads, which a fork would lose."""
    missing = []
    for peer in used_peers(wanted):
        variable, arguments = PROGRAMS.get(peer, ("", []))
        command = [os.environ.get(variable, ""), *arguments]
        if not variable:
            module = peer.removesuffix("_cpu")  # as tensorflow_cpu is called
            version = f"import {module}; from importlib import metadata; print(metadata.version({peer!r}))"
            command = [sys.executable, "-c", version]
        try:
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        except OSError as error:
            done = subprocess.CompletedProcess(command, 127, "", str(error))
        if done.returncode == 0:
            print(f"peer {peer} {done.stdout.strip()}")
        else:
            print(f"peer {peer} could not be set up: {done.stderr.strip().rpartition(chr(10))[2]}")
            missing.append(peer)
    return missing


def run_alone(name, program, work) -> tuple[int, list[str], list[str], list[str]]:
    """What the section passed, failed, skipped and has to tell."""
    context = get_context("fork",)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_section, args=(name, program, work, sender))
    sys.stdout.flush()
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        return 0, [f"the section's process ended early, with exit code {process.exitcode}"], [], []


def run_section(name, program, work, sender):
    from checks import Checks, Tconv

    checks = Checks()
    try:
        import_module(name).run(checks, Tconv(program, Path(work), checks))
    except Exception:
        checks.fail(f"cut short: {traceback.format_exc()}")
    sender.send((checks.passed, checks.failures, checks.skipped, checks.notes))


def print_indented(label, lines, shown=SHOWN):
    for line in lines[:shown]:
        print(f"  {label}: {line}")
    if len(lines) > shown:
        print(f"  {label}: and {len(lines) - shown} more")


if __name__ == "__main__":
    sys.exit(print_peers(*sys.argv[2:]) if sys.argv[1] == "--peers" else main(*sys.argv[1:]))
